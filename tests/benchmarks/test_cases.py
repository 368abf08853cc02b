"""Batches and operations of the kernel benchmark."""

import math

import numpy as np
import pytest
import torch
from benchmarks.small_benchmarks import PAPER, PAPER_CASES
from scipy import stats
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from scsigmoid.benchmarks.cases import Case, Inputs, cell_lengths, groups, paper_case


def test_the_papers_shapes() -> None:
    shapes = [case for case in PAPER_CASES if case.batch == "paper"]
    assert len(shapes) == 2 * 2 * 6
    assert {(case.head_dimension, case.heads) for case in shapes} == {(64, 32), (128, 16)}
    assert {case.sequences * case.length for case in shapes} == {16384}
    assert {case.has_padding for case in shapes if case.padding == 0} == {False}
    # Compared batches are in one group: with and without padding, jagged and even.
    kinds = [[(case.batch, case.padding) for case in group] for group in groups(PAPER)]
    assert kinds.count([("paper", 0.0), ("paper", 0.25)]) == 12
    assert kinds.count([("jagged", 0.0), ("even", 0.0)]) == 2


def test_padding_is_drawn_as_in_the_published_benchmark() -> None:
    """Uniform between (1 - p) L and L, one in each of as many equal parts as sequences."""
    for case in (case for case in PAPER_CASES if case.batch == "paper"):
        assert min(case.lengths) >= case.length * (1 - case.padding) - 0.5
        assert max(case.lengths) <= case.length
    many = paper_case(64, 32, 4096, 1000, 0.25)
    assert stats.kstest(many.lengths, stats.uniform(3072, 1024).cdf).pvalue > 0.05
    assert np.mean(many.lengths) / 4096 == pytest.approx(0.875, abs=1e-3)
    assert list(many.lengths) != sorted(many.lengths)
    # Rounding to whole tokens may move a length to the next part.
    counts, _ = np.histogram(many.lengths, bins=10, range=(3072, 4096))
    assert max(abs(counts - 100)) <= 1


def test_cells_are_as_long_as_in_figure_1() -> None:
    lengths = cell_lengths(1_000_000, 1830, 0.65, 16384)
    # 43 % of the cells are longer than 2,048.
    assert np.mean(np.array(lengths) > 2048) == pytest.approx(0.43, abs=0.005)
    cdf = stats.lognorm(0.65, scale=1830).cdf
    assert stats.kstest(lengths, cdf).statistic < 2e-3
    assert max(cell_lengths(16384, 1830, 0.65, 4096)) == 4096


def test_even_batches_need_as_many_operations_as_jagged() -> None:
    (jagged, even) = next(group for group in groups(PAPER) if group[0].batch == "jagged")
    assert len(set(even.lengths)) == 1
    assert not even.has_padding
    assert even.flops("forward") == pytest.approx(jagged.flops("forward"), rel=1e-3)
    assert even.tokens == pytest.approx(jagged.tokens, rel=0.1)


def brute_force(case: Case) -> tuple[int, int]:
    """Return the operations of the matrix products of plain attention, forward and backward."""
    forward = backward = 0
    for n in case.lengths:
        shape = (case.heads, n, case.head_dimension)
        q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
        with FlopCounterMode(display=False) as counter:
            output = torch.sigmoid(q @ k.mT) @ v
        forward += counter.get_total_flops()
        with FlopCounterMode(display=False) as counter:
            output.sum().backward()
        backward += counter.get_total_flops()
    return forward, backward


def test_flops_equal_brute_force() -> None:
    case = Case("paper", 4, 3, 9, (5, 7, 9), 0.5)
    forward, backward = brute_force(case)
    assert case.flops("forward") == forward == sum(4 * 3 * n**2 * 4 for n in case.lengths)
    # The scores, one of the two forward products, are computed again.
    assert case.flops("backward") == backward + forward / 2 == 2.5 * forward


CPU = torch.device("cpu")
CASE = Case("paper", 4, 2, 16, (13, 16, 9), 0.5)


@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_expected_values_equal_autograd(attention: str) -> None:
    inputs = Inputs(CASE, CPU)
    # The longest sequence and the first head, the shortest and the last.
    for (sequence, head), results in zip([(1, 0), (2, 1)], inputs.expected(attention), strict=True):
        n = CASE.lengths[sequence]
        q, k, v, gradient = (x[sequence, :n, head].double() for x in inputs.padded)
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        if attention == "softmax":
            output = scaled_dot_product_attention(*(x[None] for x in leaves))[0]
        else:
            scores = leaves[0] @ leaves[1].T / 2
            output = (1 / (1 + torch.exp(-(scores - math.log(n))))) @ leaves[2]
        expected_results = [output, *torch.autograd.grad(output, leaves, gradient)]
        for own, expected in zip(results, expected_results, strict=True):
            torch.testing.assert_close(own, expected.detach(), rtol=1e-6, atol=1e-9)


def test_layouts_contain_the_same_cells() -> None:
    inputs = Inputs(CASE, CPU)
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


@pytest.mark.parametrize("place", [(1, 0), (2, 1)])
@pytest.mark.parametrize(("changed", "tensor_name"), enumerate(["output", "dQ", "dK", "dV"]))
def test_the_largest_error_names_the_wrong_tensor(
    changed: int, tensor_name: str, place: tuple[int, int]
) -> None:
    inputs = Inputs(CASE, CPU)
    results = [torch.zeros_like(inputs.padded[0]) for _ in range(4)]
    for (sequence, head), values in zip(inputs.sample, inputs.expected("sigmoid"), strict=True):
        for tensor, own in zip(results, values, strict=True):
            tensor[sequence, : len(own), head] = own.float()
    sequence, head = place
    for factor, expected in ((1, 0), (1.5, 0.5), (math.nan, math.nan)):
        results[changed][sequence, : CASE.lengths[sequence], head] *= factor
        error, name = inputs.largest_error("sigmoid", "padded", results[0], tuple(results[1:]))
        assert error == pytest.approx(expected, rel=1e-5, abs=1e-6, nan_ok=True)
        assert name == tensor_name or factor == 1
