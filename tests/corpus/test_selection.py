"""The rules by which training files are chosen."""

import dataclasses

import pytest
from loopback import uuid

from scsigmoid.config.check import load
from scsigmoid.corpus.discover import Version
from scsigmoid.corpus.selection import sample_files, select
from scsigmoid.errors import UserError


@pytest.fixture
def corpus():
    return dataclasses.replace(
        load(overrides={"preset": "paper"}).corpus, organisms=["Homo sapiens"]
    )


def version(number: int, **values) -> Version:
    standard = Version(
        dataset_id=uuid(number),
        dataset_version_id=uuid(100 + number),
        collection_id=uuid(200 + number),
        title="",
        organisms=("Homo sapiens",),
        assays=("10x 3' v3",),
        assay_ids=("EFO:0009922",),
        cells=100,
        bytes=10**9,
        url="",
    )
    return dataclasses.replace(standard, **values)


def test_reasons_to_leave_files_out(corpus):
    versions = [
        version(1),
        version(2, dataset_id=uuid(50)),  # the evaluation dataset, another version
        version(3, collection_id=uuid(60)),  # of its publication
        version(4, organisms=("Mus musculus",)),
        version(5, organisms=("Homo sapiens", "Mus musculus")),
        version(6, bytes=-1),
        version(7, organisms=()),
        version(8),
        version(11, collection_id=""),  # unknown collections do not match each other
    ]
    evaluation = {
        "heart": version(9, dataset_id=uuid(50), collection_id=uuid(60)),
        "lung": version(10, collection_id=""),
    }
    wanted = dataclasses.replace(corpus, leave_out=[uuid(108)])
    selection = select(versions, evaluation, wanted, 42)
    assert [v.dataset_id for v in selection.training] == [uuid(1), uuid(6), uuid(11)]
    assert selection.held_out == {uuid(50): "dataset of heart", uuid(3): "collection of heart"}
    assert selection.left_out == {"other organisms": 3, "named in corpus.leave_out": 1}
    with pytest.raises(UserError, match=rf"corpus\.leave_out: {uuid(99)} is neither a dataset"):
        select(versions, {}, dataclasses.replace(corpus, leave_out=[uuid(99), uuid(1)]), 42)


def test_assays_of_rna(corpus):
    """Assays are matched by ontology id, because labels change."""
    versions = [
        version(1, assays=("10x Chromium 3' (third)",)),
        version(2, assays=("10x 3' v3", "scATAC-seq"), assay_ids=("EFO:0009922", "EFO:0010891")),
        version(3, assays=("Visium",), assay_ids=("EFO:0010961",)),
        version(4, assays=("10x 3' v3",), assay_ids=("",)),
    ]
    for assays, numbers in (
        (["rna"], [1]),
        (["rna", "EFO:0010891"], [1, 2]),
        (["Visium", "EFO:0009922"], [1, 3]),
        (["10x 3' v3"], [4]),
        (None, [1, 2, 3, 4]),
    ):
        training = select(versions, {}, dataclasses.replace(corpus, assays=assays), 42).training
        assert [v.dataset_id for v in training] == [uuid(number) for number in numbers]


def test_random_choice_of_files():
    versions = [version(i, cells=10 * i) for i in range(1, 40)]
    first = sample_files(versions, 1000, None, 42)
    assert 900 < sum(v.cells for v in first) <= 1000
    assert first == sample_files(versions, 1000, None, 42) != sample_files(versions, 1000, None, 43)
    assert first == sorted(first, key=lambda v: v.dataset_id)
    # the order of the listing does not matter
    assert sample_files(versions[::-1], 1000, None, 42) == first[::-1]
    for limit in (7, 7.5):
        assert sum(v.bytes for v in sample_files(versions, None, limit, 42)) == 7e9
    assert sample_files(versions[4:5], 50, 1, 42) == versions[4:5]
    assert sample_files(versions[4:5], 49, 1, 42) == []
    assert sample_files(versions, None, None, 42) == versions
    # unknown sizes matter only if bytes are limited
    sizeless = [dataclasses.replace(one, bytes=-1) for one in versions]
    chosen = sample_files(sizeless, 1000, None, 42)
    assert [v.dataset_id for v in chosen] == [v.dataset_id for v in first]
    assert sample_files(sizeless, 1000, 7.5, 42) == []
