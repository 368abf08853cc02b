"""Buckets of batch sizes, and batches that are padded to them."""

from dataclasses import replace

import pytest
import torch
from small_training import masked_batch

from scsigmoid.model.batches import Batch
from scsigmoid.training.graphs import MOST_TOKENS, bucket_of


def batch_of(*lengths: int) -> Batch:
    """Return a batch of cells with these numbers of tokens."""
    return masked_batch([length - 1 for length in lengths], 64)


@pytest.mark.parametrize("tokens", [5, 127, 128, 129, 4000, 4097, 8192, 8193, 9000, 16384])
def test_buckets_have_little_padding(tokens):
    for lengths in ((tokens,), (tokens - 2, 2), (2,) * (tokens // 2 - 1) + (2 + tokens % 2,)):
        batch = batch_of(*lengths)
        bucket = bucket_of(batch, context=max(lengths), mask_fraction=0.15)
        added = bucket.tokens - tokens
        assert 0 <= added < max(128, tokens / 16)
        # An additional sequence contains the padding.
        assert len(lengths) < bucket.sequences <= max(4, 2 * len(lengths))
        assert max(*lengths, added) <= bucket.longest <= bucket.tokens
        assert len(batch.masked) <= bucket.masked <= 2 * MOST_TOKENS + 4


def test_buckets_keep_the_form_of_the_sigmoid():
    short, long = batch_of(8000, 2000), batch_of(8193, 1807)
    longest = [bucket_of(batch, 16_384, 0.15).longest for batch in (short, long)]
    assert longest == [8192, 10_240]


@pytest.mark.parametrize("gradient", ["mean", "sum"])
@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_padding_changes_neither_loss_nor_gradient(run, make, attention, gradient):
    """Sizes alternate: data left over from an earlier batch would change results."""
    run = replace(run, attention=attention)
    padded, batches = make(run, gradient=gradient, micro_batch_tokens=10**6)
    padded.graphed_tokens = 1000
    unpadded, _ = make(run, gradient=gradient)
    buckets = set()
    for step in range(1, 7):
        (batch,) = batches[step].micro_batches
        if step % 2:
            batch = batch_of(3)
        buckets.add(padded._bucket([batch]))
        results = [trainer.step(step, [batch], masked=30) for trainer in (padded, unpadded)]
        torch.testing.assert_close(results[0].loss, results[1].loss)
        torch.testing.assert_close(results[0].gradient_norm, results[1].gradient_norm)
        gradients = [[p.grad for p in each.encoder.parameters()] for each in (padded, unpadded)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)
    assert len(buckets) > 1
    # Larger batches and several batches per step are not padded.
    assert padded._bucket([batch, batch]) is None
    padded.graphed_tokens = len(batch.tokens) - 1
    assert padded._bucket([batch]) is None
