"""Counts of parameters and floating-point operations."""

from dataclasses import replace

import pytest
import torch
from small_training import PAPER, TINY
from torch.utils.flop_counter import FlopCounterMode

from scsigmoid.model.encoder import Encoder
from scsigmoid.model.sizes import count_flops, count_parameters


def test_parameters_of_the_160m_model():
    # 44,000 x 768 token and 4,096 x 768 position embeddings; 12 blocks of norms 3,072, qkv
    # 1,771,776, projection 590,592 and feed-forward 4,722,432; a norm; the output layer
    blocks = 12 * (3_072 + 1_771_776 + 590_592 + 4_722_432)
    assert count_parameters(PAPER) == 33_792_000 + 3_145_728 + blocks + 1_536 + 33_836_000


@pytest.mark.parametrize("variants", [(), ("qk_norm", "centered_values", "hybrid_norm")])
def test_parameters_equal_the_module(variants):
    settings = replace(TINY, variants=variants)
    assert count_parameters(settings) == sum(p.numel() for p in Encoder(settings).parameters())


def test_flops_of_linear_layers_equal_the_count_of_torch():
    model = Encoder(replace(TINY, backend="reference"))
    lengths, masked = [5, 9], torch.tensor([0, 3, 7])
    arguments = (
        torch.arange(14),
        torch.cat([torch.arange(n) for n in lengths]),
        torch.tensor([0, 5, 14], dtype=torch.int32),
        9,
        masked,
    )
    with FlopCounterMode(display=False) as counter:
        model(*arguments).sum().backward()
    attention = 14 * 2 * 16 * (5**2 + 9**2)
    output = 6 * 16 * 50 * 3
    linear = 6 * 2 * (4 * 16**2 + 2 * 16 * 32) * 14
    assert count_flops(TINY, lengths, 3) == linear + attention + output
    # PyTorch does not count the products inside the custom operator.
    assert count_flops(TINY, lengths, 3) - attention == counter.get_total_flops()
