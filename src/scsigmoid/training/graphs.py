"""Gradients of small batches as CUDA graphs, one for each size of batch.

The host needs longer to launch the kernels of a small batch than the GPU needs to run them.  A
graph is launched as one.  It repeats a recording: the same shapes at the same addresses.  So a
batch is copied into memory that stays, and filled up to its :class:`Bucket`'s size:

- tokens by one more sequence, at most a sixteenth of the batch or 127 tokens, for which nothing is
  predicted: its gradients are zeros.  Rows outside of every sequence would be left unwritten;
- sequences by empty ones;
- masked positions by targets that the cross-entropy ignores.

The loss is that of the batch alone, but sums over tokens may be added in another order than without
filling.  A graph computes the same bits as its kernels launched one by one (where these are
deterministic), so whether a graph was recorded or not does not show in the results.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from scsigmoid.attention.problem import LONGEST_APPROXIMATE
from scsigmoid.model.sizes import EncoderSettings, count_parameters
from scsigmoid.progress import log
from scsigmoid.training.batches import IGNORED, Batch

#: Backends that read no lengths on the host.
GRAPHED = ("hopper", "triton", "fa4", "sdpa")
#: Most tokens of a batch in a graph, and of tokens times parameters of a layer: with more, an H200
#: computes longer than its host launches.  An estimate (1.2 ms a layer and 400 TFLOPS, with half as
#: much again), measured at 160M alone, up to 8,225 tokens.
MOST_TOKENS = 16_384
MOST_WORK = 1.2e11
#: Graphs of one model.  All share their memory, but each takes some for its list of kernels.
MOST_GRAPHS = 128
#: Runs before a recording: what is compiled, chosen or loaded at first is there by then.
WARM_RUNS = 2
_LEAST_SPACING = 128


class Bucket(NamedTuple):
    """The shapes of a graph.

    Attributes:
        tokens: the last sequence that is not empty fills them up.
        sequences: cells, the filling and empty ones.
        masked: positions to be predicted or ignored.
        longest: no sequence is longer.
    """

    tokens: int
    sequences: int
    masked: int
    longest: int


def most_tokens(settings: EncoderSettings) -> int:
    """Most tokens of a batch for which a graph is worth while."""
    return min(MOST_TOKENS, int(MOST_WORK * settings.layers / count_parameters(settings)))


def bucket_of(batch: Batch, context: int, mask_fraction: float) -> Bucket:
    """The smallest bucket that holds a batch; 16 between a power of two and the next.

    Args:
        batch: of at least one token.
        context: longest sequence in tokens.
        mask_fraction: share of the genes that is masked.
    """
    spacing = max(_LEAST_SPACING, 2 ** (len(batch.tokens) - 1).bit_length() // 32)
    tokens = -(-len(batch.tokens) // spacing) * spacing
    sequences = max(4, 2 ** len(batch.cells).bit_length())
    # Each cell's number of masked genes is rounded, and at least one.
    masked = max(len(batch.masked), int(mask_fraction * tokens) + sequences)
    longest = min(tokens, max(context, spacing))
    # The form of the sigmoid must be that of the batch.
    if batch.max_seqlen <= LONGEST_APPROXIMATE:
        longest = min(longest, LONGEST_APPROXIMATE)
    return Bucket(tokens, sequences, masked, longest)


class Graphs:
    """Gradients of a loss for batches of various sizes.

    Attributes:
        gradients: of ``parameters``, in memory that stays; those of the last batch.
        recording: whether graphs are recorded; else kernels are launched one by one.
        replayed: whether the last batch was computed by a graph.
    """

    def __init__(
        self,
        loss: Callable[[Batch, Tensor | None, Tensor | None], Tensor],
        parameters: Sequence[Tensor],
        largest: int,
        device: torch.device,
    ) -> None:
        """Allocate memory for batches and gradients.

        Args:
            loss: of a batch on the device, its dropout keys (tokens,) and weights (masked, 2): the
                summed loss, (), or with weights (2,).
            parameters: that the loss depends on.
            largest: most tokens of a batch.
            device: a GPU; a CPU records no graphs.
        """

        def integers(count: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(count, dtype=dtype, device=device)

        self.gradients = [torch.zeros_like(parameter) for parameter in parameters]
        self.recording = device.type == "cuda"
        self.replayed = False
        self._loss, self._parameters = loss, parameters
        capacity = largest + max(_LEAST_SPACING, largest // 16)
        # A cell has a token at least, and their number is rounded up to a power of two.
        places = 2 * capacity + 4
        self._tokens, self._positions = integers(capacity), integers(capacity)
        self._keys = integers(capacity, torch.int32)
        self._cu_seqlens = integers(places, torch.int32)
        self._masked, self._targets = integers(places), integers(places)
        self._weights = torch.zeros(places, 2, device=device)
        self._mean, self._first = torch.ones((), device=device), torch.tensor([1.0, 0.0]).to(device)
        self._recorded: dict[Bucket, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        if self.recording:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()

    def hold(self, batch: Batch, bucket: Bucket) -> Batch:
        """Copy a batch in, without waiting if it is in page-locked memory; returns it, filled up.

        Batches of one bucket lie in the same memory.
        """

        def filled(memory: Tensor, values: Tensor, size: int, filling: int) -> Tensor:
            memory[: len(values)].copy_(values, non_blocking=True)
            memory[len(values) : size].fill_(filling)
            return memory[:size]

        return Batch(
            tokens=filled(self._tokens, batch.tokens, bucket.tokens, 0),
            positions=filled(self._positions, batch.positions, bucket.tokens, 0),
            cu_seqlens=filled(
                self._cu_seqlens, batch.cu_seqlens, bucket.sequences + 1, bucket.tokens
            ),
            masked=filled(self._masked, batch.masked, bucket.masked, 0),
            targets=filled(self._targets, batch.targets, bucket.masked, IGNORED),
            cells=pad(batch.cells, (0, bucket.sequences - len(batch.cells))),
            max_seqlen=bucket.longest,
        )

    def differentiate(
        self,
        held: Batch,
        bucket: Bucket,
        keys: Tensor | None,
        masked: int,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Compute ``gradients`` of a batch's loss, and the loss.

        Args:
            held: what :meth:`hold` returned last.
            bucket: of the batch.
            keys: its dropout keys.
            masked: the loss is divided by it.  With weights, its gradient is that of the first
                weighted sum, not divided.
            weights: (masked, 2) float32, of the losses; for all batches or none.

        Returns:
            Scalar on the device; with weights, of the second weighted sum.
        """
        # Not as views: torch's compiler makes a graph of its own for arguments that are views.
        if keys is not None:
            keys = self._keys[: bucket.tokens].copy_(keys).detach()
        if weights is None:
            self._mean.fill_(1 / masked)
        else:
            self._weights[len(weights) : bucket.masked].zero_()
            self._weights[: len(weights)].copy_(weights, non_blocking=True)
            weights = self._weights[: bucket.masked].detach()
        if self.recording and bucket not in self._recorded:
            self._record(bucket, held, keys, weights)
        self.replayed = bucket in self._recorded
        if self.replayed:
            graph, sums = self._recorded[bucket]
            graph.replay()
        else:
            sums = self._compute(held, keys, weights)
        return (sums if weights is None else sums[1]) / masked

    def _compute(self, held: Batch, keys: Tensor | None, weights: Tensor | None) -> Tensor:
        sums = self._loss(held, keys, weights)
        seed = self._mean if weights is None else self._first
        # In this thread: to wake another takes longer than a small batch's kernels run.
        with torch.autograd.set_multithreading_enabled(False):
            found = torch.autograd.grad(sums, self._parameters, seed)
        # Gradients of every graph's own would fill the memory.
        torch._foreach_copy_(self.gradients, found)
        return sums.detach()

    def _record(
        self, bucket: Bucket, held: Batch, keys: Tensor | None, weights: Tensor | None
    ) -> None:
        """Record the graph of a bucket.

        If CUDA reports an operation that cannot be captured, log it once and record no more graphs.
        Any other error is raised.
        """
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_RUNS):
                self._compute(held, keys, weights)
        current.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads may allocate page-locked memory for batches meanwhile.
            with capture(graph, self._pool, capture_error_mode="thread_local"):
                sums = self._compute(held, keys, weights)
        except RuntimeError as error:
            # CUDA: "operation not permitted when stream is capturing", "... during capture".
            if "captur" not in str(error):
                raise
            self.recording = False
            log(f"small batches are computed without CUDA graphs: {error}")
            return
        self._recorded[bucket] = graph, sums
        if len(self._recorded) == MOST_GRAPHS:
            self.recording = False
            log(f"batches of sizes other than {MOST_GRAPHS} ones are computed without CUDA graphs")


# torch makes one stream for all graphs, on the GPU that is the current one then; kernels on another
# GPU would not be recorded.
@functools.cache
def _recording_stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@contextlib.contextmanager
def capture(graph: torch.cuda.CUDAGraph, pool: Any, **options: Any) -> Iterator[None]:
    """Record the block as a CUDA graph; where that fails, torch works on as before.

    torch leaves a failed capture half open: its stream stays the current one, and its allocator,
    which takes the capture to be going on, frees no memory from then on.

    Args:
        graph: to record.
        pool: of the graph's memory, from ``torch.cuda.graph_pool_handle``.
        options: of ``torch.cuda.graph``, except ``pool`` and ``stream``, which are set here.
    """
    with torch.cuda.stream(torch.cuda.current_stream()):
        try:
            stream = _recording_stream(torch.cuda.current_device())
            with torch.cuda.graph(graph, pool=pool, stream=stream, **options):
                yield
        except BaseException:
            device = torch.cuda.current_device()
            # The allocator refuses to end what is not going on.
            with contextlib.suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(device, pool)
                torch._C._cuda_releasePool(device, pool)
            raise
