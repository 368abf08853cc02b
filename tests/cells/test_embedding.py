"""Users' own cells: embeddings compared with single forward passes, and invalid input."""

import anndata
import numpy as np
import pandas as pd
import pytest
from cells.conftest import (
    CELLS,
    FOREIGN,
    GENES,
    NAMES,
    check,
    embed_by_command,
    expected,
    ranked,
    run,
)
from sklearn.neighbors import NearestNeighbors
from tenx import tenx_file

import scsigmoid as ss
from scsigmoid.corpus.embedded import real_cells
from scsigmoid.corpus.h5ad_writer import write_cells
from scsigmoid.errors import UserError
from scsigmoid.files import sha256
from scsigmoid.model.weights import shrink


def test_equals_single_forward_passes(counts, write, model, vocabulary, reference):
    result = run(write(counts), model)
    check(result, reference)
    assert result.obsm["X_scsigmoid"].dtype == np.float32
    assert result.obs_names.tolist() == [f"barcode-{i}" for i in range(CELLS)]
    assert result.obs["kind"].tolist() == ["a", "b", "c"] * 3
    metadata = dict(result.uns["X_scsigmoid"])
    assert len(np.unique(metadata.pop("cell_hashes"))) == CELLS
    assert metadata == {
        "model": "sigmoid_toy", "attention": "sigmoid", "context": 16, "step": 0,
        "checkpoint": sha256(model), "vocabulary": vocabulary.fingerprint,
    }  # fmt: skip


# Genes of a file, names in its column feature_name, indices of the genes that are found, and the
# end of the warning.
GENE_NAMES = {
    "ids with versions; unknown ids are not looked up by name": (
        [*(f"{gene}.3" for gene in GENES[:20]), *FOREIGN[:16]], NAMES, range(20), ""),
    "GENE5 twice here, TWICE twice in the vocabulary": (
        [f"x{i}" for i in range(36)], [*NAMES[:34], "GENE5", "TWICE"], [*range(5), *range(6, 34)],
        "2 names belong to several genes, in the file or in the vocabulary, and are "
        "left out (GENE5, TWICE)"),
    "names as R spells them": (
        [*NAMES[:33], "HLA.DRA", "other", "another"], None, range(34), ""),
    "ids and names, GENE1 twice": (
        [*GENES[:20], *NAMES[20:30], "GENE1", *(f"other{i}" for i in range(5))], None, range(30),
        "1 names belong to several genes, in the file or in the vocabulary, and are "
        "left out (GENE1)"),
}  # fmt: skip


@pytest.mark.parametrize("case", GENE_NAMES)
def test_genes_are_found_by_id_or_unambiguous_name(case, counts, write, model, vocabulary, capfd):
    genes, names, known, warning = GENE_NAMES[case]
    column = {} if names is None else {"feature_name": names}
    result = run(write(counts, genes, **column), model)
    check(result, expected(counts, model, vocabulary, known))
    assert warning in capfd.readouterr().err


def test_cells_without_a_known_gene(counts, write, model, capfd):
    counts[4] = 0
    result = run(write(counts), model)
    assert result.obs_names.tolist() == [f"barcode-{i}" for i in range(CELLS) if i != 4]
    message = "1 of 9 cells express no gene of the vocabulary and are left out (rows 4)"
    assert message in capfd.readouterr().err


def test_model_without_output_layer(counts, write, model, reference, tmp_path):
    """Float16 weights change the embedding by rounding only."""
    shrink(model, tmp_path / "small.safetensors")
    adata = anndata.read_h5ad(write(counts))
    ss.embed(adata, ss.load(tmp_path / "small.safetensors", device="cpu"))
    np.testing.assert_allclose(adata.obsm["X_scsigmoid"], reference, atol=1e-2)


def test_layer_and_gene_column_options(counts, write, model, reference, tmp_path, capfd):
    """As in files of scanpy, X is normalized, counts are in a layer, and symbols in the index."""
    adata = anndata.read_h5ad(write(counts, [f"x{i}" for i in range(36)]))
    adata.layers["counts"], adata.X = adata.X.copy(), adata.X.log1p()
    adata.var["gene_ids"] = GENES
    adata.write_h5ad(tmp_path / "scanpy.h5ad")
    columns = ["--layer", "counts", "--genes", "gene_ids"]
    path, output = tmp_path / "scanpy.h5ad", tmp_path / "out.h5ad"
    assert embed_by_command(path, model, output, *columns) == 0
    check(anndata.read_h5ad(output), reference)
    cut = (np.count_nonzero(counts, axis=1) > 15).sum()
    assert cut
    assert (
        f"{cut} of 9 cells ({cut / 9 * 100:.1f} %) express more than 15 genes"
        in capfd.readouterr().err
    )


def test_tenx(counts, model, reference, tmp_path):
    """Cells are named by the barcodes of the 10x file."""
    path = tenx_file(tmp_path / "sample.h5", counts, ["Gene Expression"] * 36)
    result = run(path, model)
    check(result, reference)
    assert result.obs_names.tolist() == [f"AC-{i}" for i in range(CELLS)]


def test_invalid_input(counts, write, model, tmp_path):
    unexpressed = np.c_[counts, np.zeros((CELLS, 9))]
    mouse = [f"ENSMUSG{i:011d}" for i in range(36)]
    probes = [*NAMES[:3], *(f"probe{i}" for i in range(33))]
    for path, message in (
        (tmp_path / "absent.h5ad", r"absent\.h5ad: no such file"),
        (write(np.log1p(counts), name="logged"), "no raw counts in raw"),
        (write(unexpressed, [*FOREIGN, *GENES[:9]], "foreign"), "none of the 9 cells with enough"),
        (write(counts, mouse, "mouse"), r"another organism \(Mus musculus instead of Homo"),
        (write(counts, probes, "probes"), "3 of 36 genes are among"),
    ):
        with pytest.raises(UserError, match=message):
            run(path, model)
    assert not (tmp_path / "out.h5ad").exists()


def test_python_interface(counts, write, model, vocabulary, reference, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(model.parents[1]))
    path = write(counts)
    loaded = ss.load(f"~/{model.parent.name}")
    assert repr(loaded).startswith("Model(sigmoid_toy: sigmoid attention, context 16, 0.0M param")
    for adata in (anndata.read_h5ad(path), anndata.read_h5ad(path, backed="r")):
        packed = ss.tokenize(adata, loaded)
        ends = zip(packed.cu_seqlens, packed.cu_seqlens[1:], strict=False)
        cells = [packed.tokens[start:end].tolist() for start, end in ends]
        assert cells == [tokens[:15] for tokens in ranked(counts, vocabulary)]
        ss.embed(adata, loaded, batch_tokens=40)
        check(adata, reference)
        assert adata.uns["X_scsigmoid"]["checkpoint"] == sha256(model)
        view = adata[[4, 2, 7]]
        assert ss.tokenize(view, loaded).tokens.tolist() == cells[4] + cells[2] + cells[7]
    copy = anndata.read_h5ad(path)[[4, 2, 7]].copy()
    ss.embed(copy, loaded, key="X_few")
    np.testing.assert_allclose(copy.obsm["X_few"], reference[[4, 2, 7]], atol=2e-5)


def test_python_interface_with_layers_and_raw(counts, write, loaded, reference, capfd):
    adata = anndata.read_h5ad(write(counts))
    layered = adata.copy()
    layered.layers["counts"], layered.X = adata.X.copy(), adata.X.log1p()
    layered.var = pd.DataFrame({"ids": GENES}, index=[f"x{i}" for i in range(36)])
    ss.embed(layered, loaded, layer="counts", genes="ids")
    check(layered, reference)
    with_raw = adata.copy()
    with_raw.raw = adata
    with_raw = with_raw[:, :5].copy()
    with_raw.X = with_raw.X.log1p()
    ss.embed(with_raw, loaded)
    check(with_raw, reference)
    error = capfd.readouterr().err
    assert "\nadata: 36 genes found by id, 0 by name: 100 % of the model's 36 genes" in error
    with pytest.raises(UserError, match=r"adata: has no layer 'raw'; .*\(layers: 'counts'\)"):
        ss.embed(layered, loaded, layer="raw")
    with pytest.raises(UserError, match=r"^adata: no raw counts"):
        ss.embed(anndata.AnnData(adata.X.log1p(), adata.obs, adata.var), loaded)
    empty = adata.copy()
    empty.X = adata.X.multiply(np.arange(CELLS)[:, None] != 3).tocsr()
    with pytest.raises(UserError, match=r"1 of 9 cells express no gene .* \(barcode-3\); leave"):
        ss.embed(empty, loaded)
    assert "X_scsigmoid" not in empty.obsm


def test_invalid_arguments_of_the_python_interface(counts, write, model, loaded):
    path = write(counts, NAMES, gene_ids=GENES)
    adata = anndata.read_h5ad(path)
    logged = anndata.AnnData(adata.X.log1p(), adata.obs, adata.var, layers={"umi": adata.X})
    backed = anndata.read_h5ad(path, backed="r")[:3]
    mistakes = [
        (ss.embed, (logged, loaded), {}, "adata: .*'layer'.*'umi'"),
        (ss.embed, (anndata.AnnData(obs=adata.obs, var=adata.var), loaded), {}, "adata: "),
        (ss.embed, (backed, loaded), {}, r"adata: .*to_memory\(\)"),
        (ss.embed, (str(path), loaded), {}, "adata: .* str"),
        (ss.tokenize, (adata, "blood"), {}, "model: .* str"),
        (ss.embed, (adata, loaded), {"genes": "ids"}, "adata: .* 'ids' .* 'gene_ids'"),
        (ss.embed, (adata, loaded), {"genes": GENES}, "genes: .* list"),
        (ss.tokenize, (adata, loaded), {"layer": adata.X}, "layer: .* csr_matrix"),
        (ss.embed, (adata, loaded), {"batch_tokens": 0}, "batch_tokens: "),
        (ss.embed, (adata, loaded), {"key": "X_a/b"}, "key: "),
        (ss.load, (None,), {}, "path: "),
        (ss.load, (model,), {"device": "gpu"}, "device: 'gpu'"),
        (ss.load, (model,), {"device": "cpu", "backend": "hopper"}, "backend 'hopper'"),
    ]
    for function, arguments, options, message in mistakes:
        with pytest.raises(UserError, match=f"^{message}"):
            function(*arguments, **options)
    assert not adata.obsm


def test_cells_that_are_read_lazily(counts, write, loaded, monkeypatch):
    """The advice was to write the file again. Reading lazily needs xarray."""
    adata = anndata.read_h5ad(write(counts))
    monkeypatch.setattr(anndata.AnnData, "obs", object())
    with pytest.raises(UserError, match=r"^adata: .*lazily; use adata.to_memory\(\)"):
        ss.tokenize(adata, loaded)


def test_packaged_model_separates_held_out_blood_cells(tmp_path):
    """Accuracy of the nearest neighbor's type for the demo's 210 held-out blood cells."""
    path = tmp_path / "pbmc68k.h5ad"
    write_cells(path, real_cells(42, held_out=True))
    assert embed_by_command(path, "blood", tmp_path / "out.h5ad") == 0
    result = anndata.read_h5ad(tmp_path / "out.h5ad")
    values, types = result.obsm["X_scsigmoid"], result.obs["cell_type"].to_numpy(str)
    assert values.shape == (210, 384)

    def accuracy(points):
        nearest = NearestNeighbors(n_neighbors=1).fit(points).kneighbors(return_distance=False)
        return (types[nearest[:, 0]] == types).mean()

    assert accuracy(values) > 0.45
    assert accuracy(np.random.default_rng(0).normal(size=values.shape)) < 0.3
