"""The kernel benchmark on the CPU: complete, right, and honest about what it could not do."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from scsigmoid.benchmarks import kernel
from scsigmoid.benchmarks.kernel import run_kernel_benchmark
from scsigmoid.benchmarks.providers import PROVIDERS, Provider, Unavailable, imported
from scsigmoid.config.schema import KernelBenchmark
from scsigmoid.errors import UserError

TINY = KernelBenchmark(
    tokens=32,
    hidden=16,
    head_dimensions=[8, 16],
    lengths=[16, 32],
    padding=[0.0, 0.25],
    iterations=8,
    warmup_ms=0,
    confidence=0.99,
)
COLUMNS = (
    "attention,provider,layout,pass,head_dimension,heads,length,sequences,padding,dtype,device,"
    "milliseconds,milliseconds_low,milliseconds_high,tflops,tflops_low,tflops_high,iterations,note"
)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, str]]:
    run_kernel_benchmark(TINY, "cpu", tmp_path / "kernel.csv", tmp_path / "kernel.json")
    assert (tmp_path / "kernel.csv").read_text().splitlines()[0] == COLUMNS
    return table(tmp_path / "kernel.csv")


def test_every_provider_shape_and_pass_has_a_row(rows: list[dict[str, str]]):
    assert len(rows) == sum("cpu" in provider.devices for provider in PROVIDERS) * 2 * 2 * 2 * 2
    names = ("provider", "layout", "pass", "head_dimension", "length", "padding")
    keys = [tuple(row[name] for name in names) for row in rows]
    assert len(set(keys)) == len(rows)
    timed = {row["provider"] for row in rows if row["iterations"] != "0"}
    assert timed == {"reference_sigmoid", "pytorch_sigmoid", "pytorch", "sdpa"}
    for row in rows:
        if row["provider"] in timed:
            assert row["iterations"] == "8"
            assert row["note"] == kernel.CPU_NOTE
        else:
            assert row["note"] == "needs a CUDA GPU"
            assert math.isnan(float(row["milliseconds"]))


def test_tflops_follow_from_the_time(rows: list[dict[str, str]]):
    (row,) = [
        row
        for row in rows
        if (row["provider"], row["pass"], row["head_dimension"], row["length"], row["padding"])
        == ("pytorch", "backward", "8", "32", "0.0")
    ]
    seconds = float(row["milliseconds"]) / 1e3
    assert float(row["tflops"]) == pytest.approx(10 * 1 * 2 * 32**2 * 8 / 1e12 / seconds)
    assert float(row["tflops_low"]) <= float(row["tflops"]) <= float(row["tflops_high"])
    assert float(row["milliseconds_low"]) <= float(row["milliseconds"])


def test_the_machine_is_stated(tmp_path: Path):
    run_kernel_benchmark(
        replace(TINY, lengths=[32]), "cpu", tmp_path / "kernel.csv", tmp_path / "kernel.json"
    )
    facts = json.loads((tmp_path / "kernel.json").read_text())
    assert facts["device"] == "cpu"
    assert facts["torch"] == torch.__version__
    assert facts["driver"] == facts["capability"] == ""
    assert facts["command"] == "scsigmoid benchmark-kernel"
    assert all(isinstance(value, str) for value in facts.values())


def faulty(kind: str) -> Provider:
    """A kernel that fails in some way."""

    def prepare(_: object) -> kernel.Kernel:
        if kind == "crash":
            raise RuntimeError("no kernel image\nis available")
        if kind == "memory":
            raise torch.OutOfMemoryError("tried to allocate 1 PiB")
        return lambda q, k, v: q + k + v

    return Provider(kind, "sigmoid", "padded", prepare)


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        ("crash", "failed: RuntimeError: no kernel image"),
        ("memory", "does not fit in memory"),
        ("wrong", "wrong: output has a relative error of "),
    ],
)
def test_a_kernel_that_fails_is_named_and_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, note: str
):
    monkeypatch.setattr(kernel, "PROVIDERS", (faulty(kind), *PROVIDERS))
    run_kernel_benchmark(
        replace(TINY, lengths=[32]), "cpu", tmp_path / "kernel.csv", tmp_path / "kernel.json"
    )
    rows = table(tmp_path / "kernel.csv")
    mine = [row for row in rows if row["provider"] == kind]
    assert len(mine) == 2 * 2 * 2
    assert all(row["note"].startswith(note) and row["iterations"] == "0" for row in mine)
    assert any(row["iterations"] == "8" for row in rows)


def test_optional_packages_are_named():
    with pytest.raises(Unavailable, match="no_such_package is not installed"):
        imported("no_such_package")


def test_a_gpu_that_is_not_there(tmp_path: Path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UserError, match="device: cuda"):
        run_kernel_benchmark(TINY, "cuda", tmp_path / "kernel.csv", tmp_path / "kernel.json")
    assert list(tmp_path.iterdir()) == []


def test_a_shape_takes_a_limited_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel, "MOST_SECONDS", 0.0)
    run_kernel_benchmark(
        replace(TINY, lengths=[32]), "cpu", tmp_path / "kernel.csv", tmp_path / "kernel.json"
    )
    timed = [row for row in table(tmp_path / "kernel.csv") if row["iterations"] != "0"]
    assert {row["iterations"] for row in timed} == {"1"}
    assert all(float(row["milliseconds"]) > 0 for row in timed)
    assert all(math.isnan(float(row["milliseconds_low"])) for row in timed)
