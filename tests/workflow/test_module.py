"""The workflow as a module of another workflow."""

import re
import shutil
from pathlib import Path

import yaml
from projects import TINY, run_snakemake

ROOT = Path(__file__).parents[2]
# Up to `use rule * from plain` as `snakedeploy deploy-workflow` writes it.
SNAKEFILE = f"""
configfile: "config/config.yaml"
OWN = {{"seed": 7, "tokens": {{"vocabulary": {{"genes": "genes.txt"}}}}}}

module plain:
    snakefile: "{ROOT}/workflow/Snakefile"
    config: config

use rule * from plain

module prefixed:
    snakefile: "{ROOT}/workflow/Snakefile"
    config: OWN
    prefix: "own"

use rule * from prefixed as own_*

rule mine:
    input:
        rules.table.output.csv.format(name="hyperparameters"),
        "results/demo/corpus/manifest.csv",
        rules.own_table.output.csv.format(name="hyperparameters"),
    output: "mine.txt"
    shell: "cat {{input}} > {{output}}"
"""
ANALYSIS = """
rule analysis:
    input: "results/demo/corpus/manifest.csv"
    output: directory("results/demo/analysis")
    shell: "mkdir {output}; touch {output}/plot.txt"
"""


def snakemake(folder: Path, *arguments: str) -> str:
    """Run Snakemake in a folder. Return what it prints."""
    run = run_snakemake(folder, ["--cores", "2", *arguments])
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_another_workflow_uses_the_rules(tmp_path: Path) -> None:
    """With and without a prefix and other names. Without a target, it makes the report."""
    shutil.copytree(ROOT / ".test/config", tmp_path / "config")
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "genes.txt").touch()

    plan = snakemake(tmp_path, "-n", "all", "own_all")
    inputs = re.findall(r"^    input: (.*)", plan, flags=re.MULTILINE)
    files = {file for line in inputs for file in line.split(", ")}
    assert {"results/demo/report.html", "own/results/demo/report.html", "genes.txt"} <= files
    assert not (tmp_path / "results").exists()

    snakemake(tmp_path, "mine")
    assert "results/demo/report.html" in snakemake(tmp_path, "-n")
    stored, own = (
        yaml.safe_load((tmp_path / folder / "results/demo/config.yaml").read_text())
        for folder in (".", "own")
    )
    assert stored["training"]["steps"] == TINY["training"]["steps"]
    assert own["seed"] == 7
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {".snakemake", "Snakefile", "config", "genes.txt", "results", "own", "mine.txt"}


def test_files_of_the_user_in_an_output_folder_of_a_module_are_kept(tmp_path: Path) -> None:
    """Its jobs are only known when the first of them starts."""
    shutil.copytree(ROOT / ".test/config", tmp_path / "config")
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "genes.txt").touch()
    part = "own/results/demo/corpus/training/part-00000"
    (tmp_path / part).mkdir(parents=True)
    (tmp_path / part / "mine.txt").touch()
    rule = "own_training_cells"
    (tmp_path / "own/results/demo/corpus/manifest.csv").touch()
    run = run_snakemake(tmp_path, ["--cores", "1", "-R", rule, "--allowed-rules", rule, "--", part])
    assert run.returncode != 0
    assert f"scsigmoid: error: {part}: contains files that no job wrote (mine.txt)" in run.stderr
    assert (tmp_path / part / "mine.txt").exists()


def test_output_folders_of_another_workflow_are_its_own(tmp_path: Path) -> None:
    """A run stopped because of the files of another workflow's rule in the results folder."""
    shutil.copytree(ROOT / ".test/config", tmp_path / "config")
    (tmp_path / "Snakefile").write_text(SNAKEFILE + ANALYSIS)
    (tmp_path / "genes.txt").touch()
    snakemake(tmp_path, "analysis")
    snakemake(tmp_path, "analysis", "-R", "manifest")
    assert (tmp_path / "results/demo/analysis/plot.txt").exists()
