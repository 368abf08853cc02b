"""Commands whose stage does something else."""

import sys

PROGRAM = """
import os, sys
from scsigmoid import cli, progress
cli.call = lambda options: {action}
sys.exit(cli.main(sys.argv[1:]))
"""


def command_that(action: str) -> list[str]:
    """Return a command whose subcommand evaluates a Python expression."""
    code = PROGRAM.replace("{action}", action)
    return [sys.executable, "-c", code, "lengths", "--tokens", "t", "--output", "o"]
