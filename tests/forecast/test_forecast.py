"""Hours, parameters, disk space and files of a configuration."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scsigmoid.config.check import load, parse_pairs
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.corpus.metadata import ManifestRow, write_manifest
from scsigmoid.errors import UserError
from scsigmoid.forecast.effort import Effort, Lengths, estimate_effort
from scsigmoid.forecast.page import duration, forecast, gigabytes
from scsigmoid.forecast.volume import estimate_volume, vocabulary_size
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary

ROOT = Path(__file__).parents[2]


def efforts(config: Config, vocabulary: int) -> list[Effort]:
    """Return the cost of each model."""
    return [estimate_effort(Plan(config), name, vocabulary) for name in config.models]


def test_mean_lengths():
    """Compare with a random sample of a million cells."""
    random_lengths = np.exp(np.random.default_rng(0).normal(np.log(1830), 0.65, 1_000_000))
    lengths = Lengths(1830, 0.65)
    assert lengths.mean() == pytest.approx(random_lengths.mean(), rel=5e-3)
    for longest in (2048, 8192):
        mean = np.mean(lengths.sample(longest))
        assert mean == pytest.approx(np.minimum(random_lengths, longest).mean(), rel=5e-3)


def test_hours_are_scaled_by_operations():
    """Compare with the rates of docs/benchmarks.md, for 515,000 steps of 256 cells."""
    config = load(overrides={"preset": "paper"})
    hours = {cost.model: cost.hours for cost in efforts(config, 44_000)}
    for model, rate in {"sigmoid_2k": 347, "softmax_2k": 338, "sigmoid_4k": 243}.items():
        assert hours[model]["H200"] == pytest.approx(515_000 * 256 / rate / 3600, rel=1e-9)
    assert hours["sigmoid_8k"]["H100"] == pytest.approx(80_000 * 256 / 191 / 3600, rel=1e-9)
    deeper = load(overrides={"preset": "paper", "sizes": {"160M": {"layers": 24}}})
    for cost in efforts(deeper, 44_000):
        # Not exactly 2: some work is outside the layers, and another measured rate may be used.
        assert 1.7 < cost.hours["H100"] / hours[cost.model]["H100"] < 2.3


def test_several_gpus_and_prices(tmp_path):
    """Each step takes a 32nd of the time of one GPU, and the loss of one host, by parameters."""
    config = load(overrides={"preset": "paper", "gpus": 8, "nodes": 4})
    lines = [*forecast(config, tmp_path, download_rate=50, price=2.5)]
    hours = 515_000 * 256 / 227 / 3600
    (row,) = (line for line in lines if line.startswith("  sigmoid_4k"))
    assert f"{duration(hours)}, " in row
    seconds = 0.009 * 155.5 / 154  # millions of parameters: of this model and the measured model
    assert f"{duration(hours / 32 + 515_000 * seconds / 3600)}, " in row
    (efficiency,) = (line for line in lines if line.startswith("  32 GPUs"))
    assert "a best case, without the network between nodes" in efficiency
    (download,) = (line for line in lines if line.startswith("  download"))
    assert duration(estimate_volume(config, tmp_path).bytes / 50e6 / 3600) in download
    costs = efforts(config, vocabulary_size(config, tmp_path))
    wall = sum(cost.wall_hours["H100"] for cost in costs)
    # On one GPU, a forward pass for each trial of the losses, and one for embeddings of the pair.
    # The models of the stress test are not evaluated.
    passes = {"sigmoid_2k": 15, "softmax_2k": 15, "sigmoid_4k": 16, "softmax_4k": 16}
    rates = {cost.model: cost.embedding_rate["H100"] for cost in costs}
    evaluation = sum(257_888 * passes[model] / rates[model] for model in passes) / 3600
    (row,) = (line for line in lines if line.startswith("  evaluation"))
    assert f" {duration(evaluation)}, " in row
    assert "4 models" in row
    gpu_hours = 32 * wall + evaluation
    (total,) = (line for line in lines if line.startswith("  total") and "H100" in line)
    assert f" {duration(wall)} on 32 H100s " in total
    assert f" {gpu_hours:,.0f} GPU-hours with evaluation (on one GPU)," in total
    assert f"price {gpu_hours * 2.5:,.0f} at 2.5 " in total
    assert 1000 < gpu_hours * 2.5 < 10_000  # with a thousands separator, without an exponent


def test_evaluation_that_is_not_counted_is_named(tmp_path: Path) -> None:
    config = load(overrides={"preset": "small"})
    lines = [line for line in forecast(config, tmp_path) if line.startswith("  total")]
    hours = sum(cost.hours["H100"] for cost in efforts(config, vocabulary_size(config, tmp_path)))
    assert f"{duration(hours)} on 1 H100 " in lines[0]
    assert f"{hours:.2f} GPU-hours without evaluation" in lines[0]


@pytest.mark.parametrize(
    ("hours", "text"),
    [(0.5, "30 min"), (9.96, "9.96 h"), (99.96, "100 h"), (999.7, "1,000 h"), (1234.4, "1,234 h")],
)
def test_hours_have_no_exponent(hours: float, text: str) -> None:
    assert duration(hours) == text


def test_sizes_have_no_exponent() -> None:
    """A size just below 1 TB was 1e+03 GB."""
    sizes = {999.4e9: "999 GB", 999.6e9: "1.00 TB", 1.5e12: "1.50 TB"}
    assert {size: gigabytes(size) for size in sizes} == sizes


def test_a_study_is_the_sum_of_its_runs(tmp_path):
    family = {"attention": ["sigmoid"], "context": [2048], "size": ["160M"], "seed": [1, 2]}
    family["training"] = {"steps": 1000, "snapshots": [[10, 20]]}
    validation = {"validate_every": 1000, "validation_cells": 1}
    overrides = {"preset": "paper", "study": {"seeds": family}, "training": validation}
    config = load(overrides=overrides)
    (study_line,) = (line for line in forecast(config, tmp_path) if "  study" in line)
    assert duration(2 * 1000 * 256 / 347 / 3600) in study_line
    assert "2 runs of 154M" in study_line
    run = estimate_effort(Plan(config), "seeds_sigmoid_seed_1", 43_808)
    # Two checkpoints (weights and two moments), the model and two snapshots, in float32.
    assert run.disk_bytes == run.parameters * 4 * (3 * 2 + 1 + 2)
    models = sum(model.disk_bytes for model in efforts(config, 43_808)) + 2 * run.disk_bytes
    assert f", {gigabytes(models)} of models" in "\n".join(forecast(config, tmp_path))


def test_parameters_and_vocabulary(tmp_path):
    """The models of ``paper`` are within 4 % of 160M parameters."""
    config = load(overrides={"preset": "paper"})
    assert vocabulary_size(config, tmp_path) == 25_424 + 18_380 + 4
    for cost in efforts(config, vocabulary_size(config, tmp_path)):
        assert abs(cost.parameters / 160e6 - 1) < 0.04
    # 12 layers, the final norm, 2,048 positions, and the input and output embeddings of 43,808
    # tokens, with a bias of the output.
    parameters = 12 * 7_087_872 + 2 * 768 + 2048 * 768 + 43_808 * (2 * 768 + 1)
    assert f"{parameters / 1e6:.4g}M" in "\n".join(forecast(config, tmp_path))
    (tmp_path / "genes.txt").write_text("ENSG00000000001\nENSG00000000002\n")
    gene_list = {"tokens": {"vocabulary": {"genes": str(tmp_path / "genes.txt")}}}
    assert vocabulary_size(load(overrides={"preset": "paper", **gene_list}), tmp_path) == 6
    genes = (*SPECIAL, "ENSG00000000001")
    vocabulary = Vocabulary(genes, genes, np.zeros(5, dtype=np.int64), np.ones(5))
    vocabulary.write(tmp_path / "tokens" / "vocabulary.parquet")
    assert vocabulary_size(config, tmp_path) == 5


def test_a_manifest_replaces_estimates(tmp_path):
    config = load(overrides={"preset": "paper"})
    files = [("training", "1000", str(10**12)), ("training", "500", ""), ("evaluation", "70", "5")]
    rows = [
        ManifestRow(file=name, role=role, source="cellxgene", location="", cells=cells, bytes=size)
        for name, (role, cells, size) in zip("abc", files, strict=True)
    ]
    write_manifest(tmp_path / "corpus" / "manifest.csv", rows)
    volume = estimate_volume(config, tmp_path)
    assert (volume.files, volume.cells) == (3, 1500)
    assert volume.bytes == pytest.approx(10**12 + 5 + 500 * Lengths(1830, 0.65).mean() * 5.7)
    corpus = config.corpus.model_copy(update={"manifest": str(tmp_path / "none.csv")})
    with pytest.raises(UserError, match="no such manifest"):
        estimate_volume(config.model_copy(update={"corpus": corpus}), tmp_path)


def test_settings_as_for_snakemake():
    expected = {"preset": "paper", "corpus": {"parts": 3}, "seed": 1}
    assert parse_pairs(["preset=paper", "corpus={parts: 3}", "seed=1"]) == expected
    for wrong in ("preset", "=3", "a={"):
        with pytest.raises(UserError, match=r"--config"):
            parse_pairs([wrong])


@pytest.mark.parametrize("preset", ["demo", "small", "paper"])
def test_documents_show_the_output(preset: str, tmp_path: Path):
    """The command runs in an empty folder, because results would replace estimates."""
    command = [sys.executable, "-m", "scsigmoid", "plan", "--config", f"preset={preset}"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout == (ROOT / f"docs/measurements/plan_{preset}.txt").read_text()
