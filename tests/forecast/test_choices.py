"""Settings that are chosen from own cells and the device."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forecast.conftest import write_lengths
from scipy.sparse import csc_matrix, csr_matrix
from small_models import CONTEXT, write_model
from stages import write_cells

from scsigmoid.config.plan import Plan
from scsigmoid.errors import UserError
from scsigmoid.report import registry


def test_one_model_and_no_benchmarks(own: Any, tmp_path: Path) -> None:
    entry = write_lengths(tmp_path / "a.h5ad", list(range(1, 101)), held_out=0.2)
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
    """The cells of both files count. Long contexts are limited."""
    write_lengths(tmp_path / "a.h5ad", [10] * 50 + [60] * 150, kind)
    write_lengths(tmp_path / "b.h5ad", [100] * 12, kind)
    files = {"files": f"{tmp_path}/a.h5ad"}, {"files": f"{tmp_path}/b.h5ad", "held_out": True}
    config = own(*files)
    # 200 of the 212 cells, less than 95 %, express at most 60 genes.
    assert config.models["sigmoid"].context == 128  # the next multiple of 64 above 100
    assert "at most 100 genes" in config.choices["models.sigmoid.context"]
    write_lengths(tmp_path / "b.h5ad", [100] * 10, kind)
    assert own(*files).models["sigmoid"].context == 64
    write_lengths(tmp_path / "b.h5ad", [290] * 100, kind)
    assert "on a CPU the first 128" in own(*files).choices["models.sigmoid.context"]


def test_large_files_are_sampled_evenly(tmp_path: Path, own: Any) -> None:
    lengths = [10] * 4000 + [200] * 4000
    entry = write_lengths(tmp_path / "a.h5ad", lengths, held_out=0.1)
    config = own(entry, device="cuda")
    assert config.models["sigmoid"].context == 256
    assert config.architecture.size == "small"
    assert config.benchmarks.training.median_length in (10, 200)


def test_values_that_are_set_are_kept(own: Any, tmp_path: Path) -> None:
    entry = write_lengths(tmp_path / "a.h5ad", [20] * 100)
    config = own(entry, training={"steps": 7}, models={"sigmoid": {"context": 96}})
    assert (config.training.steps, config.models["sigmoid"].context) == (7, 96)
    assert not {"training.steps", "models.sigmoid.context"} & config.choices.keys()
    with pytest.raises(UserError, match=r"training.global_batch: .* found 'many'"):
        own(entry, training={"global_batch": "many"})


def test_an_initial_model_sets_size_and_context(own: Any, tmp_path: Path) -> None:
    model = write_model(tmp_path, "sigmoid", cls_token=False)
    entry = write_lengths(tmp_path / "a.h5ad", list(range(1, 101)), held_out=0.2)
    config = own(entry, training={"initial": str(model)})
    assert config.size_of("sigmoid").hidden == 16
    assert config.models["sigmoid"].context == CONTEXT
    assert config.training.initial == str(model)
    assert set(config.tokens.vocabulary.sizes.values()) == {0}
    assert config.training.learning_rate < own(entry).training.learning_rate
    with pytest.raises(UserError, match=r"sizes\.tiny: is .* the initial model"):
        own(entry, training={"initial": str(model)}, architecture={"size": "tiny"})


def test_cells_of_other_genes_are_trained_from_scratch(own: Any, tmp_path: Path) -> None:
    """Also if only one of two files has genes of another organism. The reason names the file."""
    genes = [f"ENSMUSG{gene:011d}" for gene in range(30)]
    write_cells(tmp_path / "mouse.h5ad", csr_matrix(np.ones((30, 30), np.float32)), genes=genes)
    write_lengths(tmp_path / "human.h5ad", list(range(1, 101)))
    entries = [{"files": f"{tmp_path}/{name}.h5ad", "held_out": 0.2} for name in ("human", "mouse")]
    initial = str(write_model(tmp_path, "sigmoid", cls_token=False))
    config = own(*entries, training={"initial": initial})
    assert config.training.initial is None
    assert config.architecture.size == "tiny"
    reason = config.choices["training.initial"]
    assert "from scratch" in reason
    assert "mouse.h5ad: genes of another organism" in reason
