"""The comparison over seeds, against scipy's paired t-test and numbers worked out by hand."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper.conftest import fabricate
from scipy import stats

from scsigmoid.cli import main
from scsigmoid.config.check import as_yaml, load, read_yaml
from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.measurements import read_measurements, write_measurements
from scsigmoid.paper.tables.seeds import compare_seeds, plain

ROOT = Path(__file__).parents[2]
PAIR = ["sigmoid_2k", "softmax_2k"]
SEEDS = (1, 2, 5)
SHIFTS = (0.0, 0.3, -0.1)


@pytest.fixture
def runs(tmp_path: Path, config: Config) -> list[Path]:
    """Made-up results of three seeds; sigmoid's and softmax's scores shift by unlike amounts."""
    return [
        run(tmp_path / f"seed_{seed}", config, seed, shift)
        for seed, shift in zip(SEEDS, SHIFTS, strict=True)
    ]


def run(folder: Path, config: Config, seed: int, shift: float) -> Path:
    one = {name: config.datasets[name] for name in ("heart_oft",)}
    own = replace(config, seed=seed, results=str(folder), datasets=one)
    fabricate(folder, own)
    (folder / "config.yaml").write_text(as_yaml(own))
    changed = ("metrics/leiden_*/*.csv", "metrics/validation_loss/*/*.csv")
    for path in [path for pattern in changed for path in folder.glob(pattern)]:
        write_measurements(
            path,
            [
                replace(row, value=row.value + shift * (2 if "softmax" in row.model else 1))
                for row in read_measurements(path)
            ],
        )
    return folder


def table(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="") as handle:
        return {row["metric"]: row for row in csv.DictReader(handle)}


def values(folder: Path, metric: str, model: str) -> float:
    if metric == "validation_loss":
        return read_measurements(folder / f"metrics/validation_loss/heart_oft/{model}.csv")[0].value
    rows = read_measurements(folder / f"metrics/{metric}/heart_oft.csv")
    return next(row.value for row in rows if row.model == model)


@pytest.mark.parametrize("metric", ["leiden_nmi", "validation_loss"])
def test_difference_and_interval_are_those_of_a_paired_test(
    runs: list[Path], tmp_path: Path, metric: str
) -> None:
    # The order of the folders does not matter.
    compare_seeds(runs[::-1], tmp_path / "seeds.csv")
    row = table(tmp_path / "seeds.csv")[metric]
    ours, theirs = (
        np.array([values(folder, metric, model) for folder in runs])
        for model in ("sigmoid_4k", "softmax_4k")
    )
    low, high = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert float(row["difference"]) == pytest.approx((ours - theirs).mean())
    assert (float(row["difference_low"]), float(row["difference_high"])) == (
        pytest.approx(low), pytest.approx(high),
    )  # fmt: skip
    assert float(row["sigmoid_4k"]) == pytest.approx(ours.mean())
    assert float(row["softmax_4k_deviation"]) == pytest.approx(theirs.std(ddof=1))
    better = (ours < theirs) if metric == "validation_loss" else (ours > theirs)
    assert (row["sigmoid_better"], row["seeds"]) == (str(better.sum()), "3")
    assert 0 < better.sum() < 3 or metric == "leiden_nmi"


def test_every_metric_with_the_controls(runs: list[Path], tmp_path: Path) -> None:
    written = compare_seeds(runs, tmp_path / "seeds.csv")
    assert [path.name for path in written] == ["seeds.csv", "seeds.md", "seeds.tex"]
    rows = table(written[0])
    assert list(rows) == [
        "validation_loss", "leiden_nmi", "leiden_ari", "silhouette_label", "bio_conservation",
        "mmd",
    ]  # fmt: skip
    for metric, row in rows.items():
        assert (row["random"] == "") == (metric in ("validation_loss", "mmd"))
    pairs = read_measurements(runs[0] / "metrics/mmd/heart_oft.csv")
    mine = [r.value for r in pairs if r.metric == "mmd_unbiased" and r.model == "sigmoid_4k"]
    # The made-up MMD is the same for all seeds.
    assert float(rows["mmd"]["sigmoid_4k"]) == pytest.approx(np.mean(mine))
    assert float(rows["mmd"]["sigmoid_4k_deviation"]) == pytest.approx(0, abs=1e-12)
    text = written[1].read_text()
    assert "The two arms over 3 seeds" in text
    assert "Trained on simulated cells." in text
    first = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in compare_seeds(runs, tmp_path / "seeds.csv")] == first


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 2}, r"seed_1: has the seed 2 of .*seed_2"),
        ({"device": "cuda"}, ""),
        ({"nodes": 3}, r"seed_1: differs from .*seed_2 in the setting 'nodes'"),
    ],
)
def test_runs_that_cannot_be_compared(
    runs: list[Path], config: Config, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    one = {"heart_oft": config.datasets["heart_oft"]}
    own = replace(config, results=str(runs[0]), datasets=one, **({"seed": 1} | change))
    (runs[0] / "config.yaml").write_text(as_yaml(own))
    if message:
        with pytest.raises(UserError, match=message):
            compare_seeds([runs[1], runs[0]], tmp_path / "seeds.csv")
        assert not (tmp_path / "seeds.csv").exists()
    else:
        compare_seeds([runs[1], runs[0]], tmp_path / "seeds.csv")


def test_seeds_with_other_pairs(runs: list[Path], tmp_path: Path) -> None:
    path = runs[1] / "metrics/mmd/heart_oft.csv"
    rows = read_measurements(path)
    pair = next(row.group for row in rows if " vs " in row.group)
    write_measurements(path, [row for row in rows if row.group != pair])
    with pytest.raises(
        UserError, match=rf"seed_2: .*heart_oft\.csv has other pairs.*27 and 28.*{pair}"
    ):
        compare_seeds(runs, tmp_path / "seeds.csv")
    assert not list(tmp_path.glob("seeds.*"))


def test_too_few_or_missing(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name at least two"):
        compare_seeds(runs[:1], tmp_path / "seeds.csv")
    with pytest.raises(UserError, match=r"nowhere/config\.yaml"):
        compare_seeds([runs[0], tmp_path / "nowhere"], tmp_path / "seeds.csv")
    (runs[1] / "metrics/mmd/heart_oft.csv").unlink()
    with pytest.raises(UserError, match=r"heart_oft\.csv: no such result file"):
        compare_seeds(runs, tmp_path / "seeds.csv")


def test_the_command(runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "seeds.csv"
    assert main(["compare-seeds", *map(str, runs), "--output", str(output)]) == 0
    assert output.read_text().splitlines()[0].startswith("dataset,title,metric,sigmoid_4k,")
    assert main(["compare-seeds", str(runs[0]), "--output", str(output)]) == 1
    assert capsys.readouterr().err == (
        "scsigmoid: error: compare-seeds: one results folder; name at least two, each of a seed\n"
    )


def test_the_study_of_real_cells_is_a_configuration(real_data: Path) -> None:
    """It differs between seeds in the seed and the results folder alone, and trains one pair."""
    study = read_yaml(ROOT / "workflow/studies/real_cells.yaml")
    for entry in study["corpus"]["local"]:
        entry["files"] = str(real_data / Path(entry["files"]).name)
    configs = [
        load(ROOT / "config.yaml", ROOT / "workflow/presets", study | {"seed": seed})
        for seed in (1, 2)
    ]
    assert list(configs[0].models) == list(configs[0].evaluation.pair) == PAIR
    assert list(configs[0].datasets) == ["pbmc_facs", "lung_cell_lines"]
    assert plain(configs[0]) == plain(configs[1])
    assert {model.context for model in configs[0].models.values()} == {2048}
