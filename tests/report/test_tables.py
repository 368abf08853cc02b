"""Tables: values by hand, bold winners, three formats that agree."""

import csv
import math
import re
import shutil
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.measurements import read_measurements, write_measurements
from scsigmoid.report import registry
from scsigmoid.report.tables.setup import compact
from scsigmoid.report.tables.writing import (
    Cell,
    Table,
    as_latex,
    as_markdown,
    fixed,
    interval,
    latex_escape,
    millions,
    plus_minus,
)
from scsigmoid.results.folder import Results
from scsigmoid.results.statistics import paired_difference


def made(name: str, results: Results, tmp_path: Path) -> tuple[list[dict[str, str]], str, str]:
    paths = registry.write("table", name, results, tmp_path / name)
    assert [path.suffix for path in paths] == [".csv", ".md", ".tex"]
    table, markdown, latex = (path.read_text(encoding="utf-8") for path in paths)
    return list(csv.DictReader(table.splitlines())), markdown, latex


def test_tables_are_made_of_their_declared_inputs_alone(results: Results, tmp_path: Path) -> None:
    plan = Plan(results.config)
    for name in registry.names("table", plan):
        alone = tmp_path / name
        for file in registry.find("table", name, plan).inputs:
            (alone / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(results.folder / file, alone / file)
        written = [
            [path.read_bytes() for path in registry.write("table", name, one, alone / name)]
            for one in (results, Results(alone, results.config))
        ]
        assert written[0] == written[1]
        assert written[0][2].count(b"{") == written[0][2].count(b"}")


def others_changed(value: Any, kept: list[str], path: str = "") -> Any:
    """Return a configuration in which all numbers and texts except these settings are changed."""
    if any(f"{path}.".startswith(f"{name}.") for name in kept):
        return value
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        new = {
            name: others_changed(getattr(value, name), kept, f"{path}.{name}".strip("."))
            for name in names
        }
        return replace(value, **new)  # type: ignore[type-var]
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return "cpu"  # a device with its own rules
    return value + 1 if isinstance(value, int | float) else value


def test_tables_depend_on_their_declared_settings_alone(results: Results) -> None:
    """And on the settings of the stages that made their inputs."""
    plan = Plan(results.config)
    for name in registry.names("table", plan):
        kept = [*registry.find("table", name, plan).settings, "evaluation", "benchmarks"]
        changed = others_changed(results.config, kept)
        assert changed.tokens.target_sum != results.config.tokens.target_sum
        both = [results, Results(results.folder, changed)]
        assert len({repr(registry.make("table", name, one)) for one in both}) == 1, name


def test_validation_loss_by_hand(results: Results, tmp_path: Path) -> None:
    rows, markdown, latex = made("validation_loss", results, tmp_path)
    heart = {row["model"]: row for row in rows if row["dataset"] == "heart_oft"}
    assert (
        float(heart["sigmoid_4k"]["mean"])
        == results.validation_loss("heart_oft", "sigmoid_4k").value
    )
    difference = heart["sigmoid_4k - softmax_4k"]
    columns = ("donor_mean", "donor_mean_low", "donor_mean_high")
    found = tuple(float(difference[column]) for column in columns)
    assert found == paired_difference(results, "heart_oft", "sigmoid_4k", "softmax_4k")
    assert float(difference["paper_mean"]) == pytest.approx(2.615 - 2.631)
    assert float(heart["softmax_2k"]["paper_mean"]) == 3.017
    losses = {name: float(row["mean"]) for name, row in heart.items() if " - " not in name}
    (best,) = [name for name, row in heart.items() if row["best"] == "true"]
    assert best == min(losses, key=lambda name: losses[name]) == "sigmoid_4k"
    assert f"**{losses[best]:.3f} ± " in markdown
    donors, masks = (
        results.validation_loss("heart_oft", best, f"validation_loss_over_{name}")
        for name in ("donors", "masks")
    )
    halves = [(row.high - row.low) / 2 for row in (donors, masks)]
    assert "± {:.3f} ({:.3f})**".format(*halves) in markdown
    assert heart[best]["donors"] == "4"
    assert "Heart OFT 4" in markdown
    assert rf"\textbf{{{losses[best]:.3f} $\pm$ " in latex
    assert markdown.count("**") == 2 * len(results.config.datasets)
    assert "Heart OFT (simulated)" in markdown
    assert "PBMC 68k (simulated)" not in markdown
    assert "Sigmoid 2K (128 tokens)" in markdown


def test_validation_loss_of_one_model_without_donors(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {"sigmoid_4k": results.config.models["sigmoid_4k"]}
    one = Results(results.folder, replace(results.config, models=models))
    monkeypatch.setattr(one, "donors", lambda dataset, model: 0)
    table = registry.make("table", "validation_loss", one)
    assert not any(cell.bold for row in table.cells for cell in row)
    assert not re.search(r"\d", table.notes[0].replace("68k", ""))


def test_mmd_by_hand(results: Results, tmp_path: Path) -> None:
    rows, markdown, _ = made("mmd_heart_oft", results, tmp_path)
    both = [row for row in rows if " vs " in row["pair"]]
    pairs = [row for row in both if row["estimator"] == "unbiased"]
    assert len(pairs) == 28
    assert [row["estimator"] for row in both] == ["unbiased"] * 28 + ["biased"] * 28
    # The made-up biased values are 0.02 above the unbiased values.
    for row, other in zip(pairs, both[28:], strict=True):
        assert float(other["sigmoid"]) - float(row["sigmoid"]) == pytest.approx(0.02)
        line = next(line for line in markdown.splitlines() if line.startswith(f"| {row['pair']} |"))
        over = float(other["softmax_bootstrap_mean"])
        assert over == pytest.approx(float(other["softmax"]) + 0.004)
        assert f"{float(other['softmax']):.3f} ({over:.3f}) [" in line
    wins = 0
    for row in pairs:
        winner = "sigmoid_4k" if float(row["sigmoid"]) > float(row["softmax"]) else "softmax_4k"
        assert row["best"] == winner
        wins += winner == "sigmoid_4k"
        shown = row["sigmoid"] if winner == "sigmoid_4k" else row["softmax"]
        assert f"**{float(shown):.3f} ({float(shown) + 0.004:.3f}) [" in markdown
    assert pairs[0]["paper_sigmoid"] == "0.467"
    assert pairs[0]["paper_softmax_high"] == "0.385"
    ours = np.array([float(row["sigmoid"]) for row in pairs])
    theirs = np.array([float(row["softmax"]) for row in pairs])
    means = {row["pair"]: float(row["ratio"]) for row in rows if " vs " not in row["pair"]}
    assert means["ratio_of_means"] == pytest.approx(ours.mean() / theirs.mean())
    assert means["mean_of_ratios"] == pytest.approx((ours / theirs).mean())
    over = (ours.mean() + 0.004) / (theirs.mean() + 0.004)
    assert means["over_resamples"] == pytest.approx(over)
    assert f"as the ratio of the means over resamples: +{(over - 1) * 100:.1f} [" in markdown
    assert f"higher MMD on {wins} of 28 pairs" in markdown
    assert "Mast (7)" in markdown
    assert "simulated" in markdown.splitlines()[0]


def test_pairs_without_an_interval_are_named(copied: Path, config: Config) -> None:
    path = copied / "metrics/mmd/heart_oft.csv"
    rows = [
        replace(row, low=math.nan, high=math.nan)
        if "unbiased" in row.metric and row.group in ("", "Immune vs Neural")
        else row
        for row in read_measurements(path)
    ]
    mean = "mmd_unbiased_bootstrap_mean_ratio_of_means"
    write_measurements(
        path, [replace(row, value=math.nan) if row.metric == mean else row for row in rows]
    )
    table = registry.make("table", "mmd_heart_oft", Results(copied, config))
    notes = " ".join(table.notes)
    assert "interval of the pair and of the means: Immune vs Neural." in notes
    assert "over resamples: \N{EN DASH} % (unbiased), +" in notes


def test_the_better_model_of_each_score_is_best(results: Results, tmp_path: Path) -> None:
    rows, _, _ = made("scib", results, tmp_path)
    of = {(row["dataset"], row["metric"], row["model"]): row for row in rows}
    for dataset, metric, model in of:
        pair = [of[dataset, metric, name] for name in ("sigmoid_4k", "softmax_4k")]
        best = max(pair, key=lambda row: float(row["value"]))
        assert (of[dataset, metric, model]["best"] == "true") == (best["model"] == model)


def test_kernel_speed_by_hand(results: Results, tmp_path: Path) -> None:
    rows, markdown, _ = made("kernel_speed", results, tmp_path)
    shape = {"head_dimension": "64", "length": "128", "padding": "0.0", "pass": "forward"}
    at = {
        (row["provider"], row["layout"]): row
        for row in rows
        if all(row[key] == value for key, value in shape.items())
    }
    ours, standard = at["triton", "packed"], at["pytorch", "padded"]
    assert float(ours["speed_up_over_pytorch"]) == pytest.approx(
        float(standard["milliseconds"]) / float(ours["milliseconds"])
    )
    assert "Not timed (flash\\_sigmoid is not installed): FlashSigmoid." in markdown
    assert "not comparable with the paper" in markdown


def test_training_cost_by_hand(results: Results, tmp_path: Path) -> None:
    rows, markdown, _ = made("training_cost", results, tmp_path)
    first = [row for row in rows if row["size"] == "160M" and row["context"] == "128"]
    arms = [row for row in first if row["kernel"] in ("reference", "sdpa")]
    hours = {row["attention"]: float(row["gpu_hours"]) for row in arms}
    saved = (1 - hours["sigmoid"] / hours["softmax"]) * 100
    assert f"{abs(saved):.1f} [" in markdown
    assert ("% fewer" if saved > 0 else "% more") in markdown


def test_training_speed_is_compared_at_the_same_context(results: Results, tmp_path: Path) -> None:
    rows, markdown, _ = made("training_speed", results, tmp_path)
    kernels = ["reference", "sdpa", "flex"] * 4 * 3
    assert [row["kernel"] for row in rows] == [*kernels, "triton_sigmoid"]
    for row in rows[:-1]:
        assert row["ours"] == "reference"
        ends = [row[column] for column in ("ratio", "ratio_low", "ratio_high")]
        if row["kernel"] == "reference":
            assert ends == [""] * 3
        elif row["kernel"] == "flex":
            # The made-up rounds differ by the same factor.
            assert [float(end) for end in ends] == pytest.approx([2.0] * 3)
    # 2 cells in 2 * 128 ** 0.5 / 0.9 milliseconds
    assert "| 160M | 128 | 2 | Sigmoid, reference | packed | 0 % | **80 [76, 83]** |" in markdown
    assert "| 160M | 128 | 2 | Softmax, FlexAttention | padded | 50 % | 40 [38, 41] |" in markdown
    assert "2.00 [2.00, 2.00]" in markdown
    assert rows[-1]["cells_per_second"] == ""
    absent = "is not installed): TritonSigmoid, padded, 160M at 128, 2 cells."
    assert absent in markdown
    assert markdown.count("TritonSigmoid") == 1


def test_datasets_next_to_the_papers(results: Results, tmp_path: Path) -> None:
    rows, markdown, _ = made("evaluation_datasets", results, tmp_path)
    heart = next(row for row in rows if row["dataset"] == "heart_oft")
    assert (heart["cells"], heart["paper_cells"], heart["simulated"]) == ("160", "30125", "true")
    assert "| Heart OFT (simulated) | 160 | 30,125 |" in markdown


def test_parameters_of_the_papers_size(paper_results: Results, tmp_path: Path) -> None:
    rows, _, _ = made("model_architecture", paper_results, tmp_path)
    of = {row["parameter"]: row for row in rows}
    assert of["Model size"]["value"] == "156M parameters"
    agree = [name for name, row in of.items() if row["value"] == row["paper"]]
    assert {"Number of layers", "Head dimension", "Dropout", "Optimizer"} <= set(agree)


def test_unknown_names(results: Results) -> None:
    with pytest.raises(UserError, match="did you mean 'mmd_heart_oft'"):
        registry.make("table", "mmd_heart", results)
    with pytest.raises(UserError, match="did you mean 'latency'"):
        registry.make("figure", "latencies", results)


def test_latex_is_escaped() -> None:
    assert latex_escape(r"50 % of A_1 & {x} $ # \ ~ ^") == (
        r"50 \% of A\_1 \& \{x\} \$ \# \textbackslash{} \textasciitilde{} \textasciicircum{}"
    )
    content = Table(
        caption="A & B. With 95 % of_it.",
        columns=("a",),
        records=[(1.0,)],
        header=("H_1", "H|2"),
        rows=[[Cell("x_y"), Cell("1 ± 2 %", bold=True)], [Cell("whole line")]],
        align="lr",
    )
    latex = as_latex(content, "name")
    assert r"\textbf{A \& B.} With 95 \% of\_it." in latex
    assert r"x\_y & \textbf{1 $\pm$ 2 \%} \\" in latex
    assert r"whole line &  \\" in latex
    markdown = as_markdown(content)
    assert r"| H\_1 | H\|2 |" in markdown
    assert r"| x\_y | **1 ± 2 %** |" in markdown


def test_numbers_as_people_write_them() -> None:
    assert interval(0.4672, 0.4612, 0.4719, 3) == "0.467 [0.461, 0.472]"
    assert interval(0.4672, float("nan"), 1.0, 2) == "0.47"
    assert interval(1.0, 0.5, float("inf"), 1) == "1.0 [0.5, \N{INFINITY}]"
    assert plus_minus(2.5261, 2.5251, 2.5271, 3) == "2.526 ± 0.001"
    assert fixed(-0.0031, 3, "+") == "\N{MINUS SIGN}0.003"
    assert fixed(-1.24, 1) == "\N{MINUS SIGN}1.2"
    assert fixed(-0.04, 1) == "0.0"
    assert fixed(float("nan"), 3) == "\N{EN DASH}"
    assert [compact(value) for value in (1e-5, 2e-3, 0.02, 0.0)] == ["1e-5", "2e-3", "0.02", "0"]
    assert (millions(155.8e6), millions(0.27e6)) == ("156M", "0.27M")
