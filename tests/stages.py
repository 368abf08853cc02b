"""The stages from the manifest to the files of a corpus, with all paths in one folder."""

from collections.abc import Mapping
from pathlib import Path

from scsigmoid.config.schema import Corpus, Dataset
from scsigmoid.corpus.fetch import fetch_evaluation, fetch_part
from scsigmoid.corpus.manifest import build_manifest
from scsigmoid.corpus.metadata import read_manifest, write_manifest


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
