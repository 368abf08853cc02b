"""Launching a Triton kernel again without Triton looking at every argument again.

``kernel[grid](...)`` classifies each argument at each call, which for five-dimensional descriptors
takes longer than a short batch runs.  The first launch returns the compiled kernel; later ones
with the same key hand it to the driver directly.  The caller's key must tell apart whatever Triton
would compile differently: types, constants, and the alignment of pointers unless the kernel is
declared not to depend on it.
"""

import contextlib
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor
from triton import knobs
from triton.runtime.driver import driver

_compiled: dict[Hashable, Any] = {}
_HERE = contextlib.nullcontext()


def device_of(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Makes a tensor's GPU the current one, which Triton launches on, unless it is already."""
    if tensor.get_device() == torch.cuda.current_device():
        return _HERE
    return torch.cuda.device(tensor.device)


def launch(
    kernel: Any,
    device: int,
    programs: tuple[int, int],
    arguments: tuple[Any, ...],
    constants: dict[str, Any],
    key: Hashable,
    **options: int,
) -> None:
    """Launch ``kernel`` on the current stream of the current device.

    Args:
        kernel: a function of ``triton.jit`` or ``gluon.jit``.
        device: number of the current device.
        programs: the grid's first two dimensions.
        arguments: the run-time arguments, which come first in the kernel's signature.
        constants: the compile-time arguments, in the signature's order.
        key: what distinguishes this launch's types from others of the kernel.
        options: the compiler's options, such as ``maxnreg``.
    """
    found = (kernel.fn, device, key, *constants.values())
    compiled = _compiled.get(found)
    if compiled is None:
        _compiled[found] = kernel[programs](*arguments, **constants, **options)
        return
    hooks = knobs.runtime
    if hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls:
        # A profiler wants to know what is launched.
        compiled[(*programs, 1)](*arguments, *constants.values())
        return
    stream = driver.active.get_current_stream(device)
    compiled.run(
        *(*programs, 1, stream, compiled.function, compiled.packed_metadata, None, None, None),
        *arguments,
        *constants.values(),
    )
