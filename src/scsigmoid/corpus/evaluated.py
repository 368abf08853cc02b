"""The evaluation datasets: what their ids stand for, and keeping them out of training."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from scsigmoid.config.schema import Dataset
from scsigmoid.corpus.discover import (
    NoFit,
    Service,
    Version,
    described,
    entries_of,
    newest,
)
from scsigmoid.corpus.foreign import check_identifier
from scsigmoid.corpus.web import Absent
from scsigmoid.errors import UserError


class Identified(Protocol):
    """What knows its dataset and collection: a version, or a row of the manifest."""

    @property
    def dataset_id(self) -> str: ...
    @property
    def collection_id(self) -> str: ...


@dataclass(frozen=True)
class Resolved:
    """An evaluation dataset.

    Attributes:
        version: the version that is evaluated.
        kind: what its id is of: ``dataset version``, ``dataset`` or ``collection``.
    """

    version: Version
    kind: str


def resolve_all(service: Service, datasets: Mapping[str, Dataset]) -> dict[str, Resolved]:
    """Find all evaluation datasets, by name, whenever they were published.

    For an id of a dataset or collection, its newest version is taken: no day binds what is not
    trained on.

    Args:
        service: the API; its list of today tells the collection where a description lacks it.
        datasets: the evaluation datasets.

    Raises:
        UserError: if an id is missing or is none of the three, with what was tried.
    """
    return {name: resolve(service, name, dataset.id) for name, dataset in datasets.items()}


def resolve(service: Service, name: str, identifier: str | None) -> Resolved:
    """Find one evaluation dataset: its id may be of a version, a dataset or a collection."""
    if identifier is None:
        raise UserError(f"datasets.{name}.id: missing; give the dataset's CELLxGENE id")
    check_identifier(identifier, f"datasets.{name}.id")
    finders: dict[str, Callable[[Service, str], Version]] = {
        "dataset version": as_version,
        "dataset": as_dataset,
        "collection": as_collection,
    }
    tried = []
    for kind, find in finders.items():
        try:
            version = find(service, identifier)
        except Absent as error:
            tried.append(f"as {kind}: {error.reason}")
        except NoFit as error:
            tried.append(f"as {kind}: {error}")
        else:
            return Resolved(with_collection(service, version), kind)
    raise UserError(
        f"datasets.{name}.id: {identifier} fits nothing at {service.api} ({'; '.join(tried)}); "
        "correct the id"
    )


def with_collection(service: Service, version: Version) -> Version:
    """The version with the collection that the list of today states, where it states none."""
    for entry in () if version.collection_id else service.datasets():
        if entry.get("dataset_id") == version.dataset_id and entry.get("collection_id"):
            return replace(version, collection_id=check_identifier(entry["collection_id"]))
    return version


def as_version(service: Service, identifier: str) -> Version:
    """The dataset version of this id."""
    entry = service.get(f"dataset_versions/{identifier}")
    if not isinstance(entry, Mapping) or entry.get("dataset_version_id") != identifier:
        raise NoFit("the answer is of another version")
    return described(entry)


def as_dataset(service: Service, identifier: str) -> Version:
    """The newest version of the dataset of this id."""
    return newest(service.versions(identifier), None, identifier)


def as_collection(service: Service, identifier: str) -> Version:
    """The newest version of the one dataset of the collection of this id."""
    entry = service.get(f"collections/{identifier}")
    members = entries_of(entry, "datasets") if isinstance(entry, Mapping) else []
    if len(members) != 1:
        raise NoFit(f"holds {len(members)} datasets, not one")
    dataset_id = check_identifier(members[0].get("dataset_id"))
    version = newest(service.versions(dataset_id), None, dataset_id, members[0])
    return version if version.collection_id else replace(version, collection_id=identifier)


def held_out_reason(item: Identified, evaluation: Mapping[str, Identified]) -> str:
    """Why something may not be trained on; empty where it may.

    Every version of an evaluation dataset is held out, and all of its collection: cells come back
    in other datasets of the same publication.  Collections that are not known match none.

    Args:
        item: what might be trained on.
        evaluation: the evaluation datasets, by name.
    """
    for name, other in evaluation.items():
        if item.dataset_id and item.dataset_id == other.dataset_id:
            return f"dataset of {name}"
        if item.collection_id and item.collection_id == other.collection_id:
            return f"collection of {name}"
    return ""


def check_separate(
    training: Iterable[Identified], evaluation: Mapping[str, Identified], where: str
) -> None:
    """Refuse training files that share a dataset or a collection with an evaluation dataset.

    Raises:
        UserError: naming the first of them.
    """
    for item in training:
        reason = held_out_reason(item, evaluation)
        if reason:
            raise UserError(
                f"{where}: training file of dataset {item.dataset_id} is of the {reason}, which is "
                "evaluated; remove it"
            )
