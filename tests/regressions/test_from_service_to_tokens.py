"""From a service that answers as CELLxGENE's backend does, to training tokens."""

import dataclasses
import json
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from loopback import Loopback, uuid
from stages import hold_out, make_evaluation, make_manifest, make_part

from scsigmoid.config.schema import Corpus, Dataset
from scsigmoid.corpus.h5ad import open_cells
from scsigmoid.corpus.held_out import cells_of_part
from scsigmoid.corpus.manifest import write_lock
from scsigmoid.corpus.metadata import read_manifest
from scsigmoid.errors import UserError
from scsigmoid.files import sha256
from scsigmoid.tokens.make_stores import tokenize_evaluation, tokenize_part
from scsigmoid.tokens.statistics import gather, read_statistics
from scsigmoid.tokens.store import TokenStore
from scsigmoid.tokens.tokenizer import Tokenizer
from scsigmoid.tokens.vocabulary import Vocabulary, build_vocabulary

DAY = "2024-06-11"
VISIUM = "Visium Spatial Gene Expression V1"
HEART = {"heart": Dataset(title="Heart", id=uuid(1010), description="An organ.")}
GENES = [f"ENSG{index:011d}" for index in range(40)]


def draw(cells: int, seed: int) -> np.ndarray:
    counts = np.random.default_rng(seed).poisson(0.8, (cells, len(GENES)))
    counts[:, seed % 5] += 1
    return counts


def content(path: Path, counts: np.ndarray, schema: str, kind: str = "csr", **obs) -> bytes:
    """Return a file in a version of the schema. Counts are in ``raw.X``, or in ``X`` if not CSR."""
    genes = pd.Index([*GENES, "ERCC-00002", "ENSSASG00005000004"])
    others = np.ones((len(counts), 2)) * counts.any(axis=1, keepdims=True)
    matrix = sp.csr_matrix(np.hstack([counts, others]).astype(np.float32))
    var = pd.DataFrame({"feature_biotype": ["gene"] * 40 + ["spike-in", "gene"]}, index=genes)
    frame = pd.DataFrame(obs, index=[f"cell {row}" for row in range(len(counts))])
    x = {"csr": matrix.log1p(), "csc": matrix.tocsc(), "dense": matrix.toarray()}[kind]
    adata = anndata.AnnData(x, frame, var.assign(feature_is_filtered=False))
    if kind == "csr":
        adata.raw = anndata.AnnData(matrix, frame[[]], var)
    adata.uns = {"schema_version": schema, "title": "a title"}
    if schema >= "6":  # since then the organism is in uns
        adata.uns["organism_ontology_term_id"] = "NCBITaxon:9606"
    adata.write_h5ad(path, compression="gzip" if schema < "6" else "lzf")
    return path.read_bytes()


@pytest.fixture
def spots() -> dict[str, np.ndarray]:
    """Counts of 30 Visium spots. Ten are off the tissue. Two of the others have no counts."""
    counts = draw(30, 2)
    counts[[3, 4, 25]] = 0
    return {"counts": counts, "in_tissue": (np.arange(30) < 20).astype(np.int64)}


@pytest.fixture
def published(server: Loopback, spots, tmp_path: Path) -> Loopback:
    """Datasets of all kinds that Discover lists."""
    file, types = tmp_path / "file.h5ad", ["a", "b"] * 500
    plain = content(file, draw(400, 1), "5.0.0", cell_type=types[:400], donor_id="d")
    add = server.add
    add(1, b"older", version=101, published="2023-01-01", cells=3)
    add(1, plain, version=1, published="2024-06-11", cells=400)
    add(1, b"newer", version=102, published="2024-06-12", cells=5)
    visium = content(
        file, spots["counts"], "5.1.0", cell_type=["a", "b"] * 15, in_tissue=spots["in_tissue"]
    )
    add(2, visium, cells=30, assays=(VISIUM,), schema_version="5.1.0")
    # A file from before the analysis has no cell types and no embeddings.
    raw = content(file, draw(50, 3), "7.1.0", kind="csc", tissue=pd.Categorical(["x", None] * 25))
    add(3, raw, cells=50, schema_version="7.1.0", cell_type=[], embeddings=[])
    dense = content(file, draw(60, 4), "6.0.0", kind="dense", cell_type=types[:60])
    add(4, dense, cells=60, assays=("10x multiome",), schema_version="6.0.0")
    normalized = content(file, np.log1p(draw(9, 5)) / 3, "7.0.0", kind="dense", cell_type=types[:9])
    add(5, normalized, cells=9, assays=("10x multiome",), schema_version="7.0.0")
    add(6, b"peaks", assays=("scATAC-seq",))
    add(9, b"unreachable")
    add(10, content(file, draw(20, 6), "7.1.0", cell_type=types[:20]), cells=20, collection=50,
        published="2025-01-01")  # fmt: skip
    add(11, b"of the same collection", collection=50)
    server.script = {
        f"/curation/v1/datasets/{uuid(9)}/versions": ["504"] * 99,
        f"/{uuid(1001)}.h5ad": ["403", "well", "cut", "504", "ignores range"],
    }
    return server


def make_tokens(corpus: Corpus, folder: Path) -> tuple[Path, TokenStore, list[str]]:
    """Run all stages from manifest to tokens. Return the lock, the store and the summary."""
    lines, part = make_manifest(corpus, HEART, folder), make_part(corpus, folder)
    held = make_evaluation(corpus, "heart", HEART["heart"], folder)
    write_lock(folder / "manifest.csv", [part], [held[1]], folder / "lock.csv")
    gather(part, folder / "statistics.arrow")
    build_vocabulary([folder / "statistics.arrow"], 1, folder / "vocabulary.parquet")
    tokenizer = Tokenizer(Vocabulary.read(folder / "vocabulary.parquet"), 32, 200)
    tokenize_part(part, tokenizer, folder / "tokens")
    tokenize_evaluation(*held, tokenizer, folder / "heart")
    assert len(TokenStore.open(folder / "heart")) == 20
    return folder / "lock.csv", TokenStore.open(folder / "tokens"), lines


def test_tokens_of_a_corpus(published, corpus, spots, tmp_path, capfd):
    wanted = corpus.model_copy(update={"snapshot": DAY, "assays": ["rna", "EFO:0022857"]})
    lock, store, lines = make_tokens(wanted, tmp_path / "first")
    printed, log = "\n".join(lines), capfd.readouterr().err

    summary = json.loads((tmp_path / "first/manifest.json").read_text())
    assert summary["held_out"] == {uuid(11): "collection of heart"}
    assert summary["left_out"] == {"other assays": 1}
    [reason] = summary["without_file"].values()
    assert "HTTP 504 (6 attempts)" in reason
    cells_by_assay = {name: total["cells"] for name, total in summary["training"]["assays"].items()}
    assert cells_by_assay == {"10x 3' v3": 450, "10x multiome": 69, VISIUM: 30}
    assert f"assay      {VISIUM}: 1 datasets, 30 cells" in printed
    assert not [path for _, path, _ in published.requests if path == f"/{uuid(1011)}.h5ad"]

    rows = {row.file: row for row in read_manifest(lock)}
    assert [rows[uuid(1000 + number)].cells for number in (1, 2, 3, 4)] == ["400", "18", "50", "60"]
    assert rows[uuid(1002)].reason == (
        "10 spots off the tissue, 2 features left out, 2 cells without counts"
    )
    assert "of 42 features, 2 are left out (spike-ins, virus genes or not genes) and 0" in log
    assert "10 of 30 spots are off the tissue and are left out" in log
    assert [row.file for row in rows.values() if row.role == "skipped"] == [uuid(1005)]
    for row in rows.values():
        path = tmp_path / "first/downloads" / f"{row.dataset_version_id}.h5ad"
        assert row.sha256 == sha256(path)

    # Brute force: the tokens of every cell by their definition.
    counts = {1: draw(400, 1), 2: spots["counts"], 3: draw(50, 3), 4: draw(60, 4)}
    kept = {number: np.arange(len(values)) for number, values in counts.items()}
    kept[2] = np.setdiff1d(np.arange(20), [3, 4])
    statistics = read_statistics(tmp_path / "first/statistics.arrow")
    assert statistics.genes == GENES
    trained = np.vstack([counts[number][kept[number]] for number in counts])
    np.testing.assert_array_equal(statistics.cells, (trained > 0).sum(axis=0))
    columns = store.metadata(["file", "cell", "cell_type", "assay"])
    cells = list(zip(columns["file"].tolist(), columns["cell"].tolist(), strict=True))
    assert sorted(cells) == [(uuid(1000 + n), row) for n in counts for row in kept[n].tolist()]
    vocabulary = Vocabulary.read(tmp_path / "first/vocabulary.parquet")
    for place, (file, row) in enumerate(cells):
        values = counts[int(file[-2:])][row]  # without spike-ins and viruses, also in the total
        scaled = values / values.sum() * 1e4 / vocabulary.medians[4:]
        order = sorted(np.flatnonzero(values).tolist(), key=lambda gene: (-scaled[gene], gene))
        expected = [4 + gene for gene in order]
        assert store.cells([place], 99).tokens.tolist() == expected[:32]
        assert columns["cell_type"][place] == ("" if file == uuid(1003) else "ab"[row % 2])

    # The lock gives the same tokens without the service's list of datasets.
    published.answers.clear()
    locked = wanted.model_copy(update={"manifest": str(lock)})
    again = make_tokens(locked, tmp_path / "second")[0]
    without_part = [dataclasses.replace(row, part="") for row in read_manifest(again)]
    assert without_part == [dataclasses.replace(row, part="") for row in rows.values()]
    for path in (tmp_path / "first/tokens").iterdir():
        assert sha256(path) == sha256(tmp_path / "second/tokens" / path.name)


@pytest.mark.parametrize("in_tissue", [[0, 1, 1, 0] * 5, [False, True] * 10])
def test_spots_off_the_tissue_of_own_files(in_tissue, tmp_path):
    """Spots off the tissue are neither trained on nor held out."""
    path, on = tmp_path / "mine.h5ad", np.flatnonzero(in_tissue)
    counts = draw(20, 7)
    counts[0] = counts[on[0]]
    content(path, counts, "5.1.0", cell_type=["a", "a", "b", "b"] * 5, in_tissue=in_tissue)
    part, held, _ = hold_out(path, tmp_path / "run", held_out=0.3)
    [(row, cells)] = cells_of_part(part)
    assert row.cells == str(cells.n_cells)
    held_out = open_cells(held).obs(["scsigmoid_row"])["scsigmoid_row"]
    assert sorted([*cells.rows, *map(int, held_out)]) == on.tolist()
    content(path, counts, "5.1.0", in_tissue=np.zeros(20, dtype=int))
    with pytest.raises(UserError, match=r"mine\.h5ad: all spots are off the tissue"):
        open_cells(path)
