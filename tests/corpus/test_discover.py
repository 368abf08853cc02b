"""Listing dataset versions and finding evaluation datasets, with a real HTTP server."""

import pytest
from loopback import uuid

from scsigmoid.config.schema import Dataset
from scsigmoid.corpus.discover import Service, find_evaluation_dataset, list_versions
from scsigmoid.errors import UserError

DAY = "2024-06-11"


@pytest.fixture
def service(server, web) -> Service:
    server.add(1, b"1", version=10, published="2024-01-01")
    server.add(1, b"22", version=11, published="2024-05-01", cells=20)
    server.add(1, b"333", version=12, published="2024-08-01")
    server.add(2, b"1", published="2024-06-11")
    for later in (3, 9):
        server.add(later, b"1", collection=30, published="2024-06-12")
    return Service(server.api, web)


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


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"assets": []}, f"its version {uuid(1011)} has no h5ad file"),
        ({"tombstone": True}, "withdrawn"),
        ({"dataset_version_id": "x" * 10_000}, "xxx…' is not a CELLxGENE id"),
        ({"collection_id": uuid(5) + "\n"}, f"'{uuid(5)}' is not a CELLxGENE id"),
        ({"cell_count": "many\x1b[2J"}, "cells is 'many [2J'"),
    ],
)
def test_datasets_without_a_usable_description_are_left_out(changes, reason, service, server):
    server.answers[f"/datasets/{uuid(1)}/versions"][1].update(changes)
    versions, left_out = list_versions(service, DAY)
    assert [version.row.dataset_id for version in versions] == [uuid(2)]
    assert reason in left_out[uuid(1)]
    assert len(left_out[uuid(1)]) < 300
    assert left_out[uuid(1)].isprintable()
    assert list_versions(service, DAY, [uuid(1)])[1] == {uuid(1): "named in corpus.leave_out"}


@pytest.fixture
def many(server, web) -> Service:
    """Twenty datasets."""
    for number in range(1, 21):
        server.add(number, b"1")
    return Service(server.api, web)


def versions_path(number: int) -> str:
    return f"/curation/v1/datasets/{uuid(number)}/versions"


def test_only_datasets_that_can_be_wanted_are_requested(many, server):
    """A dataset that is not wanted may lack its number of cells."""
    listed = server.answers["/datasets"]
    del listed[0]["cell_count"]
    versions, left_out = list_versions(many, DAY, can_be_wanted=listed[15:].__contains__)
    assert (len(versions), len(left_out)) == (19, 1)
    assert len(server.requests) == 1 + 5


def test_a_stopped_command_continues(many, server, tmp_path):
    """The number of datasets that the service fails to describe is limited."""
    server.script = {versions_path(number): ["404"] for number in range(3, 8)}
    assert len(list_versions(many, DAY)[0]) == 15
    server.script = {versions_path(number): ["403"] * 99 for number in range(15, 21)}
    with pytest.raises(UserError, match=r"6 of 20 datasets cannot be described.*HTTP 403"):
        list_versions(many, DAY, cache=tmp_path)
    server.script = {}

    def count_requested(day: str) -> int:
        server.requests.clear()
        assert list_versions(many, day, cache=tmp_path) == list_versions(many, day)
        return len(server.requests) - 1 - 21  # without the cache: the list and 20 datasets

    assert count_requested(DAY) == 6
    # Versions of another day, and damaged files, are requested again.
    assert count_requested("2024-06-12") == 20
    next(tmp_path.glob(f"*{DAY}.json")).write_text("{")
    assert count_requested(DAY) == 1
    # Versions of a day that is not over are not cached.
    assert count_requested("2999-01-01") == count_requested("2999-01-01") == 20


@pytest.mark.parametrize("answer", [{}, [1], b"[]]", [{"dataset_id": "../../etc/passwd"}]])
def test_malformed_lists_are_refused(answer, service, server):
    if answer and isinstance(answer[0], dict):
        answer[0]["published_at"] = DAY
    server.answers["/datasets"] = answer
    message = r"datasets: (expected a list|its answer is not JSON)|passwd' is not a CELLxGENE id"
    with pytest.raises(UserError, match=message):
        list_versions(service, DAY)


def find(service, identifier):
    return find_evaluation_dataset(service, "heart", Dataset(title="Heart", id=identifier))


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
