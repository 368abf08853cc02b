"""The script that scores models of blood cells: types, transfer and mixing on simulated cells."""

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from small_models import GENES, write_model
from stages import write_cells

SCRIPTS = Path(__file__).parents[2] / "docs/measurements/scripts"
LABELS = {
    "pbmc_3k": ["CD14+ Mono", "Naive CD4 T", "unknown"],
    "more/nsclc_blood_scgate": ["Monocytes", "T cells CD4 naive", "Mast cells"],
    "pbmc_facs": ["CD14+ Monocyte", "CD4+ T Helper2", "CD19+ B"],
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("blood_scores")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write three studies, in which a type has high counts of the same ten genes."""
    generator = np.random.default_rng(0)
    (tmp_path / "more").mkdir()
    for name, labels in LABELS.items():
        types = np.repeat(np.arange(3), 30)
        counts = generator.poisson(0.5, (90, len(GENES)))
        for cell, number in enumerate(types):
            counts[cell, 10 * number : 10 * number + 10] += generator.poisson(5, 10)
        obs = {"cell_type": np.array(labels)[types]}
        write_cells(tmp_path / f"{name}.h5ad", csr_matrix(counts, dtype=np.float32), obs=obs)
    return tmp_path


def test_scores_of_cells_whose_types_are_clear(script: ModuleType, data: Path) -> None:
    model = write_model(data / "sigmoid", "sigmoid").parent
    arguments = [str(data), "--models", str(model), "--splits", "1"]
    arguments += ["--embeddings", str(data / "embeddings"), "--output", str(data / "scores.csv")]
    script.main(arguments)
    rows = pd.read_csv(data / "scores.csv", keep_default_na=False)
    assert {*rows["representation"]} == {*script.BASELINES, model.name}
    assert len({*rows.groupby("representation").size()}) == 1
    means = rows.groupby(["representation", "reference", "study", "metric"])["value"].mean()
    pca, random = means["pca_50"], means["random"]
    assert pca["", "pbmc_3k", "logistic"] > 0.8  # of two types, without the unknown cells
    assert pca["pbmc_3k", "nsclc_blood_scgate", "logistic_accuracy"] > 0.8
    assert random["pbmc_3k", "nsclc_blood_scgate", "neighbors_accuracy"] < 0.8
    assert pca["pbmc_3k", "nsclc_blood_scgate", "ilisi"] > 0.5
    # A repetition keeps the rows, and reads the embeddings.
    script.main(arguments)
    assert len(pd.read_csv(data / "scores.csv")) == len(rows)
    np.save(data / "embeddings" / model.name / "pbmc_3k.npy", np.zeros((3, 8)))
    kept = rows[rows["representation"] != model.name]
    kept.to_csv(data / "scores.csv", index=False)
    script.Representation.embedding.cache_clear()  # as in another process
    with pytest.raises(SystemExit, match="delete it"):
        script.main(arguments)
