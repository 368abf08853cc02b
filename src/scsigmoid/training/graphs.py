"""CUDA graphs that compute the gradients of small batches, one for each :class:`Bucket` of sizes.

For a small batch, launching kernels takes the host more time than running them takes the GPU. A
CUDA graph is a single launch. It repeats a recording with the same shapes at the same addresses, so
a batch is copied into static memory and padded to the sizes of its bucket:

- One sequence is added, of at most 127 tokens or a sixteenth of the batch, if this is more. Nothing
  is predicted in it, so its gradients are zero. Tokens outside of all sequences would not do,
  because the kernels do not write their results.
- Empty sequences are added, and masked positions with targets that the cross-entropy ignores.

Padding does not change the loss, but it may change the order of sums over tokens. A graph computes
the same bits as the same kernels without a graph, if these are deterministic.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from scsigmoid.attention.problem import LONGEST_APPROXIMATE
from scsigmoid.model.batches import IGNORED, Batch
from scsigmoid.model.sizes import EncoderSettings, count_parameters
from scsigmoid.progress import log

#: Backends that can be recorded, because they do not read lengths on the host.
GRAPHED = ("hopper", "triton", "fa4", "sdpa")
#: Limits of a batch in a graph: its number of tokens, and this number times the model's parameters
#: per layer. Above these limits, computing on an H200 takes longer than launching the kernels.
#: MOST_WORK is estimated from launches of 1.2 ms per layer, 6 operations per token and parameter,
#: and 400 TFLOPS, plus 50 %. Measured only with 160 million parameters and up to 8,225 tokens.
MOST_TOKENS = 16_384
MOST_WORK = 1.2e11
#: Maximum number of graphs of a model. They share all memory except for their lists of kernels.
MOST_GRAPHS = 128
#: Number of runs before a recording, in which kernels are compiled, tuned and loaded.
WARM_RUNS = 2
_LEAST_SPACING = 128  # minimum difference between the numbers of tokens of two buckets


class Bucket(NamedTuple):
    """The shapes of a graph."""

    tokens: int  # number of tokens, including the padding
    sequences: int  # number of cells, the padding sequence and empty sequences
    masked: int  # number of positions that are predicted or ignored
    longest: int  # upper bound of the length of a sequence


def most_tokens(settings: EncoderSettings) -> int:
    """Return the maximum number of tokens of a batch for which a graph is faster."""
    return min(MOST_TOKENS, int(MOST_WORK * settings.layers / count_parameters(settings)))


def bucket_of(batch: Batch, context: int, mask_fraction: float) -> Bucket:
    """Return the bucket of a batch, with one of up to 16 token counts per power of two."""
    next_power = 2 ** (len(batch.tokens) - 1).bit_length()
    spacing = max(_LEAST_SPACING, next_power // 32)
    tokens = math.ceil(len(batch.tokens) / spacing) * spacing
    # A power of two above the number of cells, because the padding is one more sequence.
    sequences = max(4, 2 ** len(batch.cells).bit_length())
    # `+ sequences`, because the number of masked genes of each cell is rounded, and at least 1.
    masked = max(len(batch.masked), int(mask_fraction * tokens) + sequences)
    longest = min(tokens, max(context, spacing))  # of a cell, or of the padding
    # The kernels choose the form of the sigmoid by `longest`. Padding must not change the form.
    if batch.max_seqlen <= LONGEST_APPROXIMATE:
        longest = min(longest, LONGEST_APPROXIMATE)
    return Bucket(tokens, sequences, masked, longest)


class Graphs:
    """Gradients of a loss for batches of various sizes.

    Attributes:
        gradients: gradients of ``parameters`` for the last batch, in static memory.
        recording: whether graphs are recorded. Otherwise kernels are launched one by one.
        replayed: whether a graph computed the last batch.
    """

    def __init__(
        self,
        loss: Callable[[Batch, Tensor | None, Tensor | None], Tensor],
        parameters: Sequence[Tensor],
        largest: int,
        device: torch.device,
    ) -> None:
        """Allocate memory for gradients and for batches of at most ``largest`` tokens.

        ``loss`` is a function of a batch on the device, its dropout keys (tokens,) and weights
        (masked, 2). It returns the summed loss, (), or (2,) with weights.
        """
        integers = partial(torch.zeros, dtype=torch.int64, device=device)
        self.gradients = [torch.zeros_like(parameter) for parameter in parameters]
        self.recording = device.type == "cuda"
        self.replayed = False
        self._loss, self._parameters = loss, parameters
        capacity = largest + max(_LEAST_SPACING, largest // 16)  # tokens, with padding
        # Enough for the sequences and the masked positions of a bucket (`bucket_of`). A cell has at
        # least one token, and the number of sequences is a power of two, up to twice the number of
        # cells. Up to all tokens are masked, and one more position for each sequence.
        limit = 3 * capacity + 4
        self._tokens, self._positions = integers(capacity), integers(capacity)
        self._keys = integers(capacity, dtype=torch.int32)
        self._cu_seqlens = integers(limit, dtype=torch.int32)
        self._masked, self._targets = integers(limit), integers(limit)
        self._weights = torch.zeros(limit, 2, device=device)
        # Gradients with which the backward pass starts. Without weights, `differentiate` fills in
        # 1 / masked, for the mean. With weights, only the first of two sums is differentiated.
        self._mean_start = torch.ones((), device=device)
        self._weighted_start = torch.tensor([1.0, 0.0], device=device)
        self._recorded: dict[Bucket, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        if self.recording:
            self._warm_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()

    def copy_padded(self, batch: Batch, bucket: Bucket) -> Batch:
        """Return a padded copy of a batch in static memory, which the next batch overwrites."""

        def fill(memory: Tensor, values: Tensor, size: int, padding: int) -> Tensor:
            memory[: len(values)].copy_(values, non_blocking=True)
            memory[len(values) : size].fill_(padding)
            return memory[:size]

        bounds = bucket.sequences + 1
        return Batch(
            tokens=fill(self._tokens, batch.tokens, bucket.tokens, 0),
            positions=fill(self._positions, batch.positions, bucket.tokens, 0),
            # The first added bound ends the padding sequence, all others end empty sequences.
            cu_seqlens=fill(self._cu_seqlens, batch.cu_seqlens, bounds, bucket.tokens),
            masked=fill(self._masked, batch.masked, bucket.masked, 0),
            targets=fill(self._targets, batch.targets, bucket.masked, IGNORED),
            cells=pad(batch.cells, (0, bucket.sequences - len(batch.cells))),
            max_seqlen=bucket.longest,
            cls_token=batch.cls_token,
        )

    def differentiate(
        self,
        padded: Batch,
        bucket: Bucket,
        keys: Tensor | None,
        masked: int,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Compute ``gradients`` for ``padded``, the last result of :meth:`copy_padded`.

        Return the sum of the losses divided by ``masked``, the masked genes of the global batch.
        The result is a scalar on the device, and ``gradients`` are its gradients. With ``weights``
        of the losses, (n, 2) float32, ``gradients`` are of the first weighted sum, and the
        second weighted sum is divided and returned. Set weights for all batches or for none.
        """
        # Detached, because torch.compile compiles another graph for arguments that are views.
        if keys is not None:
            keys = self._keys[: bucket.tokens].copy_(keys).detach()
        if weights is None:
            self._mean_start.fill_(1 / masked)
        else:
            self._weights[len(weights) : bucket.masked].zero_()
            self._weights[: len(weights)].copy_(weights, non_blocking=True)
            weights = self._weights[: bucket.masked].detach()
        if self.recording and bucket not in self._recorded:
            self._record(bucket, padded, keys, weights)
        self.replayed = bucket in self._recorded
        if self.replayed:
            graph, sums = self._recorded[bucket]
            graph.replay()
        else:
            sums = self._compute(padded, keys, weights)
        return (sums if weights is None else sums[1]) / masked

    def _compute(self, padded: Batch, keys: Tensor | None, weights: Tensor | None) -> Tensor:
        sums = self._loss(padded, keys, weights)
        start = self._mean_start if weights is None else self._weighted_start
        # By default, another thread runs the backward pass. Waking the thread takes longer than the
        # kernels of a small batch.
        with torch.autograd.set_multithreading_enabled(False):
            gradients = torch.autograd.grad(sums, self._parameters, start)
        # All graphs share `self.gradients`, because separate gradients would not fit in memory.
        torch._foreach_copy_(self.gradients, gradients)
        return sums.detach()

    def _record(
        self, bucket: Bucket, padded: Batch, keys: Tensor | None, weights: Tensor | None
    ) -> None:
        """Record the graph of a bucket, or stop recording if an operation cannot be captured."""
        current = torch.cuda.current_stream()
        self._warm_stream.wait_stream(current)
        with torch.cuda.stream(self._warm_stream):
            for _ in range(WARM_RUNS):
                self._compute(padded, keys, weights)
        current.wait_stream(self._warm_stream)
        graph = torch.cuda.CUDAGraph()
        try:
            # "thread_local" lets other threads allocate page-locked memory for batches meanwhile.
            with capture(graph, self._pool, capture_error_mode="thread_local"):
                sums = self._compute(padded, keys, weights)
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
            log(f"batches of further sizes than {MOST_GRAPHS} are computed without CUDA graphs")


# Each GPU needs a stream. By default, torch records all graphs on one stream, of the GPU that is
# current at the first recording, and would not record kernels on another GPU.
@cache
def _recording_stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@contextlib.contextmanager
def capture(graph: torch.cuda.CUDAGraph, pool: Any, **options: Any) -> Iterator[None]:
    """Record the block as a CUDA graph, and restore the state of torch if the capture fails.

    Otherwise torch would keep the capture's stream as the current stream, and its allocator would
    not free memory, as if the capture continued.
    """
    with torch.cuda.stream(torch.cuda.current_stream()):  # restores the current stream
        try:
            stream = _recording_stream(torch.cuda.current_device())
            with torch.cuda.graph(graph, pool=pool, stream=stream, **options):
                yield
        except BaseException:
            device = torch.cuda.current_device()
            # The allocator raises RuntimeError if it has no open capture.
            with contextlib.suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(device, pool)
                torch._C._cuda_releasePool(device, pool)
            raise
