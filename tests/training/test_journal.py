"""The journal's round trip and its errors."""

from pathlib import Path

import numpy as np
import pytest
from small_training import row

from scsigmoid.errors import UserError
from scsigmoid.training.journal import (
    COLUMNS,
    LAYER_COLUMNS,
    Journal,
    Layer,
    append_rows,
    as_csv,
    begin_layers,
    read_journal,
)


def test_round_trip_keeps_every_bit(tmp_path):
    journal = Journal(tmp_path / "journal.csv", {"torch": "2.13", "size": '{"layers": 2}'})
    for step, loss in ((1, 0.1 + 0.2), (5, float("inf")), (10, float("nan"))):
        journal.append(row(step, loss, gradient_norm=1 / 3))
    columns, header = read_journal(journal.path)
    assert header == {"torch": "2.13", "size": '{"layers": 2}'}
    assert tuple(columns) == COLUMNS
    assert columns["step"].tolist() == [1, 5, 10]
    assert columns["step"].dtype == np.int64
    assert columns["loss"][0] == 0.1 + 0.2
    assert np.isposinf(columns["loss"][1])
    assert np.isnan(columns["loss"][2])
    text = journal.path.read_text()
    assert "\n5,inf,0.3333333333333333," in text
    journal.write()
    assert journal.path.read_text() == text


def test_an_incomplete_line_is_ignored(tmp_path):
    journal = Journal(tmp_path / "journal.csv", {}, as_csv([row(1, 3.0)]))
    with journal.path.open("a") as handle:
        handle.write("2,3.1")
    assert read_journal(journal.path)[0]["step"].tolist() == [1]


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
