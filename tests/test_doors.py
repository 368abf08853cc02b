"""Each way into the package works with the packages of its extra, and without all others.

Here, other packages are hidden. ``.ci/doors`` runs the same programs in fresh environments.
"""

import re
from pathlib import Path

import pytest
from packages import dependencies, run_with_only


def test_the_kernel_tutorial_needs_only_pytorch_and_triton(tmp_path: Path) -> None:
    packages = dependencies()
    assert packages.keys() == {"torch", "triton", "numpy"}
    tutorial = "docs/tutorials/kernel.ipynb"
    output = run_with_only(packages, tmp_path, "tests/doors/kernel.py", tutorial)
    error = re.search(r"largest difference from float64: (\S+)", output)
    assert error
    assert float(error[1]) < 1e-5
    losses = [float(loss) for loss in re.findall(r"^\d (\d+\.\d+)$", output, re.MULTILINE)]
    assert len(losses) == 5
    assert losses[-1] < losses[0]
    assert output.splitlines()[-1].startswith("embed: ")
    assert "install scsigmoid[cells]" in output.splitlines()[-1]


@pytest.mark.parametrize("arguments", [["--version"], ["embed", "--help"]])
def test_the_command_names_the_missing_extra(arguments: list[str], tmp_path: Path) -> None:
    run = "from scsigmoid.__main__ import main; print(main())"
    message, code = run_with_only(dependencies(), tmp_path, "-c", run, *arguments).splitlines()
    assert "scsigmoid[cells]" in message
    assert code == "1"


def test_cells_are_embedded_and_scored_without_the_workflow(tmp_path: Path) -> None:
    packages = dependencies("cells")
    assert packages.keys().isdisjoint({"snakemake", "requests", "tensorboard", "jinja2"})
    output = run_with_only(packages, tmp_path, "tests/doors/cells.py")
    assert "embedding (40, 384)" in output
    assert "leiden_nmi" in output


def test_snakemake_alone_parses_the_workflow(tmp_path: Path) -> None:
    output = run_with_only(["snakemake"], tmp_path, "-m", "snakemake", "--lint")
    assert "good condition" in output
