"""What a killed Snakemake leaves: the lock in its working directory, and jobs that still run.

After Snakemake has locked the folder, each run writes a note with its host and process id. The next
run on the same host removes the lock if that process has ended. A lock that is newer than the note
is kept, because it belongs to a later run, which has not written its note yet.
"""

import json
import os
import shutil
import socket
from pathlib import Path

import psutil

from scsigmoid.files import write_json

NOTE = "scsigmoid-run.json"


def note_run(folder: str | Path, pid: int) -> None:
    """Write a note that the lock of ``folder`` (``.snakemake``) belongs to process ``pid``."""
    started = psutil.Process(pid).create_time()
    record = {"host": socket.gethostname(), "pid": pid, "started": started}
    write_json(Path(folder) / NOTE, record)


def clear_stale_lock(folder: str | Path) -> bool:
    """Remove the lock of ``folder`` if its run was killed. Return whether a lock was removed."""
    locks, note = Path(folder) / "locks", Path(folder) / NOTE
    try:
        record = json.loads(note.read_text())
        newest = max(lock.stat().st_mtime_ns for lock in locks.iterdir())
        if newest > note.stat().st_mtime_ns or record["host"] != socket.gethostname():
            return False
        # The start times are compared because a new process may have the same id.
        if psutil.Process(record["pid"]).create_time() == record["started"]:
            return False  # the run has not ended
    except (OSError, ValueError, KeyError, TypeError):  # no locks, or a missing or damaged note
        return False
    except psutil.NoSuchProcess:  # the run has ended
        pass
    shutil.rmtree(locks, ignore_errors=True)
    return True


def running_jobs(configuration: str) -> list[int]:
    """Return the ids of processes on this host that run local jobs with a stored configuration.

    ``configuration`` is its path as in the commands of the jobs, which have this working directory.
    Jobs of a cluster, which may run on this host, are left out.
    """
    jobs = []
    for process in psutil.process_iter(["cmdline", "cwd", "environ"]):  # None: of another user
        words, environment = process.info["cmdline"] or [], process.info["environ"] or {}
        is_job = configuration in words and "--checksum" in words
        is_local = process.info["cwd"] == os.getcwd() and "SCSIGMOID_SILENT" not in environment
        if is_job and is_local:
            jobs.append(process.pid)
    return jobs
