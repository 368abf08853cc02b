"""The command line: errors of users, logs, and the modules that a stage imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_disk import small_disk

from scsigmoid import progress
from scsigmoid.cli import SILENT, main


def test_settings_that_are_not_json_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["vocabulary", "--statistics", "x", "--output", "y", "--settings", "{"])
    assert "not valid JSON" in capsys.readouterr().err.splitlines()[-1]


def test_a_plan_may_be_cut_short() -> None:
    """The reader of the pipe ends first, as in `scsigmoid plan | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "scsigmoid", "plan", "--config", "preset=demo"]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")


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


def test_an_evaluation_dataset_needs_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("cells", "metadata", "vocabulary", "configuration", "output")
    assert main(["tokenize", "--settings={}", *(f"--{name}=absent" for name in names)]) == 1
    assert "--metadata without --manifest; add the manifest" in capsys.readouterr().err


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


PROGRAM = """
import os, sys
from scsigmoid import cli, progress
cli.STAGES["lengths"].run = lambda options: {action}
sys.exit(cli.main(sys.argv[1:]))
"""


def command_that(action: str) -> list[str]:
    """Return a command whose subcommand evaluates a Python expression."""
    code = PROGRAM.replace("{action}", action)
    return [sys.executable, "-c", code, "lengths", "--tokens", "t", "--output", "o"]


def test_the_log_of_a_killed_job_has_a_line_of_each_attempt(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    command = command_that("os.kill(os.getpid(), 9)")
    for attempt in ("17", "18"):
        environment = os.environ | {"SLURM_JOB_ID": attempt}
        run = subprocess.run([*command, "--log", log], env=environment, check=False)
        assert run.returncode == -9
        text = log.read_text()
        log.unlink()  # as Snakemake does before an attempt
    first, second = text.splitlines()
    assert "lengths" in first
    assert first.endswith("job 17")
    assert second.endswith("job 18")


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


def test_lines_do_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress.log("file \x1b]0;evil\x07.h5ad\nµm ünï")
    assert capsys.readouterr().err == "file \\x1b]0;evil\\x07.h5ad\nµm ünï\n"


@pytest.mark.parametrize("stage", ["fails", "logs", "no log"])
def test_a_log_on_a_full_disk_is_one_line(stage: str, tmp_path: Path) -> None:
    arguments = ["lengths", "--tokens", str(tmp_path / "none"), "--output", str(tmp_path / "x")]
    command = [sys.executable, "-m", "scsigmoid", *arguments]
    if stage == "logs":
        command = command_that("progress.log('x' * 100_000)")
    place = tmp_path / "logs"
    place.mkdir()
    with small_disk(place, 64):
        log = place / ("full/x.log" if stage == "no log" else "x.log")
        process = subprocess.run([*command, "--log", log], capture_output=True, text=True)
    assert process.returncode == 1
    words = {
        "fails": f"{tmp_path}/none",
        "logs": f"{log}: No space left on device; free some space, and run again",
        "no log": f"{log.parent}: File exists",
    }
    (line,) = process.stderr.splitlines()
    assert line.startswith(f"scsigmoid: error: {words[stage]}")


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


def test_an_output_that_cannot_be_written_is_named_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    for output in ("/proc/new/embedded.h5ad", str(file / "embedded.h5ad")):
        assert main(["embed", "absent.h5ad", output, "--checkpoint", "blood"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert f"error: {output}: cannot be written (" in line
    assert list(tmp_path.iterdir()) == [file]
