"""Result files whose measurements are the numbers that the paper prints."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from paper.conftest import (
    CELLS,
    DONORS,
    H100,
    ends,
    fabricate,
    facts,
    filled,
    kernel_row,
    write_cells,
    write_journal_rows,
    write_json,
    write_pairs,
    write_parquet,
    write_vocabulary,
)

from scsigmoid.benchmarks.cases import Case
from scsigmoid.benchmarks.rows import KernelRow, TrainingRow, write_rows
from scsigmoid.config.schema import Config
from scsigmoid.measurements import Measurement, mean_interval, write_measurements
from scsigmoid.paper.reported import reported
from scsigmoid.results.speed import named_size

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
        write_losses(folder, config, name, other)
    write_scores(folder, config, other)
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


def write_losses(folder: Path, config: Config, dataset: str, other: Mapping[str, str]) -> None:
    """Write losses that differ by the same amount in every cell."""
    spread = np.random.default_rng(7).normal(0, 0.01, CELLS)
    spread -= spread.mean()
    for model in reported()["validation_loss"][dataset]:
        attention, context = model.split("_")
        mean, _ = reported()["validation_loss"][dataset][f"{other[attention]}_{context}"]
        losses = mean + spread
        stem = folder / f"metrics/validation_loss/{dataset}/{model}"
        rows = {"cell": np.arange(CELLS), "donor": DONORS, "loss": losses}
        write_cells(stem.with_suffix(".parquet"), rows)
        value, low, high = mean_interval(losses, 0.95)
        found = {"dataset": dataset, "model": model, "n": CELLS}
        of = {"value": value, "low": low, "high": high}
        names = (
            "validation_loss", "validation_loss_over_donors", "validation_loss_over_masks",
        )  # fmt: skip
        of |= facts(config, model)
        rows = [Measurement(**found, **of, metric=name) for name in names]
        write_measurements(stem.with_suffix(".csv"), rows)


def write_scores(folder: Path, config: Config, other: Mapping[str, str]) -> None:
    """Write scores by which sigmoid wins on as many datasets as in the paper."""
    wins = reported()["printed"]["scib_wins"]
    for metric in config.evaluation.scib.metrics:
        for place, dataset in enumerate(reported()["datasets"]):
            higher = "sigmoid" if place < wins[metric] else "softmax"
            rows = [
                Measurement(
                    dataset=dataset, model=f"{arm}_4k", metric=metric, n=CELLS,
                    **facts(config, f"{arm}_4k"),
                    value=0.6 if other[arm] == higher else 0.4,
                )
                for arm in SAME
            ]  # fmt: skip
            write_measurements(folder / f"metrics/{metric}/{dataset}.csv", rows)


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
                rows.append(cost_row(size, context, arm, kernel, value, milliseconds))
    write_rows(folder / "benchmarks/training.csv", TrainingRow, rows)


def cost_row(
    size: str, context: int, attention: str, kernel: str, hours: float, milliseconds: Any
) -> TrainingRow:
    """Return a row of the training benchmark."""
    return filled(
        TrainingRow, size=size, context=context, attention=attention, kernel=kernel,
        parameters=int(named_size(size)), layout="padded", device=H100, cells_per_step=2,
        rounds=len(milliseconds), **ends("gpu_hours", hours, 0.999, 1.001),
        milliseconds=float(np.median(milliseconds)),
        readings=" ".join(map(repr, map(float, milliseconds))),
    )  # fmt: skip
