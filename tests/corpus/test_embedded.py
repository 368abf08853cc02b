"""The embedded corpus: recovered counts, the generative model, the CELLxGENE layout."""

import anndata
import numpy as np
import pytest
from stages import dense

from scsigmoid.config.check import load
from scsigmoid.config.schema import EmbeddedCorpus
from scsigmoid.corpus import embedded
from scsigmoid.corpus.cell_types import cell_types
from scsigmoid.corpus.embedded import FACETS, real_cells, recover_counts, simulate
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.errors import UserError
from scsigmoid.files import sha256


@pytest.fixture(scope="module")
def sizes() -> EmbeddedCorpus:
    return load().corpus.embedded


def test_counts_are_recovered_from_rounded_logs():
    generator = np.random.default_rng(1)
    counts = generator.poisson(1.5, (40, 50)) * generator.integers(1, 40, (40, 50))
    totals = counts.sum(axis=1) + generator.integers(1000, 8000, 40).astype(float)
    stored = np.round(np.log1p(counts / totals[:, None] * 1e4), 3).astype(np.float32)
    np.testing.assert_array_equal(recover_counts(stored, totals), counts)
    with pytest.raises(UserError, match="its values differ from the expected"):
        recover_counts(stored * 1.1, totals)


def test_real_cells_are_split_by_cell():
    training, held_out = (real_cells(42, held_out=flag) for flag in (False, True))
    assert training.counts.shape == (490, 760)
    assert held_out.counts.shape == (210, 760)
    both = np.concatenate([training.counts, held_out.counts])
    assert len(np.unique(both, axis=0)) == 700
    assert {row[row > 0].min() for row in both} == {1}
    assert set(held_out.obs["cell_type"]) <= set(training.obs["cell_type"])
    assert real_cells(7, held_out=True).counts.tolist() != held_out.counts.tolist()


@pytest.mark.parametrize("name", ["simulated_heart", "pbmc68k"])
def test_layout_and_same_bytes(name, tmp_path, sizes):
    paths = [tmp_path / f"{index}.h5ad" for index in range(3)]
    for path, seed in zip(paths, (42, 42, 43), strict=True):
        embedded.write_embedded(name, sizes, seed, path)
    first, second, other = map(sha256, paths)
    assert first == second != other
    adata = anndata.read_h5ad(paths[0])
    counts = adata.raw.X.toarray()
    assert np.array_equal(counts, np.rint(counts))
    assert (counts.sum(axis=1) > 0).all()
    normalized = np.log1p(counts / counts.sum(axis=1, keepdims=True) * 1e4)
    np.testing.assert_allclose(adata.X.toarray(), normalized, rtol=1e-5)
    assert {"assay", "cell_type", "donor_id", "tissue", "disease"} <= {*adata.obs}
    np.testing.assert_array_equal(dense(open_cells(paths[0])), counts)


def test_distribution_of_lengths(sizes):
    table = simulate("many", 4000, dict.fromkeys(FACETS, "tissue"), sizes, 42)
    lengths = (table.counts > 0).sum(axis=1)
    assert abs(np.median(lengths) / sizes.median_length - 1) < 0.08
    assert abs(np.log(lengths).std() - 0.65) < 0.06
    assert abs((lengths > 128).mean() - 0.43) < 0.04
    assert (lengths <= 384).mean() > 0.94
    assert lengths.max() <= sizes.genes


def test_training_files_have_all_types_and_different_donors(tmp_path, sizes):
    small = sizes.model_copy(update={"training_cells": 400})
    for row in embedded.list_embedded(small, {})[:2]:
        embedded.write_embedded(row.file, small, 42, tmp_path / f"{row.file}.h5ad")
    first, second = (open_cells(tmp_path / f"simulated_training_0{i}.h5ad") for i in range(2))
    assert first.n_cells == second.n_cells == 200
    assert set(cell_types(first, "cell_type")) == set(FACETS)
    donors = [set(cells.obs(["donor_id"])["donor_id"]) for cells in (first, second)]
    assert len(donors[0]) == sizes.donors
    assert not donors[0] & donors[1]
