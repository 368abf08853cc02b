"""Inputs of attention that other attention functions accept."""

import re

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from scsigmoid.attention import (
    choose_backend,
    sigmoid_attention,
    sigmoid_attention_padded,
    softmax_attention,
)
from scsigmoid.errors import UserError

LENGTHS = torch.tensor([0, 3, 8], dtype=torch.int32)
MIXED = [
    (torch.float32, torch.float32, torch.bfloat16),
    (torch.bfloat16, torch.float32, torch.float32),
    (torch.float16, torch.bfloat16, torch.float32),
]


def inputs(dtypes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(8, 2, 16, generator=generator).to(dtype) for dtype in dtypes]


@pytest.mark.parametrize("dtypes", MIXED)
@pytest.mark.parametrize("attention", [sigmoid_attention, softmax_attention])
def test_autocast_casts_inputs_of_several_dtypes(attention, dtypes):
    tensors = [x.requires_grad_() for x in inputs(dtypes)]
    expected = attention(*(x.bfloat16() for x in tensors), LENGTHS, 5)
    with torch.autocast("cpu", torch.bfloat16):
        result = attention(*tensors, LENGTHS, 5)
        (peer,) = scaled_dot_product_attention(*(x[None].transpose(1, 2) for x in tensors))
    assert result.dtype == peer.dtype == torch.bfloat16
    assert torch.equal(result, expected)
    result.sum().backward()
    assert [x.grad.dtype for x in tensors] == list(dtypes)


def test_autocast_casts_padded_inputs_of_several_dtypes():
    tensors, lengths = [x.unflatten(0, (2, 4)) for x in inputs(MIXED[0])], torch.tensor([4, 2])
    expected = sigmoid_attention_padded(*(x.bfloat16() for x in tensors), lengths)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(sigmoid_attention_padded(*tensors, lengths), expected)


def test_several_dtypes_without_autocast_are_an_error():
    with pytest.raises(TypeError, match="v: dtype"):
        sigmoid_attention(*inputs(MIXED[0]), LENGTHS, 5)


@pytest.mark.parametrize("requested", ["hopper", "triton"])
def test_the_advised_backend_runs(requested):
    with pytest.raises(UserError, match="CUDA GPU") as error:
        choose_backend("sigmoid", requested, "cpu")
    advised = re.findall(r"'(\w+)'", str(error.value).rpartition(";")[2])
    assert set(advised) == {"reference", "auto"}
    for backend in advised:
        sigmoid_attention(*inputs([torch.float32] * 3), LENGTHS, 5, backend=backend)
