"""Addresses and bounds of descriptors, and repeated launches of a kernel."""

from types import SimpleNamespace
from unittest.mock import MagicMock, call

import pytest
import torch
from triton import knobs

from scsigmoid.attention import launching, triton_internals
from scsigmoid.attention.launching import WRAP, describe, is_describable


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
