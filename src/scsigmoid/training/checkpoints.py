"""Checkpoints: written atomically, checked when read, the newest few kept.

``step-00000100.pt`` loads with ``torch.load(weights_only=True)``; ``step-00000100.sha256`` beside
it, in the format of ``sha256sum``, tells a damaged one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path, sha256, write_text
from scsigmoid.progress import log

VERSION = 1


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
    """The checkpoints of one run."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self.keep = keep

    def paths(self) -> list[Path]:
        """The checkpoints, newest first."""
        return sorted(self.folder.glob("step-*.pt"), reverse=True)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint and remove the oldest beyond ``keep``."""
        path = self.folder / f"step-{checkpoint.step:08d}.pt"
        with atomic_path(path) as temporary:
            torch.save({"version": VERSION, **vars(checkpoint)}, temporary)
            # Before the checkpoint takes its name, so that one that has it is never without.
            write_text(path.with_suffix(".sha256"), f"{sha256(temporary)}  {path.name}\n")
        for old in self.paths()[self.keep :]:
            remove(old)

    def latest(self) -> Checkpoint | None:
        """The newest sound checkpoint; damaged ones are named and removed."""
        for path in self.paths():
            fault = damage(path)
            if fault is None:
                values = torch.load(path, map_location="cpu", weights_only=True)
                if values.pop("version") != VERSION:
                    raise UserError(f"{path}: written by another version; delete {self.folder}")
                return Checkpoint(**values)
            log(f"{path}: {fault}; going back to the checkpoint before it")
            remove(path)
        return None

    def clear(self) -> None:
        """Remove all checkpoints."""
        for path in self.paths():
            remove(path)

    def resume(self, identity: Mapping[str, str], steps: int) -> Checkpoint | None:
        """The checkpoint that a run goes on from; None if it starts anew.

        Checkpoints of a *finished* run of other settings are removed: its model is complete and is
        being made again.  Those of an unfinished one are not touched.

        Args:
            identity: of the run that is to go on.
            steps: its number of steps.

        Raises:
            UserError: if an unfinished run of other settings left the checkpoint; names them.
        """
        checkpoint = self.latest()
        if checkpoint is None:
            return None
        different = differences(checkpoint.identity, identity)
        if checkpoint.step > steps:
            different.append(f"training.steps (at least {checkpoint.step} there, {steps} now)")
        if not different:
            return checkpoint
        if checkpoint.step >= checkpoint.steps:
            log(f"{self.folder}: of a finished training with other settings; removed")
            self.clear()
            return None
        raise UserError(
            f"{self.folder}: checkpoints of an unfinished training with other settings: "
            f"{'; '.join(different)}; delete the folder to train anew, or restore the settings"
        )


def remove(path: Path) -> None:
    """Remove a checkpoint and its checksum."""
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
    """The settings that differ, in words."""
    return [
        f"{name} ({short(there.get(name))} there, {short(now.get(name))} now)"
        for name in sorted(there.keys() | now.keys())
        if there.get(name) != now.get(name)
    ]


def short(value: str | None) -> str:
    """A value for a message; fingerprints lose their tail."""
    if value is None:
        return "absent"
    return value if len(value) <= 24 else f"{value[:12]}..."
