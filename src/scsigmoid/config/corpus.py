"""Refuses settings of the corpus that cannot be met."""

import re
from datetime import date
from pathlib import Path

from scsigmoid.config.schema import Corpus
from scsigmoid.errors import UserError

RELEASE = re.compile(r"[A-Za-z0-9-]{1,40}")


def check_corpus(corpus: Corpus) -> None:
    """Check the settings of the corpus that have a type but not any value of it.

    Raises:
        UserError: naming the setting.
    """
    if corpus.parts < 1:
        raise UserError(f"corpus.parts: expected at least 1, found {corpus.parts}")
    try:
        date.fromisoformat(corpus.snapshot)
    except ValueError:
        raise UserError(
            f"corpus.snapshot: expected a date as 2024-06-11, found {corpus.snapshot!r}"
        ) from None
    if not RELEASE.fullmatch(corpus.census_version):
        raise UserError(
            "corpus.census_version: expected the name of a release as 2024-07-01, found "
            f"{corpus.census_version!r}"
        )
    if corpus.manifest is not None and not Path(corpus.manifest).is_file():
        raise UserError(f"corpus.manifest: {corpus.manifest}: no such file; correct the path")
    for key in ("organisms", "assays"):
        if getattr(corpus, key) == []:
            raise UserError(f"corpus.{key}: empty; name at least one")
    download = corpus.download
    for key, value in {
        "maximum_file_gb": corpus.maximum_file_gb,
        "maximum_cells": corpus.maximum_cells,
        "maximum_gb": corpus.maximum_gb,
        "download.disk_cap_gb": download.disk_cap_gb,
        "download.connections": download.connections,
        "download.attempts": download.attempts,
        "download.timeout": download.timeout,
    }.items():
        if value is not None and value <= 0:
            raise UserError(f"corpus.{key}: expected a positive number, found {value}")
    if download.longest_pause < 0:
        raise UserError("corpus.download.longest_pause: expected 0 or more")
