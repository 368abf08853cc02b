"""Dropout: its probability, and independent draws."""

import numpy as np
import pytest
import torch

from scsigmoid.model.dropout import KeyedDropout, cell_keys, mix, token_keys

PROBABILITY, CHANNELS, LENGTH, CELLS = 0.1, 96, 50, 400


def keys(seed=1, step=3):
    """Return the keys of all tokens of ``CELLS`` cells with ``LENGTH`` tokens each."""
    of_cells = cell_keys(torch.arange(CELLS), seed, step)
    return token_keys(of_cells.repeat_interleave(LENGTH), torch.arange(LENGTH).repeat(CELLS))


def dropped(site=2, probability=PROBABILITY, **changes):
    """Return a matrix (tokens, channels) that is 1 where an activation is dropped."""
    ones = torch.ones(CELLS * LENGTH, CHANNELS, dtype=torch.float64)
    return (KeyedDropout(probability, site)(ones, keys(**changes)) == 0).double()


def lowbias32(word):
    """Compute lowbias32 with the integers of Python."""
    word &= 0xFFFFFFFF
    word = (word ^ word >> 16) * 0x7FEB352D & 0xFFFFFFFF
    word = (word ^ word >> 15) * 0x846CA68B & 0xFFFFFFFF
    return word ^ word >> 16


def test_mix_equals_unsigned_arithmetic():
    words = np.random.default_rng(0).integers(-(2**31), 2**31, 1000).astype(np.int32)
    results = mix(torch.from_numpy(words)).tolist()
    assert [word % 2**32 for word in results] == [lowbias32(word) for word in words.tolist()]


@pytest.mark.parametrize("probability", [0.02, 0.1, 0.5])
def test_share_of_dropped_activations(probability):
    is_dropped = dropped(probability=probability)
    deviation = (probability * (1 - probability)) ** 0.5
    # Means over all activations, each channel and each token vary as for independent draws.
    for means in (is_dropped.mean().reshape(1), is_dropped.mean(0), is_dropped.mean(1)):
        count = is_dropped.numel() / means.numel()
        errors = (means - probability) / (deviation / count**0.5)
        assert errors.abs().max() < 6
        assert errors.numel() == 1 or abs(errors.std().item() - 1) < 0.25


def test_draws_are_independent():
    centered = dropped() - PROBABILITY
    pairs = {
        "channel": (centered[:, 1:], centered[:, :-1]),
        "token": (centered[1:], centered[:-1]),
        "cell": (centered[LENGTH:], centered[:-LENGTH]),
        "site": (centered, dropped(site=3) - PROBABILITY),
        "step": (centered, dropped(step=4) - PROBABILITY),
        "seed": (centered, dropped(seed=2) - PROBABILITY),
    }
    for name, (one, other) in pairs.items():
        correlation = (one * other).mean() / (PROBABILITY * (1 - PROBABILITY))
        assert abs(correlation) * one.numel() ** 0.5 < 5, name


def test_kept_activations_are_scaled_and_differentiated():
    dropout = KeyedDropout(PROBABILITY, 0)
    x = torch.randn(CELLS * LENGTH, CHANNELS, dtype=torch.float64, requires_grad=True)
    out = dropout(x, keys())
    is_kept = out != 0
    torch.testing.assert_close(out[is_kept], x[is_kept] / (1 - PROBABILITY))
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(grad, is_kept.double() / (1 - PROBABILITY))
    infinite = torch.full_like(x, torch.inf)
    assert (dropout(infinite, keys())[~is_kept] == 0).all()


def test_nothing_is_dropped_without_keys_or_at_probability_0():
    x = torch.ones(3, 3)
    assert KeyedDropout(PROBABILITY, 0)(x, None) is KeyedDropout(0.0, 0)(x, keys()[:3]) is x
