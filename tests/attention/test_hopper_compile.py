"""Compilation of the Hopper kernels for sm_90 with each supported version of Triton."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scsigmoid.attention import hopper

SCRIPT = Path(__file__).parent / "compile_hopper.py"
INSTALLED = ".".join(importlib.metadata.version("triton").split(".")[:2])
VERSIONS = tuple(dict.fromkeys((*hopper.TRITON, INSTALLED)))
#: Other versions of Triton, installed next to the environment's by the Makefile.
OTHERS = {"3.6": Path(sys.prefix) / "triton-3.6.0"}


def compile_kernels(version):
    """Return the assembler's findings on each kernel, compiled with a version of Triton."""
    environment = dict(os.environ)
    if version != INSTALLED:
        folder = OTHERS.get(version)
        if folder is None or not folder.exists():
            pytest.skip(f"triton {version} is not installed; run `make environment`")
        paths = str(folder), environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    process = subprocess.run(
        [sys.executable, SCRIPT], capture_output=True, text=True, env=environment
    )
    assert process.returncode == 0, process.stderr[-4000:]
    assert f"triton {version}." in process.stderr
    return [json.loads(line) for line in process.stdout.splitlines()]


@pytest.mark.parametrize("version", VERSIONS)
def test_kernels_fit_and_do_not_serialize(version):
    rows = compile_kernels(version)
    assert len(rows) == 10
    for row in rows:
        is_backward = row["kernel"] == "backward"
        assert row["shared"] <= 232_448, row
        # Notes of ptxas that matrix products wait for each other.
        assert row["serialized"] == [], row
        # 240 registers contain two 64 x 128 accumulators and two 64 x 64 products. A few addresses
        # and loop bounds do not fit, and are read once for each block of queries.
        assert row["spilled"] <= 128 * is_backward, row
        assert row["products"] > 0, row
        assert row["direct"], row
        assert (row["reductions"] > 0) == is_backward, row
        assert (row["tanh"] > 0) == (row["form"] in ("tanh", "vote")), row
        assert (row["votes"] > 0) == (row["form"] == "vote"), row
