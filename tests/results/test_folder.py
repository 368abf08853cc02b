"""Result files: types, order, and missing, damaged or exchanged files."""

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.identity import write_table
from scsigmoid.measurements import Measurement, read_measurements, write_measurements
from scsigmoid.results.folder import Results


def test_values(results: Results) -> None:
    assert results.metadata("heart_oft")["cells"] == 160
    assert results.validation_loss("heart_oft", "sigmoid_2k").n == 160
    cells, losses, donors = results.cell_losses("heart_oft", "sigmoid_2k")
    assert cells.tolist() == list(range(160))
    assert sorted(set(donors)) == ["donor 0", "donor 1", "donor 2", "donor 3"]
    assert losses.mean() == pytest.approx(results.validation_loss("heart_oft", "sigmoid_2k").value)
    assert results.journal("sigmoid_4k")["step"][-1] == results.config.training.steps
    assert results.vocabulary_size == 1204
    assert results.training_cells == 3000
    assert results.training_data == "simulated"


def test_chance_is_the_entropy_of_the_genes(copied: Callable[[], Path], config: Config) -> None:
    folder = copied()
    path = folder / "tokens/vocabulary.parquet"
    pq.write_table(pa.table({"token": range(6), "cells": [0, 0, 8, 4, 2, 2]}), path)
    results = Results(folder, config)
    assert results.chance_loss == pytest.approx(1.75 * math.log(2))
    assert results.vocabulary_size == 6


def test_cells_are_sorted(copied: Callable[[], Path], config: Config) -> None:
    folder = copied()
    path = folder / "metrics/validation_loss/heart_oft/sigmoid_2k.parquet"
    table = pa.table({"cell": [3, 1, 2], "donor": ["c", "a", "b"], "loss": [0.3, 0.1, 0.2]})
    write_table(path, table, {"dataset": "heart_oft", "model": "sigmoid_2k"})
    cells, losses, donors = Results(folder, config).cell_losses("heart_oft", "sigmoid_2k")
    assert cells.tolist() == [1, 2, 3]
    assert np.allclose(losses, [0.1, 0.2, 0.3])
    assert donors.tolist() == ["a", "b", "c"]


def test_unknown_donors_are_not_counted(copied: Callable[[], Path], config: Config) -> None:
    folder = copied()
    path = folder / "metrics/validation_loss/heart_oft/sigmoid_2k.parquet"
    donors = ["unknown", "a", "", "a", "b"]
    table = pa.table({"cell": range(5), "donor": donors, "loss": [0.1] * 5})
    write_table(path, table, {"dataset": "heart_oft", "model": "sigmoid_2k"})
    assert Results(folder, config).donors("heart_oft", "sigmoid_2k") == 2


def test_the_mean_score_is_over_the_papers_metrics(
    copied: Callable[[], Path], config: Config
) -> None:
    folder = copied()
    scores = {
        "logistic": {"sigmoid_4k": 1.0},
        "silhouette_label": {"sigmoid_4k": 0.5},
        "leiden_nmi": {"sigmoid_4k": 0.6, "random": 0.9},
        "leiden_ari": {"sigmoid_4k": 0.1},
    }
    for metric, values in scores.items():
        rows = [
            Measurement(dataset="heart_oft", model=model, metric=metric, value=value)
            for model, value in values.items()
        ]
        write_measurements(folder / f"metrics/{metric}/heart_oft.csv", rows)

    def means(*metrics: str) -> dict[str, float]:
        scib = replace(config.evaluation.scib, metrics=metrics)
        settings = replace(config, evaluation=replace(config.evaluation, scib=scib))
        # Without contexts, which these rows lack.
        found = Results(folder, replace(settings, models={})).scores("heart_oft")
        return {model: row.value for model, row in found["bio_conservation"].items()}

    assert means(*scores) == {"sigmoid_4k": pytest.approx(0.4)}
    assert means("leiden_nmi") == {"sigmoid_4k": 0.6, "random": 0.9}
    assert means("logistic") == {"sigmoid_4k": 1.0}


@pytest.mark.parametrize(
    ("source", "target", "read", "message"),
    [
        (
            "metrics/mmd/pbmc68k.csv",
            "metrics/mmd/heart_oft.csv",
            lambda r: r.measurements("mmd", "heart_oft"),
            "has dataset 'pbmc68k', expected 'heart_oft'",
        ),
        (
            "metrics/leiden_ari/heart_oft.csv",
            "metrics/leiden_nmi/heart_oft.csv",
            lambda r: r.scores("heart_oft"),
            "has metric 'leiden_ari', expected 'leiden_nmi'",
        ),
        (
            "metrics/validation_loss/heart_oft/softmax_4k.csv",
            "metrics/validation_loss/heart_oft/sigmoid_4k.csv",
            lambda r: r.validation_loss("heart_oft", "sigmoid_4k"),
            "has model 'softmax_4k', expected 'sigmoid_4k'",
        ),
        (
            "metrics/validation_loss/pbmc68k/sigmoid_4k.parquet",
            "metrics/validation_loss/heart_oft/sigmoid_4k.parquet",
            lambda r: r.cell_losses("heart_oft", "sigmoid_4k"),
            "has dataset 'pbmc68k', expected 'heart_oft'",
        ),
        (
            "metrics/umap/heart_oft/softmax_4k.parquet",
            "metrics/umap/heart_oft/sigmoid_4k.parquet",
            lambda r: r.umap("heart_oft", "sigmoid_4k"),
            "has model 'softmax_4k', expected 'sigmoid_4k'",
        ),
    ],
)
def test_files_of_other_models_or_datasets(
    copied: Callable[[], Path],
    config: Config,
    source: str,
    target: str,
    read: Callable[[Results], object],
    message: str,
) -> None:
    folder = copied()
    shutil.copy(folder / source, folder / target)
    with pytest.raises(UserError, match=f"{target}: {message}"):
        read(Results(folder, config))


def test_measurements_of_another_vocabulary(copied: Callable[[], Path], config: Config) -> None:
    folder = copied()
    path = folder / "metrics/mmd/heart_oft.csv"
    rows = [replace(row, vocabulary="e" * 64) for row in read_measurements(path)]
    write_measurements(path, rows)
    results = Results(folder, config)
    results.scores("heart_oft")
    with pytest.raises(UserError, match="has vocabulary eeeeeeeeeeee, expected empty"):
        results.measurements("mmd", "heart_oft")


@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("corpus/evaluation/heart_oft.json", lambda r: r.metadata("heart_oft")),
        ("benchmarks/kernel.csv", lambda r: r.kernel),
        ("benchmarks/kernel.json", lambda r: r.machine("kernel")),
        ("training/sigmoid_4k/journal.csv", lambda r: r.journal("sigmoid_4k")),
    ],
)
def test_missing_and_damaged_files_are_named(
    copied: Callable[[], Path], config: Config, file: str, read: Callable[[Results], object]
) -> None:
    folder = copied()
    (folder / file).write_text("nonsense\n1\n")
    with pytest.raises(UserError, match=file.rpartition("/")[2]) as damaged:
        read(Results(folder, config))
    (folder / file).unlink()
    with pytest.raises(UserError, match="no such") as missing:
        read(Results(folder, config))
    assert all("\n" not in str(error.value) for error in (damaged, missing))
