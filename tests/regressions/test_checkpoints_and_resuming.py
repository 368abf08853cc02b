"""Work that was lost: files that cannot be read, and runs that continue."""

import errno
import os
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from configurations import with_settings
from small_training import TINY, TRAINING
from training.checkpoint_files import IDENTITY, save

from scsigmoid.config.check import load
from scsigmoid.config.plan import Plan
from scsigmoid.errors import UserError
from scsigmoid.files import parsing
from scsigmoid.model.encoder import Encoder
from scsigmoid.training.checkpoints import Checkpoint, Checkpoints
from scsigmoid.training.loop import restore, resume
from scsigmoid.training.run import TrainingRun
from scsigmoid.training.step import Trainer


def test_parsing_names_damage_but_passes_errors_of_the_file_system():
    message = r"a\.npz: damaged, or not an archive \(bad bytes\)"
    with pytest.raises(UserError, match=message), parsing("a.npz", "an archive"):
        raise ValueError("bad bytes")
    for number in (errno.EMFILE, errno.EACCES, errno.ESTALE):
        with pytest.raises(OSError, match=os.strerror(number)), parsing("a.npz", "an archive"):
            raise OSError(number, os.strerror(number))


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


def test_copies_of_the_user_are_not_checkpoints(checkpoints):
    """They were resumed, counted as the newest checkpoints, and removed."""
    copies = [checkpoints.folder / name for name in ("step-best.pt", "step-00000030-keep.pt")]
    for path in copies:
        path.write_bytes(checkpoints.path(20).read_bytes())
    assert checkpoints.latest().step == 30
    save(checkpoints, 40)
    assert checkpoints.paths() == [checkpoints.path(40), checkpoints.path(30)]
    assert all(path.is_file() for path in copies)


def test_a_run_from_the_beginning_keeps_models_of_the_user(tmp_path):
    """A copy of a snapshot was removed with the snapshots of the earlier run."""
    made = Checkpoints(tmp_path / "checkpoints", keep=2)
    snapshot, copy = (
        tmp_path / f"model-step-00000010{end}" for end in (".safetensors", "-good.safetensors")
    )
    for path in (snapshot, copy):
        path.write_bytes(b"model")
    run = SimpleNamespace(training=SimpleNamespace(steps=100))
    assert resume(run, made, IDENTITY, {}) == 0
    assert copy.is_file()
    assert not snapshot.exists()


def test_damage_to_all_checkpoints_does_not_restart_the_run(checkpoints):
    for path in checkpoints.paths():
        path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(UserError, match=r"all checkpoints are damaged \(step-00000030\.pt, "):
            checkpoints.resume(IDENTITY, 100)
    assert len(checkpoints.paths()) == 2
    assert Checkpoints(checkpoints.folder / "none", 1).resume(IDENTITY, 100) == 0


#: The identity of the model `sigmoid_384` of the demo in its checkpoints, as earlier code wrote it,
#: which compared all settings.
EARLIER_IDENTITY = {
    "attention": '"sigmoid"', "context": "384", "size.layers": "2", "size.hidden": "64",
    "size.heads": "2", "size.feed_forward": "256", "architecture.dropout": "0.02",
    "architecture.layer_norm_epsilon": "1e-05", "architecture.initializer_range": "0.02",
    "training.global_batch": "16", "training.learning_rate": "0.01", "training.warmup_steps": "20",
    "training.weight_decay": "0.1", "training.betas": "[0.9, 0.999]", "training.epsilon": "1e-08",
    "training.gradient": '"mean"', "training.clipping": "null", "training.mask_fraction": "0.15",
    "training.mask_replacement": '"mask"', "training.validation_cells": "0", "seed": "42",
    "tokens.cls": "true", "vocabulary": "v", "training cells": "c",
}  # fmt: skip


def test_checkpoints_of_earlier_code_are_resumed():
    """New settings, which have a default, and settings of the execution are not compared."""
    sizes = {"tiny": {"layers": 2, "hidden": 64, "heads": 2, "feed_forward": 256}}
    training = {"patience": 0, "snapshots": [7], "execution": {"micro_batch_tokens": 4096}}
    training |= {"learning_rate": 0.01, "clipping": None}
    overrides = {"preset": "demo", "sizes": sizes, "training": training}
    config = Plan(load(overrides=overrides)).run_config("sigmoid_384")
    config = config.model_copy(update={"models": {"m": config.models["sigmoid_384"]}})
    assert TrainingRun.of(config, "m").identity("v", "c") == EARLIER_IDENTITY
    changed = with_settings(config, {"architecture.variants": ["qk_norm"]})
    other = TrainingRun.of(changed, "m")
    assert other.identity("v", "c").items() - EARLIER_IDENTITY.items() == {
        ("architecture.variants", '["qk_norm"]')
    }


def test_a_checkpoint_with_other_groups_of_parameters_is_one_line(tmp_path):
    trainer = Trainer(Encoder(TINY), TRAINING, 1, torch.device("cpu"))
    state = trainer.optimizer.state_dict()
    one_group = {**state, "param_groups": state["param_groups"][:1]}
    checkpoint = Checkpoint(
        step=2, steps=4, seconds=1.0, identity={}, journal="",
        model=trainer.encoder.state_dict(), optimizer=one_group,
    )  # fmt: skip
    checkpoints = Checkpoints(tmp_path, 1)
    checkpoints.write(checkpoint)
    with pytest.raises(UserError, match=r"step-00000002\.pt: written by another version .*delete"):
        restore(trainer, checkpoints.path(2))
