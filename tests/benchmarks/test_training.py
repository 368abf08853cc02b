"""The training benchmark on the CPU: groups, rounds, checks and failures."""

import copy
import json
import math
import statistics
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from benchmarks.small_benchmarks import SIZE, TRAINING_BENCHMARK, conditions
from small_training import ARCHITECTURE, TRAINING
from torch import Tensor

from scsigmoid.benchmarks import training
from scsigmoid.benchmarks.rows import TrainingRow, read_rows
from scsigmoid.benchmarks.simulated import simulated_batches
from scsigmoid.benchmarks.training import TimedVariant, run_training_benchmark
from scsigmoid.benchmarks.variants import VARIANTS, PaddedAttention, Variant, choose_variants
from scsigmoid.config.schema import Size, TrainingBenchmark
from scsigmoid.errors import UserError
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.sizes import EncoderSettings, count_flops
from scsigmoid.training.step import Trainer

CPU = torch.device("cpu")
SIZES = {
    "small": SIZE,
    "large": Size(layers=1, hidden=32, heads=2, feed_forward=32),
    "unused": Size(layers=1, hidden=32, heads=2, feed_forward=32),
}
ONE = TRAINING_BENCHMARK.model_copy(update={"contexts": [16]})


def attend_padded(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """Softmax attention of padded cells in plain PyTorch."""
    is_valid = torch.arange(k.shape[1]) < lengths[:, None]
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~is_valid[:, None, None], -math.inf)
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)


def see_padding(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    return v.mean(1, keepdim=True).expand_as(v)


def padded(attend: object) -> Variant:
    """Return a kernel of another project, over padded cells."""
    form = PaddedAttention(lambda lengths, _: lengths, attend)  # type: ignore[arg-type]
    return Variant("other", "softmax", ("cpu",), form)


SIGMOID, SOFTMAX = choose_variants(None, "cpu")
PADDED = padded(attend_padded)


@pytest.fixture
def with_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "choose_variants", lambda *_: [SIGMOID, SOFTMAX, PADDED])


def benchmark(
    folder: Path, settings: TrainingBenchmark = TRAINING_BENCHMARK, seconds: float = math.inf
) -> list[TrainingRow]:
    files = folder / "t.csv", folder / "t.json"
    run_training_benchmark(settings, SIZES, ARCHITECTURE, TRAINING, 42, "cpu", *files, seconds)
    return read_rows(folder / "t.csv", TrainingRow)


def test_every_size_context_number_of_cells_and_kernel_has_a_row(
    tmp_path: Path, with_padded: None
) -> None:
    sizes, cells, contexts = ["small", "large"], [3, 2], [32, 16]
    settings = TRAINING_BENCHMARK.model_copy(
        update={"sizes": sizes, "cells_per_gpu": cells, "contexts": contexts, "steps": 1}
    )
    rows = benchmark(tmp_path, settings)
    kernels = ("sigmoid reference packed", "softmax sdpa packed", "softmax other padded")
    assert [
        (row.size, row.cells_per_step, row.context, f"{row.attention} {row.kernel} {row.layout}")
        for row in rows
    ] == [*product(sizes, cells, contexts, kernels)]
    assert json.loads((tmp_path / "t.json").read_text())["device"] == "cpu"
    for row in rows:
        assert row.rounds == len(row.readings.split()) == 9
        assert row.note == training.CPU_NOTE
        assert row.relative_error < 1e-4
        assert row.milliseconds_low < row.milliseconds < row.milliseconds_high
        assert row.cells_per_second == pytest.approx(row.cells_per_step * 1e3 / row.milliseconds)
        assert math.isnan(row.mfu)
        assert math.isnan(row.peak_memory_gb)
        assert (row.cuda_graphs, row.host_bound) == (0, False)
        assert (row.padding > 0) == (row.layout == "padded")
        # An untrained model predicts nearly equal probabilities.
        assert row.loss == pytest.approx(math.log(50), rel=0.3)
    large = EncoderSettings.of(SIZES["large"], ARCHITECTURE, "sigmoid", 16, 50)
    assert rows[-1].parameters == sum(p.numel() for p in Encoder(large).parameters())


def test_rounds_time_the_cells_that_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_padded: None
) -> None:
    """On a simulated clock, a step takes a millisecond for each token that the model computes."""
    clock = [0.0]
    seen: list[tuple[str, int, tuple[int, ...]]] = []

    class Clock:
        def __init__(self, device: torch.device) -> None:
            self.moments = [clock[0]]

        def mark(self) -> None:
            self.moments.append(clock[0])

        def seconds(self) -> float:
            return self.moments[-1] - self.moments[-2]

        def behind(self) -> float:
            """As on a GPU that is behind by 12 ms, which is an eighth of a padded step."""
            return 0.012

    original_step = Trainer.step

    def step(self, number, batches, masked=None):  # type: ignore[no-untyped-def]
        (batch,) = batches
        clock[0] += len(batch.tokens) / 1e3
        lengths = tuple(torch.diff(batch.cu_seqlens).tolist())
        kind = f"{type(self.encoder).__name__} {self.encoder.settings.attention}"
        seen.append((kind, number, lengths))
        # As on a GPU whose graphs compute every second step.
        return replace(original_step(self, number, batches, masked), graphed=number % 2 == 0)

    monkeypatch.setattr(training, "Stopwatch", Clock)
    monkeypatch.setattr(Trainer, "step", step)
    monkeypatch.setattr(training, "peak_flops", lambda name: 1e6)
    packed, _, other = benchmark(tmp_path, TRAINING_BENCHMARK.model_copy(update={"contexts": [32]}))

    batches = simulated_batches(TRAINING_BENCHMARK, 32, 3, TRAINING, 42)
    # 4 steps before the rounds, and 9 rounds of 3 steps, the first of which is not timed.
    made = [next(batches) for _ in range(4 + 9 * 3)]
    rounds = [made[first + 1 : first + 3] for first in range(4, len(made), 3)]
    tokens = [sum(len(batch.tokens) for batch in cells) for cells in rounds]
    assert [float(reading) for reading in packed.readings.split()] == pytest.approx(
        [count / 2 for count in tokens], rel=1e-5
    )
    assert set(other.readings.split()) == {"96"}
    assert packed.over(other) == pytest.approx([96 / count * 2 for count in tokens], rel=1e-5)
    assert packed.tokens_per_second == pytest.approx(1000, rel=1e-5)
    assert packed.tokens_per_step == statistics.fmean(tokens) / 2
    assert other.padding == pytest.approx(1 - statistics.fmean(tokens) / 2 / 96)
    work = [
        sum(
            count_flops(conditions(32).encoder, torch.diff(b.cu_seqlens).tolist(), len(b.masked))
            for b in cells
        )
        for cells in rounds
    ]
    assert other.mfu == pytest.approx(statistics.median(work) / (2 * 0.096) / 1e6, rel=1e-5)
    assert (other.cuda_graphs, other.host_bound) == (0.5, True)
    # 131.6 million cells, 3 of them in 96 ms
    assert other.gpu_hours == pytest.approx(131.6e6 / (3 / 0.096) / 3600)
    assert packed.gpu_hours_low < packed.gpu_hours < packed.gpu_hours_high
    # All models see the same cells at the same steps. Their order changes from round to round.
    steps = {name: sorted(entry[1:] for entry in seen if entry[0] == name) for name, *_ in seen}
    assert len(steps) == 3
    assert steps["Encoder sigmoid"] == steps["Encoder softmax"] == steps["PaddedEncoder softmax"]
    names = [name for name, *_ in seen[4 * 3 :: 3]]  # one for each model and round
    orders = {tuple(names[first : first + 3]) for first in range(0, len(names), 3)}
    assert len(orders) > 1


def test_a_run_out_of_time_writes_its_rows_and_can_resume(tmp_path: Path) -> None:
    settings = TRAINING_BENCHMARK.model_copy(update={"kernels": ["sdpa"], "rounds": 1})
    assert benchmark(tmp_path, settings, seconds=-1.0) == []
    assert len([*tmp_path.glob("t.partial-*.csv")]) == 1
    names = "small, context 16, 3 cells; small, context 32, 3 cells"
    assert json.loads((tmp_path / "t.json").read_text())["not_measured"] == names
    assert [row.context for row in benchmark(tmp_path, settings)] == [16, 32]
    assert not [*tmp_path.glob("t.partial-*.csv")]
    assert "not_measured" not in json.loads((tmp_path / "t.json").read_text())


def test_kernels_that_are_wrong_or_missing_are_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = [variant for variant in VARIANTS if variant.kernel in ("hopper", "triton_sigmoid")]
    variants = [SIGMOID, padded(see_padding), *absent]
    monkeypatch.setattr(training, "choose_variants", lambda *_: variants)
    right, wrong, hopper, published = benchmark(tmp_path, ONE)
    assert (right.rounds, wrong.rounds) == (9, 0)
    assert wrong.note.startswith("wrong: a gradient has a relative error of")
    assert wrong.relative_error > 0.01
    assert math.isnan(wrong.milliseconds)
    assert "'hopper' for sigmoid attention: it needs a CUDA GPU" in hopper.note
    assert published.note == "triton_sigmoid is not installed"


def test_a_kernel_that_runs_out_of_memory_in_a_round_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_padded: None
) -> None:
    original_step = Trainer.step

    def step(self, number, batches, masked=None):  # type: ignore[no-untyped-def]
        if number > 6 and type(self.encoder).__name__ == "PaddedEncoder":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original_step(self, number, batches, masked)

    monkeypatch.setattr(Trainer, "step", step)
    rows = benchmark(tmp_path, ONE)
    assert [row.rounds for row in rows] == [9, 9, 0]
    assert (rows[2].note, rows[2].readings) == ("does not fit in memory", "")


def test_models_share_weights_that_no_step_changes() -> None:
    group = conditions(16)
    shared = Trainer(Encoder(group.encoder), group.training, 42, CPU)
    before = copy.deepcopy(shared.encoder.state_dict())
    for variant in (SIGMOID, SOFTMAX, PADDED):
        entry = TimedVariant(variant)
        training.prepare(entry, group, shared, [next(group.batches())], {})
        assert entry.trainer is not None
        assert entry.trainer.optimizer is shared.optimizer
        pairs = zip(entry.trainer.encoder.parameters(), shared.encoder.parameters(), strict=True)
        assert all(own is common for own, common in pairs)
    torch.testing.assert_close(shared.encoder.state_dict(), before, rtol=0, atol=0)


def test_kernels_are_chosen_by_name_or_by_name_and_layout() -> None:
    with pytest.raises(UserError, match=r"benchmarks.training.kernels: unknown kernel 'hoper'; .*"):
        choose_variants(["hoper"], "cuda")
    names = [variant.name for variant in choose_variants(["flex", "triton"], "cuda")]
    assert names == ["triton packed", "flex packed", "flex padded"]
    names = [variant.name for variant in choose_variants(["flex padded", "sdpa"], "cuda")]
    assert names == ["sdpa packed", "flex padded"]
