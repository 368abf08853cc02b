"""Make the manifest of a corpus, a table with one row per file and role.

A manifest with the SHA-256 of all files is a lock, which ``corpus.manifest`` may name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scsigmoid.config.local_files import LocalFile, fingerprint, own_files, slug
from scsigmoid.config.schema import Config, Corpus, Dataset
from scsigmoid.corpus.cell_types import choose_label
from scsigmoid.corpus.counts import Cells
from scsigmoid.corpus.discover import Service, find_evaluation_dataset, list_versions
from scsigmoid.corpus.downloads import Downloads
from scsigmoid.corpus.embedded import list_embedded
from scsigmoid.corpus.genes import compare_genes, organisms_of, with_shared_ids
from scsigmoid.corpus.h5ad import H5adFile, open_cells
from scsigmoid.corpus.held_out import find_held_out_values, held_out_text, select_role
from scsigmoid.corpus.metadata import (
    ManifestRow,
    are_in_ranges,
    check_identifier,
    check_rows,
    check_skipped,
    describe_manifest,
    format_ranges,
    read_manifest,
    read_metadata,
    read_part,
    read_row,
    read_summary,
    write_manifest,
)
from scsigmoid.corpus.repeated_cells import (
    FEWEST_GENES,
    Excluded,
    exclude_repeated,
    find_shared_genes,
    hash_cells,
)
from scsigmoid.corpus.selection import (
    can_be_wanted,
    check_separate,
    format_count,
    format_summary,
    select,
    summarize,
)
from scsigmoid.corpus.tenx import as_h5ad
from scsigmoid.corpus.web import Absent, check_address
from scsigmoid.errors import UserError, first_few
from scsigmoid.files import write_json
from scsigmoid.progress import announce, log

LOCK_AGAIN = "make the lock again (remove corpus.manifest)"
TRAIN_AGAIN = "train without them (snakemake --forcerun manifest) or remove the dataset"


def build_manifest(
    config: Config, folder: str | Path, output: str | Path, output_json: str | Path
) -> list[str]:
    """Write the manifest of a configuration, and its summary as JSON.

    ``folder`` is the folder of downloads. The server is not asked for files that it contains.
    Return the summary as lines of text, empty for embedded and local cells.
    """
    summary: dict[str, Any]
    corpus = config.corpus
    if corpus.source == "embedded":
        rows, summary = list_embedded(corpus.embedded, config.datasets), {"origin": corpus.source}
    elif corpus.source == "local":
        rows, summary = list_local(config)
    else:
        rows, summary = list_remote(config, Downloads(folder, corpus.download))
    for message in summary.get("warnings", ()):
        announce(message)
    check_rows(rows, summary["origin"])
    rows = assign_parts(rows, corpus.parts)
    summary |= summarize(rows)
    write_manifest(output, rows)
    write_json(output_json, summary | {"manifest": describe_manifest(output, rows)})
    if organisms := summary["training"].get("organisms"):
        counts = (f"{name} {format_count(total['cells'])}" for name, total in organisms.items())
        announce(f"training cells by organism: {', '.join(counts)}")
    return format_summary(summary) if corpus.source == "cellxgene" else []


def write_evaluation_row(name: str, config: Config, folder: str | Path, output: str | Path) -> None:
    """Write the manifest row of an evaluation dataset to a CSV file.

    The row does not depend on the training files, so a dataset can be added without training again.
    """
    corpus, dataset = config.corpus, config.datasets[name]
    own_file = next((file for file in own_files(config) if file.dataset == name), None)
    if own_file is not None:
        rows, _ = list_file(own_file, config)
    elif corpus.source == "embedded":
        rows = list_embedded(corpus.embedded, {name: dataset})
    else:
        downloads = Downloads(folder, corpus.download)
        if corpus.manifest is not None:
            rows = read_lock(corpus.manifest, corpus, {name: dataset})
            row = rows[-1]  # evaluation rows come last
        else:
            row = find_evaluation_dataset(Service(corpus.api, downloads.web), name, dataset)
        rows = check_available([row], downloads, f"datasets.{name}", locked=bool(corpus.manifest))
    evaluation = rows[-1:]  # training rows come first
    check_rows(evaluation, f"datasets.{name}")
    write_manifest(output, evaluation)


def check_not_trained_on(row_file: str | Path, manifest: str | Path, config: Config) -> None:
    """Raise an error if cells of an evaluation dataset are among the training cells.

    The manifest holds out the datasets that were configured when it was made. If the corpus is
    local and the dataset was added or changed since then, the gene counts of its cells are also
    compared with the gene counts of the training cells.
    """
    evaluated = read_row(row_file)
    rows = read_manifest(manifest)
    training = [row for row in rows if row.role == "training"]
    check_separate(training, {evaluated.dataset: evaluated}, str(manifest), TRAIN_AGAIN)
    key_of = attrgetter("dataset", "location", "held_out", "sha256", "layer", "genes")
    is_unchanged = key_of(evaluated) in map(key_of, rows)
    if config.corpus.source != "local" or is_unchanged:
        return
    # A new manifest would exclude training cells with the counts of held-out cells.
    rows_now, summary = list_local(config)
    excluded_now = {row.location: row.excluded for row in rows_now if row.role == "training"}
    for row in training:
        ranges = excluded_now.get(row.location)
        if ranges is None:  # no training row, because all cells of the file are excluded now
            cells = int(row.cells)
        else:
            last = max(map(int, re.findall(r"\d+", ranges)), default=-1)
            file_rows = np.arange(last + 1)  # up to the last row that is excluded now
            is_new = are_in_ranges(file_rows, ranges) & ~are_in_ranges(file_rows, row.excluded)
            cells = int(is_new.sum())
        if cells:
            raise UserError(
                f"datasets.{evaluated.dataset}: {cells:,} training cells of {row.location} have "
                f"the same counts as held-out cells; {TRAIN_AGAIN}"
            )
    entry = read_summary(manifest, "warnings")
    printed = entry if isinstance(entry, list) else []
    for message in summary["warnings"]:
        (log if message in printed else announce)(message)


class LocalCells(NamedTuple):
    """All cells of one of the user's files, and the rows of its training and held-out cells."""

    path: Path
    cells: Cells
    training: NDArray[np.int64]
    held_out: NDArray[np.int64]
    held_out_values: list[str]  # of :func:`~.held_out.find_held_out_values`


def list_local(config: Config) -> tuple[list[ManifestRow], dict[str, Any]]:
    """Return the manifest rows of the user's own files, and entries for the summary.

    The entry ``warnings`` has the warnings to print.
    """
    local_files = own_files(config)
    selections = sorted({file.held_out for file in local_files if isinstance(file.held_out, str)})
    listed = [list_file(local, config, selections) for local in local_files]
    warnings = []
    if values := [text for _, file in listed for text in file.held_out_values]:
        warnings.append(
            "warning: training cells have a value that is held out in another file or spelling: "
            f"{first_few(values)}; hold them out, too, if they are of the same origin"
        )
    rows = [row for rows_of_file, _ in listed for row in rows_of_file]
    cells_of = with_shared_ids({file.path: file.cells for _, file in listed})
    files = [file._replace(cells=cells_of[file.path]) for _, file in listed]
    for number, row in enumerate(rows):
        if row.role == "training":  # with the ids that replace symbols
            organisms = organisms_of(cells_of[Path(row.location)].genes)
            rows[number] = replace(row, organism=" || ".join(organisms))
    compare_genes({file.path: file.cells for file in files})
    compared, found = find_repeated(files)
    excluded = {path: cells for path, cells in compared.items() if len(cells.rows)}
    summary: dict[str, Any] = {"origin": "corpus.local", "warnings": warnings + found}
    for path, cells in compared.items():
        for name in ("excluded", "not_compared"):
            numbers = getattr(cells, name)
            if any(numbers.values()):
                summary.setdefault(name, {})[path] = numbers
    return remove_excluded(with_unique_names(rows), excluded), summary


def list_file(
    local: LocalFile, config: Config, selections: Sequence[str] = ()
) -> tuple[list[ManifestRow], LocalCells]:
    """Return the manifest rows of a file, training before evaluation, and its cells.

    ``selections`` are as for :func:`~.held_out.find_held_out_values`.
    """
    rows: list[ManifestRow] = []
    held_out = held_out_text(local.held_out, config.seed)
    digest, size = fingerprint(local.path)
    with as_h5ad(local.path) as path:
        title = str(local.path)
        cells = open_cells(path, layer=local.layer, genes=local.genes, title=title)
        with cells.source.opened() as tables:
            obs = tables.frame("obs")
            labels = [name for name in local.labels if name in obs] or local.labels
        common = ManifestRow(
            file=slug(local.path.stem),
            role="training",
            source="local",
            location=str(local.path),
            title=local.path.stem,
            label=labels[0],
            held_out=held_out,
            bytes=str(size),
            sha256=digest,
            layer=local.layer,
            genes=cells.gene_column,
            organism=" || ".join(organisms_of(cells.genes)),
        )
        training_rows = held_out_rows = np.zeros(0, dtype=np.int64)
        held_out_values: list[str] = []
        if held_out != "all":
            training_cells = select_role(cells, held_out, "training")
            held_out_values = find_held_out_values(training_cells, selections)
            training_rows = training_cells.rows
            file_name = f"{common.file}_training" if held_out else common.file
            rows.append(replace(common, file=file_name, cells=str(len(training_rows))))
        if local.dataset:
            name, dataset = local.dataset, config.datasets[local.dataset]
            held_out_cells = select_role(cells, held_out, "evaluation")
            held_out_rows = held_out_cells.rows
            choose_label(held_out_cells, name, dataset)  # raises if labels or batches are missing
            row = replace(common, role="evaluation", label="", cells=str(len(held_out_rows)))
            rows.append(replace(row, file=name, dataset=name, title=dataset.title))
    return rows, LocalCells(local.path, cells, training_rows, held_out_rows, held_out_values)


def find_repeated(files: Sequence[LocalCells]) -> tuple[dict[str, Excluded], list[str]]:
    """Return the repeated training cells to exclude, by path of the file, and warnings.

    The warnings are about excluded cells, and about cells that could not be compared.
    """
    warnings = []
    # Of cells with the same counts, the first is kept: from the file with the most genes.
    files = sorted(files, key=lambda file: -len(file.cells.genes))
    n_cells = sum(file.cells.n_cells for file in files)
    shared = find_shared_genes([file.cells.genes for file in files], n_cells)
    if shared.n_gene_sets > len(shared.cores):
        log(
            f"the files have {shared.n_gene_sets:,} different sets of genes; cells are compared in "
            f"{len(shared.cores)} groups of similar sets, by the genes that all files of a group "
            "have"
        )
    hashed = []
    for number, file in enumerate(files):
        is_shared = shared.of_file(number, file.cells.genes)
        with as_h5ad(file.path) as path:
            # The h5ad file of a 10x file is temporary.
            cells = replace(file.cells, source=H5adFile(path, str(file.path)))
            hashed.append(hash_cells(cells, is_shared, file.training, file.held_out))
    compared = {}
    for file, cells_of_file in zip(files, exclude_repeated(hashed, shared), strict=True):
        compared[str(file.path)] = cells_of_file
        if len(cells_of_file.rows):
            numbers = cells_of_file.excluded
            warnings.append(
                f"warning: {file.path}: of {len(file.training):,} training cells, "
                f"{numbers['held_out']:,} have the same counts as held-out cells and "
                f"{numbers['repeated']:,} the same as other training cells; they are left out"
            )
    # The same comparison among held-out cells only. Several datasets may have one file.
    none = np.zeros(0, dtype=np.int64)
    rows_of = {file.path: file.held_out for file in files}
    held_out = [
        replace(cells, training=rows_of.pop(file.path, none), held_out=none)
        for file, cells in zip(files, hashed, strict=True)
    ]
    repeated = [cells.excluded["repeated"] for cells in exclude_repeated(held_out, shared)]
    if total := sum(repeated):
        examples = (f"{file.path} ({n:,})" for file, n in zip(files, repeated, strict=True) if n)
        warnings.append(
            f"warning: {total:,} held-out cells have the same counts as other held-out cells, so "
            f"scores count them twice: {first_few(examples)}; remove repeated cells of a file, and "
            "of several copies list only one or set held_out for one only"
        )
    n_training = sum(len(file.training) for file in files)
    for name, other in ("held_out", "held-out"), ("training", "training"):
        numbers = {path: cells.not_compared[name] for path, cells in compared.items()}
        if total := sum(numbers.values()):
            examples = (f"{path} ({number:,})" for path, number in numbers.items() if number)
            # Repeated training cells do not bias scores, so they are not shown on the terminal.
            show = warnings.append if name == "held_out" else log
            show(
                f"warning: {total:,} of {n_training:,} training cells could not be compared with "
                f"the {other} cells of every other file, because they express fewer than "
                f"{FEWEST_GENES} of the genes that both files have: {first_few(examples)}; check "
                "the gene ids, unless the files are of different organisms"
            )
    return compared, warnings


def remove_excluded(rows: list[ManifestRow], excluded: Mapping[str, Excluded]) -> list[ManifestRow]:
    """Remove excluded cells from training rows. Rows that have no cells left become "skipped"."""
    kept = []
    for row in rows:
        if row.role == "training" and row.location in excluded:
            removed = excluded[row.location].rows
            remaining = int(row.cells) - len(removed)
            row = replace(row, cells=str(remaining), excluded=format_ranges(removed))
        if row.cells == "0":  # kept, so that a replacement of the file is noticed
            row = replace(row, role="skipped", reason="all cells are excluded")
        kept.append(row)
    # If nothing is excluded, `assign_parts` raises an error with other advice.
    if excluded and not any(row.role == "training" for row in kept):
        raise UserError(
            "corpus.local: no cell is left for training, because all have the same counts as "
            f"held-out cells ({first_few(excluded)}); hold out less or add other files"
        )
    return kept


def list_remote(config: Config, downloads: Downloads) -> tuple[list[ManifestRow], dict[str, Any]]:
    """Return the manifest rows of CELLxGENE's files or of a lock, and entries for the summary."""
    corpus = config.corpus
    if corpus.manifest is not None:
        rows = read_lock(corpus.manifest, corpus, config.datasets)
        rows = check_available(rows, downloads, corpus.manifest, locked=True)
        return rows, {"origin": f"the lock {corpus.manifest}"}
    service = Service(corpus.api, downloads.web)
    origin = f"CELLxGENE Discover as of {corpus.snapshot}"
    versions, unavailable = list_versions(
        service,
        corpus.snapshot,
        corpus.leave_out,
        lambda entry: can_be_wanted(entry, corpus),
        downloads.folder / "versions",
    )
    evaluation = {
        name: find_evaluation_dataset(service, name, dataset)
        for name, dataset in config.datasets.items()
        if not dataset.file
    }
    # `versions` lacks the ids in `unavailable`. For them, `select` would raise an error.
    leave_out = [identifier for identifier in corpus.leave_out if identifier not in unavailable]
    corpus = corpus.model_copy(update={"leave_out": leave_out})
    chosen, held_out, left_out = select(versions, evaluation, corpus, config.seed)
    training = [replace(row, snapshot=corpus.snapshot) for row in chosen]
    offered_cells = sum(int(version.row.cells) for version in versions)
    rows = check_available([*training, *evaluation.values()], downloads, origin, locked=False)
    return rows, {
        "origin": origin,
        "offered": {"files": len(versions), "cells": offered_cells},
        "without_file": unavailable,
        "held_out": held_out,
        "left_out": left_out,
    }


def assign_parts(rows: Sequence[ManifestRow], parts: int) -> list[ManifestRow]:
    """Assign training files, largest first, each to the part that is the smallest so far.

    Sizes are bytes if all are known, else cells.
    """
    training = [row for row in rows if row.role == "training"]
    if not training:
        raise UserError("corpus: no file is left for training; hold out less or allow more files")
    column = "bytes" if all(row.bytes for row in training) else "cells"
    size_of_part = [0] * parts
    part_of: dict[str, str] = {}
    for row in sorted(training, key=lambda row: -int(getattr(row, column))):
        part = size_of_part.index(min(size_of_part))
        part_of[row.file] = str(part)
        size_of_part[part] += int(getattr(row, column))
    return [replace(row, part=part_of.get(row.file, "")) for row in rows]


def with_unique_names(rows: Iterable[ManifestRow]) -> list[ManifestRow]:
    """Return the rows, with a number after names that earlier rows have."""
    unique: dict[str, ManifestRow] = {}
    for row in rows:
        name, number = row.file, 1
        while name in unique:
            number += 1
            name = f"{row.file}_{number}"
        unique[name] = replace(row, file=name)
    return list(unique.values())


def read_lock(path: str, corpus: Corpus, datasets: Mapping[str, Dataset]) -> list[ManifestRow]:
    """Read the user's lock and check it against the configuration.

    Omit training files in ``corpus.leave_out``, and evaluation datasets that are not configured.
    """
    rows = read_manifest(path, may_be_edited=True)
    for row in rows:
        if row.source != "cellxgene":
            raise UserError(
                f"{path}: source of {row.file} is {row.source!r}, not CELLxGENE; remove this row"
            )
        check_identifier(row.dataset_version_id, f"{path}: {row.file}")
    in_lock = {row.dataset: row for row in rows if row.role == "evaluation"}
    evaluation = []
    for name, dataset in datasets.items():
        if dataset.file:  # the user's own file
            continue
        if name not in in_lock:
            raise UserError(f"{path}: evaluation dataset {name!r} is missing; {LOCK_AGAIN}")
        row = in_lock[name]
        ids = (row.dataset_version_id, row.dataset_id, row.collection_id)
        if dataset.id and dataset.id not in ids:
            raise UserError(
                f"{path}: evaluation dataset {name!r} is not {dataset.id}; correct "
                f"datasets.{name}.id or {LOCK_AGAIN}"
            )
        evaluation.append(replace(row, title=dataset.title, label=""))
    leave_out = set(corpus.leave_out)
    # "skipped": a training file that could not be used when the lock was made.
    training = [
        row
        for row in rows
        if row.role in ("training", "skipped")
        and leave_out.isdisjoint((row.dataset_id, row.dataset_version_id))
    ]
    # Also hold out evaluation datasets of the lock that are not configured.
    check_separate(training, in_lock, path, "remove it")
    return [*training, *evaluation]


def check_available(
    rows: Sequence[ManifestRow], downloads: Downloads, where: str, *, locked: bool
) -> list[ManifestRow]:
    """Check that the server has all files that are not downloaded yet.

    Return the rows, with the sizes that the server states. Raise an error if a file is missing or,
    in a lock, has another size than its row.
    """
    for row in rows:
        check_address(row.location, downloads.web.settings.hosts)

    def check_file(row: ManifestRow) -> ManifestRow | str:
        """Return the row with its size, or the reason why the file cannot be used."""
        if row.role == "skipped" or downloads.has(row):
            return row
        try:
            size = downloads.web.size(row.location)
        except Absent as error:
            return error.reason
        if size is None or row.bytes == str(size):
            return row
        if row.bytes and locked:
            return f"changed from {row.bytes} to {size} bytes"
        if row.bytes:
            log(f"{row.location}: has {size} bytes, but is listed with {row.bytes}")
        return replace(row, bytes=str(size))

    results = downloads.web.each(check_file, rows, unit="files")
    wrong = [
        (row, f"{row.dataset_version_id} ({result})")
        for row, result in zip(rows, results, strict=True)
        if isinstance(result, str)
    ]
    if wrong:
        names = [name for _, name in wrong]
        log(f"files that are gone or changed: {', '.join(names)}")
        advice = (
            "remove corpus.manifest to make a new manifest" if locked else "change corpus.source"
        )
        evaluated = [row.dataset for row, _ in wrong if row.role == "evaluation"]
        if not evaluated:
            names_to = "name them (all are in the log) in corpus.leave_out to leave them out"
            advice = f"{names_to}, or {advice}"
        elif not locked:
            advice = f"set datasets.{evaluated[0]}.id to another dataset"
        raise UserError(
            f"{where}: {len(wrong)} of {len(rows)} files are gone or changed: "
            f"{first_few(names)}; {advice}"
        )
    return [result for result in results if isinstance(result, ManifestRow)]


def write_lock(
    manifest: str | Path,
    parts: Iterable[str | Path],
    metadata: Iterable[str | Path],
    output: str | Path,
) -> None:
    """Write the manifest with cells, bytes and SHA-256 of the downloaded files.

    The evaluation rows are in CSV files next to the JSON files ``metadata``. The user's own
    evaluation files are left out.
    """
    downloaded = {row.file: row for part in parts for row in read_part(part)}
    rows = [row for row in read_manifest(manifest) if row.role != "evaluation"]
    # Files that were skipped when an earlier lock was made are not in any part.
    downloaded |= {row.file: row for row in rows if row.role == "skipped"}
    check_skipped(downloaded.values(), rows)
    for path in map(Path, metadata):
        row = read_row(path.with_suffix(".csv"))
        if row.source == "cellxgene":
            rows.append(row)
            fetched = read_metadata(path)
            if row.file == fetched.file:  # otherwise the error below names the file
                row = replace(row, cells=str(fetched.cells), sha256=fetched.sha256)
                downloaded[row.file] = row
    for row in rows:
        if row.file not in downloaded:
            raise UserError(
                f"{manifest}: its {row.role} file {row.file!r} is missing from --cells and "
                "--metadata; fetch it first"
            )
    write_manifest(output, [downloaded[row.file] for row in rows])
