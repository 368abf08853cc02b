"""What the ids of evaluation datasets stand for, and that none of them is trained on."""

import dataclasses

import pytest
from loopback import uuid

from scsigmoid.corpus.discover import Service, Version, resolve
from scsigmoid.corpus.selection import check_separate, held_out_reason
from scsigmoid.errors import UserError


@pytest.fixture
def service(server, web) -> Service:
    server.add(1, b"1", version=10, published="2024-01-01")
    server.add(1, b"2", version=11, published="2024-05-01")
    server.add(1, b"3", version=12, published="2024-08-01")
    server.add(2, b"1")
    server.add(3, b"1", collection=30)
    server.add(4, b"1", collection=30)
    return Service(server.api, web)


def resolved(service: Service, identifier: str | None):
    return resolve(service, "heart", identifier)


@pytest.mark.parametrize(
    ("identifier", "kind", "version", "collection"),
    [
        (uuid(1010), "dataset version", uuid(1010), uuid(2001)),
        (uuid(1012), "dataset version", uuid(1012), uuid(2001)),
        (uuid(1), "dataset", uuid(1012), uuid(2001)),
        (uuid(2002), "collection", uuid(1002), uuid(2002)),
    ],
)
def test_version_then_dataset_then_collection(identifier, kind, version, collection, service):
    found = resolved(service, identifier)
    assert found.kind == kind
    assert (found.version.dataset_version_id, found.version.collection_id) == (version, collection)


def test_the_list_of_today_tells_a_collection_that_the_version_does_not(service, server):
    del server.answers[f"/dataset_versions/{uuid(1010)}"]["collection_id"]
    assert resolved(service, uuid(1010)).version.collection_id == uuid(2001)


def test_an_id_that_fits_nothing_is_accounted_for(service, server):
    with pytest.raises(UserError) as caught:
        resolved(service, uuid(7))
    assert str(caught.value) == (
        f"datasets.heart.id: {uuid(7)} fits nothing at {service.api} (as dataset version: not "
        "found; as dataset: not found; as collection: not found); correct the id"
    )
    server.script[f"/curation/v1/dataset_versions/{uuid(7)}"] = ["403"]
    server.script[f"/curation/v1/datasets/{uuid(7)}/versions"] = ["410"]
    with pytest.raises(UserError, match=r"version: may not be read; as dataset: withdrawn; as col"):
        resolved(service, uuid(7))
    with pytest.raises(UserError, match="as collection: holds 2 datasets, not one"):
        resolved(service, uuid(2030))
    with pytest.raises(UserError, match=r"datasets\.heart\.id: missing"):
        resolved(service, None)
    with pytest.raises(UserError, match=r"datasets\.heart\.id: '\.\./etc' is not a CELLxGENE id"):
        resolved(service, "../etc")


def test_an_answer_about_something_else_is_no_answer(service, server):
    server.answers[f"/dataset_versions/{uuid(7)}"] = server.answers[
        f"/dataset_versions/{uuid(1010)}"
    ]
    with pytest.raises(UserError, match="version: the answer is of another version"):
        resolved(service, uuid(7))


def test_held_out_whatever_the_version():
    heart = Version(
        dataset_id=uuid(1),
        dataset_version_id=uuid(11),
        collection_id=uuid(21),
        title="",
        organisms=(),
        cells=1,
        bytes=1,
        url="",
    )
    evaluation = {"heart": heart}
    other_version = dataclasses.replace(heart, dataset_version_id=uuid(12), collection_id="")
    sibling = dataclasses.replace(heart, dataset_id=uuid(2))
    stranger = dataclasses.replace(sibling, collection_id=uuid(22))
    unknown = dataclasses.replace(sibling, collection_id="")
    assert held_out_reason(other_version, evaluation) == "dataset of heart"
    assert held_out_reason(sibling, evaluation) == "collection of heart"
    assert held_out_reason(stranger, evaluation) == ""
    # a collection that is not known must not match another that is not known
    nowhere = {"heart": dataclasses.replace(heart, collection_id="")}
    assert held_out_reason(unknown, nowhere) == ""
    check_separate([stranger, unknown], evaluation, "lock.csv")
    with pytest.raises(UserError, match=r"lock\.csv: training file of dataset .* is of the coll"):
        check_separate([stranger, sibling], evaluation, "lock.csv")
