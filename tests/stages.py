"""The stages from the manifest to the files of a corpus, with all paths in one folder."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from scsigmoid.config.check import load
from scsigmoid.config.schema import Corpus, Dataset, LocalFiles
from scsigmoid.corpus.fetch import fetch_evaluation, fetch_part
from scsigmoid.corpus.h5ad import Cells
from scsigmoid.corpus.manifest import build_manifest
from scsigmoid.corpus.metadata import read_manifest, write_manifest


def local_corpus(*entries: LocalFiles, parts: int = 1) -> Corpus:
    """Return the demo's corpus with the user's own files instead."""
    return dataclasses.replace(load().corpus, source="local", local=[*entries], parts=parts)


def dense(cells: Cells) -> np.ndarray:
    """Return the counts of the selected cells, read in chunks of 7."""
    return np.concatenate([chunk.counts.toarray() for chunk in cells.chunks(7)])


def make_manifest(corpus: Corpus, datasets: Mapping[str, Dataset], folder: Path) -> list[str]:
    """Write ``manifest.csv`` and ``manifest.json``; return the summary."""
    outputs = folder / "manifest.csv", folder / "manifest.json"
    return build_manifest(corpus, datasets, 42, folder / "downloads", *outputs)


def make_part(corpus: Corpus, folder: Path, part: int = 0) -> Path:
    """Fetch a part of the training cells; return its folder."""
    output = folder / f"part-{part}"
    fetch_part(folder / "manifest.csv", part, corpus, 42, folder / "downloads", output)
    return output


def make_evaluation(corpus: Corpus, name: str, dataset: Dataset, folder: Path) -> tuple[Path, Path]:
    """Fetch an evaluation dataset; return its h5ad file and its metadata."""
    outputs = folder / f"{name}.h5ad", folder / f"{name}.json"
    manifest = folder / "manifest.csv"
    fetch_evaluation(manifest, name, dataset, corpus, 42, folder / "downloads", *outputs)
    rows = [row for row in read_manifest(manifest) if row.dataset == name]
    write_manifest(folder / f"{name}.csv", rows)
    return outputs
