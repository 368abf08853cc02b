"""Checkpoints: written atomically in the background, verified before they are read.

A checkpoint such as ``step-00000100.pt`` can be read with ``torch.load(weights_only=True)``. Its
checksum is in ``step-00000100.sha256`` in the same folder, in the format of ``sha256sum``.

A damaged checkpoint is renamed to ``<name>.damaged``, and the next older checkpoint is used. If a
checkpoint cannot be read because of the file system, it may be intact, so an error is raised.
"""

import fnmatch
import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import is_zipfile

import torch
from torch import Tensor

from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path, sha256, write_text
from scsigmoid.progress import log, warn

VERSION = 3  # of the file format
#: Pattern of the stem of a checkpoint's file: the step has eight digits.
STEP = "step-" + 8 * "[0-9]"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state of a run after a step."""

    step: int  # number of completed optimizer steps
    steps: int  # number of steps of the whole run
    seconds: float  # training time so far
    identity: dict[str, str]  # see TrainingRun.identity
    journal: str  # rows of the journal so far, as CSV
    model: dict[str, Any]  # state of the encoder
    optimizer: dict[str, Any]  # state of the optimizer


class Checkpoints:
    """The newest ``keep`` checkpoints of a run in a folder, written by one background thread."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self.keep = keep
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}.pt"

    def paths(self) -> list[Path]:
        """Return the checkpoint files, newest first."""
        try:
            names = os.listdir(self.folder)  # Path.glob would hide a permission error
        except FileNotFoundError:
            return []
        # Copies of the user, such as step-best.pt, are not checkpoints.
        names = fnmatch.filter(names, f"{STEP}.pt")
        return [self.folder / name for name in sorted(names, reverse=True)]

    def save(self, checkpoint: Checkpoint) -> None:
        """Wait for the previous write, copy the state to host memory, and start to write it."""
        self.wait()
        copy = replace(
            checkpoint, model=on_host(checkpoint.model), optimizer=on_host(checkpoint.optimizer)
        )
        self._writing = self._pool.submit(self.write, copy)

    @property
    def has_failed(self) -> bool:
        """Whether the newest write has already failed. Does not wait for a write."""
        writing = self._writing
        return writing is not None and writing.done() and writing.exception() is not None

    def wait(self) -> None:
        """Wait for the write in progress. Raise the error of the newest write if it failed."""
        if self._writing is not None:
            self._writing.result()

    def close(self) -> None:
        """Wait for the write in progress, whether or not it succeeds."""
        self._pool.shutdown()

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then remove all but the newest ``keep`` checkpoints.

        If writing fails, for example on a full disk, keep older checkpoints and raise UserError.
        """
        path = self.path(checkpoint.step)
        try:
            with atomic_path(path) as temporary:
                write_values(temporary, {"version": VERSION, **vars(checkpoint)})
                # Written before `path` exists, so that each checkpoint has a checksum.
                write_text(checksum_path(path), f"{sha256(temporary)}  {path.name}\n")
        except OSError as error:
            if not path.exists():
                checksum_path(path).unlink(missing_ok=True)
            existing = self.paths()
            start = existing[0].name if existing else "the beginning"
            raise UserError(
                f"{path}: the checkpoint could not be written ({error.strerror}); make room and "
                f"run again to continue from {start}"
            ) from None
        for old in self.paths()[self.keep :]:
            remove(old)

    def latest(self) -> Checkpoint | None:
        """Return the newest intact checkpoint, if any. Raise UserError if all are damaged."""
        paths = self.paths()
        if not paths:
            return None
        damaged = list(takewhile(is_damaged, paths))
        if damaged == paths:
            raise UserError(
                f"{self.folder}: all checkpoints are damaged "
                f"({', '.join(path.name for path in damaged)}); restore one from a backup, or "
                "delete the folder to train from the beginning"
            )
        checkpoint = read_checkpoint(paths[len(damaged)])  # the newest intact file
        for path in damaged:
            path.rename(path.with_name(f"{path.name}.damaged"))
            warn(f"{path}: damaged, renamed to {path.name}.damaged")
        return checkpoint

    def resume(self, identity: Mapping[str, str], steps: int) -> int:
        """Return the step of the checkpoint to resume from, or 0 to train from the beginning.

        Checkpoints of a *finished* run with other settings are removed, because the new run
        replaces the finished model. If a run with other settings is unfinished, raise UserError.
        """
        checkpoint = self.latest()
        if checkpoint is None:
            return 0
        different = differences(checkpoint.identity, identity)
        if checkpoint.step > steps:
            different.append(f"training.steps (at least {checkpoint.step} there, {steps} now)")
        if not different:
            return checkpoint.step
        is_finished = checkpoint.step >= checkpoint.steps
        if is_finished:
            log(f"{self.folder}: removed the checkpoints of a finished run with other settings")
            for path in self.paths():
                remove(path)
            return 0
        raise UserError(
            f"{self.folder}: checkpoints of an unfinished run with other settings: "
            f"{'; '.join(different)}; restore the settings, or delete the folder to train from the "
            "beginning"
        )


def on_host(value: Any) -> Any:
    """Return a deep copy of nested mappings and lists, with all tensors in host memory."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: on_host(item) for key, item in value.items()}
    if isinstance(value, list):
        return [on_host(item) for item in value]
    return value


def write_values(path: Path, values: Mapping[str, Any]) -> None:
    """Write values with :func:`torch.save`. Raise OSError if the disk is full."""
    try:
        with path.open("wb") as handle:
            torch.save(values, handle)
    except RuntimeError as error:
        # On a full disk, closing torch's archive raises a RuntimeError that hides the OSError.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint with memory-mapped tensors. Raise UserError if torch cannot read it."""
    try:
        with path.open("rb") as handle:
            # torch.load would raise a RuntimeError, as for errors of the file system.
            if not is_zipfile(handle):
                raise ValueError("not a zip archive")
        values = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        if values.pop("version") != VERSION:
            raise ValueError("another version")
        return Checkpoint(**values)
    except (ValueError, LookupError, TypeError, AttributeError, EOFError, UnpicklingError) as error:
        raise of_another_version(path) from error
    except RuntimeError as error:  # also raised by torch for errors of the file system
        reason = str(error).partition("\n")[0][:200]
        raise UserError(f"{path}: cannot be read ({reason}); it is kept, run again") from error


def of_another_version(path: Path) -> UserError:
    """Return the error about a checkpoint that this version cannot resume."""
    return UserError(
        f"{path}: written by another version of scsigmoid; resume with that version, or delete "
        f"{path.parent} to train from the beginning"
    )


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    checksum_path(path).unlink(missing_ok=True)


def checksum_path(path: Path) -> Path:
    return path.with_suffix(".sha256")


def is_damaged(path: Path) -> bool:
    """Return True if the SHA-256 of a checkpoint differs from its checksum file.

    Without this file, log a warning, and return True if the checkpoint is truncated. Errors of the
    file system are raised with the name of the file.
    """
    checksum = checksum_path(path)
    try:
        words = checksum.read_text("utf-8", "replace").split() if checksum.exists() else []
        if words:  # the SHA-256 and the name
            return sha256(path) != words[0]
        warn(f"{path}: {checksum.name} is missing or empty; using the checkpoint without its check")
        with path.open("rb") as handle:
            return not is_zipfile(handle)  # a zip file ends with its directory
    except OSError as error:
        raise OSError(error.errno, error.strerror, error.filename or str(path)) from error


def differences(there: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Describe the settings that differ between a checkpoint (``there``) and a run (``now``)."""

    def short(value: str) -> str:
        return value if len(value) <= 24 else f"{value[:12]}..."

    different = []
    for name in sorted(there.keys() | now.keys()):
        old, new = there.get(name, "absent"), now.get(name, "absent")
        if old != new:
            different.append(f"{name} ({short(old)} there, {short(new)} now)")
    return different
