"""Addresses and bounds of ragged descriptors, by the arithmetic that the hardware does."""

import pytest
import torch

from scsigmoid.attention.ragged import WRAP, describable, described


def address(tensor, coordinates):
    """What a descriptor's coordinates address, and whether they are inside its shape."""
    shape, strides, block = described(tensor, 64, 128)
    assert block == [1, 1, 64, 1, 128]
    offset = sum(a * b for a, b in zip(coordinates, strides, strict=True))
    inside = all(0 <= a < size for a, size in zip(coordinates, shape, strict=True))
    return (tensor.data_ptr() + offset * tensor.element_size()) % 2**64, inside


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rows_of_a_sequence_are_addressed_and_others_are_outside(dtype):
    # Slices of a fused projection: tokens are further apart than they are long.
    _, k, _ = torch.zeros(50, 3, 4, 32, dtype=dtype).unbind(1)
    for start, end in ((0, 7), (7, 8), (8, 50)):
        rows = end - start
        for row in range(rows + 70):
            for head in (0, 3):
                place, inside = address(k, (WRAP, end, WRAP - rows + row, head, 5))
                assert inside == (row < rows)
                if inside:
                    assert place == k[start + row, head, 5:].data_ptr()


def test_columns_past_the_head_dimension_are_outside():
    tensor = torch.zeros(9, 2, 96, dtype=torch.bfloat16)
    assert address(tensor, (WRAP, 9, WRAP - 9, 1, 95))[1]
    assert not address(tensor, (WRAP, 9, WRAP - 9, 1, 96))[1]
    assert not address(tensor, (WRAP, 9, WRAP - 9, 2, 0))[1]


def test_what_can_be_described():
    tensor = torch.zeros(10, 4, 64, dtype=torch.bfloat16)
    assert describable(tensor)
    assert describable(tensor[1:, 1:])
    assert not describable(tensor[:0])
    assert not describable(tensor.transpose(1, 2))
    assert not describable(tensor[:, :1].expand(10, 4, 64))
    # 8 bytes off, and rows of 8 bytes.
    assert not describable(tensor.flatten()[4:2308].view(9, 4, 64))
    assert not describable(torch.zeros(10, 4, 4, dtype=torch.bfloat16))
