"""Atomic writing of files, checks of the files to write, checks for damage, and locks.

All files are published in the same way: they are written under a random temporary name that did not
exist before, and then get their own name. Links, pipes and devices are never written through.
"""

import csv
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import socket
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any
from zipfile import BadZipFile

from scsigmoid.errors import UserError

METADATA_KEY = "scsigmoid"  # key of this package's metadata in Parquet and model files

csv.field_size_limit(2**31 - 1)  # one field of a manifest can exceed the default of 128 kB


@contextmanager
def report_full_disk(path: Path) -> Iterator[None]:
    """If the disk becomes full in the block, raise an OSError that names ``path``.

    An error that names a file in another folder, such as ``/tmp``, is not changed.
    """
    handled = sys.exception()  # before the block, for example a full disk elsewhere
    try:
        yield
    except UserError:  # already names its file and says what to do
        raise
    except Exception as error:
        file = getattr(error, "filename", None)
        folder = path.parent.absolute()
        if isinstance(file, str) and not Path(file).absolute().is_relative_to(folder):
            raise
        # Not only OSError: libraries quote its message, or raise another error while they close.
        messages = []
        cause: BaseException | None = error
        while cause is not None and cause is not handled:
            messages.append(str(cause))
            cause = cause.__context__
        for number in (errno.ENOSPC, errno.EDQUOT):
            if any(os.strerror(number) in message for message in messages):
                raise OSError(number, os.strerror(number), str(path)) from None
        raise


@contextmanager
def atomic_path(path: str | Path, *, overwrite: bool = True) -> Iterator[Path]:
    """Yield a new, empty file. It becomes ``path`` when the block ends without an error.

    The temporary name keeps the suffix, because some writers choose the format by the suffix.

    Args:
        path: file to write. Missing parent folders are made. If it is a link, the link is replaced.
        overwrite: whether to replace a file, also one that appears during the block.

    Raises:
        IsADirectoryError: if ``path`` is a folder.
        UserError: if ``path`` is a pipe or a device, if a name is too long, or, without
            ``overwrite``, if ``path`` exists after the block.
    """
    path = Path(path)
    check_target(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    try:
        temporary.touch(exist_ok=False)
    except OSError as error:
        error.filename = str(path)
        raise
    try:
        with report_full_disk(path):
            yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        if overwrite:
            os.replace(temporary, path)
        else:
            publish(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def publish(temporary: Path, path: Path) -> None:
    """Give a file its own name. Raise a UserError if the name exists."""
    try:
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links: reserve the name instead
            path.touch(exist_ok=False)
            os.replace(temporary, path)
    except FileExistsError:
        # After a lost answer of the server, NFS repeats a request that succeeded.
        if not (path.exists() and path.samefile(temporary)):
            raise UserError(
                f"{path}: appeared while it was being written, and is kept; name another file"
            ) from None


@contextmanager
def atomic_folder(path: str | Path, marker: str) -> Iterator[Path]:
    """Yield a new, empty folder. It becomes ``path`` when the block ends without an error.

    Raise a UserError if ``path`` cannot be replaced (:func:`check_folder`) before or after the
    block. ``marker`` is the name of a file that the block writes to each such folder.
    """
    path = Path(path)
    check_folder(path, marker)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    temporary.mkdir()
    try:
        with report_full_disk(path):
            yield temporary
        check_folder(path, marker)
        if path.is_dir():
            shutil.rmtree(path)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_folder(path: Path, marker: str) -> None:
    """Raise a UserError if ``path`` exists and is not a folder that may be replaced.

    A folder may be replaced if it is empty or contains a file named ``marker``, which shows that
    this package wrote the folder.
    """
    check_target(path)
    if path.is_symlink():
        raise UserError(f"{path}: a link; delete the link, or name another folder")
    if path.exists() and not path.is_dir():
        raise UserError(f"{path}: a file; name a folder")
    if path.is_dir() and any(path.iterdir()) and not (path / marker).is_file():
        raise UserError(f"{path}: contains other files; name a new folder")


LONGEST_NAME = 255  # bytes, the limit of most file systems


def check_target(path: Path) -> None:
    """Raise a UserError if ``path`` is a pipe, a device or a socket, or if a name is too long."""
    for name in path.parts:
        if len(os.fsencode(name)) > LONGEST_NAME:
            problem = f"a name is longer than {LONGEST_NAME} bytes"
            raise UserError(f"{path}: {problem}; choose a shorter name")
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path}: a pipe or a device, not a file; name another file")


def temporary_path(path: Path) -> Path:
    """Return a random hidden name next to ``path``, with its suffix and the start of its name."""
    # Shortened so that each name that is allowed for `path` has an allowed temporary name.
    return path.with_name(f".{path.stem[:32]}.{secrets.token_hex(8)}.partial{path.suffix[:16]}")


@contextmanager
def locked(path: str | Path, activity: str) -> Iterator[None]:
    """Lock a file while the block runs. Raise a UserError if another process has locked it.

    The message contains ``activity``, e.g. ``"training"``, and the process id and the host that the
    other process wrote to the file. The system releases the lock when the process ends. On file
    systems without locks (some network file systems), other processes are not excluded.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_lock(path) as handle:  # does not empty the file yet
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = handle.read().decode(errors="replace").strip() or "another process"
            remedy = "wait for it or stop it, and run again"
            raise UserError(f"{path.parent}: {holder} is {activity}; {remedy}") from None
        except OSError:  # no locks on this file system
            pass
        # Best effort: if the disk is full, the write that matters reports it.
        with suppress(OSError):
            os.truncate(handle.fileno(), 0)
            os.write(handle.fileno(), f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield


def open_lock(path: Path) -> IO[bytes]:
    """Open a file to lock it. Create the file if it is missing.

    Raise a UserError if ``path`` is a link or not a regular file, or if the file has another name
    (a hard link), because writing to it could change another file.
    """
    # Without O_NONBLOCK, opening a pipe could wait for another process.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        handle = os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    else:
        status = os.fstat(handle.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
            return handle
        handle.close()
    raise UserError(f"{path}: a link, or not a lock file; delete it and run again")


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
    """Raise a UserError if a path is not allowed (:func:`check_target`) or not writable.

    A path is writable if a file can be made in its nearest existing parent folder.
    """
    for path in paths:
        check_target(path)
        places = path.absolute().parents or [path]  # "/" does not have parents
        folder = next(place for place in places if place.exists())
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
