"""Checkpoints that are damaged, cannot be read, have other settings, or are too many."""

import errno
import io
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
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


def test_the_newest_are_kept_and_load_as_weights_only(checkpoints: Checkpoints):
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


def files(checkpoints: Checkpoints) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in checkpoints.folder.iterdir()}


def damage(path: Path, fault: str) -> None:
    content = bytearray(path.read_bytes())
    if fault == "flipped":
        content[len(content) // 2] ^= 1
    else:
        del content[-7:]
    path.write_bytes(content)


@pytest.mark.parametrize("fault", ["flipped", "truncated", "truncated, no checksum"])
def test_a_damaged_checkpoint_is_named_skipped_and_kept(
    checkpoints: Checkpoints, fault: str, capsys: pytest.CaptureFixture[str]
):
    path = checkpoints.path(30)
    damage(path, fault)
    if "no checksum" in fault:
        path.with_suffix(".sha256").unlink()
    content = path.read_bytes()
    assert checkpoints.resume(IDENTITY, 100) == 20
    assert f"{path}: damaged" in capsys.readouterr().err
    # It neither counts among the kept ones nor is it overwritten.
    for step in (25, 30):
        save(checkpoints, step)
    assert [path.name for path in checkpoints.paths()] == ["step-00000030.pt", "step-00000025.pt"]
    assert (checkpoints.folder / "step-00000030.pt.damaged").read_bytes() == content
    assert checkpoints.resume(IDENTITY, 100) == 30


@pytest.mark.parametrize("checksum", [None, ""])
def test_a_missing_checksum_is_a_warning(
    checkpoints: Checkpoints, checksum: str | None, capsys: pytest.CaptureFixture[str]
):
    """Same situation as after copying only ``*.pt``."""
    for path in checkpoints.paths():
        path.with_suffix(".sha256").unlink()
        if checksum is not None:
            path.with_suffix(".sha256").write_text(checksum)
    before = files(checkpoints)
    assert checkpoints.resume(IDENTITY, 100) == 30
    assert "step-00000030.sha256 is missing" in capsys.readouterr().err
    assert files(checkpoints) == before


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    """Let every ``open`` fail with EMFILE, "Too many open files"."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextmanager
def failing(suffix: str, error: OSError | MemoryError) -> Iterator[None]:
    """Simulate a system that does not open files with a suffix."""
    system_open = io.open

    def refuse(file: object, *arguments: object, **options: object) -> object:
        if str(file).endswith(suffix):
            raise error
        return system_open(file, *arguments, **options)  # type: ignore[call-overload]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io, "open", refuse)
        yield


@pytest.mark.parametrize("suffix", [".sha256", ".pt"])
@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO])
def test_a_checkpoint_that_cannot_be_read_is_kept(
    checkpoints: Checkpoints, suffix: str, number: int
):
    before = files(checkpoints)
    name = str(checkpoints.path(30).with_suffix(suffix))
    fault = OSError(number, os.strerror(number), name)
    with failing(suffix, fault), pytest.raises(OSError, match=os.strerror(number)) as caught:
        checkpoints.resume(IDENTITY, 100)
    assert (caught.value.errno, caught.value.filename) == (number, name)
    assert files(checkpoints) == before
    assert checkpoints.resume(IDENTITY, 100) == 30


def test_too_many_open_files_delete_nothing(checkpoints: Checkpoints):
    before = files(checkpoints)
    with no_free_descriptor(), pytest.raises(OSError, match="Too many open files"):
        checkpoints.resume(IDENTITY, 100)
    assert files(checkpoints) == before


@pytest.mark.parametrize("suffix", [".sha256", ".pt"])
def test_a_folder_in_place_of_a_file_deletes_nothing(checkpoints: Checkpoints, suffix: str):
    path = checkpoints.path(30).with_suffix(suffix)
    path.unlink()
    path.mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        checkpoints.resume(IDENTITY, 100)
    assert caught.value.filename == str(path)
    assert len(list(checkpoints.folder.iterdir())) == 4


def test_a_folder_that_may_not_be_listed_is_not_empty(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
):
    def refuse(path: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    for function in ("listdir", "scandir"):
        monkeypatch.setattr(os, function, refuse)
    with pytest.raises(PermissionError):
        checkpoints.resume(IDENTITY, 100)


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENFILE, os.strerror(errno.ENFILE))])
def test_a_checkpoint_that_cannot_be_loaded_now_is_not_of_another_version(
    checkpoints: Checkpoints, error: Exception, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(type(error)):
        checkpoints.resume(IDENTITY, 100)


@pytest.mark.parametrize("old", [True, False])
def test_a_checkpoint_of_another_program_is_refused(checkpoints: Checkpoints, old: bool):
    """The checksum is correct, but the content or format is not ours."""
    path = checkpoints.path(40)
    torch.save({"model": {}}, path, _use_new_zipfile_serialization=not old)
    path.with_suffix(".sha256").write_text(f"{sha256(path)}  {path.name}\n")
    with pytest.raises(UserError, match=r"step-00000040\.pt: written by another version"):
        checkpoints.resume(IDENTITY, 100)


def test_damage_to_all_checkpoints_does_not_restart_the_run(checkpoints: Checkpoints):
    for path in checkpoints.paths():
        path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(UserError, match=r"all checkpoints are damaged \(step-00000030\.pt, "):
            checkpoints.resume(IDENTITY, 100)
    assert len(checkpoints.paths()) == 2
    assert Checkpoints(checkpoints.folder / "none", 1).resume(IDENTITY, 100) == 0


def test_other_settings_are_an_error_and_delete_nothing(checkpoints: Checkpoints):
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


def test_checkpoints_of_a_finished_run_with_other_settings_are_removed(
    checkpoints: Checkpoints, capsys: pytest.CaptureFixture[str]
):
    save(checkpoints, 100)
    assert checkpoints.resume(IDENTITY, 200) == 100
    assert checkpoints.resume({**IDENTITY, "seed": "7"}, 100) == 0
    assert checkpoints.paths() == []
    assert "finished run with other settings" in capsys.readouterr().err
