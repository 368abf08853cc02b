"""Checkpoints written in the background, while training goes on."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from torch import Tensor

from scsigmoid.training.checkpoints import Checkpoint, Checkpoints


class CheckpointWriter:
    """Writes checkpoints in a thread, one at a time."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def close(self) -> None:
        """Wait for what is being written, whether or not that succeeds."""
        self._pool.shutdown()

    def save(self, checkpoint: Checkpoint) -> None:
        """Copy the state to the host's memory and begin to write it, after the one before.

        Raises:
            UserError: if the one before could not be written.
        """
        self.wait()
        copy = replace(
            checkpoint, model=on_host(checkpoint.model), optimiser=on_host(checkpoint.optimiser)
        )
        self._writing = self._pool.submit(self.checkpoints.save, copy)

    @property
    def failed(self) -> bool:
        """Whether the last write is known to have failed; does not wait."""
        return (
            self._writing is not None
            and self._writing.done()
            and self._writing.exception() is not None
        )

    def wait(self) -> None:
        """Wait until all is written.

        Raises:
            UserError: if it could not be.
        """
        if self._writing is not None:
            self._writing.result()


def on_host(value: Any) -> Any:
    """A copy of nested mappings and lists with tensors of their own in the host's memory."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: on_host(item) for key, item in value.items()}
    if isinstance(value, list):
        return [on_host(item) for item in value]
    return value
