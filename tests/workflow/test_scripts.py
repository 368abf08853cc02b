"""The scripts that measure parts of the pipeline: the data they make, and the rows they write."""

import importlib.util
import json
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import torch
from small_training import TINY, UNTRAINED

from scsigmoid.config.check import as_yaml, load
from scsigmoid.config.schema import ValidationLoss

SCRIPTS = Path(__file__).parents[2] / "workflow/scripts"


def run(script: str, *arguments: str, output: Path) -> pd.DataFrame:
    """The rows that a script writes."""
    command = [sys.executable, str(SCRIPTS / script), *arguments, "--output", str(output)]
    subprocess.run(command, check=True, capture_output=True)
    return pd.read_csv(output)


@pytest.mark.parametrize("storage", ["csr", "csc"])
def test_copies_follow_each_other(storage: str, tmp_path: Path) -> None:
    script = runpy.run_path(str(SCRIPTS / "time_tokens.py"))
    cells = script["simulated_cells"](40, 30, genes=5000)
    path = script["write_copies"](cells, 3, storage, tmp_path / "part")
    whole = anndata.read_h5ad(path)
    assert whole.X.format == storage
    np.testing.assert_array_equal(whole.X.toarray(), np.tile(cells.X.toarray(), (3, 1)))
    assert whole.obs["cell_type"].tolist() == cells.obs["cell_type"].tolist() * 3


def test_tokens(tmp_path: Path) -> None:
    arguments = ["--simulated", "300", "--genes", "50", "--repetitions", "1", "--lengths", "999"]
    work = tmp_path / "work"
    rows = run("time_tokens.py", *arguments, "--work", str(work), output=tmp_path / "rows.csv")
    assert rows["step"].tolist() == ["statistics", "tokens", "lengths"]
    assert rows["cells"].tolist() == [300, 300, 999]
    assert rows["peak_gb"].between(0.03, 2).all()
    assert (rows["cells_per_cpu_second"] * rows["cpu_seconds"]).round().tolist() == [300, 300, 999]
    assert not work.exists()


def test_loading(tmp_path: Path) -> None:
    rows = run(
        *("time_loading.py", "--preset", "demo", "--cells", "64", "--steps", "1"),
        *("--rounds", "2", "--workers", "1"),
        output=tmp_path / "rows.csv",
    )
    assert len(rows) == 2
    assert (rows > 0).all(axis=None)


def test_scaling(tmp_path: Path) -> None:
    """One and two processes; the efficiency is of the steps that both logged."""
    overrides = {
        "preset": "demo",
        "sizes": {"demo": {"layers": 1, "hidden": 16, "heads": 1, "feed_forward": 16}},
    }
    configuration = tmp_path / "config.yaml"
    root = SCRIPTS.parents[1]
    configuration.write_text(
        as_yaml(load(root / "config.yaml", root / "workflow/presets", overrides))
    )
    rows = run(
        *("time_scaling.py", "--model", "sigmoid_2k", "--configuration", str(configuration)),
        *("--processes", "1", "2", "--steps", "20", "--device", "cpu"),
        *("--machine", str(tmp_path / "machine.json")),
        output=tmp_path / "rows.csv",
    )
    measured = pd.read_csv(root / "docs/measurements/h200/benchmarks/scaling.csv")
    assert list(rows) == list(measured)
    assert rows["processes"].tolist() == [1, 2]
    assert rows["readings"].tolist() == [2, 2]  # steps 15 and 20
    rate, efficiency = rows["cells_per_second"], rows["efficiency"]
    assert efficiency[0] == 1
    assert efficiency[1] == pytest.approx(rate[1] / rate[0] / 2, rel=0.5)
    assert json.loads((tmp_path / "machine.json").read_text())["device"] == "cpu"
    alone = {"step": np.array([15, 20, 25]), "cells_per_second": np.array([10.0, 20.0, 5.0])}
    four = {"step": np.array([20, 25, 30]), "cells_per_second": np.array([60.0, 10.0, 1.0])}
    script = runpy.run_path(str(SCRIPTS / "time_scaling.py"))
    assert script["efficiencies"](4, four, alone) == [60 / 80, 10 / 20]


def test_building_flash_sigmoid(tmp_path: Path) -> None:
    """The compiler gets sources, headers and stand-ins for torch's; a failure leaves nothing."""
    source, headers = tmp_path / "checkout/csrc/flash_sigmoid/src", tmp_path / "include"
    library, nvcc = tmp_path / "flash_sigmoid.so", tmp_path / "nvcc"
    source.mkdir(parents=True)
    (headers / "cutlass").mkdir(parents=True)
    # In nvcc's place: the C preprocessor, which finds the same headers.
    nvcc.write_text(
        """#!/bin/sh
for last; do case $last in -I*) include="$include $last";; *.cu) source=$last;; esac; done
echo '#include "ATen/cuda/CUDAContext.h"
#include "flash_bwd_launch_template.h"
#include "cutlass/cutlass.h"' | gcc -E $include - > /dev/null || exit 1
cp "$source" "$last"
"""
    )
    nvcc.chmod(0o755)
    build = [str(SCRIPTS / "build_flash_sigmoid.sh"), tmp_path / "checkout", library, headers]

    def built() -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"NVCC": str(nvcc)}
        return subprocess.run(build, env=environment, capture_output=True, text=True)

    assert "no flash_bwd_launch_template.h in it" in built().stderr
    (source / "flash_bwd_launch_template.h").touch()
    assert built().returncode
    assert not library.exists()
    (headers / "cutlass" / "cutlass.h").touch()
    assert built().returncode == 0
    assert 'extern "C" const char* flash_sigmoid_forward' in library.read_text()


@pytest.fixture
def time_evaluation(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, at a scale of seconds."""
    spec = importlib.util.spec_from_file_location("script", SCRIPTS / "time_evaluation.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    small = {"PLAIN": (14, 9), "HEART_OFT": (14, 9, 11), "ROUNDS": 2, "LARGEST": 90, "TYPES": 3}
    for name, value in small.items():
        monkeypatch.setattr(script, name, value)
    return script


@pytest.mark.parametrize("part", ["mmd", "mmd-plain"])
def test_evaluation(part: str, time_evaluation: Any, tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    preset = ["--preset", "demo"]
    time_evaluation.main([part, *preset, "--device", "cpu", "--output", str(output)])
    found = json.loads(output.read_text())
    assert found["simulated"] is True
    assert found["machine"]["device"] == "cpu"
    assert all(seconds > 0 for seconds in found["seconds"])
    if part == "mmd-plain":
        assert found["largest_difference"] < 1e-12


def test_evaluation_gives_validation_and_training_the_same_cells(time_evaluation: Any) -> None:
    tokens = time_evaluation.SimulatedTokens(3, 5000, 512)
    assert len(tokens) == 3
    assert tokens.cells(np.array([2, 0]), 40).cu_seqlens.tolist() == [0, 40, 80]
    encoder = replace(TINY, context=4096, vocabulary_size=5000, dropout=0.1)
    loss = ValidationLoss(trials=2, mask_fraction=0.15, confidence=0.95, batch_tokens=600)
    cpu = torch.device("cpu")
    times = time_evaluation.validation_and_training(encoder, tokens, loss, UNTRAINED, cpu)
    assert len(times) == 2
    assert all(min(seconds) > 0 for seconds in times)


def test_evaluation_simulates_types_that_lie_further_apart_in_sigmoids_arm(
    time_evaluation: Any,
) -> None:
    arms = time_evaluation.simulated_arms([30, 40])
    far = {}
    for model, arm in arms.items():
        means = [arm.values[arm.labels == kind].mean(0) for kind in ("type 00", "type 01")]
        far[model] = np.linalg.norm(means[0] - means[1])
    assert far["sigmoid_4k"] > far["softmax_4k"]
    assert arms["sigmoid_4k"].values.dtype == np.float32


def test_coverage(tmp_path: Path) -> None:
    """The unbiased interval holds the true value about as often as it says, the biased one not."""
    rows = run(
        *("mmd_coverage.py", "--cells", "60+30", "--distances", "1", "--dimensions", "8"),
        *("--simulations", "60", "--resamples", "200"),
        output=tmp_path / "rows.csv",
    ).set_index("estimator")
    assert rows["coverage"]["unbiased"] > 0.85
    assert rows["coverage"]["biased"] < 0.5
    assert rows["point_outside"]["unbiased"] == 0
