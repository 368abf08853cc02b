"""The global batches of a run, and their preparation ahead of time.

The sequence of global batches depends on the seed and the number of cells alone: both arms of a
pair, any number of processes and any division of the work see the same cells in the same order
with the same masks.
"""

import threading
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from scsigmoid.config.schema import Training
from scsigmoid.errors import UserError
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.seeds import derive
from scsigmoid.tokens.shuffle import CellOrder
from scsigmoid.training.batches import Batch, Cells, Int64s, Masking, pack
from scsigmoid.training.division import Work, divide, micro_batches


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one process computes of a global batch, and the size of the whole.

    Attributes:
        micro_batches: the process's cells.
        lengths: (cells,) tokens of every cell of the global batch.
        capacity: tokens that the micro-batches of all processes together may hold.
    """

    micro_batches: Sequence[Batch]
    lengths: Int64s
    capacity: int

    @property
    def masked(self) -> int:
        """Masked genes of the process's cells."""
        return sum(len(batch.masked) for batch in self.micro_batches)

    def pinned(self) -> "Share":
        """The share in page-locked memory, from which a GPU copies while it computes."""
        return Share(
            micro_batches=[batch.pinned() for batch in self.micro_batches],
            lengths=self.lengths,
            capacity=self.capacity,
        )


def validation_rows(cells: int, count: int) -> Int64s:
    """The rows of a store that are kept out of training, (count,), evenly spread, ascending.

    The order within a store is random, so they are a random sample of its cells.

    Raises:
        UserError: if no cell were left.
    """
    if count >= cells:
        raise UserError(f"training.validation_cells: {count} of {cells} training cells; take fewer")
    return np.arange(count, dtype=np.int64) * cells // max(1, count)


class GlobalBatches:
    """The global batches of a training run, as one of its processes sees them.

    Threads may ask for batches at the same time.
    """

    def __init__(
        self,
        store: Cells,
        settings: EncoderSettings,
        training: Training,
        seed: int,
        *,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        """Prepare to read.

        Args:
            store: the training cells.
            settings: the encoder, whose work is divided.
            training: the run's settings.
            seed: the run's seed.
            rank: which process this is.
            processes: how many there are.

        Raises:
            UserError: if there are more processes than cells in a global batch.
        """
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
        self.work = Work(settings, training.mask_fraction)
        self.mask_seed = derive(seed, "masks")
        kept_out = validation_rows(len(store.lengths), training.validation_cells)
        # How many training cells lie in front of each validation cell.
        self._before = kept_out - np.arange(len(kept_out))
        self._order = CellOrder(len(store.lengths) - len(kept_out), seed)
        self._lock = threading.Lock()

    def cells(self, step: int) -> Int64s:
        """Rows of the store that make up the global batch of a step, counted from 1."""
        # The order keeps what it worked out last.
        with self._lock:
            places = self._order.batch(step - 1, self.training.global_batch)
        return places + np.searchsorted(self._before, places, side="right")

    def __getitem__(self, step: int) -> Share:
        """The process's share of a step, counted from 1."""
        training, settings = self.training, self.settings
        cells = self.cells(step)
        genes = np.minimum(self.store.lengths[cells], settings.genes).astype(np.int64)
        lengths = genes + settings.cls_token
        work = self.work.of(lengths)
        # All processes divide alike, so none needs to tell the others.
        budget = training.micro_batch_tokens
        shares = [
            [members[part] for part in micro_batches(lengths[members], work[members], budget)]
            for members in divide(work, self.processes)
        ]
        masking = Masking(
            seed=self.mask_seed,
            draw=step,
            fraction=training.mask_fraction,
            replacement=training.mask_replacement,
            vocabulary_size=settings.vocabulary_size,
        )
        return Share(
            micro_batches=[
                pack(self.store, cells[part], settings, masking) for part in shares[self.rank]
            ],
            lengths=lengths,
            capacity=budget * sum(len(parts) for parts in shares),
        )


def ahead(
    batches: GlobalBatches, steps: range, workers: int, device: torch.device
) -> Generator[Share, None, None]:
    """The shares of steps, in order, prepared ahead by threads.

    What takes long, reading, sorting and hashing, runs outside Python's lock, so threads are
    enough and nothing has to be copied between processes.

    Args:
        batches: where they come from.
        steps: which ones.
        workers: threads; 0 prepares each share when it is asked for.
        device: where they will go; for a GPU they are put into page-locked memory.
    """
    gpu = device.type == "cuda"

    def prepare(step: int) -> Share:
        share = batches[step]
        return share.pinned() if gpu else share

    def begin() -> None:
        # Else the thread would take memory of the machine's first GPU.
        if gpu and device.index is not None:
            torch.cuda.set_device(device)

    if not workers:
        yield from map(prepare, steps)
        return
    waiting: deque[Future[Share]] = deque()
    with ThreadPoolExecutor(workers, "batches", begin) as pool:
        try:
            for step in steps:
                waiting.append(pool.submit(prepare, step))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
