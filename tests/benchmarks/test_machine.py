"""What a benchmark states of the machine and of the code."""

import hashlib
import shutil
from pathlib import Path

import pytest
import torch

import scsigmoid
from scsigmoid.benchmarks import machine
from scsigmoid.benchmarks.machine import attention_versions, code_version, machine_facts


def test_facts_are_words() -> None:
    facts = machine_facts(torch.device("cpu"), "a command")
    assert facts["command"] == "a command"
    assert facts["torch"] == torch.__version__
    assert facts["driver"] == ""


def test_the_code_has_a_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(scsigmoid.__file__).parent
    for folder in ("attention", "benchmarks"):
        shutil.copytree(package / folder, tmp_path / folder)
    monkeypatch.setattr(scsigmoid, "__file__", str(tmp_path / "__init__.py"))
    before = code_version()
    assert before == code_version()
    with (tmp_path / "attention/ops.py").open("a") as handle:
        handle.write("\n")
    assert len(code_version()) == len(hashlib.sha256().hexdigest()[:12])
    assert code_version() != before


def test_versions_of_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ATTENTION_PACKAGES", ("numpy", "no-such-package"))
    found = attention_versions()
    import numpy

    assert found["numpy"] == numpy.__version__
    assert found["no-such-package"] == ""
