"""Files of the manifest, brought to where the token stage reads them."""

import dataclasses
import json
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from scsigmoid.config.check import load
from scsigmoid.config.schema import Dataset, LocalFiles
from scsigmoid.corpus.fetch import fetch_evaluation, fetch_part
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.manifest import build_manifest, read_manifest
from scsigmoid.errors import UserError
from scsigmoid.files import sha256


@pytest.fixture
def config():
    return load()


def dense(cells):
    return np.concatenate([chunk.counts.toarray() for chunk in cells.chunks()])


def made(config, corpus, datasets, folder: Path) -> Path:
    build_manifest(corpus, datasets, config.seed, folder / "manifest.csv")
    return folder / "manifest.csv"


def evaluation(manifest: Path, name: str, corpus, folder: Path) -> dict:
    fetch_evaluation(manifest, name, corpus, 42, folder / f"{name}.h5ad", folder / f"{name}.json")
    return json.loads((folder / f"{name}.json").read_text())


def test_embedded(config, tmp_path):
    corpus = dataclasses.replace(
        config.corpus, embedded=dataclasses.replace(config.corpus.embedded, training_cells=100)
    )
    manifest = made(config, corpus, config.datasets, tmp_path)
    seen = {}
    for part in range(corpus.parts):
        for run in ("a", "b"):
            fetch_part(manifest, part, corpus, 42, tmp_path / run / f"part-{part:05d}")
        files = [tmp_path / run / f"part-{part:05d}" for run in ("a", "b")]
        names = sorted(path.name for path in files[0].iterdir())
        assert "files.csv" in names
        for name in names:
            assert (files[0] / name).read_bytes() == (files[1] / name).read_bytes()
        for row in read_manifest(files[0] / "files.csv"):
            path = files[0] / f"{row.file}.h5ad"
            assert row.sha256 == sha256(path)
            assert int(row.bytes) == path.stat().st_size
            seen[row.file] = int(row.cells)
    assert seen == {
        "simulated_training_00": 50,
        "simulated_training_01": 50,
        "pbmc68k_training": 490,
    }
    facts = evaluation(manifest, "heart_oft", corpus, tmp_path)
    assert facts == {
        "file": "heart_oft",
        "simulated": True,
        "label": "cell_type",
        "title": "Heart OFT",
        "cells": corpus.embedded.evaluation_cells,
        "genes": corpus.embedded.genes,
        "sha256": sha256(tmp_path / "heart_oft.h5ad"),
        "location": "heart_oft",
    }


def test_local(config, counts, write_h5ad, tmp_path):
    path = write_h5ad(counts.astype(np.float32), name="blood")
    whole = write_h5ad(counts.astype(np.float32), name="lung")
    corpus = dataclasses.replace(
        config.corpus,
        source="local",
        local=[
            LocalFiles(files=str(path), held_out=0.2),
            LocalFiles(files=str(whole), held_out=True),
        ],
    )
    datasets = {"blood": Dataset(title="Blood"), "lung": Dataset(title="Lung")}
    manifest = made(config, corpus, datasets, tmp_path)
    fetch_part(manifest, 0, corpus, 42, tmp_path / "part-00000")
    fetch_part(manifest, 1, corpus, 42, tmp_path / "part-00001")
    (row,) = read_manifest(tmp_path / "part-00000" / "files.csv")
    assert read_manifest(tmp_path / "part-00001" / "files.csv") == []
    linked = tmp_path / "part-00000" / "blood_training.h5ad"
    assert linked.resolve() == path.resolve()
    trained = open_cells(linked, None, row.held_out, "training")

    facts = evaluation(manifest, "blood", corpus, tmp_path / "evaluation")
    held = open_cells(path, None, row.held_out, "evaluation")
    copied = open_cells(tmp_path / "evaluation" / "blood.h5ad", "cell_type")
    assert facts["cells"] == copied.n_cells == 6
    assert sorted([*trained.rows, *held.rows]) == list(range(30))
    np.testing.assert_array_equal(dense(copied), counts[held.rows])
    labels = open_cells(path, "cell_type").labels()
    assert copied.labels().tolist() == labels[held.rows].tolist()

    facts = evaluation(manifest, "lung", corpus, tmp_path / "evaluation")
    assert facts["cells"] == 30
    assert (tmp_path / "evaluation" / "lung.h5ad").resolve() == whole.resolve()

    with whole.open("ab") as handle:
        handle.write(b"x")
    with pytest.raises(UserError, match=r"lung\.h5ad: changed since the manifest was made"):
        evaluation(manifest, "lung", corpus, tmp_path / "again")
    path.unlink()
    with pytest.raises(UserError, match=r"blood\.h5ad: no such file"):
        fetch_part(manifest, 0, corpus, 42, tmp_path / "again")
    assert not list((tmp_path / "again").glob("*"))


@pytest.mark.parametrize("held_out", [True, "batch=b"])
def test_single_cell_type(held_out, config, counts, write_h5ad, tmp_path):
    obs = {"cell_type": ["T cell"] * 20 + ["B cell"] * 10, "batch": ["b"] * 20 + ["c"] * 10}
    if held_out is True:
        obs["cell_type"] = ["T cell"] * 30
    path = write_h5ad(counts.astype(np.float32), obs=obs, name="blood")
    corpus = dataclasses.replace(
        config.corpus, source="local", local=[LocalFiles(files=str(path), held_out=held_out)]
    )
    other = write_h5ad(counts.astype(np.float32), name="other")
    corpus.local.append(LocalFiles(files=str(other)))
    manifest = made(config, corpus, {"blood": Dataset(title="Blood")}, tmp_path)
    message = rf"blood\.h5ad: all {30 if held_out is True else 20} evaluated cells .* 'T cell'"
    with pytest.raises(UserError, match=message):
        evaluation(manifest, "blood", corpus, tmp_path / "evaluation")
    assert not list((tmp_path / "evaluation").glob("*"))


def test_unknown_dataset(config, tmp_path):
    manifest = made(config, config.corpus, config.datasets, tmp_path)
    with pytest.raises(UserError, match="has no evaluation dataset 'kidney'"):
        evaluation(manifest, "kidney", config.corpus, tmp_path)


@pytest.fixture
def cellxgene(tmp_path, write_h5ad, counts) -> Iterator[str]:
    """CELLxGENE on loopback: the API's answers and files, as static files."""
    root = tmp_path / "server"

    def uuid(number: int) -> str:
        return f"00000000-0000-0000-0000-{number:012d}"

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, directory=str(root), **kwargs)

        def translate_path(self, path: str) -> str:
            found = Path(super().translate_path(path))
            return str(found / "index.json" if found.is_dir() else found)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    listed = []
    for number in range(1, 5):
        path = write_h5ad(counts.astype(np.float32), name=f"served{number}")
        if number == 4:
            path.write_bytes(path.read_bytes()[:-100])
        (root / "files").mkdir(parents=True, exist_ok=True)
        path.rename(root / "files" / f"{uuid(10 + number)}.h5ad")
        size = (root / "files" / f"{uuid(10 + number)}.h5ad").stat().st_size
        entry = {
            "dataset_id": uuid(number),
            "dataset_version_id": uuid(10 + number),
            "collection_id": uuid(20 + number),
            "title": f"Dataset {number}",
            "published_at": "2024-01-01T00:00:00",
            "organism": [{"label": "Homo sapiens"}],
            "cell_count": 30,
            "assets": [
                {
                    "filetype": "H5AD",
                    "filesize": size,
                    "url": f"{address}/files/{uuid(10 + number)}.h5ad",
                }
            ],
        }
        listed.append(entry)
        for name, answer in {
            f"datasets/{uuid(number)}/versions": [entry],
            f"dataset_versions/{uuid(10 + number)}": entry,
        }.items():
            (root / name).mkdir(parents=True)
            (root / name / "index.json").write_text(json.dumps(answer))
    (root / "datasets" / "index.json").write_text(json.dumps(listed))
    yield address
    server.shutdown()
    server.server_close()


def test_cellxgene(config, cellxgene, counts, tmp_path):
    corpus = dataclasses.replace(
        config.corpus, source="cellxgene", api=cellxgene, hosts=["127.0.0.1"], parts=1
    )
    datasets = {"heart": Dataset(title="Heart", id="00000000-0000-0000-0000-000000000012")}
    manifest = made(config, corpus, datasets, tmp_path)
    rows = read_manifest(manifest)
    assert [row.dataset_id[-1] for row in rows] == ["1", "3", "4", "2"]
    assert rows[-1].collection_id[-2:] == "22"
    facts = evaluation(manifest, "heart", corpus, tmp_path / "evaluation")
    assert facts["cells"] == 30
    assert not facts["simulated"]
    np.testing.assert_array_equal(dense(open_cells(tmp_path / "evaluation" / "heart.h5ad")), counts)
    # the truncated file is named by its address; nothing is left behind
    with pytest.raises(UserError, match=r"http://127.*14\.h5ad: truncated"):
        fetch_part(manifest, 0, corpus, 42, tmp_path / "part-00000")
    assert not (tmp_path / "part-00000").exists()

    # given back without that file, the manifest works, and the hashes are known from then on
    lock = tmp_path / "lock.csv"
    lock.write_text("".join(line for line in manifest.open() if ",Dataset 4," not in line))
    given = dataclasses.replace(corpus, manifest=str(lock))
    manifest = made(config, given, datasets, tmp_path)
    fetch_part(manifest, 0, given, 42, tmp_path / "part-00000")
    done = read_manifest(tmp_path / "part-00000" / "files.csv")
    assert [row.cells for row in done] == ["30", "30"]
    assert all(len(row.sha256) == 64 for row in done)
    assert not list((tmp_path / ".downloads").glob("*"))
