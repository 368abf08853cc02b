"""Rates and times between two rows of the journal."""

import time

import torch

from scsigmoid.model.parameters import count_flops
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.training.devices import device_name, peak_flops, peak_memory_gb, synchronise
from scsigmoid.training.journal import Row
from scsigmoid.training.loading import Share
from scsigmoid.training.step import StepResult


class Meter:
    """What the steps since the last row did, and how long they took."""

    def __init__(
        self, settings: EncoderSettings, device: torch.device, processes: int, seconds: float
    ) -> None:
        """Begin to measure.

        Args:
            settings: the encoder, whose work is counted.
            device: where this process computes.
            processes: how many compute.
            seconds: time spent training in earlier runs.
        """
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
        """A batch was waited for."""
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
