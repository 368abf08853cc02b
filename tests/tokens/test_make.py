"""From h5ad files to token stores."""

import json

import numpy as np
import pytest

from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.errors import UserError
from scsigmoid.files import sha256
from scsigmoid.tokens.lengths import length_counts, write_length_counts
from scsigmoid.tokens.make import tokenize_evaluation, tokenize_part
from scsigmoid.tokens.statistics import gather
from scsigmoid.tokens.store import TokenStore
from scsigmoid.tokens.vocabulary import Vocabulary, build_vocabulary


def by_definition(row, tokens, medians, target_sum):
    """Tokens of one cell, in plain Python floats."""
    total = float(row.sum())
    pairs = [
        (-(float(row[i]) / total * target_sum / float(medians[tokens[i]])), int(tokens[i]))
        for i in np.flatnonzero(row)
        if tokens[i] >= 0
    ]
    return [token for _, token in sorted(pairs)]


def vocabulary_of(folder, tmp_path, minimum_cells=1) -> Vocabulary:
    gather(folder, 1e4, tmp_path / "statistics.arrow")
    build_vocabulary(
        [tmp_path / "statistics.arrow"], minimum_cells, tmp_path / "vocabulary.parquet"
    )
    return Vocabulary.read(tmp_path / "vocabulary.parquet")


def test_part(draw, write_part, tmp_path):
    counts = [draw(seed, 30, 40) for seed in range(3)]
    for cells in counts:
        cells[2:, [6, 11]] = 0  # in too few cells for the vocabulary
    obs = {
        "cell_type": ["a", "b"] * 30,
        "donor_id": ["d"] * 60,
        "is_primary_data": [True, False] * 30,
    }
    folder = write_part("part", counts, obs=obs, simulated="true")
    vocabulary = vocabulary_of(folder, tmp_path, 7)
    assert vocabulary.size == 42
    for name in ("a", "b"):
        tokenize_part(folder, tmp_path / "vocabulary.parquet", 1e4, 9, 25, tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert sha256(path) == sha256(tmp_path / "b" / path.name)
    store = TokenStore.open(tmp_path / "a", vocabulary.fingerprint)
    assert store.simulated
    assert store.maximum_length == 9
    tokens = vocabulary.tokens(f"ENSG{index:011d}" for index in range(40))
    metadata = store.metadata(
        ["file", "cell", "genes", "cell_type", "donor", "tissue", "assay", "is_primary"]
    )
    for row, cell in enumerate(np.concatenate(counts)):
        expected = by_definition(cell, tokens, vocabulary.medians, 1e4)
        assert store.cells([row], 99).tokens.tolist() == expected[:9]
        assert metadata["genes"][row] == len(expected)
        assert metadata["cell"][row] == row % 30
        assert metadata["file"][row] == f"file{row // 30}"
    assert metadata["cell_type"][:3].tolist() == ["a", "b", "a"]
    assert metadata["donor"][0] == "d"
    assert metadata["tissue"][0] == metadata["assay"][0] == ""
    assert metadata["is_primary"][:3].tolist() == [True, False, True]


def test_held_out_cells_are_not_trained_on(draw, write_part, tmp_path):
    folder = write_part("part", [draw(0, 30, 20)], held_out="fraction=0.2 seed=4")
    vocabulary_of(folder, tmp_path)
    tokenize_part(folder, tmp_path / "vocabulary.parquet", 1e4, 99, 25, tmp_path / "store")
    held = open_cells(folder / "file0.h5ad", None, "fraction=0.2 seed=4", "evaluation").rows
    trained = TokenStore.open(tmp_path / "store").metadata(["cell"])["cell"]
    assert sorted([*held, *trained]) == list(range(30))


def test_empty_part(draw, write_part, tmp_path):
    vocabulary_of(write_part("part", [draw(0, 30, 20)]), tmp_path)
    empty = write_part("empty", [])
    tokenize_part(empty, tmp_path / "vocabulary.parquet", 1e4, 99, 25, tmp_path / "store")
    assert len(TokenStore.open(tmp_path / "store")) == 0
    assert length_counts([tmp_path / "store"]).tolist() == []


def facts(folder, **values):
    path = folder / "facts.json"
    path.write_text(
        json.dumps({"file": "file0", "simulated": False, "label": "cell_type", **values})
    )
    return path


def test_evaluation(draw, write_part, tmp_path):
    folder = write_part("part", [draw(0, 30, 20)])
    vocabulary = vocabulary_of(folder, tmp_path)
    tokenize_part(folder, tmp_path / "vocabulary.parquet", 1e4, 9, 25, tmp_path / "training")
    tokenize_evaluation(
        folder / "file0.h5ad",
        facts(folder),
        tmp_path / "vocabulary.parquet",
        1e4,
        9,
        25,
        tmp_path / "e",
    )
    a, b = (TokenStore.open(tmp_path / name, vocabulary.fingerprint) for name in ("training", "e"))
    assert a.cells(range(30), 9).tokens.tolist() == b.cells(range(30), 9).tokens.tolist()
    assert not b.simulated
    assert b.label == "cell_type"


def test_no_gene_in_common(draw, write_part, tmp_path):
    vocabulary_of(write_part("part", [draw(0, 30, 20)]), tmp_path)
    other = write_part("other", [draw(0, 30, 3)], genes=["TP53", "CD3D", "ACTB"])
    message = r"file0\.h5ad: no gene in common with the vocabulary \(it has 'TP53'"
    with pytest.raises(UserError, match=message):
        tokenize_part(other, tmp_path / "vocabulary.parquet", 1e4, 9, 25, tmp_path / "store")
    with pytest.raises(UserError, match=message):
        tokenize_evaluation(
            other / "file0.h5ad",
            facts(other),
            tmp_path / "vocabulary.parquet",
            1e4,
            9,
            25,
            tmp_path / "e",
        )
    assert not (tmp_path / "store").exists()


def test_cell_without_vocabulary_genes(draw, write_part, tmp_path):
    vocabulary_of(write_part("part", [draw(0, 30, 20)]), tmp_path)
    counts = draw(0, 30, 21)
    counts[17, :20], counts[17, 20] = 0, 1
    with pytest.raises(UserError, match="the cell in row 17 expresses no gene of the vocabulary"):
        tokenize_part(
            write_part("other", [counts]),
            tmp_path / "vocabulary.parquet",
            1e4,
            9,
            25,
            tmp_path / "s",
        )


def test_messages_name_the_users_file(draw, write_part, tmp_path):
    counts = draw(0, 30, 20)
    counts[3] = 0
    folder = write_part("part", [counts])
    (folder / "file0.h5ad").rename(tmp_path / "mine.h5ad")
    (folder / "file0.h5ad").symlink_to(tmp_path / "mine.h5ad")
    with pytest.raises(UserError, match=r"mine\.h5ad: 1 of 30 cells express no gene"):
        gather(folder, 1e4, tmp_path / "statistics.arrow")
    assert not (tmp_path / "statistics.arrow").exists()


def test_missing_label(draw, write_part, tmp_path):
    folder = write_part("part", [draw(0, 30, 20)])
    vocabulary_of(folder, tmp_path)
    with pytest.raises(UserError, match=r"no column 'celltypes'.*'cell_type'"):
        tokenize_evaluation(
            folder / "file0.h5ad",
            facts(folder, label="celltypes"),
            tmp_path / "vocabulary.parquet", 1e4, 9, 25, tmp_path / "e",
        )  # fmt: skip


def test_lengths(draw, write_part, tmp_path):
    import pyarrow.parquet as pq

    stores, expected = [], []
    for name in ("a", "b"):
        counts = draw(ord(name), 30, 20)
        folder = write_part(name, [counts])
        vocabulary_of(folder, tmp_path)
        tokenize_part(folder, tmp_path / "vocabulary.parquet", 1e4, 4, 25, tmp_path / f"s{name}")
        stores.append(tmp_path / f"s{name}")
        expected += (counts > 0).sum(axis=1).tolist()
    write_length_counts(stores, tmp_path / "lengths.parquet")
    table = pq.read_table(tmp_path / "lengths.parquet")
    lengths, cells = np.unique(expected, return_counts=True)
    assert table["length"].to_pylist() == lengths.tolist()
    assert table["cells"].to_pylist() == cells.tolist()


@pytest.mark.parametrize("file", ["pbmc_facs", "lung_cell_lines", "cellxgene_schema_sample"])
def test_real_cells(file, real_data, write_part, tmp_path):
    folder = write_part("part", [np.ones((1, 1))])
    (folder / "file0.h5ad").unlink()
    (folder / "file0.h5ad").symlink_to(real_data / f"{file}.h5ad")
    vocabulary = vocabulary_of(folder, tmp_path, 3)
    tokenize_part(folder, tmp_path / "vocabulary.parquet", 1e4, 4095, 1000, tmp_path / "store")
    store = TokenStore.open(tmp_path / "store", vocabulary.fingerprint)
    cells = open_cells(folder / "file0.h5ad")
    tokens = vocabulary.tokens(cells.genes)
    assert len(store) == cells.n_cells
    sample = set(np.random.default_rng(0).choice(cells.n_cells, 60, replace=False).tolist())
    for chunk in cells.chunks():
        for row, cell in enumerate(chunk.cells.tolist()):
            if cell in sample:
                counts = chunk.counts[row].toarray().ravel()
                expected = by_definition(counts, tokens, vocabulary.medians, 1e4)
                assert store.cells([cell], 4095).tokens.tolist() == expected[:4095]
