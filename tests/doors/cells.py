"""Load, tokenize, embed and score cells, in memory and by file. Needs the extra ``cells`` only."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

os.environ["NUMBA_DISABLE_JIT"] = "1"  # compiling takes longer than so few cells
import anndata
import numpy as np
from scipy.sparse import random as random_matrix

import scsigmoid as ss
from scsigmoid.cli import main
from scsigmoid.evaluation import mmd, scib, umap, validation_loss
from scsigmoid.evaluation.neighbors import Neighbors, nearest_cells

model = ss.load("blood", device="cpu")
counts = random_matrix(40, 500, density=0.2, format="csr", dtype=np.float32, random_state=0)
counts.data = np.ceil(counts.data * 9)
adata = anndata.AnnData(counts)
adata.var_names = list(model.vocabulary.gene_ids[10:510])
adata.obs_names = [f"cell {number}" for number in range(40)]
print("tokens", len(ss.tokenize(adata, model, verbose=False).tokens))
ss.embed(adata, model, verbose=False)
print("embedding", adata.obsm["X_scsigmoid"].shape)

with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(sys.stdout):
    cells, output = Path(folder) / "cells.h5ad", Path(folder) / "embedding.h5ad"
    del adata.obsm["X_scsigmoid"], adata.uns["X_scsigmoid"]
    adata.write_h5ad(cells)
    assert main(["embed", str(cells), str(output), "--checkpoint", "blood", "--device", "cpu"]) == 0
    values = anndata.read_h5ad(output).obsm["X_scsigmoid"]

labels = np.array(["a", "b"] * 20)
indices, distances = nearest_cells(values, 10)
donors = np.full(40, "")
space = Neighbors(values, values, indices, distances, labels, donors, {}, Path())
print({name: function(space, 0) for name, function in scib.FUNCTIONS.items()})
print(mmd.__name__, umap.__name__, validation_loss.__name__)
