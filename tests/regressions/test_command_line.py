"""The command line: one line for each error, on the terminal and in the log."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from configurations import write_configuration
from fake_stage import command_that
from permissions import without_privileges
from small_disk import small_disk

from scsigmoid import progress
from scsigmoid.cli import main


def test_a_plan_may_be_cut_short() -> None:
    """The reader of the pipe ends first, as in `scsigmoid plan | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "scsigmoid", "plan", "--config", "preset=demo"]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_evaluation_dataset_needs_the_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("cells", "metadata", "vocabulary", "output")
    configuration = f"--configuration={write_configuration(tmp_path)}"
    assert main(["tokenize", configuration, *(f"--{name}=absent" for name in names)]) == 1
    assert "--metadata without --manifest; add the manifest" in capsys.readouterr().err


def test_a_number_that_embed_cannot_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / "cells.h5ad"), str(tmp_path / "out.h5ad")]
    assert main(["embed", *files, "--checkpoint", "blood", "--batch-tokens", "0"]) == 1
    assert "batch_tokens: " in capsys.readouterr().err


def test_the_log_of_a_killed_job_has_a_line_of_each_attempt(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    command = command_that("os.kill(os.getpid(), 9)")
    for attempt in ("17", "18"):
        environment = os.environ | {"SLURM_JOB_ID": attempt}
        run = subprocess.run([*command, "--log", log], env=environment)
        assert run.returncode == -9
        text = log.read_text()
        log.unlink()  # as Snakemake does before an attempt
    first, second = text.splitlines()
    assert "lengths" in first
    assert first.endswith("job 17")
    assert second.endswith("job 18")


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


def test_the_root_as_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has no parent folder, which was a traceback."""
    assert main(["lengths", "--tokens", str(tmp_path), "--output", "/"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_signal_is_named_in_the_log(tmp_path: Path) -> None:
    """The log of a job that a batch system had stopped did not say so."""
    log = tmp_path / "x.log"
    run = subprocess.run([*command_that("os.kill(os.getpid(), 15)"), "--log", log])
    assert run.returncode == 128 + 15
    assert log.read_text().splitlines()[1:] == ["scsigmoid: stopped by SIGTERM"]


def test_ctrl_c_before_the_stage_starts_has_no_traceback() -> None:
    code = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
def stop(name, arguments):
    if name == "import" and arguments[0] == "scsigmoid.cli":
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(stop)
from scsigmoid.__main__ import main
sys.exit(main())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (130, "")


def test_permissions_of_an_input_are_named(tmp_path: Path) -> None:
    """The advice was to make the input writable, or a file in such a folder was not found."""
    private = tmp_path / "private"
    private.mkdir(mode=0)
    place = f"{private}/a.h5ad"
    settings = {
        place: f"datasets={{a: {{file: {place}, label: x}}}}",
        str(private): f"corpus={{source: local, local: [{{files: {place}}}]}}",
    }
    for name, setting in settings.items():
        command = [sys.executable, "-m", "scsigmoid", "plan", "--config", setting]
        run = subprocess.run(without_privileges(command), capture_output=True, text=True)
        assert run.returncode == 1
        error = run.stderr.splitlines()[-1]
        assert error.startswith(f"scsigmoid: error: {name}: ")
        assert "change its permissions" in error
