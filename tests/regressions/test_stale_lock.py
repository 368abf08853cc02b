"""What a killed run leaves: its lock is removed, and its jobs are found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scsigmoid.config.stale_lock import NOTE, clear_stale_lock, note_run, running_jobs


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


@pytest.mark.parametrize("text", ["", "{", "[1]", "1", '{"host": "h', "\xff", "{}"])
def test_a_damaged_note_is_not_used(text, tmp_path):
    """A note that was not a mapping ended each start of the workflow in a traceback."""
    locks = make_lock(tmp_path)
    (tmp_path / NOTE).write_text(text, encoding="latin-1")
    assert not clear_stale_lock(tmp_path)
    assert locks.is_dir()


def test_local_jobs_of_a_killed_run_are_found(tmp_path, monkeypatch):
    """They could write results of old settings after the next run has written its results."""
    monkeypatch.chdir(tmp_path)
    program = [sys.executable, "-c", "print(flush=True); input()", "table"]
    configuration = "results/demo/config.yaml"
    options = ["--configuration", configuration, "--checksum", "0"]
    environments = ({}, {"SCSIGMOID_SILENT": "1"})
    children = [
        subprocess.Popen(
            [*program, *options],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for environment in environments
    ]
    for child in children:
        child.stdout.readline()
    assert running_jobs(configuration) == [children[0].pid]
    assert running_jobs("results/other/config.yaml") == []
    monkeypatch.chdir("/")
    assert running_jobs(configuration) == []
    for child in children:
        child.communicate(b"")
