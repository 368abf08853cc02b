"""Files are complete or absent; locks are exclusive."""

import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from scsigmoid.errors import UserError
from scsigmoid.files import atomic_folder, atomic_path, locked, parsing


class Interruption(Exception):
    """An error while writing."""


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old")

    with suppress(Interruption), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise Interruption
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_replaces_the_file_and_keeps_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "new" / "table.csv"
    with atomic_path(path) as temporary:
        assert temporary.suffix == ".csv"
        assert not path.exists()
        temporary.write_text("new")
    assert path.read_text() == "new"


def test_a_folder_in_the_place_of_a_file_is_named_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as caught, atomic_path(tmp_path):
        pytest.fail("the block must not begin")
    assert caught.value.filename == str(tmp_path)


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    for name in ("a", "b", "c"):
        with suppress(Interruption), atomic_folder(folder) as temporary:
            (temporary / name).write_text(name)
            if name == "c":
                raise Interruption
    assert [path.name for path in folder.iterdir()] == ["b"]
    assert list(tmp_path.iterdir()) == [folder]


LOCK = """
import sys
from scsigmoid.files import locked
with locked(sys.argv[1], "training"):
    print("held", flush=True)
    input()
"""


def test_a_second_process_is_told_who_holds_a_folder(tmp_path: Path) -> None:
    lock = tmp_path / "model" / ".training"
    child = subprocess.Popen(
        [sys.executable, "-c", LOCK, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    with (
        pytest.raises(UserError, match=f"process {child.pid} on .* is training; wait for it"),
        locked(lock, "training"),
    ):
        pass
    child.kill()
    child.wait()
    with locked(lock, "training"):
        pass


def test_parsing_names_damage_but_passes_errors_of_the_file_system() -> None:
    message = r"a\.npz: damaged, or not an archive \(bad bytes\)"
    with pytest.raises(UserError, match=message), parsing("a.npz", "an archive"):
        raise ValueError("bad bytes")
    for number in (errno.EMFILE, errno.EACCES, errno.ESTALE):
        with pytest.raises(OSError, match=os.strerror(number)), parsing("a.npz", "an archive"):
            raise OSError(number, os.strerror(number))
