"""A file with a checksum that changes is named; one without is taken as it is."""

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from scsigmoid.errors import UserError
from scsigmoid.files import checksum_of, checksum_path, compare_checksum, remove_checksum


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with checksum_path(tmp_path / "table.csv") as temporary:
        temporary.write_text("a,b\n1,2\n")
    return tmp_path / "table.csv"


def test_what_was_written_passes(path: Path) -> None:
    compare_checksum(path)
    command = ["sha256sum", "--check", "--status", checksum_of(path).name]
    assert subprocess.run(command, cwd=path.parent, check=False).returncode == 0


@pytest.mark.parametrize("text", ["a,b\n1,3\n", "a,b\n", ""])
def test_other_bytes_are_named(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(UserError, match=r"table\.csv: damaged"):
        compare_checksum(path)
    remove_checksum(path)
    compare_checksum(path)


def test_a_failed_writer_changes_nothing(path: Path) -> None:
    with suppress(InterruptedError), checksum_path(path) as temporary:
        temporary.write_text("half")
        raise InterruptedError
    compare_checksum(path)
    assert path.read_text() == "a,b\n1,2\n"


def test_a_new_file_gets_a_new_seal(path: Path) -> None:
    with checksum_path(path) as temporary:
        temporary.write_text("other")
    compare_checksum(path)
    assert len(list(path.parent.iterdir())) == 2
