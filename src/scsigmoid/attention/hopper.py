"""Whether this version of Triton has what the Hopper kernels need."""

import importlib.metadata
import importlib.util

#: Versions of Triton that the kernels were compiled and tested with.
TRITON = ("3.6", "3.7")


def unavailable() -> str:
    """Return why the kernels cannot run on a GPU of compute capability 9.0, or "" if they can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed; install triton >= 3.6"
    version = importlib.metadata.version("triton")
    known = f"versions known to work: {', '.join(TRITON)}"
    try:
        from triton._C.libtriton import gluon_ir, ir
        from triton.experimental.gluon.language import _core
        from triton.experimental.gluon.language.nvidia import hopper
    except ImportError as error:
        return f"Gluon of triton {version} cannot be imported ({error}); {known}"
    private = (
        (hopper, "warpgroup_mma_init"),
        (_core, "builtin"),
        (_core.shared_memory_descriptor, "_reinterpret"),
        (ir, "DESCRIPTOR_REDUCE_KIND"),
        (gluon_ir.GluonOpBuilder, "create_async_tma_reduce"),
    )
    missing = [name for owner, name in private if not hasattr(owner, name)]
    if missing:
        return f"triton {version} lacks {', '.join(missing)}, which is private to Gluon; {known}"
    return ""
