"""Training that starts from a model file (``training.initial``)."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_training import changed

from scsigmoid.errors import UserError
from scsigmoid.files import sha256
from scsigmoid.model.embedding import embed_cells
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.weights import load_encoder, save_encoder, shrink
from scsigmoid.tokens.store import TokenStore
from scsigmoid.tokens.vocabulary import Vocabulary
from scsigmoid.training.loop import start_from, train
from scsigmoid.training.run import TrainingRun


@pytest.fixture
def genes(corpus: Any) -> Vocabulary:
    return Vocabulary.read(corpus.vocabulary)


@pytest.fixture
def initial(run: TrainingRun, genes: Vocabulary, tmp_path: Path) -> Path:
    """Write a model with the vocabulary of the corpus, as for embeddings only."""
    encoder = Encoder(run.encoder_settings(genes.size)).initialize(7)
    save_encoder(encoder, run.origin(5), genes, tmp_path / "whole.safetensors")
    shrink(tmp_path / "whole.safetensors", tmp_path / "initial.safetensors")
    return tmp_path / "initial.safetensors"


def with_new_genes(genes: Vocabulary) -> Vocabulary:
    columns = ((*genes.gene_ids, "N1", "N2"), (*genes.names, "N1", "N2"))
    return Vocabulary(*columns, np.append(genes.cells, [1, 1]), np.append(genes.medians, [2, 3]))


@pytest.mark.parametrize("has_output", [True, False])
def test_without_steps_embeddings_are_those_of_the_initial_model(
    has_output: bool, initial: Path, run: TrainingRun, genes: Vocabulary, corpus: Any
) -> None:
    """Bit by bit, for cells whose genes the initial model has. New genes keep random rows."""
    path = initial.with_name("whole.safetensors") if has_output else initial
    there, _ = load_encoder(path)
    more = with_new_genes(genes)
    fresh = Encoder(run.encoder_settings(more.size)).initialize(run.seed)
    encoder = Encoder(run.encoder_settings(more.size)).initialize(run.seed)
    start_from(encoder, str(path), more)
    store = TokenStore.open(corpus.stores)
    embeddings = [embed_cells(each.eval(), store, 100, "") for each in (there, encoder)]
    np.testing.assert_array_equal(*embeddings)
    rows = slice(genes.size, None)
    torch.testing.assert_close(
        encoder.token_embedding.weight[rows], fresh.token_embedding.weight[rows], rtol=0, atol=0
    )
    expected = there.output.weight if has_output else fresh.output.weight[: genes.size]
    assert torch.equal(encoder.output.weight[: genes.size], expected)
    if not has_output:  # without the states of cells, the layer predicts the shares of the genes
        shares = (more.cells + 0.5) / (more.cells + 0.5).sum()
        predicted = encoder.output.bias.softmax(0).detach().numpy()
        np.testing.assert_allclose(predicted, shares, rtol=1e-5)


def test_training_continues_and_states_the_file(
    initial: Path, run: TrainingRun, corpus: Any, tmp_path: Path
) -> None:
    """A copy of the file is the same run. A file with other weights trains again."""
    continued = changed(run, initial=str(initial), steps=2)
    train(continued, *corpus, tmp_path / "first")
    encoder, metadata = load_encoder(tmp_path / "first/model.safetensors")
    assert metadata["initial"] == sha256(initial)
    assert "initial" not in metadata["training"]
    there, _ = load_encoder(initial)
    moved = encoder.token_embedding.weight - there.token_embedding.weight
    # Two steps of AdamW with learning rates 0.002 and 0.004 move a weight by at most about 0.006.
    assert 0 < moved.abs().max() < 0.007
    copy = tmp_path / "copy.safetensors"
    shutil.copy(initial, copy)
    same = changed(continued, initial=str(copy))
    assert same.identity("v", "d") == continued.identity("v", "d")
    other = Encoder(run.encoder_settings(64)).initialize(8)
    save_encoder(other, run.origin(5), Vocabulary.read(corpus.vocabulary), copy)
    assert same.identity("v", "d") != continued.identity("v", "d")
    assert "initial" not in run.identity("v", "d")


def test_resumed_runs_do_not_start_again_from_the_file(
    initial: Path, run: TrainingRun, corpus: Any, tmp_path: Path
) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    train(changed(run, initial=str(initial), steps=6), *corpus, whole)
    for steps in (3, 6):
        train(changed(run, initial=str(initial), steps=steps), *corpus, resumed)
    files = [folder / "model.safetensors" for folder in (whole, resumed)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_vocabulary_with_other_medians(initial: Path, run: TrainingRun, genes: Vocabulary) -> None:
    encoder = Encoder(run.encoder_settings(genes.size))
    with pytest.raises(UserError, match=r"initial\.safetensors: its genes or medians differ"):
        start_from(encoder, str(initial), replace(genes, medians=genes.medians * 2))
