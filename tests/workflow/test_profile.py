"""The resources that jobs request with the Slurm profile."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from slurm_cluster import profile_of

PROFILE = "workflow/profiles/slurm"
ON_GPUS = {
    *("train", "embeddings_of_pair", "validation_loss_of_model", "mmd_of_dataset"),
    *("benchmark_kernel", "benchmark_training"),
}
DOWNLOADS = {"manifest", "training_cells", "evaluation_cells"}


def requested(project: Any, *arguments: str) -> dict[str, dict[str, str]]:
    """Return the resources of a job of each rule, from a dry run."""
    run = project.run("-n", *arguments)
    jobs = re.findall(r"^rule (\w+):\n(?:    .*\n)*?    resources: (.*)", run.stdout, re.MULTILINE)
    return {rule: dict(re.findall(r"(\w+)=([^,]*)", text)) for rule, text in jobs}


@pytest.mark.parametrize("gres", [False, True])
def test_jobs_request_resources_of_the_site(make_project: Callable[..., Any], gres: bool) -> None:
    """The command line sets a resource, which replaces ``set-resources`` of a profile."""
    project = make_project({"preset": "paper", "corpus": {"parts": 2}})
    site = {"gpu_partition": "accelerated", "data_partition": "data", "gres": gres, "hours": 12}
    site |= {"account": "lab", "cpus_per_gpu": 3, "extra": "--nice=7"}
    (project.folder / PROFILE / "config.yaml").write_text(profile_of(site))
    resources = requested(
        project, "--workflow-profile", PROFILE, "--set-resources", "lock:mem_mb=1"
    )
    del resources["all"]
    assert set(resources) > ON_GPUS | DOWNLOADS
    for rule, asked in resources.items():
        place = "accelerated" if rule in ON_GPUS else "data" if rule in DOWNLOADS else "cpu"
        assert (asked["slurm_partition"], asked["slurm_account"]) == (place, "lab"), rule
        extra = "--signal=TERM@300 --nice=7" if rule == "train" else "--nice=7"
        assert asked["slurm_extra"] == extra, rule
        count = "1" if rule in ON_GPUS and not gres else "0"
        assert asked.get("gpu", "0") == count, rule
        assert asked.get("gres") == ("gpu:1" if rule in ON_GPUS and gres else None), rule
        assert asked["mem_mb"] == "<TBD>" or 0 < int(asked["mem_mb"]) <= 16_000, rule
        assert 0 < int(asked["runtime"]) <= 12 * 60, rule
        assert ("download" in asked) == (rule in DOWNLOADS), rule
    assert resources["train"]["cpus_per_task"] == "3"
    assert resources["lock"]["mem_mb"] == "1"


def test_the_longest_job_may_be_part_of_an_hour(make_project: Callable[..., Any]) -> None:
    project = make_project({"preset": "paper", "corpus": {"parts": 1}})
    (project.folder / PROFILE / "config.yaml").write_text(profile_of({"hours": 0.5}))
    resources = requested(project, "--workflow-profile", PROFILE)
    assert resources["train"]["runtime"] == resources["manifest"]["runtime"] == "30"
