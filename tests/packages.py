"""The packages that an extra of ``pyproject.toml`` needs, and programs that have only these."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def dependencies(*extras: str) -> dict[str, Requirement]:
    """Return the dependencies of the project and of its extras by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = {}
    waiting = list(project["dependencies"])
    for extra in extras:
        waiting += project["optional-dependencies"][extra]
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.name == "scsigmoid":  # an extra that contains other extras
            for extra in requirement.extras:
                waiting += project["optional-dependencies"][extra]
        else:
            requirements[requirement.name] = requirement
    return requirements


def with_their_needs(packages: Iterable[str]) -> set[str]:
    """Return packages and all that they need, as far as these are installed."""
    needed: set[str] = set()
    waiting = [(name, "") for name in packages]
    seen: set[tuple[str, str]] = set()
    while waiting:
        name, extra = waiting.pop()
        name = canonicalize_name(name)
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        needed.add(name)
        try:
            requirements = map(Requirement, requires(name) or [])
        except PackageNotFoundError:
            continue
        for r in requirements:
            if not r.marker or r.marker.evaluate({"extra": extra}):
                waiting += [(r.name, each) for each in ("", *r.extras)]
    return needed


def run_with_only(packages: Iterable[str], folder: Path, *arguments: str) -> str:
    """Run Python with only some packages and what they need. Return all that it prints.

    ``folder`` is an empty folder, to which the packages are linked.
    """
    for name in with_their_needs(packages):
        try:
            files = distribution(name).files or []
        except PackageNotFoundError:
            continue
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(distribution(name).locate_file(top))
    process = subprocess.run(
        [sys.executable, "-S", *arguments],  # -S: without the folder of installed packages
        env=os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'src'}"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.returncode == 0, process.stdout
    return process.stdout
