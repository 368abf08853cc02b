"""Downloads that are either complete and right, or not there.

An interrupted download leaves its ``partial`` file behind and goes on from its end the next time,
if the server still has the same file: its ETag (or date) is kept beside the partial file and sent
along.  CELLxGENE's dataset versions never change, so where a server sends neither, the halves fit.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scsigmoid.corpus.foreign import one_line
from scsigmoid.corpus.web import BLOCK, Transient, Web, check_status
from scsigmoid.errors import UserError
from scsigmoid.files import sha256


def download(
    web: Web,
    url: str,
    destination: Path,
    *,
    partial: Path,
    size: int | None = None,
    digest: str = "",
    origin: str = "the manifest",
    check: Callable[[Path], None] = lambda path: None,
) -> str:
    """Download a file, resuming and retrying, and move it into place once it is right.

    Args:
        web: how servers are asked.
        url: where from.
        destination: where to.
        partial: where an unfinished download is kept; one process at a time may use it.
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
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        web.retried(
            url, lambda: continue_download(web, url, partial, size), lambda: length_of(partial)
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
        found = sha256(partial)
        if digest and found != digest:
            raise UserError(
                f"{one_line(url)}: its SHA-256 is not the one in {origin}; it was damaged on the "
                "way (run again) or changed at its source (make the manifest again)"
            )
    except UserError:
        forget(partial)
        raise
    with partial.open("rb") as handle:
        os.fsync(handle.fileno())
    os.replace(partial, destination)
    forget(partial)
    return found


def continue_download(web: Web, url: str, partial: Path, size: int | None) -> None:
    """One attempt: ask for what is missing, append it, and check the length.

    Raises:
        Transient: if the connection broke or the server was busy.
        UserError: if the file has another size than expected, or the server states none.
    """
    have = length_of(partial)
    if size is not None and have == size:
        return
    if size is not None and have > size:
        have = 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    if have and validator_of(partial).exists():
        headers["If-Range"] = validator_of(partial).read_text(encoding="latin-1")
    with web.opened("GET", url, headers) as response:
        if response.status_code == 416:
            forget(partial)
            raise Transient("it refused to resume")
        check_status(url, response)
        resumed = response.status_code == 206
        if resumed and not content_range(response).startswith(f"bytes {have}-"):
            forget(partial)
            raise Transient("it sent another range than asked for")
        start = have if resumed else 0
        total = announced(response, start)
        if size is not None and total is not None and total != size:
            forget(partial)
            raise UserError(
                f"{one_line(url)}: {total} bytes, the manifest says {size}; the file changed: name "
                "its id in corpus.leave_out to go on without it, or make the manifest again"
            )
        expected = size if size is not None else total
        if expected is None:
            raise UserError(
                f"{one_line(url)}: the server does not say how large the file is, so it cannot be "
                "known to be complete; give another address"
            )
        if not resumed:
            note_validator(partial, response)
        with partial.open("ab" if resumed else "wb") as handle:
            for block in response.iter_content(BLOCK):
                # a byte too many shows it, and the cap on raw files holds
                handle.write(block[: expected + 1 - handle.tell()])
                web.go_on()
                if handle.tell() > expected:
                    break
    have = length_of(partial)
    if have > expected:
        forget(partial)
        raise Transient(f"it sent more than {expected} bytes")
    if have < expected:
        raise Transient(f"it sent {have} of {expected} bytes")


def announced(response: Any, start: int) -> int | None:
    """Size of the whole file according to the server's headers, or ``None``."""
    total = content_range(response).rpartition("/")[2]
    if total.isdigit():
        return int(total)
    length = response.headers.get("Content-Length", "")
    return start + int(length) if length.isdigit() else None


def content_range(response: Any) -> str:
    """The ``Content-Range`` header, or an empty string."""
    return str(response.headers.get("Content-Range", ""))


def note_validator(partial: Path, response: Any) -> None:
    """Keep what tells this file from another one at the same address, if the server says so."""
    tag = str(response.headers.get("ETag", ""))
    if not tag or tag.startswith("W/"):  # weak ones do not promise the same bytes
        tag = str(response.headers.get("Last-Modified", ""))
    validator_of(partial).unlink(missing_ok=True)
    if tag and tag.isprintable() and len(tag) < 200:
        validator_of(partial).write_text(tag, encoding="latin-1")


def validator_of(partial: Path) -> Path:
    """Where the validator of a partial file is kept."""
    return partial.with_name(partial.name + ".etag")


def forget(partial: Path) -> None:
    """Remove a partial file and its validator."""
    partial.unlink(missing_ok=True)
    validator_of(partial).unlink(missing_ok=True)


def length_of(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0
