"""docs/measurements/scripts/converged_pairs.py leaves out what it cannot compare, and says so."""

import runpy
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

DOCS = Path(__file__).parents[2] / "docs/measurements"
pairs = SimpleNamespace(**runpy.run_path(str(DOCS / "scripts/converged_pairs.py")))
deeper_runs = SimpleNamespace(**runpy.run_path(str(DOCS / "scripts/deeper_runs.py")))
STUDY = DOCS / "h100/converged"


@pytest.fixture
def study(tmp_path):
    """The study of section 4, to be changed."""
    for name in ("pairs", "scores", "held_out"):
        shutil.copy(STUDY / f"{name}.csv", tmp_path)
    return tmp_path


def change(folder, name, function):
    path = folder / f"{name}.csv"
    function(pd.read_csv(path)).to_csv(path, index=False)


def test_a_run_without_scores_leaves_out_its_pair_of_scores_only(study):
    whole = list(pairs.lines(study))
    is_run = "seed == 75 and attention == 'sigmoid'"
    change(study, "scores", lambda table: table.drop(table.query(is_run).index))
    lines = list(pairs.lines(study))
    assert "a run has no scores: seeds [75]" in lines
    losses = [line for line in whole if line.startswith("loss")]
    assert [line for line in lines if line.startswith("loss:")] == losses[:1]
    # The mean of the six scores, computed again.
    scores = pd.read_csv(study / "scores.csv").query("seed != 75")
    scores = scores[scores["dataset"].isin(pairs.SOURCES)]
    means = scores.groupby(["attention", "seed", "metric"])["value"].mean()
    means = means.groupby(["attention", "seed"]).mean()
    difference = (means["sigmoid"] - means["softmax"]).to_numpy()
    assert len(difference) == 15
    (line,) = (line for line in lines if line.startswith("mean of the six"))
    assert line.startswith(f"mean of the six: {difference.mean():.4f} [")
    assert f"above 0 in {(difference > 0).sum()} of 15" in line


def test_a_run_without_one_score_leaves_out_its_pair(study):
    """Without the MMD, the corrected p-value of the loss was half as large, and the other NaN."""
    change(study, "scores", lambda table: table[(table["seed"] != 75) | (table["metric"] != "mmd")])
    is_run = "seed == 76 and attention == 'softmax' and dataset == 'pbmc_facs'"
    change(study, "scores", lambda table: table.drop(table.query(is_run).index[:1]))
    lines = list(pairs.lines(study))
    assert "a run has no scores: seeds [75, 76]" in lines
    assert not any("nan" in line for line in lines)


def test_eleven_pairs_with_scores_have_no_verdict_on_mmd(study):
    """The loss of all pairs has one."""

    def change_scores(table):
        table.loc[table.eval("metric == 'mmd' and attention == 'sigmoid'"), "value"] *= 2
        return table.query("seed > 75 or attention == 'softmax'")

    change(study, "scores", change_scores)
    lines = list(pairs.lines(study))
    verdicts = {line.split()[0]: after for line, after in pairwise(lines) if "p (Holm)" in line}
    assert (verdicts["loss:"], verdicts["MMD"]) == ("  higher", "  open")


def test_a_held_out_loss_that_is_not_finite_leaves_out_its_pair(study):
    def change_loss(table):
        table.loc[(table["seed"] == 80) & (table["dataset"] == "pbmc_3k"), "loss"] = np.nan
        return table

    change(study, "held_out", change_loss)
    lines = list(pairs.lines(study))
    assert "a run has no finite losses on held-out studies: seeds [80]" in lines
    held_out = pd.read_csv(study / "held_out.csv").query("seed != 80")
    means = held_out.groupby(["attention", "seed"])["loss"].mean()
    difference = (means["sigmoid"] - means["softmax"]).mean()
    (line,) = (line for line in lines if line.startswith("loss on held-out studies"))
    assert f"{-difference:.4f}" in line
    assert "of 15" in line


def test_the_loss_at_an_earlier_step_is_the_mean_of_the_validations_before(study):
    lines = list(pairs.lines(study, 9000))
    curves = pd.read_csv(study / "pairs.csv").dropna(subset="validation_loss")
    chosen = curves[curves["step"].between(8200, 9000)]
    assert chosen["step"].nunique() == 5
    means = chosen.groupby(["attention", "seed"])["validation_loss"].mean()
    difference = (means["sigmoid"] - means["softmax"]).mean()
    (line,) = (line for line in lines if line.startswith("loss at step 9,000"))
    assert line.startswith(f"loss at step 9,000: {difference:.4f} [")  # above zero


@pytest.mark.parametrize(("wanted", "number"), [("seed <= 81", 11), ("attention == 'sigmoid'", 0)])
def test_eleven_pairs_have_no_verdict(wanted, number, study):
    change(study, "pairs", lambda table: table.query(wanted))
    with pytest.raises(SystemExit, match=f": {number} pairs; 12 are needed"):
        list(pairs.lines(study))


@pytest.mark.parametrize("wanted", ["seed < 0", "attention == 'softmax'", "seed == 75"])
def test_without_two_pairs_of_scores_only_losses_are_compared(wanted, study):
    """For example if all runs of an arm have the same embedding for all cells."""
    whole = list(pairs.lines(study))
    change(study, "scores", lambda table: table.query(wanted))
    lines = list(pairs.lines(study))
    assert "MMD ratio and scores: open, because fewer than two pairs have scores" in lines
    assert not any("nan" in line for line in lines)
    assert [line for line in whole if "held-out" in line] == [
        line for line in lines if "held-out studies:" in line
    ]


@pytest.mark.parametrize("value", [0.0, -1e-5])
def test_an_mmd_without_logarithm_leaves_out_its_pair(value, study):
    """The mean of its run was over three datasets instead of four, or minus infinity."""

    def change_score(table):
        chosen = "seed == 75 and metric == 'mmd' and dataset == 'pbmc_facs'"
        table.loc[table.eval(chosen), "value"] = value
        return table

    change(study, "scores", change_score)
    lines = list(pairs.lines(study))
    assert "a run has no scores: seeds [75]" in lines
    assert not any("nan" in line for line in lines)


def test_an_earlier_step_that_was_not_logged_is_an_error(study):
    with pytest.raises(SystemExit, match=r"pairs.csv: step 1,000,000 .* no validation loss"):
        list(pairs.lines(study, 1_000_000))


def test_runs_whose_loss_still_falls_have_not_converged(study):
    assert not any("not converged" in line for line in pairs.lines(study))

    def make_steeper(table):
        table["validation_loss"] += 1e-4 * (table["step"].max() - table["step"])
        return table

    change(study, "pairs", make_steeper)
    assert any("not converged" in line for line in pairs.lines(study))


@pytest.mark.parametrize(
    ("values", "expected"),
    [([[1, 2], [1, 3]], True), ([[1, 2], [1, 2]], False), ([[1, np.inf], [1, 3]], False),
     ([[1, np.nan], [1, 3]], False)],
)  # fmt: skip
def test_embeddings_without_scores(values, expected):
    assert deeper_runs.has_scores(np.array(values, dtype=np.float16)) is expected
