"""Checkpoints: written atomically in the background, checked when read, the newest few kept.

``step-00000100.pt`` loads with ``torch.load(weights_only=True)``; ``step-00000100.sha256`` beside
it, in the format of ``sha256sum``, tells a damaged one.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path, sha256, write_text
from scsigmoid.progress import log

VERSION = 3


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state of a run after a step.

    Attributes:
        step: steps taken.
        steps: steps that the run was to take in all.
        seconds: time spent training so far.
        identity: :meth:`scsigmoid.training.run.TrainingRun.identity`.
        journal: the journal's rows so far, as CSV.
        model: the encoder's state.
        optimiser: the optimiser's state.
    """

    step: int
    steps: int
    seconds: float
    identity: dict[str, str]
    journal: str
    model: dict[str, Any]
    optimiser: dict[str, Any]


class Checkpoints:
    """The checkpoints of a run: a folder, of which the newest ``keep`` stay.

    A thread writes them, one at a time.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self.keep = keep
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}.pt"

    def paths(self) -> list[Path]:
        """The checkpoints, newest first."""
        return sorted(self.folder.glob("step-*.pt"), reverse=True)

    def save(self, checkpoint: Checkpoint) -> None:
        """Copy the state to the host's memory and begin to write it, after the one before.

        Raises:
            UserError: if the one before could not be written.
        """
        self.wait()
        copy = replace(
            checkpoint, model=on_host(checkpoint.model), optimiser=on_host(checkpoint.optimiser)
        )
        self._writing = self._pool.submit(self.write, copy)

    @property
    def failed(self) -> bool:
        """Whether the last write is known to have failed; does not wait."""
        writing = self._writing
        return writing is not None and writing.done() and writing.exception() is not None

    def wait(self) -> None:
        """Wait until all is written.

        Raises:
            UserError: if it could not be.
        """
        if self._writing is not None:
            self._writing.result()

    def close(self) -> None:
        """Wait for what is being written, whether or not that succeeds."""
        self._pool.shutdown()

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then remove the oldest beyond ``keep``.

        Raises:
            UserError: if it cannot be written, for want of room for example; nothing older is lost.
        """
        path = self.path(checkpoint.step)
        try:
            with atomic_path(path) as temporary:
                write_values(temporary, {"version": VERSION, **vars(checkpoint)})
                # Before the checkpoint takes its name, so that one that has it is never without.
                write_text(path.with_suffix(".sha256"), f"{sha256(temporary)}  {path.name}\n")
        except OSError as error:
            if not path.exists():
                path.with_suffix(".sha256").unlink(missing_ok=True)
            older = self.paths()
            left = f"goes on from {older[0].name}" if older else "starts anew"
            raise UserError(
                f"{path}: the checkpoint could not be written ({error.strerror}); make room and "
                f"run again: it {left}"
            ) from None
        for old in self.paths()[self.keep :]:
            remove(old)

    def latest(self) -> Checkpoint | None:
        """The newest sound checkpoint; damaged ones are named and removed."""
        for path in self.paths():
            fault = damage(path)
            if fault is None:
                return read(path)
            log(f"{path}: {fault}; going back to the checkpoint before it, if any")
            remove(path)
        return None

    def resume(self, identity: Mapping[str, str], steps: int) -> int:
        """The step after which a run goes on: that of a checkpoint, or 0 if it starts anew.

        Checkpoints of a *finished* run of other settings are removed: its model is complete and is
        being made again.  Those of an unfinished one are not touched.

        Raises:
            UserError: if an unfinished run of other settings left the checkpoint; names them.
        """
        checkpoint = self.latest()
        if checkpoint is None:
            return 0
        different = differences(checkpoint.identity, identity)
        if checkpoint.step > steps:
            different.append(f"training.steps (at least {checkpoint.step} there, {steps} now)")
        if not different:
            return checkpoint.step
        if checkpoint.step >= checkpoint.steps:
            log(f"{self.folder}: of a finished training with other settings; removed")
            for path in self.paths():
                remove(path)
            return 0
        raise UserError(
            f"{self.folder}: checkpoints of an unfinished training with other settings: "
            f"{'; '.join(different)}; delete the folder to train anew, or restore the settings"
        )


def on_host(value: Any) -> Any:
    """A copy of nested mappings and lists with tensors of their own in the host's memory."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: on_host(item) for key, item in value.items()}
    if isinstance(value, list):
        return [on_host(item) for item in value]
    return value


def write_values(path: Path, values: Mapping[str, Any]) -> None:
    """Write with :func:`torch.save`.

    Raises:
        OSError: if the system does not take the bytes.
    """
    try:
        with path.open("wb") as handle:
            torch.save(values, handle)
    except RuntimeError as error:
        # Closing its archive, torch complains of the missing bytes and hides the reason.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def read(path: Path) -> Checkpoint:
    """Read a checkpoint; its tensors stay in the file until they are copied."""
    try:
        values = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        if values.pop("version") != VERSION:
            raise ValueError("of another version")
        return Checkpoint(**values)
    except Exception as error:  # of many kinds, for what something else wrote
        raise UserError(
            f"{path}: written by another version of scsigmoid; delete {path.parent} to train anew"
        ) from error


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(".sha256").unlink(missing_ok=True)


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint file; None if it is as it was written."""
    try:
        expected = path.with_suffix(".sha256").read_text(encoding="utf-8").split()[0]
    except (OSError, IndexError, UnicodeDecodeError):
        return "its checksum is missing"
    return None if sha256(path) == expected else "damaged (its checksum differs)"


def differences(there: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The settings that differ, each with both values; fingerprints lose their tail."""

    def short(value: str) -> str:
        return value if len(value) <= 24 else f"{value[:12]}..."

    return [
        f"{name} ({short(old)} there, {short(new)} now)"
        for name in sorted(there.keys() | now.keys())
        if (old := there.get(name, "absent")) != (new := now.get(name, "absent"))
    ]
