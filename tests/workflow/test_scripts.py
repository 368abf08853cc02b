"""The scripts that measure parts of the pipeline: the data they make, and the rows they write."""

import runpy
import subprocess
import sys
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest

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
