"""Fetching the files of a manifest."""

import json

import numpy as np
import pytest
from configurations import with_settings
from loopback import uuid
from stages import dense, local_corpus, make_evaluation, make_manifest, make_part

from scsigmoid.config.schema import Dataset, LocalFiles
from scsigmoid.corpus.cell_types import cell_types
from scsigmoid.corpus.fetch import raw_files
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.held_out import cells_of_part, select_role
from scsigmoid.corpus.metadata import ManifestRow, read_manifest, write_manifest
from scsigmoid.errors import UserError
from scsigmoid.files import sha256

BLOOD = Dataset(title="Blood")


def test_embedded(config, tmp_path):
    corpus = with_settings(config.corpus, {"embedded.training_cells": 100})
    own = {"mine": Dataset(title="Not a file of the embedded corpus", file="mine.h5ad")}
    make_manifest(corpus, {**own, **config.datasets}, tmp_path)
    rows = read_manifest(tmp_path / "manifest.csv")
    assert [row.dataset for row in rows if row.role == "evaluation"] == list(config.datasets)
    cells = {}
    for part in range(corpus.parts):
        folder = make_part(corpus, tmp_path, part)
        for row in read_manifest(folder / "files.csv"):
            path = folder / f"{row.file}.h5ad"
            assert (row.sha256, row.bytes) == (sha256(path), str(path.stat().st_size))
            cells[row.file] = row.cells
    assert cells == {row.file: row.cells for row in rows if row.role == "training"}
    path, metadata = make_evaluation(corpus, "simulated_heart", Dataset(title="Heart"), tmp_path)
    assert json.loads(metadata.read_text()) == {
        "dataset": "simulated_heart", "file": "simulated_heart",
        "label": "cell_type",
        "types": [], "title": "Simulated heart", "cells": corpus.embedded.evaluation_cells,
        "genes": corpus.embedded.genes, "sha256": sha256(path), "location": "simulated_heart",
    }  # fmt: skip


def test_local(counts, write_h5ad, tmp_path):
    path, whole = write_h5ad(counts, name="blood"), write_h5ad(counts + 1, name="lung")
    files = [LocalFiles(files=str(path), held_out=0.2), LocalFiles(files=str(whole), held_out=True)]
    corpus = local_corpus(*files, parts=2)
    folder = tmp_path / "run"
    make_manifest(corpus, {"blood": BLOOD, "lung": Dataset(title="Lung")}, folder)
    [(row, trained)] = cells_of_part(make_part(corpus, folder))
    assert cells_of_part(make_part(corpus, folder, 1)) == []
    assert trained.title == str(path.resolve())
    held = select_role(open_cells(path), row.held_out, "evaluation")
    copied = open_cells(make_evaluation(corpus, "blood", BLOOD, folder)[0])
    assert sorted([*trained.rows, *held.rows]) == list(range(30))
    # Messages number the rows of the user's file.
    assert copied.obs(["scsigmoid_row"])["scsigmoid_row"].tolist() == [*map(str, held.rows)]
    np.testing.assert_array_equal(dense(copied), counts[held.rows])
    labels = cell_types(open_cells(path), "cell_type")
    assert cell_types(copied, "cell_type").tolist() == labels[held.rows].tolist()
    assert make_evaluation(corpus, "lung", BLOOD, folder)[0].resolve() == whole.resolve()
    whole.write_bytes(whole.read_bytes() + b"x")
    with pytest.raises(UserError, match=r"lung\.h5ad: changed since the manifest was made"):
        make_evaluation(corpus, "lung", BLOOD, folder)
    path.unlink()
    with pytest.raises(UserError, match=r"blood\.h5ad: no such file"):
        make_part(corpus, folder)


@pytest.fixture
def files(server, write_h5ad, counts) -> list[str]:
    """Paths of four published files of 30 cells. The second is evaluated."""
    content = write_h5ad(counts, name="served").read_bytes()
    return [server.add(number, content, cells=30) for number in range(1, 5)]


HEART = {"heart": Dataset(title="Heart", id=uuid(1002))}


def test_failed_downloads(corpus, server, files, tmp_path):
    """A part is written only if all files are downloaded. Finished downloads are kept."""
    make_manifest(corpus, HEART, tmp_path)
    server.script[files[0]] = ["410"]
    server.script[files[3]] = ["cut", "404"]
    with pytest.raises(UserError, match=rf"{files[0]}: withdrawn; .*\(1 more files failed"):
        make_part(corpus, tmp_path)
    assert not (tmp_path / "part-0").exists()
    rows = read_manifest(make_part(corpus, tmp_path) / "files.csv")
    assert len(server.ranges(files[2])) == 1
    assert [row.cells for row in rows] == ["30"] * 3
    requests = len(server.requests)
    make_part(corpus, tmp_path)
    assert len(server.requests) == requests


def test_raw_files_are_deleted_and_restored(corpus, server, files, write_h5ad, counts, tmp_path):
    """Files of evaluation datasets and the user's own files are kept."""
    make_manifest(corpus, HEART, tmp_path)
    evaluated, _ = make_evaluation(corpus, "heart", HEART["heart"], tmp_path)
    own = write_h5ad(counts, name="own")
    manifest = tmp_path / "manifest.csv"
    identity = {"bytes": str(own.stat().st_size), "sha256": sha256(own), "location": str(own)}
    own_row = ManifestRow(file="own", role="training", part="0", source="local", **identity)
    write_manifest(manifest, [*read_manifest(manifest), own_row])
    manifest.with_suffix(".json").unlink()  # describes the manifest without this row
    part = make_part(corpus, tmp_path)
    linked = part / f"{uuid(1003)}.h5ad"  # the user replaces this link to a download
    linked.unlink()
    linked.symlink_to(own)
    corpus = with_settings(corpus, {"download.keep_files": False})
    with raw_files(part, corpus, tmp_path / "downloads", last=True):
        pass
    assert own.exists()
    linked.unlink()
    left = [path.name for path in (tmp_path / "downloads").glob("*.h5ad")]
    assert left == [f"{uuid(1002)}.h5ad"]
    assert open_cells(evaluated).n_cells == 30

    # Restored files must have the SHA-256 of the first download.
    content = server.files[files[0]]
    server.files[files[0]] = content[:-1] + bytes([content[-1] ^ 1])

    def restore() -> None:
        with raw_files(part, corpus, tmp_path / "other", last=False):
            for row in read_manifest(part / "files.csv"):
                assert sha256(part / f"{row.file}.h5ad") == row.sha256

    with pytest.raises(UserError, match=r"SHA-256 is not the one in the manifest"):
        restore()
    server.files[files[0]] = content
    restore()
    requests = len(server.requests)
    restore()
    assert len(server.requests) == requests
