"""One optimiser step: loss, gradient, AdamW and its learning rate (tab:model_arch)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from scsigmoid.attention.problem import LONGEST_APPROXIMATE
from scsigmoid.config.schema import Training
from scsigmoid.model.encoder import Encoder
from scsigmoid.training.batches import IGNORED, Batch
from scsigmoid.training.devices import backend_of
from scsigmoid.training.graphs import GRAPHED, Bucket, Graphs, bucket_of, most_tokens
from scsigmoid.training.processes import Processes

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Loss = Callable[..., Tensor]
#: Options of torch's compiler.  Without this one it would fuse the reductions of a normalisation's
#: gradient for large batches only, and make another graph for small ones.
COMPILER: dict[str, Any] = {"triton.mix_order_reduction_non_strict_mode": True}


@dataclass(frozen=True)
class StepResult:
    """What a step measured; scalars on the device, so reading them waits for it.

    Attributes:
        loss: mean cross-entropy over the masked genes of the global batch.
        gradient_norm: L2 norm of the whole gradient before clipping, of ``training.gradient``.
        graphed: whether a CUDA graph computed the gradient.
    """

    loss: Tensor
    gradient_norm: Tensor
    graphed: bool = False


def make_optimiser(model: nn.Module, training: Training) -> torch.optim.AdamW:
    """AdamW that decays weight matrices and embeddings.

    Biases and layer normalisations, which have one dimension, do not decay.  The paper does not
    say; this is the common choice for encoders.
    """
    parameters = list(model.parameters())
    decayed = [p for p in parameters if p.ndim >= 2]
    others = [p for p in parameters if p.ndim < 2]
    return torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": training.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=training.learning_rate,
        betas=(training.betas[0], training.betas[1]),
        eps=training.epsilon,
        fused=True,
    )


def learning_rate(step: int, training: Training) -> float:
    """Learning rate of a step: linear warm-up, then constant.

    Steps are counted from 1, so the first step already learns: its rate is one warm-up step's.
    """
    if step >= training.warmup_steps:
        return training.learning_rate
    return training.learning_rate * step / training.warmup_steps


def place_losses(
    encoder: Encoder,
    embedded: Tensor,
    mask: "BlockMask | None",
    batch: Batch,
    keys: Tensor | None = None,
    reduction: str = "none",
) -> Tensor:
    """Cross-entropy at each masked position, (masked,) float32; the output layer runs there alone.

    Args:
        encoder, batch: on one device.
        embedded: (tokens, hidden), the batch's embedded tokens.
        mask: of :meth:`Encoder.mask`.
        keys: of :meth:`Encoder.dropout_keys`; no dropout if None.
        reduction: of the cross-entropy.
    """
    residual = encoder.encode(embedded, batch.cu_seqlens, batch.max_seqlen, mask, keys)
    logits = encoder.predict(residual, batch.masked)
    return cross_entropy(logits.float(), batch.targets, ignore_index=IGNORED, reduction=reduction)


def summed_loss(
    encoder: Encoder,
    embedded: Tensor,
    mask: "BlockMask | None",
    batch: Batch,
    keys: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """The sum of :func:`place_losses`, a float32 scalar; (n,) with weights (masked, n)."""
    if weights is None:
        return place_losses(encoder, embedded, mask, batch, keys, "sum")
    losses = place_losses(encoder, embedded, mask, batch, keys)
    return (losses.unsqueeze(1) * weights).sum(0)


def sum_weights(batch: Batch) -> Tensor:
    """Weights of a batch's masked genes, (masked, 2) float32, on the CPU.

    The first adds up each cell's mean loss, the second all losses.
    """
    owner = torch.searchsorted(batch.cu_seqlens, batch.masked, right=True)
    shares = 1 / torch.bincount(owner)[owner].float()
    return torch.stack([shares, torch.ones_like(shares)], dim=1)


def with_two_of_each(batch: Batch) -> Batch:
    """Pad a batch to at least two sequences and two masked positions; the loss stays the same.

    ``torch.compile`` makes a graph of its own for a size of 0 or 1.  An empty last sequence and
    targets that :func:`torch.nn.functional.cross_entropy` ignores keep such a batch, a single long
    cell for example, in the graph of all others.
    """
    missing = max(0, 2 - len(batch.masked))
    return replace(
        batch,
        cu_seqlens=pad(
            batch.cu_seqlens, (0, max(0, 3 - len(batch.cu_seqlens))), value=len(batch.tokens)
        ),
        masked=pad(batch.masked, (0, missing)),
        targets=pad(batch.targets, (0, missing), value=IGNORED),
    )


def eagerly_embedded(compute: Loss, encoder: Encoder, batch: Batch, *rest: Tensor | None) -> Tensor:
    """A loss of a batch by :func:`summed_loss` or :func:`place_losses`, which may be compiled.

    One graph serves all batches, however long their cells are.  The embedding stays outside of it:
    the number of positions would make a graph of its own for each context length.  So does the
    mask of FlexAttention.
    """
    batch = with_two_of_each(batch)
    embedded = encoder.embed(batch.tokens, batch.positions)
    mask = encoder.mask(embedded, batch.cu_seqlens)
    return compute(encoder, embedded, mask, batch, *rest)


def autocast(device: torch.device) -> torch.autocast:
    """bfloat16 mixed precision on a GPU (tab:model_arch), float32 on a CPU."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


class Trainer:
    """An encoder, on its device, with its optimiser; their states make up a checkpoint."""

    def __init__(
        self,
        encoder: Encoder,
        training: Training,
        seed: int,
        device: torch.device,
        processes: Processes | None = None,
    ) -> None:
        """Move the encoder, which has the same weights in all processes, to the device.

        ``processes`` share each global batch; this one is alone if None.
        """
        self.processes = processes or Processes(device=device)
        self.encoder = encoder.to(device)
        self.optimiser = make_optimiser(encoder, training)
        self.training = training
        self.seed = seed
        self.device = device
        self._parameters = list(encoder.parameters())
        self._summed_loss: Loss = summed_loss
        self._graphs: Graphs | None = None
        self._met: set[Bucket | bool] = set()
        #: Most tokens of a batch whose gradient is a CUDA graph, see :mod:`graphs`.
        self.graphed_tokens = 0
        if device.type == "cuda":
            self.compile()
            settings = encoder.settings
            capturable = backend_of(settings, device) in GRAPHED
            if capturable and "centred_values" not in settings.variants:
                self.graphed_tokens = most_tokens(settings)

    def compile(self, backend: str = "inductor") -> None:
        """Compile the loss; see :func:`eagerly_embedded`."""
        options = COMPILER if backend == "inductor" else None
        self._summed_loss = torch.compile(
            summed_loss, dynamic=True, backend=backend, options=options
        )

    def summed_loss(self, batch: Batch, step: int, weights: Tensor | None = None) -> Tensor:
        """Cross-entropy summed over a batch's masked genes in a step: :func:`summed_loss`."""
        if weights is not None:
            weights = pad(weights, (0, 0, 0, max(0, 2 - len(weights))))
        keys = self._dropout_keys(step, batch)
        return eagerly_embedded(self._summed_loss, self.encoder, batch, keys, weights)

    def _dropout_keys(self, step: int, batch: Batch) -> Tensor | None:
        return self.encoder.dropout_keys(
            batch.cells, batch.positions, batch.cu_seqlens, self.seed, step
        )

    def prepare(self, batches: Sequence[Batch]) -> None:
        """Take steps, so that later ones of one of these batches each compile and record nothing.

        One on the largest batch of each kind that no step has met.
        """
        for batch in sorted(batches, key=lambda batch: len(batch.tokens), reverse=True):
            if self._kind([batch]) not in self._met:
                self.step(1, [batch])

    def _kind(self, batches: Sequence[Batch]) -> Bucket | bool:
        """The bucket of a step's batch; where it has none, whether sigmoid's form is that of long
        sequences."""
        long = any(batch.max_seqlen > LONGEST_APPROXIMATE for batch in batches)
        return self._bucket(batches) or long

    def _bucket(self, batches: Sequence[Batch]) -> Bucket | None:
        """Of the only batch of a step, if it is a small one."""
        if len(batches) != 1 or not 0 < len(batches[0].tokens) <= self.graphed_tokens:
            return None
        context = self.encoder.settings.context
        return bucket_of(batches[0], context, self.training.mask_fraction)

    def _differentiate(self, step: int, batch: Batch, bucket: Bucket, masked: int) -> Tensor:
        """The loss of a small batch; its gradient becomes the parameters'."""

        def compute(held: Batch, keys: Tensor | None, weights: Tensor | None) -> Tensor:
            with autocast(self.device):
                return eagerly_embedded(self._summed_loss, self.encoder, held, keys, weights)

        if self._graphs is None:
            self._graphs = Graphs(compute, self._parameters, self.graphed_tokens, self.device)
        held = self._graphs.hold(batch, bucket)
        weights = sum_weights(batch) if self.training.gradient == "sum" else None
        keys = self._dropout_keys(step, held)
        loss = self._graphs.differentiate(held, bucket, keys, masked, weights)
        for parameter, gradient in zip(self._parameters, self._graphs.gradients, strict=True):
            parameter.grad = gradient
        return loss

    def step(self, step: int, batches: Sequence[Batch], masked: int | None = None) -> StepResult:
        """Take one optimiser step on a global batch.

        The loss reported is the mean over all masked genes of the global batch.  The objective is
        that, or with ``training.gradient: sum`` the sum of the cells' means; neither depends on
        how the batch is divided.  A loss or norm that is not finite is returned like any other,
        and the step is taken: divergence is a result.

        Args:
            step: counted from 1; sets the learning rate and the dropout.
            batches: the micro-batches of this process.
            masked: masked genes of the global batch; those of ``batches`` if None.
        """
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(step, self.training)
        self.optimiser.zero_grad(set_to_none=True)
        if masked is None:
            masked = sum(len(batch.masked) for batch in batches)
        self._met.add(self._kind(batches))
        bucket = self._bucket(batches)
        if bucket:
            loss = self._differentiate(step, batches[0], bucket, max(1, masked))
        else:
            loss = self._accumulate(step, batches, max(1, masked))
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        self.processes.sum([*gradients, loss])
        norm = get_total_norm(gradients)
        if self.training.clipping is not None:
            clip_grads_with_norm_(self._parameters, self.training.clipping, norm)
        self.optimiser.step()
        graphed = bool(bucket and self._graphs and self._graphs.replayed)
        return StepResult(loss=loss, gradient_norm=norm, graphed=graphed)

    def _accumulate(self, step: int, batches: Sequence[Batch], masked: int) -> Tensor:
        """The loss of micro-batches; their gradients are added to the parameters'."""
        loss = torch.zeros((), device=self.device)
        for batch in batches:
            with autocast(self.device):
                if self.training.gradient == "sum":
                    weights = sum_weights(batch).to(self.device, non_blocking=True)
                    objective, part = self.summed_loss(batch.to(self.device), step, weights)
                    part = part / masked
                else:
                    objective = part = self.summed_loss(batch.to(self.device), step) / masked
            # In this thread: to wake another takes longer than a small batch's kernels run.
            with torch.autograd.set_multithreading_enabled(False):
                objective.backward()
            loss += part.detach()
        return loss

    def attention_score_max(self, batches: Sequence[Batch]) -> float:
        """Largest score of the first layer over a global batch, in training's precision."""
        largest = torch.zeros((), device=self.device)
        with torch.no_grad(), autocast(self.device):
            for batch in batches:
                batch = batch.to(self.device)
                score = self.encoder.attention_score_max(
                    batch.tokens, batch.positions, batch.cu_seqlens
                )
                # Unlike torch.fmax, this keeps NaN.
                largest = torch.maximum(largest, score.float())
        return float(self.processes.largest(largest))
