"""Checkpoints that are damaged, cannot be read, have other settings, or are too many."""

import os

import pytest
import torch
from training.checkpoint_files import IDENTITY, save

from scsigmoid.errors import UserError
from scsigmoid.files import sha256
from scsigmoid.training.checkpoints import read_checkpoint


def test_the_newest_are_kept_and_load_as_weights_only(checkpoints):
    names = ["step-00000020.pt", "step-00000020.sha256", "step-00000030.pt", "step-00000030.sha256"]
    assert sorted(os.listdir(checkpoints.folder)) == names
    assert torch.load(checkpoints.path(30), weights_only=True)["step"] == 30
    assert checkpoints.resume(IDENTITY, 100) == 30
    latest = read_checkpoint(checkpoints.path(30))
    assert (latest.step, latest.seconds) == (30, 30.0)
    assert latest.model["weight"].tolist() == [30.0] * 3


@pytest.mark.parametrize("old", [True, False])
def test_a_checkpoint_of_another_program_is_refused(checkpoints, old):
    """The checksum is correct, but the content or format is not ours."""
    path = checkpoints.path(40)
    torch.save({"model": {}}, path, _use_new_zipfile_serialization=not old)
    path.with_suffix(".sha256").write_text(f"{sha256(path)}  {path.name}\n")
    with pytest.raises(UserError, match=r"step-00000040\.pt: written by another version"):
        checkpoints.resume(IDENTITY, 100)


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
