"""How the results were made: time and memory of the workflow's rules, versions, hardware."""

import math
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from scsigmoid.config.plan import Plan
from scsigmoid.paper.jobs import Cost, costs, duration, together
from scsigmoid.paper.results import Results
from scsigmoid.paper.tables.writing import DASH
from scsigmoid.paper.workflow_graph import RULES, planned_jobs

#: Packages that the results depend on.
PACKAGES = (
    "snakemake", "torch", "triton", "numpy", "pyarrow", "scanpy", "anndata", "scib-metrics",
    "scikit-learn", "umap-learn", "matplotlib",
)  # fmt: skip


def cost_rows(results: Results) -> list[dict[str, str]]:
    """Jobs, time and memory of every stage and its rules, and of all; none without records.

    Raises:
        UserError: if a record is damaged.
    """
    found = costs(results)
    if not found:
        return []
    jobs = planned_jobs(Plan(results.config))
    del jobs["report_page"]  # it is at work on this page
    rows = []
    for stage in dict.fromkeys(RULES[rule].stage for rule in jobs):
        rules = [rule for rule in jobs if RULES[rule].stage == stage]
        rows.append(sum_row(stage.capitalize(), rules, jobs, found) | {"of": "stage"})
        rows += [sum_row(rule.replace("_", " "), [rule], jobs, found) for rule in rules]
    return [*rows, sum_row("All", list(jobs), jobs, found) | {"of": "stage"}]


def sum_row(
    name: str, rules: Sequence[str], jobs: Mapping[str, int], found: Mapping[str, Cost]
) -> dict[str, str]:
    """One line: what the jobs of some rules took, and how many of them left no record."""
    cost = together([found[rule] for rule in rules if rule in found])
    planned = sum(jobs[rule] for rule in rules)
    count = f"{cost.jobs:,} of {planned:,}" if cost.jobs < planned else f"{cost.jobs:,}"
    return {
        "name": name,
        "of": "rule",
        "jobs": count,
        "time": duration(cost.seconds) if cost.jobs else DASH,
        "longest": duration(cost.longest) if cost.jobs else DASH,
        "memory": DASH if math.isnan(cost.memory) else f"{cost.memory:,.0f} MB",
    }


def versions(results: Results) -> dict[str, dict[str, str]]:
    """Versions and hardware: of training and the benchmarks from their files, and of this page."""
    journal = results.journal(results.config.evaluation.pair[0])
    named = ("scsigmoid", "python", "torch", "cuda", "numpy", "device", "backend")
    found = {"Training": {key: journal.header[key] for key in named if key in journal.header}}
    for benchmark in ("kernel", "throughput", "training"):
        machine = {key: str(value) for key, value in results.machine(benchmark).items() if value}
        found[f"{benchmark.capitalize()} benchmark"] = machine
    return found | {"This page": environment()}


def environment() -> dict[str, str]:
    """Machine and packages that the page was made with: on one machine those of all other jobs."""
    from scsigmoid.benchmarks.machine import cpu_name

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = {
        "system": platform.platform(),
        "cpu": cpu_name(),
        "cpu_cores": str(os.cpu_count() or ""),
        "memory": f"{memory:.1f} GiB",
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
