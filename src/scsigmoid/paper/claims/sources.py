"""The result files that a claim's table or figure came from."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from scsigmoid.config.plan import Plan
from scsigmoid.paper.reported import Claim
from scsigmoid.paper.results import Results


def split_evidence(
    results: Results, claim: Claim, evidence: Sequence[str]
) -> tuple[list[str], list[str]]:
    """What a reader looks at, and the result files behind it.

    Args:
        results: the result files.
        claim: the claim; files of other datasets and models than its own are left out.
        evidence: tables, figures and result files, as the measure names them.

    Returns:
        Tables and figures; then the result files.  The inputs of a table
        are among them, those of a figure only where nothing else is named.
    """
    shown = [path for path in evidence if path.startswith(("tables/", "figures/"))]
    files = [path for path in evidence if path not in shown]
    tables = [path for path in shown if path.startswith("tables/")]
    figures = [path for path in shown if path.startswith("figures/")]
    for path in tables or ([] if files else figures):
        files += [file for file in inputs(results, path) if concerns(results, claim, file)]
    return shown, list(dict.fromkeys(files))


def inputs(results: Results, path: str) -> list[str]:
    """The files that a table or figure is made from."""
    plan, name = Plan(results.config), PurePosixPath(path).stem
    return plan.table_inputs(name) if path.startswith("tables/") else plan.figure_inputs(name)


def concerns(results: Results, claim: Claim, file: str) -> bool:
    """Whether a file is not one of a dataset or model that the claim is not about."""
    parts = set(PurePosixPath(file).with_suffix("").parts)
    others = set()
    if claim.datasets:
        others |= set(results.config.datasets) - set(claim.datasets)
    if claim.models:
        others |= set(results.config.models) - set(claim.models)
    return not parts & others
