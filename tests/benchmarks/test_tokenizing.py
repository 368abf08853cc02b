"""The files that are measured hold what they say, and every measurement gives a row."""

import anndata
import numpy as np
import pytest

from scsigmoid.benchmarks.large_files import copied, read_cells, simulated_cells
from scsigmoid.benchmarks.rows import read_rows
from scsigmoid.benchmarks.tokenizing import (
    TokenizingBenchmark,
    TokenizingRow,
    run_tokenizing_benchmark,
)


@pytest.mark.parametrize("storage", ["csr", "csc"])
def test_copies(storage, tmp_path):
    cells = simulated_cells(40, 30, genes=5000)
    path = copied(cells, 3, storage, tmp_path)
    whole = anndata.read_h5ad(path)
    assert whole.X.format == storage
    np.testing.assert_array_equal(whole.X.toarray(), np.tile(cells.X.toarray(), (3, 1)))
    assert whole.obs["cell_type"].tolist() == cells.obs["cell_type"].tolist() * 3
    np.testing.assert_array_equal(read_cells(path).X.toarray(), whole.X.toarray())


def test_rows(tmp_path):
    settings = TokenizingBenchmark(
        simulated_cells=300, simulated_genes=50, repetitions=1, lengths=999
    )
    work, output = tmp_path / "work", tmp_path / "rows.csv"
    run_tokenizing_benchmark(settings, work, output, tmp_path / "machine.json")
    rows = read_rows(output, TokenizingRow)
    assert [row.step for row in rows] == ["statistics", "tokens", "lengths"]
    assert [row.cells for row in rows] == [300, 300, 999]
    for row in rows:
        assert 0 < row.cpu_seconds < 60
        assert 0.03 < row.peak_gb < 2
        assert row.hours == pytest.approx(131.6e6 / 64 / row.cells_per_cpu_second / 3600)
    assert (tmp_path / "machine.json").is_file()
    assert not any(work.iterdir())
