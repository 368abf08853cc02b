"""Layouts of newer and older releases of anndata and of SeuratDisk are read, and can be written."""

from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
from anndata.io import write_elem
from scipy.sparse import csc_matrix, csr_matrix
from stages import dense, hold_out, plain_text, write_cells

import scsigmoid as ss
from scsigmoid.cells.embed_file import embed_file
from scsigmoid.config.schema import Dataset
from scsigmoid.corpus.cell_types import choose_label
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.hdf5 import read_obs
from scsigmoid.corpus.held_out import cells_of_part

COUNTS = np.random.default_rng(0).poisson(0.8, (30, 12)) + 1
TYPES = ["T cell", "B cell", "Café"] * 10
NOTES = [f"note {number}" for number in range(30)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with categories, text and numbers, with missing values, in ``obs``."""
    obs = {
        "cell_type": pd.Categorical(TYPES),
        "stage": pd.Categorical([None, "x", "y"] * 10, ["y", "x"], ordered=True),
        "note": NOTES,
        "n": np.arange(30),
    }
    with plain_text():
        return write_cells(
            tmp_path / "cells.h5ad", COUNTS, obs=obs, var={"feature_name": ["A"] * 12}
        )


def as_anndata07(file: Any) -> None:
    """Store categories as anndata 0.7 and SeuratDisk do: in ``__categories``, by reference."""
    for frame in (file["obs"], file["var"]):
        frame.attrs["encoding-version"] = "0.1.0"
        for name in frame.attrs["column-order"]:
            old = frame[name]
            if isinstance(old, h5py.Group):
                codes, texts, ordered = old["codes"][:], old["categories"][:], old.attrs["ordered"]
                del frame[name]
                dtype = h5py.string_dtype()
                stored = frame.create_dataset(f"__categories/{name}", data=texts, dtype=dtype)
                stored.attrs["ordered"] = bool(ordered)
                frame[name] = codes
                frame[name].attrs["categories"] = stored.ref
            else:
                for key in tuple(old.attrs):
                    del old.attrs[key]


def as_nullable(file: Any, name: str, missing: int | None = None) -> None:
    """Store an array of text as anndata's nullable-string-array."""
    texts = file[name].asstr()[:].astype(object)
    del file[name]
    group = file.create_group(name)
    encoding = {"encoding-type": "nullable-string-array", "encoding-version": "0.1.0"}
    group.attrs.update({**encoding, "na-value": "NA"})
    write_elem(group, "values", texts)
    write_elem(group, "mask", np.arange(len(texts)) == missing)


def as_julia(file: Any) -> None:
    """Store all attributes with text as bytes of fixed length, as HDF5.jl of Julia does."""

    def replace(_: str, stored: Any) -> None:
        for name, value in [*stored.attrs.items()]:
            if isinstance(value, str):
                stored.attrs[name] = np.bytes_(value.encode())
            elif value.dtype == object:
                stored.attrs[name] = np.array([text.encode() for text in value], dtype="S")

    replace("", file)
    file.visititems(replace)


def check_obs(obs: pd.DataFrame, path: Path) -> None:
    """Check the values, and that anndata can write them with its default settings."""
    assert list(obs.cell_type) == TYPES
    assert list(obs.stage.cat.categories) == ["y", "x"]
    assert obs.stage.cat.ordered
    assert obs.stage.isna().sum() == 10
    assert list(obs.note) == NOTES
    assert list(obs.n) == list(range(30))
    assert list(obs.index) == [f"cell{cell}" for cell in range(30)]
    anndata.AnnData(obs=obs).write_h5ad(path.with_name("written.h5ad"))


def test_anndata07(path: Path, recwarn: pytest.WarningsRecorder) -> None:
    before = open_cells(path)
    with h5py.File(path, "r+") as file:
        as_anndata07(file)
    recwarn.clear()
    cells = open_cells(path)
    assert (cells.genes, cells.names) == (before.genes, before.names)
    assert cells.obs(["cell_type", "stage"])["cell_type"].tolist() == TYPES
    assert cells.obs(["stage"])["stage"].tolist() == ["", "x", "y"] * 10
    label = Dataset(title="Mine", label="*", types=["T cell", "B cell"])
    assert choose_label(cells, "mine", label) == "cell_type"
    check_obs(read_obs(path), path)
    assert not [str(warning.message) for warning in recwarn if "encoding" in str(warning.message)]


@pytest.mark.parametrize("kind", [csr_matrix, csc_matrix, np.asarray])
def test_attributes_of_julia(kind: Any, path: Path) -> None:
    """Such files were called damaged, although anndata reads them."""
    with h5py.File(path, "r+") as file:
        del file["X"]
        write_elem(file, "X", kind(COUNTS))
    before = open_cells(path)
    with h5py.File(path, "r+") as file:
        as_julia(file)
    cells = open_cells(path)
    assert (cells.genes, cells.names) == (before.genes, before.names)
    np.testing.assert_array_equal(dense(cells), COUNTS)
    check_obs(read_obs(path), path)


def test_a_frame_without_columns_has_an_attribute_without_values(path: Path) -> None:
    """HDF5 can store no values as a space without dimensions."""
    before = open_cells(path)
    with h5py.File(path, "r+") as file:
        del file["var/feature_name"]
        file["var"].attrs["column-order"] = h5py.Empty("S1")
    assert open_cells(path).genes == before.genes


@pytest.mark.parametrize("kind", [str, np.bytes_])
def test_the_name_of_a_single_column_may_be_a_scalar(kind: Any, path: Path) -> None:
    """It was split into letters, or raised an AttributeError."""
    before = open_cells(path)
    with h5py.File(path, "r+") as file:
        for frame, column in {"obs": "cell_type", "var": "feature_name"}.items():
            file[frame].attrs["column-order"] = kind(column)
    cells = open_cells(path)
    assert (cells.genes, cells.names) == (before.genes, before.names)
    assert list(read_obs(path)) == ["cell_type"]


@pytest.mark.parametrize(
    "name",
    [
        "obs/note",
        "obs/_index",
        "obs/cell_type/categories",
        "var/_index",
        "var/feature_name/categories",
    ],
)
def test_nullable_strings(name: str, path: Path) -> None:
    before = open_cells(path)
    with h5py.File(path, "r+") as file:
        as_nullable(file, name)
    cells = open_cells(path)
    assert (cells.genes, cells.names) == (before.genes, before.names)
    assert cells.obs(["cell_type"])["cell_type"].tolist() == TYPES
    check_obs(read_obs(path), path)


def test_nullable_strings_as_categories_of_anndata07(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        as_anndata07(file)
        for name in ("cell_type", "stage"):
            as_nullable(file, f"obs/__categories/{name}")
        file["obs/__categories/stage"].attrs["ordered"] = True
    assert open_cells(path).obs(["cell_type"])["cell_type"].tolist() == TYPES
    check_obs(read_obs(path), path)


def test_missing_nullable_strings(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        as_nullable(file, "obs/note", missing=3)
    assert open_cells(path).obs(["note"])["note"].tolist() == [*NOTES[:3], "", *NOTES[4:]]
    obs = read_obs(path)
    anndata.AnnData(obs=obs).write_h5ad(path)
    note = anndata.read_h5ad(path).obs.note
    assert note.isna().tolist() == [number == 3 for number in range(30)]
    assert note.dropna().tolist() == [*NOTES[:3], *NOTES[4:]]


@pytest.mark.parametrize("layout", ["0.7", "nullable"])
def test_stages_that_copy_obs(layout: str, path: Path, tmp_path: Path) -> None:
    """Held-out cells are copied with their obs (``fetch``)."""
    with h5py.File(path, "r+") as file:
        if layout == "0.7":
            as_anndata07(file)
        else:
            for name in ("obs/note", "obs/_index", "obs/cell_type/categories", "var/_index"):
                as_nullable(file, name)
    part, held, _ = hold_out(path, tmp_path / "run", held_out=0.3)
    [(_, trained)] = cells_of_part(part)
    assert trained.n_cells + open_cells(held).n_cells == 30
    assert {*anndata.read_h5ad(held).obs.cell_type} <= {*TYPES}


def test_embed(tmp_path: Path) -> None:
    """The same embedding in all layouts."""
    model = ss.load("blood", device="cpu")
    genes = [gene for gene in model.vocabulary.gene_ids if gene.startswith("ENSG")][:12]
    with plain_text():
        path = write_cells(tmp_path / "cells.h5ad", COUNTS, genes=genes, obs={"note": NOTES})
    whole, embeddings = path.read_bytes(), []
    for layout in ("new", "0.7", "nullable"):
        path.write_bytes(whole)
        with h5py.File(path, "r+") as file:
            if layout == "0.7":
                as_anndata07(file)
            elif layout == "nullable":
                for name in ("obs/note", "obs/_index", "var/_index"):
                    as_nullable(file, name)
        output = tmp_path / f"{layout}.h5ad"
        embed_file(path, model, output)
        adata = anndata.read_h5ad(output)
        assert adata.obs.note.tolist() == NOTES
        embeddings.append(adata.obsm["X_scsigmoid"])
    np.testing.assert_array_equal(embeddings[1:], embeddings[:1] * 2)
