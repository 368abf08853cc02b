"""Small parts of a corpus, and the definition of rank tokens."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from stages import write_cells

from scsigmoid.corpus.metadata import FILES, ManifestRow, write_manifest
from scsigmoid.tokens.statistics import gather
from scsigmoid.tokens.vocabulary import Vocabulary, build_vocabulary


@pytest.fixture
def write_part(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a part from arrays of counts, or paths of h5ad files."""

    def write(name: str, files: list[Any], genes: Any = None, obs: Any = None, **row: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        rows = []
        row = {"role": "training", "source": "local", "location": "", **row}
        for number, counts in enumerate(files):
            rows.append(ManifestRow(file=f"file{number}", **row))
            path = folder / f"file{number}.h5ad"
            if isinstance(counts, Path):
                path.symlink_to(counts)
                continue
            types = {"cell_type": ["a", "b"] * len(counts)}
            matrix = sp.csr_matrix(np.asarray(counts, dtype=np.float32))
            write_cells(path, matrix, genes=genes, obs=types if obs is None else obs)
        write_manifest(folder / FILES, rows)
        return folder

    return write


@pytest.fixture
def vocabulary_of() -> Callable[..., Vocabulary]:
    """Return ``vocabulary_of(folder)``, which writes the vocabulary of a part and reads it."""

    def make(folder: Path, minimum_cells: int = 1, minimum_genes: int = 0) -> Vocabulary:
        gather(folder, 1e4, folder / "statistics.arrow", minimum_genes)
        path = folder / "vocabulary.parquet"
        build_vocabulary([folder / "statistics.arrow"], minimum_cells, path)
        return Vocabulary.read(path)

    return make


@pytest.fixture
def draw() -> Callable[[int, int, int], np.ndarray]:
    """Return ``draw(seed, cells, genes)``: heavy-tailed counts without empty cells."""

    def draw(seed: int, cells: int, genes: int) -> np.ndarray:
        generator = np.random.default_rng(seed)
        rates = generator.lognormal(-0.5, 1.5, genes) * generator.lognormal(0, 0.7, (cells, 1))
        counts = generator.poisson(rates)
        counts[:, 0] += counts.sum(axis=1) == 0
        return counts

    return draw


@pytest.fixture
def by_definition() -> Callable[..., list[int]]:
    """Return a function that computes all tokens of a cell with Python floats."""

    def tokens_of(row: Any, tokens: Any, medians: Any) -> list[int]:
        total = float(row.sum())
        pairs = [
            (-(float(row[i]) / total * 1e4 / float(medians[tokens[i]])), int(tokens[i]))
            for i in np.flatnonzero(row)
            if tokens[i] >= 0
        ]
        return [token for _, token in sorted(pairs)]

    return tokens_of
