"""The summary of a manifest: what was offered, held out, left out and taken.

It is printed when the manifest is made, and kept beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scsigmoid.corpus.discover import Listing, Resolved, Version
from scsigmoid.corpus.metadata import ManifestRow
from scsigmoid.corpus.selection import Selection

PAPER_CELLS = 131_600_000  # section "Empirical evaluation": snapshot of 11 June 2024
HUMAN, MOUSE = "Homo sapiens", "Mus musculus"


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


def summary(rows: Sequence[ManifestRow], origin: Origin) -> dict[str, Any]:
    """The summary in numbers, for a JSON file."""
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
                "published": row.published,
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
        stated["selections"] = selections(origin.selection.offered)
    return stated


def totals(rows: Sequence[ManifestRow]) -> dict[str, int | None]:
    """Files, cells and bytes; ``None`` where one of the files does not say."""
    stated: dict[str, int | None] = {"files": len(rows)}
    for key in ("cells", "bytes"):
        values = [getattr(row, key) for row in rows]
        stated[key] = sum(map(int, values)) if all(values) else None
    return stated


def selections(offered: Sequence[Version]) -> list[dict[str, Any]]:
    """What the paper's 131.6M cells could be: the total of each choice, without evaluated data.

    Returns:
        For each choice: ``organisms``, of which datasets hold no other; ``kept``, ``all`` cells or
        ``primary`` ones; ``cells``, their number; ``unknown``, datasets that do not tell it; and
        ``nearest``, whether this total is the nearest to the paper's.
    """
    stated: list[dict[str, Any]] = []
    for organisms in ([HUMAN], [MOUSE], [HUMAN, MOUSE]):
        chosen = [v for v in offered if v.organisms and set(v.organisms) <= set(organisms)]
        every, primary = [v.cells for v in chosen], [v.primary for v in chosen]
        for kept, numbers in (("all", every), ("primary", primary)):
            told = [number for number in numbers if number is not None]
            unknown = len(numbers) - len(told)
            stated.append(
                {"organisms": organisms, "kept": kept, "cells": sum(told), "unknown": unknown}
            )
    nearest = min(stated, key=lambda one: (abs(one["cells"] - PAPER_CELLS), one["unknown"]))
    return [{**one, "nearest": one is nearest} for one in stated]


def as_lines(stated: Mapping[str, Any]) -> list[str]:
    """The summary as lines for people."""
    lines = [f"Corpus: {stated['origin']}"]
    if "offered" in stated:
        offered = stated["offered"]
        lines.append(f"  offered    {offered['files']:,} datasets, {offered['cells']:,} cells")
        for identifier, reason in stated["without_file"].items():
            lines.append(f"  not used   {identifier}: {reason}")
    for name, dataset in stated["evaluation"].items():
        kind = dataset.get("id_is_of_a")
        lines.append(
            f"  evaluated  {name}: {count(dataset['cells'])} cells, version "
            f"{dataset['dataset_version_id']} of {dataset['published'] or 'an unknown day'}"
            + (f" (the id is of a {kind})" if kind else "")
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
    for cells, words in selection_lines(stated):
        lines.append(f"  would be   {cells:,} cells, {words}")
    lines.append(
        f"  checked    none of the {training['files']:,} training files shares a dataset or "
        "collection with an evaluation dataset"
    )
    return lines


def selection_lines(stated: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Total and words of each selection; none for a lock that was given back."""
    return [
        (
            one["cells"],
            f"{one['cells'] / PAPER_CELLS - 1:+.1%} against the paper's {PAPER_CELLS / 1e6:g}M: "
            f"{' and '.join(one['organisms'])}, {one['kept']} cells"
            + (f"; {one['unknown']:,} datasets do not tell" if one["unknown"] else "")
            + (", the nearest" if one["nearest"] else ""),
        )
        for one in stated.get("selections", [])
    ]


def count(number: int | None) -> str:
    return "an unknown number of" if number is None else f"{number:,}"
