"""Training on a GPU: the same losses as on the CPU, and one compiled graph for all lengths."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scsigmoid.config.schema import Size
from scsigmoid.training.journal import read_journal
from scsigmoid.training.loop import train
from scsigmoid.training.run import TrainingRun

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_losses_are_the_cpus(run: TrainingRun, corpus: Any, tmp_path: Path, attention: str):
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    run = replace(
        run,
        attention=attention,
        size=Size(layers=2, hidden=64, heads=2, feed_forward=128),
        architecture=replace(run.architecture, dropout=0.0),
        training=replace(run.training, log_every=1, learning_rate=1e-3),
    )
    losses = []
    for device in ("cpu", "cuda"):
        train(replace(run, device=device), corpus.stores, corpus.vocabulary, tmp_path / device)
        losses.append(read_journal(tmp_path / device / "journal.csv")[0]["loss"])
    # bfloat16 rounds at 2^-9; after 20 steps the runs have drifted a little apart.
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.01)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_a_longer_run_goes_on_from_the_checkpoint(run: TrainingRun, corpus: Any, tmp_path: Path):
    run = replace(run, device="cuda", size=Size(layers=1, hidden=32, heads=1, feed_forward=64))
    train(run, corpus.stores, corpus.vocabulary, tmp_path)
    longer = replace(run, training=replace(run.training, steps=24))
    train(longer, corpus.stores, corpus.vocabulary, tmp_path)
    columns, header = read_journal(tmp_path / "journal.csv")
    assert columns["step"].tolist()[-3:] == [20, 21, 24]
    assert header["backend"] == "triton"
    assert np.isfinite(columns["loss"]).all()
