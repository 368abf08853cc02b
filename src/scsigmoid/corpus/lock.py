"""The manifest as a lock: given back by the user, checked against what is still offered, and
completed with the SHA-256 of every file once all are there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from scsigmoid.config.schema import Corpus, Dataset
from scsigmoid.corpus.downloads import Downloads
from scsigmoid.corpus.evaluated import check_separate
from scsigmoid.corpus.facts import read_facts
from scsigmoid.corpus.foreign import check_identifier, check_name
from scsigmoid.corpus.rows import ManifestRow, read_manifest, write_manifest
from scsigmoid.corpus.web import Absent
from scsigmoid.errors import UserError
from scsigmoid.progress import log

REMOTE = ("cellxgene", "census")
NAMED = 5  # changed files that one message names


def given_rows(
    path: str | Path, corpus: Corpus, datasets: Mapping[str, Dataset]
) -> list[ManifestRow]:
    """Rows of a lock that the user gives back, checked against the configuration.

    Args:
        path: the lock.
        corpus: ``leave_out`` names rows that are dropped.
        datasets: the evaluation datasets; others in the lock are dropped.

    Raises:
        UserError: if a dataset is missing or has another id, or training files belong to an
            evaluation dataset.
    """
    rows = read_manifest(path)
    for row in rows:
        if row.source not in REMOTE:
            raise UserError(
                f"{path}: {row.file} is {row.source}; only files of CELLxGENE can be given back"
            )
        check_identifier(row.dataset_version_id, f"{path}: {row.file}")
    in_lock = {row.dataset: row for row in rows if row.role == "evaluation"}
    evaluation = []
    for name, dataset in datasets.items():
        if name not in in_lock:
            raise UserError(f"{path}: has no evaluation dataset {name!r}; make the manifest again")
        row = in_lock[name]
        if dataset.id and dataset.id not in (
            row.dataset_version_id,
            row.dataset_id,
            row.collection_id,
        ):
            raise UserError(
                f"{path}: its evaluation dataset {name!r} is not {dataset.id}; correct "
                f"datasets.{name}.id or make the manifest again"
            )
        evaluation.append(replace(row, title=dataset.title, label=""))
    unwanted = set(corpus.leave_out)
    training = [
        row
        for row in rows
        if row.role == "training" and not {row.dataset_id, row.dataset_version_id} & unwanted
    ]
    check_separate(training, in_lock, str(path))
    return [*training, *evaluation]


def check_names(rows: Sequence[ManifestRow], where: str) -> None:
    """Refuse file names that are paths, or are used twice.

    Raises:
        UserError: naming the first of them.
    """
    for name, times in Counter(row.file for row in rows).items():
        check_name(name, f"{where}: file")
        if times > 1:
            raise UserError(f"{where}: two rows are called {name!r}; make the manifest again")


def check_offered(
    rows: Sequence[ManifestRow], downloads: Downloads, where: str, *, locked: bool
) -> list[ManifestRow]:
    """Ask whether every file is still there, and how large it is; what is downloaded is not asked.

    Args:
        rows: remote files.
        downloads: where files are kept.
        where: what lists the files, for the message.
        locked: whether another size than the listed one is an error.  If not, the listing of the
            service was wrong, and the size of the file itself is taken.

    Returns:
        The rows, with the sizes that were unknown.

    Raises:
        UserError: naming the files that are gone or changed, and the choice there is.
    """
    for row in rows:
        downloads.web.check_address(row.location)

    def ask(row: ManifestRow) -> ManifestRow | str:
        if downloads.has(row):
            return row
        try:
            size = downloads.web.size(row.location)
        except Absent as error:
            return error.reason
        if size is None or row.bytes == str(size):
            return row
        if row.bytes and locked:
            return f"changed from {row.bytes} to {size} bytes"
        if row.bytes:
            log(f"{row.location}: listed with {row.bytes} bytes, has {size}")
        return replace(row, bytes=str(size))

    answers = downloads.web.each(ask, rows, label="files on offer")
    wrong = {
        row.dataset_version_id: answer
        for row, answer in zip(rows, answers, strict=True)
        if isinstance(answer, str)
    }
    for version, reason in wrong.items():
        log(f"{version}: {reason}")
    if wrong:
        named = ", ".join(f"{version} ({why})" for version, why in [*wrong.items()][:NAMED])
        more = f" and {len(wrong) - NAMED} more (see the log)" if len(wrong) > NAMED else ""
        choice = "remove corpus.manifest for a new manifest" if locked else "take another source"
        raise UserError(
            f"{where}: {len(wrong)} of {len(rows)} files are gone or changed: {named}{more}; name "
            f"them in corpus.leave_out to go on without them, or {choice}"
        )
    return [answer for answer in answers if isinstance(answer, ManifestRow)]


def write_lock(
    manifest: str | Path,
    parts: Iterable[str | Path],
    facts: Iterable[str | Path],
    output: str | Path,
) -> None:
    """Write the manifest with cells, bytes and SHA-256 of the files as they were downloaded.

    Args:
        manifest: the manifest.
        parts: the parts' rows, filled in.
        facts: the facts of the evaluation datasets.
        output: the lock, to be committed and given back as ``corpus.manifest``.

    Raises:
        UserError: if a file is damaged, or a row of the manifest is in none of them.
    """
    done = {("training", row.file): row for part in parts for row in read_manifest(part)}
    rows = {(row.role, row.file): row for row in read_manifest(manifest)}
    for path in facts:
        stated = read_facts(path)
        key = ("evaluation", stated.file)
        if key in rows:
            done[key] = replace(rows[key], cells=str(stated.cells), sha256=stated.sha256)
    for role, file in rows:
        if (role, file) not in done:
            raise UserError(
                f"{manifest}: nothing is known of its {role} file {file!r}; run what reads it first"
            )
    write_manifest(output, [done[key] for key in rows])
