"""How the results were made: time and memory of the workflow's jobs, versions, hardware."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd

from scsigmoid.paper.results import Results

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


def cost_rows(results: Results) -> list[dict[str, str]]:
    """:func:`costs` as the report shows them, and their total; none without records."""
    table = costs(results)
    if table.empty:
        return []
    total = {
        "jobs": table["jobs"].sum(),
        "seconds": table["seconds"].sum(),
        "longest": table["longest"].max(),
        "memory": table["memory"].max(),
    }
    rows = [("All", pd.Series(total)), *table.iterrows()]
    return [
        {
            "name": str(rule).replace("_", " "),
            "jobs": f"{row['jobs']:,.0f}",
            "time": duration(row["seconds"]),
            "longest": duration(row["longest"]),
            "memory": "–" if pd.isna(row["memory"]) else f"{row['memory']:,.0f} MB",  # noqa: RUF001
        }
        for rule, row in rows
    ]


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
