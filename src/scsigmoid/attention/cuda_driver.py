"""Kernel launches by the CUDA driver itself, for which all but a few values are prepared once.

Triton's launcher encodes the tensor maps (TMA descriptors) of a launch, converts dozens of Python
numbers, and asks the driver about each pointer. For a short batch this takes several times as long
as the kernel. A :class:`PreparedLaunch` stores the parameters of a compiled kernel in memory. A
launch writes pointers and numbers to this memory, replaces the addresses in the tensor maps, and
calls ``cuLaunchKernelEx``.

Nothing here is needed for correct results: :func:`prepare` returns None if Triton or the driver is
not as expected, and :func:`scsigmoid.attention.launching.launch` then uses Triton's launcher.
"""

import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from scsigmoid.attention.triton_internals import Parameters, read_parameters

#: Bytes and alignment of a ``CUtensorMap``.
_MAP_BYTES = 128
#: ``CUtensorMapDataType`` of an element.
_MAP_TYPES = {torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}
#: ``CUlaunchConfig``: grid, block, shared memory, stream, attributes and their number.
_CONFIGURATION = "@7I4xQQI4x"
#: Formats of :mod:`struct` for the types of Triton's signatures. Pointers: Q.
_FORMATS = {"i32": "i", "u32": "I", "i64": "q", "u64": "Q", "fp32": "f"}

#: A tensor of a descriptor, and rows and columns of a tile.
Tile = tuple[Tensor, int, int]
#: Returns shape, strides and block shape of a tile's descriptor (:func:`launching.describe`).
Describe = Callable[[Tensor, int, int], tuple[list[Any], list[Any], list[Any]]]
#: Dimensions of each descriptor.
_RANK = 5


class Driver:
    """Functions of the CUDA driver that return 0 if they succeed."""

    def __init__(self) -> None:
        name = "libcuda.so.1"
        # PyDLL holds Python's lock. Only a launch may wait, so only a launch releases it.
        quick, library = ctypes.PyDLL(name), ctypes.CDLL(name)
        self.launch = library.cuLaunchKernelEx
        self.launch.argtypes = [ctypes.c_void_p] * 4
        self.replace_address = quick.cuTensorMapReplaceAddress
        self.replace_address.argtypes = [ctypes.c_void_p] * 2
        self.encode = quick.cuTensorMapEncodeTiled
        integers, pointers = [ctypes.c_int] * 4, [ctypes.c_void_p] * 5
        self.encode.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, *pointers, *integers]
        self.parameter_info = quick.cuFuncGetParamInfo
        self.parameter_info.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_void_p] * 2]

    def parameter_sizes(self, function: int) -> list[int]:
        """Return the bytes of each parameter of a kernel."""
        sizes: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        places = ctypes.addressof(offset), ctypes.addressof(size)
        while self.parameter_info(function, len(sizes), *places) == 0:
            sizes.append(size.value)
        return sizes


@functools.cache
def load_driver() -> Driver | None:
    """Return the driver, or None if it is not installed or older than CUDA 12.4."""
    try:
        return Driver()
    except (OSError, AttributeError):
        return None


class PreparedLaunch:
    """The parameters of a compiled kernel, ready for launches on one device.

    The dtype, heads and head dimension of each descriptor's tensor are equal in all launches.
    """

    def __init__(
        self,
        driver: Driver,
        compiled: Any,
        parameters: Parameters,
        tiles: Sequence[Tile],
        describe: Describe,
    ) -> None:
        self.driver, self.compiled = driver, compiled  # `compiled` unloads the kernel at its end
        self.function, self.describe = compiled.function, describe
        self.descriptors = parameters.descriptors
        self.block = (1, 32 * parameters.warps, 1, 1, parameters.shared_bytes)
        # Threads share the memory. The backward pass runs in a thread of PyTorch.
        self.lock = threading.Lock()
        # Index of each scalar among the run-time arguments, and whether it is a pointer.
        self.scalars = [
            (index, kind.startswith("*"))
            for index, kind in zip(parameters.indices, parameters.scalars, strict=True)
        ]
        formats = [_FORMATS.get(kind, "Q") for kind in parameters.scalars]
        formats += "QQ"  # null pointers, because the kernel does not use scratch memory
        self.values = struct.Struct(_CONFIGURATION + "".join(formats))
        self.memory = ctypes.create_string_buffer(self.values.size)
        count = len(tiles)
        self.map_memory = ctypes.create_string_buffer((count + 1) * _MAP_BYTES)
        first_map = -(-ctypes.addressof(self.map_memory) // _MAP_BYTES) * _MAP_BYTES
        self.maps = [first_map + i * _MAP_BYTES for i in range(count)]
        self.shapes = (ctypes.c_int32 * (count * _RANK))()
        self.strides = (ctypes.c_int64 * (count * _RANK))()
        # Address and strides of each descriptor's tensor.
        self.known: list[tuple[int, tuple[int, ...]]] = [(0, ())] * count
        places: list[int] = []
        for index, place in enumerate(self.maps):
            places.append(place)
            for array, size in ((self.shapes, 4), (self.strides, 8)):
                start = ctypes.addressof(array) + index * _RANK * size
                places += [start + i * size for i in range(_RANK)]
        text, base = _CONFIGURATION, ctypes.addressof(self.memory)
        for letter in formats:
            text += letter
            places.append(base + struct.calcsize(text) - struct.calcsize(f"@{letter}"))
        self.parameters = (ctypes.c_void_p * len(places))(*places)
        self.places = base, ctypes.addressof(self.parameters)

    def _encode(self, index: int, tile: Tile) -> bool:
        """Write a descriptor's tensor map, shape and strides as Triton does.

        Return False if the driver refuses them.
        """
        tensor, properties = tile[0], self.descriptors[index]
        shape, strides, _ = self.describe(*tile)
        part = slice(index * _RANK, (index + 1) * _RANK)
        self.shapes[part], self.strides[part] = shape, strides
        size = tensor.element_size()
        arrays = (
            (ctypes.c_uint64 * _RANK)(*reversed(shape)),
            (ctypes.c_uint64 * _RANK)(*(size * x for x in reversed(strides[:-1]))),
            (ctypes.c_uint32 * _RANK)(*reversed(properties["block_size"])),
            (ctypes.c_uint32 * _RANK)(*[1] * _RANK),
        )
        # Not interleaved, 128 bytes are fetched to L2, and elements out of bounds are 0.
        options = (0, properties["swizzle"], 2, 0)
        pointers = (tensor.data_ptr(), *(ctypes.addressof(x) for x in arrays))
        return not self.driver.encode(
            self.maps[index], _MAP_TYPES[tensor.dtype], _RANK, *pointers, *options
        )

    def __call__(
        self,
        stream: int,
        programs: tuple[int, int],
        tiles: Sequence[Tile],
        arguments: Sequence[Any],
    ) -> bool:
        """Launch the kernel. Return False if this failed, and the kernel was not launched.

        Args:
            stream: handle of the stream.
            programs: the first two dimensions of the grid.
            tiles: tensors that are describable (:func:`launching.is_describable`).
            arguments: the run-time arguments after the descriptors.
        """
        values = [arguments[i].data_ptr() if is_ptr else arguments[i] for i, is_ptr in self.scalars]
        with self.lock:
            driver, known = self.driver, self.known
            for index, tile in enumerate(tiles):
                address, strides = tile[0].data_ptr(), tile[0].stride()
                old_address, old_strides = known[index]
                if address == old_address and strides == old_strides:
                    continue
                known[index] = (0, ())
                if strides == old_strides:
                    is_done = not driver.replace_address(self.maps[index], address)
                else:
                    is_done = self._encode(index, tile)
                if not is_done:
                    return False
                known[index] = (address, strides)
            try:
                self.values.pack_into(
                    self.memory, 0, *programs, *self.block, stream, 0, 0, *values, 0, 0
                )
            except struct.error:  # an integer is too large for its type
                return False
            configuration, parameters = self.places
            return not driver.launch(configuration, self.function, parameters, None)


def prepare(
    compiled: Any, tiles: Sequence[Tile], arguments: Sequence[Any], describe: Describe
) -> PreparedLaunch | None:
    """Prepare launches of a compiled kernel, or return None if its parameters are not as expected.

    ``tiles`` and ``arguments``: the kernel's run-time arguments, descriptors first.
    """
    driver = load_driver()
    parameters = read_parameters(compiled, len(tiles), len(arguments))
    if driver is None or parameters is None:
        return None
    sizes = [_MAP_BYTES, *[4] * _RANK, *[8] * _RANK] * len(tiles)
    sizes += [struct.calcsize(_FORMATS.get(kind, "Q")) for kind in parameters.scalars]
    if driver.parameter_sizes(compiled.function) != [*sizes, 8, 8]:
        return None
    return PreparedLaunch(driver, compiled, parameters, tiles, describe)
