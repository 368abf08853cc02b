"""The Census as a source, through a stand-in for the few calls that its package is asked.

The stand-in has the shapes of cellxgene-census 1.17; the real service is not reached by any test.
"""

import dataclasses
import sys
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from loopback import uuid

from scsigmoid.config.check import load
from scsigmoid.config.schema import Dataset
from scsigmoid.corpus import census, manifest
from scsigmoid.corpus.metadata import read_manifest
from scsigmoid.errors import UserError

TABLE = [
    {
        "soma_joinid": number,
        "collection_id": uuid(2000 + number),
        "collection_doi": None if number == 1 else f"10.1000/{number}",
        "dataset_id": uuid(number),
        "dataset_version_id": uuid(1000 + number),
        "dataset_title": f"Dataset\\n{number}",
        "dataset_h5ad_path": f"{uuid(number)}.h5ad",
        "dataset_total_cell_count": 10 * number,
    }
    for number in (3, 1, 2, 4)
]
CELLS = {
    "homo_sapiens": [(1, "10x 3' v3"), (1, "10x 3' v2"), (1, "10x 3' v3"), (3, "Smart-seq2")],
    "mus_musculus": [(2, "10x 3' v3"), (3, "Smart-seq2")],
}


class Frame:
    """A SOMA data frame: ``read`` gives batches, whose strings have dictionaries of their own."""

    def __init__(self, rows: list[dict[str, Any]], *, encoded: bool = False) -> None:
        self.rows, self.encoded = rows, encoded

    def read(self, column_names: list[str] | None = None) -> Any:
        batches = []
        for start in range(0, len(self.rows), 2):
            table = pa.Table.from_pylist(self.rows[start : start + 2])
            if self.encoded:
                columns = [table[name].dictionary_encode() for name in table.column_names]
                table = pa.table(columns, names=table.column_names)
            batches.append(table.select(column_names) if column_names else table)
        return Batches(batches)


class Batches(list):
    def concat(self) -> pa.Table:
        return pa.concat_tables(self)


@pytest.fixture
def package(monkeypatch):
    """Stands in for the package."""

    def description(name: str) -> dict[str, Any]:
        if name != "2024-07-01":
            raise KeyError("Unable to locate Census version")
        place = "s3://bucket/cell-census/2024-07-01/h5ads/"
        return {"h5ads": {"uri": place, "s3_region": "us-west-2"}}

    @contextmanager
    def open_soma(*, census_version: str):
        assert census_version == "2024-07-01"
        experiments = {}
        for organism, cells in CELLS.items():
            rows = [{"dataset_id": uuid(dataset), "assay": assay} for dataset, assay in cells]
            experiments[organism] = SimpleNamespace(obs=Frame(rows, encoded=True))
        yield {"census_info": {"datasets": Frame(TABLE)}, "census_data": experiments}

    stand_in = SimpleNamespace(get_census_version_description=description, open_soma=open_soma)
    monkeypatch.setitem(sys.modules, "cellxgene_census", stand_in)
    return stand_in


def test_a_release(package):
    listing = census.release("2024-07-01")
    assert [v.dataset_id for v in listing.versions] == [uuid(1), uuid(2), uuid(3)]
    assert listing.left_out == {uuid(4): "no cell of it is in the Census"}
    first, second, third = listing.versions
    assert first.dataset_version_id == uuid(1001)
    assert (first.doi, first.cells, first.bytes) == ("", 10, -1)
    assert first.assays == ("10x 3' v2", "10x 3' v3")
    assert (first.organisms, second.organisms) == (("Homo sapiens",), ("Mus musculus",))
    assert third.organisms == ("Homo sapiens", "Mus musculus")
    place = "https://bucket.s3.us-west-2.amazonaws.com/cell-census/2024-07-01/h5ads/"
    assert first.url == f"{place}{uuid(1)}.h5ad"


def test_the_paths_of_a_release_are_on_an_allowed_host():
    """The bucket of the public releases is among the hosts of config.yaml."""
    place = census.https("s3://cellxgene-census-public-us-west-2/cell-census/x/h5ads", "us-west-2")
    assert place.split("/")[2] in load().corpus.hosts
    for uri, region in [("/a/b", "x"), ("s3:///a", "x"), ("s3://a/b", "")]:
        with pytest.raises(UserError, match="expected a public S3 bucket"):
            census.https(uri, region)


def test_a_manifest_from_a_release(package, server, corpus, monkeypatch, tmp_path):
    """Training files of the release, evaluation datasets of Discover, sizes asked for."""
    server.add(3, b"333", collection=3)
    server.add(8, b"8", collection=77)
    server.files[f"/{uuid(1)}.h5ad"] = b"1" * 11
    monkeypatch.setattr(census, "https", lambda uri, region: server.address + "/")
    corpus = dataclasses.replace(corpus, source="census", census_version="2024-07-01")
    datasets = {"heart": Dataset(title="Heart", id=uuid(1008))}
    paths = (tmp_path / "downloads", tmp_path / "m.csv", tmp_path / "m.json")
    lines = manifest.build_manifest(corpus, datasets, 42, *paths)
    training, heart = read_manifest(tmp_path / "m.csv")
    assert (training.file, training.source, training.bytes) == (uuid(1001), "census", "11")
    assert training.snapshot == "2024-07-01"
    assert (heart.source, heart.location) == ("cellxgene", f"{server.address}/{uuid(1008)}.h5ad")
    assert lines[0] == "Corpus: CELLxGENE Census 2024-07-01"


def test_what_can_go_wrong(package, monkeypatch):
    with pytest.raises(UserError, match=r"corpus\.census_version: 'none' cannot be opened"):
        census.release("none")

    def unreachable(**_: str) -> None:
        raise RuntimeError("TileDB\ninternal: no route")

    package.open_soma = unreachable
    with pytest.raises(UserError, match="RuntimeError: TileDB internal: no route; check the netw"):
        census.release("2024-07-01")
    monkeypatch.setitem(sys.modules, "cellxgene_census", None)
    with pytest.raises(UserError, match="pip install cellxgene-census"):
        census.release("2024-07-01")
