"""The paper's algorithm 1 on Hopper: asynchronous copies and products, specialized warps.

A program has one producer warp and three or four consumer groups of four warps. The producer takes
tiles from the list (:func:`scsigmoid.attention.schedule.schedule`) and fills a ring of blocks. It
loads the next tile while the consumers finish the current one. Each consumer computes 64 query
rows. Two matrix products overlap: Q K^T of block i and P V of block i - 1 are issued together, and
P V runs during the sigmoid of block i. Unlike in softmax, no running maximum and sum separate them.
Each ring slot stores K of block i and V of block i - 1, so one barrier covers both. In the code,
rows are queries and columns are keys.

Scores are not masked. Descriptors (:mod:`scsigmoid.attention.launching`) load rows past the end of
a sequence as zeros and do not store them. V = 0 does not change P V.
"""

from scsigmoid.attention.hopper_gluon import (
    AHEAD,
    BLOCKS,
    HEAD,
    PIECE_COUNT,
    ROW,
    ROW_END,
    SUMMAND,
    accumulator_layout,
    advance,
    allocate_barriers,
    announce,
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
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def _producer(
    SCHEDULE, maps, inputs, words, barriers,
    PIECES: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Take tiles from the list and load queries, keys and values."""
    q_map, k_map, v_map = maps
    qs, ks, vs = inputs
    q_full, q_empty, full, empty, tile_full, tile_empty = barriers
    ROW_BYTES: gl.constexpr = q_map.block_shape[4] * 2
    Q_BYTES: gl.constexpr = 64 * ROW_BYTES
    BLOCK_BYTES: gl.constexpr = BLOCK_K * ROW_BYTES
    total = gl.load(SCHEDULE + 1)  # number of tiles
    tile = gl.program_id(0)
    slot = 0
    slot_phase = 1
    q_phase = 1
    stage = 0  # ring slot of a block
    phase = 1
    while tile < total:
        row_end, row, column_end, column, blocks, head, summand, pieces = read_entry(SCHEDULE, tile)
        slot, slot_phase = announce(
            words, (tile_full, tile_empty), slot, slot_phase,
            (blocks, row_end, row, summand, head, pieces, 0),
        )  # fmt: skip
        tile = take_tile(SCHEDULE)
        # All pieces are loaded, also those past the tile's end, so that all barriers complete.
        for piece in gl.static_range(PIECES):
            mbarrier.wait(q_empty.index(piece), q_phase)
            mbarrier.expect(q_full.index(piece), Q_BYTES)
            load_tile(q_map, row_end, row + piece * 64, head, q_full.index(piece), qs.index(piece))
        q_phase ^= 1
        # Step i loads K of block i (except the last step) and V of block i - 1 (except step 0).
        for block in range(blocks + 1):
            mbarrier.wait(empty.index(stage), phase)
            if block == 0 or block == blocks:
                mbarrier.expect(full.index(stage), BLOCK_BYTES)
            else:
                mbarrier.expect(full.index(stage), 2 * BLOCK_BYTES)
            if block < blocks:
                load_tile(k_map, column_end, column, head, full.index(stage), ks.index(stage))
            if block > 0:
                load_tile(
                    v_map, column_end, column - BLOCK_K, head, full.index(stage), vs.index(stage)
                )
            column += BLOCK_K
            stage, phase = advance(stage, phase, STAGES)
    announce(words, (tile_full, tile_empty), slot, slot_phase, (0, 0, 0, 0, 0, 0, 0))


@gluon.jit
def _consumer(
    GROUP: gl.constexpr, common,
    BLOCK_K: gl.constexpr, STAGES: gl.constexpr, FORM: gl.constexpr,
):  # fmt: skip
    """Compute 64 query rows of each tile."""
    out_map, factor, inputs, outs, words, barriers = common
    qs, ks, vs = inputs
    q_full, q_empty, full, empty, tile_full, tile_empty = barriers
    D: gl.constexpr = out_map.block_shape[4]
    dtype: gl.constexpr = out_map.dtype
    scores_layout: gl.constexpr = accumulator_layout(BLOCK_K)
    out_layout: gl.constexpr = accumulator_layout(D)
    weights_layout: gl.constexpr = gl.DotOperandLayout(
        operand_index=0, parent=out_layout, k_width=2
    )
    q = qs.index(GROUP)
    staged = outs.index(GROUP)
    zero_scores = gl.zeros([64, BLOCK_K], gl.float32, scores_layout)
    slot = 0
    slot_phase = 0
    q_phase = 0
    stage = 0
    phase = 0
    mbarrier.wait(tile_full.index(slot), slot_phase)
    blocks = read_word(words, slot, BLOCKS)
    while blocks > 0:
        row_end = read_word(words, slot, ROW_END)
        row = read_word(words, slot, ROW)
        summand = read_word(words, slot, SUMMAND).to(gl.float32, bitcast=True)
        head = read_word(words, slot, HEAD)
        pieces = read_word(words, slot, PIECE_COUNT)
        mbarrier.arrive(tile_empty.index(slot), count=1)
        slot, slot_phase = advance(slot, slot_phase, AHEAD)
        mbarrier.wait(q_full.index(GROUP), q_phase)
        q_phase ^= 1
        if pieces > GROUP:
            out = gl.zeros([64, D], gl.float32, out_layout)
            mbarrier.wait(full.index(stage), phase)
            scores = start_product(q, ks.index(stage), zero_scores)
            scores = warpgroup_mma_wait(0, deps=(scores,))
            mbarrier.arrive(empty.index(stage), count=1)
            new_weights = sigmoid(scores, factor, summand, FORM, ROUNDED=True)
            weights = gl.convert_layout(new_weights.to(dtype), weights_layout)
            stage, phase = advance(stage, phase, STAGES)
            mbarrier.wait(full.index(stage), phase)
            for _ in range(1, blocks):
                scores = start_product(q, ks.index(stage), zero_scores)
                out = warpgroup_mma(weights, vs.index(stage), out, is_async=True)
                scores = warpgroup_mma_wait(1, deps=(scores,))
                new_weights = sigmoid(scores, factor, summand, FORM, ROUNDED=True)
                read_stage = stage
                stage, phase = advance(stage, phase, STAGES)
                # Waiting for a barrier ends a basic block. Otherwise ptxas would move the sigmoid
                # after the wait for P V, so that the two would not overlap.
                mbarrier.wait(full.index(stage), phase)
                out, weights, new_weights = warpgroup_mma_wait(0, deps=(out, weights, new_weights))
                mbarrier.arrive(empty.index(read_stage), count=1)
                weights = gl.convert_layout(new_weights.to(dtype), weights_layout)
            mbarrier.arrive(q_empty.index(GROUP), count=1)
            out = warpgroup_mma(weights, vs.index(stage), out, is_async=True)
            out = warpgroup_mma_wait(0, deps=(out,))
            mbarrier.arrive(empty.index(stage), count=1)
            stage, phase = advance(stage, phase, STAGES)
            store_tile(out, staged, out_map, row_end, row + GROUP * 64, head)
        else:
            # This consumer has no rows in the tile. It releases the ring slots unread.
            mbarrier.arrive(q_empty.index(GROUP), count=1)
            for _ in range(blocks + 1):
                mbarrier.wait(full.index(stage), phase)
                mbarrier.arrive(empty.index(stage), count=1)
                stage, phase = advance(stage, phase, STAGES)
        mbarrier.wait(tile_full.index(slot), slot_phase)
        blocks = read_word(words, slot, BLOCKS)
    tma.store_wait(0)


@gluon.jit
def forward_kernel(
    q_map, k_map, v_map, out_map, SCHEDULE, factor,
    PIECES: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, REGISTERS: gl.constexpr,
    FORM: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """Run one program per multiprocessor with ``PIECES`` consumers of 64 query rows each."""
    D: gl.constexpr = q_map.block_shape[4]
    dtype: gl.constexpr = q_map.dtype
    rows_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, D], dtype)
    columns_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_K, D], dtype)
    words_layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    qs = gl.allocate_shared_memory(dtype, [PIECES, 64, D], rows_layout)
    outs = gl.allocate_shared_memory(dtype, [PIECES, 64, D], rows_layout)
    ks = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_K, D], columns_layout)
    vs = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_K, D], columns_layout)
    words = gl.allocate_shared_memory(gl.int32, [AHEAD * 8, 1], words_layout)
    inputs = (qs, ks, vs)
    q_full, q_empty = allocate_barriers(PIECES, 1), allocate_barriers(PIECES, 1)
    full, empty = allocate_barriers(STAGES, 1), allocate_barriers(STAGES, PIECES)
    tile_full, tile_empty = allocate_barriers(AHEAD, 1), allocate_barriers(AHEAD, PIECES)
    barriers = (q_full, q_empty, full, empty, tile_full, tile_empty)
    maps = (q_map, k_map, v_map)
    common = (out_map, factor, inputs, outs, words, barriers)
    # The first function runs in the kernel's own ``num_warps`` warps. The two lists have the warps,
    # and the registers per thread, of all other functions. The index of a group must be a constant,
    # so that addresses stay in uniform registers.
    if PIECES == 3:
        gl.warp_specialize(
            [
                (_consumer, (0, common, BLOCK_K, STAGES, FORM)),
                (_consumer, (1, common, BLOCK_K, STAGES, FORM)),
                (_consumer, (2, common, BLOCK_K, STAGES, FORM)),
                (_producer, (SCHEDULE, maps, inputs, words, barriers, PIECES, BLOCK_K, STAGES)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, 32],
        )
    else:
        gl.static_assert(PIECES == 4)
        gl.warp_specialize(
            [
                (_consumer, (0, common, BLOCK_K, STAGES, FORM)),
                (_consumer, (1, common, BLOCK_K, STAGES, FORM)),
                (_consumer, (2, common, BLOCK_K, STAGES, FORM)),
                (_consumer, (3, common, BLOCK_K, STAGES, FORM)),
                (_producer, (SCHEDULE, maps, inputs, words, barriers, PIECES, BLOCK_K, STAGES)),
            ],
            [4, 4, 4, 1],
            [REGISTERS, REGISTERS, REGISTERS, 32],
        )
