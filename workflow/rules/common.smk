"""Check the configuration, and define the constants and functions that the rules use."""

import atexit
import os
import re
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from snakemake.io import IOFile, contains_wildcard
from snakemake.logging import logger
from snakemake.persistence import PersistenceBase
from snakemake.settings.enums import Quietness


def put_first(variable, folder):
    """Put a folder first in an environment variable such as PATH, which jobs inherit.

    Empty entries, which mean the working folder, are removed.
    """
    folders = os.environ.get(variable, "").split(os.pathsep)
    os.environ[variable] = os.pathsep.join([str(folder), *filter(None, folders)])


def stop(message):
    """End Snakemake with a one-line error. Another exception would print a traceback."""
    sys.exit(f"scsigmoid: error: {message}")


def missing_module(error):
    """Return the message for a Python module that is not installed."""
    return (
        f"Python module {error.name} is missing. Install this version of scsigmoid next to Snakemake:"
        " pip install '.[workflow]' in a clone"
    )


DEPLOYMENT = {method.name for method in workflow.deployment_settings.deployment_method}
if "APPTAINER" in DEPLOYMENT:
    stop(
        "--sdm apptainer: no image is published. Build envs/Containerfile and run snakemake in it"
        " (docs/running.md), or use --sdm conda"
    )
if workflow.storage_settings.default_storage_provider is not None:
    stop(
        "--default-storage-provider: not supported, because checkpoints and downloads are not"
        " transferred; leave it out, and set results to a folder that all jobs share"
    )
# In a clone, Snakemake and all jobs import the package from here. A workflow that is deployed from
# a remote repository uses the package that is installed next to Snakemake.
SOURCE = Path(str(workflow.current_basedir)).parents[1] / "src"
if SOURCE.is_dir():
    sys.path.insert(0, str(SOURCE))
    put_first("PYTHONPATH", SOURCE)
elif "CONDA" in DEPLOYMENT:
    stop("--sdm conda: conda environments do not contain the package; use a clone as the module")
if not DEPLOYMENT:
    put_first("PATH", Path(sys.executable).parent)  # jobs run `python`
# Without this variable, `python -m` would import modules from the working folder, e.g. random.py.
# (`snakemake --lint` reports os.environ[...] = "1".)
os.environ.update({"PYTHONSAFEPATH": "1"})
# Each job prints a line on the terminal, and training prints its rate (SCSIGMOID_LINES). On a
# cluster, jobs print only to their logs (SCSIGMOID_SILENT).
OUTPUT_VARIABLE = "SCSIGMOID_SILENT" if workflow.remote_exec else "SCSIGMOID_LINES"
os.environ.update({OUTPUT_VARIABLE: "1"})


def hide_with_rules(record):
    """Let `quiet: rules` also hide lines that Snakemake prints before and after each job."""
    if str(record.msg).startswith(("Select jobs to execute", "Execute ", "Finished jobid")):
        record.quietness = Quietness.RULES
    return True


logger.addFilter(hide_with_rules)

try:
    import psutil

    from scsigmoid.config import check, combinations, local_files, plan, stored
    from scsigmoid.config.compared import compared, training_entries
    from scsigmoid.config.initial import initial_checksum, initial_path
    from scsigmoid.errors import UserError, first_few
    from scsigmoid.files import locked, sha256
    from scsigmoid.forecast.choices import choose
    from scsigmoid.report import registry
    from scsigmoid.config.stale_lock import clear_stale_lock, note_run, running_jobs
except ModuleNotFoundError as error:
    stop(missing_module(error))

if workflow.is_main_process and clear_stale_lock(".snakemake"):
    print("An earlier run was killed. Its lock is removed.", file=sys.stderr)

# Next to another run, a dry run would print "Error: Directory cannot be locked", and continue.
PersistenceBase.lock_warn_only = PersistenceBase.noop

IS_MODULE = not workflow.modifier.is_main_snakefile()
try:
    if not IS_MODULE:
        # Snakemake has read these files, but it accepts errors such as duplicate keys.
        for file in workflow.configfiles:
            check.read_yaml(file)
    CONFIG = check.load(overrides=config, choose=choose)
except UserError as error:
    stop(error)
except ModuleNotFoundError as error:  # of the modules that read own files
    stop(missing_module(error))

# Snakemake compares paths as text: with `./results`, it would not find the records of `results`.
RESULTS = os.path.normpath(CONFIG.results or f"results/{CONFIG.preset}")
PLAN = plan.Plan(CONFIG)
CHECKSUM = stored.checksum(CONFIG.model_dump())
if workflow.is_main_process:
    for setting, choice in CONFIG.choices.items():
        print(f"{setting} = {choice}", file=sys.stderr)
TABLES, FIGURES = (registry.names(kind, PLAN) for kind in ("table", "figure"))
LOCK_FILE = [f"{RESULTS}/corpus/lock.csv"] if CONFIG.corpus.source == "cellxgene" else []
# GPUs of an evaluation or benchmark, and of training on each of its nodes. 0 for the device cpu.
GPUS = int(CONFIG.device != "cpu")
TRAINING_GPUS = GPUS * CONFIG.gpus
# For each GPU, training has a process and the threads that load its batches.
TRAINING_THREADS = (
    TRAINING_GPUS * (1 + CONFIG.training.execution.workers) or CONFIG.training.execution.threads
)
ENVIRONMENT = "../../envs/scsigmoid.yaml"


def modified(path):
    """Return the path of an output, with the prefix of a module."""
    return str(workflow.modifier.path_modifier.modify(f"{RESULTS}/{path}"))


MODEL_FILES = {name: modified(f"training/{name}/model.safetensors") for name in PLAN.trained}
OUTDATED = set()  # model files that are trained again, because their settings differ


wildcard_constraints:
    part=r"\d{5}",
    dataset="|".join(PLAN.datasets),
    model="|".join(PLAN.trained),
    snapshot=r"(-step-\d{8})?",  # suffix of a snapshot's file, or empty for the final model


def read(*names, run=None):
    """Return a function for `params`: it returns the values of settings that a job reads, as JSON.

    Snakemake compares them with those of the last run, and runs the job again if they differ. Jobs
    themselves read the stored configuration. Names are dotted, and may contain wildcards, as in
    `datasets.{dataset}`. A section has only its own settings, so sections in it are named, too.
    Settings at their default in the schema are left out (`scsigmoid.config.compared`). `run` is a
    model or a run of a study. Its own values then replace the general ones (`Plan.run_config`).
    """

    def settings(wildcards):
        values = dict(wildcards.items())
        config = PLAN.run_config(run.format(**values)) if run else CONFIG
        return check.as_json(compared(config, *[name.format(**values) for name in names]))

    return settings


def read_by_entry(kind):
    """Return a function for `params`: `read` with the settings of a table or figure."""
    return lambda wildcards: read(*registry.find(kind, wildcards.name, PLAN).settings)(wildcards)


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


def result(pattern, **lists):
    """Return paths in the results folder, for all combinations of values of the wildcards.

    `lists` contains the values of each wildcard of `pattern`.
    """
    return expand(f"{RESULTS}/{pattern}", **lists)


def study_journals(wildcards):
    """Return the journals of a study's runs, or stop if the configuration has no study."""
    if not PLAN.study_runs:
        stop("the configuration has no study; add one, as in workflow/studies/arms.yaml")
    return result("training/{model}/journal.csv", model=PLAN.study_runs)


def stability_figure(wildcards):
    """Return the figure of the stress test, or stop if no model is in it."""
    if not PLAN.stress_models:
        stop("stress_test: no model is in the stress test; set models.<name>.stress: true for one")
    return result("figures/stability.png")


def mmd_embeddings(wildcards):
    """Return the embeddings that MMD compares, or stop if MMD is not possible."""
    for problem in combinations.find_mmd_problems(CONFIG):
        stop(problem)
    return result(
        "embeddings/{dataset}/{model}.h5ad", dataset=wildcards.dataset, model=CONFIG.evaluation.pair
    )


def content_of(path):
    """Return the checksum of a small file of the user, for `params`, or "" without a file."""
    return sha256(Path(path)) if path and os.path.isfile(path) else ""


def input_files():
    """Return the paths of the user's files in the configuration, of 10x folders their files."""
    own = local_files.own_files(CONFIG.corpus, CONFIG.datasets)
    files = [path for file in own for path in local_files.files_of(file.path)]
    files += map(Path, filter(None, (CONFIG.corpus.manifest, CONFIG.tokens.vocabulary.genes)))
    files += [initial_path(PLAN.initial)] if PLAN.initial else []
    if wrong := first_few(filter(contains_wildcard, files)):
        stop(f"{wrong}: Snakemake would take the braces for a wildcard; rename the file or folder")
    return files


@cache
def force_if_replaced(manifest):
    """Run a job again if one of the user's files was replaced by an older file."""
    path = modified(manifest)
    if workflow.is_main_process and not workflow.touch:
        if replaced := local_files.replaced_files(Path(path)):
            names = ", ".join(map(str, replaced))
            print(f"{path}: made again, because files were replaced: {names}", file=sys.stderr)
            workflow.dag.forcefiles.add(path)


def user_files(wildcards):
    """Return the user's own files that the manifest depends on: training files, or a manifest."""
    if CONFIG.corpus.source == "local":
        # `held_out: true` means that all cells of a file are held out.
        files = local_files.expand(CONFIG.corpus.local)
        training_files = [file for file in files if file.held_out is not True]
        force_if_replaced("corpus/manifest.csv")
        return [str(path) for file in training_files for path in local_files.files_of(file.path)]
    if CONFIG.corpus.manifest:
        return [local(CONFIG.corpus.manifest)]  # `local` keeps a module from adding its prefix
    return []


def user_file_of_dataset(wildcards):
    """Return the user's own files with the held-out cells of a dataset, or []."""
    file = PLAN.held_out_files.get(wildcards.dataset)
    if file:
        force_if_replaced(f"corpus/evaluation/{wildcards.dataset}.csv")
    return [str(path) for path in local_files.files_of(file.path)] if file else []


@cache
def warn_of_missing_records(results):
    """Name the changed settings of a results folder that was renamed or copied without records."""
    if changed := stored.changed_settings(CONFIG, results / "config.yaml"):
        print(
            f"scsigmoid: warning: {results}: .snakemake has no record of its files (renamed, copied,"
            " or made in another folder), so they are not made again for settings that differ from"
            f" {results}/config.yaml: {', '.join(changed)}. To record the settings of the files,"
            " first run `snakemake --touch --forceall` with the old settings",
            file=sys.stderr,
        )


@cache
def find_outdated(model):
    """Return no inputs, but train a finished model again if its file states other settings.

    Snakemake compares settings with its own records. A record is missing or older than the model if
    Snakemake was killed while the job ran, or if the results were copied without `.snakemake`.
    """
    path = MODEL_FILES[model]
    if workflow.is_main_process and not workflow.touch:
        if os.path.exists(path) and not workflow.persistence.metadata(IOFile(path)):
            warn_of_missing_records(Path(path).parents[2])
        if changed := PLAN.changed_settings(model, path):
            message = f"{path}: trained again, because settings differ: {'; '.join(changed)}"
            print(message, file=sys.stderr)
            OUTDATED.add(path)
            workflow.dag.forcefiles.add(path)  # unlike forcerun, this does not add a target
    return []


def record_in_job():
    """Let this job of a cluster record its settings and its id in `.snakemake`.

    By default, only the Snakemake that submits the job writes the record when the job ends. If it
    was killed, the record would be missing, and later changes of settings would be ignored. Jobs
    would also replace the id under which they were submitted by none.
    """
    started, finished = PersistenceBase.started, PersistenceBase.finished

    def set_option(**option):
        workflow.remote_execution_settings = replace(workflow.remote_execution_settings, **option)

    def started_with_id(self, job, external_jobid=None):
        started(self, job, external_jobid or next(iter(self.external_jobids(job)), None))

    async def finished_with_record(self, job):
        # With this option, jobs write their own records. It must not affect the scheduler.
        set_option(immediate_submit=True)
        try:
            await finished(self, job)
        finally:
            set_option(immediate_submit=False)

    PersistenceBase.started = started_with_id
    PersistenceBase.finished = finished_with_record


if workflow.remote_exec:
    record_in_job()


def warn_of_earlier_jobs():
    """Name the jobs of an earlier run, which was killed, that are still on the cluster."""
    jobs = {}
    for job in workflow.dag.needrun_jobs():
        for number in workflow.persistence.external_jobids(job):
            jobs.setdefault(number, f"{number} ({' '.join([job.rule.name, *job.wildcards])})")
    if jobs:
        command = ["squeue", "--me", "--noheader", "--states=PD,R,S,CG", "--format=%i"]
        with suppress(OSError):  # not Slurm
            queue = subprocess.run(command, capture_output=True, text=True, check=False)
            if queue.returncode == 0:
                jobs = {number: jobs[number] for number in queue.stdout.split() if number in jobs}
    if jobs:
        print(
            "scsigmoid: warning: jobs of an earlier run may still run and write the same files:"
            f" {', '.join(jobs.values())}. Cancel them, or wait for them and run again",
            file=sys.stderr,
        )


def pass_on_interrupts():
    """Stop jobs if only Snakemake receives SIGINT (`kill -INT`), as Ctrl-C stops them.

    Otherwise, Snakemake would wait until the jobs end. Ctrl-C reaches all processes, but a second
    SIGINT would stop training without a checkpoint, so jobs must receive the signal once.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    # A process that ends when Snakemake closes its input, or by a SIGINT that all processes receive.
    witness = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    atexit.register(witness.communicate)

    def interrupt(number, frame):
        try:
            witness.wait(timeout=1)
        except subprocess.TimeoutExpired:
            for process in psutil.Process().children(recursive=True):
                # Processes of other groups get the signal from torchrun or srun, as after Ctrl-C.
                with suppress(ProcessLookupError):
                    if process.pid != witness.pid and os.getpgid(process.pid) == os.getpgrp():
                        os.kill(process.pid, signal.SIGINT)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)


def stored_configuration(wildcards, output):
    """Return the path of the stored configuration, which jobs read, and its expected checksum.

    Snakemake does not compare this parameter, because its function has the argument `output`: jobs
    are rerun only if the settings that they `read` change. `onstart` writes the file. If the
    workflow is a module, `onstart` does not run, so this function writes the file before jobs
    start. A job stops if another run has replaced the file, for example after this Snakemake was
    killed while its jobs waited on a cluster.
    """
    prefix = output[0].partition(RESULTS)[0]  # the paths of a module may have a prefix
    path = f"{prefix}{RESULTS}/config.yaml"
    # The workflow has an `executor_plugin` only if it runs jobs, unlike for --lint.
    if IS_MODULE and workflow.is_main_process and workflow.executor_plugin:
        if not (workflow.dryrun or workflow.touch):
            store_configuration(path, any(workflow.dag.needrun_jobs()))
    return [path, "--checksum", CHECKSUM]


@cache
def lock_results(folder):
    """Lock a results folder. Raise a UserError if another run or local jobs of a killed run use it.

    Snakemake locks only its working folder, and each run that ends removes the locks of all runs.
    """
    lock = locked(f"{folder}/.workflow", "running the workflow")
    lock.__enter__()
    if jobs := running_jobs(f"{folder}/config.yaml"):
        raise UserError(
            f"{folder}: jobs of a killed run still write to it; wait for them or stop them (kill"
            f" {' '.join(map(str, jobs))}), and run again"
        )
    return lock  # the cache keeps the lock until this process ends


def check_outputs(results):
    """Raise a UserError if a file or folder that Snakemake will delete contains a user's file.

    Before a job runs, Snakemake deletes its outputs: files, and folders with all their files.
    """
    paths = [Path(path) for job in workflow.dag.needrun_jobs() for path in job.output]
    # Links to files of the user are outputs, too, so only the links of folders are followed.
    files = [file.parent.resolve() / file.name for file in input_files()]
    inputs = {path for file in files for path in (file, *file.parents)}
    for path in paths if not workflow.touch else []:
        message = ""
        if other := stored.find_other_files(path, results):
            message = (
                f"{path}: contains files that no job wrote ({first_few(other)}), and would be"
                " deleted because its job runs again; move these files, and run again"
            )
        # The lock is read before it is written again, with the same rows.
        elif path.name != "lock.csv" and path.parent.resolve() / path.name in inputs:
            message = (
                f"{path}: is an input in the configuration, or contains one, and would be deleted"
                " because a job writes it; move the input, and correct its path in the configuration"
            )
        if message:
            if IS_MODULE:  # Snakemake has started, and would not print the error
                print(f"scsigmoid: error: {message}", file=sys.stderr)
            raise UserError(message)


@cache
def store_configuration(path, is_planned=True):
    """Write the configuration to a file, unless it is a file of the user (`stored.store`).

    A module writes it once before Snakemake knows which jobs run (`is_planned` is False), and once
    when the first of them starts.
    """
    try:
        folder = path.rpartition("/")[0]
        lock_results(folder)
        check_outputs(folder)
        stored.store(CONFIG, Path(path), workflow.configfiles)
    except UserError as error:
        stop(error)
    except OSError as error:
        stop(f"{path}: cannot be written ({error.strerror}); set results to a writable folder")


def remove_old_checkpoints():
    """Remove the checkpoints of finished models that are trained again from the beginning.

    These are models whose training is forced (-R train) or whose files were deleted. Interrupted
    runs (without a file `finished`, which contains the number of steps) and runs with changed
    settings keep their checkpoints. Training decides whether it can continue from them.
    """
    if workflow.touch:
        return
    for job in workflow.dag.needrun_jobs():
        reason = workflow.dag.reason(job)
        if job.rule.name != "train" or not (reason.forced or reason.missing_output):
            continue
        if job.output.model in OUTDATED:
            continue
        folder = Path(job.output.model).parent / "checkpoints"
        finished = folder / "finished"
        steps = PLAN.run_config(job.wildcards.model).training.steps
        if finished.is_file() and finished.read_bytes() == f"{steps}\n".encode():
            for path in (*folder.glob("step-*.pt"), *folder.glob("step-*.sha256"), finished):
                path.unlink()


def inputs_of(kind):
    """Return a function of wildcards: it returns the inputs of a table or figure, if it exists."""

    def inputs(wildcards):
        try:
            return result("{path}", path=registry.find(kind, wildcards.name, PLAN).inputs)
        except UserError as error:
            stop(error)

    return inputs


def names_of(kind):
    """Return the constraint of the wildcard `name`. Unknown names are an error (`inputs_of`).

    In a module, they may be files of the other workflow. Input files of the user are not matched.
    """
    known = registry.entries(kind, PLAN)
    if IS_MODULE:
        return "|".join(known)
    names = [
        re.sub(r"\W", ".", path.name)  # Snakemake does not accept all characters in constraints
        for path in input_files()
        if path.parent == Path(RESULTS, f"{kind}s") and path.stem not in known
    ]
    return f"(?!(?:{'|'.join(names)})$)[^/]+" if names else "[^/]+"
