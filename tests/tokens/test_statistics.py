"""Gene statistics compared with exact medians, and merging."""

import itertools
from functools import reduce

import numpy as np
import pytest
import scipy.sparse as sp
from tokens.conftest import draw

from scsigmoid.files import sha256
from scsigmoid.tokens.statistics import (
    BINS,
    RATIO,
    GeneStatistics,
    count_cells,
    gather,
    merge,
    read_statistics,
    write_statistics,
)


def exact_medians(counts: np.ndarray) -> np.ndarray:
    scaled = counts / counts.sum(axis=1, keepdims=True) * 10_000
    return np.array(
        [np.median(column[column > 0]) if (column > 0).any() else np.nan for column in scaled.T]
    )


def gathered(folder, tmp_path) -> GeneStatistics:
    gather(folder, tmp_path / f"{folder.name}.arrow")
    return read_statistics(tmp_path / f"{folder.name}.arrow")


@pytest.mark.parametrize("cells", [1, 2, 3, 50, 501])
def test_medians_are_within_the_bound(cells, write_part, tmp_path):
    counts = draw(cells, cells, 60)
    statistics = gathered(write_part("part", [counts]), tmp_path)
    exact = exact_medians(counts)
    medians = statistics.medians()
    np.testing.assert_array_equal(np.isnan(medians), np.isnan(exact))
    assert np.nanmax(np.abs(medians / exact - 1)) <= RATIO - 1 + 1e-9
    assert statistics.n_cells == cells
    np.testing.assert_array_equal(statistics.cells, (counts > 0).sum(axis=0))


@pytest.mark.parametrize("seed", range(7))
def test_bins_equal_numpys_histogram(seed):
    """40 cells with two genes."""
    counts = np.exp(np.random.default_rng(seed).uniform(0, np.log(1e6), (40, 2))).astype(np.int32)
    counts[0, 0] = 2**31 - 1
    histogram = np.zeros((2, BINS), dtype=np.uint32)
    count_cells(sp.csr_matrix(counts), np.arange(2), histogram)
    share = counts / counts.sum(axis=1, dtype=np.int64, keepdims=True)
    # Bins contain their upper edge, unlike those of np.histogram. Therefore edges are a bit larger.
    ascending = RATIO ** -np.arange(BINS, -1.0, -1.0) * (1 + 1e-13)
    for gene in range(2):
        expected = np.histogram(share[:, gene], ascending)[0][::-1]
        assert histogram[gene].tolist() == expected.tolist()


def test_medians_interpolate_within_bins():
    """The n values of a bin are at the centers of n equal parts of its logarithm."""
    # 50 genes with 0 to 3 cells in every 300th bin, and none in the others
    histogram = np.random.default_rng(0).integers(0, 4, (50, BINS)) * (np.arange(BINS) % 300 == 7)
    histogram[0] = 0
    values = [
        [RATIO ** -(k + (i + 0.5) / row[k]) for k in np.flatnonzero(row) for i in range(row[k])]
        for row in histogram
    ]
    expected = [np.median(row) * 1e4 if row else np.nan for row in values]
    names = {f"g{gene}": "" for gene in range(50)}
    medians = GeneStatistics(names, sp.csr_matrix(histogram), 9).medians()
    np.testing.assert_allclose(medians, expected, rtol=1e-12)


def test_merging_is_exact(write_part, tmp_path):
    """Any order gives the same bytes. Parts may lack genes or be empty."""
    genes = [f"gene{index:02d}" for index in range(30)]
    counts = [draw(seed, 40, 30) for seed in range(4)]
    counts[0][:, 20:] = 0
    whole = gathered(write_part("whole", [np.concatenate(counts)], genes=genes), tmp_path)
    parts = [
        gathered(write_part("a", [counts[0][:, :20]], genes=genes[:20]), tmp_path),
        gathered(write_part("b", [x[:, ::-1] for x in counts[1:3]], genes=genes[::-1]), tmp_path),
        gathered(write_part("c", counts[3:], genes=genes), tmp_path),
        gathered(write_part("none", []), tmp_path),
    ]
    write_statistics(whole, tmp_path / "expected.arrow")
    for a, b, c, d in itertools.permutations(parts):
        for merged in (merge(merge(merge(a, b), c), d), merge(merge(a, b), merge(c, d))):
            write_statistics(merged, tmp_path / "merged.arrow")
            assert sha256(tmp_path / "merged.arrow") == sha256(tmp_path / "expected.arrow")


def test_first_of_several_gene_names_is_kept():
    nothing = sp.csr_matrix((1, BINS), dtype=np.int64)
    parts = [GeneStatistics({"g": name}, nothing, 1) for name in "bac"]
    assert reduce(merge, parts).names == {"g": "a"}
