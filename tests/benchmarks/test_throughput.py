"""The throughput benchmark on the CPU, and its projection by hand."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.small_benchmarks import THROUGHPUT
from small_training import ARCHITECTURE, TRAINING

from scsigmoid.benchmarks import throughput
from scsigmoid.benchmarks.simulated import simulated_batches
from scsigmoid.benchmarks.throughput import run_throughput_benchmark
from scsigmoid.benchmarks.timing import Stopwatch
from scsigmoid.config.schema import Size
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.training.step import Trainer

SIZES = {
    "small": Size(layers=1, hidden=8, heads=1, feed_forward=16),
    "large": Size(layers=1, hidden=16, heads=2, feed_forward=32),
    "unused": Size(layers=1, hidden=16, heads=2, feed_forward=32),
}


def benchmark(folder: Path) -> list[dict[str, str]]:
    run_throughput_benchmark(
        THROUGHPUT, SIZES, ARCHITECTURE, TRAINING, 42, "cpu", folder / "t.csv", folder / "t.json"
    )
    with (folder / "t.csv").open(newline="") as handle:
        return list(csv.DictReader(handle))


def test_every_configuration_has_a_row(tmp_path: Path):
    rows = benchmark(tmp_path)
    keys = [(row["size"], row["context"], row["attention"]) for row in rows]
    assert keys == [
        (size, context, attention)
        for size in ("small", "large")
        for context in ("16", "32")
        for attention in ("sigmoid", "softmax")
    ]
    encoder = EncoderSettings.of(SIZES["large"], ARCHITECTURE, "sigmoid", 32, 50)
    parameters = sum(parameter.numel() for parameter in Encoder(encoder).parameters())
    assert rows[-1]["parameters"] == str(parameters)
    for row in rows:
        assert row["readings"] == "2"
        assert row["note"] == throughput.CPU_NOTE
        assert row["layout"] == "packed"
        assert float(row["steps_per_second"]) > 0


def test_projection_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(throughput, "steps_per_second", lambda *_: ([20.0, 22.0, 24.0], 0.0))
    row = benchmark(tmp_path)[0]
    # mean 22, standard deviation 2, t(0.975, 2) = 4.302652729911275
    half = 4.302652729911275 * 2 / math.sqrt(3)
    assert float(row["steps_per_second"]) == 22.0
    assert row["rates"] == "20.0 22.0 24.0"
    assert float(row["steps_per_second_low"]) == pytest.approx(22 - half)
    assert float(row["cells_per_second"]) == 44.0
    assert float(row["gpu_hours"]) == pytest.approx(131.6e6 / 44 / 3600)
    assert float(row["gpu_hours_low"]) == pytest.approx(131.6e6 / (2 * (22 + half)) / 3600)
    assert float(row["gpu_hours_high"]) == pytest.approx(131.6e6 / (2 * (22 - half)) / 3600)


def test_nothing_is_met_for_the_first_time_in_a_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Batches of all sizes for a graph, and those too large for one with either form of sigmoid."""
    monkeypatch.setattr("scsigmoid.training.step.LONGEST_APPROXIMATE", 150)
    warm: set[object] = set()
    timed: set[object] = set()
    met = warm

    class Graphed(Trainer):
        def step(self, step, batches, masked=None):  # type: ignore[no-untyped-def]
            self.graphed_tokens = 200
            met.add(self._bucket(batches) or batches[0].max_seqlen > 150)
            return super().step(step, batches, masked)

    class Watch(Stopwatch):
        def mark(self) -> None:
            nonlocal met
            met = timed

    monkeypatch.setattr(throughput, "Trainer", Graphed)
    monkeypatch.setattr(throughput, "Stopwatch", Watch)
    settings = replace(THROUGHPUT, sizes=["small"], contexts=[200], steps=30, median_length=80)
    encoder = EncoderSettings.of(SIZES["small"], ARCHITECTURE, "softmax", 200, 50)
    batches = throughput.prepared(settings, 200, TRAINING, 42, torch.device("cpu"))
    throughput.steps_per_second(encoder, batches, settings, TRAINING, 42, torch.device("cpu"))
    assert {False, True} < timed <= warm


def test_what_does_not_fit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    measure = throughput.steps_per_second

    def limited(encoder: EncoderSettings, *rest: object) -> tuple[list[float], list[float]]:
        if encoder.hidden == 16:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return measure(encoder, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(throughput, "steps_per_second", limited)
    rows = benchmark(tmp_path)
    assert {row["note"] for row in rows if row["size"] == "large"} == {"does not fit in memory"}
    assert {row["gpu_hours"] for row in rows if row["size"] == "large"} == {"nan"}
    assert all(float(row["gpu_hours"]) > 0 for row in rows if row["size"] == "small")


def test_a_gpu_that_waits_for_its_host_is_noted():
    # Steps of 50 ms, of which the GPU has 5 ms before it when the next is launched, or 35.
    assert throughput.host_note([19.0, 20.0, 21.0], [0.004, 0.005, 0.050]) == throughput.HOST_NOTE
    assert throughput.host_note([19.0, 20.0, 21.0], [0.034, 0.035, 0.001]) == ""


def test_other_errors_are_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """They end the run, which resumes where it ended."""
    measured = []

    def broken(encoder: EncoderSettings, *_: object) -> tuple[list[float], list[float]]:
        measured.append((encoder.hidden, encoder.context, encoder.attention))
        if len(measured) == 4:
            raise RuntimeError("shape mismatch")
        return [20.0, 22.0], []

    monkeypatch.setattr(throughput, "steps_per_second", broken)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        benchmark(tmp_path)
    assert len(benchmark(tmp_path)) == 8
    assert measured[3] == measured[4] == (8, 32, "softmax")
    assert len(measured) == 9


def test_lengths_are_log_normal_and_cut():
    settings = replace(THROUGHPUT, cells_per_gpu=1000, median_length=1830, vocabulary=44000)
    batch = next(simulated_batches(settings, 4096, TRAINING, 42))
    lengths = np.diff(batch.cu_seqlens.numpy())
    assert lengths.max() == 4096
    assert np.median(lengths - 1) == pytest.approx(1830, rel=0.06)
    # The paper's distribution: 43 % of cells are longer than 2,048.
    assert (lengths > 2048).mean() == pytest.approx(0.43, abs=0.04)
    assert len(batch.masked) == pytest.approx(0.15 * (lengths - 1).sum(), rel=0.01)


def test_both_arms_meet_the_same_cells():
    one, other = (simulated_batches(THROUGHPUT, 32, TRAINING, 42) for _ in range(2))
    for _ in range(3):
        assert torch.equal(next(one).tokens, next(other).tokens)
    assert not torch.equal(next(one).tokens, next(one).tokens)


def test_a_rate_of_zero_has_no_hours():
    assert throughput.hours(10.0, 0.0) == math.inf
    assert math.isnan(throughput.hours(10.0, math.nan))
