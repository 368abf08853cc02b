"""Small models."""

from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from small_models import one_by_one
from tokens.conftest import by_definition

import scsigmoid as ss
from scsigmoid.cells.embed_file import embed_file
from scsigmoid.cli import main
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary

GENES = [f"ENSG{index:011d}" for index in range(36)]
NAMES = [*(f"GENE{index}" for index in range(33)), "HLA-DRA", "GENE34", "GENE35"]
FOREIGN = [f"ENSG9{index:010d}" for index in range(36)]  # not in the vocabulary
CELLS = 9


@pytest.fixture
def vocabulary():
    """36 genes with different medians. The last two have the same name."""
    names = [*NAMES[:34], "TWICE", "TWICE"]
    medians = np.random.default_rng(1).uniform(1, 9, 36)
    cells, medians = np.r_[[0] * 4, [7] * 36], np.r_[[1.0] * 4, medians]
    return Vocabulary((*SPECIAL, *GENES), (*SPECIAL, *names), cells, medians)


@pytest.fixture
def model(make_model, vocabulary):
    """An untrained sigmoid model with a context of 16 tokens."""
    return make_model("sigmoid", vocabulary)


@pytest.fixture
def loaded(model):
    return ss.load(model, device="cpu")


@pytest.fixture
def counts():
    values = np.random.default_rng(2).poisson(1.2, (CELLS, 36))
    values[:, 0] += 1
    return values


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a user's file and returns its path."""

    def write_file(counts, genes=GENES, name="mine", **var):
        kinds = pd.Categorical(["a", "b", "c"] * 3)
        obs = pd.DataFrame({"kind": kinds}, index=[f"barcode-{i}" for i in range(CELLS)])
        frame = pd.DataFrame(var, index=list(genes))
        path = tmp_path / f"{name}.h5ad"
        matrix = csr_matrix(np.asarray(counts, dtype=np.float32))
        anndata.AnnData(X=matrix, obs=obs, var=frame).write_h5ad(path)
        return path

    return write_file


def run(path, model):
    output = path.with_name("out.h5ad")
    embed_file(path, ss.load(model, device="cpu"), output, batch_tokens=40, force=True)
    return anndata.read_h5ad(output)


def embed_by_command(path, model, output, *options):
    command = ["embed", str(path), str(output), "--checkpoint", str(model), "--device", "cpu"]
    return main([*command, *options])


def ranked(counts, vocabulary, columns=range(36)):
    """Return the tokens of each cell, sorted by Python. Genes not in ``columns`` are left out."""
    tokens = [gene + 4 if gene in columns else -1 for gene in range(36)]
    return [by_definition(cell, tokens, vocabulary.medians) for cell in counts]


def expected(counts, model, vocabulary, columns=range(36)):
    """Return the embedding of each cell, with one forward pass per cell."""
    return one_by_one(model, ranked(counts, vocabulary, columns))


@pytest.fixture
def reference(counts, model, vocabulary):
    return expected(counts, model, vocabulary)


def check(adata, reference):
    np.testing.assert_allclose(adata.obsm["X_scsigmoid"], reference, atol=2e-5)
