"""The user's own files: from ``corpus.local`` and ``datasets.<name>.file``."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from os.path import expanduser
from pathlib import Path

from scsigmoid.config.schema import Corpus, Dataset, LocalFiles
from scsigmoid.errors import UserError


@dataclass(frozen=True, kw_only=True)
class LocalFile:
    """One of the user's files. ``layer`` and ``genes`` are as in the schema, but "" means null."""

    path: Path  # absolute path
    labels: list[str]  # columns of obs with the cell type
    held_out: bool | float | str  # True (all cells), False (none), a fraction, or "column=value"
    dataset: str  # evaluation dataset of the held-out cells. Empty if no cells are held out.
    layer: str = ""
    genes: str = ""


def files_of(path: Path) -> list[Path]:
    """Return the files at a path: the path itself, or the matrix files of a 10x folder."""
    if not path.is_dir():
        return [path]
    # The names of files may have a prefix and end in .gz.
    names = ("matrix.mtx", "barcodes.tsv", "features.tsv", "genes.tsv")
    return sorted(file for name in names for file in path.glob(f"*{name}*") if file.is_file())


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
        paths = sorted(Path(match) for match in glob(expanduser(entry.files), recursive=True))
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


def own_files(corpus: Corpus, datasets: Mapping[str, Dataset]) -> list[LocalFile]:
    """Return all files of the user: from ``corpus.local`` and ``datasets.<name>.file``."""
    local = expand(corpus.local) if corpus.source == "local" else []
    return [*local, *files_of_datasets(datasets)]


def problem_of(path: Path) -> str:
    """Return why a path cannot be read and what to do, or an empty text."""
    if path.is_file() or (path.is_dir() and files_of(path)):
        return ""
    if path.is_dir():
        return f"a folder without a 10x matrix; name its files, for example {path / '*.h5ad'}"
    return "no such file; correct the path"


def slug(text: str) -> str:
    """Return a text in lower case, with ``_`` instead of all characters except a-z and 0-9.

    Only the first 200 characters are kept, because the result is a part of the names of files.
    """
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:200] or "dataset"
