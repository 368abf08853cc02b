"""Token stores made from h5ad files."""

import re
from dataclasses import asdict, replace

import anndata
import numpy as np
import pyarrow.parquet as pq
import pytest
from stages import dense
from tokens.conftest import by_definition, draw, vocabulary_of

from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.metadata import Metadata
from scsigmoid.errors import UserError
from scsigmoid.files import sha256, write_json
from scsigmoid.tokens.make import Tokenizer
from scsigmoid.tokens.stage import tokenize_evaluation, tokenize_part
from scsigmoid.tokens.store import TokenStore, read_index, write_length_counts


def tokenized(folder, vocabulary, output, maximum_length=9) -> TokenStore:
    """Tokenize a part in shards of at most 25 cells, and open its store."""
    tokenize_part(folder, Tokenizer(vocabulary, 1e4, maximum_length, 25), output)
    return TokenStore.open(output, vocabulary=vocabulary.fingerprint)


def evaluated(h5ad, vocabulary, output) -> TokenStore:
    """Tokenize an evaluation dataset that is named like its h5ad file, and open its store."""
    metadata = Metadata(
        dataset=h5ad.stem, file=h5ad.stem, simulated=False, label="cell_type", title="Cells",
        types=[], cells=30, genes=20, sha256=sha256(h5ad), location="",
    )  # fmt: skip
    path = h5ad.with_suffix(".json")
    write_json(path, asdict(metadata))
    tokenize_evaluation(h5ad, path, Tokenizer(vocabulary, 1e4, 9, 25), output)
    return TokenStore.open(output, vocabulary=vocabulary.fingerprint)


@pytest.fixture
def part(write_part):
    """A part of 30 cells."""
    return write_part("part", [draw(0, 30, 20)])


@pytest.fixture
def vocabulary(part):
    return vocabulary_of(part)


@pytest.mark.parametrize("primary", [[True, False], ["TRUE", "FALSE"], [1, 0], [1.0, 0.0]])
def test_part(primary, write_part, tmp_path):
    counts = [draw(seed, 30, 40) for seed in range(3)]
    for cells in counts:
        cells[2:, [6, 11]] = 0  # below the vocabulary's minimum number of cells
    obs = {"cell_type": ["a", "b"] * 15, "donor_id": ["d"] * 30, "is_primary_data": primary * 15}
    folder = write_part("part", counts, obs=obs, simulated="true")
    vocabulary = vocabulary_of(folder, 7)
    assert vocabulary.size == 42
    store, _ = (tokenized(folder, vocabulary, tmp_path / name) for name in ("a", "b"))
    for path in (tmp_path / "a").iterdir():
        assert sha256(path) == sha256(tmp_path / "b" / path.name)
    assert store.simulated
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


def test_cells_without_vocabulary_genes(vocabulary, write_part, tmp_path, capsys):
    counts = draw(0, 30, 21)
    counts[17], counts[25] = 0, 0
    counts[17, 20] = 1  # a gene without a token. All counts of cell 25 are zero.
    folder = write_part("other", [draw(1, 30, 20), counts])
    trained = tokenized(folder, vocabulary, tmp_path / "s").metadata(["file", "cell"])
    tokens = evaluated(folder / "file1.h5ad", vocabulary, tmp_path / "e")
    message = r"file1.h5ad: 2 of 30 cells express no gene of the vocabulary .* \(rows 17, 25\)"
    assert len(re.findall(message, capsys.readouterr().err)) == 2
    expected = sorted({*range(30)} - {17, 25})
    assert tokens.metadata(["cell"])["cell"].tolist() == expected
    assert sorted(trained["cell"][trained["file"] == "file1"]) == expected
    for name in ("s", "e"):
        left_out = read_index(tmp_path / name)["left_out"]
        assert left_out == {"file1": {"cells": 2, "few_genes": 0, "rows": [17, 25]}}
    # The log shows the rows of the user's file if cells were copied from it.
    copied = anndata.read_h5ad(folder / "file1.h5ad")
    copied.obs["scsigmoid_row"] = np.arange(30) * 10
    copied.write_h5ad(tmp_path / "copy.h5ad")
    evaluated(tmp_path / "copy.h5ad", vocabulary, tmp_path / "c")
    assert "are left out (rows 170, 250)" in capsys.readouterr().err


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
    tokenize_part(folder, Tokenizer(known, 1e4, 9, 25, least), tmp_path / "store")

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
    assert f"4 of 4 cells express fewer than {least} genes (corpus.minimum_genes)" in log


def test_all_cells_without_vocabulary_genes(vocabulary, write_part, tmp_path):
    other = write_part("other", [np.hstack([np.zeros((4, 20)), np.ones((4, 1))])])
    with pytest.raises(UserError, match=r"file0\.h5ad: none of the 4 cells with enough genes"):
        tokenized(other, vocabulary, tmp_path / "s")
    assert not list(tmp_path.glob("*.scatter*")) + list(tmp_path.glob("s"))


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
    tokenize_part(folder, Tokenizer(vocabulary, 1e4, 4095, 1000), tmp_path / "store")
    store = TokenStore.open(tmp_path / "store", vocabulary=vocabulary.fingerprint)
    cells = open_cells(folder / "file0.h5ad").with_ids(vocabulary.retired)
    tokens = vocabulary.tokens(cells.genes)
    assert len(store) == cells.n_cells
    place = np.argsort(store.metadata(["cell"])["cell"])
    rows = np.sort(np.random.default_rng(0).choice(cells.n_cells, 60, replace=False))
    for row, counts in zip(rows, dense(replace(cells, rows=rows)), strict=True):
        expected = by_definition(counts, tokens, vocabulary.medians)
        assert store.cells([place[row]], 4095).tokens.tolist() == expected[:4095]


def test_real_genes_with_ids_of_several_releases(real_data, write_part, tmp_path):
    """pbmc_facs has older ids than pbmc_1k. It has two genes CRYBG3, which are not merged."""
    names = ["CCL5", "TXNIP", "RBM8A", "MRPS21", "PSMB3", "FCER1A", "PPBP", "NME2"]
    paths = [real_data / f"{file}.h5ad" for file in ("pbmc_facs", "pbmc_1k", "pbmc_donor_a")]
    folder = write_part("part", paths)
    vocabulary = vocabulary_of(folder)
    assert all(vocabulary.names.count(name) == 1 for name in names)
    assert vocabulary.names.count("CRYBG3") > 1
    store = tokenized(folder, vocabulary, tmp_path / "store", 20_000)
    files = store.metadata(["file"])["file"]
    cells = np.repeat(np.arange(len(store)), store.lengths)
    tokens = store.cells(range(len(store)), 20_000).tokens
    for number, path in enumerate(paths):
        adata = anndata.read_h5ad(path)
        var, counts = (adata.raw.var, adata.raw.X) if adata.raw else (adata.var, adata.X)
        counts, here = counts.tocsc(), files == f"file{number}"
        for name in names[: -1 if number == 0 else None]:  # NME2 has another name in pbmc_facs
            expressed = np.asarray(counts[:, (var["feature_name"] == name).to_numpy()].sum(axis=1))
            has_token = cells[tokens == vocabulary.names.index(name)]
            assert here[has_token].sum() == (expressed > 0).sum(), (path, name)
