"""Checkpoints that are damaged, cannot be read, have other settings, or are too many."""

import os
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from scsigmoid.errors import UserError
from scsigmoid.files import sha256
from scsigmoid.training.checkpoints import Checkpoint, Checkpoints, read_checkpoint

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


def test_the_newest_are_kept_and_load_as_weights_only(checkpoints):
    names = ["step-00000020.pt", "step-00000020.sha256", "step-00000030.pt", "step-00000030.sha256"]
    assert sorted(os.listdir(checkpoints.folder)) == names
    assert torch.load(checkpoints.path(30), weights_only=True)["step"] == 30
    assert checkpoints.resume(IDENTITY, 100) == 30
    latest = read_checkpoint(checkpoints.path(30))
    assert (latest.step, latest.seconds) == (30, 30.0)
    assert latest.model["weight"].tolist() == [30.0] * 3


@pytest.mark.parametrize("fault", ["flipped", "truncated", "truncated, no checksum"])
def test_a_damaged_checkpoint_is_reported_skipped_and_kept(checkpoints, fault, capsys):
    path = checkpoints.path(30)
    content = bytearray(path.read_bytes())
    if fault == "flipped":
        content[len(content) // 2] ^= 1
    else:
        del content[-7:]
    path.write_bytes(content)
    if "no checksum" in fault:
        path.with_suffix(".sha256").unlink()
    assert checkpoints.resume(IDENTITY, 100) == 20
    assert f"{path}: damaged" in capsys.readouterr().err
    # The damaged file is not overwritten, and does not count as one of the kept checkpoints.
    for step in (25, 30):
        save(checkpoints, step)
    assert [path.name for path in checkpoints.paths()] == ["step-00000030.pt", "step-00000025.pt"]
    assert (checkpoints.folder / "step-00000030.pt.damaged").read_bytes() == content
    assert checkpoints.resume(IDENTITY, 100) == 30


@pytest.mark.parametrize("checksum", [None, ""])
def test_a_missing_checksum_is_a_warning(checkpoints, checksum, capsys):
    """For example after copying ``*.pt`` files only."""
    path = checkpoints.path(30).with_suffix(".sha256")
    path.unlink()
    if checksum is not None:
        path.write_text(checksum)
    assert checkpoints.resume(IDENTITY, 100) == 30
    assert "step-00000030.sha256 is missing" in capsys.readouterr().err
    assert [path.name for path in checkpoints.paths()] == ["step-00000030.pt", "step-00000020.pt"]


@pytest.mark.parametrize("suffix", [".sha256", ".pt"])
def test_a_folder_in_place_of_a_file_deletes_nothing(checkpoints, suffix):
    """Other errors of the file system are handled in the same way."""
    path = checkpoints.path(30).with_suffix(suffix)
    path.unlink()
    path.mkdir()
    with pytest.raises(IsADirectoryError) as error:
        checkpoints.resume(IDENTITY, 100)
    assert error.value.filename == str(path)
    assert len(list(checkpoints.folder.iterdir())) == 4


def test_a_folder_that_may_not_be_listed_is_not_empty(checkpoints, monkeypatch):
    for function in ("listdir", "scandir"):
        monkeypatch.setattr(os, function, Mock(side_effect=PermissionError))
    with pytest.raises(PermissionError):
        checkpoints.resume(IDENTITY, 100)


@pytest.mark.parametrize("old", [True, False])
def test_a_checkpoint_of_another_program_is_refused(checkpoints, old):
    """The checksum is correct, but the content or format is not ours."""
    path = checkpoints.path(40)
    torch.save({"model": {}}, path, _use_new_zipfile_serialization=not old)
    path.with_suffix(".sha256").write_text(f"{sha256(path)}  {path.name}\n")
    with pytest.raises(UserError, match=r"step-00000040\.pt: written by another version"):
        checkpoints.resume(IDENTITY, 100)


def test_damage_to_all_checkpoints_does_not_restart_the_run(checkpoints):
    for path in checkpoints.paths():
        path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(UserError, match=r"all checkpoints are damaged \(step-00000030\.pt, "):
            checkpoints.resume(IDENTITY, 100)
    assert len(checkpoints.paths()) == 2
    assert Checkpoints(checkpoints.folder / "none", 1).resume(IDENTITY, 100) == 0


def test_other_settings_are_an_error_and_delete_nothing(checkpoints):
    other = {"training.learning_rate": "0.002", "vocabulary": "b" * 64}
    with pytest.raises(UserError) as error:
        checkpoints.resume(other, 100)
    message = str(error.value)
    assert "training.learning_rate (0.001 there, 0.002 now)" in message
    assert "vocabulary (aaaaaaaaaaaa... there, bbbbbbbbbbbb... now)" in message
    assert "delete the folder" in message
    with pytest.raises(UserError, match=r"training\.steps \(at least 30 there, 25 now\)"):
        checkpoints.resume(IDENTITY, 25)
    assert len(checkpoints.paths()) == 2


def test_checkpoints_of_a_finished_run_with_other_settings_are_removed(checkpoints, capsys):
    save(checkpoints, 100)
    assert checkpoints.resume(IDENTITY, 200) == 100
    assert checkpoints.resume({**IDENTITY, "seed": "7"}, 100) == 0
    assert checkpoints.paths() == []
    assert "finished run with other settings" in capsys.readouterr().err
