"""Tables: values computed by hand, bold best values, and three formats that agree."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_results import copy_inputs

from scsigmoid.config.compared import sections_in
from scsigmoid.config.schema import Benchmarks, Evaluation, Section
from scsigmoid.errors import UserError
from scsigmoid.records.measurements import Measurement
from scsigmoid.report import registry
from scsigmoid.report.tables.setup import compact
from scsigmoid.report.tables.writing import (
    Cell,
    Table,
    as_markdown,
    fixed,
    interval,
    millions,
    one_line,
    plus_minus,
    read_markdown,
)
from scsigmoid.results.folder import Results


def write(name: str, results: Results, tmp_path: Path) -> tuple[pd.DataFrame, str]:
    """Write a table and return its CSV and Markdown."""
    paths = registry.write("table", name, results, tmp_path / name)
    assert [path.suffix for path in paths] == [".csv", ".md"]
    table = pd.read_csv(paths[0], float_precision="round_trip")
    return table, paths[1].read_text()


def test_tables_are_made_from_their_declared_inputs_only(results: Results, tmp_path: Path) -> None:
    for name in registry.names("table", results.plan):
        inputs_only = copy_inputs(results, "table", name, tmp_path / name)
        written = []
        for source in (results, inputs_only):
            paths = registry.write("table", name, source, tmp_path / "table")
            written.append([path.read_bytes() for path in paths])
        assert written[0] == written[1]


def change_others(value: Any, kept: list[str], path: str = "") -> Any:
    """Return a configuration with other numbers and texts, except in the settings ``kept``.

    A section that is kept has only its own settings: sections in it change.
    """
    if isinstance(value, Section):
        inner = sections_in(type(value)) if path in kept else type(value).model_fields
        new = {
            name: change_others(getattr(value, name), kept, f"{path}.{name}".strip("."))
            for name in inner
        }
        return value.model_copy(update=new)
    if path in kept:
        return value
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return "cpu"  # a device with its own rules
    return value + 1 if isinstance(value, int | float) else value


def test_tables_depend_only_on_their_declared_settings(results: Results) -> None:
    plan = results.plan
    for name in registry.names("table", plan):
        # The input files were made with the settings of evaluation and benchmarks.
        made_with = [f"evaluation.{name}" for name in Evaluation.model_fields]
        made_with += [f"benchmarks.{name}" for name in Benchmarks.model_fields]
        kept = [*registry.find("table", name, plan).settings, *made_with]
        config = change_others(results.config, kept)
        assert config.tokens.minimum_genes != results.config.tokens.minimum_genes
        before = registry.make("table", name, results)
        after = registry.make("table", name, Results(results.folder, config))
        assert repr(before) == repr(after), name


def test_validation_loss_by_hand(results: Results, tmp_path: Path) -> None:
    table, markdown = write("validation_loss", results, tmp_path)
    rows = table[table["dataset"] == "simulated_heart"].set_index("model")
    heart = rows[rows["compared_with"].isna()]
    loss = results.validation_loss("simulated_heart", "sigmoid_256").value
    assert heart.loc["sigmoid_256", "mean"] == loss
    difference = rows[rows["compared_with"] == "softmax_256"].loc["sigmoid_256"]
    paired = results.paired_difference("simulated_heart", "sigmoid_256", "softmax_256")
    assert tuple(difference[["donor_mean", "donor_mean_low", "donor_mean_high"]]) == paired
    # In both contexts, the difference is far larger than its made-up interval.
    assert heart.index[heart["best"]].tolist() == ["sigmoid_128", "sigmoid_256"]
    donors, masks = (
        results.validation_loss("simulated_heart", "sigmoid_256", f"validation_loss_over_{name}")
        for name in ("donors", "masks")
    )
    of_donors, of_masks = (f"{(row.high - row.low) / 2:.3f}" for row in (donors, masks))
    assert f"**{loss:.3f} ± {of_masks} ({donors.value:.3f} ± {of_donors})**" in markdown
    assert heart.loc["sigmoid_256", "donors"] == 4
    assert markdown.count("**") == 2 * table["best"].eq(True).sum()


def test_the_papers_losses_are_next_to_ours(paper_results: Results, tmp_path: Path) -> None:
    table, markdown = write("validation_loss", paper_results, tmp_path)
    heart = table[table["dataset"] == "heart_oft"].set_index("model")
    is_pair = heart["compared_with"].notna()
    assert heart[is_pair].loc["sigmoid_4k", "paper_mean"] == pytest.approx(2.615 - 2.631)
    assert heart[~is_pair].loc["softmax_2k", "paper_mean"] == 3.017
    assert "in the paper" in markdown


def test_mmd_by_hand(results: Results, tmp_path: Path) -> None:
    table, markdown = write("mmd_simulated_heart", results, tmp_path)
    is_pair = table["pair"].str.contains(" vs ")
    assert table["estimator"][is_pair].tolist() == ["unbiased"] * 28 + ["biased"] * 28
    biased, pairs = (rows.set_index("pair") for _, rows in table[is_pair].groupby("estimator"))
    lines = {line.split(" |")[0].removeprefix("| "): line for line in markdown.splitlines()}
    # The made-up biased values are 0.02 above the unbiased values. Means over resamples are 0.004
    # above the values.
    for name, row in pairs.iterrows():
        values = row[["sigmoid", "softmax"]]
        assert row["best"] == f"{values.astype(float).idxmax()}_256"
        assert biased.loc[name, "softmax_bootstrap_mean"] == pytest.approx(row["softmax"] + 0.024)
        # The made-up intervals of the difference are from 0.02 below to 0.02 above the value.
        bold = "**" if abs(values["sigmoid"] - values["softmax"]) > 0.02 else ""
        shown = f"| {bold}{values.max():.3f} ({values.max() + 0.004:.3f}) ["
        assert shown in lines[name]
        assert f"{row['softmax'] + 0.02:.3f} ({row['softmax'] + 0.024:.3f}) [" in lines[name]
    wins = (pairs["best"] == "sigmoid_256").sum()
    assert f"higher MMD on {wins} of 28 pairs" in markdown
    assert pairs[["paper_sigmoid", "paper_softmax_high"]].isna().all(axis=None)
    ours, theirs = pairs["sigmoid"], pairs["softmax"]
    over = (ours.mean() + 0.004) / (theirs.mean() + 0.004)
    means = table[~is_pair & (table["estimator"] == "unbiased")].set_index("pair")["ratio"]
    assert means.to_dict() == pytest.approx(
        {
            "ratio_of_means": ours.mean() / theirs.mean(),
            "mean_of_ratios": (ours / theirs).mean(),
            "over_resamples": over,
        }
    )
    assert f"as the ratio of the means over resamples: +{(over - 1) * 100:.1f} [" in markdown
    assert "Mast (7)" in markdown
    assert "Simulated heart" in markdown.splitlines()[0]


def test_the_papers_mmd_is_next_to_ours(paper_results: Results, tmp_path: Path) -> None:
    table, markdown = write("mmd_heart_oft", paper_results, tmp_path)
    first = table.set_index("pair").loc["Mesenchymal vs Cardiac"].iloc[0]
    assert first[["paper_sigmoid", "paper_softmax_high"]].tolist() == [0.467, 0.385]
    assert "Softmax in the paper" in markdown


def test_scores_over_seeds_have_an_interval(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_interval(dataset: str) -> dict[str, dict[str, Measurement]]:
        scores = read(dataset)
        nmi = scores["leiden_nmi"]
        nmi["sigmoid_256"] = replace(nmi["sigmoid_256"], value=0.5, low=0.48, high=0.52)
        return scores

    read = results.scores
    monkeypatch.setattr(results, "scores", with_interval)
    table, markdown = write("scib", results, tmp_path)
    of_model = table.query("model == 'sigmoid_256'").set_index(["metric", "dataset"])
    assert of_model.loc["leiden_nmi", "low"].unique().tolist() == [0.48]
    assert of_model.loc["silhouette_label", "low"].isna().all()
    assert markdown.count("0.500 ± 0.020") == len(results.config.datasets)
    assert markdown.count(" ± 0.") == len(results.config.datasets)


def test_kernel_speed_by_hand(results: Results, tmp_path: Path) -> None:
    table, markdown = write("kernel_speed", results, tmp_path)
    shape = table.query("head_dimension == 64 and length == 128 and padding == 0")
    at = shape[shape["pass"] == "forward"].set_index(["provider", "layout"])
    ours, standard = at.loc["triton", "packed"], at.loc["pytorch", "padded"]
    speed_up = standard["milliseconds"] / ours["milliseconds"]
    assert ours["speed_up_over_pytorch"] == pytest.approx(speed_up)
    assert "Not timed (flash\\_sigmoid is not installed): FlashSigmoid." in markdown
    assert "not comparable with the paper" in markdown


def test_training_cost_by_hand(results: Results, tmp_path: Path) -> None:
    table, markdown = write("training_cost", results, tmp_path)
    first = table.query("size == 'tiny_32' and context == 128 and kernel in ('reference', 'sdpa')")
    hours = first.set_index("attention")["gpu_hours"]
    saved = (1 - hours["sigmoid"] / hours["softmax"]) * 100
    assert f"{abs(saved):.1f} [" in markdown
    assert ("% fewer" if saved > 0 else "% more") in markdown


def test_training_speed_is_compared_at_the_same_context(results: Results, tmp_path: Path) -> None:
    table, markdown = write("training_speed", results, tmp_path)
    kernels = ["reference", "sdpa", "flex"] * 4 * 3
    assert table["kernel"].tolist() == [*kernels, "triton_sigmoid"]
    assert set(table["ours"][:-1]) == {"reference"}
    ratios = table.set_index("kernel")[["ratio", "ratio_low", "ratio_high"]]
    assert ratios.loc["reference"].isna().all(axis=None)
    # The made-up rounds differ by the same factor.
    assert ratios.loc["flex"].to_numpy() == pytest.approx(2.0)
    # 2 cells in 2 * 128 ** 0.5 / 0.9 milliseconds
    assert (
        "| tiny\\_32 | 128 | 2 | Sigmoid, reference | packed | 0 % | **80 [76, 83]** |" in markdown
    )
    assert (
        "| tiny\\_32 | 128 | 2 | Softmax, FlexAttention | padded | 50 % | 40 [38, 41] |" in markdown
    )
    assert "2.00 [2.00, 2.00]" in markdown
    assert math.isnan(table["cells_per_second"].iloc[-1])
    assert "is not installed): TritonSigmoid, padded, tiny at 128, 2 cells." in markdown
    assert markdown.count("TritonSigmoid") == 1


def test_parameters_of_the_papers_size(paper_results: Results, tmp_path: Path) -> None:
    table, _ = write("model_architecture", paper_results, tmp_path)
    assert table.set_index("parameter").loc["Model size", "value"] == "156M parameters"
    agree = table[table["value"] == table["paper"]]["parameter"]
    assert {"Number of layers", "Head dimension", "Dropout", "Optimizer"} <= set(agree)


def test_unknown_names(results: Results) -> None:
    with pytest.raises(UserError, match="did you mean 'mmd_simulated_heart'"):
        registry.make("table", "mmd_heart", results)
    with pytest.raises(UserError, match="did you mean 'latency'"):
        registry.make("figure", "latencies", results)


#: Text with characters that are special in Markdown, and any others.
HOSTILE = st.text(st.sampled_from(r"ab|*\_`<>~$&@][(:/.%é ") | st.characters(), max_size=12)


@given(
    st.lists(HOSTILE, min_size=2, max_size=4),
    st.lists(HOSTILE, max_size=2),
    st.text("lrc"),
    st.booleans(),
)
def test_markdown_is_read_as_it_was_written(
    texts: list[str], notes: list[str], align: str, is_bold: bool
) -> None:
    """The report page shows tables from their Markdown files."""
    words = [f"x{one_line(text)}x" for text in texts]  # no cell is empty
    table = Table(
        caption="A caption.",
        header=words,
        rows=[[Cell(word, bold=is_bold) for word in words], [words[0]], words],
        align=align[: len(words)],
        notes=[f"Note: {one_line(note)}." for note in notes],
    )
    copy = read_markdown(as_markdown(table))
    assert (copy.caption, copy.header, copy.notes) == (table.caption, words, table.notes)
    assert (copy.cells, copy.sides) == (table.cells, table.sides)


@pytest.mark.parametrize("text", ["", "Caption.", "Caption.\n\n| a | b |\n| :--- |\n"])
def test_damaged_markdown(text: str) -> None:
    with pytest.raises(ValueError, match=r"unpack|as long as"):
        read_markdown(text)


def test_formats_of_numbers() -> None:
    assert interval(0.4672, 0.4612, 0.4719, 3) == "0.467 [0.461, 0.472]"
    assert interval(0.4672, float("nan"), 1.0, 2) == "0.47"
    assert interval(1.0, 0.5, float("inf"), 1) == "1.0 [0.5, ∞]"
    assert interval(1.0, -float("inf"), float("inf"), 1) == "1.0"
    assert plus_minus(2.5261, 2.5251, 2.5271, 3) == "2.526 ± 0.001"
    assert fixed(-0.0031, 3, "+") == "\N{MINUS SIGN}0.003"
    assert fixed(-1.24, 1) == "\N{MINUS SIGN}1.2"
    assert fixed(-0.04, 1) == "0.0"
    assert fixed(float("nan"), 3) == "\N{EN DASH}"
    assert [compact(value) for value in (1e-5, 2e-3, 0.02, 0.0)] == ["1e-5", "2e-3", "0.02", "0"]
    assert (millions(155.8e6), millions(0.27e6)) == ("156M", "0.27M")
