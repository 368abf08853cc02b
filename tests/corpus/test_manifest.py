"""The manifest for the sources that need no network."""

import dataclasses

import numpy as np
import pytest

from scsigmoid.config.check import load
from scsigmoid.config.schema import Dataset, LocalFiles
from scsigmoid.corpus.manifest import build_manifest, dealt, read_manifest, write_manifest
from scsigmoid.corpus.rows import ManifestRow
from scsigmoid.errors import UserError
from scsigmoid.files import sha256


@pytest.fixture
def config():
    return load()


def local(config, *entries: LocalFiles):
    return dataclasses.replace(config.corpus, source="local", local=list(entries))


def row(name, role="training", **values):
    return ManifestRow(file=name, role=role, source="cellxgene", location="", **values)


def test_embedded(config, tmp_path):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path in paths:
        build_manifest(config.corpus, config.datasets, 42, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    rows = read_manifest(paths[0])
    assert [r.dataset for r in rows if r.role == "evaluation"] == list(config.datasets)
    training = [r for r in rows if r.role == "training"]
    assert sum(int(r.cells) for r in training) == config.corpus.embedded.training_cells + 490
    assert {r.part for r in training} == {"0", "1"}
    assert [r.file for r in rows if r.simulated == "false"] == ["pbmc68k_training", "pbmc68k"]


def test_embedded_unknown_dataset(config, tmp_path):
    datasets = {**config.datasets, "kidney": Dataset(title="Kidney")}
    with pytest.raises(UserError, match=r"datasets\.kidney"):
        build_manifest(config.corpus, datasets, 42, tmp_path / "m.csv")
    assert not list(tmp_path.iterdir())


def test_embedded_impossible_size(config, tmp_path):
    sizes = dataclasses.replace(config.corpus.embedded, donors=0)
    corpus = dataclasses.replace(config.corpus, embedded=sizes)
    with pytest.raises(UserError, match=r"corpus\.embedded\.donors: expected at least 1"):
        build_manifest(corpus, config.datasets, 42, tmp_path / "m.csv")


def test_local(config, counts, write_h5ad, tmp_path):
    paths = [
        write_h5ad(counts.astype(np.float32), name=name) for name in ("Blood 1", "lung", "gut")
    ]
    corpus = local(
        config,
        LocalFiles(files=str(paths[0]), held_out=0.1),
        LocalFiles(files=str(paths[1]), held_out="cell_type=B cell", name="lung"),
        LocalFiles(files=str(paths[2]), label="none of it"),
    )
    datasets = {"blood_1": Dataset(title="Blood"), "lung": Dataset(title="Lung")}
    build_manifest(corpus, datasets, 42, tmp_path / "m.csv")
    rows = {r.file: r for r in read_manifest(tmp_path / "m.csv")}
    assert list(rows) == ["blood_1_training", "blood_1", "lung_training", "lung", "gut"]
    assert [r.cells for r in rows.values()] == ["27", "3", "20", "10", "30"]
    assert rows["blood_1"].held_out == rows["blood_1_training"].held_out == "fraction=0.1 seed=42"
    assert rows["blood_1"].location == str(paths[0])
    assert rows["gut"].sha256 == sha256(paths[2])
    assert rows["gut"].bytes == str(paths[2].stat().st_size)


def test_local_same_stem_in_two_folders(config, counts, write_h5ad, tmp_path):
    first = write_h5ad(counts.astype(np.float32), name="cells")
    (tmp_path / "two").mkdir()
    second = tmp_path / "two" / "cells.h5ad"
    second.write_bytes(first.read_bytes())
    corpus = local(config, LocalFiles(files=str(first)), LocalFiles(files=str(second)))
    build_manifest(corpus, {}, 42, tmp_path / "m.csv")
    assert [r.file for r in read_manifest(tmp_path / "m.csv")] == ["cells", "cells_2"]


def test_local_bad_file(config, tmp_path):
    (tmp_path / "cells.h5ad").write_text("x")
    corpus = local(config, LocalFiles(files=str(tmp_path / "cells.h5ad")))
    with pytest.raises(UserError, match=r"cells\.h5ad: not an h5ad"):
        build_manifest(corpus, {}, 42, tmp_path / "m.csv")


def test_parts_are_balanced():
    generator = np.random.default_rng(0)
    sizes = (generator.lognormal(3, 1, 200) * 1000).astype(int)
    rows = [row(f"f{i}", bytes=str(size)) for i, size in enumerate(sizes)]
    parts = np.array([int(r.part) for r in dealt(rows, 8)])
    loads = np.bincount(parts, weights=sizes, minlength=8)
    assert loads.max() - loads.min() <= sizes.max()
    assert loads.max() < 1.02 * sizes.sum() / 8


def test_more_parts_than_files():
    rows = dealt([row("a", cells="5"), row("b", cells="9"), row("e", "evaluation")], 64)
    assert [r.part for r in rows] == ["1", "0", ""]


def test_nothing_to_train_on():
    with pytest.raises(UserError, match="no file is left for training"):
        dealt([row("e", "evaluation")], 2)


def test_given_manifest(config, tmp_path):
    corpus = dataclasses.replace(
        config.corpus, source="cellxgene", manifest=str(tmp_path / "lock.csv"), parts=1
    )
    datasets = {"heart": Dataset(title="Heart")}
    training = row("a", bytes="5", collection_id="c1", dataset_id="d1")
    heart = row("heart", "evaluation", dataset="heart", collection_id="c2", dataset_id="d2")
    write_manifest(tmp_path / "lock.csv", [training, heart])
    build_manifest(corpus, datasets, 42, tmp_path / "m.csv")
    assert [r.file for r in read_manifest(tmp_path / "m.csv")] == ["a", "heart"]

    for changed, message in [
        ({"collection_id": "c2"}, "shares its collection_id with the evaluation dataset 'heart'"),
        ({"dataset_id": "d2"}, "shares its dataset_id"),
        ({"file": "../a"}, "not a file name"),
        ({"file": "heart"}, "two rows are called 'heart'"),
    ]:
        write_manifest(tmp_path / "lock.csv", [dataclasses.replace(training, **changed), heart])
        with pytest.raises(UserError, match=message):
            build_manifest(corpus, datasets, 42, tmp_path / "m.csv")
    write_manifest(tmp_path / "lock.csv", [training])
    with pytest.raises(UserError, match="has no evaluation dataset 'heart'"):
        build_manifest(corpus, datasets, 42, tmp_path / "m.csv")


def test_read_errors(tmp_path):
    with pytest.raises(UserError, match="no such manifest"):
        read_manifest(tmp_path / "none.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="not a manifest"):
        read_manifest(tmp_path / "other.csv")
    write_manifest(tmp_path / "m.csv", [row("a")])
    (tmp_path / "m.csv").write_text((tmp_path / "m.csv").read_text()[:-12] + ",,,,,,,,,,,\n")
    with pytest.raises(UserError, match="damaged manifest"):
        read_manifest(tmp_path / "m.csv")
