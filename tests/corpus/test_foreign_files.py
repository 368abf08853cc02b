"""Files of other programs: damaged HDF5, other layouts, proteins, other gene names."""

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from stages import dense, local_corpus, make_evaluation, make_manifest, make_part
from tenx import tenx_file, tenx_folder

from scsigmoid.config.schema import Dataset, LocalFiles
from scsigmoid.corpus.genes import compare_genes
from scsigmoid.corpus.h5ad import cells_of_part, open_cells
from scsigmoid.errors import UserError
from scsigmoid.tokens.make import Tokenizer
from scsigmoid.tokens.stage import tokenize_evaluation, tokenize_part
from scsigmoid.tokens.statistics import gather
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


def test_categories_of_fixed_length(counts, write_h5ad):
    path = write_h5ad(counts, obs={"cell_type": pd.Categorical(["T", "B", None] * 10)})
    with h5py.File(path, "r+") as file:
        replace(file, f"{LABELS}/categories", np.array([b"B", b"T"]))
    assert open_cells(path).obs(["cell_type"])["cell_type"][:3].tolist() == ["T", "B", ""]


def local(path, **settings):
    return local_corpus(LocalFiles(files=str(path), **settings))


GENES = {
    "human": [f"GENE{index}" for index in range(9000)],
    "mouse": [*(f"GENE{index}" for index in range(190)), *(f"Gene{i}" for i in range(8810))],
    "ids": [f"ENSG{index:011d}" for index in range(9000)],
    "mouse ids": [f"ENSMUSG{index:011d}" for index in range(9000)],
    "half": [*(f"ENSG{index:011d}" for index in range(4600)), *(f"GENE{i}" for i in range(4400))],
    "panel": [f"GENE{index}" for index in range(0, 9000, 90)],
}


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [
        ("human", "mouse", ""),
        ("human", "ids", ""),
        ("human", "half", "warning: {1}: 4,400 of 9,000 genes are among the 9,000 genes of {0} ("),
        ("panel", "human", "{0}: 100 of 100 genes are in {1}"),
        ("ids", "mouse ids", "{1}: 9,000 genes, such as 'ENSMUSG00000000000'"),
    ],
)
def test_genes_that_files_share(first, second, line, write_h5ad, capfd):
    """Files that hardly share genes are refused."""
    paths = [
        write_h5ad(sp.eye(3, len(GENES[name]), format="csr"), genes=GENES[name], name=name)
        for name in (first, second)
    ]
    files = {path: open_cells(path) for path in paths}
    if not line:
        message = f"^{paths[1]}: .* genes are among the 9,000 genes of {paths[0]} "
        with pytest.raises(UserError, match=message):
            compare_genes(files)
        return
    compare_genes(files)
    assert line.format(*paths) in capfd.readouterr().err


DATASETS = {"mine": Dataset(title="Mine")}
SYMBOL = [f"GENE{index}" for index in range(12)]
ID = [f"ENSG{index:011d}" for index in range(12)]


def test_a_layer_and_a_column_of_genes(counts, write_h5ad, tmp_path):
    """Counts in a layer next to normalized values, and ids in a column next to symbols."""
    path = write_h5ad(np.log1p(counts).astype(np.float32), genes=SYMBOL, var={"gene_ids": ID})
    adata = anndata.read_h5ad(path)
    adata.layers["counts"] = sp.csr_matrix(counts.astype(np.float32))
    adata.write_h5ad(path)
    folder = tmp_path / "run"
    corpus = local(path, layer="counts", genes="gene_ids", held_out=0.2, name="mine")
    make_manifest(corpus, DATASETS, folder)
    [(_, trained)] = cells_of_part(make_part(corpus, folder))
    held = open_cells(make_evaluation(corpus, "mine", DATASETS["mine"], folder)[0])
    others = np.setdiff1d(np.arange(30), trained.rows)
    for cells, rows in ((trained, trained.rows), (held, others)):
        assert (cells.genes, cells.names) == (ID, SYMBOL)
        np.testing.assert_array_equal(dense(cells), counts[rows])
    for wrong, message in (
        ({}, r"layers\['counts'\] .* 'layer'"),
        ({"layer": "count"}, "no layer 'count'; its layers: 'counts'"),
        ({"layer": "counts", "genes": "gene_id"}, "var has no column 'gene_id' for the genes"),
    ):
        with pytest.raises(UserError, match=message):
            open_cells(path, **wrong)


PEAKS = [f"chr1:{index}-{index + 1}" for index in range(8)]
MULTIOME = ["Gene Expression"] * 4 + ["Peaks"] * 8
SEVERAL = "several columns with Ensembl ids, or missing values"


def test_ids_in_several_columns_or_with_gaps(counts, write_h5ad, capfd):
    for index, var, line in (
        (SYMBOL, {"b": ID, "a": ID[::-1]}, f"var['b'] and var['a']: {SEVERAL}"),
        (SYMBOL, {"ids": [*ID[:11], ""]}, f"var['ids']: {SEVERAL}"),
        (ID, {"old": ID[::-1]}, ""),
    ):
        path = write_h5ad(counts, genes=index, var=var)
        assert open_cells(path).genes == index
        log = capfd.readouterr().err
        assert f"{path}: {line}" in log if line else not log


@pytest.mark.parametrize(
    ("index", "var", "genes"),
    [
        (SYMBOL, {"ids": ID}, ID),
        ([*SYMBOL[:4], *PEAKS], {"feature_types": MULTIOME, "ids": [*ID[:4], *PEAKS]}, ID[:4]),
    ],
)
def test_the_only_column_with_ids_is_used(index, var, genes, counts, write_h5ad, tmp_path, capfd):
    """The manifest names the column, so the choice of the column is logged once."""
    path, folder = write_h5ad(counts, genes=index, name="mine", var=var), tmp_path / "run"
    corpus = local(path, held_out=0.2, name="mine")
    make_manifest(corpus, DATASETS, folder)
    [(row, cells)] = cells_of_part(make_part(corpus, folder))
    assert (row.genes, cells.genes) == ("ids", genes)
    assert open_cells(make_evaluation(corpus, "mine", DATASETS["mine"], folder)[0]).genes == genes
    log = capfd.readouterr().err
    assert log.count(f"{path}: genes by var['ids'], which has Ensembl ids") == 1
    assert log.count("Ensembl ids") == 1


@pytest.mark.parametrize("kind", ["folder", "prefixed folder", "file"])
def test_tenx(kind, counts, tmp_path, capfd):
    kinds = ["Gene Expression"] * 11 + ["Antibody Capture"]
    if kind == "file":
        path = tenx_file(tmp_path / "sample.h5", counts, kinds)
    else:
        path = tenx_folder(tmp_path / "sample", counts, "GSM1_" * (kind != "folder"), kinds)
    corpus, folder = local(path), tmp_path / "run"
    make_manifest(corpus, {}, folder)
    [(_, cells)] = cells_of_part(make_part(corpus, folder))
    assert cells.genes == ID[:11]
    np.testing.assert_array_equal(dense(cells), counts[:, :11])
    assert "1 'Antibody Capture'" in capfd.readouterr().err
    changed = next(iter(path.iterdir())) if path.is_dir() else path
    changed.write_bytes(changed.read_bytes() + b"\n")
    with pytest.raises(UserError, match="changed since the manifest was made"):
        make_part(corpus, folder)


def test_other_h5_files(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["data"] = [1, 2]
    with pytest.raises(UserError, match=r"other\.h5: not a 10x file or folder that scanpy reads"):
        make_manifest(local(tmp_path / "other.h5"), {}, tmp_path)


def test_flipped_bit_of_a_gene_id(counts, write_h5ad, tmp_path):
    """A flipped bit makes an id of another gene, which HDF5 does not detect."""
    path, folder = write_h5ad(sp.csr_matrix(counts.astype(np.float32))), tmp_path / "run"
    corpus = local(path, held_out=0.2, name="mine")
    make_manifest(corpus, DATASETS, folder)
    part = make_part(corpus, folder)
    held, metadata = make_evaluation(corpus, "mine", DATASETS["mine"], folder)
    statistics, vocabulary = tmp_path / "statistics.arrow", tmp_path / "vocabulary.parquet"
    gather(part, 10_000, statistics)
    build_vocabulary([statistics], 1, vocabulary)
    statistics.unlink()
    tokenizer = Tokenizer(Vocabulary.read(vocabulary), 10_000, 9, 25)
    store = tmp_path / "store"
    for file, remake, read in (
        (path, part, lambda: gather(part, 10_000, statistics)),
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
