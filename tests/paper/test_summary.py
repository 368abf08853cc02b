"""The lines at the end of a run, from tables written by hand."""

import csv
from pathlib import Path

from scsigmoid.paper.claims import COLUMNS, VERDICTS
from scsigmoid.paper.summary import summary


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
    speeds = [
        {"context": context, "attention": attention, "kernel": "k", "layout": layout}
        | {"device": "H200", "cells_per_second": rate}
        for context, attention, layout, rate in [
            (64, "sigmoid", "packed", 1.0),
            (128, "sigmoid", "packed", 2000.4),
            (128, "softmax", "padded", 7.0),
            (128, "softmax", "packed", ""),  # could not run
            (256, "sigmoid", "packed", ""),
        ]
    ]
    write(tmp_path / "tables/training_speed.csv", speeds)
    write(tmp_path / "claims.csv", [dict.fromkeys(COLUMNS, VERDICTS[0])] * 2)
    found = [line.split(":", 1) for line in summary(tmp_path).splitlines()]
    said = {name: text.strip() for name, text in found}
    assert said["Validation loss, nats"] == (
        "one 2.500, two 4.000 (mean of 2 datasets, 1 simulated)"
    )
    assert said["Training speed, cells/s"] == "sigmoid (k) 2,000 (context 128, H200)"
    assert said["Claims of the paper"] == f"2 {VERDICTS[0]}"
    assert said["Report"] == str(tmp_path / "report.html")
    assert "Bio conservation (scIB)" not in said
