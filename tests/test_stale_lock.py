"""A killed run's lock goes; a living run's, or another host's, stays."""

import json
import os
import subprocess
import sys
from pathlib import Path

from scsigmoid.stale_lock import NOTE, clear_stale_lock, note_run


def locked(folder: Path) -> Path:
    """Locks as Snakemake makes them: before the run writes its note."""
    (folder / "locks").mkdir()
    lock = folder / "locks" / "0.output.lock"
    lock.touch()
    before = lock.stat().st_mtime_ns - 10**9
    os.utime(lock, ns=(before, before))
    return folder / "locks"


def test_a_living_runs_lock_stays(tmp_path: Path) -> None:
    note_run(tmp_path, os.getpid())
    locks = locked(tmp_path)
    assert not clear_stale_lock(tmp_path)
    assert locks.is_dir()


def test_a_killed_runs_lock_goes(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    note_run(tmp_path, child.pid)
    locks = locked(tmp_path)
    child.kill()
    child.wait()
    assert clear_stale_lock(tmp_path)
    assert not locks.exists()


def test_a_reused_process_id_is_not_the_run(tmp_path: Path) -> None:
    note_run(tmp_path, os.getpid())
    record = json.loads((tmp_path / NOTE).read_text())
    (tmp_path / NOTE).write_text(json.dumps(record | {"started": record["started"] - 60}))
    locked(tmp_path)
    assert clear_stale_lock(tmp_path)


def test_another_hosts_lock_stays(tmp_path: Path) -> None:
    note_run(tmp_path, os.getpid())
    record = json.loads((tmp_path / NOTE).read_text())
    (tmp_path / NOTE).write_text(json.dumps(record | {"host": "elsewhere", "started": 0}))
    locked(tmp_path)
    assert not clear_stale_lock(tmp_path)


def test_a_lock_newer_than_the_note_stays(tmp_path: Path) -> None:
    """The note is an earlier run's; the one that holds the lock has not come to its own."""
    note_run(tmp_path, os.getpid())
    record = json.loads((tmp_path / NOTE).read_text())
    (tmp_path / NOTE).write_text(json.dumps(record | {"started": 0}))
    lock = locked(tmp_path) / "0.output.lock"
    os.utime(lock, ns=2 * ((tmp_path / NOTE).stat().st_mtime_ns + 1,))
    assert not clear_stale_lock(tmp_path)


def test_a_lock_without_a_note_stays(tmp_path: Path) -> None:
    locked(tmp_path)
    assert not clear_stale_lock(tmp_path)
