"""The rules by which training files are chosen."""

import dataclasses

import pytest
from loopback import uuid

from scsigmoid.corpus.discover import Version
from scsigmoid.corpus.metadata import ManifestRow
from scsigmoid.corpus.selection import sample_files, select
from scsigmoid.errors import UserError


def row(number: int, **values) -> ManifestRow:
    version = {"dataset_id": uuid(number), "dataset_version_id": uuid(100 + number)}
    values = {**version, "collection_id": uuid(200 + number), "bytes": str(10**9), **values}
    values = {"cells": "100", "role": "training", "source": "cellxgene", "location": "", **values}
    return ManifestRow(file=str(number), **values)


def version(number: int, organisms=("Homo sapiens",), assays=None, **values) -> Version:
    return Version(row(number, **values), organisms, assays or {"10x 3' v3": "EFO:0009922"})


def test_reasons_to_leave_files_out(corpus):
    versions = [
        version(1),
        version(2, dataset_id=uuid(50)),  # the evaluation dataset, another version
        version(3, collection_id=uuid(60)),  # of its publication
        version(4, organisms=("Mus musculus",)),
        version(5, organisms=("Homo sapiens", "Mus musculus")),
        version(6, bytes=""),
        version(7, organisms=()),
        version(8),
        version(11, collection_id=""),  # unknown collections do not match each other
    ]
    evaluation = {
        "heart": row(9, dataset_id=uuid(50), collection_id=uuid(60)),
        "lung": row(10, collection_id=""),
    }
    wanted = corpus.model_copy(update={"leave_out": [uuid(108)]})
    training, held_out, left_out = select(versions, evaluation, wanted, 42)
    assert [r.file for r in training] == ["1", "6", "11"]
    assert held_out == {uuid(50): "dataset of heart", uuid(3): "collection of heart"}
    assert left_out == {"other organisms": 3, "named in corpus.leave_out": 1}
    with pytest.raises(UserError, match=rf"corpus\.leave_out: {uuid(99)} is neither a dataset"):
        select(versions, {}, corpus.model_copy(update={"leave_out": [uuid(99), uuid(1)]}), 42)


def test_assays_of_rna(corpus):
    """Assays are matched by ontology id, because labels change."""
    versions = [
        version(1, assays={"10x Chromium 3' (third)": "EFO:0009922"}),
        version(2, assays={"10x 3' v3": "EFO:0009922", "scATAC-seq": "EFO:0010891"}),
        version(3, assays={"Visium": "EFO:0010961"}),
        version(4, assays={"10x 3' v3": ""}),
    ]
    for assays, numbers in (
        (["rna"], [1]),
        (["rna", "EFO:0010891"], [1, 2]),
        (["Visium", "EFO:0009922"], [1, 3]),
        (["10x 3' v3"], [4]),
        (None, [1, 2, 3, 4]),
    ):
        training, _, _ = select(versions, {}, corpus.model_copy(update={"assays": assays}), 42)
        assert [int(r.file) for r in training] == numbers


def test_random_choice_of_files():
    rows = [row(i, cells=str(10 * i)) for i in range(1, 40)]
    first = sample_files(rows, 1000, None, 42)
    assert 900 < sum(int(r.cells) for r in first) <= 1000
    assert first == sample_files(rows, 1000, None, 42) != sample_files(rows, 1000, None, 43)
    # The order of the list does not matter.
    assert sample_files(rows[::-1], 1000, None, 42) == first[::-1]
    for limit in (7, 7.5):
        assert len(sample_files(rows, None, limit, 42)) == 7
    assert sample_files(rows[4:5], 50, 1, 42) == rows[4:5]
    assert sample_files(rows[4:5], 49, 1, 42) == []
    assert sample_files(rows, None, None, 42) == rows
    # Unknown sizes matter only if bytes are limited.
    sizeless = [dataclasses.replace(r, bytes="") for r in rows]
    assert [r.file for r in sample_files(sizeless, 1000, None, 42)] == [r.file for r in first]
    assert sample_files(sizeless, 1000, 7.5, 42) == []
