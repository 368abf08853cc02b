"""Inputs and right answers of the kernel benchmark."""

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from scsigmoid.benchmarks.cases import Case
from scsigmoid.benchmarks.inputs import Inputs, relative_error

CPU = torch.device("cpu")
CASE = Case("paper", 4, 2, 16, (13, 16, 9), 0.5)


@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_the_expected_values_are_autograds(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Blocks that do not divide the length.
    monkeypatch.setattr("scsigmoid.benchmarks.inputs.BLOCK_ROWS", 5)
    inputs = Inputs(CASE, CPU, torch.float32)
    # The longest sequence and the first head, the shortest and the last.
    for (sequence, head), found in zip([(1, 0), (2, 1)], inputs.expected(attention), strict=True):
        n = CASE.lengths[sequence]
        q, k, v, gradient = (x[sequence, :n, head].double() for x in inputs.padded)
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        if attention == "softmax":
            output = scaled_dot_product_attention(*(x[None] for x in leaves))[0]
        else:
            scores = leaves[0] @ leaves[1].T / 2
            output = (1 / (1 + torch.exp(-(scores - math.log(n))))) @ leaves[2]
        right = [output, *torch.autograd.grad(output, leaves, gradient)]
        for own, expected in zip(found, right, strict=True):
            torch.testing.assert_close(own, expected.detach(), rtol=1e-6, atol=1e-9)


def test_layouts_hold_the_same_cells() -> None:
    inputs = Inputs(CASE, CPU, torch.float32)
    for sequence, head in ((0, 1), (2, 0)):
        heads = [
            inputs.one_head(inputs.in_layout(layout)[0].detach(), layout, sequence, head)
            for layout in ("packed", "padded", "heads")
        ]
        assert len(heads[0]) == CASE.lengths[sequence]
        assert torch.equal(heads[0], heads[1])
        assert torch.equal(heads[0], heads[2])
    assert len(inputs.in_layout("packed")[0]) == CASE.tokens
    assert not inputs.padded[3][~inputs.valid].any()


@pytest.mark.parametrize("spoilt", range(4))
@pytest.mark.parametrize("place", [(1, 0), (2, 1)])
def test_the_largest_error_finds_what_is_wrong(spoilt: int, place: tuple[int, int]) -> None:
    inputs = Inputs(CASE, CPU, torch.float32)
    right = [torch.zeros_like(inputs.padded[0]) for _ in range(4)]
    for (sequence, head), values in zip(inputs.sample, inputs.expected("sigmoid"), strict=True):
        for tensor, own in zip(right, values, strict=True):
            tensor[sequence, : len(own), head] = own.float()
    error, _ = inputs.largest_error("sigmoid", "padded", right[0], tuple(right[1:]))
    assert error < 1e-6
    right[spoilt][place[0], : CASE.lengths[place[0]], place[1]] *= 1.5
    error, name = inputs.largest_error("sigmoid", "padded", right[0], tuple(right[1:]))
    assert (name, error) == (("output", "dQ", "dK", "dV")[spoilt], pytest.approx(0.5, rel=1e-5))
    right[spoilt][place[0], 0, place[1]] = math.nan
    error, name = inputs.largest_error("sigmoid", "padded", right[0], tuple(right[1:]))
    assert name == ("output", "dQ", "dK", "dV")[spoilt]
    assert math.isnan(error)


def test_relative_error() -> None:
    found = relative_error(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 0.0]))
    assert found == pytest.approx(4 / 3)
