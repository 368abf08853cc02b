"""The folder of downloads: one file per dataset version, shared by jobs, runs and presets.

The folder is not an output of a job, so Snakemake never deletes a download.  Next to each file is
its SHA-256 as of the first download.  Later downloads, and files that were written since, are
compared with it.

A file is complete and checked, or absent.  An interrupted download leaves a ``.partial`` file, and
the ETag, date and size of the file (``.kept``).  The next attempt resumes if the server states the
same values.
"""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout
from requests import Response

from scsigmoid.corpus.metadata import ManifestRow, check_identifier, one_line, parse_count
from scsigmoid.corpus.web import (
    ADVANCE,
    SLOWEST_ADVANCE,
    Transient,
    Web,
    check_status,
    content_length,
)
from scsigmoid.errors import UserError
from scsigmoid.files import sha256, write_text
from scsigmoid.progress import log

NOTE = ".kept"
RANGE = re.compile(r"bytes ([0-9]+)-[0-9]+/([0-9]+)")


class Downloads:
    """The folder of downloads."""

    def __init__(self, folder: str | Path, web: Web) -> None:
        self.folder = Path(folder).absolute()
        self.web = web

    def path(self, row: ManifestRow) -> Path:
        """Return the path of the file of a manifest row."""
        version = check_identifier(row.dataset_version_id, f"manifest row {row.file}")
        return self.folder / f"{version}.h5ad"

    def has(self, row: ManifestRow) -> bool:
        """Return whether a file of the row's size exists. :meth:`obtain` checks its content."""
        path = self.path(row)
        return path.exists() and row.bytes in ("", str(path.stat().st_size))

    def lock(self, name: str) -> AcquireReturnProxy:
        """Acquire the lock of a file, which the system releases when its process ends."""
        locks = self.folder / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(locks / f"{name}.lock")
        try:
            return lock.acquire(blocking=False)
        except Timeout:
            log(f"{self.folder / name}: waiting for another job that downloads it")
            return lock.acquire()

    def obtain(self, row: ManifestRow) -> tuple[Path, str]:
        """Return the file of a row, downloaded if necessary, and its SHA-256.

        A file that was hashed before is not read again if its size, time of modification and inode
        are the same.
        """
        path = self.path(row)
        record = path.with_suffix(".sha256")
        with self.lock(path.stem):
            text = record.read_text(encoding="ascii") if record.exists() else ""
            known_digest, _, state = text.strip().partition(" ")
            if path.exists():
                digest = known_digest if known_digest and state == state_of(path) else sha256(path)
                expected = {row.sha256, known_digest} - {""}
                if expected <= {digest} and self.has(row):
                    if (known_digest, state) != (digest, state_of(path)):
                        write_text(record, f"{digest} {state_of(path)}\n")
                    return path, digest
                if not known_digest:  # perhaps the user's own file
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
                digest=row.sha256 or known_digest,
                origin="the manifest" if row.sha256 else f"{record} (delete it to accept the new)",
                check=lambda partial: check_readable(partial, row.location),
            )
            write_text(record, f"{digest} {state_of(path)}\n")
        log(f"{row.location}: {path.stat().st_size / 1e9:.3f} GB, SHA-256 {digest}")
        return path, digest

    def check_space(self, rows: Iterable[ManifestRow]) -> None:
        """Raise an error if the disk has too little room for the missing files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        missing = 0
        for row in rows:
            path = self.path(row)
            have = size_on_disk(path) or size_on_disk(path.with_suffix(".partial"))
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
    """Download a file with retries, check it, and move it to its destination.

    Only one process at a time may download to ``destination``.

    Args:
        web: the client.
        url: address of the file.
        destination: path of the file.
        size: expected size in bytes; ``None`` if unknown.
        digest: expected SHA-256; empty if unknown.
        origin: source of ``digest``, for messages.
        check: raises :class:`UserError` for a complete file with wrong content.

    Returns:
        The SHA-256 of the file.

    Raises:
        UserError: if the host is not allowed, or the file is gone, has another size or checksum, or
            could not be downloaded.
    """
    partial = destination.with_suffix(".partial")
    try:
        web.retry(
            url, lambda: continue_download(web, url, partial, size), lambda: size_on_disk(partial)
        )
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"{partial.parent}: the disk is full; free some space or set "
                "corpus.download.folder, and run again"
            ) from error
        raise
    try:
        check(partial)
        actual = sha256(partial)
        if digest and actual != digest:
            raise UserError(
                f"{one_line(url)}: its SHA-256 is not the one in {origin}; it was damaged in "
                "transfer (run again) or changed at its source (make the manifest again)"
            )
    except UserError:
        remove_partial(partial)
        raise
    with partial.open("rb") as handle:
        os.fsync(handle.fileno())
    os.replace(partial, destination)
    remove_partial(partial)
    return actual


def continue_download(web: Web, url: str, partial: Path, size: int | None) -> None:
    """Make one attempt: request the missing bytes, append them, and check the length."""
    have = size_on_disk(partial)
    if have == size:
        return
    note = partial.with_suffix(NOTE)
    version = note.read_text(encoding="utf-8") if have and note.exists() else ""
    headers = {"Range": f"bytes={have}-"} if version else {}
    with web.opened("GET", url, headers) as response:
        resumed = response.status_code == 206
        match = RANGE.fullmatch(response.headers.get("Content-Range", ""))
        is_rest = (
            version != ""
            and match is not None
            and (match[1], file_version(response, match[2])) == (str(have), version)
        )
        if response.status_code == 416 or (resumed and not is_rest):
            remove_partial(partial)
            raise Transient("the rest is not of the same file")
        check_status(url, response)
        total = parse_count(match[2]) if resumed and match else content_length(response)
        if size is not None and total not in (None, size):
            remove_partial(partial)
            raise UserError(
                f"{one_line(url)}: {total} bytes, but {size} in the manifest: the file changed; "
                "name its id in corpus.leave_out to continue without it, or make the manifest again"
            )
        expected = size if total is None else total
        if expected is None:
            raise UserError(
                f"{one_line(url)}: the server does not state the size of the file, so a complete "
                "download cannot be recognized; use another address"
            )
        with partial.open("ab" if resumed else "wb") as handle:
            if not resumed:
                note.unlink(missing_ok=True)
                if version := file_version(response, str(expected)):
                    write_text(note, version)
            for block in web.body(response, ADVANCE, SLOWEST_ADVANCE):
                # one byte too many shows that the length is wrong
                handle.write(block[: expected + 1 - handle.tell()])
                if handle.tell() > expected:
                    break
    have = size_on_disk(partial)
    if have > expected:
        remove_partial(partial)
        raise Transient(f"the server sent more than {expected} bytes")
    if have < expected:
        raise Transient(f"the server sent {have} of {expected} bytes")


def file_version(response: Response, size: str) -> str:
    """Return ETag, date and size of a file, or "" without a strong ETag and a date."""
    tag, date = (response.headers.get(name, "") for name in ("ETag", "Last-Modified"))
    # a weak ETag does not promise the same bytes
    return ascii((tag, date, size)) if tag.startswith('"') or date else ""


def remove_partial(partial: Path) -> None:
    """Remove an unfinished download."""
    partial.unlink(missing_ok=True)
    partial.with_suffix(NOTE).unlink(missing_ok=True)


def state_of(path: Path) -> str:
    """Return size, time of modification and inode of a file, which change if it is written."""
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ino}"


def size_on_disk(path: Path) -> int:
    """Return the size of a file in bytes, or 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def check_readable(path: Path, location: str) -> None:
    """Raise an error for a download that is not a complete HDF5 file."""
    import h5py

    try:
        with h5py.File(path, "r"):
            return
    except OSError as error:
        reason = "truncated" if "truncated" in str(error) else "not an h5ad file"
        raise UserError(
            f"{location}: {reason}, as the server sends it; run again, or name its id in "
            "corpus.leave_out to continue without it"
        ) from None
