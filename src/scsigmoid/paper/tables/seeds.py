"""One experiment with several seeds: the difference of the two arms, with its spread.

Everything that is drawn differs between seeds: which cells are held out, the first weights, order
and masks, the masks of the validation loss, resamples.  The two arms of a seed share what can be
shared, so their difference is taken seed by seed.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scsigmoid.config.check import read_yaml
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.config.validate import typed
from scsigmoid.errors import UserError
from scsigmoid.files import compare_checksum
from scsigmoid.measurements import mean_interval
from scsigmoid.paper.labels import METRICS, representation_label
from scsigmoid.paper.results import Results
from scsigmoid.paper.tables.mmd import pair_rows
from scsigmoid.paper.tables.quality import all_scores
from scsigmoid.paper.tables.writing import DASH, Table, fixed, interval, with_ends, write_table

CONFIDENCE = 0.95
#: What a lower value of is better; of all else a higher one.
LOWER = ("validation_loss",)
NAMES = {"validation_loss": "Validation loss", **METRICS, "mmd": "MMD, mean of the pairs"}


def compare_seeds(folders: Sequence[str | Path], output: str | Path) -> list[Path]:
    """Write the comparison of the arms over the results folders of several seeds.

    Args:
        folders: results folders of runs whose configurations differ in the seed alone.
        output: path of the table without regard to its suffix; it is written as CSV, Markdown and
            LaTeX.

    Returns:
        The three paths.

    Raises:
        UserError: for fewer than two folders, a seed that comes twice, configurations that differ
            otherwise, or a result that is missing.
    """
    stem = Path(output).with_suffix("")
    return write_table(seeds(read_runs(folders)), stem.name, stem)


def read_runs(folders: Sequence[str | Path]) -> list[Results]:
    """The results folders, by seed.

    Raises:
        UserError: as :func:`compare_seeds`.
    """
    if len(folders) < 2:
        raise UserError("compare-seeds: one results folder; name at least two, each of a seed")
    # Not checked against each other: the user's own files may be gone since the run.
    for folder in folders:
        compare_checksum(Path(folder) / "config.yaml")
    stored = [typed(read_yaml(Path(folder) / "config.yaml"), Config) for folder in folders]
    runs = [Results(folder, config) for folder, config in zip(folders, stored, strict=True)]
    first = plain(runs[0].config)
    used: dict[int, Path] = {}
    for run in runs:
        if run.config.seed in used:
            raise UserError(
                f"{run.folder}: has the seed {run.config.seed} of {used[run.config.seed]}; name "
                "runs of different seeds"
            )
        used[run.config.seed] = run.folder
        for key, value in plain(run.config).items():
            if value != first[key]:
                raise UserError(
                    f"{run.folder}: differs from {runs[0].folder} in the setting {key!r}; compare "
                    "runs that differ in the seed alone"
                )
    return sorted(runs, key=lambda run: run.config.seed)


def plain(config: Config) -> dict[str, Any]:
    """The settings but for the seed, and where and on what the run was made."""
    values = dataclasses.asdict(config)
    return {k: v for k, v in values.items() if k not in ("seed", "results", "device")}


def check_pairs(runs: Sequence[Results], dataset: str) -> None:
    """Refuse seeds whose MMD is the mean of other pairs of cell types.

    Raises:
        UserError: naming the run and the pairs.
    """
    if dataset not in Plan(runs[0].config).compared("mmd"):
        return
    pairs = [{pair.name for pair in pair_rows(run, dataset)} for run in runs]
    for run, found in zip(runs, pairs, strict=True):
        if found != pairs[0]:
            named = ", ".join(sorted(found ^ pairs[0])[:3])
            raise UserError(
                f"{run.folder}: metrics/mmd/{dataset}.csv has other pairs of cell types than "
                f"{runs[0].folder} ({len(found)} and {len(pairs[0])}; only in one: {named}); lower "
                "evaluation.mmd.minimum_cells so that all runs have the same"
            )


def scores(run: Results, dataset: str) -> dict[str, dict[str, float]]:
    """Every metric of a run on a dataset, of each representation that has it."""
    pair = run.config.evaluation.pair
    found = {"validation_loss": {m: run.validation_loss(dataset, m).value for m in pair}}
    for metric, rows in all_scores(run, dataset).items():
        found[metric] = {name: row.value for name, row in rows.items()}
    if dataset in Plan(run.config).compared("mmd"):
        pairs = pair_rows(run, dataset)
        values = [(row.sigmoid.value, row.softmax.value) for row in pairs]
        found["mmd"] = dict(zip(pair, np.mean(values, axis=0).tolist(), strict=True))
    return found


def seeds(runs: Sequence[Results]) -> Table:
    """The comparison as a table: every metric of every dataset."""
    config = runs[0].config
    sigmoid, softmax = config.evaluation.pair
    names = [sigmoid, softmax, *config.evaluation.scib.controls]
    records: list[dict[str, object]] = []
    rows: list[list[str]] = []
    for dataset, entry in config.datasets.items():
        rows.append([entry.title])
        check_pairs(runs, dataset)
        found = [scores(run, dataset) for run in runs]
        for metric in found[0]:
            # One column a representation, one row a seed; NaN where one has no such score.
            values = pd.DataFrame([one[metric] for one in found], columns=names)
            means, deviations = (np.mean(values, axis=0), np.std(values, axis=0, ddof=1))
            paired = (values[sigmoid] - values[softmax]).to_numpy()
            difference = mean_interval(paired, CONFIDENCE)
            better = int(((paired < 0) if metric in LOWER else (paired > 0)).sum())
            records.append(
                {
                    "dataset": dataset,
                    "title": entry.title,
                    "metric": metric,
                    **means,
                    **deviations.add_suffix("_deviation"),
                    **with_ends("difference", difference),
                    "sigmoid_better": better,
                    "seeds": len(runs),
                }
            )
            rows.append(
                [
                    NAMES[metric],
                    *(
                        DASH if math.isnan(mean) else f"{fixed(mean, 3)} ± {fixed(deviation, 3)}"
                        for mean, deviation in zip(means, deviations, strict=True)
                    ),
                    interval(*difference, 3, "+"),
                    f"{better} of {len(runs)}",
                ]
            )
    drawn = ", ".join(str(run.config.seed) for run in runs)
    kinds = {run.training_data for run in runs}
    return Table(
        caption=f"The two arms over {len(runs)} seeds. Mean ± standard deviation over the seeds "
        f"({drawn}); the difference, sigmoid minus softmax, is taken seed by seed, with Student's "
        f"{CONFIDENCE * 100:g} % interval. Of the validation loss lower is better, of all else "
        "higher.",
        records=records,
        header=(
            "Metric",
            *(representation_label(config, name) for name in names),
            *("Difference", "Sigmoid better"),
        ),
        rows=rows,
        align="l" + "c" * (len(names) + 2),
        notes=[f"Trained on {kind} cells." for kind in sorted(kinds - {"real"})],
    )
