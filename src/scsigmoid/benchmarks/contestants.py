"""One encoder trained with one attention kernel and layout: made, checked, and timed in turns."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from scsigmoid.benchmarks.inputs import relative_error
from scsigmoid.benchmarks.preparing import (
    TOLERANCE,
    Wrong,
    dtype_of,
    first_line,
    forget,
    reason,
    release,
)
from scsigmoid.benchmarks.sigmoid_kernels import Unavailable
from scsigmoid.benchmarks.stacks import Stack
from scsigmoid.benchmarks.stopwatch import Stopwatch
from scsigmoid.config.schema import Training
from scsigmoid.errors import UserError
from scsigmoid.model.encoder import Block, Encoder
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.progress import log
from scsigmoid.training.batches import Batch
from scsigmoid.training.devices import synchronise
from scsigmoid.training.step import Trainer, autocast, summed_loss

# Steps before those of a turn that are timed: after a pause, launching them must catch up first.
LEAD_STEPS = 1


@dataclass
class Contestant:
    """A stack at one context, and what was found of it.

    Attributes:
        trainer: None where it cannot be timed; ``note`` says why.
        loss: of the first step.
        error: of the gradient, see :func:`gradient_error`.
        graphs: compiled before the first turn.
        recompiled: graphs that were compiled in turns.
        memory: most bytes of a step, of this model alone; NaN on a CPU.
        milliseconds: a step's mean time in each turn.
    """

    stack: Stack
    trainer: Trainer | None = None
    note: str = ""
    loss: float = math.nan
    error: float = math.nan
    graphs: int = 0
    recompiled: int = 0
    memory: float = math.nan
    milliseconds: list[float] = field(default_factory=list)

    def drop(self, note: str) -> None:
        """Forget the model and all readings; the note says why."""
        self.trainer, self.note = None, note
        self.milliseconds.clear()


@dataclass(frozen=True)
class Course:
    """What all contestants of a context share.

    Attributes:
        like: the encoder; each contestant has its own attention.
        training: the optimiser's settings.
        seed: of weights and dropout.
        device: what computes.
    """

    like: EncoderSettings
    training: Training
    seed: int
    device: torch.device


def prepare(
    contestant: Contestant,
    course: Course,
    weights: Mapping[str, Tensor],
    batches: Sequence[Batch],
    errors: dict[Stack, float],
) -> None:
    """Check a contestant's attention, make its model and take its first steps.

    What fails is noted, and the memory that it holds given back.

    Args:
        contestant: gets a trainer, or a note.
        course: see there.
        weights: initial weights of all.
        batches: packed batches of the first steps, in which everything is compiled and chosen.
        errors: of the stacks that were checked at an earlier context; this one's is added.

    Raises:
        UserError: if it has left the GPU unusable.
    """
    stack, device = contestant.stack, course.device
    begin = time.perf_counter()
    try:
        if stack not in errors:
            errors[stack] = gradient_error(stack, course, batches[0])
        contestant.error = errors[stack]
        # Also where it is NaN.
        if not contestant.error <= TOLERANCE[dtype_of(device)]:
            raise Wrong(f"a gradient has a relative error of {contestant.error:.2g}")
        before = compiled_graphs(device)
        encoder = stack.encoder(course.like, device)
        encoder.load_state_dict(weights)
        trainer = Trainer(encoder, course.training, course.seed, device)
        losses = [
            trainer.step(step, [stack.batch(batch, course.like.context)]).loss
            for step, batch in enumerate(batches, start=1)
        ]
        synchronise(device)
        contestant.trainer, contestant.loss = trainer, float(losses[0])
        contestant.graphs = compiled_graphs(device) - before
    except Unavailable as error:
        contestant.drop(str(error))
    except Exception as error:
        # Whatever a kernel of another project, or its compilation, raises is a result.
        give_up(contestant, error, device)
    log(f"{stack.name}: {contestant.note or f'ready in {time.perf_counter() - begin:.0f} s'}")


def give_up(contestant: Contestant, error: Exception, device: torch.device) -> None:
    """Note a failure and release what it held.

    Raises:
        UserError: if the GPU is unusable since.
    """
    contestant.drop(reason(error))
    forget(error)
    try:
        synchronise(device)
    except RuntimeError as broken:
        raise UserError(
            f"benchmarks.training: {contestant.stack.name} broke the GPU's context: "
            f"{first_line(broken)}; leave its kernel out of benchmarks.training.kernels"
        ) from None
    release(device)


def gradient_error(stack: Stack, course: Course, batch: Batch) -> float:
    """Relative error of a gradient: that of q, k and v's projection in an encoder of one layer.

    Compared with plain PyTorch in float32 over packed cells.  Two cells, no dropout, not compiled
    but for the kernel: what is checked is that the attention is the right one, padding included.
    """
    cells = first_cells(batch, 2)
    like = replace(course.like, layers=1, dropout=0.0)
    torch.manual_seed(course.seed)
    plain = Stack("reference", stack.attention, (course.device.type,))
    right = plain.encoder(like, course.device)
    encoder = stack.encoder(like, course.device)
    encoder.load_state_dict(right.state_dict())
    own = stack.batch(cells, like.context).to(course.device)
    with autocast(course.device):
        found = projection_gradient(encoder, own)
    return relative_error(found, projection_gradient(right, cells.to(course.device)))


def first_cells(batch: Batch, count: int) -> Batch:
    """The first cells of a packed batch."""
    tokens = int(batch.cu_seqlens[count])
    masked = int(torch.searchsorted(batch.masked, tokens))
    return replace(
        batch,
        tokens=batch.tokens[:tokens],
        positions=batch.positions[:tokens],
        cu_seqlens=batch.cu_seqlens[: count + 1],
        masked=batch.masked[:masked],
        targets=batch.targets[:masked],
        cells=batch.cells[:count],
    )


def projection_gradient(encoder: Encoder, batch: Batch) -> Tensor:
    """Gradient of the loss by the weights that make q, k and v in the first layer, float64."""
    embedded = encoder.embed(batch.tokens, batch.positions)
    mask = encoder.mask(embedded, batch.cu_seqlens)
    summed_loss(encoder, embedded, mask, batch).backward()
    first = encoder.blocks[0]
    assert isinstance(first, Block)
    assert first.qkv.weight.grad is not None
    return first.qkv.weight.grad.double()


def take_turn(
    contestant: Contestant, course: Course, batches: Sequence[Batch], first_step: int
) -> None:
    """Train on some batches and time all but the first ``LEAD_STEPS``; adds a reading.

    A model that does not fit in memory is dropped.

    Args:
        contestant: whose trainer does.
        course: see there.
        batches: in the contestant's layout.
        first_step: number of the first of these steps.
    """
    trainer, device = contestant.trainer, course.device
    assert trainer is not None
    before = compiled_graphs(device)
    memory = MemoryOf(trainer, device)
    watch = Stopwatch(device)
    try:
        for index, batch in enumerate(batches):
            if index == LEAD_STEPS:
                watch.mark()
            trainer.step(first_step + index, [batch])
        watch.mark()
        (seconds,) = watch.seconds()
    except torch.OutOfMemoryError as error:
        del trainer, memory
        give_up(contestant, error, device)
        return
    contestant.milliseconds.append(seconds / (len(batches) - LEAD_STEPS) * 1e3)
    contestant.recompiled += compiled_graphs(device) - before
    contestant.memory = memory.most(contestant.memory)


class MemoryOf:
    """The memory that one model's steps need, others lying on the same GPU.

    Args:
        trainer: the model with its optimiser.
        device: where it is; nothing is known of a CPU.
    """

    def __init__(self, trainer: Trainer, device: torch.device) -> None:
        self._device = device if device.type == "cuda" else None
        if self._device is not None:
            held: list[Tensor] = [*trainer.encoder.parameters()]
            held += [p.grad for p in trainer.encoder.parameters() if p.grad is not None]
            for state in trainer.optimiser.state.values():
                held += [value for value in state.values() if isinstance(value, Tensor)]
            own = sum(tensor.nbytes for tensor in held)
            self._others = torch.cuda.memory_allocated(self._device) - own
            torch.cuda.reset_peak_memory_stats(self._device)

    def most(self, so_far: float) -> float:
        """The most bytes, of now or before; NaN on a CPU."""
        if self._device is None:
            return math.nan
        peak = float(torch.cuda.max_memory_allocated(self._device) - self._others)
        return peak if math.isnan(so_far) else max(so_far, peak)


def compiled_graphs(device: torch.device) -> int:
    """Graphs that ``torch.compile`` has made in this process; on a CPU nothing is compiled."""
    if device.type != "cuda":
        return 0
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
