"""Token stores made from h5ad files."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from stages import dense
from tokens.conftest import by_definition, draw, evaluated, tokenized, vocabulary_of

from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.files import sha256
from scsigmoid.tokens.make_stores import tokenize_part
from scsigmoid.tokens.store import TokenStore, read_index, write_length_counts
from scsigmoid.tokens.tokenizer import Tokenizer


@pytest.mark.parametrize("primary", [[True, False], ["TRUE", "FALSE"], [1, 0], [1.0, 0.0]])
def test_part(primary, write_part, tmp_path):
    counts = [draw(seed, 30, 40) for seed in range(3)]
    for cells in counts:
        cells[2:, [6, 11]] = 0  # below the vocabulary's minimum number of cells
    obs = {"cell_type": ["a", "b"] * 15, "donor_id": ["d"] * 30, "is_primary_data": primary * 15}
    folder = write_part("part", counts, obs=obs)
    vocabulary = vocabulary_of(folder, 7)
    assert vocabulary.size == 42
    store, _ = (tokenized(folder, vocabulary, tmp_path / name) for name in ("a", "b"))
    for path in (tmp_path / "a").iterdir():
        assert sha256(path) == sha256(tmp_path / "b" / path.name)
    assert store.maximum_length == 9
    tokens = vocabulary.tokens(f"ENSG{index:011d}" for index in range(40))
    columns = ["file", "cell", "genes", "cell_type", "is_primary", "donor", "tissue", "assay"]
    metadata = store.metadata(columns)
    cells = list(zip(*(metadata[name].tolist() for name in columns), strict=True))
    assert sorted(row[:2] for row in cells) == [
        (f"file{n}", i) for n in range(3) for i in range(30)
    ]
    for place, (file, number, *others) in enumerate(cells):
        expected = by_definition(counts[int(file[-1])][number], tokens, vocabulary.medians)
        assert store.cells([place], 99).tokens.tolist() == expected[:9]
        assert store.lengths[place] == min(9, len(expected))
        is_first = number % 2 == 0
        assert others == [len(expected), "a" if is_first else "b", is_first, "d", "", ""]


def test_evaluation(part, vocabulary, tmp_path):
    h5ad = part / "file0.h5ad"
    a = tokenized(part, vocabulary, tmp_path / "training")
    b = evaluated(h5ad, vocabulary, tmp_path / "e")
    assert b.metadata(["cell"])["cell"].tolist() == list(range(30))
    place = a.metadata(["cell"])["cell"]
    assert a.cells(range(30), 9).tokens.tolist() == b.cells(place, 9).tokens.tolist()
    shared = {"vocabulary": vocabulary.fingerprint}
    assert b.identity == {"dataset": "file0", "cells": sha256(h5ad), **shared}
    assert a.identity == {"dataset": "", "cells": "", **shared}


def test_cells_with_few_genes(write_part, tmp_path, capsys):
    """Medians and tokens are the same as without these cells. A file may have no other cells."""
    counts = [draw(0, 30, 20), draw(1, 25, 20), np.eye(4, 20)]
    genes = [(cells > 0).sum(axis=1) for cells in counts]
    least = int(np.median(genes[0]))
    few = [np.flatnonzero(values < least).tolist() for values in genes]
    assert min(map(len, few)) > 0
    folder = write_part("all", counts)
    rest = write_part("rest", [c[g >= least] for c, g in zip(counts[:2], genes, strict=False)])
    known, other = vocabulary_of(folder, 1, least), vocabulary_of(rest)
    assert known.fingerprint == other.fingerprint
    tokenize_part(folder, Tokenizer(known, 9, 25, least), tmp_path / "store")

    def tokens_of(store):
        return sorted(store.cells([row], 9).tokens.tolist() for row in range(len(store)))

    expected = tokens_of(tokenized(rest, other, tmp_path / "rest_store"))
    assert tokens_of(TokenStore.open(tmp_path / "store")) == expected
    index = read_index(tmp_path / "store")
    assert index["minimum_genes"] == least
    assert index["left_out"] == {
        f"file{number}": {"cells": len(rows), "few_genes": len(rows), "rows": rows}
        for number, rows in enumerate(few)
    }
    log = capsys.readouterr().err
    assert f"4 of 4 cells express fewer than {least} genes (tokens.minimum_genes)" in log


def test_lengths(vocabulary, write_part, tmp_path):
    """A store, and the empty store of an empty part."""
    counts = draw(1, 30, 20)
    tokenized(write_part("a", [counts]), vocabulary, tmp_path / "store", 4)
    assert len(tokenized(write_part("b", []), vocabulary, tmp_path / "empty")) == 0
    path = tmp_path / "lengths.parquet"
    write_length_counts([tmp_path / "empty"], path)
    assert pq.read_table(path).num_rows == 0
    write_length_counts([tmp_path / "store", tmp_path / "empty"], path)
    lengths, cells = np.unique((counts > 0).sum(axis=1), return_counts=True)
    expected = {"length": lengths.tolist(), "cells": cells.tolist()}
    assert pq.read_table(path).to_pydict() == expected


@pytest.mark.parametrize("file", ["pbmc_facs", "cellxgene_schema_sample"])
def test_real_cells(file, real_data, write_part, tmp_path):
    folder = write_part("part", [real_data / f"{file}.h5ad"])
    vocabulary = vocabulary_of(folder, 3)
    tokenize_part(folder, Tokenizer(vocabulary, 4095, 1000), tmp_path / "store")
    store = TokenStore.open(tmp_path / "store", vocabulary=vocabulary.fingerprint)
    cells = open_cells(folder / "file0.h5ad").with_ids(vocabulary.retired)
    tokens = vocabulary.tokens(cells.genes)
    assert len(store) == cells.n_cells
    place = np.argsort(store.metadata(["cell"])["cell"])
    rows = np.sort(np.random.default_rng(0).choice(cells.n_cells, 60, replace=False))
    for row, counts in zip(rows, dense(replace(cells, rows=rows)), strict=True):
        expected = by_definition(counts, tokens, vocabulary.medians)
        assert store.cells([place[row]], 4095).tokens.tolist() == expected[:4095]
