"""Private parts of Triton that attention uses. Private parts of Gluon: :mod:`hopper_gluon`."""

from typing import Any, NamedTuple

from triton import knobs
from triton.runtime.driver import driver


class Parameters(NamedTuple):
    """The parameters of a compiled kernel: descriptors, then all others, then scratch memory.

    Attributes:
        descriptors: for each descriptor, what its tensor map is encoded with.
        scalars: type of each other parameter, such as ``*bf16``, ``i32`` or ``fp32``.
        indices: index of each of ``scalars`` among the run-time arguments after the descriptors.
        warps: warps of a program.
        shared_bytes: dynamic shared memory of a program.
    """

    descriptors: list[dict[str, Any]]
    scalars: list[str]
    indices: list[int]
    warps: int
    shared_bytes: int


#: Types that :mod:`cuda_driver` passes to a kernel, besides pointers.
_NUMBERS = ("i32", "u32", "i64", "u64", "fp32")
#: Above this number of bytes of shared memory, a launch needs another attribute (triton 3.9).
_LARGEST_SHARED = 228 * 1024


def read_parameters(compiled: Any, descriptors: int, arguments: int) -> Parameters | None:
    """Return the parameters of a compiled kernel, or None if its launch needs more than these.

    Triton has no public description of the parameters. ``descriptors`` and ``arguments`` are the
    numbers of descriptors, which come first, and of all other run-time arguments.
    """
    try:
        metadata = compiled.metadata
        kinds = list(compiled.src.signature.values())[: descriptors + arguments]
        tiles = metadata.tensordesc_meta or []
        is_plain = (
            all(isinstance(kind, str) for kind in kinds)
            and metadata.num_ctas == 1
            and not metadata.launch_pdl
            and not metadata.launch_cooperative_grid
            and not metadata.global_scratch_size
            and not metadata.profile_scratch_size
            and metadata.shared <= _LARGEST_SHARED
            # Without entries, descriptors are passed as pointers.
            and len(tiles) == descriptors
            and all(kind.startswith("tensordesc<") for kind in kinds[:descriptors])
            and not any(tile["fp4_padded"] or tile.get("is_im2col") for tile in tiles)
        )
    except (AttributeError, KeyError, TypeError):
        return None
    if not is_plain:
        return None
    # An argument that is None is a constant of the compiled kernel, not a parameter.
    indices = [i for i, kind in enumerate(kinds[descriptors:]) if kind != "constexpr"]
    scalars = [kinds[descriptors + i] for i in indices]
    if not all(kind.startswith("*") or kind in _NUMBERS for kind in scalars):
        return None
    return Parameters(tiles, scalars, indices, metadata.num_warps, metadata.shared)


def current_stream(device: int) -> int:
    """Return the handle of the current stream of a device."""
    stream: int = driver.active.get_current_stream(device)
    return stream


def is_profiled() -> bool:
    """Return True if a profiler's hooks must see each launch."""
    hooks = knobs.runtime
    return bool(hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls)


def launch_compiled(
    compiled: Any, device: int, programs: tuple[int, int], arguments: tuple[Any, ...]
) -> None:
    """Launch ``compiled``, the result of a kernel's first launch, on the current stream.

    The public ``compiled[programs](*arguments)`` looks up the device and prepares arguments for a
    profiler's hooks at each launch, even without a profiler. For short batches this takes longer
    than the kernels. ``programs`` are the first two dimensions of the grid, and ``arguments``
    include the compile-time arguments.
    """
    if is_profiled():
        compiled[(*programs, 1)](*arguments)
        return
    # Without launch metadata and without hooks before and after the launch.
    options = (current_stream(device), compiled.function, compiled.packed_metadata, *[None] * 3)
    compiled.run(*programs, 1, *options, *arguments)
