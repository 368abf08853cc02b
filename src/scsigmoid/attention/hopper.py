"""Requirements of the Hopper kernels: tested versions of Triton, supported head dimensions."""

import importlib.util

#: Tested versions of Triton. With other versions, `selfcheck` checks the kernels.
TRITON = ("3.6", "3.7", "3.8", "3.9")
#: Supported head dimensions. Tiles have 64 or 128 columns, zeros from the head dimension on. At 32
#: the Triton kernels are as fast (docs/measurements/h100/options.csv).
DIMENSIONS = (64, 96, 128)


def unavailable() -> str:
    """Return why the kernels cannot run on a GPU of compute capability 9.0, or "" if they can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed; install triton >= 3.6"
    return ""
