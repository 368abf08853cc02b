"""Checkpoints that are damaged, of other settings, or too many."""

from pathlib import Path

import pytest
import torch

from scsigmoid.errors import UserError
from scsigmoid.files import sha256
from scsigmoid.training.checkpoints import Checkpoint, Checkpoints, read

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
            optimiser={"state": {}, "param_groups": []},
        )
    )


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    made = Checkpoints(tmp_path / "checkpoints", keep=2)
    for step in (10, 20, 30):
        save(made, step)
    return made


def test_the_newest_are_kept_and_load_without_code(checkpoints: Checkpoints):
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == [
        "step-00000020.pt",
        "step-00000020.sha256",
        "step-00000030.pt",
        "step-00000030.sha256",
    ]
    values = torch.load(checkpoints.folder / "step-00000030.pt", weights_only=True)
    assert values["model"]["weight"].tolist() == [30.0] * 3
    assert checkpoints.resume(IDENTITY, 100) == 30
    latest = read(checkpoints.path(30))
    assert (latest.step, latest.seconds) == (30, 30.0)
    assert latest.model["weight"].tolist() == [30.0] * 3


@pytest.mark.parametrize("fault", ["flipped", "truncated", "no checksum"])
def test_a_damaged_one_is_named_and_the_one_before_used(
    checkpoints: Checkpoints, fault: str, capsys: pytest.CaptureFixture[str]
):
    path = checkpoints.folder / "step-00000030.pt"
    content = bytearray(path.read_bytes())
    if fault == "flipped":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif fault == "truncated":
        path.write_bytes(content[:-7])
    else:
        path.with_suffix(".sha256").unlink()
    assert checkpoints.resume(IDENTITY, 100) == 20
    assert "step-00000030.pt" in capsys.readouterr().err


@pytest.mark.parametrize("old", [True, False])
def test_what_another_program_wrote(checkpoints: Checkpoints, old: bool):
    """With a checksum that fits: torch's format of before 2020, and other content."""
    path = checkpoints.path(40)
    torch.save({"model": {}}, path, _use_new_zipfile_serialization=not old)
    path.with_suffix(".sha256").write_text(f"{sha256(path)}  {path.name}\n")
    with pytest.raises(UserError, match=r"step-00000040\.pt: written by another version"):
        checkpoints.resume(IDENTITY, 100)


def test_nothing_sound_means_a_new_start(checkpoints: Checkpoints):
    for path in checkpoints.paths():
        path.write_bytes(b"")
    assert checkpoints.resume(IDENTITY, 100) == 0
    assert Checkpoints(checkpoints.folder / "none", 1).resume(IDENTITY, 100) == 0


def test_other_settings_are_named_and_nothing_is_lost(checkpoints: Checkpoints):
    other = {"training.learning_rate": "0.002", "vocabulary": "b" * 64}
    with pytest.raises(UserError) as caught:
        checkpoints.resume(other, 100)
    message = str(caught.value)
    assert "training.learning_rate (0.001 there, 0.002 now)" in message
    assert "vocabulary (aaaaaaaaaaaa... there, bbbbbbbbbbbb... now)" in message
    assert "delete the folder" in message
    with pytest.raises(UserError, match=r"training\.steps \(at least 30 there, 25 now\)"):
        checkpoints.resume(IDENTITY, 25)
    assert len(checkpoints.paths()) == 2


def test_a_finished_training_gives_way_to_other_settings(
    checkpoints: Checkpoints, capsys: pytest.CaptureFixture[str]
):
    save(checkpoints, 100)
    assert checkpoints.resume(IDENTITY, 200) == 100
    assert checkpoints.resume({**IDENTITY, "seed": "7"}, 100) == 0
    assert checkpoints.paths() == []
    assert "finished training with other settings" in capsys.readouterr().err
