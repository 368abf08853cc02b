"""Find dataset versions with CELLxGENE Discover's curation API.

Training files are the newest versions as of a day. Evaluation datasets are found by their ids.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scsigmoid.config.schema import Dataset
from scsigmoid.corpus.metadata import ManifestRow, as_count, check_identifier, one_line
from scsigmoid.corpus.web import Absent, Web
from scsigmoid.errors import UserError
from scsigmoid.files import write_json
from scsigmoid.progress import log

Entry = Mapping[str, Any]  # JSON description of a dataset or a version
IN_LEAVE_OUT = "named in corpus.leave_out"  # why a dataset is left out, for the summary
INDEX_PATIENCE = 3.0  # times corpus.download.timeout: the list of all datasets may take 180 s
# Datasets that the corpus may use, but that cannot be described, are left out. It is an error if
# their number exceeds both MOST_FAILED and MOST_FAILED_SHARE of the datasets that it may use.
MOST_FAILED, MOST_FAILED_SHARE = 5, 0.02


@dataclass(frozen=True)
class Version:
    """One version of one dataset."""

    row: ManifestRow  # with the role "training"
    organisms: Collection[str]  # e.g. "Homo sapiens"
    assays: Mapping[str, str]  # labels with ontology ids, e.g. "10x 3' v3": "EFO:0009922"


class Unusable(UserError):
    """A dataset or version cannot be used, according to its description."""


class Service:
    """The public curation API."""

    def __init__(self, api: str, web: Web) -> None:
        self.api = api.rstrip("/")
        self.web = web

    def get(self, path: str) -> Entry:
        """Return the description at a path, or raise :class:`~.web.Absent` or `Unusable`."""
        answer = self.web.json(f"{self.api}/{path}")
        if not isinstance(answer, Mapping):
            raise Unusable("the answer is not a JSON object")
        return answer

    def get_list(self, path: str, patience: float = 1.0) -> list[Entry]:
        """Return the list of descriptions at a path. ``patience`` is a factor of the timeout."""
        url = f"{self.api}/{path}"
        answer = self.web.json(url, patience)
        if not isinstance(answer, list) or not all(isinstance(item, Mapping) for item in answer):
            raise UserError(f"{url}: expected a list of datasets; check corpus.api")
        return answer

    def versions(self, dataset_id: str) -> list[Entry]:
        """Return the descriptions of all versions of a dataset."""
        return self.get_list(f"datasets/{check_identifier(dataset_id)}/versions")


def list_versions(
    service: Service,
    day: str,
    leave_out: Collection[str] = (),
    can_be_wanted: Callable[[Entry], bool] = lambda entry: True,
    cache: Path | None = None,
) -> tuple[list[Version], dict[str, str]]:
    """Find the newest version of every dataset as of a day.

    Datasets withdrawn since then are missing, because the service does not list them.

    Args:
        day: as ``YYYY-MM-DD``.
        leave_out: ids of datasets to leave out, even if their descriptions are malformed. Other
            ids, such as ids of versions, are ignored.
        can_be_wanted: whether the corpus may use versions of a dataset, given its current
            description. If not, its current version is returned, which saves a request and is
            enough, because the version is only counted.
        cache: folder with the versions of past days, so that an interrupted command resumes.

    Returns:
        The versions, ordered by dataset id, and the reasons why other datasets are left out, by id.

    Raises:
        UserError: if no dataset was published by the day, or too many cannot be described.
    """
    # The service lists the current version of each dataset, but with the day on which the first
    # version was published. Datasets that did not exist on the day are therefore skipped.
    datasets = {
        check_identifier(entry.get("dataset_id"), service.api): entry
        for entry in service.get_list("datasets", INDEX_PATIENCE)
        if is_published(entry, day)
    }
    left_out = dict.fromkeys(datasets.keys() & {*leave_out}, IN_LEAVE_OUT)
    requested = sorted(datasets.keys() - left_out)
    wanted = {dataset_id for dataset_id in requested if can_be_wanted(datasets[dataset_id])}
    if day >= datetime.now(UTC).date().isoformat():
        cache = None  # versions may still be published on this day

    def find_version(dataset_id: str) -> Version | None:
        """Return the version of a dataset, or add the reason why there is none to ``left_out``."""
        dataset = datasets[dataset_id]
        try:
            is_wanted = dataset_id in wanted
            version = version_of_day(service, dataset_id, day, cache) if is_wanted else dataset
            return read_version(version, dataset)
        except UserError as error:
            # Raise an error if the request failed only because another thread has failed.
            service.web.check_stopped()
            left_out[dataset_id] = error.reason if isinstance(error, Absent) else str(error)
            return None

    results = service.web.each(find_version, requested, unit="dataset versions")
    for dataset_id, reason in sorted(left_out.items()):
        log(f"left out: {dataset_id}: {reason}")
    failed = sorted(wanted & left_out.keys())
    if len(failed) > max(MOST_FAILED, MOST_FAILED_SHARE * len(wanted)):
        raise UserError(
            f"{service.api}: {len(failed)} of {len(wanted)} datasets cannot be described, such "
            f"as {failed[0]} ({left_out[failed[0]]}); run again, or name them in corpus.leave_out"
        )
    versions = [version for version in results if version is not None]
    if not versions:
        raise UserError(f"corpus.snapshot: {service.api} lists no dataset published by {day}")
    return versions, dict(sorted(left_out.items()))


def version_of_day(service: Service, dataset_id: str, day: str, cache: Path | None) -> Entry:
    """Return the description of a dataset's newest version as of a day.

    If ``cache`` is given, read the description from this folder, or store it there.
    """
    if cache is None:
        return find_newest(service.versions(dataset_id), day)
    path = cache / f"{dataset_id}-{day}.json"
    with suppress(FileNotFoundError, ValueError):
        match json.loads(path.read_text(encoding="utf-8")):
            case {"api": service.api, "version": dict(version)}:
                return version
    entry = find_newest(service.versions(dataset_id), day)
    write_json(path, {"api": service.api, "version": entry})
    return entry


def find_newest(entries: Iterable[Entry], day: str | None = None) -> Entry:
    """Return the newest published version, as of a day if given, or raise `Unusable`."""
    candidates = [entry for entry in entries if is_published(entry, day)]
    if not candidates:
        raise Unusable(f"has no version of {day} or before" if day else "has no published version")
    return max(candidates, key=lambda entry: str(entry["published_at"]))


def is_published(entry: Entry, day: str | None) -> bool:
    """Return whether an entry was published, by the end of ``day`` (UTC) if a day is given."""
    published = entry.get("published_at")
    return bool(published) and (day is None or str(published)[:10] <= day)


def read_version(entry: Entry, dataset: Entry | None = None) -> Version:
    """Read the service's description of a version. Unknown fields are ignored.

    ``dataset`` is the description of the dataset, which has the collection and DOI if ``entry``
    lacks them. Raise `Unusable` if the version is withdrawn or has no h5ad file, and a UserError if
    its description is malformed.
    """
    version_id = check_identifier(entry.get("dataset_version_id"))
    if entry.get("tombstone") is True:
        raise Unusable("withdrawn")
    assets = [asset for asset in read_objects(entry, "assets") if asset.get("filetype") == "H5AD"]
    if not assets or not isinstance(assets[0].get("url"), str):
        raise Unusable(f"its version {version_id} has no h5ad file")
    if len(assets) > 1:
        raise Unusable(f"its version {version_id} has {len(assets)} h5ad files, not one")
    cells, size = as_count(entry.get("cell_count")), as_count(assets[0].get("filesize"))
    if cells is None:
        raise UserError(
            f"{version_id}: its number of cells is {one_line(entry.get('cell_count'), 40)!r}; use "
            "another version or dataset"
        )
    organisms, assays = read_terms(entry, "organism"), read_terms(entry, "assay")
    collection = entry.get("collection_id") or (dataset or {}).get("collection_id")
    doi = entry.get("collection_doi") or (dataset or {}).get("collection_doi")
    row = ManifestRow(
        file=version_id,
        role="training",
        source="cellxgene",
        location=assets[0]["url"],
        title=one_line(entry.get("title") or ""),
        doi=one_line(doi or ""),
        organism=" || ".join(organisms),
        assay=" || ".join(assays),
        cells=str(cells),
        bytes=str(size) if size else "",
        published=one_line(entry.get("published_at") or "")[:10],
        dataset_id=check_identifier(entry.get("dataset_id")),
        dataset_version_id=version_id,
        collection_id=check_identifier(collection) if collection else "",
    )
    return Version(row, list(organisms), assays)


def read_terms(entry: Entry, key: str) -> dict[str, str]:
    """Return the labels under a key of a description, each with its ontology id."""
    return {
        one_line(term.get("label")): one_line(term.get("ontology_term_id") or "")
        for term in read_objects(entry, key)
    }


def read_objects(entry: Entry, key: str) -> list[Entry]:
    """Return the JSON objects in the list under a key of a description."""
    values = entry.get(key)
    listed = values if isinstance(values, list) else []
    return [value for value in listed if isinstance(value, Mapping)]


def find_evaluation_dataset(service: Service, name: str, dataset: Dataset) -> ManifestRow:
    """Return the manifest row of an evaluation dataset from the id in its settings.

    The id of a dataset or a collection stands for the newest version, because ``corpus.snapshot``
    is for training files only.
    """
    identifier = check_identifier(dataset.id, f"datasets.{name}.id")
    failures = []
    finders = {
        "dataset version": lambda: read_version(service.get(f"dataset_versions/{identifier}")),
        "dataset": lambda: read_version(find_newest(service.versions(identifier))),
        "collection": lambda: find_in_collection(service, identifier),
    }
    for kind, find in finders.items():
        try:
            version = find()
        except (Absent, Unusable) as error:
            reason = error.reason if isinstance(error, Absent) else error
            failures.append(f"as {kind}: {reason}")
        else:
            log(f"datasets.{name}.id: {identifier} is the id of a {kind}")
            row = replace(version.row, role="evaluation", label="", held_out="all")
            return replace(row, file=name, dataset=name, title=dataset.title)
    raise UserError(
        f"datasets.{name}.id: nothing at {service.api} has the id {identifier} "
        f"({'; '.join(failures)}); correct the id"
    )


def find_in_collection(service: Service, identifier: str) -> Version:
    """Return the newest version of the only dataset in the collection with this id."""
    members = read_objects(service.get(f"collections/{identifier}"), "datasets")
    if len(members) != 1:
        raise Unusable(f"contains {len(members)} datasets, not one")
    versions = service.versions(members[0].get("dataset_id", ""))
    return read_version(find_newest(versions), members[0])
