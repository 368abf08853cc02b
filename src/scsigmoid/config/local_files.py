"""The user's own files: globs expanded, dataset names chosen, contradictions refused."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from os.path import expanduser
from pathlib import Path

from scsigmoid.config.schema import LocalFiles
from scsigmoid.errors import UserError


@dataclass(frozen=True, kw_only=True)
class LocalFile:
    """One of the user's files.

    Attributes:
        path: absolute path.
        labels: columns of ``obs`` with the cell type, as in the configuration.
        held_out: ``True`` (all cells), ``False`` (none), a fraction, or ``"column=value"``.
        dataset: name of the evaluation dataset of the held-out cells; empty without such.
        layer: layer that holds the raw counts; empty for ``raw.X`` or ``X``.
        genes: column of ``var`` with the gene ids; empty if the user named none.
    """

    path: Path
    labels: list[str]
    held_out: bool | float | str
    dataset: str
    layer: str
    genes: str

    @property
    def files(self) -> list[Path]:
        """The file itself, or the files of a 10x folder."""
        return files_of(self.path)


def files_of(path: Path) -> list[Path]:
    """The file itself, or the files of a 10x folder: matrix, barcodes and features."""
    if not path.is_dir():
        return [path]
    kinds = ("matrix.mtx", "barcodes.tsv", "features.tsv", "genes.tsv")
    return sorted(file for kind in kinds for file in path.glob(f"*{kind}*") if file.is_file())


def expand(entries: Sequence[LocalFiles]) -> list[LocalFile]:
    """Expand the entries of ``corpus.local`` to files, in the order given, globs sorted.

    Raises:
        UserError: for a path or glob that matches nothing, a file that is listed twice (above all
            once for training and once held out), or a ``held_out`` that cannot be understood.
    """
    if not entries:
        raise UserError("corpus.local: empty; list your h5ad files (files, label, held_out)")
    found: dict[Path, LocalFile] = {}
    for index, entry in enumerate(entries):
        key = f"corpus.local.{index}"
        paths = sorted(Path(match) for match in glob(expanduser(entry.files), recursive=True))
        if not paths:
            raise UserError(f"{key}.files: {entry.files}: no such file; correct the path")
        if entry.name and len(paths) > 1:
            raise UserError(f"{key}.name: one name for {len(paths)} files; leave it out")
        held_out = understood(f"{key}.held_out", entry.held_out)
        for path in paths:
            if reason := unusable(path):
                raise UserError(f"{key}.files: {path}: {reason}")
            absolute = path.resolve()
            if absolute in found:
                if bool(found[absolute].held_out) != bool(held_out):
                    raise UserError(f"{path}: held out and also listed for training; list it once")
                raise UserError(f"{path}: listed twice in corpus.local; list it once")
            found[absolute] = LocalFile(
                path=absolute,
                labels=[entry.label] if isinstance(entry.label, str) else entry.label,
                held_out=held_out,
                dataset=slug(entry.name or path.stem) if held_out else "",
                layer=entry.layer or "",
                genes=entry.genes or "",
            )
    return list(found.values())


def unusable(path: Path) -> str:
    """Why nothing can be read there, and what to do; empty if something can."""
    if path.is_dir():
        advice = f"a folder without a 10x matrix; name its files, as {path / '*.h5ad'}"
        return "" if files_of(path) else advice
    if not path.exists():
        return "a link that leads nowhere; correct it"
    return "" if path.is_file() else "a pipe or a device; name a file"


def understood(key: str, value: bool | float | str) -> bool | float | str:
    """``held_out`` as a boolean, a fraction or ``column=value``.

    The command line's ``--config`` gives numbers and booleans within lists as text.
    """
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower(), value)
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"[^=]+=.+", value):
        return value
    try:
        fraction = float(value)
    except ValueError:
        raise UserError(
            f"{key}: expected true, false, a fraction or 'column=value', found {value!r}"
        ) from None
    if not 0 < fraction < 1:
        raise UserError(f"{key}: expected a fraction between 0 and 1, found {value}")
    return fraction


def slug(text: str) -> str:
    """A name of lower-case letters, digits and '_'."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "dataset"
