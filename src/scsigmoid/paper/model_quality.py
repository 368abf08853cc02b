"""Compare the quality of the models (section 5): validation loss, scIB scores, MMD."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from scsigmoid.config.metrics import MEAN
from scsigmoid.paper.number import UNKNOWN, Number, count, exact
from scsigmoid.paper.reported import cell_types, models_here, reported
from scsigmoid.records.measurements import Interval, Measurement
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import ATTENTIONS, METRIC_TITLES, paper_model_label

GROUP = "quality"


def numbers(results: Results) -> Iterator[Number]:
    lengths, cells = results.lengths  # sequence lengths, and number of cells of each length
    yield Number(
        group=GROUP, title="Cells that express more than 2,048 genes", location="Figure 1",
        unit="%", paper=Interval(reported()["printed"]["longer_than_2048"]), n=int(cells.sum()),
        here=exact(100 * float(cells[lengths > 2048].sum() / cells.sum())),
    )  # fmt: skip
    yield from losses(results)
    yield from scores(results)
    yield from mmds(results)


def lead(results: Results, dataset: str, model: str, rival: str) -> Interval:
    """Return the loss of ``rival`` minus the loss of ``model``, UNKNOWN if a loss is missing.

    The models have the paper's names.
    """
    here = models_here(results.config)
    if dataset not in results.config.datasets or not {model, rival} <= here.keys():
        return UNKNOWN
    return results.paired_difference(dataset, here[rival], here[model])


def losses(results: Results) -> Iterator[Number]:
    table = reported()["validation_loss"]
    models = models_here(results.config)
    at_2k, at_4k = ("sigmoid_2k", "softmax_2k"), ("sigmoid_4k", "softmax_4k")
    # Location in the paper, title, and compared pairs of models. According to the paper, the first
    # model of a pair has the lower loss.
    statements = (
        ("Abstract, Figure 4", "Comparisons in which sigmoid has the lower validation loss",
         (at_2k, at_4k)),
        ("Figure 4", "Comparisons in which the longer context has the lower validation loss",
         tuple(zip(at_4k, at_2k, strict=True))),
    )  # fmt: skip
    for location, title, pairs in statements:
        leads = [lead(results, dataset, *pair) for dataset in table for pair in pairs]
        yield Number(
            group=GROUP, title=title, location=location, unit=f"of {len(leads)}",
            paper=Interval(len(leads)), here=count(leads), no_effect=len(leads) / 2, headline=True,
            n=sum(not math.isnan(lead.value) for lead in leads),
        )  # fmt: skip
    common: dict[str, Any] = {"group": GROUP, "location": "Table 5", "unit": "nats"}
    for dataset, row in table.items():
        title = reported()["datasets"][dataset]["title"]
        cells = dict.fromkeys(row, 0)  # number of evaluated cells by model
        for model, (value, half_width) in row.items():
            here = UNKNOWN
            if dataset in results.config.datasets and model in models:
                metric = "validation_loss_over_donors"
                here = results.validation_loss(dataset, models[model], metric).interval
                cells[model] = results.validation_loss(dataset, models[model]).n
            yield Number(
                **common,
                title=f"{title}, {paper_model_label(model)}: validation loss (ours: over donors)",
                paper=Interval(value, value - half_width, value + half_width), here=here,
                n=cells[model],
            )  # fmt: skip
        for context, (sigmoid, softmax) in (("2K", at_2k), ("4K", at_4k)):
            (sigmoid_loss, _), (softmax_loss, _) = row[sigmoid], row[softmax]
            yield Number(
                **common, title=f"{title}, {context}: softmax's validation loss minus sigmoid's",
                paper=Interval(round(softmax_loss - sigmoid_loss, 6)),  # 0.011, not 0.0109...
                here=lead(results, dataset, sigmoid, softmax),
                n=cells[sigmoid], no_effect=0,
            )  # fmt: skip


def scores(results: Results) -> Iterator[Number]:
    """Yield the number of datasets on which sigmoid has the higher scIB score, by metric."""
    datasets = list(reported()["datasets"])
    sigmoid, softmax = results.config.evaluation.pair
    all_scores = [results.scores(name) for name in datasets if name in results.config.datasets]
    for metric, wins in reported()["printed"]["scib_wins"].items():
        leads = [
            exact(scores[metric][sigmoid].value - scores[metric][softmax].value)
            for scores in all_scores
            if {sigmoid, softmax} <= set(scores.get(metric, ()))
        ]
        name = "mean of the three scIB scores" if metric == MEAN else METRIC_TITLES[metric]
        yield Number(
            group=GROUP, title=f"Datasets on which sigmoid has the higher {name}",
            location="Figure 5", unit=f"of {len(datasets)}", paper=Interval(wins),
            no_effect=len(datasets) / 2, n=len(leads),
            here=count(leads) if len(leads) == len(datasets) else UNKNOWN,
            headline=True,
        )  # fmt: skip


def mmds(results: Results) -> Iterator[Number]:
    """Yield the MMD between the cell types of Heart OFT (the paper's Table 1)."""
    dataset = "heart_oft"
    table = reported()["mmd"][dataset]
    measured = results.mmd(dataset) if dataset in results.plan.datasets_of("mmd") else {}
    by_types = {cell_types(pair): row for pair, row in measured.items()}
    rows = [by_types.get(cell_types(row["pair"])) for row in table]  # None: not measured
    known = [row for row in rows if row]
    is_complete = len(known) == len(table)
    common: dict[str, Any] = {"group": GROUP, "location": "Table 1"}
    headline: dict[str, Any] = common | {"headline": True}
    yield Number(
        **headline, title="Pairs of cell types for which sigmoid has the higher MMD",
        unit=f"of {len(table)}", paper=Interval(len(table)), n=len(known), no_effect=len(table) / 2,
        here=count([row["difference"].interval for row in known]) if is_complete else UNKNOWN,
    )  # fmt: skip
    yield Number(
        **headline | {"location": "Abstract, Table 1"},
        title="Increase of the mean MMD with sigmoid",
        unit="%", paper=Interval(reported()["printed"]["separation"]), n=len(known), no_effect=0,
        here=mean_ratio(known).map(lambda ratio: 100 * (ratio - 1)) if is_complete else UNKNOWN,
    )  # fmt: skip
    for paper, row in zip(table, rows, strict=True):
        for attention in ATTENTIONS:
            measurement = row[attention] if row else None
            yield Number(
                **common, title=f"{paper['pair']}: MMD, {attention}", unit="",
                paper=Interval(*paper[attention]),
                here=measurement.interval if measurement else UNKNOWN,
                n=measurement.n if measurement else 0,
            )  # fmt: skip
        yield Number(
            **common, title=f"{paper['pair']}: sigmoid's MMD over softmax's", unit="ratio",
            paper=Interval(round(paper["sigmoid"][0] / paper["softmax"][0], 4)), no_effect=1,
            here=row["ratio"].interval if row else UNKNOWN, n=row["sigmoid"].n if row else 0,
        )  # fmt: skip


def mean_ratio(rows: list[dict[str, Measurement]]) -> Interval:
    """Return the mean MMD of sigmoid over all pairs divided by the mean MMD of softmax.

    This ratio equals the mean of the pairs' ratios, weighted by the MMD of softmax. The ends of the
    interval are means of the pairs' ends with the same weights. An interval from resamples of the
    ratio would be narrower.
    """
    weights = np.array([row["softmax"].value for row in rows])
    ratios = np.array([row["ratio"].interval for row in rows])  # pairs x (value, low, high)
    return Interval(*map(float, weights @ ratios / weights.sum()))
