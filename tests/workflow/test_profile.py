"""What the Slurm profile asks for: something for every rule of the workflow, by one place."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import profile_of
from yte import process_yaml

ROOT = Path(__file__).parents[2]
# Named targets are no jobs.
STAGES = sorted(
    set((ROOT / "workflow/rules").glob("*.smk")) - {ROOT / "workflow/rules/targets.smk"}
)


def rules() -> dict[str, str]:
    """The text of every rule that is a job, by name; of one made from another, both texts."""
    found: dict[str, str] = {}
    for path in STAGES:
        text = path.read_text(encoding="utf-8")
        parts = re.split(r"^(?:use )?rule (\w+)(?: as (\w+) with)?:\n", text, flags=re.MULTILINE)
        for name, derived, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            found[derived or name] = found.get(name, "") + body
    return found


def profile(**site: Any) -> dict[str, Any]:
    """The profile of a site."""
    values: dict[str, Any] = process_yaml(profile_of(site))
    return values


def test_every_rule_has_its_numbers() -> None:
    resources = profile()["set-resources"]
    assert set(resources) == set(rules())
    for rule, asked in resources.items():
        assert 0 < asked["runtime"] <= 24 * 60, rule
        assert 0 < asked["mem_mb"] <= 64_000, rule


@pytest.mark.parametrize("gres", [False, True])
def test_rules_with_a_gpu_go_where_gpus_are(gres: bool) -> None:
    resources = profile(gpu_partition="accelerated", gres=gres)["set-resources"]
    for rule, text in rules().items():
        on_gpus = re.search(r"\bgpu=", text) is not None
        asked = resources[rule]
        assert (asked.get("slurm_partition") == "accelerated") == on_gpus, rule
        assert ("gres" in asked, asked.get("gpu") == 0) == (on_gpus and gres,) * 2, rule


def test_rules_that_download_go_where_the_internet_is(make_project: Callable[..., Any]) -> None:
    """Snakemake counts their jobs as downloads."""
    corpus = {"source": "cellxgene", "parts": 2}
    project = make_project({"corpus": corpus, "datasets": {"pbmc68k": None}})
    run = project.run("-n", "--quiet", "host")
    assert run.returncode == 0, run.stdout + run.stderr
    jobs = re.findall(r"^rule (\w+):\n((?:    .*\n)+)", run.stdout, flags=re.MULTILINE)
    downloads = {rule for rule, text in jobs if re.search(r"\bdownload=1\b", text)}
    assert downloads == {"manifest", "training_cells", "evaluation_cells"}
    resources = profile(data_partition="data")["set-resources"]
    there = {rule for rule, asked in resources.items() if asked.get("slurm_partition") == "data"}
    assert there == downloads


def test_light_jobs_are_one_submission() -> None:
    values = profile()
    light = {"table", "figure", "report_page"}
    assert set(values["groups"]) == light
    (group,) = set(values["groups"].values())
    assert values["group-components"][group] >= 100
