"""The command line: one subcommand for each stage, called by the rules of the workflow.

A stage reads its settings from the file ``--configuration``, the ``config.yaml`` that each run
stores in its results folder. An error that a user can correct is printed as one line.
"""

import argparse
import errno
import math
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from scsigmoid import progress
from scsigmoid.cli.arguments import STAGES, add_stage, call
from scsigmoid.errors import UserError, shortened
from scsigmoid.files import check_writable
from scsigmoid.version import __version__

for module in ("pipeline", "evaluation", "benchmarks", "report"):
    import_module(f"scsigmoid.cli.{module}")  # registers subcommands, in the order of --help

# Environment variables.
SILENT = "SCSIGMOID_SILENT"  # jobs print no progress on the terminal (on a cluster)
LINES = "SCSIGMOID_LINES"  # jobs print one line on the terminal when they start
#: Variables that contain the id of a job on Slurm, PBS, LSF and Grid Engine.
JOB_IDS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
NO_SPACE, NOT_PERMITTED = (errno.ENOSPC, errno.EDQUOT), (errno.EACCES, errno.EPERM)
TARGETS = ("output", "summary", "machine", "log")  # arguments that are files or folders to write
SECONDS_TO_CLEAN = 10  # after a signal, further signals are ignored for this time
#: What to do after an error of the file system, by error number.
REMEDIES = {
    **dict.fromkeys(NO_SPACE, "free some space, and run again"),
    **dict.fromkeys(NOT_PERMITTED, "change its permissions, or choose another place"),
    errno.EROFS: "make it writable, or choose another place",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand. Return exit code 0, 1 (error), or 128 plus the number of a signal.

    If a model is trained by several processes, this process launches them with torchrun. Each of
    them then runs the subcommand.
    """
    words = sys.argv[1:] if arguments is None else arguments
    options = make_parser().parse_args(words)
    log, rank = options.log, os.environ.get("RANK")
    if log is not None and rank not in (None, "0"):  # each process of torchrun has its own log
        log = log.with_suffix(f".{rank}{log.suffix}")
    try:
        check_distinct(options)
        if log is not None and rank is None:  # not in processes of torchrun, which have a RANK
            start_log(log, words[0])
        if max(getattr(options, "gpus", 1), getattr(options, "nodes", 1)) > 1:
            from scsigmoid.training.processes import launch, launched

            if not launched():
                return launch(options.nodes, options.gpus, words)
        with redirect_errors(log) as terminal:
            return run_stage(options, log, terminal)
    except (UserError, OSError) as error:  # processes cannot be started, or the log is not writable
        problem = expected_error(error, log)
        if problem is None:
            raise
        return print_error(problem, sys.stderr)


def run_stage(options: argparse.Namespace, log: Path | None, terminal: TextIO) -> int:
    """Run a subcommand and return the exit code.

    ``log`` is the file to which standard error is redirected, or None. ``terminal`` is the original
    standard error. An unexpected error is printed to the log with its traceback, or raised if there
    is no log.
    """
    try:
        outputs = getattr(options, "output", None) or []
        check_writable([outputs] if isinstance(outputs, Path) else outputs)
        with interruptible():
            call(options)
    except KeyboardInterrupt as interruption:
        numbers = [number for number in interruption.args if isinstance(number, signal.Signals)]
        number = (numbers or [signal.SIGINT])[0]
        with suppress(OSError):  # the terminal may be closed
            print(f"scsigmoid: stopped by {number.name}", file=sys.stderr, flush=True)
        return 128 + number
    except Exception as error:
        problem = expected_error(error, log)
        if problem is not None:
            return print_error(problem, terminal)
        if log is None:
            raise
        print_error(f"unexpected {type(error).__name__}: {error}; see {log}", terminal)
        with suppress(OSError):
            traceback.print_exc()
        return 1
    return 0


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM and SIGHUP, too, so that temporary files are removed.

    Its argument is the signal. A signal that is ignored (``nohup``) stays ignored.
    """
    last = -math.inf

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last
        # Batch systems send a signal to a job and to its processes, which forward it. A repeated
        # signal should not interrupt the removal of temporary files.
        if time.monotonic() - last > SECONDS_TO_CLEAN:
            last = time.monotonic()
            raise KeyboardInterrupt(signal.Signals(number))

    # Python handles signals in its main thread only. Processes of torchrun end immediately, because
    # they may wait for each other.
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGHUP) if is_main and "RANK" not in os.environ else ()
    defaults = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in defaults:
            signal.signal(number, interrupt)
        yield
    finally:
        for number in defaults:
            signal.signal(number, signal.SIG_DFL)


def check_distinct(options: argparse.Namespace) -> None:
    """Raise a UserError if a file or folder to write is also another argument, such as an input."""
    names: dict[Any, list[str]] = {}  # names of arguments, by file
    for name, value in vars(options).items():
        for path in value if isinstance(value, list) else [value]:
            if name == "checkpoint":  # of `embed`: a path or the name of a packaged model
                path = Path(path)
            if not isinstance(path, Path):
                continue
            if path.exists():
                status = path.stat()
                key: Any = (status.st_dev, status.st_ino)
            elif name in TARGETS:
                key = os.path.realpath(path)
            else:  # a missing input, which the stage reports
                continue
            same = names.setdefault(key, [])
            same.append(name)
            targets = [name for name in same if name in TARGETS]
            if targets and len(same) > 1:
                inputs = [name for name in same if name not in TARGETS]
                problem = f"is the input itself ({inputs[0]})" if inputs else "is named twice"
                raise UserError(f"{path}: {problem}; give another path for {targets[0]}")


def expected_error(error: Exception, log: Path | None) -> str | None:
    """Return the message of an error that a user can correct, or None for other errors."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        # Errors of stages have a file name. An error without a file name is from writing the log.
        parts = (error.filename or log, error.strerror)
        remedy = REMEDIES.get(error.errno or 0)
        return ": ".join(str(part) for part in parts if part) + (f"; {remedy}" if remedy else "")
    return None


def start_log(path: Path, stage: str) -> None:
    """Append a first line to a log, so that the log is not empty if the job is killed.

    Snakemake removes the log before each attempt. Therefore ``path`` links to a hidden file next to
    it, which keeps the lines of all attempts.
    """
    now = datetime.now()
    job = next(filter(None, map(os.environ.get, JOB_IDS)), None)
    place = socket.gethostname() + (f", job {job}" if job else "")
    line = f"{now:%Y-%m-%d %H:%M:%S} scsigmoid {__version__} {stage} on {place}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() and not path.is_symlink():
        path.symlink_to(f".{path.name}")
    with path.open("ab", buffering=0) as log, suppress(OSError):  # the disk may be full
        log.write(line.encode())
    if LINES in os.environ:
        # Not print(), which may write the line break separately, after a line of another job.
        sys.stderr.write(f"{now:%H:%M:%S} {stage}, log: {path}\n")


@contextmanager
def redirect_errors(path: Path | None) -> Iterator[TextIO]:
    """Redirect standard error, including that of C libraries, to a log. Yield the original."""
    if path is None:
        yield sys.stderr
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.open("a", encoding="utf-8")
    sys.stderr.flush()
    original = os.dup(2)
    with log:
        os.dup2(log.fileno(), 2)
    try:
        with os.fdopen(os.dup(original), "w") as terminal:
            if SILENT not in os.environ:
                progress.terminal = terminal
            yield terminal
    finally:
        progress.terminal = None
        try:
            sys.stderr.flush()
        except OSError:  # the disk is full: do not print the rest on the terminal
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 2)
            sys.stderr.flush()
        os.dup2(original, 2)
        os.close(original)


def print_error(message: str, terminal: TextIO) -> int:
    """Print one line on the terminal and, if possible, in the log. Return exit code 1."""
    line = f"scsigmoid: error: {shortened(' '.join(message.split()))}"
    print(line, file=terminal, flush=True)
    if terminal is not sys.stderr:
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)
    return 1


def make_parser() -> argparse.ArgumentParser:
    summary = "Stages of the sigmoid-attention experiment; `snakemake` runs them all."
    top = argparse.ArgumentParser(prog="scsigmoid", description=summary)
    top.add_argument("--version", action="version", version=f"scsigmoid {__version__}")
    stages = top.add_subparsers(title="stages", metavar="STAGE", required=True)
    for name in STAGES:
        add_stage(stages, name)
    return top
