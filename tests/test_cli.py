"""The command line: errors of users, logs, and the modules that a stage imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from configurations import write_configuration
from fake_stage import command_that

from scsigmoid.cli import SILENT, main


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["vocabulary", "--statistics", "x", "--configuration", "EMPTY"], "empty.yaml: "),
        (
            ["vocabulary", "--statistics", "x", "--configuration", "WRONG"],
            "config.yaml: tokens.vocabulary.gens: unknown setting; did you mean 'genes'",
        ),
        (["table", "scib", "--configuration", "EMPTY"], "empty.yaml: "),
        (["embed", "a.h5ad", "FOLDER", "--checkpoint", "x"], "a folder; name"),
        (["embed", "a.h5ad", "o.csv", "--checkpoint", "x"], "the output is an h5ad file; end"),
    ],
)
def test_a_missing_setting_or_a_wrong_file_is_named(
    command: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.yaml").touch()
    right = write_configuration(tmp_path).read_text()
    wrong = right.replace("  vocabulary:", "  vocabulary:\n    gens: 1")
    (tmp_path / "config.yaml").write_text(wrong)
    places = {"EMPTY": str(tmp_path / "empty.yaml"), "FOLDER": str(tmp_path)}
    places["WRONG"] = str(tmp_path / "config.yaml")
    output = [] if "embed" in command else ["--output", str(tmp_path / "output")]
    assert main([*(places.get(part, part) for part in command), *output]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not (tmp_path / "output").exists()


def test_an_error_is_in_the_log_and_one_line_on_the_terminal(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "lengths.log"
    arguments = ["lengths", "--tokens", str(tmp_path), "--output", str(tmp_path / "x")]
    run = subprocess.run(
        [sys.executable, "-m", "scsigmoid", *arguments, "--log", str(log)],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith(f"scsigmoid: error: {tmp_path}")
    assert run.stderr in log.read_text()


@pytest.mark.parametrize("is_silent", [False, True])
def test_an_announcement_also_appears_on_the_terminal(is_silent: bool, tmp_path: Path) -> None:
    """In jobs of a cluster, which set SCSIGMOID_SILENT, it is only in the log."""
    log = tmp_path / "x.log"
    command = command_that("(progress.log('in the log'), progress.announce('for the user'))")
    process = subprocess.run(
        [*command, "--log", log],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | ({SILENT: "1"} if is_silent else {}),
    )
    assert log.read_text().endswith("\nin the log\nfor the user\n")
    assert process.stderr == ("" if is_silent else "for the user\n")


@pytest.mark.parametrize(
    "modules",
    [
        "scsigmoid.cli, scsigmoid.attention, scsigmoid.model.encoder, scsigmoid.training.loop",
        "scsigmoid.benchmarks.kernel, scsigmoid.tokens.store",
        "scsigmoid.benchmarks.training, scsigmoid.benchmarks.simulated",
    ],
)
def test_training_and_benchmarks_import_on_a_bare_gpu_image(modules: str) -> None:
    """Only torch, triton, numpy, pyarrow, pydantic, pyyaml and safetensors are imported."""
    heavy = ["pandas", "anndata", "scanpy", "matplotlib", "sklearn", "h5py", "scipy"]
    code = f"import sys, {modules}\nprint([name for name in {heavy} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.stdout.strip() == "[]", output.stdout + output.stderr
