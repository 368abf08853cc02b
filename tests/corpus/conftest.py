"""A loopback server, settings for it, and small h5ad files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loopback import HOSTS, Loopback, uuid
from stages import build, write_cells

from scsigmoid.config.check import load
from scsigmoid.config.schema import Config, Corpus, Dataset
from scsigmoid.corpus.discover import Service
from scsigmoid.corpus.web import Web


@pytest.fixture
def config() -> Config:
    """The demo's configuration."""
    return load()


@pytest.fixture
def corpus(server: Loopback) -> Corpus:
    """The settings of a corpus on loopback, with short timeouts."""
    base = load(overrides={"preset": "paper"}).corpus
    values = {"hosts": HOSTS, "timeout": 1.5, "longest_pause": 0}
    download = base.download.model_copy(update=values)
    changes = {"api": server.api, "parts": 1, "organisms": ["Homo sapiens"]}
    return base.model_copy(update={"download": download, **changes})


@pytest.fixture
def web(corpus: Corpus) -> Web:
    """A client of the server."""
    return Web(corpus.download)


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


@pytest.fixture
def service(server, web) -> Service:
    server.add(1, b"1", version=10, published="2024-01-01")
    server.add(1, b"22", version=11, published="2024-05-01", cells=20)
    server.add(1, b"333", version=12, published="2024-08-01")
    server.add(2, b"1", published="2024-06-11")
    for later in (3, 9):
        server.add(later, b"1", collection=30, published="2024-06-12")
    return Service(server.api, web)


HEART = {"heart": Dataset(title="Heart", id=uuid(1003))}


@pytest.fixture
def published(server):
    """Four human datasets and one of mouse. Datasets 2 and 3 (evaluated) are in one collection."""
    server.add(1, b"11", cells=5)
    server.add(2, b"3333", cells=9, collection=50)
    server.add(3, b"222", cells=7, collection=50)
    server.add(4, b"44444", cells=20, assays=("Smart-seq2", "10x 3' v2"))
    server.add(5, b"5", organisms=("Mus musculus",))
    return server


@pytest.fixture
def lock(server, corpus, tmp_path):
    """A corpus from a lock of two training files and an evaluation dataset."""
    for number in (1, 2, 3):
        server.add(number, b"x" * number)
    build(corpus, HEART, tmp_path / "lock.csv")
    return corpus.model_copy(update={"manifest": str(tmp_path / "lock.csv")})
