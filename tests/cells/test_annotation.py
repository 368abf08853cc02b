"""Types of new cells, compared with scikit-learn's classifiers, and embeddings of genes."""

import tracemalloc

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
from cells.conftest import GENES
from safetensors.numpy import load_file
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_models import write_model

import scsigmoid as ss
from scsigmoid.cells.annotation import compare_genes
from scsigmoid.cells.embed_file import embed_file
from scsigmoid.cli import main
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import write_embedding
from scsigmoid.model.embedding import provenance
from scsigmoid.tokens.packed import Packed

TYPES = ["B", "CD4/CD8 T", "NK"]
CLASSIFIERS = {
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000)),
    "neighbors": lambda: KNeighborsClassifier(15),
}


def draw(types, seed, strength=8.0):
    """Return cells whose type has the highest rates at 12 of the 36 genes."""
    generator = np.random.default_rng(seed)
    rates = np.full((len(types), 36), 0.4)
    for row, name in enumerate(types):
        start = 12 * TYPES.index(name)
        rates[row, start : start + 12] *= strength
    counts = generator.poisson(rates).astype(np.float32)
    counts[:, 0] += 1  # no cell is empty
    obs = pd.DataFrame({"kind": types}, index=[f"{seed}-{row}" for row in range(len(types))])
    return anndata.AnnData(csr_matrix(counts), obs, pd.DataFrame(index=GENES))


@pytest.fixture
def labeled():
    return draw(np.repeat(TYPES, 40).tolist(), seed=1)


@pytest.fixture
def query():
    return draw(np.tile(TYPES, 20).tolist(), seed=2)


def annotate(query, reference, model, label="kind", **options):
    ss.annotate(query, reference, model, label=label, verbose=False, **options)
    return query.uns[f"predicted_{label}"]


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_equals_the_classifiers_of_scikit_learn(classifier, query, labeled, loaded) -> None:
    result = annotate(query, labeled, loaded, classifier=classifier)
    # The folds do not depend on the order of the cells, because they are sorted.
    order = labeled.obsm["X_scsigmoid"][:, 0].argsort()
    values, types = labeled.obsm["X_scsigmoid"][order], labeled.obs["kind"].to_numpy(str)[order]
    # Predict each reference cell from the other folds.
    held_out = np.empty((len(types), 3))
    for rest, fold in StratifiedKFold(5, shuffle=True, random_state=0).split(values, types):
        fitted = CLASSIFIERS[classifier]().fit(values[rest], types[rest])
        held_out[fold] = fitted.predict_proba(values[fold])
    guess, best = np.array(TYPES)[held_out.argmax(1)], held_out.max(1)
    right = np.sort(best[guess == types])
    threshold = right[int(0.05 * (len(right) - 1))]
    assert result["threshold"] == threshold
    assert (right >= threshold).mean() >= 0.95
    row = result["scores"].loc[classifier]
    recall = [(guess == types)[types == name].mean() for name in TYPES]
    assert row["accuracy"] == pytest.approx((guess == types).mean())
    assert row["balanced_accuracy"] == pytest.approx(np.mean(recall))
    assert row["unknown"] == pytest.approx((best < threshold).mean())
    known = np.where(best < threshold, "unknown", guess)
    assert row["accuracy_of_known"] == pytest.approx((known == types)[best >= threshold].mean())
    table = result["confusion"].set_index(["type", "predicted"])["cells"]
    assert table.to_dict() == pd.Series(zip(types, known, strict=True)).value_counts().to_dict()
    # Predict the query from the whole reference.
    probabilities = (
        CLASSIFIERS[classifier]().fit(values, types).predict_proba(query.obsm["X_scsigmoid"])
    )
    expected = np.array(TYPES)[probabilities.argmax(1)]
    expected[probabilities.max(1) < threshold] = "unknown"
    assert query.obs["predicted_kind"].tolist() == expected.tolist()
    np.testing.assert_allclose(query.obs["predicted_kind_probability"], probabilities.max(1))
    assert (expected == query.obs["kind"]).mean() > 0.5  # chance is 1/3


def test_without_a_threshold_every_cell_has_a_type(query, labeled, loaded) -> None:
    result = annotate(query, labeled, loaded, threshold=0)
    assert set(query.obs["predicted_kind"]) == set(TYPES)
    assert "unknown" not in set(result["confusion"]["predicted"])


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_the_order_of_the_reference_does_not_matter(classifier, query, labeled, loaded) -> None:
    """The threshold depended on it through the folds."""
    first = annotate(query, labeled, loaded, classifier=classifier)
    predicted = query.obs.copy()
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(labeled.n_obs)
        again = annotate(query, labeled[order].copy(), loaded, classifier=classifier)
        assert again["threshold"] == first["threshold"]
        pd.testing.assert_frame_equal(again["scores"], first["scores"])
        pd.testing.assert_frame_equal(again["confusion"], first["confusion"])
        pd.testing.assert_frame_equal(query.obs, predicted)


def test_cells_without_type_and_rare_types_are_left_out(query, labeled, loaded, capfd) -> None:
    labeled.obs["kind"] = pd.Categorical(
        [*["rare"] * 9, "NA", None, "", "Unknown", *labeled.obs["kind"][13:]]
    )
    result = annotate(query, labeled, loaded)
    assert result["reference_cells"] == 120 - 13
    assert query.obs["predicted_kind"].cat.categories.tolist() == [*TYPES, "unknown"]
    error = capfd.readouterr().err
    assert "4 of 120 cells have no kind" in error
    assert "1 of 4 types have fewer than 10 cells" in error
    assert "9 cells (rare: 9)" in error


def test_query_cells_that_are_in_the_reference(query, labeled, loaded, capfd) -> None:
    with pytest.raises(UserError, match="query: all 30 cells are also in the reference"):
        annotate(labeled[30:60].copy(), labeled, loaded)
    both = anndata.concat([query, labeled[:7]])
    annotate(both, labeled, loaded)
    assert "7 of 67 cells are also in the reference" in capfd.readouterr().err


def test_genes_that_query_and_reference_do_not_share(query, labeled, loaded, capfd) -> None:
    reference = labeled[:, :18].copy()
    annotate(query, reference, loaded)
    assert "warning: query and reference have 18 " not in capfd.readouterr().err  # one half
    other = labeled[:, 6:18].copy()
    other = other[np.asarray(other.X.sum(axis=1)).ravel() > 0].copy()
    fresh = query.copy()
    del fresh.obsm["X_scsigmoid"]
    annotate(fresh, other, loaded)
    assert "warning: query and reference have 12 " in capfd.readouterr().err
    del other.obsm["X_scsigmoid"]
    disjoint = query[:, 18:].copy()
    del disjoint.obsm["X_scsigmoid"]
    disjoint = disjoint[np.asarray(disjoint.X.sum(axis=1)).ravel() > 0].copy()
    with pytest.raises(UserError, match="have 0 of the model's genes in common"):
        annotate(disjoint, other, loaded)


def test_an_embedding_is_used_again(query, labeled, loaded, make_model, tmp_path) -> None:
    result = annotate(query, labeled, loaded)
    bare = anndata.AnnData(obs=query.obs, obsm=query.obsm, uns={"X_scsigmoid": {}})
    bare.uns["X_scsigmoid"] = query.uns["X_scsigmoid"]
    again = annotate(bare, labeled, loaded)  # has no counts
    pd.testing.assert_frame_equal(result["scores"], again["scores"])
    other = ss.load(write_model(tmp_path / "other", "softmax"), device="cpu")
    with pytest.raises(UserError, match=r"query: the origin of obsm\['X_scsigmoid'\]"):
        annotate(query, labeled, other)
    del query.uns["X_scsigmoid"]
    with pytest.raises(UserError, match="unknown, not sigmoid_toy"):
        annotate(query, labeled, loaded)


@pytest.mark.parametrize("name", ["query", "reference"])
def test_an_embedding_with_cells_in_another_order(name, query, labeled, loaded) -> None:
    cells = {"query": query, "reference": labeled}
    for adata in cells.values():
        ss.embed(adata, loaded, verbose=False)
    cells[name] = cells[name][::-1].copy()  # the order of all parts
    annotate(**cells, model=loaded)
    cells[name].obsm["X_scsigmoid"] = cells[name].obsm["X_scsigmoid"][::-1].copy()
    with pytest.raises(UserError, match=rf"^{name}: obsm.* another order: cell '.*' has "):
        annotate(**cells, model=loaded)


def copied(query, other):
    query.obsm["X_scsigmoid"] = other.obsm["X_scsigmoid"]


def copied_with_its_record(query, other):
    query.obsm["X_scsigmoid"], query.uns["X_scsigmoid"] = (
        other.obsm["X_scsigmoid"],
        other.uns["X_scsigmoid"],
    )


def partly_copied(query, other):
    query.obsm["X_scsigmoid"][20:40] = other.obsm["X_scsigmoid"][20:40]


def reordered(query, other):
    query.obsm["X_scsigmoid"] = query.obsm["X_scsigmoid"][::-1].copy()


@pytest.mark.parametrize("has_counts", [True, False])
@pytest.mark.parametrize(
    ("change", "number"),
    [(copied, 60), (copied_with_its_record, 60), (partly_copied, 20), (reordered, 60)],
)
def test_an_embedding_of_other_cells(
    change, number, has_counts, query, labeled, loaded, capfd
) -> None:
    """Without a warning, types of other cells were predicted."""
    other = draw(np.tile(TYPES, 20).tolist(), seed=3)
    for adata in (query, labeled, other):
        ss.embed(adata, loaded, verbose=False)
    change(query, other)
    if not has_counts:
        query = anndata.AnnData(obs=query.obs, obsm=query.obsm, uns=query.uns)
    elif change is reordered:
        query = query[:, :3].copy()  # embedding again gives other values for each cell
    capfd.readouterr()
    annotate(query, labeled, loaded)
    messages = capfd.readouterr().err
    assert f"warning: query: {number} of 60 cells have another name or another obsm" in messages


def test_an_embedding_of_the_same_cells(query, labeled, loaded, model, tmp_path, capfd) -> None:
    for adata in (query, labeled):
        ss.embed(adata, loaded, verbose=False)
    bare = anndata.AnnData(obs=query.obs, obsm=query.obsm, uns=query.uns)
    bare.write_h5ad(tmp_path / "bare.h5ad")
    query.write_h5ad(tmp_path / "query.h5ad")
    command = ["embed", *map(str, (tmp_path / "query.h5ad", tmp_path / "out.h5ad"))]
    assert main([*command, "--checkpoint", str(model), "--device", "cpu"]) == 0
    renamed, record = query.copy(), query.copy()
    renamed.obs_names = "new-" + renamed.obs_names
    del record.uns["X_scsigmoid"]["cell_hashes"]  # as earlier versions wrote it
    capfd.readouterr()
    for cells in (
        bare[10:50],
        query[::-1],
        query[query.obs["kind"] == "NK", 5:],
        anndata.read_h5ad(tmp_path / "bare.h5ad")[3:],
        anndata.read_h5ad(tmp_path / "out.h5ad"),
        anndata.concat([bare[:20], bare[40:]], uns_merge="same"),
        renamed,
        record,
    ):
        annotate(cells.copy(), labeled, loaded)
    assert "warning: " not in capfd.readouterr().err


def test_cells_that_are_named_by_numbers(query, labeled, loaded, tmp_path, capfd) -> None:
    """Names of 32-bit numbers had more digits than anndata stores, and a warning followed."""
    path, out = tmp_path / "query.h5ad", tmp_path / "out.h5ad"
    query.write_h5ad(path)
    with h5py.File(path, "r+") as file:
        del file["obs/_index"]
        file["obs/_index"] = np.arange(len(query), dtype=np.float32) / 3
    embed_file(path, loaded, out)
    annotate(anndata.read_h5ad(out), labeled, loaded)
    assert "warning: " not in capfd.readouterr().err


@pytest.mark.parametrize("n_cells", [1, 3])
def test_genes_of_few_cells(n_cells, query, labeled, loaded, capfd) -> None:
    """A warning said that the cells have few genes in common with the reference."""
    query.X = query.X.minimum(1) - (query.X > 2)  # shallow
    annotate(query[:n_cells].copy(), labeled, loaded)
    messages = capfd.readouterr().err
    assert "warning: " not in messages


def test_genes_selected_after_embedding(query, labeled, loaded, capfd) -> None:
    """A warning said that the embedding, which has all genes, has too few."""
    ss.embed(query, loaded, verbose=False)
    assert query.X[:, :3].sum(axis=1).all()  # no cell is empty
    annotate(query[:, :3].copy(), labeled, loaded)
    assert "warning: " not in capfd.readouterr().err


@pytest.mark.parametrize("change", [csr_matrix, lambda values: values[:, :3]])
def test_an_embedding_that_was_changed(change, query, labeled, loaded) -> None:
    ss.embed(query, loaded, verbose=False)
    query.obsm["X_scsigmoid"] = change(query.obsm["X_scsigmoid"])
    with pytest.raises(UserError, match=r"query: the origin of obsm\['X_scsigmoid'\] is unknown"):
        annotate(query, labeled, loaded)


def test_an_embedding_of_a_wider_model(query, labeled, loaded) -> None:
    """Its origin was called unknown."""
    ss.embed(query, loaded, verbose=False)
    query.obsm["X_scsigmoid"] = np.tile(query.obsm["X_scsigmoid"], 2)
    query.uns["X_scsigmoid"]["checkpoint"] = "0" * 64
    with pytest.raises(UserError, match=r"the origin of obsm\['X_scsigmoid'\] is another model"):
        annotate(query, labeled, loaded)


def test_an_index_of_several_levels(query, labeled, loaded) -> None:
    """AnnData accepts it when it is set, but cannot copy such cells."""
    ss.embed(query, loaded, verbose=False)
    query.obs.index = pd.MultiIndex.from_arrays([query.obs_names, query.obs_names])
    with pytest.raises(UserError, match=r"^query: obs has .*MultiIndex"):
        annotate(query, labeled, loaded)


@pytest.mark.parametrize("name", ["query", "reference"])
def test_a_view_of_a_backed_file(name, query, labeled, loaded, tmp_path) -> None:
    """With an embedding, a ValueError of anndata followed."""
    cells = {"query": query, "reference": labeled}
    ss.embed(cells[name], loaded, verbose=False)
    cells[name].write_h5ad(tmp_path / "cells.h5ad")
    cells[name] = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")[:50]
    with pytest.raises(UserError, match=rf"^{name}: is a view of a backed.*{name}.to_memory"):
        annotate(**cells, model=loaded)


def test_a_view_of_a_backed_file_of_embeddings(query, labeled, loaded, tmp_path) -> None:
    """It was refused as reference, although nothing is written to it."""
    ss.embed(labeled, loaded, verbose=False)
    bare = anndata.AnnData(obs=labeled.obs, obsm=labeled.obsm, uns=labeled.uns)
    bare.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    again = query.copy()
    annotate(query, backed[10:], loaded)
    annotate(again, bare[10:].copy(), loaded)
    assert query.obs["predicted_kind"].equals(again.obs["predicted_kind"])


def test_genes_are_compared_in_little_memory() -> None:
    """Counting needed 8 bytes per token on top of the tokens, more than raw counts in CSR."""
    n_cells, length = 1000, 2000
    tokens = np.tile(np.arange(length, dtype=np.uint16), n_cells)
    cells = Packed(tokens, np.arange(0, len(tokens) + 1, length, dtype=np.int32))
    tracemalloc.start()
    compare_genes(cells, cells)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * len(tokens)


@pytest.mark.parametrize("is_embedded", [False, True])
def test_a_query_without_cells(is_embedded, query, labeled, loaded) -> None:
    if is_embedded:
        ss.embed(query, loaded, verbose=False)
    with pytest.raises(UserError, match="query: has no cells"):
        annotate(query[:0].copy(), labeled, loaded)


def one_type(labeled):
    labeled.obs["kind"] = ["B"] * 111 + ["NK"] * 9


def no_label(labeled):
    labeled.obs = labeled.obs.rename(columns={"kind": "kinds"})


def normalized(labeled):
    labeled.X = labeled.X * 0.5


PROBLEMS = {
    "one type": (one_type, {}, "reference: 1 types in the column 'kind' have at least 10"),
    "no such column": (no_label, {}, "reference: obs has no column 'kind'.*'kinds'"),
    "no counts": (normalized, {}, "^reference: "),
    "classifier": (lambda _: None, {"classifier": "forest"}, "expected logistic or neighbors"),
    "threshold": (lambda _: None, {"threshold": 50}, "probability from 0 to 1"),
    "key": (lambda _: None, {"key": "a/b"}, "^key: "),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_problems(problem, query, labeled, loaded) -> None:
    change, options, message = PROBLEMS[problem]
    change(labeled)
    with pytest.raises(UserError, match=message):
        annotate(query, labeled, loaded, **options)
    assert list(query.obs) == ["kind"]


@pytest.mark.parametrize("name", ["query", "reference", "model"])
def test_wrong_types_of_arguments(name, query, labeled, loaded) -> None:
    arguments = {"query": query, "reference": labeled, "model": loaded} | {name: "cells.h5ad"}
    with pytest.raises(UserError, match=f"^{name}: expected"):
        ss.annotate(**arguments, label="kind")


def test_the_command_equals_the_function(query, labeled, loaded, model, tmp_path, capfd) -> None:
    for name, adata in {"query": query, "reference": labeled}.items():
        adata.write_h5ad(tmp_path / f"{name}.h5ad")
    annotate(query, labeled, loaded)
    paths = {name: str(tmp_path / f"{name}.h5ad") for name in ("query", "reference", "output")}
    options = ["--checkpoint", str(model), "--label", "kind", "--device", "cpu"]
    command = ["annotate", *paths.values(), *options]
    assert main(command) == 0
    result = anndata.read_h5ad(paths["output"])
    columns = ["kind", "predicted_kind", "predicted_kind_probability"]
    for column in columns:
        assert result.obs[column].tolist() == query.obs[column].tolist()
    np.testing.assert_array_equal(result.obsm["X_scsigmoid"], query.obsm["X_scsigmoid"])
    for table in ("scores", "confusion"):
        stored, expected = (a.uns["predicted_kind"][table] for a in (result, query))
        pd.testing.assert_frame_equal(stored, expected, check_dtype=False, check_index_type=False)
    capfd.readouterr()
    assert main(command) == 1
    assert "output.h5ad: exists" in capfd.readouterr().err
    assert main([*command[:-2], "--label", "type", "--force"]) == 1
    assert "no column 'type'" in capfd.readouterr().err
    assert anndata.read_h5ad(paths["output"]).obs["predicted_kind"].tolist()  # is kept


@pytest.mark.parametrize("options", [[], ["--key", "X_sigmoid_toy"]])
def test_embeddings_of_the_workflow_are_used(
    options, query, labeled, loaded, model, tmp_path
) -> None:
    """They have neither counts nor an embedding called X_scsigmoid."""
    annotate(query, labeled, loaded)
    paths = {name: tmp_path / f"{name}.h5ad" for name in ("query", "reference", "output")}
    for path, adata in zip(paths.values(), (query, labeled), strict=False):
        metadata = {**provenance(model, loaded.metadata), "dataset": path.stem, "cells": ""}
        rows = np.arange(adata.n_obs)
        types = adata.obs["kind"].to_numpy(str)
        obs = adata.obs[["kind"]]
        write_embedding(path, adata.obsm["X_scsigmoid"], types, rows, metadata, obs)
    command = ["annotate", *map(str, paths.values()), "--checkpoint", str(model)]
    assert main([*command, "--label", "kind", "--device", "cpu", *options]) == 0
    result = anndata.read_h5ad(paths["output"])
    assert result.obs["predicted_kind"].tolist() == query.obs["predicted_kind"].tolist()
    cells, reference = (anndata.read_h5ad(paths[name]) for name in ("query", "reference"))
    annotate(cells, reference, loaded, **({"key": options[1]} if options else {}))
    assert cells.obs["predicted_kind"].tolist() == query.obs["predicted_kind"].tolist()


@pytest.fixture
def of_the_workflow(query, loaded, model):
    """The query with counts, and an embedding as the workflow writes it."""
    ss.embed(query, loaded, verbose=False, key="X_sigmoid_toy")
    del query.uns["X_sigmoid_toy"]
    query.uns["scsigmoid"] = provenance(model, loaded.metadata)
    return query


def test_cells_with_counts_are_embedded_by_another_model(
    of_the_workflow, labeled, make_model, vocabulary
) -> None:
    """Once, the workflow's embedding was copied again, whatever the error's remedies."""
    other = ss.load(make_model("softmax", vocabulary), device="cpu")
    alone = of_the_workflow.copy()
    del alone.uns["scsigmoid"], alone.obsm["X_sigmoid_toy"]
    for cells in (of_the_workflow, alone):
        annotate(cells, labeled.copy(), other)
    assert of_the_workflow.obs["predicted_kind"].tolist() == alone.obs["predicted_kind"].tolist()


def test_an_embedding_of_another_model_keeps_its_record(
    of_the_workflow, labeled, loaded, make_model, vocabulary
) -> None:
    """Once, the record of the workflow replaced it, so the other model's values were used."""
    key = "X_sigmoid_toy"
    other = ss.load(make_model("softmax", vocabulary), device="cpu")
    ss.embed(of_the_workflow, other, verbose=False, key=key)
    cells = anndata.AnnData(obs=of_the_workflow.obs, obsm={key: of_the_workflow.obsm[key]})
    cells.uns.update(of_the_workflow.uns)
    with pytest.raises(UserError, match="query"):
        annotate(cells, labeled, loaded, key=key)


def test_backed_embeddings_without_counts(of_the_workflow, labeled, loaded, tmp_path) -> None:
    annotate(of_the_workflow, labeled, loaded)
    cells = anndata.AnnData(obs=of_the_workflow.obs[["kind"]])
    cells.obsm["X_sigmoid_toy"] = of_the_workflow.obsm["X_sigmoid_toy"]
    cells.uns["scsigmoid"] = of_the_workflow.uns["scsigmoid"]
    cells.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    annotate(backed, labeled, loaded)
    assert backed.obs["predicted_kind"].tolist() == of_the_workflow.obs["predicted_kind"].tolist()


def test_gene_embeddings_are_weights_of_the_file(loaded, model, vocabulary) -> None:
    frame = ss.gene_embeddings(loaded)
    weights = load_file(model)["token_embedding.weight"]
    np.testing.assert_array_equal(frame.to_numpy(), weights[4:])
    assert frame.index.get_level_values("gene_id").tolist() == list(vocabulary.gene_ids[4:])
    assert frame.index.get_level_values("name").tolist() == list(vocabulary.names[4:])
    assert frame.xs("HLA-DRA", level="name").shape == (1, weights.shape[1])
    frame.iloc[0, 0] = 99  # a copy
    assert not (loaded.encoder.token_embedding.weight == 99).any()
    with pytest.raises(UserError, match="load the model"):
        ss.gene_embeddings(str(model))
