"""A key of torch's cache, written by whatever process."""

import pickle
from pathlib import Path

import torch
from torch._inductor.codecache import extract_tensor_metadata_for_cache_key


def write_key(path: Path) -> None:
    """Write what torch makes the keys of its cache of, for one tensor."""
    metadata = extract_tensor_metadata_for_cache_key(torch.empty(64))
    with path.open("wb") as handle:
        pickler = pickle.Pickler(handle)
        pickler.fast = True
        pickler.dump(metadata)
