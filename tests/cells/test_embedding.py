"""Users' own cells: embeddings compared with single forward passes, and invalid input."""

import json
from dataclasses import replace
from pathlib import Path

import anndata
import anndata.tests.helpers
import h5py
import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_matrix
from sklearn.neighbors import NearestNeighbors
from small_models import one_by_one
from tenx import tenx_file

import scsigmoid as ss
from scsigmoid.cells.embedding import embed_file
from scsigmoid.cli import main
from scsigmoid.config.schema import Embeddings
from scsigmoid.corpus.embedded import real_cells
from scsigmoid.corpus.h5ad_writer import write_cells
from scsigmoid.errors import UserError
from scsigmoid.files import sha256
from scsigmoid.model.weights import shrink
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary

GENES = [f"ENSG{index:011d}" for index in range(36)]
NAMES = [*(f"GENE{index}" for index in range(33)), "HLA-DRA", "GENE34", "GENE35"]
FOREIGN = [f"ENSG9{index:010d}" for index in range(36)]  # not in the vocabulary
CELLS = 9
SETTINGS = Embeddings(pooling="mean", batch_tokens=40)


@pytest.fixture
def vocabulary():
    """36 genes with different medians. The last two have the same name."""
    names = [*NAMES[:34], "TWICE", "TWICE"]
    medians = np.random.default_rng(1).uniform(1, 9, 36)
    cells, medians = np.r_[[0] * 4, [7] * 36], np.r_[[1.0] * 4, medians]
    return Vocabulary((*SPECIAL, *GENES), (*SPECIAL, *names), cells, medians)


@pytest.fixture
def model(make_model, vocabulary):
    """An untrained sigmoid model with a context of 16 tokens."""
    return make_model("sigmoid", vocabulary)


@pytest.fixture
def loaded(model):
    return ss.load(model, device="cpu")


@pytest.fixture
def counts():
    values = np.random.default_rng(2).poisson(1.2, (CELLS, 36))
    values[:, 0] += 1
    return values


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a user's file and returns its path."""

    def write_file(counts, genes=GENES, name="mine", **var):
        kinds = pd.Categorical(["a", "b", "c"] * 3)
        obs = pd.DataFrame({"kind": kinds}, index=[f"barcode-{i}" for i in range(CELLS)])
        frame = pd.DataFrame(var, index=list(genes))
        path = tmp_path / f"{name}.h5ad"
        matrix = csr_matrix(np.asarray(counts, dtype=np.float32))
        anndata.AnnData(X=matrix, obs=obs, var=frame).write_h5ad(path)
        return path

    return write_file


def run(path, model):
    output = path.with_name("out.h5ad")
    embed_file(path, ss.load(model, device="cpu"), SETTINGS, output, force=True)
    return anndata.read_h5ad(output)


def embed_by_command(path, model, output, *options):
    command = ["embed", str(path), str(output), "--checkpoint", str(model), "--device", "cpu"]
    return main([*command, *options])


def ranked(counts, vocabulary, columns=range(36)):
    """Yield the tokens of each cell, sorted by Python. Genes not in ``columns`` are left out."""
    medians = vocabulary.medians[4:]
    for cell in counts:
        values = {g: cell[g] / cell.sum() * 10_000 / medians[g] for g in columns if cell[g]}
        yield [g + 4 for g in sorted(values, key=lambda g: (-values[g], g))]


def expected(counts, model, vocabulary, columns=range(36)):
    """Return the embedding of each cell, with one forward pass per cell."""
    return one_by_one(model, ranked(counts, vocabulary, columns))


@pytest.fixture
def reference(counts, model, vocabulary):
    return expected(counts, model, vocabulary)


def check(adata, reference):
    np.testing.assert_allclose(adata.obsm["X_scsigmoid"], reference, atol=2e-5)


def test_equals_single_forward_passes(counts, write, model, vocabulary, reference):
    result = run(write(counts), model)
    check(result, reference)
    assert result.obsm["X_scsigmoid"].dtype == np.float32
    assert result.obs_names.tolist() == [f"barcode-{i}" for i in range(CELLS)]
    assert result.obs["kind"].tolist() == ["a", "b", "c"] * 3
    assert dict(result.uns["X_scsigmoid"]) == {
        "model": "sigmoid_toy", "attention": "sigmoid", "context": 16, "step": 0,
        "pooling": "mean", "checkpoint": sha256(model), "vocabulary": vocabulary.fingerprint,
        "simulated": False,
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


def test_retired_ids(counts, write, make_model, vocabulary):
    """GENES[3] is listed by its own id and by a retired one, GENES[4] by a retired one only."""
    retired = {"ENSG90000000003": GENES[3], "ENSG90000000004": GENES[4]}
    model = make_model("sigmoid", replace(vocabulary, retired=retired))
    genes = [*GENES[:4], "ENSG90000000004", *GENES[5:], "ENSG90000000003"]
    split = np.c_[counts, counts[:, 3] // 2]
    split[:, 3] -= split[:, -1]
    check(run(write(split, genes), model), expected(counts, model, vocabulary))


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
    assert f"{cut} of 9 cells ({cut / 9:.1%}) express more than 15 genes" in capfd.readouterr().err


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


def test_an_existing_output_is_replaced_only_with_force(counts, write, model, capfd):
    path, other = write(counts), write(counts, name="other")
    before = other.read_bytes()
    assert embed_by_command(path, model, path, "--force") == 1
    assert "is the input itself" in capfd.readouterr().err
    assert embed_by_command(path, model, other) == 1
    assert f"{other}: exists; give another file, or --force" in capfd.readouterr().err
    assert other.read_bytes() == path.read_bytes() == before
    assert embed_by_command(path, model, other, "--force", "--key", "X_mine") == 0
    assert list(anndata.read_h5ad(other).obsm) == ["X_mine"]


def test_names_that_h5ad_cannot_store(counts, write, loaded, tmp_path):
    """The error comes before the cells are embedded, which can take hours."""
    path = write(counts)
    with h5py.File(path, "r+") as file:
        del file["obs/_index"]
        names = np.array([b"a\0b", *(b"cell%d" % i for i in range(8))])
        index = file["obs"].create_dataset("_index", data=names)
        index.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    loaded.encoder.forward = None  # fails if called
    with pytest.raises(UserError, match=r"cannot be stored as h5ad: .*_index"):
        embed_file(path, loaded, SETTINGS, tmp_path / "out.h5ad")
    assert not [*tmp_path.glob("*out*")]


def test_adata_that_h5ad_cannot_store(counts, write, loaded, reference):
    """Cell names and ``uns`` may have any value. Invalid gene names are errors."""
    adata = anndata.read_h5ad(write(counts))
    adata.obs_names = pd.Index(["a\0", "b\udcff", *adata.obs_names[2:]], dtype=object)
    adata.uns["scsigmoid"] = "text"
    ss.embed(adata, loaded)
    check(adata, reference)
    del adata.obsm["X_scsigmoid"]
    adata.var_names = ["a\0", *GENES[1:]]
    with pytest.raises(UserError, match=r"^adata: cannot be stored as h5ad: "):
        ss.embed(adata, loaded)
    assert not adata.obsm


def test_model_name_with_a_path(model, tmp_path):
    with safe_open(model, framework="pt") as file:
        metadata = json.loads(file.metadata()["scsigmoid"])
    evil = tmp_path / "evil.safetensors"
    metadata["model"] = "../../../evil"
    save_file(load_file(model), evil, metadata={"scsigmoid": json.dumps(metadata)})
    with pytest.raises(UserError, match=r"evil.safetensors: .* names the model '../../../evil'"):
        ss.load(evil)


def test_verbose_false_prints_only_warnings(counts, write, loaded, capfd):
    path = write(counts, [*GENES[:34], "CD4", "CD14"])
    for function in (ss.embed, ss.tokenize):
        capfd.readouterr()
        function(anndata.read_h5ad(path), loaded, verbose=False)
        [line] = capfd.readouterr().err.splitlines()
        assert line.startswith("warning: adata: 2 of 36 genes have no Ensembl id (CD4, CD14)")
    ss.embed(anndata.read_h5ad(path), loaded)
    assert "34 genes found by id" in capfd.readouterr().err


def test_blood_is_the_packaged_model_unless_it_is_a_path(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blood").mkdir()
    (tmp_path / "blood/model.safetensors").symlink_to(model)
    assert ss.load("blood").name == "blood"
    for path in ("./blood", Path("blood"), tmp_path / "blood"):
        assert ss.load(path).name == "sigmoid_toy"


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
    assert "\nadata: 36 genes found by id, 0 by name\n" in capfd.readouterr().err
    with pytest.raises(UserError, match=r"adata: has no layer 'raw'; .*\(layers: counts\)"):
        ss.embed(layered, loaded, layer="raw")
    with pytest.raises(UserError, match=r"^adata: no raw counts"):
        ss.embed(anndata.AnnData(adata.X.log1p(), adata.obs, adata.var), loaded)
    empty = adata.copy()
    empty.X = adata.X.multiply(np.arange(CELLS)[:, None] != 3).tocsr()
    with pytest.raises(UserError, match=r"1 of 9 cells express no gene .* \(barcode-3\); leave"):
        ss.embed(empty, loaded)
    assert "X_scsigmoid" not in empty.obsm


def test_the_only_column_with_ids_is_used(counts, write, model, loaded, reference):
    """The index has unknown symbols. Files and AnnData objects have equal embeddings."""
    path = write(counts, [f"x{i}" for i in range(36)], gene_ids=GENES)
    adata = anndata.read_h5ad(path)
    ss.embed(adata, loaded)
    check(adata, reference)
    check(run(path, model), reference)
    adata.var["others"] = [*GENES[1:], GENES[0]]
    with pytest.raises(UserError, match="no gene in common"):  # two columns are ambiguous
        ss.embed(adata, loaded)


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
        (ss.embed, (adata, loaded), {"pooling": "max"}, "pooling: "),
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
