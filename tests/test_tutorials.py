"""The tutorials run, with the results that they state. The kernel's is in ``test_doors.py``."""

import os
import re
import runpy
from collections.abc import Mapping
from pathlib import Path

import anndata
import nbformat
import numpy as np
import pandas as pd
import pytest
from nbclient import NotebookClient
from scipy.spatial.distance import cdist, pdist

import scsigmoid as ss
from scsigmoid.corpus.embedded import real_cells

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs/tutorials"


def run(name: str, folder: Path, changes: Mapping[str, str] | None = None) -> str:
    """Execute a notebook in a folder. Return the text of its outputs.

    ``changes`` are texts that replace others, each of which is in one cell.
    """
    notebook = nbformat.read(TUTORIALS / name, as_version=4)
    for old, new in (changes or {}).items():
        (cell,) = (cell for cell in notebook.cells if old in cell.source)
        cell.source = cell.source.replace(old, new)
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=400, kernel_name="python3", resources=place).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "\n".join(each.get("text") or each["data"].get("text/plain", "") for each in outputs)


@pytest.fixture(scope="module")
def one_cell(tmp_path_factory):
    """Return the variables of the tutorial about one cell after its last cell of code."""
    notebook = nbformat.read(TUTORIALS / "one_cell.ipynb", as_version=4)
    program = tmp_path_factory.mktemp("tutorial") / "one_cell.py"
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    program.write_text(code, encoding="utf-8")
    return runpy.run_path(str(program))


def test_the_embedding_of_one_cell_is_that_of_the_python_interface(one_cell) -> None:
    table = real_cells(seed=42, held_out=True)
    is_kept = np.isin(table.obs["cell_type"], one_cell["TYPES"])
    adata = anndata.AnnData(table.counts[is_kept], var=pd.DataFrame(index=list(table.genes)))
    ss.embed(adata, ss.load("blood", device="cpu"), verbose=False)
    embedding = one_cell["embedding"]
    assert embedding.shape == (71, 384)
    np.testing.assert_allclose(embedding, adata.obsm["X_scsigmoid"], atol=1e-5)


def test_the_mmd_of_one_cell_is_that_of_the_formula(one_cell) -> None:
    x, y = one_cell["monocytes"].astype(float), one_cell["b_cells"].astype(float)
    variance = np.median(pdist(np.concatenate([x, y]), "sqeuclidean"))
    # The mean kernel of pairs of different cells, within each type and between types.
    within = [np.exp(-pdist(cells, "sqeuclidean") / (2 * variance)).mean() for cells in (x, y)]
    between = np.exp(-cdist(x, y, "sqeuclidean") / (2 * variance)).mean()
    assert one_cell["mmd"] == pytest.approx(np.sqrt(sum(within) - 2 * between), rel=1e-9)


def test_embed_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "SCSIGMOID_REAL_DATA" not in os.environ:
        pytest.skip("SCSIGMOID_REAL_DATA is not set: the tutorial needs pbmc_3k.h5ad")
    # Fewer cells than the tutorial samples.
    cells = anndata.read_h5ad(Path(os.environ["SCSIGMOID_REAL_DATA"]) / "pbmc_3k.h5ad")[::11]
    cells.write_h5ad(tmp_path / "cells.h5ad")
    monkeypatch.setenv("CELLS", str(tmp_path / "cells.h5ad"))
    # Numba's compiled code of umap-learn is read from the disk.
    imports = (
        "from scsigmoid.evaluation.umap import import_umap\n\nimport_umap()\nimport scanpy as sc"
    )
    output = run("embed_cells.ipynb", tmp_path, {"import scanpy as sc": imports})
    scores = dict(re.findall(r"^(logistic|neighbors) +\d\.\d+ +(\d\.\d+)", output, re.MULTILINE))
    assert set(scores) == {"logistic", "neighbors"}
    assert all(float(accuracy) > 0.7 for accuracy in scores.values())  # chance is 0.26
    assert "GNLY" in output  # near NKG7


@pytest.mark.faults  # trains for a minute
def test_own_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "SCSIGMOID_REAL_DATA" not in os.environ:
        pytest.skip("SCSIGMOID_REAL_DATA is not set: the tutorial needs pbmc_3k.h5ad")
    cells = tmp_path / "PBMC 3k.h5ad"  # not the name of its evaluation dataset
    cells.symlink_to(Path(os.environ["SCSIGMOID_REAL_DATA"]) / "pbmc_3k.h5ad")
    monkeypatch.setenv("CELLS", str(cells))
    monkeypatch.setenv("SCSIGMOID", str(ROOT))
    output = run("own_cells.ipynb", tmp_path)
    probes = dict(re.findall(r"^X_(\w+) +(\d\.\d+)", output, re.MULTILINE))
    assert set(probes) == {"scsigmoid", "pca", "random"}
    # Seven types: a random embedding is at chance, a trained one far above.
    assert float(probes["random"]) < 0.25
    assert float(probes["scsigmoid"]) > 0.4


@pytest.mark.parametrize("path", sorted(TUTORIALS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_stored_outputs_are_small_and_without_local_paths(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert path.stat().st_size < 300_000
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert not re.search(r"/(home|root|tmp|work)/", path.read_text(encoding="utf-8"))
