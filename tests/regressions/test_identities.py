"""Result files of another model, dataset or vocabulary are refused."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anndata
import numpy as np
import pyarrow.parquet as pq
import pytest
from evaluation.conftest import run
from made_up_results import write_cells

from scsigmoid.config.schema import Config, ValidationLoss
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import read_embeddings
from scsigmoid.evaluation.validation_loss import validation_loss
from scsigmoid.records.identity import write_table
from scsigmoid.records.measurements import read_measurements, write_measurements
from scsigmoid.results.folder import Results

HEART, SIGMOID = "simulated_heart", "sigmoid_256"
Read = Callable[[Results], object]


@pytest.mark.parametrize(
    ("file", "expected", "other", "read"),
    [
        ("metrics/mmd/{}.csv", HEART, "pbmc68k", lambda r: r.mmd(HEART)),
        ("metrics/{}/simulated_heart.csv", "leiden_nmi", "leiden_ari", lambda r: r.scores(HEART)),
        ("metrics/validation_loss/simulated_heart/{}.csv", SIGMOID, "softmax_256",
         lambda r: r.validation_loss(HEART, SIGMOID)),
        ("metrics/validation_loss/{}/sigmoid_256.parquet", HEART, "pbmc68k",
         lambda r: r.cell_losses(HEART, SIGMOID)),
        ("metrics/umap/simulated_heart/{}.parquet", SIGMOID, "softmax_256",
         lambda r: r.umap(HEART, SIGMOID)),
    ],
)  # fmt: skip
def test_files_of_other_models_or_datasets(
    copied: Path, config: Config, file: str, expected: str, other: str, read: Read
) -> None:
    target = file.format(expected)
    shutil.copy(copied / file.format(other), copied / target)
    with pytest.raises(UserError, match=rf"{target}: has \w+ '{other}', expected '{expected}'"):
        read(Results(copied, config))


def test_measurements_of_another_vocabulary(copied: Path, config: Config) -> None:
    path = copied / "metrics/mmd/simulated_heart.csv"
    rows = [replace(row, vocabulary="e" * 64) for row in read_measurements(path)]
    write_measurements(path, rows)
    results = Results(copied, config)
    results.scores("simulated_heart")
    with pytest.raises(UserError, match="has vocabulary eeeeeeeeeeee, expected empty"):
        results.mmd("simulated_heart")


def test_measurements_of_another_seed(copied: Path, config: Config) -> None:
    """Runs with fixed genes have the same vocabulary for all seeds."""
    path = copied / "metrics/mmd/simulated_heart.csv"
    for seed in (config.seed, 7):
        write_measurements(path, [replace(row, seed=seed) for row in read_measurements(path)])
        if seed == config.seed:
            assert Results(copied, config).mmd(HEART)
    with pytest.raises(UserError, match=r"simulated_heart\.csv: has seed 7, expected 42"):
        Results(copied, config).mmd(HEART)


@pytest.mark.parametrize(
    ("header", "field"),
    [("# model: softmax_256", "model"), ("# seed: 7", "seed"), ("# context: 128", "context")],
)
def test_a_journal_of_another_run(copied: Path, config: Config, header: str, field: str) -> None:
    """The stress test and the figure of losses showed it under the name of the model."""
    path = copied / f"training/{SIGMOID}/journal.csv"
    path.write_text(f"# model: {SIGMOID}\n# seed: 42\n# context: 256\n{path.read_text()}")
    assert len(Results(copied, config).journal(SIGMOID)["step"])
    path.write_text(re.sub(f"# {field}: .*", header, path.read_text()))
    with pytest.raises(UserError, match=f"journal.csv: has {field} '(softmax_256|7|128)'"):
        Results(copied, config).journal(SIGMOID)


def test_metadata_of_another_dataset(copied: Path, config: Config) -> None:
    """The table of datasets had its number of cells."""
    path = copied / f"corpus/evaluation/{HEART}.json"
    path.write_text('{"dataset": "pbmc68k", ' + path.read_text().strip()[1:])
    with pytest.raises(UserError, match=f"{HEART}.json: has dataset 'pbmc68k'"):
        Results(copied, config).metadata(HEART)


def test_cells_are_sorted_and_unknown_donors_not_counted(copied: Path, config: Config) -> None:
    donors = ["unknown", "a", "", "a", "b"]
    columns = {"cell": [3, 1, 2, 4, 0], "donor": donors, "loss": [0.3, 0.1, 0.2, 0.4, 0.0]}
    write_cells(copied / "metrics/validation_loss/simulated_heart/sigmoid_128.parquet", columns)
    results = Results(copied, config)
    cells, losses, donors = results.cell_losses("simulated_heart", "sigmoid_128")
    assert cells.tolist() == [0, 1, 2, 3, 4]
    assert losses.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert donors.tolist() == ["b", "a", "", "unknown", "a"]
    assert results.donor_count("simulated_heart", "sigmoid_128") == 2


def test_losses_of_cells_of_another_file_are_not_paired(copied: Path, config: Config) -> None:
    """The rows of two files have the same numbers, although their cells differ."""
    pair = (SIGMOID, "softmax_256")
    for of_second in ("a", "b"):
        for model, letter in zip(pair, ("a", of_second), strict=True):
            path = copied / f"metrics/validation_loss/{HEART}/{model}.parquet"
            identity = {"dataset": HEART, "model": model, "cells": letter * 64}
            write_table(path, pq.read_table(path).replace_schema_metadata(), identity)
        if of_second == "a":
            assert Results(copied, config).paired_difference(HEART, *pair)
    with pytest.raises(UserError, match="evaluated on different cells"):
        Results(copied, config).paired_difference(HEART, *pair)


def test_losses_of_cells_of_another_run_are_refused(copied: Path, config: Config) -> None:
    """A row of the table had the mean of one run and the mean over donors of another run."""
    path = copied / f"metrics/validation_loss/{HEART}/{SIGMOID}.parquet"
    columns = pq.read_table(path).to_pydict()
    write_cells(path, columns | {"loss": [1.001 * loss for loss in columns["loss"]]})
    with pytest.raises(UserError, match=rf"{SIGMOID}\.parquet: the mean .* of {SIGMOID}\.csv"):
        Results(copied, config).paired_difference(HEART, SIGMOID, "softmax_256")


def test_a_missing_measurement_is_named(copied: Path, config: Config) -> None:
    path = copied / "metrics/mmd/simulated_heart.csv"
    _, *rows = read_measurements(path)
    write_measurements(path, rows)
    with pytest.raises(UserError, match=r"mmd/simulated_heart\.csv: damaged"):
        Results(copied, config).mmd("simulated_heart")


def test_permuted_cells(checkpoint, store, cells, tmp_path):
    adata = anndata.read_h5ad(cells)
    adata[::-1].copy().write_h5ad(cells)
    with pytest.raises(UserError, match=r"toy\.h5ad: has cells"):
        run(checkpoint, store, cells, tmp_path)


def test_model_file_of_another_model(make_model, store, cells, tmp_path):
    sigmoid, softmax = make_model("sigmoid"), make_model("softmax")
    sigmoid.write_bytes(softmax.read_bytes())
    message = r"sigmoid_toy/model\.safetensors: has model 'softmax_toy', expected 'sigmoid_toy'"
    with pytest.raises(UserError, match=message):
        run(sigmoid, store, cells, tmp_path)
    settings = ValidationLoss(trials=1, mask_fraction=0.3, confidence=0.95, batch_tokens=40)
    outputs = (tmp_path / f"sigmoid_toy.{suffix}" for suffix in ("csv", "parquet"))
    with pytest.raises(UserError, match=message):
        validation_loss(sigmoid, store, "toy", settings, 42, "cpu", *outputs)
    assert not list(tmp_path.glob("sigmoid_toy*"))


def test_embedding_of_another_model_or_dataset(write_arm):
    labels, values = list("aabbc"), np.arange(10.0).reshape(5, 2)
    paths = {name: write_arm(name, values, labels) for name in ("sigmoid_256", "softmax_256")}
    with pytest.raises(UserError, match="has dataset 'toy', expected 'other'"):
        read_embeddings(paths, "other")
    for field, value in (("vocabulary", "e" * 64), ("cells", "e" * 64)):
        write_arm("softmax_256", values, labels, **{field: value})
        with pytest.raises(UserError, match=rf"softmax_256\.h5ad: has {field} eeeeeeeeeeee"):
            read_embeddings(paths, "toy")
    paths["softmax_256"].write_bytes(paths["sigmoid_256"].read_bytes())
    with pytest.raises(UserError, match=r"softmax_256\.h5ad: has model 'sigmoid_256'"):
        read_embeddings(paths, "toy")
