"""From journals to verdicts, tables and figures, on curves made by hand."""

import csv
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from small_training import row

from scsigmoid.cli import main
from scsigmoid.config.check import load
from scsigmoid.config.schema import Config
from scsigmoid.config.study import StudyRun, study_runs
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import write_embedding
from scsigmoid.paper.figures.style import styled
from scsigmoid.paper.tables.writing import DASH, MINUS, Cell
from scsigmoid.study import scores as scoring
from scsigmoid.study.figures import scale
from scsigmoid.study.runs import (
    Study,
    best_rates,
    by_size,
    collect,
    ending,
    flattening,
    frontier,
    last_change,
    paired,
    survived,
)
from scsigmoid.study.scores import metrics
from scsigmoid.study.tables import edges, rates, seeds
from scsigmoid.training.journal import LAYER_COLUMNS, Journal, as_csv

FREQUENCIES = 9.0
STEPS = range(10, 101, 10)
BOTH = {"attention": ["sigmoid", "softmax"], "context": [128], "size": ["demo"]}
STUDY = {
    "rates": {**BOTH, "seed": [1, 2], "training": {"steps": 100, "learning_rate": [1e-3, 2e-3]}},
    "frontier": {
        **BOTH,
        "seed": [1, 2],
        "training": {"steps": 100, "clipping": [None, 1.0], "learning_rate": [1e-3, 2e-3, 4e-3]},
    },
    "frontier_qk_norm": {
        **BOTH,
        "seed": [1],
        "variants": [["qk_norm"]],
        "training": {"steps": 100, "clipping": None, "learning_rate": [4e-3]},
    },
    "seeds": {**BOTH, "seed": [1, 2, 3], "training": {"steps": 100}},
    "variants": {
        **BOTH,
        "attention": ["sigmoid"],
        "seed": [1, 2, 3],
        "variants": [["centred_values"]],
        "training": {"steps": 100},
    },
    "scale": {**BOTH, "size": ["400M", "600M"], "seed": [1, 2], "training": {"steps": 100}},
    "scale_large": {**BOTH, "size": ["1.4B"], "seed": [1, 2], "training": {"steps": 50}},
}


def losses(run: StudyRun) -> list[float]:
    """The validation losses of a run, by hand."""
    softmax = run.model.attention == "softmax"
    if run.family == "frontier" and softmax and run.training.clipping is None:
        if run.training.learning_rate == 4e-3:  # never learns, and is lost altogether
            return [8.8] * 10 if run.seed == 1 else [8.5] * 5 + [math.nan] * 5
        if run.training.learning_rate == 2e-3 and run.seed == 2:  # learns, then falls back
            return [8.0, 7.0, 6.0, 6.2, 6.3, 6.31, 6.31, 6.31, 6.31, 6.31]
    if run.family == "variants":  # 0.1, 0.2 and 0.3 below the seeds' ends
        return [8 - 0.1 * place - 0.1 * run.seed for place in range(10)]
    if run.family == "rates":  # softmax's best rate is another one, by the mean of its seeds
        other = (run.training.learning_rate == 2e-3) != softmax
        return [7.5 + (run.seed - 1.6) * other] * 10
    if run.family == "seeds":  # softmax leads up to step 40, sigmoid from 50 on
        lead = 0.1 * run.seed
        falling = [8 - 0.1 * place for place in range(10)]
        return [y + (lead if place >= 4 else -lead) * softmax for place, y in enumerate(falling)]
    return [8 - 0.1 * place + 0.05 * softmax * run.seed for place in range(10)]


def write(config: Config, results: Path, skipped: str = "") -> None:
    for name, run in study_runs(config).items():
        if name == skipped:
            continue
        rows = [
            row(step, loss, attention_score_max=3.0, gradient_norm=2.0, validation_loss=loss)
            for step, loss in zip(STEPS, losses(run), strict=True)
            if step <= run.training.steps
        ]
        folder = results / "training" / name
        folder.mkdir(parents=True)
        count = {"demo": 1, "400M": 2, "600M": 3, "1.4B": 4}[run.size]
        Journal(folder / "journal.csv", {"parameters": f"{count}000000"}, as_csv(rows))
        with (folder / "layers.csv").open("w") as handle:
            csv.writer(handle).writerows([LAYER_COLUMNS, *([s, 0, *[1.0] * 7] for s in STEPS)])


@pytest.fixture
def config() -> Config:
    return load(overrides={"study": STUDY})


@pytest.fixture
def study(config: Config, tmp_path: Path) -> Study:
    return made(config, tmp_path)


def made(config: Config, folder: Path) -> Study:
    write(config, folder / "results")
    collect(config, folder / "results", folder / "tables")
    (folder / "tables/baselines.csv").write_text(
        "dataset,baseline,loss\nvalidation,frequencies,9\nvalidation,rank and length,7.9\n"
    )
    return Study(folder / "tables")


def test_the_frontier_follows_its_rule(study: Study):
    runs = frontier(study, FREQUENCIES)
    lost = runs[runs["collapsed"]]
    keys = ["attention", "setting", "learning_rate", "seed"]
    other = ", 20 steps of warm-up, 128 tokens"
    found = {tuple(row) for row in lost[keys].itertuples(index=False)}
    assert found == {
        ("softmax", f"no clipping{other}", rate, seed)
        for rate, seed in ((4e-3, 1), (4e-3, 2), (2e-3, 2))
    }
    assert survived(runs).T.to_dict() == {
        f"clipping at 1{other}": {"sigmoid": 4e-3, "softmax": 4e-3},
        f"no clipping{other}": {"sigmoid": 4e-3, "softmax": 1e-3},
        f"no clipping{other}, qk_norm": {"sigmoid": 4e-3, "softmax": 4e-3},
    }
    assert math.isinf(runs["loss"].max())


@pytest.mark.parametrize(
    ("values", "collapsed"),
    [
        ([8.71] * 10, True),  # 0.3 better than frequencies
        ([8.69] * 10, False),
        ([6.0] * 7 + [6.29] * 3, False),  # 0.3 worse than it was
        ([6.0] * 7 + [6.31] * 3, True),
    ],
)
def test_the_rule_at_its_edges(study: Study, values: list[float], collapsed: bool):
    number = study.runs.query("family == 'frontier'").index[0]
    own, run = study.curves["run"] == number, study.runs.loc[number]
    study.curves.loc[own, "validation_loss"] = values
    study.curves.loc[own, "gradient_norm"] = [1.0, 7.0, *[2.0] * 8]
    study.curves.loc[own, "attention_score_max"] = [*[3.0] * 9, math.nan]
    runs = frontier(study, FREQUENCIES).set_index(["setting", "attention", "learning_rate", "seed"])
    found = runs.loc[tuple(run[runs.index.names])]
    assert found["collapsed"] == collapsed
    assert (found["gradient_norm"], found["score"]) == (7, math.inf)
    keys = tuple(run[["setting", "learning_rate", "attention"]])
    (row,) = (row for row in edges(study, FREQUENCIES).records if row[:3] == keys)
    assert (row[4], *row[6:]) == (collapsed, 7, math.inf)


def test_the_best_rate_has_the_lowest_mean_over_the_seeds(study: Study):
    ends, best, step = best_rates(study)
    assert best.to_dict() == {"sigmoid": 2e-3, "softmax": 1e-3}
    assert ends["sigmoid"].loc[2e-3].tolist() == pytest.approx([6.9, 7.9])
    assert step == 100
    started = study.started
    high = started["family"].eq("rates") & (started["validation_loss"] > 7.8)
    started.loc[high, "validation_loss"] = 8.2  # the best of one seed, not of both
    started.loc[started["step"] == 100, "validation_loss"] = math.nan
    _, best, step = best_rates(study)
    assert best.to_dict() == {"sigmoid": 1e-3, "softmax": 2e-3}
    assert step == 90


def test_rates_are_compared_at_the_last_step_that_all_have_reached(study: Study):
    started = study.started
    short = started["run"] == study.runs.query("family == 'rates'").index[0]
    study.started = started[~short | (started["step"] <= 50)]
    assert best_rates(study)[2] == 50


def test_an_arm_that_lacks_a_seed_has_a_rate_none_the_less(study: Study):
    lacking = study.started.query("family == 'rates' and attention == 'softmax' and seed == 2")
    study.started = study.started.drop(lacking.index)
    table = rates(study)
    assert table.records[0][:3] == (1e-3, 7.5, 7.5)
    assert table.rows[0][2] == Cell(f"6.900 (6.90, {DASH})", bold=True)


def test_an_arm_without_runs_of_a_setting_has_no_largest_rate(study: Study):
    normed = study.curves["family"] == "frontier_qk_norm"
    study.curves = study.curves[~(normed & (study.curves["attention"] == "sigmoid"))]
    clipped = study.curves["setting"].str.startswith("clipping")
    study.curves.loc[clipped & (study.curves["attention"] == "softmax"), "loss"] = math.nan
    lines = [row[0] for row in edges(study, FREQUENCIES).rows if len(row) == 1]
    ends = [line.partition("survive: ")[2] for line in lines]
    assert ends == [
        "sigmoid up to 0.004, softmax no rate",
        "sigmoid up to 0.004, softmax up to 0.001",
        "softmax up to 0.004",
    ]


def test_stability_at_several_sizes_is_not_mixed(tmp_path: Path):
    family = {**STUDY["frontier"], "size": ["demo", "400M"]}
    family["training"] = {**family["training"], "clipping": None}
    study = made(load(overrides={"study": {"frontier": family}}), tmp_path)
    large = study.curves["size"] == "400M"
    study.curves.loc[large & (study.curves["learning_rate"] == 1e-3), "loss"] = math.nan
    other = "no clipping, 20 steps of warm-up, 128 tokens"
    rates = survived(frontier(study, FREQUENCIES))
    assert rates.loc[f"{other}, demo"].to_dict() == {"sigmoid": 4e-3, "softmax": 1e-3}
    assert rates.loc[f"{other}, 400M"].to_dict() == {"sigmoid": 0, "softmax": 0}


def test_sizes_are_compared_at_steps_that_they_have(study: Study):
    dropped = {"400M": [50, 100], "600M": [70, 80, 90, 100]}
    for size, steps in dropped.items():
        own = (study.curves["size"] == size) & study.curves["step"].isin(steps)
        study.curves = study.curves[~own]
    table = by_size(study)
    assert table.groupby("step")["size"].agg(list).to_dict() == {
        50: ["demo", "600M", "1.4B"],
        60: ["demo", "400M", "600M"],
        90: ["demo", "400M"],  # demo alone has 100
    }
    with styled():
        panels = scale(study, pd.DataFrame()).axes
    titles = [panel.get_title("left") for panel in panels]
    assert titles == ["After 50 steps", "After 60 steps", "After 90 steps"]
    for one in table.to_dict("records"):
        family = "seeds" if one["size"] == "demo" else "scale"
        ends = study.curves[study.curves["family"].str.startswith(family)]
        ends = ends[(ends["size"] == one["size"]) & (ends["step"] == one["step"])]
        means = ends.groupby("attention")["validation_loss"].mean()
        assert one["difference"] == pytest.approx(means["sigmoid"] - means["softmax"])


def test_a_size_is_compared_in_its_own_family_and_not_without_one(study: Study):
    curves = study.curves
    study.curves = curves[curves["family"].isin(["scale_large", "variants"])]
    assert by_size(study)[["size", "step"]].to_numpy().tolist() == [["1.4B", 50]]
    # Of `demo` there are seeds, too.
    study.curves = curves.replace({"size": {"400M": "demo"}})
    study.runs = study.runs.replace({"size": {"400M": "demo"}})
    table = by_size(study).set_index(["size", "step"])
    assert table.loc[("demo", 100), "difference"] == pytest.approx(-0.075)
    study.runs = study.runs[~study.runs["family"].str.startswith("scale")]
    assert not len(by_size(study))


def test_sizes_without_a_shared_end_are_not_compared(study: Study):
    ends = {"demo": 30, "400M": 40, "600M": 50, "1.4B": 20}
    size, step = study.curves["size"], study.curves["step"]
    study.curves = study.curves[step == size.map(ends)]
    assert not len(by_size(study))


def test_a_run_that_was_lost_is_no_run_that_ended(study: Study):
    own = study.started["run"] == study.runs.query("family == 'rates'").index[0]
    lost = own & (study.started["step"] > 50)
    study.started.loc[lost, ["loss", "validation_loss"]] = math.nan
    ends, _, step = best_rates(study)
    assert step == 100
    assert math.isinf(ends["sigmoid"].loc[1e-3, 1])


@pytest.mark.parametrize(
    ("losses", "values", "end"),
    [
        ([9, 9, 9, 9], [1, 5, 2, 4], 4),
        ([9, 9, 9, 9, 9], [5, 1, math.nan, 2, math.nan], 2),  # not measured after each step
        ([9, 9, 9, math.nan], [1, 2, 3, math.nan], math.inf),
        ([9, 9, 9], [1, 2, math.inf], math.inf),
    ],
)
def test_a_run_ends_at_the_median_of_its_last_three_losses(
    losses: list[float], values: list[float], end: float
):
    assert ending(pd.DataFrame({"loss": losses, "validation_loss": values})) == end


def test_the_sign_is_that_after_the_last_change():
    signs = pd.DataFrame({"step": [1, 2, 3, 4, 5, 6], "difference": [1, -1, 1, 1, -1, -1]})
    assert last_change(signs) == 5


def test_the_difference_is_taken_seed_by_seed(study: Study):
    means = paired(study, "seeds")
    first, last = means.iloc[0], means.iloc[-1]
    assert first["difference"] == pytest.approx(0.2)
    assert last["difference"] == pytest.approx(-0.2)
    wanted = stats.t.interval(0.95, 2, -0.2, 0.1 / 3**0.5)
    assert (last["low"], last["high"]) == pytest.approx(wanted)
    assert last_change(means) == 50
    assert last_change(means[means["step"] > 40]) is None
    one = study.curves[study.curves["family"] == "seeds"].query(
        "attention == 'sigmoid' and seed == 1"
    )
    assert flattening(one) == pytest.approx(0.1)
    study.curves.loc[one.index, "validation_loss"] += 3  # one seed of three
    assert paired(study, "seeds").iloc[-1][["sigmoid", "difference"]].tolist() == pytest.approx(
        [last["sigmoid"] + 1, last["difference"] + 1]
    )


@pytest.mark.parametrize("every", [1, 2, 5, 10])
def test_a_straight_curve_falls_by_as_much_in_each_tenth(every: int):
    steps = np.arange(every, 101, every)
    curve = pd.DataFrame({"step": steps, "validation_loss": 9 - 0.02 * steps})
    assert flattening(curve) == pytest.approx(0.2)


def test_runs_that_are_missing_or_unfinished_are_named(
    config: Config, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    write(config, tmp_path / "results", skipped="seeds_softmax_seed_2")
    short = tmp_path / "results/training/seeds_sigmoid_seed_3/journal.csv"
    short.write_text("".join(short.read_text().splitlines(keepends=True)[:-1]))
    collect(config, tmp_path / "results", tmp_path / "tables")
    assert "1 of 55 runs are missing: seeds_softmax_seed_2" in capfd.readouterr().err
    study = Study(tmp_path / "tables")
    assert study.unfinished == ["seeds_sigmoid_seed_3"]
    assert paired(study, "seeds")["seeds"].tolist() == [1] * 10
    with pytest.raises(UserError, match="holds no run of the study"):
        collect(config, tmp_path / "nothing", tmp_path / "tables")


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
    for name in ("rates", "frontier", "seeds", "variants", "scale", "scores", "claims"):
        assert (tmp_path / f"page/study_{name}.md").is_file()
    for name in ("loss", "embeddings", "frontier", "scale"):
        assert (tmp_path / f"page/study_{name}.png").stat().st_size > 10_000
    text = (tmp_path / "page/study_seeds.md").read_text()
    assert "It keeps its sign from step 50 on" in text
    edges = (tmp_path / "page/study_frontier.md").read_text()
    assert "All seeds survive: sigmoid up to 0.004, softmax up to 0.001" in edges
    assert "| 0.002 | softmax | 1 of 2 | 7.250 |" in edges
    rates = (tmp_path / "page/study_rates.md").read_text()
    assert "| 0.002 | **7.400 (6.90, 7.90)** | 7.500 (7.50, 7.50) |" in rates
    variants = pd.read_csv(tmp_path / "page/study_variants.csv").iloc[0]
    wanted = stats.t.interval(0.95, 2, -0.2, 0.1 / 3**0.5)
    assert variants[["difference", "low", "high"]].tolist() == pytest.approx([-0.2, *wanted])
    assert variants[["loss", "seeds", "lower"]].tolist() == pytest.approx([7.0, 3, 3])
    last = pd.read_csv(tmp_path / "page/study_scores.csv").iloc[0]
    assert last[["step", "sigmoid", "softmax", "random"]].tolist() == [100, 0.5, 0.3, 0.1]
    spread = "| 0.500 ± 0.050 | 0.300 ± 0.000 | 0.100 |"
    assert spread in (tmp_path / "page/study_scores.md").read_text()
    steps = pd.read_csv(tmp_path / "page/study_embeddings.csv").query("metric == 'mmd'")
    assert steps["step"].tolist() == [50, 100]
    for (_, mean), sign in zip(steps.iterrows(), (-1, 1), strict=True):
        wanted = stats.t.interval(0.95, 2, sign * 0.2, 0.05 / 3**0.5)
        assert mean[["difference", "low", "high"]].tolist() == pytest.approx([sign * 0.2, *wanted])
    said = pd.read_csv(tmp_path / "page/study_claims.csv").set_index("claim")["outcome"]
    assert said.tolist() == ["open", "agrees", "agrees", "agrees"]
    sizes = pd.read_csv(tmp_path / "page/study_scale.csv")
    after = sizes.groupby("step")["size"].agg(list).to_dict()
    assert after == {50: ["demo", "400M", "600M", "1.4B"], 100: ["demo", "400M", "600M"]}
    large = sizes[sizes["size"] == "1.4B"].iloc[0]
    found = large[["sigmoid", "difference", "seed_1", "seed_2"]].tolist()
    assert found == pytest.approx([7.6, -0.075, -0.05, -0.1])


def test_a_study_of_one_seed_has_no_intervals(tmp_path: Path):
    families = {name: {**family, "seed": [1]} for name, family in STUDY.items()}
    study, page = made(load(overrides={"study": families}), tmp_path), tmp_path / "page"
    names = study.runs.query("family == 'seeds'")["name"]
    lines = [f"{name},100,leiden_nmi,0.{place + 3}" for place, name in enumerate(names)]
    (study.folder / "scores.csv").write_text("\n".join(["run,step,metric,value", *lines]))
    assert main(["study", "--runs", str(study.folder), "--output", str(page)]) == 0
    line = f"| 0.300 ± {DASH} | 0.400 ± {DASH} | {MINUS}0.100 |"
    assert line in (page / "study_scores.md").read_text()
    assert "Both arms over 1 seed. " in (page / "study_seeds.md").read_text()
    said = pd.read_csv(page / "study_claims.csv").set_index("claim")["outcome"]
    assert said.tolist() == ["open", "open", "agrees"]


def test_a_tenth_without_a_measurement_has_no_fall(study: Study):
    assert "The last tenth of the steps lowers the loss by 0.100 (sigmoid)" in seeds(study).caption
    study.curves = study.curves[study.curves["step"] != 90]
    assert "Too few measurements to say" in seeds(study).caption


def test_a_family_of_another_name_is_named(
    study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    runs = (study.folder / "runs.csv").read_text().replace(",rates,", ",mine,")
    (study.folder / "runs.csv").write_text(runs)
    assert main(["study", "--runs", str(study.folder), "--output", str(tmp_path / "page")]) == 0
    assert "no table or figure shows the families mine: known are" in capsys.readouterr().out


@pytest.mark.parametrize(("arm", "highest"), [("sigmoid", 4e-3), ("softmax", 1e-3)])
def test_a_study_of_one_arm_has_all_but_the_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arm: str, highest: float
):
    families = {name: {**family, "attention": [arm]} for name, family in STUDY.items()}
    one = load(overrides={"study": families})
    study, page = made(one, tmp_path), tmp_path / "page"
    assert main(["study", "--runs", str(study.folder), "--output", str(page)]) == 0
    assert f"all runs are of {arm}: no comparison" in capsys.readouterr().out
    names = {"rates", "frontier", "variants", "claims"}
    assert {path.stem for path in page.glob("study*")} == {f"study_{name}" for name in names}
    assert f"All seeds survive: {arm} up to {highest:g}" in (page / "study_frontier.md").read_text()
    best = {"sigmoid": 0.002, "softmax": 0.001}[arm]
    assert f"| {best:g} | **7.400 (6.90, 7.90)** |" in (page / "study_rates.md").read_text()


@pytest.fixture
def clouds() -> Callable[[float], tuple[np.ndarray, np.ndarray]]:
    def made(apart: float) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(0)
        kinds = np.repeat(["a", "b", "c"], 40)
        centres = dict(zip("abc", apart * np.eye(3, 5), strict=True))
        return np.stack([centres[k] + generator.normal(size=5) for k in kinds]), kinds

    return made


def test_scores_tell_types_apart_from_noise(
    clouds: Callable[[float], tuple[np.ndarray, np.ndarray]],
):
    apart, together = (metrics(*clouds(distance), 1, "clouds") for distance in (12.0, 0.0))
    assert apart["linear_probe"] == 1
    assert abs(together["linear_probe"] - 1 / 3) < 0.15
    assert apart["leiden_nmi"] > 0.9 > 0.2 > together["leiden_nmi"]
    assert apart["silhouette_label"] > 0.8 > 0.55 > together["silhouette_label"]
    assert apart["mmd"] > 0.8 > 0.2 > together["mmd"]


def test_scores_say_the_run_and_the_step(
    clouds: Callable[[float], tuple[np.ndarray, np.ndarray]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(scoring, "CONTROLS", ("random",))
    facts = {"model": "seeds_1", "attention": "sigmoid", "context": 128, "simulated": True}
    paths = [tmp_path / f"{name}.h5ad" for name in ("early", "last", "old")]
    for path, step in zip(paths, ({"step": 50}, {"step": 2_000_000}, {}), strict=True):
        values, kinds = clouds(12.0 if path.stem == "last" else 0.0)
        obs = pd.DataFrame(index=[str(row) for row in range(len(kinds))])
        write_embedding(path, values, kinds, np.arange(len(kinds)), facts | step, obs)
    scoring.score(paths[:2], tmp_path / "toy.h5ad", 1, tmp_path / "scores.csv")
    table = pd.read_csv(tmp_path / "scores.csv", dtype={"step": "Int64"})
    probe = table[table["metric"] == "linear_probe"]
    assert probe["run"].tolist() == ["seeds_1", "seeds_1", "random"]
    assert probe["step"].tolist() == [50, 2_000_000, pd.NA]
    assert [value > 0.9 for value in probe["value"]] == [False, True, False]
    with pytest.raises(UserError, match=r"old\.h5ad: of an older version, without a step"):
        scoring.score(paths, tmp_path / "toy.h5ad", 1, tmp_path / "scores.csv")
