"""Jobs of the workflow, to be run one by one without Snakemake."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from forked import forked

from scsigmoid.cli import main
from scsigmoid.files import sha256

# Stages that configure numba before its import. They run in a new process, because numba may
# already be imported in a forked process.
NEW_PROCESS = {"scib", "umap"}
NORMAL = "import sys; from scsigmoid.cli import main; sys.exit(main(sys.argv[1:]))"
KILLED = f"import os; os.replace = os.link = lambda *names: os.kill(os.getpid(), 9); {NORMAL}"


@dataclass(frozen=True)
class Job:
    """A call of ``scsigmoid``."""

    arguments: list[str]  # subcommand and arguments, as the shell passes them
    outputs: list[str]  # paths relative to `folder`
    folder: Path  # working directory

    @property
    def stage(self) -> str:
        """The subcommand."""
        return self.arguments[0]

    def run(self, *, is_killed: bool = False) -> int:
        """Run the job in its own process. Return the exit code.

        If ``is_killed``, SIGKILL ends the process when its first file, which has a temporary name,
        is complete.
        """
        if self.stage in NEW_PROCESS:
            command = [sys.executable, "-c", KILLED if is_killed else NORMAL, *self.arguments]
            return subprocess.run(command, cwd=self.folder).returncode

        def work() -> int:
            os.chdir(self.folder)
            if is_killed:
                os.replace = os.link = lambda *names, **_: os.kill(os.getpid(), signal.SIGKILL)
            return main(self.arguments)

        return forked(work)

    def remove(self) -> None:
        """Remove the outputs, and the checkpoints that training would continue from."""
        for name in self.outputs:
            path = self.folder / name
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
            shutil.rmtree(path.parent / "checkpoints", ignore_errors=True)

    def checksums(self) -> dict[str, str]:
        """Return the SHA-256 of the output files by path, or "" for files with timings."""
        checksums = {}
        for name in self.outputs:
            path = self.folder / name
            for file in sorted([path, *path.rglob("[!.]*")]):
                if file.is_file():
                    is_timed = self.stage.startswith("benchmark") or file.name == "journal.csv"
                    name = str(file.relative_to(self.folder))
                    checksums[name] = "" if is_timed else sha256(file)
        return checksums
