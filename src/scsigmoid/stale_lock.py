"""Snakemake's lock of a run that was killed: removed when its process is surely gone.

Snakemake locks its working directory and leaves the lock behind when it is killed with no chance to
clean up.  A run notes its host and process here; the next run on the same host removes the lock if
that process no longer exists.  A lock of another host, or of a process that still runs, is left,
and so is one that is newer than the note: its run has yet to write one.
"""

import json
import shutil
import socket
from pathlib import Path

import psutil

NOTE = "scsigmoid-run.json"


def note_run(folder: str | Path, pid: int) -> None:
    """Note that the process ``pid`` holds the lock of ``folder`` (a ``.snakemake``)."""
    record = {
        "host": socket.gethostname(),
        "pid": pid,
        "started": psutil.Process(pid).create_time(),
    }
    Path(folder).mkdir(exist_ok=True)
    (Path(folder) / NOTE).write_text(json.dumps(record))


def clear_stale_lock(folder: str | Path) -> bool:
    """Remove the lock of ``folder`` if the run that noted itself there is gone.

    Returns:
        Whether a lock was removed.
    """
    locks, note = Path(folder) / "locks", Path(folder) / NOTE
    try:
        record = json.loads(note.read_text())
        taken = [lock.stat().st_mtime_ns for lock in locks.iterdir()]
        if not taken or max(taken) > note.stat().st_mtime_ns:
            return False
        if record["host"] != socket.gethostname():
            return False
        if psutil.Process(record["pid"]).create_time() == record["started"]:
            return False
    except (OSError, ValueError, KeyError):
        return False
    except psutil.NoSuchProcess:
        pass
    shutil.rmtree(locks, ignore_errors=True)
    return True
