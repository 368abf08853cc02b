"""What is compiled ahead of the kernel benchmark."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from scsigmoid.benchmarks import compiling
from scsigmoid.benchmarks.cases import groups
from scsigmoid.benchmarks.compiling import compile_ahead, jobs
from scsigmoid.benchmarks.providers import PROVIDERS, chosen
from scsigmoid.config.schema import KernelBenchmark

PAPER = KernelBenchmark(
    tokens=16384,
    hidden=2048,
    head_dimensions=[64, 128],
    lengths=[512, 1024, 2048, 4096, 8192, 16384],
    padding=[0.0, 0.25],
    jagged=True,
    median_length=1830,
    sigma_length=0.65,
    iterations=250,
    seconds=15,
    warmup_ms=100,
    confidence=0.99,
)
CASES = [case for group in groups(PAPER) for case in group]


def test_every_code_is_compiled_once() -> None:
    found = jobs(CASES, chosen(None, "cuda"))
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
    found = jobs(CASES, chosen(None, "cuda"))
    many = [PROVIDERS[index].chooses for index, _ in found]
    assert many == sorted(many, reverse=True)
    lengths = [case.length for (_, case), choice in zip(found, many, strict=True) if choice]
    assert lengths == sorted(lengths, reverse=True)


def test_only_what_will_be_timed_is_compiled() -> None:
    found = jobs(CASES, chosen(["triton", "cudnn"], "cuda"))
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
    compile_ahead(CASES, chosen(["triton"], "cuda"), torch.device("cpu"), torch.float32)
    assert "4 of 4 kernels were not compiled in 0 s" in capsys.readouterr().err
