"""How the results were made: time and memory of the workflow's jobs, versions, hardware."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd

from scsigmoid.paper.results import Results
from scsigmoid.paper.tables.writing import DASH, Cell, Table

#: Snakemake's ``benchmark`` files, one a job: ``resources/<rule>[/<wildcards>].tsv``.
FOLDER = "resources"
#: Packages that the results depend on.
PACKAGES = (
    "snakemake", "torch", "triton", "numpy", "pyarrow", "scanpy", "anndata", "scib-metrics",
    "scikit-learn", "umap-learn", "matplotlib",
)  # fmt: skip


def costs(results: Results) -> pd.DataFrame:
    """What the jobs of each rule took, in their last attempts.

    Returns:
        One row a rule, by name, the most expensive first: ``jobs``, ``seconds`` (wall-clock time,
        summed), ``longest`` (seconds of the longest job) and ``memory`` (MB, resident memory of the
        largest job with its child processes; NaN where all were too short to be sampled).

    Raises:
        UserError: if a record is damaged.
    """
    records = []
    for path in sorted((results.folder / FOLDER).rglob("*.tsv")):
        relative = path.relative_to(results.folder)
        seconds, memory = results.cached(relative.as_posix(), read_record)
        rule = relative.with_suffix("").parts[1]
        records.append({"rule": rule, "seconds": seconds, "memory": memory})
    table = pd.DataFrame(records, columns=["rule", "seconds", "memory"]).groupby("rule")
    columns = {
        "jobs": ("seconds", "size"),
        "seconds": ("seconds", "sum"),
        "longest": ("seconds", "max"),
        "memory": ("memory", "max"),
    }
    return table.agg(**columns).sort_values("seconds", ascending=False)


def read_record(path: Path) -> tuple[float, float]:
    """Seconds and memory of one job: a header and one row; ``-`` or ``NA`` where not sampled."""
    (row,) = pd.read_csv(path, sep="\t", na_values="-").to_dict("records")
    return float(row["s"]), float(row["max_rss"])


def job_costs(results: Results) -> Table | None:
    """:func:`costs` as the report shows them, their total first; None without records."""
    table = costs(results)
    if table.empty:
        return None
    total = table.agg({"jobs": "sum", "seconds": "sum", "longest": "max", "memory": "max"})
    rows = [("All", total), *table.iterrows()]
    return Table(
        caption="Wall-clock time of each job's last attempt, added up; jobs run side by side, so "
        "the run took less. A job that resumed from a checkpoint counts from there. Memory is the "
        "resident memory of the largest job, without that of GPUs.",
        records=(),
        header=("Rule", "Jobs", "Time", "Longest job", "Most memory"),
        rows=[
            [
                Cell(text, bold=rule == "All")
                for text in (
                    str(rule).replace("_", " "),
                    f"{row['jobs']:,.0f}",
                    duration(row["seconds"]),
                    duration(row["longest"]),
                    DASH if pd.isna(row["memory"]) else f"{row['memory']:,.0f} MB",
                )
            ]
            for rule, row in rows
        ],
        align="lrrrr",
    )


def duration(seconds: float) -> str:
    """A time for reading: ``0.8 s``, ``95 s``, ``12 min``, ``31 h``."""
    unit, words = (1, "s") if seconds < 120 else (60, "min") if seconds < 7200 else (3600, "h")
    value = seconds / unit
    return f"{value:,.1f} {words}" if value < 10 else f"{value:,.0f} {words}"


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
    from scsigmoid.benchmarks.rows import cpu_name

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
