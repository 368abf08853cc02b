"""Errors when GPU memory runs out, and the choice of a GPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import forked
from small_training import PAPER

from scsigmoid.errors import UserError
from scsigmoid.training import devices
from scsigmoid.training.devices import advice, claim_gpus, out_of_memory_advice
from scsigmoid.training.run import TrainingRun

GB = 10**9


def test_out_of_memory_names_setting_and_value(run: TrainingRun):
    encoder = run.encoder_settings(64)
    assert "training.micro_batch_tokens: 100 tokens" in advice(encoder, 100, 80 * GB)
    assert "lower it to 50" in advice(encoder, 100, None)
    # No lower than the longest cell.
    assert "lower it to 24" in advice(encoder, 40, None)
    assert "a single cell of 24 tokens does not fit" in advice(encoder, 24, None)


def test_a_model_larger_than_the_memory():
    # 16 bytes a parameter: 24 layers of 2,048 and two vocabulary matrices are 22 GB.
    large = replace(PAPER, layers=24, hidden=2048, heads=32, feed_forward=8192, context=8192)
    message = advice(large, 65536, 24 * GB)
    assert "architecture.size: weights, gradients and optimizer need 22 GB" in message
    assert "the GPU has 24 GB" in message
    assert "micro_batch_tokens" in advice(large, 65536, 80 * GB)


def test_other_errors_are_not_changed(run: TrainingRun):
    def within(error: Exception) -> Any:
        with out_of_memory_advice(run.encoder_settings(64), 100, torch.device("cpu")):
            raise error

    with pytest.raises(UserError, match="lower it to 50"):
        within(torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(RuntimeError, match="something else"):
        within(RuntimeError("something else"))


def test_jobs_are_spread_over_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(devices, "_claims", [])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,2,GPU-5")

    def ended() -> int:
        """Run a job that reserves a GPU and ends."""
        return claim_gpus(1)[0]

    # Each claim is an open file of its own, as that of another process would be.
    assert claim_gpus(1) == [0]
    assert [forked(ended), forked(ended)] == [1, 1]
    assert claim_gpus(1) == [1]
    assert claim_gpus(2) == [0, 2]
    assert claim_gpus(3) == [0, 1, 2]
    # A job whose GPUs carry other names claims others.
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert claim_gpus(1) == [0]
