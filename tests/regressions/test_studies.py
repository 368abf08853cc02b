"""Studies of one seed, one arm, several sizes, or with missing runs."""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from study import conftest as study_fixtures
from study.conftest import (
    SEEDS,
    STUDY,
    VALIDATION,
    load_study,
    make_page,
    make_study,
    study_of,
    write_runs,
)

from scsigmoid.benchmarks.simulated import write_simulated_tokens
from scsigmoid.cli import main
from scsigmoid.config.check import load, merge, read_yaml
from scsigmoid.config.schema import Config
from scsigmoid.config.study import study_runs
from scsigmoid.errors import UserError
from scsigmoid.report.figures.style import styled
from scsigmoid.report.tables.writing import DASH, MINUS, Cell
from scsigmoid.study import comparisons
from scsigmoid.study.baselines import baselines
from scsigmoid.study.comparisons import loss_differences
from scsigmoid.study.figures import loss_figure, stability_figure
from scsigmoid.study.runs import Study, collect
from scsigmoid.study.stability import stability_runs
from scsigmoid.study.tables import frontier_table, rates_table, scores_table, seeds_table

config, study = (getattr(study_fixtures, name) for name in ("config", "study"))


def test_a_number_as_text_gives_the_same_name():
    as_text, as_number = (
        study_runs(load_study({"rates": SEEDS | {"training": training}}))
        for training in ({"learning_rate": [rate]} for rate in ("1e-3", 0.001))
    )
    assert as_text.keys() == as_number.keys()


def test_a_study_embeds_one_dataset():
    study = {
        name: {**SEEDS, "purpose": None, "embedded": name}
        for name in ("simulated_heart", "pbmc68k")
    }
    with pytest.raises(UserError, match=r"study: families embed pbmc68k, simulated_heart; choose"):
        load(overrides={"study": study})


@pytest.mark.parametrize(
    ("purpose", "varied"),
    [
        ("seeds", {"size": ["tiny", "tiny_32"]}),
        ("rates", {"context": [128, 256]}),
        ("sizes", {"training": {"clipping": [None, 1.0]}}),
        ("stability", {"training": {"mask_fraction": [0.1, 0.2]}}),
    ],
)
def test_runs_that_a_table_would_average_are_refused(purpose, varied):
    single = SEEDS | {"size": ["tiny"], "training": {"learning_rate": 1e-3}, "purpose": purpose}
    assert study_runs(load_study({"mine": single}))
    with pytest.raises(UserError, match=r"study\.mine: .* have the same purpose, attention, seed"):
        study_runs(load_study({"mine": single | varied}))
    with pytest.raises(UserError, match=r"study\.other: mine_.* and other_"):
        study_runs(load_study({"mine": single, "other": single}))
    assert study_runs(load_study({"mine": single | varied | {"purpose": None}}))


def test_a_study_of_one_seed_has_no_intervals(tmp_path: Path):
    study = study_of(tmp_path, seed=[1])
    names = study.runs.query("family == 'seeds'")["name"]
    lines = [f"{name},100,leiden_nmi,0.{place + 3}" for place, name in enumerate(names)]
    (study.folder / "scores.csv").write_text("\n".join(["run,step,metric,value", *lines]))
    page = make_page(study)
    line = f"| 0.300 ± {DASH} | 0.400 ± {DASH} | {MINUS}0.100 |"
    assert line in (page / "study_scores.md").read_text()


def test_a_tenth_without_a_measurement_has_no_fall(study: Study):
    assert "the mean loss falls by 0.100 (sigmoid)" in seeds_table(study).caption
    study.curves = study.curves[study.curves["step"] != 90]
    assert "too few measurements" in seeds_table(study).caption


def test_a_family_without_a_purpose_is_named(study: Study, capsys: pytest.CaptureFixture[str]):
    runs = (study.folder / "runs.csv").read_text().replace(",rates,rates,", ",mine,,")
    (study.folder / "runs.csv").write_text(runs)
    make_page(study)
    assert "in no table; set study.<family>.purpose: mine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arm", "highest", "best"), [("sigmoid", 4e-3, 0.002), ("softmax", 1e-3, 0.001)]
)
def test_a_study_of_one_arm_has_all_but_the_comparison(tmp_path, arm, highest, best):
    page = make_page(study_of(tmp_path, attention=[arm]))
    names = {"rates", "frontier", "largest_rates", "limits", "clipping", "variants"}
    assert {path.stem for path in page.glob("*")} == {f"study_{name}" for name in names}
    largest = pd.read_csv(page / "study_largest_rates.csv", index_col="setting")[arm]
    assert largest["no clipping, 20 steps of warm-up, 128 tokens"] == highest
    assert f"| {best:g} | **7.400 (6.90, 7.90)** |" in (page / "study_rates.md").read_text()


def test_runs_that_are_missing_or_unfinished_are_named(
    config: Config, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    write_runs(config, tmp_path / "results", skipped="seeds_softmax_seed_2")
    short = tmp_path / "results/training/seeds_sigmoid_seed_3/journal.csv"
    short.write_text("".join(short.read_text().splitlines(keepends=True)[:-1]))
    collect(config, tmp_path / "results", tmp_path / "tables")
    assert "1 of 55 runs are missing: seeds_softmax_seed_2" in capfd.readouterr().err
    study = Study(tmp_path / "tables")
    assert study.unfinished == ["seeds_sigmoid_seed_3"]
    text = short.read_text()
    short.write_text(f"# model: seeds_softmax_seed_3\n{text}")  # was taken for the run's own
    with pytest.raises(UserError, match=r"seed_3/journal\.csv: has model 'seeds_softmax_seed_3'"):
        collect(config, tmp_path / "results", tmp_path / "tables")
    short.write_text(text)
    layers = short.with_name("layers.csv")
    for text in ("", "step,la", layers.read_text().replace("step,", "steps,")):
        layers.write_text(text)  # they were a traceback, or a table with other columns
        with pytest.raises(UserError, match=r"seed_3/layers\.csv: damaged"):
            collect(config, tmp_path / "results", tmp_path / "tables")
    assert loss_differences(study, "seeds")["seeds"].tolist() == [1] * 10
    with pytest.raises(UserError, match="contains no run of the study"):
        collect(config, tmp_path / "nothing", tmp_path / "tables")


@pytest.mark.parametrize("file", ["runs", "curves", "layers", "baselines"])
def test_edited_columns_are_named(study: Study, file: str) -> None:
    """Missing columns, and text between numbers, ended in a traceback."""
    path = study.folder / f"{file}.csv"
    table = pd.read_csv(path)
    others = ["row", "gradient", "seconds", "device", "backend", "torch", "commit"]
    table = table.drop(columns=others, errors="ignore")
    for column in table:
        edited = [table.drop(columns=column)]
        if pd.api.types.is_numeric_dtype(table[column]):
            edited.append(table.assign(**{column: ["x", *table[column][1:]]}))
        for other in edited:
            other.to_csv(path, index=False)
            with pytest.raises(UserError, match=rf"{file}\.csv: column '{column}' ") as error:
                Study(study.folder).baseline("frequencies", 128)
            assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["nan", "null"])
def test_a_family_that_pandas_reads_as_a_missing_value(tmp_path: Path, name: str) -> None:
    """It ended in a ZeroDivisionError."""
    config = load_study({name: STUDY["frontier"]})
    page = make_page(make_study(config, tmp_path))
    assert set(pd.read_csv(page / "study_clipping.csv", na_filter=False)["family"]) == {name}


def test_an_arm_with_a_missing_seed_has_a_best_rate(study: Study):
    missing = study.all_curves.query("family == 'rates' and attention == 'softmax' and seed == 2")
    study.all_curves = study.all_curves.drop(missing.index)
    table = rates_table(study)
    assert list(table.records[0].values())[:3] == [1e-3, 7.5, 7.5]
    assert table.rows[0][2] == Cell(f"6.900 (6.90, {DASH})", bold=True)


def test_the_last_sign_change():
    signs = pd.DataFrame({"step": [1, 2, 3, 4, 5, 6], "difference": [1, -1, 1, 1, -1, -1]})
    assert comparisons.last_sign_change(signs) == 5


def test_a_seed_of_one_arm_is_not_in_the_standard_deviation(study: Study) -> None:
    """The mean was over the seeds of both arms, the deviation over all runs of the arm."""
    runs = study.runs[study.runs["family"] == "seeds"].to_dict("records")
    rows = [(run["name"], 100, "mmd", 0.1 * run["seed"] ** 2) for run in runs]
    scores = pd.DataFrame(rows, columns=["run", "step", "metric", "value"])
    scores = scores[scores["run"] != "seeds_softmax_seed_3"]
    scores.to_csv(study.folder / "scores.csv", index=False)
    (row,) = scores_table(Study(study.folder)).rows
    assert row[1:3] == ["0.250 ± 0.212"] * 2  # of 0.1 and 0.4


@pytest.mark.parametrize("arms", [["softmax"], ["sigmoid", "softmax"]])
def test_a_run_that_is_not_finite_has_an_infinite_loss(study: Study, arms: list[str]) -> None:
    """The table and the figure ended before the first seed that diverged, without a word."""
    curves = study.curves
    is_lost = (curves["seed"] == 2) & (curves["step"] > 60) & (curves["family"] == "seeds")
    is_lost &= curves["attention"].isin(arms)
    curves.loc[is_lost, ["loss", "validation_loss"]] = math.nan
    rows = loss_differences(study, "seeds").set_index("step")
    assert rows.index.tolist() == [*range(10, 101, 10)]
    assert np.isfinite(rows.loc[:60, ["sigmoid", "softmax", "difference", "low"]]).all(axis=None)
    infinite = {arm: np.isinf(rows.loc[70:, arm]).all() for arm in ("sigmoid", "softmax")}
    assert infinite == {"sigmoid": "sigmoid" in arms, "softmax": True}
    table = seeds_table(study)
    difference = DASH if len(arms) == 2 else f"{MINUS}∞"
    assert table.rows[-1][2:] == ["∞", difference]
    assert "too few measurements" in table.caption
    with styled():
        assert loss_figure(study)


def test_a_study_without_a_finite_loss_has_a_table(study: Study) -> None:
    """It ended with a TypeError if all runs of both arms were lost from the first step on."""
    study.curves.loc[study.curves["purpose"] == "seeds", ["loss", "validation_loss"]] = math.nan
    assert seeds_table(study).rows[-1][2:] == ["∞", DASH]


def test_an_infinite_validation_loss_is_in_the_next_means(study: Study) -> None:
    """Rolling means left it out, so the point disappeared from the table and the figure."""
    curves = study.curves
    is_infinite = curves.eval("seed == 2 and step == 40 and attention == 'sigmoid'")
    curves.loc[is_infinite, "validation_loss"] = math.inf
    rows = loss_differences(study, "seeds").set_index("step")
    assert np.isinf(rows["sigmoid"]).tolist() == [False] * 3 + [True] * 5 + [False] * 2


def test_a_study_whose_runs_are_all_lost_has_its_page(study: Study) -> None:
    """It ended with a ValueError, later with a warning about a legend without entries."""
    path = study.folder / "curves.csv"
    curves = pd.read_csv(path)
    curves.assign(loss=math.nan, validation_loss=math.nan).to_csv(path, index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        page = make_page(study)
    assert "up to step 100." in (page / "study_rates.md").read_text()
    assert (page / "study_frontier.png").is_file()


@pytest.mark.parametrize("arms", [["softmax"], ["sigmoid", "softmax"]])
def test_arms_whose_runs_are_all_lost_are_in_the_legend(study: Study, arms: list[str]) -> None:
    study.curves.loc[study.curves["attention"].isin(arms), ["loss", "validation_loss"]] = math.nan
    with styled():
        (legend, *_) = [a.get_legend() for a in stability_figure(study).axes if a.get_legend()]
    labels = [text.get_text() for text in legend.get_texts()]
    assert [label for label in labels if label.removesuffix(", collapsed") in arms] == [
        f"{arm}, collapsed" for arm in arms
    ]


def test_a_run_is_compared_with_the_baseline_of_its_context(tmp_path: Path) -> None:
    """The baseline at the longest context of the study decided which shorter runs collapsed."""
    families = {
        name: STUDY["frontier"] | {"context": [context], "seed": [1]}
        for name, context in (("short", 64), ("long", 128))
    }
    study = make_study(load_study(families), tmp_path)
    frame = pd.DataFrame(
        [("validation", 64, "frequencies", 7.2), ("validation", 128, "frequencies", 9.0)],
        columns=["dataset", "context", "baseline", "loss"],
    )
    frame.to_csv(study.folder / "baselines.csv", index=False)
    runs = stability_runs(Study(study.folder)).query("attention == 'sigmoid'")
    assert set(runs["level"].round(6)) == {7.2}  # the median of the last three losses
    for context, baseline, has_collapsed in (("64", 7.2, True), ("128", 9.0, False)):
        of_context = runs[runs["setting"].str.contains(f" {context} tokens")]
        assert set(of_context["baseline"]) == {baseline}
        assert set(of_context["collapsed"]) == {has_collapsed}


def test_no_rate_is_best_if_all_runs_diverged(study: Study) -> None:
    """The lowest rate was bold, with an infinite loss."""
    is_lost = (study.all_curves["family"] == "rates") & (study.all_curves["attention"] == "softmax")
    study.all_curves.loc[is_lost, "loss"] = math.nan
    bold = [[cell.bold for cell in row[1:]] for row in rates_table(study).rows]
    assert bold == [[False, False], [True, False]]


def test_keys_are_of_the_last_step_of_each_run(study: Study) -> None:
    """Runs with fewer steps than others had no number of keys."""
    is_short = study.layers["setting"].str.startswith("clipping") & (study.layers["step"] > 50)
    study.layers = study.layers[~is_short]
    assert all(record["keys"] == 1 for record in frontier_table(study).records)


@pytest.mark.parametrize("kept", [1, 5, 10])
def test_layers_that_are_cut_at_the_end_of_a_line(
    kept: int, config: Config, tmp_path: Path
) -> None:
    """The rows of ``layers.csv`` are not numbered, because training appends them."""
    write_runs(config, tmp_path)
    path = next(tmp_path.glob("training/seeds*/layers.csv"))
    header, *lines = path.read_text().splitlines(keepends=True)
    twice = [line.replace(",0,", f",{layer},", 1) for line in lines for layer in (0, 1)]
    path.write_text("".join([header, *twice[4:]]))  # continued without the file
    collect(config, tmp_path, tmp_path / "tables")
    path.write_text("".join([header, *twice[:-kept]]))
    with pytest.raises(UserError, match=f"{path}: damaged"):
        collect(config, tmp_path, tmp_path / "tables")


def test_a_study_without_cells_for_its_baselines_is_refused() -> None:
    """After all runs were trained, the baselines ended with a ValueError."""
    validation = {"validate_every": 1, "validation_cells": 64}
    study = {"seeds": SEEDS | {"training": {name: [value] for name, value in validation.items()}}}
    assert load(overrides={"study": study, "training": validation})
    with pytest.raises(
        UserError, match=r"^training\.validation_cells: 0, but seeds_.* has 64; "
    ) as error:
        load(overrides={"study": study})
    assert "training.validate_every" in str(error.value)  # one without the other is refused


def test_runs_without_validation_losses_are_refused() -> None:
    """They were refused after all runs were trained. Next to others, they counted as collapsed."""
    with pytest.raises(UserError, match=r"^study\.seeds: seeds_.* no validation losses; set train"):
        load(overrides={"study": {"seeds": SEEDS}})
    off = {"training": dict.fromkeys(VALIDATION, 0)}
    rates = STUDY["rates"]
    with pytest.raises(UserError, match=r"^study\.seeds: seeds_.* would have no validation losses"):
        load_study({"rates": rates, "seeds": SEEDS | off})
    with pytest.raises(UserError, match=r"^study\.seeds: seeds_.* would have no validation losses"):
        load_study({"seeds": SEEDS | off | {"purpose": None}})
    assert load_study({"rates": rates, "seeds": SEEDS | off | {"purpose": None}})


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ({"variants": []}, "seeds.variants: List should have at least 1 item"),  # it had no runs
        ({"seed": [*range(101)], "training": {"steps": [*range(1, 101)]}}, "seeds: 20,200 runs"),
        (
            {"training": {"patience": 3}},
            "seeds.training.patience: compared runs",
        ),  # were unfinished
    ],
)
def test_families_that_cannot_be_compared_are_refused(family: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=rf"^study\.{message}"):
        load_study({"seeds": SEEDS | family})


def test_learning_rates_may_stop_early() -> None:
    """They were refused, although their table compares them at the last step that all reached."""
    patience = {"training": {"steps": 100, "patience": 3}}
    assert load_study({"rates": SEEDS | {"purpose": "rates"} | patience})


def test_losses_of_different_contexts_are_not_compared() -> None:
    """A longer context has other masked genes, and the losses were compared."""
    arms = {arm: SEEDS | {"attention": [arm]} for arm in ("sigmoid", "softmax")}
    longer = {"context": [256]}
    with pytest.raises(UserError, match=r"^study\.softmax\.context: 256, but .* have 128; set one"):
        load_study(arms | {"softmax": arms["softmax"] | longer})
    with pytest.raises(
        UserError, match=r"^study\.variants\.context: 256, but .* have 128; set one"
    ):
        load_study({"seeds": SEEDS, "variants": STUDY["variants"] | longer})
    for separate in ("scale", "rates", "frontier"):  # are in tables of their own
        assert load_study({"seeds": SEEDS, separate: STUDY[separate] | longer})


def test_a_model_with_the_name_of_a_run_is_refused() -> None:
    """The model was trained with the settings of the run."""
    models = {"seeds_sigmoid_seed_1": {"attention": "sigmoid", "context": 256}}
    with pytest.raises(UserError, match=r"^study\.seeds: a model is called seeds_sigmoid_seed_1"):
        load(overrides={"study": {"seeds": SEEDS}, "training": VALIDATION, "models": models})


def test_scores_of_earlier_models_are_left_out(study: Study) -> None:
    """Without `embedded`, the page had the scores of earlier models next to the new losses."""
    names = study.runs[study.runs["family"] == "seeds"]["name"]
    lines = [f"{name},100,leiden_nmi,0.5" for name in names]
    (study.folder / "scores.csv").write_text("\n".join(["run,step,metric,value", *lines]))
    assert (make_page(study) / "study_scores.md").is_file()
    page = study.folder / "page_without"
    command = ["study", "--runs", str(study.folder), "--output", str(page), "--without-scores"]
    assert main(command) == 0
    assert (page / "study_seeds.md").is_file()
    assert not (page / "study_scores.md").exists()


@pytest.mark.parametrize(("setting", "value"), [("validation_cells", 32), ("mask_fraction", 0.5)])
def test_losses_of_different_genes_are_not_compared(setting: str, value: float) -> None:
    """The runs were compared with each other, and with baselines of other cells."""
    family = SEEDS | {"training": {setting: value}}
    with pytest.raises(UserError, match=rf"^study\.seeds\.training\.{setting}: {value}, but "):
        load_study({"seeds": family})
    assert load_study({"seeds": family}, **{setting: value})
    assert load_study({"seeds": family | {"purpose": None}})  # in no table


@pytest.mark.parametrize(
    "names",
    [
        *(["blood"], ["arms"], ["embeddings"], ["stability"], ["stress"], ["variants"]),
        *(["blood", "blood_genes"], ["blood", "blood_unsorted"]),
        *(["converged"], ["converged", "deeper"], ["converged", "rising"]),
    ],
    ids=" ".join,
)
def test_published_studies_are_not_refused(names: list[str]) -> None:
    """Two models of blood.yaml have other validation cells. No table compares these losses."""
    folder = Path(__file__).parents[2] / "workflow/studies"
    settings: dict[str, Any] = {}
    for name in names:
        settings = merge(settings, read_yaml(folder / f"{name}.yaml"))
    for family in filter(None, settings["study"].values()):
        family.pop("embedded", None)  # a dataset of the files
    keys = ("sizes", "architecture", "training", "models", "evaluation", "study")
    kept = {key: settings[key] for key in keys if key in settings}
    assert load(overrides={"preset": "small", **kept}).study


def test_baselines_leave_out_parts_of_an_earlier_run(tmp_path: Path) -> None:
    """After corpus.parts was lowered, the cells of the old parts were counted again."""
    training = {"validate_every": 1, "validation_cells": 64}
    overrides = {"corpus": {"parts": 1}, "training": training, "study": {"seeds": SEEDS}}
    config = load(overrides=overrides).model_copy(update={"datasets": {}})
    tokens = tmp_path / "tokens"
    (tokens / "training").mkdir(parents=True)
    tables = []
    for part in range(2):
        settings = config.benchmarks.training
        write_simulated_tokens(tokens, settings, cells=600, longest=255, seed=part)
        (tokens / "tokens").rename(tokens / f"training/part-0000{part}")
        baselines(config, tmp_path, tmp_path / "baselines.csv")
        tables.append((tmp_path / "baselines.csv").read_text())
    assert tables[0] == tables[1]
