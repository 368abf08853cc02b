"""Embedding does not depend on the default dtype and device of PyTorch."""

import numpy as np
import pytest
import scanpy as sc
import torch

import scsigmoid as ss


@pytest.fixture(scope="module")
def cells():
    return sc.datasets.pbmc68k_reduced().raw.to_adata()[:20]


def embedding(cells):
    adata = cells.copy()
    adata.X.data = np.rint(np.expm1(adata.X.data)).astype(np.float32)
    adata.raw = None
    ss.embed(adata, ss.load("blood", device="cpu"), verbose=False)
    return adata.obsm["X_scsigmoid"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_default_dtype(cells, dtype):
    expected = embedding(cells)
    torch.set_default_dtype(dtype)
    try:
        found = embedding(cells)
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(torch.float32)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("context", [False, True])
def test_default_device(cells, context):
    expected = embedding(cells)
    if context:
        with torch.device("meta"):
            found = embedding(cells)
    else:
        torch.set_default_device("meta")
        try:
            found = embedding(cells)
            assert torch.empty(0).device.type == "meta"
        finally:
            torch.set_default_device(None)
    assert np.array_equal(found, expected)
