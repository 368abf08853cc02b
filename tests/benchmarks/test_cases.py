"""Shapes, operations and right answers of the kernel benchmark."""

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from scsigmoid.benchmarks.cases import Case, Inputs, cases, relative_error
from scsigmoid.config.schema import KernelBenchmark

PAPER = KernelBenchmark(
    tokens=16384,
    hidden=2048,
    head_dimensions=[64, 128],
    lengths=[512, 1024, 2048, 4096, 8192, 16384],
    padding=[0.0, 0.25],
    iterations=250,
    warmup_ms=100,
    confidence=0.99,
)


def test_the_papers_shapes():
    shapes = list(cases(PAPER))
    assert len(shapes) == 2 * 2 * 6
    assert {(case.head_dimension, case.heads) for case in shapes} == {(64, 32), (128, 16)}
    assert {case.sequences * case.length for case in shapes} == {16384}


@pytest.mark.parametrize("case", list(cases(PAPER)), ids=str)
def test_padding_is_what_it_says_at_every_shape(case: Case):
    valid = sum(case.lengths) / (case.sequences * case.length)
    assert valid == pytest.approx(1 - case.padding, abs=1e-3)
    assert max(case.lengths) <= case.length
    assert min(case.lengths) >= case.length * (1 - 2 * case.padding) - 1


def test_flops_are_the_appendix_formula():
    full = Case(128, 16, 16384, 1, 0.0)
    # 4 b h n^2 d
    assert full.flops("forward") == 4 * 1 * 16 * 16384**2 * 128
    assert full.flops("backward") == 10 * 1 * 16 * 16384**2 * 128
    padded = Case(2, 3, 8, 2, 0.25)
    assert sorted(padded.lengths) == [5, 7]
    assert padded.flops("forward") == 4 * 3 * 2 * (25 + 49)


@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_the_expected_values_are_autograds(attention: str, monkeypatch: pytest.MonkeyPatch):
    # Blocks that do not divide the length.
    monkeypatch.setattr("scsigmoid.benchmarks.cases.BLOCK_ROWS", 5)
    inputs = Inputs(Case(4, 2, 16, 2, 0.25), torch.device("cpu"), torch.float32)
    n = inputs.case.lengths[0]
    q, k, v, gradient = (x[0, :n, 0].double() for x in inputs.padded)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    if attention == "softmax":
        output = scaled_dot_product_attention(*(x[None] for x in leaves))[0]
    else:
        scores = leaves[0] @ leaves[1].T / 2
        output = (1 / (1 + torch.exp(-(scores - math.log(n))))) @ leaves[2]
    right = [output, *torch.autograd.grad(output, leaves, gradient)]
    for found, expected in zip(inputs.expected(attention), right, strict=True):
        torch.testing.assert_close(found, expected.detach(), rtol=1e-6, atol=1e-9)


def test_layouts_hold_the_same_cells():
    inputs = Inputs(Case(4, 2, 16, 3, 0.25), torch.device("cpu"), torch.float32)
    heads = [
        inputs.first_head(inputs.in_layout(layout)[0].detach(), layout)
        for layout in ("packed", "padded", "heads")
    ]
    assert torch.equal(heads[0], heads[1])
    assert torch.equal(heads[0], heads[2])
    assert len(inputs.in_layout("packed")[0]) == sum(inputs.case.lengths)
    assert not inputs.padded[3][~inputs.valid].any()


def test_relative_error():
    assert relative_error(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 0.0])) == pytest.approx(
        4 / 3
    )
