"""Brings the files of the manifest to where the token stage reads them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from scsigmoid.config.schema import Corpus
from scsigmoid.corpus import embedded
from scsigmoid.corpus.download import download
from scsigmoid.corpus.h5ad import Cells, open_cells
from scsigmoid.corpus.rows import FILES, ManifestRow, read_manifest, write_manifest
from scsigmoid.corpus.subset import copy_cells
from scsigmoid.errors import UserError
from scsigmoid.files import atomic_folder, atomic_path, sha256, write_json


def fetch_part(
    manifest: str | Path, part: int, corpus: Corpus, seed: int, output_folder: str | Path
) -> None:
    """Make, link or download the training files of one part.

    Args:
        manifest: the manifest.
        part: number of the part.
        corpus: the configuration's corpus.
        seed: the configuration's seed.
        output_folder: gets ``<file>.h5ad`` and ``files.csv``: the part's manifest rows with cells,
            bytes and SHA-256 filled in.
    """
    rows = [
        row for row in read_manifest(manifest) if row.role == "training" and row.part == str(part)
    ]
    with atomic_folder(output_folder) as folder:
        done = []
        for row in rows:
            path = folder / f"{row.file}.h5ad"
            with naming(path, row.location):
                fetch(row, corpus, seed, path, downloads(output_folder))
                cells = open_cells(path, None, row.held_out, "training")
                done.append(filled_in(row, path, cells))
        write_manifest(folder / FILES, done)


def fetch_evaluation(
    manifest: str | Path,
    dataset: str,
    corpus: Corpus,
    seed: int,
    output_h5ad: str | Path,
    output_json: str | Path,
) -> None:
    """Make, link, copy or download the cells of an evaluation dataset.

    Args:
        manifest: the manifest.
        dataset: name of the evaluation dataset.
        corpus: the configuration's corpus.
        seed: the configuration's seed.
        output_h5ad: gets the evaluated cells alone.
        output_json: gets the facts: file, simulated, label, title, cells, genes, sha256, location.

    Raises:
        UserError: if the dataset is unknown, its label column is missing or holds one cell type.
    """
    row = find_row(read_manifest(manifest), dataset, manifest)
    with atomic_path(output_h5ad) as path, naming(path, row.location):
        if row.source == "local" and row.held_out != "all":
            check_unchanged(row)
            copy_cells(
                open_cells(row.location, row.label, row.held_out, "evaluation"), path, row.title
            )
        else:
            fetch(row, corpus, seed, path, downloads(output_h5ad))
        cells = open_cells(path, row.label)
        check_labels(cells)
        facts = filled_in(row, path, cells)
        genes = len(cells.genes)
    write_json(
        output_json,
        {
            "file": facts.file,
            "simulated": facts.simulated == "true",
            "label": facts.label,
            "title": facts.title,
            "cells": int(facts.cells),
            "genes": genes,
            "sha256": facts.sha256,
            "location": facts.location,
        },
    )


def fetch(row: ManifestRow, corpus: Corpus, seed: int, path: Path, unfinished: Path) -> None:
    """Bring one whole file to ``path``; local files are linked to."""
    if row.source == "embedded":
        embedded.write_recipe(row.location, corpus.embedded, seed, path)
    elif row.source == "local":
        check_unchanged(row)
        path.unlink(missing_ok=True)
        path.symlink_to(row.location)
    else:
        download(
            row.location,
            path,
            corpus.hosts,
            size=int(row.bytes) if row.bytes else None,
            digest=row.sha256,
            partial=unfinished / f"{row.dataset_version_id or row.file}.h5ad.partial",
        )


def find_row(rows: Sequence[ManifestRow], dataset: str, manifest: str | Path) -> ManifestRow:
    """The manifest's row of an evaluation dataset."""
    for row in rows:
        if row.role == "evaluation" and row.dataset == dataset:
            return row
    raise UserError(f"{manifest}: has no evaluation dataset {dataset!r}; make the manifest again")


def filled_in(row: ManifestRow, path: Path, cells: Cells) -> ManifestRow:
    """A row with what is known once its file is there."""
    return replace(
        row,
        cells=str(cells.n_cells),
        bytes=str(path.stat().st_size),
        sha256=sha256(path),
    )


def check_unchanged(row: ManifestRow) -> None:
    """Refuse a local file that is not the one that the manifest describes."""
    path = Path(row.location)
    if not path.is_file():
        raise UserError(f"{path}: no such file; it was there when the manifest was made")
    if str(path.stat().st_size) != row.bytes or sha256(path) != row.sha256:
        raise UserError(f"{path}: changed since the manifest was made; make the manifest again")


def check_labels(cells: Cells) -> None:
    """Refuse an evaluation dataset in which there is nothing to tell apart."""
    kinds = sorted(set(cells.labels().tolist()))
    if len(kinds) < 2:
        raise UserError(
            f"{cells.path}: all {cells.n_cells} evaluated cells have the {cells.label} "
            f"{kinds[0]!r}; evaluation needs at least two cell types"
        )


def downloads(output: str | Path) -> Path:
    """Where unfinished downloads wait, so that a failed job does not lose them."""
    return Path(output).parent / ".downloads"


@contextmanager
def naming(temporary: Path, location: str) -> Iterator[None]:
    """Let messages name the file as the user knows it instead of a temporary path."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error).replace(str(temporary), location)) from error.__cause__
