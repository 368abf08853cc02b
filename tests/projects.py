"""A copy of the project, in which the workflow runs at a scale of seconds."""

import atexit
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import snakemake.cli
import yaml
from forked import forked
from jobs import Job

ROOT = Path(__file__).parents[1]
PARTS = ("Snakefile", "config.yaml", "profiles", "workflow", "envs", "src")

# One dataset and a few steps: the same code and the same targets as the demo.
TINY: dict[str, Any] = yaml.safe_load((ROOT / ".test/config/config.yaml").read_text())

# Timings differ from run to run. All other results are a function of the configuration.
TIMINGS = ("tables/kernel_speed", "tables/training_", "tables/comparison.")
COMPARISON = "tables/comparison.csv"
TIMED_GROUPS = (b"kernel,", b"cost,")  # rows of the comparison
COMPARED = ("tables/*", "metrics/**/*.csv", "metrics/**/*.parquet", "training/*/model.safetensors")


def run_snakemake(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Snakemake in a folder to its end, in a forked process, which does not import it again.

    ``environment`` are environment variables that are added to those of this process.
    """
    with TemporaryFile("w+") as output, TemporaryFile("w+") as errors:

        def work() -> int:
            for number, file in ((1, output), (2, errors)):
                os.dup2(file.fileno(), number)
            sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
            # Snakemake passes on to jobs the output that it found when it was imported.
            sys.modules["snakemake.shell"].STDOUT = sys.stdout  # type: ignore[attr-defined]
            os.chdir(folder)
            os.environ.update(environment or {})
            sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
            sys.argv = ["snakemake", *arguments]
            atexit._clear()  # functions of pytest
            try:
                snakemake.cli.main()
            except SystemExit as end:
                if isinstance(end.code, str):
                    print(end.code, file=sys.stderr)
                return end.code if isinstance(end.code, int) else int(end.code is not None)
            finally:
                atexit._run_exitfuncs()
            return 0

        code = forked(work)
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, output.read(), errors.read())


@dataclass
class Project:
    """A copy of the repository, in which the workflow runs."""

    folder: Path

    @classmethod
    def new(cls, folder: Path, overrides: dict[str, Any]) -> "Project":
        """Copy the repository to a new folder."""
        folder.mkdir(parents=True)
        for part in PARTS:
            source = ROOT / part
            if part == "src":  # linked, so that all projects share its compiled code
                (folder / part).symlink_to(source)
            elif source.is_dir():
                shutil.copytree(source, folder / part)
            else:
                shutil.copy(source, folder / part)
        project = cls(folder)
        project.configure(overrides)
        return project

    def copy(self, folder: Path) -> "Project":
        """Copy the project with its results. Modification times, which Snakemake compares, stay."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Project(folder)

    def configure(self, overrides: dict[str, Any]) -> None:
        """Set the settings that replace those of ``config.yaml`` and the preset."""
        (self.folder / "tiny.yaml").write_text(yaml.safe_dump(overrides))

    def arguments(self, *arguments: str) -> list[str]:
        return [*arguments, "--cores", "2", "--configfile", "tiny.yaml"]

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", *self.arguments(*arguments)]

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return {**os.environ, "PATH": path}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake, which must succeed."""
        run = self.outcome(*arguments)
        assert run.returncode == 0, run.stdout + run.stderr
        return run

    def failure(self, *arguments: str) -> str:
        """Run Snakemake, which must fail without a traceback. Return what it prints."""
        run = self.outcome(*arguments)
        output = run.stdout + run.stderr
        assert run.returncode != 0
        assert "Traceback" not in output
        return output

    def error(self, *arguments: str) -> str:
        """Run Snakemake, which must fail with an error of this program. Return that last line."""
        last_line = self.failure(*arguments).splitlines()[-1]
        assert last_line.startswith("scsigmoid: error: ")
        return last_line

    def outcome(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake to its end."""
        environment = self.environment()
        if (self.folder / "src").is_symlink():  # its package is the one that this process imports
            return run_snakemake(self.folder, self.arguments(*arguments), environment)
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
        )

    def jobs(self, *arguments: str) -> dict[str, int]:
        """Return the number of jobs of each rule in a dry run."""
        run = self.run("-n", *arguments)
        counts = re.findall(r"^(\w+) +(\d+)$", run.stdout, flags=re.MULTILINE)
        return {rule: int(count) for rule, count in counts if rule != "total"}

    def listed(self, *arguments: str) -> list[Job]:
        """Return the jobs of a dry run in its order, without targets, which have no command."""
        run = self.run(*arguments, "-n", "--printshellcmds", "--quiet", "host")
        printer = self.folder / "printer" / "python"  # stands in for Python in shell commands
        printer.parent.mkdir(exist_ok=True)
        printer.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
        printer.chmod(0o755)
        environment = {**os.environ, "PATH": f"{printer.parent}{os.pathsep}{os.environ['PATH']}"}
        jobs = []
        for text in re.split(r"^rule ", run.stdout, flags=re.MULTILINE)[1:]:
            outputs = re.search(r"^    output: (.*)$", text, re.MULTILINE)
            command = re.search(r"^Shell command: (.*)$", text, re.MULTILINE)
            if outputs and command:
                words = subprocess.check_output(
                    ["sh", "-c", command[1]], cwd=self.folder, env=environment, text=True
                ).split("\0")
                assert words[:2] == ["-m", "scsigmoid"]
                jobs.append(Job(words[2:-1], outputs[1].split(", "), self.folder))
        return jobs

    @contextmanager
    def killed(self, done: str, seconds: float = 240.0) -> Iterator[None]:
        """Start Snakemake. Enter the block once the file ``done`` exists, then kill all jobs."""
        process = subprocess.Popen(
            self.command(),
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None:
            if list(self.folder.glob(done)):
                break
            time.sleep(0.02)
        assert process.poll() is None, f"the run ended before {done} appeared"
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def science(self) -> dict[str, bytes]:
        """Return the content of the result files that depend only on the configuration."""
        results = self.folder / "results/demo"
        science = {}
        for path in itertools.chain.from_iterable(map(results.glob, COMPARED)):
            name = str(path.relative_to(results))
            # Names of unfinished files of killed jobs begin with a dot.
            if not path.name.startswith(".") and not name.startswith(TIMINGS):
                science[name] = path.read_bytes()
        rows = (results / COMPARISON).read_bytes().splitlines(keepends=True)
        science[COMPARISON] = b"".join(row for row in rows if not row.startswith(TIMED_GROUPS))
        return science
