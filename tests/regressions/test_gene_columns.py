"""Genes of a file: columns of ids, kinds of features, and ids that contradict the names."""

from pathlib import Path

import anndata
import numpy as np
import pytest
import scipy.sparse as sp
from stages import dense, hold_out

from scsigmoid.corpus.genes import check_shared, compare_genes, is_id, real_genes
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.held_out import cells_of_part
from scsigmoid.errors import UserError

GENES = real_genes()
IDS, NAMES = ([gene[key] for gene in GENES] for key in ("gene_id", "feature_name"))
MADE_UP = [f"ENSG9{index:010d}" for index in range(100)]
SYMBOLS = [f"SIM{index}" for index in range(100)]


@pytest.fixture
def write(write_h5ad):
    """Write five cells: ``write(index of var, name, columns of var)`` returns the path."""

    def write_file(index, name="cells", **var):
        counts = np.random.default_rng(0).poisson(2, (5, len(index)))
        return write_h5ad(counts, genes=list(index), name=name, var=var)

    return write_file


def compare(*paths):
    compare_genes({path: open_cells(path) for path in paths})


def test_a_column_of_repeated_values_is_refused(write):
    """Otherwise all counts would become counts of one gene."""
    path = write(IDS, feature_biotype="gene", genome=["GRCh38", "mm10"] * 380)
    with pytest.raises(UserError, match=r"\['feature_biotype'\] has only 1 different values"):
        open_cells(path, genes="feature_biotype")
    with pytest.raises(UserError, match=r"\['genome'\] has only 2 different values for 760"):
        open_cells(path, genes="genome")
    assert len(open_cells(write([*IDS[:700], *IDS[:60]])).genes) == 700


def test_the_share_of_known_genes_counts_each_feature(write, capfd):
    cells = open_cells(write([*IDS[:400], *["ENSG99999999999"] * 350]))
    check_shared(cells, dict(zip(IDS, NAMES, strict=True)), cells.title, "the vocabulary")
    assert "400 of 750 genes are in the vocabulary" in capfd.readouterr().err


def test_ids_of_other_genes_than_the_names(write):
    paths = [
        write(IDS, "names", feature_name=[NAMES[-1], *NAMES[:-1]]),
        write(NAMES, "ids", nearest_gene=[*IDS[1:], IDS[0]]),
    ]
    for path in paths:
        # The names of the other three genes are not in GENCODE.
        with pytest.raises(UserError, match="757 of 757 genes have the id of one gene and the "):
            compare(path)


def test_names_of_another_file(write, capfd):
    right = write(MADE_UP, "right", feature_name=SYMBOLS)
    part = write(MADE_UP, "part", feature_name=[*SYMBOLS[10:20], *SYMBOLS[:10], *SYMBOLS[20:]])
    compare(right, part)
    assert f"warning: {part}: 20 of 100 genes have the id" in capfd.readouterr().err
    with pytest.raises(UserError, match="100 of 100 genes have the id of one gene"):
        compare(right, write(MADE_UP, "wrong", feature_name=SYMBOLS[::-1]))


def test_renamed_genes_are_not_contradictions(write, capfd):
    """Old names, and names as R spells them."""
    renamed = ["older name" if index % 3 else name for index, name in enumerate(NAMES)]
    spelled = [name.replace("-", ".").lower() for name in NAMES]
    compare(
        write(IDS, "renamed", feature_name=renamed),
        write(IDS, "spelled", feature_name=spelled),
        write([f"{gene}.3" for gene in IDS], "versions"),
    )
    assert "warning" not in capfd.readouterr().err


def test_versioned_ids_are_not_names(write, capfd):
    """Files without symbols, as STARsolo writes them, neither hide names nor contradict them."""
    retired = [f"ENSG8{index:010d}" for index in range(100)]
    versions = write([f"{gene}.3" for gene in MADE_UP], "versions")
    assert open_cells(versions).names == MADE_UP
    older = write([*retired, *MADE_UP[:50]], "older", feature_name=[*SYMBOLS, *MADE_UP[:50]])
    newer = write(MADE_UP, "newer", feature_name=SYMBOLS)
    compare(older, versions, newer)
    assert "warning" not in capfd.readouterr().err
    with pytest.raises(UserError, match="100 of 100 genes have the id of one gene"):
        compare(newer, versions, write(MADE_UP, "wrong", feature_name=SYMBOLS[::-1]))


def test_proteins_among_ensembl_ids_are_named(write, capfd):
    open_cells(write([*IDS[:50], "CD4", "CD14", "ERCC-00002"]))
    assert ": 2 of 53 genes have no Ensembl id (CD4, CD14);" in capfd.readouterr().err
    open_cells(write([*IDS[:20], *NAMES[20:50]]))
    assert "warning" not in capfd.readouterr().err


EXPRESSION = "Gene Expression"


@pytest.mark.parametrize(
    ("biotypes", "types", "kept", "log"),
    [
        ([], [EXPRESSION] * 9 + ["Antibody Capture"] * 3, 9, "3 'Antibody Capture'"),
        ([], ["protein_coding"] * 6 + ["lncRNA"] * 6, 12, ""),
        ([], [EXPRESSION] * 2 + [None] * 10, 12, ""),
        ([], [EXPRESSION] * 2 + ["Gene"] * 9 + ["HTO"], 11, "expression: 9 'Gene'"),
        (["gene"] * 11 + ["spike-in"], [EXPRESSION] * 3 + ["protein"] * 9, 11, "1 are left out"),
        (["protein_coding"] * 12, [EXPRESSION] * 3 + ["protein"] * 9, 3, "9 'protein'"),
    ],
)
@pytest.mark.parametrize("column", ["feature_types", "feature_type"])
def test_kinds_of_features(column, biotypes, types, kept, log, write, capfd):
    path = write(IDS[:12], **{column: types}, **({"feature_biotype": biotypes} if biotypes else {}))
    cells = open_cells(path)
    assert cells.genes == IDS[:kept]
    np.testing.assert_array_equal(dense(cells), anndata.read_h5ad(path).X[:, :kept])
    messages = capfd.readouterr().err
    assert log in messages
    assert log or not messages


@pytest.mark.parametrize("kind", ["antibody_capture", "Antibody-Derived Tag", "CITE"])
@pytest.mark.parametrize("genes", [IDS[:9], NAMES[:9]])
def test_proteins_of_other_kinds(kind, genes, write, capfd):
    """They became genes, and were added to a gene of the same name."""
    expression = EXPRESSION if kind[0].isupper() else "gene_expression"
    index = [*genes, "CD4", genes[0] if genes[0] == NAMES[0] else "CD14"]
    path = write(index, feature_types=[expression] * 9 + [kind] * 2)
    cells = open_cells(path)
    assert cells.genes == genes
    np.testing.assert_array_equal(dense(cells), anndata.read_h5ad(path).X[:, :9])
    messages = capfd.readouterr().err
    assert f"2 {kind!r}" in messages
    assert "left out" in messages


FILES_OF_GENES = {
    "human": [f"GENE{index}" for index in range(9000)],
    "mouse": [*(f"GENE{index}" for index in range(190)), *(f"Gene{i}" for i in range(8810))],
    "ids": [f"ENSG{index:011d}" for index in range(9000)],
    "mouse ids": [f"ENSMUSG{index:011d}" for index in range(9000)],
    "half": [*(f"ENSG{index:011d}" for index in range(4600)), *(f"GENE{i}" for i in range(4400))],
    "panel": [f"GENE{index}" for index in range(0, 9000, 90)],
    "ids and symbols": [*(f"ENSG{index:011d}" for index in range(9000)), *("Y_RNA-1", "7SK-1")],
}


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [
        ("human", "mouse", ""),
        ("human", "ids", ""),
        ("human", "half", "warning: {1}: 4,400 of 9,000 genes are among the 9,000 genes of {0} ("),
        ("panel", "human", "{0}: 100 of 100 genes are in {1}"),
        ("ids", "mouse ids", "{1}: 9,000 genes, such as 'ENSMUSG00000000000'"),
        ("ids and symbols", "mouse ids", "{1}: 9,000 genes, such as 'ENSMUSG00000000000'"),
    ],
)
def test_genes_that_files_share(first, second, line, write_h5ad, capfd):
    """Files that hardly share genes are refused."""
    paths = [
        write_h5ad(sp.eye(3, len(genes), format="csr"), genes=genes, name=name)
        for name, genes in ((name, FILES_OF_GENES[name]) for name in (first, second))
    ]
    files = {path: open_cells(path) for path in paths}
    if not line:
        message = f"^{paths[1]}: .* genes are among the 9,000 genes of {paths[0]} "
        with pytest.raises(UserError, match=message):
            compare_genes(files)
        return
    compare_genes(files)
    assert line.format(*paths) in capfd.readouterr().err


SYMBOL = [f"GENE{index}" for index in range(12)]
ID = [f"ENSG{index:011d}" for index in range(12)]
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
    path = write_h5ad(counts, genes=index, var=var)
    part, held, _ = hold_out(path, tmp_path / "run")
    [(row, cells)] = cells_of_part(part)
    assert (row.genes, cells.genes) == ("ids", genes)
    assert open_cells(held).genes == genes
    log = capfd.readouterr().err
    assert log.count(f"{path}: genes by var['ids'], which has Ensembl ids") == 1
    assert log.count("Ensembl ids") == 1


def test_many_files_with_the_same_genes(monkeypatch, write):
    """The genes of all earlier files were read again for each file."""
    calls = 0

    def count_calls(value):
        nonlocal calls
        calls += 1
        return is_id(value)

    monkeypatch.setattr("scsigmoid.corpus.genes.is_id", count_calls)
    cells = open_cells(write(IDS))
    numbers = []
    for n_files in (5, 10):
        calls = 0
        compare_genes({Path(f"{number}"): cells for number in range(n_files)})
        numbers.append(calls)
    assert numbers[1] < 3 * numbers[0]
