"""Facts of the machine and the code."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import scsigmoid
from scsigmoid.benchmarks import machine
from scsigmoid.benchmarks.machine import code_version, machine_facts


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
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "benchmarks" / "machine.py"))
    before = code_version()
    assert before == code_version()
    with (tmp_path / "attention/ops.py").open("a") as handle:
        handle.write("\n")
    assert code_version() != before
