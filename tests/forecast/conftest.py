"""Own cells, and configurations of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from stages import write_cells

from scsigmoid.config.check import load
from scsigmoid.config.schema import Config
from scsigmoid.forecast import choices
from scsigmoid.forecast.choices import choose

GENES = 300


def write_lengths(
    path: Path, lengths: list[int], kind: Any = csr_matrix, held_out: float = 0.5
) -> dict[str, Any]:
    """Write cells that express these numbers of genes. Return the file's entry of corpus.local."""
    is_expressed = np.arange(GENES) < np.array(lengths)[:, None]
    write_cells(path, kind(is_expressed * np.float32(2)))
    return {"files": str(path), "held_out": held_out}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that loads a configuration of own files with some settings."""
    monkeypatch.setattr(choices, "gpu_memory", lambda: 0)

    def make(*entries: dict[str, Any], **settings: Any) -> Config:
        corpus = {"source": "local", "local": list(entries)}
        overrides = {"results": str(tmp_path / "results"), "corpus": corpus, **settings}
        return load(overrides=overrides, choose=choose)

    return make
