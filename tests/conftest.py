"""Shared by all tests."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from loopback import Loopback

# One thread, as in the jobs of the workflow, because sums depend on the number of threads.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """Undo what the program changes in the environment of this process."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def server() -> Iterator[Loopback]:
    """CELLxGENE on loopback."""
    running = Loopback()
    yield running
    running.close()


@pytest.fixture
def make_model(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes an untrained model and returns its path."""
    from small_models import write_model

    return partial(write_model, tmp_path / "results" / "training")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real h5ad files, named by ``SCSIGMOID_REAL_DATA``."""
    folder = os.environ.get("SCSIGMOID_REAL_DATA")
    if not folder:
        pytest.skip("SCSIGMOID_REAL_DATA is not set: no real cells to test on")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"SCSIGMOID_REAL_DATA: {folder} is not a folder")
    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with whole runs, which take longest."""
    items.sort(key=lambda item: "workflow" not in item.path.parts)
