"""Every value that is read is in the file itself, which its SHA-256 covers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from stages import plain_text, write_cells
from tenx import tenx_file

from scsigmoid.cli import main
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.tenx import as_h5ad
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import read_embedding, write_embedding

COUNTS = np.random.default_rng(0).poisson(1.0, (30, 12)) + 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Sparse counts in X, raw and a layer, and a dense layer. Next to it, a copy as target."""
    counts = sp.csr_matrix(COUNTS.astype(np.float32))
    with plain_text():
        path = write_cells(tmp_path / "cells.h5ad", counts, counts, var={"name": ["a"] * 12})
        adata = anndata.read_h5ad(path)
        adata.layers["dense"] = COUNTS.astype(np.float32)
        adata.layers["counts"] = counts
        adata.uns["scsigmoid"] = {"simulated": False}
        adata.write_h5ad(path)
    (tmp_path / "other.h5ad").write_bytes(path.read_bytes())
    return path


def external_link(file: Any, name: str, other: Path) -> None:
    del file[name]
    file[name] = h5py.ExternalLink(str(other), name)


def missing_file(file: Any, name: str, other: Path) -> None:
    external_link(file, name, other.with_name("missing.h5ad"))


def soft_link_to_an_external_link(file: Any, name: str, other: Path) -> None:
    del file[name]
    file["uns/elsewhere"] = h5py.ExternalLink(str(other), name)
    file[name] = h5py.SoftLink("/uns/elsewhere")


def external_storage(file: Any, name: str, other: Path) -> None:
    old = file[name]
    dtype = old.dtype if old.dtype.kind != "O" else np.dtype("S8")
    attributes, shape = dict(old.attrs), old.shape
    del file[name]
    size = int(np.prod(shape)) * dtype.itemsize
    new = file.create_dataset(name, shape, dtype, external=[(str(other), 0, size)])
    new.attrs.update(attributes)


def virtual(file: Any, name: str, other: Path) -> None:
    old = file[name]
    layout = h5py.VirtualLayout(old.shape, old.dtype)
    layout[...] = h5py.VirtualSource(str(other), name, old.shape, old.dtype)
    attributes = dict(old.attrs)
    del file[name]
    file.create_virtual_dataset(name, layout).attrs.update(attributes)


def virtual_without_source(file: Any, name: str, other: Path) -> None:
    virtual(file, name, other.with_name("missing.h5ad"))


WAYS = (
    external_link,
    missing_file,
    soft_link_to_an_external_link,
    external_storage,
    virtual,
    virtual_without_source,
)
DATASETS = (
    "X/data",
    "raw/X/indices",
    "raw/var/_index",
    "layers/dense",
    "layers/counts/indptr",
    "obs/_index",
    "obs/cell_type/codes",
    "obs/cell_type/categories",
    "var/name/codes",
    "uns/scsigmoid/simulated",
)
GROUPS = ("X", "obs", "var", "raw", "layers", "obs/cell_type", "uns/scsigmoid")


@pytest.mark.parametrize("way", WAYS)
def test_values_of_another_file_are_refused(way: Callable[..., None], path: Path) -> None:
    whole = path.read_bytes()
    is_link = way in WAYS[:3]
    for name in (*DATASETS, *GROUPS) if is_link else DATASETS[:-1]:
        path.write_bytes(whole)
        with h5py.File(path, "r+") as file:
            way(file, name, path.with_name("other.h5ad"))
        with pytest.raises(UserError, match=r"cells\.h5ad: .*another file"):
            open_cells(path)


def test_links_within_the_file_are_read(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file.move("raw/X", "uns/counts")
        file["raw/X"] = h5py.SoftLink("/uns/counts")
        file["uns/again"] = file["uns"]  # a hard link to a group around it
        file["uns/dangling"] = h5py.SoftLink("/nowhere")
    [chunk] = open_cells(path).chunks()
    np.testing.assert_array_equal(chunk.counts.toarray(), COUNTS)


def test_embed_does_not_copy_obs_of_another_file(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with h5py.File(path, "r+") as file:
        external_link(file, "obs", path.with_name("other.h5ad"))
    output = tmp_path / "out.h5ad"
    arguments = ["embed", str(path), str(output), "--checkpoint", "blood", "--device", "cpu"]
    assert main(arguments) == 1
    assert "another file" in capsys.readouterr().err
    assert not output.exists()


def test_tenx_file(tmp_path: Path) -> None:
    tenx = tenx_file(tmp_path / "sample.h5", COUNTS, ["Gene Expression"] * 12)
    (tmp_path / "other.h5").write_bytes(tenx.read_bytes())
    with h5py.File(tenx, "r+") as file:
        external_link(file, "matrix/data", tmp_path / "other.h5")
    with pytest.raises(UserError, match=r"sample\.h5: 'matrix/data' .*another file"), as_h5ad(tenx):
        pass


def test_embedding(tmp_path: Path) -> None:
    embedding = tmp_path / "a.h5ad"
    identity = {"model": "a", "dataset": "heart", "vocabulary": "0", "cells": "0"}
    obs = pd.DataFrame(index=["x", "y"])
    labels = np.array(["T", "B"], dtype=object)
    write_embedding(embedding, np.ones((2, 3), np.float32), labels, np.arange(2), identity, obs)
    read_embedding(embedding)
    (tmp_path / "other.h5ad").write_bytes(embedding.read_bytes())
    with h5py.File(embedding, "r+") as file:
        external_link(file, "obsm/X_a", tmp_path / "other.h5ad")
    with pytest.raises(UserError, match=r"a\.h5ad: 'obsm/X_a' .*another file"):
        read_embedding(embedding)
