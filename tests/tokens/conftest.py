"""Small parts of a corpus and cells of token stores, and the definition of rank tokens."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from small_training import token_table
from stages import write_cells

from scsigmoid.corpus.metadata import FILES, ManifestRow, Metadata, write_manifest
from scsigmoid.files import sha256, write_json
from scsigmoid.tokens.make_stores import tokenize_evaluation, tokenize_part
from scsigmoid.tokens.statistics import gather
from scsigmoid.tokens.store import TokenStore, grouped, write_shards
from scsigmoid.tokens.tokenizer import Tokenizer
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
    gather(folder, folder / "statistics.arrow", minimum_genes)
    path = folder / "vocabulary.parquet"
    build_vocabulary([folder / "statistics.arrow"], minimum_cells, path)
    return Vocabulary.read(path)


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


def write_store(folder, count=13, vocabulary_size=5000, first=0, **entries):
    """Write cells ``first``, ``first + 1``, ... in shards of 4 cells, from batches of 5 cells."""
    cells = range(first, first + count)
    lengths = np.random.default_rng(first).integers(1, 9, len(cells))
    tokens = [
        [(cell * 100 + i) % vocabulary_size for i in range(n)]
        for cell, n in zip(cells, lengths, strict=True)
    ]
    types = [f"t{cell % 3}" for cell in cells]
    truncated = {"cell": cells, "genes": lengths + (lengths == 8), "cell_type": types}
    table = token_table(tokens, vocabulary_size, **truncated)
    metadata = {"vocabulary": "abc", "vocabulary_size": vocabulary_size, "maximum_length": 8}
    metadata |= {"shard_cells": 4, "label": "cell_type"}
    write_shards(folder, grouped(table.to_batches(max_chunksize=5), 4), metadata | entries)
    return table


def tokenized(folder, vocabulary, output, maximum_length=9) -> TokenStore:
    """Tokenize a part in shards of at most 25 cells, and open its store."""
    tokenize_part(folder, Tokenizer(vocabulary, maximum_length, 25), output)
    return TokenStore.open(output, vocabulary=vocabulary.fingerprint)


def evaluated(h5ad, vocabulary, output) -> TokenStore:
    """Tokenize an evaluation dataset that is named like its h5ad file, and open its store."""
    metadata = Metadata(
        dataset=h5ad.stem, file=h5ad.stem, label="cell_type", title="Cells",
        types=[], cells=30, genes=20, sha256=sha256(h5ad), location="",
    )  # fmt: skip
    path = h5ad.with_suffix(".json")
    write_json(path, asdict(metadata))
    tokenize_evaluation(h5ad, path, Tokenizer(vocabulary, 9, 25), output)
    return TokenStore.open(output, vocabulary=vocabulary.fingerprint)


@pytest.fixture
def part(write_part):
    """A part of 30 cells."""
    return write_part("part", [draw(0, 30, 20)])


@pytest.fixture
def vocabulary(part):
    return vocabulary_of(part)
