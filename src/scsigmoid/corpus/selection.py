"""Which of the versions on offer are trained on: none that shares cells with an evaluated one."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from scsigmoid.config.schema import Corpus
from scsigmoid.config.validate import nearest
from scsigmoid.corpus.discover import NAMED, Version
from scsigmoid.corpus.metadata import ManifestRow
from scsigmoid.errors import UserError
from scsigmoid.seeds import derive

# What knows its dataset and collection.
Identified = Version | ManifestRow


@dataclass(frozen=True)
class Selection:
    """The outcome.

    Attributes:
        training: versions to train on, in the order of the listing.
        held_out: why others are held out, by dataset id (:func:`held_out_reason`).
        left_out: number of others, by reason.
        offered: all versions that are not held out.
    """

    training: list[Version]
    held_out: dict[str, str]
    left_out: dict[str, int]
    offered: list[Version]


def select(
    versions: Sequence[Version], evaluation: Mapping[str, Identified], corpus: Corpus, seed: int
) -> Selection:
    """Choose what to train on; the seed decides where the configuration limits cells or bytes.

    Raises:
        UserError: if an organism, an assay or an id of ``corpus.leave_out`` is not on offer.
    """
    check_offered("organisms", corpus.organisms, {o for v in versions for o in v.organisms})
    check_offered("assays", corpus.assays or (), {a for v in versions for a in v.assays})
    unwanted = set(corpus.leave_out)
    offered = {v.dataset_id for v in versions} | {v.dataset_version_id for v in versions}
    if unwanted - offered:
        raise UserError(
            f"corpus.leave_out: {min(unwanted - offered)} is neither a dataset nor a dataset "
            "version on offer; correct the id"
        )
    training: list[Version] = []
    free: list[Version] = []
    held_out: dict[str, str] = {}
    left_out: dict[str, int] = {}
    for version in versions:
        if held := held_out_reason(version, evaluation):
            held_out[version.dataset_id] = held
            continue
        free.append(version)
        if reason := reason_against(version, corpus):
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            training.append(version)
    kept = sample_files(training, corpus.maximum_cells, corpus.maximum_gb, seed)
    if len(kept) < len(training):
        left_out["not in the seeded choice"] = len(training) - len(kept)
    return Selection(kept, held_out, left_out, free)


def check_offered(key: str, wanted: Iterable[str], offered: Collection[str]) -> None:
    """Refuse a name that no dataset has: a misspelt one would leave out all that it means."""
    for name in wanted:
        if name not in offered:
            raise UserError(
                f"corpus.{key}: {name!r} is not on offer{nearest(name, sorted(offered))}"
            )


def reason_against(version: Version, corpus: Corpus) -> str:
    """Why the configuration does not want a version; empty where it does."""
    if {version.dataset_id, version.dataset_version_id} & set(corpus.leave_out):
        return NAMED
    if not version.organisms or not set(version.organisms) <= set(corpus.organisms):
        return "other organisms"
    if corpus.assays is not None and not (
        version.assays and set(version.assays) <= set(corpus.assays)
    ):
        return "other assays"
    if corpus.maximum_file_gb is not None:
        if version.bytes < 0:
            return "size unknown"
        if version.bytes > corpus.maximum_file_gb * 1e9:
            return "larger than corpus.maximum_file_gb"
    return ""


def sample_files(
    versions: Sequence[Version], maximum_cells: int | None, maximum_gb: float | None, seed: int
) -> list[Version]:
    """A seeded choice of files that hold at most so many cells and bytes together.

    Files are taken in a random order, in which a file's place depends on the seed and its own id
    alone; one that does not fit any more is passed over.
    """
    if maximum_cells is None and maximum_gb is None:
        return list(versions)
    cells = float("inf") if maximum_cells is None else maximum_cells
    size = float("inf") if maximum_gb is None else maximum_gb * 1e9
    taken: set[str] = set()
    for version in sorted(versions, key=lambda v: derive(seed, "training files", v.dataset_id)):
        # a file of unknown size cannot be counted against a limit
        if version.cells <= cells and 0 <= version.bytes <= size:
            taken.add(version.dataset_id)
            cells -= version.cells
            size -= version.bytes
    return [version for version in versions if version.dataset_id in taken]


def held_out_reason(item: Identified, evaluation: Mapping[str, Identified]) -> str:
    """Why something may not be trained on; empty where it may.

    Every version of an evaluation dataset is held out, and all of its collection: cells come back
    in other datasets of the same publication.  Collections that are not known match none.
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
    """Refuse training files that share a dataset or a collection with an evaluation dataset."""
    for item in training:
        reason = held_out_reason(item, evaluation)
        if reason:
            raise UserError(
                f"{where}: training file of dataset {item.dataset_id} is of the {reason}, which is "
                "evaluated; remove it"
            )
