"""10x folders: the files of exactly one matrix, or an error that says what else there is."""

import gzip

import anndata
import numpy as np
import pytest
from stages import dense, local_corpus, make_manifest, make_part
from tenx import tenx_folder

from scsigmoid.cli import main
from scsigmoid.config.schema import LocalFiles
from scsigmoid.corpus.held_out import cells_of_part
from scsigmoid.corpus.tenx import convert_tenx
from scsigmoid.errors import UserError

COUNTS = np.random.default_rng(0).poisson(0.8, (30, 12)) + np.eye(30, 12, dtype=int)
KINDS = ["Gene Expression"] * 12


def local(path):
    return local_corpus(LocalFiles(files=str(path)))


def write_samples(folder, prefixes):
    """Write a part of the cells with each prefix to one folder."""
    for prefix, counts in zip(prefixes, np.array_split(COUNTS, len(prefixes)), strict=True):
        sample = tenx_folder(folder.parent / f"{prefix}sample", counts, prefix, KINDS)
        folder.mkdir(exist_ok=True)
        for file in sample.iterdir():
            file.rename(folder / file.name)
    return folder


@pytest.mark.parametrize(
    "prefixes", [("GSM1_ctrl_", "GSM2_treated_"), ("filtered_", "raw_"), ("", "old_")]
)
@pytest.mark.parametrize("lacks", ["", "matrix.mtx.gz"])
def test_several_samples_in_a_folder(prefixes, lacks, tmp_path, capfd):
    folder = write_samples(tmp_path / "samples", prefixes)
    if lacks:  # the download of the second sample is incomplete
        (folder / f"{prefixes[1]}{lacks}").unlink()
    pattern = f"^.*{folder}: .*{prefixes[0]!r}, {prefixes[1]!r}"
    with pytest.raises(UserError, match=pattern):
        make_manifest(local(folder), {}, tmp_path)
    output = tmp_path / "out.h5ad"
    assert main(["embed", str(folder), str(output), "--checkpoint", "blood"]) == 1
    error = capfd.readouterr().err
    assert f"{folder}: " in error
    assert f"{prefixes[0]!r}, {prefixes[1]!r}" in error
    assert not output.exists()


@pytest.mark.parametrize("copy", ["matrix.mtx", "barcodes.tsv", "features.tsv", "genes.tsv"])
def test_two_versions_of_a_file(copy, tmp_path):
    folder = tenx_folder(tmp_path / "sample", COUNTS, "", KINDS)
    original = folder / f"{copy.replace('genes', 'features')}.gz"
    (folder / copy).write_bytes(gzip.decompress(original.read_bytes()))
    with pytest.raises(UserError, match=f"{folder}: .*{original.name}"):
        make_manifest(local(folder), {}, tmp_path)


@pytest.mark.parametrize(
    ("gene_file", "suffix", "advice"),
    [("features.tsv", "", "compress"), ("genes.tsv", ".gz", "decompress")],
)
def test_compression_that_scanpy_does_not_read(gene_file, suffix, advice, tmp_path):
    """Folders of STARsolo, and of Cell Ranger 2 on GEO: scanpy looked for other files."""
    folder = tenx_folder(tmp_path / "sample", COUNTS, "GSM1_", KINDS)
    for file in [*folder.iterdir()]:
        content = file.read_bytes()
        name = file.name.removesuffix(".gz").replace("features.tsv", gene_file)
        (folder / f"{name}{suffix}").write_bytes(content if suffix else gzip.decompress(content))
        if file.name != f"{name}{suffix}":
            file.unlink()
    message = f"{folder}: .*GSM1_{gene_file}{suffix}.*; {advice} "
    with pytest.raises(UserError, match=message):
        make_manifest(local(folder), {}, tmp_path)
    with pytest.raises(UserError, match=message):
        convert_tenx(folder, tmp_path / "out.h5ad")


def test_prefix_with_the_name_of_a_file(tmp_path):
    """The prefix was taken for a file of genes that must not be compressed."""
    folder = tenx_folder(tmp_path / "sample", COUNTS, "genes.tsv_", KINDS)
    convert_tenx(folder, tmp_path / "out.h5ad")


def test_folders_without_a_matrix(tmp_path, capfd):
    for number, name in enumerate(("barcodes.tsv", "matrix.mtx.gz.md5", "notes.txt")):
        folder = tmp_path / f"sample{number}"
        folder.mkdir()
        (folder / name).touch()
        with pytest.raises(UserError, match=f"{folder}: .*10x matrix"):
            make_manifest(local(folder), {}, tmp_path)
        command = ["embed", str(folder), str(tmp_path / "out.h5ad"), "--checkpoint", "blood"]
        assert main(command) == 1
        assert f"{folder}: " in capfd.readouterr().err


def test_other_files_beside_the_matrix(tmp_path):
    """Lists of barcodes or genes, checksums and files of macOS are not samples."""
    folder = tenx_folder(tmp_path / "sample", COUNTS, "GSM1_", KINDS)
    for name in ("selected_barcodes.tsv", "marker_genes.tsv", "GSM1_matrix.mtx.gz.md5"):
        (folder / name).write_text("other\n")
    for name in ("._GSM1_matrix.mtx.gz", "._GSM1_features.tsv.gz", ".DS_Store"):
        (folder / name).write_bytes(b"\0\5\x16\7")
    corpus = local(folder)
    make_manifest(corpus, {}, tmp_path)
    [(_, cells)] = cells_of_part(make_part(corpus, tmp_path))
    np.testing.assert_array_equal(dense(cells), COUNTS)


@pytest.mark.parametrize("line", ["{:05d}", "AC-{}\tsample"])
def test_barcodes_are_read_as_text(line, tmp_path):
    """pandas read 00001 as 1, and added a second column to the name."""
    folder = tenx_folder(tmp_path / "cells", COUNTS, "", KINDS)
    lines = [line.format(number) for number in range(len(COUNTS))]
    (folder / "barcodes.tsv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    convert_tenx(folder, tmp_path / "out.h5ad")
    names = anndata.read_h5ad(tmp_path / "out.h5ad").obs_names
    assert names.tolist() == [line.split("\t")[0] for line in lines]
