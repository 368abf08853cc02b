"""The scripts that time parts of the workflow: the files they write, and their rows."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import random as random_matrix
from stages import write_cells

SCRIPTS = Path(__file__).parents[2] / "docs/measurements/scripts"


def run(folder: Path, command: str) -> pd.DataFrame:
    """Run a script and return the rows that it writes to ``rows.csv``."""
    script, *arguments = command.split()
    words = [sys.executable, SCRIPTS / script, *arguments, "--output", folder / "rows.csv"]
    subprocess.run(words, check=True, capture_output=True)
    return pd.read_csv(folder / "rows.csv")


def test_tokens(tmp_path: Path) -> None:
    counts = random_matrix(70, 300, 0.2, "csr", np.float32, random_state=0)
    counts.data = np.ceil(10 * counts.data)
    cells = write_cells(tmp_path / "cells.h5ad", counts)
    rows = run(tmp_path, f"timing.py tokens {cells} --copies 1 3 --repetitions 1")
    assert rows["step"].tolist() == ["statistics", "tokens"] * 2
    assert rows["cells"].tolist() == [70, 70, 210, 210]
    assert rows["peak_gb"].between(0.03, 2).all()
    per_step = (rows["cells_per_cpu_second"] * rows["cpu_seconds"]).round()
    assert per_step.tolist() == rows["cells"].tolist()


def test_loading(tmp_path: Path) -> None:
    rows = run(tmp_path, "timing.py loading --preset demo --steps 1 --rounds 2 --workers 1")
    assert len(rows) == 2
    assert (rows > 0).all(axis=None)


@pytest.mark.faults  # three processes train
def test_scaling(tmp_path: Path) -> None:
    """The efficiency of two processes is computed from the steps that both runs logged."""
    rows = run(tmp_path, "timing.py scaling --preset demo --processes 1 2 --steps 20 --device cpu")
    assert rows["processes"].tolist() == [1, 2]
    assert rows["readings"].tolist() == [2, 2]  # steps 15 and 20
    rate, efficiency = rows["cells_per_second"], rows["efficiency"]
    assert efficiency[0] == 1
    assert efficiency[1] == pytest.approx(rate[1] / rate[0] / 2, rel=0.5)
    assert json.loads((tmp_path / "rows.json").read_text())["device"] == "cpu"
    alone = {"step": np.array([15, 20, 25]), "cells_per_second": np.array([10.0, 20.0, 5.0])}
    four = {"step": np.array([20, 25, 30]), "cells_per_second": np.array([60.0, 10.0, 1.0])}
    script = runpy.run_path(str(SCRIPTS / "timing.py"))
    assert script["efficiencies"](4, four, alone) == [60 / 80, 10 / 20]


def test_mmd(tmp_path: Path) -> None:
    rows = run(tmp_path, "timing.py mmd --preset demo --cells 14 9 11 --repetitions 2 --device cpu")
    assert rows[["cells", "pairs"]].to_numpy().tolist() == [[34, 3]] * 2
    assert (rows["seconds"] > 0).all()


def test_building_flash_sigmoid(tmp_path: Path) -> None:
    """The compiler finds the sources, CUTLASS and replacements of torch's headers.

    A failed build does not leave a library.
    """
    source, headers = tmp_path / "checkout/csrc/flash_sigmoid/src", tmp_path / "include"
    library, nvcc = tmp_path / "flash_sigmoid.so", tmp_path / "nvcc"
    source.mkdir(parents=True)
    (headers / "cutlass").mkdir(parents=True)
    # The C preprocessor replaces nvcc, because it finds the same headers.
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

    assert "flash_bwd_launch_template.h is missing" in built().stderr
    (source / "flash_bwd_launch_template.h").touch()
    assert built().returncode
    assert not library.exists()
    (headers / "cutlass" / "cutlass.h").touch()
    assert built().returncode == 0
    assert 'extern "C" const char* flash_sigmoid_forward' in library.read_text()


def test_coverage(tmp_path: Path) -> None:
    """Intervals of the unbiased estimator have their nominal coverage, unlike the biased ones."""
    command = "mmd_coverage.py --cells 60+30 --distances 1 --dimensions 8 --simulations 60"
    rows = run(tmp_path, f"{command} --resamples 200").set_index("estimator")
    assert rows["coverage"]["unbiased"] > 0.85
    assert rows["coverage"]["biased"] < 0.5
    assert rows["point_outside"]["unbiased"] == 0


@pytest.mark.faults
def test_several_gpus(tmp_path: Path) -> None:
    """Two processes on the CPU, which are stopped and resumed as one, and which embed cells."""
    options = "--small --cells 60 --steps 30 --stop 2 --only train embed --alone-cells 50"
    command = [sys.executable, SCRIPTS / "several_gpus.py", tmp_path, *options.split()]
    subprocess.run(command, check=True, capture_output=True)
    names = ("start", "stop", "resume", "embedding")
    start, stop, resume, embedding = (pd.read_csv(tmp_path / f"{name}.csv") for name in names)
    assert start["processes"].tolist() == [2, 2, 1]
    assert (start["seconds"] > 0).all()
    assert stop["exit_code"].tolist() == [75]
    assert start["resumed_from"].tolist() == [0, 0, stop["step"][0]]
    assert resume["step"].tolist() == [*range(1, 31)]
    assert resume["processes"].tolist() == [
        2 if step <= stop["step"][0] else 1 for step in range(1, 31)
    ]
    assert resume["relative_difference"].abs().max() < 1e-5
    assert embedding["devices"].tolist() == [1, 1, 2, 2]
    waiting, alone, together, first = embedding["cells"]
    assert waiting == together == 60
    assert 0 < alone == first <= 50
    waiting, alone, together, first = embedding["sha256"]
    assert waiting == together != alone == first
