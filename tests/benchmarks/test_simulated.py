"""Simulated token stores have the paper's lengths, and training reads them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from scsigmoid.benchmarks.simulated import simulated_cells, write_simulated_tokens
from scsigmoid.config.check import load
from scsigmoid.config.schema import Config
from scsigmoid.tokens.store import TokenStore
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def config() -> Config:
    return load(ROOT / "config.yaml", ROOT / "workflow/presets", {"preset": "paper"})


def test_simulated_cells_have_the_papers_lengths_and_their_types_genes(config: Config):
    table = pa.Table.from_batches(simulated_cells(config.benchmarks.training, 3000, 2047, 3))
    lengths = table["length"].to_numpy()
    assert (len(lengths), lengths.max()) == (3000, 2047)
    assert lengths.min() >= 200
    # 43 % of the cells are longer than 2,048 (Fig. 1)
    assert (lengths == 2047).mean() == pytest.approx(0.43, abs=0.03)
    cells = [np.array(cell) for cell in table["input_ids"].slice(0, 200).to_pylist()]
    for cell, length in zip(cells, lengths, strict=False):
        assert len(cell) == len(set(cell.tolist())) == length
        assert len(SPECIAL) <= cell.min() <= cell.max() < 44_000
    kinds = table["cell_type"].to_pylist()

    def shared(one: int, other: int) -> float:
        short = min(len(cells[one]), len(cells[other]), 500)
        return len(np.intersect1d(cells[one][:short], cells[other][:short])) / short

    pairs = [(one, other) for one in range(200) for other in range(one)]
    alike = [shared(*pair) for pair in pairs if kinds[pair[0]] == kinds[pair[1]]]
    unlike = [shared(*pair) for pair in pairs[:2000] if kinds[pair[0]] != kinds[pair[1]]]
    assert np.mean(alike) > 4 * np.mean(unlike)


def test_training_reads_simulated_tokens(tmp_path: Path, config: Config):
    write_simulated_tokens(tmp_path, config.benchmarks.training, 40, 300, 1)
    vocabulary = Vocabulary.read(tmp_path / "vocabulary.parquet")
    store = TokenStore.open(tmp_path / "tokens", vocabulary=vocabulary.fingerprint)
    assert (len(store), store.maximum_length, vocabulary.size) == (40, 300, 44_000)
    again = tmp_path / "again"
    write_simulated_tokens(again, config.benchmarks.training, 40, 300, 1)
    for name in ("tokens/shard-00000.arrow", "vocabulary.parquet"):
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes()
