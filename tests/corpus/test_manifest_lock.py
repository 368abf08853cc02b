"""A manifest given back as a lock: the same versions, or by name those that are gone or changed."""

import dataclasses

import pytest
from loopback import uuid

from scsigmoid.config.schema import Dataset
from scsigmoid.corpus.manifest import build_manifest, write_lock
from scsigmoid.corpus.metadata import (
    ManifestRow,
    Metadata,
    read_manifest,
    write_manifest,
    write_metadata,
)
from scsigmoid.errors import UserError

HEART = {"heart": Dataset(title="Heart", id=uuid(1003))}


@pytest.fixture
def lock(server, corpus, tmp_path):
    """A lock of two training files and an evaluation dataset, and the corpus that it makes."""
    for number in (1, 2, 3):
        server.add(number, b"x" * number)
    build(corpus, HEART, tmp_path / "lock.csv")
    return dataclasses.replace(corpus, manifest=str(tmp_path / "lock.csv"))


def build(corpus, datasets, path):
    account = path.with_suffix(".json")
    return build_manifest(corpus, datasets, 42, path.parent / "downloads", path, account)


def test_the_same_versions_again(lock, server, tmp_path):
    """Newer versions, and a service that lists nothing any more, change nothing."""
    server.add(1, b"newer", version=11, published="2024-02-01")
    server.answers.clear()
    lines = build(lock, HEART, tmp_path / "m.csv")
    assert read_manifest(tmp_path / "m.csv") == read_manifest(tmp_path / "lock.csv")
    assert "the lock" in lines[0]


def test_gone_and_changed_files_are_named(lock, server, tmp_path):
    server.files[f"/{uuid(1001)}.h5ad"] = b"changed"
    del server.files[f"/{uuid(1003)}.h5ad"]
    with pytest.raises(UserError) as caught:
        build(lock, HEART, tmp_path / "m.csv")
    message = str(caught.value)
    assert message.startswith(f"{lock.manifest}: 2 of 3 files are gone or changed: ")
    assert f"{uuid(1001)} (changed from 1 to 7 bytes)" in message
    assert f"{uuid(1003)} (not found)" in message
    # what was downloaded before need not be offered any more
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / f"{uuid(1003)}.h5ad").write_bytes(b"xxx")
    without = dataclasses.replace(lock, leave_out=[uuid(1001)])
    build(without, HEART, tmp_path / "m.csv")
    assert [row.file for row in read_manifest(tmp_path / "m.csv")] == [uuid(1002), "heart"]


def test_a_lock_must_fit_the_configuration(lock, tmp_path):
    first, second, heart = read_manifest(lock.manifest)
    for changed, message in [
        ({"collection_id": heart.collection_id}, "is of the collection of heart"),
        ({"dataset_id": heart.dataset_id}, "is of the dataset of heart"),
        ({"file": "../a"}, "not a file name"),
        ({"file": "heart"}, "two rows are called 'heart'"),
        ({"dataset_version_id": "../../a"}, "'../../a' is not a CELLxGENE id"),
        ({"location": "https://example.org/a"}, "is not allowed"),
        ({"source": "local", "location": "/etc/passwd"}, "only files of CELLxGENE"),
    ]:
        write_manifest(lock.manifest, [dataclasses.replace(first, **changed), second, heart])
        with pytest.raises(UserError, match=message):
            build(lock, HEART, tmp_path / "m.csv")
    write_manifest(lock.manifest, [first, heart])
    with pytest.raises(UserError, match="has no evaluation dataset 'lung'"):
        build(lock, {"lung": Dataset(title="Lung")}, tmp_path / "m.csv")
    with pytest.raises(UserError, match=f"evaluation dataset 'heart' is not {uuid(9)}; correct"):
        build(lock, {"heart": Dataset(title="Heart", id=uuid(9))}, tmp_path / "m.csv")
    # an evaluation dataset that is not evaluated this time is not trained on either
    write_manifest(
        lock.manifest, [first, heart, dataclasses.replace(heart, dataset="lung", file="l")]
    )
    build(lock, {"heart": Dataset(title="New title")}, tmp_path / "m.csv")
    assert [row.file for row in read_manifest(tmp_path / "m.csv")] == [first.file, "heart"]
    assert read_manifest(tmp_path / "m.csv")[1].title == "New title"


def test_the_lock_gets_every_hash(tmp_path):
    rows = [
        ManifestRow(file=name, role=role, source="cellxgene", location="", cells="1")
        for name, role in [("b", "training"), ("a", "training"), ("heart", "evaluation")]
    ]
    write_manifest(tmp_path / "m.csv", rows)
    for row in rows[:2]:
        done = dataclasses.replace(row, sha256=row.file * 64, cells="5", bytes="7")
        write_manifest(tmp_path / f"{row.file}.csv", [done])
    facts = Metadata(
        file="heart", simulated=False, label="", types=[], title="", cells=9, genes=2,
        sha256="c" * 64, location="",
    )  # fmt: skip
    write_metadata(tmp_path / "heart.json", facts)
    parts = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for missing in ((parts[:1], [tmp_path / "heart.json"]), (parts, [])):
        with pytest.raises(UserError, match=r"m\.csv: nothing is known of its .* file '(b|heart)'"):
            write_lock(tmp_path / "m.csv", *missing, tmp_path / "lock.csv")
    assert not (tmp_path / "lock.csv").exists()
    write_lock(tmp_path / "m.csv", parts, [tmp_path / "heart.json"], tmp_path / "lock.csv")
    assert [
        (row.file, row.cells, row.sha256[0]) for row in read_manifest(tmp_path / "lock.csv")
    ] == [
        ("b", "5", "b"),
        ("a", "5", "a"),
        ("heart", "9", "c"),
    ]
