"""The encoder: packed batches, sigmoid and softmax, initial weights, dropout."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from small_training import TINY

from scsigmoid.model.dropout import KeyedDropout, cell_keys, token_keys
from scsigmoid.model.encoder import Encoder

SETTINGS = replace(TINY, dropout=0.1, backend="reference")
LENGTHS = [5, 32, 1, 17]
ARMS = ("sigmoid", "softmax")


def encoder(attention="sigmoid", seed=1, **changes):
    return Encoder(replace(SETTINGS, attention=attention, **changes)).initialize(seed)


def batch():
    tokens = torch.randint(4, 50, (sum(LENGTHS),), generator=torch.Generator().manual_seed(0))
    positions = torch.cat([torch.arange(n) for n in LENGTHS])
    bounds = torch.tensor([0, *LENGTHS]).cumsum(0).to(torch.int32)
    return tokens, positions, bounds, max(LENGTHS)


def compute_by_hand(model, tokens, keys=None):
    """Compute the hidden states of one cell from the weights, step by step."""
    weights, n = model.state_dict(), len(tokens)

    def drop(x, site):
        return KeyedDropout(model.settings.dropout, site)(x, keys)

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x, name):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        normal = (x - mean) / torch.sqrt(variance + 1e-5)
        return normal * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def rms_norm(x, name):
        mean_square = x.square().mean(-1, keepdim=True)
        return x * weights[f"{name}.weight"] / (mean_square + 1e-5).sqrt()

    x = weights["token_embedding.weight"][tokens] + weights["position_embedding.weight"][:n]
    x = drop(x, 0)
    for layer in range(2):
        block = f"blocks.{layer}"
        qkv = linear(norm(x, f"{block}.attention_norm"), f"{block}.qkv")
        q, k, v = qkv.view(n, 3, 2, 8).unbind(1)
        if "qk_norm" in model.settings.variants:
            q, k = rms_norm(q, f"{block}.query_norm"), rms_norm(k, f"{block}.key_norm")
        scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(8)
        is_sigmoid = model.settings.attention == "sigmoid"
        attended = 1 / (1 + n * torch.exp(-scores)) if is_sigmoid else torch.softmax(scores, -1)
        mean = v.mean(0) if "centered_values" in model.settings.variants else 0
        out = torch.einsum("hij,jhd->ihd", attended, v - mean) + mean
        out = linear(out.flatten(1), f"{block}.projection")
        if "hybrid_norm" in model.settings.variants:
            out = norm(out, f"{block}.output_norm")
        x = x + drop(out, 2 * layer + 1)
        wide = linear(norm(x, f"{block}.feed_forward_norm"), f"{block}.expansion")
        wide = wide * 0.5 * (1 + torch.erf(wide / math.sqrt(2)))
        x = x + drop(linear(wide, f"{block}.contraction"), 2 * layer + 2)
    return norm(x, "final_norm")


@pytest.mark.parametrize("attention", ARMS)
@pytest.mark.parametrize(
    "variants", [(), ("qk_norm",), ("centered_values",), ("hybrid_norm",)], ids="_".join
)
def test_packed_cells_do_not_depend_on_each_other(attention, variants):
    # Weights ten times larger than usual, so that attention matters.
    model = encoder(attention, initializer_range=0.2, variants=variants).double()
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):  # gains different from 1
            parameter.data += 0.1 * torch.arange(len(parameter)) / len(parameter)
    tokens, *rest = batch()
    hidden = model(tokens, *rest)
    bounds = rest[1].tolist()
    for start, end in pairwise(bounds):
        torch.testing.assert_close(
            hidden[start:end], compute_by_hand(model, tokens[start:end]), rtol=1e-11, atol=1e-11
        )


def test_logits_at_masked_positions():
    model = encoder()
    arguments, masked = batch(), torch.tensor([0, 7, 40, 54])
    wanted = model.output(model(*arguments)[masked])
    torch.testing.assert_close(model(*arguments, masked), wanted, rtol=1e-5, atol=1e-6)
    assert model.output.weight is not model.token_embedding.weight


def test_sigmoid_and_softmax_have_equal_initial_weights():
    sigmoid, softmax = encoder("sigmoid").state_dict(), encoder("softmax").state_dict()
    assert list(sigmoid) == list(softmax)
    assert all(torch.equal(sigmoid[name], softmax[name]) for name in sigmoid)
    other = encoder("sigmoid", seed=2).state_dict()
    assert not torch.equal(sigmoid["output.weight"], other["output.weight"])


def test_contexts_share_all_weights_but_positions():
    short, long = encoder(context=16).state_dict(), encoder().state_dict()
    differing = {name for name in short if not torch.equal(short[name], long[name])}
    assert differing == {"position_embedding.weight"}


def test_initial_weights():
    model = encoder(vocabulary_size=5000)
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            assert (parameter == float(name.endswith("norm.weight"))).all()
    weights = model.output.weight
    assert abs(weights.std().item() - 0.02) < 2e-4
    assert abs(weights.mean().item()) < 2e-4


@pytest.mark.parametrize("attention", ARMS)
def test_dropout_depends_only_on_cell_seed_and_step(attention):
    model = encoder(attention).double()
    tokens, positions, bounds, longest = batch()

    def hidden(cells, seed=1, step=1):
        keys = model.dropout_keys(torch.tensor(cells), positions, bounds, seed, step)
        return model(tokens, positions, bounds, longest, keys=keys)

    # The first three cells have 38 tokens, and the last cell has 17.
    whole = hidden([7, 3, 12, 5])
    assert torch.equal(whole, hidden([7, 3, 12, 5]))
    for other in (hidden([7, 3, 12, 6]), hidden([7, 3, 12, 5], step=2)):
        assert not torch.equal(whole[-17:], other[-17:])
    assert torch.equal(whole[:38], hidden([7, 3, 12, 6])[:38])
    assert not torch.equal(whole, hidden([7, 3, 12, 5], seed=2))
    # The second cell alone.
    keys = token_keys(cell_keys(torch.tensor([3]), 1, 1).repeat(32), torch.arange(32))
    torch.testing.assert_close(compute_by_hand(model, tokens[5:37], keys), whole[5:37])


def test_attention_score_max():
    model = encoder(initializer_range=0.5)
    tokens, positions, bounds, _ = batch()
    x = model.token_embedding(tokens) + model.position_embedding(positions)
    q, k, _ = model.blocks[0].qkv(model.blocks[0].attention_norm(x)).view(-1, 3, 2, 8).unbind(1)
    scores = torch.einsum("ihd,jhd->hij", q, k).abs() / math.sqrt(8)
    cells = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    largest = scores[:, cells[:, None] == cells].max().item()
    result = model.attention_score_max(tokens, positions, bounds)
    assert result.item() == pytest.approx(largest, rel=1e-5)
    assert not result.requires_grad
