"""Rates in the journal, and progress lines."""

import pytest
import torch
from small_training import row

from scsigmoid.model.devices import peak_flops
from scsigmoid.model.sizes import count_flops
from scsigmoid.training import records as module
from scsigmoid.training.records import Meter, Progress
from scsigmoid.training.step import StepResult


def test_rates_count_the_whole_global_batch(run, make_batches, monkeypatch):
    clock = iter([100.0, 104.0, 110.0])
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(module, "device_name", lambda device: "NVIDIA H200")
    batches = make_batches(run, rank=1, processes=2)
    settings = batches.settings
    meter = Meter(settings, torch.device("cpu"), 2, seconds=50.0)
    shares = [batches[step] for step in (1, 2)]
    for share, masked in zip(shares, (20, 21), strict=True):
        meter.count(share, masked, waited=0.5, graphed=True)
    result = StepResult(
        loss=torch.tensor(3.0), gradient_norm=torch.tensor(0.5), learning_rate=1e-3, graphed=True
    )
    row = meter.row(2, result, 7.0, None)
    lengths = [length for share in shares for length in share.lengths.tolist()]
    assert (row.step, row.loss, row.gradient_norm, row.learning_rate) == (2, 3.0, 0.5, 1e-3)
    assert row.attention_score_max == 7.0
    assert row.cells_per_second == 16 / 4
    assert row.tokens_per_second == sum(lengths) / 4
    flops = count_flops(settings, lengths, 41)
    assert row.mfu == pytest.approx(flops / 4 / (2 * 990e12))
    room = sum(share.capacity for share in shares)
    assert row.packing_efficiency == pytest.approx(sum(lengths) / room)
    assert row.data_wait == 0.25
    assert row.seconds == 54.0
    # The next interval starts from zero.
    meter.count(shares[0], 20, 0.0, False)
    assert meter.row(3, result, 7.0, None).cells_per_second == pytest.approx(8 / 6)


def test_the_peak_of_a_gpu():
    names = ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA A10G", "cpu")
    assert [peak_flops(name) for name in names] == [990e12, 756e12, 125e12, None]


@pytest.mark.parametrize("steps", [3, 5])
def test_progress_in_a_log(monkeypatch, capsys, steps):
    """At most one line per 30 seconds, but always one for the last step, also before ``steps``."""
    clock = iter([0.0, 40.0, 50.0, 60.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    progress = Progress("m", completed=0, steps=steps)
    for step in (1, 2, 3):
        progress.show(row(step, 1.0), is_last=step == 3)
    assert capsys.readouterr().err.splitlines() == [
        f"m: training, step 1 of {steps}",
        f"m: step 1 of {steps}, loss 1.0000, 1 cells/s, {'01:20' if steps == 3 else '02:40'} left",
        f"m: step 3 of {steps}, loss 1.0000, 1 cells/s, done in 01:00",
    ]
