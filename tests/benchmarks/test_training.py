"""The training benchmark on the CPU: rounds, checks and what becomes of failures."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.small_benchmarks import TRAINING_BENCHMARK
from small_training import ARCHITECTURE, TRAINING
from torch import Tensor

from scsigmoid.benchmarks import training
from scsigmoid.benchmarks.rows import TrainingRow, read_rows
from scsigmoid.benchmarks.simulated import simulated_batches
from scsigmoid.benchmarks.training import Conditions, TimedVariant, run_training_benchmark
from scsigmoid.benchmarks.variants import VARIANTS, PaddedAttention, Variant, chosen_variants
from scsigmoid.config.schema import Size, TrainingBenchmark
from scsigmoid.errors import UserError
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.sizes import EncoderSettings, count_flops
from scsigmoid.training.step import Trainer

CPU = torch.device("cpu")
SIZE = Size(layers=2, hidden=16, heads=2, feed_forward=32)


def benchmark(folder: Path, settings: TrainingBenchmark = TRAINING_BENCHMARK) -> list[TrainingRow]:
    run_training_benchmark(
        settings, SIZE, ARCHITECTURE, TRAINING, 42, "cpu", folder / "t.csv", folder / "t.json"
    )
    return read_rows(folder / "t.csv", TrainingRow)


def encoder(context: int) -> EncoderSettings:
    return EncoderSettings.of(SIZE, ARCHITECTURE, "sigmoid", context, TRAINING_BENCHMARK.vocabulary)


def test_every_context_and_stack_has_a_row(tmp_path: Path) -> None:
    rows = benchmark(tmp_path)
    assert [(row.context, row.attention, row.kernel, row.layout) for row in rows] == [
        (context, attention, kernel, layout)
        for context in (16, 32)
        for attention, kernel, layout in (
            ("sigmoid", "reference", "packed"),
            ("softmax", "sdpa", "packed"),
            ("softmax", "sdpa", "padded"),
            ("sigmoid", "reference", "padded"),
        )
    ]
    assert json.loads((tmp_path / "t.json").read_text())["device"] == "cpu"
    for row in rows:
        assert row.rounds == 9
        assert len(row.readings.split()) == 9
        assert row.note == training.CPU_NOTE
        assert row.relative_error < 1e-4
        assert row.milliseconds_low < row.milliseconds < row.milliseconds_high
        assert row.cells_per_second == pytest.approx(3000 / row.milliseconds)
        assert math.isnan(row.mfu)
        assert math.isnan(row.peak_memory_gb)
        assert (row.padding > 0) == (row.layout == "padded")
        # Of a model that knows nothing.
        assert row.loss == pytest.approx(math.log(50), rel=0.3)


def test_rounds_time_the_cells_that_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is pretended to take a millisecond for each token that the model computes."""
    clock = [0.0]
    seen: list[tuple[str, int, tuple[int, ...]]] = []

    class Clock:
        def __init__(self, device: torch.device) -> None:
            self.moments: list[float] = []

        def mark(self) -> None:
            self.moments.append(clock[0])

        def seconds(self) -> list[float]:
            return [end - begin for begin, end in zip(self.moments, self.moments[1:], strict=False)]

    take = Trainer.step

    def step(self, number, batches, masked=None):  # type: ignore[no-untyped-def]
        (batch,) = batches
        clock[0] += len(batch.tokens) / 1e3
        lengths = tuple(torch.diff(batch.cu_seqlens).tolist())
        seen.append((type(self.encoder).__name__, number, lengths))
        return take(self, number, batches, masked)

    monkeypatch.setattr(training, "Stopwatch", Clock)
    monkeypatch.setattr(Trainer, "step", step)
    monkeypatch.setattr(training, "peak_flops", lambda name: 1e6)
    rows = benchmark(tmp_path, replace(TRAINING_BENCHMARK, contexts=[32]))
    packed, padded = rows[0], rows[2]

    batches = simulated_batches(TRAINING_BENCHMARK, 32, TRAINING, 42)
    made = [next(batches) for _ in range(4 + 3 * 9)]
    rounds = [made[first + 1 : first + 3] for first in range(4, len(made), 3)]
    tokens = [sum(len(batch.tokens) for batch in cells) for cells in rounds]
    assert [float(reading) for reading in packed.readings.split()] == pytest.approx(
        [count / 2 for count in tokens], rel=1e-5
    )
    assert set(padded.readings.split()) == {"96"}
    assert packed.over(padded) == pytest.approx([96 / count * 2 for count in tokens], rel=1e-5)
    assert packed.tokens_per_second == pytest.approx(1000, rel=1e-5)
    assert packed.tokens_per_step == statistics.fmean(tokens) / 2
    assert padded.padding == pytest.approx(1 - statistics.fmean(tokens) / 2 / 96)
    work = [
        sum(
            count_flops(encoder(32), torch.diff(b.cu_seqlens).tolist(), len(b.masked))
            for b in cells
        )
        for cells in rounds
    ]
    assert padded.mfu == pytest.approx(statistics.median(work) / (2 * 0.096) / 1e6, rel=1e-5)
    # All four meet the same cells at the same steps, in an order that changes.
    met = {name: sorted(entry[1:] for entry in seen if entry[0] == name) for name, *_ in seen}
    assert met["Encoder"] == met["PaddedEncoder"]
    orders = {tuple(name for name, *_ in seen[at : at + 12 : 3]) for at in range(16, 124, 12)}
    assert len(orders) > 1


def test_it_ends_when_the_time_is_over(tmp_path: Path) -> None:
    rows = benchmark(tmp_path, replace(TRAINING_BENCHMARK, contexts=[16], rounds=500, seconds=0.01))
    assert {row.rounds for row in rows} == {training.LEAST_ROUNDS}


def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The context that was measured stands as it was; the other follows."""
    real, measured = training.run_context, []

    def counted(conditions, *rest):  # type: ignore[no-untyped-def]
        measured.append(conditions.like.context)
        if measured == [16, 32]:
            raise KeyboardInterrupt
        return real(conditions, *rest)

    monkeypatch.setattr(training, "run_context", counted)
    settings = replace(TRAINING_BENCHMARK, kernels=["sdpa"], rounds=1)
    with pytest.raises(KeyboardInterrupt):
        benchmark(tmp_path, settings)
    (partial,) = tmp_path.glob("t.partial-*.csv")
    before = partial.read_text().splitlines()
    rows = benchmark(tmp_path, settings)
    assert measured == [16, 32, 32]
    assert [row.context for row in rows] == [16, 16, 32, 32]
    assert (tmp_path / "t.csv").read_text().splitlines()[:3] == before
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv", ".t.csv.sha256", "t.json"}


def test_what_computes_something_else_is_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(q: Tensor, k: Tensor, v: Tensor, shared: object) -> Tensor:
        """Attention that sees the padding."""
        return v.mean(1, keepdim=True).expand_as(v)

    wrong = Variant("blind", "softmax", ("cpu",), padded=PaddedAttention(lambda *_: None, blind))
    monkeypatch.setattr(training, "chosen_variants", lambda *_: [VARIANTS[3], wrong])
    right, found = benchmark(tmp_path, replace(TRAINING_BENCHMARK, contexts=[16]))
    assert right.rounds == 9
    assert found.rounds == 0
    assert found.note.startswith("wrong: a gradient has a relative error of")
    assert found.relative_error > 0.01
    assert math.isnan(found.milliseconds)


def test_what_cannot_run_here_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = [variant for variant in VARIANTS if variant.kernel in ("hopper", "triton_sigmoid")]
    monkeypatch.setattr(training, "chosen_variants", lambda *_: [*absent, VARIANTS[3]])
    hopper, published, reference = benchmark(tmp_path, replace(TRAINING_BENCHMARK, contexts=[16]))
    assert "'hopper' for sigmoid attention: it needs a CUDA GPU" in hopper.note
    assert published.note == "triton_sigmoid is not installed"
    assert reference.rounds == 9


def test_what_does_not_fit_in_memory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first step of one, and in a round of the other."""
    take = Trainer.step

    def step(self, number, batches, masked=None):  # type: ignore[no-untyped-def]
        padded = type(self.encoder).__name__ == "PaddedEncoder"
        softmax = self.encoder.settings.attention == "softmax"
        if padded and (softmax or number > 12):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return take(self, number, batches, masked)

    monkeypatch.setattr(Trainer, "step", step)
    rows = benchmark(tmp_path, replace(TRAINING_BENCHMARK, contexts=[16]))
    assert [row.rounds for row in rows] == [9, 9, 0, 0]
    assert {row.note for row in rows[2:]} == {"does not fit in memory"}
    assert {row.readings for row in rows[2:]} == {""}


def test_all_models_begin_with_the_same_weights() -> None:
    conditions = Conditions(encoder(16), TRAINING, 42, CPU)
    weights = Encoder(encoder(16)).state_dict()
    batches: Sequence = [next(simulated_batches(TRAINING_BENCHMARK, 16, TRAINING, 42))]
    for variant in chosen_variants(None, "cpu"):
        entry = TimedVariant(variant)
        training.prepare(entry, replace_rate(conditions), weights, batches, {})
        assert entry.trainer is not None
        for name, value in entry.trainer.encoder.state_dict().items():
            torch.testing.assert_close(value, weights[name])


def replace_rate(conditions: Conditions) -> Conditions:
    """The conditions with an optimiser that changes nothing."""
    return replace(conditions, training=replace(TRAINING, learning_rate=0.0))


def test_memory_is_of_one_model_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its peak, less what lies on the GPU beside its weights, gradients and moments."""
    trainer = Trainer(Encoder(encoder(16)), TRAINING, 42, CPU)
    trainer.step(1, [next(simulated_batches(TRAINING_BENCHMARK, 16, TRAINING, 42))])
    weights = sum(p.nbytes for p in trainer.encoder.parameters())
    moments = sum(
        value.nbytes for state in trainer.optimiser.state.values() for value in state.values()
    )
    gradients = sum(p.grad.nbytes for p in trainer.encoder.parameters() if p.grad is not None)
    own = weights + moments + gradients
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: own + 500)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    memory = training.MemoryOf(trainer, torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: own + 700)
    assert memory.most(math.nan) == own + 200
    assert memory.most(own + 300.0) == own + 300


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(UserError, match=r"benchmarks.training.kernels: unknown kernel 'hoper'; .*"):
        chosen_variants(["hoper"], "cuda")
    assert [variant.name for variant in chosen_variants(["flex", "triton"], "cuda")] == [
        "triton, packed",
        "flex, packed",
        "flex, padded",
    ]
