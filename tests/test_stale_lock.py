"""A killed run's lock goes; a living run's, or another host's, stays."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scsigmoid.stale_lock import NOTE, clear_stale_lock, note_run


def locked(folder: Path) -> Path:
    """Locks as Snakemake makes them: before the run writes its note."""
    (folder / "locks").mkdir()
    lock = folder / "locks" / "0.output.lock"
    lock.touch()
    before = lock.stat().st_mtime_ns - 10**9
    os.utime(lock, ns=(before, before))
    return folder / "locks"


def test_a_killed_runs_lock_goes(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    note_run(tmp_path, child.pid)
    locks = locked(tmp_path)
    assert not clear_stale_lock(tmp_path)
    assert locks.is_dir()
    child.kill()
    child.wait()
    assert clear_stale_lock(tmp_path)
    assert not locks.exists()


@pytest.mark.parametrize(
    ("changed", "newer", "goes"),
    [
        ({"started": 0}, False, True),  # another process has the run's number now
        ({"started": 0, "host": "elsewhere"}, False, False),
        # the note is an earlier run's; the one that holds the lock has not come to its own
        ({"started": 0}, True, False),
        (None, False, False),
    ],
)
def test_a_lock_goes_if_its_run_is_surely_gone(
    changed: dict[str, Any] | None, newer: bool, goes: bool, tmp_path: Path
) -> None:
    locks, note = locked(tmp_path), tmp_path / NOTE
    if changed is not None:
        note_run(tmp_path, os.getpid())
        note.write_text(json.dumps(json.loads(note.read_text()) | changed))
    if newer:
        (lock,) = locks.iterdir()
        os.utime(lock, ns=2 * (note.stat().st_mtime_ns + 1,))
    assert clear_stale_lock(tmp_path) == goes
    assert locks.exists() != goes
