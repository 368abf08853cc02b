"""Run work in a forked process, which does not import everything again."""

import os
import sys
from collections.abc import Callable


def forked(work: Callable[[], int]) -> int:
    """Return the exit code of a forked process, or minus the signal that ended it."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            if "torch" in sys.modules:  # OpenMP's other threads do not exist in a forked process
                sys.modules["torch"].set_num_threads(1)
            code = work()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
