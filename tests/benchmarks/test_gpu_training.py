"""The training benchmark on a GPU: every kernel is correct, and compiled once."""

from pathlib import Path

import pytest
import torch
from benchmarks.small_benchmarks import TRAINING_BENCHMARK
from small_training import ARCHITECTURE, TRAINING

from scsigmoid.benchmarks.rows import TrainingRow, read_rows
from scsigmoid.benchmarks.training import run_training_benchmark
from scsigmoid.benchmarks.variants import choose_variants
from scsigmoid.config.schema import Size

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SIZE = Size(layers=2, hidden=128, heads=2, feed_forward=256)
# The first context is not a multiple of the blocks of padded cells (128 tokens).
CONTEXTS = [300, 512]
SETTINGS = TRAINING_BENCHMARK.model_copy(
    update={
        "contexts": CONTEXTS,
        "cells_per_gpu": [4],
        "vocabulary": 1000,
        "rounds": 8,
        "seconds": 5,
        "median_length": 200,
    }
)


def test_every_kernel_is_right_and_none_is_compiled_in_a_round(tmp_path: Path) -> None:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    files = tmp_path / "t.csv", tmp_path / "t.json"
    run_training_benchmark(SETTINGS, {"small": SIZE}, ARCHITECTURE, TRAINING, 42, "cuda", *files)
    rows = read_rows(tmp_path / "t.csv", TrainingRow)
    assert len(rows) == 2 * len(choose_variants(None, "cuda"))
    timed = [row for row in rows if row.rounds]
    assert [row.note for row in rows if not row.rounds and "is not installed" not in row.note] == []
    for row in timed:
        assert row.rounds == 8
        assert row.relative_error < 0.03
        # All models have the same weights and cells.
        same = (row.group, row.attention)
        first = next(other for other in timed if (other.group, other.attention) == same)
        assert row.loss == pytest.approx(first.loss, rel=0.01)
        assert row.recompiled == 0
        assert row.peak_memory_gb > 0
        # Contexts share the graph of packed cells.
        assert row.compiled == (1 if row.layout == "padded" or row.context == 300 else 0)
        # CUDA graphs compute small steps over packed cells, but not those of FlexAttention.
        assert row.cuda_graphs == (row.layout == "packed" and row.kernel != "flex")
