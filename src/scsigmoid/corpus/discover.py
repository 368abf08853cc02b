"""CELLxGENE Discover's curation API: which dataset versions there were on a day, and what the ids
of evaluation datasets stand for.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from scsigmoid.corpus.metadata import as_count, check_identifier, one_line
from scsigmoid.corpus.web import Absent, Web
from scsigmoid.errors import UserError
from scsigmoid.progress import log

UNKNOWN_SIZE = -1
NAMED = "named in corpus.leave_out"


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

    def get(self, path: str) -> Any:
        """The JSON answer to a path, or :class:`~.web.Absent`."""
        return self.web.json(f"{self.api}/{path}")

    @cached_property
    def datasets(self) -> list[Mapping[str, Any]]:
        """All datasets that are listed today, as the service describes them; asked once."""
        return descriptions(self.get("datasets"), f"{self.api}/datasets")

    def versions(self, dataset_id: str) -> list[Mapping[str, Any]]:
        """All versions of a dataset, as the service describes them."""
        check_identifier(dataset_id)
        answer = self.get(f"datasets/{dataset_id}/versions")
        # two versions of the specification disagree on the shape
        if isinstance(answer, Mapping):
            answer = answer.get("datasets")
        return descriptions(answer, f"{self.api}/datasets/{dataset_id}/versions")


def snapshot(service: Service, day: str, leave_out: Collection[str] = ()) -> Listing:
    """The newest version of every dataset as of a day (ISO 8601).

    Descriptions of datasets and versions in ``leave_out`` are not read.  The service does not list
    datasets that were withdrawn since.

    Raises:
        UserError: if nothing had been published by then, or the answers are malformed.
    """
    entries = {
        check_identifier(entry.get("dataset_id"), service.api): entry
        for entry in service.datasets
        if published_by(entry, day)
    }

    def find(dataset_id: str) -> Version | tuple[str, str]:
        if dataset_id in leave_out:
            return dataset_id, NAMED
        try:
            entry = newest(service.versions(dataset_id), day)
            if entry.get("dataset_version_id") in leave_out:
                return entry["dataset_version_id"], NAMED
            return described(entry, dataset_id, entries[dataset_id])
        except (NoFit, Absent) as error:
            return dataset_id, error.reason

    found = service.web.each(find, sorted(entries), label="dataset versions")
    versions = [version for version in found if isinstance(version, Version)]
    left_out = dict(other for other in found if not isinstance(other, Version))
    for identifier, reason in left_out.items():
        log(f"left out: {identifier}: {reason}")
    if not versions:
        raise UserError(f"corpus.snapshot: {service.api} lists no dataset published by {day}")
    return Listing(versions, left_out)


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
    collection = entry.get("collection_id") or (dataset or {}).get("collection_id")
    doi = entry.get("collection_doi") or (dataset or {}).get("collection_doi")
    return Version(
        dataset_id=dataset_id,
        dataset_version_id=version_id,
        collection_id=check_identifier(collection) if collection else "",
        title=one_line(entry.get("title") or ""),
        doi=one_line(doi or ""),
        organisms=terms(entry, "organism"),
        assays=terms(entry, "assay"),
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


def terms(entry: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one_line(term.get("label")) for term in entries_of(entry, key)))


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
