"""Whole runs of the workflow, in a copy of the project, at a scale of seconds."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from once import made_once
from projects import TINY, Project

TERMINAL = "terminal.txt"  # file with the standard error of the run


def run_whole(folder: Path) -> None:
    """Run the whole workflow in a new project."""
    project = Project.new(folder, TINY)
    (folder / TERMINAL).write_text(project.run().stderr)


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose workflow has run once. All processes of pytest share it."""
    return Project(made_once(tmp_path_factory, "whole_run", run_whole))


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
