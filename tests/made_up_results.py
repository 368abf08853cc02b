"""Made-up result files and fixtures: of the demo, and of a run with the numbers of the paper."""

import itertools
import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from configurations import with_settings
from matplotlib.figure import Figure
from once import made_once

from scsigmoid.benchmarks.cases import Case, groups
from scsigmoid.benchmarks.rows import KernelRow, TrainingRow, write_rows
from scsigmoid.config.check import as_yaml, load, model_training
from scsigmoid.config.schema import Config
from scsigmoid.corpus.metadata import ManifestRow, write_manifest
from scsigmoid.paper.reported import reported
from scsigmoid.records.identity import write_table
from scsigmoid.records.measurements import (
    Interval,
    Measurement,
    donor_mean,
    mean_interval,
    write_measurements,
)
from scsigmoid.report import registry
from scsigmoid.report.figures.style import styled
from scsigmoid.results.folder import Results
from scsigmoid.training.journal import COLUMNS

Row = TypeVar("Row")
TYPES = (
    *("Mesenchymal", "Cardiac", "Endothelial", "Immune", "Neural"),
    *("Adult endothelial", "Adult valve interstitial", "Adult immune"),
)
ESTIMATORS = ("unbiased", "biased")
CELLS = 160
H100 = "NVIDIA H100 80GB HBM3"
DONORS = [f"donor {cell % 4}" for cell in range(CELLS)]
# Made-up loss in nats, minus the loss that all models have in common, by attention: of the model
# with the shortest context, and of the next.
EXTRA_LOSS = {"sigmoid": (0.30, 0.10), "softmax": (0.33, 0.14)}
# Made-up speeds relative to PyTorch, by attention, provider and layout.
SPEEDS = {
    ("sigmoid", "triton", "packed"): 4.0,
    ("sigmoid", "triton", "padded"): 3.6,
    ("sigmoid", "pytorch_sigmoid", "padded"): 0.8,
    ("softmax", "pytorch", "padded"): 1.0,
    ("softmax", "flash_attention_2", "padded"): 3.0,
    ("softmax", "flex", "packed"): 2.5,
}


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def write_cells(path: Path, columns: dict[str, Any]) -> None:
    """Write values of cells. The dataset and the model of the identity are from the path."""
    write_table(path, pa.table(columns), {"dataset": path.parent.name, "model": path.stem})


def write_vocabulary(folder: Path, tokens: int) -> None:
    """Write a vocabulary of genes in descending frequency. The first four tokens are special."""
    cells = np.where(np.arange(tokens) < 4, 0, 1 + 100_000 // np.arange(1, tokens + 1))
    path = folder / "tokens/vocabulary.parquet"
    write_parquet(path, {"token": np.arange(tokens), "cells": cells})


def write_journal(
    path: Path, columns: dict[str, Any], device: str = H100, processes: int = 16
) -> None:
    """Write a journal with some columns. All other columns are 0."""
    rows = np.zeros((len(columns["step"]), len(COLUMNS)))
    for name, values in columns.items():
        rows[:, COLUMNS.index(name)] = values
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"# device: {device}", f"# processes: {processes}", "# torch: 2.13.0"]
    lines.append(",".join(COLUMNS))
    lines += [",".join([str(int(row[0])), *map(repr, map(float, row[1:]))]) for row in rows]
    path.write_text("\n".join(lines) + "\n")


def fraction_of(name: str) -> float:
    """Return a number between 0 and 1 that depends on the name."""
    return (sum(map(ord, name)) % 17) / 17


class MadeUp:
    """Writes the input files of tables, figures and the report."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = folder, config
        self.random = np.random.default_rng(1)
        contexts = sorted({model.context for model in config.models.values()})
        self.extra_loss = {
            name: EXTRA_LOSS[model.attention][contexts.index(model.context)]
            for name, model in config.models.items()
            if not model.stress
        }

    def write_all(self) -> None:
        self.write_corpus()
        for dataset in self.config.datasets:
            self.write_losses(dataset)
            self.write_scores(dataset)
            ratios = {}
            for first, second in itertools.combinations(TYPES, 2):
                softmax = self.random.uniform(0.2, 0.6)
                ratios[f"{first} vs {second}"] = (softmax * self.random.uniform(0.98, 1.4), softmax)
            self.write_mmd(dataset, ratios)
            self.write_umap(dataset)
        for model in self.config.models:
            self.write_run(model)
        self.write_kernel()
        self.write_training()

    def write_corpus(self) -> None:
        common = {"source": self.config.corpus.source, "location": ""}
        rows = [ManifestRow(file=f"train_{i}", role="training", **common) for i in range(2)]
        for dataset in self.config.datasets:
            rows.append(ManifestRow(file=dataset, role="evaluation", **common))
            metadata = {"label": "cell_type", "cells": CELLS, "genes": 1200}
            write_json(self.folder / f"corpus/evaluation/{dataset}.json", metadata)
        write_manifest(self.folder / "corpus/manifest.csv", rows)
        drawn = np.clip(self.random.lognormal(np.log(115), 0.65, 3000), 8, 1100).astype(np.int32)
        lengths, cells = np.unique(drawn, return_counts=True)
        write_parquet(self.folder / "tokens/lengths.parquet", {"length": lengths, "cells": cells})
        write_vocabulary(self.folder, 1204)

    def row(self, dataset: str, model: str, metric: str, interval: Interval, **fields: Any) -> Any:
        """Return a measurement of a model, a control or a pair of models."""
        if settings := self.config.models.get(model):
            fields |= {"attention": settings.attention, "context": settings.context}
        fields = {"n": CELLS} | fields | interval._asdict()
        return Measurement(dataset=dataset, model=model, metric=metric, **fields)

    def write_losses(self, dataset: str) -> None:
        common = 4.0 + fraction_of(dataset) + self.random.normal(0, 0.3, CELLS)
        for model, extra in self.extra_loss.items():
            losses = common + extra + self.random.normal(0, 0.05, CELLS)
            mean, half = losses.mean(), 0.04 * losses.std(ddof=1) / np.sqrt(CELLS)
            donors = donor_mean(losses, np.array(DONORS), 0.95).interval
            masks = Interval(mean, mean - half, mean + half)
            self.write_model_losses(dataset, model, losses, Interval(mean), donors, masks)

    def write_model_losses(
        self, dataset: str, model: str, losses: np.ndarray, *intervals: Interval
    ) -> None:
        """Write the losses of the cells, and their mean with three intervals."""
        stem = self.folder / f"metrics/validation_loss/{dataset}/{model}"
        columns = {"cell": np.arange(CELLS), "donor": DONORS, "loss": losses}
        write_cells(stem.with_suffix(".parquet"), columns)
        rows = [
            self.row(dataset, model, f"validation_loss{over}", interval)
            for over, interval in zip(("", "_over_donors", "_over_masks"), intervals, strict=True)
        ]
        write_measurements(stem.with_suffix(".csv"), rows)

    def write_scores(self, dataset: str) -> None:
        for metric in self.config.evaluation.scib.metrics:
            base = 0.45 + 0.3 * fraction_of(dataset + metric)
            sigmoid, softmax = self.config.evaluation.pair
            values = {
                sigmoid: base + self.random.uniform(0.0, 0.06),
                softmax: base,
                "random": 0.02,
                "pca_log_counts": base + 0.1,
            }
            self.write_metric(dataset, metric, values)

    def write_metric(self, dataset: str, metric: str, values: Mapping[str, float]) -> None:
        """Write a scIB metric of models and controls."""
        rows = [self.row(dataset, model, metric, Interval(x)) for model, x in values.items()]
        write_measurements(self.folder / f"metrics/{metric}/{dataset}.csv", rows)

    def write_mmd(
        self, dataset: str, pairs: Mapping[str, tuple[float, float]], width: float = 1.0
    ) -> None:
        """Write the MMD of pairs of cell types in both models. ``width`` scales the intervals."""
        sigmoid, softmax = self.config.evaluation.pair
        rows = []
        for (group, mmd), (estimator, shift) in itertools.product(
            pairs.items(), zip(ESTIMATORS, (0.0, 0.02), strict=True)
        ):
            ours, theirs = (value + shift for value in mmd)
            values = {
                (sigmoid, "", ""): (ours, 0.03),
                (softmax, "", ""): (theirs, 0.03),
                (sigmoid, softmax, "_ratio"): (ours / theirs, 0.05),
                (sigmoid, softmax, "_difference"): (ours - theirs, 0.02),
                (sigmoid, "", "_bootstrap_mean"): (ours + 0.004, 0.03),
                (softmax, "", "_bootstrap_mean"): (theirs + 0.004, 0.03),
            }
            for (model, other, kind), (value, half) in values.items():
                ends = Interval(value, value - half * width, value + half * width)
                fields = {"compared_with": other, "group": group, "n": 40}
                rows.append(self.row(dataset, model, f"mmd_{estimator}{kind}", ends, **fields))
        ours, theirs = map(np.array, zip(*pairs.values(), strict=True))
        for name, value in (
            ("mean_ratio_of_means", ours.mean() / theirs.mean()),
            ("mean_of_ratios", (ours / theirs).mean()),
            ("bootstrap_mean_ratio_of_means", (ours.mean() + 0.004) / (theirs.mean() + 0.004)),
        ):
            ends = Interval(value, value - 0.02, value + 0.02)
            fields = {"compared_with": softmax, "n": len(pairs)}
            rows += [
                self.row(dataset, sigmoid, f"mmd_{estimator}_{name}", ends, **fields)
                for estimator in ESTIMATORS
            ]
        rows.append(self.row(dataset, "", "mmd_left_out", Interval(7), group="Mast", n=7))
        write_measurements(self.folder / f"metrics/mmd/{dataset}.csv", rows)

    def write_umap(self, dataset: str) -> None:
        kinds = np.repeat(np.arange(len(TYPES)), CELLS // len(TYPES))
        for model in self.config.evaluation.pair:
            centers = self.random.normal(0, 5, (len(TYPES), 2))[kinds]
            x, y = (centers + self.random.normal(0, 1, centers.shape)).T.astype(np.float32)
            columns = {"x": x, "y": y, "cell_type": np.array(TYPES)[kinds]}
            write_cells(self.folder / f"metrics/umap/{dataset}/{model}.parquet", columns)

    def write_run(self, model: str) -> None:
        """Write a journal with a falling loss. In the stress test, softmax diverges."""
        random, last = self.random, model_training(self.config, model).steps
        steps = np.unique(np.linspace(1, last, 60).astype(int))
        time = steps / last
        loss = 4.5 + 2.5 * np.exp(-5 * time) + self.extra_loss.get(model, 0.2)
        loss += random.normal(0, 0.03, len(steps))
        gradient = 1 + 3 * np.exp(-6 * time) + random.uniform(0, 0.2, len(steps))
        score = 1 + 2 * time + random.uniform(0, 0.1, len(steps))
        if (self.config.models[model].attention, model in self.extra_loss) == ("softmax", False):
            late = time > 0.66
            loss[late] = 7.5 + random.normal(0, 0.1, late.sum())
            gradient[late] *= 10 ** random.uniform(3, 5, late.sum())
            score[late] *= 10 ** random.uniform(4, 7, late.sum())
            loss[-1] = np.inf
        columns = {"step": steps, "loss": loss}
        columns |= {"gradient_norm": gradient, "attention_score_max": score}
        device = H100 if self.config.preset == "paper" else "cpu"
        write_journal(self.folder / f"training/{model}/journal.csv", columns, device)

    def write_kernel(self) -> None:
        rows = []
        cases = itertools.chain.from_iterable(groups(self.config.benchmarks.kernel))
        for case, direction in itertools.product(cases, ("forward", "backward")):
            for (attention, provider, layout), speed in SPEEDS.items():
                rate = speed * 1e8 * (1 if direction == "forward" else 0.6)
                rate *= (case.length / 64) ** 0.3 * self.random.uniform(0.97, 1.03)
                rate *= 0.9 if case.has_padding and provider != "triton" else 1
                rows.append(kernel_row(case, direction, attention, provider, layout, rate))
            absent = kernel_row(case, direction, "sigmoid", "flash_sigmoid", "padded", np.nan)
            rows.append(replace(absent, note="flash_sigmoid is not installed"))
        write_rows(self.folder / "benchmarks/kernel.csv", KernelRow, rows)
        versions = {"torch": "2.13.0", "triton": "3.7.1"}
        machine = {"device": "cpu", "cpu": "Made-up CPU", "capability": "", **versions}
        for benchmark in ("kernel", "training"):
            write_json(self.folder / f"benchmarks/{benchmark}.json", machine)

    def write_training(self) -> None:
        """Write the training benchmark: both attentions, and a slower softmax with padding."""
        settings, rows = self.config.benchmarks.training, []
        fewest = min(settings.cells_per_gpu)
        for (index, size), context, cells in itertools.product(
            enumerate(settings.sizes), settings.contexts, settings.cells_per_gpu
        ):
            milliseconds = cells * (index + 1) * context**0.5 / 0.9
            slower = 1.2 if cells > fewest else self.random.uniform(1.05, 1.07)
            for attention, kernel, layout, factor in (
                ("sigmoid", "reference", "packed", 1.0),
                ("softmax", "sdpa", "packed", slower),
                ("softmax", "flex", "padded", 2.0),
            ):
                row = training_row(context, attention, kernel, layout, milliseconds * factor, cells)
                rows.append(replace(row, size=size, parameters=50_000 * (index + 1) ** 2))
        absent = training_row(settings.contexts[0], "sigmoid", "triton_sigmoid", "padded", math.nan)
        rows.append(replace(absent, note="triton_sigmoid is not installed"))
        write_rows(self.folder / "benchmarks/training.csv", TrainingRow, rows)


EMPTY = {str: "", int: 0, float: math.nan, bool: False}


def filled(kind: type[Row], **values: Any) -> Row:
    """Return a row with these values. All other fields are empty, as if nothing was measured."""
    return kind(**{name: EMPTY[type_] for name, type_ in get_type_hints(kind).items()} | values)


def ends(name: str, value: float, low: float = 0.96, high: float = 1.04) -> dict[str, float]:
    """Return a value with an interval, as columns."""
    return {name: value, f"{name}_low": value * low, f"{name}_high": value * high}


def kernel_row(
    case: Case, direction: str, attention: str, provider: str, layout: str, rate: float
) -> KernelRow:
    """Return a row with ten equal readings at ``rate`` FLOPS, or without readings if it is NaN."""
    milliseconds = case.flops(direction) / rate * 1e3
    shape = ("batch", "head_dimension", "heads", "length", "sequences", "padding", "tokens")
    is_timed = not math.isnan(rate)
    return filled(
        KernelRow,
        attention=attention,
        provider=provider,
        layout=layout,
        direction=direction,
        **{name: getattr(case, name) for name in shape},
        dtype="float32",
        device="cpu",
        **ends("milliseconds", milliseconds),
        **ends("tflops", rate / 1e12, 1 / 1.04, 1 / 0.96),
        timing="clock" if is_timed else "",
        checked=is_timed,
        relative_error=1e-6 if is_timed else math.nan,
        iterations=10 * is_timed,
        note="CPU, tiny shapes: not comparable with the paper",
        readings=" ".join([repr(milliseconds)] * 10 * is_timed),
    )


def training_row(
    context: int, attention: str, kernel: str, layout: str, milliseconds: float, cells: int = 2
) -> TrainingRow:
    """Return a row with nine rounds. ``milliseconds`` is their median, NaN if nothing was timed."""
    is_timed = not math.isnan(milliseconds)
    rounds = [milliseconds * (1 + n / 100) for n in range(-4, 5)] if is_timed else []
    return filled(
        TrainingRow,
        size="tiny",
        parameters=1000,
        context=context,
        cells_per_step=cells,
        attention=attention,
        kernel=kernel,
        layout=layout,
        device="cpu",
        tokens_per_step=context * 2.0,
        padding=0.0 if layout == "packed" else 0.5,
        **ends("milliseconds", milliseconds),
        **ends("cells_per_second", cells * 1e3 / milliseconds, 1 / 1.04, 1 / 0.96),
        tokens_per_second=context * 2e3 / milliseconds,
        **ends("gpu_hours", 131.6e6 / cells * milliseconds / 3.6e6),
        projected_cells=131.6e6,
        loss=6.8,
        relative_error=1e-7,
        rounds=len(rounds),
        note="CPU-hours of one tiny model: not comparable with the paper" if rounds else "",
        readings=" ".join(map(str, rounds)),
    )


class PapersNumbers(MadeUp):
    """Writes a results folder that is comparable with the paper and has the paper's numbers.

    If ``swapped``, sigmoid has the paper's numbers of softmax, and softmax those of sigmoid.
    """

    def __init__(self, folder: Path, config: Config, *, swapped: bool = False) -> None:
        super().__init__(folder, config)
        self.swapped = swapped
        #: Attention whose numbers in the paper each attention gets.
        self.source = {"sigmoid": "sigmoid", "softmax": "softmax"}
        if swapped:
            self.source = {"sigmoid": "softmax", "softmax": "sigmoid"}

    def write_all(self) -> None:
        super().write_all()
        cells = int(reported()["corpus"]["cells"])
        long = round(cells * reported()["printed"]["longer_than_2048"] / 100)
        columns = {"length": [1000, 9000], "cells": [cells - long, long]}
        write_parquet(self.folder / "tokens/lengths.parquet", columns)
        write_vocabulary(self.folder, 44_000)
        for name, row in reported()["datasets"].items():
            path = self.folder / f"corpus/evaluation/{name}.json"
            write_json(path, json.loads(path.read_text()) | {"cells": row["cells"]})
        pairs = {
            row["pair"]: (row[self.source["sigmoid"]][0], row[self.source["softmax"]][0])
            for row in reported()["mmd"]["heart_oft"]
        }
        self.write_mmd("heart_oft", pairs, width=1e-3)
        self.write_stress()
        self.write_hours()
        machine = {"device": H100, "capability": "9.0"}
        for benchmark in ("kernel", "training"):
            write_json(self.folder / f"benchmarks/{benchmark}.json", machine)

    def write_losses(self, dataset: str) -> None:
        """Write losses whose difference between two models is the same in every cell."""
        deviations = np.random.default_rng(7).normal(0, 0.01, CELLS)
        deviations -= deviations.mean()
        printed = reported()["validation_loss"][dataset]
        for model in printed:
            attention, context = model.split("_")
            losses = printed[f"{self.source[attention]}_{context}"][0] + deviations
            self.write_model_losses(dataset, model, losses, *[mean_interval(losses, 0.95)] * 3)

    def write_scores(self, dataset: str) -> None:
        """Write scores. Sigmoid has the higher score on as many datasets as in the paper."""
        index = list(reported()["datasets"]).index(dataset)
        for metric in self.config.evaluation.scib.metrics:
            is_won = index < reported()["printed"]["scib_wins"][metric]
            higher = self.source["sigmoid" if is_won else "softmax"]
            values = {f"{arm}_4k": 0.6 if arm == higher else 0.4 for arm in self.source}
            self.write_metric(dataset, metric, values)

    def write_stress(self) -> None:
        """Write both runs of the stress test."""
        step = np.maximum(np.arange(0, 80_001, 100), 1)
        learning = 3 + 7 * np.exp(-step / 5000)
        has_diverged = step >= 55_600
        runs = {
            "sigmoid": {
                "loss": learning,
                "gradient_norm": np.geomspace(100, 10, len(step)),
                "attention_score_max": np.linspace(1, 5, len(step)),
            },
            "softmax": {
                "loss": np.where(has_diverged, 10.0, learning),
                "gradient_norm": np.where(has_diverged, 1.6e6, 100.0),
                "attention_score_max": np.where(has_diverged, 2.3e8, 20.0),
            },
        }
        for arm, source in self.source.items():
            path = self.folder / f"training/{arm}_8k/journal.csv"
            write_journal(path, {"step": step, **runs[source]})

    def write_hours(self) -> None:
        """Write the journals of the runs whose GPU-hours the paper prints, on 16 GPUs."""
        for row in reported()["gpu_hours"]:
            for arm, model in row.get("models", {}).items():
                last = model_training(self.config, model).steps
                columns = {"step": np.array([1, last]), "loss": np.array([9.0, 3.0])}
                columns["seconds"] = np.array([1, row[self.source[arm]] * 3600 / 16])
                write_journal(self.folder / f"training/{model}/journal.csv", columns)

    def write_kernel(self) -> None:
        """Write TFLOPS with the paper's peaks, means and speed-ups.

        If ``swapped``, TritonSigmoid has the TFLOPS of FlashAttention-2, and all other kernels have
        the TFLOPS of TritonSigmoid.
        """
        rows = []
        # The peak shape comes first.
        shapes = itertools.product((128, 64), (16384, 8192, 4096, 2048, 1024, 512))
        cases = [(dimension, length, 16384 // length) for dimension, length in shapes]
        for direction, padding in itertools.product(("forward", "backward"), (0.0, 0.25)):
            for name, values in self.rates(direction, padding).items():
                for (dimension, length, count), value in zip(cases, values, strict=True):
                    lengths = (length,) * count
                    case = Case("paper", dimension, 2048 // dimension, length, lengths, padding)
                    row = kernel_row(case, direction, "sigmoid", name, "padded", value * 1e12)
                    rows.append(replace(row, device=H100, **ends("tflops", value, 0.999, 1.001)))
        write_rows(self.folder / "benchmarks/kernel.csv", KernelRow, rows)

    def rates(self, direction: str, padding: float) -> dict[str, list[float]]:
        """Return the TFLOPS of each kernel at twelve shapes."""
        own, paper = "triton_sigmoid", reported()
        peak = {name: row[direction] for name, row in paper["tflops"].items() if name != "shape"}
        speed_ups = {
            row["provider"]: row
            for row in paper["speed_ups"]
            if (row["padding"], row["pass"]) == (padding, direction)
        }
        (mean,) = (row for row in paper["padding_overhead"] if row["pass"] == direction)
        (gain,) = (row["value"] for row in paper["padded_gains"] if row["pass"] == direction)
        over_pytorch = {name: [] if padding else [peak[name] / peak["pytorch"]] for name in peak}
        over_pytorch[own] += speed_ups[own]["range"]
        speed = {name: fill_up(row["mean"], over_pytorch[name]) for name, row in speed_ups.items()}
        first = [] if padding else [peak[own]]
        rates = {own: fill_up(mean["padded" if padding else "unpadded"], first)}
        rates["pytorch"] = [a / b for a, b in zip(rates[own], speed.pop(own), strict=True)]
        for name, values in speed.items():
            rates[name] = [a * b for a, b in zip(rates["pytorch"], values, strict=True)]
        if padding:
            rates["flash_attention_2"] = [rate / (1 + gain / 100) for rate in rates[own]]
        if self.swapped:
            rates = dict.fromkeys(rates, rates[own]) | {own: rates["flash_attention_2"]}
        return rates | {"pytorch_sigmoid": [paper["printed"]["pytorch_sigmoid"][direction]] * 12}

    def write_training(self) -> None:
        """Write the paper's GPU-hours. Where the paper has none, sigmoid saves 5 %."""
        settings, rows = self.config.benchmarks.training, []
        printed = {(row["size"], row["context"]): row for row in reported()["gpu_hours"]}
        noise = np.random.default_rng(3).normal(1, 1e-3, 50)
        for size, context in itertools.product(settings.sizes, settings.contexts):
            hours = printed.get((size, context), {"sigmoid": 950, "softmax": 1000})
            for arm, kernel in (("sigmoid", "triton_sigmoid"), ("softmax", "flex")):
                value = float(hours[self.source[arm]])
                milliseconds = 2 * value * 3.6e6 / settings.projected_cells * noise
                row = training_row(context, arm, kernel, "padded", float(np.median(milliseconds)))
                row = replace(row, size=size, device=H100, note="", rounds=len(noise))
                row = replace(row, parameters=int(float(size[:-1]) * (1e9 if "B" in size else 1e6)))
                readings = " ".join(map(repr, map(float, milliseconds)))
                costs = ends("gpu_hours", value, 0.999, 1.001)
                rows.append(replace(row, readings=readings, **costs))
        write_rows(self.folder / "benchmarks/training.csv", TrainingRow, rows)


def fill_up(mean: float, first: list[float]) -> list[float]:
    """Return twelve numbers with this mean: ``first``, then equal numbers."""
    rest = 12 - len(first)
    return [*first, *[(mean * 12 - sum(first)) / rest] * rest]


# Fixtures. A conftest.py imports those that its folder needs.


@pytest.fixture(scope="session")
def config() -> Config:
    """The demo's configuration with fewer datasets."""
    datasets = dict.fromkeys(("simulated_blood_2", "simulated_lung", "simulated_colon"))
    return load(overrides={"preset": "demo", "datasets": datasets})


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, config: Config) -> Path:
    """The made-up results folder, which tests must not change."""
    folder = tmp_path_factory.mktemp("results")
    MadeUp(folder, config).write_all()
    return folder


@pytest.fixture
def results(folder: Path, config: Config) -> Results:
    """The made-up results."""
    return Results(folder, config)


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """A copy of the results folder that a test may change."""
    return Path(shutil.copytree(folder, tmp_path / "results"))


@pytest.fixture(scope="session")
def paper_config() -> Config:
    """The paper's own configuration."""
    return load(overrides={"preset": "paper"})


@pytest.fixture
def paper_results(
    tmp_path: Path, paper_config: Config, tmp_path_factory: pytest.TempPathFactory
) -> Results:
    """Results that are comparable with the paper and have its numbers. A test may change them."""

    def make(folder: Path) -> None:
        PapersNumbers(folder, paper_config).write_all()

    made = made_once(tmp_path_factory, "paper_results", make)
    return Results(Path(shutil.copytree(made, tmp_path / "paper")), paper_config)


@pytest.fixture(scope="session")
def finished(folder: Path, config: Config, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Results with all tables and figures of the report. The title of one dataset is markup.

    All processes of pytest share them.
    """
    title = "<script>alert('x')</script> & co"
    datasets = {
        **config.datasets,
        "pbmc68k": config.datasets["pbmc68k"].model_copy(update={"title": title}),
    }
    config = config.model_copy(update={"datasets": datasets})

    def make(copy: Path) -> None:
        shutil.copytree(folder, copy)
        (copy / "config.yaml").write_text(as_yaml(config))
        write_all_parts(Results(copy, config))

    return Results(made_once(tmp_path_factory, "finished_results", make), config)


def with_other(results: Results, settings: Mapping[str, object]) -> Results:
    """Return the results with other values of some settings, whose names are dotted."""
    return Results(results.folder, with_settings(results.config, settings))


def copy_inputs(results: Results, kind: str, name: str, folder: Path) -> Results:
    """Copy the declared inputs of a table or figure to a folder, and return these results."""
    for file in registry.find(kind, name, results.plan).inputs:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(results.folder / file, folder / file)
    return Results(folder, results.config)


def write_all_parts(results: Results) -> None:
    """Write all tables and figures."""
    for kind in registry.KINDS:
        for name in registry.names(kind, results.plan):
            registry.write(kind, name, results, results.folder / f"{kind}s/{name}")


def draw(name: str, results: Results) -> Figure:
    with styled():
        figure: Figure = registry.make("figure", name, results)
        return figure


@pytest.fixture
def whole(finished: Results, tmp_path: Path) -> Results:
    """A copy of the finished results that a test may change."""
    shutil.copytree(finished.folder, tmp_path / "whole")
    return Results(tmp_path / "whole", finished.config)
