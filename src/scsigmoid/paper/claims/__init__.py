"""Every quantitative claim of the paper that a run tests, with our value and a computed verdict.

A claim's requirements are checked first; where one does not hold the verdict is "not testable",
with the reasons, and our value stands beside it all the same.  Otherwise the claim's rule compares
our value, or its interval, with the paper's; an interval that is allowed in part is "inconclusive".
"""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath

from scsigmoid.config.plan import Plan
from scsigmoid.errors import UserError
from scsigmoid.files import checksum_path, compare_checksum
from scsigmoid.paper import registry
from scsigmoid.paper.claims import cost, kernel, quality, stability
from scsigmoid.paper.claims.requirements import unmet
from scsigmoid.paper.claims.rules import MEASURES, Estimate, compare
from scsigmoid.paper.reported import Claim, reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.tables.writing import as_csv, picked, plain

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
INCONCLUSIVE = "inconclusive"
NOT_TESTABLE = "not testable"
VERDICTS = (REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE, NOT_TESTABLE)
OUTCOMES = {True: REPRODUCED, False: NOT_REPRODUCED, None: INCONCLUSIVE}
#: The modules that enter their measures in the registry.
MODULES = (quality, stability, kernel, cost)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A row of ``claims.csv``: a claim, its first columns as in :class:`Claim`, and the verdict.

    Attributes:
        paper_value: the paper's value; of a range the two ends.
        our_value: our value; empty where there is none.
        low, high: ends of its interval or range.
        rule: how the values were compared.
        verdict: one of :data:`VERDICTS`.
        reason: why.
        evidence: the tables and figures to look at.
        sources: the result files that these came from.
    """

    id: str
    group: str
    statement: str
    location: str
    paper_value: str
    unit: str
    our_value: float
    low: float
    high: float
    rule: str
    verdict: str
    reason: str
    evidence: str
    sources: str


COLUMNS = tuple(field.name for field in fields(Judged))


def judge(results: Results, claim: Claim) -> Judged:
    estimate = MEASURES[claim.measure](results, claim)
    verdict, reason = decide(results, claim, estimate)
    value = claim.value
    evidence, sources = split_evidence(results, claim, estimate.evidence)
    ours, low, high = map(float, estimate.value)
    return Judged(
        **picked(claim, "id group statement location unit rule"),
        paper_value=f"{value[0]:g} to {value[1]:g}" if isinstance(value, tuple) else plain(value),
        our_value=ours,
        low=low,
        high=high,
        verdict=verdict,
        reason=reason,
        evidence="; ".join(evidence),
        sources="; ".join(sources),
    )


def decide(results: Results, claim: Claim, estimate: Estimate) -> tuple[str, str]:
    hindrances = [*unmet(results.config, claim, results), *filter(None, [estimate.missing])]
    if hindrances:
        return NOT_TESTABLE, sentence("; ".join(dict.fromkeys(hindrances)))
    if estimate.refuted:
        return NOT_REPRODUCED, sentence(estimate.note)
    if math.isnan(estimate.value.value):
        return NOT_TESTABLE, sentence(f"no value; {estimate.note}".rstrip("; "))
    met, words = compare(claim, estimate.value)
    return OUTCOMES[met], sentence(f"{words}; {estimate.note}" if estimate.note else words)


def sentence(text: str) -> str:
    """Text with a capital letter and a full stop."""
    return capital(text) + ("" if text.endswith(".") else ".")


def capital(text: str) -> str:
    """Text with a capital letter, unless it begins with the name of a setting."""
    return text if re.match(r"[a-z]+[_.]", text) else text[:1].upper() + text[1:]


def split_evidence(
    results: Results, claim: Claim, evidence: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The tables and figures that a reader looks at, and the result files behind them.

    The inputs of a table are among these, those of a figure only where nothing else is named; files
    of other datasets and models than the claim's are left out.
    """
    plan, config = Plan(results.config), results.config
    shown = [path for path in evidence if path.startswith(("tables/", "figures/"))]
    tables = [path for path in shown if path.startswith("tables/")]
    files = [path for path in evidence if path not in shown]
    others = set(config.datasets) - set(claim.datasets) if claim.datasets else set()
    others |= set(config.models) - set(claim.models) if claim.models else set()
    inputs: list[str] = []
    for path in tables or ([] if files else shown):
        kind = "table" if tables else "figure"
        inputs += registry.inputs(kind, PurePosixPath(path).stem, plan)
    files += [file for file in inputs if not others & {*PurePosixPath(file).with_suffix("").parts}]
    return shown, list(dict.fromkeys(files))


def judge_all(results: Results) -> list[Judged]:
    return [judge(results, claim) for claim in reported().claims]


def make_claims(results: Results, output: str | Path) -> None:
    """Check every claim and write ``claims.csv``.

    Raises:
        UserError: if a result file is missing or damaged.
    """
    rows = [vars(row) for row in judge_all(results)]
    with checksum_path(output) as temporary:
        temporary.write_text(as_csv(rows, COLUMNS), encoding="utf-8", newline="\n")


def counted(rows: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """How many claims have each verdict."""
    return {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS}


def tally(rows: Sequence[Mapping[str, str]]) -> str:
    """The same in words, without verdicts that no claim has."""
    return ", ".join(f"{count} {verdict}" for verdict, count in counted(rows).items() if count)


def read_claims(path: str | Path) -> list[dict[str, str]]:
    """Read what :func:`make_claims` wrote.

    Raises:
        UserError: if the file is missing, damaged or not such a table.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such result file; run the target that makes it")
    compare_checksum(path)
    with path.open(newline="", encoding="utf-8") as handle:
        reader = csv.DictReader(handle)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise UserError(f"{path}: not a table of claims; delete it and run again")
        return list(reader)
