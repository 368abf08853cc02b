"""CELLxGENE Discover's curation API: which dataset versions there were on a day, and what the ids
of evaluation datasets stand for.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from scsigmoid.corpus.metadata import as_count, check_identifier, one_line
from scsigmoid.corpus.web import Absent, Web
from scsigmoid.errors import UserError
from scsigmoid.files import write_json
from scsigmoid.progress import log

UNKNOWN_SIZE = -1
NAMED = "named in corpus.leave_out"
INDEX_PATIENCE = 3.0  # the service takes up to 180 s to begin the list of all datasets
# Datasets that may be left out because the service cannot describe them: this number, or this share
# of the wanted datasets if that is more.
MISSING, MISSING_SHARE = 5, 0.02


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of one dataset."""

    dataset_id: str  # stays the same over versions
    dataset_version_id: str
    collection_id: str  # the publication that it belongs to; empty where it is not known
    title: str
    doi: str = ""  # of the publication; empty where there is none
    organisms: tuple[str, ...]  # e.g. "Homo sapiens"
    assays: tuple[str, ...] = ()  # e.g. "10x 3' v3"
    assay_ids: tuple[str, ...] = ()  # of the ontology, in the same order, e.g. "EFO:0009922"
    cells: int
    primary: int | None = None  # cells of which this is the primary copy; None: not known
    bytes: int  # of the h5ad file, or UNKNOWN_SIZE
    url: str  # of the h5ad file
    published: str = ""  # day, ISO 8601; empty where it is not known


@dataclass(frozen=True)
class Listing:
    """What a source offers."""

    versions: list[Version]  # one of each dataset, ordered by dataset id
    # why others are none of them, by the id of the dataset, or of the version where
    # corpus.leave_out names that
    left_out: dict[str, str]


class NoFit(Exception):
    """Something is not what was looked for, for a reason in words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Service:
    """The API, which is public."""

    def __init__(self, api: str, web: Web) -> None:
        self.api = api.rstrip("/")
        self.web = web

    def get(self, path: str, patience: float = 1.0) -> Any:
        """The JSON answer to a path, or :class:`~.web.Absent`."""
        return self.web.json(f"{self.api}/{path}", patience)

    @cached_property
    def datasets(self) -> list[Mapping[str, Any]]:
        """All datasets that are listed today, as the service describes them; asked once."""
        return descriptions(self.get("datasets", INDEX_PATIENCE), f"{self.api}/datasets")

    def versions(self, dataset_id: str) -> list[Mapping[str, Any]]:
        """All versions of a dataset, as the service describes them."""
        check_identifier(dataset_id)
        answer = self.get(f"datasets/{dataset_id}/versions")
        # two versions of the specification disagree on the shape
        if isinstance(answer, Mapping):
            answer = answer.get("datasets")
        return descriptions(answer, f"{self.api}/datasets/{dataset_id}/versions")


def snapshot(
    service: Service,
    day: str,
    leave_out: Collection[str] = (),
    wanted: Callable[[Collection[str], Collection[str]], bool] = lambda organisms, assays: True,
    answers: Path | None = None,
) -> Listing:
    """Return the newest version of every dataset as of a day.

    Only wanted datasets are asked for.  The others are listed as the service describes them today.
    The service does not list datasets that were withdrawn since.

    Args:
        service: the API.
        day: ISO 8601.
        leave_out: ids of datasets and versions whose descriptions are not read.
        wanted: whether a dataset with these organisms and assays (labels and ontology ids) can be
            trained on.
        answers: folder that keeps the answers about past days, so that a command that was stopped
            continues; ``None`` keeps none.

    Raises:
        UserError: if nothing had been published by then, the list of datasets is malformed, or too
            many datasets cannot be described.
    """
    entries = {
        check_identifier(entry.get("dataset_id"), service.api): entry
        for entry in service.datasets
        if published_by(entry, day)
    }
    if day >= datetime.now(UTC).date().isoformat():
        answers = None  # more versions may come
    left_out: dict[str, str] = {}
    asked: list[str] = []
    failed: list[str] = []

    def find(dataset_id: str) -> Version | None:
        today = entries[dataset_id]
        if dataset_id in leave_out:
            left_out[dataset_id] = NAMED
            return None
        assays = terms(today, "assay")
        is_asked = wanted(terms(today, "organism"), [*assays, *assays.values()])
        try:
            if not is_asked:
                return described(today, dataset_id)
            asked.append(dataset_id)
            entry = version_of_day(service, dataset_id, day, answers)
            if entry.get("dataset_version_id") in leave_out:
                left_out[str(entry["dataset_version_id"])] = NAMED
                return None
            version = described(entry, dataset_id, today)
        except (NoFit, Absent) as error:
            left_out[dataset_id] = error.reason
        except UserError as error:
            service.web.check_stopped()
            left_out[dataset_id] = str(error)
        else:
            if answers is not None:
                write_json(
                    answer_file(answers, dataset_id, day), {"api": service.api, "version": entry}
                )
            return version
        if is_asked:
            failed.append(dataset_id)
        return None

    found = service.web.each(find, sorted(entries), label="dataset versions")
    left_out = dict(sorted(left_out.items()))
    for identifier, reason in left_out.items():
        log(f"left out: {identifier}: {reason}")
    if len(failed) > max(MISSING, MISSING_SHARE * len(asked)):
        first = min(failed)
        raise UserError(
            f"{service.api}: {len(failed)} of {len(asked)} datasets cannot be described, such as "
            f"{first} ({left_out[first]}); run again, or name them in corpus.leave_out"
        )
    versions = [version for version in found if version is not None]
    if not versions:
        raise UserError(f"corpus.snapshot: {service.api} lists no dataset published by {day}")
    return Listing(versions, left_out)


def version_of_day(
    service: Service, dataset_id: str, day: str, answers: Path | None
) -> Mapping[str, Any]:
    """Return the newest version as of a day, from ``answers`` or from the service."""
    if answers is not None:
        try:
            kept = json.loads(answer_file(answers, dataset_id, day).read_text(encoding="utf-8"))
            if kept["api"] == service.api and isinstance(kept["version"], Mapping):
                return kept["version"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass
    return newest(service.versions(dataset_id), day)


def answer_file(answers: Path, dataset_id: str, day: str) -> Path:
    return answers / f"{dataset_id}-{day}.json"


def newest(entries: Iterable[Mapping[str, Any]], day: str | None = None) -> Mapping[str, Any]:
    """The newest description of all, or as of a day; :class:`NoFit` where there is none."""
    candidates = [entry for entry in entries if published_by(entry, day)]
    if not candidates:
        raise NoFit(f"has no version of {day} or before" if day else "has no published version")
    return max(candidates, key=lambda entry: str(entry["published_at"]))


def published_by(entry: Mapping[str, Any], day: str | None) -> bool:
    """Whether an entry had been published at the end of a day (UTC), or at all."""
    published = entry.get("published_at")
    return bool(published) and (day is None or str(published)[:10] <= day)


def described(
    entry: Mapping[str, Any], of: str = "", dataset: Mapping[str, Any] | None = None
) -> Version:
    """A version from the service's description, or :class:`NoFit`; other fields are ignored.

    ``of`` is the id of the dataset that it must be of, where that is known, and ``dataset`` the
    description of the dataset, which may know its collection.
    """
    version_id = check_identifier(entry.get("dataset_version_id"))
    if entry.get("tombstone") is True:
        raise NoFit("withdrawn")
    assets = [asset for asset in entries_of(entry, "assets") if asset.get("filetype") == "H5AD"]
    if not assets or not isinstance(assets[0].get("url"), str):
        raise NoFit(f"its version {version_id} has no h5ad file")
    cells, size = as_count(entry.get("cell_count")), as_count(assets[0].get("filesize"))
    if cells is None:
        raise UserError(
            f"{version_id}: CELLxGENE says it has {one_line(entry.get('cell_count'), 40)!r} cells; "
            "name it in corpus.leave_out"
        )
    dataset_id = check_identifier(entry.get("dataset_id"))
    if of and dataset_id != of:
        raise NoFit(f"its versions are of another dataset, {dataset_id}")
    assays = terms(entry, "assay")
    collection = entry.get("collection_id") or (dataset or {}).get("collection_id")
    doi = entry.get("collection_doi") or (dataset or {}).get("collection_doi")
    return Version(
        dataset_id=dataset_id,
        dataset_version_id=version_id,
        collection_id=check_identifier(collection) if collection else "",
        title=one_line(entry.get("title") or ""),
        doi=one_line(doi or ""),
        organisms=tuple(terms(entry, "organism")),
        assays=tuple(assays),
        assay_ids=tuple(assays.values()),
        cells=cells,
        primary=primary_cells(entry, cells),
        bytes=UNKNOWN_SIZE if size is None else size,
        url=assets[0]["url"],
        published=one_line(entry.get("published_at") or "")[:10],
    )


def primary_cells(entry: Mapping[str, Any], cells: int) -> int | None:
    """Cells that are marked as primary: their number, or what the marks of all cells say."""
    stated = as_count(entry.get("primary_cell_count"))
    marks = entry.get("is_primary_data")
    if stated is None and marks in ([True], [False]):
        return cells if marks[0] else 0
    return stated


def terms(entry: Mapping[str, Any], key: str) -> dict[str, str]:
    """The labels that a dataset has under a key, each with its ontology id."""
    return {
        one_line(term.get("label")): one_line(term.get("ontology_term_id") or "")
        for term in entries_of(entry, key)
    }


def entries_of(entry: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    values = entry.get(key)
    return [v for v in values if isinstance(v, Mapping)] if isinstance(values, list) else []


def descriptions(answer: Any, where: str) -> list[Mapping[str, Any]]:
    """An answer that must be a list of descriptions."""
    if not isinstance(answer, list) or not all(isinstance(entry, Mapping) for entry in answer):
        raise UserError(f"{where}: expected a list of datasets; check corpus.api")
    return answer


def resolve(service: Service, name: str, identifier: str | None) -> tuple[Version, str]:
    """Find an evaluation dataset by its id, whenever it was published.

    Of a dataset or collection the newest version is taken: the snapshot's day binds training only.

    Returns:
        The version, and what the id is of: ``dataset version``, ``dataset`` or ``collection``.
    """
    if identifier is None:
        raise UserError(f"datasets.{name}.id: missing; give the dataset's CELLxGENE id")
    check_identifier(identifier, f"datasets.{name}.id")
    tried = []
    for kind, find in (
        ("dataset version", as_version),
        ("dataset", as_dataset),
        ("collection", as_collection),
    ):
        try:
            version = find(service, identifier)
        except (Absent, NoFit) as error:
            tried.append(f"as {kind}: {error.reason}")
        else:
            return with_collection(service, version), kind
    raise UserError(
        f"datasets.{name}.id: {identifier} fits nothing at {service.api} ({'; '.join(tried)}); "
        "correct the id"
    )


def with_collection(service: Service, version: Version) -> Version:
    """The version with the collection that the list of today states, where it states none."""
    for entry in () if version.collection_id else service.datasets:
        if entry.get("dataset_id") == version.dataset_id and entry.get("collection_id"):
            return replace(version, collection_id=check_identifier(entry["collection_id"]))
    return version


def as_version(service: Service, identifier: str) -> Version:
    entry = service.get(f"dataset_versions/{identifier}")
    if not isinstance(entry, Mapping) or entry.get("dataset_version_id") != identifier:
        raise NoFit("the answer is of another version")
    return described(entry)


def as_dataset(service: Service, identifier: str) -> Version:
    """The newest version of the dataset of this id."""
    return described(newest(service.versions(identifier)), identifier)


def as_collection(service: Service, identifier: str) -> Version:
    """The newest version of the one dataset of the collection of this id."""
    entry = service.get(f"collections/{identifier}")
    members = entries_of(entry, "datasets") if isinstance(entry, Mapping) else []
    if len(members) != 1:
        raise NoFit(f"holds {len(members)} datasets, not one")
    dataset_id = check_identifier(members[0].get("dataset_id"))
    version = described(newest(service.versions(dataset_id)), dataset_id, members[0])
    return version if version.collection_id else replace(version, collection_id=identifier)
