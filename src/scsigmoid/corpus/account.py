"""The account of a manifest: what was offered, held out, left out and taken, in words and numbers.

It is printed when the manifest is made, and kept beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scsigmoid.corpus.discover import Listing
from scsigmoid.corpus.evaluated import Resolved
from scsigmoid.corpus.rows import ManifestRow
from scsigmoid.corpus.selection import Selection

PAPER_CELLS = 131_600_000  # section "Empirical evaluation": snapshot of 11 June 2024


@dataclass(frozen=True)
class Origin:
    """Where the rows of a manifest come from.

    Attributes:
        words: in words, e.g. ``CELLxGENE Discover as of 2024-06-11``.
        listing: what was on offer; ``None`` for a lock that was given back, and own files.
        selection: what was chosen of it.
        evaluation: what the ids of the evaluation datasets stand for.
    """

    words: str
    listing: Listing | None = None
    selection: Selection | None = None
    evaluation: Mapping[str, Resolved] = field(default_factory=dict)


def account(rows: Sequence[ManifestRow], origin: Origin) -> dict[str, Any]:
    """The account in numbers, for a JSON file."""
    training = [row for row in rows if row.role == "training"]
    stated: dict[str, Any] = {
        "origin": origin.words,
        "training": {**totals(training), "paper_cells": PAPER_CELLS},
        "evaluation": {
            row.dataset: {
                **totals([row]),
                "dataset_version_id": row.dataset_version_id,
                "dataset_id": row.dataset_id,
                "collection_id": row.collection_id,
            }
            for row in rows
            if row.role == "evaluation"
        },
    }
    for name, resolved in origin.evaluation.items():
        stated["evaluation"][name]["id_is_of_a"] = resolved.kind
    if origin.listing is not None:
        versions = origin.listing.versions
        stated["offered"] = {"files": len(versions), "cells": sum(v.cells for v in versions)}
        stated["without_file"] = origin.listing.left_out
    if origin.selection is not None:
        stated["held_out"] = origin.selection.held_out
        stated["left_out"] = origin.selection.left_out
    return stated


def totals(rows: Sequence[ManifestRow]) -> dict[str, int | None]:
    """Files, cells and bytes; ``None`` where one of the files does not say."""
    stated: dict[str, int | None] = {"files": len(rows)}
    for key in ("cells", "bytes"):
        values = [getattr(row, key) for row in rows]
        stated[key] = sum(map(int, values)) if all(values) else None
    return stated


def worded(stated: Mapping[str, Any]) -> list[str]:
    """The account as lines for people."""
    lines = [f"Corpus: {stated['origin']}"]
    if "offered" in stated:
        offered = stated["offered"]
        lines.append(f"  offered    {offered['files']:,} datasets, {offered['cells']:,} cells")
        for dataset_id, reason in stated["without_file"].items():
            lines.append(f"  no file    {dataset_id}: {reason}")
    for name, dataset in stated["evaluation"].items():
        kind = dataset.get("id_is_of_a")
        lines.append(
            f"  evaluated  {name}: {count(dataset['cells'])} cells, version "
            f"{dataset['dataset_version_id']}" + (f" (the id is of a {kind})" if kind else "")
        )
        if not dataset["collection_id"]:
            lines.append(f"  caution    {name}: collection unknown, held out by dataset alone")
    for dataset_id, reason in stated.get("held_out", {}).items():
        lines.append(f"  held out   {dataset_id}: {reason}")
    for reason, files in stated.get("left_out", {}).items():
        lines.append(f"  left out   {files:,} datasets: {reason}")
    training = stated["training"]
    size = "" if training["bytes"] is None else f", {training['bytes'] / 1e9:,.1f} GB"
    lines.append(
        f"  training   {training['files']:,} datasets, {count(training['cells'])} cells{size}; the "
        f"paper has {training['paper_cells']:,} cells"
    )
    lines.append(
        f"  checked    none of the {training['files']:,} training files shares a dataset or "
        "collection with an evaluation dataset"
    )
    return lines


def count(number: int | None) -> str:
    """A number with separators, or that it is not known."""
    return "an unknown number of" if number is None else f"{number:,}"
