"""The command ``scsigmoid study``: every table and figure, on curves made by hand."""

from pathlib import Path

import pandas as pd
import pytest
from scipy import stats
from study.conftest import STUDY, make_study

from scsigmoid.cli import main
from scsigmoid.config.check import load
from scsigmoid.report.figures.style import styled
from scsigmoid.report.tables.writing import DASH, MINUS
from scsigmoid.study.figures import loss_figure
from scsigmoid.study.runs import Study
from scsigmoid.study.tables import seeds_table


def test_every_table_and_figure_is_made(study: Study, tmp_path: Path):
    own = study.runs[study.runs["family"] == "seeds"]
    scores = [  # softmax leads at first, sigmoid at the end
        (run["name"], step, metric, 0.3 + (0.1 + 0.05 * run["seed"]) * (run["attention"] == leader))
        for metric in ("leiden_nmi", "mmd")
        for step, leader in ((50, "softmax"), (100, "sigmoid"))
        for run in own.to_dict("records")
    ]
    scores += [("random", None, metric, 0.1) for metric in ("leiden_nmi", "mmd")]
    frame = pd.DataFrame(scores, columns=["run", "step", "metric", "value"])
    frame.to_csv(study.folder / "scores.csv", index=False)
    assert main(["study", "--runs", str(study.folder), "--output", str(tmp_path / "page")]) == 0
    for name in (
        *("rates", "frontier", "largest_rates", "limits", "clipping", "seeds", "power"),
        *("variants", "scale", "scores", "claims"),
    ):
        assert (tmp_path / f"page/study_{name}.md").is_file()
    for name in ("loss", "embeddings", "frontier", "scale"):
        assert (tmp_path / f"page/study_{name}.png").stat().st_size > 10_000
    text = (tmp_path / "page/study_seeds.md").read_text()
    assert "from step 50 on" in text
    largest = (tmp_path / "page/study_largest_rates.md").read_text()
    assert "| 2 | 0.001 to 0.004 | 0.004 | 0.001 |" in largest
    by_rate = (tmp_path / "page/study_frontier.md").read_text()
    # At 0.002 one of two seeds collapsed; the other ends at 7.25.
    assert "| softmax, no clipping | 0 of 2; 7.28; 1 | 1 of 2; 7.25; 1 | 2 of 2;" in by_rate
    rates = (tmp_path / "page/study_rates.md").read_text()
    assert "| 0.002 | **7.400 (6.90, 7.90)** | 7.500 (7.50, 7.50) |" in rates
    variants = pd.read_csv(tmp_path / "page/study_variants.csv").iloc[0]
    interval = stats.t.interval(0.95, 2, -0.2, 0.1 / 3**0.5)
    assert variants[["difference", "low", "high"]].tolist() == pytest.approx([-0.2, *interval])
    assert variants[["loss", "seeds", "lower"]].tolist() == pytest.approx([7.0, 3, 3])
    last_step = (tmp_path / "page/study_scores.md").read_text()
    assert last_step.count("\n| mmd | 0.500 ± 0.050 | 0.300 ± 0.000 | 0.100 |") == 1
    assert last_step.count("\n| mmd |") == 1
    steps = pd.read_csv(tmp_path / "page/study_scores.csv").query("metric == 'mmd'")
    assert steps[["step", "sigmoid", "softmax", "random"]].to_numpy().tolist() == [
        [50, 0.3, 0.5, 0.1],
        [100, 0.5, 0.3, 0.1],
    ]
    for (_, mean), sign in zip(steps.iterrows(), (-1, 1), strict=True):
        interval = stats.t.interval(0.95, 2, sign * 0.2, 0.05 / 3**0.5)
        assert mean[["difference", "low", "high"]].tolist() == pytest.approx(
            [sign * 0.2, *interval]
        )
    outcomes = pd.read_csv(tmp_path / "page/study_claims.csv")["outcome"]
    assert outcomes.tolist() == ["open", "agrees", "agrees", "agrees", "agrees"]
    sizes = pd.read_csv(tmp_path / "page/study_scale.csv")
    after = sizes.groupby("step")["size"].agg(list).to_dict()
    assert after == {50: ["demo", "400M", "600M", "1.4B"], 100: ["demo", "400M", "600M"]}
    large = sizes[sizes["size"] == "1.4B"].iloc[0]
    values = large[["sigmoid", "difference", "seed_1", "seed_2"]].tolist()
    assert values == pytest.approx([7.6, -0.075, -0.05, -0.1])


def test_a_study_of_one_seed_has_no_intervals(tmp_path: Path):
    families = {name: {**family, "seed": [1]} for name, family in STUDY.items()}
    study, page = make_study(load(overrides={"study": families}), tmp_path), tmp_path / "page"
    names = study.runs.query("family == 'seeds'")["name"]
    lines = [f"{name},100,leiden_nmi,0.{place + 3}" for place, name in enumerate(names)]
    (study.folder / "scores.csv").write_text("\n".join(["run,step,metric,value", *lines]))
    assert main(["study", "--runs", str(study.folder), "--output", str(page)]) == 0
    line = f"| 0.300 ± {DASH} | 0.400 ± {DASH} | {MINUS}0.100 |"
    assert line in (page / "study_scores.md").read_text()
    outcomes = pd.read_csv(page / "study_claims.csv")["outcome"]
    assert outcomes.tolist() == ["open", "open", "agrees", "open"]


def test_a_tenth_without_a_measurement_has_no_fall(study: Study):
    assert "the mean loss falls by 0.100 (sigmoid)" in seeds_table(study).caption
    study.curves = study.curves[study.curves["step"] != 90]
    assert "too few measurements" in seeds_table(study).caption


def test_a_family_without_a_purpose_is_named(
    study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    runs = (study.folder / "runs.csv").read_text().replace(",rates,rates,", ",mine,,")
    (study.folder / "runs.csv").write_text(runs)
    assert main(["study", "--runs", str(study.folder), "--output", str(tmp_path / "page")]) == 0
    assert "no table or figure shows families without a purpose: mine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("rates", {"rates", "clipping", "claims"}),
        ("seeds", {"seeds", "power", "clipping", "claims", "loss"}),
        ("variants", {"clipping", "claims"}),
        ("scale", {"scale", "clipping", "claims"}),
    ],
)
def test_a_study_of_one_family_has_its_tables_and_figures(tmp_path, family, names):
    study = make_study(load(overrides={"study": {family: STUDY[family]}}), tmp_path)
    page = tmp_path / "page"
    assert main(["study", "--runs", str(study.folder), "--output", str(page)]) == 0
    assert {path.stem for path in page.glob("study*")} == {f"study_{name}" for name in names}


@pytest.mark.parametrize("seeds", [[1], [1, 2]])
def test_a_caption_explains_only_lines_that_the_figure_has(tmp_path: Path, seeds: list[int]):
    family = {**STUDY["seeds"], "seed": seeds}
    study = make_study(load(overrides={"study": {"seeds": family}}), tmp_path)
    for has_change in (True, False):
        with styled():
            (caption,) = (" ".join(text.get_text().split()) for text in loss_figure(study).texts)
        assert ("Thin lines" in caption, "interval" in caption) == (len(seeds) > 1,) * 2
        assert ("vertical dotted line" in caption) == has_change
        study.curves = study.curves[study.curves["step"] > 40]


@pytest.mark.parametrize(("arm", "highest"), [("sigmoid", 4e-3), ("softmax", 1e-3)])
def test_a_study_of_one_arm_has_all_but_the_comparison(tmp_path: Path, arm: str, highest: float):
    families = {name: {**family, "attention": [arm]} for name, family in STUDY.items()}
    config = load(overrides={"study": families})
    study, page = make_study(config, tmp_path), tmp_path / "page"
    assert main(["study", "--runs", str(study.folder), "--output", str(page)]) == 0
    names = {"rates", "frontier", "largest_rates", "limits", "clipping", "variants", "claims"}
    assert {path.stem for path in page.glob("study*")} == {f"study_{name}" for name in names}
    largest = pd.read_csv(page / "study_largest_rates.csv", index_col="setting")[arm]
    assert largest["no clipping, 20 steps of warm-up, 128 tokens"] == highest
    best = {"sigmoid": 0.002, "softmax": 0.001}[arm]
    assert f"| {best:g} | **7.400 (6.90, 7.90)** |" in (page / "study_rates.md").read_text()
