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
#: Output folders of jobs: parts of the corpus, token stores and the page of a study.
OUTPUT_FOLDERS = ("corpus/training/*", "tokens/*/*", "study/page")
#: Names of the files that jobs write to output folders, besides the files of ``files.csv``, and
#: names of the caches that Hugging Face's datasets package writes next to shards.
WRITTEN = re.compile(
    r"files\.csv|index\.json|genes\.npy|shard-\d{5}\.arrow|state\.json|dataset_info\.json"
    r"|cache-\w+\.arrow|study_\w+\.(csv|md|png|txt)"
)


def checksum(values: Mapping[str, Any]) -> str:
    """Return a checksum of a stored configuration, without the reasons in ``choices``.

    The reasons may differ between a run and its jobs on a cluster, which choose the same values.
    """
    values = {key: value for key, value in values.items() if key != "choices"}
    return hashlib.sha256(as_json(values).encode()).hexdigest()[:16]


def store(config: Config, path: Path, inputs: Iterable[str | Path]) -> None:
    """Write a configuration to ``path``, unless the file already contains it.

    Raise a UserError if ``path`` exists and no run stored it, if it is one of the user's
    configuration files (``inputs``) or the base configuration, or if it is missing in a folder that
    already has a report, tables or figures.
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
        read = [file for file in map(Path, (*inputs, SHIPPED / "config.yaml")) if file.exists()]
        if any(path.samefile(file) for file in read) or not old.startswith(MARKER):
            raise UserError(
                f"{path}: would be replaced by the configuration of this run, but no run stored "
                "it, or this run reads it; set results to another folder, or move the file"
            )
    write_text(path, text)


def find_other_files(folder: Path, results: str | Path) -> list[str]:
    """Return the names of the files in an output folder that no job wrote, unless hidden.

    Return an empty list for other outputs, such as files and folders of another workflow that uses
    this one as a module, and for a link, because Snakemake would delete only the link.
    """
    if not folder.is_dir() or folder.is_symlink() or not folder.is_relative_to(results):
        return []
    if not any(folder.relative_to(results).match(pattern) for pattern in OUTPUT_FOLDERS):
        return []
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    names = {name for name in names if not WRITTEN.fullmatch(name)}
    # If Snakemake was killed while it deleted a part of the corpus, files.csv may be missing.
    for path in (folder / "files.csv", folder.parents[1] / "manifest.csv"):
        if names:
            with suppress(OSError, ValueError, csv.Error):
                rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
                names -= {f"{row.get('file')}.h5ad" for row in rows}
    return sorted(names)


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
