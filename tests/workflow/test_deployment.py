"""The workflow as ``snakedeploy deploy-workflow`` deploys it from GitHub, without a clone."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from projects import PARTS, ROOT

REPOSITORY, TAG = "scsigmoid/scsigmoid", "v0"
# As snakedeploy writes it.
SNAKEFILE = f"""
from snakemake.utils import min_version
min_version("6.10.0")
configfile: "config/config.yaml"

module scsigmoid:
    snakefile: github("{REPOSITORY}", path="workflow/Snakefile", tag="{TAG}")
    config: config

use rule * from scsigmoid
"""


def run(folder: Path, *command: str, **variables: str) -> str:
    """Run a command in a folder. Return what it prints."""
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the repository."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for part in (*PARTS, "config", "pyproject.toml", "README.md", "LICENSE"):
        source = ROOT / part
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
            shutil.copytree(source, copy / part, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source, copy / part)
    return copy


@pytest.mark.skipif(not shutil.which("git"), reason="no git")
def test_a_deployed_workflow_runs_without_a_clone(copied: Path, tmp_path: Path) -> None:
    """Snakemake's cache has the repository of GitHub, so nothing is downloaded."""
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    run(copied, "git", "init", "--quiet")
    run(copied, "git", "add", "--all")
    run(copied, "git", *identity, "commit", "--quiet", "--message", "release")
    run(copied, "git", "tag", TAG)
    # Where Snakemake's `HostedGitRepo` puts its bare clones.
    clones = tmp_path / "cache/snakemake/snakemake/source-cache/snakemake-git-cache"
    bare = clones / "github.com" / REPOSITORY
    run(tmp_path, "git", "clone", "--quiet", "--bare", str(copied), str(bare))
    # The package is installed from its wheel, next to Snakemake.
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    site = tmp_path / "site"
    run(tmp_path, *pip, "--no-build-isolation", "--target", str(site), str(copied))
    shutil.rmtree(copied)
    (site / "scsigmoid/version.py").write_text('__version__ = "of the wheel"\n')

    folder = tmp_path / "deployed"
    (folder / "config").mkdir(parents=True)
    (folder / "workflow").mkdir()
    (folder / "workflow/Snakefile").write_text(SNAKEFILE)
    shutil.copy(ROOT / "config/config.yaml", folder / "config")
    variables = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(site)}
    snakemake = (sys.executable, "-m", "snakemake", "--cores", "1")

    plan = run(folder, *snakemake, "-n", **variables)
    assert "results/demo/report.html" in plan
    assert not (folder / "results").exists()
    targets = ("results/demo/corpus/manifest.csv", "results/demo/tables/hyperparameters.csv")
    output = run(folder, *snakemake, *targets, **variables)
    assert re.search(r"2 of 2 steps \(100%\) done", output)
    assert all((folder / target).is_file() for target in targets)
    log = (folder / "results/demo/logs/manifest.log").read_text()
    assert "scsigmoid of the wheel manifest" in log  # jobs use the installed package
