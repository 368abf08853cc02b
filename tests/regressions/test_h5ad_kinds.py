"""Intact files of other kinds are named for what they are, with a remedy. They are not damaged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
from stages import plain_text, write_cells
from tenx import tenx_file

from scsigmoid.cli import main
from scsigmoid.config.local_files import expand
from scsigmoid.config.schema import LocalFiles
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.hdf5 import read_obs
from scsigmoid.errors import UserError

COUNTS = np.random.default_rng(0).poisson(0.8, (30, 12)) + 1


def anndata06(path: Path, *frames: str) -> None:
    """``obs`` and ``var`` as one compound dataset each."""
    with plain_text():
        write_cells(path, COUNTS)
    with h5py.File(path, "r+") as file:
        for name in frames or ("obs", "var"):
            names = file[name]["_index"][:]
            rows = [(text, 1.0) for text in names]
            del file[name]
            file[name] = np.array(rows, dtype=[("index", "S40"), ("n", "f4")])
    assert anndata.read_h5ad(path).n_obs == 30


def loom(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["matrix"] = COUNTS.T
        file["row_attrs/Gene"] = np.array([f"GENE{i}" for i in range(12)], dtype="S")
        file["col_attrs/CellID"] = np.array([f"cell{i}" for i in range(30)], dtype="S")


def h5seurat(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["cell.names"] = np.array([f"cell{i}" for i in range(30)], dtype="S")
        file["assays/RNA/counts/data"] = [1.0]
        file["meta.data/nCount_RNA"] = np.ones(30)


def tenx(path: Path) -> None:
    tenx_file(path, COUNTS, ["Gene Expression"] * 12)


def tenx_version_2(path: Path) -> None:
    """As Cell Ranger 2: a group for each genome."""
    tenx(path)
    with h5py.File(path, "r+") as file:
        file.move("matrix", "GRCh38")


def h5mu(path: Path) -> None:
    write_cells(path, COUNTS)
    with h5py.File(path, "r+") as file:
        file.attrs["encoding-type"] = "MuData"
        for name in ("obs", "var"):
            file.copy(name, f"mod/rna/{name}")
        file.move("X", "mod/rna/X")


def without_index(path: Path) -> None:
    write_cells(path, COUNTS)
    with h5py.File(path, "r+") as file:
        del file["obs"].attrs["_index"]


def other(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["weights"] = [1.0]


KINDS = {
    "v06.h5ad": (anndata06, "obs .*anndata 0.6.* write it again"),
    "var.h5ad": (lambda path: anndata06(path, "var"), "var .*anndata 0.6.* write it again"),
    "cells.loom": (loom, "loom file.*read_loom"),
    "loom.h5ad": (loom, "loom file.*read_loom"),
    "cells.h5seurat": (h5seurat, "h5Seurat.*SeuratDisk"),
    "tenx.hdf5": (tenx, r"10x file.*rename"),
    "tenx.h5ad": (tenx_version_2, r"10x file.*rename"),
    "cells.h5mu": (h5mu, "MuData.*modality"),
    "frame.h5ad": (without_index, "obs is not a data frame"),
    "other.h5ad": (other, "not an h5ad file"),
}


@pytest.mark.parametrize("name", KINDS)
def test_other_kinds(name: str, tmp_path: Path) -> None:
    write, message = KINDS[name]
    write(tmp_path / name)
    readers: tuple[Callable[[Path], Any], ...] = (open_cells, read_obs)
    for read in readers:  # `embed` first reads obs
        with pytest.raises(UserError, match=message) as error:
            read(tmp_path / name)
        assert "damaged" not in str(error.value)


def test_names_of_other_kinds_in_an_h5ad_file(tmp_path: Path) -> None:
    """Columns and layers may have any name."""
    columns = {"barcodes": ["a"] * 30, "matrix": ["b"] * 30, "cell.names": ["c"] * 30}
    path = write_cells(tmp_path / "cells.h5ad", COUNTS, obs=columns)
    adata = anndata.read_h5ad(path)
    adata.layers["matrix"] = adata.X
    adata.uns = {"mod": {"barcodes": np.ones(3)}, "assays": {"row_attrs": "x"}}
    adata.write_h5ad(path)
    assert open_cells(path).n_cells == 30


LATIN = "Café".encode("latin-1")
TEXTS = {
    "UTF-8": np.array([LATIN] * 30, dtype=h5py.string_dtype()),
    "ASCII": np.array([LATIN] * 30, dtype=h5py.string_dtype("ascii")),
    "fixed": np.array([LATIN] * 30),
}


@pytest.mark.parametrize("stored_as", TEXTS)
@pytest.mark.parametrize("place", ["obs/cell_type", "obs/_index", "obs/cell_type/categories"])
def test_text_in_latin1(stored_as: str, place: str, tmp_path: Path) -> None:
    labels = pd.Categorical.from_codes([0] * 30, [f"type {number}" for number in range(30)])
    path = write_cells(tmp_path / "cells.h5ad", COUNTS, obs={"cell_type": labels})
    with h5py.File(path, "r+") as file:
        encoding = dict(file[place].attrs)
        del file[place]
        file[place] = TEXTS[stored_as]
        if place != "obs/cell_type":
            file[place].attrs.update(encoding)
    with pytest.raises(UserError, match="UTF-8") as error:
        read_obs(path)
    assert "damaged" not in str(error.value)
    assert "\n" not in str(error.value)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "loop.h5ad").symlink_to(tmp_path / "loop.h5ad")
    (tmp_path / "folder").mkdir()
    (tmp_path / "cells.csv").write_text("cells")
    with h5py.File(tmp_path / "cells.loom", "w") as file:
        file["matrix"] = [1, 2]
    for name, message in (
        ("none.h5ad", "no such file"),
        ("loop.h5ad", "no such file"),
        ("folder", "a folder, not an h5ad file; give .* a folder with 10x's matrix.mtx"),
        ("cells.csv", r"not an h5ad file; give .* convert other formats with anndata\.io"),
        ("cells.loom", r"not an h5ad file \(obs missing\); give .* convert other formats"),
    ):
        with pytest.raises(UserError, match=rf"{name}: {message}"):
            open_cells(tmp_path / name)


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_store(version: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A folder was only said to be without a 10x matrix."""
    path = tmp_path / "cells.zarr"
    (path / "X").mkdir(parents=True)
    (path / {2: ".zgroup", 3: "zarr.json"}[version]).write_text(f'{{"zarr_format": {version}}}')
    out = tmp_path / "out.h5ad"
    assert main(["embed", str(path), str(out), "--checkpoint", "blood", "--device", "cpu"]) == 1
    error = capfd.readouterr().err
    assert f"{path}: a Zarr store" in error
    assert "read_zarr" in error
    assert not out.exists()
    with pytest.raises(UserError, match=r"cells\.zarr: .*Zarr store.*read_zarr"):
        expand([LocalFiles(files=str(path))])
