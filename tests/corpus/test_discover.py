"""Listing dataset versions and finding evaluation datasets, with a real HTTP server."""

import pytest
from loopback import uuid, versions_path

from scsigmoid.config.schema import Dataset
from scsigmoid.corpus.discover import find_evaluation_dataset, list_versions
from scsigmoid.errors import UserError

DAY = "2024-06-11"


def test_newest_version_of_the_day(service, server):
    """The server is busy, and a size is unknown."""
    server.script[versions_path(1)] = ["503", "429 0", "drop"]
    for size in (-1, None, "12", False, 10**16):
        assets = [{"filetype": "H5AD", "filesize": size, "url": "https://x/y"}]
        server.answers[f"/datasets/{uuid(2)}/versions"][0]["assets"] = assets
        (first, second), _ = list_versions(service, DAY)
        assert (first.row.file, second.row.bytes) == (uuid(1011), "")
    assert (first.row.cells, first.row.bytes, first.row.published) == ("20", "2", "2024-05-01")
    assert (first.row.collection_id, first.row.doi) == (uuid(2001), "10.1000/1")
    assert (first.organisms, first.assays) == (["Homo sapiens"], {"10x 3' v3": "EFO:0009922"})


def find(service, identifier):
    return find_evaluation_dataset(
        service, "heart", Dataset.model_construct(title="Heart", id=identifier)
    )


@pytest.mark.parametrize(
    ("identifier", "version", "collection"),
    [  # ids of a version, of a dataset, and of a collection
        (uuid(1010), uuid(1010), uuid(2001)),
        (uuid(1), uuid(1012), uuid(2001)),
        (uuid(2002), uuid(1002), uuid(2002)),
    ],
)
def test_ids_of_evaluation_datasets(identifier, version, collection, service):
    row = find(service, identifier)
    assert (row.dataset_version_id, row.collection_id) == (version, collection)


def test_unknown_ids(service, server):
    server.script[versions_path(7)] = ["410"]
    for identifier, message in (
        (uuid(7), "version: not found; as dataset: withdrawn; as collection: not found"),
        (uuid(2030), "as collection: contains 2 datasets, not one"),
        (None, "'None' is not a CELLxGENE id"),
        ("../etc", r"'\.\./etc' is not a CELLxGENE id"),
    ):
        with pytest.raises(UserError, match=rf"datasets\.heart\.id: .*{message}"):
            find(service, identifier)
