"""Read, check and write the manifest, and the JSON file of each evaluation dataset.

Text from other sources is checked before it becomes part of a path, an address or a message.
"""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from scsigmoid.config.schema import FILE_NAME, IDENTIFIER
from scsigmoid.errors import UserError, first_few
from scsigmoid.files import sha256


@dataclass(frozen=True, kw_only=True)
class ManifestRow:
    """A file in one role. All values are text, empty if they do not apply or are unknown.

    A local file with training and held-out cells has two rows.
    """

    file: str  # name in the results, without suffix; unique
    role: str  # "training", "evaluation", or "skipped" (see reason)
    dataset: str = ""  # name of the evaluation dataset
    part: str = ""  # of a training file: number of its part of the corpus; a job reads one part
    source: str  # "embedded", "local" or "cellxgene"
    snapshot: str = ""  # of a training file from CELLxGENE: corpus.snapshot
    location: str  # name in the embedded corpus, absolute path, or URL
    title: str = ""
    doi: str = ""
    organism: str = ""  # organisms, joined by " || "
    assay: str = ""  # assays, joined by " || "
    label: str = "cell_type"  # column of obs with the cell types; of evaluation files: in Metadata
    held_out: str = ""  # held-out cells (see held_out_text). A training row has the others.
    cells: str = ""  # number of cells in this role; after the download, only cells with counts
    bytes: str = ""  # size of the file
    sha256: str = ""  # of the file; empty before the first download
    published: str = ""  # day of the dataset version
    dataset_id: str = ""  # CELLxGENE id, like the next two
    dataset_version_id: str = ""
    collection_id: str = ""
    layer: str = ""  # layer of a local file with the raw counts; empty for raw.X or X
    genes: str = ""  # column of var of a local file with the gene ids; empty for the index
    excluded: str = ""  # rows that are not trained on (repeated_cells.py), such as "0-49,77"
    reason: str = ""  # why a file was skipped, or numbers of cells and features left out or merged


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Metadata of an evaluation dataset, for later stages."""

    dataset: str  # name of the dataset
    file: str  # name in the manifest
    label: str  # column of obs with the cell type
    types: list[str]  # cell types with the spelling to use; others are spelled as in the file
    title: str
    cells: int  # number of cells with counts
    genes: int
    sha256: str  # of the file with the cells
    location: str  # as in the manifest


LONGEST_TEXT = 200  # maximum number of characters of a title or other text from a service
LARGEST_COUNT = 10**15  # largest plausible number of bytes or cells
LARGEST_SKIPPED_SHARE = 0.05  # the share of cells in files without raw counts must be smaller
FILES = "files.csv"  # manifest rows of a part, in the folder with its h5ad files
NUMBER = re.compile("[0-9]{0,15}")  # may be empty
# Patterns of the columns that are used in paths, messages or computations.
PATTERNS = {
    "file": FILE_NAME,
    "dataset": re.compile(f"({FILE_NAME.pattern})?"),
    "location": re.compile(r"[^\x00-\x1f\x7f-\x9f]*"),
    "role": re.compile("training|evaluation|skipped"),
    "part": NUMBER,
    "source": re.compile("embedded|local|cellxgene"),
    "cells": NUMBER,
    "bytes": NUMBER,
    "sha256": re.compile("([0-9a-f]{64})?"),
    "excluded": re.compile(r"(\d{1,15}(-\d{1,15})?(,\d{1,15}(-\d{1,15})?)*)?", re.ASCII),
}


def read_manifest(path: str | Path, *, may_be_edited: bool = False) -> list[ManifestRow]:
    """Read a manifest. Raise an error if the file is damaged or not a manifest.

    Unless ``may_be_edited``, also raise an error if the file is not the file that its summary
    describes (:func:`describe_manifest`). The summary is a JSON file with the same name, if any.
    """
    from scsigmoid.records.csv_rows import read_rows  # embedding cells does not need it

    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such manifest; correct the path or make it again")
    try:
        rows = read_rows(path, ManifestRow, exact=True)
    except KeyError:
        expected = ", ".join(field.name for field in fields(ManifestRow))
        raise UserError(f"{path}: not a manifest; its columns must be {expected}") from None
    except ValueError as error:
        raise UserError(f"{path}: damaged manifest: {error}; make it again") from None
    if not path.read_bytes().endswith(b"\n"):
        raise UserError(f"{path}: damaged manifest: its last line is incomplete; make it again")
    check_rows(rows, f"{path}: damaged manifest")
    description = None if may_be_edited else read_summary(path, "manifest")
    if description not in (None, describe_manifest(path, rows)):
        raise UserError(
            f"{path}: damaged or changed manifest: its {len(rows)} rows do not have the number or "
            f"SHA-256 in {path.with_suffix('.json')}; make it again"
        )
    return rows


def describe_manifest(path: str | Path, rows: Sequence[ManifestRow]) -> dict[str, Any]:
    """Return the number of rows and the SHA-256 of a manifest, for its summary."""
    return {"rows": len(rows), "sha256": sha256(path)}


def read_summary(manifest: str | Path, name: str) -> Any:
    """Return an entry of the summary of a manifest, or None if there is none."""
    summary = Path(manifest).with_suffix(".json")
    with suppress(OSError, ValueError, AttributeError):  # another JSON file may have this name
        return json.loads(summary.read_text(encoding="utf-8")).get(name)
    return None


def read_row(path: str | Path) -> ManifestRow:
    """Read a manifest with one row: the file of an evaluation dataset."""
    rows = read_manifest(path)
    if len(rows) != 1:
        raise UserError(f"{path}: damaged manifest: {len(rows)} rows instead of 1; make it again")
    return rows[0]


def read_part(folder: str | Path) -> list[ManifestRow]:
    """Read the manifest rows of a part of the corpus, a folder with h5ad files and ``files.csv``.

    Raise an error if an h5ad file has no row.
    """
    folder = Path(folder)
    rows = read_manifest(folder / FILES)
    names = {path.stem for path in folder.glob("*.h5ad") if not path.name.startswith(".")}
    if unlisted := sorted(names - {row.file for row in rows}):
        raise UserError(
            f"{folder / FILES}: damaged manifest: no row for {first_few(unlisted)}; delete "
            f"{folder} and run again"
        )
    return rows


def check_rows(rows: Iterable[ManifestRow], where: str) -> None:
    """Raise an error for repeated names, names that are not safe in paths, and malformed values."""
    names: set[str] = set()
    for number, row in enumerate(rows, start=1):
        if row.file in names:
            raise UserError(f"{where}: two rows are called {row.file!r}; make the manifest again")
        names.add(row.file)
        for name, pattern in PATTERNS.items():
            text = getattr(row, name)
            if not pattern.fullmatch(text):
                raise UserError(
                    f"{where}: row {number}: {one_line(text, 60)!r} is not a valid {name}; make "
                    "the manifest again"
                )


def write_manifest(path: str | Path, rows: Iterable[ManifestRow]) -> None:
    """Write manifest rows as CSV, atomically."""
    from scsigmoid.records.csv_rows import write_rows

    write_rows(path, ManifestRow, rows, numbered=False)


def check_skipped(rows: Iterable[ManifestRow], training: Iterable[ManifestRow]) -> None:
    """Raise an error if skipped files contain too many of the cells of all training files."""
    skipped = [row for row in rows if row.role == "skipped"]
    cells = sum(int(row.cells or 0) for row in skipped)
    total = sum(int(row.cells or 0) for row in training)
    if skipped and cells >= LARGEST_SKIPPED_SHARE * total:
        raise UserError(
            f"{len(skipped)} training files with {cells:,} of {total:,} cells have no raw counts: "
            f"{first_few(row.file for row in skipped)}; choose assays with counts "
            "(corpus.assays), or name the files in corpus.leave_out"
        )


def format_ranges(rows: NDArray[np.int64]) -> str:
    """Return ascending row numbers as text, such as ``0-49,77``."""
    if not len(rows):
        return ""
    runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)  # of consecutive numbers
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def are_in_ranges(rows: NDArray[np.int64], ranges: str) -> NDArray[np.bool_]:
    """Return which of ascending row numbers are in ``ranges``, such as ``0-49,77``."""
    is_in_range = np.zeros(len(rows), dtype=bool)
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        start, stop = np.searchsorted(rows, [int(first), int(last or first) + 1])
        is_in_range[start:stop] = True
    return is_in_range


def read_metadata(path: str | Path) -> Metadata:
    """Read the metadata of an evaluation dataset."""
    try:
        return TypeAdapter(Metadata).validate_json(Path(path).read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); make it again") from None
    except ValueError:
        raise UserError(
            f"{path}: damaged, or not the metadata of an evaluation dataset; make it again"
        ) from None


def one_line(value: Any, longest: int = LONGEST_TEXT) -> str:
    """Return a value as printable text without line breaks, cut at ``longest`` characters."""
    text = str(value)[: 4 * longest]  # to save time if the value is very long
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def without_spelling(text: str) -> str:
    """Return a text in lower case, with single spaces, and ``1`` for ``1.0``.

    Spellings of a name have the same. A column of floats has ``1.0`` for the integer 1.
    """
    return re.sub(r"^(-?\d+)\.0+$", r"\1", " ".join(text.casefold().split()))


def check_identifier(identifier: Any, where: str = "CELLxGENE") -> str:
    """Return a CELLxGENE id, or raise an error before it becomes part of an address or a path."""
    if not isinstance(identifier, str) or not IDENTIFIER.fullmatch(identifier):
        raise UserError(f"{where}: {one_line(identifier, 60)!r} is not a CELLxGENE id; correct it")
    return identifier


def as_count(value: Any) -> int | None:
    """Return a value from a service if it is a plausible count, else ``None``."""
    return value if type(value) is int and 0 <= value <= LARGEST_COUNT else None
