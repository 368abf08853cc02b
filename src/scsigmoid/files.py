"""Atomic writing of files, checks for damage, and locks."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from zipfile import BadZipFile

from scsigmoid.errors import UserError


@contextmanager
def report_full_disk(path: Path) -> Iterator[None]:
    """If the disk becomes full in the block, raise an OSError that names ``path``."""
    try:
        yield
    except Exception as error:  # not only OSError: libraries wrap it and quote its message
        for number in (errno.ENOSPC, errno.EDQUOT):
            # A UserError already names its file and says what to do.
            if os.strerror(number) in str(error) and not isinstance(error, UserError):
                raise OSError(number, os.strerror(number), str(path)) from None
        raise


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path. Its file replaces ``path`` when the block ends without an error.

    The temporary name keeps the suffix, because some writers choose the format by the suffix.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        with report_full_disk(path):
            yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a new, empty folder, which replaces ``path`` when the block ends without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        with report_full_disk(path):
            yield temporary
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def locked(path: str | Path, activity: str) -> Iterator[None]:
    """Lock a file while the block runs. Raise a UserError if another process has locked it.

    The message contains ``activity``, e.g. ``"training"``, and the process id and the host that the
    other process wrote to the file. The system releases the lock when the process ends. On file
    systems without locks (some network file systems), other processes are not excluded.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as handle:  # does not empty the file yet
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = path.read_text(encoding="utf-8").strip() or "another process"
            remedy = "wait for it or stop it, and run again"
            raise UserError(f"{path.parent}: {holder} is {activity}; {remedy}") from None
        except OSError:  # no locks on this file system
            pass
        # Best effort: if the disk is full, the write that matters reports it.
        with suppress(OSError):
            os.truncate(handle.fileno(), 0)
            os.write(handle.fileno(), f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield


@contextmanager
def verified(path: Path, digest: str, to_delete: Path) -> Iterator[None]:
    """Compute the SHA-256 of a file in another thread while the block reads the file.

    When the block ends, with or without an error, raise a UserError if the SHA-256 is not
    ``digest``. If ``digest`` is empty, nothing is checked. The message tells the user to delete
    ``to_delete``, a file or folder that the next run makes again.
    """
    if not digest:
        yield
        return
    with ThreadPoolExecutor(1) as pool:
        actual = pool.submit(sha256, path)

        def compare() -> None:
            if actual.result() != digest:
                problem = "damaged or changed (its SHA-256 differs)"
                raise UserError(f"{path}: {problem}; delete {to_delete} and run again")

        try:
            yield
        except Exception:
            compare()  # a damaged file is the cause of the other error
            raise
        compare()


def check_writable(paths: Iterable[Path]) -> None:
    """Raise a UserError if the nearest existing parent folder of a path is not writable."""
    for path in paths:
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        try:
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            remedy = "make its folder writable, or choose another place"
            raise UserError(f"{path}: cannot be written ({error.strerror}); {remedy}") from None


# Errors that readers of files raise for damaged content.
DAMAGE = (
    OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, EOFError,
    NotImplementedError, zlib.error, BadZipFile,
)  # fmt: skip


@contextmanager
def parsing(path: str | Path, kind: str) -> Iterator[None]:
    """Raise a UserError that names ``path`` if its content cannot be parsed in the block.

    ``kind`` is the expected content, e.g. ``"an embedding"``. Errors of the file system are not
    changed.
    """
    try:
        yield
    except DAMAGE as error:
        # safetensors and pyarrow raise FileNotFoundError without an error number.
        if isinstance(error, FileNotFoundError) or getattr(error, "errno", None):
            raise
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path}: damaged, or not {kind} ({reason}); make it again") from error


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` as indented JSON with sorted keys, atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with Path(path).open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
