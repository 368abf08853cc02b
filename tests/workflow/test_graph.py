"""The drawing of the workflow in the report, against Snakemake's own account of its rules."""

import re
from collections.abc import Callable
from typing import Any

from scsigmoid.config.check import load
from scsigmoid.config.plan import Plan
from scsigmoid.paper.workflow_graph import RULES, planned_jobs

# Every rule there is: a downloaded corpus, and all scIB metrics.
EVERYTHING = {
    "corpus": {"source": "cellxgene", "parts": 3},
    "datasets": {"pbmc68k": None},  # of the embedded corpus alone
    "evaluation": {
        "scib": {"metrics": ["silhouette_label", "leiden_nmi", "leiden_ari", "kmeans_nmi", "clisi"]}
    },
}


def test_rules_and_what_they_need(make_project: Callable[..., Any]) -> None:
    run = make_project(EVERYTHING).run("--rulegraph")
    assert run.returncode == 0, run.stderr
    names = dict(re.findall(r'(\d+)\[label = "(\w+)"', run.stdout))
    needs: dict[str, set[str]] = {name: set() for name in names.values() if name != "all"}
    for need, rule in re.findall(r"(\d+) -> (\d+)", run.stdout):
        if names[rule] != "all":
            needs[names[rule]].add(names[need])
    assert needs == {name: set(rule.needs) for name, rule in RULES.items()}


def test_numbers_of_jobs(make_project: Callable[..., Any]) -> None:
    project = make_project(EVERYTHING)
    run = project.run("-n")
    assert run.returncode == 0, run.stdout + run.stderr
    counts = {
        name: int(count)
        for name, count in re.findall(r"^(\w+) +(\d+)$", run.stdout, flags=re.MULTILINE)
        if name not in ("all", "total")
    }
    config = load(project.folder / "config.yaml", project.folder / "workflow/presets", EVERYTHING)
    assert planned_jobs(Plan(config)) == counts
