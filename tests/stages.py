"""Stages from the manifest to the files of a corpus, with all paths in one folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata.io import write_elem

from scsigmoid.cli import main
from scsigmoid.config.check import as_yaml, load
from scsigmoid.config.schema import Config, Corpus, Dataset, LocalFiles
from scsigmoid.corpus.counts import Cells
from scsigmoid.corpus.fetch import fetch_evaluation, fetch_part
from scsigmoid.corpus.manifest import build_manifest
from scsigmoid.corpus.metadata import read_manifest, write_manifest


def plain_text() -> Any:
    """Let anndata write text as arrays, as before pandas 3, whose text it writes as groups."""
    return pd.option_context("future.infer_string", False)


def local_corpus(*entries: LocalFiles, parts: int = 1) -> Corpus:
    """Return the demo's corpus with the user's own files instead."""
    return load().corpus.model_copy(update={"source": "local", "local": [*entries], "parts": parts})


def configured(corpus: Corpus, datasets: Mapping[str, Dataset]) -> Config:
    """Return the demo's configuration with another corpus and other datasets."""
    return load().model_copy(update={"corpus": corpus, "datasets": {**datasets}})


def write_cells(
    path: Path,
    x: Any,
    raw: Any = None,
    genes: Sequence[str] | None = None,
    obs: Mapping[str, Any] | None = None,
    var: Mapping[str, Any] | None = None,
) -> Path:
    """Write an h5ad file. Integers in a dense array are written as float32, as users have them.

    Args:
        path: the file.
        x: the matrix, cells x genes.
        raw: the matrix of ``raw``; None if the file has no ``raw``.
        genes: index of ``var``; None for human ids.
        obs: columns, at least as long as ``x``; None for three cell types in turn.
        var: columns.
    """
    if isinstance(x, np.ndarray) and x.dtype.kind == "i":
        x = x.astype(np.float32)
    index = pd.Index(genes or [f"ENSG{gene:011d}" for gene in range(x.shape[1])])
    obs = {"cell_type": ["T cell", "B cell", "NK cell"] * x.shape[0]} if obs is None else obs
    frame = pd.DataFrame({name: values[: x.shape[0]] for name, values in obs.items()})
    frame.index = pd.Index([f"cell{cell}" for cell in range(x.shape[0])])
    adata = anndata.AnnData(x, frame, pd.DataFrame(var, index=index))
    if raw is not None:
        adata.raw = anndata.AnnData(raw, frame, pd.DataFrame(index=index))
    adata.write_h5ad(path)
    return path


def dense(cells: Cells) -> np.ndarray:
    """Return the counts of the selected cells."""
    return np.concatenate([chunk.counts.toarray() for chunk in cells.chunks()])


def build(corpus: Corpus, datasets: Mapping[str, Dataset], path: Path) -> list[str]:
    """Write a manifest, with downloads and summary in the same folder; return the summary."""
    outputs = path, path.with_suffix(".json")
    return build_manifest(configured(corpus, datasets), path.parent / "downloads", *outputs)


def make_manifest(corpus: Corpus, datasets: Mapping[str, Dataset], folder: Path) -> list[str]:
    return build(corpus, datasets, folder / "manifest.csv")


def make_part(corpus: Corpus, folder: Path, part: int = 0) -> Path:
    """Fetch a part of the training cells; return its folder."""
    output = folder / f"part-{part}"
    config = configured(corpus, {})
    fetch_part(folder / "manifest.csv", part, config, folder / "downloads", output)
    return output


def make_evaluation(corpus: Corpus, name: str, dataset: Dataset, folder: Path) -> tuple[Path, Path]:
    """Fetch an evaluation dataset; return its h5ad file and its metadata."""
    outputs = folder / f"{name}.h5ad", folder / f"{name}.json"
    row = folder / f"{name}.csv"
    write_manifest(row, [r for r in read_manifest(folder / "manifest.csv") if r.dataset == name])
    config = configured(corpus, {name: dataset})
    fetch_evaluation(row, config, folder / "downloads", *outputs, {})
    return outputs


def hold_out(
    path: Path, folder: Path, held_out: float = 0.2, **settings: str
) -> tuple[Path, Path, Path]:
    """Run all these stages on one file, of which a share of the cells is held out.

    Return the part with the other cells, and the h5ad file and the metadata of held-out cells.
    """
    entry = LocalFiles(files=str(path), held_out=held_out, name="mine", **settings)
    corpus, dataset = local_corpus(entry), Dataset(title="Mine")
    make_manifest(corpus, {"mine": dataset}, folder)
    return make_part(corpus, folder), *make_evaluation(corpus, "mine", dataset, folder)


def fetch(config: Config, folder: Path, *options: object) -> int:
    """Run the command with the stored configuration and ``manifest.csv`` of the folder."""
    (folder / "config.yaml").write_text(as_yaml(config))
    inputs = "--manifest", folder / "manifest.csv", "--configuration", folder / "config.yaml"
    return main(["fetch", *map(str, [*inputs, *options])])


def store(path: Path, values: np.ndarray, kind: str, **options) -> Path:
    """Write a matrix with these options of h5py."""
    with h5py.File(path, "w") as file:
        matrix = {"csr": sp.csr_matrix, "csc": sp.csc_matrix, "dense": np.asarray}[kind](values)
        write_elem(file, "X", matrix, dataset_kwargs=options)
        for name, rows in zip(("obs", "var"), values.shape, strict=True):
            write_elem(file, name, pd.DataFrame(index=np.arange(rows).astype(str)))
    return path
