"""The token store: readable by others, shards bounded, damage named."""

import datasets
import numpy as np
import pyarrow as pa
import pytest
from tokens.conftest import write_store

from scsigmoid.tokens.store import TokenStore


@pytest.mark.parametrize(("size", "dtype"), [(65535, np.uint16), (65536, np.uint32)])
def test_cells(size, dtype, tmp_path):
    table = write_store(tmp_path / "store", vocabulary_size=size)
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


def test_shards_are_bounded_and_readable_by_others(tmp_path):
    table = write_store(tmp_path / "store")
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
        write_store(tmp_path / "a"),
        write_store(tmp_path / "none", count=0),
        write_store(tmp_path / "b", count=3, first=13),
    ]
    store = TokenStore.open([tmp_path / name for name in ("a", "none", "b")])
    expected = [cell for table in tables for cell in table["input_ids"].to_pylist()]
    assert len(store) == 16
    assert store.cells(range(16), 99).tokens.tolist() == [t for cell in expected for t in cell]
    assert store.metadata(["cell"])["cell"].tolist() == list(range(16))
    assert len(TokenStore.open(tmp_path / "none")) == 0
