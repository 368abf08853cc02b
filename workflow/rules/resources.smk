"""Resources that the rules ask for: downloads, GPUs, memory and time."""


def default_resource(name):
    """Return a default resource, or None if the profile does not set it."""
    defaults = workflow.resource_settings.default_resources or {}
    return defaults[name].raw if name in defaults else None


# Resources of jobs that download files. At a time, profiles allow a limited number of jobs with the
# resource `download`, `alone` (benchmarks) or `at_once` (tables and figures).
DOWNLOAD = {"download": 1, "slurm_partition": default_resource("data_partition")}


def gpu_resources(count, nodes=1):
    """Return the resources of a job with `count` GPUs on each of its nodes.

    The GPUs are requested by the resource `gres` if the Slurm profile sets `use_gres`, otherwise by
    the resource `gpu`.
    """
    if not count:
        return {"gpu": 0}
    use_gres = default_resource("use_gres")
    gpus = {"gpu": 0, "gres": f"gpu:{count}"} if use_gres else {"gpu": count * nodes}
    return {"slurm_partition": default_resource("gpu_partition"), **gpus}


def limits(mem_mb, runtime=None, input_factor=0, minutes_per_gb=0):
    """Return the resources for memory (MB) and time (minutes) of a job.

    The memory is `mem_mb` plus `input_factor` times the size of the input files. The time is
    `runtime` plus `minutes_per_gb` for each GB of the input files. Snakemake does not know the size
    of folders. Both are multiplied by the number of the attempt. Jobs may not run longer than the
    profile allows (`longest`). Without `runtime`, they ask for that time, or for a day.
    """
    longest = int(default_resource("longest") or 0)

    def memory(wildcards, input, attempt):
        return attempt * (mem_mb + int(input_factor * input.size_mb if input_factor else 0))

    def minutes(wildcards, input, attempt):
        if runtime is None:
            return longest or 24 * 60
        size = minutes_per_gb * input.size_mb / 1000 if minutes_per_gb else 0
        asked = attempt * (runtime + int(size))
        return min(asked, longest) if longest else asked

    return {"mem_mb": memory, "runtime": minutes}
