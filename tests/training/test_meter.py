"""Rates of the journal against hand-made sums."""

import pytest
import torch

from scsigmoid.model.parameters import count_flops
from scsigmoid.tokens.store import TokenStore
from scsigmoid.training import meter as module
from scsigmoid.training.devices import peak_flops
from scsigmoid.training.loading import GlobalBatches
from scsigmoid.training.meter import Meter
from scsigmoid.training.run import TrainingRun
from scsigmoid.training.step import StepResult


def test_rates_count_the_whole_global_batch(
    run: TrainingRun, corpus, monkeypatch: pytest.MonkeyPatch
):
    clock = iter([100.0, 104.0, 110.0])
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(module, "device_name", lambda device: "NVIDIA H200")
    store = TokenStore.open(corpus.stores)
    settings = run.encoder_settings(store.vocabulary_size)
    batches = GlobalBatches(store, settings, run.training, 42, rank=1, processes=2)
    meter = Meter(settings, torch.device("cpu"), 2, seconds=50.0)
    shares = [batches[step] for step in (1, 2)]
    for share, masked in zip(shares, (20, 21), strict=True):
        meter.count(share, masked)
    meter.waited(1.0)
    result = StepResult(torch.tensor(3.0), torch.tensor(0.5))
    row = meter.row(2, result, 1e-3, 7.0)
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
    # The next interval begins anew.
    meter.count(shares[0], 20)
    assert meter.row(3, result, 1e-3, 7.0).cells_per_second == pytest.approx(8 / 6)


def test_the_peak_of_a_gpu():
    assert peak_flops("NVIDIA H100 80GB HBM3") == peak_flops("NVIDIA H200") == 990e12
    assert peak_flops("NVIDIA H100 PCIe") == 756e12
    assert peak_flops("NVIDIA A100-SXM4-80GB") == 312e12
    assert peak_flops("NVIDIA A10G") == 125e12
    assert peak_flops("cpu") is None
