"""The tutorials run, with the results that they state. The kernel's is in ``test_doors.py``."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs/tutorials"


def run(name: str, folder: Path) -> str:
    """Execute a notebook in a folder. Return the text of its outputs."""
    notebook = nbformat.read(TUTORIALS / name, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=400, kernel_name="python3", resources=place).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "\n".join(each.get("text") or each["data"].get("text/plain", "") for each in outputs)


@pytest.mark.faults  # trains for a minute
def test_own_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "SCSIGMOID_REAL_DATA" not in os.environ:
        pytest.skip("SCSIGMOID_REAL_DATA is not set: the tutorial needs pbmc_3k.h5ad")
    cells = Path(os.environ["SCSIGMOID_REAL_DATA"]) / "pbmc_3k.h5ad"
    monkeypatch.setenv("CELLS", str(cells))
    monkeypatch.setenv("SCSIGMOID", str(ROOT))
    output = run("own_cells.ipynb", tmp_path)
    probes = dict(re.findall(r"^X_(\w+) +(\d\.\d+)", output, re.MULTILINE))
    assert set(probes) == {"scsigmoid", "pca", "random"}
    # Seven types: a random embedding is at chance, a trained one far above.
    assert float(probes["random"]) < 0.25
    assert float(probes["scsigmoid"]) > 0.4


@pytest.mark.parametrize("path", sorted(TUTORIALS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_stored_outputs_are_small_and_without_local_paths(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert path.stat().st_size < 300_000
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert not re.search(r"/(home|root|tmp|work)/", path.read_text(encoding="utf-8"))
