"""Tables of validation losses and scIB scores."""

import math
from itertools import pairwise, product

import numpy as np

from scsigmoid.config.metrics import METRICS
from scsigmoid.files import parsing
from scsigmoid.paper.reported import models_in_paper, reported
from scsigmoid.records.measurements import Interval, mean_interval
from scsigmoid.report.tables.writing import (
    DASH,
    MINUS,
    Cell,
    Table,
    excludes_zero,
    fixed,
    plus_minus,
)
from scsigmoid.results.folder import EXPECTED_CONTENT, Results, metric_file
from scsigmoid.results.labels import (
    CONTROLS,
    METRIC_TITLES,
    model_label,
    pairs,
    representation_label,
    short_label,
    training_differences,
)


def validation_loss(results: Results) -> Table:
    config = results.config
    models, compared = results.plan.evaluated_models, pairs(config)
    records: list[dict[str, object]] = []
    rows: list[list[Cell | str]] = []
    donor_counts = []
    for dataset, entry in config.datasets.items():
        donors = results.donor_count(dataset, models[0])
        donor_counts.append(f"{entry.title} {donors or 'unknown'}")
        of_dataset, row, paper_row = losses_of_dataset(results, dataset, donors)
        records += [{"dataset": dataset, "title": entry.title} | record for record in of_dataset]
        rows.append([entry.title, *row])
        if any(paper_row):
            rows.append(["in the paper", *paper_row])
    settings = config.evaluation.validation_loss
    return Table(
        caption="Validation loss in nats per masked gene, one training run per model. The first "
        f"value is the mean over cells of the mean loss of a cell over {settings.trials} masks, ± "
        f"half the width of Student's {settings.confidence * 100:g} % interval over masks, which "
        "is as narrow as the paper's interval. In parentheses is the mean over donors, ± half the "
        "width of Student's interval over donors, if at least three donors are known."
        + (
            " Differences are paired by cell, and have an interval over donors only. Below 0, "
            "sigmoid is better. The lower loss of a pair is bold if this interval excludes 0."
            if compared
            else ""
        ),
        records=records,
        header=(
            "Dataset",
            *(model_label(config, model) for model in models),
            *(f" {MINUS} ".join(short_label(config, name) for name in pair) for pair in compared),
        ),
        rows=rows,
        notes=[
            f"Number of donors: {', '.join(donor_counts)}.",
            *training_differences(config, models),
        ],
    )


def losses_of_dataset(
    results: Results, dataset: str, donors: int
) -> tuple[list[dict[str, object]], list[Cell], list[str]]:
    """Return the records of a dataset, and the cells of its row and of the paper's row.

    There is a record and a cell for each model, then for each difference between two models. The
    cells of the paper's row are empty without a number in the paper.
    """
    config, models = results.config, results.plan.evaluated_models
    losses = {model: results.validation_loss(dataset, model) for model in models}
    paired = {pair: results.paired_difference(dataset, *pair) for pair in pairs(config)}
    # Models of different contexts mask different genes, so only pairs are compared.
    lower = {pair: min(pair, key=lambda model: losses[model].value) for pair in paired}
    best = {
        lower[pair]
        for pair, difference in paired.items()
        # The mean over donors may have another sign than the mean over cells.
        if excludes_zero(difference) and (difference.value < 0) == (lower[pair] == pair[0])
    }
    # By model: the mean and half the width of its interval in the paper, if it is in the paper.
    of_paper = reported()["validation_loss"].get(dataset, {})
    paper = {
        model: of_paper[name]
        for model, name in models_in_paper(config).items()
        if name in of_paper and model in losses
    }
    records: list[dict[str, object]] = []
    row, paper_row = [], []
    for model, loss in losses.items():
        over_donors = results.validation_loss(dataset, model, "validation_loss_over_donors")
        over_masks = results.validation_loss(dataset, model, "validation_loss_over_masks")
        paper_mean, paper_half_width = paper.get(model, (None, None))
        records.append(
            {"model": model, "compared_with": "", "mean": loss.value}
            | over_donors.interval.columns("donor_mean")
            | {"masks_low": over_masks.low, "masks_high": over_masks.high}
            | {"cells": loss.n, "donors": donors, "best": model in best}
            | {"paper_mean": paper_mean, "paper_half_width": paper_half_width}
        )
        text = finite_or_named(
            loss.value, plus_minus(loss.value, over_masks.low, over_masks.high, 3)
        )
        row.append(Cell(text + in_parentheses(over_donors.interval), bold=model in best))
        paper_row.append("{:.3f} ± {:.3f}".format(*paper[model]) if model in paper else "")
    for (first, second), difference in paired.items():
        mean = losses[first].value - losses[second].value
        paper_difference = None
        if first in paper and second in paper:
            # Rounding removes the floating-point error of the subtraction.
            paper_difference = round(paper[first][0] - paper[second][0], 6)
        records.append(
            {"model": first, "compared_with": second, "mean": mean}
            | difference.columns("donor_mean")
            | {"cells": losses[first].n, "donors": donors, "paper_mean": paper_difference}
        )
        text = finite_or_named(mean, fixed(mean, 3, "+"))
        row.append(Cell(text + in_parentheses(difference, "+")))
        paper_row.append("" if paper_difference is None else fixed(paper_difference, 3, "+"))
    return records, row, paper_row


def finite_or_named(value: float, text: str) -> str:
    """Return ``text``, or words if ``value`` is NaN. A column of dashes would be left out."""
    return "not finite" if math.isnan(value) else text


def in_parentheses(over_donors: Interval, sign: str = "-") -> str:
    """Return a mean over donors as `` (2.526 ± 0.120)``, or "" if it has no interval."""
    if not math.isfinite(over_donors.high - over_donors.low):
        return ""
    return f" ({plus_minus(*over_donors, 3, sign)})"


def scib(results: Results) -> Table:
    config = results.config
    pair = config.evaluation.pair
    records: list[dict[str, object]] = []
    rows: list[list[Cell | str]] = []
    metrics: list[str] = []
    for dataset, entry in config.datasets.items():
        scores = results.scores(dataset)
        metrics = list(scores)
        rows.append([entry.title])
        for name in (*pair, *config.evaluation.scib.controls):
            row: list[Cell | str] = [representation_label(config, name)]
            for metric, by_model in scores.items():
                score = by_model.get(name)
                if score is None:
                    row.append(DASH)
                    continue
                records.append(
                    {"dataset": dataset, "title": entry.title, "model": name, "metric": metric}
                    | score.interval._asdict()
                    | {"cells": score.n}
                )
                row.append(plus_minus(*score.interval, 3))
            rows.append(row)
        records += [
            {"dataset": dataset, "title": entry.title, "model": row.model, "metric": row.metric}
            | {"compared_with": row.compared_with, **row.interval._asdict(), "cells": row.n}
            for row in results.score_differences(dataset)
        ]
    controls = [CONTROLS[name] for name in config.evaluation.scib.controls if name != "initial"]
    averaged = ", ".join(METRIC_TITLES[name] for name in results.averaged_metrics)
    return Table(
        caption="Biological conservation (scIB scores, no unit) of the embeddings, one training "
        "run per model, so there is no interval over seeds of training. Higher is better. "
        f"Silhouette is rescaled to 0 to 1. Bio conservation is the mean of {averaged}. "
        f"{' and '.join(controls)} are controls without a model."
        + "".join(
            f" {METRICS[name].caption}"
            for name in dict.fromkeys(str(record["metric"]) for record in records)
            if name in METRICS and METRICS[name].caption
        ),
        records=records,
        header=("Representation", *(METRIC_TITLES[metric] for metric in metrics)),
        rows=rows,
        notes=training_differences(config, pair),
    )


def donor_scores(results: Results) -> Table | None:
    """Return the scIB scores averaged over donors, None if donors were not scored separately."""
    config = results.config
    pair = config.evaluation.pair
    names = (*pair, *config.evaluation.scib.controls)
    confidence = config.evaluation.validation_loss.confidence
    # Each model of the pair with the next, and each model with PCA.
    compared = (*pairwise(pair), *product(pair, ["pca_log_counts"]))
    labels = {name: representation_label(config, name) for name in names}
    short_labels = labels | {model: short_label(config, model) for model in pair}
    rows: list[list[Cell | str]] = []
    metrics: list[str] = []

    def means(scores: np.ndarray, sign: str = "-") -> list[str]:
        """Return the mean over donors of each metric as text."""
        return [plus_minus(*mean_interval(row, confidence), 3, sign) for row in scores]

    for dataset, entry in config.datasets.items():
        by_donor = [results.scores(dataset, donor) for donor in results.scored_donors(dataset)]
        if not by_donor:
            continue
        metrics = [metric for metric, scores in by_donor[0].items() if scores]
        rows.append([f"{entry.title}: {len(by_donor)} donors"])
        by_metric = []  # metrics x models and controls x donors
        for metric in metrics:
            with parsing(results.folder / metric_file(metric, dataset), EXPECTED_CONTENT):
                by_metric.append(
                    [[scores[metric][name].value for scores in by_donor] for name in names]
                )
        values = dict(zip(names, np.swapaxes(by_metric, 0, 1), strict=True))
        for name in names:
            rows.append([labels[name], *means(values[name])])
        for first, second in compared:
            if second in names:
                label = f"{short_labels[first]} {MINUS} {short_labels[second]}"
                rows.append([label, *means(values[first] - values[second], "+")])
    if not rows:
        return None
    return Table(
        caption="scIB scores (no unit), computed separately on the cells of each donor, one "
        "training run per model: mean over donors ± half the width of Student's "
        f"{confidence * 100:g} % interval. The interval covers the choice of donors, not the seed "
        "of training. Differences are paired by donor. Fewer cells raise NMI, also for a random "
        "embedding.",
        header=("Representation", *(METRIC_TITLES[metric] for metric in metrics)),
        rows=rows,
    )
