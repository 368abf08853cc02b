"""The vocabulary: which genes, in which order, and its file."""

import os
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from scsigmoid.errors import UserError
from scsigmoid.files import sha256
from scsigmoid.tokens.statistics import gather, read_statistics
from scsigmoid.tokens.vocabulary import CLS, MASK, PAD, UNKNOWN, Vocabulary, build_vocabulary


@pytest.fixture
def statistics(draw, write_part, tmp_path):
    genes = [f"ENSG{index:011d}" for index in (5, 3, 9, 1, 7, 8, 0, 2)]
    paths = []
    for name, seed in (("a", 1), ("b", 2)):
        counts = draw(seed, 25, 8)
        counts[:, 2] = 0
        counts[:, 4] = 0
        counts[3, 4] = 2  # in one cell of each part
        counts[:, 0] += 1
        gather(write_part(name, [counts], genes=genes), 1e4, tmp_path / f"{name}.arrow")
        paths.append(tmp_path / f"{name}.arrow")
    return paths


def test_order_cut_and_medians(statistics, tmp_path):
    build_vocabulary(statistics, 3, tmp_path / "vocabulary.parquet")
    vocabulary = Vocabulary.read(tmp_path / "vocabulary.parquet")
    assert vocabulary.gene_ids[:4] == ("<pad>", "<mask>", "<cls>", "<unk>")
    assert (PAD, MASK, CLS, UNKNOWN) == (0, 1, 2, 3)
    assert vocabulary.gene_ids[4:] == tuple(f"ENSG{index:011d}" for index in (0, 1, 2, 3, 5, 8))
    assert vocabulary.size == 10
    assert vocabulary.medians[:4].tolist() == [1.0] * 4
    assert vocabulary.cells[:4].tolist() == [0] * 4
    assert vocabulary.tokens(["ENSG00000000002", "ENSG00000000009", "<pad>"]).tolist() == [
        6,
        -1,
        -1,
    ]
    parts = [read_statistics(path) for path in statistics]
    assert vocabulary.cells[6] == sum(
        part.cells[part.genes.index("ENSG00000000002")] for part in parts
    )

    build_vocabulary(statistics, 2, tmp_path / "two.parquet")
    assert "ENSG00000000007" in Vocabulary.read(tmp_path / "two.parquet").token_of
    build_vocabulary(statistics, 1, tmp_path / "one.parquet")
    assert "ENSG00000000009" not in Vocabulary.read(tmp_path / "one.parquet").token_of


def test_same_bytes_in_any_order(statistics, tmp_path):
    build_vocabulary(statistics, 1, tmp_path / "a.parquet")
    build_vocabulary(statistics[::-1], 1, tmp_path / "b.parquet")
    assert sha256(tmp_path / "a.parquet") == sha256(tmp_path / "b.parquet")
    assert Vocabulary.read(tmp_path / "a.parquet").fingerprint == (
        pq.read_schema(tmp_path / "a.parquet").metadata[b"fingerprint"].decode()
    )


def test_fingerprint_follows_the_content(statistics, tmp_path):
    build_vocabulary(statistics, 1, tmp_path / "a.parquet")
    a = Vocabulary.read(tmp_path / "a.parquet")
    changed = a.medians.copy()
    changed[5] = np.nextafter(changed[5], np.inf)
    assert Vocabulary(a.gene_ids, a.names, a.cells, changed).fingerprint != a.fingerprint


def test_no_changed_byte_goes_unnoticed(statistics, tmp_path):
    path = tmp_path / "v.parquet"
    build_vocabulary(statistics, 1, path)
    expected, content = Vocabulary.read(path), path.read_bytes()
    for place in range(0, len(content), 31):
        changed = bytearray(content)
        changed[place] ^= 0x10
        path.write_bytes(changed)
        try:
            found = Vocabulary.read(path)
        except UserError as error:
            assert re.search("damaged|not a vocabulary", str(error))  # noqa: PT017
        else:  # what Parquet holds twice, or nobody looks at
            assert found.fingerprint == expected.fingerprint


def test_cells_without_counts(write_part, tmp_path):
    gather(write_part("empty", [np.zeros((4, 3), dtype=np.int64)]), 1e4, tmp_path / "s.arrow")
    with pytest.raises(UserError, match="corpus: no training cell holds a count"):
        build_vocabulary([tmp_path / "s.arrow"], 1, tmp_path / "v.parquet")
    assert not (tmp_path / "v.parquet").exists()


def test_errors(statistics, tmp_path):
    with pytest.raises(UserError, match=r"tokens\.minimum_cells: no gene is expressed in 99"):
        build_vocabulary(statistics, 99, tmp_path / "v.parquet")
    assert not (tmp_path / "v.parquet").exists()
    with pytest.raises(UserError, match="no such vocabulary"):
        Vocabulary.read(tmp_path / "v.parquet")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe: no file"):
        Vocabulary.read(tmp_path / "pipe")
    (tmp_path / "v.parquet").write_text("x")
    with pytest.raises(UserError, match="not a vocabulary, or damaged"):
        Vocabulary.read(tmp_path / "v.parquet")
    build_vocabulary(statistics, 1, tmp_path / "v.parquet")
    table = pq.read_table(tmp_path / "v.parquet")
    pq.write_table(table.slice(0, table.num_rows - 1), tmp_path / "v.parquet")
    with pytest.raises(UserError, match="damaged"):
        Vocabulary.read(tmp_path / "v.parquet")
    pq.write_table(table.drop_columns(["name"]), tmp_path / "v.parquet")
    with pytest.raises(UserError, match="not a vocabulary"):
        Vocabulary.read(tmp_path / "v.parquet")
