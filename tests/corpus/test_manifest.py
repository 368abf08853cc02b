"""Manifests of every source, and locks."""

import json

import numpy as np
import pytest
from corpus.conftest import HEART
from loopback import uuid
from stages import build, configured, local_corpus

from scsigmoid.config.schema import Dataset, LocalFiles
from scsigmoid.corpus.manifest import (
    assign_parts,
    check_not_trained_on,
    write_evaluation_row,
    write_lock,
)
from scsigmoid.corpus.metadata import ManifestRow, read_manifest, write_manifest
from scsigmoid.errors import UserError
from scsigmoid.files import sha256


def row(name, role="training", **values):
    return ManifestRow(file=name, role=role, source="cellxgene", location="", **values)


def test_local(counts, write_h5ad, tmp_path, capfd):
    obs = {"cell_type": ["T cell", "B cell"] * 15, "batch": ["b"] * 10 + ["c"] * 20}
    names = ["Blood 1", "lung", "gut"]
    paths = [write_h5ad(counts + n, obs=obs, name=name) for n, name in enumerate(names)]
    (tmp_path / "mouse").mkdir()
    mouse = [f"ENSMUSG{i:011d}" for i in range(12)]
    paths.append(write_h5ad(counts, genes=mouse, obs=obs, name="mouse/gut"))
    corpus = local_corpus(
        LocalFiles(files=str(paths[0]), held_out=0.1),
        LocalFiles(files=str(paths[1]), held_out="batch=b", name="lung"),
        LocalFiles(files=str(paths[2]), label=["none of it", "batch"]),
        LocalFiles(files=str(paths[3])),
    )
    datasets = {"blood_1": Dataset(title="Blood"), "lung": Dataset(title="Lung")}
    build(corpus, datasets, tmp_path / "m.csv")
    rows = {r.file: r for r in read_manifest(tmp_path / "m.csv")}
    assert list(rows) == ["blood_1_training", "blood_1", "lung_training", "lung", "gut", "gut_2"]
    assert [r.cells for r in rows.values()] == ["27", "3", "20", "10", "30", "30"]
    assert rows["blood_1"].held_out == rows["blood_1_training"].held_out == "fraction=0.1 seed=42"
    assert rows["blood_1"].location == str(paths[0])
    assert rows["gut"].label == "batch"
    assert rows["gut"].sha256 == sha256(paths[2])
    assert rows["gut"].bytes == str(paths[2].stat().st_size)
    assert (rows["gut"].organism, rows["gut_2"].organism) == ("Homo sapiens", "Mus musculus")
    assert "by organism: Homo sapiens 77, Mus musculus 30" in capfd.readouterr().err


def test_organism_of_a_file_with_symbols(counts, write_h5ad, tmp_path, capfd):
    """Its ids are in another file. Its cells were missing in the numbers by organism."""
    obs, symbols = {"cell_type": ["T cell", "B cell"] * 15}, [f"GENE{n}" for n in range(12)]
    mouse = [f"ENSMUSG{i:011d}" for i in range(12)]
    files = {
        "ids": write_h5ad(counts, obs=obs, name="ids", var={"feature_name": symbols}),
        "symbols": write_h5ad(counts + 1, genes=symbols, obs=obs, name="symbols"),
        "mouse": write_h5ad(counts, genes=mouse, obs=obs, name="mouse"),
    }
    held_out = {"ids": 0.1}
    corpus = local_corpus(
        *(
            LocalFiles(files=str(path), held_out=held_out.get(name, False))
            for name, path in files.items()
        )
    )
    build(corpus, {"ids": Dataset(title="Ids")}, tmp_path / "m.csv")
    assert "by organism: Homo sapiens 57, Mus musculus 30" in capfd.readouterr().err


def test_parts_are_balanced():
    generator = np.random.default_rng(0)
    sizes = (generator.lognormal(3, 1, 200) * 1000).astype(int)
    rows = [row(f"f{i}", bytes=str(size)) for i, size in enumerate(sizes)]
    parts = np.array([int(r.part) for r in assign_parts(rows, 8)])
    loads = np.bincount(parts, weights=sizes, minlength=8)
    assert loads.max() < 1.02 * sizes.sum() / 8


def test_cellxgene(corpus, published, tmp_path):
    lines = build(corpus, HEART, tmp_path / "m.csv")
    rows = read_manifest(tmp_path / "m.csv")
    assert [r.file for r in rows] == [uuid(1001), uuid(1004), "heart"]
    assert rows[1] == ManifestRow(
        file=uuid(1004), role="training", part="0", source="cellxgene", snapshot="2024-06-11",
        location=f"{published.address}/{uuid(1004)}.h5ad", title="Dataset 4", doi="10.1000/4",
        organism="Homo sapiens", assay="Smart-seq2 || 10x 3' v2", cells="20", bytes="5",
        published="2024-01-01", dataset_id=uuid(4), dataset_version_id=uuid(1004),
        collection_id=uuid(2004),
    )  # fmt: skip
    assert (rows[2].title, rows[2].snapshot, rows[2].held_out) == ("Heart", "", "all")
    summary = json.loads((tmp_path / "m.json").read_text())
    assert summary["evaluation"]["heart"]["published"] == "2024-01-01"
    assert summary["offered"] == {"files": 5, "cells": 51}
    assert "25 cells, 0.0 GB; the paper has 131,600,000 cells" in "\n".join(lines)
    # Other hosts, and the same version twice, are refused before anything is written.
    entry = published.answers[f"/datasets/{uuid(4)}/versions"][0]
    good = entry["assets"][1]["url"]
    for url, version, message in (
        ("https://example.org/x.h5ad", 1004, r"host 'example\.org' is not allowed"),
        (good, 1001, f"two rows are called '{uuid(1001)}'"),
    ):
        entry["assets"][1]["url"], entry["dataset_version_id"] = url, uuid(version)
        with pytest.raises(UserError, match=message):
            build(corpus, HEART, tmp_path / str(version) / "m.csv")
        assert not list(tmp_path.glob("1*/m.*"))


def test_unknown_and_wrong_sizes(corpus, published, tmp_path):
    listed = published.answers[f"/datasets/{uuid(4)}/versions"][0]["assets"]
    for size in (-1, 3):  # the second is wrong: the file decides
        listed[1]["filesize"] = size
        build(corpus, HEART, tmp_path / "m.csv")
        assert [r.bytes for r in read_manifest(tmp_path / "m.csv")] == ["2", "5", "3"]
    listed[1]["filesize"] = -1
    build(corpus.model_copy(update={"maximum_file_gb": 4e-9}), HEART, tmp_path / "m.csv")
    assert [r.bytes for r in read_manifest(tmp_path / "m.csv")] == ["2", "3"]


def test_changed_files_of_a_lock(lock, server, tmp_path):
    server.files[f"/{uuid(1001)}.h5ad"] = b"changed"
    del server.files[f"/{uuid(1003)}.h5ad"]
    message = rf"{uuid(1001)} \(changed from 1 to 7 bytes\), {uuid(1003)} \(not found\)"
    with pytest.raises(UserError, match=rf"lock\.csv: 2 of 3 files are gone or changed: {message}"):
        build(lock, HEART, tmp_path / "m.csv")
    # The service need not have files that were downloaded before.
    (tmp_path / "downloads").mkdir(exist_ok=True)
    (tmp_path / "downloads" / f"{uuid(1003)}.h5ad").write_bytes(b"xxx")
    build(lock.model_copy(update={"leave_out": [uuid(1001)]}), HEART, tmp_path / "m.csv")
    assert [r.file for r in read_manifest(tmp_path / "m.csv")] == [uuid(1002), "heart"]


def test_lock_without_all_files(tmp_path):
    write_manifest(tmp_path / "m.csv", [row("a", cells="1"), row("heart", "evaluation")])
    with pytest.raises(UserError, match=r"m\.csv: its training file 'a' is missing"):
        write_lock(tmp_path / "m.csv", [], [], tmp_path / "lock.csv")
    assert not (tmp_path / "lock.csv").exists()


def test_added_cells(tmp_path, write_h5ad):
    """An evaluation dataset is configured after the manifest was made."""
    rng = np.random.default_rng(0)
    cells, others = rng.poisson(2, (30, 20)), rng.poisson(2, (10, 20))
    datasets = {name: Dataset(title=name) for name in ("cells", "mine")}
    first = LocalFiles(files=str(write_h5ad(cells, name="cells")), held_out=0.2)
    manifest, row = tmp_path / "m.csv", tmp_path / "mine.csv"
    build(local_corpus(first), datasets, manifest)

    def add(counts):
        path = write_h5ad(counts, name="mine")
        corpus = local_corpus(first, LocalFiles(files=str(path), held_out=True))
        config = configured(corpus, datasets)
        write_evaluation_row("mine", config, tmp_path / "downloads", row)
        check_not_trained_on(row, manifest, config)
        return corpus

    build(add(others), datasets, tmp_path / "fresh.csv")
    fresh = read_manifest(tmp_path / "fresh.csv")
    assert read_manifest(row) == [r for r in fresh if r.dataset == "mine"]
    training = [r for r in read_manifest(manifest) if r.role == "training"]
    assert training == [r for r in fresh if r.role == "training"]
    with pytest.raises(UserError, match=r"datasets\.mine: \d+ training cells of .*cells\.h5ad"):
        add(cells[:15])


def test_own_file_next_to_another_corpus(config, tmp_path, write_h5ad, counts):
    path = write_h5ad(counts, name="mine")
    datasets = {**config.datasets, "mine": Dataset(title="Mine", file=str(path))}
    build(config.corpus, datasets, tmp_path / "m.csv")
    assert "mine" not in {row.dataset for row in read_manifest(tmp_path / "m.csv")}
    row_file = tmp_path / "mine.csv"
    both = configured(config.corpus, datasets)
    write_evaluation_row("mine", both, tmp_path, row_file)
    check_not_trained_on(row_file, tmp_path / "m.csv", both)
    [mine] = read_manifest(row_file)
    assert (mine.location, mine.held_out, mine.cells) == (str(path), "all", str(len(counts)))


def test_training_files_in_cellxgene(corpus, published, tmp_path):
    build(corpus, HEART, tmp_path / "m.csv")
    trained = next(r for r in read_manifest(tmp_path / "m.csv") if r.role == "training")
    datasets = {**HEART, "mine": Dataset(title="Mine", id=trained.dataset_id)}
    config = configured(corpus, datasets)
    for name in datasets:
        row = tmp_path / f"{name}.csv"
        write_evaluation_row(name, config, tmp_path / "downloads", row)
    check_not_trained_on(tmp_path / "heart.csv", tmp_path / "m.csv", config)
    with pytest.raises(UserError, match=rf"file {trained.file} belongs to the dataset"):
        check_not_trained_on(row, tmp_path / "m.csv", config)
