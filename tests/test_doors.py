"""Each way into the package works with the packages of its extra, and without all others.

Here, other packages are hidden. ``.ci/doors`` runs the same programs in fresh environments.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packages import dependencies, run_with_only

#: Number of modules of the package that embedding a cell loads. A reader follows a cell through
#: these files, so this number may only become smaller.
MODULES_TO_EMBED = 44


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
    assert packages.keys().isdisjoint({"snakemake", "requests", "jinja2"})
    output = run_with_only(packages, tmp_path, "tests/doors/cells.py")
    assert "embedding (40, 384)" in output
    assert "leiden_nmi" in output


def test_embedding_one_cell_loads_few_modules() -> None:
    program = """
import sys, anndata, numpy, scsigmoid as ss
model = ss.load("blood", device="cpu")
adata = anndata.AnnData(numpy.ones((1, 100), numpy.float32))
adata.var_names = model.vocabulary.gene_ids[4:104]
ss.embed(adata, model, verbose=False)
print(*(name for name in sys.modules if name.partition(".")[0] == "scsigmoid"))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    modules = result.stdout.split()
    assert len(modules) <= MODULES_TO_EMBED, sorted(modules)
    assert len(modules) >= MODULES_TO_EMBED, f"lower MODULES_TO_EMBED to {len(modules)}"


def test_tests_of_models_do_not_need_anndata() -> None:
    """A machine that is only used for GPU tests may lack it."""
    program = """
import sys, pytest
sys.modules["anndata"] = None
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", sys.argv[1]]))
"""
    command = [sys.executable, "-c", program, str(Path(__file__).parent / "model")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_snakemake_alone_parses_the_workflow(tmp_path: Path) -> None:
    output = run_with_only(["snakemake"], tmp_path, "-m", "snakemake", "--lint")
    assert "good condition" in output
