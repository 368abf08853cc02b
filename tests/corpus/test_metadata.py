"""Manifest and metadata files: truncated and damaged content is refused."""

import json

import numpy as np
import pytest

from scsigmoid.corpus.metadata import (
    ManifestRow,
    are_in_ranges,
    format_ranges,
    read_manifest,
    read_metadata,
    write_manifest,
)
from scsigmoid.errors import UserError

ROWS = [
    ManifestRow(file=name, role="training", source="local", location=f"/{name}", cells="5",
                title=f"{name}, \"quoted\"", bytes="9", sha256="0" * 64, collection_id="0123")
    for name in ("one", "two", "three")
]  # fmt: skip


def test_truncated_manifests(tmp_path):
    """A manifest that is cut between two lines is valid, unless its summary is next to it."""
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


def test_other_files(tmp_path):
    with pytest.raises(UserError, match="no such manifest"):
        read_manifest(tmp_path / "none.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="not a manifest; its columns must be file, role"):
        read_manifest(tmp_path / "other.csv")


def test_damaged_metadata(tmp_path):
    path = tmp_path / "heart.json"
    with pytest.raises(UserError, match=r"heart\.json: cannot be read \(No such file"):
        read_metadata(path)
    text = dict.fromkeys(("dataset", "file", "label", "title", "sha256", "location"), "x")
    values = {**text, "types": ["a"], "cells": 1, "genes": 2}
    path.write_text(json.dumps(values))
    assert read_metadata(path).types == ["a"]
    path.write_text(json.dumps(values | {"cells": 1.0}))  # the same number, but it was refused
    assert read_metadata(path).cells == 1
    # Types that are not a list were a traceback of the job that reads them.
    wrong = [values | {name: 3.5} for name in values]
    for content in (b"[1]", b'{"file": "heart"}', b"\xff\xfe", *map(json.dumps, wrong)):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(UserError, match=r"heart\.json: damaged, or not the metadata"):
            read_metadata(path)


def test_rows_as_ranges():
    generator = np.random.default_rng(0)
    for share in (0, 0.1, 0.5, 1):
        is_excluded = generator.random(300_000) < share
        text = format_ranges(np.flatnonzero(is_excluded))
        np.testing.assert_array_equal(are_in_ranges(np.arange(300_000), text), is_excluded)
    assert format_ranges(np.array([0, 1, 2, 9])) == "0-2,9"
