"""The training benchmark on a GPU: every kernel is right in the encoder, and compiled once."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.small_benchmarks import TRAINING_BENCHMARK
from small_training import ARCHITECTURE, TRAINING

from scsigmoid.benchmarks.providers import Unavailable
from scsigmoid.benchmarks.rows import TrainingGroup, TrainingRow, read_rows
from scsigmoid.benchmarks.training import Conditions, gradient_error, run_training_benchmark
from scsigmoid.benchmarks.variants import Variant, chosen_variants
from scsigmoid.config.schema import Size
from scsigmoid.model.sizes import EncoderSettings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SIZE = Size(layers=2, hidden=128, heads=2, feed_forward=256)
SETTINGS = replace(
    TRAINING_BENCHMARK,
    contexts=[256, 512],
    cells_per_gpu=[4],
    vocabulary=1000,
    rounds=8,
    seconds=5,
    median_length=200,
)


@pytest.mark.parametrize("variant", chosen_variants(None, "cuda"), ids=lambda variant: variant.name)
@pytest.mark.parametrize("context", [256, 300])
def test_the_gradient_is_plain_pytorchs(variant: Variant, context: int) -> None:
    encoder = EncoderSettings.of(SIZE, ARCHITECTURE, "sigmoid", context, SETTINGS.vocabulary)
    group = TrainingGroup("small", context, 4)
    conditions = Conditions(group, encoder, SETTINGS, TRAINING, 42, torch.device("cuda"))
    try:
        assert gradient_error(variant, conditions, next(conditions.batches())) < 0.03
    except Unavailable as error:
        pytest.skip(str(error))


def test_every_kernel_is_timed_and_none_compiled_in_a_round(tmp_path: Path) -> None:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    run_training_benchmark(
        SETTINGS,
        {"small": SIZE},
        ARCHITECTURE,
        TRAINING,
        42,
        "cuda",
        tmp_path / "t.csv",
        tmp_path / "t.json",
    )
    rows = read_rows(tmp_path / "t.csv", TrainingRow)
    assert len(rows) == 2 * len(chosen_variants(None, "cuda"))
    timed = [row for row in rows if row.rounds]
    assert [row.note for row in rows if not row.rounds and "is not installed" not in row.note] == []
    for row in timed:
        assert row.rounds == 8
        assert row.recompiled == 0
        assert row.peak_memory_gb > 0
        # Contexts share the graph of packed cells.
        assert row.compiled == (1 if row.layout == "padded" or row.context == 256 else 0)
        # CUDA graphs compute all small steps over packed cells, except with FlexAttention.
        assert row.cuda_graphs == (row.layout == "packed" and row.kernel != "flex")
