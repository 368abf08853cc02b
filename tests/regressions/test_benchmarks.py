"""Benchmarks: failures of kernels, unfinished tables, and programs that hang."""

import json
import subprocess
import weakref
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from benchmarks.small_benchmarks import KERNEL, run_kernel
from configurations import write_configuration
from torch import Tensor

from scsigmoid.benchmarks import machine
from scsigmoid.benchmarks.cases import Case, Inputs, groups
from scsigmoid.benchmarks.kernel import prepare_case, run_kernel_benchmark
from scsigmoid.benchmarks.providers import Provider
from scsigmoid.cli import main
from scsigmoid.errors import UserError

ONE = KERNEL.model_copy(
    update={"lengths": [32], "head_dimensions": [8], "padding": [0.0], "jagged": False}
)


def test_an_error_of_our_own_kernel_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor, *_: object, **__: object) -> Tensor:
        return (q + k + v) * 0

    monkeypatch.setattr("scsigmoid.benchmarks.providers.sigmoid_attention", attend)
    configuration = write_configuration(tmp_path / "run", benchmarks={"kernel": ONE.model_dump()})
    files = ["--output", str(tmp_path / "kernel.csv"), "--machine", str(tmp_path / "kernel.json")]
    log = tmp_path / "log"
    command = ["benchmark-kernel", "--configuration", str(configuration)]
    assert main([*command, *files, "--log", str(log)]) == 1
    reason = "wrong: output has a relative error of 1"
    message = f"reference_sigmoid (packed, head dimension 8, 32 tokens): {reason}"
    assert message in capsys.readouterr().err
    assert not (tmp_path / "kernel.csv").exists()


def test_a_benchmark_on_a_cpu_says_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the paper's shapes, the terminal had no line about it for many minutes."""
    configuration = write_configuration(tmp_path / "run", benchmarks={"kernel": ONE.model_dump()})
    files = ["--output", str(tmp_path / "table.csv"), "--machine", str(tmp_path / "machine.json")]
    for name, line in (
        ("kernel", f"on the CPU, attention: 1 groups of shapes, {ONE.tokens:,} tokens each, "),
        ("training", "on the CPU, training steps: sizes tiny_32, tiny, "),
    ):
        monkeypatch.setattr(f"scsigmoid.benchmarks.{name}.run_{name}_benchmark", MagicMock())
        command = [f"benchmark-{name}", "--configuration", str(configuration), *files]
        assert main([*command, "--log", str(tmp_path / "log")]) == 0
        assert line in capfd.readouterr().err


def test_our_own_kernel_may_run_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = MagicMock(side_effect=torch.OutOfMemoryError("tried to allocate 1 PiB"))
    monkeypatch.setattr("scsigmoid.benchmarks.providers.sigmoid_attention", full)
    notes = {row.note for row in run_kernel(ONE, tmp_path) if row.provider == "reference_sigmoid"}
    assert notes == {"does not fit in memory"}


def test_shapes_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"benchmarks.kernel.lengths: 32 does not divide tokens 8"):
        run_kernel(ONE.model_copy(update={"tokens": 8}), tmp_path)
    assert list(tmp_path.iterdir()) == []


SHORT = KERNEL.model_copy(update={"providers": ["sdpa"], "iterations": 1, "head_dimensions": [8]})


def test_a_table_without_all_groups_is_incomplete_in_the_machine_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = tmp_path / "kernel.csv", tmp_path / "kernel.json"
    run_kernel_benchmark(SHORT, "cpu", *files, seconds=-1.0)
    facts = json.loads(files[1].read_text())
    assert facts.pop("not_measured").split("; ") == [
        f"head dimension {case.head_dimension}, {case.batch}, {case.length} tokens"
        for case, *_ in groups(SHORT)
    ]
    assert f"{len(groups(SHORT))} groups are missing" in capsys.readouterr().err
    run_kernel(SHORT, tmp_path)
    assert json.loads(files[1].read_text()) == facts


CPU = torch.device("cpu")
INPUTS = Inputs(Case("paper", 8, 2, 12, (12, 12)), CPU)


@pytest.mark.parametrize("number", [0, 1])
def test_a_failed_kernel_releases_its_tensors(number: int) -> None:
    """Also tensors in the frames of its errors, and tensors in reference cycles."""
    tensors: list[weakref.ref[Tensor]] = []
    errors = [torch.OutOfMemoryError("tried to allocate 1 PiB"), RuntimeError("capture failed")]

    def kernel(*_: Tensor) -> Tensor:
        large, cycle = torch.zeros(1000), [torch.zeros(1000)]
        cycle.append(cycle)  # type: ignore[arg-type]
        tensors.extend(weakref.ref(tensor) for tensor in (large, cycle[0]))
        try:
            raise errors[0]
        finally:
            if number:
                raise errors[1]

    provider = Provider("failing", "sigmoid", "padded", lambda _: kernel, runs_on_cpu=True)
    (candidate,) = prepare_case(INPUTS, [provider], 0)
    assert candidate.timer is None
    assert candidate.note.endswith(("does not fit in memory", "capture failed")[number])
    assert [tensor() for tensor in tensors] == [None, None]


def test_the_driver_is_unknown_if_nvidia_smi_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = MagicMock(side_effect=subprocess.TimeoutExpired("nvidia-smi", 60))
    monkeypatch.setattr(subprocess, "run", hang)
    assert machine.driver_version() == ""
