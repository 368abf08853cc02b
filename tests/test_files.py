"""Files are complete or absent; locks are exclusive."""

import os
from contextlib import suppress

import pytest

from scsigmoid.errors import UserError
from scsigmoid.files import atomic_folder, atomic_path, locked


class Interruption(Exception):
    """An error while writing."""


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")

    with suppress(Interruption), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise Interruption
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_replaces_the_file_and_keeps_the_suffix(tmp_path):
    path = tmp_path / "new" / "table.csv"
    with atomic_path(path) as temporary:
        assert temporary.suffix == ".csv"
        assert not path.exists()
        temporary.write_text("new")
    assert path.read_text() == "new"


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path):
    folder = tmp_path / "store"
    for name in ("a", "b", "c"):
        with suppress(Interruption), atomic_folder(folder, "marker") as temporary:
            (temporary / "marker").touch()
            (temporary / name).write_text(name)
            if name == "c":
                raise Interruption
    assert sorted(path.name for path in folder.iterdir()) == ["b", "marker"]
    assert list(tmp_path.iterdir()) == [folder]


def test_a_lock_names_the_process_that_has_it(tmp_path):
    lock = tmp_path / "model" / ".training"
    with locked(lock, "training"):
        message = f"model: process {os.getpid()} on .* is training; wait for it"
        with pytest.raises(UserError, match=message), locked(lock, "training"):
            pytest.fail("the block must not begin")
    with locked(lock, "training"):
        pass
