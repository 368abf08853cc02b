"""Facts of the machine and the code."""

import math
import shutil
import subprocess
import time
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

import scsigmoid
from scsigmoid.benchmarks import machine
from scsigmoid.benchmarks.machine import (
    code_version,
    machine_facts,
    median_clock_and_power,
    monitored_gpu,
)


def test_machine_facts_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PACKAGES", ("numpy", "no-such-package"))
    facts = machine_facts(torch.device("cpu"), "a command")
    assert facts["command"] == "a command"
    assert facts["torch"] == torch.__version__
    assert facts["numpy"] == np.__version__
    assert facts["no-such-package"] == facts["driver"] == facts["capability"] == ""
    assert len(facts["code"]) == 12
    assert all(isinstance(value, str) for value in facts.values())


def test_code_version_follows_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(scsigmoid.__file__).parent
    for folder in machine.TIMED_CODE:
        shutil.copytree(package / folder, tmp_path / folder)
    monkeypatch.setattr(scsigmoid, "__file__", str(tmp_path / "__init__.py"))
    before = code_version()
    assert before == code_version()
    with (tmp_path / "attention/ops.py").open("a") as handle:
        handle.write("\n")
    assert code_version() != before


def test_the_driver_is_unknown_if_nvidia_smi_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = MagicMock(side_effect=subprocess.TimeoutExpired("nvidia-smi", 60))
    monkeypatch.setattr(subprocess, "run", hang)
    assert machine.driver_version() == ""


def test_medians_of_readings() -> None:
    assert median_clock_and_power(["1980, 400.5\n", "1620, 690.5\n", "1650, 700.0\n"]) == (
        1650.0,
        690.5,
    )
    assert median_clock_and_power(["1980, [N/A]\n"]) == (1980, pytest.approx(math.nan, nan_ok=True))
    assert all(map(math.isnan, median_clock_and_power(["No devices were found\n"])))


def test_clock_and_power_are_read_until_the_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for nvidia-smi writes more than a terminal can store, and never ends."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path / "arguments"}\n'
        "yes '1500, 600' | head -n 9999\necho '1600, 650'\nexec sleep 600\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(machine, "gpu_uuid", lambda _: "GPU-1234")
    with monitored_gpu(torch.device("cuda")) as lines:
        end = time.monotonic() + 60
        while len(lines) < 10_000 and time.monotonic() < end:
            time.sleep(0.01)
    assert lines == [*["1500, 600\n"] * 9999, "1600, 650\n"]
    assert "--id=GPU-1234" in (tmp_path / "arguments").read_text()
