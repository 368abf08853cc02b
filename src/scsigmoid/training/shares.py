"""The batches of a run: their cells, division among processes, and prefetching.

The sequence of global batches depends only on the seed and the number of cells. Sigmoid and softmax
models, and any number of processes, see the same cells in the same order with the same masks.

A cell of n tokens costs a n + b n^2 floating-point operations: a n for linear layers, b n^2 for
attention. Processes wait for each other once per step, so all of them get equal work.
"""

import heapq
import threading
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import numpy.typing as npt
import torch

from scsigmoid.config.schema import Training
from scsigmoid.errors import UserError
from scsigmoid.model.batches import Batch, Int64s, Integers, pack
from scsigmoid.model.masking import Masking
from scsigmoid.model.sizes import EncoderSettings, count_flops
from scsigmoid.seeds import derive
from scsigmoid.tokens.shuffle import CellOrder
from scsigmoid.tokens.store import TokenStore

Float64s = npt.NDArray[np.float64]


def work_of_cells(lengths: Integers, settings: EncoderSettings, mask_fraction: float) -> Float64s:
    """Return the operations of training on each cell, (cells,), from the ``lengths`` in tokens."""
    # Find a and b of the module's docstring. Cells of 1 and 2 tokens cost a + b and 2 a + 4 b.
    work_of_1, work_of_2 = (count_flops(settings, [length], 0) for length in (1, 2))
    b = work_of_2 / 2 - work_of_1
    a = work_of_1 - b
    a += mask_fraction * count_flops(settings, [], 1)  # the output layer
    n = lengths.astype(np.float64)
    return n * (a + b * n)


def divide(work: Float64s, parts: int) -> list[Int64s]:
    """Partition cells into parts of about equal work. Return ascending indices for each part.

    Longest processing time first (Graham 1969): the heaviest remaining cell goes to the part with
    the least work. With at least 8 cells per part, and lengths as in the paper's Fig. 1, the work
    of the parts differs by less than 2 %. If there are more parts than cells, some are empty.
    """
    members: list[list[int]] = [[] for _ in range(parts)]
    heap = [(0.0, part) for part in range(parts)]  # (work of the part, part)
    for cell in np.argsort(-work, kind="stable").tolist():
        least_work, part = heap[0]
        members[part].append(cell)
        heapq.heapreplace(heap, (least_work + float(work[cell]), part))
    return [np.array(sorted(cells), dtype=np.int64) for cells in members]


def micro_batches(lengths: Integers, work: Float64s, budget: int) -> list[Int64s]:
    """Divide the cells of a process into as few micro-batches as possible, of about equal work.

    A micro-batch has at most ``budget`` tokens or a single longer cell. ``lengths`` (in tokens) and
    ``work`` are (cells,).
    """
    count = min(len(lengths), max(1, ceil(int(lengths.sum()) / budget)))
    while True:
        parts = divide(work, count)
        if all(len(part) == 1 or lengths[part].sum() <= budget for part in parts):
            return parts
        count += 1


@dataclass(frozen=True, kw_only=True)
class Share:
    """The micro-batches of one process in a step, and the size of the global batch."""

    micro_batches: Sequence[Batch]
    lengths: Int64s  # (cells,) number of tokens of every cell of the global batch
    capacity: int  # sum of the token budgets of all micro-batches of all processes

    @property
    def masked(self) -> int:
        """Number of masked genes of the process."""
        return sum(len(batch.masked) for batch in self.micro_batches)


def validation_indices(total: int, count: int) -> Int64s:
    """Return the indices of ``count`` validation cells in a store of ``total`` cells.

    The indices are evenly spaced. They are a random sample, because a store is shuffled.
    """
    if count >= total:
        raise UserError(f"training.validation_cells: {count} of {total} training cells; take fewer")
    return np.arange(count, dtype=np.int64) * total // max(1, count)


class GlobalBatches:
    """The shares of one process in the global batches of a training run. Thread-safe."""

    def __init__(
        self,
        store: TokenStore,
        settings: EncoderSettings,
        training: Training,
        seed: int,
        *,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        if processes > training.global_batch:
            raise UserError(
                f"training.global_batch: {training.global_batch} cells do not occupy {processes} "
                f"processes; start at most {training.global_batch}"
            )
        self.store = store
        self.settings = settings
        self.training = training
        self.rank = rank
        self.processes = processes
        self.mask_seed = derive(seed, "masks")
        validation = validation_indices(len(store.lengths), training.validation_cells)
        # For each validation cell, the number of cells before it that are trained on.
        self._trained_before = validation - np.arange(len(validation))
        self._order = CellOrder(len(store.lengths) - len(validation), seed)
        self._lock = threading.Lock()

    def cells(self, step: int) -> Int64s:
        """Return the indices in the store of the cells of a step. Steps are counted from 1."""
        # `CellOrder` caches its last result and is not thread-safe.
        with self._lock:
            indices = self._order.batch(step - 1, self.training.global_batch)
        # `indices` do not count validation cells. Add the number of validation cells before each.
        return indices + np.searchsorted(self._trained_before, indices, side="right")

    def __getitem__(self, step: int) -> Share:
        """Return the share of this process in a step. Steps are counted from 1."""
        training, settings = self.training, self.settings
        cells = self.cells(step)
        gene_counts = np.minimum(self.store.lengths[cells], settings.genes).astype(np.int64)
        lengths = gene_counts + settings.cls_token
        work = work_of_cells(lengths, settings, training.mask_fraction)
        budget = training.execution.micro_batch_tokens
        # All processes compute the same division, so that they need not communicate.
        division = []  # division[process][micro-batch]: indices into `cells`
        for members in divide(work, self.processes):
            parts = micro_batches(lengths[members], work[members], budget)
            division.append([members[part] for part in parts])
        masking = Masking(
            seed=self.mask_seed,
            draw=step,
            fraction=training.mask_fraction,
            replacement=training.mask_replacement,
            vocabulary_size=settings.vocabulary_size,
        )
        return Share(
            micro_batches=[
                pack(self.store, cells[part], settings, masking) for part in division[self.rank]
            ],
            lengths=lengths,
            capacity=budget * sum(len(parts) for parts in division),
        )


def prefetch(
    batches: GlobalBatches, steps: range, workers: int, device: torch.device
) -> Generator[Share, None, None]:
    """Yield the shares of steps in order. Each worker, a thread, prepares up to two in advance.

    Reading, sorting and hashing release the GIL, so threads are as fast as processes. With 0
    workers, each share is prepared when needed. For a GPU, shares are in page-locked memory.
    """
    is_gpu = device.type == "cuda"

    def prepare(step: int) -> Share:
        share = batches[step]
        if is_gpu:
            share = replace(share, micro_batches=[batch.pinned() for batch in share.micro_batches])
        return share

    def use_device() -> None:
        # Without this, page-locking would allocate memory on the first GPU of the machine.
        if is_gpu and device.index is not None:
            torch.cuda.set_device(device)

    if not workers:
        yield from map(prepare, steps)
        return
    waiting: deque[Future[Share]] = deque()
    with ThreadPoolExecutor(workers, "batches", use_device) as pool:
        try:
            for step in steps:
                waiting.append(pool.submit(prepare, step))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # also if the loop over this generator ends early
            pool.shutdown(cancel_futures=True)
