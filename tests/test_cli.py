"""The command line: errors of users, logs, and the modules that a stage imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_stage import command_that

from scsigmoid.cli import SILENT, main


def test_settings_that_are_not_json_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["vocabulary", "--statistics", "x", "--output", "y", "--settings", "{"])
    assert "not valid JSON" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["vocabulary", "--statistics", "x", "--settings", "{}"], "the setting 'tokens"),
        (
            ["vocabulary", "--statistics", "x", "--settings", '{"tokens.vocabulary": {"gens": 1}}'],
            "--settings: tokens.vocabulary: got an unexpected keyword argument 'gens'",
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
    places = {"EMPTY": str(tmp_path / "empty.yaml"), "FOLDER": str(tmp_path)}
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
        check=False,
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
    """Only torch, triton, numpy, pyarrow, pyyaml and safetensors are imported."""
    heavy = ["pandas", "anndata", "scanpy", "pydantic", "matplotlib", "sklearn", "h5py", "scipy"]
    code = f"import sys, {modules}\nprint([name for name in {heavy} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.stdout.strip() == "[]", output.stdout + output.stderr
