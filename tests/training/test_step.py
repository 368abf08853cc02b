"""Training steps: explicit computations, and independence of the division into micro-batches."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import cross_entropy

from scsigmoid.model.batches import Batch
from scsigmoid.training.step import Trainer, learning_rate


def test_warm_up_is_linear_then_constant(training):
    settings = training.model_copy(update={"learning_rate": 1e-4, "warmup_steps": 4})
    rates = [learning_rate(step, settings) for step in range(1, 7)]
    assert rates == pytest.approx([0.25e-4, 0.5e-4, 0.75e-4, 1e-4, 1e-4, 1e-4])
    assert learning_rate(1, settings.model_copy(update={"warmup_steps": 0})) == 1e-4


def eager_logits(trainer: Trainer, batch: Batch, step: int = 1) -> torch.Tensor:
    """Return logits by the encoder's forward pass, without padding or compilation."""
    encoder, bounds = trainer.encoder, batch.cu_seqlens
    keys = encoder.dropout_keys(batch.cells, batch.positions, bounds, 42, step)
    return encoder(batch.tokens, batch.positions, bounds, batch.max_seqlen, batch.masked, keys)


def gradient(trainer: Trainer) -> torch.Tensor:
    parameters = trainer.encoder.parameters()
    return torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])


@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_micro_batches_have_the_gradient_of_the_whole_batch(run, make, attention):
    run = replace(run, attention=attention)
    trainer, batches = make(run, clipping=None, micro_batch_tokens=20)
    micro_batches = batches[1].micro_batches
    assert {len(batch.cells) for batch in micro_batches} == {1, 2}
    result = trainer.step(1, micro_batches)

    whole, batches = make(run, micro_batch_tokens=10**6)
    (batch,) = batches[1].micro_batches
    loss = cross_entropy(eager_logits(whole, batch), batch.targets)
    loss.backward()
    torch.testing.assert_close(result.loss, loss.detach())
    torch.testing.assert_close(gradient(trainer), gradient(whole))
    torch.testing.assert_close(result.gradient_norm, gradient(whole).norm())


def test_the_sum_over_cells_has_its_own_gradient_and_scale_for_clipping(run, make):
    """Clipping at 4 applies to the sum over 8 cells, not to the mean over genes."""
    whole, batches = make(run, micro_batch_tokens=10**6)
    (batch,) = batches[1].micro_batches
    logits = eager_logits(whole, batch)
    cells = [
        (batch.masked >= begin) & (batch.masked < end) for begin, end in pairwise(batch.cu_seqlens)
    ]
    sum(cross_entropy(logits[cell], batch.targets[cell]) for cell in cells).backward()
    expected = gradient(whole)
    assert expected.norm() > 4

    summed, batches = make(run, gradient="sum", clipping=4.0, micro_batch_tokens=32)
    mean, _ = make(run, gradient="mean", clipping=4.0, micro_batch_tokens=32)
    ours, other = (each.step(1, batches[1].micro_batches) for each in (summed, mean))
    torch.testing.assert_close(ours.gradient_norm, expected.norm())
    torch.testing.assert_close(ours.loss, cross_entropy(logits, batch.targets).detach())
    assert other.gradient_norm < 4
    torch.testing.assert_close(
        gradient(summed), 4 * expected / expected.norm(), rtol=1e-4, atol=1e-7
    )
    torch.testing.assert_close(gradient(mean).norm(), other.gradient_norm)


def test_steps_equal_a_plain_torch_loop(run, make):
    """Three steps with warm-up, clipping and AdamW."""
    options = {"betas": (0.8, 0.9), "epsilon": 1e-4, "clipping": 0.5, "warmup_steps": 2}
    ours, batches = make(run, **options, micro_batch_tokens=32)
    whole, wholes = make(run, micro_batch_tokens=10**6)
    parameters = list(whole.encoder.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim == 2], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
        ],
        betas=(0.8, 0.9),
        eps=1e-4,
    )
    for step, rate in ((1, 5e-3), (2, 1e-2), (3, 1e-2)):
        ours.step(step, batches[step].micro_batches)
        (batch,) = wholes[step].micro_batches
        optimizer.zero_grad()
        cross_entropy(eager_logits(whole, batch, step), batch.targets).backward()
        assert torch.nn.utils.clip_grad_norm_(parameters, 0.5) > 0.5
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    own = list(ours.encoder.parameters())
    torch.testing.assert_close(own, parameters, rtol=1e-4, atol=1e-5)


def test_attention_score_max_covers_all_batches(run, make):
    trainer, batches = make(run, micro_batch_tokens=32)
    parts = batches[1].micro_batches
    scores = [
        float(trainer.encoder.attention_score_max(one.tokens, one.positions, one.cu_seqlens))
        for one in parts
    ]
    assert 0 < scores[-1] < max(scores)
    for order in (parts, parts[::-1]):
        assert trainer.attention_score_max(order) == max(scores)
    with torch.no_grad():
        trainer.encoder.token_embedding.weight[parts[0].tokens[1]] = torch.nan
    assert math.isnan(trainer.attention_score_max(parts))


def test_sigmoid_and_softmax_draw_the_same_dropout(run, make):
    """Without attention, sigmoid and softmax models have equal losses."""
    losses = []
    for attention in ("sigmoid", "softmax"):
        trainer, batches = make(replace(run, attention=attention))
        with torch.no_grad():
            for block in trainer.encoder.blocks:
                block.projection.weight.zero_()
        losses.append(trainer.step(1, batches[1].micro_batches).loss)
    assert torch.equal(*losses)
    (batch, *_) = batches[1].micro_batches
    with torch.no_grad():
        first, again, other = (trainer.summed_loss(batch, step) for step in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(("attention", "gradient"), [("sigmoid", "mean"), ("softmax", "sum")])
def test_one_compiled_graph_serves_all_batches(run, make, attention, gradient):
    """Small batches are padded as for a CUDA graph. Compiling for each size would take minutes."""
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    # The backend sdpa would call softmax attention once per sequence on the CPU.
    run = replace(run, attention=attention, backend="reference")
    seen = []
    for budget in (64, 24):  # 24 tokens are a cell or two
        compiled, batches = make(run, gradient=gradient, micro_batch_tokens=budget)
        seen += [batch for step in (1, 2) for batch in batches[step].micro_batches]
    eager, _ = make(run, gradient=gradient)
    compiled.compile("aot_eager")
    compiled.graphed_tokens = 20
    seen.sort(key=lambda batch: len(batch.tokens))  # padded batches are compiled first
    assert {compiled._bucket([batch]) is None for batch in seen} == {True, False}
    assert {1, 2} <= {len(batch.cells) for batch in seen}
    for step, batch in enumerate(seen, start=1):
        results = [trainer.step(step, [batch]) for trainer in (compiled, eager)]
        torch.testing.assert_close(results[0].loss, results[1].loss)
    assert counters["stats"]["unique_graphs"] == 1
    assert counters["aot_autograd"]["total"] == 1  # traced once, not again without symbolic floats
