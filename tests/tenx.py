"""Files as Cell Ranger 3 and newer write them."""

import gzip
from pathlib import Path

import h5py
import numpy as np
import scipy.io
import scipy.sparse as sp


def tenx_folder(folder: Path, counts, prefix: str, kinds: list[str]) -> Path:
    """Write a folder with matrix, barcodes and features. ``kinds`` has the kind of each feature."""
    folder.mkdir()
    genes = [f"ENSG{index:011d}\tGENE{index % 11}\t{kind}" for index, kind in enumerate(kinds)]
    lines = {"features.tsv": genes, "barcodes.tsv": [f"AC-{i}" for i in range(len(counts))]}
    for name, rows in lines.items():
        (folder / f"{prefix}{name}.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    with gzip.open(folder / f"{prefix}matrix.mtx.gz", "wb") as file:
        scipy.io.mmwrite(file, sp.csc_matrix(counts.T))
    return folder


def tenx_file(path: Path, counts, kinds: list[str]) -> Path:
    """Write the HDF5 file. ``kinds`` has the kind of each feature."""
    matrix = sp.csc_matrix(counts.T.astype(np.int32))
    with h5py.File(path, "w") as file:
        group = file.create_group("matrix")
        group["barcodes"] = np.array([f"AC-{i}" for i in range(len(counts))], dtype="S")
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(matrix, name)
        group["shape"] = matrix.shape
        features = group.create_group("features")
        count = len(kinds)
        features["id"] = np.array([f"ENSG{i:011d}" for i in range(count)], dtype="S")
        features["name"] = np.array([f"GENE{i % 11}" for i in range(count)], dtype="S")
        features["feature_type"] = np.array(kinds, dtype="S")
        features["genome"] = np.array(["GRCh38"] * count, dtype="S")
    return path
