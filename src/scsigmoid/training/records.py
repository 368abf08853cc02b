"""What the first process keeps and shows of a run: journal, events, checkpoints, progress."""

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from scsigmoid.model.sizes import EncoderSettings, count_flops
from scsigmoid.progress import announce, log
from scsigmoid.training.checkpoints import Checkpoint, Checkpoints, CheckpointWriter
from scsigmoid.training.devices import device_name, peak_flops, peak_memory_gb, synchronise
from scsigmoid.training.journal import JOURNAL, LAYERS, Journal, LayerFile, Row, as_csv
from scsigmoid.training.loading import Share
from scsigmoid.training.run import TrainingRun
from scsigmoid.training.step import StepResult, Trainer

EVENTS = "tensorboard"


class Records:
    """The files of a run while it goes on; to be used in a ``with`` block."""

    def __init__(
        self,
        run: TrainingRun,
        checkpoints: Checkpoints,
        identity: Mapping[str, str],
        header: Mapping[str, str],
        step: int,
        rows: list[Row],
        output: Path,
    ) -> None:
        """Begin after ``step``, with the journal's header and ``rows`` so far."""
        self.run = run
        self.identity = dict(identity)
        self.journal = Journal(output / JOURNAL, header, rows)
        self.events = Events(output / EVENTS, step)
        self.layers = LayerFile(output / LAYERS, step) if run.training.validate_every else None
        self.display = Display(run.model, step, run.training.steps)
        self.writer = CheckpointWriter(checkpoints)
        self._saved = step

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.display.close()
        self.events.close()
        self.writer.close()

    def append(self, row: Row) -> None:
        self.journal.append(row)
        self.events.append(row)
        self.display.show(row.step, row.loss, row.cells_per_second)

    def checkpoint(self, trainer: Trainer, step: int, seconds: float) -> None:
        """Begin to write the state after ``step`` and ``seconds`` of training, if not yet."""
        if step == self._saved:
            return
        self.writer.save(
            Checkpoint(
                step=step,
                steps=self.run.training.steps,
                seconds=seconds,
                identity=self.identity,
                journal=as_csv(self.journal.rows),
                model=trainer.encoder.state_dict(),
                optimiser=trainer.optimiser.state_dict(),
            )
        )
        self._saved = step


class Events:
    """The journal's rows as TensorBoard events; logs a line where ``tensorboard`` is missing."""

    def __init__(self, folder: Path, step: int) -> None:
        """Begin after step ``step``; what earlier runs wrote beyond it is not shown."""
        self._writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            log(
                "the package tensorboard is not installed: no event files; journal.csv has all rows"
            )
            return
        self._writer = SummaryWriter(folder, purge_step=step + 1)

    def append(self, row: Row) -> None:
        if self._writer is not None:
            for name, value in asdict(row).items():
                if name != "step" and value is not None:
                    self._writer.add_scalar(name, value, row.step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class Display:
    """Progress: a bar with loss, rate and time left on a terminal, plain lines elsewhere.

    Beside a log, the lines also appear on the terminal of whoever runs the workflow.
    """

    def __init__(self, label: str, first: int, steps: int, seconds: float = 30.0) -> None:
        """Begin at step ``first`` of ``steps``; lines come at most every ``seconds``."""
        self.label = label
        self.first = first
        self.steps = steps
        self.seconds = seconds
        self.begin = self.last = time.monotonic()
        self.bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(desc=label, total=steps, initial=first, unit="step", leave=False)
        else:
            announce(f"{label}: training, step {first + 1} of {steps}")

    def step(self) -> None:
        if self.bar is not None:
            self.bar.update()

    def show(self, step: int, loss: float, cells_per_second: float) -> None:
        if self.bar is not None:
            self.bar.set_postfix_str(f"loss {loss:.4f}, {cells_per_second:.0f} cells/s")
            return
        now = time.monotonic()
        if now - self.last < self.seconds and step < self.steps:
            return
        self.last = now
        spent = now - self.begin
        left = spent / max(1, step - self.first) * (self.steps - step)
        time_of_it = f"{duration(left)} left" if step < self.steps else f"done in {duration(spent)}"
        announce(
            f"{self.label}: step {step} of {self.steps}, loss {loss:.4f}, "
            f"{cells_per_second:.0f} cells/s, {time_of_it}"
        )

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def duration(seconds: float) -> str:
    """A time for people: ``12 s``, ``3 min``, ``1 h 05 min``, ``2 d 03 h``."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes} min"
    hours = minutes // 60
    if hours < 48:
        return f"{hours} h {minutes % 60:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"


class Meter:
    """Rates and times between two rows of the journal."""

    def __init__(
        self, settings: EncoderSettings, device: torch.device, processes: int, seconds: float
    ) -> None:
        """Begin to measure; ``seconds`` were spent training in earlier runs."""
        self.settings = settings
        self.device = device
        peak = peak_flops(device_name(device))
        self._peak = None if peak is None else peak * processes
        self._before = seconds
        self._begin = self._last = time.perf_counter()
        self._clear()

    def _clear(self) -> None:
        self._cells = self._tokens = self._capacity = self._flops = 0
        self._wait = 0.0

    def seconds(self) -> float:
        """Time spent training so far, earlier runs included."""
        return self._before + time.perf_counter() - self._begin

    def waited(self, seconds: float) -> None:
        self._wait += seconds

    def count(self, share: Share, masked: int) -> None:
        """A step was taken on a global batch with so many masked genes."""
        self._cells += len(share.lengths)
        self._tokens += int(share.lengths.sum())
        self._capacity += share.capacity
        if self._peak is not None:
            self._flops += count_flops(self.settings, share.lengths.tolist(), masked)

    def row(
        self,
        step: int,
        result: StepResult,
        rate: float,
        score: float,
        validation: float | None = None,
    ) -> Row:
        """The row of a logging step; waits for the device and starts the next interval."""
        synchronise(self.device)
        now = time.perf_counter()
        elapsed = max(now - self._last, 1e-9)
        row = Row(
            step=step,
            loss=float(result.loss),
            gradient_norm=float(result.gradient_norm),
            learning_rate=rate,
            attention_score_max=score,
            cells_per_second=self._cells / elapsed,
            tokens_per_second=self._tokens / elapsed,
            mfu=None if self._peak is None else self._flops / elapsed / self._peak,
            packing_efficiency=self._tokens / self._capacity,
            seconds=self._before + now - self._begin,
            data_wait=self._wait / elapsed,
            peak_memory_gb=peak_memory_gb(self.device),
            validation_loss=validation,
        )
        self._last = now
        self._clear()
        return row
