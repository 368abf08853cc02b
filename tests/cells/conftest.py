"""Small models."""

from functools import partial
from pathlib import Path

import pytest
from small_models import write_model


@pytest.fixture
def make_model(tmp_path: Path):
    """Return a function that writes an untrained model and returns its path."""
    return partial(write_model, tmp_path / "results" / "training")
