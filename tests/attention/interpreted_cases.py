"""The Triton kernels in the interpreter of Triton, on the CPU.

Run by ``test_triton_interpreter.py`` in a process of its own, because whether Triton interprets is
resolved when the kernels are imported.  Blocks are 16 x 16 there.
"""

import math

import pytest
import torch
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import bias_gradient, cumulative, gradients, relative_error

from scsigmoid.attention import (
    launching,
    schedule,
    sigmoid_attention,
    sigmoid_attention_padded,
    sigmoid_attention_qkv,
    triton_launch,
)
from scsigmoid.attention.schedule import list_tiles, max_tiles, schedule_kernel
from scsigmoid.attention.tuning import Configuration

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3}


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def compare(tensors, lengths, lengths_k=None, tolerance=None, bias=None, scale=None):
    q, k, v, upstream = tensors
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    options = {"bias": bias, "scale": scale, "backend": "triton"}
    if lengths_k is not None:
        options |= {"cu_seqlens_k": cumulative(lengths_k), "max_seqlen_k": max(lengths_k)}
    out = sigmoid_attention(*leaves, cumulative(lengths), max(lengths), **options)
    got = [out, *torch.autograd.grad(out, leaves, upstream)]
    of_sequences = [bias] * len(lengths) if isinstance(bias, float) else bias
    wanted = gradients(*tensors, lengths, lengths_k, bias=of_sequences, scale=scale)
    for name, value, expected in zip(("out", "dq", "dk", "dv"), got, wanted, strict=True):
        assert value.dtype == q.dtype
        assert value.isfinite().all()
        assert relative_error(value, expected) < (tolerance or TOLERANCE[q.dtype]), name


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Fill new memory with NaN, so that elements that no program writes are visible."""

    def empty(*arguments, **options):
        return torch.full(*arguments, float("nan"), **options)

    class Torch:
        def __getattr__(self, name):
            return empty if name == "empty" else getattr(torch, name)

    monkeypatch.setattr(triton_launch, "torch", Torch())
    monkeypatch.setattr(launching, "torch", Torch())


@pytest.mark.parametrize(
    ("dtype", "dimension"), [(torch.float32, 16), (torch.float32, 96), (torch.float16, 128)]
)
def test_jagged_lengths(dtype, dimension):
    lengths = [5, 0, 33, 1, 16]
    tensors = [random(sum(lengths), 2, dimension, dtype=dtype, seed=s) for s in range(4)]
    compare(tensors, lengths)


@pytest.mark.parametrize("bias", [None, -2.5, 0.0, "each"])
def test_bias_and_scale(bias):
    lengths = [18, 3, 1]
    each = torch.tensor([-4.0, 0.5, 2.0])
    tensors = [random(22, 1, 16, seed=s) for s in range(4)]
    compare(tensors, lengths, bias=each if bias == "each" else bias, scale=0.8)


def test_gradients_of_a_fused_projection_are_written_in_place():
    lengths = [5, 0, 33, 1, 16]
    qkv, upstream = random(55, 3, 2, 24, seed=1).requires_grad_(), random(55, 2, 24)
    out = sigmoid_attention_qkv(qkv, cumulative(lengths), 33, backend="triton")
    (grad,) = torch.autograd.grad(out, qkv, upstream)
    wanted = gradients(*qkv.detach().unbind(1), upstream, lengths)
    assert relative_error(out, wanted[0]) < TOLERANCE[torch.float32]
    assert relative_error(grad, torch.stack(wanted[1:], dim=1)) < TOLERANCE[torch.float32]


@pytest.mark.parametrize("mode", [{"tma": True}, {"tail_last": True}])
def test_other_configurations(mode, monkeypatch):
    monkeypatch.setattr(triton_launch, "INTERPRETED", Configuration(32, 16, 4, 1, **mode))
    cases = (([5, 0, 33, 1, 16], None, 32), ([5, 0, 33], [7, 3, 0], 24), ([40], None, 32))
    for lengths, lengths_k, dimension in cases:
        queries, keys = sum(lengths), sum(lengths if lengths_k is None else lengths_k)
        counts = (queries, keys, keys, queries)
        tensors = [random(n, 2, dimension, seed=n) for n in counts]
        compare(tensors, lengths, lengths_k)


@pytest.mark.parametrize("lengths_k", [None, [7, 3, 0, 40]])
@pytest.mark.parametrize("one", [False, True])
def test_gradient_of_the_bias(lengths_k, one):
    lengths = [18, 3, 1, 0]
    counts = lengths if lengths_k is None else lengths_k
    q, upstream = (random(22, 2, 16, seed=s) for s in (0, 1))
    k, v = (random(sum(counts), 2, 16, seed=s) for s in (2, 3))
    bias = torch.tensor(-1.5 if one else [-4.0, 0.5, 2.0, 0.0]).requires_grad_()
    keywords = {}
    if lengths_k is not None:
        keywords = {"cu_seqlens_k": cumulative(lengths_k), "max_seqlen_k": 40}
    out = sigmoid_attention(
        *(q, k, v, cumulative(lengths), 18), bias=bias, backend="triton", **keywords
    )
    (got,) = torch.autograd.grad(out, bias, upstream)
    each = bias.expand(4)
    wanted = bias_gradient(q, k, v, upstream, lengths, lengths_k, bias=each)
    assert relative_error(got, wanted.sum() if one else wanted) < 2e-6


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.integers(0, 90), min_size=1, max_size=70),
    other=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_tiles_are_listed_longest_first(rows, other, seed):
    work = rows
    if other:
        generator = torch.Generator().manual_seed(seed)
        work = torch.randint(0, 50, (len(rows),), generator=generator).tolist()
    listed, first = [], [0] * len(rows)
    for sequence in sorted(range(len(rows)), key=lambda s: -work[s]):
        first[sequence] = len(listed)
        listed += [sequence] * -(-rows[sequence] // 16)
    most = max_tiles(sum(rows), len(rows), max(rows), 16)
    assert len(listed) <= most <= len(listed) + len(rows)
    places, works = cumulative(rows), cumulative(work)
    table = list_tiles(places[:-1], places[1:], works[:-1], works[1:], 16, most)
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
    counts = (sum(lengths), sum(lengths_k), sum(lengths_k), sum(lengths))
    tensors = [random(n, heads, dimension, seed=seed + s) for s, n in enumerate(counts)]
    compare(tensors, lengths, lengths_k)


def test_upstream_gradient_of_a_sum():
    # All its strides are 0, so it must be copied.
    leaves = [random(22, 2, 16, seed=s).requires_grad_() for s in range(3)]
    out = sigmoid_attention(*leaves, cumulative([22]), 22, backend="triton")
    got = torch.autograd.grad(out.sum(), leaves)
    wanted = gradients(*leaves, torch.ones(22, 2, 16), [22])[1:]
    for value, expected in zip(got, wanted, strict=True):
        assert relative_error(value, expected) < 2e-6


@pytest.mark.parametrize("lengths_k", [None, [9, 30, 0, 17]])
def test_padded(lengths_k):
    lengths = [3, 0, 33, 16]
    counts = lengths if lengths_k is None else lengths_k
    length, length_k = 35, 35 if lengths_k is None else 31
    q, upstream = (random(4, length, 2, 16, seed=s) for s in (0, 1))
    k, v = (random(4, length_k, 2, 16, seed=s) for s in (2, 3))
    valid = torch.arange(length)[None, :] < torch.tensor(lengths)[:, None]
    valid_k = torch.arange(length_k)[None, :] < torch.tensor(counts)[:, None]
    wanted = gradients(q[valid], k[valid_k], v[valid_k], upstream[valid], lengths, counts)
    for x in (q, upstream):
        x[~valid] = float("nan")
    for x in (k, v):
        x[~valid_k] = float("nan")
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = sigmoid_attention_padded(
        *leaves,
        torch.tensor(lengths),
        None if lengths_k is None else torch.tensor(lengths_k),
        backend="triton",
    )
    got = [out, *torch.autograd.grad(out, leaves, upstream)]
    places = (valid, valid, valid_k, valid_k)
    for value, expected, place in zip(got, wanted, places, strict=True):
        assert relative_error(value[place], expected) < 2e-6
        assert (value[~place] == 0).all()


def test_other_sequences_are_never_read():
    lengths = [18, 20, 7]
    tensors = [random(45, 1, 16, seed=s) for s in range(4)]
    for x in tensors:
        x[:18] = x[38:] = float("nan")
    leaves = [x.requires_grad_() for x in tensors[:3]]
    out = sigmoid_attention(*leaves, cumulative(lengths), 20, backend="triton")
    got = [out, *torch.autograd.grad(out, leaves, tensors[3])]
    wanted = gradients(*(x[18:38] for x in tensors), [20])
    for value, expected in zip(got, wanted, strict=True):
        assert relative_error(value[18:38], expected) < 2e-6


@pytest.mark.parametrize(("factor", "tolerance"), [(200, 1e-5), (1e8, 1e-3)])
def test_large_scores_stay_finite(factor, tolerance):
    tensors = [random(20, 1, 16, seed=s) for s in range(4)]
    compare([tensors[0] * factor, *tensors[1:]], [20], tolerance=tolerance)


def test_empty_batches():
    nothing = [torch.zeros(0, 2, 16, requires_grad=True) for _ in range(3)]
    for lengths in ([], [0, 0]):
        out = sigmoid_attention(*nothing, cumulative(lengths), 0, backend="triton")
        assert out.shape == (0, 2, 16)
        torch.autograd.grad(out.sum(), nothing)


@pytest.mark.parametrize(
    ("dimension", "dtype", "error", "message"),
    [
        (160, torch.float32, ValueError, "head dimension 160 is above 128"),
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
    learned=st.booleans(),
)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_tiles_of_the_hopper_kernels(monkeypatch, keys_are_rows, lengths, heads, pieces, learned):
    rows, columns = (torch.tensor([pair[side] for pair in lengths]) for side in (0, 1))
    row_ends, column_ends = rows.cumsum(0), columns.cumsum(0)
    bias = torch.linspace(-3, 1, len(lengths)) if learned else None
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
        HAS_BIAS=learned,
    )
    counter, tiles = table[:2].tolist()
    assert counter == 7
    assert tiles <= most
    entries = table.view(-1, 8)[1 : tiles + 1]
    assert (table.view(-1, 8)[tiles + 1 :] == -1).all()
    covered = {}
    previous = math.inf
    for row_end, row, column_end, column, blocks, head, summand, count in entries.tolist():
        ends = zip(row_ends.tolist(), column_ends.tolist(), lengths, strict=True)
        sequence = [
            n > 0 and (row_end, column_end, column) == (a, b, 2**30 - m) for a, b, (n, m) in ends
        ].index(True)
        n, m = lengths[sequence]
        # Longest first, all heads of a sequence together.
        assert m <= previous
        previous = m
        assert blocks == max(1, -(-m // 64))
        first = row - 2**30 + n
        assert first % 64 == 0
        assert 1 <= count <= pieces
        wanted = bias[sequence] if learned else -math.log(max(n if keys_are_rows else m, 1))
        value = torch.tensor([summand], dtype=torch.int32).view(torch.float32).item()
        assert value == pytest.approx(0.5 * float(wanted), abs=1e-6)
        for piece in range(first // 64, first // 64 + count):
            key = (sequence, head, piece)
            assert key not in covered
            covered[key] = count
    pieces_of = [-(-n // 64) for n, _ in lengths]
    assert len(covered) == heads * sum(pieces_of)
    if not keys_are_rows:
        # Tiles of one sequence differ by at most one piece.
        for sequence in range(len(lengths)):
            counts = {count for (s, _, _), count in covered.items() if s == sequence}
            assert not counts or max(counts) - min(counts) <= 1
