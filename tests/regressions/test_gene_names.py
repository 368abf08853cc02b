"""Models and files that name genes by Ensembl id, by symbol, or some by each."""

import dataclasses
from collections import Counter

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from small_models import write_model
from stages import dense, local_corpus, make_evaluation, make_manifest, make_part, write_cells
from tokens.conftest import tokenized, vocabulary_of

import scsigmoid as ss
from scsigmoid.cells.embed_file import embed_file
from scsigmoid.config.schema import Dataset, LocalFiles
from scsigmoid.corpus.embedded import real_cells
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.held_out import cells_of_part
from scsigmoid.corpus.metadata import read_manifest
from scsigmoid.errors import UserError
from scsigmoid.model.weights import load_vocabulary
from scsigmoid.tokens.known_genes import known_ids
from scsigmoid.tokens.make_stores import tokenize_evaluation
from scsigmoid.tokens.statistics import gather
from scsigmoid.tokens.store import TokenStore
from scsigmoid.tokens.tokenizer import Tokenizer
from scsigmoid.tokens.vocabulary import Vocabulary, build_vocabulary


@pytest.fixture(scope="module")
def blood():
    return ss.load("blood", device="cpu")


@pytest.fixture(scope="module")
def table(blood):
    """Real cells, with the symbols that the model has."""
    table = real_cells(42, held_out=True)
    pairs = zip(table.genes, table.names, strict=True)
    names = [blood.vocabulary.name_of.get(gene, name) for gene, name in pairs]
    return dataclasses.replace(table, names=names)


def renamed(model, is_symbol):
    """Return the model as if it had been trained on files with symbols in place of some ids."""
    vocabulary = model.vocabulary
    times = Counter(vocabulary.names)
    pairs = enumerate(zip(vocabulary.gene_ids, vocabulary.names, strict=True))
    genes = tuple(
        name if is_symbol(token) and times[name] == 1 else gene for token, (gene, name) in pairs
    )
    return dataclasses.replace(model, vocabulary=dataclasses.replace(vocabulary, gene_ids=genes))


@pytest.fixture(scope="module", params=["symbols", "both kinds"])
def model(request, blood):
    return renamed(blood, lambda token: request.param == "symbols" or token % 2)


def make(table, index, **var):
    frame = pd.DataFrame(var, index=[*index])
    adata = anndata.AnnData(csr_matrix(table.counts[:4].astype(np.float32)), var=frame)
    adata.obs_names = [*"wxyz"]
    return adata


@pytest.mark.parametrize(
    "column",
    # external_gene_name: of biomaRt
    ["feature_name", "gene_symbols", "Symbol", "gene_name", "external_gene_name", "GeneSymbol", ""],
)
def test_cells_with_ids_and_symbols(column, table, blood, model, tmp_path):
    """The names of the genes of one model do not change the embedding."""
    adata = make(table, table.genes, **{column: [*table.names]} if column else {})
    if not column:  # symbols in the index, ids in a column
        adata = make(table, table.names, ids=[*table.genes])
    adata.write_h5ad(tmp_path / "cells.h5ad")
    by_id = make(table, table.genes)
    ss.embed(by_id, blood)
    ss.embed(adata, model)
    np.testing.assert_array_equal(adata.obsm["X_scsigmoid"], by_id.obsm["X_scsigmoid"])
    embed_file(tmp_path / "cells.h5ad", model, tmp_path / "out.h5ad")
    result = anndata.read_h5ad(tmp_path / "out.h5ad")
    np.testing.assert_allclose(result.obsm["X_scsigmoid"], by_id.obsm["X_scsigmoid"], atol=2e-5)


def test_cells_with_ids_only(table, blood):
    """The message says how the model names genes, not to use the ids that the file has."""
    symbols = renamed(blood, lambda token: True)
    with pytest.raises(UserError, match=r"adata: no gene in common .* symbol"):
        ss.embed(make(table, table.genes), symbols)


def test_symbols_of_another_organism(table, blood):
    """A few symbols of mouse, such as C3, are spelled as those of human genes."""
    with pytest.raises(UserError, match=r"adata: .* such as '[A-Z][a-z].* another organism"):
        ss.embed(make(table, map(str.capitalize, table.names)), blood)


IDS = [f"ENSG{gene:011d}" for gene in range(40)]
SYMBOLS = [f"GENE{gene}" for gene in range(40)]
COUNTS = np.random.default_rng(0).poisson(1.5, (60, 40))


def test_training_on_files_of_both_kinds(tmp_path):
    """Genes with the same symbol have one token, and copies of held-out cells are left out."""
    ids = write_cells(tmp_path / "ids.h5ad", COUNTS[:40], genes=IDS, var={"gene_name": SYMBOLS})
    order = np.random.default_rng(1).permutation(40)
    genes = [SYMBOLS[gene] for gene in order]
    symbols = write_cells(tmp_path / "symbols.h5ad", COUNTS[20:][:, order], genes=genes)
    corpus = local_corpus(
        LocalFiles(files=str(ids), held_out="batch=b", name="mine"), LocalFiles(files=str(symbols))
    )
    adata = anndata.read_h5ad(ids)
    adata.obs["batch"] = ["a"] * 20 + ["b"] * 20
    adata.write_h5ad(ids)
    datasets = {"mine": Dataset(title="Mine")}
    make_manifest(corpus, datasets, tmp_path)
    excluded = {row.file: row.excluded for row in read_manifest(tmp_path / "manifest.csv")}
    assert excluded["symbols"] == "0-19"

    part = make_part(corpus, tmp_path)
    gather(part, tmp_path / "statistics.arrow")
    build_vocabulary([tmp_path / "statistics.arrow"], 1, tmp_path / "vocabulary.parquet")
    vocabulary = Vocabulary.read(tmp_path / "vocabulary.parquet")
    assert [*vocabulary.gene_ids[4:]] == IDS
    assert [*vocabulary.names[4:]] == SYMBOLS
    trained = COUNTS[[*range(20), *range(40, 60)]]
    assert vocabulary.cells[4:].tolist() == (trained > 0).sum(axis=0).tolist()
    tokenizer = Tokenizer(vocabulary, 99, 99)
    found = [cells for _, cells in cells_of_part(part)]
    found.append(open_cells(make_evaluation(corpus, "mine", datasets["mine"], tmp_path)[0]))
    for cells in found:
        lengths = [batch["genes"].to_pylist() for batch in tokenizer.batches(cells, "", "x")]
        np.testing.assert_array_equal(np.concatenate(lengths), (dense(cells) > 0).sum(axis=1))


@pytest.mark.parametrize("has_ids", [True, False])
def test_names_with_line_breaks(has_ids, tmp_path):
    """The trained model could not be loaded: "its vocabulary is damaged"."""
    broken = ["GE\tNE\r\n0", *(f"{name}\n" for name in SYMBOLS[1:36])]
    genes, var = (IDS[:36], {"feature_name": broken}) if has_ids else (broken, None)
    path = write_cells(tmp_path / "a.h5ad", COUNTS[:, :36], genes=genes, var=var)
    corpus = local_corpus(LocalFiles(files=str(path)))
    make_manifest(corpus, {}, tmp_path)
    gather(make_part(corpus, tmp_path), tmp_path / "statistics.arrow")
    build_vocabulary([tmp_path / "statistics.arrow"], 1, tmp_path / "vocabulary.parquet")
    vocabulary = Vocabulary.read(tmp_path / "vocabulary.parquet")
    assert {*vocabulary.names[4:]} == {"GE NE 0", *SYMBOLS[1:36]}
    assert load_vocabulary(write_model(tmp_path, "sigmoid", vocabulary)).names == vocabulary.names


def test_names_with_spaces(tmp_path):
    """Models of earlier versions lost these genes without a message."""
    genes = ["GENE 0", "GENE  1", "GENE2 ", *SYMBOLS[3:36]]
    path = write_cells(tmp_path / "a.h5ad", COUNTS[:, :36], genes=genes)
    assert {*open_cells(path).genes} == {*genes}


def test_proteins_are_not_taken_for_genes(tmp_path):
    """A file with ids has a protein without id, which another file has as a gene."""
    proteins = [*IDS[:39], "GENE39"]
    names = {"feature_name": [*SYMBOLS[:39], "GENE39"]}
    mixed = write_cells(tmp_path / "mixed.h5ad", COUNTS[:30], genes=proteins, var=names)
    other = write_cells(tmp_path / "other.h5ad", COUNTS[30:], genes=IDS, var={"symbol": SYMBOLS})
    corpus = local_corpus(LocalFiles(files=str(mixed)), LocalFiles(files=str(other)))
    make_manifest(corpus, {}, tmp_path)
    gather(make_part(corpus, tmp_path), tmp_path / "statistics.arrow")
    build_vocabulary([tmp_path / "statistics.arrow"], 1, tmp_path / "vocabulary.parquet")
    vocabulary = Vocabulary.read(tmp_path / "vocabulary.parquet")
    assert {*vocabulary.gene_ids[4:]} == {*IDS, "GENE39"}
    assert not vocabulary.retired


def test_real_genes_with_ids_of_several_releases(real_data, write_part, tmp_path):
    """pbmc_facs has older ids than pbmc_1k. It has two genes CRYBG3, which are not merged."""
    names = ["CCL5", "TXNIP", "RBM8A", "MRPS21", "PSMB3", "FCER1A", "PPBP", "NME2"]
    paths = [real_data / f"{file}.h5ad" for file in ("pbmc_facs", "pbmc_1k", "pbmc_donor_a")]
    folder = write_part("part", paths)
    vocabulary = vocabulary_of(folder)
    assert all(vocabulary.names.count(name) == 1 for name in names)
    assert vocabulary.names.count("CRYBG3") > 1
    store = tokenized(folder, vocabulary, tmp_path / "store", 20_000)
    files = store.metadata(["file"])["file"]
    cells = np.repeat(np.arange(len(store)), store.lengths)
    tokens = store.cells(range(len(store)), 20_000).tokens
    for number, path in enumerate(paths):
        adata = anndata.read_h5ad(path)
        var, counts = (adata.raw.var, adata.raw.X) if adata.raw else (adata.var, adata.X)
        counts, here = counts.tocsc(), files == f"file{number}"
        for name in names[: -1 if number == 0 else None]:  # NME2 has another name in pbmc_facs
            expressed = np.asarray(counts[:, (var["feature_name"] == name).to_numpy()].sum(axis=1))
            has_token = cells[tokens == vocabulary.names.index(name)]
            assert here[has_token].sum() == (expressed > 0).sum(), (path, name)


def with_raw(adata, index, **var):
    """Return cells with counts in ``raw``, whose ``var`` has this index and no columns."""
    raw = anndata.AnnData(adata.X, adata.obs, pd.DataFrame(index=[*index]))
    adata.X = adata.X.log1p()
    adata.raw = raw
    return adata


@pytest.mark.parametrize("case", ["symbols", "ids", "numbers", "other index", "genes=..."])
def test_raw_var_without_the_ids_or_symbols_that_var_has(case, table, blood, tmp_path):
    """The embedding has the same bits as that of cells whose ``raw.var`` has both."""
    ids, symbols, numbers = [*table.genes], [*table.names], [*map(str, range(len(table.genes)))]
    model, options = blood, {}
    if case == "symbols":  # symbols are in var, and the model was trained on symbols
        model = renamed(blood, lambda token: True)
        adata = with_raw(make(table, ids, gene_symbols=symbols), ids)
    elif case == "ids":  # the symbols in the index are unknown to the model
        unknown = [f"x{number}" for number in numbers]
        adata = with_raw(make(table, unknown, gene_ids=ids), unknown)
    elif case == "numbers":
        adata = with_raw(make(table, numbers, gene_ids=ids), numbers)
    elif case == "other index":  # as `adata.var_names = adata.var["gene_symbols"]` leaves it
        model = renamed(blood, lambda token: True)
        adata = with_raw(make(table, symbols, gene_ids=ids), ids)
    else:
        adata = with_raw(make(table, numbers, first=ids, second=ids[::-1]), numbers)
        options = {"genes": "first"}
    adata.write_h5ad(tmp_path / "cells.h5ad")
    by_id = make(table, table.genes)
    ss.embed(by_id, blood)
    ss.embed(adata, model, **options)
    np.testing.assert_array_equal(adata.obsm["X_scsigmoid"], by_id.obsm["X_scsigmoid"])
    embed_file(tmp_path / "cells.h5ad", model, tmp_path / "out.h5ad", **options)
    result = anndata.read_h5ad(tmp_path / "out.h5ad")
    np.testing.assert_allclose(result.obsm["X_scsigmoid"], by_id.obsm["X_scsigmoid"], atol=2e-5)


def test_var_with_a_part_of_the_genes_of_raw(tmp_path):
    """``var`` has the variable genes only, in another order, and a repeated symbol."""
    symbols = [*SYMBOLS[:38], "TWICE", "TWICE"]
    part = [39, 38, 5, 3, *range(10, 30)]
    variable = anndata.AnnData(np.log1p(COUNTS[:, part].astype(np.float32)))
    variable.var = pd.DataFrame(
        {"gene_ids": [IDS[gene] for gene in part]}, index=[symbols[gene] for gene in part]
    )
    raw = anndata.AnnData(COUNTS.astype(np.float32), var=pd.DataFrame(index=symbols))
    variable.raw = raw
    variable.write_h5ad(tmp_path / "cells.h5ad")
    cells = open_cells(tmp_path / "cells.h5ad")
    expected = {symbols[gene]: IDS[gene] for gene in part if gene < 38}
    assert cells.genes == [expected.get(symbol, symbol) for symbol in dict.fromkeys(symbols)]
    assert dense(cells).sum(axis=0)[:38].tolist() == COUNTS[:, :38].sum(axis=0).tolist()
    # Too few of the ids: the genes keep their symbols.
    variable[:, :5].write_h5ad(tmp_path / "few.h5ad")
    assert open_cells(tmp_path / "few.h5ad").genes == [*dict.fromkeys(symbols)]
    with pytest.raises(UserError, match=r"raw\.var has no column 'gene_ids'.*GENE0"):
        open_cells(tmp_path / "cells.h5ad", genes="gene_ids")


@pytest.mark.parametrize("part_with_ids", [0, 24])
def test_evaluation_of_genes_that_training_files_name_by_symbol(part_with_ids, tmp_path):
    """The evaluation lacked these genes, or failed if it lacked almost all, unlike `ss.embed`."""
    named = [*IDS[:part_with_ids], *SYMBOLS[part_with_ids:]]
    ids = write_cells(tmp_path / "ids.h5ad", COUNTS[40:], genes=IDS, var={"gene_name": SYMBOLS})
    files = [LocalFiles(files=str(ids), held_out=True, name="mine")]
    trained = {"symbols": (SYMBOLS, {}, COUNTS[:20])}
    if part_with_ids:
        var = {"gene_name": SYMBOLS[:part_with_ids]}
        trained["part"] = (IDS[:part_with_ids], var, COUNTS[20:40, :part_with_ids])
    for name, (genes, var, counts) in trained.items():
        path = write_cells(tmp_path / f"{name}.h5ad", counts, genes=genes, var=var)
        files.append(LocalFiles(files=str(path)))
    corpus, datasets = local_corpus(*files), {"mine": Dataset(title="Mine")}
    make_manifest(corpus, datasets, tmp_path)
    gather(make_part(corpus, tmp_path), tmp_path / "statistics.arrow")
    build_vocabulary([tmp_path / "statistics.arrow"], 1, tmp_path / "vocabulary.parquet")
    vocabulary = Vocabulary.read(tmp_path / "vocabulary.parquet")
    assert {*vocabulary.gene_ids[4:]} == {*named}
    cells, metadata = make_evaluation(corpus, "mine", datasets["mine"], tmp_path)
    tokenize_evaluation(cells, metadata, Tokenizer(vocabulary, 99, 99), tmp_path / "store")
    lengths = TokenStore.open(tmp_path / "store").lengths
    assert lengths.tolist() == (COUNTS[40:] > 0).sum(axis=1).tolist()


def test_evaluation_of_an_organism_with_few_genes_in_the_vocabulary():
    """Genes of mouse that have no token were taken for genes of another organism."""
    ids = [f"ENSMUSG{gene:011d}" for gene in range(40)]
    symbols = [name.capitalize() for name in SYMBOLS]
    name_of = dict(zip([*IDS, *ids[:10]], [*SYMBOLS, *symbols[:10]], strict=True))
    assert known_ids(ids, symbols, name_of, "mouse.h5ad") == ids


def test_files_with_symbols_of_two_organisms(tmp_path):
    """The examples in the error were two unrelated genes. Mouse symbols are in title case."""
    symbols = {"human": ["TP53", "CD4", "ACTB"], "mouse": ["Xist", "Zyx", "Cd4", "Actb"]}
    entries = []
    for number, (name, genes) in enumerate(symbols.items()):
        counts = np.random.default_rng(number).poisson(3, (12, len(genes)))
        entries.append(
            LocalFiles(files=str(write_cells(tmp_path / f"{name}.h5ad", counts, None, genes)))
        )
    with pytest.raises(UserError, match=r"human.*mouse.*'(?i:(CD4|ACTB))'.*'(?i:\1)'"):
        make_manifest(local_corpus(*entries), {}, tmp_path)
