"""The paper's algorithm 1 in Triton.

One program computes one block of rows of one head of one sequence.  What differs from the paper's
pseudocode, without changing what is computed:

- Sequences are given by their first and one-past-last token, so packed and padded batches are the
  same to the kernel, and queries and keys may differ in number.
- No score is masked.  Rows past a sequence's end are loaded as zeros, and zeros are neutral in
  every sum here and in the backward pass: V = 0 in P V, K = 0 in dS K, dO = 0 in P^T dO, Q = 0 in
  dS^T Q.  What lies behind the end is never read: where the hardware copies whole tiles (TMA), it
  knows the end; elsewhere only a sequence's last block is loaded under a mask.
- Scale, bias and the activation's own factor are folded into one multiply-add per score.
- In a jagged batch programs look up their tile in a table, longest sequences first.
"""

import triton
import triton.language as tl

from scsigmoid.attention.triton_tiles import (
    assignment,
    bias_of,
    corner,
    fold,
    larger,
    load,
    offsets,
    sigmoid,
    store,
    tile_at,
)


@triton.jit
def _step(
    out,
    largest,
    q,
    k,
    v,
    factor,
    summand,
    SIGMOID: tl.constexpr,
    SCORE_MAX: tl.constexpr,
    PRECISION: tl.constexpr,
):
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if SCORE_MAX:
        largest = larger(largest, tl.abs(scores))
    weights = sigmoid(scores, factor, summand, SIGMOID)
    return tl.dot(weights.to(v.dtype), v, out, input_precision=PRECISION), largest


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
    LARGEST,
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
    SCORE_MAX: tl.constexpr,
    SIGMOID: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
    TMA: tl.constexpr,
    TAIL_LAST: tl.constexpr,
):
    """Algorithm 1.

    Args:
        K, V: pointers; with TMA descriptors (:mod:`ragged`), and their strides are not used.
        TILES, most: see :func:`assignment`; the grid is (most or sequences * blocks) * heads.
        LARGEST: (sequences, heads, blocks) float32, largest absolute score of each tile.
        blocks: blocks of rows of the longest sequence.
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
    largest = tl.zeros([BLOCK_Q, BLOCK_K] if SCORE_MAX else [1], tl.float32)
    if TMA:
        end = start_k + keys
        for key in tl.range(0, keys, BLOCK_K, num_stages=STAGES):
            k = tile_at(K, end, keys, key, head, BLOCK_K, BLOCK_D)
            v = tile_at(V, end, keys, key, head, BLOCK_K, BLOCK_D)
            out, largest = _step(
                out, largest, q, k, v, factor, summand, SIGMOID, SCORE_MAX, PRECISION
            )
    else:
        at_k = corner(K, start_k, k_row, head, k_head)
        at_v = corner(V, start_k, v_row, head, v_head)
        rows_k = tl.arange(0, BLOCK_K)
        k_tile = offsets(rows_k, k_row, columns)
        v_tile = offsets(rows_k, v_row, columns)
        whole = (keys // BLOCK_K) * BLOCK_K
        # The sequence's last, partial block: before the others or behind them.
        for part in tl.static_range(2):
            if (part == 1) == TAIL_LAST:
                if whole < keys:
                    tail_k = corner(K, start_k + whole, k_row, head, k_head)
                    tail_v = corner(V, start_k + whole, v_row, head, v_head)
                    k = load(tail_k + k_tile, rows_k, keys - whole, columns, D, True, WIDE)
                    v = load(tail_v + v_tile, rows_k, keys - whole, columns, D, True, WIDE)
                    out, largest = _step(
                        out, largest, q, k, v, factor, summand, SIGMOID, SCORE_MAX, PRECISION
                    )
            else:
                for _ in tl.range(0, whole, BLOCK_K, num_stages=STAGES):
                    k = load(at_k + k_tile, rows_k, keys, columns, D, False, WIDE)
                    v = load(at_v + v_tile, rows_k, keys, columns, D, False, WIDE)
                    out, largest = _step(
                        out, largest, q, k, v, factor, summand, SIGMOID, SCORE_MAX, PRECISION
                    )
                    at_k += BLOCK_K * k_row
                    at_v += BLOCK_K * v_row
    at_out = corner(OUT, first, out_row, head, out_head)
    store(at_out + offsets(rows_q, out_row, columns), out, rows_q, left, columns, D)
    if SCORE_MAX:
        found = tl.reduce(tl.reduce(largest, 1, larger), 0, larger)
        tl.store(LARGEST + (sequence * heads + head) * blocks + block, found * tl.abs(scale))
