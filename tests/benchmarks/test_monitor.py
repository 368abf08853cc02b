"""Clock and power of the GPU, as nvidia-smi tells them."""

import math
import stat
from pathlib import Path

import pytest
import torch

from scsigmoid.benchmarks import monitor
from scsigmoid.benchmarks.monitor import GpuMonitor, medians


def test_medians_of_what_was_read() -> None:
    assert medians("1980, 400.5\n1620, 690.5\n1650, 700.0\n16") == (1650.0, 690.5)
    clock, power = medians("1980, [N/A]\n")
    assert clock == 1980
    assert math.isnan(power)
    assert all(map(math.isnan, medians("No devices were found\n")))


def test_nothing_is_read_on_a_cpu() -> None:
    with GpuMonitor(torch.device("cpu")) as found:
        pass
    assert math.isnan(found.clock_mhz)
    assert math.isnan(found.power_w)


def test_it_reads_until_the_block_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for nvidia-smi that writes two lines and goes on for ever."""
    tool = tmp_path / "nvidia-smi"
    told = tmp_path / "told"
    tool.write_text(
        f"#!/bin/sh\necho '1500, 600'\necho '1600, 650'\necho \"$@\" > {told}\nexec sleep 600\n"
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(monitor, "gpu_identity", lambda _: "GPU-1234")
    with GpuMonitor(torch.device("cuda")) as found:
        while not told.exists() or not told.read_text():
            pass
    assert (found.clock_mhz, found.power_w) == (1550.0, 625.0)
    assert "--id=GPU-1234" in told.read_text()
