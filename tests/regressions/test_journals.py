"""Journals with lines that were cut, and full disks."""

import json
from pathlib import Path

import pytest
from small_training import row

from scsigmoid.errors import UserError
from scsigmoid.files import METADATA_KEY
from scsigmoid.results.folder import load_journal
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


def test_a_journal_that_ends_before_its_model(tmp_path):
    """A journal without its last lines seemed to be complete."""
    path, model = tmp_path / "journal.csv", tmp_path / "model.safetensors"
    Journal(path, {}, as_csv([row(step, 3.0) for step in (1, 5)]))
    for steps in (4, 5, 6):
        metadata = {METADATA_KEY: json.dumps({"step": steps})}
        header = json.dumps({"__metadata__": metadata}).encode()
        model.write_bytes(len(header).to_bytes(8, "little") + header)
        if steps < 6:
            assert load_journal(path)["step"].tolist() == [1, 5]
    with pytest.raises(ValueError, match="it ends at step 5 of 6"):
        load_journal(path)
    model.write_bytes(header[:9])  # the error was that the journal is damaged
    assert load_journal(path)["step"].tolist() == [1, 5]
