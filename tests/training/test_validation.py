"""Validation loss, statistics of attention weights, and early stopping."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_training import changed
from torch.nn.functional import cross_entropy

from scsigmoid.attention.reference import weight_statistics
from scsigmoid.model.weights import load_encoder
from scsigmoid.training.checkpoints import Checkpoints
from scsigmoid.training.journal import LAYER_COLUMNS, read_journal
from scsigmoid.training.loop import Validation, has_flattened, train
from scsigmoid.training.run import TrainingRun
from scsigmoid.training.shares import validation_indices


@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_the_loss_is_the_mean_over_masked_genes_without_dropout(run, make, make_batches, attention):
    how = {"validation_cells": 7, "micro_batch_tokens": 40}
    trainer, batches = make(replace(run, attention=attention), **how)
    validation = Validation(batches)
    logits, targets, cells = [], [], []
    for b in validation._batches:
        logits.append(trainer.encoder(b.tokens, b.positions, b.cu_seqlens, b.max_seqlen, b.masked))
        targets.append(b.targets)
        cells += b.cells.tolist()
    expected = cross_entropy(torch.cat(logits), torch.cat(targets))
    assert validation.loss(trainer) == pytest.approx(expected.item(), rel=1e-6)
    assert cells == validation_indices(30, 7).tolist()
    assert len(validation._batches) > 2

    # Two processes share the cells.
    shares = [Validation(make_batches(run, rank, 2, **how))._batches for rank in range(2)]
    assert sorted(int(c) for share in shares for b in share for c in b.cells) == cells


def test_weight_statistics_equal_their_definition():
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
        statistics = weight_statistics(kind, q, k, v, spans)
        expected = {
            "score_max": max(scores),
            "weight_max": max(largest),
            "row_sum_low": np.quantile(sums, 0.05),
            "row_sum": np.quantile(sums, 0.5),
            "row_sum_high": np.quantile(sums, 0.95),
            "keys": sorted(keys)[(len(keys) - 1) // 2],
            "value_mean": np.mean(shares),
        }
        assert statistics == pytest.approx(expected, rel=1e-6)


def test_a_resumed_run_writes_the_same_curves(run, corpus, tmp_path):
    for name, steps in (("whole", 9), ("resumed", 6), ("resumed", 9)):
        validated = changed(run, validate_every=4, validation_cells=7, steps=steps)
        train(validated, *corpus, tmp_path / name)

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


def test_training_ends_when_the_validation_loss_is_flat(run, corpus, tmp_path, capsys):
    """A learning rate of almost 0 gives a flat loss: steps 1 and 2, then three without progress."""
    validation = {"validate_every": 2, "validation_cells": 7, "patience": 3}
    flat = changed(run, learning_rate=1e-9, checkpoint_every=5, **validation)

    def last_step(name: str, how: TrainingRun) -> int:
        train(how, *corpus, tmp_path / name)
        steps = read_journal(tmp_path / name / "journal.csv")[0]["step"]
        _, metadata = load_encoder(tmp_path / name / "model.safetensors")
        assert metadata["step"] == steps[-1]
        return int(steps[-1])

    # Validated at steps 1, 2, 4 and 6.
    assert last_step("whole", flat) == 6
    (last,) = (line for line in capsys.readouterr().err.splitlines() if "done in" in line)
    assert f"{run.model}: step 6 of 20, loss " in last
    assert last_step("learning", changed(flat, learning_rate=0.01, warmup_steps=0)) > 6

    # A run that is stopped at step 5 ends at the same step, with the same bytes. So does the same
    # command after the end, if only the model is missing.
    weights = (tmp_path / "whole/model.safetensors").read_bytes()
    (tmp_path / "whole/model.safetensors").unlink()
    assert last_step("whole", flat) == 6
    assert (tmp_path / "whole/model.safetensors").read_bytes() == weights
    (tmp_path / "whole/checkpoints/step-00000006.pt").unlink()
    assert last_step("whole", flat) == 6
    assert (tmp_path / "whole/model.safetensors").read_bytes() == weights

    # More steps alone do not train longer, and the last line says how to.
    capsys.readouterr()
    assert last_step("whole", changed(flat, steps=30)) == 6
    assert capsys.readouterr().err.endswith("set training.patience: 0\n")
    assert last_step("whole", changed(flat, patience=0)) == 20

    # Its checkpoint is of a finished run: other settings train from the beginning.
    assert Checkpoints(tmp_path / "whole/checkpoints", 2).resume({"other": "settings"}, 20) == 0


@pytest.mark.parametrize(
    ("losses", "patience", "expected"),
    [
        ([], 1, False),
        ([5.0, 4.995], 1, True),
        ([5.0, 4.985], 1, False),
        ([5.0, 4.995, 4.985], 2, False),
        ([5.0, 4.0, 4.5, 4.1], 2, True),
        ([5.0, 4.0], 2, False),
        ([5.0, 5.0], 0, False),
        ([5.0, math.nan, math.nan], 2, True),
    ],
)
def test_has_flattened(losses, patience, expected):
    """An improvement is a decrease by at least 0.2 %."""
    assert has_flattened(losses, patience) == expected
