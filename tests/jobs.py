"""Jobs of the workflow, to be run one by one without Snakemake."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from forked import forked

from scsigmoid.cli import main
from scsigmoid.files import sha256

# These configure numba before its import. In a forked process it may be imported already.
COMPILED = {"scib", "umap"}
NORMAL = "import sys; from scsigmoid.cli import main; sys.exit(main(sys.argv[1:]))"
KILLED = f"import os; os.replace = lambda *names: os.kill(os.getpid(), 9); {NORMAL}"


@dataclass(frozen=True)
class Job:
    """A call of ``scsigmoid``.

    Attributes:
        arguments: subcommand and arguments, as the shell passes them.
        outputs: paths relative to ``folder``.
        folder: working directory.
    """

    arguments: list[str]
    outputs: list[str]
    folder: Path

    def copy(self, folder: Path) -> "Job":
        """Return the same job with another working directory."""
        return replace(self, folder=folder)

    @property
    def stage(self) -> str:
        """The subcommand."""
        return self.arguments[0]

    def run(self, *, dies: bool = False) -> int:
        """Run the job in its own process. Return the exit code.

        Args:
            dies: whether SIGKILL ends the process when its first file is complete under a temporary
                name.
        """
        if self.stage in COMPILED:
            command = [sys.executable, "-c", KILLED if dies else NORMAL, *self.arguments]
            return subprocess.run(command, cwd=self.folder, check=False).returncode

        def work() -> int:
            os.chdir(self.folder)
            if dies:
                os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
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
        """Return the SHA-256 of the output files by path. It is empty for files with timings."""
        checksums = {}
        for name in self.outputs:
            path = self.folder / name
            for file in sorted([path, *path.rglob("[!.]*")]):
                if file.is_file():
                    is_timed = self.stage.startswith("benchmark") or file.name == "journal.csv"
                    name = str(file.relative_to(self.folder))
                    checksums[name] = "" if is_timed else sha256(file)
        return checksums
