"""Damaged h5ad files are refused in one line, and damaged bytes are never counted."""

import os

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from stages import hold_out

from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.errors import UserError
from scsigmoid.tokens.make_stores import tokenize_evaluation, tokenize_part
from scsigmoid.tokens.statistics import gather
from scsigmoid.tokens.tokenizer import Tokenizer
from scsigmoid.tokens.vocabulary import Vocabulary, build_vocabulary


def replace(file, name, values, kind="array"):
    """Replace a dataset or a group by an array as anndata stores it."""
    del file[name]
    attributes = {"encoding-type": kind, "encoding-version": "0.2.0"}
    file.create_dataset(name, data=values).attrs.update(attributes)


def change(name, place, value):
    """Return a function that changes a value of a dataset."""
    return lambda file: file[name].__setitem__(place, value)


def filtered(number, content):
    """Return a function that stores the values as a chunk with this content and HDF5 filter."""

    def store(file):
        stored = file["X/data"]
        space = h5py.h5s.create_simple(stored.shape)
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(stored.shape)
        properties.set_filter(number, h5py.h5z.FLAG_OPTIONAL, (4,))  # the level, if it is gzip
        del file["X/data"]
        data = h5py.h5d.create(file["X"].id, b"data", h5py.h5t.IEEE_F32LE, space, properties)
        data.write_direct_chunk((0,), content)

    return store


STORAGES = {"csr": sp.csr_matrix, "csc": sp.csc_matrix, "dense": np.asarray}
LABELS = "obs/cell_type"
LATIN = np.array([b"Caf\xe9"] * 30, dtype=h5py.string_dtype())  # stored as if it were UTF-8
ONE_VALUE = "column 'cell_type' of obs must have one text, number or category per row"
# Storage of the matrix, change of the file, and message, or None if the file can be read.
FAULTS = {
    "a filter": ("csr", filtered(300, b"compressed"), "compressed by .* pip install hdf5plugin"),
    "a damaged chunk": ("csr", filtered(1, b"not gzip"), r"damaged \(Can.t .*read data"),
    "a column outside": ("csr", change("X/indices", 7, 10_000), "damaged"),
    "a row outside": ("csc", change("X/indices", 7, 10_000), "damaged"),
    # Such a row could need a block of any size.
    "a row with more values than genes": ("csr", change("X/indptr", slice(1, None), 99), "damaged"),
    "no data": ("csr", lambda file: file["X"].pop("data"), "X is not a matrix as anndata"),
    "one dimension": ("dense", lambda f: replace(f, "X", [1.0, 2.0]), "X is not a matrix as"),
    "float16": ("dense", lambda f: replace(f, "X", np.ones((30, 12), "f2")), "X contains float16;"),
    "layers that are not a group": ("csr", lambda f: replace(f, "layers", [1]), None),
    "short labels": ("csr", lambda f: replace(f, LABELS, ["T cell"] * 4), "damaged"),
    "labels in Latin-1": (
        "csr",
        lambda file: replace(file, LABELS, LATIN, "string-array"),
        "column 'cell_type': .* text in UTF-8",
    ),
    "labels in Latin-1, of a fixed length": (
        "csr",
        lambda file: replace(file, LABELS, np.array([b"Caf\xe9"] * 30)),
        "column 'cell_type': .* text in UTF-8",
    ),
    "the name of the index in Latin-1": (
        "csr",
        lambda file: file["obs"].attrs.update(_index=np.bytes_(b"\xe9")),
        "damaged",
    ),
    "labels of pairs": ("csr", lambda f: replace(f, LABELS, np.zeros(30, "i4,f4")), ONE_VALUE),
    "labels of two columns": ("csr", lambda f: replace(f, LABELS, np.zeros((30, 2))), ONE_VALUE),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_in_hdf5(fault, counts, write_h5ad):
    """Wrong indices would make compiled loops read outside the matrix."""
    storage, make_fault, message = FAULTS[fault]
    path = write_h5ad(STORAGES[storage](counts.astype(np.float32)))
    with h5py.File(path, "r+") as file:
        make_fault(file)

    def read() -> int:
        cells = open_cells(path)
        cells.obs(["cell_type"])
        return sum(chunk.counts.sum() for chunk in cells.chunks())

    if message is None:
        assert read() == counts.sum()
    else:
        with pytest.raises(UserError, match=rf"cells\.h5ad: {message}"):
            read()


@pytest.mark.parametrize("name", [LABELS, f"{LABELS}/codes", "obs/_index", "var/_index"])
def test_a_dtype_in_place_of_an_array(name, counts, write_h5ad):
    """Damage of a few bits makes a stored dtype of an array, which was a traceback."""
    is_categorical = name.endswith("codes")
    types = pd.Categorical(["T", "B"] * 15) if is_categorical else ["T", "B"] * 15
    path = write_h5ad(counts, obs={"cell_type": types})
    with h5py.File(path, "r+") as file:
        del file[name]
        file[name] = np.dtype("i8")
    with pytest.raises(UserError, match=r"cells\.h5ad: "):
        open_cells(path).obs(["cell_type"])


def test_categories_of_fixed_length(counts, write_h5ad):
    path = write_h5ad(counts, obs={"cell_type": pd.Categorical(["T", "B", None] * 10)})
    with h5py.File(path, "r+") as file:
        replace(file, f"{LABELS}/categories", np.array([b"B", b"T"]))
    assert open_cells(path).obs(["cell_type"])["cell_type"][:3].tolist() == ["T", "B", ""]


def test_flipped_bit_of_a_gene_id(counts, write_h5ad, tmp_path):
    """A flipped bit makes an id of another gene, which HDF5 does not detect."""
    path = write_h5ad(sp.csr_matrix(counts.astype(np.float32)))
    part, held, metadata = hold_out(path, tmp_path / "run")
    statistics, vocabulary = tmp_path / "statistics.arrow", tmp_path / "vocabulary.parquet"
    gather(part, statistics)
    build_vocabulary([statistics], 1, vocabulary)
    statistics.unlink()
    tokenizer = Tokenizer(Vocabulary.read(vocabulary), 9, 25)
    store = tmp_path / "store"
    for file, remake, read in (
        (path, part, lambda: gather(part, statistics)),
        (path, part, lambda: tokenize_part(part, tokenizer, store)),
        (held, held, lambda: tokenize_evaluation(held, metadata, tokenizer, store)),
    ):
        whole = file.read_bytes()
        place = whole.index(b"ENSG00000000004") + 14
        file.write_bytes(whole[:place] + b"5" + whole[place + 1 :])
        message = rf"{file}: damaged or changed.*delete {remake} and run"
        with pytest.raises(UserError, match=message):
            read()
        file.write_bytes(whole)
        assert not statistics.exists()
        assert not store.exists()


@pytest.mark.parametrize("signature", [b"TREE", b"HEAP", b"SNOD"])
def test_damaged_groups(signature, counts, write_h5ad):
    """h5py raises errors of many types. Damage to a group that is not needed does not matter."""
    path = write_h5ad(sp.csr_matrix(counts.astype(np.float32)))
    whole = path.read_bytes()
    place, refused = whole.find(signature), 0
    while place >= 0:
        path.write_bytes(whole[:place] + b"X" + whole[place + 1 :])
        try:
            assert sum(chunk.counts.sum() for chunk in open_cells(path).chunks()) == counts.sum()
        except UserError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
            refused += 1
        place = whole.find(signature, place + 1)
    assert refused


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_pipes_and_devices_are_not_read(make, tmp_path):
    make(tmp_path / "cells.h5ad")
    with pytest.raises(UserError, match=r"no such file"):
        open_cells(tmp_path / "cells.h5ad")


def test_values_that_are_objects_or_references(counts, write_h5ad):
    path = write_h5ad(counts)
    with h5py.File(path, "r+") as file:
        reference = file["X"].ref
        del file[LABELS]
        file.create_dataset(LABELS, data=[reference] * len(counts), dtype=h5py.ref_dtype)
    with pytest.raises(UserError, match=ONE_VALUE):
        open_cells(path).obs(["cell_type"])
    with h5py.File(path, "r+") as file:
        attributes = dict(file["X"].attrs)
        del file["X"]
        text = np.full(counts.shape, b"2", dtype=object)
        file.create_dataset("X", data=text, dtype=h5py.string_dtype()).attrs.update(attributes)
    with pytest.raises(UserError, match=r"cells\.h5ad: X contains object; store raw counts"):
        open_cells(path)
