"""Addresses and bounds of descriptors, and repeated launches of a kernel."""

import ctypes
import struct
from types import SimpleNamespace
from unittest.mock import MagicMock, call

import pytest
import torch
from triton import knobs

from scsigmoid.attention import cuda_driver, launching, triton_internals
from scsigmoid.attention.launching import WRAP, describe, is_describable

Q = torch.zeros(9, 3, 128, dtype=torch.bfloat16)


def address(tensor, coordinates):
    """Return the address of coordinates, and whether they are in the shape of the descriptor."""
    shape, strides, block = describe(tensor, 64, 128)
    assert block == [1, 1, 64, 1, 128]
    offset = sum(a * b for a, b in zip(coordinates, strides, strict=True))
    inside = all(0 <= a < size for a, size in zip(coordinates, shape, strict=True))
    return (tensor.data_ptr() + offset * tensor.element_size()) % 2**64, inside


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_only_rows_of_the_sequence_are_in_bounds(dtype):
    # Slices of a fused projection: rows are not contiguous.
    _, k, _ = torch.zeros(50, 3, 4, 32, dtype=dtype).unbind(1)
    for start, end in ((0, 7), (7, 8), (8, 50)):
        rows = end - start
        for row in range(rows + 70):
            for head in (0, 3):
                place, inside = address(k, (WRAP, end, WRAP - rows + row, head, 5))
                assert inside == (row < rows)
                if inside:
                    assert place == k[start + row, head, 5:].data_ptr()


def test_columns_past_the_head_dimension_are_out_of_bounds():
    tensor = torch.zeros(9, 2, 96, dtype=torch.bfloat16)
    assert address(tensor, (WRAP, 9, WRAP - 9, 1, 95))[1]
    assert not address(tensor, (WRAP, 9, WRAP - 9, 1, 96))[1]
    assert not address(tensor, (WRAP, 9, WRAP - 9, 2, 0))[1]


def test_describable_tensors():
    tensor = torch.zeros(10, 4, 64, dtype=torch.bfloat16)
    assert is_describable(tensor)
    assert is_describable(tensor[1:, 1:])
    assert not is_describable(tensor[:0])
    assert not is_describable(tensor.transpose(1, 2))
    assert not is_describable(tensor[:, :1].expand(10, 4, 64))
    # Rows that start 8 bytes after an aligned address, and rows of 8 bytes.
    assert not is_describable(tensor.flatten()[4:2308].view(9, 4, 64))
    assert not is_describable(torch.zeros(10, 4, 4, dtype=torch.bfloat16))


SIGNATURE = {
    "tile": "tensordesc<bf16[1,1,64,1,128]>",
    "pointer": "*i32",
    "absent": "constexpr",
    "count": "i32",
    "scale": "fp32",
    "BLOCK": "constexpr",
}
#: The bytes of each parameter: tensor map, five sizes, five strides, others, scratch memory.
SIZES = [128, *[4] * 5, *[8] * 5, 8, 4, 4, 8, 8]


class SimulatedDriver:
    """Functions of a CUDA driver that record launches. Tensor maps contain two numbers."""

    def __init__(self):
        self.launches, self.encoded, self.code = [], 0, 0

    def parameter_sizes(self, function):
        return SIZES

    def encode(self, place, dtype, rank, address, dims, strides, box, ones, *options):
        self.encoded += 1
        first_stride = ctypes.c_uint64.from_address(strides + 16).value  # of tokens, in bytes
        ctypes.memmove(place, struct.pack("QQ", address, first_stride), 16)
        return 0

    def replace_address(self, place, address):
        ctypes.memmove(place, struct.pack("Q", address), 8)
        return 0

    def launch(self, configuration, function, places, extra):
        fields = struct.unpack("7I4xQQI4x", ctypes.string_at(configuration, 56))
        pointers = struct.unpack(f"{len(SIZES)}Q", ctypes.string_at(places, 8 * len(SIZES)))
        pairs = zip(pointers, SIZES, strict=True)
        values = [ctypes.string_at(pointer, size) for pointer, size in pairs]
        self.launches.append((function, fields, values))
        return self.code


def compiled_kernel(**changes):
    """Return what Triton says of a compiled kernel."""
    tile = {"swizzle": 3, "block_size": [1, 1, 64, 1, 64], "fp4_padded": False}
    unused = ("global_scratch_size", "profile_scratch_size", "launch_pdl")
    metadata = dict.fromkeys((*unused, "launch_cooperative_grid"), 0)
    metadata |= {"num_ctas": 1, "num_warps": 9, "shared": 1000, "tensordesc_meta": [tile]}
    source = SimpleNamespace(signature=SIGNATURE)
    metadata = SimpleNamespace(**(metadata | changes))
    return SimpleNamespace(metadata=metadata, src=source, function=77)


def test_prepared_launches_pass_the_parameters_of_each_call(monkeypatch):
    driver = SimulatedDriver()
    monkeypatch.setattr(cuda_driver, "load_driver", lambda: driver)
    pointer = torch.zeros(4, dtype=torch.int32)
    narrow, other = (torch.zeros(9, 3, 128, dtype=torch.bfloat16) for _ in range(2))
    wide = torch.zeros(9, 2, 3, 128, dtype=torch.bfloat16)[:, 1]
    arguments = (pointer, None, 5, 0.25)
    prepared = cuda_driver.prepare(compiled_kernel(), [(narrow, 64, 128)], arguments, describe)
    for tensor, encoded in ((narrow, 1), (narrow, 1), (other, 1), (wide, 2), (other, 3)):
        assert prepared(123, (7, 2), [(tensor, 64, 128)], (pointer, None, 6, 0.5))
        assert driver.encoded == encoded
        function, fields, values = driver.launches[-1]
        assert function == 77
        assert fields == (7, 2, 1, 32 * 9, 1, 1, 1000, 123, 0, 0)
        assert struct.unpack("QQ", values[0][:16]) == (tensor.data_ptr(), 2 * tensor.stride(0))
        shape, strides, _ = describe(tensor, 64, 128)
        assert [int.from_bytes(x, "little") for x in values[1:6]] == shape
        assert [int.from_bytes(x, "little") for x in values[6:11]] == strides
        assert struct.unpack("QifQQ", b"".join(values[11:])) == (pointer.data_ptr(), 6, 0.5, 0, 0)


def test_launches_that_fail_are_left_to_triton(monkeypatch):
    driver = SimulatedDriver()
    monkeypatch.setattr(cuda_driver, "load_driver", lambda: driver)
    tensor, arguments = torch.zeros(9, 3, 128, dtype=torch.bfloat16), (Q, None, 5, 0.25)
    prepared = cuda_driver.prepare(compiled_kernel(), [(tensor, 64, 128)], arguments, describe)
    assert not prepared(1, (1, 1), [(tensor, 64, 128)], (Q, None, 2**31, 0.25))
    assert driver.launches == []
    driver.code = 201  # no context in this thread
    assert not prepared(1, (1, 1), [(tensor, 64, 128)], arguments)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_ctas": 2},
        {"launch_pdl": True},
        {"launch_cooperative_grid": True},
        {"global_scratch_size": 8},
        {"profile_scratch_size": 8},
        {"shared": 2**18},
        {"tensordesc_meta": None},
        {"tensordesc_meta": [{"fp4_padded": True}]},
    ],
)
def test_unexpected_kernels_are_left_to_triton(monkeypatch, changes):
    monkeypatch.setattr(cuda_driver, "load_driver", SimulatedDriver)
    tiles, arguments = [(Q, 64, 128)], (Q, None, 5, 0.25)
    assert cuda_driver.prepare(compiled_kernel(), tiles, arguments, describe) is not None
    assert cuda_driver.prepare(compiled_kernel(**changes), tiles, arguments, describe) is None
    monkeypatch.setattr(SimulatedDriver, "parameter_sizes", lambda *_: SIZES[:-1])
    assert cuda_driver.prepare(compiled_kernel(), tiles, arguments, describe) is None
    monkeypatch.setattr(cuda_driver, "load_driver", lambda: None)
    assert cuda_driver.prepare(compiled_kernel(), tiles, arguments, describe) is None


@pytest.fixture
def kernel(monkeypatch):
    """Return a simulated kernel, which records its launches."""
    active = SimpleNamespace(get_current_stream=lambda device: f"stream of {device}")
    monkeypatch.setattr(triton_internals, "driver", SimpleNamespace(active=active))
    monkeypatch.setattr(launching, "_compiled", {})
    return MagicMock()


def test_one_compilation_for_each_dtype_constant_and_device(kernel):
    first = kernel.__getitem__.return_value
    later = first.return_value.run
    cases = ((0, 64, "bf16"), (1, 64, "bf16"), (0, 128, "bf16"), (0, 64, "fp16"))
    for count, (device, block, key) in enumerate(cases, 1):
        for value in (1.0, 2.0):
            launching.launch(kernel, device, (5, 7), ("x", value), {"BLOCK": block}, key=key)
        assert first.call_count == later.call_count == count
        first.assert_called_with("x", 1.0, BLOCK=block, enable_fp_fusion=True)
        assert later.call_args.args[:4] == (5, 7, 1, f"stream of {device}")
        assert later.call_args.args[-3:] == ("x", 2.0, block)


def test_profiler_sees_every_launch(kernel):
    compiled = kernel.__getitem__.return_value.return_value
    launching.launch(kernel, 0, (2, 1), ("x",), {"BLOCK": 64}, key=None)
    for hook in (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook):
        hook.add(print)
        try:
            launching.launch(kernel, 0, (2, 1), ("x",), {"BLOCK": 64}, key=None)
        finally:
            hook.remove(print)
    assert compiled.__getitem__.call_args_list == [call((2, 1, 1))] * 2
    assert compiled.__getitem__.return_value.call_args_list == [call("x", 64)] * 2
    compiled.run.assert_not_called()
