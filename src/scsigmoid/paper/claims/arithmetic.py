"""The paper's arithmetic: whether its statements follow from its own tables (``reported.yaml``)."""

import math
from typing import Any

from scsigmoid.paper.claims.estimate import Measure
from scsigmoid.paper.claims.printed import Numbers, printed
from scsigmoid.paper.reported import Reported
from scsigmoid.paper.tables.mmd import paper_improvements


@printed
def own_mmd_improvement(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Percent by which the mean of sigmoid's column exceeds that of softmax's."""
    found = paper_improvements("heart_oft")
    return found["ratio_of_means"], (
        f"as the ratio of the columns' means; the mean of the 28 improvements is "
        f"{found['mean_of_ratios']:.1f} %"
    )


@printed
def own_mmd_wins(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Rows in which sigmoid's MMD is higher."""
    rows = paper["mmd"]["heart_oft"]
    apart = sum(row["sigmoid"][1] > row["softmax"][2] for row in rows)
    won = sum(row["sigmoid"][0] > row["softmax"][0] for row in rows)
    return won, f"the intervals are disjoint in {apart} of them"


@printed
def own_mmd_pairs(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Pairs that the cell types named in the table make."""
    types = {name for row in paper["mmd"]["heart_oft"] for name in row["pair"].split(" vs ")}
    return math.comb(len(types), 2), f"{len(types)} types"


@printed
def own_validation_wins(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Datasets and contexts in which sigmoid's loss is lower."""
    rows = paper["validation_loss"]
    lost = [
        f"{paper['datasets'][dataset]['title']} at {context.upper()}: "
        f"{row[f'sigmoid_{context}'][0]:.3f} against {row[f'softmax_{context}'][0]:.3f}"
        for dataset, row in rows.items()
        for context in ("2k", "4k")
        if not row[f"sigmoid_{context}"][0] < row[f"softmax_{context}"][0]
    ]
    return 2 * len(rows) - len(lost), "; ".join(lost)


@printed
def own_longer_context_wins(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Datasets and attentions in which 4K has the lower loss."""
    rows = paper["validation_loss"].values()
    return sum(
        row[f"{attention}_4k"][0] < row[f"{attention}_2k"][0]
        for row in rows
        for attention in ("sigmoid", "softmax")
    ), ""


@printed
def own_sigmoid_4k_best(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Datasets on which Sigmoid 4K has the lowest loss of the four."""
    rows = paper["validation_loss"].values()
    return sum(min(row, key=lambda model: row[model][0]) == "sigmoid_4k" for row in rows), ""


@printed
def own_gradient_orders(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Powers of ten between the stated gradient norms."""
    gradient = paper["printed"]["gradient"]
    return math.log10(gradient["peak"] / gradient["before"]), ""


@printed
def own_score_peak(paper: Reported, _: dict[str, Any]) -> Numbers:
    """The largest attention score that the text states."""
    return float(paper["printed"]["score_peak"]), ""


@printed
def own_flops_forward(_: Reported, __: dict[str, Any]) -> Numbers:
    """Twice the stated operations of one product over the stated ones of the forward pass."""
    b, h, n, d = 1, 16, 16384, 128
    product, forward = 2 * b * h * n * d**2, 4 * b * h * n**2 * d
    return 2 * product / forward, (
        "at 16,384 tokens and head dimension 128; one product takes 2bhn^2d, and n and d are "
        "exchanged in its formula"
    )


@printed
def own_flops_backward(_: Reported, __: dict[str, Any]) -> Numbers:
    """2.5 times the forward operations over the stated backward ones."""
    b, h, n, d = 1, 16, 16384, 128
    return 2.5 * (4 * b * h * n**2 * d) / (10 * b * h * n**2 * d), ""


@printed
def own_pass(paper: Reported, _: dict[str, Any]) -> Numbers:
    """Cells that the stated steps of the stated batch read."""
    steps = paper["models"]["sigmoid_4k"]["steps"]
    batch = paper["model_architecture"]["global_batch"]
    return steps * batch, f"{steps:,} steps of {batch} cells: one pass over the corpus"


@printed
def own_widths(paper: Reported, _: dict[str, Any]) -> Numbers:
    """How many of the two stated widths follow: heads times their dimension, and 4 times hidden."""
    model = paper["model_architecture"]
    heads, hidden = model["heads"] * model["head_dimension"], model["hidden"]
    met = (heads == hidden) + (model["feed_forward"] == 4 * hidden)
    return met, f"{heads} and {model['feed_forward']}, hidden size {hidden}"


MEASURES: dict[str, Measure] = {
    function.__name__: function
    for function in (
        own_mmd_improvement,
        own_mmd_wins,
        own_mmd_pairs,
        own_validation_wins,
        own_longer_context_wins,
        own_sigmoid_4k_best,
        own_gradient_orders,
        own_score_peak,
        own_flops_forward,
        own_flops_backward,
        own_pass,
        own_widths,
    )
}
