"""The forecast: measured rates come back as they are, and everything else scales as counted."""

import dataclasses
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scsigmoid.config.check import load
from scsigmoid.config.overrides import parsed
from scsigmoid.corpus.rows import ManifestRow, write_manifest
from scsigmoid.errors import UserError
from scsigmoid.forecast.effort import efforts
from scsigmoid.forecast.page import duration, forecast, gigabytes
from scsigmoid.forecast.rates import Lengths, rates, training_rates
from scsigmoid.forecast.volume import volume

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
    """515,000 steps of 256 cells at the rates of docs/benchmarks.md."""
    config = load(overrides={"preset": "paper"})
    found = {effort.model: effort for effort in efforts(config)}
    for model, rate in {"sigmoid_2k": 346, "softmax_2k": 280, "sigmoid_4k": 240}.items():
        assert found[model].measured
        assert found[model].hours == pytest.approx(515_000 * 256 / rate / 3600, rel=1e-9)
    assert found["sigmoid_8k"].hours == pytest.approx(80_000 * 256 / 195 / 3600, rel=1e-9)


def test_twice_the_layers_take_about_twice_as_long():
    config = load(overrides={"preset": "paper", "sizes": {"160M": {"layers": 24}}})
    single = {e.model: e.hours for e in efforts(load(overrides={"preset": "paper"}))}
    for effort in efforts(config):
        # not all of the work is in the layers, and the nearest rate may be another one
        assert not effort.measured
        assert 1.7 < effort.hours / single[effort.model] < 2.3


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
        assert f"files, {gigabytes((300_000 + 257_888) * mean * 5.7)} " in text


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
    assert found.bytes_basis == "manifest; 1 sizes estimated"
    assert any("1.00 TB" in line for line in pages(config, tmp_path))
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
    (tmp_path / "a.h5ad").write_bytes(b"x" * 3_000_000)
    entry = {"files": str(tmp_path / "a.h5ad"), "held_out": 0.5}
    config = load(overrides={"corpus": {"source": "local", "local": [entry]}})
    text = "\n".join(pages(config, tmp_path))
    assert "1 files, 0.003 GB" in text
    assert "cells         unknown" in text


def test_words():
    assert [gigabytes(size) for size in (1.5e12, 2.34e9, 1e6)] == ["1.50 TB", "2.34 GB", "0.001 GB"]
    assert [duration(hours) for hours in (1234.5, 12.34, 0.5, 0.001)] == [
        "1,234 h", "12.3 h", "30 min", "under 1 min",
    ]  # fmt: skip


def test_settings_as_snakemake_takes_them():
    assert parsed(["preset=paper", "corpus={parts: 3}", "seed=1"]) == {
        "preset": "paper", "corpus": {"parts": 3}, "seed": 1,
    }  # fmt: skip
    for wrong in ("preset", "=3", "a={"):
        with pytest.raises(UserError, match=r"--config"):
            parsed([wrong])


def test_the_command():
    command = [sys.executable, "-m", "scsigmoid", "plan", "--config", "preset=paper"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("Preset paper, corpus cellxgene")
    run = subprocess.run([*command, "--cores", "0"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
