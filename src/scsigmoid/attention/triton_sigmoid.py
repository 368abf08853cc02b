"""Sigmoid attention in Triton: the paper's algorithms 1 to 3.

One program computes one block of rows of one head of one sequence.  What differs from the paper's
pseudocode, without changing what is computed:

- Sequences are given by their first and one-past-last token, so packed and padded batches are the
  same to the kernel, and queries and keys may differ in number.
- No score is masked.  Rows past a sequence's end are loaded as zeros, and zeros are neutral in
  every sum here: V = 0 in P V, K = 0 in dS K, dO = 0 in P^T dO, Q = 0 in dS^T Q.  Only the last
  block of a sequence is loaded under a mask; what lies behind the end is never read.
- Scale, bias and the activation's own factor are folded into one multiply-add per score.
- Programs past a sequence's end leave at once.  Padding is zeroed by the caller.

The backward pass is split, one kernel for dQ and one for dK and dV.  Each result is summed by one
program in a fixed order, without atomics, so results are the same bits from run to run.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _fold(scale, bias, EXACT: tl.constexpr):
    """Factor and summand that take a score to the argument of :func:`_sigmoid`."""
    if EXACT:
        factor = -scale * LOG2_E
        summand = -bias * LOG2_E
    else:
        factor = 0.5 * scale
        summand = 0.5 * bias
    return factor, summand


@triton.jit
def _sigmoid(scores, factor, summand, EXACT: tl.constexpr):
    """sigmoid(score * scale + bias): 1 / (1 + 2^x), or 0.5 + 0.5 tanh(x) in hardware."""
    x = scores * factor + summand
    if EXACT:
        weights = 1.0 / (1.0 + tl.exp2(x))
    else:
        tanh = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
        weights = 0.5 * tanh + 0.5
    return weights


@triton.jit
def _bias(BIAS, sequence, keys, HAS_BIAS: tl.constexpr):
    """The sequence's bias: given, or -log(number of keys)."""
    if HAS_BIAS:
        bias = tl.load(BIAS + sequence).to(tl.float32)
    else:
        bias = -tl.log(tl.maximum(keys, 1).to(tl.float32))
    return bias


@triton.jit
def _corner(POINTER, first, row_stride, head, head_stride):
    """Pointer to one head of token ``first``.

    Its offset needs 64 bits: a batch may hold more than 2^31 elements.  Offsets inside a tile do
    not, and a tile's addresses are one pointer and 32-bit offsets, which saves registers.
    """
    return POINTER + first.to(tl.int64) * row_stride + head.to(tl.int64) * head_stride


@triton.jit
def _offsets(rows, row_stride, columns):
    """Offsets of a tile's elements from its corner."""
    return rows[:, None] * row_stride + columns[None, :]


@triton.jit
def _load(pointers, rows, left, columns, D: tl.constexpr, TAIL: tl.constexpr, WIDE: tl.constexpr):
    """A tile, zero past the ``left`` rows (TAIL) and past the head dimension (WIDE)."""
    if TAIL:
        if WIDE:
            mask = (rows < left)[:, None] & (columns < D)[None, :]
        else:
            mask = (rows < left)[:, None]
        tile = tl.load(pointers, mask=mask, other=0.0)
    elif WIDE:
        tile = tl.load(pointers, mask=(columns < D)[None, :], other=0.0)
    else:
        tile = tl.load(pointers)
    return tile


@triton.jit
def _store(pointers, tile, rows, left, columns, D: tl.constexpr):
    """Write the part of a tile that lies inside the sequence."""
    mask = (rows < left)[:, None] & (columns < D)[None, :]
    tl.store(pointers, tile.to(pointers.dtype.element_ty), mask=mask)


@triton.jit
def _forward_step(out, q, k, v, factor, summand, EXACT: tl.constexpr, PRECISION: tl.constexpr):
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    weights = _sigmoid(scores, factor, summand, EXACT)
    return tl.dot(weights.to(v.dtype), v, out, input_precision=PRECISION)


@triton.jit(do_not_specialize=["blocks"])
def forward_kernel(
    Q,
    K,
    V,
    OUT,
    STARTS_Q,
    ENDS_Q,
    STARTS_K,
    ENDS_K,
    BIAS,
    q_row,
    q_head,
    k_row,
    k_head,
    v_row,
    v_head,
    out_row,
    out_head,
    scale,
    blocks,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    EXACT: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Algorithm 1.  Grid: (sequences * blocks, heads); ``blocks`` covers the longest sequence."""
    sequence = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    head = tl.program_id(1)
    start_q = tl.load(STARTS_Q + sequence)
    queries = tl.load(ENDS_Q + sequence) - start_q
    left = queries - block * BLOCK_Q
    if left <= 0:
        return
    first = start_q + block * BLOCK_Q
    start_k = tl.load(STARTS_K + sequence)
    keys = tl.load(ENDS_K + sequence) - start_k
    factor, summand = _fold(scale, _bias(BIAS, sequence, keys, HAS_BIAS), EXACT)

    WIDE: tl.constexpr = BLOCK_D != D
    columns = tl.arange(0, BLOCK_D)
    rows_q = tl.arange(0, BLOCK_Q)
    rows_k = tl.arange(0, BLOCK_K)
    at_q = _corner(Q, first, q_row, head, q_head)
    q_tile = _offsets(rows_q, q_row, columns)
    q = _load(at_q + q_tile, rows_q, left, columns, D, True, WIDE)
    at_k = _corner(K, start_k, k_row, head, k_head)
    k_tile = _offsets(rows_k, k_row, columns)
    at_v = _corner(V, start_k, v_row, head, v_head)
    v_tile = _offsets(rows_k, v_row, columns)
    out = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    whole = (keys // BLOCK_K) * BLOCK_K
    if whole < keys:
        tail_v = _corner(V, start_k + whole, v_row, head, v_head)
        tail_k = _corner(K, start_k + whole, k_row, head, k_head)
        k = _load(tail_k + k_tile, rows_k, keys - whole, columns, D, True, WIDE)
        v = _load(tail_v + v_tile, rows_k, keys - whole, columns, D, True, WIDE)
        out = _forward_step(out, q, k, v, factor, summand, EXACT, PRECISION)
    for _ in tl.range(0, whole, BLOCK_K, num_stages=STAGES):
        k = _load(at_k + k_tile, rows_k, keys, columns, D, False, WIDE)
        v = _load(at_v + v_tile, rows_k, keys, columns, D, False, WIDE)
        out = _forward_step(out, q, k, v, factor, summand, EXACT, PRECISION)
        at_k += BLOCK_K * k_row
        at_v += BLOCK_K * v_row
    at_out = _corner(OUT, first, out_row, head, out_head)
    out_tile = _offsets(rows_q, out_row, columns)
    _store(at_out + out_tile, out, rows_q, left, columns, D)


@triton.jit
def _dq_step(dq, q, grad, k, v, factor, summand, EXACT: tl.constexpr, PRECISION: tl.constexpr):
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    weights = _sigmoid(scores, factor, summand, EXACT)
    upstream = weights * tl.dot(grad, tl.trans(v), input_precision=PRECISION)
    dscores = upstream - weights * upstream
    return tl.dot(dscores.to(k.dtype), k, dq, input_precision=PRECISION)


@triton.jit(do_not_specialize=["blocks"])
def dq_kernel(
    GRAD,
    Q,
    K,
    V,
    DQ,
    STARTS_Q,
    ENDS_Q,
    STARTS_K,
    ENDS_K,
    BIAS,
    grad_row,
    grad_head,
    q_row,
    q_head,
    k_row,
    k_head,
    v_row,
    v_head,
    dq_row,
    dq_head,
    scale,
    blocks,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    EXACT: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Algorithm 2: the gradient of Q.  Grid as in :func:`forward_kernel`."""
    sequence = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    head = tl.program_id(1)
    start_q = tl.load(STARTS_Q + sequence)
    queries = tl.load(ENDS_Q + sequence) - start_q
    left = queries - block * BLOCK_Q
    if left <= 0:
        return
    first = start_q + block * BLOCK_Q
    start_k = tl.load(STARTS_K + sequence)
    keys = tl.load(ENDS_K + sequence) - start_k
    factor, summand = _fold(scale, _bias(BIAS, sequence, keys, HAS_BIAS), EXACT)

    WIDE: tl.constexpr = BLOCK_D != D
    columns = tl.arange(0, BLOCK_D)
    rows_q = tl.arange(0, BLOCK_Q)
    rows_k = tl.arange(0, BLOCK_K)
    at_q = _corner(Q, first, q_row, head, q_head)
    q_tile = _offsets(rows_q, q_row, columns)
    at_grad = _corner(GRAD, first, grad_row, head, grad_head)
    grad_tile = _offsets(rows_q, grad_row, columns)
    q = _load(at_q + q_tile, rows_q, left, columns, D, True, WIDE)
    grad = _load(at_grad + grad_tile, rows_q, left, columns, D, True, WIDE)
    at_k = _corner(K, start_k, k_row, head, k_head)
    k_tile = _offsets(rows_k, k_row, columns)
    at_v = _corner(V, start_k, v_row, head, v_head)
    v_tile = _offsets(rows_k, v_row, columns)
    dq = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    whole = (keys // BLOCK_K) * BLOCK_K
    if whole < keys:
        tail_v = _corner(V, start_k + whole, v_row, head, v_head)
        tail_k = _corner(K, start_k + whole, k_row, head, k_head)
        k = _load(tail_k + k_tile, rows_k, keys - whole, columns, D, True, WIDE)
        v = _load(tail_v + v_tile, rows_k, keys - whole, columns, D, True, WIDE)
        dq = _dq_step(dq, q, grad, k, v, factor, summand, EXACT, PRECISION)
    for _ in tl.range(0, whole, BLOCK_K, num_stages=STAGES):
        k = _load(at_k + k_tile, rows_k, keys, columns, D, False, WIDE)
        v = _load(at_v + v_tile, rows_k, keys, columns, D, False, WIDE)
        dq = _dq_step(dq, q, grad, k, v, factor, summand, EXACT, PRECISION)
        at_k += BLOCK_K * k_row
        at_v += BLOCK_K * v_row
    at_dq = _corner(DQ, first, dq_row, head, dq_head)
    dq_tile = _offsets(rows_q, dq_row, columns)
    _store(at_dq + dq_tile, dq * scale, rows_q, left, columns, D)


@triton.jit
def _dkdv_step(
    dk, dv, q, grad, k, v, factor, summand, EXACT: tl.constexpr, PRECISION: tl.constexpr
):
    scores = tl.dot(k, tl.trans(q), input_precision=PRECISION)
    weights = _sigmoid(scores, factor, summand, EXACT)
    dv = tl.dot(weights.to(grad.dtype), grad, dv, input_precision=PRECISION)
    upstream = weights * tl.dot(v, tl.trans(grad), input_precision=PRECISION)
    dscores = upstream - weights * upstream
    dk = tl.dot(dscores.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=["blocks"])
def dkdv_kernel(
    GRAD,
    Q,
    K,
    V,
    DK,
    DV,
    STARTS_Q,
    ENDS_Q,
    STARTS_K,
    ENDS_K,
    BIAS,
    grad_row,
    grad_head,
    q_row,
    q_head,
    k_row,
    k_head,
    v_row,
    v_head,
    dk_row,
    dk_head,
    dv_row,
    dv_head,
    scale,
    blocks,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    EXACT: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Algorithm 3: the gradients of K and V.  Grid: (sequences * blocks of keys, heads)."""
    sequence = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    head = tl.program_id(1)
    start_k = tl.load(STARTS_K + sequence)
    keys = tl.load(ENDS_K + sequence) - start_k
    left = keys - block * BLOCK_K
    if left <= 0:
        return
    first = start_k + block * BLOCK_K
    start_q = tl.load(STARTS_Q + sequence)
    queries = tl.load(ENDS_Q + sequence) - start_q
    factor, summand = _fold(scale, _bias(BIAS, sequence, keys, HAS_BIAS), EXACT)

    WIDE: tl.constexpr = BLOCK_D != D
    columns = tl.arange(0, BLOCK_D)
    rows_k = tl.arange(0, BLOCK_K)
    rows_q = tl.arange(0, BLOCK_Q)
    at_k = _corner(K, first, k_row, head, k_head)
    k_tile = _offsets(rows_k, k_row, columns)
    at_v = _corner(V, first, v_row, head, v_head)
    v_tile = _offsets(rows_k, v_row, columns)
    k = _load(at_k + k_tile, rows_k, left, columns, D, True, WIDE)
    v = _load(at_v + v_tile, rows_k, left, columns, D, True, WIDE)
    at_q = _corner(Q, start_q, q_row, head, q_head)
    q_tile = _offsets(rows_q, q_row, columns)
    at_grad = _corner(GRAD, start_q, grad_row, head, grad_head)
    grad_tile = _offsets(rows_q, grad_row, columns)
    dk = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    whole = (queries // BLOCK_Q) * BLOCK_Q
    if whole < queries:
        tail_grad = _corner(GRAD, start_q + whole, grad_row, head, grad_head)
        tail_q = _corner(Q, start_q + whole, q_row, head, q_head)
        q = _load(tail_q + q_tile, rows_q, queries - whole, columns, D, True, WIDE)
        grad = _load(tail_grad + grad_tile, rows_q, queries - whole, columns, D, True, WIDE)
        dk, dv = _dkdv_step(dk, dv, q, grad, k, v, factor, summand, EXACT, PRECISION)
    for _ in tl.range(0, whole, BLOCK_Q, num_stages=STAGES):
        q = _load(at_q + q_tile, rows_q, queries, columns, D, False, WIDE)
        grad = _load(at_grad + grad_tile, rows_q, queries, columns, D, False, WIDE)
        dk, dv = _dkdv_step(dk, dv, q, grad, k, v, factor, summand, EXACT, PRECISION)
        at_q += BLOCK_Q * q_row
        at_grad += BLOCK_Q * grad_row
    at_dk = _corner(DK, first, dk_row, head, dk_head)
    dk_tile = _offsets(rows_k, dk_row, columns)
    at_dv = _corner(DV, first, dv_row, head, dv_head)
    dv_tile = _offsets(rows_k, dv_row, columns)
    _store(at_dk + dk_tile, dk * scale, rows_k, left, columns, D)
    _store(at_dv + dv_tile, dv, rows_k, left, columns, D)
