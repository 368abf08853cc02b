"""One step against hand-computed values, and what a division of the batch must not change."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from scsigmoid.config.schema import Training
from scsigmoid.model.encoder import Encoder
from scsigmoid.tokens.store import TokenStore
from scsigmoid.training.loading import GlobalBatches
from scsigmoid.training.run import TrainingRun
from scsigmoid.training.step import Trainer, learning_rate, make_optimiser, parameter_groups


def test_warm_up_is_linear_then_constant(training: Training):
    settings = replace(training, learning_rate=1e-4, warmup_steps=4)
    rates = [learning_rate(step, settings) for step in range(1, 7)]
    assert rates == pytest.approx([0.25e-4, 0.5e-4, 0.75e-4, 1e-4, 1e-4, 1e-4])
    assert learning_rate(1, replace(settings, warmup_steps=0)) == 1e-4


def test_matrices_and_embeddings_decay_and_nothing_else(run: TrainingRun):
    encoder = Encoder(run.encoder_settings(64))
    decayed, kept = parameter_groups(encoder, 0.1)
    names = {id(parameter): name for name, parameter in encoder.named_parameters()}
    assert decayed["weight_decay"] == 0.1
    assert kept["weight_decay"] == 0.0
    assert {names[id(p)] for p in kept["params"]} == {
        name for name in names.values() if name.endswith(".bias") or "norm" in name
    }
    assert len(decayed["params"]) + len(kept["params"]) == len(names)


def test_step_is_adamw(training: Training):
    """One step against the formula of Loshchilov and Hutter, in float64."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).double()
    before = [p.detach().clone() for p in model.parameters()]
    optimiser = make_optimiser(model, training)
    model(torch.ones(1, 3).double()).square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    optimiser.step()
    rate, (b1, b2) = training.learning_rate, training.betas
    for parameter, old, gradient in zip(model.parameters(), before, gradients, strict=True):
        decay = training.weight_decay if parameter.ndim == 2 else 0.0
        mean = (1 - b1) * gradient / (1 - b1)
        square = (1 - b2) * gradient**2 / (1 - b2)
        expected = old * (1 - rate * decay) - rate * mean / (square.sqrt() + training.epsilon)
        torch.testing.assert_close(parameter.detach(), expected)


def make(run: TrainingRun, corpus: Any, **training: object) -> tuple[Trainer, GlobalBatches]:
    """A trainer and its batches."""
    run = replace(run, training=replace(run.training, **training))  # type: ignore[arg-type]
    store = TokenStore.open(corpus.stores)
    settings = run.encoder_settings(store.vocabulary_size)
    trainer = Trainer(Encoder(settings).initialise(1), run.training, 42, torch.device("cpu"))
    return trainer, GlobalBatches(store, settings, run.training, 42)


@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_micro_batches_have_the_gradient_of_the_whole_batch(
    run: TrainingRun, corpus: Any, attention: str
):
    run = replace(run, attention=attention)
    trainer, batches = make(run, corpus, clipping=None, micro_batch_tokens=32)
    micro_batches = batches[1].micro_batches
    assert len(micro_batches) > 3
    result = trainer.step(1, micro_batches)

    whole_trainer, whole_batches = make(run, corpus, micro_batch_tokens=10**6)
    (batch,) = whole_batches[1].micro_batches
    encoder = whole_trainer.encoder
    keys = encoder.dropout_keys(batch.cells, batch.positions, batch.cu_seqlens, 42, 1)
    logits = encoder(
        batch.tokens, batch.positions, batch.cu_seqlens, batch.max_seqlen, batch.masked, keys
    )
    loss = cross_entropy(logits, batch.targets)
    loss.backward()

    torch.testing.assert_close(result.loss, loss.detach())
    total = 0.0
    for (name, mine), (_, whole) in zip(
        trainer.encoder.named_parameters(), encoder.named_parameters(), strict=True
    ):
        torch.testing.assert_close(mine.grad, whole.grad, msg=name)
        total += float(whole.grad.double().square().sum()) if whole.grad is not None else 0.0
    assert float(result.gradient_norm) == pytest.approx(total**0.5, rel=1e-5)


def test_clipping_scales_the_gradient_but_not_the_norm_reported(run: TrainingRun, corpus: Any):
    free, batches = make(run, corpus, clipping=None)
    clipped, _ = make(run, corpus, clipping=0.01)
    norm = free.step(1, batches[1].micro_batches).gradient_norm
    assert norm > 0.01
    torch.testing.assert_close(clipped.step(1, batches[1].micro_batches).gradient_norm, norm)
    for mine, other in zip(clipped.encoder.parameters(), free.encoder.parameters(), strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(mine.grad, other.grad * 0.01 / norm, rtol=1e-3, atol=1e-9)


def test_the_sum_over_cells_has_its_own_gradient_and_scale_for_clipping(
    run: TrainingRun, corpus: Any
):
    """Clipping at 4 acts on the sum over 8 cells and not on the mean over genes."""
    whole, batches = make(run, corpus, micro_batch_tokens=10**6)
    (batch,) = batches[1].micro_batches
    keys = whole.encoder.dropout_keys(batch.cells, batch.positions, batch.cu_seqlens, 42, 1)
    logits = whole.encoder(
        batch.tokens, batch.positions, batch.cu_seqlens, batch.max_seqlen, batch.masked, keys
    )
    cells = [
        (batch.masked >= begin) & (batch.masked < end) for begin, end in pairwise(batch.cu_seqlens)
    ]
    sum(cross_entropy(logits[cell], batch.targets[cell]) for cell in cells).backward()
    wanted = torch.cat([p.grad.flatten() for p in whole.encoder.parameters() if p.grad is not None])
    assert wanted.norm() > 4

    summed, batches = make(run, corpus, gradient="sum", clipping=4.0, micro_batch_tokens=32)
    mean, _ = make(run, corpus, gradient="mean", clipping=4.0, micro_batch_tokens=32)
    ours, other = (one.step(1, batches[1].micro_batches) for one in (summed, mean))
    torch.testing.assert_close(ours.gradient_norm, wanted.norm())
    torch.testing.assert_close(ours.loss, cross_entropy(logits, batch.targets).detach())
    assert other.gradient_norm < 4
    clipped, free = (
        torch.cat([p.grad.flatten() for p in one.encoder.parameters() if p.grad is not None])
        for one in (summed, mean)
    )
    torch.testing.assert_close(clipped, 4 * wanted / wanted.norm(), rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(free.norm(), other.gradient_norm)


def test_a_loss_that_is_not_finite_is_returned_and_the_step_taken(run: TrainingRun, corpus: Any):
    trainer, batches = make(run, corpus, clipping=None)
    with torch.no_grad():
        trainer.encoder.output.bias.fill_(float("inf"))
    assert torch.isnan(trainer.step(1, batches[1].micro_batches).loss)
    assert torch.isnan(trainer.step(2, batches[2].micro_batches).gradient_norm)


def test_both_arms_draw_the_same_dropout(run: TrainingRun, corpus: Any):
    """With attention switched off, sigmoid and softmax models are one: so are their losses."""
    losses = []
    for attention in ("sigmoid", "softmax"):
        store = TokenStore.open(corpus.stores)
        arm = replace(run, attention=attention)
        settings = arm.encoder_settings(store.vocabulary_size)
        encoder = Encoder(settings).initialise(1)
        with torch.no_grad():
            for block in encoder.blocks:
                block.projection.weight.zero_()
        trainer = Trainer(encoder, run.training, 42, torch.device("cpu"))
        batches = GlobalBatches(store, settings, run.training, 42)
        losses.append(trainer.step(1, batches[1].micro_batches).loss)
    assert torch.equal(*losses)
    (batch, *_) = batches[1].micro_batches
    with torch.no_grad():
        first, again, other = (trainer.summed_loss(batch, step) for step in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_one_compiled_graph_serves_all_batches(run: TrainingRun, corpus: Any, attention: str):
    """Lengths and masked genes differ from batch to batch; recompiling would cost minutes."""
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    # On the CPU, torch's own softmax attention goes from sequence to sequence.
    run = replace(run, attention=attention, backend="reference")
    seen = []
    for budget in (64, 24):  # 24 tokens are a cell or two
        trainer, batches = make(run, corpus, micro_batch_tokens=budget)
        seen += [batch for step in range(1, 5) for batch in batches[step].micro_batches]
    assert len({len(batch.tokens) for batch in seen}) > 5
    assert {1, 2} <= {len(batch.cells) for batch in seen}
    expected = [trainer.summed_loss(batch, 1).detach() for batch in seen]
    trainer.compile("aot_eager")
    for batch, right in zip(seen, expected, strict=True):
        torch.testing.assert_close(trainer.summed_loss(batch, 1).detach(), right)
    assert counters["stats"]["unique_graphs"] == 1


def test_what_is_added_to_a_single_cell_does_not_count(run: TrainingRun, corpus: Any):
    trainer, batches = make(run, corpus, micro_batch_tokens=1)
    for batch in batches[1].micro_batches:
        assert len(batch.cells) == 1
        encoder = trainer.encoder
        keys = encoder.dropout_keys(batch.cells, batch.positions, batch.cu_seqlens, 42, 1)
        logits = encoder(
            batch.tokens, batch.positions, batch.cu_seqlens, batch.max_seqlen, batch.masked, keys
        )
        wanted = cross_entropy(logits, batch.targets, reduction="sum")
        torch.testing.assert_close(trainer.summed_loss(batch, 1), wanted)
