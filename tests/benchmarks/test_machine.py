"""Facts of the machine and the code."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import scsigmoid
from scsigmoid.benchmarks import machine
from scsigmoid.benchmarks.machine import GpuMonitor, code_version, machine_facts, medians


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


def test_medians_of_readings() -> None:
    assert medians("1980, 400.5\n1620, 690.5\n1650, 700.0\n16") == (1650.0, 690.5)
    clock, power = medians("1980, [N/A]\n")
    assert clock == 1980
    assert math.isnan(power)
    assert all(map(math.isnan, medians("No devices were found\n")))


def test_the_monitor_reads_until_the_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for nvidia-smi writes two lines and never ends."""
    tool, arguments = tmp_path / "nvidia-smi", tmp_path / "arguments"
    tool.write_text(
        "#!/bin/sh\necho '1500, 600'\necho '1600, 650'\n"
        f'echo "$@" > {arguments}\nexec sleep 600\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(machine, "gpu_identity", lambda _: "GPU-1234")
    with GpuMonitor(torch.device("cuda")) as monitor:
        while not arguments.exists() or not arguments.read_text():
            pass
    assert (monitor.clock_mhz, monitor.power_w) == (1550.0, 625.0)
    assert "--id=GPU-1234" in arguments.read_text()
