"""The rates of ``scsigmoid plan`` are those in docs/measurements."""

from pathlib import Path

import pandas as pd
import pytest

from scsigmoid.forecast.effort import rates, step_seconds

MEASUREMENTS = Path(__file__).parents[2] / "docs/measurements"


@pytest.mark.parametrize(
    ("machine", "file"),
    [("H100", "h100/training.csv"), ("H200", "h200/benchmarks/training_fa4.csv")],
)
def test_training(machine: str, file: str) -> None:
    rows = pd.read_csv(MEASUREMENTS / file).query("size == '160M' and cells_per_step == 16")
    (entry,) = (entry for entry in rates()["training"] if entry["machine"] == machine)
    for attention, kernel in (("sigmoid", "hopper"), ("softmax", "fa4")):  # noqa: B007 (in query)
        measured = rows.query("kernel == @kernel").set_index("context")["cells_per_second"]
        assert entry["cells_per_second"][attention] == measured.round().to_dict()


@pytest.mark.parametrize("context", [2048, 4096])
def test_steps_of_several_gpus(context: int) -> None:
    """Steps of one GPU and the loss reproduce the measured steps of all numbers of GPUs."""
    steps = pd.read_csv(MEASUREMENTS / "h100/steps_several_gpus.csv")
    whole = steps[(steps["mode"] == "whole") & (steps["context"] == context)]
    seconds = whole.groupby("processes")["step_ms"].median() / 1000
    models = pd.read_csv(MEASUREMENTS / "h100/training.csv").query("size == '160M'")
    parameters = models.set_index("context")["parameters"][context].iloc[0]
    for gpus, measured in seconds.items():
        expected = step_seconds(seconds[1], gpus, 0.031, parameters)
        assert expected == pytest.approx(measured, rel=0.01)
    assert rates()["several_gpus"]["measured"] == max(seconds.index)


def test_memory() -> None:
    """Compare the formula with all measured sizes. Steps of CUDA graphs need more memory."""
    for name, tolerance in (("micro_batches", 0.03), ("training", 0.12), ("training_sizes", 0.35)):
        rows = pd.read_csv(MEASUREMENTS / f"h100/{name}.csv").query("kernel == 'hopper'")
        widths = {"160M": 12 * 768, "400M": 24 * 1024, "600M": 24 * 1280, "1.4B": 24 * 2048}
        for row in rows.to_dict("records"):
            activations = rates()["memory_bytes"] * row["tokens_per_step"] * widths[row["size"]]
            expected = 16 * row["parameters"] + activations
            assert row["peak_memory_gb"] * 1e9 == pytest.approx(expected, rel=tolerance), row[
                "size"
            ]


def test_tokens() -> None:
    """The lowest rates of large files, less 24 % for HDF5's zlib (docs/benchmarks.md)."""
    rows = pd.read_csv(MEASUREMENTS / "cpu/tokens.csv")
    rows = rows[rows["file"].str.endswith(" x 25")]
    slowest = rows.groupby("step")["million_counts_per_second_low"].min()
    assert rates()["million_counts_per_second"] == (slowest * (1 - 0.24)).round(1).to_dict()
