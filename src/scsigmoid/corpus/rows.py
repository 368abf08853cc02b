"""Rows of the manifest, and how they are read and written."""

import csv
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path


@dataclass(frozen=True, kw_only=True)
class ManifestRow:
    """One file, in one role.  All values are text; empty where one does not apply.

    A local file of which some cells are held out has two rows.

    Attributes:
        file: name of the file in the results, without suffix; unique.
        role: ``training`` or ``evaluation``.
        dataset: evaluation dataset; empty for training files.
        part: number of the job that reads a training file; empty for evaluation files.
        source: ``embedded``, ``local``, ``cellxgene`` or ``census``.
        snapshot: day whose state was listed, or name of the Census release; empty for evaluation
            files, which no day binds.
        location: recipe of the embedded corpus, absolute path or URL.
        simulated: ``true`` or ``false``.
        title: title of the dataset.
        doi: of the publication.
        organism: organisms, joined by ``" || "``.
        assay: assays, joined by ``" || "``.
        label: column of ``obs`` with the cell type of training cells; the facts of an evaluation
            dataset have its own.
        held_out: which cells are held out (:mod:`scsigmoid.corpus.held_out`); a training row means
            the other cells.
        cells: number of cells in this role.
        bytes: size of the file.
        sha256: of the file's bytes; empty before the first download.
        published: day of the dataset version.
        dataset_id: CELLxGENE id.
        dataset_version_id: CELLxGENE id.
        collection_id: CELLxGENE id.
        layer: layer of a local file that holds the raw counts; empty for ``raw.X`` or ``X``.
        genes: column of ``var`` of a local file that holds the gene ids; empty for its index.
    """

    file: str
    role: str
    dataset: str = ""
    part: str = ""
    source: str
    snapshot: str = ""
    location: str
    simulated: str = "false"
    title: str = ""
    doi: str = ""
    organism: str = ""
    assay: str = ""
    label: str = "cell_type"
    held_out: str = ""
    cells: str = ""
    bytes: str = ""
    sha256: str = ""
    published: str = ""
    dataset_id: str = ""
    dataset_version_id: str = ""
    collection_id: str = ""
    layer: str = ""
    genes: str = ""


FILES = "files.csv"  # the rows of one part, beside its files
COLUMNS = tuple(field.name for field in fields(ManifestRow))
# What columns must look like that code computes with.
NUMBER = re.compile(r"\d{0,15}")
FORMS = {
    "role": re.compile("training|evaluation"),
    "part": NUMBER,
    "source": re.compile("embedded|local|cellxgene|census"),
    "simulated": re.compile("true|false"),
    "cells": NUMBER,
    "bytes": NUMBER,
    "sha256": re.compile("([0-9a-f]{64})?"),
}


def read_manifest(path: str | Path) -> list[ManifestRow]:
    """Read a manifest.

    Raises:
        UserError: if the file is missing or is no manifest.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such manifest; correct the path or make it again")
    with path.open(newline="", encoding="utf-8") as handle:
        reader = csv.DictReader(handle)
        try:
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise UserError(f"{path}: not a manifest; its columns must be {', '.join(COLUMNS)}")
            rows = [ManifestRow(**row) for row in reader]
        except (TypeError, UnicodeDecodeError, csv.Error):
            raise UserError(f"{path}: damaged manifest; make it again") from None
    with path.open("rb") as file:
        file.seek(-1, 2)
        whole = file.read() == b"\n"
    if not whole or any(None in asdict(row).values() for row in rows):
        raise UserError(f"{path}: damaged manifest: a line is cut; make it again")
    for number, row in enumerate(rows, start=2):
        for name, form in FORMS.items():
            if not form.fullmatch(getattr(row, name) or ""):
                raise UserError(
                    f"{path}: damaged manifest: line {number} has a {name} that is none; make it "
                    "again"
                )
    return rows


def write_manifest(path: str | Path, rows: Iterable[ManifestRow]) -> None:
    """Write manifest rows as CSV, atomically."""
    with (
        atomic_path(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as handle,
    ):
        writer = csv.DictWriter(handle, fieldnames=COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
