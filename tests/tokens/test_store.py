"""The token store: readable by others, shards bounded, damage named."""

import json
import shutil

import datasets
import numpy as np
import pyarrow as pa
import pytest
from tokens.conftest import token_table

from scsigmoid.errors import UserError
from scsigmoid.tokens.store import TokenStore, cumulative, grouped, write_shards


def write(folder, count=13, vocabulary_size=5000, first=0, **entries):
    """Write cells ``first``, ``first + 1``, ... in shards of 4 cells, from batches of 5 cells."""
    cells = range(first, first + count)
    lengths = np.random.default_rng(first).integers(1, 9, len(cells))
    tokens = [
        [(cell * 100 + i) % vocabulary_size for i in range(n)]
        for cell, n in zip(cells, lengths, strict=True)
    ]
    types = [f"t{cell % 3}" for cell in cells]
    truncated = {"cell": cells, "genes": lengths + (lengths == 8), "cell_type": types}
    table = token_table(tokens, vocabulary_size, **truncated)
    metadata = {"vocabulary": "abc", "vocabulary_size": vocabulary_size, "maximum_length": 8}
    metadata |= {"shard_cells": 4, "simulated": False, "label": "cell_type"}
    write_shards(folder, grouped(table.to_batches(max_chunksize=5), 4), metadata | entries)
    return table


@pytest.mark.parametrize(("size", "dtype"), [(65535, np.uint16), (65536, np.uint32)])
def test_cells(size, dtype, tmp_path):
    table = write(tmp_path / "store", vocabulary_size=size)
    expected = table["input_ids"].to_pylist()
    store = TokenStore.open(tmp_path / "store", vocabulary="abc")
    assert len(store) == 13
    assert store.lengths.dtype == np.int32
    assert store.lengths.tolist() == [len(cell) for cell in expected]
    rows = [12, 0, 7, 7, 4]
    for cut in (3, 100):
        tokens, cu_seqlens = store.cells(rows, cut)
        assert (tokens.dtype, cu_seqlens.dtype) == (dtype, np.int32)
        cells = [cell.tolist() for cell in np.split(tokens, cu_seqlens[1:-1])]
        assert cells == [expected[row][:cut] for row in rows]
    empty = store.cells([], 3)
    assert (empty.tokens.dtype, empty.cu_seqlens.tolist()) == (dtype, [0])
    metadata = store.metadata(["cell", "cell_type", "is_primary"])
    assert metadata["cell"].tolist() == list(range(13))
    assert metadata["cell_type"].tolist() == table["cell_type"].to_pylist()
    assert metadata["is_primary"].tolist() == [True] * 13


def test_more_tokens_than_int32():
    assert cumulative([2**31 - 1]).tolist() == [0, 2**31 - 1]
    with pytest.raises(UserError, match=r"2 cells have 2,147,483,648 tokens.*fewer cells at once"):
        cumulative([2**31 - 1, 1])


def test_shards_are_bounded_and_readable_by_others(tmp_path):
    table = write(tmp_path / "store")
    shards = sorted((tmp_path / "store").glob("*.arrow"))
    assert [path.name for path in shards] == [f"shard-{i:05d}.arrow" for i in range(4)]
    read = [pa.ipc.open_stream(pa.memory_map(str(path))).read_all() for path in shards]
    assert [part.num_rows for part in read] == [4, 4, 4, 1]
    assert pa.concat_tables(read).to_pylist() == table.to_pylist()
    loaded = datasets.load_from_disk(str(tmp_path / "store"))
    for column in ("input_ids", "length", "cell_type"):
        assert loaded[column][:] == table[column].to_pylist()


def test_several_stores_are_one(tmp_path):
    tables = [
        write(tmp_path / "a"),
        write(tmp_path / "none", count=0),
        write(tmp_path / "b", count=3, first=13),
    ]
    store = TokenStore.open([tmp_path / name for name in ("a", "none", "b")])
    expected = [cell for table in tables for cell in table["input_ids"].to_pylist()]
    assert len(store) == 16
    assert store.cells(range(16), 99).tokens.tolist() == [t for cell in expected for t in cell]
    assert store.metadata(["cell"])["cell"].tolist() == list(range(16))
    assert len(TokenStore.open(tmp_path / "none")) == 0


def test_other_identities_and_a_part_given_twice_are_refused(tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b", vocabulary="def", first=13)
    write(tmp_path / "c", dataset="heart", first=26)
    with pytest.raises(UserError, match="a: has vocabulary 'abc', expected 'xyz'"):
        TokenStore.open(tmp_path / "a", vocabulary="xyz")
    with pytest.raises(UserError, match="b: has vocabulary 'def', expected 'abc'"):
        TokenStore.open([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(UserError, match="c: has dataset 'heart', expected empty"):
        TokenStore.open([tmp_path / "a", tmp_path / "c"], dataset="")
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    for name in ("a", "copy"):
        with pytest.raises(UserError, match=rf"{name}: contains a shard of .*a; pass each store"):
            TokenStore.open([str(tmp_path / "a"), str(tmp_path / name)])


def test_damaged_stores(tmp_path):
    write(tmp_path / "store")
    shard = tmp_path / "store" / "shard-00001.arrow"
    good = shard.read_bytes()
    other = (tmp_path / "store" / "shard-00003.arrow").read_bytes()
    for bad in (b"", good[: len(good) // 2], good[:-8] + bytes(8), other):
        shard.write_bytes(bad)
        with pytest.raises(UserError, match=r"shard-00001\.arrow: this shard .* is damaged"):
            TokenStore.open(tmp_path / "store")
    shard.unlink()
    with pytest.raises(UserError, match=r"shard-00001\.arrow: this shard .* is missing"):
        TokenStore.open(tmp_path / "store")
    middle = len(good) // 2
    shard.write_bytes(good[:middle] + bytes([good[middle] ^ 4]) + good[middle + 1 :])
    with pytest.raises(UserError, match=r"shard-00001\.arrow: this shard .* is damaged"):
        TokenStore.open(tmp_path / "store").metadata(["cell"])
    shard.write_bytes(good)
    np.save(tmp_path / "store" / "genes.npy", np.load(tmp_path / "store" / "genes.npy") + 1)
    with pytest.raises(UserError, match=r"genes\.npy: missing or damaged; make the tokens again"):
        TokenStore.open(tmp_path / "store")
    with pytest.raises(UserError, match="not a token store"):
        TokenStore.open(tmp_path)


def test_damaged_index(tmp_path):
    write(tmp_path / "store")
    path = tmp_path / "store" / "index.json"
    index = json.loads(path.read_text())
    changes = {"arrays": {}}, {"rows": 14}, {"shards": [{}]}
    for text in ("{", *(json.dumps(index | change) for change in changes)):
        path.write_text(text)
        with pytest.raises(UserError, match=r"index\.json: damaged"):
            TokenStore.open(tmp_path / "store")
