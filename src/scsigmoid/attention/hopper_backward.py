"""The paper's algorithms 2 and 3 on Hopper, fused: one pass over the scores yields dQ, dK and dV.

Rows are keys and columns are queries in this module, so scores and weights are transposed.

A program takes tiles of 128 keys of one head from the list, most queries first. Its producer warp
loads blocks of queries and of output gradients. Each of two consumer groups of four warps has 64
keys and computes

    S^T = K Q^T,  dP^T = V dO^T,  P^T = sigmoid(S^T),  dS^T = P^T (1 - P^T) dP^T,
    dV += P^T dO,  dK += dS^T Q.

P^T and dS^T stay in registers as operands. dQ = dS K sums over the keys of both groups, so the
groups exchange dS^T through shared memory. Each group computes one half of the block of dQ, 64 x 64
elements: at head dimension 128 all 64 queries and half of the head dimension, at 64 half of the 128
queries. It adds its half to a float32 buffer in global memory asynchronously. The order of these
additions varies, so the last bits of dQ differ between runs. dK and dV are bit-identical.

The kernel executes five matrix products instead of the seven of :mod:`triton_kernels`.
"""

from scsigmoid.attention.hopper_gluon import (
    AHEAD,
    BLOCKS,
    COLUMN,
    COLUMN_END,
    HEAD,
    ROW,
    ROW_END,
    SUMMAND,
    WRAP,
    accumulator_layout,
    advance,
    allocate_barriers,
    announce,
    fence_async_shared,
    gl,
    gluon,
    load_tile,
    mbarrier,
    read_entry,
    read_word,
    sigmoid,
    start_product,
    store_tile,
    take_tile,
    tma,
    tma_add,
    view_tile,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)


@gluon.jit
def _producer(
    SCHEDULE, in_maps, inputs, words, barriers, announcements,
    BLOCK_Q: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Take tiles from the list and load keys, values, queries and output gradients."""
    q_map, grad_map, k_map, v_map = in_maps
    qs, grads, ks, vs = inputs
    kv_full, kv_empty, full, empty = barriers
    D: gl.constexpr = k_map.block_shape[4]
    total = gl.load(SCHEDULE + 1)  # number of tiles
    tile = gl.program_id(0)
    slot = 0
    slot_phase = 1
    kv_phase = 1
    stage = 0  # ring slot of a block of queries and gradients
    phase = 1
    while tile < total:
        row_end, row, column_end, column, blocks, head, summand, _ = read_entry(SCHEDULE, tile)
        slot, slot_phase = announce(
            words, announcements, slot, slot_phase,
            (blocks, row_end, row, summand, head, column_end, column),
        )  # fmt: skip
        tile = take_tile(SCHEDULE)
        mbarrier.wait(kv_empty, kv_phase)
        kv_phase ^= 1
        # K and V: 2 tensors of 128 rows, 2 bytes per element.
        mbarrier.expect(kv_full, 2 * 128 * D * 2)
        for group in gl.static_range(2):
            load_tile(k_map, row_end, row + group * 64, head, kv_full, ks.index(group))
            load_tile(v_map, row_end, row + group * 64, head, kv_full, vs.index(group))
        for _ in range(blocks):
            mbarrier.wait(empty.index(stage), phase)
            mbarrier.expect(full.index(stage), 2 * BLOCK_Q * D * 2)
            load_tile(q_map, column_end, column, head, full.index(stage), qs.index(stage))
            load_tile(grad_map, column_end, column, head, full.index(stage), grads.index(stage))
            column += BLOCK_Q
            stage, phase = advance(stage, phase, STAGES)
    announce(words, announcements, slot, slot_phase, (0, 0, 0, 0, 0, 0, 0))


@gluon.jit
def _start_dq(exchange, ks, buffer, zero_dq, GROUP: gl.constexpr, D: gl.constexpr):
    """Start the two products of this group's half of dQ = dS K, one for the keys of each group."""
    if D == 128:
        ds_first = exchange.index(buffer).permute((1, 0))
        ds_second = exchange.index(buffer + 1).permute((1, 0))
        k_first = ks.index(0).slice(GROUP * 64, 64, dim=1)
        k_second = ks.index(1).slice(GROUP * 64, 64, dim=1)
    else:
        ds_first = exchange.index(buffer).slice(GROUP * 64, 64, dim=1).permute((1, 0))
        ds_second = exchange.index(buffer + 1).slice(GROUP * 64, 64, dim=1).permute((1, 0))
        k_first = ks.index(0)
        k_second = ks.index(1)
    dq = warpgroup_mma(ds_first, k_first, zero_dq, use_acc=False, is_async=True)
    return warpgroup_mma(ds_second, k_second, dq, is_async=True)


@gluon.jit
def _add_dq(dq, staged, dq_map, column_end, column, head, GROUP: gl.constexpr, D: gl.constexpr):
    """Add this group's half of a block of dQ, whose rows are queries, to global memory."""
    tma.store_wait(0)
    # Four threads share a row of `dq`. Thread c has columns 8 b + 2 c and 8 b + 2 c + 1. To avoid
    # bank conflicts, column 32 a + 8 b + 2 c + d is stored at 32 a + 8 c + 2 b + d.
    # `scale_dq_kernel` restores the order.
    permuted = dq.reshape([64, 2, 4, 4, 2]).permute((0, 1, 3, 2, 4)).reshape([64, 64])
    staged.store(permuted)
    fence_async_shared()
    if D == 128:
        tma_add(dq_map, [WRAP, column_end, column, head, GROUP * 64], view_tile(staged, dq_map))
    else:
        tma_add(dq_map, [WRAP, column_end, column + GROUP * 64, head, 0], view_tile(staged, dq_map))


@gluon.jit
def _consumer(
    GROUP: gl.constexpr, common,
    BLOCK_Q: gl.constexpr, STAGES: gl.constexpr, FORM: gl.constexpr,
):  # fmt: skip
    """Compute 64 keys of each tile, and this group's half of each block of dQ.

    ``factor`` and ``FORM``: see :func:`hopper_gluon.sigmoid`.
    """
    # Below, bit operations on `tiles_done` and `blocks_done` replace divisions by these constants.
    gl.static_assert(AHEAD == 2)
    gl.static_assert(STAGES == 1 or STAGES == 2 or STAGES == 4)
    out_maps, factor, scale, inputs, staging, words, barriers, exchanged, announcements = common
    dq_map, dk_map, dv_map = out_maps
    qs, grads, ks, vs = inputs
    exchange, dqs, outs = staging
    kv_full, kv_empty, full, empty = barriers
    tile_full, tile_empty = announcements
    D: gl.constexpr = dk_map.block_shape[4]
    dtype: gl.constexpr = dk_map.dtype
    scores_layout: gl.constexpr = accumulator_layout(BLOCK_Q)
    dkdv_layout: gl.constexpr = accumulator_layout(D)
    dq_layout: gl.constexpr = accumulator_layout(64)
    operand: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=dkdv_layout, k_width=2)
    k = ks.index(GROUP)
    v = vs.index(GROUP)
    own_dq = dqs.index(GROUP)
    staged = outs.index(GROUP)
    zero_scores = gl.zeros([64, BLOCK_Q], gl.float32, scores_layout)
    zero_dq = gl.zeros([64, 64], gl.float32, dq_layout)
    # Ring slots, phases and the current pair of buffers in `exchange` are computed from the next
    # two numbers, which need two registers instead of six.
    tiles_done = 0
    blocks_done = 0
    mbarrier.wait(tile_full.index(0), 0)
    blocks = read_word(words, 0, BLOCKS)
    while blocks > 0:
        slot = tiles_done & 1
        summand = read_word(words, slot, SUMMAND).to(gl.float32, bitcast=True)
        head = read_word(words, slot, HEAD)
        column_end = read_word(words, slot, COLUMN_END)
        column = read_word(words, slot, COLUMN)
        dk = gl.zeros([64, D], gl.float32, dkdv_layout)
        dv = gl.zeros([64, D], gl.float32, dkdv_layout)
        # Initialize accumulators before the first product. Otherwise ptxas serializes products.
        dk, dv = warpgroup_mma_wait(0, deps=(dk, dv))
        # A product into `dv` is unfinished at the end of a block, so `dv` has the type of an
        # unfinished product from the start.
        dv = warpgroup_mma_init(dv)
        mbarrier.wait(kv_full, tiles_done & 1)
        for _ in range(blocks):
            buffer = (blocks_done & 1) * 2  # first of the current pair of buffers in `exchange`
            stage = blocks_done & (STAGES - 1)
            # STAGES // 2 is log2(STAGES) for 1, 2 and 4.
            phase = (blocks_done >> (STAGES // 2)) & 1
            mbarrier.wait(full.index(stage), phase)
            scores = start_product(k, qs.index(stage), zero_scores)
            dweights = start_product(v, grads.index(stage), zero_scores)
            scores = warpgroup_mma_wait(1, deps=(scores,))
            weights = sigmoid(scores, factor, summand, FORM)
            operands = gl.convert_layout(weights.to(dtype), operand)
            # `weights` is a dependency so that the sigmoid is computed before the wait for dP. At
            # dimension 128 the product of dV runs during this wait. At 64 it is faster to start it
            # after the wait.
            if D == 128:
                dv = warpgroup_mma(operands, grads.index(stage), dv, is_async=True)
                dweights, weights = warpgroup_mma_wait(1, deps=(dweights, weights))
            else:
                dweights, weights = warpgroup_mma_wait(0, deps=(dweights, weights))
                dv = warpgroup_mma(operands, grads.index(stage), dv, is_async=True)
            # dS = P (1 - P) dP
            weighted = weights * dweights
            dscores = (weighted - weights * weighted).to(dtype)
            exchange.index(buffer + GROUP).store(dscores)
            # The product of dK runs while both groups exchange dS.
            operands = gl.convert_layout(dscores, operand)
            dk_next = warpgroup_mma(operands, qs.index(stage), dk, is_async=True)
            fence_async_shared()
            # Both groups wait here, so no group is more than one block ahead. Two pairs of buffers,
            # used in turn, and one barrier are enough.
            mbarrier.arrive(exchanged, count=1)
            mbarrier.wait(exchanged, blocks_done & 1)
            dq = _start_dq(exchange, ks, buffer, zero_dq, GROUP, D)
            dk, dq = warpgroup_mma_wait(0, deps=(dk_next, dq))
            mbarrier.arrive(empty.index(stage), count=1)
            _add_dq(dq, own_dq, dq_map, column_end, column, head, GROUP, D)
            column += BLOCK_Q
            blocks_done += 1
        # All products have ended in the loop. This only changes the type of `dv`.
        dv = warpgroup_mma_wait(0, deps=(dv,))
        mbarrier.arrive(kv_empty, count=1)
        # These words, `head` for a second time, are read after the loop, so that they do not need
        # registers in the loop.
        row_end = read_word(words, slot, ROW_END)
        row = read_word(words, slot, ROW) + GROUP * 64
        head = read_word(words, slot, HEAD)
        mbarrier.arrive(tile_empty.index(slot), count=1)
        store_tile(dv, staged, dv_map, row_end, row, head)
        store_tile(dk * scale, staged, dk_map, row_end, row, head)
        tiles_done += 1
        mbarrier.wait(tile_full.index(tiles_done & 1), (tiles_done >> 1) & 1)
        blocks = read_word(words, tiles_done & 1, BLOCKS)
    tma.store_wait(0)


@gluon.jit
def backward_kernel(
    q_map, grad_map, k_map, v_map, dq_map, dk_map, dv_map, SCHEDULE, factor, scale,
    BLOCK_Q: gl.constexpr, STAGES: gl.constexpr, FORM: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """Run at most one program per multiprocessor.

    ``dq_map`` describes the float32 sum of dS K, which ``scale_dq_kernel`` multiplies by ``scale``.
    ``factor`` and ``FORM``: see :func:`hopper_gluon.sigmoid`.
    """
    D: gl.constexpr = k_map.block_shape[4]
    dtype: gl.constexpr = k_map.dtype
    keys_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, D], dtype)
    queries_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_Q, D], dtype)
    exchange_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, BLOCK_Q], dtype)
    dq_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float32)
    words_layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    ks = gl.allocate_shared_memory(dtype, [2, 64, D], keys_layout)
    vs = gl.allocate_shared_memory(dtype, [2, 64, D], keys_layout)
    qs = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_Q, D], queries_layout)
    grads = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_Q, D], queries_layout)
    exchange = gl.allocate_shared_memory(dtype, [4, 64, BLOCK_Q], exchange_layout)
    dqs = gl.allocate_shared_memory(gl.float32, [2, 64, 64], dq_layout)
    outs = gl.allocate_shared_memory(dtype, [2, 64, D], keys_layout)
    words = gl.allocate_shared_memory(gl.int32, [AHEAD * 8, 1], words_layout)
    in_maps = (q_map, grad_map, k_map, v_map)
    out_maps = (dq_map, dk_map, dv_map)
    inputs = (qs, grads, ks, vs)
    staging = (exchange, dqs, outs)
    kv_full, kv_empty = allocate_barriers(1, 1).index(0), allocate_barriers(1, 2).index(0)
    exchanged = allocate_barriers(1, 2).index(0)
    barriers = (kv_full, kv_empty, allocate_barriers(STAGES, 1), allocate_barriers(STAGES, 2))
    announcements = (allocate_barriers(AHEAD, 1), allocate_barriers(AHEAD, 2))
    common = (out_maps, factor, scale, inputs, staging, words, barriers, exchanged, announcements)
    gl.warp_specialize(
        [
            (_consumer, (0, common, BLOCK_Q, STAGES, FORM)),
            (_consumer, (1, common, BLOCK_Q, STAGES, FORM)),
            (
                _producer,
                (SCHEDULE, in_maps, inputs, words, barriers, announcements, BLOCK_Q, STAGES),
            ),
        ],
        # Warps, and registers per thread, of the second consumer and the producer.
        [4, 1],
        [240, 24],
    )
