"""Files of the manifest, brought to where the token stage reads them."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from loopback import uuid

from scsigmoid.cli import main
from scsigmoid.config.check import as_yaml, load
from scsigmoid.config.schema import Config, Dataset, LocalFiles
from scsigmoid.corpus.downloads import Downloads
from scsigmoid.corpus.fetch import (
    fetch_evaluation,
    fetch_part,
    release_part,
    restore_part,
)
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.labels import cell_types
from scsigmoid.corpus.manifest import build_manifest
from scsigmoid.corpus.metadata import ManifestRow, read_manifest, write_manifest
from scsigmoid.corpus.web import Web
from scsigmoid.errors import UserError
from scsigmoid.files import sha256

BLOOD = Dataset(title="Blood")


def dense(cells):
    return np.concatenate([chunk.counts.toarray() for chunk in cells.chunks()])


def made(corpus, datasets, folder: Path) -> Path:
    manifest, summary = folder / "manifest.csv", folder / "manifest.json"
    build_manifest(corpus, datasets, 42, folder / "downloads", manifest, summary)
    return manifest


def part_of(manifest: Path, part: int, corpus, folder: Path) -> None:
    fetch_part(manifest, part, corpus, 42, manifest.parent / "downloads", folder)


def evaluation(manifest: Path, name: str, corpus, folder: Path, wanted=BLOOD) -> dict:
    downloads = manifest.parent / "downloads"
    paths = folder / f"{name}.h5ad", folder / f"{name}.json"
    fetch_evaluation(manifest, name, wanted, corpus, 42, downloads, *paths)
    return json.loads((folder / f"{name}.json").read_text())


def test_embedded(config, tmp_path):
    corpus = dataclasses.replace(
        config.corpus, embedded=dataclasses.replace(config.corpus.embedded, training_cells=100)
    )
    manifest = made(corpus, config.datasets, tmp_path)
    seen = {}
    for part in range(corpus.parts):
        for run in ("a", "b"):
            part_of(manifest, part, corpus, tmp_path / run / f"part-{part:05d}")
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
    metadata = evaluation(manifest, "heart_oft", corpus, tmp_path)
    assert metadata == {
        "dataset": "heart_oft",
        "file": "heart_oft",
        "simulated": True,
        "label": "cell_type",
        "types": [],
        "title": "Heart OFT",
        "cells": corpus.embedded.evaluation_cells,
        "genes": corpus.embedded.genes,
        "sha256": sha256(tmp_path / "heart_oft.h5ad"),
        "location": "heart_oft",
    }


def test_local(config, counts, write_h5ad, tmp_path):
    path = write_h5ad(counts, name="blood")
    whole = write_h5ad(counts + 1, name="lung")
    corpus = dataclasses.replace(
        config.corpus,
        source="local",
        local=[
            LocalFiles(files=str(path), held_out=0.2),
            LocalFiles(files=str(whole), held_out=True),
        ],
    )
    datasets = {"blood": Dataset(title="Blood"), "lung": Dataset(title="Lung")}
    manifest = made(corpus, datasets, tmp_path)
    part_of(manifest, 0, corpus, tmp_path / "part-00000")
    part_of(manifest, 1, corpus, tmp_path / "part-00001")
    (row,) = read_manifest(tmp_path / "part-00000" / "files.csv")
    assert read_manifest(tmp_path / "part-00001" / "files.csv") == []
    linked = tmp_path / "part-00000" / "blood_training.h5ad"
    assert linked.resolve() == path.resolve()
    trained = open_cells(linked, row.held_out, "training")

    metadata = evaluation(manifest, "blood", corpus, tmp_path / "evaluation")
    held = open_cells(path, row.held_out, "evaluation")
    copied = open_cells(tmp_path / "evaluation" / "blood.h5ad")
    assert metadata["cells"] == copied.n_cells == 6
    assert sorted([*trained.rows, *held.rows]) == list(range(30))
    # messages number the rows of the user's file
    assert copied.obs(["scsigmoid_row"])["scsigmoid_row"].tolist() == [*map(str, held.rows)]
    np.testing.assert_array_equal(dense(copied), counts[held.rows])
    labels = cell_types(open_cells(path), "cell_type")
    assert cell_types(copied, "cell_type").tolist() == labels[held.rows].tolist()

    metadata = evaluation(manifest, "lung", corpus, tmp_path / "evaluation")
    assert metadata["cells"] == 30
    assert (tmp_path / "evaluation" / "lung.h5ad").resolve() == whole.resolve()

    with whole.open("ab") as handle:
        handle.write(b"x")
    with pytest.raises(UserError, match=r"lung\.h5ad: changed since the manifest was made"):
        evaluation(manifest, "lung", corpus, tmp_path / "again")
    path.unlink()
    with pytest.raises(UserError, match=r"blood\.h5ad: no such file"):
        part_of(manifest, 0, corpus, tmp_path / "again")
    assert not list((tmp_path / "again").glob("*"))


NO_MMD = {"mmd": {"datasets": []}, "scib": {"neighbours": 13}}


@pytest.mark.parametrize(
    ("types", "settings", "message"),
    [
        ([6, 6, 2], {}, r"13 of 14 .*\(3 types; the largest: 6 'a', 5 'b'\).*scIB.*15.*; MMD.*10"),
        ([40, 9], {}, r"too few: MMD needs two types of at least 10 \(evaluation\.mmd\.minimum"),
        ([40, 11], {}, ""),
        ([40, 9], {"mmd": {"datasets": []}}, ""),
        ([40, 9], {"mmd": {"minimum_cells": 8}}, ""),
        ([8, 7], NO_MMD, "too few: UMAP needs more than 15"),
        ([8, 7], {**NO_MMD, "umap": {"datasets": []}}, ""),
    ],
)
def test_cells_that_are_too_few_for_the_scores(
    types, settings, message, write_h5ad, tmp_path, capfd
):
    """Of every metric that is computed, and before anything is trained; one cell has no type."""
    kinds = [kind for kind, count in zip("abc", types, strict=False) for _ in range(count)]
    kinds[types[0]] = None
    path = write_h5ad(np.ones((len(kinds), 12), np.float32), obs={"cell_type": kinds}, name="blood")
    other = write_h5ad(np.full((30, 12), 2, np.float32), name="other")
    local = [{"files": str(path), "held_out": True}, {"files": str(other)}]
    overrides = {"corpus": {"source": "local", "local": local}, "evaluation": settings}
    stored, manifest = tmp_path / "config.yaml", tmp_path / "manifest.csv"
    stored.write_text(as_yaml(load(overrides=overrides)))
    given = ["--configuration", str(stored)]
    summary = ["--summary", str(tmp_path / "manifest.json")]
    assert main(["manifest", *given, "--output", str(manifest), *summary]) == 0
    capfd.readouterr()
    outputs = tmp_path / "made" / "blood.h5ad", tmp_path / "made" / "blood.json"
    written = ["--output", str(outputs[0]), "--metadata", str(outputs[1])]
    command = ["fetch", "--manifest", str(manifest), "--dataset", "blood", *given, *written]
    assert main(command) == bool(message)
    errors = [line for line in capfd.readouterr().err.splitlines() if "error" in line]
    assert len(errors) == bool(message)
    if message:
        assert errors[0].startswith(f"scsigmoid: error: {path}: ")
        assert re.search(message, errors[0])
    assert [file.exists() for file in outputs] == [not message] * 2


def fetch(config: Config, folder: Path, manifest: Path, *options: object) -> int:
    """Run the command with the stored configuration."""
    (folder / "config.yaml").write_text(as_yaml(config))
    given = ["--manifest", manifest, "--configuration", folder / "config.yaml", *options]
    return main(["fetch", *map(str, given)])


@pytest.mark.parametrize("where", ["absolute", "relative", "link"])
def test_files_outside_the_output_stay(where, config, counts, write_h5ad, tmp_path, capfd):
    """Of names that lead there, and of a manifest that was changed by hand."""
    precious = write_h5ad(counts, name="precious")
    content = precious.read_bytes()
    name = {"absolute": str(precious.with_suffix("")), "relative": "../precious"}.get(where, "a")
    row = ManifestRow(
        file=name,
        role="training",
        part="0",
        source="local",
        location=str(precious),
        bytes=str(len(content)),
        sha256=sha256(precious),
    )
    rows = [row] * (2 if where == "link" else 1)
    write_manifest(tmp_path / "m.csv", rows)
    before = set(tmp_path.rglob("*"))
    output = tmp_path / "part"
    assert fetch(config, tmp_path, tmp_path / "m.csv", "--part", 0, "--output", output) == 1
    assert precious.read_bytes() == content
    assert not precious.is_symlink()
    assert set(tmp_path.rglob("*")) == before | {tmp_path / "config.yaml"}
    assert capfd.readouterr().err.count("\n") == 1


def test_outputs_that_are_not_ours(config, tmp_path, capfd):
    """A folder with other files, an h5ad file without metadata, a part that there is none of."""
    manifest = made(config.corpus, config.datasets, tmp_path)
    for name in ("folder", "cells"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious.h5ad").write_bytes(b"x")
    h5ad, metadata = tmp_path / "cells" / "precious.h5ad", tmp_path / "cells" / "precious.json"
    for options in (
        ["--part", 0, "--output", tmp_path / "folder"],
        ["--dataset", "heart_oft", "--output", h5ad, "--metadata", metadata],
        ["--part", 99, "--output", tmp_path / "part"],
        ["--part", "²", "--output", tmp_path / "part"],
        ["--dataset", "kidney", "--output", tmp_path / "k", "--metadata", tmp_path / "l"],
    ):
        assert fetch(config, tmp_path, manifest, *options) == 1
        errors = capfd.readouterr().err
        assert "scsigmoid: error: " in errors
        assert "unexpected" not in errors
    assert {path.name for path in tmp_path.rglob("*.h5ad")} == {"precious.h5ad"}
    assert {path.read_bytes() for path in tmp_path.rglob("precious.h5ad")} == {b"x"}
    assert not (tmp_path / "part").exists()


@pytest.fixture
def files(server, write_h5ad, counts) -> list[str]:
    """Four published files of 30 cells, of which the second is evaluated; their paths."""
    content = write_h5ad(counts, name="served").read_bytes()
    return [server.add(number, content, cells=30) for number in range(1, 5)]


HEART = {"heart": Dataset(title="Heart", id=uuid(1002))}


def test_failed_downloads(corpus, server, files, tmp_path):
    manifest = made(corpus, HEART, tmp_path)
    # one file fails, and another; the third is there the next time, and no part is half there
    server.script[files[0]] = ["410"]
    server.script[files[3]] = ["cut", "404"]
    with pytest.raises(UserError, match=rf"{files[0]}: withdrawn; .*\(1 more files failed"):
        part_of(manifest, 0, corpus, tmp_path / "part-00000")
    assert not (tmp_path / "part-00000").exists()
    part_of(manifest, 0, corpus, tmp_path / "part-00000")
    assert len(server.asked(files[2])) == 1
    done = read_manifest(tmp_path / "part-00000" / "files.csv")
    assert [row.cells for row in done] == ["30"] * 3
    for row in done:
        assert row.sha256 == sha256(tmp_path / "part-00000" / f"{row.file}.h5ad")

    # made again, divided otherwise, nothing is downloaded again
    requests = len(server.requests)
    part_of(manifest, 0, corpus, tmp_path / "part-00000")
    assert len(server.requests) == requests

    # with the hashes known, another file of the same size is found out
    locked = tmp_path / "locked.csv"
    write_manifest(locked, done)
    other = tmp_path / "other"
    content = server.files[files[0]]
    server.files[files[0]] = content[:-1] + bytes([content[-1] ^ 1])
    with pytest.raises(UserError, match=rf"{files[0]}: its SHA-256 is not the one in the manif"):
        fetch_part(locked, 0, corpus, 42, other / "downloads", other / "part")


def test_raw_files_that_may_go(corpus, server, files, write_h5ad, counts, tmp_path):
    """The part and what it links to; not the evaluated file, nor a user's own one."""
    manifest = made(corpus, HEART, tmp_path)
    evaluation(manifest, "heart", corpus, tmp_path / "evaluation")
    own = write_h5ad(counts, name="own")
    row = ManifestRow(
        file="own",
        role="training",
        part="0",
        source="local",
        location=str(own),
        bytes=str(own.stat().st_size),
        sha256=sha256(own),
    )
    write_manifest(manifest, [*read_manifest(manifest), row])
    part_of(manifest, 0, corpus, tmp_path / "part-00000")
    # a link that leads to a file of the user's is theirs
    linked = tmp_path / "part-00000" / f"{uuid(1003)}.h5ad"
    linked.unlink()
    linked.symlink_to(own)
    release_part(tmp_path / "part-00000", Downloads(tmp_path / "downloads", Web.of(corpus)))
    assert own.exists()
    linked.unlink()
    held = [path.name for path in (tmp_path / "downloads").glob("*.h5ad")]
    assert held == [f"{uuid(1002)}.h5ad"]
    assert open_cells(tmp_path / "evaluation" / "heart.h5ad").n_cells == 30

    # needed again, they are downloaded again, wherever to, and must be the same
    content = server.files[files[0]]
    server.files[files[0]] = content[:-1] + bytes([content[-1] ^ 1])
    elsewhere = Downloads(tmp_path / "elsewhere", Web.of(corpus))
    with pytest.raises(UserError, match=r"SHA-256 is not the one in the manifest"):
        restore_part(tmp_path / "part-00000", elsewhere)
    server.files[files[0]] = content
    restore_part(tmp_path / "part-00000", elsewhere)
    for row in read_manifest(tmp_path / "part-00000" / "files.csv"):
        assert sha256(tmp_path / "part-00000" / f"{row.file}.h5ad") == row.sha256
    requests = len(server.requests)
    restore_part(tmp_path / "part-00000", elsewhere)
    assert len(server.requests) == requests


def test_share_of_files_without_counts_is_limited(corpus, server, write_h5ad, counts, tmp_path):
    server.add(2, write_h5ad(counts, name="served").read_bytes(), cells=150)
    server.add(3, server.files[f"/{uuid(1002)}.h5ad"], cells=150)
    for number in (4, 5):
        server.add(number, write_h5ad(np.log1p(counts) / 3, name="peaks").read_bytes(), cells=5)
    manifest = made(corpus, HEART, tmp_path)
    message = rf"2 training files with 10 of 160 cells have no raw counts: {uuid(1004)}, "
    with pytest.raises(UserError, match=message):
        part_of(manifest, 0, corpus, tmp_path / "part")
    assert not (tmp_path / "part").exists()
