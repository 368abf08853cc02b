"""Cells that occur twice are trained on once, and never if one of them is held out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from stages import dense, local_corpus, make_evaluation, make_manifest, make_part, write_cells

from scsigmoid.config.schema import Dataset, LocalFiles
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.held_out import cells_of_part
from scsigmoid.corpus.repeated_cells import FEWEST_GENES
from scsigmoid.errors import UserError

GENES = np.array([f"ENSG{index:011d}" for index in range(60)])


def draw(cells: int, seed: int = 0) -> np.ndarray:
    """Return counts of cells that are all different."""
    return np.random.default_rng(seed).poisson(0.9, (cells, len(GENES)))


def write(
    path: Path, counts: np.ndarray, genes: Any = GENES, raw: Any = None, held_out: Any = False
) -> LocalFiles:
    """Write counts of cells of two types as CSR."""
    types = {"cell_type": ["B cell", "T cell"] * len(counts)}
    write_cells(path, sp.csr_matrix(counts.astype(np.float32)), raw, [*genes], types)
    return LocalFiles(files=str(path), held_out=held_out)


def counts_of(cells: Any) -> list[tuple[int, ...]]:
    """Return the counts of each cell, with the genes in the order of ``GENES``."""
    frame = pd.DataFrame(dense(cells), columns=cells.genes).reindex(columns=GENES, fill_value=0)
    return [*map(tuple, frame.to_numpy(dtype=int).tolist())]


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Any, Any, Any]]:
    """Return a function that makes the manifest of files and fetches their cells.

    It returns the counts of the training cells, the counts of the held-out cells, and the summary.
    """

    def fetch_cells(*entries: LocalFiles) -> tuple[Any, Any, Any]:
        folder = tmp_path_factory.mktemp("run")
        corpus = local_corpus(*entries, parts=2)
        paths = {Path(entry.files).stem for entry in entries if entry.held_out}
        datasets = {name: Dataset(title=name) for name in paths}
        make_manifest(corpus, datasets, folder)
        training, held_out = [], []
        for part in range(2):
            for row, cells in cells_of_part(make_part(corpus, folder, part)):
                assert int(row.cells) == cells.count_nonempty()
                training += counts_of(cells)
        for name, dataset in datasets.items():
            held_out += counts_of(open_cells(make_evaluation(corpus, name, dataset, folder)[0]))
        return training, held_out, json.loads((folder / "manifest.json").read_text())

    return fetch_cells


def test_cells_twice_in_one_file(run, tmp_path):
    """Some of the cells are held out."""
    counts = draw(150)
    twice = np.vstack([counts, counts[:100]])
    entry = write(tmp_path / "a.h5ad", twice, held_out=0.3)
    training, held_out, summary = run(entry)
    assert len(held_out) == 75
    assert not {*training} & {*held_out}
    # Brute force: all counts that are not held out, once.
    assert sorted(training) == sorted({*map(tuple, twice.tolist())} - {*held_out})
    [excluded] = summary["excluded"].values()
    assert excluded["held_out"] + excluded["repeated"] == 250 - 75 - len(training)
    assert excluded["held_out"] > 0 < excluded["repeated"]
    assert run(entry) == (training, held_out, summary)


def test_training_cells_of_a_held_out_file(run, tmp_path):
    """The shared cells have other names, another order of genes and another storage."""
    counts, order = draw(110), np.random.default_rng(1).permutation(len(GENES))
    other = np.vstack([draw(60, seed=2), counts[:50]])
    trained = write(tmp_path / "a.h5ad", other[:, order], genes=GENES[order])
    adata = anndata.read_h5ad(tmp_path / "a.h5ad")
    adata.X = sp.csc_matrix(adata.X.astype(np.int64))
    adata.write_h5ad(tmp_path / "a.h5ad")
    tested = write(tmp_path / "b.h5ad", counts, held_out=True)
    training, held_out, summary = run(trained, tested)
    assert sorted(training) == sorted(map(tuple, other[:60].tolist()))
    assert len(held_out) == 110
    assert summary["excluded"] == {str(tmp_path / "a.h5ad"): {"held_out": 50, "repeated": 0}}


def test_all_training_cells_are_held_out(run, tmp_path):
    first = write(tmp_path / "a.h5ad", draw(150))
    copy = write(tmp_path / "b.h5ad", draw(150), held_out=True)
    with pytest.raises(UserError, match=r"no cell is left for training.*a\.h5ad"):
        run(first, copy)
    more = write(tmp_path / "c.h5ad", draw(20, seed=1))
    training, held_out, summary = run(first, copy, more)
    assert sorted(training) == sorted(map(tuple, draw(20, seed=1).tolist()))
    assert (len(held_out), summary["training"]["files"]) == (150, 1)


def test_a_processed_copy_with_fewer_genes(run, tmp_path):
    """X is normalized, and raw has half of the genes. Cells are compared by the shared genes."""
    counts = draw(60)
    whole = write(tmp_path / "whole.h5ad", counts)
    raw = sp.csr_matrix(counts[:40, 10:50].astype(np.float32))
    write(tmp_path / "copy.h5ad", np.log1p(counts[:40, 10:50]), genes=GENES[10:50], raw=raw)
    copy = LocalFiles(files=str(tmp_path / "copy.h5ad"))
    training, _, summary = run(whole, copy.model_copy(update={"held_out": True}))
    assert sorted(training) == sorted(map(tuple, counts[40:].tolist()))
    assert summary["excluded"][whole.files] == {"held_out": 40, "repeated": 0}
    tested = whole.model_copy(update={"held_out": True})
    training, _, _ = run(tested, copy, write(tmp_path / "c.h5ad", draw(9, seed=1)))
    assert len(training) == 9
    # Of cells that are trained on twice, those with more genes are kept.
    training, _, summary = run(whole, copy)
    assert sorted(training) == sorted(map(tuple, counts.tolist()))
    assert summary["excluded"] == {copy.files: {"held_out": 0, "repeated": 40}}


def test_cells_of_few_genes_are_alike_by_chance(run, tmp_path):
    """They are left out only if a held-out cell has the same counts. Empty cells are kept."""
    counts = np.zeros((8, len(GENES)), int)
    counts[1:4, 0] = 1
    counts[4:6, : FEWEST_GENES - 1] = 1
    counts[6:, :FEWEST_GENES] = 1
    trained = write(tmp_path / "a.h5ad", counts)
    tested = write(tmp_path / "b.h5ad", np.vstack([draw(30), counts[:2]]), held_out=True)
    training, _, summary = run(trained, tested)
    assert [sum(cell) for cell in training] == [0, 9, 9, 10]
    assert summary["excluded"][trained.files] == {"held_out": 3, "repeated": 1}
