"""How the producer of a Hopper kernel tells its consumers which tile comes next."""

from scsigmoid.attention.hopper_gluon import advance, gl, gluon, mbarrier

#: Tiles announced ahead of the one in work.
AHEAD = gl.constexpr(2)


@gluon.jit
def entry(SCHEDULE, tile):
    """The words of a tile's entry, in the order of :func:`hopper_schedule.schedule_kernel`."""
    at = SCHEDULE + 8 + tile * 8
    return (
        gl.load(at),
        gl.load(at + 1),
        gl.load(at + 2),
        gl.load(at + 3),
        gl.load(at + 4),
        gl.load(at + 5),
        gl.load(at + 6),
        gl.load(at + 7),
    )


@gluon.jit
def announce(words, barriers, slot, phase, row_end, row, blocks, summand, head, sixth, seventh):
    """Tell the consumers which tile comes next; no blocks of columns means that none does."""
    full, empty = barriers
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    mbarrier.wait(empty.index(slot), phase)
    words.index(slot * 8).store(gl.full([1], blocks, gl.int32, layout))
    words.index(slot * 8 + 1).store(gl.full([1], row_end, gl.int32, layout))
    words.index(slot * 8 + 2).store(gl.full([1], row, gl.int32, layout))
    words.index(slot * 8 + 3).store(gl.full([1], summand, gl.int32, layout))
    words.index(slot * 8 + 4).store(gl.full([1], head, gl.int32, layout))
    words.index(slot * 8 + 5).store(gl.full([1], sixth, gl.int32, layout))
    words.index(slot * 8 + 6).store(gl.full([1], seventh, gl.int32, layout))
    mbarrier.arrive(full.index(slot), count=1)
    return advance(slot, phase, AHEAD)


@gluon.jit
def word(words, slot, NUMBER: gl.constexpr):
    """One number of an announced tile, the same in every thread."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    return gl.max(words.index(slot * 8 + NUMBER).load(layout), axis=0)
