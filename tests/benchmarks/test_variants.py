"""Training on padded cells has the loss and gradients of training on packed cells."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import pytest
import torch
from benchmarks import sigmoid_formula
from small_training import PAPER, TRAINING, masked_batch
from torch import Tensor
from torch._dynamo.utils import counters
from torch.nn.attention import flex_attention

from scsigmoid.attention import backends
from scsigmoid.benchmarks import variants
from scsigmoid.benchmarks.variants import (
    VARIANTS,
    PaddedAttention,
    Variant,
    pad_cells,
    padding_mask,
)
from scsigmoid.model.batches import Batch
from scsigmoid.model.encoder import Encoder
from scsigmoid.tokens.vocabulary import PAD
from scsigmoid.training.step import Trainer

CPU = torch.device("cpu")
# Numbers of cells and of 128-token blocks differ. Otherwise the compiler would treat them as one.
LENGTHS = ([1, 140, 255, 247], [90, 9, 33, 201], [60, 1, 90, 3])
SETTINGS = replace(
    PAPER,
    context=256,
    layers=1,
    hidden=32,
    heads=2,
    feed_forward=48,
    vocabulary_size=60,
    dropout=0.2,
)


def trainer_of(variant: Variant) -> Trainer:
    torch.manual_seed(3)
    weights = Encoder(SETTINGS).state_dict()
    encoder = variant.encoder(SETTINGS, CPU)
    encoder.load_state_dict(weights)
    return Trainer(encoder, TRAINING, 42, CPU)


def loss_and_gradients(trainer: Trainer, batch: Batch) -> tuple[Tensor, list[Tensor]]:
    trainer.optimizer.zero_grad()
    loss = trainer.summed_loss(batch, 1)
    loss.backward()
    return loss.detach(), [p.grad for p in trainer.encoder.parameters() if p.grad is not None]


def assert_same_training(
    variant: Variant, expected_variant: Variant, compiled: bool = False
) -> None:
    """Compare losses and gradients. If ``compiled``, one graph must serve all lengths."""
    trainer, expected_trainer = trainer_of(variant), trainer_of(expected_variant)
    counters.clear()
    if compiled:
        torch.compiler.reset()
        trainer.compile("aot_eager")
    for lengths in LENGTHS:
        batch = masked_batch(lengths, 60, 0.3)
        expected = loss_and_gradients(expected_trainer, batch)
        result = loss_and_gradients(trainer, variant.batch(batch, SETTINGS.context))
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
        assert len(result[1]) == len(list(trainer.encoder.parameters()))
    assert counters["stats"]["unique_graphs"] == compiled


def reference(attention: str) -> Variant:
    return Variant("reference", attention, ("cpu",))


@pytest.fixture
def flex_on_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Allow gradients of FlexAttention on a CPU, which its uncompiled form supports."""
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)
    monkeypatch.setattr(backends, "_find_obstacle", lambda *_: "")
    yield
    backends._choose.cache_clear()


def test_a_padded_batch_contains_the_cells_in_rows() -> None:
    packed = masked_batch([5, 1, 3], 60, 0.3)
    batch = pad_cells(packed, 8)
    tokens, positions = batch.tokens.view(3, 8), batch.positions.view(3, 8)
    bounds = packed.cu_seqlens.tolist()
    for cell, (start, end) in enumerate(pairwise(bounds)):
        n = end - start
        assert tokens[cell, :n].tolist() == packed.tokens[start:end].tolist()
        assert set(tokens[cell, n:].tolist()) == {PAD}
        assert positions[cell].tolist() == list(range(8))
        own = [index for index in packed.masked.tolist() if start <= index < end]
        rows = [index - 8 * cell for index in batch.masked.tolist() if index // 8 == cell]
        assert rows == [index - start for index in own]
    assert batch.targets.tolist() == packed.targets.tolist()
    assert batch.max_seqlen == 8


@pytest.mark.parametrize(
    ("lengths", "context"), [([1, 128, 129, 300, 512, 384], 512), ([7, 40, 24], 40)]
)
def test_the_mask_equals_torch_except_in_rows_of_padding(lengths: list[int], context: int) -> None:
    valid = torch.tensor(lengths, dtype=torch.int32)
    mask = padding_mask(valid, replace(SETTINGS, context=context))

    def is_seen(cell: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        # A block of rows is left out if all of them are padding.
        return (column < valid[cell]) & (row < -(-valid[cell] // 128) * 128)

    expected = flex_attention.create_block_mask(
        is_seen, len(lengths), 1, context, context, device="cpu"
    )
    for name in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        assert torch.equal(getattr(mask, name), getattr(expected, name)), name
    for name in ("kv", "full_kv", "q", "full_q"):
        counts = getattr(expected, f"{name}_num_blocks")
        for index in torch.nonzero(counts).tolist():
            count = int(counts[tuple(index)])
            visited, expected_blocks = (
                getattr(block_mask, f"{name}_indices")[tuple(index)][:count].sort().values
                for block_mask in (mask, expected)
            )
            assert torch.equal(visited, expected_blocks), (name, index)


@pytest.mark.parametrize(
    "form", [PaddedAttention(padding_mask, variants.flex), None], ids=["padded", "packed"]
)
def test_flex_attention_in_one_compiled_graph(
    form: PaddedAttention | None, flex_on_cpu: None
) -> None:
    """As on a GPU, except for the code that torch generates."""
    assert_same_training(Variant("flex", "softmax", ("cpu",), form), reference("softmax"), True)


def pytorch_package() -> SimpleNamespace:
    """Return operators with triton-sigmoid's arguments, in plain PyTorch."""

    def attend(q, k, v, lengths_k, lengths_q, bias, score_mod, scale, causal):  # type: ignore[no-untyped-def]
        assert all(x.is_contiguous() for x in (q, k, v))
        assert torch.equal(lengths_k, lengths_q)
        assert (score_mod, causal) == (None, False)
        torch.testing.assert_close(bias, -torch.log(lengths_k.float()))
        valid = torch.arange(q.shape[1]) < lengths_k[:, None]
        return sigmoid_formula.attend(q, k, v, bias, scale, valid)

    def forward(*arguments):  # type: ignore[no-untyped-def]
        return attend(*arguments)[0]

    def backward(q, k, v, gradient, *rest):  # type: ignore[no-untyped-def]
        _, weights = attend(q, k, v, *rest)
        return sigmoid_formula.gradients(q, k, v, gradient, weights, rest[4])

    return SimpleNamespace(sigmoid_attn_padded_fwd_op=forward, sigmoid_attn_padded_bwd_op=backward)


def test_triton_sigmoid_is_called_with_the_right_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton_sigmoid", ModuleType("triton_sigmoid"))
    monkeypatch.setitem(sys.modules, "triton_sigmoid.sigmoid_triton_padded", pytorch_package())  # type: ignore[arg-type]
    (variant,) = [each for each in VARIANTS if each.kernel == "triton_sigmoid"]
    # The operator keeps the package that it was made with.
    variants.register_triton_sigmoid.cache_clear()
    try:
        assert_same_training(variant, reference("sigmoid"), True)
    finally:
        variants.register_triton_sigmoid.cache_clear()
