"""The table that compares the paper's numbers with the numbers of a run."""

import math

from scsigmoid.labels import number
from scsigmoid.measurements import Interval
from scsigmoid.paper.comparison import GROUPS, NO_VERDICT, numbers
from scsigmoid.paper.differences import differences
from scsigmoid.report.tables.writing import DASH, Cell, Table, pick
from scsigmoid.results.folder import Results


def comparison(results: Results) -> Table:
    """Return the table of the paper's and this run's numbers. Comparable groups have verdicts."""
    # The reasons why a group is not comparable.
    reasons: dict[str, list[str]] = {group: [] for group in GROUPS}
    for difference in differences(results.config, results):
        reasons[difference.group].append(str(difference))
    rows: list[list[Cell | str]] = []
    records: list[dict[str, object]] = []
    all_numbers = numbers(results)
    for group, title in GROUPS.items():
        rows.append([f"{title}: {'not comparable' if reasons[group] else 'comparable'}"])
        for row in (row for row in all_numbers if row.group == group):
            verdict = NO_VERDICT if reasons[group] else row.verdict
            records.append(
                {"group": group, "headline": row.headline, "number": row.title}
                | pick(row, "location unit")
                | row.paper.columns("paper")
                | row.here.columns("here")
                | {"n": row.n}
                | row.our_kernel.columns("our_kernel")
                | {"least": row.allowed[0], "most": row.allowed[1], "verdict": verdict}
            )
            rows.append(
                [
                    Cell(row.title, bold=row.headline),
                    " ".join(filter(None, [as_text(row.paper, brief=True), row.unit])),
                    as_text(row.here),
                    verdict,
                    as_text(row.our_kernel),
                    f"{row.n:,}" if row.n else DASH,
                    row.location,
                ]
            )
    return Table(
        caption="The paper's numbers next to the numbers of this run. The paper's main statements "
        "are bold. Brackets are intervals, and n is the number of cells, pairs, shapes, rounds or "
        "steps behind a number of this run. Only groups of numbers that are comparable with the "
        "paper have verdicts. A level is reproduced if its whole interval is within 10 % of the "
        "paper's number. A difference, ratio or count is reproduced if its whole interval has the "
        "paper's direction and at least half of its size (docs/comparison.md).",
        records=records,
        header=("Number", "Paper", "Here", "Verdict", "Our kernel", "n", "Location"),
        rows=rows,
        align="lrclcrl",
        notes=[
            f"{title} differs from the paper in: {'; '.join(reasons[group])}."
            for group, title in GROUPS.items()
            if reasons[group]
        ],
    )


def as_text(interval: Interval, *, brief: bool = False) -> str:
    """Return a value with its interval (not if ``brief``) as text, or a range without a value."""
    value, low, high = interval
    if math.isnan(value):
        return DASH if math.isnan(low) else f"{number(low)} to {number(high)}"
    if brief or math.isnan(low) or low == high:
        return number(value)
    return f"{number(value)} [{number(low)}, {number(high)}]"
