"""A copy of the project, in which the workflow runs at a scale of seconds."""

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
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

    def command(self, *arguments: str) -> list[str]:
        return [
            *(sys.executable, "-m", "snakemake", *arguments),
            *("--cores", "2", "--configfile", "tiny.yaml"),
        ]

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return {**os.environ, "PATH": path}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake to its end."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )

    def jobs(self, *arguments: str) -> dict[str, int]:
        """Return the number of jobs of each rule in a dry run."""
        run = self.run("-n", *arguments)
        assert run.returncode == 0, run.stdout + run.stderr
        counts = re.findall(r"^(\w+) +(\d+)$", run.stdout, flags=re.MULTILINE)
        return {rule: int(count) for rule, count in counts if rule != "total"}

    def listed(self, *arguments: str) -> list[Job]:
        """Return the jobs of a dry run in its order, without targets, which have no command."""
        run = self.run(*arguments, "-n", "--printshellcmds", "--quiet", "host")
        assert run.returncode == 0, run.stdout + run.stderr
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
