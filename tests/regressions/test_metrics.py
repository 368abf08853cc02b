"""Scores and their intervals."""

import math
from pathlib import Path

import anndata
import numpy as np
import pytest
from scipy import stats

from scsigmoid.config.check import load
from scsigmoid.config.schema import Scib
from scsigmoid.corpus.h5ad_writer import CellTable, write_cells
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import read_embedding, read_embeddings
from scsigmoid.evaluation.mmd import mmd_dataset, percentile_interval
from scsigmoid.evaluation.neighbors import Neighbors, log_count_components, nearest_cells
from scsigmoid.evaluation.scib import ilisi, probe, scib
from scsigmoid.records.measurements import donor_mean, read_measurements


def test_interval_over_donors():
    """Compare with scipy's Student interval of the means of known donors."""
    names = np.repeat(["A", "B", "C", "unknown"], [40, 5, 3, 12])
    values = np.random.default_rng(1).normal(size=60)
    means = [values[names == name].mean() for name in "ABC"]
    expected = stats.t.interval(0.95, 2, np.mean(means), stats.sem(means))
    result = donor_mean(values, names, 0.95)
    assert result.interval == pytest.approx((np.mean(means), *expected), rel=1e-12)
    assert result.donors == 3
    assert result.note == "12 of 60 cells have no known donor and are left out"


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        ({"A": 30, "B": 30}, "no interval from fewer than 3 donors (2)"),
        ({"": 60}, "no interval from fewer than 3 donors (0); 60 of 60 cells have no known donor"),
        ({"A": 9, "B": 9, "C": 9, "unknown": 33}, "33 of 60 cells have no known donor"),
        # These counted as donors.
        ({"A": 9, "B": 9, "C": 9, "NA": 13, "Unknown": 20}, "33 of 60 cells have no known donor"),
        ({"A": 9, "B": 9, "C": 9, "pooled": 33}, "33 of 60 cells have no known donor"),
    ],
)
def test_too_few_known_donors_give_no_interval(cells: dict[str, int], note: str):
    donors = np.repeat([*cells], [*cells.values()])
    result = donor_mean(np.arange(60.0), donors, 0.95)
    assert [math.isnan(end) for end in result.interval[1:]] == [True, True]
    assert result.note == note


def test_scores_ignore_cells_without_a_label(write_arm, capsys):
    values = np.arange(10.0).reshape(5, 2)
    paths = {name: write_arm(name, values, ["a", "", "b", "", "a"]) for name in ("sig_4", "soft_4")}
    embedding = read_embeddings(paths, "toy")["soft_4"]
    assert (embedding.labels.tolist(), embedding.cells.tolist()) == (["a", "b", "a"], [0, 2, 4])
    assert embedding.values.tolist() == values[[0, 2, 4]].tolist()
    assert "sig_4.h5ad: 2 cells without a label are left out" in capsys.readouterr().err
    embedding = read_embeddings(paths, "toy", labeled_only=False)["sig_4"]
    assert embedding.labels.tolist() == ["a", "", "b", "", "a"]
    assert anndata.read_h5ad(paths["sig_4"]).obs["scsigmoid_cell_type"].isna().sum() == 2
    with pytest.raises(UserError, match="no cell has a label"):
        read_embeddings({"sig_4": write_arm("sig_4", values, [""] * 5)}, "toy")


def test_nan_in_a_file(write_arm):
    values = np.ones((4, 2))
    values[2, 1] = np.nan
    path = write_arm("sigmoid_4k", values, list("aabb"))
    message = r"sigmoid_4k\.h5ad: contains 1 of 4 cells .* first is 'cell 2'\)"
    with pytest.raises(UserError, match=message):
        read_embedding(path)


def test_mmd_of_swapped_models(write_arm, tmp_path):
    """The ratio would be inverted."""
    values, labels = np.random.default_rng(0).normal(size=(40, 3)), ["a", "b"] * 20
    names = ("softmax_4k", "sigmoid_4k")
    paths = {name: write_arm(name, values, labels) for name in names}
    settings = load(overrides={"preset": "demo"}).evaluation.mmd
    for chosen in (paths, {"sigmoid_4k": paths["sigmoid_4k"]}):
        with pytest.raises(UserError, match="a sigmoid and of a softmax model, in this order"):
            mmd_dataset(chosen, "toy", settings, 0, tmp_path / "mmd.csv")
    assert not (tmp_path / "mmd.csv").exists()


def test_principal_components_of_few_cells(tmp_path):
    """With as many components as cells, types that differ in a third of the genes had 0.1."""
    generator = np.random.default_rng(0)
    types = np.repeat([0, 1, 2], 16)
    rates = np.where(np.arange(300) % 3 == types[:, None], 3.0, 1.0)
    genes = [f"ENSG{number:011d}" for number in range(300)]
    obs = {"cell_type": types.astype(str)}
    path = tmp_path / "few.h5ad"
    write_cells(path, CellTable(generator.poisson(rates), genes, genes, obs, "few"))
    components = log_count_components(path, np.arange(len(types)))
    assert probe(components, types, 0) > 0.9


def test_a_batch_that_is_a_barcode(write_arm):
    """The batch of a dataset may be set after its cells were copied and checked."""
    path = write_arm("sigmoid_4k", np.ones((6, 2)), list("aabbab"))
    file = anndata.read_h5ad(path)
    file.obs["barcode"] = [f"cell {row}" for row in range(6)]
    file.obs["run"] = list("xxyyyx")
    file.write_h5ad(path)
    assert read_embedding(path, batch="run").batches.tolist() == list("xxyyyx")
    with pytest.raises(UserError, match=r"'barcode' has 6 values for 6 cells; .*toy\.batch"):
        read_embedding(path, batch="barcode")
    # The advice for own files was a setting that is an error for them.
    with pytest.raises(UserError, match=r"no column 'nope' .* corpus\.local"):
        read_embedding(path, batch="nope")


@pytest.mark.parametrize(("resamples", "confidence"), [(1, 0.5), (38, 0.95), (1000, 0.999)])
def test_too_few_resamples_give_no_interval(resamples, confidence):
    """One resample was an interval of zero width, which excluded 0 and made its model bold."""
    values = np.random.default_rng(0).normal(size=resamples)
    assert np.isnan(percentile_interval(values, confidence)).all()
    enough = math.ceil((1 + confidence) / (1 - confidence))
    low, high = percentile_interval(np.arange(float(enough)), confidence)
    assert (low, high) == (0, enough - 1)


def test_ilisi_of_a_few_cells_with_a_batch():
    """It was -2 for up to five cells, although the score is from 0 to 1."""
    random = np.random.default_rng(0)
    scores = {}
    for count in (2, 3, 4, 5, 6, 20):
        values = random.normal(size=(40, 3)).astype(np.float32)
        indices, distances = nearest_cells(values, 15)
        labels = np.array(["a", "b"] * 20)
        batches = np.array((["x", "y"] * 20)[:count] + [""] * (40 - count))
        cells = Neighbors(
            values=values, coordinates=values, indices=indices, distances=distances, labels=labels,
            donors=labels, metadata={}, source=Path(), batches=batches,
        )  # fmt: skip
        scores[count] = ilisi(cells, 0).get("ilisi", math.nan)
    assert [*map(math.isnan, scores.values())] == [True] * 4 + [False] * 2
    assert 0 <= scores[6] <= 1
    assert 0 <= scores[20] <= 1


def test_ilisi_counts_cells_with_a_batch(write_arm, tmp_path):
    """The number of cells was that of all cells, although cells without a batch are left out."""
    values, labels = np.random.default_rng(0).normal(size=(120, 6)), ["a", "b"] * 60
    cells = tmp_path / "results/corpus/evaluation/toy.h5ad"
    cells.parent.mkdir(parents=True)
    cells.write_bytes(b"not read")
    paths = {name: write_arm(name, values, labels) for name in ("sigmoid_4k", "softmax_4k")}
    for path in paths.values():
        adata = anndata.read_h5ad(path)
        adata.obs["donor_id"] = adata.obs["donor_id"].astype(str).replace("donor 2", "unknown")
        adata.write_h5ad(path)
    settings = Scib(metrics=["leiden_nmi"], neighbors=15, variance=0.95, controls=[])
    outputs = {name: tmp_path / f"{name}.csv" for name in ("ilisi", "silhouette_label")}
    scib(paths, cells, settings, 42, outputs, batch="donor_id")
    for name, count in (("ilisi", 80), ("silhouette_label", 120)):
        assert [row.n for row in read_measurements(outputs[name])] == [count] * 2
