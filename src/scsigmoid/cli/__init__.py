"""The command line: one subcommand a stage; the workflow's rules call it, and so can people.

``--settings`` takes JSON: the settings that the stage depends on, keyed by their dotted names (see
``scsigmoid.config.plan``).  A user's mistake ends in one line and exit code 1.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from scsigmoid import __version__
from scsigmoid.cli import benchmarks, corpus, evaluation, paper, plan, tokens, training
from scsigmoid.cli.arguments import Stages
from scsigmoid.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Returns:
        The exit code: 0, or 1 after an error, or 130 after an interruption.
    """
    options = parser().parse_args(arguments)
    if max(getattr(options, "gpus", 1), getattr(options, "nodes", 1)) > 1:
        from scsigmoid.training.launch import launch, launched

        if not launched():
            try:
                return launch(
                    options.nodes, options.gpus, sys.argv[1:] if arguments is None else arguments
                )
            except UserError as error:
                return complain(str(error), sys.stderr)
    with logged(own_log(options.log)) as terminal:
        try:
            options.run(options)
        except UserError as error:
            return complain(str(error), terminal)
        except OSError as error:
            # Disk full, no permission, a folder where a file should be: the system's words say it.
            if error.strerror is None:
                raise
            where = f"{error.filename}: " if error.filename else ""
            return complain(f"{where}{error.strerror}", terminal)
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            if options.log is None:
                raise
            traceback.print_exc()
            reason = f"unexpected {type(error).__name__}: {error}; see {own_log(options.log)}"
            return complain(reason, terminal)
    return 0


def own_log(path: Path | None) -> Path | None:
    """The log of this process: torchrun's processes beyond the first have files of their own."""
    rank = os.environ.get("RANK", "0")
    return path if path is None or rank == "0" else path.with_suffix(f".{rank}{path.suffix}")


@contextmanager
def logged(path: Path | None) -> Iterator[TextIO]:
    """Send what is written to standard error, also by libraries, to a log file.

    Yields:
        What standard error was before, for the one line that a person should see.
    """
    if path is None:
        yield sys.stderr
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    before = os.dup(2)
    with path.open("w", encoding="utf-8") as log:
        os.dup2(log.fileno(), 2)
    try:
        with os.fdopen(os.dup(before), "w") as terminal:
            yield terminal
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


def complain(message: str, terminal: TextIO) -> int:
    """Print one line on standard error, and in the log if there is one."""
    line = f"scsigmoid: error: {' '.join(message.split())}"
    print(line, file=sys.stderr, flush=True)
    if terminal is not sys.stderr:
        print(line, file=terminal, flush=True)
    return 1


def parser() -> argparse.ArgumentParser:
    """All subcommands."""
    top = argparse.ArgumentParser(
        prog="scsigmoid",
        description="Stages of the sigmoid-attention experiment; `snakemake` runs them all.",
    )
    top.add_argument("--version", action="version", version=f"scsigmoid {__version__}")
    stages = Stages(top)
    for group in (plan, corpus, tokens, training, evaluation, benchmarks, paper):
        group.add(stages)
    return top
