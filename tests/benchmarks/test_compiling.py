"""What is compiled ahead of the kernel benchmark."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.small_benchmarks import PAPER_CASES, THROUGHPUT
from small_training import ARCHITECTURE, TRAINING

from scsigmoid.benchmarks import compiling
from scsigmoid.benchmarks.compiling import (
    THREADS,
    compile_ahead,
    compile_step,
    compile_steps_ahead,
    jobs,
)
from scsigmoid.benchmarks.providers import PROVIDERS, chosen
from scsigmoid.config.schema import Size
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.training.step import Trainer


def test_every_code_is_compiled_once() -> None:
    found = jobs(PAPER_CASES, chosen(None, "cuda"))
    counts = Counter(PROVIDERS[index].name for index, _ in found)
    # 1,024 and 2,048 share a class of triton-sigmoid, as do 4,096, 8,192 and the jagged batches.
    assert counts == {
        "triton_sigmoid": 2 * 2 * 4,
        "flex": 2 * 2 * 3,
        "hopper": 2 * 2,
        "hopper_accurate": 2,
        "triton": 2 * 2,
        "triton_accurate": 2,
    }


def test_the_longest_work_comes_first() -> None:
    found = jobs(PAPER_CASES, chosen(None, "cuda"))
    many = [PROVIDERS[index].chooses for index, _ in found]
    assert many == sorted(many, reverse=True)
    lengths = [case.length for (_, case), choice in zip(found, many, strict=True) if choice]
    assert lengths == sorted(lengths, reverse=True)


def test_only_what_will_be_timed_is_compiled() -> None:
    found = jobs(PAPER_CASES, chosen(["triton", "cudnn"], "cuda"))
    assert {PROVIDERS[index].name for index, _ in found} == {"triton"}


def test_choices_take_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel of Triton's that chooses, whatever it asks for, is timed for 30 ms each."""
    import triton.testing
    from triton.runtime.autotuner import Autotuner

    asked: list[object] = []

    def do_bench(call: object, **options: object) -> list[float]:
        asked.append((call, options))
        return [1.0, 1.0, 1.0]

    monkeypatch.setattr(triton.testing, "do_bench", do_bench)
    # Undone after the test.
    monkeypatch.setattr(Autotuner, "do_bench", Autotuner.__dict__["do_bench"])
    compiling.bound_choices()
    tuner = object.__new__(Autotuner)
    assert tuner.do_bench("call", quantiles=(0.5, 0.2, 0.8)) == [1.0, 1.0, 1.0]
    assert asked == [("call", {"warmup": 5, "rep": 30, "quantiles": (0.5, 0.2, 0.8)})]


def test_other_processes_have_the_keys_of_torchs_cache(tmp_path: Path) -> None:
    """Else what they compile would not be found."""
    code = f"""
from pathlib import Path
from scsigmoid.benchmarks.throughput import compile_steps_ahead
from scsigmoid.benchmarks import compiling
from benchmarks.cache_key import write_key
compiling.MOST_SECONDS = 60
paths = [Path({str(tmp_path)!r}) / name for name in ("one", "two", "own")]
compiling.in_processes(write_key, [(path,) for path in paths[:2]], 2, "keys")
write_key(paths[2])
print(len({{path.read_bytes() for path in paths}}))
"""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert ended.stdout == "1\n", ended.stderr


def test_compiling_ahead_ends_in_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not ready by then does not hold up the benchmark."""
    monkeypatch.setattr(compiling, "MOST_SECONDS", 0.0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    compile_ahead(PAPER_CASES, chosen(["triton"], "cuda"), torch.device("cpu"), torch.float32)
    assert "4 of 4 kernels were not compiled in 0 s" in capsys.readouterr().err


CPU = torch.device("cpu")


def encoder(layers: int, attention: str, context: int) -> EncoderSettings:
    size = Size(layers=layers, hidden=16, heads=2, feed_forward=32)
    return EncoderSettings.of(size, ARCHITECTURE, attention, context, THROUGHPUT.vocabulary)


def test_each_graph_is_compiled_once_and_the_largest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[EncoderSettings, str | None]] = []

    def in_processes(work: object, jobs: Sequence[tuple[Any, ...]], cores: int, what: str) -> None:
        assert work is compile_step
        begun.extend((job[0], os.environ.get(THREADS)) for job in jobs)

    monkeypatch.setattr(compiling, "in_processes", in_processes)
    monkeypatch.setattr("os.cpu_count", lambda: 9)
    monkeypatch.delenv(THREADS, raising=False)
    encoders = [
        encoder(layers, attention, context)
        for layers in (1, 2)
        for context in (16, 32)
        for attention in ("sigmoid", "softmax")
    ]
    compile_steps_ahead(encoders, THROUGHPUT, TRAINING, 42, CPU)
    assert begun == [
        (encoder(layers, attention, 16), "2")
        for layers in (2, 1)
        for attention in ("sigmoid", "softmax")
    ]
    assert THREADS not in os.environ


def test_what_is_compiled_is_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward of the same loss; a failure is silent."""
    losses: list[float] = []
    summed_loss = Trainer.summed_loss

    def watched(self, batch, step):  # type: ignore[no-untyped-def]
        loss = summed_loss(self, batch, step)
        loss.register_hook(lambda gradient: losses.append(float(loss)))
        return loss

    monkeypatch.setattr(Trainer, "summed_loss", watched)
    compile_step(encoder(1, "sigmoid", 16), THROUGHPUT, TRAINING, 42, CPU)
    assert len(losses) == 1
    unknown = replace(encoder(1, "sigmoid", 16), backend="none")
    compile_step(unknown, THROUGHPUT, TRAINING, 42, CPU)
    assert len(losses) == 1
