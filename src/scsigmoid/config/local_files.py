"""The user's own files: from ``corpus.local`` and ``datasets.<name>.file``."""

import csv
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import escape, glob, has_magic
from os.path import exists, expanduser, join
from pathlib import Path

from scsigmoid.config.schema import Config, Dataset, LocalFiles
from scsigmoid.errors import UserError, first_few
from scsigmoid.files import sha256

# Names of the files of a 10x sample. All files of a sample have the same prefix, often empty.
TENX_FILE = re.compile(
    r"(?P<prefix>.*?)((?P<matrix>matrix\.mtx)|(?P<cells>barcodes\.tsv)"
    r"|(?P<genes>features|genes)\.tsv)(?P<suffix>(\.gz)?)"
)

ZARR_FILES = ("zarr.json", ".zgroup", ".zattrs", ".zarray")  # in the folder of a Zarr store


@dataclass(frozen=True, kw_only=True)
class LocalFile:
    """One of the user's files. ``layer`` and ``genes`` are as in the schema, but "" means null."""

    path: Path  # absolute path
    labels: list[str]  # columns of obs with the cell type
    held_out: bool | float | str  # True (all cells), False (none), a fraction, or "column=value"
    dataset: str  # evaluation dataset of the held-out cells. Empty if no cells are held out.
    layer: str = ""
    genes: str = ""
    batch: str = ""  # column of obs with the batch. Empty if there is none.


def files_of(path: Path) -> list[Path]:
    """Return the files at a path: the path itself, or the files of a 10x matrix in a folder.

    Hidden files are left out, such as ``._matrix.mtx.gz``, which macOS writes.
    """
    if not path.is_dir():
        return [path]
    files = (file for file in path.glob("*") if not file.name.startswith("."))
    return sorted(file for file in files if TENX_FILE.fullmatch(file.name) and file.is_file())


def fingerprint(path: Path) -> tuple[str, int]:
    """Return the SHA-256 and the size in bytes of a file, or of all files of a 10x folder.

    The SHA-256 of a folder is the SHA-256 of a list of its files, as ``sha256sum`` prints it.
    """
    if not path.is_dir():
        return sha256(path), path.stat().st_size
    files = files_of(path)
    lines = "".join(f"{sha256(file)}  {file.name}\n" for file in files)
    size = sum(file.stat().st_size for file in files)
    return hashlib.sha256(lines.encode()).hexdigest(), size


def replaced_files(record: Path) -> list[Path]:
    """Return the user's files whose content is not the content listed in a manifest.

    Only files with a later status change than ``record``, the path of the manifest, are read. Their
    modification times, which Snakemake compares, may be older, as after ``mv`` or ``cp -p``.
    """
    try:
        made = record.stat().st_mtime
        with record.open(encoding="utf-8", newline="") as lines:
            rows = [row for row in csv.DictReader(lines) if row["source"] == "local"]
        listed = {Path(row["location"]): (row["sha256"], int(row["bytes"])) for row in rows}
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return []  # no manifest, or a damaged one, which a job names
    return [
        path
        for path, expected in listed.items()
        if any(file.exists() and file.stat().st_ctime > made for file in files_of(path))
        and fingerprint(path) != expected
    ]


def samples_of(folder: Path) -> dict[str, list[re.Match[str]]]:
    """Return the file names of each 10x sample in a folder, by prefix, as matches of TENX_FILE."""
    samples: dict[str, list[re.Match[str]]] = {}
    for file in files_of(folder):
        if name := TENX_FILE.fullmatch(file.name):
            samples.setdefault(name["prefix"], []).append(name)
    # A single file without a matrix, for example a list of selected barcodes, is not a sample.
    return {
        prefix: names for prefix, names in samples.items() if len(names) > 1 or names[0]["matrix"]
    }


def find_paths(pattern: str) -> list[Path]:
    """Return the existing paths that a path or glob names, sorted.

    Folders and files that exist are taken literally, because their names may contain ``[``. Raise a
    UserError if the files of their folder may not be read.
    """
    path = Path(expanduser(pattern))
    if exists(path):
        return [path]
    folder = next(filter(exists, path.parents), Path())
    # Only a pattern needs the list of the folder's files.
    needed = os.X_OK | (os.R_OK if has_magic(path.relative_to(folder).parts[0]) else 0)
    if folder.is_dir() and not os.access(folder, needed):
        raise UserError(f"{folder}: its files may not be read; change its permissions")
    rest = f"{path.relative_to(folder)}{'/' * pattern.endswith('/')}"
    return sorted(map(Path, glob(join(escape(str(folder)), rest), recursive=True)))


def expand(entries: Sequence[LocalFiles]) -> list[LocalFile]:
    """Return the files of ``corpus.local`` in the order of its entries, then by path.

    Raise a UserError if there are no entries, a path cannot be read, a file is listed twice, or an
    entry gives one name to several files.
    """
    if not entries:
        raise UserError("corpus.local: empty; list your h5ad files (files, label, held_out)")
    files: dict[Path, LocalFile] = {}
    for index, entry in enumerate(entries):
        key = f"corpus.local.{index}"
        paths = find_paths(entry.files)
        if not paths:
            raise UserError(f"{key}.files: {entry.files}: no such file; correct the path")
        if entry.name and len(paths) > 1:
            raise UserError(f"{key}.name: one name for {len(paths)} files; remove it")
        for path in paths:
            if problem := problem_of(path):
                raise UserError(f"{key}.files: {path}: {problem}")
            absolute = path.resolve()
            if absolute in files:
                raise UserError(f"{path}: listed twice in corpus.local; list it once")
            files[absolute] = LocalFile(
                path=absolute,
                labels=[entry.label] if isinstance(entry.label, str) else entry.label,
                held_out=entry.held_out,
                dataset=slug(entry.name or path.stem) if entry.held_out else "",
                layer=entry.layer or "",
                genes=entry.genes or "",
                batch=entry.batch or "",
            )
    return list(files.values())


def files_of_datasets(datasets: Mapping[str, Dataset]) -> list[LocalFile]:
    """Return the files that evaluation datasets name (``datasets.<name>.file``)."""
    files = {name: dataset.file for name, dataset in datasets.items() if dataset.file}
    paths = {name: Path(expanduser(file)).resolve() for name, file in files.items()}
    return [
        LocalFile(path=path, labels=datasets[name].labels, held_out=True, dataset=name)
        for name, path in paths.items()
    ]


def own_files(config: Config) -> list[LocalFile]:
    """Return all files of the user: from ``corpus.local`` and ``datasets.<name>.file``."""
    local = expand(config.corpus.local) if config.corpus.source == "local" else []
    return [*local, *files_of_datasets(config.datasets)]


def problem_of(path: Path) -> str:
    """Return why a path cannot be read and what to do, or an empty text.

    A folder must have the files of one 10x sample, each once.
    """
    if path.is_file():
        return ""
    if not path.is_dir():
        return "no such file; correct the path"
    samples = samples_of(path)
    if not samples and any((path / name).is_file() for name in ZARR_FILES):
        return (
            "a Zarr store, not an h5ad file; convert it: anndata.io.read_zarr(...).write_h5ad(...)"
        )
    if not samples:
        return f"a folder without a 10x matrix; name its files, for example {path / '*.h5ad'}"
    if len(samples) > 1:
        prefixes = first_few(map(repr, samples))
        return (
            f"a folder with the 10x files of {len(samples)} matrices (prefixes {prefixes}); move "
            "the files of each matrix to a folder of its own"
        )
    [names] = samples.values()
    if len(names) > len({(name["matrix"], name["cells"]) for name in names}):
        listed = ", ".join(name.string for name in names)
        return (
            f"a folder with several versions of a 10x file ({listed}); keep one matrix, one file "
            "of barcodes and one file of genes"
        )
    # scanpy reads Cell Ranger's files: since version 3 all compressed, before none.
    for kind, suffix, remedy in (("features", ".gz", "compress"), ("genes", "", "decompress")):
        has_kind = any(name["genes"] == kind for name in names)
        if has_kind and {name["suffix"] for name in names} != {suffix}:
            listed = ", ".join(name.string for name in names)
            tool = "gzip" if suffix else "gunzip"
            return f"a 10x folder that scanpy does not read ({listed}); {remedy} all files ({tool})"
    return ""


def slug(text: str) -> str:
    """Return a text in lower case, with ``_`` instead of all characters except a-z and 0-9.

    Only the first 200 characters are kept, because the result is a part of the names of files.
    """
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:200] or "dataset"
