"""Small parts of a corpus and cells of token stores, and the definition of rank tokens."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from stages import write_cells

from scsigmoid.corpus.metadata import FILES, ManifestRow, write_manifest
from scsigmoid.tokens.statistics import gather
from scsigmoid.tokens.store import store_schema
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
            else:
                matrix = sp.csr_matrix(np.asarray(counts, dtype=np.float32))
                types = {"cell_type": ["a", "b"] * len(counts)}
                write_cells(path, matrix, genes=genes, obs=obs or types)
        write_manifest(folder / FILES, rows)
        return folder

    return write


def vocabulary_of(folder: Path, minimum_cells: int = 1, minimum_genes: int = 0) -> Vocabulary:
    """Write the vocabulary of a part and read it."""
    gather(folder, 1e4, folder / "statistics.arrow", minimum_genes)
    path = folder / "vocabulary.parquet"
    build_vocabulary([folder / "statistics.arrow"], minimum_cells, path)
    return Vocabulary.read(path)


def token_table(tokens: list[Any], vocabulary_size: int, **columns: Any) -> pa.Table:
    """Return cells in the columns of a token store. Text is empty unless it is in ``columns``."""
    lengths = [len(cell) for cell in tokens]
    schema = store_schema(vocabulary_size)
    values = {field.name: [""] * len(tokens) for field in schema}
    values |= {"input_ids": tokens, "length": lengths, "genes": lengths}
    values |= {"cell": range(len(tokens)), "is_primary": [True] * len(tokens), **columns}
    arrays = [pa.array(list(values[field.name]), field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def draw(seed: int, cells: int, genes: int) -> np.ndarray:
    """Return heavy-tailed counts without empty cells."""
    generator = np.random.default_rng(seed)
    rates = generator.lognormal(-0.5, 1.5, genes) * generator.lognormal(0, 0.7, (cells, 1))
    counts = generator.poisson(rates)
    counts[:, 0] += counts.sum(axis=1) == 0
    return counts


def by_definition(row: Any, tokens: Any, medians: Any) -> list[int]:
    """Return all tokens of a cell, computed with Python floats. ``row`` are its counts."""
    total = float(row.sum())
    pairs = [
        (-(float(row[i]) / total * 1e4 / float(medians[tokens[i]])), int(tokens[i]))
        for i in np.flatnonzero(row)
        if tokens[i] >= 0
    ]
    return [token for _, token in sorted(pairs)]
