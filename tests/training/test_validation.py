"""The loss on cells that are not used for training."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_training import changed
from torch.nn.functional import cross_entropy

from scsigmoid.attention.reference import weight_statistics
from scsigmoid.training.batches import validation_rows
from scsigmoid.training.journal import LAYER_COLUMNS, read_journal
from scsigmoid.training.loop import Validation, train
from scsigmoid.training.run import TrainingRun


@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_the_loss_is_the_mean_over_masked_genes_without_dropout(
    run: TrainingRun, make: Any, make_batches: Any, attention: str
):
    how = {"validation_cells": 7, "micro_batch_tokens": 40}
    trainer, batches = make(replace(run, attention=attention), **how)
    validation = Validation(batches)
    logits, targets, cells = [], [], []
    for batch in validation._batches:
        found = trainer.encoder(
            batch.tokens, batch.positions, batch.cu_seqlens, batch.max_seqlen, batch.masked
        )
        logits, targets = [*logits, found], [*targets, batch.targets]
        cells += batch.cells.tolist()
    wanted = cross_entropy(torch.cat(logits), torch.cat(targets)).detach()
    assert validation.loss(trainer) == pytest.approx(float(wanted), rel=1e-6)
    assert cells == validation_rows(30, 7).tolist()
    assert len(validation._batches) > 2

    # Two processes measure other cells and come to the same sum.
    shares = [Validation(make_batches(run, rank, 2, **how))._batches for rank in range(2)]
    assert sorted(int(c) for share in shares for b in share for c in b.cells) == cells


def test_statistics_of_the_weights_against_their_definition():
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(9, 2, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    spans = [(0, 5), (5, 9)]
    for kind in ("sigmoid", "softmax"):
        scores, sums, keys, shares, largest = [], [], [], [], []
        for begin, end in spans:
            for head in range(2):
                a, b, c = (x[begin:end, head].numpy() for x in (q, k, v))
                score = a @ b.T / 2
                scores.append(np.abs(score).max())
                if kind == "sigmoid":
                    weights = 1 / (1 + (end - begin) * np.exp(-score))
                else:
                    weights = np.exp(score) / np.exp(score).sum(1, keepdims=True)
                rows = weights.sum(1)
                shared = weights / rows[:, None]
                largest.append(weights.max())
                sums += rows.tolist()
                keys += np.exp(-(shared * np.log(shared)).sum(1)).tolist()
                shares.append(np.square(c.mean(0)).sum() / np.square(c).sum(1).mean())
        found = weight_statistics(kind, q, k, v, spans)
        wanted = {
            "score_max": max(scores),
            "weight_max": max(largest),
            "row_sum_low": np.quantile(sums, 0.05),
            "row_sum": np.quantile(sums, 0.5),
            "row_sum_high": np.quantile(sums, 0.95),
            "keys": sorted(keys)[(len(keys) - 1) // 2],
            "value_mean": np.mean(shares),
        }
        assert found == pytest.approx(wanted, rel=1e-6)


def test_a_row_without_weights_attends_to_no_key():
    q, v = torch.full((4, 1, 2), 300.0), torch.ones(4, 1, 2)
    found = weight_statistics("sigmoid", q, -q, v, [(0, 4)])
    assert (found["row_sum"], found["keys"]) == (0, 0)
    assert found["score_max"] == pytest.approx(2 * 300**2 / 2**0.5)


def test_a_resumed_run_writes_the_same_curves(run: TrainingRun, corpus: Any, tmp_path: Path):
    for name, steps in (("whole", 9), ("resumed", 6), ("resumed", 9)):
        validated = changed(run, validate_every=4, validation_cells=7, steps=steps)
        train(validated, corpus.stores, corpus.vocabulary, tmp_path / name)

    def rows(name: str) -> tuple[dict[int, float], list[str]]:
        columns, _ = read_journal(tmp_path / name / "journal.csv")
        losses = dict(zip(columns["step"].tolist(), columns["validation_loss"], strict=True))
        lines = (tmp_path / name / "layers.csv").read_text().splitlines()
        assert lines[0] == ",".join(LAYER_COLUMNS)
        assert all(math.isfinite(float(value)) for line in lines[1:] for value in line.split(","))
        return losses, lines

    whole, resumed = rows("whole"), rows("resumed")
    measured = [step for step, loss in whole[0].items() if not math.isnan(loss)]
    assert measured == [1, 4, 8, 9]
    # The shorter run measured at its own end as well.
    for step in measured:
        assert resumed[0][step] == whole[0][step]
    assert set(whole[1]) <= set(resumed[1])
    assert [int(line.split(",")[0]) for line in whole[1][1:]] == measured  # of one layer
