"""Cell types of a file: missing labels, and too few cells of a type, are found before training."""

import re

import numpy as np
import pytest
from stages import fetch

from scsigmoid.config.check import load
from scsigmoid.config.schema import Dataset
from scsigmoid.corpus.cell_types import cell_types, choose_label
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.errors import UserError


@pytest.mark.parametrize(
    ("types", "analysis", "settings", "message"),
    [
        ([6, 6, 2], "mmd", {}, r"13 of 14 .*6 'a', 5 'b'\).*scIB.*15.*; MMD.*10"),
        ([40, 9], "mmd", {"mmd": {"minimum_cells": 8}}, ""),
        ([8, 7], "umap", {"scib": {"neighbors": 13}}, "UMAP needs more than 15"),
    ],
)
def test_too_few_cells_for_a_metric(
    types, analysis, settings, message, write_h5ad, tmp_path, capfd
):
    """Every metric that is computed has its minimum. One cell has no type."""
    kinds = [kind for kind, count in zip("abc", types, strict=False) for _ in range(count)]
    kinds[types[0]] = None
    path = write_h5ad(np.ones((len(kinds), 12), np.float32), obs={"cell_type": kinds})
    datasets = {"blood": {"title": "Blood", "file": str(path), "compared": [analysis]}}
    config = load(overrides={"preset": "demo", "datasets": datasets, "evaluation": settings})
    outputs = tmp_path / "made" / "blood.h5ad", tmp_path / "made" / "blood.json"
    options = ["--dataset", "blood", "--output", outputs[0], "--metadata", outputs[1]]
    assert fetch(config, tmp_path, *options) == bool(message)
    error = "".join(line for line in capfd.readouterr().err.splitlines() if "error" in line)
    assert error.startswith(f"scsigmoid: error: {path}: " if message else "")
    assert re.search(message, error)
    assert [file.exists() for file in outputs] == [not message] * 2


def test_missing_labels(counts, write_h5ad):
    absent = [None, "", "nan", "NA", "Unknown", "a"]
    types = cell_types(open_cells(write_h5ad(counts, obs={"cell_type": absent * 5})), "cell_type")
    assert types[:6].tolist() == [*[""] * 5, "a"]


@pytest.mark.parametrize(("types", "only"), [(["T", None], "'T'"), (["", "unknown"], "none")])
def test_single_cell_type(types, only, counts, write_h5ad):
    cells = open_cells(write_h5ad(counts, obs={"cell_type": types * 15}))
    with pytest.raises(UserError, match=f"all 30 evaluated cells have the cell_type {only}; eval"):
        choose_label(cells, "heart", Dataset(title="Heart", label="cell_type"))


def test_several_spellings_of_a_cell_type(counts, write_h5ad, capfd):
    """They were scored as different types, without a warning."""
    types = ["B cell", "b cell ", "T cell", "B  cell", "t-cell", None]
    cells = open_cells(write_h5ad(counts, obs={"cell_type": types * 5}))
    dataset = {"title": "Heart", "label": "cell_type"}
    choose_label(cells, "heart", Dataset(**dataset, types=["B cell", "T cell"]))
    assert "spellings" not in capfd.readouterr().err
    choose_label(cells, "heart", Dataset(**dataset))
    error = capfd.readouterr().err
    assert "different spellings in 'cell_type' count as different cell types" in error
    assert "'B  cell' and 'B cell' and 'b cell '; use one" in error
