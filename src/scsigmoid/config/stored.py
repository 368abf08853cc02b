"""The configuration that each run stores in its results folder."""

import csv
import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scsigmoid.config.check import SHIPPED, as_json, as_yaml, parse_yaml
from scsigmoid.config.plan import leaves
from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.files import write_text

#: First line of a stored configuration. A file without it is not replaced.
MARKER = "# Stored by a run of scsigmoid. The next run replaces this file.\n"
#: Results whose names people also use. A run would replace files in them.
COMMON_NAMES = ("report.html", "tables", "figures")
#: Names of the files that jobs write to output folders, besides the files of ``files.csv``.
WRITTEN = re.compile(
    r"files\.csv|index\.json|genes\.npy|shard-\d{5}\.arrow|state\.json|dataset_info\.json"
    r"|study_\w+\.(csv|md|png|txt)"
)


def checksum(values: Mapping[str, Any]) -> str:
    """Return a checksum of a stored configuration, without the reasons in ``choices``.

    The reasons may differ between a run and its jobs on a cluster, which choose the same values.
    """
    values = {key: value for key, value in values.items() if key != "choices"}
    return hashlib.sha256(as_json(values).encode()).hexdigest()[:16]


def store(config: Config, path: Path, given: Iterable[str | Path]) -> None:
    """Write a configuration to ``path``, unless the file already contains it.

    Raise a UserError if ``path`` exists and no run stored it, or if it is one of the ``given``
    configuration files or the base configuration, or if it is missing in a folder that already has
    a report, tables or figures.
    """
    text = MARKER + as_yaml(config)
    if not path.exists():
        for name in COMMON_NAMES:
            if (path.parent / name).exists():
                raise UserError(
                    f"{path.parent / name}: exists, but no run has stored a configuration in this "
                    "folder; set results to another folder, or move the file"
                )
    if path.is_file():
        old = path.read_text(encoding="utf-8", errors="replace")
        if old == text:
            return
        inputs = [file for file in map(Path, (*given, SHIPPED / "config.yaml")) if file.exists()]
        if any(path.samefile(file) for file in inputs) or not old.startswith(MARKER):
            raise UserError(
                f"{path}: would be replaced by the configuration of this run, but no run stored "
                "it, or this run reads it; set results to another folder, or move the file"
            )
    write_text(path, text)


def find_other_files(folder: Path) -> list[str]:
    """Return the names in an output folder of the workflow that are not its own, unless hidden.

    The folder is a part of the corpus, a token store or the page of a study.
    """
    listed: set[str] = set()
    with suppress(OSError, ValueError, csv.Error):
        rows = csv.DictReader((folder / "files.csv").read_text(encoding="utf-8").splitlines())
        listed = {f"{row.get('file')}.h5ad" for row in rows}
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    return [name for name in names if not WRITTEN.fullmatch(name) and name not in listed]


def changed_settings(config: Config, path: Path) -> list[str]:
    """Return the dotted names of settings that differ from a stored configuration.

    The name of the results folder, the reasons of choices and settings that only one of them has
    (of another version, or of a dataset that was added) are not compared. If the file is missing or
    is not a configuration, return an empty list.
    """
    try:
        old = parse_yaml(path.read_text(encoding="utf-8", errors="replace"), str(path))
    except (OSError, UserError):
        return []
    if not isinstance(old, dict):
        return []
    new = parse_yaml(as_yaml(config), str(path))
    there, now = (dict(leaves(values)) for values in (old, new))
    return [
        name
        for name in now
        if name in there
        and there[name] != now[name]
        and not name.startswith(("results", "choices"))
    ]
