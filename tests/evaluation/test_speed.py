"""The evaluation's benchmark runs, and its plain MMD is the same number."""

import json

import numpy as np
import pytest
from small_training import UNTRAINED

from scsigmoid.config.schema import ValidationLoss
from scsigmoid.evaluation import speed
from scsigmoid.evaluation.simulated import SimulatedTokens, simulated_arms

SETTINGS = {
    "seed": 42,
    "evaluation": {
        "mmd": {
            "datasets": None, "resamples": 20, "confidence": 0.95, "estimator": "unbiased",
            "minimum_cells": 10, "block_cells": 16,
        }
    },
}  # fmt: skip


@pytest.mark.parametrize("part", ["mmd", "mmd-plain"])
def test_mmd(part, tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "PLAIN", (14, 9))
    monkeypatch.setattr(speed, "HEART_OFT", (14, 9, 11))
    monkeypatch.setattr(speed, "ROUNDS", 2)
    speed.run_evaluation_benchmark(part, SETTINGS, "cpu", tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["simulated"] is True
    assert found["machine"]["device"] == "cpu"
    assert all(seconds > 0 for seconds in found["seconds"])
    if part == "mmd-plain":
        assert found["largest_difference"] < 1e-12
    else:
        assert found["pairs"] == 3


def test_validation_and_training_take_the_same_cells(monkeypatch):
    from scsigmoid.model.sizes import EncoderSettings

    monkeypatch.setattr(speed, "ROUNDS", 1)
    tokens = SimulatedTokens(3, 5000, 512)
    assert len(tokens) == 3
    assert tokens.cells(np.array([2, 0]), 40).cu_seqlens.tolist() == [0, 40, 80]
    encoder = EncoderSettings(
        attention="sigmoid", context=4096, layers=1, hidden=8, heads=1, feed_forward=8,
        vocabulary_size=5000, dropout=0.1, layer_norm_epsilon=1e-5, initializer_range=0.02,
    )  # fmt: skip
    loss = ValidationLoss(trials=2, mask_fraction=0.15, confidence=0.95, batch_tokens=600)
    cpu = speed.resolve_device("cpu")
    ((seconds, other),) = speed.validation_and_training(encoder, tokens, loss, UNTRAINED, cpu)
    assert seconds > 0
    assert other > 0


def test_types_lie_further_apart_in_sigmoids_arm():
    arms = simulated_arms([30, 40])
    far = {}
    for model, arm in arms.items():
        means = [arm.values[arm.labels == kind].mean(0) for kind in ("type 00", "type 01")]
        far[model] = np.linalg.norm(means[0] - means[1])
    assert far["sigmoid_4k"] > far["softmax_4k"]
    assert arms["sigmoid_4k"].values.dtype == np.float32
