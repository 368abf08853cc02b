"""The command line: one subcommand a stage; the workflow's rules call it, and so can people.

``--settings`` takes JSON: the settings that the stage depends on, keyed by their dotted names (see
``scsigmoid.config.plan``).  A user's mistake ends in one line and exit code 1.
"""

import argparse
import difflib
import errno
import os
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TextIO

from scsigmoid import __version__, progress
from scsigmoid.cli.arguments import STAGES
from scsigmoid.errors import UserError, shortened
from scsigmoid.files import check_writable

for module in ("pipeline", "evaluation", "benchmarks", "report"):
    import_module(f"scsigmoid.cli.{module}")  # their functions become subcommands

#: Set where nobody sees a job's standard error, as on a cluster: progress goes to the log alone.
SILENT = "SCSIGMOID_SILENT"
#: Set by the workflow: each job shows one line on the terminal when it starts.
LINES = "SCSIGMOID_LINES"
#: Variables that contain the id of a job on Slurm, PBS, LSF and Grid Engine.
JOB_IDS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
FULL, CLOSED = "free some space, and run again", "make it writable, or choose another place"
NO_CACHE = (
    "numba: neither the folder of the code nor the home folder can be written, so compiled code "
    "cannot be kept; set HOME or NUMBA_CACHE_DIR to a folder of your own that can"
)
TO_DO = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EROFS: CLOSED,
    errno.EACCES: CLOSED,
    errno.EPERM: CLOSED,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Returns:
        The exit code: 0, or 1 after an error, or 130 after an interruption.
    """
    given = sys.argv[1:] if arguments is None else arguments
    check_stage(given)
    options = parser().parse_args(arguments)
    log, rank = options.log, os.environ.get("RANK")
    if log is not None and rank not in (None, "0"):  # further processes of torchrun have their own
        log = log.with_suffix(f".{rank}{log.suffix}")
    try:
        if log is not None and rank is None:
            start_log(log, given[0])
        if max(getattr(options, "gpus", 1), getattr(options, "nodes", 1)) > 1:
            from scsigmoid.training.processes import launch, launched

            if not launched():
                return launch(options.nodes, options.gpus, given)
        with logged(log) as terminal:
            return run(options, log, terminal)
    except UserError as error:  # several processes cannot be started, or the log not be written
        return complain(str(error), sys.stderr)


def run(options: argparse.Namespace, log: Path | None, terminal: TextIO) -> int:
    """Run a subcommand; errors become a line on the terminal, unexpected ones a traceback too."""
    try:
        outputs = getattr(options, "output", None) or []
        check_writable([outputs] if isinstance(outputs, Path) else outputs)
        options.run(options)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        problem = described(error, log)
        if problem is None and log is None:
            raise
        complain(problem or f"unexpected {type(error).__name__}: {error}; see {log}", terminal)
        if problem is None:
            with suppress(OSError):
                traceback.print_exc()
        return 1
    return 0


def described(error: Exception, log: Path | None) -> str | None:
    """An error that a person can mend in one line: where, what, and what to do."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        # where it does not say where, it was the log: stages name the files that they write
        where = error.filename or log
        to_do = TO_DO.get(error.errno or 0)
        return f"{where}: " * bool(where) + f"{error.strerror}" + f"; {to_do}" * bool(to_do)
    return NO_CACHE if "no locator available" in str(error) else None  # numba's message


def start_log(path: Path, stage: str) -> None:
    """Append a first line to a log before anything else happens.

    A job that is killed has at least this line. Snakemake removes the log before each attempt, so
    it is a link to a hidden file next to it, which contains all attempts.
    """
    now = datetime.now()
    job = next(filter(None, map(os.environ.get, JOB_IDS)), None)
    place = socket.gethostname() + f", job {job}" * (job is not None)
    line = f"{now:%Y-%m-%d %H:%M:%S} scsigmoid {__version__} {stage} on {place}\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() and not path.is_symlink():
            path.symlink_to(f".{path.name}")
        with path.open("ab", buffering=0) as log, suppress(OSError):  # the disk may be full
            log.write(line.encode())
    except OSError as error:
        raise UserError(f"{described(error, path)}") from None
    if LINES in os.environ:
        print(f"{now:%H:%M:%S} {stage}, log: {path}", file=sys.stderr, flush=True)


@contextmanager
def logged(path: Path | None) -> Iterator[TextIO]:
    """Send what is written to standard error, also by libraries, to a log file.

    Yields:
        What standard error was before, for the one line that a person should see.
    """
    if path is None:
        yield sys.stderr
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        log = path.open("a", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{described(error, path)}") from None
    sys.stderr.flush()
    before = os.dup(2)
    with log:
        os.dup2(log.fileno(), 2)
    try:
        with os.fdopen(os.dup(before), "w") as terminal:
            if SILENT not in os.environ:
                progress.terminal = terminal
            yield terminal
    finally:
        progress.terminal = None
        try:
            sys.stderr.flush()
        except OSError:  # the disk is full: what does not fit shall not appear on the terminal
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 2)
            sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


def complain(message: str, terminal: TextIO) -> int:
    """Print one line on the terminal, and in the log if there is one with room for it."""
    line = f"scsigmoid: error: {shortened(' '.join(message.split()))}"
    print(line, file=terminal, flush=True)
    if terminal is not sys.stderr:
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)
    return 1


def check_stage(arguments: Sequence[str]) -> None:
    """Refuse an unknown subcommand; argparse would list all of them, without the nearest."""
    name = next((word for word in arguments if not word.startswith("-")), None)
    if name is not None and name not in STAGES:
        close = difflib.get_close_matches(name, STAGES, n=1)
        advice = f"did you mean {close[0]!r}?" if close else "see scsigmoid --help"
        parser().error(f"unknown stage {name!r}; {advice}")


def parser() -> argparse.ArgumentParser:
    """All subcommands."""
    top = argparse.ArgumentParser(
        prog="scsigmoid",
        description="Stages of the sigmoid-attention experiment; `snakemake` runs them all.",
    )
    top.add_argument("--version", action="version", version=f"scsigmoid {__version__}")
    stages = top.add_subparsers(title="stages", metavar="STAGE", required=True)
    for name, stage in STAGES.items():
        stage.add_to(stages, name)
    return top
