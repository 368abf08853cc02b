"""Versions of Triton and head dimensions that the Hopper kernels support."""

import importlib.util

#: Versions of Triton that the kernels were tested with. With another one, `selfcheck` checks them.
TRITON = ("3.6", "3.7")
#: Head dimensions.
DIMENSIONS = (64, 128)


def unavailable() -> str:
    """Return why the kernels cannot run on a GPU of compute capability 9.0, or "" if they can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed; install triton >= 3.6"
    return ""
