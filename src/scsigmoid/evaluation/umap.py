"""UMAP coordinates of the compared models' embeddings (appendix, "UMAP Visualization")."""

from collections.abc import Mapping
from pathlib import Path

from scsigmoid.config.schema import Umap
from scsigmoid.corpus.labels import check_enough
from scsigmoid.evaluation.embedding_files import read_arms
from scsigmoid.evaluation.neighbours import principal_components
from scsigmoid.files import checksum_path
from scsigmoid.progress import log
from scsigmoid.seeds import derive


def umap_dataset(
    embeddings: Mapping[str, Path], settings: Umap, seed: int, outputs: Mapping[str, Path]
) -> None:
    """Project the embeddings of a dataset to two dimensions: PCA, then seeded UMAP on the CPU.

    Seeded UMAP runs on one thread and gives the same coordinates every time.

    Args:
        embeddings: model name to embedding file; the same cells in the same order.
        settings: variance that the PCA keeps, neighbours and smallest distance.
        seed: the configuration's seed; both models share UMAP's.
        outputs: model name to Parquet file: ``x``, ``y`` (float32) and ``cell_type``
            (empty where a cell has none), one row a cell, in the order of the embedding.

    Raises:
        UserError: if the embeddings do not match, or hold too few cells.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    arms = read_arms(embeddings, scored=False)
    first = next(iter(arms.values()))
    check_enough(first.path, first.labels, umap=settings.neighbours)
    import umap

    for model, arm in arms.items():
        log(f"UMAP of {model}: {len(arm.cells)} cells")
        projection = umap.UMAP(
            n_neighbors=settings.neighbours,
            min_dist=settings.minimum_distance,
            random_state=derive(seed, "umap") % 2**32,
            n_jobs=1,
        )
        points = projection.fit_transform(
            principal_components(arm.values, settings.variance, str(arm.path))
        ).astype("float32")
        table = pa.table({"x": points[:, 0], "y": points[:, 1], "cell_type": arm.labels.tolist()})
        with checksum_path(outputs[model]) as temporary:
            pq.write_table(table, temporary)
