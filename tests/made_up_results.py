"""Made-up result files, and fixtures with them: of the demo, and with the numbers of the paper."""

import itertools
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scsigmoid.benchmarks.cases import Case, groups
from scsigmoid.benchmarks.rows import KernelRow, TrainingRow, write_rows
from scsigmoid.config.check import as_yaml, load, model_training
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.corpus.metadata import ManifestRow, write_manifest
from scsigmoid.identity import write_table
from scsigmoid.measurements import (
    Interval,
    Measurement,
    donor_mean,
    mean_interval,
    write_measurements,
)
from scsigmoid.paper.reported import reported
from scsigmoid.report import registry
from scsigmoid.results.folder import Results
from scsigmoid.results.speed import named_size
from scsigmoid.training.journal import COLUMNS

Row = TypeVar("Row")
ROOT = Path(__file__).parents[1]
TYPES = (
    *("Mesenchymal", "Cardiac", "Endothelial", "Immune", "Neural"),
    *("Adult endothelial", "Adult valve interstitial", "Adult immune"),
)
CELLS = 160
H100 = "NVIDIA H100 80GB HBM3"
DONORS = [f"donor {cell % 4}" for cell in range(CELLS)]
# What each model's made-up loss is above the dataset's own.
LOSS = {"sigmoid_2k": 0.30, "softmax_2k": 0.33, "sigmoid_4k": 0.10, "softmax_4k": 0.14}


def fabricate(folder: Path, config: Config, *, simulated: bool = True) -> None:
    """Write every file that the paper's stage reads."""
    random = np.random.default_rng(1)
    write_corpus(folder, config, simulated)
    write_lengths(folder, random)
    for dataset in config.datasets:
        write_losses(folder, config, dataset, simulated, random)
        write_scores(folder, config, dataset, simulated, random)
        write_mmd(folder, config, dataset, simulated, random)
        write_umap(folder, config, dataset, random)
    for model in config.models:
        write_journal(folder, config, model, random)
    write_kernel(folder, config, random)
    write_training(folder, config, random)


def others_changed(config: Config, kept: Sequence[str]) -> Config:
    """A configuration that has all its numbers and words changed, but for these settings."""

    def other(value: Any, path: str) -> Any:
        if any(f"{path}.".startswith(f"{name}.") for name in kept):
            return value
        if is_dataclass(value):
            names = [field.name for field in fields(value)]
            new = {name: other(getattr(value, name), f"{path}.{name}".strip(".")) for name in names}
            return replace(value, **new)  # type: ignore[type-var]
        if isinstance(value, bool):
            return not value
        if isinstance(value, str):
            return "cpu"  # what a device may be, and matters
        return value + 1 if isinstance(value, int | float) else value

    changed: Config = other(config, "")
    assert changed.tokens.target_sum != config.tokens.target_sum
    return changed


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def write_cells(path: Path, columns: dict[str, Any]) -> None:
    """Write values of cells, with the identity that is in the path: dataset and model."""
    write_table(path, pa.table(columns), {"dataset": path.parent.name, "model": path.stem})


def write_corpus(folder: Path, config: Config, simulated: bool) -> None:
    common = {"source": config.corpus.source, "simulated": str(simulated).lower(), "location": ""}
    rows = [ManifestRow(file=f"train_{i}", role="training", **common) for i in range(2)]
    for dataset in config.datasets:
        rows.append(ManifestRow(file=dataset, role="evaluation", **common))
        genes = folder / f"tokens/evaluation/{dataset}/genes.npy"
        genes.parent.mkdir(parents=True, exist_ok=True)
        np.save(genes, np.arange(CELLS, dtype=np.int32) * 4)
        made_up = simulated and dataset != "pbmc68k"
        metadata = {"simulated": made_up, "label": "cell_type", "cells": CELLS, "genes": 1200}
        write_json(folder / f"corpus/evaluation/{dataset}.json", metadata)
    write_manifest(folder / "corpus/manifest.csv", rows)


def write_lengths(folder: Path, random: np.random.Generator) -> None:
    drawn = np.clip(random.lognormal(np.log(115), 0.65, 3000), 8, 1100).astype(np.int32)
    lengths, cells = np.unique(drawn, return_counts=True)
    write_parquet(folder / "tokens/lengths.parquet", {"length": lengths, "cells": cells})
    write_vocabulary(folder, 1204)


def write_vocabulary(folder: Path, tokens: int) -> None:
    """A vocabulary whose genes come less and less often; the first four tokens are no genes."""
    cells = np.where(np.arange(tokens) < 4, 0, 1 + 100_000 // np.arange(1, tokens + 1))
    path = folder / "tokens/vocabulary.parquet"
    write_parquet(path, {"token": np.arange(tokens), "cells": cells})


def dataset_seed(dataset: str) -> float:
    """A number between 0 and 1 that depends on the name."""
    return (sum(map(ord, dataset)) % 17) / 17


def facts(config: Config, name: str) -> dict[str, Any]:
    """Attention and context of a model; nothing for controls and pairs of models."""
    model = config.models.get(name)
    return {"attention": model.attention, "context": model.context} if model else {}


def write_losses(
    folder: Path, config: Config, dataset: str, simulated: bool, random: np.random.Generator
) -> None:
    common = 4.0 + dataset_seed(dataset) + random.normal(0, 0.3, CELLS)
    for model, extra in LOSS.items():
        losses = common + extra + random.normal(0, 0.05, CELLS)
        mean, half = losses.mean(), 0.04 * losses.std(ddof=1) / np.sqrt(CELLS)
        intervals = {
            "validation_loss": Interval(mean),
            "validation_loss_over_donors": donor_mean(losses, np.array(DONORS), 0.95).interval,
            "validation_loss_over_masks": Interval(mean, mean - half, mean + half),
        }
        is_simulated = simulated and dataset != "pbmc68k"
        write_model_losses(folder, config, dataset, model, losses, intervals, is_simulated)


def write_model_losses(
    folder: Path, config: Config, dataset: str, model: str, losses: np.ndarray,
    intervals: Mapping[str, Interval], simulated: bool = False,
) -> None:  # fmt: skip
    """Write the losses of the cells, and measurements with these intervals by metric."""
    stem = folder / f"metrics/validation_loss/{dataset}/{model}"
    columns = {"cell": np.arange(CELLS), "donor": DONORS, "loss": losses}
    write_cells(stem.with_suffix(".parquet"), columns)
    common = {"dataset": dataset, "model": model, "n": CELLS, "simulated": simulated}
    rows = [
        Measurement(**common, **facts(config, model), metric=name, value=value, low=low, high=high)
        for name, (value, low, high) in intervals.items()
    ]
    write_measurements(stem.with_suffix(".csv"), rows)


def write_scores(
    folder: Path, config: Config, dataset: str, simulated: bool, random: np.random.Generator
) -> None:
    for metric in config.evaluation.scib.metrics:
        base = 0.45 + 0.3 * dataset_seed(dataset + metric)
        values = {
            "sigmoid_4k": base + random.uniform(0.0, 0.06),
            "softmax_4k": base,
            "random": 0.02,
            "pca_log_counts": base + 0.1,
        }
        is_simulated = simulated and dataset != "pbmc68k"
        write_metric(folder, config, dataset, metric, values, is_simulated)


def write_metric(
    folder: Path, config: Config, dataset: str, metric: str, values: Mapping[str, float],
    simulated: bool = False,
) -> None:  # fmt: skip
    """Write a scIB metric of models and controls."""
    common = {"dataset": dataset, "metric": metric, "n": CELLS, "simulated": simulated}
    rows = [
        Measurement(**common, **facts(config, name), model=name, value=value)
        for name, value in values.items()
    ]
    write_measurements(folder / f"metrics/{metric}/{dataset}.csv", rows)


def write_mmd(
    folder: Path, config: Config, dataset: str, simulated: bool, random: np.random.Generator
) -> None:
    pairs = {}
    for first, second in itertools.combinations(TYPES, 2):
        base = random.uniform(0.2, 0.6)
        pairs[f"{first} vs {second}"] = (base * random.uniform(0.98, 1.4), base)
    write_pairs(folder, config, dataset, simulated, pairs)


def write_pairs(
    folder: Path,
    config: Config,
    dataset: str,
    simulated: bool,
    pairs: Mapping[str, tuple[float, float]],
    width: float = 1.0,
) -> None:
    """Write the MMD of pairs of cell types in both models, with intervals of a relative width."""
    sigmoid, softmax = config.evaluation.pair
    rows: list[Measurement] = []
    means = list(pairs.values())
    for group, (above, base) in pairs.items():
        ratio = above / base
        common = {"dataset": dataset, "group": group, "n": 40, "simulated": simulated}
        for estimator, shift in (("unbiased", 0.0), ("biased", 0.02)):
            arms = {sigmoid: base * ratio + shift, softmax: base + shift}
            one, other = arms.values()
            values = {
                (sigmoid, ""): (one, 0.03),
                (softmax, ""): (other, 0.03),
                (f"{sigmoid} / {softmax}", "_ratio"): (one / other, 0.05),
                (f"{sigmoid} - {softmax}", "_difference"): (one - other, 0.02),
                (sigmoid, "_bootstrap_mean"): (one + 0.004, 0.03),
                (softmax, "_bootstrap_mean"): (other + 0.004, 0.03),
            }
            rows += [
                Measurement(
                    **common, **facts(config, model), model=model, metric=f"mmd_{estimator}{kind}",
                    value=value, low=value - half * width, high=value + half * width,
                )
                for (model, kind), (value, half) in values.items()
            ]  # fmt: skip
    ours, theirs = map(np.array, zip(*means, strict=True))
    over = {"dataset": dataset, "model": f"{sigmoid} / {softmax}", "simulated": simulated}
    for name, value in (
        ("mean_ratio_of_means", ours.mean() / theirs.mean()),
        ("mean_of_ratios", (ours / theirs).mean()),
        ("bootstrap_mean_ratio_of_means", (ours.mean() + 0.004) / (theirs.mean() + 0.004)),
    ):
        of = {"value": value, "low": value - 0.02, "high": value + 0.02, "n": len(means)}
        rows += [
            Measurement(**over, **of, metric=f"mmd_{e}_{name}") for e in ("unbiased", "biased")
        ]
    few = {"model": "", "group": "Mast", "metric": "mmd_left_out", "value": 7, "n": 7}
    rows.append(Measurement(**over | few))
    write_measurements(folder / f"metrics/mmd/{dataset}.csv", rows)


def write_umap(folder: Path, config: Config, dataset: str, random: np.random.Generator) -> None:
    types = np.repeat(TYPES, CELLS // len(TYPES))
    for model in config.evaluation.pair:
        centres = random.normal(0, 5, (len(TYPES), 2))
        points = centres[np.repeat(np.arange(len(TYPES)), CELLS // len(TYPES))]
        points = points + random.normal(0, 1, points.shape)
        x, y = points.T.astype(np.float32)
        columns = {"x": x, "y": y, "cell_type": types}
        write_cells(folder / f"metrics/umap/{dataset}/{model}.parquet", columns)


def write_journal(folder: Path, config: Config, model: str, random: np.random.Generator) -> None:
    """A loss that falls; the stress test's softmax explodes at two thirds."""
    last = model_training(config, model).steps
    steps = np.unique(np.linspace(1, last, 60).astype(int))
    time = steps / last
    loss = 4.5 + 2.5 * np.exp(-5 * time) + LOSS.get(model, 0.2)
    loss += random.normal(0, 0.03, len(steps))
    gradient = 1 + 3 * np.exp(-6 * time) + random.uniform(0, 0.2, len(steps))
    score = 1 + 2 * time + random.uniform(0, 0.1, len(steps))
    if model == "softmax_8k":
        late = time > 0.66
        loss[late] = 7.5 + random.normal(0, 0.1, late.sum())
        gradient[late] *= 10 ** random.uniform(3, 5, late.sum())
        score[late] *= 10 ** random.uniform(4, 7, late.sum())
        loss[-1] = np.inf
    columns = {"step": steps, "loss": loss, "gradient_norm": gradient, "attention_score_max": score}
    device = H100 if config.preset == "paper" else "cpu"
    write_journal_rows(folder / f"training/{model}/journal.csv", columns, device)


def write_journal_rows(path: Path, columns: dict[str, Any], device: str = H100) -> None:
    """A journal of some columns; the others are 0."""
    rows = np.zeros((len(columns["step"]), len(COLUMNS)))
    for name, values in columns.items():
        rows[:, COLUMNS.index(name)] = values
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"# device: {device}", "# torch: 2.13.0", ",".join(COLUMNS)]
    lines += [",".join([str(int(row[0])), *map(repr, map(float, row[1:]))]) for row in rows]
    path.write_text("\n".join(lines) + "\n")


EMPTY = {str: "", int: 0, float: math.nan, bool: False}


def filled(kind: type[Row], **values: Any) -> Row:
    """A row with these values; the others are empty, as where nothing was measured."""
    return kind(**{name: EMPTY[one] for name, one in get_type_hints(kind).items()} | values)


def ends(name: str, value: float, low: float = 0.96, high: float = 1.04) -> dict[str, float]:
    """A value with an interval, as columns."""
    return {name: value, f"{name}_low": value * low, f"{name}_high": value * high}


def kernel_row(
    case: Case, direction: str, attention: str, provider: str, layout: str, rate: float
) -> KernelRow:
    """A row of ten equal readings; one without any where the rate is NaN."""
    milliseconds = case.flops(direction) / rate * 1e3
    shape = ("batch", "head_dimension", "heads", "length", "sequences", "padding", "tokens")
    row = filled(
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
        executed_tflops=rate / 1e12,
        note="CPU, tiny shapes: not comparable with the paper",
    )
    if math.isnan(rate):
        return row
    readings = " ".join([repr(milliseconds)] * 10)
    measured = {"timing": "clock", "checked": True, "relative_error": 1e-6}
    return filled(KernelRow, **vars(row) | measured | {"iterations": 10, "readings": readings})


# Made-up speeds of the kernels: attention, provider, layout, and what each reaches.
SPEEDS = {
    ("sigmoid", "triton", "packed"): 4.0,
    ("sigmoid", "triton", "padded"): 3.6,
    ("sigmoid", "pytorch_sigmoid", "padded"): 0.8,
    ("softmax", "pytorch", "padded"): 1.0,
    ("softmax", "flash_attention_2", "padded"): 3.0,
    ("softmax", "flex", "packed"): 2.5,
}


def write_kernel(folder: Path, config: Config, random: np.random.Generator) -> None:
    rows = []
    for group in groups(config.benchmarks.kernel):
        for case, direction in itertools.product(group, ("forward", "backward")):
            for (attention, provider, layout), speed in SPEEDS.items():
                rate = speed * 1e8 * (1 if direction == "forward" else 0.6)
                rate *= (case.length / 64) ** 0.3 * random.uniform(0.97, 1.03)
                rate *= 0.9 if case.uneven and provider != "triton" else 1
                rows.append(kernel_row(case, direction, attention, provider, layout, rate))
            absent = kernel_row(case, direction, "sigmoid", "flash_sigmoid", "padded", np.nan)
            rows.append(replace(absent, note="flash_sigmoid is not installed"))
    write_rows(folder / "benchmarks/kernel.csv", KernelRow, rows)
    versions = {"torch": "2.13.0", "triton": "3.7.1"}
    machine = {"device": "cpu", "cpu": "Made-up CPU", "capability": "", **versions}
    write_json(folder / "benchmarks/kernel.json", machine)
    write_json(folder / "benchmarks/training.json", machine)


def write_training(folder: Path, config: Config, random: np.random.Generator) -> None:
    """Write the training benchmark: for each size both attentions, once with padding."""
    settings, rows = config.benchmarks.training, []
    fewest = min(settings.cells_per_gpu)
    places = itertools.product(enumerate(settings.sizes), settings.contexts, settings.cells_per_gpu)
    for (index, size), context, cells in places:
        milliseconds = cells * (index + 1) * context**0.5 / 0.9
        for attention, kernel, layout, factor in (
            ("sigmoid", "reference", "packed", 1.0),
            ("softmax", "sdpa", "packed", 1.2 if cells > fewest else random.uniform(1.05, 1.07)),
            ("softmax", "flex", "padded", 2.0),
        ):
            row = training_row(context, attention, kernel, layout, milliseconds * factor, cells)
            row = replace(row, size=size, parameters=parameters(config, size, index))
            rows.append(row)
    absent = replace(
        training_row(settings.contexts[0], "sigmoid", "triton_sigmoid", "padded", math.nan),
        note="triton_sigmoid is not installed",
    )
    write_rows(folder / "benchmarks/training.csv", TrainingRow, [*rows, absent])


def training_row(
    context: int, attention: str, kernel: str, layout: str, milliseconds: float, cells: int = 2
) -> TrainingRow:
    """A row of the training benchmark with nine rounds around a time of a step."""
    rounds = (
        [] if math.isnan(milliseconds) else [milliseconds * (1 + n / 100) for n in range(-4, 5)]
    )
    return filled(
        TrainingRow,
        size="160M",
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


def parameters(config: Config, size: str, index: int) -> int:
    """As many as the name says at the paper's scale, few elsewhere."""
    if config.preset == "paper":
        return int(float(size[:-1]) * {"M": 1e6, "B": 1e9}[size[-1]])
    return 50_000 * (index + 1) ** 2


def write_records(folder: Path) -> None:
    """What Snakemake's ``benchmark`` leaves, of a few jobs."""
    head = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n"
    for job, seconds, memory in (
        ("manifest", 0.52, "-"),
        ("train/sigmoid_4k", 4000.0, "2100.5"),
        ("train/softmax_4k", 3800.0, "1900"),
        ("embeddings/heart_oft/sigmoid_4k", 61.0, "812.25"),
    ):
        path = folder / f"resources/{job}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{head}{seconds}\t0:00:00\t{memory}" + "\t0" * 7 + "\n")


# Results with the numbers of the paper.

SWAPPED = {"sigmoid": "softmax", "softmax": "sigmoid"}
SAME = {"sigmoid": "sigmoid", "softmax": "softmax"}


def write_papers_numbers(folder: Path, config: Config, *, swapped: bool = False) -> None:
    """Write a results folder that is comparable with the paper and has the paper's numbers.

    Args:
        swapped: give each arm the numbers of the other one.
    """
    other = SWAPPED if swapped else SAME
    fabricate(folder, config, simulated=False)
    cells = int(reported()["corpus"]["cells"])
    long = round(cells * reported()["printed"]["longer_than_2048"] / 100)
    columns = {"length": [1000, 9000], "cells": [cells - long, long]}
    write_parquet(folder / "tokens/lengths.parquet", columns)
    write_vocabulary(folder, 44_000)
    for name, row in reported()["datasets"].items():
        path = folder / f"corpus/evaluation/{name}.json"
        write_json(path, json.loads(path.read_text()) | {"cells": row["cells"]})
        write_papers_losses(folder, config, name, other)
    write_papers_scores(folder, config, other)
    pairs = {
        row["pair"]: (row[other["sigmoid"]][0], row[other["softmax"]][0])
        for row in reported()["mmd"]["heart_oft"]
    }
    write_pairs(folder, config, "heart_oft", False, pairs, width=1e-3)
    write_stress(folder, other)
    write_kernels(folder, swapped)
    write_costs(folder, config, other)
    write_json(folder / "benchmarks/kernel.json", {"device": H100, "capability": "9.0"})
    write_json(folder / "benchmarks/training.json", {"device": H100, "gpus": "16"})


def write_papers_losses(
    folder: Path, config: Config, dataset: str, other: Mapping[str, str]
) -> None:
    """Write losses that differ by the same amount in every cell."""
    spread = np.random.default_rng(7).normal(0, 0.01, CELLS)
    spread -= spread.mean()
    printed = reported()["validation_loss"][dataset]
    for model in printed:
        attention, context = model.split("_")
        losses = printed[f"{other[attention]}_{context}"][0] + spread
        interval = mean_interval(losses, 0.95)
        names = ("", "_over_donors", "_over_masks")
        intervals = {f"validation_loss{name}": interval for name in names}
        write_model_losses(folder, config, dataset, model, losses, intervals)


def write_papers_scores(folder: Path, config: Config, other: Mapping[str, str]) -> None:
    """Write scores by which sigmoid wins on as many datasets as in the paper."""
    wins = reported()["printed"]["scib_wins"]
    for metric in config.evaluation.scib.metrics:
        for place, dataset in enumerate(reported()["datasets"]):
            higher = "sigmoid" if place < wins[metric] else "softmax"
            values = {f"{arm}_4k": 0.6 if other[arm] == higher else 0.4 for arm in SAME}
            write_metric(folder, config, dataset, metric, values)


def write_stress(folder: Path, other: Mapping[str, str]) -> None:
    """Write both runs of the stress test."""
    step = np.arange(0, 80_001, 100)
    learning = 3 + 7 * np.exp(-step / 5000)
    lost = step >= 55_600
    column = np.where(lost, 1.6e6, 100.0)
    softmax = {
        "step": step,
        "loss": np.where(lost, 10.0, learning),
        "gradient_norm": column,
        "attention_score_max": np.where(lost, 2.3e8, 20.0),
    }
    sigmoid = {
        "step": step,
        "loss": learning,
        "gradient_norm": np.geomspace(100, 10, len(step)),
        "attention_score_max": np.linspace(1, 5, len(step)),
    }
    runs = {"sigmoid": sigmoid, "softmax": softmax}
    for arm in SAME:
        write_journal_rows(folder / f"training/{arm}_8k/journal.csv", runs[other[arm]])


def spread(mean: float, count: int, first: list[float]) -> list[float]:
    """Return numbers of a mean, some of which are given."""
    rest = count - len(first)
    return [*first, *[(mean * count - sum(first)) / rest] * rest]


def write_kernels(folder: Path, swapped: bool) -> None:
    """Write TFLOPS that have the paper's peaks, means and speed-ups.

    Swapped, TritonSigmoid has the times of FlashAttention-2, and the other kernels TritonSigmoid's.
    """
    peaks, rows = reported()["tflops"], []
    ups = {(row["provider"], row["padding"], row["pass"]): row for row in reported()["speed_ups"]}
    means = {row["pass"]: row for row in reported()["padding_overhead"]}
    gains = {row["pass"]: 1 + row["value"] / 100 for row in reported()["padded_gains"]}
    for way in ("forward", "backward"):
        for padding in (0.0, 0.25):
            own = "triton_sigmoid"
            mean = means[way]["padded" if padding else "unpadded"]
            peak = {name: row[way] for name, row in peaks.items() if name != "shape"}
            up = ups[own, padding, way]
            first = [] if padding else [peak[own]]
            ratio = [] if padding else [peak[own] / peak["pytorch"]]
            rate = {own: spread(mean, 12, first)}
            speed = spread(up["mean"], 12, [*ratio, *up["range"]])
            rate["pytorch"] = [a / b for a, b in zip(rate[own], speed, strict=True)]
            if padding:
                rate["flash_attention_2"] = [one / gains[way] for one in rate[own]]
            else:
                for name in ("flash_attention_2", "flash_sigmoid"):
                    ratio = [peak[name] / peak["pytorch"]]
                    speed = spread(ups[name, padding, way]["mean"], 12, ratio)
                    rate[name] = [a * b for a, b in zip(rate["pytorch"], speed, strict=True)]
            if swapped:
                rate = dict.fromkeys(rate, rate[own]) | {own: rate["flash_attention_2"]}
            rate["pytorch_sigmoid"] = [reported()["printed"]["pytorch_sigmoid"][way]] * 12
            # The peak shape comes first.
            shapes = [
                (dimension, length)
                for dimension in (128, 64)
                for length in (16384, 8192, 4096, 2048, 1024, 512)
            ]
            for name, values in rate.items():
                for (dimension, length), value in zip(shapes, values, strict=True):
                    sequences = 16384 // length
                    case = Case(
                        "paper", dimension, 2048 // dimension, length, (length,) * sequences,
                        padding,
                    )  # fmt: skip
                    row = kernel_row(case, way, "sigmoid", name, "padded", value * 1e12)
                    edges = {"tflops_low": value * 0.999, "tflops_high": value * 1.001}
                    rows.append(replace(row, device=H100, **edges))
    write_rows(folder / "benchmarks/kernel.csv", KernelRow, rows)


def write_costs(folder: Path, config: Config, other: Mapping[str, str]) -> None:
    """Write the paper's GPU-hours, and 5 % saved where the paper prints none."""
    settings, rows = config.benchmarks.training, []
    printed = {(row["size"], row["context"]): row for row in reported()["gpu_hours"]}
    noise = np.random.default_rng(3).normal(1, 1e-3, 50)
    for size in settings.sizes:
        for context in settings.contexts:
            hours = printed.get((size, context), {"sigmoid": 950, "softmax": 1000})
            for arm, kernel in (("sigmoid", "triton_sigmoid"), ("softmax", "flex")):
                value = float(hours[other[arm]])
                milliseconds = 2 * value * 3.6e6 / settings.projected_cells * noise
                row = training_row(context, arm, kernel, "padded", float(np.median(milliseconds)))
                costs = ends("gpu_hours", value, 0.999, 1.001)
                readings = " ".join(map(repr, map(float, milliseconds)))
                row = replace(row, size=size, parameters=int(named_size(size)), note="", **costs)
                rows.append(replace(row, device=H100, rounds=50, readings=readings))
    write_rows(folder / "benchmarks/training.csv", TrainingRow, rows)


# Fixtures. A conftest.py imports those that its folder needs.


@pytest.fixture(scope="session")
def config() -> Config:
    """The demo's configuration with fewer datasets."""
    overrides = {
        "datasets": {"indonesian_pbmc": None, "lung_acr": None, "healthy_colon": None},
    }
    return load(ROOT / "config.yaml", ROOT / "workflow/presets", {"preset": "demo"} | overrides)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, config: Config) -> Path:
    """The fabricated results folder; read-only by agreement."""
    folder = tmp_path_factory.mktemp("results")
    fabricate(folder, config)
    return folder


@pytest.fixture
def results(folder: Path, config: Config) -> Results:
    """The fabricated results."""
    return Results(folder, config)


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes a copy of the results folder that a test may change."""

    def copy() -> Path:
        shutil.copytree(folder, tmp_path / "results")
        return tmp_path / "results"

    return copy


@pytest.fixture(scope="session")
def paper_config() -> Config:
    """The paper's own configuration."""
    return load(ROOT / "config.yaml", ROOT / "workflow/presets", {"preset": "paper"})


@pytest.fixture
def paper_results(tmp_path: Path, paper_config: Config) -> Results:
    """Results that are comparable with the paper and have its numbers; a test may change them."""
    write_papers_numbers(tmp_path / "paper", paper_config)
    return Results(tmp_path / "paper", paper_config)


@pytest.fixture(scope="session")
def finished(folder: Path, config: Config, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Results with all that the report shows, one dataset's title being markup."""
    copy = tmp_path_factory.mktemp("finished") / "results"
    shutil.copytree(folder, copy)
    title = "<script>alert('x')</script> & co"
    datasets = {**config.datasets, "pbmc68k": replace(config.datasets["pbmc68k"], title=title)}
    results = Results(copy, replace(config, datasets=datasets))
    (copy / "config.yaml").write_text(as_yaml(results.config))
    plan = Plan(results.config)
    for kind in registry.KINDS:
        for name in registry.names(kind, plan):
            registry.write(kind, name, results, copy / f"{kind}s/{name}")
    write_records(copy)
    return results
