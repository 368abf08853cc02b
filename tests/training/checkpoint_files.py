"""Three small checkpoints in a folder."""

from pathlib import Path

import pytest
import torch

from scsigmoid.training.checkpoints import Checkpoint, Checkpoints

IDENTITY = {"training.learning_rate": "0.001", "vocabulary": "a" * 64}


def save(checkpoints: Checkpoints, step: int, steps: int = 100) -> None:
    checkpoints.write(
        Checkpoint(
            step=step,
            steps=steps,
            seconds=float(step),
            identity=IDENTITY,
            journal="",
            model={"weight": torch.full((3,), float(step))},
            optimizer={"state": {}, "param_groups": []},
        )
    )


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    made = Checkpoints(tmp_path / "checkpoints", keep=2)
    for step in (10, 20, 30):
        save(made, step)
    return made
