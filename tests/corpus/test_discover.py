"""The snapshot rule and the held-out rules, on a service that lives in a dictionary."""

import dataclasses

import pytest

from scsigmoid.config.check import load
from scsigmoid.corpus.discover import (
    Version,
    check_identifier,
    chosen,
    resolve,
    snapshot,
    training_versions,
)
from scsigmoid.errors import UserError


def uuid(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012d}"


def entry(dataset: int, version: int, day: str, collection: int | None, cells: int = 10):
    described = {
        "dataset_id": uuid(dataset),
        "dataset_version_id": uuid(version),
        "title": f"title {version}",
        "published_at": f"{day}T10:00:00+00:00",
        "organism": [{"label": "Homo sapiens", "ontology_term_id": "NCBITaxon:9606"}],
        "cell_count": cells,
        "assets": [
            {"filetype": "RDS", "url": "https://h/x.rds", "filesize": 1},
            {"filetype": "H5AD", "url": f"https://h/{uuid(version)}.h5ad", "filesize": 1000},
        ],
        "citation": "unknown fields are ignored",
    }
    return described | ({"collection_id": uuid(collection)} if collection else {})


class Fake:
    """Answers as the API does, both shapes of ``/versions`` included."""

    api = "https://h"

    def __init__(self):
        self.listed = [
            entry(1, 12, "2024-01-01", 91),
            entry(2, 21, "2024-06-11", 92),
            entry(3, 31, "2024-06-12", 93),
        ]
        self.history = {
            uuid(1): [
                entry(1, 10, "2024-01-01", None),
                entry(1, 11, "2024-05-01", None),
                entry(1, 12, "2024-08-01", None),
            ],
            uuid(2): {"datasets": [entry(2, 21, "2024-06-11", None)]},
            uuid(3): [entry(3, 31, "2024-06-12", None)],
        }  # fmt: skip
        self.asked: list[str] = []

    def get(self, path):
        self.asked.append(path)
        kind, _, identifier = path.partition("/")
        if path == "datasets":
            return self.listed
        if kind == "dataset_versions":
            found = [
                version
                for versions in self.history.values()
                for version in (versions if isinstance(versions, list) else versions["datasets"])
                if version["dataset_version_id"] == identifier
            ]
            return found[0] if found else None
        if kind == "collections":
            members = [item for item in self.listed if item["collection_id"] == identifier]
            return {"datasets": members} if members else None
        raise AssertionError(path)

    def versions(self, dataset_id):
        answer = self.history.get(dataset_id) or []
        return answer["datasets"] if isinstance(answer, dict) else answer


def test_snapshot_takes_the_newest_version_of_the_day():
    found = snapshot(Fake(), "2024-06-11")
    assert [v.dataset_version_id for v in found] == [uuid(11), uuid(21)]
    assert [v.collection_id for v in found] == [uuid(91), uuid(92)]
    assert found[0].url.endswith(f"{uuid(11)}.h5ad")
    assert found[0].bytes == 1000
    assert found[0].organisms == ("Homo sapiens",)


def test_snapshot_errors():
    with pytest.raises(UserError, match=r"corpus\.snapshot: expected a date as 2024-06-11"):
        snapshot(Fake(), "11 June")
    with pytest.raises(UserError, match="lists no dataset published by 2001-01-01"):
        snapshot(Fake(), "2001-01-01")


@pytest.mark.parametrize(
    ("identifier", "version", "collection"),
    [(uuid(10), uuid(10), uuid(91)), (uuid(1), uuid(11), uuid(91)), (uuid(92), uuid(21), uuid(92))],
)
def test_resolve_version_dataset_collection(identifier, version, collection):
    service = Fake()
    found = resolve(service, snapshot(service, "2024-06-11"), "heart", identifier, "2024-06-11")
    assert (found.dataset_version_id, found.collection_id) == (version, collection)


def test_resolve_fails_loudly():
    service = Fake()
    with pytest.raises(UserError, match=r"datasets\.heart\.id: .* not found as dataset version, "):
        resolve(service, [], "heart", uuid(7), "2024-06-11")
    service.listed.append(entry(4, 41, "2024-01-01", 92))
    with pytest.raises(UserError, match="which holds 2 datasets, not one"):
        resolve(service, [], "heart", uuid(92), "2024-06-11")
    with pytest.raises(UserError, match=r"datasets\.heart\.id: missing"):
        resolve(service, [], "heart", None, "2024-06-11")
    with pytest.raises(UserError, match=r"datasets\.heart\.id: '\.\./etc' is not a CELLxGENE id"):
        resolve(service, [], "heart", "../etc", "2024-06-11")


def version(number: int, **values) -> Version:
    standard = Version(
        dataset_id=uuid(number),
        dataset_version_id=uuid(100 + number),
        collection_id=uuid(200 + number),
        title="",
        organisms=("Homo sapiens",),
        cells=100,
        bytes=10**9,
        url="",
        published="",
    )
    return dataclasses.replace(standard, **values)


def test_training_leaves_out_what_is_held_out():
    corpus = load(overrides={"preset": "paper"}).corpus
    versions = [
        version(1),
        version(2, dataset_id=uuid(50)),  # the evaluation dataset, another version
        version(3, collection_id=uuid(60)),  # of its publication
        version(4, organisms=("Mus musculus",)),
        version(5, organisms=("Homo sapiens", "Mus musculus")),
        version(6, bytes=-1),
    ]
    evaluation = {"heart": version(9, dataset_id=uuid(50), collection_id=uuid(60))}
    kept = training_versions(versions, evaluation, corpus, 42)
    assert [v.dataset_id for v in kept] == [uuid(1), uuid(6)]
    # a collection that is not known must not match another that is not known
    unknown = [dataclasses.replace(v, collection_id="") for v in versions[:1]]
    nowhere = {"heart": dataclasses.replace(evaluation["heart"], collection_id="")}
    assert training_versions(unknown, nowhere, corpus, 42) == unknown
    small = dataclasses.replace(corpus, maximum_file_gb=0.5)
    assert training_versions([version(1), version(2, bytes=10**8)], {}, small, 42) == [
        version(2, bytes=10**8)
    ]


def test_choice_by_seed():
    versions = [version(i, cells=10 * i) for i in range(1, 40)]
    first = chosen(versions, 1000, 42)
    assert sum(v.cells for v in first) <= 1000
    assert sum(v.cells for v in first) > 900
    assert first == chosen(versions, 1000, 42) != chosen(versions, 1000, 43)
    assert first == sorted(first, key=lambda v: v.dataset_id)


def test_identifiers():
    assert check_identifier(uuid(5)) == uuid(5)
    for wrong in ("", "a/b", uuid(5) + "/..", uuid(5).replace("-", "")):
        with pytest.raises(UserError, match="is not a CELLxGENE id"):
            check_identifier(wrong)
