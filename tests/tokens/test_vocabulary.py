"""The vocabulary: selection and order of genes, gene lists, and its file."""

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from tokens.conftest import draw

from scsigmoid.errors import UserError
from scsigmoid.tokens.statistics import gather
from scsigmoid.tokens.vocabulary import (
    EXPRESSED,
    SPECIAL,
    Vocabulary,
    build_vocabulary,
    read_gene_list,
)

HUMAN = [f"ENSG{index:011d}" for index in range(12)]
MOUSE = [f"ENSMUSG{index:011d}" for index in range(9)]
GENES = [*MOUSE, *HUMAN, "ENSRNOG00000000007", "TP53"]


# 25 cells. HUMAN[2] is not expressed. HUMAN[7] and HUMAN[3] have equal counts.
COUNTS = draw(1, 25, len(GENES))
COUNTS[:, GENES.index(HUMAN[2])] = 0
COUNTS[:, GENES.index(HUMAN[7])] = COUNTS[:, GENES.index(HUMAN[3])]
# Number of cells that express each gene.
CELLS = dict(zip(GENES, (COUNTS > 0).sum(axis=0).tolist(), strict=True))


@pytest.fixture
def make_vocabulary(write_part, tmp_path):
    """Return a function that makes a vocabulary and returns it with its counts by organism."""
    statistics = [tmp_path / "a.arrow", tmp_path / "b.arrow"]
    for path, counts in zip(statistics, (COUNTS[:9], COUNTS[9:]), strict=True):
        gather(write_part(path.stem, [counts], genes=GENES), path)

    def make(minimum_cells=1, **choice):
        path = tmp_path / "v.parquet"
        path.unlink(missing_ok=True)
        build_vocabulary(statistics, minimum_cells, path, EXPRESSED.model_copy(update=choice))
        metadata = pq.read_schema(path).metadata
        return Vocabulary.read(path), json.loads(metadata[b"organisms"])

    return make


def test_order_cut_and_medians(make_vocabulary):
    for minimum_cells in (0, 1, 9, 16):
        vocabulary, _ = make_vocabulary(minimum_cells)
        genes = sorted(gene for gene in GENES if CELLS[gene] >= max(1, minimum_cells))
        assert vocabulary.gene_ids == ("<pad>", "<mask>", "<cls>", "<unk>", *genes)
        assert vocabulary.cells.tolist() == [0] * 4 + [CELLS[gene] for gene in genes]
        assert vocabulary.medians[:4].tolist() == [1.0] * 4
        assert vocabulary.tokens([genes[2], HUMAN[2], "<pad>"]).tolist() == [6, -1, -1]


def test_fingerprint_depends_on_the_content(make_vocabulary):
    a, _ = make_vocabulary()
    values = {"medians": np.nextafter(a.medians, np.inf), "cells": a.cells + 1}
    for name, value in {**values, "names": a.names[::-1], "gene_ids": a.gene_ids[::-1]}.items():
        assert replace(a, **{name: value}).fingerprint != a.fingerprint


def test_changed_bytes_are_detected(make_vocabulary, tmp_path):
    """A changed byte is an error or has no effect."""
    path, expected = tmp_path / "v.parquet", make_vocabulary()[0].fingerprint
    content = path.read_bytes()
    for place in range(0, len(content), 31):
        changed = bytearray(content)
        changed[place] ^= 0x10
        path.write_bytes(changed)
        try:
            fingerprint = Vocabulary.read(path).fingerprint
        except UserError as error:
            assert "not a vocabulary" in str(error)  # noqa: PT017
        else:  # the byte is padding or redundant
            assert fingerprint == expected


def test_missing_genes_or_file(make_vocabulary, tmp_path):
    with pytest.raises(UserError, match=r"tokens\.minimum_cells: no gene is expressed in 99"):
        make_vocabulary(99)
    assert not (tmp_path / "v.parquet").exists()
    with pytest.raises(UserError, match="no such vocabulary"):
        Vocabulary.read(tmp_path / "v.parquet")


@pytest.mark.parametrize("size", [1, 5, 11])
def test_sizes_of_organisms(size, make_vocabulary):
    vocabulary, organisms = make_vocabulary(sizes={"Homo sapiens": size, "Mus musculus": 4})
    human = sorted(HUMAN, key=lambda gene: (-CELLS[gene], gene))
    mouse = sorted(MOUSE, key=lambda gene: (-CELLS[gene], gene))
    # Other organisms have no limit.
    expected = sorted([*human[:size], *mouse[:4], "ENSRNOG00000000007", "TP53"])
    assert vocabulary.gene_ids == (*SPECIAL, *expected)
    counts, outside = (sum(CELLS[gene] for gene in genes) for genes in (human, human[size:]))
    numbers = {"tokens": size, "genes": 11, "counts": counts, "outside": outside}
    assert organisms["Homo sapiens"] == numbers
    assert organisms.keys() == {"Homo sapiens", "Mus musculus", "ENSRNOG...", "other"}
    assert organisms["Mus musculus"]["tokens"] == 4
    assert organisms["other"]["outside"] == organisms["ENSRNOG..."]["outside"] == 0


def test_gene_list(make_vocabulary, tmp_path):
    """The vocabulary has all genes of the list, sorted. Other settings have no effect."""
    text = f"{HUMAN[9]}.4,a name\n# mine\n<cls>\n\n,\u00a0\n{HUMAN[2]}\nENSG00000999999\n{HUMAN[9]}"
    (tmp_path / "list.txt").write_text(text, encoding="utf-8-sig")  # the encoding of spreadsheets
    everything, _ = make_vocabulary()
    vocabulary, organisms = make_vocabulary(
        99, genes=str(tmp_path / "list.txt"), sizes={"Homo sapiens": 1}
    )
    assert vocabulary.gene_ids == (*SPECIAL, HUMAN[2], HUMAN[9], "ENSG00000999999")
    median = everything.medians[everything.token_of[HUMAN[9]]]
    assert vocabulary.medians[4:].tolist() == [1.0, median, 1.0]
    assert vocabulary.cells[4:].tolist() == [0, CELLS[HUMAN[9]], 0]
    assert (organisms["Homo sapiens"]["tokens"], organisms["Homo sapiens"]["genes"]) == (3, 11)
    assert organisms["Mus musculus"]["outside"] == organisms["Mus musculus"]["counts"] > 0
    for gene in ("CD3D", HUMAN[2]):
        (tmp_path / "list.txt").write_text(f"{gene}\n")
        with pytest.raises(UserError, match=f"list contains '{gene}', the training files 'ENSG0"):
            make_vocabulary(genes=str(tmp_path / "list.txt"))


def test_invalid_lists(tmp_path):
    path = tmp_path / "x"
    for content, words in ((b"\n# a\n<cls>\n", "no gene id"), (b"\xff", "not a text file")):
        path.write_bytes(content)
        with pytest.raises(UserError, match=words):
            read_gene_list(path)


def test_vocabulary_of_an_initial_model(write_part, tmp_path):
    """Its genes keep tokens and medians. Genes that it lacks are appended, if they are chosen."""
    initial = Vocabulary(
        (*SPECIAL, HUMAN[5], HUMAN[1], "ENSG00000000099"),
        (*SPECIAL, "CD3D", "HLA-A", "ABSENT"),
        np.array([0] * 4 + [70, 80, 90]),
        np.array([1.0] * 4 + [3.0, 0.5, 7.0]),
        {HUMAN[9]: HUMAN[5]},  # an id of another Ensembl release
    )
    # The first file has R's spelling of HLA-A in place of an id, and both ids of CD3D.
    files = {"a": ["HLA.A", HUMAN[9], HUMAN[0], HUMAN[3]], "b": [HUMAN[5], HUMAN[0]]}
    counts = {"a": [[1, 1, 1, 1], [1, 0, 1, 0]], "b": [[2, 4], [0, 4]]}
    statistics = [tmp_path / f"{name}.arrow" for name in files]
    for path, genes in zip(statistics, files.values(), strict=True):
        gather(write_part(path.stem, [counts[path.stem]], genes=genes), path)
    output = tmp_path / "v.parquet"
    build_vocabulary(statistics, 2, output, EXPRESSED, initial)
    vocabulary = Vocabulary.read(output)
    # HUMAN[3] is expressed in one cell only.
    assert vocabulary.gene_ids == (*initial.gene_ids, HUMAN[0])
    assert vocabulary.names[4:7] == ("CD3D", "HLA-A", "ABSENT")
    assert vocabulary.cells[4:].tolist() == [2, 2, 0, 4]
    assert vocabulary.medians[:7].tolist() == initial.medians.tolist()
    # Of the shares 1/4, 1/2, 2/3 and 1 of the counts of a cell, the mean of the middle two.
    assert vocabulary.medians[7] == pytest.approx(1e4 * (1 / 2 + 2 / 3) / 2, rel=0.01)
    assert vocabulary.retired == {"HLA.A": HUMAN[1], HUMAN[9]: HUMAN[5]}
    assert vocabulary.starts_with(initial)
    none = EXPRESSED.model_copy(update={"sizes": {"Homo sapiens": 0, "other": 0}})
    build_vocabulary(statistics, 2, output, none, initial)
    assert Vocabulary.read(output).gene_ids == initial.gene_ids
    with pytest.raises(UserError, match=r"tokens\.vocabulary\.sizes: no gene is left"):
        build_vocabulary(statistics, 2, tmp_path / "w.parquet", none)
    assert not vocabulary.starts_with(replace(initial, medians=initial.medians + 1))
    assert not initial.starts_with(vocabulary)


def test_initial_model_of_other_genes(make_vocabulary, tmp_path):
    make_vocabulary()
    other = Vocabulary((*SPECIAL, "ENSDARG01"), (*SPECIAL, "abc"), np.ones(5, int), np.ones(5))
    with pytest.raises(UserError, match="training cells: genes of another organism"):
        build_vocabulary(
            [tmp_path / "a.arrow", tmp_path / "b.arrow"], 1, tmp_path / "w.parquet", initial=other
        )
    assert not (tmp_path / "w.parquet").exists()
