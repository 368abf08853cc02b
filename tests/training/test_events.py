"""TensorBoard events, with and without the package."""

import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from scsigmoid.training.events import Events
from scsigmoid.training.journal import Row


def row(step: int, loss: float) -> Row:
    return Row(
        step=step,
        loss=loss,
        gradient_norm=1.0,
        learning_rate=1e-4,
        attention_score_max=2.0,
        cells_per_second=100.0,
        tokens_per_second=2e5,
        mfu=None,
        packing_efficiency=0.9,
        seconds=1.5,
        data_wait=0.01,
        peak_memory_gb=3.0,
    )


def test_without_the_package_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    events = Events(tmp_path / "events", 0)
    for step in (1, 2):
        events.append(row(step, 3.0))
    events.close()
    assert capsys.readouterr().err.count("tensorboard is not installed") == 1
    assert not (tmp_path / "events").exists()


def test_rows_are_read_back_and_a_resumed_run_replaces_later_ones(tmp_path: Path):
    for first, losses in ((0, {1: 4.0, 2: 3.5, 3: 9.0}), (2, {3: 3.0, 4: float("nan")})):
        events = Events(tmp_path, first)
        for step, loss in losses.items():
            events.append(row(step, loss))
        events.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert "mfu" not in read.Tags()["scalars"]
    assert [(e.step, e.value) for e in read.Scalars("loss")][:3] == [(1, 4.0), (2, 3.5), (3, 3.0)]
    assert read.Scalars("loss")[-1].step == 4
