"""Which of the versions on offer are trained on, none of which shares cells with an evaluated one;
and the summary of a manifest: what was offered, held out, left out and taken.
"""

import csv
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import zip_longest
from typing import Any

from scsigmoid.config.schema import Corpus
from scsigmoid.config.validate import nearest
from scsigmoid.corpus.discover import NAMED, Listing, Version
from scsigmoid.corpus.metadata import ManifestRow
from scsigmoid.corpus.repeated_cells import Excluded
from scsigmoid.errors import UserError
from scsigmoid.seeds import derive

RNA = "rna"  # in corpus.assays: all assays of rna_assays.csv
PAPER_CELLS = 131_600_000  # section "Empirical evaluation": snapshot of 11 June 2024
HUMAN, MOUSE = "Homo sapiens", "Mus musculus"
# What knows its dataset and collection.
Identified = Version | ManifestRow


@dataclass(frozen=True)
class Selection:
    """What is trained on, and why other versions are not."""

    training: list[Version]  # in the order of the listing
    held_out: dict[str, str]  # reason (held_out_reason) by dataset id
    left_out: dict[str, int]  # number of others, by reason
    offered: list[Version]  # all that are not held out


def select(
    versions: Sequence[Version], evaluation: Mapping[str, Identified], corpus: Corpus, seed: int
) -> Selection:
    """Choose what to train on; the seed decides where the configuration limits cells or bytes."""
    check_names_offered("organisms", corpus.organisms, {o for v in versions for o in v.organisms})
    assays = {assay for v in versions for assay in (*v.assays, *v.assay_ids)}
    check_names_offered("assays", {*(corpus.assays or ())} - {RNA}, assays)
    unwanted = set(corpus.leave_out)
    offered = {v.dataset_id for v in versions} | {v.dataset_version_id for v in versions}
    if unwanted - offered:
        raise UserError(
            f"corpus.leave_out: {min(unwanted - offered)} is neither a dataset nor a dataset "
            "version on offer; correct the id"
        )
    training: list[Version] = []
    free: list[Version] = []
    held_out: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for version in versions:
        if held := held_out_reason(version, evaluation):
            held_out[version.dataset_id] = held
            continue
        free.append(version)
        if reason := reason_against(version, corpus):
            left_out[reason] += 1
        else:
            training.append(version)
    kept = sample_files(training, corpus.maximum_cells, corpus.maximum_gb, seed)
    if len(kept) < len(training):
        left_out["not in the seeded choice"] = len(training) - len(kept)
    return Selection(kept, held_out, left_out, free)


def check_names_offered(key: str, wanted: Iterable[str], offered: Collection[str]) -> None:
    """Refuse a name that no dataset has: a misspelt one would leave out all that it means."""
    for name in wanted:
        if name not in offered:
            raise UserError(
                f"corpus.{key}: {name!r} is not on offer{nearest(name, sorted(offered))}"
            )


def can_be_wanted(corpus: Corpus, organisms: Collection[str], assays: Collection[str]) -> bool:
    """Whether a dataset has a wanted organism and a wanted assay, if the service names any.

    ``assays`` are labels and ontology ids.
    """
    wanted = wanted_assays(corpus)
    return not (
        (organisms and set(organisms).isdisjoint(corpus.organisms))
        or (wanted is not None and assays and wanted.isdisjoint(assays))
    )


def wanted_assays(corpus: Corpus) -> set[str] | None:
    """Labels and ontology ids of the wanted assays; ``None`` for all."""
    if corpus.assays is None:
        return None
    return {*corpus.assays} | (rna_assays() if RNA in corpus.assays else set())


@cache
def rna_assays() -> frozenset[str]:
    """Ontology ids of the assays of RNA."""
    text = files("scsigmoid.corpus").joinpath("rna_assays.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return frozenset(row["ontology_term_id"] for row in csv.DictReader(lines))


def reason_against(version: Version, corpus: Corpus) -> str:
    """Why the configuration does not want a version; empty where it does."""
    if {version.dataset_id, version.dataset_version_id} & set(corpus.leave_out):
        return NAMED
    if not version.organisms or not set(version.organisms) <= set(corpus.organisms):
        return "other organisms"
    wanted = wanted_assays(corpus)
    assays = [*zip_longest(version.assays, version.assay_ids)]
    if wanted is not None and (not assays or any(wanted.isdisjoint(names) for names in assays)):
        return "other assays"
    if corpus.maximum_file_gb is not None:
        if version.bytes < 0:
            return "size unknown"
        if version.bytes > corpus.maximum_file_gb * 1e9:
            return "larger than corpus.maximum_file_gb"
    return ""


def sample_files(
    versions: Sequence[Version], maximum_cells: int | None, maximum_gb: float | None, seed: int
) -> list[Version]:
    """A seeded choice of files that hold at most so many cells and bytes together.

    Files are taken in a random order, in which a file's place depends on the seed and its own id
    alone; one that does not fit any more is passed over.
    """
    if maximum_cells is None and maximum_gb is None:
        return list(versions)
    cells = math.inf if maximum_cells is None else maximum_cells
    size = math.inf if maximum_gb is None else maximum_gb * 1e9
    taken: set[str] = set()
    for version in sorted(versions, key=lambda v: derive(seed, "training files", v.dataset_id)):
        # a file of unknown size cannot be counted against a limit of bytes
        fits = maximum_gb is None or 0 <= version.bytes <= size
        if fits and version.cells <= cells:
            taken.add(version.dataset_id)
            cells -= version.cells
            size -= version.bytes
    return [version for version in versions if version.dataset_id in taken]


def held_out_reason(item: Identified, evaluation: Mapping[str, Identified]) -> str:
    """Why something may not be trained on; empty where it may.

    Every version of an evaluation dataset is held out, and all of its collection: cells come back
    in other datasets of the same publication.  Collections that are not known match none.
    """
    for name, other in evaluation.items():
        if item.dataset_id and item.dataset_id == other.dataset_id:
            return f"dataset of {name}"
        if item.collection_id and item.collection_id == other.collection_id:
            return f"collection of {name}"
    return ""


def check_separate(
    training: Iterable[Identified], evaluation: Mapping[str, Identified], where: str
) -> None:
    """Refuse training files that share a dataset or a collection with an evaluation dataset."""
    for item in training:
        reason = held_out_reason(item, evaluation)
        if reason:
            raise UserError(
                f"{where}: training file of dataset {item.dataset_id} is of the {reason}, which is "
                "evaluated; remove it"
            )


@dataclass(frozen=True)
class Origin:
    """Where the rows of a manifest come from."""

    words: str  # e.g. "CELLxGENE Discover as of 2024-06-11"
    listing: Listing | None = None  # None for a lock and for local and embedded files
    selection: Selection | None = None  # what was chosen of it
    kinds: Mapping[str, str] = field(default_factory=dict)  # what each evaluation id is of
    # training cells of the user's files that occur more than once, by path
    excluded: Mapping[str, Excluded] = field(default_factory=dict)


def summary(rows: Sequence[ManifestRow], origin: Origin) -> dict[str, Any]:
    """The summary in numbers, for a JSON file."""
    training = [row for row in rows if row.role == "training"]
    stated: dict[str, Any] = {
        "origin": origin.words,
        "training": {
            **totals(training),
            "paper_cells": PAPER_CELLS,
            "assays": {
                assay: totals([row for row in training if row.assay == assay])
                for assay in sorted({row.assay for row in training} - {""})
            },
        },
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
    for name, kind in origin.kinds.items():
        stated["evaluation"][name]["id_is_of_a"] = kind
    if origin.excluded:
        stated["excluded"] = {
            path: {"held_out": cells.held_out, "repeated": cells.repeated}
            for path, cells in origin.excluded.items()
        }
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
    """The summary as lines of text."""
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
    for reason, datasets in stated.get("left_out", {}).items():
        lines.append(f"  left out   {datasets:,} datasets: {reason}")
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
