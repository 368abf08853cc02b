"""The manifest's file: what is cut or is none is named."""

import pytest

from scsigmoid.corpus.rows import ManifestRow, read_manifest, write_manifest
from scsigmoid.errors import UserError

ROWS = [
    ManifestRow(file=name, role="training", source="local", location=f"/{name}", cells="5",
                collection_id="0123")
    for name in ("one", "two, \"quoted\"", "three")
]  # fmt: skip


def test_rows_come_back(tmp_path):
    write_manifest(tmp_path / "m.csv", ROWS)
    assert read_manifest(tmp_path / "m.csv") == ROWS


def test_a_file_that_was_cut_anywhere_is_refused(tmp_path):
    """Cut between two lines it is a manifest of fewer files, which its readers miss by name."""
    path = tmp_path / "m.csv"
    write_manifest(path, ROWS)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        if whole[:length].endswith(b"\n"):
            assert read_manifest(path) == ROWS[: whole[:length].count(b"\n") - 1]
        else:
            with pytest.raises(UserError, match=r"m\.csv: (damaged|not a) manifest"):
                read_manifest(path)
