"""Listing and resolving datasets, with a real HTTP server."""

import pytest
from loopback import uuid

from scsigmoid.corpus.discover import Service, resolve, snapshot
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
    for size in (-1, None, "12", 1.0, False, 10**16):
        assets = [{"filetype": "H5AD", "filesize": size, "url": "https://x/y"}]
        server.answers[f"/datasets/{uuid(2)}/versions"][0]["assets"] = assets
        (first, second), _ = snapshot(service, DAY)
        assert (first.dataset_version_id, second.bytes) == (uuid(1011), -1)
    assert first.url == f"{server.address}/{uuid(1011)}.h5ad"
    assert (first.cells, first.bytes, first.published) == (20, 2, "2024-05-01")
    assert (first.collection_id, first.doi) == (uuid(2001), "10.1000/1")
    assert (first.organisms, first.assays) == (("Homo sapiens",), ("10x 3' v3",))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"assets": []}, f"its version {uuid(1011)} has no h5ad file"),
        ({"tombstone": True}, "withdrawn"),
        ({"dataset_version_id": "x" * 10_000}, "xxx…' is not a CELLxGENE id"),
        ({"collection_id": "a\nb"}, "'a b' is not a CELLxGENE id"),
        ({"cell_count": -5}, "cells is '-5'"),
        ({"cell_count": "many\x1b[2J"}, "cells is 'many [2J'"),
    ],
)
def test_datasets_without_a_usable_description_are_left_out(changes, reason, service, server):
    server.answers[f"/datasets/{uuid(1)}/versions"][1].update(changes)
    versions, left_out = snapshot(service, DAY)
    assert [version.dataset_id for version in versions] == [uuid(2)]
    assert reason in left_out[uuid(1)]
    assert len(left_out[uuid(1)]) < 300
    assert left_out[uuid(1)].isprintable()
    assert snapshot(service, DAY, [uuid(1)])[1] == {uuid(1): "named in corpus.leave_out"}


@pytest.fixture
def many(server, web) -> Service:
    """Twenty datasets."""
    for number in range(1, 21):
        server.add(number, b"1")
    return Service(server.api, web)


def versions_path(number: int) -> str:
    return f"/curation/v1/datasets/{uuid(number)}/versions"


def test_number_of_missing_datasets_is_limited(many, server):
    server.script = {versions_path(number): ["404"] for number in range(3, 8)}
    assert len(snapshot(many, DAY)[0]) == 15
    server.script = {versions_path(number): ["403"] * 99 for number in range(1, 21)}
    with pytest.raises(UserError, match=r"20 of 20 datasets cannot be described.*HTTP 403"):
        snapshot(many, DAY)


def test_only_datasets_that_can_be_wanted_are_requested(many, server):
    """One that is not wanted may lack its number of cells."""
    for entry in server.answers["/datasets"][:15]:
        entry["organism"] = [{"label": "Mus musculus"}]
    del server.answers["/datasets"][0]["cell_count"]

    def is_human(entry) -> bool:
        return entry["organism"][0]["label"] == "Homo sapiens"

    versions, left_out = snapshot(many, DAY, can_be_wanted=is_human)
    assert (len(versions), len(left_out)) == (19, 1)
    assert len(server.requests) == 1 + 5


def test_a_stopped_command_continues(many, server, tmp_path):
    server.script = {versions_path(number): ["410"] * 99 for number in range(15, 21)}
    with pytest.raises(UserError, match="6 of 20 datasets"):
        snapshot(many, DAY, answers=tmp_path)
    server.script = {}
    requests = len(server.requests)
    listing = snapshot(many, DAY, answers=tmp_path)
    assert len(server.requests) == requests + 6
    assert listing == snapshot(many, DAY)
    # Answers of another day, and damaged ones, are requested again.
    requests = len(server.requests)
    snapshot(many, "2024-06-12", answers=tmp_path)
    assert len(server.requests) == requests + 20
    next(tmp_path.glob(f"*{DAY}.json")).write_text("{")
    snapshot(many, DAY, answers=tmp_path)
    assert len(server.requests) == requests + 21
    # Answers of a day that is not over are not kept.
    kept = len(list(tmp_path.iterdir()))
    snapshot(many, "2999-01-01", answers=tmp_path)
    assert len(list(tmp_path.iterdir())) == kept


@pytest.mark.parametrize("answer", [{}, [1], b"[]]", b"\xff\xfe", "id"])
def test_malformed_lists_are_refused(answer, service, server):
    if answer == "id":
        server.answers["/datasets"][0]["dataset_id"] = "../../etc/passwd"
    else:
        server.answers["/datasets"] = answer
    message = r"datasets: (expected a list|its answer is not JSON)|passwd' is not a CELLxGENE id"
    with pytest.raises(UserError, match=message):
        snapshot(service, DAY)


# What the ids of evaluation datasets stand for, and that none of them is trained on.


@pytest.mark.parametrize(
    ("identifier", "kind", "version", "collection"),
    [
        (uuid(1010), "dataset version", uuid(1010), uuid(2001)),
        (uuid(1012), "dataset version", uuid(1012), uuid(2001)),
        (uuid(1), "dataset", uuid(1012), uuid(2001)),
        (uuid(2002), "collection", uuid(1002), uuid(2002)),
    ],
)
def test_ids_of_versions_datasets_and_collections(
    identifier, kind, version, collection, service, capfd
):
    resolved = resolve(service, "heart", identifier)
    assert f"is the id of a {kind}" in capfd.readouterr().err
    assert (resolved.dataset_version_id, resolved.collection_id) == (version, collection)


def test_unknown_ids(service, server):
    server.script[f"/curation/v1/datasets/{uuid(7)}/versions"] = ["410"]
    with pytest.raises(UserError, match=r"version: not found; as dataset: withdrawn; as col"):
        resolve(service, "heart", uuid(7))
    with pytest.raises(UserError, match="as collection: contains 2 datasets, not one"):
        resolve(service, "heart", uuid(2030))
    with pytest.raises(UserError, match=r"datasets\.heart\.id: missing"):
        resolve(service, "heart", None)
    with pytest.raises(UserError, match=r"datasets\.heart\.id: '\.\./etc' is not a CELLxGENE id"):
        resolve(service, "heart", "../etc")
