"""The ways to train the same encoder that are compared: an attention kernel and a layout."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from scsigmoid.benchmarks.cases import TOLERANCE, dtype_of, relative_error
from scsigmoid.benchmarks.padded import (
    FLEX,
    OURS,
    PUBLISHED,
    SDPA,
    PaddedAttention,
    PaddedEncoder,
    padded,
)
from scsigmoid.benchmarks.providers import imported
from scsigmoid.benchmarks.timing import (
    Stopwatch,
    Unavailable,
    Wrong,
    first_line,
    forget,
    reason,
    release,
)
from scsigmoid.config.schema import Training
from scsigmoid.errors import UserError
from scsigmoid.kernels import BACKENDS
from scsigmoid.model.encoder import Block, Encoder
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.progress import log
from scsigmoid.training.batches import Batch
from scsigmoid.training.devices import backend_of, synchronise
from scsigmoid.training.step import Trainer, autocast, summed_loss

# Steps before those of a round that are timed: after a pause, launching them must catch up first.
LEAD_STEPS = 1


@dataclass(frozen=True)
class Variant:
    """An attention kernel and a layout.

    Attributes:
        kernel: its name, as in the column.
        attention: ``sigmoid`` or ``softmax``.
        devices: device types on which it is of interest.
        backend: this project's backend that computes it, for packed batches.
        padded: how it is computed, for padded batches.
        package: the package that has the kernel, where it is an optional one.
    """

    kernel: str
    attention: str
    devices: tuple[str, ...]
    backend: str = "reference"
    padded: PaddedAttention | None = None
    package: str = ""

    @property
    def layout(self) -> str:
        """``packed`` or ``padded``."""
        return "packed" if self.padded is None else "padded"

    @property
    def name(self) -> str:
        """Kernel and layout, in words."""
        return f"{self.kernel}, {self.layout}"

    def settings(self, like: EncoderSettings) -> EncoderSettings:
        """The encoder's settings with this attention."""
        return replace(like, attention=self.attention, backend=self.backend)

    def encoder(self, like: EncoderSettings, device: torch.device) -> Encoder:
        """The encoder, with weights that torch draws.

        Raises:
            Unavailable: if this device, or what is installed, has no such kernel.
        """
        settings = self.settings(like)
        if self.package:
            imported(self.package)
        with device:
            if self.padded is not None:
                return PaddedEncoder(settings, self.padded)
            try:
                backend_of(settings, device)
            except UserError as error:
                raise Unavailable(str(error)) from None
            return Encoder(settings)

    def batch(self, packed: Batch, context: int) -> Batch:
        """A packed batch in this layout."""
        return packed if self.padded is None else padded(packed, context)


#: Ours first, and of each attention the one that others are checked against.
VARIANTS = (
    *(
        Variant(name, attention, ("cuda",), backend=name)
        for attention, backends in BACKENDS.items()
        for name, backend in backends.items()
        if backend.compared
    ),
    Variant("reference", "sigmoid", ("cpu",)),
    Variant("varlen", "softmax", ("cuda",), backend="sdpa"),
    Variant("sdpa", "softmax", ("cpu",), backend="sdpa"),
    Variant("flex", "softmax", ("cuda",), backend="flex"),
    Variant("flex", "softmax", ("cuda",), padded=FLEX),
    Variant("sdpa", "softmax", ("cpu",), padded=SDPA),
    Variant("reference", "sigmoid", ("cpu",), padded=OURS),
    Variant("triton_sigmoid", "sigmoid", ("cuda",), padded=PUBLISHED, package="triton_sigmoid"),
)


def chosen_variants(kernels: Sequence[str] | None, device: str) -> list[Variant]:
    """The variants of interest on a type of device.

    Args:
        kernels: names of the kernels to take; all where None.
        device: ``cuda`` or ``cpu``.

    Raises:
        UserError: if there is none of some name.
    """
    known = dict.fromkeys(variant.kernel for variant in VARIANTS)
    for kernel in kernels or ():
        if kernel not in known:
            raise UserError(
                f"benchmarks.training.kernels: unknown kernel {kernel!r}; take some of "
                f"{', '.join(known)}"
            )
    return [
        variant
        for variant in VARIANTS
        if device in variant.devices and (kernels is None or variant.kernel in kernels)
    ]


@dataclass
class TimedVariant:
    """A variant at one context, and what was found of it.

    Attributes:
        trainer: None where it cannot be timed; ``note`` says why.
        loss: of the first step.
        error: of the gradient, see :func:`gradient_error`.
        graphs: compiled before the first round.
        recompiled: graphs that were compiled in the rounds.
        memory: most bytes of a step, of this model alone; NaN on a CPU.
        milliseconds: a step's mean time in each round.
    """

    variant: Variant
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
class Conditions:
    """What all entries of a context share.

    Attributes:
        like: the encoder; each entry has its own attention.
        training: the optimiser's settings.
        seed: of weights and dropout.
        device: what computes.
    """

    like: EncoderSettings
    training: Training
    seed: int
    device: torch.device


def prepare(
    entry: TimedVariant,
    conditions: Conditions,
    weights: Mapping[str, Tensor],
    batches: Sequence[Batch],
    errors: dict[Variant, float],
) -> None:
    """Check an entry's attention, make its model and take its first steps.

    What fails is noted, and the memory that it holds given back.

    Args:
        entry: gets a trainer, or a note.
        conditions: see there.
        weights: initial weights of all.
        batches: packed batches of the first steps, in which everything is compiled and chosen.
        errors: of the variants that were checked at an earlier context; this one's is added.

    Raises:
        UserError: if it has left the GPU unusable.
    """
    variant, device = entry.variant, conditions.device
    begin = time.perf_counter()
    try:
        if variant not in errors:
            errors[variant] = gradient_error(variant, conditions, batches[0])
        entry.error = errors[variant]
        # Also where it is NaN.
        if not entry.error <= TOLERANCE[dtype_of(device)]:
            raise Wrong(f"a gradient has a relative error of {entry.error:.2g}")
        before = compiled_graphs(device)
        encoder = variant.encoder(conditions.like, device)
        encoder.load_state_dict(weights)
        trainer = Trainer(encoder, conditions.training, conditions.seed, device)
        losses = [
            trainer.step(step, [variant.batch(batch, conditions.like.context)]).loss
            for step, batch in enumerate(batches, start=1)
        ]
        synchronise(device)
        entry.trainer, entry.loss = trainer, float(losses[0])
        entry.graphs = compiled_graphs(device) - before
    except Unavailable as error:
        entry.drop(str(error))
    except Exception as error:
        # Whatever a kernel of another project, or its compilation, raises is a result.
        give_up(entry, error, device)
    log(f"{variant.name}: {entry.note or f'ready in {time.perf_counter() - begin:.0f} s'}")


def give_up(entry: TimedVariant, error: Exception, device: torch.device) -> None:
    """Note a failure and release what it held.

    Raises:
        UserError: if the GPU is unusable since.
    """
    entry.drop(reason(error))
    forget(error)
    try:
        synchronise(device)
    except RuntimeError as broken:
        raise UserError(
            f"benchmarks.training: {entry.variant.name} broke the GPU's context: "
            f"{first_line(broken)}; leave its kernel out of benchmarks.training.kernels"
        ) from None
    release(device)


def gradient_error(variant: Variant, conditions: Conditions, batch: Batch) -> float:
    """Relative error of a gradient: that of q, k and v's projection in an encoder of one layer.

    Compared with plain PyTorch in float32 over packed cells.  Two cells, no dropout, not compiled
    but for the kernel: what is checked is that the attention is the right one, padding included.
    """
    cells = first_cells(batch, 2)
    like = replace(conditions.like, layers=1, dropout=0.0)
    torch.manual_seed(conditions.seed)
    plain = Variant("reference", variant.attention, (conditions.device.type,))
    right = plain.encoder(like, conditions.device)
    encoder = variant.encoder(like, conditions.device)
    encoder.load_state_dict(right.state_dict())
    own = variant.batch(cells, like.context).to(conditions.device)
    with autocast(conditions.device):
        found = projection_gradient(encoder, own)
    return relative_error(found, projection_gradient(right, cells.to(conditions.device)))


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


def time_round(
    entry: TimedVariant, conditions: Conditions, batches: Sequence[Batch], first_step: int
) -> None:
    """Train on some batches and time all but the first ``LEAD_STEPS``; adds a reading.

    A model that does not fit in memory is dropped.

    Args:
        entry: whose trainer does.
        conditions: see there.
        batches: in the entry's layout.
        first_step: number of the first of these steps.
    """
    trainer, device = entry.trainer, conditions.device
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
        give_up(entry, error, device)
        return
    entry.milliseconds.append(seconds / (len(batches) - LEAD_STEPS) * 1e3)
    entry.recompiled += compiled_graphs(device) - before
    entry.memory = memory.most(entry.memory)


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
