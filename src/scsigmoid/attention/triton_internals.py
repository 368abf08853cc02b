"""The private parts of Triton that attention uses, with the reason (Gluon's: ``hopper_gluon``)."""

from typing import Any

from triton import knobs
from triton.runtime.driver import driver


def launch_compiled(
    compiled: Any, device: int, programs: tuple[int, int], arguments: tuple[Any, ...]
) -> None:
    """Launch a compiled kernel on the current stream of ``device``.

    ``compiled[programs](*arguments)`` is the public way. It looks up the device and prepares
    arguments for a profiler's hooks at each launch, although there is rarely a profiler. For short
    batches launches take longer than the kernels.

    Args:
        compiled: result of the kernel's first launch.
        device: index of the current device.
        programs: the first two dimensions of the grid.
        arguments: run-time and compile-time arguments in the order of the kernel's signature.
    """
    hooks = knobs.runtime
    if hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls:
        compiled[(*programs, 1)](*arguments)
        return
    stream = driver.active.get_current_stream(device)
    compiled.run(
        *(*programs, 1, stream, compiled.function, compiled.packed_metadata, None, None, None),
        *arguments,
    )
