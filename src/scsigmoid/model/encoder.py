"""The paper's encoder over packed tokens (tab:model_arch).

Pre-norm transformer blocks with GELU, learned embeddings of tokens and rank positions, a final
layer normalization, and an output layer that does not share weights with the token embedding.
Batches have no padding. Sigmoid and softmax models have the same parameters and differ only in the
attention function. With the same seed they have the same initial weights and the same dropout
(:mod:`scsigmoid.model.dropout`). Attention weights have no dropout.

Variants of attention for studies, none of which is in the paper:

- ``qk_norm``: RMS normalization of q and k of each head with a learned gain.
- ``centered_values``: subtract the mean over the cell from the values and add it to the result,
  O = P (V - mean) + mean. This does not change softmax attention, whose rows sum to 1.
- ``hybrid_norm``: layer normalization of the output of attention (after the projection) in
  addition to its input.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from scsigmoid.attention import score_max, sigmoid_attention_qkv, softmax_attention_qkv
from scsigmoid.attention.softmax import make_mask
from scsigmoid.model.dropout import KeyedDropout, cell_keys, token_keys
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.seeds import derive

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


class Block(nn.Module):
    """One pre-norm block: x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, settings: EncoderSettings, layer: int) -> None:
        super().__init__()
        self.settings = settings
        hidden, epsilon = settings.hidden, settings.layer_norm_epsilon
        self.attention_norm = nn.LayerNorm(hidden, eps=epsilon)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.projection = nn.Linear(hidden, hidden)
        if "qk_norm" in settings.variants:
            self.query_norm = nn.RMSNorm(settings.head_dimension, eps=epsilon)
            self.key_norm = nn.RMSNorm(settings.head_dimension, eps=epsilon)
        if "hybrid_norm" in settings.variants:
            self.output_norm = nn.LayerNorm(hidden, eps=epsilon)
        self.feed_forward_norm = nn.LayerNorm(hidden, eps=epsilon)
        self.expansion = nn.Linear(hidden, settings.feed_forward)
        self.contraction = nn.Linear(settings.feed_forward, hidden)
        self.attention_dropout = KeyedDropout(settings.dropout, 2 * layer + 1)
        self.feed_forward_dropout = KeyedDropout(settings.dropout, 2 * layer + 2)

    def compute_qkv(self, x: Tensor) -> Tensor:
        """Compute q, k and v, (tokens, 3, heads, dim), from the residual stream ``x``."""
        shape = (3, self.settings.heads, self.settings.head_dimension)
        qkv: Tensor = self.qkv(self.attention_norm(x)).unflatten(-1, shape)
        if "qk_norm" in self.settings.variants:
            q, k, v = qkv.unbind(1)
            qkv = torch.stack([self.query_norm(q), self.key_norm(k), v], 1)
        return qkv

    def attend(
        self, qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, mask: "BlockMask | None" = None
    ) -> Tensor:
        """Compute attention, (tokens, heads, dim), of the result of :meth:`compute_qkv`."""
        backend = self.settings.backend
        if self.settings.attention == "softmax":
            return softmax_attention_qkv(qkv, cu_seqlens, max_seqlen, backend=backend, mask=mask)
        if "centered_values" not in self.settings.variants:
            return sigmoid_attention_qkv(qkv, cu_seqlens, max_seqlen, backend=backend)
        q, k, v = qkv.unbind(1)
        mean = cell_means(v, cu_seqlens)
        qkv = torch.stack([q, k, v - mean], 1)
        return mean + sigmoid_attention_qkv(qkv, cu_seqlens, max_seqlen, backend=backend)

    def forward(
        self,
        x: Tensor,
        cu_seqlens: Tensor,
        max_seqlen: int,
        mask: "BlockMask | None",
        keys: Tensor | None,
    ) -> Tensor:
        """Compute the block for the residual stream ``x``, (tokens, hidden), and dropout keys."""
        attended = self.attend(self.compute_qkv(x), cu_seqlens, max_seqlen, mask)
        attended = self.projection(attended.flatten(1))
        if "hybrid_norm" in self.settings.variants:
            attended = self.output_norm(attended)
        x = x + self.attention_dropout(attended, keys)
        activated = functional.gelu(self.expansion(self.feed_forward_norm(x)))
        return x + self.feed_forward_dropout(self.contraction(activated), keys)


def cell_means(values: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Return for each token the mean of ``values``, (tokens, heads, dim), over the token's cell.

    The sum is computed in float32, or in float64 for float64 values.
    """
    flat = values.flatten(1).to(torch.promote_types(values.dtype, torch.float32))
    means = torch.segment_reduce(flat, "mean", offsets=cu_seqlens.long(), axis=0)
    lengths = torch.diff(cu_seqlens)
    repeated = torch.repeat_interleave(means, lengths, dim=0, output_size=len(values))
    return repeated.to(values.dtype).view_as(values)


class Encoder(nn.Module):
    """The encoder with its masked-language-model head."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        self.settings = settings
        self.token_embedding = nn.Embedding(settings.vocabulary_size, settings.hidden)
        self.position_embedding = nn.Embedding(settings.context, settings.hidden)
        self.dropout = KeyedDropout(settings.dropout, 0)
        self.blocks = nn.ModuleList(Block(settings, layer) for layer in range(settings.layers))
        self.final_norm = nn.LayerNorm(settings.hidden, eps=settings.layer_norm_epsilon)
        self.output = nn.Linear(settings.hidden, settings.vocabulary_size)

    @torch.no_grad()
    def initialize(self, seed: int) -> "Encoder":
        """Initialize weights with N(0, initializer_range), biases with 0 and gains with 1.

        Each parameter has its own generator on the CPU, seeded by ``seed`` and the parameter's
        name. So weights do not depend on the attention function or the device. Models that differ
        only in the context length have the same weights, except for position embeddings.
        """
        for name, parameter in self.named_parameters():
            if name.endswith(".bias"):
                parameter.zero_()
            elif name.endswith("norm.weight"):
                parameter.fill_(1.0)
            else:
                generator = torch.Generator().manual_seed(derive(seed, "initial weights", name))
                values = torch.empty(parameter.shape).normal_(
                    0.0, self.settings.initializer_range, generator=generator
                )
                parameter.copy_(values)
        return self

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the sum of token and position embeddings, (tokens, hidden)."""
        return self.token_embedding(tokens) + self.position_embedding(positions)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        cu_seqlens: Tensor,
        max_seqlen: int,
        masked: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        """Encode a packed batch of cells.

        Args:
            tokens: (tokens,) int64.
            positions: (tokens,) int64, 0 to n - 1 in each cell of n tokens.
            cu_seqlens: (cells + 1,) int32, cumulative lengths.
            max_seqlen: upper bound of the lengths of the cells.
            masked: (masked,) int64, indices into ``tokens`` of the genes to predict.
            keys: (tokens,) int32, result of :meth:`dropout_keys`. None: no dropout.

        Returns:
            Logits (masked, vocabulary) at the masked positions. Without ``masked``, hidden states
            (tokens, hidden) after the final normalization.
        """
        embedded = self.embed(tokens, positions)
        mask = self.mask(embedded, cu_seqlens)
        x = self.encode(embedded, cu_seqlens, max_seqlen, mask, keys)
        # The vocabulary is large, so the output layer computes masked positions only.
        return self.final_norm(x) if masked is None else self.predict(x, masked)

    def mask(self, embedded: Tensor, cu_seqlens: Tensor) -> "BlockMask | None":
        """Return the attention mask for all layers, or None if the backend does not need one."""
        return make_mask(self.settings.backend, cu_seqlens, embedded.shape[0])

    def dropout_keys(
        self, cells: Tensor, positions: Tensor, cu_seqlens: Tensor, seed: int, step: int
    ) -> Tensor | None:
        """Return the dropout keys of a training step, (tokens,) int32, or None without dropout.

        ``cells``, (cells,) int64, are indices in the token store. They are on the CPU, where the
        keys of a batch's cells are computed faster than kernels are launched on a GPU.
        """
        if self.settings.dropout == 0:
            return None
        of_cells = cell_keys(cells, seed, step).to(positions.device, non_blocking=True)
        of_tokens = self.for_tokens(of_cells, cu_seqlens, len(positions))
        return token_keys(of_tokens, positions)

    def for_tokens(self, of_cells: Tensor, cu_seqlens: Tensor, tokens: int) -> Tensor:
        """Repeat the value of each cell for its tokens. Benchmarks with padding override this."""
        return torch.repeat_interleave(of_cells, torch.diff(cu_seqlens), output_size=tokens)

    def encode(
        self,
        embedded: Tensor,
        cu_seqlens: Tensor,
        max_seqlen: int,
        mask: "BlockMask | None",
        keys: Tensor | None = None,
    ) -> Tensor:
        """Return the residual stream after the last block, before the final normalization."""
        x = self.dropout(embedded, keys)
        for block in self.blocks:
            x = block(x, cu_seqlens, max_seqlen, mask, keys)
        return x

    def predict(self, residual: Tensor, masked: Tensor) -> Tensor:
        """Return logits (masked, vocabulary) at the masked positions of the residual stream."""
        return self.output(self.final_norm(residual[masked]))

    @torch.no_grad()
    def attention_score_max(self, tokens: Tensor, positions: Tensor, cu_seqlens: Tensor) -> Tensor:
        """Return the float32 maximum of ``|q . k / sqrt(dim)|`` in layer 0, without dropout."""
        block = self.blocks[0]
        assert isinstance(block, Block)
        q, k, _ = block.compute_qkv(self.embed(tokens, positions)).unbind(1)
        return score_max(q, k, cu_seqlens)
