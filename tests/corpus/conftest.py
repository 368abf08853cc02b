"""A loopback server, settings for it, and small h5ad files."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
from loopback import HOSTS, Loopback

from scsigmoid.config.check import load
from scsigmoid.config.schema import Config, Corpus
from scsigmoid.corpus.web import Web

WriteH5ad = Callable[..., Path]


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
    """The settings of a corpus on loopback, with short times."""
    base = load(overrides={"preset": "paper"}).corpus
    download = dataclasses.replace(base.download, timeout=0.5, longest_pause=0)
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
def write_h5ad(tmp_path: Path) -> WriteH5ad:
    """Return ``write_h5ad(x, raw=None, genes=None, obs=None, name="cells", var=None)``.

    Dense counts are written as float32, as anndata's users have them.
    """

    def write(
        x: Any,
        raw: Any = None,
        genes: list[str] | None = None,
        obs: dict[str, Any] | None = None,
        name: str = "cells",
        var: dict[str, Any] | None = None,
    ) -> Path:
        if isinstance(x, np.ndarray) and x.dtype.kind == "i":
            x = x.astype(np.float32)
        genes = genes or [f"ENSG{index:011d}" for index in range(x.shape[1])]
        kinds = ["T cell", "B cell", "NK cell"]
        frame = pd.DataFrame(
            obs if obs is not None else {"cell_type": [kinds[i % 3] for i in range(x.shape[0])]},
            index=[f"cell{i}" for i in range(x.shape[0])],
        )
        adata = anndata.AnnData(X=x, obs=frame, var=pd.DataFrame(var, index=genes))
        if raw is not None:
            adata.raw = anndata.AnnData(X=raw, obs=frame, var=pd.DataFrame(index=genes))
        path = tmp_path / f"{name}.h5ad"
        adata.write_h5ad(path)
        return path

    return write
