"""CELLxGENE Discover: which dataset versions there were on a day, and which of them to train on."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from scsigmoid.config.schema import Corpus
from scsigmoid.corpus.download import fetch_json
from scsigmoid.errors import UserError
from scsigmoid.progress import log, track
from scsigmoid.seeds import derive

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of one dataset.

    Attributes:
        dataset_id: stays the same over versions.
        dataset_version_id: of this version; its file is named by it.
        collection_id: the publication that it belongs to.
        title: title of the dataset.
        organisms: labels, e.g. ``Homo sapiens``.
        cells: number of cells.
        bytes: size of the h5ad file; -1 where the service does not know.
        url: of the h5ad file.
        published: day of this version, ISO 8601.
    """

    dataset_id: str
    dataset_version_id: str
    collection_id: str
    title: str
    organisms: tuple[str, ...]
    cells: int
    bytes: int
    url: str
    published: str


class Service:
    """The Discover curation API; public, no key needed."""

    def __init__(self, api: str, hosts: Sequence[str]) -> None:
        """Note where the service is.

        Args:
            api: base address.
            hosts: hosts that may be asked.
        """
        self.api = api.rstrip("/")
        self.hosts = hosts

    def get(self, path: str) -> Any:
        """The JSON answer to a path, or ``None`` where the service knows nothing of it."""
        return fetch_json(f"{self.api}/{path}", self.hosts)

    def versions(self, dataset_id: str) -> list[dict[str, Any]]:
        """All versions of a dataset, as the service describes them."""
        check_identifier(dataset_id)
        answer = self.get(f"datasets/{dataset_id}/versions")
        # two versions of the specification disagree on the shape
        return list(answer["datasets"] if isinstance(answer, dict) else answer or [])


def snapshot(service: Service, day: str) -> list[Version]:
    """The newest version of every dataset as of a day, ordered by dataset id.

    Datasets that were withdrawn since are not listed by the service and so not found.

    Raises:
        UserError: if the day is none or nothing had been published by then.
    """
    try:
        date.fromisoformat(day)
    except ValueError:
        raise UserError(f"corpus.snapshot: expected a date as 2024-06-11, found {day!r}") from None
    listed = [entry for entry in service.get("datasets") or [] if published_by(entry, day)]
    found = []
    for entry in track(listed, label="dataset versions"):
        version = newest(service.versions(entry["dataset_id"]), day, entry)
        if version is not None:
            found.append(version)
    if not found:
        raise UserError(f"corpus.snapshot: {service.api} lists no dataset published by {day}")
    log(f"snapshot {day}: {len(found)} datasets, {sum(v.cells for v in found):,} cells")
    return sorted(found, key=lambda version: version.dataset_id)


def resolve(
    service: Service, versions: Sequence[Version], name: str, identifier: str | None, day: str
) -> Version:
    """Find an evaluation dataset: its id may be of a version, a dataset or a collection.

    Args:
        service: the API.
        versions: the snapshot; tells the collection where a version's description lacks it.
        name: of the evaluation dataset, for messages.
        identifier: the id in question.
        day: for an id of a dataset, the newest version as of this day is taken.

    Raises:
        UserError: if the id is none of the three, with what was tried.
    """
    if identifier is None:
        raise UserError(f"datasets.{name}.id: missing; give the dataset's CELLxGENE id")
    check_identifier(identifier, f"datasets.{name}.id")
    known = {version.dataset_id: version for version in versions}
    entry = service.get(f"dataset_versions/{identifier}")
    if entry:
        return described(entry, known.get(entry.get("dataset_id", "")))
    listed = newest(service.versions(identifier), day, None, known.get(identifier))
    if listed is not None:
        return listed
    members = (service.get(f"collections/{identifier}") or {}).get("datasets", [])
    if len(members) == 1:
        listed = newest(service.versions(members[0]["dataset_id"]), day, members[0])
        if listed is not None:
            return listed
    tried = "as dataset version, dataset and collection"
    if members:
        tried += f" (which holds {len(members)} datasets, not one)"
    raise UserError(f"datasets.{name}.id: {identifier} not found {tried}; correct the id")


def training_versions(
    versions: Sequence[Version], evaluation: Mapping[str, Version], corpus: Corpus, seed: int
) -> list[Version]:
    """The versions to train on: none of an evaluation dataset or its collection.

    Cells of an evaluation dataset come back in other datasets of the same publication, hence the
    exclusion by collection.

    Args:
        versions: the snapshot.
        evaluation: the resolved evaluation datasets.
        corpus: organisms, and how much to take.
        seed: decides which files are taken where ``corpus.maximum_cells`` is set.
    """
    held_datasets = {version.dataset_id for version in evaluation.values()}
    held_collections = {version.collection_id for version in evaluation.values()} - {""}
    kept = []
    for version in versions:
        if version.dataset_id in held_datasets or version.collection_id in held_collections:
            log(f"held out: {version.dataset_id} {version.title}")
        elif set(version.organisms) <= set(corpus.organisms) and version.organisms:
            kept.append(version)
    if corpus.maximum_file_gb is not None:
        limit = corpus.maximum_file_gb * 1e9
        kept = [version for version in kept if 0 <= version.bytes <= limit]
    if corpus.maximum_cells is not None:
        kept = chosen(kept, corpus.maximum_cells, seed)
    log(f"training: {len(kept)} datasets, {sum(version.cells for version in kept):,} cells")
    return kept


def chosen(versions: Sequence[Version], maximum_cells: int, seed: int) -> list[Version]:
    """A seeded choice of files that hold at most so many cells together."""
    order = np.random.default_rng(derive(seed, "training files")).permutation(len(versions))
    taken, cells = set(), 0
    for index in order.tolist():
        if cells + versions[index].cells <= maximum_cells:
            taken.add(index)
            cells += versions[index].cells
    return [version for index, version in enumerate(versions) if index in taken]


def newest(
    entries: Iterable[Mapping[str, Any]],
    day: str,
    dataset: Mapping[str, Any] | None,
    known: Version | None = None,
) -> Version | None:
    """The newest of a dataset's versions as of a day."""
    candidates = [entry for entry in entries if published_by(entry, day)]
    if not candidates:
        return None
    return described(max(candidates, key=lambda entry: str(entry["published_at"])), known, dataset)


def published_by(entry: Mapping[str, Any], day: str) -> bool:
    """Whether an entry had been published at the end of a day (UTC)."""
    published = entry.get("published_at")
    return bool(published) and str(published)[:10] <= day


def described(
    entry: Mapping[str, Any], known: Version | None, dataset: Mapping[str, Any] | None = None
) -> Version:
    """A version from the service's description; fields that are not known are ignored."""
    version_id = check_identifier(entry["dataset_version_id"])
    assets = [asset for asset in entry.get("assets") or [] if asset.get("filetype") == "H5AD"]
    if not assets:
        raise UserError(f"{version_id}: CELLxGENE offers no h5ad file for this dataset version")
    collection = entry.get("collection_id") or (dataset or {}).get("collection_id")
    return Version(
        dataset_id=check_identifier(entry["dataset_id"]),
        dataset_version_id=version_id,
        collection_id=str(collection or (known.collection_id if known else "")),
        title=str(entry.get("title") or ""),
        organisms=tuple(str(organism["label"]) for organism in entry.get("organism") or []),
        cells=int(entry.get("cell_count") or 0),
        bytes=int(assets[0].get("filesize", -1)),
        url=str(assets[0]["url"]),
        published=str(entry.get("published_at") or "")[:10],
    )


def check_identifier(identifier: str, where: str = "CELLxGENE") -> str:
    """Refuse what is no CELLxGENE id before it becomes part of an address or a path."""
    if not IDENTIFIER.fullmatch(str(identifier)):
        raise UserError(f"{where}: {identifier!r} is not a CELLxGENE id; correct it")
    return identifier


def check_name(name: str, where: str) -> str:
    """Refuse a name that could lead out of its folder."""
    if not NAME.fullmatch(name):
        raise UserError(f"{where}: {name!r} is not a file name of letters, digits, '_' and '-'")
    return name
