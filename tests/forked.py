"""Runs work in a process of its own, which need not import everything again."""

import os
import sys
from collections.abc import Callable


def forked(work: Callable[[], int]) -> int:
    """Exit code of a forked process that does some work; of a signal that ends it, minus that."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = work()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
