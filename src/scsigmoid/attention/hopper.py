"""Whether the Hopper kernels can run here: the GPU, Triton's version, and Gluon's private parts."""

import functools
import importlib.metadata
import importlib.util

import torch

#: Versions of Triton that the kernels were compiled and tested with.
TRITON = ("3.6", "3.7")
_KNOWN = f"versions known to work: {', '.join(TRITON)}"
CAPABILITY = (9, 0)


@functools.cache
def missing() -> str | None:
    """What Triton lacks for the kernels, in one line; None if it lacks nothing."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed; install triton >= 3.6"
    version = importlib.metadata.version("triton")
    try:
        from triton._C.libtriton import gluon_ir, ir
        from triton.experimental.gluon.language import _core
        from triton.experimental.gluon.language.nvidia import hopper
    except ImportError as error:
        return f"Gluon of triton {version} cannot be imported ({error}); {_KNOWN}"
    needed = (
        (hopper, "warpgroup_mma_init"),
        (_core, "builtin"),
        (_core.shared_memory_descriptor, "_reinterpret"),
        (ir, "DESCRIPTOR_REDUCE_KIND"),
        (gluon_ir.GluonOpBuilder, "create_async_tma_reduce"),
    )
    absent = [name for owner, name in needed if not hasattr(owner, name)]
    if absent:
        return f"triton {version} lacks {', '.join(absent)}, which is private to Gluon; {_KNOWN}"
    return None


def unavailable(device: torch.device) -> str | None:
    """Why the Hopper kernels cannot run on a device, in one line; None if they can."""
    if device.type != "cuda":
        return f"it needs a CUDA GPU and the device is {device.type!r}"
    capability = torch.cuda.get_device_capability(device)
    if capability != CAPABILITY:
        return f"this GPU has compute capability {capability[0]}.{capability[1]}, not 9.0"
    return missing()
