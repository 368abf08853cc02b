"""One optimizer step: gradient, AdamW and its learning rate (table tab:model_arch)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental import _config as shape_settings
from torch.nn.functional import pad
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from scsigmoid.attention.problem import LONGEST_APPROXIMATE
from scsigmoid.config.schema import Training
from scsigmoid.model.batches import Batch
from scsigmoid.model.devices import autocast, backend_of
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.loss import Loss, compute_loss, sum_weights, summed_loss
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.tokens.vocabulary import SPECIAL
from scsigmoid.training.graphs import GRAPHED, Bucket, Graphs, bucket_of, most_tokens
from scsigmoid.training.processes import Processes

#: By default, torch.compile fuses the reductions in the gradient of a layer normalization for large
#: batches only, and compiles another graph for small batches. This option avoids the second graph.
INDUCTOR_OPTIONS: dict[str, Any] = {"triton.mix_order_reduction_non_strict_mode": True}
#: Cells and tokens of a cell of the batches of :func:`fixed_batch`, the second for contexts whose
#: attention is another graph, and tokens from one masked token to the next.
FIXED_SIZES, FIXED_DISTANCE = ((8, 1024), (2, LONGEST_APPROXIMATE + 1)), 7


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Measurements of a step. Reading the tensors, scalars on the device, waits for the device."""

    loss: Tensor  # mean cross-entropy over the masked genes of the global batch
    gradient_norm: Tensor  # L2 norm, before clipping, of the gradient that the step follows
    learning_rate: float
    graphed: bool  # whether a CUDA graph computed the gradient


def make_optimizer(model: nn.Module, training: Training) -> torch.optim.AdamW:
    """Return AdamW with weight decay for matrices and embeddings only, not for biases and gains.

    This is the common choice for encoders. The paper does not say which parameters are decayed.
    The number and the order of the groups are part of the format of checkpoints.
    """
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
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
    """Return the learning rate of a step, counted from 1: linear warm-up, then constant."""
    if step >= training.warmup_steps:
        return training.learning_rate
    return training.learning_rate * step / training.warmup_steps


def fixed_batch(cells: int, length: int, settings: EncoderSettings) -> Batch:
    """Return a batch of ``cells`` with ``length`` tokens each, whose sizes depend on these only."""
    tokens = cells * length
    masked = torch.arange(0, tokens, FIXED_DISTANCE)
    return Batch(
        tokens=torch.full((tokens,), len(SPECIAL)),
        positions=torch.arange(length).remainder(settings.context).repeat(cells),
        cu_seqlens=torch.arange(0, tokens + 1, length, dtype=torch.int32),
        masked=masked,
        targets=torch.full_like(masked, len(SPECIAL)),
        cells=torch.arange(cells),
        max_seqlen=length,
        cls_token=settings.cls_token,
    )


class Trainer:
    """An encoder on its device, with its optimizer. Checkpoints contain the states of both."""

    def __init__(
        self,
        encoder: Encoder,
        training: Training,
        seed: int,
        device: torch.device,
        processes: Processes | None = None,
    ) -> None:
        """Move the encoder to the device. Its weights must be the same in all processes.

        ``seed`` determines the dropout. If ``processes`` is None, there is a single process.
        """
        self.processes = processes or Processes(device=device)
        self.encoder = encoder.to(device)
        self.optimizer = make_optimizer(encoder, training)
        self.training = training
        self.seed = seed
        self.device = device
        self._parameters = list(encoder.parameters())
        self._summed_loss: Loss = summed_loss
        self._graphs: Graphs | None = None
        self._seen_kinds: set[Bucket | bool] = set()  # results of `_kind` for the steps so far
        #: Maximum number of tokens of a batch that a CUDA graph computes (:mod:`graphs`).
        self.graphed_tokens = 0
        if device.type == "cuda":
            self.compile()
            settings = encoder.settings
            can_record = backend_of(settings, device) in GRAPHED
            # The cell means of `centered_values` are not tested in graphs.
            if can_record and "centered_values" not in settings.variants:
                self.graphed_tokens = most_tokens(settings)
            if torch.are_deterministic_algorithms_enabled():
                self._compile_for_fixed_batches()

    def _compile_for_fixed_batches(self) -> None:
        """Compile all graphs for the sizes of :func:`fixed_batch`.

        A graph serves all sizes, but the sizes that it is compiled for decide in which order its
        kernels sum. They would otherwise be those of the first batch, or those of another run
        that left its code in PyTorch's cache.
        """
        settings = self.encoder.settings
        for cells, length in FIXED_SIZES[: 1 + (settings.context > LONGEST_APPROXIMATE)]:
            batch = fixed_batch(cells, length, settings)
            is_sum = self.training.gradient == "sum"
            weights = sum_weights(batch).to(self.device) if is_sum else None
            losses = self.summed_loss(batch.to(self.device), 1, weights)
            with torch.autograd.set_multithreading_enabled(False):
                losses.sum().backward()
        self.optimizer.zero_grad(set_to_none=True)

    def compile(self, backend: str = "inductor") -> None:
        """Compile :func:`summed_loss`, the part of the loss after the embedding."""
        from torch._dynamo import config as tracing_settings  # takes a second

        # Backends other than inductor ignore the options.
        self._summed_loss = torch.compile(
            summed_loss, dynamic=True, backend=backend, options=INDUCTOR_OPTIONS
        )
        # By default, a graph that was compiled for a batch with two equal sizes, for example as
        # many cells as masked genes, is used only for batches in which these sizes are equal.
        shape_settings.use_duck_shape = False
        # By default, floats such as the epsilon of a layer normalization are first traced as inputs
        # of the graph. This fails at the end, and everything is traced again with constants.
        tracing_settings.specialize_float = True

    def summed_loss(self, batch: Batch, step: int, weights: Tensor | None = None) -> Tensor:
        """Return :func:`summed_loss` of a batch on the device, with the dropout of a step."""
        if weights is not None:
            # `with_two_of_each` pads the masked positions in the same way.
            weights = pad(weights, (0, 0, 0, max(0, 2 - len(weights))))
        return self._compute_loss(batch, self._dropout_keys(step, batch), weights)

    def _compute_loss(self, batch: Batch, keys: Tensor | None, weights: Tensor | None) -> Tensor:
        with autocast(self.device):
            return compute_loss(self._summed_loss, self.encoder, batch, keys, weights)

    def _dropout_keys(self, step: int, batch: Batch) -> Tensor | None:
        return self.encoder.dropout_keys(
            batch.cells, batch.positions, batch.cu_seqlens, self.seed, step
        )

    def prepare(self, batches: Sequence[Batch]) -> None:
        """Take steps so that later steps with one of ``batches`` do not compile or record a graph.

        Take one step, with the largest batch, for each kind (:meth:`_kind`) that is new.
        """
        for batch in sorted(batches, key=lambda batch: len(batch.tokens), reverse=True):
            if self._kind([batch]) not in self._seen_kinds:
                self.step(1, [batch])

    def _kind(self, batches: Sequence[Batch]) -> Bucket | bool:
        """Return the kind of a step. Steps of one kind use the same graphs, recorded or compiled.

        The kind of a small step is its bucket. The kind of another step is whether a sequence is so
        long that kernels compute an exact sigmoid.
        """
        has_long = any(batch.max_seqlen > LONGEST_APPROXIMATE for batch in batches)
        return self._bucket(batches) or has_long

    def _bucket(self, batches: Sequence[Batch]) -> Bucket | None:
        """Return the bucket of a small step, which has a single small batch. Otherwise None."""
        if len(batches) != 1 or not 0 < len(batches[0].tokens) <= self.graphed_tokens:
            return None
        context = self.encoder.settings.context
        return bucket_of(batches[0], context, self.training.mask_fraction)

    def _differentiate(self, step: int, batch: Batch, bucket: Bucket, masked: int) -> Tensor:
        """Compute the gradients of a small step, by a CUDA graph if possible. Return its loss."""
        if self._graphs is None:
            self._graphs = Graphs(
                self._compute_loss, self._parameters, self.graphed_tokens, self.device
            )
        padded = self._graphs.copy_padded(batch, bucket)
        weights = sum_weights(batch) if self.training.gradient == "sum" else None
        keys = self._dropout_keys(step, padded)
        loss = self._graphs.differentiate(padded, bucket, keys, masked, weights)
        for parameter, gradient in zip(self._parameters, self._graphs.gradients, strict=True):
            parameter.grad = gradient
        return loss

    def step(self, step: int, batches: Sequence[Batch], masked: int | None = None) -> StepResult:
        """Take one optimizer step on a global batch, with ``batches`` as this process's part.

        The returned loss is the mean over all ``masked`` genes of the global batch (default: of
        ``batches``). The step follows the gradient of this mean, or, if ``training.gradient`` is
        ``sum``, of the sum of the cells' mean losses. Neither depends on how the global batch is
        divided. The step is also taken if the loss or norm is not finite: divergence is a result.
        """
        rate = learning_rate(step, self.training)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        if masked is None:
            masked = sum(len(batch.masked) for batch in batches)
        masked = max(1, masked)  # the loss is divided by it
        self._seen_kinds.add(self._kind(batches))
        bucket = self._bucket(batches)
        if bucket:
            loss = self._differentiate(step, batches[0], bucket, masked)
        else:
            loss = self._accumulate(step, batches, masked)
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        self.processes.sum([*gradients, loss])
        norm = get_total_norm(gradients)
        if self.training.clipping is not None:
            clip_grads_with_norm_(self._parameters, self.training.clipping, norm)
        self.optimizer.step()
        graphed = bool(bucket and self._graphs and self._graphs.replayed)
        return StepResult(loss=loss, gradient_norm=norm, learning_rate=rate, graphed=graphed)

    def _accumulate(self, step: int, batches: Sequence[Batch], masked: int) -> Tensor:
        """Add the gradients of micro-batches to ``grad`` of the parameters.

        Return the sum of the losses divided by ``masked``, the masked genes of the global batch.
        """
        loss = torch.zeros((), device=self.device)
        for batch in batches:
            if self.training.gradient == "sum":
                weights = sum_weights(batch).to(self.device, non_blocking=True)
                objective, part = self.summed_loss(batch.to(self.device), step, weights)
                part = part / masked
            else:
                objective = part = self.summed_loss(batch.to(self.device), step) / masked
            # Run the backward pass in this thread, as in `Graphs._compute`.
            with torch.autograd.set_multithreading_enabled(False):
                objective.backward()
            loss += part.detach()
        return loss

    def attention_score_max(self, batches: Sequence[Batch]) -> float:
        """Return the largest |attention score|, or NaN, of the first layer over all processes."""
        largest = torch.zeros((), device=self.device)
        with torch.no_grad(), autocast(self.device):
            for batch in batches:
                batch = batch.to(self.device)
                score = self.encoder.attention_score_max(
                    batch.tokens, batch.positions, batch.cu_seqlens
                )
                largest = torch.maximum(largest, score.float())
        return float(self.processes.largest(largest))
