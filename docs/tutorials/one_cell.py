# %% [markdown]
# # One cell, from its file to a number
#
# This page follows one blood cell through the whole package: from an h5ad file to counts, ranks,
# tokens, a packed batch, the attention kernel, an embedding, and the distance (MMD) between two
# cell types. Each step is one call of a public function and prints a shape. It needs neither a
# network nor a GPU, and takes about 15 seconds.
#
# | step | module in `src/scsigmoid` |
# | --- | --- |
# | file to counts | `corpus/h5ad.py`, `corpus/counts.py` |
# | counts to tokens | `tokens/vocabulary.py`, `tokens/ranks.py` |
# | tokens to a batch | `model/batches.py` |
# | batch to hidden states | `model/encoder.py`, `attention/sigmoid.py` |
# | hidden states to an embedding | `model/embedding.py` |
# | embeddings to MMD | `evaluation/mmd.py` |

# %%
import tempfile
from pathlib import Path

import anndata
import numpy as np
import torch

import scsigmoid as ss
from scsigmoid.attention import sigmoid_attention
from scsigmoid.corpus.embedded import real_cells
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.h5ad_writer import write_cells
from scsigmoid.evaluation.mmd import measure_mmd
from scsigmoid.model.batches import pack
from scsigmoid.model.embedding import pool
from scsigmoid.tokens.ranks import rank_tokens

# %% [markdown]
# ## A file
# scanpy contains 700 real blood cells. `real_cells` recovers their counts. The seed selects 210
# cells that the demo does not use for training. `write_cells` writes them as CELLxGENE does, with
# counts in `raw.X` and gene ids in `var`.

# %%
folder = tempfile.TemporaryDirectory()  # deleted when Python ends
path = Path(folder.name) / "blood.h5ad"
write_cells(path, real_cells(seed=42, held_out=True))
print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")

# %% [markdown]
# ## Counts
# `open_cells` finds the matrix with raw counts and the genes of its columns. `select` keeps some
# of the cells, here two types. `chunks` reads the counts as sparse matrices with a limited number
# of cells, so that files can be larger than memory. This small file is one chunk. The first cell
# is the one to follow.

# %%
TYPES = ["CD14+ Monocyte", "CD19+ B"]
all_cells = open_cells(path)
cells = all_cells.select(np.isin(all_cells.obs(["cell_type"])["cell_type"], TYPES))
print("cells", all_cells.n_cells, "of two types", cells.n_cells)

cell_types = cells.obs(["cell_type"])["cell_type"]
((rows, counts),) = cells.chunks()
print("counts", counts.shape, counts.dtype)  # cells x genes
print(f"our cell: a {cell_types[0]} with {counts[0].sum()} counts of {counts[0].nnz} genes")

# %% [markdown]
# ## Ranks and tokens
# A model file contains weights and a vocabulary: the genes that have a token, and the median
# expression of each gene. The value of a gene is its count, divided by the cell's total count and
# by the gene's median. A cell becomes the list of its genes, from the largest to the smallest
# value, so the model reads an order and not numbers. All cells are in one array, and cell `i` has
# `tokens[offsets[i]:offsets[i + 1]]`.

# %%
model = ss.load("blood", device="cpu")
encoder, vocabulary = model.encoder, model.vocabulary
settings = encoder.settings  # layers, heads, context and so on
token_of_column = vocabulary.tokens(cells.genes)  # -1 for genes without a token
# Longer cells are cut to the model's context.
ranked = rank_tokens(counts, token_of_column, vocabulary.medians, settings.genes)
print("token of each column", token_of_column.shape)
print("tokens", ranked.tokens.shape, ranked.tokens.dtype, "offsets", ranked.offsets.shape)
ours = ranked.tokens[: ranked.offsets[1]]  # without the genes that have no token
print("our cell", ours.shape, "starts with", [vocabulary.names[token] for token in ours[:5]])

# %% [markdown]
# ## A packed batch
# Cells differ in length. A packed batch has no padding: cells are in one sequence, and
# `cu_seqlens` says where each cell starts. `positions` are the ranks, which start at 0 in each
# cell. `pack` takes the cells with these indices, and puts [CLS] first if the model has it.

# %%
batch = pack(ranked, np.arange(len(ranked)), settings)
print("batch", tuple(batch.tokens.shape), "cu_seqlens", tuple(batch.cu_seqlens.shape))
print("longest cell", batch.max_seqlen)

# %% [markdown]
# ## The kernel
# The encoder adds the embeddings of token and rank. Then each block normalizes its input and
# projects it to q, k and v. `sigmoid_attention` computes, for each cell of n genes and each head,
# sigmoid(q kᵀ / √dim − log n) v. On a GPU it calls a kernel of this project, on a CPU plain
# PyTorch (`attention/reference.py`).

# %%
packing = batch.cu_seqlens, batch.max_seqlen
with torch.inference_mode():
    x = encoder.embed(batch.tokens, batch.positions)
    block = encoder.blocks[0]
    qkv = block.compute_qkv(x)
    q, k, v = qkv.unbind(1)
    attended = sigmoid_attention(q, k, v, *packing)
    print("x", tuple(x.shape), "q", tuple(q.shape), "attended", tuple(attended.shape))

    # The encoder gets the same result.
    assert torch.equal(attended, block.attend(qkv, *packing))

    # So does the formula, here for our cell, which is the first n tokens. Shapes: (heads, n, dim).
    n = int(batch.cu_seqlens[1])
    q0, k0, v0 = (part[:n].transpose(0, 1) for part in (q, k, v))
    weights = torch.sigmoid(q0 @ k0.transpose(1, 2) / q.shape[-1] ** 0.5 - np.log(n))
    torch.testing.assert_close(attended[:n].transpose(0, 1), weights @ v0)
    print("weights of our cell", tuple(weights.shape))

# %% [markdown]
# ## An embedding
# The encoder runs all blocks. Its result has a vector for each token. `pool` takes the mean over
# each cell.

# %%
with torch.inference_mode():
    hidden = encoder(batch.tokens, batch.positions, *packing)
    embedding = pool(hidden, batch, "mean").numpy()
print("hidden", tuple(hidden.shape), "embedding", embedding.shape)

# %% [markdown]
# `ss.embed` does all of this in one call, with batches that fit in memory, and checks its input.

# %%
adata = anndata.read_h5ad(path)[rows].copy()
ss.embed(adata, model, verbose=False)
np.testing.assert_allclose(embedding, adata.obsm["X_scsigmoid"], atol=1e-5)

# %% [markdown]
# ## One number
# The maximum mean discrepancy (MMD) is a distance between two sets of cells. It is near 0 if the
# model does not tell the two types apart, and at most √2. The paper compares models by it.

# %%
monocytes, b_cells = (embedding[cell_types == name] for name in TYPES)
mmd = measure_mmd(monocytes, b_cells)
print("monocytes", monocytes.shape, "B cells", b_cells.shape)
print(f"MMD {mmd:.3f}")
