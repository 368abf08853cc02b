"""One experiment with several seeds: the difference of the two arms, with its spread.

Everything that is drawn differs between seeds: which cells are held out, the first weights, order
and masks, the masks of the validation loss, resamples.  The two arms of a seed share what can be
shared, so their difference is taken seed by seed.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scsigmoid.config.check import read_yaml
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.config.validate import typed
from scsigmoid.errors import UserError
from scsigmoid.files import compare_checksum
from scsigmoid.measurements import Interval, mean_interval
from scsigmoid.paper.labels import METRICS, representation_label
from scsigmoid.paper.results import Results
from scsigmoid.paper.tables.mmd import pair_rows
from scsigmoid.paper.tables.quality import all_scores
from scsigmoid.paper.tables.writing import DASH, Table, fixed, signed, write_table

CONFIDENCE = 0.95
#: What a lower value of is better; of all else a higher one.
LOWER = ("validation_loss",)
NAMES = {"validation_loss": "Validation loss", **METRICS, "mmd": "MMD, mean of the pairs"}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A metric of a dataset over the seeds.

    Attributes:
        dataset: evaluation dataset.
        metric: a key of :data:`NAMES`.
        values: of each representation, one value a seed.
        difference: sigmoid minus softmax, with Student's interval over the seeds.
        better: seeds in which sigmoid is the better one.
    """

    dataset: str
    metric: str
    values: Mapping[str, Sequence[float]]
    difference: Interval
    better: int


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


def comparisons(runs: Sequence[Results]) -> Iterator[Comparison]:
    """Every metric of every dataset."""
    sigmoid, softmax = runs[0].config.evaluation.pair
    for dataset in runs[0].config.datasets:
        check_pairs(runs, dataset)
        found = [scores(run, dataset) for run in runs]
        for metric, names in found[0].items():
            values = {name: [one[metric][name] for one in found] for name in names}
            ours, theirs = (np.array(values[name]) for name in (sigmoid, softmax))
            lead = (theirs - ours) if metric in LOWER else (ours - theirs)
            yield Comparison(
                dataset=dataset,
                metric=metric,
                values=values,
                difference=mean_interval(ours - theirs, CONFIDENCE),
                better=int((lead > 0).sum()),
            )


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
        columns = zip(*((row.sigmoid.value, row.softmax.value) for row in pairs), strict=True)
        found["mmd"] = {
            name: float(np.mean(column)) for name, column in zip(pair, columns, strict=True)
        }
    return found


def seeds(runs: Sequence[Results]) -> Table:
    """The comparison as a table."""
    config = runs[0].config
    names = [*config.evaluation.pair, *config.evaluation.scib.controls]
    records: list[dict[str, object]] = []
    rows: list[list[str]] = []
    for found in comparisons(runs):
        title = config.datasets[found.dataset].title
        if not records or records[-1]["dataset"] != found.dataset:
            rows.append([title])
        difference = found.difference
        spread = {
            name: (float(np.mean(values)), float(np.std(values, ddof=1)))
            for name, values in found.values.items()
        }
        empty = (math.nan, math.nan)
        records.append(
            {
                "dataset": found.dataset,
                "title": title,
                "metric": found.metric,
                **{name: spread.get(name, empty)[0] for name in names},
                **{f"{name}_deviation": spread.get(name, empty)[1] for name in names},
                "difference": difference.value,
                "difference_low": difference.low,
                "difference_high": difference.high,
                "sigmoid_better": found.better,
                "seeds": len(runs),
            }
        )
        low, high = signed(difference.low, 3), signed(difference.high, 3)
        rows.append(
            [
                NAMES[found.metric],
                *(
                    " ± ".join(fixed(value, 3) for value in spread[name])
                    if name in spread
                    else DASH
                    for name in names
                ),
                f"{signed(difference.value, 3)} [{low}, {high}]",
                f"{found.better} of {len(runs)}",
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
