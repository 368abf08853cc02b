"""Genes of real files and of the package, compared with GENCODE."""

import csv
import gzip

import pytest

from scsigmoid.corpus.genes import check_shared, real_genes
from scsigmoid.corpus.h5ad import open_cells

GENES = real_genes()
IDS, NAMES = ([gene[key] for gene in GENES] for key in ("gene_id", "feature_name"))


@pytest.fixture
def gencode(real_data):
    """Names of human genes by id."""
    with gzip.open(real_data / "gencode_genes.csv.gz", "rt") as handle:
        return {row[0]: row[1] for row in csv.reader(handle)}


@pytest.mark.parametrize("file", ["pbmc_facs", "pbmc_3k", "cellxgene_schema_sample"])
def test_real_files_have_few_contradictions(file, real_data, gencode, capfd):
    path = real_data / f"{file}.h5ad"
    check_shared(open_cells(path), gencode, path, "GENCODE")
    assert "warning" not in capfd.readouterr().err


def test_gene_table_agrees_with_gencode(gencode):
    assert [gencode[gene] for gene in IDS] == NAMES
