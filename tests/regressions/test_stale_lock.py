"""Removal of the lock of a killed run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scsigmoid.config.stale_lock import NOTE, clear_stale_lock, note_run


def make_lock(folder: Path) -> Path:
    """Make a lock that is a second old, as Snakemake does. Return the folder of the lock."""
    (folder / "locks").mkdir()
    lock = folder / "locks" / "0.output.lock"
    lock.touch()
    before = lock.stat().st_mtime_ns - 10**9
    os.utime(lock, ns=(before, before))
    return folder / "locks"


def test_the_lock_of_a_killed_run_is_removed(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    note_run(tmp_path, child.pid)
    locks = make_lock(tmp_path)
    assert not clear_stale_lock(tmp_path)
    assert locks.is_dir()
    child.kill()
    child.wait()
    assert clear_stale_lock(tmp_path)
    assert not locks.exists()


@pytest.mark.parametrize(
    ("changed", "newer", "is_removed"),
    [
        ({"started": 0}, False, True),  # another process has the id of the run now
        ({"started": 0, "host": "elsewhere"}, False, False),
        # The note is from an earlier run. The run with the lock has not written its note yet.
        ({"started": 0}, True, False),
        (None, False, False),
    ],
)
def test_only_the_lock_of_a_process_that_ended_is_removed(changed, newer, is_removed, tmp_path):
    locks, note = make_lock(tmp_path), tmp_path / NOTE
    if changed is not None:
        note_run(tmp_path, os.getpid())
        note.write_text(json.dumps(json.loads(note.read_text()) | changed))
    if newer:
        (lock,) = locks.iterdir()
        after = note.stat().st_mtime_ns + 1
        os.utime(lock, ns=(after, after))
    assert clear_stale_lock(tmp_path) == is_removed
    assert locks.exists() != is_removed
