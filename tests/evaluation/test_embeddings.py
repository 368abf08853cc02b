"""Embeddings compared with one forward pass per cell, and invalid input."""

from dataclasses import replace

import anndata
import numpy as np
import pytest
import torch
from evaluation.conftest import VOCABULARY, run
from small_models import TOY, one_by_one

from scsigmoid.config.schema import Embeddings
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import read_embedding, read_embeddings
from scsigmoid.evaluation.embeddings import embed_dataset
from scsigmoid.files import sha256
from scsigmoid.model.weights import load_encoder
from scsigmoid.tokens.store import TokenStore
from scsigmoid.tokens.vocabulary import Vocabulary


def expected(checkpoint, store):
    """Return the embedding of the store's cells, with one forward pass per cell."""
    tokens = TokenStore.open(store)
    cells = [tokens.cells([row], 16).tokens.tolist() for row in range(len(tokens))]
    return one_by_one(checkpoint, cells)


@pytest.mark.parametrize("batch_tokens", [16, 50, 10_000])
def test_batches_equal_single_cells(checkpoint, store, cells, tmp_path, batch_tokens):
    embedding = read_embedding(run(checkpoint, store, cells, tmp_path, batch_tokens))
    np.testing.assert_allclose(embedding.values, expected(checkpoint, store), atol=2e-5)
    assert embedding.values.dtype == np.float32


def test_model_without_cls(make_model, store, cells, tmp_path):
    """Two cells have as many genes as the context, and one has more."""
    checkpoint = make_model("sigmoid", cls_token=False)
    values = read_embedding(run(checkpoint, store, cells, tmp_path)).values
    np.testing.assert_allclose(values, expected(checkpoint, store), atol=2e-5)


def test_metadata_and_reproducible_bytes(checkpoint, store, cells, tmp_path):
    outputs = [run(checkpoint, store, cells, tmp_path / name) for name in ("first", "second")]
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    adata = anndata.read_h5ad(outputs[0])
    attention = checkpoint.parent.name.split("_")[0]
    assert adata.obsm[f"X_{attention}_toy"].shape == (12, 16)
    assert adata.obs_names[:3].tolist() == ["barcode-0", "barcode-3", "barcode-6"]
    assert adata.obs["batch"][:3].tolist() == [0, 3, 6]
    types = adata.obs["scsigmoid_cell_type"].tolist()
    assert types[:4] == ["type 0", "type 1", "type 2", "type 0"]
    assert adata.uns["scsigmoid"].pop("rows").tolist() == list(range(0, 36, 3))
    assert dict(adata.uns["scsigmoid"]) == {
        "model": f"{attention}_toy", "attention": attention, "context": 16, "step": 0,
        "checkpoint": sha256(checkpoint), "dataset": "toy",
        "vocabulary": VOCABULARY, "cells": sha256(cells),
    }  # fmt: skip
    metadata = read_embedding(outputs[0]).metadata
    assert type(metadata["context"]) is int


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": "e" * 64}, "has vocabulary eeeeeeeeeeee, expected"),
        ({"dataset": "other"}, "has dataset 'other', expected 'toy'"),
    ],
)
def test_unsuitable_tokens(checkpoint, make_store, cells, tmp_path, change, message):
    with pytest.raises(UserError, match=rf"tokens/evaluation/toy: {message}"):
        run(checkpoint, make_store(**change), cells, tmp_path)
    assert not list(tmp_path.glob("*.h5ad"))


def test_a_model_does_not_see_genes_that_follow_its_vocabulary(
    make_model, make_store, cells, tmp_path
):
    """The store has tokens 0 to 47, the model 0 to 39. Cells are cut after this selection."""
    checkpoint = make_model("sigmoid")
    columns = ((*TOY.gene_ids, *"abcdefgh"), (*TOY.names, *"abcdefgh"))
    more = Vocabulary(*columns, np.ones(48, int), np.ones(48))
    more.write(tmp_path / "vocabulary.parquet")
    store = make_store(size=48, vocabulary=more.fingerprint)
    output = tmp_path / "initial.h5ad"
    settings = Embeddings(batch_tokens=40)
    arguments = (checkpoint, store, cells, settings, "cpu", output)
    embed_dataset(*arguments, tmp_path / "vocabulary.parquet")
    tokens = TokenStore.open(store)
    all_tokens = [tokens.cells([row], 30).tokens.tolist() for row in range(len(tokens))]
    known = [[token for token in cell if token < 40] for cell in all_tokens]
    assert sum(map(len, known)) < sum(map(len, all_tokens))
    embedding = read_embedding(output, model="initial", vocabulary=more.fingerprint)
    np.testing.assert_allclose(embedding.values, one_by_one(checkpoint, known), atol=2e-5)
    replace(more, medians=more.medians + 1).write(tmp_path / "vocabulary.parquet")
    with pytest.raises(UserError, match="does not begin with the genes"):
        embed_dataset(*arguments, tmp_path / "vocabulary.parquet")


def test_diverged_model(checkpoint, store, cells, tmp_path, monkeypatch):
    loaded = load_encoder(checkpoint)
    torch.nn.init.constant_(loaded[0].final_norm.bias, float("nan"))
    monkeypatch.setattr("scsigmoid.evaluation.embeddings.load_encoder", lambda *_: loaded)
    with pytest.raises(UserError, match=r"12 of 12 cells as NaN or infinity .* diverged"):
        run(checkpoint, store, cells, tmp_path)
    assert not list(tmp_path.glob("*.h5ad"))


def test_missing_damaged_and_foreign_files(tmp_path):
    with pytest.raises(UserError, match="no such embedding"):
        read_embedding(tmp_path / "absent.h5ad")
    path = tmp_path / "x.h5ad"
    path.write_bytes(b"not HDF5")
    with pytest.raises(UserError, match="damaged"):
        read_embedding(path)
    anndata.AnnData(np.ones((2, 2), dtype=np.float32)).write_h5ad(path)
    with pytest.raises(UserError, match="not an embedding"):
        read_embedding(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda adata: adata[:2].copy(),  # the row numbers are of all cells
        lambda adata: adata.uns["scsigmoid"].update(attention=np.arange(3)),
        lambda adata: adata.uns["scsigmoid"].update(context=np.arange(3)),
        lambda adata: adata.uns["scsigmoid"].update(vocabulary=np.arange(3)),
        lambda adata: adata.obsm.update({"X_sigmoid_4k": np.zeros((5, 0))}),
        lambda adata: adata.obsm.update({"X_sigmoid_4k": np.zeros((5, 2, 2))}),
    ],
)
def test_edited_embeddings_are_refused(change, write_arm):
    """Jobs that read them ended in a traceback."""
    path = write_arm("sigmoid_4k", np.arange(10.0).reshape(5, 2), list("aabbc"))
    adata = anndata.read_h5ad(path)
    changed = change(adata)
    (changed if isinstance(changed, anndata.AnnData) else adata).write_h5ad(path)
    with pytest.raises(UserError, match=r"sigmoid_4k\.h5ad: damaged, or not an embedding") as error:
        read_embedding(path, vocabulary="")
    assert "\n" not in str(error.value)


def test_arms_must_have_the_same_cell_types(write_arm):
    values = np.arange(10.0).reshape(5, 2)
    arms = {"sigmoid_4k": list("aabbc"), "softmax_4k": list("abbac")}
    paths = {model: write_arm(model, values, labels) for model, labels in arms.items()}
    with pytest.raises(UserError, match="other cell types"):
        read_embeddings(paths, "toy")
