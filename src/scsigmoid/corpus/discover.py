"""CELLxGENE Discover's curation API: which dataset versions there were on a day."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scsigmoid.corpus.foreign import check_identifier, natural, one_line
from scsigmoid.corpus.web import Absent, Web
from scsigmoid.errors import UserError
from scsigmoid.progress import log

UNKNOWN_SIZE = -1
NAMED = "named in corpus.leave_out"


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of one dataset.

    Attributes:
        dataset_id: stays the same over versions.
        dataset_version_id: of this version; its file is named by it.
        collection_id: the publication that it belongs to; empty where it is not known.
        title: title of the dataset.
        doi: of the publication; empty where there is none.
        organisms: labels, e.g. ``Homo sapiens``.
        assays: labels, e.g. ``10x 3' v3``.
        cells: number of cells.
        primary: cells of which this is the primary copy; ``None`` where the service does not say.
        bytes: size of the h5ad file; -1 where the service does not know.
        url: of the h5ad file.
        published: day of this version, ISO 8601; empty where it is not known.
    """

    dataset_id: str
    dataset_version_id: str
    collection_id: str
    title: str
    doi: str = ""
    organisms: tuple[str, ...]
    assays: tuple[str, ...] = ()
    cells: int
    primary: int | None = None
    bytes: int
    url: str
    published: str = ""


@dataclass(frozen=True)
class Listing:
    """What a source offers.

    Attributes:
        versions: one version of each dataset, ordered by dataset id.
        left_out: why others are none of them, by the id of the dataset, or of the version where the
            configuration names that.
    """

    versions: list[Version]
    left_out: dict[str, str]


class NoFit(Exception):
    """Something is not what was looked for; the message says why."""


class LeftOut(Exception):
    """The configuration leaves a version out; the message is its id."""


class Service:
    """The API; public, no key needed."""

    def __init__(self, api: str, web: Web) -> None:
        """Note where the service is and how it is asked."""
        self.api = api.rstrip("/")
        self.web = web
        self._datasets: list[Mapping[str, Any]] | None = None

    def get(self, path: str) -> Any:
        """The JSON answer to a path.

        Raises:
            Absent: if the service knows nothing of it.
        """
        return self.web.json(f"{self.api}/{path}")

    def datasets(self) -> list[Mapping[str, Any]]:
        """All datasets that are listed today, as the service describes them; asked once."""
        if self._datasets is None:
            self._datasets = listed(self.get("datasets"), f"{self.api}/datasets")
        return self._datasets

    def versions(self, dataset_id: str) -> list[Mapping[str, Any]]:
        """All versions of a dataset, as the service describes them."""
        check_identifier(dataset_id)
        answer = self.get(f"datasets/{dataset_id}/versions")
        # two versions of the specification disagree on the shape
        if isinstance(answer, Mapping):
            answer = answer.get("datasets")
        return listed(answer, f"{self.api}/datasets/{dataset_id}/versions")


def snapshot(service: Service, day: str, leave_out: Collection[str] = ()) -> Listing:
    """The newest version of every dataset as of a day.

    Datasets that were withdrawn since are not listed by the service and so not found.

    Args:
        service: the API.
        day: ISO 8601.
        leave_out: ids of datasets and versions whose descriptions are not read.

    Raises:
        UserError: if nothing had been published by then, or the service answers nonsense.
    """
    entries = {
        check_identifier(entry.get("dataset_id"), service.api): entry
        for entry in service.datasets()
        if published_by(entry, day)
    }

    def find(dataset_id: str) -> Version | tuple[str, str]:
        if dataset_id in leave_out:
            return dataset_id, NAMED
        try:
            versions = service.versions(dataset_id)
            return newest(versions, day, dataset_id, entries[dataset_id], leave_out)
        except LeftOut as error:
            return str(error), NAMED
        except (NoFit, Absent) as error:
            return dataset_id, error.reason if isinstance(error, Absent) else str(error)

    found = service.web.each(find, sorted(entries), label="dataset versions")
    versions = [version for version in found if isinstance(version, Version)]
    left_out = dict(other for other in found if not isinstance(other, Version))
    for identifier, reason in left_out.items():
        log(f"left out: {identifier}: {reason}")
    if not versions:
        raise UserError(f"corpus.snapshot: {service.api} lists no dataset published by {day}")
    return Listing(versions, left_out)


def newest(
    entries: Iterable[Mapping[str, Any]],
    day: str | None,
    dataset_id: str,
    dataset: Mapping[str, Any] | None = None,
    leave_out: Collection[str] = (),
) -> Version:
    """The newest of a dataset's published versions, of all or as of a day.

    Args:
        entries: the versions.
        day: ISO 8601; ``None`` for any.
        dataset_id: whose versions these must be.
        dataset: the service's description of the dataset, which knows its collection.
        leave_out: ids of versions whose descriptions are not read.

    Raises:
        LeftOut: if it is one of these.
        NoFit: if there is none, or it has no h5ad file.
    """
    candidates = [entry for entry in entries if published_by(entry, day)]
    if not candidates:
        raise NoFit(f"has no version of {day} or before" if day else "has no published version")
    entry = max(candidates, key=lambda entry: str(entry["published_at"]))
    if entry.get("dataset_version_id") in leave_out:
        raise LeftOut(entry["dataset_version_id"])
    version = described(entry, dataset)
    if version.dataset_id != dataset_id:
        raise NoFit(f"its versions are of another dataset, {version.dataset_id}")
    return version


def published_by(entry: Mapping[str, Any], day: str | None) -> bool:
    """Whether an entry had been published at the end of a day (UTC), or at all."""
    published = entry.get("published_at")
    return bool(published) and (day is None or str(published)[:10] <= day)


def described(entry: Mapping[str, Any], dataset: Mapping[str, Any] | None = None) -> Version:
    """A version from the service's description; fields that are not known are ignored.

    Raises:
        NoFit: if it was withdrawn or has no h5ad file.
        UserError: if an id or the number of cells is none.
    """
    version_id = check_identifier(entry.get("dataset_version_id"))
    if entry.get("tombstone") is True:
        raise NoFit("withdrawn")
    assets = [asset for asset in entries_of(entry, "assets") if asset.get("filetype") == "H5AD"]
    if not assets or not isinstance(assets[0].get("url"), str):
        raise NoFit(f"its version {version_id} has no h5ad file")
    cells, size = natural(entry.get("cell_count")), natural(assets[0].get("filesize"))
    if cells is None:
        raise UserError(
            f"{version_id}: CELLxGENE says it has {one_line(entry.get('cell_count'), 40)!r} cells; "
            "name it in corpus.leave_out"
        )
    collection = entry.get("collection_id") or (dataset or {}).get("collection_id")
    doi = entry.get("collection_doi") or (dataset or {}).get("collection_doi")
    return Version(
        dataset_id=check_identifier(entry.get("dataset_id")),
        dataset_version_id=version_id,
        collection_id=check_identifier(collection) if collection else "",
        title=one_line(entry.get("title") or ""),
        doi=one_line(doi or ""),
        organisms=labels(entry, "organism"),
        assays=labels(entry, "assay"),
        cells=cells,
        primary=primary_cells(entry, cells),
        bytes=UNKNOWN_SIZE if size is None else size,
        url=assets[0]["url"],
        published=one_line(entry.get("published_at") or "")[:10],
    )


def primary_cells(entry: Mapping[str, Any], cells: int) -> int | None:
    """Cells that are marked as primary: their number, or what the marks of all cells say."""
    stated = natural(entry.get("primary_cell_count"))
    marks = entry.get("is_primary_data")
    if stated is None and marks in ([True], [False]):
        return cells if marks[0] else 0
    return stated


def labels(entry: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Labels of ontology terms, each once."""
    return tuple(dict.fromkeys(one_line(term.get("label")) for term in entries_of(entry, key)))


def entries_of(entry: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The mappings in a list of an entry."""
    values = entry.get(key)
    return [v for v in values if isinstance(v, Mapping)] if isinstance(values, list) else []


def listed(answer: Any, where: str) -> list[Mapping[str, Any]]:
    """An answer that must be a list of descriptions.

    Raises:
        UserError: if it is not.
    """
    if not isinstance(answer, list) or not all(isinstance(entry, Mapping) for entry in answer):
        raise UserError(f"{where}: expected a list of datasets; check corpus.api")
    return answer
