"""Refuses settings of the corpus that cannot be met, or that would not be looked at."""

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

from scsigmoid.config.schema import Corpus, Dataset, EmbeddedCorpus
from scsigmoid.config.words import shown
from scsigmoid.errors import UserError

IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Numbers of a simulated file, such as cells x genes: all are drawn in memory, where they take up to
# 50 bytes each.
LARGEST_SIMULATED = 200_000_000


def check_corpus(corpus: Corpus) -> None:
    """Check the settings of the corpus against each other.

    Raises:
        UserError: naming the setting.
    """
    try:
        date.fromisoformat(corpus.snapshot)
    except ValueError:
        raise UserError(
            f"corpus.snapshot: expected a date as 2024-06-11, found {corpus.snapshot!r}"
        ) from None
    remote = corpus.source in ("cellxgene", "census")
    if corpus.manifest is not None and not Path(corpus.manifest).is_file():
        raise UserError(f"corpus.manifest: {corpus.manifest}: no such file; correct the path")
    if corpus.manifest is not None and not remote:
        raise UserError(
            f"corpus.manifest: a lock is for the source 'cellxgene' or 'census', and corpus.source "
            f"is {corpus.source!r}; set the one or remove the other"
        )
    if corpus.local and corpus.source != "local":
        raise UserError(
            f"corpus.local: lists files, and corpus.source is {corpus.source!r}; set "
            "corpus.source: local"
        )
    if remote:
        check_service(corpus)
    if corpus.source == "embedded":
        check_simulated(corpus.embedded)


def check_service(corpus: Corpus) -> None:
    """Refuse an API that may not be asked, and what cannot be ids."""
    try:
        host = urlsplit(corpus.api).hostname
    except ValueError:
        host = None
    if host not in corpus.hosts:
        raise UserError(
            f"corpus.api: {corpus.api!r} is not at one of corpus.hosts; expected an address as "
            "https://api.cellxgene.cziscience.com/curation/v1"
        )
    for identifier in corpus.leave_out:
        if not IDENTIFIER.fullmatch(identifier):
            raise UserError(
                f"corpus.leave_out: {shown(identifier)} is not a CELLxGENE id; correct it"
            )


def check_identifiers(datasets: Mapping[str, Dataset]) -> None:
    """Refuse evaluation datasets of CELLxGENE that have no id, or what cannot be one."""
    for name, dataset in datasets.items():
        if dataset.id is None:
            raise UserError(
                f"datasets.{name}.id: missing; give the dataset's CELLxGENE id, or leave it out "
                f"with {name}: null"
            )
        if not IDENTIFIER.fullmatch(dataset.id):
            raise UserError(
                f"datasets.{name}.id: {shown(dataset.id)} is not a CELLxGENE id; correct it"
            )


def check_simulated(sizes: EmbeddedCorpus) -> None:
    """Refuse simulated files that have no cells, or do not fit in memory."""
    if sizes.training_files > sizes.training_cells:
        raise UserError(
            f"corpus.embedded.training_files: {sizes.training_files} files of "
            f"{sizes.training_cells} cells; take fewer files or more training_cells"
        )
    for key, count in {
        "training_cells": -(-sizes.training_cells // sizes.training_files),  # of the largest file
        "evaluation_cells": sizes.evaluation_cells,
        "programmes": sizes.programmes,
        "donors": sizes.donors,
    }.items():
        if count * sizes.genes > LARGEST_SIMULATED:
            raise UserError(
                f"corpus.embedded.{key}: {count} (in a file) times {sizes.genes} genes do not fit "
                f"in memory; expected at most {LARGEST_SIMULATED // sizes.genes}"
            )
