"""Validation loss (tab:validation_loss_detailed) and the scIB scores behind fig:scib."""

from collections.abc import Mapping, Sequence

from scsigmoid.config.metrics import MEAN
from scsigmoid.measurements import Measurement
from scsigmoid.paper.labels import METRICS, model_label, pairs, representation_label, short_label
from scsigmoid.paper.reported import reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.statistics import paired_difference
from scsigmoid.paper.tables.writing import (
    DASH,
    MINUS,
    Cell,
    Table,
    fixed,
    interval,
    plus_minus,
    signed,
)


def validation_loss(results: Results) -> Table:
    """tab:validation_loss_detailed, with the paired difference of each pair of models."""
    config = results.config
    models = [name for name, model in config.models.items() if not model.stress]
    compared = pairs(config)
    columns = (
        "dataset",
        "title",
        "model",
        "mean",
        "low",
        "high",
        "masks_low",
        "masks_high",
        "cells",
        "donors",
        "best",
        "simulated",
        "paper_mean",
        "paper_half_width",
    )
    records: list[Sequence[object]] = []
    rows = []
    clusters = {}
    for dataset, entry in config.datasets.items():
        losses = {model: results.validation_loss(dataset, model) for model in models}
        masks = {
            model: results.validation_loss(dataset, model, "validation_loss_over_masks")
            for model in models
        }
        donors = len({*results.cell_losses(dataset, models[0])[2].tolist()} - {""})
        clusters[entry.title] = donors
        best = min(losses, key=lambda model: losses[model].value)
        paper = reported()["validation_loss"].get(dataset, {})
        for model, loss in losses.items():
            theirs = paper.get(model, (None, None))
            records.append(
                (
                    dataset,
                    entry.title,
                    model,
                    loss.value,
                    loss.low,
                    loss.high,
                    masks[model].low,
                    masks[model].high,
                    loss.n,
                    donors,
                    model == best,
                    loss.simulated,
                    *theirs,
                )
            )
        differences = []
        for first, second in compared:
            difference = paired_difference(results, dataset, first, second)
            theirs = paper_difference(paper, first, second)
            records.append(
                (
                    dataset,
                    entry.title,
                    f"{first} - {second}",
                    difference.value,
                    difference.low,
                    difference.high,
                    None,
                    None,
                    difference.n,
                    donors,
                    None,
                    losses[first].simulated,
                    theirs,
                    None,
                )
            )
            text = signed(difference.value, 3)
            differences.append(f"{text} ± {fixed((difference.high - difference.low) / 2, 3)}")
        simulated = losses[best].simulated
        rows.append(
            [
                Cell(entry.title + (" (simulated)" if simulated else "")),
                *(
                    Cell(
                        f"{plus_minus(loss.value, loss.low, loss.high, 3)} "
                        f"({fixed((masks[model].high - masks[model].low) / 2, 3)})",
                        bold=model == best,
                        maths=True,
                    )
                    for model, loss in losses.items()
                ),
                *(Cell(text, maths=True) for text in differences),
            ]
        )
        if paper:
            rows.append(
                [
                    Cell("in the paper"),
                    *(
                        Cell(
                            f"{paper[model][0]:.3f} ± {paper[model][1]:.3f}"
                            if model in paper
                            else ""
                        )
                        for model in models
                    ),
                    *(Cell(paper_difference_text(paper, *pair)) for pair in compared),
                ]
            )
    confidence = f"{config.evaluation.validation_loss.confidence * 100:g} %"
    trials = config.evaluation.validation_loss.trials
    return Table(
        caption="Detailed validation loss, in nats: the mean over cells, not over masked genes, of "
        f"each cell's loss in {trials} masking trials. ± is the {confidence} interval over cells, "
        "with donors as clusters where there are several; in brackets stands the Monte-Carlo one "
        "over masks, which the paper's ± fits. The best of each dataset in bold. Differences are "
        "paired by cell: below 0 sigmoid is better.",
        columns=columns,
        records=records,
        header=(
            "Dataset",
            *(model_label(config, model) for model in models),
            *(
                f"{short_label(config, first)} {MINUS} {short_label(config, second)}"
                for first, second in compared
            ),
        ),
        rows=rows,
        align="l" + "c" * (len(models) + len(compared)),
        notes=[f"Donors: {', '.join(f'{title} {count}' for title, count in clusters.items())}."],
    )


def paper_difference(paper: Mapping[str, Sequence[float]], first: str, second: str) -> float | None:
    """The paper's difference of two models, from its rounded means; None where it has none."""
    if first not in paper or second not in paper:
        return None
    return round(paper[first][0] - paper[second][0], 6)


def paper_difference_text(paper: Mapping[str, Sequence[float]], first: str, second: str) -> str:
    """The paper's difference with its sign; empty where it has none."""
    difference = paper_difference(paper, first, second)
    return "" if difference is None else signed(difference, 3)


def all_scores(results: Results, dataset: str) -> dict[str, dict[str, Measurement]]:
    """Every scIB metric in the paper's order, their mean last, of every representation."""
    from scsigmoid.evaluation.scib import aggregate

    metrics = sorted(results.config.evaluation.scib.metrics, key=list(METRICS).index)
    scores = {str(metric): results.scores(metric, dataset) for metric in metrics}
    rows = [row for of_metric in scores.values() for row in of_metric.values()]
    means = {row.model: row for row in aggregate(rows, metrics)}
    return {**scores, MEAN: means}


def scib(results: Results) -> Table:
    """The scIB scores of both models and the controls on every dataset."""
    config = results.config
    names = [*config.evaluation.pair, *config.evaluation.scib.controls]
    records: list[Sequence[object]] = []
    rows = []
    metrics: list[str] = []
    for dataset, entry in config.datasets.items():
        scores = all_scores(results, dataset)
        metrics = list(scores)
        simulated = any(row.simulated for row in scores[MEAN].values())
        rows.append([Cell(entry.title + (" (simulated)" if simulated else ""))])
        for name in names:
            cells = []
            for metric, of_metric in scores.items():
                score = of_metric.get(name)
                if score is None:
                    cells.append(Cell(DASH))
                    continue
                best = score.value == max(
                    of_metric[model].value for model in config.evaluation.pair if model in of_metric
                )
                best = best and name in config.evaluation.pair
                records.append(
                    (
                        dataset,
                        entry.title,
                        name,
                        metric,
                        score.value,
                        score.low,
                        score.high,
                        score.n,
                        best,
                        score.simulated,
                    )
                )
                cells.append(Cell(interval(score.value, score.low, score.high, 3), bold=best))
            rows.append([Cell(representation_label(config, name)), *cells])
    return Table(
        caption="scIB biological conservation. Silhouette is rescaled to 0 to 1; the aggregate is "
        "the mean of the metrics. The better of the two models in bold; the controls say what a "
        "score means.",
        columns=(
            "dataset",
            "title",
            "model",
            "metric",
            "value",
            "low",
            "high",
            "cells",
            "best",
            "simulated",
        ),
        records=records,
        header=("Representation", *(METRICS.get(metric, metric) for metric in metrics)),
        rows=rows,
        align="l" + "c" * len(metrics),
    )
