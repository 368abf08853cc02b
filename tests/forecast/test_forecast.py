"""The forecast: measured rates come back as they are, and everything else scales as counted."""

import dataclasses
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from tenx import tenx_folder

from scsigmoid.cli import main
from scsigmoid.config.check import load, parse_pairs
from scsigmoid.corpus.metadata import ManifestRow, write_manifest
from scsigmoid.errors import UserError
from scsigmoid.forecast.effort import Lengths, efforts, rates, training_rates
from scsigmoid.forecast.page import duration, forecast, gigabytes
from scsigmoid.forecast.volume import selections, vocabulary_size, volume
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary

ROOT = Path(__file__).parents[2]


def pages(config, results: Path, **options) -> list[str]:
    """The lines of a forecast."""
    how = {"devices": 1, "cores": 64, "gigabits": 1, **options}
    return list(forecast(config, results=results, **how))


def test_mean_lengths():
    """Against a drawn sample of a million cells."""
    drawn = np.exp(np.random.default_rng(0).normal(np.log(1830), 0.65, 1_000_000))
    lengths = Lengths(1830, 0.65)
    for longest in (2048, 8192, math.inf):
        assert lengths.mean(longest) == pytest.approx(np.minimum(drawn, longest).mean(), rel=5e-3)


def test_the_papers_models_cost_what_was_measured():
    """515,000 steps of 256 cells at the rates of docs/benchmarks.md, of 44,000 tokens."""
    config = load(overrides={"preset": "paper"})
    found = {effort.model: effort for effort in efforts(config, 44_000)}
    for model, rate in {"sigmoid_2k": 346, "softmax_2k": 280, "sigmoid_4k": 240}.items():
        assert found[model].measured
        assert found[model].hours == pytest.approx(515_000 * 256 / rate / 3600, rel=1e-9)
    assert found["sigmoid_8k"].hours == pytest.approx(80_000 * 256 / 195 / 3600, rel=1e-9)


def test_twice_the_layers_take_about_twice_as_long():
    config = load(overrides={"preset": "paper", "sizes": {"160M": {"layers": 24}}})
    single = {e.model: e.hours for e in efforts(load(overrides={"preset": "paper"}), 44_000)}
    for effort in efforts(config, 44_000):
        # not all of the work is in the layers, and the nearest rate may be another one
        assert not effort.measured
        assert 1.7 < effort.hours / single[effort.model] < 2.3


def test_a_study_costs_what_its_runs_do(tmp_path):
    family = {"attention": ["sigmoid"], "context": [2048], "size": ["160M"], "seed": [1, 2]}
    family["training"] = {"steps": 1000, "snapshots": [[10, 20]]}
    study = {"preset": "paper", "study": {"seeds": family}}
    (said,) = (line for line in pages(load(overrides=study), tmp_path) if "  study" in line)
    assert duration(2 * 1000 * 256 / 346 / 3600) in said
    assert "2 runs of 154M parameters, 2,000 steps" in said
    page = "\n".join(pages(load(overrides=study), tmp_path))
    parameters = efforts(load(overrides=study), 43_808)[0].parameters
    # a run: two checkpoints of weights and moments, the model, its copies at two steps; float32
    assert gigabytes(2 * parameters * 4 * (3 * 2 + 1 + 2)) in page.partition("  study")[2]
    assert "  study" not in "\n".join(pages(load(overrides={"preset": "paper"}), tmp_path))


def test_parameters_stand_beside_the_papers(tmp_path):
    """Of ``paper`` within 4 % of 160M, also before there is a vocabulary."""
    config = load(overrides={"preset": "paper"})
    assert vocabulary_size(config, tmp_path)[0] == 25_424 + 18_380 + 4
    for effort in efforts(config, vocabulary_size(config, tmp_path)[0]):
        assert abs(effort.parameters / 160e6 - 1) < 0.04
    page = "\n".join(pages(config, tmp_path))
    # 12 blocks of 7,087,872, a final norm, 2,048 positions, 43,808 rows in and out with a bias
    counted = 12 * 7_087_872 + 2 * 768 + 2048 * 768 + 43_808 * (2 * 768 + 1)
    assert f"{counted / 1e6:.4g}M parameters (-3.8% against the paper's 160M)" in page
    assert "43,808 tokens              at most, by tokens.vocabulary.sizes: Homo sapiens" in page
    (tmp_path / "genes.txt").write_text("ENSG00000000001\nENSG00000000002\n")
    listed = {"tokens": {"vocabulary": {"genes": str(tmp_path / "genes.txt")}}}
    assert vocabulary_size(load(overrides={"preset": "paper", **listed}), tmp_path)[0] == 6
    genes = (*SPECIAL, "ENSG00000000001")
    Vocabulary(genes, genes, np.zeros(5, dtype=np.int64), np.ones(5)).write(
        tmp_path / "tokens" / "vocabulary.parquet"
    )
    assert vocabulary_size(config, tmp_path)[0] == 5


def test_selections_come_from_the_manifest(tmp_path):
    config = load(overrides={"preset": "paper"})
    assert selections(config, tmp_path)[0][0] == "no manifest yet"
    assert selections(load(overrides={"preset": "demo"}), tmp_path) == []
    path = tmp_path / "corpus" / "manifest.json"
    path.parent.mkdir()
    one = {"organisms": ["Homo sapiens", "Mus musculus"], "kept": "all", "cells": 132_916_000}
    path.write_text(json.dumps({"selections": [{**one, "unknown": 0, "nearest": True}]}))
    words = (
        "+1.0% against the paper's 131.6M: Homo sapiens and Mus musculus, all cells, the nearest"
    )
    assert selections(config, tmp_path) == [("132,916,000 cells", words)]
    assert any(words in line for line in pages(config, tmp_path))
    path.write_text("{")
    with pytest.raises(UserError, match=r"manifest\.json: damaged"):
        selections(config, tmp_path)


def test_the_claims_that_a_preset_tests():
    """The paper's preset all of them; smaller ones say what keeps them from each other one."""
    found = {}
    for preset in ("paper", "small", "demo"):
        lines = pages(load(overrides={"preset": preset}), Path("none"))
        (claims,) = (line for line in lines if line.startswith("  claims"))
        found[preset] = (claims.split()[1:4], [x for x in lines if "not tested" in x])
    assert found["paper"] == (["179", "of", "179"], [])
    assert found["demo"][0] == ["0", "of", "179"]
    # The kernel's, the cells of the datasets, and the hours of the one size that is timed.
    assert found["small"][0] == ["57", "of", "179"]
    for line in found["small"][1]:
        assert re.search(
            "corpus.maximum_cells|6 layers|global_batch|learning_rate|warmup_steps|trained for"
            "|benchmarks.throughput.sizes",
            line,
        )


def test_every_rate_says_how_it_was_measured():
    for rate in training_rates():
        assert rate.cells_per_second > 0
        assert "20" in rate.measured
    for entry in (rates()["raw_files"], rates()["tokens"]):
        assert entry["measured"].startswith("20")


@pytest.mark.parametrize("preset", ["demo", "small", "paper"])
def test_before_there_is_a_manifest(preset, tmp_path):
    lines = pages(load(overrides={"preset": preset}), tmp_path)
    text = "\n".join(lines)
    assert "sigmoid_4k" in text
    assert ("manifest yet" in text) == (preset != "demo")
    if preset == "paper":
        assert "cells         131,600,000" in text
        assert "estimate, 5.7 bytes per non-zero count" in text
    if preset == "small":
        assert "cells         300,000" in text
        mean = Lengths(1830, 0.65).mean()  # 257,888 cells are evaluated
        assert f"unknown, {gigabytes((300_000 + 257_888) * mean * 5.7)} " in text


def test_a_manifest_replaces_estimates(tmp_path):
    config = load(overrides={"preset": "paper"})
    rows = [
        ManifestRow(file=name, role=role, source="cellxgene", location="", cells=cells, bytes=size)
        for name, role, cells, size in [
            ("a", "training", "1000", str(10**12)),
            ("b", "training", "500", ""),
            ("c", "evaluation", "70", "5"),
        ]
    ]
    write_manifest(tmp_path / "corpus" / "manifest.csv", rows)
    found = volume(config, tmp_path)
    assert (found.files, found.cells) == (3, 1500)
    assert found.bytes == pytest.approx(10**12 + 5 + 500 * Lengths(1830, 0.65).mean() * 5.7)
    assert found.bytes_basis == "manifest; sizes estimated for 1 of 3"
    lines = pages(config, tmp_path)
    assert any("1.00 TB" in line for line in lines)
    assert any("the corpus has 1,500 cells, the paper's 131,600,000" in line for line in lines)
    given = dataclasses.replace(config.corpus, manifest=str(tmp_path / "none.csv"))
    with pytest.raises(UserError, match="no such manifest"):
        volume(dataclasses.replace(config, corpus=given), tmp_path)


def test_a_cap_bounds_the_disk_and_doubles_the_traffic(tmp_path):
    lines = {}
    for cap in (None, 500):
        corpus = {"download": {"disk_cap_gb": cap}}
        page = pages(load(overrides={"preset": "paper", "corpus": corpus}), tmp_path)
        lines[cap] = {line[2:15].strip(): line[16:] for line in page}
    size = volume(load(overrides={"preset": "paper"}), tmp_path).bytes
    assert f" {gigabytes(size)} of raw files, " in lines[None]["disk, most"]
    assert " 500 GB of raw files (corpus.download.disk_cap_gb), " in lines[500]["disk, most"]
    assert gigabytes(2 * size) + ", every file twice" in lines[500]["download"]
    assert gigabytes(size) + ", at 1 Gbit/s" in lines[None]["download"]
    hours = [float(lines[cap]["download"].split()[0]) for cap in (None, 500)]
    assert hours[1] == pytest.approx(2 * hours[0], rel=5e-3)


def test_what_stays_on_the_disk(tmp_path):
    """Only downloads are deleted: the files of the embedded corpus stay."""

    def disk(preset: str, *, keep: bool) -> tuple[float, float, float, str]:
        corpus = {"download": {"keep_files": keep}}
        page = pages(load(overrides={"preset": preset, "corpus": corpus}), tmp_path)
        (then,) = (line for line in page if "disk, then" in line)
        (most,) = (line for line in page if "disk, most" in line)
        whole, raw = re.findall(r"([\d.]+) GB", most)[:2]
        return float(whole), float(raw), float(then.split()[2]), then.split("made")[1]

    for preset in ("demo", "small"):
        whole, raw, left, note = disk(preset, keep=True)
        assert left == whole
        assert ("keep_files: false" in note) == (preset == "small")
    whole, raw, left, note = disk("small", keep=False)
    assert left == pytest.approx(whole - raw, abs=0.05)
    assert note == ": the raw files go"
    whole, raw, left, note = disk("demo", keep=False)
    assert (left, note) == (whole, "")


def test_more_devices_and_a_faster_network(tmp_path):
    config = load(overrides={"preset": "paper"})
    hours = [
        float(line.split()[2])
        for n in (1, 10)
        for line in pages(config, tmp_path, devices=n, gigabits=n)
        if line.startswith("  wall time")
    ]
    assert 9 < hours[0] / hours[1] <= 10.5


def test_own_files(tmp_path):
    """Cells of h5ad files are counted, but for the held-out ones; 10x files are not converted."""
    genes = pd.DataFrame(index=[f"ENSG{index:011d}" for index in range(20)])
    for name, cells in {"a": 40, "b": 7, "c": 5}.items():
        counts = np.full((cells, 20), 2, np.float32)
        anndata.AnnData(counts, var=genes).write_h5ad(tmp_path / f"{name}.h5ad")
    size = (tmp_path / "a.h5ad").stat().st_size
    entries = [
        {"files": str(tmp_path / "a.h5ad"), "held_out": 0.25},
        {"files": str(tmp_path / "b.h5ad")},
        {"files": str(tmp_path / "c.h5ad"), "held_out": True},
        {"files": str(tenx_folder(tmp_path / "tenx", np.full((6, 20), 2), "", ["x"] * 20))},
    ]

    def text(*taken: int) -> str:
        local = [entries[index] for index in taken]
        config = load(overrides={"corpus": {"source": "local", "local": local}})
        return "\n".join(pages(config, tmp_path))

    assert f"1 file, {gigabytes(size)} " in text(0)
    assert "cells         30 " in text(0)
    assert "3 files, " in text(0, 1, 2)
    assert "cells         37 " in text(0, 1, 2)
    assert re.search(r"cells         unknown  .* 10x files", text(0, 3))
    assert "tokens not yet known" in text(0)


def test_the_vocabulary_of_own_files_is_at_most_their_genes(tmp_path):
    """Of the files that are trained on; of an organism as many as it may have."""
    for name, first, species in (("a", 0, "ENSG"), ("b", 15, "ENSG"), ("c", 0, "ENSMUSG")):
        genes = pd.DataFrame(index=[f"{species}{index:011d}" for index in range(first, first + 20)])
        anndata.AnnData(np.ones((4, 20), np.float32), var=genes).write_h5ad(
            tmp_path / f"{name}.h5ad"
        )
    local = [{"files": str(tmp_path / f"{name}.h5ad"), "held_out": 0.5} for name in "ab"]
    mouse = {"files": str(tmp_path / "c.h5ad"), "held_out": True}

    def size(*entries, **sizes: int) -> int:
        corpus = {"source": "local", "local": [*local, *entries]}
        given = {name.replace("_", " "): count for name, count in sizes.items()}
        tokens = {"vocabulary": {"sizes": given or None}}
        return vocabulary_size(load(overrides={"corpus": corpus, "tokens": tokens}), tmp_path)[0]

    special = len(SPECIAL)
    assert size() == 35 + special
    assert size(mouse) == 35 + special
    assert size(mouse | {"held_out": 0.5}) == 35 + 20 + special
    assert size(mouse | {"held_out": 0.5}, Homo_sapiens=30, Mus_musculus=25) == 30 + 20 + special


def test_words():
    assert [gigabytes(size) for size in (1.5e12, 2.34e9, 1e6)] == ["1.50 TB", "2.34 GB", "0.001 GB"]
    assert [duration(hours) for hours in (1234.5, 12.34, 0.5, 0.001)] == [
        "1,234 h", "12.3 h", "30 min", "under 1 min",
    ]  # fmt: skip


def test_settings_as_snakemake_takes_them():
    assert parse_pairs(["preset=paper", "corpus={parts: 3}", "seed=1"]) == {
        "preset": "paper", "corpus": {"parts": 3}, "seed": 1,
    }  # fmt: skip
    for wrong in ("preset", "=3", "a={"):
        with pytest.raises(UserError, match=r"--config"):
            parse_pairs([wrong])


def test_later_files_are_laid_over_earlier_ones(tmp_path, capsys):
    """As Snakemake does with several ``--configfile``."""
    (tmp_path / "one.yaml").write_text("preset: small\ncorpus: {maximum_cells: 5, maximum_gb: 7}\n")
    (tmp_path / "two.yaml").write_text("corpus: {maximum_cells: 1234}\n")
    files = [str(tmp_path / name) for name in ("one.yaml", "two.yaml")]
    assert main(["plan", "--configfile", *files, "--config", f"results={tmp_path}"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("Preset small")
    assert "cells         1,234 " in page


def test_a_refusal_is_one_line():
    command = [sys.executable, "-m", "scsigmoid", "plan", "--cores", "0"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("preset", ["demo", "small", "paper"])
def test_the_documents_have_what_it_prints(preset: str, tmp_path: Path):
    """In a folder of its own, where no results change the numbers."""
    command = [sys.executable, "-m", "scsigmoid", "plan", "--config", f"preset={preset}"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout == (ROOT / f"docs/measurements/plan_{preset}.txt").read_text()
