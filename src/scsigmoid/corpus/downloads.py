"""The folder of downloaded files: one file a dataset version, shared by jobs, runs and presets.

The folder is not an output of any job, so no failed job, changed setting or other number of parts
deletes a download.  Next to each file is its SHA-256 as of the first download.  Later downloads,
and files that were written since, are compared with it.

A file is complete and checked, or absent.  An interrupted download leaves a ``.partial`` file and
the ETag, date and size of the file (``.kept``).  The next attempt resumes from its end if the
server's answer has the same.
"""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from requests import Response

from scsigmoid.corpus.metadata import ManifestRow, check_identifier, one_line, parse_count
from scsigmoid.corpus.web import (
    ADVANCE,
    SLOWEST_ADVANCE,
    Transient,
    Web,
    check_status,
    stated_length,
)
from scsigmoid.errors import UserError
from scsigmoid.files import sha256, write_text
from scsigmoid.progress import log

NOTE = ".kept"
RANGE = re.compile(r"bytes ([0-9]+)-[0-9]+/([0-9]+)")


class Downloads:
    """The folder of downloads, which :meth:`obtain` fills."""

    def __init__(self, folder: str | Path, web: Web) -> None:
        self.folder = Path(folder).absolute()
        self.web = web

    def path(self, row: ManifestRow) -> Path:
        """Where the file of a row is kept."""
        version = check_identifier(row.dataset_version_id, f"manifest row {row.file}")
        return self.folder / f"{version}.h5ad"

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
            held = lock.acquire(blocking=False)
        except Timeout:
            log(f"{self.folder / name}: waiting for another job that downloads it")
            held = lock.acquire()
        with held:
            yield

    def obtain(self, row: ManifestRow) -> tuple[Path, str]:
        """Return the file of a row, downloaded if need be, and its SHA-256.

        A file that was hashed before is not read again if its size, time of modification and inode
        are the same.
        """
        path = self.path(row)
        record = path.with_suffix(".sha256")
        with self.exclusive(path.stem):
            text = record.read_text(encoding="ascii") if record.exists() else ""
            noted, _, state = text.strip().partition(" ")
            if path.exists():
                digest = noted if noted and state == state_of(path) else sha256(path)
                expected = {row.sha256, noted} - {""}
                if expected <= {digest} and self.has(row):
                    if (noted, state) != (digest, state_of(path)):
                        write_text(record, f"{digest} {state_of(path)}\n")
                    return path, digest
                if not noted:  # perhaps the user's own file
                    raise UserError(
                        f"{path}: not the file that the manifest describes; move it elsewhere, or "
                        "set corpus.download.folder"
                    )
                log(f"{path}: not the file that was downloaded; downloading it again")
                path.unlink()
            digest = download(
                self.web,
                row.location,
                path,
                size=int(row.bytes) if row.bytes else None,
                digest=row.sha256 or noted,
                origin="the manifest" if row.sha256 else f"{record} (delete it to accept the new)",
                check=lambda partial: check_readable(partial, row.location),
            )
            write_text(record, f"{digest} {state_of(path)}\n")
        log(f"{row.location}: {path.stat().st_size / 1e9:.3f} GB, SHA-256 {digest}")
        return path, digest

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

    One process at a time may download to ``destination``.  ``size`` and ``digest`` (SHA-256) are
    those of the file, where known; ``origin`` says in messages where the digest is from.  ``check``
    refuses, by :class:`UserError`, a complete file that cannot be right.

    Returns:
        The SHA-256 of the file.

    Raises:
        UserError: if the host is not allowed, the file is gone, differs from what was expected, or
            could not be downloaded.
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
    noted = partial.with_suffix(NOTE)
    kept = noted.read_text(encoding="utf-8") if have and noted.exists() else ""
    ranged = {"Range": f"bytes={have}-"} if kept else {}
    with web.opened("GET", url, ranged) as response:
        resumed = response.status_code == 206
        found = RANGE.fullmatch(response.headers.get("Content-Range", ""))
        goes_on = kept and found and (found[1], identity(response, found[2])) == (str(have), kept)
        if response.status_code == 416 or (resumed and not goes_on):
            remove_partial(partial)
            raise Transient("it does not go on with the same file")
        check_status(url, response)
        total = parse_count(found[2]) if resumed and found else stated_length(response)
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
                if kept := identity(response, str(expected)):
                    write_text(noted, kept)
            for block in web.body(response, ADVANCE, SLOWEST_ADVANCE):
                # one byte too many shows that the length is wrong
                handle.write(block[: expected + 1 - handle.tell()])
                if handle.tell() > expected:
                    break
    have = size_of(partial)
    if have > expected:
        remove_partial(partial)
        raise Transient(f"it sent more than {expected} bytes")
    if have < expected:
        raise Transient(f"it sent {have} of {expected} bytes")


def identity(response: Response, size: str) -> str:
    """ETag, date and size of a file; empty where there is neither a strong ETag nor a date."""
    tag, date = (response.headers.get(name, "") for name in ("ETag", "Last-Modified"))
    # a weak ETag does not promise the same bytes
    return ascii((tag, date, size)) if tag.startswith('"') or date else ""


def remove_partial(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    partial.with_suffix(NOTE).unlink(missing_ok=True)


def state_of(path: Path) -> str:
    """Return size, time of modification and inode of a file, which change if it is written."""
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ino}"


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def check_readable(path: Path, location: str) -> None:
    """Refuse what is not a whole HDF5 file: an error page, or a file truncated at its source."""
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
