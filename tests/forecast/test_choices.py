"""Settings that are chosen from own cells and the device."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_matrix, csr_matrix
from stages import write_cells

from scsigmoid.config.check import as_yaml, load
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.forecast import choices
from scsigmoid.forecast.choices import choose
from scsigmoid.forecast.volume import vocabulary_size
from scsigmoid.report import registry
from scsigmoid.tokens.vocabulary import SPECIAL

GENES = 300


def write_lengths(path: Path, lengths: list[int], kind: Any = csr_matrix) -> None:
    """Write a file whose cells express these numbers of genes."""
    is_expressed = np.arange(GENES) < np.array(lengths)[:, None]
    write_cells(path, kind(is_expressed * np.float32(2)))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that loads a configuration of own files with some settings."""
    monkeypatch.setattr(choices, "has_gpu", lambda: False)

    def make(*entries: dict[str, Any], **settings: Any) -> Config:
        corpus = {"source": "local", "local": list(entries)}
        overrides = {"results": str(tmp_path / "results"), "corpus": corpus, **settings}
        return load(overrides=overrides, choose=choose)

    return make


def test_one_model_and_no_benchmarks(own: Any, tmp_path: Path) -> None:
    write_lengths(tmp_path / "a.h5ad", list(range(1, 101)))
    entry = {"files": str(tmp_path / "a.h5ad"), "held_out": 0.2}
    config = own(entry)
    assert (config.preset, config.device, list(config.models)) == ("own", "cpu", ["sigmoid"])
    assert config.evaluation.pair == ["sigmoid"]
    plan = Plan(config)
    assert registry.names("table", plan) == ["validation_loss", "scib"]
    assert registry.names("figure", plan) == ["sequence_lengths", "loss", "scib", "umap_a"]
    # 80 cells, at most 100 passes: 8,000 cells in batches of 16.
    assert config.training.steps == 500
    assert "100 passes over all" in config.choices["training.steps"]
    # Additional models have the same context.
    other = own(entry, models={"softmax": {"attention": "softmax"}})
    assert other.evaluation.pair == ["sigmoid", "softmax"]
    assert other.models["softmax"].context == other.models["sigmoid"].context


@pytest.mark.parametrize("kind", [csr_matrix, csc_matrix, np.asarray])
def test_the_context_covers_95_percent_of_the_cells(own: Any, tmp_path: Path, kind: Any) -> None:
    """Compare with the sorted lengths of the cells of both files. Long contexts are limited."""
    first, second = [10] * 50 + [60] * 150, [100] * 12
    write_lengths(tmp_path / "a.h5ad", first, kind)
    write_lengths(tmp_path / "b.h5ad", second, kind)
    files = {"files": f"{tmp_path}/a.h5ad"}, {"files": f"{tmp_path}/b.h5ad", "held_out": True}
    config = own(*files)
    assert sorted(first + second)[int(np.ceil(0.95 * 212)) - 1] == 100
    assert config.models["sigmoid"].context == 128  # the next multiple of 64
    assert "at most 100 genes" in config.choices["models.sigmoid.context"]
    write_lengths(tmp_path / "b.h5ad", [100] * 10, kind)
    assert own(*files).models["sigmoid"].context == 64
    write_lengths(tmp_path / "b.h5ad", [290] * 100, kind)
    assert "on a CPU the first 128" in own(*files).choices["models.sigmoid.context"]


def test_genes_named_by_symbol_are_limited(tmp_path: Path, own: Any, capfd: Any) -> None:
    """Exports of Seurat have symbols. Each organism has at most 3,000 genes on a CPU."""
    symbols = [f"SYM{gene}" for gene in range(3100)]
    ids = {"gene_ids": [f"ENSG{gene:011d}" for gene in range(3100)]}
    for columns in (None, ids):
        counts = csr_matrix(np.full((50, 3100), 2))
        write_cells(tmp_path / "a.h5ad", counts, genes=symbols, var=columns)
        config = own({"files": str(tmp_path / "a.h5ad"), "held_out": 0.2})
        assert vocabulary_size(config, tmp_path) == 3000 + len(SPECIAL)
    assert capfd.readouterr().err.count("genes by var['gene_ids']") == 1
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "matrix.mtx").touch()  # a 10x folder, which is not opened
    config = own({"files": f"{tmp_path}/a.h5ad", "held_out": True}, {"files": f"{tmp_path}/sample"})
    assert vocabulary_size(config, tmp_path) == 3000


def test_large_files_are_sampled_evenly(tmp_path: Path, own: Any) -> None:
    lengths = [10] * 4000 + [200] * 4000
    write_lengths(tmp_path / "a.h5ad", lengths)
    config = own({"files": str(tmp_path / "a.h5ad"), "held_out": 0.1}, device="cuda")
    assert config.models["sigmoid"].context == 256
    assert config.architecture.size == "small"
    assert config.benchmarks.training.median_length in (10, 200)


def test_values_that_are_set_are_kept(own: Any, tmp_path: Path) -> None:
    write_lengths(tmp_path / "a.h5ad", [20] * 100)
    entry = {"files": str(tmp_path / "a.h5ad"), "held_out": 0.5}
    config = own(entry, training={"steps": 7}, models={"sigmoid": {"context": 96}})
    assert (config.training.steps, config.models["sigmoid"].context) == (7, 96)
    assert not {"training.steps", "models.sigmoid.context"} & config.choices.keys()
    with pytest.raises(UserError, match=r"training.global_batch: .* found 'many'"):
        own(entry, training={"global_batch": "many"})


def test_a_second_run_chooses_the_device_of_the_first(
    own: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    write_lengths(tmp_path / "a.h5ad", [20] * 100)
    entry = {"files": str(tmp_path / "a.h5ad"), "held_out": 0.5}
    first = own(entry)
    (tmp_path / "results").mkdir()
    (tmp_path / "results/config.yaml").write_text(as_yaml(first))
    monkeypatch.setattr(choices, "has_gpu", lambda: True)
    again = own(entry)
    assert (again.device, again.training) == (first.device, first.training)
    assert own(entry, device="cuda").architecture.size == "small"


def test_a_damaged_file_is_named_before_any_job(own: Any, tmp_path: Path) -> None:
    (tmp_path / "a.h5ad").write_text("not HDF5")
    with pytest.raises(UserError, match=r"a\.h5ad"):
        own({"files": str(tmp_path / "a.h5ad"), "held_out": 0.5})
