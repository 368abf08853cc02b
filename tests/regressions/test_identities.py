"""Result files of another model, dataset or vocabulary are refused."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_results import write_cells

from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.measurements import read_measurements, write_measurements
from scsigmoid.results.folder import Results

HEART, SIGMOID = "heart_oft", "sigmoid_4k"


Read = Callable[[Results], object]


@pytest.mark.parametrize(
    ("file", "expected", "other", "read"),
    [
        ("metrics/mmd/{}.csv", HEART, "pbmc68k", lambda r: r.mmd(HEART)),
        ("metrics/{}/heart_oft.csv", "leiden_nmi", "leiden_ari", lambda r: r.scores(HEART)),
        ("metrics/validation_loss/heart_oft/{}.csv", SIGMOID, "softmax_4k",
         lambda r: r.validation_loss(HEART, SIGMOID)),
        ("metrics/validation_loss/{}/sigmoid_4k.parquet", HEART, "pbmc68k",
         lambda r: r.cell_losses(HEART, SIGMOID)),
        ("metrics/umap/heart_oft/{}.parquet", SIGMOID, "softmax_4k",
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
    path = copied / "metrics/mmd/heart_oft.csv"
    rows = [replace(row, vocabulary="e" * 64) for row in read_measurements(path)]
    write_measurements(path, rows)
    results = Results(copied, config)
    results.scores("heart_oft")
    with pytest.raises(UserError, match="has vocabulary eeeeeeeeeeee, expected empty"):
        results.mmd("heart_oft")


def test_cells_are_sorted_and_unknown_donors_not_counted(copied: Path, config: Config) -> None:
    donors = ["unknown", "a", "", "a", "b"]
    columns = {"cell": [3, 1, 2, 4, 0], "donor": donors, "loss": [0.3, 0.1, 0.2, 0.4, 0.0]}
    write_cells(copied / "metrics/validation_loss/heart_oft/sigmoid_2k.parquet", columns)
    results = Results(copied, config)
    cells, losses, donors = results.cell_losses("heart_oft", "sigmoid_2k")
    assert cells.tolist() == [0, 1, 2, 3, 4]
    assert losses.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert donors.tolist() == ["b", "a", "", "unknown", "a"]
    assert results.donor_count("heart_oft", "sigmoid_2k") == 2


def test_a_missing_measurement_is_named(copied: Path, config: Config) -> None:
    path = copied / "metrics/mmd/heart_oft.csv"
    _, *rows = read_measurements(path)
    write_measurements(path, rows)
    with pytest.raises(UserError, match=r"mmd/heart_oft\.csv: damaged"):
        Results(copied, config).mmd("heart_oft")
