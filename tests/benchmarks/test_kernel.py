"""The kernel benchmark on the CPU: rows, checks, failures and resuming."""

import itertools
import math
import statistics
from contextlib import suppress
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from benchmarks.small_benchmarks import KERNEL, run_kernel

from scsigmoid.benchmarks import kernel, machine, timing
from scsigmoid.benchmarks.cases import Case, Inputs, groups
from scsigmoid.benchmarks.kernel import Candidate, measure, prepare_case
from scsigmoid.benchmarks.providers import (
    PROVIDERS,
    Kernel,
    Provider,
    choose_providers,
    plain_pytorch,
)
from scsigmoid.benchmarks.rows import KernelRow, read_rows
from scsigmoid.benchmarks.timing import Results
from scsigmoid.config.schema import KernelBenchmark
from scsigmoid.errors import UserError

ONE = KERNEL.model_copy(
    update={"lengths": [32], "head_dimensions": [8], "padding": [0.0], "jagged": False}
)
CASES = [case for group in groups(KERNEL) for case in group]
TIMED = {"reference_sigmoid", "pytorch_sigmoid", "pytorch", "sdpa"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[KernelRow]:
    return run_kernel(KERNEL, tmp_path_factory.mktemp("benchmark"))


def test_every_provider_shape_and_pass_has_a_row(rows: list[KernelRow]) -> None:
    expected = {
        (provider.name, provider.layout_name, *kernel.shape_of(case), direction)
        for case in CASES
        for provider in PROVIDERS
        if "cpu" in provider.devices and provider.is_timed_for(case)
        for direction in ("forward", "backward")
    }
    assert {(row.provider, row.layout, *row.shape) for row in rows} == expected
    assert len(rows) == len(expected)
    assert {row.provider for row in rows if row.checked} == TIMED
    for row in rows:
        if row.checked:
            assert row.iterations == 8 == len(row.readings.split())
            assert row.note == kernel.CPU_NOTE
            assert row.relative_error < 1e-5
            assert row.timing == "clock"
        else:
            assert row.note == "needs a CUDA GPU"
            assert math.isnan(row.milliseconds)
            assert row.iterations == 0


def test_rows_follow_from_the_readings(rows: list[KernelRow]) -> None:
    shape = ("paper", 0.25, 8, 16, "backward")
    (row,) = [row for row in rows if row.provider == "pytorch" and row.shape == shape]
    (case,) = [case for case in CASES if kernel.shape_of(case) == shape[:4]]
    times = [float(reading) for reading in row.readings.split()]
    assert row.milliseconds == pytest.approx(statistics.median(times), rel=1e-5)
    # The interval of 8 readings at 99 % is their range.
    assert row.milliseconds_low == pytest.approx(min(times), rel=1e-5)
    assert row.milliseconds_high == pytest.approx(max(times), rel=1e-5)
    squares, tera_seconds = sum(n**2 for n in case.lengths), 1e12 * row.milliseconds / 1e3
    assert row.tflops == pytest.approx(5 * 2 * case.heads * squares * 8 / tera_seconds)
    assert row.tflops_low <= row.tflops <= row.tflops_high
    assert row.tokens == sum(case.lengths) < 32


@pytest.mark.parametrize(
    ("right_calls", "note"), [(0, "wrong: "), (2, "wrong after its last round: ")]
)
def test_a_wrong_kernel_has_no_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right_calls: int, note: str
) -> None:
    """Also if it becomes wrong after the first check and the warm-up, which call it once each."""

    def make(inputs: Inputs) -> Kernel:
        calls, attend = itertools.count(1), plain_pytorch("softmax", inputs)
        return lambda q, k, v: attend(q, k, v) * (1 if next(calls) <= right_calls else 0.5)

    wrong = Provider("wrong", "softmax", "heads", make, runs_on_cpu=True)
    monkeypatch.setattr("scsigmoid.benchmarks.providers.PROVIDERS", (wrong, *PROVIDERS))
    rows = run_kernel(ONE, tmp_path)
    wrong_rows = [row for row in rows if row.provider == "wrong"]
    assert len(wrong_rows) == 2
    for row in wrong_rows:
        assert row.note.startswith(note)
        assert (row.checked, row.iterations, row.readings) == (False, 0, "")
        assert math.isnan(row.milliseconds)
        assert row.relative_error == pytest.approx(0.5, rel=1e-3)
    assert {row.provider for row in rows if row.checked} == TIMED


def test_kernels_are_chosen_by_name(tmp_path: Path) -> None:
    rows = run_kernel(ONE.model_copy(update={"providers": ["pytorch", "sdpa"]}), tmp_path)
    assert [row.provider for row in rows] == ["pytorch", "pytorch", "sdpa", "sdpa"]
    with pytest.raises(UserError, match=r"unknown kernel 'cudn'; choose from: .*cudnn"):
        choose_providers(["cudn"], "cuda")
    with pytest.raises(
        UserError, match=r"none of these kernels is timed on device 'cpu'; choose from: hopper, "
    ):
        choose_providers(["triton_accurate"], "cpu")


def test_a_group_takes_a_limited_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scsigmoid.benchmarks.kernel.LEAST_ROUNDS", 1)
    rows = run_kernel(ONE.model_copy(update={"seconds": 0.0}), tmp_path)
    timed = [row for row in rows if row.checked]
    assert {row.iterations for row in timed} == {1}
    assert all(row.milliseconds > 0 for row in timed)
    assert all(math.isnan(row.milliseconds_low) for row in timed)


SHORT = KERNEL.model_copy(update={"providers": ["sdpa"], "iterations": 1, "head_dimensions": [8]})


def run_until(
    number: int, monkeypatch: pytest.MonkeyPatch, settings: KernelBenchmark, folder: Path
) -> list[object]:
    """Run, interrupt after a number of groups, and return the measured groups."""
    measured: list[object] = []
    run_group = kernel.run_group

    def counted(group: object, *rest: object) -> list[KernelRow]:
        if len(measured) == number:
            raise KeyboardInterrupt
        measured.append(group)
        return run_group(group, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(kernel, "run_group", counted)
        run_kernel(settings, folder)
    return measured


def test_a_stopped_benchmark_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_until(2, monkeypatch, SHORT, tmp_path)
    assert not (tmp_path / "kernel.csv").exists()
    (partial,) = tmp_path.glob("kernel.partial-*.csv")
    before = partial.read_text().splitlines()
    assert run_until(99, monkeypatch, SHORT, tmp_path) == groups(SHORT)[2:]
    # Rows that were measured before are the same to the last digit.
    after = (tmp_path / "kernel.csv").read_text().splitlines()[: len(before)]
    # The last column is the number of the row and of all rows.
    assert [line.rpartition(",")[0] for line in after] == [
        line.rpartition(",")[0] for line in before
    ]
    rows = read_rows(tmp_path / "kernel.csv", KernelRow)
    assert [row.shape[:4] for row in rows[::2]] == [
        kernel.shape_of(case) for group in groups(SHORT) for case in group
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"kernel.csv", "kernel.json"}


@pytest.mark.parametrize("change", ["settings", "code", "damage"])
def test_a_benchmark_under_other_conditions_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = SHORT
    run_until(1, monkeypatch, settings, tmp_path)
    if change == "settings":
        settings = settings.model_copy(update={"iterations": 2})
    elif change == "code":
        monkeypatch.setattr(machine, "code_version", lambda: "another")
    else:
        (partial,) = tmp_path.glob("kernel.partial-*.csv")
        partial.write_text("attention\nsoftmax\n")
    assert run_until(99, monkeypatch, settings, tmp_path) == groups(settings)
    assert "starting over" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"kernel.csv", "kernel.json"}


CPU = torch.device("cpu")
INPUTS = Inputs(Case("paper", 8, 2, 12, (12, 12)), CPU)


def test_a_broken_gpu_stops_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all later kernels would fail, too."""

    fail = MagicMock(side_effect=RuntimeError("no kernel image\nis available"))
    monkeypatch.setattr(timing, "synchronize", fail)
    provider = Provider("failing", "sigmoid", "padded", fail, runs_on_cpu=True)
    with pytest.raises(UserError, match=r"failing \(padded, .*no kernel image; leave it out"):
        prepare_case(INPUTS, [provider], 0)


class Scripted:
    """A timer that returns a fixed time and records each call."""

    method = "script"

    def __init__(self, name: str, milliseconds: float, calls: list[str]) -> None:
        self.name, self.milliseconds, self.calls = name, milliseconds, calls

    def once(self) -> tuple[float, float]:
        self.calls.append(self.name)
        return self.milliseconds, 2 * self.milliseconds

    def results(self) -> Results:
        raise NotImplementedError


def test_every_round_has_its_own_order() -> None:
    calls: list[str] = []
    candidates = [
        Candidate(INPUTS, PROVIDERS[0], Scripted(name, time, calls))
        for name, time in zip("abcd", (1.0, 1.1, 1.2, 9.0), strict=True)
    ]
    missing = Candidate(INPUTS, PROVIDERS[1])
    assert measure([*candidates, missing], 12, 60.0, torch.device("cuda")) == 12
    # Each is called once before the rounds. The slow kernel is timed in every fourth round.
    assert [calls.count(name) for name in "abcd"] == [13, 13, 13, 4]
    slow = candidates[3].rounds
    assert [number for number, (one, _) in enumerate(slow) if not math.isnan(one)] == [0, 4, 8]
    assert candidates[1].rounds == [(1.1, 2.2)] * 12
    assert missing.rounds == []
    fast = [name for name in calls[4:] if name != "d"]
    orders = {tuple(fast[start : start + 3]) for start in range(0, len(fast), 3)}
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert len(orders) > 2
