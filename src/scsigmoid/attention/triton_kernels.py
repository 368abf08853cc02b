"""The paper's algorithms 1, 2 and 3 in Triton.

One program computes one tile: a block of rows of one head of one sequence. The kernels differ from
the paper's pseudocode as follows, with the same results:

- Arguments are the first and one-past-last token of each sequence. So the same kernels compute
  packed and padded batches, and the numbers of queries and keys may differ.
- Scores are not masked. Rows past the end of a sequence are loaded as zeros, which do not change
  any sum: V = 0 in P V, K = 0 in dS K, dO = 0 in P^T dO, Q = 0 in dS^T Q. Memory past the end is
  never read. With tensor descriptors (TMA), the hardware checks the end (:mod:`launching`).
  Without them, the loop loads only the last block with a mask. With a causal mask
  (:func:`_accumulate_causal`), weights of blocks on the diagonal are masked, and blocks past the
  diagonal are skipped.
- Scale, bias and the constant factor of the sigmoid are combined into one multiply-add per score.
- If lengths differ, programs look up their tile in a table, sequences with the most work first.

The backward pass has one kernel for dQ and one for dK and dV. Each result is summed by one program
in a fixed order, without atomics, so each run computes the same bits.

Arguments of all kernels:

- Inputs and results are pointers to (tokens, heads, dim), with strides such as ``q_row`` and
  ``q_head``. With TMA, the two tensors that the loop reads are descriptors (:mod:`launching`), and
  their strides are not used.
- ``STARTS_Q`` to ``ENDS_K`` and ``BIAS``: (sequences,), see :class:`problem.Problem`.
- ``KEY_BIAS``: (key tokens,), bias of each key, or None.
- ``TILES``: see :func:`assignment`. ``programs``: number of programs of one head. The grid has
  ``programs * heads`` programs.
- ``blocks``: number of tiles of one head of the longest sequence.
- ``D``: head dimension. ``BLOCK_D``: columns of a block, D rounded up to a power of two.
- ``SIGMOID``: form of the sigmoid (:func:`triton_tiles.sigmoid`). ``PRECISION``: precision of the
  matrix products of float32 inputs. ``BLOCK_Q``, ``BLOCK_K``, ``STAGES``, ``TMA`` and
  ``TAIL_LAST``: see :class:`tuning.Configuration`. ``CAUSAL``: whether query i attends only to
  keys j <= i, counted from the starts of their sequence.
"""

import triton
import triton.language as tl

from scsigmoid.attention.triton_tiles import (
    assignment,
    bias_of,
    corner,
    fold,
    load,
    locate,
    offsets,
    sigmoid,
    span,
    store,
    tile_at,
)


@triton.jit
def _accumulate(
    STEP: tl.constexpr, sums, own, A, B, a_row, a_head, b_row, b_head, start, length, head,
    factor, summand, KEY_BIAS, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr,
    SIGMOID: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr, TMA: tl.constexpr,
    TAIL_LAST: tl.constexpr,
):  # fmt: skip
    """Add the terms of all blocks of one head of one sequence to ``sums``, and return them.

    Args:
        STEP: :func:`_forward_step`, :func:`_dq_step` or :func:`_dkdv_step`, which adds the terms of
            a block of A and a block of B.
        own: the input tiles of this program, which are loaded before the loop.
        A, B: the tensors that the loop reads, ``length`` tokens from ``start``.
        factor, summand: see :func:`triton_tiles.sigmoid`.
        KEY_BIAS: biases of the tokens that the loop reads, or None.
    """
    if TMA:
        end = start + length
        for at in tl.range(0, length, BLOCK, num_stages=STAGES):
            a = tile_at(A, end, length, at, head, BLOCK, BLOCK_D)
            b = tile_at(B, end, length, at, head, BLOCK, BLOCK_D)
            shift = _shift(summand, KEY_BIAS, start + at, length - at, BLOCK, SIGMOID)
            sums = STEP(sums, own, a, b, factor, shift, None, SIGMOID, PRECISION)
    else:
        columns = tl.arange(0, BLOCK_D)
        at_a = corner(A, start, a_row, head, a_head)
        at_b = corner(B, start, b_row, head, b_head)
        lanes = tl.arange(0, BLOCK)
        a_tile = offsets(lanes, a_row, columns)
        b_tile = offsets(lanes, b_row, columns)
        whole_rows = (length // BLOCK) * BLOCK
        # Compute the whole blocks and the tail, the partial block, in the order of TAIL_LAST.
        TAIL_PART: tl.constexpr = 1 if TAIL_LAST else 0
        for part in tl.static_range(2):
            if part == TAIL_PART:
                if whole_rows < length:
                    tail_a = corner(A, start + whole_rows, a_row, head, a_head)
                    tail_b = corner(B, start + whole_rows, b_row, head, b_head)
                    a = load(tail_a + a_tile, lanes, length - whole_rows, columns, D, TAIL=True)
                    b = load(tail_b + b_tile, lanes, length - whole_rows, columns, D, TAIL=True)
                    shift = _shift(
                        summand, KEY_BIAS, start + whole_rows, length - whole_rows, BLOCK, SIGMOID
                    )
                    sums = STEP(sums, own, a, b, factor, shift, None, SIGMOID, PRECISION)
            else:
                for at in tl.range(0, whole_rows, BLOCK, num_stages=STAGES):
                    a = load(at_a + a_tile, lanes, length, columns, D, TAIL=False)
                    b = load(at_b + b_tile, lanes, length, columns, D, TAIL=False)
                    shift = _shift(summand, KEY_BIAS, start + at, length - at, BLOCK, SIGMOID)
                    sums = STEP(sums, own, a, b, factor, shift, None, SIGMOID, PRECISION)
                    at_a += BLOCK * a_row
                    at_b += BLOCK * b_row
    return sums


@triton.jit
def _key_summand(KEY_BIAS, first, rows_left, BLOCK: tl.constexpr, SIGMOID: tl.constexpr):
    """Return the summand, (BLOCK,), of the biases of the keys from token ``first`` on."""
    rows = tl.arange(0, BLOCK)
    bias = tl.load(KEY_BIAS + first + rows, mask=rows < rows_left, other=0.0)
    _, summand = fold(1.0, bias, SIGMOID)
    return summand


@triton.jit
def _shift(summand, KEY_BIAS, first, rows_left, BLOCK: tl.constexpr, SIGMOID: tl.constexpr):
    """Return ``summand``, and the biases of a block of keys if there are any."""
    if KEY_BIAS is not None:
        summand += _key_summand(KEY_BIAS, first, rows_left, BLOCK, SIGMOID)[None, :]
    return summand


@triton.jit
def _load_block(
    A, row_stride, head_stride, start, length, at, head,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr, TMA: tl.constexpr,
    TAIL: tl.constexpr,
):  # fmt: skip
    """Load the block of one head of a sequence that starts at its row ``at``."""
    if TMA:
        tile = tile_at(A, start + length, length, at, head, BLOCK, BLOCK_D)
    else:
        rows, columns = tl.arange(0, BLOCK), tl.arange(0, BLOCK_D)
        first = corner(A, start + at, row_stride, head, head_stride)
        pointers = first + offsets(rows, row_stride, columns)
        tile = load(pointers, rows, length - at, columns, D, TAIL=TAIL)
    return tile


@triton.jit
def _accumulate_causal(
    STEP: tl.constexpr, sums, own, A, B, a_row, a_head, b_row, b_head, start, length, head,
    factor, summand, KEY_BIAS, row, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr,
    SIGMOID: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr, TMA: tl.constexpr,
    ROWS: tl.constexpr, KEYS_ARE_ROWS: tl.constexpr,
):  # fmt: skip
    """Add the terms of all blocks that are not past the diagonal, as :func:`_accumulate`.

    The own tiles have ``ROWS`` rows, which are queries, or keys if ``KEYS_ARE_ROWS``. ``row`` is
    the index of the first row in its sequence. The loop has three parts, any of which may be empty:
    blocks with a mask, blocks without a mask, blocks with a mask.
    """
    whole_rows = (length // BLOCK) * BLOCK
    if KEYS_ARE_ROWS:
        # From the block of queries with the diagonal to the last. All queries from row + ROWS - 1
        # on attend to all keys of this tile.
        first = (row // BLOCK) * BLOCK
        free = ((row + ROWS - 1 + BLOCK - 1) // BLOCK) * BLOCK
        end = length
        bound = tl.maximum(whole_rows, tl.minimum(free, length))
        free = tl.minimum(free, length)
    else:
        # All queries of this tile attend to the keys up to ``row``.
        first = 0
        free = 0
        bound = tl.minimum(whole_rows, ((row + 1) // BLOCK) * BLOCK)
        end = tl.minimum(length, row + ROWS)
    own_rows = row + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    for part in tl.static_range(3):
        if part == 1:
            for at in tl.range(free, bound, BLOCK, num_stages=STAGES):
                a = _load_block(
                    A, a_row, a_head, start, length, at, head, D, BLOCK_D, BLOCK, TMA, TAIL=False
                )
                b = _load_block(
                    B, b_row, b_head, start, length, at, head, D, BLOCK_D, BLOCK, TMA, TAIL=False
                )
                shift = _shift(summand, KEY_BIAS, start + at, length - at, BLOCK, SIGMOID)
                sums = STEP(sums, own, a, b, factor, shift, None, SIGMOID, PRECISION)
        else:
            part_start = first if part == 0 else bound
            part_end = free if part == 0 else end
            for at in tl.range(part_start, part_end, BLOCK, num_stages=STAGES):
                a = _load_block(
                    A, a_row, a_head, start, length, at, head, D, BLOCK_D, BLOCK, TMA, TAIL=True
                )
                b = _load_block(
                    B, b_row, b_head, start, length, at, head, D, BLOCK_D, BLOCK, TMA, TAIL=True
                )
                if KEYS_ARE_ROWS:
                    visible = own_rows <= at + lanes
                else:
                    visible = own_rows >= at + lanes
                shift = _shift(summand, KEY_BIAS, start + at, length - at, BLOCK, SIGMOID)
                sums = STEP(sums, own, a, b, factor, shift, visible, SIGMOID, PRECISION)
    return sums


@triton.jit
def _weights(scores, factor, summand, visible, SIGMOID: tl.constexpr):
    """Return the weights of a block of scores, 0 where ``visible`` is false (None: nowhere)."""
    weights = sigmoid(scores, factor, summand, SIGMOID)
    if visible is not None:
        weights = tl.where(visible, weights, 0.0)
    return weights


@triton.jit
def _forward_step(
    sums, own, k, v, factor, summand, visible, SIGMOID: tl.constexpr, PRECISION: tl.constexpr
):
    """Add a block of keys and values to O."""
    (out,) = sums
    (q,) = own
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    weights = _weights(scores, factor, summand, visible, SIGMOID)
    return (tl.dot(weights.to(v.dtype), v, out, input_precision=PRECISION),)


@triton.jit(do_not_specialize=["blocks", "programs"])
def forward_kernel(
    Q, K, V, OUT, STARTS_Q, ENDS_Q, STARTS_K, ENDS_K, BIAS, KEY_BIAS, TILES,
    q_row, q_head, k_row, k_head, v_row, v_head, out_row, out_head, scale, heads, blocks, programs,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    SIGMOID: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr, TMA: tl.constexpr,
    TAIL_LAST: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Algorithm 1: the result O."""
    sequence, within = assignment(TILES, programs, heads, blocks)
    if sequence < 0:
        return
    head, block, first, rows_left = locate(
        STARTS_Q, ENDS_Q, sequence, within, blocks, TILES, BLOCK_Q
    )
    if rows_left <= 0:
        return
    start_k, keys = span(STARTS_K, ENDS_K, sequence)
    factor, summand = fold(scale, bias_of(BIAS, sequence, keys), SIGMOID)

    columns = tl.arange(0, BLOCK_D)
    rows_q = tl.arange(0, BLOCK_Q)
    at_q = corner(Q, first, q_row, head, q_head)
    q = load(at_q + offsets(rows_q, q_row, columns), rows_q, rows_left, columns, D, TAIL=True)
    out = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    if CAUSAL:
        (out,) = _accumulate_causal(
            _forward_step, (out,), (q,), K, V, k_row, k_head, v_row, v_head, start_k, keys, head,
            factor, summand, KEY_BIAS, block * BLOCK_Q, D, BLOCK_D, BLOCK_K, SIGMOID, PRECISION,
            STAGES, TMA, ROWS=BLOCK_Q, KEYS_ARE_ROWS=False,
        )  # fmt: skip
    else:
        (out,) = _accumulate(
            _forward_step, (out,), (q,), K, V, k_row, k_head, v_row, v_head, start_k, keys, head,
            factor, summand, KEY_BIAS, D, BLOCK_D, BLOCK_K, SIGMOID, PRECISION, STAGES, TMA,
            TAIL_LAST,
        )  # fmt: skip
    at_out = corner(OUT, first, out_row, head, out_head)
    store(at_out + offsets(rows_q, out_row, columns), out, rows_q, rows_left, columns, D)


@triton.jit
def _dq_step(
    sums, own, k, v, factor, summand, visible, SIGMOID: tl.constexpr, PRECISION: tl.constexpr
):
    """Add a block of keys and values to dQ, and to the bias gradient if it is computed."""
    dq, dbias = sums
    q, grad = own
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    weights = _weights(scores, factor, summand, visible, SIGMOID)
    # dS = P (1 - P) dP
    weighted = weights * tl.dot(grad, tl.trans(v), input_precision=PRECISION)
    dscores = weighted - weights * weighted
    if dbias.shape[0] > 1:  # without a bias gradient, dq_kernel passes one element
        dbias += tl.sum(dscores, axis=1)
    return tl.dot(dscores.to(k.dtype), k, dq, input_precision=PRECISION), dbias


@triton.jit(do_not_specialize=["blocks", "programs"])
def dq_kernel(
    GRAD, Q, K, V, DQ, STARTS_Q, ENDS_Q, STARTS_K, ENDS_K, BIAS, KEY_BIAS, TILES, DBIAS,
    grad_row, grad_head, q_row, q_head, k_row, k_head, v_row, v_head, dq_row, dq_head,
    scale, heads, blocks, programs,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    BIAS_GRAD: tl.constexpr, SIGMOID: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
    TMA: tl.constexpr, TAIL_LAST: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Algorithm 2: the gradient of Q.

    ``DBIAS`` is (sequences, heads, blocks) float32, the bias gradient of each tile.
    """
    sequence, within = assignment(TILES, programs, heads, blocks)
    if sequence < 0:
        return
    head, block, first, rows_left = locate(
        STARTS_Q, ENDS_Q, sequence, within, blocks, TILES, BLOCK_Q
    )
    if rows_left <= 0:
        return
    start_k, keys = span(STARTS_K, ENDS_K, sequence)
    factor, summand = fold(scale, bias_of(BIAS, sequence, keys), SIGMOID)

    columns = tl.arange(0, BLOCK_D)
    rows_q = tl.arange(0, BLOCK_Q)
    at_q = corner(Q, first, q_row, head, q_head)
    at_grad = corner(GRAD, first, grad_row, head, grad_head)
    q = load(at_q + offsets(rows_q, q_row, columns), rows_q, rows_left, columns, D, TAIL=True)
    grad = load(
        at_grad + offsets(rows_q, grad_row, columns), rows_q, rows_left, columns, D, TAIL=True
    )
    dq = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    dbias = tl.zeros([BLOCK_Q if BIAS_GRAD else 1], tl.float32)
    if CAUSAL:
        dq, dbias = _accumulate_causal(
            _dq_step, (dq, dbias), (q, grad), K, V, k_row, k_head, v_row, v_head, start_k, keys,
            head, factor, summand, KEY_BIAS, block * BLOCK_Q, D, BLOCK_D, BLOCK_K, SIGMOID,
            PRECISION, STAGES, TMA, ROWS=BLOCK_Q, KEYS_ARE_ROWS=False,
        )  # fmt: skip
    else:
        dq, dbias = _accumulate(
            _dq_step, (dq, dbias), (q, grad), K, V, k_row, k_head, v_row, v_head, start_k, keys,
            head, factor, summand, KEY_BIAS, D, BLOCK_D, BLOCK_K, SIGMOID, PRECISION, STAGES, TMA,
            TAIL_LAST,
        )  # fmt: skip
    at_dq = corner(DQ, first, dq_row, head, dq_head)
    store(at_dq + offsets(rows_q, dq_row, columns), dq * scale, rows_q, rows_left, columns, D)
    if BIAS_GRAD:
        index = (sequence * heads + head) * blocks + block
        tl.store(DBIAS + index, tl.sum(dbias, axis=0))


@triton.jit
def _dkdv_step(
    sums, own, q, grad, factor, summand, visible, SIGMOID: tl.constexpr, PRECISION: tl.constexpr
):
    """Add a block of queries and output gradients to dK and dV. Rows of scores are keys.

    Also add to the gradient of the biases of keys if it is computed.
    """
    dk, dv, dbias = sums
    k, v = own
    scores = tl.dot(k, tl.trans(q), input_precision=PRECISION)
    weights = _weights(scores, factor, summand, visible, SIGMOID)
    dv = tl.dot(weights.to(grad.dtype), grad, dv, input_precision=PRECISION)
    weighted = weights * tl.dot(v, tl.trans(grad), input_precision=PRECISION)
    dscores = weighted - weights * weighted
    if dbias.shape[0] > 1:  # without a gradient of biases, dkdv_kernel passes one element
        dbias += tl.sum(dscores, axis=1)
    dk = tl.dot(dscores.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv, dbias


@triton.jit(do_not_specialize=["blocks", "programs"])
def dkdv_kernel(
    GRAD, Q, K, V, DK, DV, STARTS_Q, ENDS_Q, STARTS_K, ENDS_K, BIAS, KEY_BIAS, TILES, DBIAS,
    grad_row, grad_head, q_row, q_head, k_row, k_head, v_row, v_head, dk_row, dk_head,
    dv_row, dv_head, scale, heads, blocks, programs,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    BIAS_GRAD: tl.constexpr, SIGMOID: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
    TMA: tl.constexpr, TAIL_LAST: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Algorithm 3: the gradients of K and V. Rows are keys, and the loop reads Q and GRAD.

    ``DBIAS`` is (key tokens, heads) float32, the gradient of the bias of each key by heads.
    """
    sequence, within = assignment(TILES, programs, heads, blocks)
    if sequence < 0:
        return
    head, block, first, rows_left = locate(
        STARTS_K, ENDS_K, sequence, within, blocks, TILES, BLOCK_K
    )
    if rows_left <= 0:
        return
    keys = rows_left + block * BLOCK_K  # all keys of the sequence
    start_q, queries = span(STARTS_Q, ENDS_Q, sequence)
    factor, summand = fold(scale, bias_of(BIAS, sequence, keys), SIGMOID)

    columns = tl.arange(0, BLOCK_D)
    rows_k = tl.arange(0, BLOCK_K)
    at_k = corner(K, first, k_row, head, k_head)
    at_v = corner(V, first, v_row, head, v_head)
    k = load(at_k + offsets(rows_k, k_row, columns), rows_k, rows_left, columns, D, TAIL=True)
    v = load(at_v + offsets(rows_k, v_row, columns), rows_k, rows_left, columns, D, TAIL=True)
    dk = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    sums = dk, dv, tl.zeros([BLOCK_K if BIAS_GRAD else 1], tl.float32)
    if KEY_BIAS is not None:
        summand += _key_summand(KEY_BIAS, first, rows_left, BLOCK_K, SIGMOID)[:, None]
    if CAUSAL:
        dk, dv, dbias = _accumulate_causal(
            _dkdv_step, sums, (k, v), Q, GRAD, q_row, q_head, grad_row, grad_head, start_q,
            queries, head, factor, summand, None, block * BLOCK_K, D, BLOCK_D, BLOCK_Q, SIGMOID,
            PRECISION, STAGES, TMA, ROWS=BLOCK_K, KEYS_ARE_ROWS=True,
        )  # fmt: skip
    else:
        dk, dv, dbias = _accumulate(
            _dkdv_step, sums, (k, v), Q, GRAD, q_row, q_head, grad_row, grad_head, start_q,
            queries, head, factor, summand, None, D, BLOCK_D, BLOCK_Q, SIGMOID, PRECISION, STAGES,
            TMA, TAIL_LAST,
        )  # fmt: skip
    at_dk = corner(DK, first, dk_row, head, dk_head)
    at_dv = corner(DV, first, dv_row, head, dv_head)
    store(at_dk + offsets(rows_k, dk_row, columns), dk * scale, rows_k, rows_left, columns, D)
    store(at_dv + offsets(rows_k, dv_row, columns), dv, rows_k, rows_left, columns, D)
    if BIAS_GRAD:
        index = (first + rows_k).to(tl.int64) * heads + head
        tl.store(DBIAS + index, dbias, mask=rows_k < rows_left)
