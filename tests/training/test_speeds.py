"""Speeds of GPUs: measured, exchanged, and used for later steps. Events are simulated."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small_training import changed, train_command

from scsigmoid.training import speeds as module
from scsigmoid.training.journal import read_journal
from scsigmoid.training.loop import train
from scsigmoid.training.processes import Processes
from scsigmoid.training.speeds import Speeds


class Event:
    """An event of a GPU that needs ``milliseconds`` for a step."""

    def __init__(self, milliseconds: float) -> None:
        self.milliseconds = milliseconds

    def elapsed_time(self, end: "Event") -> float:
        return self.milliseconds

    def synchronize(self) -> None:
        pass


def test_the_median_of_the_measured_steps_is_exchanged(run, make_batches, monkeypatch):
    """The second process is three times as fast. A step that compiles does not count."""
    monkeypatch.setattr(module, "MEASURED_STEPS", 5)
    batches = make_batches(run, processes=2, workers=1)
    exchanged = []

    def total(values):
        exchanged.append(values)
        return [values[0], 3 * values[0]]

    processes = SimpleNamespace(
        rank=0, count=2, is_first=True, device=torch.device("cuda", 0), total=total
    )
    speeds = Speeds(batches, processes)
    assert speeds.is_measured
    for step, milliseconds in enumerate([9000.0, 2.0, 2.0, 4.0, 1.0], start=1):
        assert not exchanged
        speeds.add(step, 1e9, Event(milliseconds), Event(0))
    assert exchanged == [[500_000_000, 0]]
    # With one worker, the steps 6 to 8 may be prepared already.
    assert batches._speeds == [(0, [1.0, 1.0]), (9, [500_000_000, 1_500_000_000])]


@pytest.mark.parametrize(
    ("device", "count", "deterministic"), [("cpu", 2, False), ("cuda", 1, False), ("cuda", 2, True)]
)
def test_nothing_is_measured(run, make_batches, device, count, deterministic):
    processes = Processes(count=count, device=torch.device(device))
    batches = make_batches(run, processes=count, deterministic=deterministic)
    assert not Speeds(batches, processes).is_measured


# Two processes on the CPU. The second pretends to be a GPU that is three times as fast.
WORKER = """
import os, sys
import training.test_speeds
from scsigmoid.cli import main
from scsigmoid.training import speeds
from scsigmoid.training.step import Trainer

milliseconds = (3.0, 1.0)[int(os.environ["RANK"])]
Trainer._record_event = lambda self: training.test_speeds.Event(milliseconds)
initialize = speeds.Speeds.__init__

def measure(self, *arguments):
    initialize(self, *arguments)
    self.is_measured = True

speeds.Speeds.__init__ = measure
speeds.MEASURED_STEPS = 4
sys.exit(main(sys.argv[1:]))
"""


def test_an_uneven_division_changes_the_losses_by_rounding_only(run, corpus, tmp_path):
    run = changed(run, log_every=1)
    (tmp_path / "worker.py").write_text(WORKER)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [tmp_path / "worker.py", *train_command(run, corpus, tmp_path / "two")]
    result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert result.stderr.count("work is divided by the speeds of the GPUs") == 1
    train(run, *corpus, tmp_path / "one")
    two, one = (read_journal(tmp_path / name / "journal.csv")[0] for name in ("two", "one"))
    np.testing.assert_array_equal(two["step"], one["step"])
    np.testing.assert_allclose(two["loss"], one["loss"], rtol=1e-4)
