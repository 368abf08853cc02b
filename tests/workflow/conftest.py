"""Whole runs of the workflow, in a copy of the project, at a scale of seconds."""

import copy
import fcntl
import os
from collections.abc import Callable
from typing import Any

import pytest
from projects import TINY, Project

TERMINAL = "terminal.txt"  # file with the standard error of the run


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose workflow has run once. All processes of pytest share it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "whole_run"
    with (shared / "whole_run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            project = Project.new(tmp_path_factory.mktemp("unfinished") / "project", TINY)
            run = project.run()
            assert run.returncode == 0, run.stdout + run.stderr
            (project.folder / TERMINAL).write_text(run.stderr)
            project.folder.rename(folder)
    return Project(folder)


@pytest.fixture(scope="module")
def finished(whole_run: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of :func:`whole_run` that tests of a module may change."""
    return whole_run.copy(tmp_path_factory.mktemp("finished") / "project")


@pytest.fixture(scope="session")
def make_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any]], Project]:
    """A function that makes a project with the given overrides."""
    return lambda overrides: Project.new(tmp_path_factory.mktemp("new") / "project", overrides)


@pytest.fixture
def tiny() -> dict[str, Any]:
    """The overrides of a small run."""
    return copy.deepcopy(TINY)
