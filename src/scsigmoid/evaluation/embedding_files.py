"""Write and read embedding files (AnnData). Does not import torch, so that commands start fast."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scsigmoid.corpus.counts import OWN_ROW
from scsigmoid.corpus.h5ad_writer import storing
from scsigmoid.corpus.hdf5 import check_contents
from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path, parsing
from scsigmoid.model.finite import check_finite
from scsigmoid.progress import log
from scsigmoid.records.identity import check_identity, model_of
from scsigmoid.records.measurements import ABSENT

LABEL, DONOR = "scsigmoid_cell_type", "donor_id"  # columns of obs


@dataclass(frozen=True)
class Embedding:
    """The embedding of a dataset by one model.

    Attributes:
        path: the embedding file.
        values: cells x hidden, float32, finite.
        labels: cell type of each cell, ``""`` if it has no label.
        cells: row of each cell in the dataset's h5ad file, int64.
        donors: ``obs["donor_id"]`` of each cell, ``""`` if it is unknown.
        batches: batch of each cell, ``""`` if it is unknown or the dataset has no batches.
        metadata: ``model``, ``attention``, ``context``, ``step``, ``checkpoint``,
            ``vocabulary``, ``dataset`` and ``cells`` (SHA-256 of the dataset's h5ad file).
    """

    path: Path
    values: NDArray[np.float32]
    labels: NDArray[np.str_]
    cells: NDArray[np.int64]
    donors: NDArray[np.str_]
    batches: NDArray[np.str_]
    metadata: dict[str, Any]


def write_embedding(
    output: Path, values: NDArray[np.float32], labels: NDArray[Any], cells: NDArray[np.int64],
    metadata: Mapping[str, Any], obs: Any,
) -> None:  # fmt: skip
    """Write the embedding of a dataset as AnnData. Equal arguments give the same bytes.

    ``obs`` has the rows of these cells. :class:`Embedding` describes the other arguments.
    ``labels`` are stored in ``obs["scsigmoid_cell_type"]``, ``metadata`` in ``uns["scsigmoid"]``
    and ``cells`` in ``uns["scsigmoid"]["rows"]``.
    """
    import anndata
    import pandas as pd

    cell_types = pd.Categorical([label or None for label in labels.tolist()])
    adata = anndata.AnnData(obs=obs.assign(**{LABEL: cell_types}))
    adata.obsm[f"X_{metadata['model']}"] = values
    adata.uns["scsigmoid"] = {**metadata, "rows": cells}
    with storing(str(output)), atomic_path(output) as temporary:
        adata.write_h5ad(temporary)


def read_embedding(path: Path, *, batch: str = "", **expected: Any) -> Embedding:
    """Read an embedding that :func:`write_embedding` wrote.

    ``batch`` is the column of ``obs`` with the batch, or "".

    Raises:
        UserError: if the file is missing, damaged or not an embedding, if metadata differ from
            ``expected`` (such as ``dataset``), if the column is missing, or if values are not
            finite.
    """
    import anndata
    import h5py

    if not path.is_file():
        raise UserError(f"{path}: no such embedding; run the target that makes it")
    with parsing(path, "an embedding of this project"):
        with h5py.File(path) as file:
            check_contents(file, path, str(path))
        adata = anndata.read_h5ad(path)
        # anndata reads scalars as NumPy scalars.
        metadata = {
            key: value.item() if isinstance(value, np.generic) else value
            for key, value in adata.uns["scsigmoid"].items()
        }
        values = np.asarray(adata.obsm[f"X_{metadata['model']}"], dtype=np.float32)
        # A column that is missing, or has no name because there are no batches, becomes "".
        obs = adata.obs.reindex(columns=[*dict.fromkeys([LABEL, DONOR, batch])])
        obs = obs.astype(object).fillna("").astype(str)
        labels, donors, batches = (obs[name].to_numpy(str) for name in (LABEL, DONOR, batch))
        cells = np.asarray(metadata.pop("rows"), dtype=np.int64)
        if values.ndim != 2 or not values.size or cells.shape != values.shape[:1]:
            raise ValueError(f"{cells.size} cells, embedding of shape {values.shape}")
        texts = ("model", "attention", "vocabulary", "dataset", "cells")
        for name, kind in {**dict.fromkeys(texts, str), "context": int}.items():
            if not isinstance(metadata.get(name, kind()), kind):
                raise ValueError(f"its {name} is {metadata[name]!r}")
    check_identity(path, metadata, **expected)
    setting = f"datasets.{metadata['dataset']}.batch (of own files: 'batch' in corpus.local)"
    if batch and batch not in adata.obs:
        raise UserError(
            f"{path}: obs has no column {batch!r} for the batches of the dataset; correct {setting}"
        )
    if batch and 2 * len(set(batches)) > len(batches):
        raise UserError(
            f"{path}: {batch!r} has {len(set(batches))} values for {len(batches)} cells; set "
            f"{setting} to a column with fewer values"
        )
    batches[np.isin(np.char.lower(np.char.strip(batches)), ABSENT)] = ""
    check_finite(values, adata.obs.index, f"{path}: contains", adata.obs.get(OWN_ROW))
    return Embedding(path, values, labels, cells, donors, batches, metadata)


def read_embeddings(
    paths: Mapping[str, Path], dataset: str, *, labeled_only: bool = True, batch: str = ""
) -> dict[str, Embedding]:
    """Read the embeddings of a dataset by several models, with the same cells in the same order.

    Args:
        paths: files by key of the result. Each file must be named after its model.
        batch: column of ``obs`` with the batch, or "".
        labeled_only: whether to leave out cells without a label. The log states their number.

    Raises:
        UserError: if a file is of another model or dataset, if the vocabulary, the cells, their
            types or their donors differ between models, or if no cell has a label.
    """
    embeddings = {
        name: read_embedding(path, batch=batch, **model_of(path), dataset=dataset)
        for name, path in paths.items()
    }
    first, *others = embeddings.values()
    shared = {field: first.metadata.get(field) for field in ("vocabulary", "cells")}
    for other in others:
        check_identity(other.path, other.metadata, **shared)
        for field, title in {"cells": "cells", "labels": "cell types", "donors": "donors"}.items():
            if not np.array_equal(getattr(first, field), getattr(other, field)):
                raise UserError(
                    f"{other.path}: has other {title} than {first.path}, of the same dataset; "
                    "embed its cells again"
                )
    has_label = first.labels != ""
    if not labeled_only or has_label.all():
        return embeddings
    log(f"{first.path}: {(~has_label).sum()} cells without a label are left out")
    if not has_label.any():
        raise UserError(f"{first.path}: no cell has a label; choose another label column")
    fields = ("values", "labels", "cells", "donors", "batches")
    return {
        name: replace(item, **{field: getattr(item, field)[has_label] for field in fields})
        for name, item in embeddings.items()
    }
