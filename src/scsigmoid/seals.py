"""Results that tell when they were damaged: the SHA-256 of a file, hidden beside it.

For formats without checksums of their own.  A file without a seal is taken as it is, so a table
that was written by hand serves as well as one of ours.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path, sha256, write_text


def seal_of(path: str | Path) -> Path:
    """Where the seal of a file lies."""
    path = Path(path)
    return path.with_name(f".{path.name}.sha256")


def seal(path: str | Path) -> None:
    """Write the seal of a file, as ``sha256sum --check`` reads it."""
    write_text(seal_of(path), f"{sha256(path)}  {Path(path).name}\n")


def unseal(path: str | Path) -> None:
    """Take the seal off: the file is about to change."""
    seal_of(path).unlink(missing_ok=True)


@contextmanager
def sealed_path(path: str | Path) -> Iterator[Path]:
    """:func:`scsigmoid.files.atomic_path`, with a seal.

    A process that dies on the way leaves a complete file without one, never a wrong one.
    """
    with atomic_path(path) as temporary:
        yield temporary
        unseal(path)
    seal(path)


def check_seal(path: str | Path) -> None:
    """Compare a file with its seal, if it has one.

    Raises:
        UserError: if they differ.
    """
    sealed = seal_of(path)
    if not sealed.is_file() or not Path(path).is_file():
        return
    if sealed.read_text(encoding="utf-8", errors="replace").split(" ")[0] != sha256(path):
        raise UserError(
            f"{path}: damaged (not the bytes that were written); delete it and run again"
        )
