"""The summary at the end of a run, from tables written by hand."""

import csv
import os
from pathlib import Path

from scsigmoid.report.summary import summary


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_means_over_datasets_and_counts(tmp_path: Path) -> None:
    losses = [
        {"dataset": dataset, "model": model, "mean": mean, "simulated": dataset == "a"}
        for dataset, values in {"a": (1.0, 2.0), "b": (4.0, 6.0)}.items()
        for model, mean in zip(("one", "two", "one - two"), (*values, -1.0), strict=True)
    ]
    write(tmp_path / "tables/validation_loss.csv", losses)
    said = lines(tmp_path)
    assert said["Validation loss, nats"] == (
        "one 2.500, two 4.000 (mean of 2 datasets, 1 simulated)"
    )
    assert "Bio conservation (scIB)" not in said
    assert "Report" not in said


def test_only_what_this_run_made_is_listed(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    for name in ("report.html", "tables/scib.csv"):
        (tmp_path / name).write_text("old")
        os.utime(tmp_path / name, (1, 1))
    rows = [
        {"pair": pair, "estimator": estimator, "ratio": 1.25}
        for estimator in ("unbiased", "biased")
        for pair in ("a vs b", "a vs c", "b vs c", "ratio_of_means")
    ]
    write(tmp_path / "tables/mmd_heart_oft.csv", rows)
    assert lines(tmp_path) == {
        "MMD, sigmoid / softmax": "1.250 (heart_oft, 3 pairs of cell types)",
        "Tables": str(tmp_path / "tables/mmd_heart_oft.csv"),
    }


def lines(folder: Path) -> dict[str, str]:
    found = [line.split(":", 1) for line in summary(folder, since=10).splitlines()]
    return {title: text.strip() for title, text in found}
