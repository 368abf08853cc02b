"""Select the training files, and summarize a manifest.

No training file shares a dataset or a collection with an evaluation dataset.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scsigmoid.config.schema import Corpus
from scsigmoid.config.validate import check_known
from scsigmoid.corpus.discover import IN_LEAVE_OUT, Entry, Version, read_terms
from scsigmoid.corpus.genes import read_table
from scsigmoid.corpus.metadata import ManifestRow
from scsigmoid.errors import UserError
from scsigmoid.seeds import derive

RNA = "rna"  # value in corpus.assays that stands for all assays of rna_assays.csv
PAPER_CELLS = 131_600_000  # cells in the paper's snapshot of 11 June 2024


def select(
    versions: Sequence[Version], evaluation: Mapping[str, ManifestRow], corpus: Corpus, seed: int
) -> tuple[list[ManifestRow], dict[str, str], dict[str, int]]:
    """Choose the training files, at random if the configuration limits cells or bytes.

    Returns:
        The training files, the reasons why datasets are held out, by dataset id, and the numbers
        of other versions that are left out, by reason.
    """
    organisms = {name for version in versions for name in version.organisms}
    labels = {label for version in versions for label in version.assays}
    assay_ids = {identifier for version in versions for identifier in version.assays.values()}
    known_ids = {key for v in versions for key in (v.row.dataset_id, v.row.dataset_version_id)}
    check_known("corpus.organisms", "organism", corpus.organisms, sorted(organisms))
    check_known("corpus.assays", "assay", corpus.assays or (), sorted({RNA, *labels, *assay_ids}))
    if unknown := set(corpus.leave_out) - known_ids:
        raise UserError(
            f"corpus.leave_out: {min(unknown)} is neither a dataset nor a dataset version of the "
            "snapshot; correct the id, or remove it if the dataset was withdrawn"
        )
    training: list[ManifestRow] = []
    held_out: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for version in versions:
        if held := reason_held_out(version.row, evaluation):
            held_out[version.row.dataset_id] = held
        elif reason := reason_unwanted(version, corpus):
            left_out[reason] += 1
        else:
            training.append(version.row)
    kept = sample_files(training, corpus.maximum_cells, corpus.maximum_gb, seed)
    if len(kept) < len(training):
        left_out["beyond corpus.maximum_cells or corpus.maximum_gb"] = len(training) - len(kept)
    return kept, held_out, left_out


def can_be_wanted(entry: Entry, corpus: Corpus) -> bool:
    """Return whether a dataset may have a wanted organism and a wanted assay.

    ``entry`` is the current description. If it lacks organisms or assays, they may be wanted.
    """
    organisms, assays = read_terms(entry, "organism"), read_terms(entry, "assay")
    wanted = wanted_assays(corpus)
    labels_and_ids = [*assays, *assays.values()]
    may_have_organism = not organisms or not organisms.keys().isdisjoint(corpus.organisms)
    may_have_assay = wanted is None or not assays or not wanted.isdisjoint(labels_and_ids)
    return may_have_organism and may_have_assay


def wanted_assays(corpus: Corpus) -> set[str] | None:
    """Return labels or ontology ids of the wanted assays, or ``None`` if all are wanted."""
    if corpus.assays is None:
        return None
    rna = {row["ontology_term_id"] for row in read_table("rna_assays.csv")}
    return {*corpus.assays} | (rna if RNA in corpus.assays else set())


def reason_unwanted(version: Version, corpus: Corpus) -> str:
    """Return why the configuration excludes a version, or "" if it does not."""
    row = version.row
    if {row.dataset_id, row.dataset_version_id} & set(corpus.leave_out):
        return IN_LEAVE_OUT
    if not version.organisms or not set(version.organisms) <= set(corpus.organisms):
        return "other organisms"
    wanted = wanted_assays(corpus)
    if wanted is not None:
        are_unwanted = map(wanted.isdisjoint, version.assays.items())  # pairs of label and id
        if not version.assays or any(are_unwanted):
            return "other assays"
    if corpus.maximum_file_gb is not None:
        if not row.bytes:
            return "size unknown"
        if int(row.bytes) > corpus.maximum_file_gb * 1e9:
            return "larger than corpus.maximum_file_gb"
    return ""


def sample_files(
    rows: Sequence[ManifestRow], maximum_cells: int | None, maximum_gb: float | None, seed: int
) -> list[ManifestRow]:
    """Return a random choice of files within limits of cells and bytes.

    The random order depends only on the seed and the dataset ids, so it stays the same if other
    files are withdrawn. A file that exceeds the remaining cells or bytes is skipped.
    """
    remaining_cells = math.inf if maximum_cells is None else maximum_cells
    remaining_bytes = math.inf if maximum_gb is None else maximum_gb * 1e9
    chosen: set[str] = set()
    for row in sorted(rows, key=lambda row: derive(seed, "training files", row.dataset_id)):
        if maximum_gb is not None and not row.bytes:
            continue  # its size is unknown
        cells, size = int(row.cells), int(row.bytes or 0)
        if size <= remaining_bytes and cells <= remaining_cells:
            chosen.add(row.dataset_id)
            remaining_cells -= cells
            remaining_bytes -= size
    return [row for row in rows if row.dataset_id in chosen]


def reason_held_out(row: ManifestRow, evaluation: Mapping[str, ManifestRow]) -> str:
    """Return why a file must not be trained on, or "" if it may.

    All versions of an evaluation dataset are held out, and all datasets of its collection, because
    the datasets of a publication share cells. An unknown collection matches no collection.
    """
    for name, other in evaluation.items():
        if row.dataset_id and row.dataset_id == other.dataset_id:
            return f"dataset of {name}"
        if row.collection_id and row.collection_id == other.collection_id:
            return f"collection of {name}"
    return ""


def check_separate(
    training: Iterable[ManifestRow], evaluation: Mapping[str, ManifestRow], where: str, remedy: str
) -> None:
    """Raise an error if a training file shares a dataset or collection with an evaluation row."""
    for row in training:
        if reason := reason_held_out(row, evaluation):
            raise UserError(
                f"{where}: file {row.file} belongs to the {reason}, which is evaluated; {remedy}"
            )


def summarize(rows: Sequence[ManifestRow]) -> dict[str, Any]:
    """Return the numbers of files, cells and bytes of a manifest, for its summary."""
    training = [row for row in rows if row.role == "training"]
    totals: dict[str, Any] = {**count_totals(training), "paper_cells": PAPER_CELLS}
    totals["assays"] = count_by(training, "assay")
    if len(organisms := count_by(training, "organism")) > 1:
        totals["organisms"] = organisms
    columns = ("dataset_version_id", "dataset_id", "collection_id", "published")
    evaluation = {
        row.dataset: count_totals([row]) | {name: getattr(row, name) for name in columns}
        for row in rows
        if row.role == "evaluation"
    }
    return {"training": totals, "evaluation": evaluation}


def count_by(rows: Sequence[ManifestRow], column: str) -> dict[str, dict[str, int | None]]:
    """Return the totals of the rows (:func:`count_totals`) by the values of a column."""
    values = sorted({getattr(row, column) for row in rows} - {""})
    return {
        value: count_totals([row for row in rows if getattr(row, column) == value])
        for value in values
    }


def count_totals(rows: Sequence[ManifestRow]) -> dict[str, int | None]:
    """Return the numbers of files, cells and bytes. A total is ``None`` if a value is unknown."""
    totals: dict[str, int | None] = {"files": len(rows)}
    for key in ("cells", "bytes"):
        values = [getattr(row, key) for row in rows]
        totals[key] = sum(map(int, values)) if all(values) else None
    return totals


def format_summary(summary: Mapping[str, Any]) -> list[str]:
    """Return a summary of a manifest as lines of text."""
    lines = [f"Corpus: {summary['origin']}"]
    if "offered" in summary:
        offered = summary["offered"]
        lines.append(f"  offered    {offered['files']:,} datasets, {offered['cells']:,} cells")
        for dataset_id, reason in summary["without_file"].items():
            lines.append(f"  not used   {dataset_id}: {reason}")
    for name, dataset in summary["evaluation"].items():
        lines.append(
            f"  evaluated  {name}: {format_count(dataset['cells'])} cells, version "
            f"{dataset['dataset_version_id']} of {dataset['published'] or 'an unknown day'}"
        )
        if not dataset["collection_id"]:
            lines.append(f"  caution    {name}: collection unknown, held out by dataset alone")
    held_out, left_out = summary.get("held_out", {}), summary.get("left_out", {})
    lines += [f"  held out   {dataset_id}: {reason}" for dataset_id, reason in held_out.items()]
    lines += [f"  left out   {number:,} datasets: {reason}" for reason, number in left_out.items()]
    training = summary["training"]
    size = "" if training["bytes"] is None else f", {training['bytes'] / 1e9:,.1f} GB"
    lines.append(
        f"  training   {training['files']:,} datasets, {format_count(training['cells'])} cells"
        f"{size}; the paper has {training['paper_cells']:,} cells"
    )
    for assay, total in training["assays"].items():
        cells = format_count(total["cells"])
        lines.append(f"  assay      {assay}: {total['files']:,} datasets, {cells} cells")
    lines.append(
        f"  checked    none of the {training['files']:,} training files shares a dataset or "
        "collection with an evaluation dataset"
    )
    return lines


def format_count(number: int | None) -> str:
    """Return a number with thousands separators, or words that say that it is unknown."""
    return "an unknown number of" if number is None else f"{number:,}"
