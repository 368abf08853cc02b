"""Work against the sum over all layers, evenness at the paper's lengths, and small divisions."""

import math

import numpy as np
import pytest

from scsigmoid.model.parameters import count_flops
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.training.division import Work, divide, micro_batches


def settings(context: int) -> EncoderSettings:
    return EncoderSettings(
        attention="sigmoid",
        context=context,
        layers=12,
        hidden=768,
        heads=12,
        feed_forward=3072,
        vocabulary_size=44_000,
        dropout=0.02,
        layer_norm_epsilon=1e-5,
        initializer_range=0.02,
    )


def lengths_of_a_global_batch(context: int, seed: int) -> np.ndarray:
    """256 lengths as in Fig. 1 of the paper: log-normal, cut at the context."""
    drawn = np.random.default_rng(seed).lognormal(math.log(1830), 0.65, 256)
    return np.clip(np.rint(drawn), 200, context).astype(np.int64)


def test_work_is_the_counted_one():
    encoder = settings(4096)
    for length, masked in ((100, 15), (2000, 300), (4000, 600)):
        counted = count_flops(encoder, [length], masked)
        work = Work(encoder, 0.15).of(np.array([length]))[0]
        assert work == pytest.approx(counted, rel=1e-12)


@pytest.mark.parametrize("context", [2048, 4096, 8192])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_processes_and_micro_batches_have_even_work(context: int, ranks: int):
    work_of = Work(settings(context), 0.15)
    budget = 65536
    for seed in range(5):
        lengths = lengths_of_a_global_batch(context, seed)
        work = work_of.of(lengths)
        shares = divide(work, ranks)
        # Every cell is computed once.
        assert sorted(np.concatenate(shares).tolist()) == list(range(256))
        loads = [work[share].sum() for share in shares]
        assert max(loads) < 1.02 * min(loads)
        for share in shares:
            parts = micro_batches(lengths[share], work[share], budget)
            assert sorted(np.concatenate(parts).tolist()) == list(range(len(share)))
            assert all(lengths[share][part].sum() <= budget for part in parts)
            loads = [work[share][part].sum() for part in parts]
            assert max(loads) < 1.02 * min(loads)
            # No more of them than needed: one fewer would hold more than the budget allows.
            assert len(parts) - 1 <= math.ceil(lengths[share].sum() / budget)


def test_a_division_depends_on_the_work_alone():
    work = np.array([5.0, 5.0, 1.0, 1.0, 1.0, 3.0])
    assert [part.tolist() for part in divide(work, 2)] == [[0, 5], [1, 2, 3, 4]]
    assert [part.tolist() for part in divide(work, 1)] == [[0, 1, 2, 3, 4, 5]]


def test_a_cell_beyond_the_budget_goes_alone():
    lengths = np.array([4, 50, 4, 4])
    parts = micro_batches(lengths, lengths.astype(float), 10)
    assert [1] in [part.tolist() for part in parts]
    assert all(part.tolist() == [1] or lengths[part].sum() <= 10 for part in parts)
