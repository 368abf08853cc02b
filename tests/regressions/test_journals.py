"""Journals with lines that were cut, and full disks."""

from pathlib import Path

import pytest
from small_training import row

from scsigmoid.errors import UserError
from scsigmoid.training.journal import (
    COLUMNS,
    LAYER_COLUMNS,
    Layer,
    append_rows,
    begin_layers,
    read_journal,
)


def test_a_truncated_line_is_not_a_row_of_a_resumed_run(tmp_path):
    """A full disk truncates lines: "12" of "120,0,..." could be read as step 12."""
    path = tmp_path / "layers.csv"
    begin_layers(path, 0)
    rows = [Layer(**{**dict.fromkeys(LAYER_COLUMNS, 1), "step": step}) for step in (10, 20)]
    append_rows(path, rows)
    whole = path.read_text()
    for cut_off in ("1", "12,0,0.", "30,0,0.5"):
        path.write_text(whole + cut_off)
        begin_layers(path, 20)
        assert path.read_text() == whole
    begin_layers(path, 10)
    assert [line.split(",")[0] for line in path.read_text().splitlines()] == ["step", "10"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_error_of_a_full_disk_names_the_file():
    with pytest.raises(OSError, match="No space left") as error:
        append_rows(Path("/dev/full"), [row(1, 3.0)])
    assert error.value.filename == "/dev/full"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is empty"),
        ("# torch: 2.13\n", "it is empty"),
        ("a,b\n1,2\n", "other columns"),
        (",".join(COLUMNS) + "\n1,2\n" * 13, "a row is not as long"),
        (",".join(COLUMNS) + "\n" + "a," * 13 + "1\n", "could not convert"),
    ],
)
def test_damaged_journal(tmp_path, text, problem):
    path = tmp_path / "journal.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"journal\.csv: not a journal \({problem}.*; train"):
        read_journal(path)
    path.unlink()
    with pytest.raises(UserError, match="train the model first"):
        read_journal(path)
