"""Cells of a part over its shards: complete, in a uniform permutation."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from scsigmoid.errors import UserError
from scsigmoid.tokens.scatter import scatter

SCHEMA = pa.schema([("cell", pa.int64()), ("tokens", pa.list_(pa.uint16()))])


def batch(first: int, count: int) -> pa.RecordBatch:
    """Return cells with their numbers, and tokens that depend on them."""
    cells = range(first, first + count)
    tokens = [[cell + i for i in range(cell % 5 + 1)] for cell in cells]
    return pa.record_batch([list(cells), tokens], schema=SCHEMA)


def batches():
    first = 0
    for count in (5, 1, 0, 40, 17, 37):
        yield batch(first, count)
        first += count


def shards_of(batches, cells, shard_cells, tmp_path):
    shards = list(scatter(batches, cells, shard_cells, SCHEMA, tmp_path / "store"))
    assert not list(tmp_path.iterdir())
    return shards


def test_every_cell_is_in_one_shard(tmp_path):
    shards = shards_of(batches(), 100, 30, tmp_path)
    assert [shard.num_rows for shard in shards] == [25] * 4
    rows = [row for shard in shards for row in shard.to_pylist()]
    assert sorted(rows, key=lambda row: row["cell"]) == [
        row for part in batches() for row in part.to_pylist()
    ]
    assert [row["cell"] for row in rows] != list(range(100))
    # The sizes of batches do not matter.
    again = shards_of([pa.concat_batches(list(batches()))], 100, 30, tmp_path)
    assert rows == [row for shard in again for row in shard.to_pylist()]


def test_fewer_cells_than_expected(tmp_path):
    shards = shards_of(batches(), 120, 30, tmp_path)
    assert sorted(row["cell"] for shard in shards for row in shard.to_pylist()) == list(range(100))
    assert [shard.num_rows for shard in shards_of([], 2, 1, tmp_path)] == [0, 0]
    assert shards_of([], 0, 30, tmp_path) == []


def test_cells_of_a_file_spread_evenly_over_shards(tmp_path):
    """The first 1,000 of 4,000 cells are a file: a hypergeometric number is in each shard."""
    parts = [batch(0, 1000), batch(1000, 3000)]
    shards = shards_of(parts, 4000, 200, tmp_path)
    numbers = np.array([(shard["cell"].to_numpy() < 1000).sum() for shard in shards])
    variance = stats.hypergeom(4000, 1000, 200).var()
    statistic = ((numbers - 50) ** 2).sum() / variance * 19 / 20
    assert stats.chi2.ppf(0.0005, 19) < statistic < stats.chi2.ppf(0.9995, 19)
    places = np.concatenate([np.flatnonzero(shard["cell"].to_numpy() < 1000) for shard in shards])
    assert stats.kstest(places / 200, "uniform").pvalue > 1e-3


def test_too_many_shards(tmp_path):
    with pytest.raises(UserError, match=r"would make 1000 shards, more than 512; raise corpus\."):
        shards_of([], 10_000, 10, tmp_path)
