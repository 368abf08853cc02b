"""A small file system for a folder, which can be full or read-only."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def mount(*arguments: str | Path) -> None:
    """Call ``mount``, or skip the test where that is not allowed."""
    process = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if process.returncode:
        pytest.skip(f"no small disk can be mounted here: {process.stderr.strip()}")


@contextmanager
def small_disk(folder: Path, kib: int = 32768) -> Iterator[Path]:
    """Mount a full disk at a folder, with the files of the folder. Yield the file that fills it."""
    if not shutil.which("mount") or os.geteuid() != 0:
        pytest.skip("a small disk can only be mounted by root")
    content = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    mount("-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", folder)
    try:
        for path, data in content.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        full = folder / "full"
        room = os.statvfs(folder)
        full.write_bytes(bytes(room.f_bavail * room.f_frsize))
        yield full
    finally:
        subprocess.run(["umount", folder], check=True)
