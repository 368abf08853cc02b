"""The part of a key of torch's cache that may differ between processes."""

import pickle
from pathlib import Path

import torch
from torch._inductor.codecache import extract_tensor_metadata_for_cache_key


def write_key(path: Path) -> None:
    """Write the metadata of a tensor, from which torch computes keys of its cache."""
    metadata = extract_tensor_metadata_for_cache_key(torch.empty(64))
    with path.open("wb") as handle:
        pickler = pickle.Pickler(handle)
        pickler.fast = True
        pickler.dump(metadata)
