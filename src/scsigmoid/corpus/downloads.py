"""The folder of downloaded files: one file a dataset version, shared by jobs, runs and presets.

It is no output of any job, so no failed job, changed setting or new division into parts deletes
what was downloaded.  Beside every file lies its SHA-256 as of the first download, which every
later use, and every later download, is checked against.
"""

import fcntl
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from scsigmoid.corpus.download import download, length_of
from scsigmoid.corpus.foreign import check_identifier
from scsigmoid.corpus.rows import ManifestRow
from scsigmoid.corpus.web import Web
from scsigmoid.errors import UserError
from scsigmoid.files import sha256, write_text
from scsigmoid.progress import log


class Downloads:
    """The folder."""

    def __init__(self, folder: str | Path, web: Web) -> None:
        """Note where it is, and how what is missing is asked for."""
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

    def obtain(self, row: ManifestRow) -> tuple[Path, str]:
        """The file of a row, downloaded if need be, and its SHA-256.

        Raises:
            UserError: if the right bytes cannot be had.
        """
        path = self.path(row)
        record = path.with_suffix(".sha256")
        with self.alone(path.stem):
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
                partial=path.with_suffix(".partial"),
                size=int(row.bytes) if row.bytes else None,
                digest=row.sha256 or noted,
                origin="the manifest" if row.sha256 else f"{record} (delete it to accept the new)",
                check=lambda partial: check_readable(partial, row.location),
            )
            write_text(record, found + "\n")
        log(f"{row.location}: {path.stat().st_size / 1e9:.3f} GB, SHA-256 {found}")
        return path, found

    def check_space(self, rows: Iterable[ManifestRow]) -> None:
        """Refuse to start what the disk has no room for.

        Raises:
            UserError: with the gigabytes that are missing.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        missing = 0
        for row in rows:
            path = self.path(row)
            have = length_of(path) or length_of(path.with_suffix(".partial"))
            missing += max(0, int(row.bytes or 0) - have)
        free = shutil.disk_usage(self.folder).free
        if missing > free:
            raise UserError(
                f"{self.folder}: {missing / 1e9:.1f} GB are to be downloaded and {free / 1e9:.1f} "
                "GB are free; free some space or set corpus.download.folder"
            )

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Keep other processes from the same file meanwhile."""
        locks = self.folder / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / f"{name}.lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log(f"{self.folder / name}: waiting for another job that downloads it")
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield


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
