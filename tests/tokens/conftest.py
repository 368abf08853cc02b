"""Parts of a corpus as the corpus stage leaves them, small, and what tokens are by definition."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from scsigmoid.corpus.metadata import FILES, ManifestRow, write_manifest
from scsigmoid.errors import UserError
from scsigmoid.tokens.statistics import gather
from scsigmoid.tokens.vocabulary import Vocabulary, build_vocabulary

WritePart = Callable[..., Path]


@pytest.fixture
def write_part(tmp_path: Path) -> WritePart:
    """``write_part(name, [counts or h5ad, ...], genes=None, obs=None, **row)`` makes a folder."""

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
            row = {"role": "training", "source": "local", "location": "", "simulated": "false"}
            rows.append(ManifestRow(file=f"file{number}", **{**row, **values}))
            path = folder / f"file{number}.h5ad"
            if isinstance(counts, Path):
                path.symlink_to(counts)
                continue
            columns = genes or [f"ENSG{index:011d}" for index in range(counts.shape[1])]
            frame = pd.DataFrame(
                {"cell_type": ["a", "b"] * counts.shape[0]} if obs is None else obs,
            )[: counts.shape[0]]
            frame.index = [f"cell{i}" for i in range(counts.shape[0])]
            anndata.AnnData(
                X=sp.csr_matrix(np.asarray(counts, dtype=np.float32)),
                obs=frame,
                var=pd.DataFrame(index=list(columns)),
            ).write_h5ad(path)
        write_manifest(folder / FILES, rows)
        return folder

    return write


@pytest.fixture
def vocabulary_of() -> Callable[..., Vocabulary]:
    """The vocabulary of a part, written into its folder: ``vocabulary_of(folder)``."""

    def make(folder: Path, minimum_cells: int = 1, minimum_genes: int = 0) -> Vocabulary:
        gather(folder, 1e4, folder / "statistics.arrow", minimum_genes)
        path = folder / "vocabulary.parquet"
        build_vocabulary([folder / "statistics.arrow"], minimum_cells, path)
        return Vocabulary.read(path)

    return make


@pytest.fixture
def draw() -> Callable[[int, int, int], np.ndarray]:
    """Heavy-tailed counts, of which every cell has some: ``draw(seed, cells, genes)``."""

    def draw(seed: int, cells: int, genes: int) -> np.ndarray:
        generator = np.random.default_rng(seed)
        rates = generator.lognormal(-0.5, 1.5, genes) * generator.lognormal(0, 0.7, (cells, 1))
        counts = generator.poisson(rates)
        counts[:, 0] += counts.sum(axis=1) == 0
        return counts

    return draw


@pytest.fixture
def by_definition() -> Callable[..., list[int]]:
    """All tokens of one cell, in plain Python floats."""

    def tokens_of(row: Any, tokens: Any, medians: Any, target_sum: float = 1e4) -> list[int]:
        total = float(row.sum())
        pairs = [
            (-(float(row[i]) / total * target_sum / float(medians[tokens[i]])), int(tokens[i]))
            for i in np.flatnonzero(row)
            if tokens[i] >= 0
        ]
        return [token for _, token in sorted(pairs)]

    return tokens_of


@pytest.fixture
def check_changed_bytes() -> Callable[..., None]:
    """Change bytes of a file, one at a time: an error, or what is read is the same."""

    def check(path: Path, read: Callable[[Path], Any], step: int, message: str) -> None:
        expected, content = read(path).fingerprint, path.read_bytes()
        for place in range(0, len(content), step):
            changed = bytearray(content)
            changed[place] ^= 0x10
            path.write_bytes(changed)
            try:
                found = read(path).fingerprint
            except UserError as error:
                assert re.search(message, str(error))  # noqa: PT017
            else:  # padding, or what is held twice
                assert found == expected

    return check
