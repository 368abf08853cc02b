"""The table that compares the paper's numbers with the numbers of a run."""

import math

from scsigmoid.paper.all_numbers import GROUPS, numbers
from scsigmoid.paper.differences import differences
from scsigmoid.paper.number import NO_VERDICT
from scsigmoid.records.measurements import Interval
from scsigmoid.report.tables.writing import DASH, Cell, Table, pick
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import four_digits


def comparison(results: Results) -> Table:
    """Return the table of the paper's and this run's numbers. Comparable groups have verdicts."""
    # By group: the reasons why the group is not comparable.
    reasons: dict[str, list[str]] = {group: [] for group in GROUPS}
    for difference in differences(results.config, results):
        reasons[difference.group].append(str(difference))
    rows: list[list[Cell | str]] = []
    records: list[dict[str, object]] = []
    all_numbers = numbers(results)
    for group, title in GROUPS.items():
        rows.append([f"{title}: {'not comparable' if reasons[group] else 'comparable'}"])
        for number in all_numbers:
            if number.group != group:
                continue
            verdict = NO_VERDICT if reasons[group] else number.verdict
            least, most = number.allowed
            records.append(
                {"group": group, "headline": number.headline, "number": number.title}
                | pick(number, "location unit")
                | number.paper.columns("paper")
                | number.here.columns("here")
                | {"n": number.n}
                | number.our_kernel.columns("our_kernel")
                | {"least": least, "most": most, "verdict": verdict}
            )
            rows.append(
                [
                    Cell(number.title, bold=number.headline),
                    " ".join(filter(None, [as_text(number.paper, brief=True), number.unit])),
                    as_text(number.here),
                    verdict,
                    as_text(number.our_kernel),
                    f"{number.n:,}" if number.n else DASH,
                    number.location,
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
    """Return a value and its interval as text, or only the range if the value is NaN.

    ``brief`` leaves out the interval of a value.
    """
    value, low, high = interval
    if math.isnan(value):
        return DASH if math.isnan(low) else f"{four_digits(low)} to {four_digits(high)}"
    if brief or math.isnan(low) or low == high:
        return four_digits(value)
    return f"{four_digits(value)} [{four_digits(low)}, {four_digits(high)}]"
