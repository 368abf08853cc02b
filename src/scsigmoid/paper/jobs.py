"""Time and memory of the workflow's jobs, as Snakemake's ``benchmark`` files have them."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scsigmoid.paper.results import Results

#: One file a job: ``resources/<rule>.tsv`` or ``resources/<rule>/<wildcards>.tsv``.
FOLDER = "resources"


@dataclass(frozen=True)
class Cost:
    """What some jobs took, in their last attempts.

    Attributes:
        jobs: how many were recorded.
        seconds: their wall-clock times added up.
        longest: time of the longest one.
        memory: resident memory of the largest one in MB, all its processes together; NaN where all
            were too short to be sampled.
    """

    jobs: int
    seconds: float
    longest: float
    memory: float


def costs(results: Results) -> dict[str, Cost]:
    """The costs of every rule that left a record, by name.

    Raises:
        UserError: if a record is damaged.
    """
    found: dict[str, list[Cost]] = {}
    for path in sorted((results.folder / FOLDER).rglob("*.tsv")):
        relative = path.relative_to(results.folder)
        rule = relative.with_suffix("").parts[1]
        found.setdefault(rule, []).append(results.cached(relative.as_posix(), read_job))
    return {rule: together(jobs) for rule, jobs in found.items()}


def together(parts: Sequence[Cost]) -> Cost:
    """The cost of several jobs, or of several rules."""
    memory = [part.memory for part in parts if not math.isnan(part.memory)]
    return Cost(
        jobs=sum(part.jobs for part in parts),
        seconds=sum(part.seconds for part in parts),
        longest=max((part.longest for part in parts), default=0.0),
        memory=max(memory, default=math.nan),
    )


def read_job(path: Path) -> Cost:
    """One record: a header and one line, tabs between; ``-`` or ``NA`` for what was not sampled."""
    with path.open(newline="", encoding="utf-8") as handle:
        (row,) = csv.DictReader(handle, delimiter="\t")
    seconds, memory = float(row["s"]), row["max_rss"]
    return Cost(1, seconds, seconds, math.nan if memory in ("-", "NA") else float(memory))


def duration(seconds: float) -> str:
    """A time as people say it: ``0.8 s``, ``95 s``, ``12 min``, ``31 h``."""
    for limit, unit, words in ((120, 1, "s"), (7200, 60, "min"), (math.inf, 3600, "h")):
        if seconds < limit:
            value = seconds / unit
            return f"{value:,.1f} {words}" if value < 10 else f"{value:,.0f} {words}"
    raise AssertionError("no time is infinite")
