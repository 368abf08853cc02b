"""The kernel benchmark on the CPU: complete, right, and honest about what it could not do."""

import csv
import json
import math
import statistics
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from scsigmoid.benchmarks import kernel, preparing
from scsigmoid.benchmarks.cases import groups
from scsigmoid.benchmarks.inputs import Inputs
from scsigmoid.benchmarks.kernel import run_kernel_benchmark
from scsigmoid.benchmarks.providers import PROVIDERS, Provider, chosen
from scsigmoid.benchmarks.rows import KernelRow, read_rows
from scsigmoid.benchmarks.sigmoid_kernels import Kernel, Unavailable, imported
from scsigmoid.benchmarks.softmax_kernels import standard_softmax
from scsigmoid.config.schema import KernelBenchmark
from scsigmoid.errors import UserError

TINY = KernelBenchmark(
    tokens=32,
    hidden=16,
    head_dimensions=[8, 16],
    lengths=[16, 32],
    padding=[0.0, 0.25],
    jagged=True,
    median_length=10,
    sigma_length=0.65,
    iterations=8,
    seconds=60,
    warmup_ms=0,
    confidence=0.99,
)
ONE = replace(TINY, lengths=[32], head_dimensions=[8], padding=[0.0], jagged=False)
TIMED = {"reference_sigmoid", "pytorch_sigmoid", "pytorch", "sdpa"}


def run(settings: KernelBenchmark, folder: Path) -> list[KernelRow]:
    run_kernel_benchmark(settings, "cpu", folder / "kernel.csv", folder / "kernel.json")
    return read_rows(folder / "kernel.csv", KernelRow)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[KernelRow]:
    return run(TINY, tmp_path_factory.mktemp("benchmark"))


def test_every_provider_shape_and_pass_has_a_row(rows: list[KernelRow]) -> None:
    expected = {
        (provider.name, provider.layout_name, *kernel.shape_of(case), direction)
        for group in groups(TINY)
        for case in group
        for provider in PROVIDERS
        if "cpu" in provider.devices and provider.suits(case)
        for direction in ("forward", "backward")
    }
    assert {(row.provider, row.layout, *row.shape) for row in rows} == expected
    assert len(rows) == len(expected)
    assert {row.provider for row in rows if row.checked} == TIMED
    for row in rows:
        if row.checked:
            assert row.iterations == 8 == len(row.turns)
            assert row.note == preparing.CPU_NOTE
            assert row.relative_error < 1e-5
            assert row.timing == "clock"
        else:
            assert row.note == "needs a CUDA GPU"
            assert math.isnan(row.milliseconds)
            assert row.iterations == 0


def test_rows_follow_from_the_readings(rows: list[KernelRow]) -> None:
    shape = ("paper", 0.0, 8, 32, "backward")
    (row,) = [row for row in rows if row.provider == "pytorch" and row.shape == shape]
    assert row.milliseconds == pytest.approx(statistics.median(row.turns), rel=1e-5)
    seconds = row.milliseconds / 1e3
    assert row.tflops == pytest.approx(10 * 1 * 2 * 32**2 * 8 / 1e12 / seconds)
    # It keeps the scores and so computes four products instead of five.
    assert row.executed_tflops == pytest.approx(row.tflops * 4 / 5)
    # The interval of 8 readings at 99 % is their range.
    assert row.milliseconds_low == pytest.approx(min(row.turns), rel=1e-5)
    assert row.milliseconds_high == pytest.approx(max(row.turns), rel=1e-5)
    assert row.tflops_low <= row.tflops <= row.tflops_high


def test_executed_operations_cover_the_padding(rows: list[KernelRow]) -> None:
    shape = ("paper", 0.25, 8, 16, "forward")
    at = {row.provider: row for row in rows if row.shape == shape}
    (case,) = [
        case for group in groups(TINY) for case in group if kernel.shape_of(case) == shape[:4]
    ]
    share = case.sequences * 16**2 / sum(n * n for n in case.lengths)
    assert share > 1
    assert at["pytorch"].executed_tflops == pytest.approx(at["pytorch"].tflops * share)
    reference = at["reference_sigmoid"]
    assert reference.executed_tflops == pytest.approx(reference.tflops)
    assert at["pytorch"].tokens == sum(case.lengths) < 32


def test_the_machine_is_stated(tmp_path: Path) -> None:
    run(ONE, tmp_path)
    facts = json.loads((tmp_path / "kernel.json").read_text())
    assert facts["device"] == "cpu"
    assert facts["torch"] == torch.__version__
    assert facts["driver"] == facts["capability"] == ""
    assert facts["command"] == "scsigmoid benchmark-kernel"
    assert len(facts["code"]) == 12
    assert facts["triton-sigmoid"] == ""
    assert all(isinstance(value, str) for value in facts.values())


def test_columns_have_the_paper_s_names(tmp_path: Path) -> None:
    run(replace(ONE, providers=["sdpa"]), tmp_path)
    with (tmp_path / "kernel.csv").open(newline="") as handle:
        (first, second) = csv.DictReader(handle)
    assert [first["pass"], second["pass"]] == ["forward", "backward"]
    assert first["checked"] == "true"
    names = [one.name for one in fields(KernelRow)]
    assert list(first) == ["pass" if name == "direction" else name for name in names]


def faulty(kind: str) -> Provider:
    """A kernel that fails in some way."""

    def prepare(_: object) -> Kernel:
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
        ("wrong", "wrong: "),
    ],
)
def test_a_kernel_that_fails_is_named_and_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, note: str
) -> None:
    monkeypatch.setattr("scsigmoid.benchmarks.providers.PROVIDERS", (faulty(kind), *PROVIDERS))
    rows = run(ONE, tmp_path)
    mine = [row for row in rows if row.provider == kind]
    assert len(mine) == 2
    assert all(row.note.startswith(note) for row in mine)
    assert not any(row.iterations or row.checked or row.readings for row in mine)
    assert all(row.relative_error > 0.1 for row in mine if kind == "wrong")
    assert any(row.iterations == 8 for row in rows)


def test_some_kernels_alone(tmp_path: Path) -> None:
    rows = run(replace(ONE, providers=["pytorch", "sdpa"]), tmp_path)
    assert [row.provider for row in rows] == ["pytorch", "pytorch", "sdpa", "sdpa"]
    with pytest.raises(UserError, match=r"unknown kernel 'cudn'; take some of .*cudnn"):
        chosen(["cudn"], "cuda")


def test_paths_of_our_kernel_are_all_there() -> None:
    names = {provider.name for provider in chosen(None, "cuda")}
    assert {"hopper", "hopper_accurate", "triton", "triton_accurate"} <= names
    assert "reference_sigmoid" not in names
    # One form for each batch, but for the two layouts of ours.
    for group in groups(TINY):
        for case in group:
            forms = [one.name for one in chosen(None, "cuda") if one.suits(case)]
            twice = {name for name in forms if forms.count(name) > 1}
            assert twice <= {"hopper", "triton"}


def test_optional_packages_are_named() -> None:
    with pytest.raises(Unavailable, match="no_such_package is not installed"):
        imported("no_such_package")


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UserError, match="device: cuda"):
        run_kernel_benchmark(TINY, "cuda", tmp_path / "kernel.csv", tmp_path / "kernel.json")
    assert list(tmp_path.iterdir()) == []


def test_a_group_takes_a_limited_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scsigmoid.benchmarks.turns.LEAST_TURNS", 1)
    rows = run(replace(ONE, seconds=0.0), tmp_path)
    timed = [row for row in rows if row.checked]
    assert {row.iterations for row in timed} == {1}
    assert all(row.milliseconds > 0 for row in timed)
    assert all(math.isnan(row.milliseconds_low) for row in timed)


def test_a_kernel_that_turns_wrong_has_no_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its inputs are overwritten while it is timed: the second check finds it."""

    def prepare(inputs: Inputs) -> Kernel:
        calls = []
        attend = standard_softmax(inputs)

        def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            calls.append(1)
            # The first check calls once, the warm-up once.
            return attend(q, k, v) * (1 if len(calls) <= 2 else 0.5)

        return kernel

    spoilt = Provider("spoilt", "softmax", "heads", prepare)
    monkeypatch.setattr("scsigmoid.benchmarks.providers.PROVIDERS", (spoilt, *PROVIDERS))
    rows = run(ONE, tmp_path)
    mine = [row for row in rows if row.provider == "spoilt"]
    assert len(mine) == 2
    for row in mine:
        assert row.note.startswith("wrong after its last turn: ")
        assert row.note.endswith("has a relative error of 0.5; readings dropped")
        assert not row.checked
        assert row.iterations == 0
        assert row.readings == ""
        assert math.isnan(row.milliseconds)
        assert row.relative_error == pytest.approx(0.5, rel=1e-3)
    assert {row.provider for row in rows if row.checked} == TIMED


class Stop(Exception):
    """The sweep ends here."""


def stopping_after(number: int, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Lets so many groups be measured; gives the list of those that were."""
    measured: list[object] = []
    real = kernel.run_group

    def counted(group: object, *rest: object) -> list[KernelRow]:
        if len(measured) == number:
            raise Stop
        measured.append(group)
        return real(group, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(kernel, "run_group", counted)
    return measured


def test_a_stopped_sweep_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(TINY, providers=["sdpa"], iterations=1, head_dimensions=[8])
    with monkeypatch.context() as patch:
        stopping_after(2, patch)
        with pytest.raises(Stop):
            run(settings, tmp_path)
    assert not (tmp_path / "kernel.csv").exists()
    before = (tmp_path / "kernel.partial.csv").read_text().splitlines()
    measured = stopping_after(99, monkeypatch)
    rows = run(settings, tmp_path)
    assert measured == groups(settings)[2:]
    # What was measured before stands as it was, to the last digit.
    assert (tmp_path / "kernel.csv").read_text().splitlines()[: len(before)] == before
    cases = [kernel.shape_of(case) for group in groups(settings) for case in group]
    assert [row.shape[:4] for row in rows[::2]] == cases
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"kernel.csv", ".kernel.csv.sha256", "kernel.json"}


@pytest.mark.parametrize("change", ["settings", "code", "torch", "damage"])
def test_another_sweep_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = replace(TINY, providers=["sdpa"], iterations=1, head_dimensions=[8])
    with monkeypatch.context() as patch:
        stopping_after(1, patch)
        with pytest.raises(Stop):
            run(settings, tmp_path)
    if change == "settings":
        settings = replace(settings, iterations=2)
    elif change == "code":
        monkeypatch.setattr(kernel, "code_version", lambda: "another")
    elif change == "torch":
        monkeypatch.setattr(torch, "__version__", "9.9")
    else:
        (tmp_path / "kernel.partial.csv").write_text("attention\nsoftmax\n")
    measured = stopping_after(99, monkeypatch)
    run(settings, tmp_path)
    assert measured == groups(settings)
    said = capsys.readouterr().err
    assert "measuring anew" in said
    assert ("damaged" if change == "damage" else f"other {change}") in said
