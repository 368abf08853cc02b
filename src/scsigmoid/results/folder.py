"""The result files of a run, read on demand."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from scsigmoid.benchmarks.rows import KernelRow, TrainingRow, read_rows
from scsigmoid.config.initial import read_header
from scsigmoid.config.metrics import MEAN, METRICS
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.files import parsing
from scsigmoid.records import mmd_metrics
from scsigmoid.records.csv_rows import as_value
from scsigmoid.records.identity import check_identity, read_identity, read_table
from scsigmoid.records.measurements import (
    Interval,
    Measurement,
    donor_mean,
    known_donors,
    read_measurements,
)
from scsigmoid.records.mmd_metrics import MmdMetric
from scsigmoid.results.labels import ATTENTIONS
from scsigmoid.training.journal import read_journal

T = TypeVar("T")
BenchmarkRow = TypeVar("BenchmarkRow", bound=KernelRow | TrainingRow)
#: Limits of the numbers in the tables of the benchmarks. NaN is a missing value.
LARGEST = 1e18
UNLIMITED = ("loss", "relative_error")  # infinite if a kernel is wrong
#: Starts of the names of numbers that are not 0.
POSITIVE = ("milliseconds", "tflops", "cells_per_second", "gpu_hours", "readings")
#: Metrics in the files of metrics that have several. The files of other metrics have one.
FILE_METRICS = {
    "validation_loss": {f"validation_loss{end}" for end in ("", "_over_donors", "_over_masks")},
    "mmd": mmd_metrics.NAMES,
}
EXPECTED_CONTENT = "a result file of this version"  # for messages about damaged files


@dataclass(frozen=True)
class Journal:
    """A training journal: its header, and an array for each column."""

    header: dict[str, str]
    columns: dict[str, np.ndarray]

    def __getitem__(self, column: str) -> np.ndarray:
        return self.columns[column]


class CellLosses(NamedTuple):
    """Validation losses of the cells of a dataset, in ascending order of the cells."""

    cells: np.ndarray  # row numbers in the dataset's h5ad file, int64
    losses: np.ndarray  # nats, float64
    donors: np.ndarray  # str


class LengthCounts(NamedTuple):
    """The number of training cells of each sequence length."""

    lengths: np.ndarray  # ascending, int64
    cells: np.ndarray  # number of cells, int64


class Results:
    """The result files in a folder, e.g. ``results/demo``, and their configuration.

    Methods raise :class:`UserError` if a file is missing or damaged.
    """

    def __init__(self, folder: str | Path, config: Config) -> None:
        self.folder, self.config, self.plan = Path(folder), config, Plan(config)
        self._contents: dict[str, Any] = {}  # of the files read so far, by relative path
        self._vocabulary: str | None = None  # fingerprint in the first measurements that were read

    def path(self, relative: str) -> Path:
        """Return the path of a result file, given its path relative to the folder."""
        path = self.folder / relative
        if not path.exists():
            raise UserError(f"{path}: no such result file; run the target that makes it")
        return path

    def cached(self, relative: str, read: Callable[[Path], T]) -> T:
        """Return the result of ``read(path)``. Each file is read only once."""
        if relative not in self._contents:
            path = self.path(relative)
            with parsing(path, EXPECTED_CONTENT):
                self._contents[relative] = read(path)
        return self._contents[relative]

    def measurements(self, metric: str, dataset: str, model: str = "") -> list[Measurement]:
        """Return the rows of a metric's file for a dataset, or for a dataset and a model.

        Raise a UserError if a row is of another metric, dataset or model, or if its attention,
        context, seed or vocabulary differ from the configuration or from rows that were read
        earlier.
        """
        path = metric_file(metric, dataset, model)
        rows = self.cached(path, read_measurements)
        for row in rows:
            if self._vocabulary is None:
                self._vocabulary = row.vocabulary
            expected: dict[str, Any] = {"dataset": dataset, "vocabulary": self._vocabulary}
            if model:
                expected["model"] = model
            if row.model in self.config.models and not row.compared_with:
                settings = self.config.models[row.model]
                expected |= {"attention": settings.attention, "context": settings.context}
            if row.seed != -1:  # -1: no random numbers
                expected["seed"] = self.config.seed
            if row.metric not in FILE_METRICS.get(metric, {metric}):
                expected["metric"] = metric
            check_identity(self.folder / path, vars(row), **expected)
        return rows

    def measurement(self, name: str, metric: str, dataset: str, model: str = "") -> Measurement:
        """Return the measurement ``name`` from the file of ``metric``.

        For example, ``validation_loss_over_donors`` is in the file of ``validation_loss``.
        """
        rows = {row.metric: row for row in self.measurements(metric, dataset, model)}
        with parsing(self.folder / metric_file(metric, dataset, model), EXPECTED_CONTENT):
            return rows[name]

    def validation_loss(
        self, dataset: str, model: str, metric: str = "validation_loss"
    ) -> Measurement:
        """Return the mean validation loss of a model on a dataset in nats.

        ``metric`` is ``validation_loss`` (mean over cells, no interval),
        ``validation_loss_over_masks`` (the same mean, interval over masks) or
        ``validation_loss_over_donors`` (mean and interval over donors).
        """
        return self.measurement(metric, "validation_loss", dataset, model)

    def mmd(self, dataset: str, estimator: str = "") -> dict[str, dict[str, Measurement]]:
        """Return the MMD between all pairs of cell types, in the order of the file.

        ``estimator`` is ``unbiased`` or ``biased`` (default: the configured estimator). Keys are
        the pair, e.g. ``"Cardiac vs Neural"``, and one of ``sigmoid`` and ``softmax`` (MMD in each
        model), ``ratio`` and ``difference`` (sigmoid / softmax and sigmoid - softmax, paired by
        resample), ``sigmoid_mean`` and ``softmax_mean`` (means over resamples).
        """
        estimator = estimator or self.config.evaluation.mmd.estimator
        metric = MmdMetric.VALUE.of(estimator)
        sigmoid, softmax = self.config.evaluation.pair
        keys = {  # columns `model`, `compared_with` and `metric` in the file
            "sigmoid": (sigmoid, "", metric),
            "softmax": (softmax, "", metric),
            "ratio": (sigmoid, softmax, MmdMetric.RATIO.of(estimator)),
            "difference": (sigmoid, softmax, MmdMetric.DIFFERENCE.of(estimator)),
            "sigmoid_mean": (sigmoid, "", MmdMetric.BOOTSTRAP_MEAN.of(estimator)),
            "softmax_mean": (softmax, "", MmdMetric.BOOTSTRAP_MEAN.of(estimator)),
        }
        rows = self.measurements("mmd", dataset)
        by_key = {(row.group, row.model, row.compared_with, row.metric): row for row in rows}
        # Rows of other metrics are means over pairs (group "") and cell types that were left out.
        pairs = dict.fromkeys(row.group for row in rows if row.metric == metric)
        with parsing(self.folder / metric_file("mmd", dataset), EXPECTED_CONTENT):
            return {
                pair: {name: by_key[pair, *key] for name, key in keys.items()} for pair in pairs
            }

    def cell_losses(self, dataset: str, model: str) -> CellLosses:
        """Return the validation loss of a model on each cell of a dataset."""

        def read(path: Path) -> CellLosses:
            table = read_table(path, dataset=dataset, model=model).to_pandas()
            table = table.sort_values("cell", kind="stable")
            cells, losses = table["cell"].to_numpy(np.int64), table["loss"].to_numpy(np.float64)
            return CellLosses(cells, losses, table["donor"].to_numpy(str))

        return self.cached(f"metrics/validation_loss/{dataset}/{model}.parquet", read)

    def paired_difference(self, dataset: str, first: str, second: str) -> Interval:
        """Return the validation loss of ``first`` minus the validation loss of ``second`` in nats.

        Losses are paired by cell. The two models see the same masks, so the difference varies far
        less than either loss. Mean and interval are over donors
        (:func:`scsigmoid.records.measurements.donor_mean`).
        """
        of_first, of_second = (self.cell_losses(dataset, model) for model in (first, second))
        folder = self.folder / "metrics/validation_loss" / dataset
        # `cells` is the SHA-256 of the dataset's file. Row numbers of other files may be equal.
        identities = [read_identity(folder / f"{model}.parquet") for model in (first, second)]
        files = {identity.get("cells") for identity in identities}
        if len(files) > 1 or not np.array_equal(of_first.cells, of_second.cells):
            problem = f"{first} and {second} were evaluated on different cells"
            remedy = "delete the files of both models and run again"
            raise UserError(f"metrics/validation_loss/{dataset}: {problem}; {remedy}")
        for model, losses in ((first, of_first.losses), (second, of_second.losses)):
            mean = self.validation_loss(dataset, model).value
            if not np.isclose(losses.mean(), mean, rtol=1e-6, atol=0, equal_nan=True):
                raise UserError(
                    f"{folder / model}.parquet: the mean of its losses is not that of {model}.csv; "
                    "delete both files and run again"
                )
        confidence = self.config.evaluation.validation_loss.confidence
        difference = of_first.losses - of_second.losses
        return donor_mean(difference, of_first.donors, confidence).interval

    def donor_count(self, dataset: str, model: str) -> int:
        """Return the number of known donors among the cells that a model was evaluated on."""
        return len(known_donors(self.cell_losses(dataset, model).donors))

    @property
    def averaged_metrics(self) -> list[str]:
        """The scIB metrics whose mean is bio conservation: the computed metrics of the paper."""
        computed = self.config.evaluation.scib.metrics
        return [name for name in METRICS if name in computed and METRICS[name].in_paper]

    def scores(self, dataset: str, donor: str = "") -> dict[str, dict[str, Measurement]]:
        """Return the scIB scores by metric, then by model or control.

        ``donor`` is a donor of :meth:`scored_donors`, or "" for all cells. The last metric is the
        mean of :attr:`averaged_metrics`.
        """
        metrics = [name for name in METRICS if name in self.config.evaluation.scib.metrics]
        scores = {
            name: {
                row.model: row
                for row in self.measurements(name, dataset)
                # The value of a metric without a score is NaN.
                if row.group == donor and not row.compared_with and not math.isnan(row.value)
            }
            for name in metrics
        }
        averaged = self.averaged_metrics
        means = {}
        for model, first_score in scores[averaged[0]].items():
            if all(model in scores[name] for name in averaged):
                mean = np.mean([scores[name][model].value for name in averaged])
                mean_score = Interval(float(mean))
                means[model] = replace(first_score, metric=MEAN, **mean_score._asdict())
        return scores | {MEAN: means}

    def score_differences(self, dataset: str) -> list[Measurement]:
        """Return the differences of scores between two representations, over splits of cells."""
        return [row for row in self.scib_rows(dataset) if row.compared_with]

    def scored_donors(self, dataset: str) -> list[str]:
        """Return the donors of a dataset whose cells were scored separately."""
        groups = {row.group for row in self.scib_rows(dataset)}
        return sorted(groups - {""})  # "" is the group of all cells

    def scib_rows(self, dataset: str) -> list[Measurement]:
        """Return the rows of all computed scIB metrics."""
        metrics = self.config.evaluation.scib.metrics
        return [row for metric in metrics for row in self.measurements(metric, dataset)]

    def umap(self, dataset: str, model: str) -> pd.DataFrame:
        """Return the UMAP coordinates of a model's embeddings: ``x``, ``y`` and ``cell_type``.

        If the dataset has a batch, also ``batch``.
        """

        def read(path: Path) -> pd.DataFrame:
            table = read_table(path, dataset=dataset, model=model)
            names = [
                name for name in ("x", "y", "cell_type", "batch") if name in table.column_names
            ]
            return table.select(names).to_pandas()

        return self.cached(f"metrics/umap/{dataset}/{model}.parquet", read)

    def journal(self, model: str) -> Journal:
        """Return the journal of a model. Raise a UserError if its header states another run."""
        path = f"training/{model}/journal.csv"
        journal = self.cached(path, load_journal)
        settings = self.config.models[model]
        numbers = {"context": settings.context, "seed": self.config.seed}
        expected = {name: str(number) for name, number in numbers.items()}
        expected |= {"model": model, "attention": settings.attention}
        check_identity(self.folder / path, expected | journal.header, **expected)
        return journal

    @property
    def kernel_rows(self) -> list[KernelRow]:
        return self.benchmark("kernel", KernelRow)

    @property
    def training_rows(self) -> list[TrainingRow]:
        return self.benchmark("training", TrainingRow)

    def benchmark(self, name: str, kind: type[BenchmarkRow]) -> list[BenchmarkRow]:
        """Return the rows of a benchmark. Raise a UserError if they are of several devices."""
        file = f"benchmarks/{name}.csv"
        rows = self.cached(file, lambda path: read_benchmark(path, kind))
        device = self.machine(name).get("device")
        for row in rows:
            check_identity(self.folder / file, vars(row), device=device or rows[0].device)
        return rows

    def machine(self, benchmark: str) -> dict[str, Any]:
        """Return hardware and versions of a benchmark, ``kernel`` or ``training``."""
        return self.cached(f"benchmarks/{benchmark}.json", read_json)

    def metadata(self, dataset: str) -> dict[str, Any]:
        """Return ``label``, ``cells`` and ``genes`` of the metadata of an evaluation dataset."""

        def read(path: Path) -> dict[str, Any]:
            values = read_json(path)
            check_identity(path, {"dataset": dataset} | values, dataset=dataset)
            counts = {name: int(values[name]) for name in ("cells", "genes")}
            return {"label": str(values["label"]), **counts}

        return self.cached(f"corpus/evaluation/{dataset}.json", read)

    @property
    def lengths(self) -> LengthCounts:
        """The number of training cells of each sequence length."""

        def read(path: Path) -> LengthCounts:
            table = pd.read_parquet(path).sort_values("length", kind="stable")
            columns = (table[name].to_numpy(np.int64) for name in ("length", "cells"))
            return LengthCounts(*columns)

        return self.cached("tokens/lengths.parquet", read)

    @property
    def gene_cells(self) -> np.ndarray:
        """The number of training cells that express each token's gene, 0 for special tokens."""
        file = "tokens/vocabulary.parquet"
        return self.cached(file, lambda path: pd.read_parquet(path)["cells"].to_numpy())

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens, including special tokens."""
        return len(self.gene_cells)

    @property
    def baseline_loss(self) -> float:
        """The gene-frequency baseline: loss in nats if each gene is predicted by its frequency."""
        shares = self.gene_cells / self.gene_cells.sum()
        shares = shares[shares > 0]
        return float(-(shares * np.log(shares)).sum())

    @property
    def training_cells(self) -> int:
        return int(self.lengths.cells.sum())

    @property
    def excluded_cells(self) -> int:
        """The number of cells left out of training because other cells have the same counts."""
        summary = "corpus/manifest.json"
        if not (self.folder / summary).is_file():
            return 0

        def read(path: Path) -> int:
            counts_by_file = read_json(path).get("excluded", {}).values()
            return sum(counts["held_out"] + counts["repeated"] for counts in counts_by_file)

        return self.cached(summary, read)


def metric_file(metric: str, dataset: str, model: str = "") -> str:
    """Return the path of a metric's CSV file below the results folder."""
    return "/".join(filter(None, ("metrics", metric, dataset, model))) + ".csv"


def read_benchmark(path: Path, kind: type[BenchmarkRow]) -> list[BenchmarkRow]:
    """Read the rows of a benchmark. Raise a ValueError for values that no benchmark writes."""
    rows = read_rows(path, kind)
    rounds: dict[Any, int] = {}  # number of readings of all kernels that are compared
    for number, row in enumerate(rows, start=1):
        if row.attention not in ATTENTIONS:
            raise ValueError(f"row {number}: attention is {row.attention!r}")
        readings = [as_value(reading, float) for reading in row.readings.split()]
        for name, value in [*vars(row).items(), *(("readings", each) for each in readings)]:
            if isinstance(value, str) or name in UNLIMITED:
                continue
            if value < 0 or value > LARGEST or (value == 0 and name.startswith(POSITIVE)):
                raise ValueError(f"row {number}: {name} is {value}")
        group = row.shape if isinstance(row, KernelRow) else row.group
        if readings and rounds.setdefault(group, len(readings)) != len(readings):
            raise ValueError(f"row {number}: has {len(readings)} readings, not {rounds[group]}")
    return rows


def read_json(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def load_journal(path: Path) -> Journal:
    """Read a training journal. Raise a ValueError if it has no rows, or fewer than its model."""
    columns, header = read_journal(path)
    if not len(columns["step"]):
        raise ValueError("it has no rows")
    try:
        steps = read_header(path.with_name("model.safetensors"))[0].get("step", 0)
    except (OSError, ValueError):  # not of the journal: jobs that read the model name it
        steps = 0
    if (last := columns["step"][-1]) < steps:
        raise ValueError(f"it ends at step {last:,} of {steps:,}")
    return Journal(header, columns)
