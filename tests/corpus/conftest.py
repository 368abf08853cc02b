"""A loopback server, settings for it, and small h5ad files."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loopback import HOSTS, Loopback
from stages import write_cells

from scsigmoid.config.check import load
from scsigmoid.config.schema import Config, Corpus
from scsigmoid.corpus.web import Web


@pytest.fixture
def server() -> Iterator[Loopback]:
    """CELLxGENE on loopback."""
    running = Loopback()
    yield running
    running.close()


@pytest.fixture
def config() -> Config:
    """The demo's configuration."""
    return load()


@pytest.fixture
def corpus(server: Loopback) -> Corpus:
    """The settings of a corpus on loopback, with short timeouts."""
    base = load(overrides={"preset": "paper"}).corpus
    download = dataclasses.replace(base.download, timeout=1.5, longest_pause=0)
    changes = {"api": server.api, "hosts": HOSTS, "parts": 1, "organisms": ["Homo sapiens"]}
    return dataclasses.replace(base, download=download, **changes)


@pytest.fixture
def web(corpus: Corpus) -> Web:
    """A client of the server."""
    return Web.of(corpus)


@pytest.fixture
def counts() -> np.ndarray:
    """Counts of 30 cells and 12 genes. Every cell expresses the first gene."""
    values = np.random.default_rng(0).poisson(0.8, (30, 12))
    values[:, 0] += 1
    return values


@pytest.fixture
def write_h5ad(tmp_path: Path) -> Callable[..., Path]:
    """Return ``write_h5ad(x, name="cells", ...)``, with the arguments of ``write_cells``."""

    def write(x: Any, *columns: Any, name: str = "cells", **others: Any) -> Path:
        return write_cells(tmp_path / f"{name}.h5ad", x, *columns, **others)

    return write
