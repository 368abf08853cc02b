"""The folder of downloaded files: one file a dataset version, shared by jobs, runs and presets.

It is no output of any job, so no failed job, changed setting or new division into parts deletes
what was downloaded.  Beside every file lies its SHA-256 as of the first download, which every
later use, and every later download, is checked against.

A file is complete and right, or not there.  An interrupted download leaves a ``.partial`` file and,
beside it, what tells the file from another one at the same address (``.kept``): its ETag, date and
size.  The next try goes on from its end if the server's answer says the same.
"""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from scsigmoid.corpus.metadata import ManifestRow
from scsigmoid.corpus.sanitise import check_identifier, one_line, parse_count
from scsigmoid.corpus.web import ADVANCE, SLOWEST_ADVANCE, Answer, Transient, Web, check_status
from scsigmoid.errors import UserError
from scsigmoid.files import sha256, write_text
from scsigmoid.progress import log

RANGE = re.compile(r"bytes ([0-9]+)-[0-9]+/([0-9]+)")


class Downloads:
    """The folder, and how what is missing is asked for."""

    def __init__(self, folder: str | Path, web: Web) -> None:
        self.folder = Path(folder).absolute()
        self.web = web

    def path(self, row: ManifestRow) -> Path:
        """Where the file of a row is kept."""
        version = check_identifier(row.dataset_version_id, f"manifest row {row.file}")
        prefix = "census-" if row.source == "census" else ""
        return self.folder / f"{prefix}{version}.h5ad"

    def has(self, row: ManifestRow) -> bool:
        """Whether a file of the row's size was downloaded; its bytes are checked when used."""
        path = self.path(row)
        return path.exists() and row.bytes in ("", str(path.stat().st_size))

    def lock(self, name: str) -> FileLock:
        """A lock in the folder, which the system frees with the process that holds it."""
        locks = self.folder / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        return FileLock(locks / f"{name}.lock")

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """Keep other jobs from the same file meanwhile."""
        lock = self.lock(name)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            log(f"{self.folder / name}: waiting for another job that downloads it")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def obtain(self, row: ManifestRow) -> tuple[Path, str]:
        """The file of a row, downloaded if need be, and its SHA-256."""
        path = self.path(row)
        record = path.with_suffix(".sha256")
        with self.exclusive(path.stem):
            noted = record.read_text(encoding="ascii").strip() if record.exists() else ""
            if path.exists():
                found = sha256(path)
                expected = {row.sha256, noted} - {""}
                if expected <= {found} and row.bytes in ("", str(path.stat().st_size)):
                    if not noted:
                        write_text(record, found + "\n")
                    return path, found
                log(f"{path}: not the file that was downloaded; downloading it again")
                path.unlink()
            found = download(
                self.web,
                row.location,
                path,
                size=int(row.bytes) if row.bytes else None,
                digest=row.sha256 or noted,
                origin="the manifest" if row.sha256 else f"{record} (delete it to accept the new)",
                check=lambda partial: check_readable(partial, row.location),
            )
            write_text(record, found + "\n")
        log(f"{row.location}: {path.stat().st_size / 1e9:.3f} GB, SHA-256 {found}")
        return path, found

    def check_space(self, rows: Iterable[ManifestRow]) -> None:
        """Refuse to start what the disk has no room for."""
        self.folder.mkdir(parents=True, exist_ok=True)
        missing = 0
        for row in rows:
            path = self.path(row)
            have = size_of(path) or size_of(path.with_suffix(".partial"))
            missing += max(0, int(row.bytes or 0) - have)
        free = shutil.disk_usage(self.folder).free
        if missing > free:
            raise UserError(
                f"{self.folder}: {missing / 1e9:.1f} GB are to be downloaded and {free / 1e9:.1f} "
                "GB are free; free some space or set corpus.download.folder"
            )


def download(
    web: Web,
    url: str,
    destination: Path,
    *,
    size: int | None = None,
    digest: str = "",
    origin: str = "the manifest",
    check: Callable[[Path], None] = lambda path: None,
) -> str:
    """Download a file, resuming and retrying, and move it into place once it is right.

    Args:
        web: how servers are asked.
        url: where from.
        destination: one process at a time may download to it.
        size: bytes of the file, where known.
        digest: SHA-256 of the file, where known.
        origin: what says so, for messages.
        check: refuses, by :class:`UserError`, a complete file that cannot be right.

    Returns:
        The SHA-256 of the file.

    Raises:
        UserError: if the host is not allowed, the file is gone, differs from what was expected, or
            could not be had.
    """
    partial = destination.with_suffix(".partial")
    try:
        web.retry(url, lambda: continue_download(web, url, partial, size), lambda: size_of(partial))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"{partial.parent}: the disk is full; free some space or set "
                "corpus.download.folder, and run again"
            ) from error
        raise
    try:
        check(partial)
        found = sha256(partial)
        if digest and found != digest:
            raise UserError(
                f"{one_line(url)}: its SHA-256 is not the one in {origin}; it was damaged on the "
                "way (run again) or changed at its source (make the manifest again)"
            )
    except UserError:
        remove_partial(partial)
        raise
    with partial.open("rb") as handle:
        os.fsync(handle.fileno())
    os.replace(partial, destination)
    remove_partial(partial)
    return found


def continue_download(web: Web, url: str, partial: Path, size: int | None) -> None:
    """One attempt: ask for what is missing, append it, and check the length."""
    have = size_of(partial)
    if have == size:
        return
    noted = note_path(partial)
    kept = noted.read_text(encoding="utf-8") if have and noted.exists() else ""
    ranged = {"Range": f"bytes={have}-"} if kept else {}
    with web.opened("GET", url, ranged) as answer:
        resumed = answer.status == 206
        found = RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        goes_on = kept and found and (found[1], identity(answer, found[2])) == (str(have), kept)
        if answer.status == 416 or (resumed and not goes_on):
            remove_partial(partial)
            raise Transient("it does not go on with the same file")
        check_status(url, answer)
        total = parse_count(found[2]) if resumed and found else answer.length
        if size is not None and total not in (None, size):
            remove_partial(partial)
            raise UserError(
                f"{one_line(url)}: {total} bytes, the manifest says {size}; the file changed: name "
                "its id in corpus.leave_out to go on without it, or make the manifest again"
            )
        expected = size if total is None else total
        if expected is None:
            raise UserError(
                f"{one_line(url)}: the server does not say how large the file is, so it cannot be "
                "known to be complete; give another address"
            )
        with partial.open("ab" if resumed else "wb") as handle:
            if not resumed:
                noted.unlink(missing_ok=True)
                if kept := identity(answer, str(expected)):
                    write_text(noted, kept)
            for block in answer.blocks(ADVANCE, SLOWEST_ADVANCE):
                # a byte too many shows it, and the cap on raw files holds
                handle.write(block[: expected + 1 - handle.tell()])
                web.check_stopped()
                if handle.tell() > expected:
                    break
    have = size_of(partial)
    if have > expected:
        remove_partial(partial)
        raise Transient(f"it sent more than {expected} bytes")
    if have < expected:
        raise Transient(f"it sent {have} of {expected} bytes")


def identity(answer: Answer, size: str) -> str:
    """What tells a file from another one at the same address; empty where nothing does."""
    tag, date = (answer.headers.get(name, "") for name in ("ETag", "Last-Modified"))
    # a weak ETag does not promise the same bytes
    return ascii((tag, date, size)) if tag.startswith('"') or date else ""


def note_path(partial: Path) -> Path:
    return partial.with_suffix(".kept")


def remove_partial(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    note_path(partial).unlink(missing_ok=True)


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def check_readable(path: Path, location: str) -> None:
    """Refuse what is no whole HDF5 file: an error page, or a file that was cut at its source."""
    import h5py

    try:
        with h5py.File(path, "r"):
            return
    except OSError as error:
        reason = "truncated" if "truncated" in str(error) else "not an h5ad file"
        raise UserError(
            f"{location}: {reason}, as the server sends it; run again, or name its id in "
            "corpus.leave_out to go on without it"
        ) from None
