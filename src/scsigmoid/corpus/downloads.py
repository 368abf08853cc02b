"""Manage the folder of downloads: one file per dataset version, shared by jobs, runs and presets.

The folder is not an output of a job, so Snakemake never deletes a download. Next to each file is a
record: the SHA-256 of the first download, and the state of the file (size, modification time and
inode). Later downloads must have the same SHA-256. If the state of a file has changed, its SHA-256
is computed again.

A file is complete and checked, or absent. An interrupted download leaves a ``.partial`` file and
the server's ETag and the size of the file (``.etag``). The next attempt asks for the missing bytes.
It appends them only if the answer states the same ETag, size and range of bytes. Otherwise, the
download starts over.
"""

import os
import re
from pathlib import Path

import requests
from filelock import FileLock

from scsigmoid.config.schema import Download
from scsigmoid.corpus.metadata import ManifestRow, check_identifier, one_line
from scsigmoid.corpus.web import (
    GZIP,
    Transient,
    Web,
    check_encoding,
    check_status,
    content_length,
    is_compressed,
    is_web_page,
)
from scsigmoid.errors import UserError
from scsigmoid.files import report_full_disk, sha256, write_text
from scsigmoid.progress import log
from scsigmoid.records.identity import FINGERPRINT

#: How to continue without a file, for messages.
LEAVE_OUT = (
    "name its id in corpus.leave_out (evaluation datasets: set another datasets.<name>.id, without "
    "corpus.manifest)"
)
# A weak ETag (W/"...") does not promise the same bytes.
STRONG_ETAG = r'"[\x21\x23-\x7e]*"'


class Downloads:
    """The folder of downloads."""

    def __init__(self, folder: str | Path, settings: Download) -> None:
        self.folder = Path(folder).absolute()
        self.web = Web(settings)

    def path(self, row: ManifestRow) -> Path:
        """Return the path of the file of a manifest row."""
        version = check_identifier(row.dataset_version_id, f"manifest row {row.file}")
        return self.folder / f"{version}.h5ad"

    def has(self, row: ManifestRow) -> bool:
        """Return whether a file of the row's size exists. :meth:`obtain` checks its content."""
        path = self.path(row)
        return path.exists() and row.bytes in ("", str(path.stat().st_size))

    def obtain(self, row: ManifestRow) -> str:
        """Download the file of a row if necessary, and return its SHA-256."""
        import h5py

        path = self.path(row)
        locks = self.folder / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        with FileLock(locks / f"{path.stem}.lock"):  # released even if the process is killed
            first_digest, recorded_state = read_record(path)
            if path.exists():
                is_unchanged = recorded_state == state_of(path)
                digest = first_digest if is_unchanged else sha256(path)
                # The checksums in the manifest and in the record are empty if they are unknown.
                is_expected = row.sha256 in ("", digest) and first_digest in ("", digest)
                if is_expected and self.has(row):
                    write_record(path, digest)
                    return digest
                if not first_digest:  # may be the user's own file, so do not delete it
                    raise UserError(
                        f"{path}: not the file that the manifest describes; move it elsewhere, or "
                        "set corpus.download.folder"
                    )
                if digest == first_digest and not row.sha256:  # another file would be refused
                    raise UserError(
                        f"{path}: its size is not {row.bytes} bytes, so the file has changed at "
                        f"its source; to download it again, delete it and its .sha256 file"
                    )
                log(f"{path}: not the file that was downloaded; downloading it again")
                path.unlink()
            size = int(row.bytes) if row.bytes else None
            digest = download(self.web, row.location, path, size, row.sha256 or first_digest)
            if not h5py.is_hdf5(path):
                path.unlink()
                raise UserError(
                    f"{row.location}: the server did not send an h5ad file; run again, or "
                    f"{LEAVE_OUT} to continue without it"
                )
            write_record(path, digest)
        log(f"{row.location}: {path.stat().st_size / 1e9:.3f} GB, SHA-256 {digest}")
        return digest


def read_record(path: Path) -> tuple[str, list[str]]:
    """Return the SHA-256 and state in a file's record. Both are empty without a valid record."""
    record = path.with_suffix(".sha256")
    text = record.read_text(encoding="ascii", errors="replace") if record.exists() else ""
    digest, *state = text.split() or [""]
    return (digest, state) if FINGERPRINT.fullmatch(digest) else ("", [])


def write_record(path: Path, digest: str) -> None:
    """Write the record of a file: the SHA-256 ``digest`` and the current state."""
    write_text(path.with_suffix(".sha256"), " ".join([digest, *state_of(path)]) + "\n")


def state_of(path: Path) -> list[str]:
    """Return size, modification time and inode of a file. Writing the file changes the state."""
    stat = path.stat()
    return [str(stat.st_size), str(stat.st_mtime_ns), str(stat.st_ino)]


def download(web: Web, url: str, file: Path, size: int | None = None, digest: str = "") -> str:
    """Download a file with retries, check it, and return its SHA-256.

    Only one process at a time may download to ``file``. ``size`` is the expected number of bytes
    (``None`` if unknown). ``digest`` is the expected SHA-256 (empty if unknown).
    """
    partial = file.with_suffix(".partial")
    with report_full_disk(partial):
        web.retry(
            url, lambda: resume(web, url, partial, size), progress=lambda: size_on_disk(partial)
        )
    actual = sha256(partial)
    if digest and actual != digest:
        remove_partial(partial)
        raise UserError(
            f"{one_line(url)}: its SHA-256 is not the one in the manifest or of the first "
            "download; it was damaged in transfer (run again) or changed at its source (make the "
            f"manifest again, without corpus.manifest, and delete {file.with_suffix('.sha256')}, "
            f"or {LEAVE_OUT})"
        )
    with partial.open("rb") as handle:
        os.fsync(handle.fileno())  # so that a crash cannot leave a damaged file after the rename
    os.replace(partial, file)
    remove_partial(partial)  # the ETag is left
    return actual


def resume(web: Web, url: str, partial: Path, size: int | None) -> None:
    """Make one attempt: request the missing bytes, append them, and check the size of the file."""
    import h5py

    if partial.is_symlink():  # writing to it would change another file
        raise UserError(f"{partial}: a link; delete it, and run again")
    start, etag_file = size_on_disk(partial), partial.with_suffix(".etag")
    if start == size:
        return  # all bytes arrived in an earlier attempt
    etag, total = read_etag(etag_file) if start else ("", 0)
    headers = {"Range": f"bytes={start}-", "If-Range": etag} if etag else {}
    with web.opened("GET", url, headers) as response:
        is_rest = etag != "" and is_rest_of_file(response, start, etag, total)
        if response.status_code == 416 or (response.status_code == 206 and not is_rest):
            remove_partial(partial)
            raise Transient("the server did not send the rest of the same file")
        if not is_rest:
            check_status(url, response)
        length = total if is_rest else content_length(response)
        expected = size if length is None else length
        if expected is None:
            raise UserError(
                f"{one_line(url)}: the server does not state the size of the file, so a complete "
                "download cannot be recognized; use another address"
            )
        if size not in (None, expected):
            if is_web_page(response):  # e.g. of a login or of maintenance
                raise Transient("the server sent a web page instead of the file")
            remove_partial(partial)
            check_encoding(url, response)
            raise UserError(
                f"{one_line(url)}: {expected} bytes, but {size} in the manifest: the file changed; "
                f"{LEAVE_OUT} to continue without it, or make the manifest again, without "
                "corpus.manifest"
            )
        with partial.open("ab" if is_rest else "wb") as handle:
            if not is_rest:
                etag_file.unlink(missing_ok=True)
                etag = response.headers.get("ETag", "")
                if re.fullmatch(STRONG_ETAG, etag):
                    write_text(etag_file, f"{etag} {expected}\n")
            for block in web.body(response):
                handle.write(block)
    end = size_on_disk(partial)
    if end != expected:
        if end > expected or is_compressed(response):
            remove_partial(partial)
        check_encoding(url, response)
        raise Transient(f"the server sent {end} of {expected} bytes")
    if is_compressed(response) and not h5py.is_hdf5(partial):
        # The expected size may be the compressed size, also in a manifest.
        with partial.open("rb") as handle:
            is_gzip = handle.read(len(GZIP)) == GZIP
        if is_gzip or size is None:
            remove_partial(partial)
            check_encoding(url, response)


def read_etag(path: Path) -> tuple[str, int]:
    """Return the ETag and the size of a file from its ``.etag`` file, or ("", 0) without them."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    match = re.fullmatch(f"({STRONG_ETAG}) ([0-9]{{1,15}})\n", text)
    return (match[1], int(match[2])) if match else ("", 0)


def is_rest_of_file(response: requests.Response, start: int, etag: str, total: int) -> bool:
    """Return True if a response contains the bytes of a file from ``start`` on, and only these.

    ``etag`` and ``total`` are the ETag and the size of the file. Servers and proxies may ignore
    ``If-Range``, send other ranges, or send several parts with a boundary.
    """
    answer = (response.status_code, *map(response.headers.get, ("ETag", "Content-Range")))
    is_stated = answer == (206, etag, f"bytes {start}-{total - 1}/{total}")
    return is_stated and content_length(response) in (None, total - start)


def remove_partial(partial: Path) -> None:
    """Remove an unfinished download."""
    partial.unlink(missing_ok=True)
    partial.with_suffix(".etag").unlink(missing_ok=True)


def size_on_disk(path: Path) -> int:
    """Return the size of a file in bytes, or 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0
