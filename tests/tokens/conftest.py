"""Parts of a corpus as the corpus stage leaves them, small."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from scsigmoid.corpus.metadata import FILES, ManifestRow, write_manifest

WritePart = Callable[..., Path]


@pytest.fixture
def write_part(tmp_path: Path) -> WritePart:
    """``write_part(name, [counts, ...], genes=None, obs=None, **row)`` makes a part's folder."""

    def write(
        name: str,
        files: Sequence[Any],
        genes: Sequence[str] | None = None,
        obs: dict[str, Any] | None = None,
        **values: str,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        rows = []
        for number, counts in enumerate(files):
            columns = genes or [f"ENSG{index:011d}" for index in range(counts.shape[1])]
            frame = pd.DataFrame(
                {"cell_type": ["a", "b"] * counts.shape[0]} if obs is None else obs,
            )[: counts.shape[0]]
            frame.index = [f"cell{i}" for i in range(counts.shape[0])]
            anndata.AnnData(
                X=sp.csr_matrix(np.asarray(counts, dtype=np.float32)),
                obs=frame,
                var=pd.DataFrame(index=list(columns)),
            ).write_h5ad(folder / f"file{number}.h5ad")
            row = {"role": "training", "source": "local", "location": "", "simulated": "false"}
            rows.append(ManifestRow(file=f"file{number}", **{**row, **values}))
        write_manifest(folder / FILES, rows)
        return folder

    return write


def draw_counts(seed: int, cells: int, genes: int) -> np.ndarray:
    """Heavy-tailed counts; every cell expresses something."""
    generator = np.random.default_rng(seed)
    rates = generator.lognormal(-0.5, 1.5, genes) * generator.lognormal(0, 0.7, (cells, 1))
    counts = generator.poisson(rates)
    counts[:, 0] += counts.sum(axis=1) == 0
    return counts


@pytest.fixture
def draw() -> Callable[[int, int, int], np.ndarray]:
    """Draw counts: ``draw(seed, cells, genes)``."""
    return draw_counts
