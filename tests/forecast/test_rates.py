"""The rates of ``scsigmoid plan`` are those in docs/measurements."""

from pathlib import Path

import pandas as pd
import pytest

from scsigmoid.forecast.effort import efficiency_of, rates

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


def test_efficiency() -> None:
    steps = pd.read_csv(MEASUREMENTS / "h100/steps_several_gpus.csv").query("context == 2048")
    whole = steps[steps["mode"] == "whole"]
    seconds = whole.groupby("processes")["step_ms"].median()
    for gpus in (2, 4):
        assert efficiency_of(gpus) == (
            pytest.approx(seconds[1] / seconds[gpus] / gpus, abs=2e-3),
            True,
        )
    assert efficiency_of(3) == (efficiency_of(2)[0], False)
    assert efficiency_of(64) == (efficiency_of(4)[0], False)


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
    rows = pd.read_csv(MEASUREMENTS / "cpu/tokens.csv").query("file == 'simulated, CSR'")
    slowest = rows.set_index("step")["million_counts_per_second_low"]
    assert rates()["million_counts_per_second"] == slowest.to_dict()
