"""Private parts of Triton that attention uses. Private parts of Gluon: :mod:`hopper_gluon`."""

from typing import Any

from triton import knobs
from triton.runtime.driver import driver


def launch_compiled(
    compiled: Any, device: int, programs: tuple[int, int], arguments: tuple[Any, ...]
) -> None:
    """Launch ``compiled``, the result of a kernel's first launch, on the current stream.

    The public ``compiled[programs](*arguments)`` looks up the device and prepares arguments for a
    profiler's hooks at each launch, even without a profiler. For short batches this takes longer
    than the kernels. ``programs`` are the first two dimensions of the grid, and ``arguments``
    include the compile-time arguments.
    """
    hooks = knobs.runtime
    if hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls:
        compiled[(*programs, 1)](*arguments)
        return
    stream = driver.active.get_current_stream(device)
    # Without launch metadata and without hooks before and after the launch.
    options = (stream, compiled.function, compiled.packed_metadata, None, None, None)
    compiled.run(*programs, 1, *options, *arguments)
