"""The Triton kernels in the interpreter of Triton, on the CPU.

Run by ``test_triton_interpreter.py`` in a process of its own, because Triton chooses between
interpreter and compiler when kernels are imported. Blocks are 16 x 16 in the interpreter.
"""

import math
from itertools import pairwise

import pytest
import torch
import triton.language as tl
from cases import (
    check,
    check_bias_gradient,
    check_isolation,
    check_key_bias,
    check_padded,
    fused_sigmoid,
    inputs,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import attention, cumulative, relative_error

from scsigmoid.attention import (
    launching,
    schedule,
    sigmoid_attention,
    sigmoid_attention_padded,
    triton_launch,
)
from scsigmoid.attention.schedule import list_tiles, max_tiles, schedule_kernel
from scsigmoid.attention.tuning import Configuration

LENGTHS = [5, 0, 33, 1, 16]
OPTIONS = {"backend": "triton", "tolerance": 2e-6}


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Fill new memory with NaN, so that elements that no program writes are visible."""

    def empty(*arguments, **options):
        return torch.full(*arguments, float("nan"), **options)

    def empty_like(*arguments, **options):
        return torch.full_like(*arguments, float("nan"), **options)

    class Torch:
        def __getattr__(self, name):
            return {"empty": empty, "empty_like": empty_like}.get(name, getattr(torch, name))

    monkeypatch.setattr(triton_launch, "torch", Torch())
    monkeypatch.setattr(launching, "torch", Torch())
    # A program of the kernel for gaps writes 4 rows at a time, so 64 programs would be idle.
    monkeypatch.setattr(launching, "_PROGRAMS", 2)


@pytest.mark.parametrize(
    ("dtype", "dimension", "tolerance"),
    [
        (torch.float32, 16, 2e-6),
        (torch.float32, 96, 2e-6),
        (torch.float16, 128, 2e-3),
        (torch.float32, 256, 2e-6),
    ],
)
def test_jagged_lengths(dtype, dimension, tolerance):
    tensors = inputs(sum(LENGTHS), dtype, dimension)
    check(tensors, LENGTHS, backend="triton", tolerance=tolerance)


@pytest.mark.parametrize("bias", [-2.5, 0.0, torch.tensor([-4.0, 0.5, 2.0])])
def test_bias_and_scale(bias):
    tensors = inputs(22, torch.float32, 16, heads=1)
    check(tensors, [18, 3, 1], bias=bias, scale=0.8, **OPTIONS)


def test_gradients_of_a_fused_projection_are_written_in_place():
    check(inputs(sum(LENGTHS), torch.float32, 24), LENGTHS, function=fused_sigmoid, **OPTIONS)


@pytest.mark.parametrize("mode", [{"tma": True}, {"tail_last": True}])
@pytest.mark.parametrize(
    ("lengths", "lengths_k", "dimension"),
    [(LENGTHS, None, 32), ([5, 0, 33], [7, 3, 0], 24), ([40], None, 32)],
)
def test_other_configurations(mode, lengths, lengths_k, dimension, monkeypatch):
    monkeypatch.setattr(triton_launch, "INTERPRETED", Configuration(32, 16, 4, 1, **mode))
    key_tokens = sum(lengths_k or lengths)
    tensors = inputs(sum(lengths), torch.float32, dimension, key_tokens=key_tokens)
    check(tensors, lengths, lengths_k, **OPTIONS)


@pytest.mark.parametrize("lengths_k", [None, [7, 3, 0, 40]])
@pytest.mark.parametrize("bias", [-1.5, [-4.0, 0.5, 2.0, 0.0]])
def test_gradient_of_the_bias(lengths_k, bias):
    lengths = [18, 3, 1, 0]
    tensors = inputs(22, torch.float32, 16, key_tokens=sum(lengths_k or lengths))
    check_bias_gradient(tensors, lengths, torch.tensor(bias), lengths_k, **OPTIONS)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.integers(0, 90), min_size=1, max_size=70),
    is_cross_attention=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_tiles_are_listed_longest_first(rows, is_cross_attention, seed):
    work = rows
    if is_cross_attention:
        generator = torch.Generator().manual_seed(seed)
        work = torch.randint(0, 50, (len(rows),), generator=generator).tolist()
    listed, first = [], [0] * len(rows)
    for sequence in sorted(range(len(rows)), key=lambda s: -work[s]):
        first[sequence] = len(listed)
        listed += [sequence] * -(-rows[sequence] // 16)
    most = max_tiles(sum(rows), len(rows), max(rows), 16)
    assert len(listed) <= most <= len(listed) + len(rows)
    bounds, work_bounds = cumulative(rows), cumulative(work)
    spans = bounds[:-1], bounds[1:], work_bounds[:-1], work_bounds[1:]
    table = list_tiles(*spans, 16, most)
    assert table.tolist() == [*listed, *[-1] * (most - len(listed)), *first]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=4),
    heads=st.integers(1, 3),
    dimension=st.sampled_from([8, 16, 40]),
    seed=st.integers(0, 1000),
)
def test_random_shapes(pairs, heads, dimension, seed):
    lengths, lengths_k = ([pair[side] for pair in pairs] for side in (0, 1))
    options = {"key_tokens": sum(lengths_k), "heads": heads, "seed": seed}
    tensors = inputs(sum(lengths), torch.float32, dimension, **options)
    check(tensors, lengths, lengths_k, **OPTIONS)


@pytest.mark.parametrize("mode", [{}, {"tma": True}])
@pytest.mark.parametrize("blocks", [(16, 16), (32, 16), (16, 32)])
@pytest.mark.parametrize(
    ("lengths", "lengths_k"), [(LENGTHS, None), ([50, 7, 20, 0], [20, 40, 0, 3]), ([49], None)]
)
def test_causal_mask(mode, blocks, lengths, lengths_k, monkeypatch):
    monkeypatch.setattr(triton_launch, "INTERPRETED", Configuration(*blocks, 4, 1, **mode))
    tensors = inputs(sum(lengths), torch.float32, 24, key_tokens=sum(lengths_k or lengths))
    check(tensors, lengths, lengths_k, is_causal=True, **OPTIONS)


def test_gradient_of_the_bias_with_a_causal_mask():
    tensors, bias = inputs(40, torch.float32, 16), torch.tensor([-1.5, 0.5])
    check_bias_gradient(tensors, [33, 7], bias, is_causal=True, **OPTIONS)


def test_padded_batch_with_a_causal_mask():
    packed = inputs(4 * 35, torch.float32, 16)
    tensors = [x.unflatten(0, (4, -1)) for x in packed]
    check_padded(tensors, [3, 0, 33, 16], is_causal=True, **OPTIONS)


@pytest.mark.parametrize("mode", [{}, {"tma": True}, {"tail_last": True}])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("lengths_k", [None, [20, 40, 0, 3]])
def test_bias_of_each_key(mode, is_causal, lengths_k, monkeypatch):
    monkeypatch.setattr(triton_launch, "INTERPRETED", Configuration(16, 32, 4, 1, **mode))
    lengths = [50, 7, 20, 0]
    tensors = inputs(sum(lengths), torch.float32, 24, key_tokens=sum(lengths_k or lengths))
    check_key_bias(tensors, lengths, lengths_k, is_causal=is_causal, **OPTIONS)


def test_bias_of_each_key_of_a_fused_projection():
    tensors = inputs(sum(LENGTHS), torch.float32, 16)
    check_key_bias(tensors, LENGTHS, function=fused_sigmoid, **OPTIONS)


def test_padded_batch_with_a_bias_of_each_key():
    q, k, v, upstream = (x.unflatten(0, (4, -1)) for x in inputs(4 * 35, torch.float32, 16))
    lengths, key_bias = [3, 0, 33, 16], torch.linspace(-3, 2, 4 * 35).unflatten(0, (4, -1))
    key_bias[0, 3:] = float("nan")
    leaf = key_bias.requires_grad_()
    counts = torch.tensor(lengths)
    out = sigmoid_attention_padded(q, k, v, counts, key_bias=leaf, backend="triton")
    (grad,) = torch.autograd.grad(out, leaf, upstream)
    valid = torch.arange(35) < counts[:, None]
    packed = [x[valid] for x in (q, k, v, upstream, key_bias)]
    exact = packed[4].detach().double().requires_grad_()
    wanted = attention(*packed[:3], lengths, key_bias=exact)
    assert relative_error(out[valid], wanted) < 2e-6
    (expected,) = torch.autograd.grad(wanted, exact, packed[3].double())
    assert relative_error(grad[valid], expected) < 2e-6
    assert (grad[~valid] == 0).all()


def test_hidden_keys_are_never_read():
    """A query does not depend on NaN in later blocks of keys."""
    q, k, v, _ = inputs(48, torch.float32, 16)
    clean = sigmoid_attention(q, k, v, cumulative([48]), 48, backend="triton", is_causal=True)
    k[16:], v[16:] = float("nan"), float("nan")
    out = sigmoid_attention(q, k, v, cumulative([48]), 48, backend="triton", is_causal=True)
    assert torch.equal(out[:16], clean[:16])


def test_upstream_gradient_of_a_sum():
    # All its strides are 0, so it must be copied.
    q, k, v, upstream = inputs(22, torch.float32, 16)
    check([q, k, v, torch.ones(()).expand(upstream.shape)], [22], **OPTIONS)


@pytest.mark.parametrize("lengths_k", [None, [9, 30, 0, 17]])
def test_padded(lengths_k):
    length_k = 35 if lengths_k is None else 31
    packed = inputs(4 * 35, torch.float32, 16, key_tokens=4 * length_k)
    check_padded([x.unflatten(0, (4, -1)) for x in packed], [3, 0, 33, 16], lengths_k, **OPTIONS)


def test_other_sequences_are_never_read():
    check_isolation(inputs(45, torch.float32, 16, heads=1), [18, 20, 7], **OPTIONS)


@pytest.mark.parametrize(("factor", "tolerance"), [(200, 1e-5), (1e8, 1e-3)])
def test_large_scores_stay_finite(factor, tolerance):
    tensors = inputs(20, torch.float32, 16, heads=1, spread=factor)
    check(tensors, [20], backend="triton", tolerance=tolerance)


def test_empty_batches():
    nothing = [torch.zeros(0, 2, 16, requires_grad=True) for _ in range(3)]
    for lengths in ([], [0, 0]):
        out = sigmoid_attention(*nothing, cumulative(lengths), 0, backend="triton")
        assert out.shape == (0, 2, 16)
        torch.autograd.grad(out.sum(), nothing)


@pytest.mark.parametrize(
    ("dimension", "dtype", "error", "message"),
    [
        (264, torch.float32, ValueError, "head dimension 264 is above 256"),
        (16, torch.float64, TypeError, "does not support float64"),
    ],
)
def test_unsupported_inputs(dimension, dtype, error, message):
    tensors = [torch.zeros(4, 1, dimension, dtype=dtype)] * 3
    with pytest.raises(error, match=message):
        sigmoid_attention(*tensors, cumulative([4]), 4, backend="triton")


@pytest.mark.parametrize("keys_are_rows", [False, True])
@given(
    lengths=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 700)), min_size=1, max_size=6),
    heads=st.integers(1, 3),
    pieces=st.sampled_from([2, 3, 4]),
    has_bias=st.booleans(),
)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_tiles_of_the_hopper_kernels(monkeypatch, keys_are_rows, lengths, heads, pieces, has_bias):
    rows, columns = (torch.tensor([pair[side] for pair in lengths]) for side in (0, 1))
    row_ends, column_ends = rows.cumsum(0), columns.cumsum(0)
    bias = torch.linspace(-3, 1, len(lengths)) if has_bias else None
    most = heads * (len(lengths) + int(rows.sum()) // (64 * pieces))
    table = torch.full(((most + 1) * 8,), -1, dtype=torch.int32)
    monkeypatch.setattr(schedule, "_SCAN", tl.constexpr(4))
    monkeypatch.setattr(schedule, "_ENTRIES", tl.constexpr(4))
    spans = (row_ends - rows, row_ends, column_ends - columns, column_ends)
    schedule_kernel[(len(lengths), heads)](
        *(x.int() for x in spans),
        bias,
        table,
        len(lengths),
        7,
        0.5,
        PIECES=pieces,
        COLUMN_BLOCK=64,
        KEYS_ARE_ROWS=keys_are_rows,
    )
    wanted = []
    for sequence in sorted(range(len(lengths)), key=lambda s: -lengths[s][1]):
        n, m = lengths[sequence]
        ends = row_ends[sequence].item(), column_ends[sequence].item()
        b = bias[sequence] if has_bias else -math.log(max(n if keys_are_rows else m, 1))
        count = -(-n // 64)  # pieces of the sequence
        # Tiles of queries differ by at most one piece. Tiles of keys are full except the last.
        tiles = -(-count // pieces)
        edges = [count * tile // max(tiles, 1) for tile in range(tiles + 1)]
        if keys_are_rows:
            edges = [*range(0, count, pieces), count]
        for head in range(heads):
            for first, end in pairwise(edges):
                row, column = 64 * first - n + 2**30, 2**30 - m
                entry = (ends[0], row, ends[1], column, max(1, -(-m // 64)), head, end - first)
                wanted.append((entry, pytest.approx(0.5 * float(b), abs=1e-6)))
    entries = table.view(-1, 8)
    assert entries[0, :2].tolist() == [7, len(wanted)]
    assert len(wanted) <= most
    assert (entries[len(wanted) + 1 :] == -1).all()
    for entry, (expected, summand) in zip(entries[1:], wanted, strict=False):
        assert (*entry[:6].tolist(), entry[7].item()) == expected
        assert entry[6:7].view(torch.float32).item() == summand


def test_bfloat16_is_refused_because_the_interpreter_computes_it_wrongly():
    q = torch.zeros(3, 1, 64, dtype=torch.bfloat16)
    cu_seqlens = torch.tensor([0, 3], dtype=torch.int32)
    with pytest.raises(TypeError, match="use float16 or float32"):
        sigmoid_attention(q, q, q, cu_seqlens, 3, backend="triton")
