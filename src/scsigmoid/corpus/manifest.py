"""The manifest: one row a file, with everything that later stages need to know of it.

It is the lock of the corpus: made once from the configuration, committed or given back
(``corpus.manifest``), and read by every later job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from scsigmoid.config.local_files import expand, slug
from scsigmoid.config.schema import Corpus, Dataset
from scsigmoid.corpus import discover, embedded
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.held_out import as_text
from scsigmoid.corpus.rows import ManifestRow, read_manifest, write_manifest
from scsigmoid.errors import UserError
from scsigmoid.files import sha256

__all__ = ["ManifestRow", "build_manifest", "read_manifest", "write_manifest"]


def build_manifest(
    corpus: Corpus, datasets: Mapping[str, Dataset], seed: int, output: str | Path
) -> None:
    """Make the manifest of a configuration and write it.

    Args:
        corpus: where cells come from.
        datasets: the evaluation datasets.
        seed: the configuration's seed.
        output: the CSV file to write.

    Raises:
        UserError: for files, ids or settings that do not fit together.
    """
    if corpus.source == "embedded":
        rows = embedded_rows(corpus, datasets)
    elif corpus.source == "local":
        rows = local_rows(corpus, datasets, seed)
    elif corpus.manifest is not None:
        rows = given_rows(corpus.manifest, datasets)
    else:
        rows = cellxgene_rows(corpus, datasets, seed)
    write_manifest(output, dealt(rows, corpus.parts))


def embedded_rows(corpus: Corpus, datasets: Mapping[str, Dataset]) -> list[ManifestRow]:
    """Rows of the embedded corpus; sizes and hashes are known once the files are made."""
    for key, value in asdict(corpus.embedded).items():
        if value < 1:
            raise UserError(f"corpus.embedded.{key}: expected at least 1, found {value}")
    training = [("", recipe) for recipe in embedded.training_recipes(corpus.embedded)]
    evaluation = [
        (name, embedded.evaluation_recipe(name, dataset, corpus.embedded))
        for name, dataset in datasets.items()
    ]
    return [
        ManifestRow(
            file=recipe.name,
            role="evaluation" if name else "training",
            dataset=name,
            source="embedded",
            location=recipe.name,
            simulated="true" if recipe.simulated else "false",
            title=recipe.title,
            organism="Homo sapiens",
            label=datasets[name].label if name else "cell_type",
            held_out="all" if name else "",
            cells=str(recipe.cells),
        )
        for name, recipe in training + evaluation
    ]


def local_rows(corpus: Corpus, datasets: Mapping[str, Dataset], seed: int) -> list[ManifestRow]:
    """Rows of the user's own files, which are opened, counted and hashed."""
    rows: list[ManifestRow] = []
    taken: set[str] = set()
    for local in expand(corpus.local):
        held_out = as_text(local.held_out, seed)
        digest, size = sha256(local.path), local.path.stat().st_size
        roles = ["training"] * (held_out != "all") + ["evaluation"] * bool(held_out)
        for role in roles:
            evaluated = role == "evaluation"
            if evaluated and local.dataset not in datasets:
                raise UserError(
                    f"{local.path}: would make the dataset {local.dataset!r}, which datasets lacks"
                )
            cells = open_cells(
                local.path,
                local.label if evaluated else None,
                held_out,
                "evaluation" if evaluated else "training",
            )
            name = local.dataset if evaluated else slug(local.path.stem)
            name = unique(name if evaluated or not held_out else f"{name}_training", taken)
            rows.append(
                ManifestRow(
                    file=name,
                    role=role,
                    dataset=local.dataset if evaluated else "",
                    source="local",
                    location=str(local.path),
                    title=datasets[local.dataset].title if evaluated else local.path.stem,
                    label=local.label,
                    held_out=held_out,
                    cells=str(cells.n_cells),
                    bytes=str(size),
                    sha256=digest,
                )
            )
    return rows


def cellxgene_rows(corpus: Corpus, datasets: Mapping[str, Dataset], seed: int) -> list[ManifestRow]:
    """Rows of CELLxGENE's files as of the snapshot's date."""
    service = discover.Service(corpus.api, corpus.hosts)
    versions = discover.snapshot(service, corpus.snapshot)
    evaluation = {
        name: discover.resolve(service, versions, name, dataset.id, corpus.snapshot)
        for name, dataset in datasets.items()
    }
    training = discover.training_versions(versions, evaluation, corpus, seed)
    return [
        *(discovered_row(version, "training", version.dataset_version_id) for version in training),
        *(
            replace(
                discovered_row(version, "evaluation", name),
                dataset=name,
                title=datasets[name].title,
                label=datasets[name].label,
                held_out="all",
            )
            for name, version in evaluation.items()
        ),
    ]


def discovered_row(version: discover.Version, role: str, file: str) -> ManifestRow:
    """The row of one CELLxGENE dataset version."""
    return ManifestRow(
        file=file,
        role=role,
        source="cellxgene",
        location=version.url,
        title=version.title,
        organism=" || ".join(version.organisms),
        cells=str(version.cells),
        bytes=str(version.bytes) if version.bytes >= 0 else "",
        dataset_id=version.dataset_id,
        dataset_version_id=version.dataset_version_id,
        collection_id=version.collection_id,
    )


def given_rows(path: str | Path, datasets: Mapping[str, Dataset]) -> list[ManifestRow]:
    """Rows of a manifest that the user gives back, checked against the configuration.

    Raises:
        UserError: if a dataset is missing or training files belong to an evaluation dataset.
    """
    rows = read_manifest(path)
    evaluation = {row.dataset: row for row in rows if row.role == "evaluation"}
    for name in datasets:
        if name not in evaluation:
            raise UserError(f"{path}: has no evaluation dataset {name!r}; make the manifest again")
    training = [row for row in rows if row.role == "training"]
    for row in training:
        for other in evaluation.values():
            for key in ("dataset_id", "collection_id"):
                if getattr(row, key) and getattr(row, key) == getattr(other, key):
                    raise UserError(
                        f"{path}: training file {row.file} shares its {key} with the evaluation "
                        f"dataset {other.dataset!r}; remove it"
                    )
    names = [row.file for row in rows]
    for name in names:
        discover.check_name(name, f"{path}: file")
        if names.count(name) > 1:
            raise UserError(f"{path}: two rows are called {name!r}; make the manifest again")
    return [*training, *(evaluation[name] for name in datasets)]


def dealt(rows: Sequence[ManifestRow], parts: int) -> list[ManifestRow]:
    """Deal training files to parts so that the parts are alike in size.

    The largest file goes first, to the part with the least so far; equals keep the order of the
    manifest.  Sizes are bytes where all are known, else cells.

    Raises:
        UserError: if there is no training file.
    """
    training = [index for index, row in enumerate(rows) if row.role == "training"]
    if not training:
        raise UserError("corpus: no file is left for training; hold out less or allow more files")
    key = "bytes" if all(rows[index].bytes for index in training) else "cells"
    sizes = {index: int(getattr(rows[index], key)) for index in training}
    load = [0] * parts
    part_of: dict[int, int] = {}
    for index in sorted(training, key=lambda index: (-sizes[index], index)):
        part = load.index(min(load))
        part_of[index] = part
        load[part] += sizes[index]
    return [
        replace(row, part=str(part_of[index])) if index in part_of else replace(row, part="")
        for index, row in enumerate(rows)
    ]


def unique(name: str, taken: set[str]) -> str:
    """``name``, with a number where it is taken; notes it as taken."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate
