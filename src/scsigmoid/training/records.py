"""Output of rank 0 during a run: journal, checkpoints and progress."""

import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import torch
from tqdm import tqdm

from scsigmoid.model.devices import device_name, peak_flops, peak_memory_gb, synchronize
from scsigmoid.model.sizes import EncoderSettings, count_flops
from scsigmoid.progress import announce
from scsigmoid.training.checkpoints import Checkpoint, Checkpoints
from scsigmoid.training.journal import JOURNAL, LAYERS, Journal, Row, begin_layers
from scsigmoid.training.run import TrainingRun
from scsigmoid.training.shares import Share
from scsigmoid.training.step import StepResult, Trainer

LINE_SECONDS = 30  # minimum time between two lines of progress in a log


class Records(ExitStack):
    """Writer of the output files and the progress of a run. A context manager."""

    def __init__(
        self,
        run: TrainingRun,
        checkpoints: Checkpoints,
        identity: Mapping[str, str],
        header: Mapping[str, str],
        meter: "Meter",
        step: int,
        rows: str,
        output: Path,
    ) -> None:
        """Continue after ``step``. ``header`` and ``rows`` (CSV) are of the journal so far."""
        super().__init__()
        self.run = run
        self.checkpoints = checkpoints
        self.callback(checkpoints.close)
        self.identity = dict(identity)
        self.meter = meter
        self.journal = Journal(output / JOURNAL, header, rows)
        self.layers = output / LAYERS
        if run.training.validate_every:
            begin_layers(self.layers, step)
        self.progress = Progress(run.model, step, run.training.steps)
        self.callback(self.progress.bar.close)
        self._saved_step = step

    def append(self, row: Row, is_last: bool) -> None:
        """Write a row to the journal, and show it in the progress."""
        self.journal.append(row)
        self.progress.show(row, is_last)

    def checkpoint(self, trainer: Trainer, step: int, is_last: bool = False) -> None:
        """Start writing the state after ``step``, unless it is already saved."""
        if step == self._saved_step:
            return
        self.checkpoints.save(
            Checkpoint(
                step=step,
                # A run that ends early with `training.patience` is also finished.
                steps=step if is_last else self.run.training.steps,
                seconds=self.meter.seconds(),
                identity=self.identity,
                journal=self.journal.rows,
                model=trainer.encoder.state_dict(),
                optimizer=trainer.optimizer.state_dict(),
            )
        )
        self._saved_step = step


class Progress:
    """Progress of a run (loss, rate and remaining time): a bar on a terminal, otherwise lines.

    If standard error is a log file, the lines are also printed on the terminal of the workflow.
    """

    def __init__(self, label: str, completed: int, steps: int) -> None:
        """Start after the first ``completed`` of ``steps`` steps."""
        self.label, self.completed, self.steps = label, completed, steps
        self._begin = self._last_line = time.monotonic()
        is_log = self._is_log = not sys.stderr.isatty()
        if is_log and completed < steps:
            announce(f"{label}: training, step {completed + 1} of {steps}")
        self.bar = tqdm(
            desc=label, total=steps, initial=completed, unit="step", leave=False, disable=is_log
        )

    def show(self, row: Row, is_last: bool) -> None:
        """Show a row of the journal. The last row, at the run's last step, is always shown."""
        text = f"loss {row.loss:.4f}, {row.cells_per_second:.0f} cells/s"
        self.bar.set_postfix_str(text)
        now = time.monotonic()
        if not self._is_log or (now - self._last_line < LINE_SECONDS and not is_last):
            return
        self._last_line = now
        seconds = now - self._begin
        if is_last:
            time_text = f"done in {tqdm.format_interval(seconds)}"
        else:
            seconds_left = seconds / (row.step - self.completed) * (self.steps - row.step)
            time_text = f"{tqdm.format_interval(seconds_left)} left"
        announce(f"{self.label}: step {row.step} of {self.steps}, {text}, {time_text}")


class Meter:
    """Meter of rates and times between two rows of the journal."""

    def __init__(
        self, settings: EncoderSettings, device: torch.device, processes: int, seconds: float
    ) -> None:
        """Start measuring. ``seconds`` is the training time before the run was resumed."""
        self.settings = settings
        self.device = device
        peak = peak_flops(device_name(device))
        self._peak = None if peak is None else peak * processes
        self._earlier_seconds = seconds
        self._begin = self._last_row = time.perf_counter()
        self._clear()

    def _clear(self) -> None:
        self._steps = self._graphed = self._cells = self._tokens = self._capacity = self._flops = 0
        self._wait = 0.0

    def seconds(self) -> float:
        """Return the training time so far, including the time before the run was resumed."""
        return self._earlier_seconds + time.perf_counter() - self._begin

    def count(self, share: Share, masked: int, waited: float, graphed: bool) -> None:
        """Add a step to the interval between two rows.

        ``masked`` counts the masked genes of the global batch. ``waited`` is the number of seconds
        for which this process waited for ``share``.
        """
        self._wait += waited
        self._steps += 1
        self._graphed += graphed
        self._cells += len(share.lengths)
        self._tokens += int(share.lengths.sum())
        self._capacity += share.capacity
        if self._peak is not None:
            self._flops += count_flops(self.settings, share.lengths.tolist(), masked)

    def row(
        self, step: int, result: StepResult, score: float, validation_loss: float | None
    ) -> Row:
        """Wait for the device, return the row of a logging step, and start the next interval."""
        synchronize(self.device)
        now = time.perf_counter()
        elapsed = max(now - self._last_row, 1e-9)
        row = Row(
            step=step,
            loss=float(result.loss),
            gradient_norm=float(result.gradient_norm),
            learning_rate=result.learning_rate,
            attention_score_max=score,
            cells_per_second=self._cells / elapsed,
            tokens_per_second=self._tokens / elapsed,
            mfu=None if self._peak is None else self._flops / elapsed / self._peak,
            packing_efficiency=self._tokens / self._capacity,
            seconds=self._earlier_seconds + now - self._begin,
            data_wait=self._wait / elapsed,
            peak_memory_gb=peak_memory_gb(self.device),
            validation_loss=validation_loss,
            cuda_graphs=self._graphed / self._steps,
        )
        self._last_row = now
        self._clear()
        return row
