"""Launching a Triton kernel again without Triton looking at every argument again.

``kernel[grid](...)`` classifies each argument at each call, which for five-dimensional descriptors
takes longer than a short batch runs.  The first launch returns the compiled kernel; later ones
with the same key go to it directly.  The caller's key must tell apart whatever Triton would
compile differently: types, constants, and the alignment of pointers unless the kernel is declared
not to depend on it.
"""

from collections.abc import Hashable
from typing import Any

import torch

_compiled: dict[Hashable, Any] = {}


def launch(
    kernel: Any,
    programs: tuple[int, int],
    arguments: tuple[Any, ...],
    constants: dict[str, Any],
    key: Hashable,
    **options: int,
) -> None:
    """Launch ``kernel`` on the current device and stream.

    Args:
        kernel: a function of ``triton.jit`` or ``gluon.jit``.
        programs: the grid's first two dimensions.
        arguments: the run-time arguments, which come first in the kernel's signature.
        constants: the compile-time arguments, in the signature's order.
        key: what distinguishes this launch's types from others of the kernel.
        options: the compiler's options, such as ``maxnreg``.
    """
    found = (kernel.fn, torch.cuda.current_device(), key, *constants.values())
    compiled = _compiled.get(found)
    if compiled is None:
        _compiled[found] = kernel[programs](*arguments, **constants, **options)
    else:
        compiled[(*programs, 1)](*arguments, *constants.values())
