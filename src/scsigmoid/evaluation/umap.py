"""UMAP coordinates of the compared models' embeddings (appendix, "UMAP Visualization")."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from scsigmoid.config.schema import Umap
from scsigmoid.corpus.cell_types import check_enough
from scsigmoid.evaluation.embedding_files import read_embeddings
from scsigmoid.evaluation.neighbors import principal_components
from scsigmoid.progress import log
from scsigmoid.records.identity import write_table
from scsigmoid.seeds import derive


def umap_dataset(
    embeddings: Mapping[str, Path], dataset: str, settings: Umap, seed: int,
    outputs: Mapping[str, Path], batch: str = "",
) -> None:  # fmt: skip
    """Project the embeddings of a dataset to two dimensions: PCA, then UMAP on the CPU.

    UMAP has a fixed seed and runs on one thread, so that coordinates are reproducible.

    Args:
        embeddings: embedding files by model name, with the same cells in the same order.
        seed: the configuration's seed. UMAP uses the same seed for all models.
        outputs: Parquet files by model name, with one row per cell in the order of the embedding.
            Columns: ``x``, ``y`` (float32), ``cell_type`` (empty for a cell without a label) and,
            with ``batch``, ``batch``.
        batch: column of ``obs`` with the batch, or "".

    Raises:
        UserError: if the embeddings do not match, or have too few cells.
    """
    by_model = read_embeddings(embeddings, dataset, labeled_only=False, batch=batch)
    first = next(iter(by_model.values()))
    check_enough(first.path, first.labels, umap=settings.neighbors)
    umap = import_umap()  # after the checks, because it takes seconds
    for model, embedding in by_model.items():
        log(f"UMAP of {model}: {len(embedding.cells)} cells")
        reducer = umap.UMAP(
            n_neighbors=settings.neighbors, min_dist=settings.minimum_distance, n_jobs=1,
            random_state=derive(seed, "umap") % 2**32,
        )  # fmt: skip
        components = principal_components(embedding.values, settings.variance, str(embedding.path))
        x, y = reducer.fit_transform(components).astype("float32").T
        columns = {"x": x, "y": y, "cell_type": embedding.labels.tolist()}
        if batch:
            columns["batch"] = embedding.batches.tolist()
        fields = ("model", "dataset", "vocabulary", "cells")
        identity = {field: embedding.metadata[field] for field in fields}
        write_table(outputs[model], pa.table(columns), identity)


def import_umap() -> Any:
    """Import umap-learn. Numba stores all its compiled code in `__pycache__` for later processes.

    Compiling takes about 15 seconds of a CPU core, and the projection of a thousand cells less than
    one. umap-learn and pynndescent themselves store only a small part of their code.
    """
    import numba

    njit = numba.njit
    numba.njit = lambda *functions, **options: njit(*functions, **{**options, "cache": True})
    try:
        import umap
    finally:
        numba.njit = njit
    return umap
