"""What is said when the GPU's memory does not suffice."""

from typing import Any

import pytest
import torch

from scsigmoid.errors import UserError
from scsigmoid.training.devices import advice, out_of_memory_advice
from scsigmoid.training.run import TrainingRun

GB = 10**9


def test_the_setting_and_the_value_are_named(run: TrainingRun):
    encoder = run.encoder_settings(64)
    assert "training.micro_batch_tokens: 100 tokens" in advice(encoder, 100, 80 * GB)
    assert "lower it to 50" in advice(encoder, 100, None)
    # No lower than the longest cell.
    assert "lower it to 24" in advice(encoder, 40, None)
    assert "a single cell of 24 tokens does not fit" in advice(encoder, 24, None)


def test_a_model_that_cannot_fit_is_named(run: TrainingRun):
    # 16 bytes a parameter: 24 layers of 2,048 and two vocabulary matrices are 22 GB.
    large = run.encoder_settings(44_000)
    large = type(large)(
        **{
            **vars(large),
            "layers": 24,
            "hidden": 2048,
            "heads": 32,
            "feed_forward": 8192,
            "context": 8192,
        }
    )
    message = advice(large, 65536, 24 * GB)
    assert "architecture.size: weights, gradients and optimiser take 22 GB" in message
    assert "the GPU has 24 GB" in message
    assert "micro_batch_tokens" in advice(large, 65536, 80 * GB)


def test_other_errors_pass(run: TrainingRun):
    def within(error: Exception) -> Any:
        with out_of_memory_advice(run.encoder_settings(64), 100, torch.device("cpu")):
            raise error

    with pytest.raises(UserError, match="lower it to 50"):
        within(torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(RuntimeError, match="something else"):
        within(RuntimeError("something else"))
