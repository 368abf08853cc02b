"""The paper's algorithms 1, 2 and 3 in Triton.

One program computes one block of rows of one head of one sequence. The kernels differ from the
paper's pseudocode as follows, with the same results:

- Arguments are the first and one-past-last token of each sequence. So packed and padded batches
  need no separate kernels, and the numbers of queries and keys may differ.
- Scores are not masked. Rows past the end of a sequence are loaded as zeros, which do not change
  any sum: V = 0 in P V, K = 0 in dS K, dO = 0 in P^T dO, Q = 0 in dS^T Q. Memory past the end is
  never read. Tensor descriptors (TMA) contain the end. Without them only the last block of a
  sequence is loaded with a mask.
- Scale, bias and the factor of the activation are combined into one multiply-add per score.
- In a jagged batch programs look up their tile in a table, longest sequences first.

The backward pass has one kernel for dQ and one for dK and dV. Each result is summed by one program
in a fixed order, without atomics, so each run computes the same bits.
"""

import triton
import triton.language as tl

from scsigmoid.attention.triton_tiles import (
    assignment,
    bias_of,
    corner,
    fold,
    load,
    offsets,
    sigmoid,
    store,
    tile_at,
)


@triton.jit
def _step(out, q, k, v, factor, summand, SIGMOID: tl.constexpr, PRECISION: tl.constexpr):
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    weights = sigmoid(scores, factor, summand, SIGMOID)
    return tl.dot(weights.to(v.dtype), v, out, input_precision=PRECISION)


@triton.jit(do_not_specialize=["blocks", "most"])
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
    TILES,
    q_row,
    q_head,
    k_row,
    k_head,
    v_row,
    v_head,
    out_row,
    out_head,
    scale,
    heads,
    blocks,
    most,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    SCHEDULED: tl.constexpr,
    SIGMOID: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
    TMA: tl.constexpr,
    TAIL_LAST: tl.constexpr,
):
    """Algorithm 1.

    Args:
        K, V: pointers, or with TMA descriptors (:mod:`launching`), whose strides are not used.
        TILES, most: see :func:`assignment`. The grid is (most or sequences * blocks) * heads.
        blocks: number of blocks of rows of the longest sequence.
    """
    sequence, within = assignment(TILES, most, heads, blocks, SCHEDULED)
    if sequence < 0:
        return
    start_q = tl.load(STARTS_Q + sequence)
    queries = tl.load(ENDS_Q + sequence) - start_q
    own_blocks = tl.cdiv(queries, BLOCK_Q) if SCHEDULED else blocks
    head = within // own_blocks
    block = within % own_blocks
    left = queries - block * BLOCK_Q
    if left <= 0:
        return
    first = start_q + block * BLOCK_Q
    start_k = tl.load(STARTS_K + sequence)
    keys = tl.load(ENDS_K + sequence) - start_k
    factor, summand = fold(scale, bias_of(BIAS, sequence, keys, HAS_BIAS), SIGMOID)

    WIDE: tl.constexpr = BLOCK_D != D
    columns = tl.arange(0, BLOCK_D)
    rows_q = tl.arange(0, BLOCK_Q)
    at_q = corner(Q, first, q_row, head, q_head)
    q = load(at_q + offsets(rows_q, q_row, columns), rows_q, left, columns, D, True, WIDE)
    out = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    if TMA:
        end = start_k + keys
        for key in tl.range(0, keys, BLOCK_K, num_stages=STAGES):
            k = tile_at(K, end, keys, key, head, BLOCK_K, BLOCK_D)
            v = tile_at(V, end, keys, key, head, BLOCK_K, BLOCK_D)
            out = _step(out, q, k, v, factor, summand, SIGMOID, PRECISION)
    else:
        at_k = corner(K, start_k, k_row, head, k_head)
        at_v = corner(V, start_k, v_row, head, v_head)
        rows_k = tl.arange(0, BLOCK_K)
        k_tile = offsets(rows_k, k_row, columns)
        v_tile = offsets(rows_k, v_row, columns)
        whole = (keys // BLOCK_K) * BLOCK_K
        # The last, partial block of the sequence is computed before or after the others.
        for part in tl.static_range(2):
            if (part == 1) == TAIL_LAST:
                if whole < keys:
                    tail_k = corner(K, start_k + whole, k_row, head, k_head)
                    tail_v = corner(V, start_k + whole, v_row, head, v_head)
                    k = load(tail_k + k_tile, rows_k, keys - whole, columns, D, True, WIDE)
                    v = load(tail_v + v_tile, rows_k, keys - whole, columns, D, True, WIDE)
                    out = _step(out, q, k, v, factor, summand, SIGMOID, PRECISION)
            else:
                for _ in tl.range(0, whole, BLOCK_K, num_stages=STAGES):
                    k = load(at_k + k_tile, rows_k, keys, columns, D, False, WIDE)
                    v = load(at_v + v_tile, rows_k, keys, columns, D, False, WIDE)
                    out = _step(out, q, k, v, factor, summand, SIGMOID, PRECISION)
                    at_k += BLOCK_K * k_row
                    at_v += BLOCK_K * v_row
    at_out = corner(OUT, first, out_row, head, out_head)
    store(at_out + offsets(rows_q, out_row, columns), out, rows_q, left, columns, D)


@triton.jit
def _dq_step(
    dq,
    dbias,
    q,
    grad,
    k,
    v,
    factor,
    summand,
    SIGMOID: tl.constexpr,
    BIAS_GRAD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    weights = sigmoid(scores, factor, summand, SIGMOID)
    upstream = weights * tl.dot(grad, tl.trans(v), input_precision=PRECISION)
    dscores = upstream - weights * upstream
    if BIAS_GRAD:
        dbias += tl.sum(dscores, axis=1)
    return tl.dot(dscores.to(k.dtype), k, dq, input_precision=PRECISION), dbias


@triton.jit(do_not_specialize=["blocks", "most"])
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
    TILES,
    DBIAS,
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
    heads,
    blocks,
    most,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    SCHEDULED: tl.constexpr,
    BIAS_GRAD: tl.constexpr,
    SIGMOID: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
    TMA: tl.constexpr,
    TAIL_LAST: tl.constexpr,
):
    """Algorithm 2: the gradient of Q.

    Args:
        K, V: pointers, or with TMA descriptors (:mod:`launching`), whose strides are not used.
        TILES, most: see :func:`assignment`. The grid is (most or sequences * blocks) * heads.
        DBIAS: (sequences, heads, blocks) float32, bias gradient of each tile.
        blocks: number of blocks of rows of the longest sequence.
    """
    sequence, within = assignment(TILES, most, heads, blocks, SCHEDULED)
    if sequence < 0:
        return
    start_q = tl.load(STARTS_Q + sequence)
    queries = tl.load(ENDS_Q + sequence) - start_q
    own_blocks = tl.cdiv(queries, BLOCK_Q) if SCHEDULED else blocks
    head = within // own_blocks
    block = within % own_blocks
    left = queries - block * BLOCK_Q
    if left <= 0:
        return
    first = start_q + block * BLOCK_Q
    start_k = tl.load(STARTS_K + sequence)
    keys = tl.load(ENDS_K + sequence) - start_k
    factor, summand = fold(scale, bias_of(BIAS, sequence, keys, HAS_BIAS), SIGMOID)

    WIDE: tl.constexpr = BLOCK_D != D
    columns = tl.arange(0, BLOCK_D)
    rows_q = tl.arange(0, BLOCK_Q)
    at_q = corner(Q, first, q_row, head, q_head)
    at_grad = corner(GRAD, first, grad_row, head, grad_head)
    q = load(at_q + offsets(rows_q, q_row, columns), rows_q, left, columns, D, True, WIDE)
    grad = load(at_grad + offsets(rows_q, grad_row, columns), rows_q, left, columns, D, True, WIDE)
    dq = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    dbias = tl.zeros([BLOCK_Q if BIAS_GRAD else 1], tl.float32)
    if TMA:
        end = start_k + keys
        for key in tl.range(0, keys, BLOCK_K, num_stages=STAGES):
            k = tile_at(K, end, keys, key, head, BLOCK_K, BLOCK_D)
            v = tile_at(V, end, keys, key, head, BLOCK_K, BLOCK_D)
            dq, dbias = _dq_step(
                dq, dbias, q, grad, k, v, factor, summand, SIGMOID, BIAS_GRAD, PRECISION
            )
    else:
        at_k = corner(K, start_k, k_row, head, k_head)
        at_v = corner(V, start_k, v_row, head, v_head)
        rows_k = tl.arange(0, BLOCK_K)
        k_tile = offsets(rows_k, k_row, columns)
        v_tile = offsets(rows_k, v_row, columns)
        whole = (keys // BLOCK_K) * BLOCK_K
        # The last, partial block of the sequence is computed before or after the others.
        for part in tl.static_range(2):
            if (part == 1) == TAIL_LAST:
                if whole < keys:
                    tail_k = corner(K, start_k + whole, k_row, head, k_head)
                    tail_v = corner(V, start_k + whole, v_row, head, v_head)
                    k = load(tail_k + k_tile, rows_k, keys - whole, columns, D, True, WIDE)
                    v = load(tail_v + v_tile, rows_k, keys - whole, columns, D, True, WIDE)
                    dq, dbias = _dq_step(
                        dq, dbias, q, grad, k, v, factor, summand, SIGMOID, BIAS_GRAD, PRECISION
                    )
            else:
                for _ in tl.range(0, whole, BLOCK_K, num_stages=STAGES):
                    k = load(at_k + k_tile, rows_k, keys, columns, D, False, WIDE)
                    v = load(at_v + v_tile, rows_k, keys, columns, D, False, WIDE)
                    dq, dbias = _dq_step(
                        dq, dbias, q, grad, k, v, factor, summand, SIGMOID, BIAS_GRAD, PRECISION
                    )
                    at_k += BLOCK_K * k_row
                    at_v += BLOCK_K * v_row
    at_dq = corner(DQ, first, dq_row, head, dq_head)
    store(at_dq + offsets(rows_q, dq_row, columns), dq * scale, rows_q, left, columns, D)
    if BIAS_GRAD:
        place = (sequence * heads + head) * blocks + block
        tl.store(DBIAS + place, tl.sum(dbias, axis=0))


@triton.jit
def _dkdv_step(
    dk, dv, q, grad, k, v, factor, summand, SIGMOID: tl.constexpr, PRECISION: tl.constexpr
):
    scores = tl.dot(k, tl.trans(q), input_precision=PRECISION)
    weights = sigmoid(scores, factor, summand, SIGMOID)
    dv = tl.dot(weights.to(grad.dtype), grad, dv, input_precision=PRECISION)
    upstream = weights * tl.dot(v, tl.trans(grad), input_precision=PRECISION)
    dscores = upstream - weights * upstream
    dk = tl.dot(dscores.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=["blocks", "most"])
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
    TILES,
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
    heads,
    blocks,
    most,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    SCHEDULED: tl.constexpr,
    SIGMOID: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
    TMA: tl.constexpr,
    TAIL_LAST: tl.constexpr,
):
    """Algorithm 3: the gradients of K and V.

    Args:
        GRAD, Q: pointers, or with TMA descriptors (:mod:`launching`), whose strides are not used.
        blocks: number of blocks of keys of the longest sequence.
    """
    sequence, within = assignment(TILES, most, heads, blocks, SCHEDULED)
    if sequence < 0:
        return
    start_k = tl.load(STARTS_K + sequence)
    keys = tl.load(ENDS_K + sequence) - start_k
    own_blocks = tl.cdiv(keys, BLOCK_K) if SCHEDULED else blocks
    head = within // own_blocks
    block = within % own_blocks
    left = keys - block * BLOCK_K
    if left <= 0:
        return
    first = start_k + block * BLOCK_K
    start_q = tl.load(STARTS_Q + sequence)
    queries = tl.load(ENDS_Q + sequence) - start_q
    factor, summand = fold(scale, bias_of(BIAS, sequence, keys, HAS_BIAS), SIGMOID)

    WIDE: tl.constexpr = BLOCK_D != D
    columns = tl.arange(0, BLOCK_D)
    rows_k = tl.arange(0, BLOCK_K)
    at_k = corner(K, first, k_row, head, k_head)
    at_v = corner(V, first, v_row, head, v_head)
    k = load(at_k + offsets(rows_k, k_row, columns), rows_k, left, columns, D, True, WIDE)
    v = load(at_v + offsets(rows_k, v_row, columns), rows_k, left, columns, D, True, WIDE)
    dk = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    if TMA:
        end = start_q + queries
        for query in tl.range(0, queries, BLOCK_Q, num_stages=STAGES):
            q = tile_at(Q, end, queries, query, head, BLOCK_Q, BLOCK_D)
            grad = tile_at(GRAD, end, queries, query, head, BLOCK_Q, BLOCK_D)
            dk, dv = _dkdv_step(dk, dv, q, grad, k, v, factor, summand, SIGMOID, PRECISION)
    else:
        at_q = corner(Q, start_q, q_row, head, q_head)
        at_grad = corner(GRAD, start_q, grad_row, head, grad_head)
        rows_q = tl.arange(0, BLOCK_Q)
        q_tile = offsets(rows_q, q_row, columns)
        grad_tile = offsets(rows_q, grad_row, columns)
        whole = (queries // BLOCK_Q) * BLOCK_Q
        # The last, partial block of the sequence is computed before or after the others.
        for part in tl.static_range(2):
            if (part == 1) == TAIL_LAST:
                if whole < queries:
                    tail_q = corner(Q, start_q + whole, q_row, head, q_head)
                    tail_grad = corner(GRAD, start_q + whole, grad_row, head, grad_head)
                    q = load(tail_q + q_tile, rows_q, queries - whole, columns, D, True, WIDE)
                    grad = load(
                        tail_grad + grad_tile, rows_q, queries - whole, columns, D, True, WIDE
                    )
                    dk, dv = _dkdv_step(dk, dv, q, grad, k, v, factor, summand, SIGMOID, PRECISION)
            else:
                for _ in tl.range(0, whole, BLOCK_Q, num_stages=STAGES):
                    q = load(at_q + q_tile, rows_q, queries, columns, D, False, WIDE)
                    grad = load(at_grad + grad_tile, rows_q, queries, columns, D, False, WIDE)
                    dk, dv = _dkdv_step(dk, dv, q, grad, k, v, factor, summand, SIGMOID, PRECISION)
                    at_q += BLOCK_Q * q_row
                    at_grad += BLOCK_Q * grad_row
    at_dk = corner(DK, first, dk_row, head, dk_head)
    at_dv = corner(DV, first, dv_row, head, dv_head)
    store(at_dk + offsets(rows_k, dk_row, columns), dk * scale, rows_k, left, columns, D)
    store(at_dv + offsets(rows_k, dv_row, columns), dv, rows_k, left, columns, D)
