"""The report, its tables and figures: what they left out, and labels that overlapped."""

import base64
import itertools
import math
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from configurations import with_settings
from made_up_results import CELLS, MadeUp, draw, with_other, write_journal
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.text import Text
from scipy import stats

from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.files import write_json
from scsigmoid.paper.all_numbers import numbers
from scsigmoid.paper.number import NO_VERDICT
from scsigmoid.records.measurements import (
    Interval,
    Measurement,
    read_measurements,
    write_measurements,
)
from scsigmoid.report import registry
from scsigmoid.report.figures import style
from scsigmoid.report.page import cells_table, content, data_url, table_rows
from scsigmoid.report.summary import means, recommendations, summary
from scsigmoid.results.folder import Results


@pytest.mark.parametrize("name", ["tflops", "latency"])
def test_kernel_figures_without_a_timed_kernel(
    name: str, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Results, "kernel_rows", [])
    assert len(draw(name, results).axes) == 2


def test_the_loss_figure_of_one_model_without_donors(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_donors(dataset: str, model: str, metric: str = "validation_loss") -> Measurement:
        row = results.validation_loss(dataset, model, metric)
        return replace(row, low=np.nan, high=np.nan) if metric.endswith("donors") else row

    models = {"sigmoid_256": results.config.models["sigmoid_256"]}
    one = with_other(results, {"models": models})
    monkeypatch.setattr(one, "validation_loss", without_donors)
    figure = draw("loss", one)
    assert "interval" not in figure.get_label()
    # The marker is above the label of its context.
    assert figure.axes[1].lines[0].get_xdata() == figure.axes[1].get_xticks() == [0]


@pytest.mark.parametrize("columns", [["cell_type"], ["cell_type", "batch"]])
@pytest.mark.parametrize("count", [3, 8, 9, 45])
@pytest.mark.parametrize("name", ["cell type", "central nervous system macrophage of the choroid"])
def test_legends_of_a_umap_name_every_group(
    name: str, count: int, columns: list[str], results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels in the panels touched and hid cells. Names were cut at the edge of the figure.

    A wide legend of batches left no space for the panels.
    """
    names = [f"{name} {n}, in words that may be long" for n in range(count)]
    kinds = np.repeat(names, 20)
    values = np.random.default_rng(count).normal(size=(len(kinds), 2))
    cells = pd.DataFrame(values, columns=["x", "y"]).assign(**dict.fromkeys(columns, kinds))
    monkeypatch.setattr(results, "umap", lambda *_: cells)
    with style.styled():
        figure = draw("umap_simulated_heart", results)
        FigureCanvasAgg(figure).draw()
    for axes in figure.axes:
        assert not axes.texts
        assert axes.get_window_extent().width > figure.bbox.width / 3
    assert len(figure.legends) == len(columns)
    parts = [*figure.legends, *figure.axes]
    for first, second in itertools.combinations(parts, 2):
        assert not first.get_window_extent().overlaps(second.get_window_extent())
    for legend in figure.legends:
        texts = legend.get_texts()
        assert [text.get_text().replace("\n", " ") for text in texts] == sorted(names)
        boxes = [text.get_window_extent() for text in texts]
        assert all(figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1 for box in boxes)
        assert all(figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1 for box in boxes)
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    shown = {to_hex(dots.get_facecolor()[0]) for dots in figure.axes[0].collections}
    assert len(shown) == min(count, 40)


def test_lines_have_a_gap_at_lengths_that_were_not_measured(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line of FlexAttention ran straight across such lengths."""
    rows = results.kernel_rows
    lengths = sorted({row.length for row in rows})
    left_out = (rows[0].provider, rows[0].layout, lengths[1])
    monkeypatch.setattr(
        Results,
        "kernel_rows",
        [row for row in rows if (row.provider, row.layout, row.length) != left_out],
    )
    lines = draw("latency", results).axes[0].lines
    missing = [line.get_xdata()[np.isnan(line.get_ydata())].tolist() for line in lines]
    assert sorted(missing) == [*[[]] * (len(lines) - 1), [lengths[1]]]


@pytest.mark.parametrize("contexts", [(128, 130), (2048, 2049), (2000, 2100, 2200), (16, 16384)])
def test_labels_of_any_contexts_do_not_overlap(contexts: tuple[int, ...], results: Results) -> None:
    model = results.config.models["sigmoid_128"]
    models = {
        f"model_{context}": model.model_copy(update={"context": context}) for context in contexts
    }
    changed = with_other(results, {"models": models})
    with style.styled():
        figure = draw("sequence_lengths", changed)
        FigureCanvasAgg(figure).draw()
        boxes = [text.get_window_extent() for text in figure.axes[1].texts]
    assert len(boxes) == len(contexts) + 1
    for first, second in itertools.combinations(boxes, 2):
        assert not first.overlaps(second)
    for box in boxes:
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1


def test_only_the_papers_cells_have_the_papers_figure(
    results: Results, paper_results: Results
) -> None:
    own = with_settings(paper_results.config, {"corpus.source": "local"})
    captions = [
        registry.caption("figure", name, Plan(config))
        for config, names in (
            (paper_results.config, ("umap_heart_oft", "umap_lung_acr", "scib_scatter")),
            (results.config, ("umap_simulated_heart", "umap_pbmc68k", "scib_scatter")),
            (own, ("umap_heart_oft", "umap_lung_acr", "scib")),
        )
        for name in names
    ]
    paper_figures = [re.findall(r"\(The paper's (.*)\.\)$", caption) for caption in captions]
    assert paper_figures == [["Figure 7"], [], ["Figure 5"], [], [], ["Figure 5"], [], [], []]


def test_cells_without_a_label_are_grey(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    def unlabelled(dataset: str, model: str) -> pd.DataFrame:
        cells = read(dataset, model)
        return cells.assign(cell_type=cells.cell_type.where(cells.index % 3 > 0, ""))

    read = results.umap
    monkeypatch.setattr(results, "umap", unlabelled)
    figure = draw("umap_simulated_heart", results)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["no label", *sorted({*read("simulated_heart", "sigmoid_256").cell_type})]
    for axes, model in zip(figure.axes, ("softmax_256", "sigmoid_256"), strict=True):
        grey = axes.collections[0]
        assert to_hex(grey.get_facecolor()[0]) == style.RULE
        assert len(grey.get_offsets()) == np.ceil(len(read("simulated_heart", model)) / 3)


def test_the_share_of_cells_that_is_cut(whole: Results) -> None:
    lengths, cells = whole.lengths
    words = content(whole)["overview"]["Cells longer than the context"]
    for context in {model.context for model in whole.config.models.values()}:
        cut = cells[lengths > context - whole.config.tokens.cls].sum()
        assert f"{100 * cut / sum(cells):.1f} % at {context}" in words


def test_the_overview_has_the_steps_of_all_models(whole: Results) -> None:
    """It had the steps of the first model only, also if other models had fewer."""
    text = content(whole)["overview"]["Training"]
    for model in whole.config.models:
        assert f"{int(whole.journal(model)['step'][-1]):,} steps" in text


def test_own_cells_without_a_stress_test_have_a_report(whole: Results) -> None:
    """The report read the journals of models that a run on own cells does not train."""
    own = with_other(whole, {"corpus.source": "local"})
    for model in own.plan.stress_models:
        (own.folder / f"training/{model}/journal.csv").unlink()
    overview = content(own)["overview"]
    assert overview["Models"].startswith("4 models ")
    assert overview["Training"] == "400 steps of 16 cells"
    assert "384" not in overview["Cells longer than the context"]


def test_the_report_names_all_sizes_devices_and_backends(whole: Results) -> None:
    """It had those of the first model, as if all models shared them."""
    other = with_other(whole, {"models.softmax_256.size": "tiny_96"})
    path = other.folder / "training/softmax_256/journal.csv"
    path.write_text("# backend: sdpa\n" + path.read_text().replace("device: cpu", "device: A100"))
    page = content(other)
    overview = page["overview"]
    assert overview["Models"].startswith("6 models of 2 layers, width 64 and 2 layers, width 96;")
    assert overview["Device"] == page["provenance"]["Training"]["device"] == "cpu, A100"
    assert page["provenance"]["Training"]["backend"] == "sdpa"


def test_the_report_counts_cells_that_were_left_out(whole: Results) -> None:
    excluded = {"a.h5ad": {"held_out": 1000, "repeated": 20}, "b": {"held_out": 3, "repeated": 0}}
    write_json(whole.folder / "corpus/manifest.json", {"excluded": excluded})
    assert any(note.startswith("1,023 cells") for note in cells_table(whole).notes)


def with_logistic(whole: Results, **values: float) -> Results:
    """Add the metric ``logistic``, with the rows of the first metric and changed ``values``."""
    scored = whole.config.evaluation.scib.metrics
    for dataset in whole.config.datasets:
        rows = read_measurements(whole.folder / f"metrics/{scored[0]}/{dataset}.csv")
        logistic = [replace(row, metric="logistic", **values) for row in rows]
        write_measurements(whole.folder / f"metrics/logistic/{dataset}.csv", logistic)
    return with_other(whole, {"evaluation.scib.metrics": ["logistic", *scored]})


def test_a_metric_without_a_score_has_no_column(whole: Results) -> None:
    scored = whole.config.evaluation.scib.metrics
    own = with_logistic(whole, value=math.nan)
    csv, markdown = registry.write("table", "scib", own, own.folder / "tables/scib")
    assert "| Logistic accuracy" not in markdown.read_text()
    assert set(pd.read_csv(csv)["metric"]) == {*scored, "bio_conservation"}
    assert all(np.isfinite(axes.get_xlim()).all() for axes in draw("scib", own).axes)


def test_own_cells_have_scores_by_donor(whole: Results) -> None:
    scored = whole.config.evaluation.scib.metrics
    # Logistic accuracy, the first metric of the preset `own`, is not computed by donor.
    own = with_other(with_logistic(whole), {"corpus.source": "local"})
    registry.write("table", "scib", own, own.folder / "tables/scib")
    before = content(own)["sections"][0]["items"]
    donor_scores = {"sigmoid_256": [0.1, 0.2, 0.3], "softmax_256": [0.0, 0.2, 0.1]}
    for metric in scored:
        path = whole.folder / f"metrics/{metric}/simulated_heart.csv"
        rows = read_measurements(path)
        donor_rows = [
            replace(row, group=f"donor {donor}", value=value)
            for row in rows
            for donor, value in enumerate(donor_scores.get(row.model, [0.5] * 3))
        ]
        write_measurements(path, [*rows, *donor_rows])
    own = Results(own.folder, own.config)  # reads the files again
    registry.write("table", "scib", own, own.folder / "tables/scib")
    items = content(own)["sections"][0]["items"]
    names = [item["name"] for item in items]
    assert names.count("scib_donors") == 1
    table = items.pop(names.index("scib_donors"))["table"]
    # The other tables do not change.
    cells = [[item["table"].cells for item in page if "table" in item] for page in (before, items)]
    assert cells[0] == cells[1]
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.cells}
    half = stats.t.ppf(0.975, 2) * stats.sem([0.1, 0.2, 0.3])
    assert rows["Sigmoid 256"] == [f"0.200 ± {half:.3f}"] * 4
    half = stats.t.ppf(0.975, 2) * stats.sem([0.1, 0.0, 0.2])
    assert rows["Sigmoid 256 \N{MINUS SIGN} Softmax 256"] == [f"+0.100 ± {half:.3f}"] * 4
    assert rows["Random embedding"] == ["0.500 ± 0.000"] * 4


def test_a_donor_without_the_score_of_a_model_is_an_error(whole: Results) -> None:
    """An edited name of a model was a traceback."""
    for metric in whole.config.evaluation.scib.metrics:
        path = whole.folder / f"metrics/{metric}/simulated_heart.csv"
        rows = read_measurements(path)
        donor_rows = [replace(row, group=f"donor {donor}") for row in rows for donor in range(3)]
        if metric == "leiden_ari":
            donor_rows[0] = replace(donor_rows[0], model="sigmoid_25")
        write_measurements(path, [*rows, *donor_rows])
    own = with_other(whole, {"corpus.source": "local"})
    with pytest.raises(UserError, match=r"leiden_ari/simulated_heart\.csv: damaged"):
        content(own)


def test_only_files_of_this_run_are_listed(tmp_path: Path, config: Config) -> None:
    (tmp_path / "tables").mkdir()
    for name in ("report.html", "tables/scib.csv"):
        (tmp_path / name).write_text("old")
        os.utime(tmp_path / name, (1, 1))
    rows = [
        {"pair": pair, "estimator": estimator, "ratio": 1.25}
        for estimator in ("unbiased", "biased")
        for pair in ("a vs b", "a vs c", "b vs c", "ratio_of_means")
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "tables/mmd_simulated_heart.csv")
    lines = [line.split(":", 1) for line in summary(tmp_path, 10, Plan(config)).splitlines()]
    assert {title: text.strip() for title, text in lines} == {
        "MMD, sigmoid / softmax": "1.250 (simulated_heart, 3 pairs of cell types)",
        "Tables": str(tmp_path / "tables/mmd_simulated_heart.csv"),
    }


@pytest.mark.parametrize("text", ["", "\n", "metric,model,value\n"])
def test_empty_tables_are_not_in_the_summary(tmp_path: Path, config: Config, text: str) -> None:
    """A table without records is an empty line, which ended in a traceback."""
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/scib.csv").write_text(text)
    text = summary(tmp_path, 10, Plan(config))
    assert text.split() == ["Tables:", str(tmp_path / "tables/scib.csv")]


def test_a_loss_that_is_not_a_number_is_in_the_mean() -> None:
    """The mean was over the other datasets only, and called the mean of all."""
    rows = [("a", "good", 1.0), ("a", "bad", 2.0), ("b", "good", 1.0), ("b", "bad", math.nan)]
    table = pd.DataFrame(rows, columns=["dataset", "model", "mean"])
    assert means(table, "mean") == "good 1.000, bad nan (mean of 2 datasets)"


def test_names_that_are_numbers(tmp_path: Path, config: Config) -> None:
    """The model 007 was called 7."""
    (tmp_path / "tables").mkdir()
    row = {"dataset": "001", "model": "007", "compared_with": "", "mean": 6.1}
    pd.DataFrame([row]).to_csv(tmp_path / "tables/validation_loss.csv")
    assert "  007 6.100 (1 dataset)\n" in summary(tmp_path, 10, Plan(config))


@pytest.mark.parametrize("name", ["nan", "null"])
def test_names_that_pandas_reads_as_missing_values(
    name: str, tmp_path: Path, config: Config
) -> None:
    """The dataset and the model were not in the means and first sentences."""
    (tmp_path / "tables").mkdir()
    table = tmp_path / "tables/scib.csv"
    row = {"dataset": name, "title": name, "metric": "bio_conservation", "cells": 100}
    rows = [row | {"model": model, "value": 0.5} for model in (name, "random")]
    pd.DataFrame(rows).to_csv(table, index=False)
    text = summary(tmp_path, 10, Plan(config))
    assert f"The embedding of {name} is not better" in text
    assert f"  {name} 0.500, random 0.500 (1 dataset)" in text
    results = Results(tmp_path, config)
    assert table_rows(results, "scib")["dataset"].tolist() == [name] * 2


def test_a_cut_picture_is_not_in_the_report(finished: Results, tmp_path: Path) -> None:
    picture = tmp_path / "figures/loss.png"
    picture.parent.mkdir()
    data = (finished.folder / "figures/loss.png").read_bytes()
    results = Results(tmp_path, finished.config)
    picture.write_bytes(data)
    assert base64.b64encode(data).decode() in data_url(results, "figures/loss.png")
    picture.write_bytes(data[:-100])
    with pytest.raises(UserError, match=r"figures/loss\.png: damaged"):
        data_url(results, "figures/loss.png")


def test_a_cut_table_is_not_in_the_report(finished: Results, tmp_path: Path) -> None:
    table = tmp_path / "tables/scib.csv"
    table.parent.mkdir()
    table.write_bytes((finished.folder / "tables/scib.csv").read_bytes()[:-20])
    with pytest.raises(UserError, match=r"tables/scib\.csv: damaged"):
        table_rows(Results(tmp_path, finished.config), "scib")


MARKS = "\x00\x07\x9f\u200e\u200f\u202e\u2066\u2069\u061c\u2028\ufeff"


def test_validation_loss_of_one_model_without_donors(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {"sigmoid_256": results.config.models["sigmoid_256"]}
    one = with_other(results, {"models": models})
    monkeypatch.setattr(one, "donor_count", lambda dataset, model: 0)
    table = registry.make("table", "validation_loss", one)
    assert not any(cell.bold for row in table.cells for cell in row)
    assert not re.search(r"\d", table.notes[0].replace("68k", ""))


def test_pairs_without_an_interval_are_named(copied: Path, config: Config) -> None:
    path = copied / "metrics/mmd/simulated_heart.csv"
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
    table = registry.make("table", "mmd_simulated_heart", Results(copied, config))
    notes = " ".join(table.notes)
    assert "interval of the pair and of the means: Immune vs Neural." in notes
    assert "over resamples: \N{EN DASH} % (unbiased), +" in notes
    # Without intervals of the biased estimator, too, the reason is the number of resamples.
    write_measurements(path, [replace(row, low=math.nan, high=math.nan) for row in rows])
    notes = registry.make("table", "mmd_simulated_heart", Results(copied, config)).notes
    assert notes[-1] == "Too few resamples for intervals. Raise evaluation.mmd.resamples."


def test_missing_models_have_no_verdict(paper_results: Results) -> None:
    models = {**paper_results.config.models}
    for name in ("sigmoid_2k", "softmax_2k"):
        del models[name]
        for file in paper_results.folder.glob(f"metrics/validation_loss/*/{name}.*"):
            file.unlink()
    without_2k = with_other(paper_results, {"models": models})
    of_2k = [row for row in numbers(without_2k) if "2K: softmax's validation loss" in row.title]
    assert {(number.verdict, number.n) for number in of_2k} == {(NO_VERDICT, 0)}


@pytest.mark.parametrize("types", [4, 30])
def test_the_umap_has_every_cell(
    types: int, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Types beyond the palette, and cells without a label, are drawn, too."""
    kinds = ["", *(f"type {n}" for n in range(types))] * 7
    values = np.random.default_rng(0).normal(size=(len(kinds), 2))
    cells = pd.DataFrame({"cell_type": kinds, "x": values[:, 0], "y": values[:, 1]})
    monkeypatch.setattr(results, "umap", lambda dataset, model: cells)
    figure = draw("umap_simulated_heart", results)
    for axes in figure.axes:
        drawn = np.vstack([dots.get_offsets() for dots in axes.collections])
        assert sorted(map(tuple, drawn)) == sorted(map(tuple, values))


def test_names_are_drawn_as_they_are(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dollar signs made formulas, or errors. Types that begin with "_" were not in the legend."""
    title, names = (
        "from $5 to $6",
        ["$\\wrong$ type", "_hidden", "<b>B</b> | 'q'", "cost $5 and $6"],
    )
    types = np.resize(names, 160)
    table = pd.DataFrame({"x": range(160), "y": range(160), "cell_type": types})
    monkeypatch.setattr(Results, "umap", lambda *_: table)
    titled = with_other(results, {"datasets.simulated_heart.title": title})
    figure = draw("umap_simulated_heart", titled)
    texts = figure.legends[0].get_texts()
    drawn = [text.get_text().replace("\\$", "").replace("\N{HAIR SPACE}", "") for text in texts]
    assert sorted(drawn) == sorted(name.replace("$", "") for name in names)
    for name in ("umap_simulated_heart", "loss", "scib", "scib_scatter"):
        figure = draw(name, titled)
        FigureCanvasAgg(figure).draw()
        words = " ".join(" ".join(text.get_text().split()) for text in figure.findobj(Text))
        assert "from \\$5 to \\$6" in words


def test_names_with_line_breaks_are_drawn_in_one_line(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tabs were boxes in the figure, and the text after a carriage return was missing."""
    types = np.resize(["N\tK", "B\r\ncells", "CD14+\rMono", "Memory\nT\n", "\n_x"], 160)
    table = pd.DataFrame({"x": range(160), "y": range(160), "cell_type": types})
    monkeypatch.setattr(Results, "umap", lambda *_: table)
    figure = draw("umap_simulated_heart", results)
    texts = [*figure.legends[0].get_texts(), *figure.axes[0].texts]
    drawn = {text.get_text() for text in texts}
    assert drawn == {"N K", "B cells", "CD14+ Mono", "Memory T", "\N{HAIR SPACE}_x"}


@pytest.mark.parametrize(
    ("model", "low", "high", "start", "other"),
    [
        (0.90, -0.02, 0.02, "use the initial model as it is", "Not distinguishable: the trained"),
        (0.93, -0.01, 0.07, "use the initial model as it is", "Not distinguishable: the trained"),
        (0.95, 0.01, 0.09, "use the trained model tuned", "Lower: the initial model as it is"),
    ],
)
def test_training_is_recommended_only_if_it_is_better(
    model: float, low: float, high: float, start: str, other: str
) -> None:
    """Ties were called "Lower", and training was recommended although the model was as good."""
    rows = [
        ("tuned", "", model, None, None),
        ("initial", "", 0.90, None, None),
        ("tuned", "initial", model - 0.90, low, high),
    ]
    columns = ["model", "compared_with", "value", "low", "high"]
    scores = pd.DataFrame(rows, columns=columns)
    text = recommendations(scores.assign(dataset="a", title="Blood", metric="logistic"))
    assert text.startswith(f"Blood: {start} ")
    assert other in text
    assert ("Lower" in text) == other.startswith("Lower")


def test_nothing_is_recommended_that_may_be_random() -> None:
    """The page said "use the trained model" although its accuracy was that of random values."""
    rows = [
        ("tuned", "", 0.39, None, None),
        ("random", "", 0.36, None, None),
        ("pca_log_counts", "", 0.16, None, None),
        ("tuned", "random", 0.03, -0.1, 0.16),
        ("tuned", "pca_log_counts", 0.23, 0.1, 0.36),
    ]
    columns = ["model", "compared_with", "value", "low", "high"]
    scores = pd.DataFrame(rows, columns=columns)
    text = recommendations(scores.assign(dataset="a", title="Blood", metric="logistic"))
    assert text.startswith(
        "Blood: no recommendation: the trained model tuned (logistic accuracy 0.39) is not "
        "distinguishable from a random embedding 0.36 (difference 0.03 [-0.10, 0.16]). Lower: PCA"
    )


@pytest.mark.parametrize(
    ("model", "low", "high", "start"),
    [
        (0.50, 0.1, 0.5, "use the trained model tuned (logistic accuracy 0.50)."),
        (0.50, -0.1, 0.7, "no recommendation: the trained model tuned"),
        (0.34, -0.1, 0.2, "no recommendation: the trained model tuned"),
    ],
)
def test_an_initial_model_that_may_be_random_is_not_preferred(
    model: float, low: float, high: float, start: str
) -> None:
    """Nothing was recommended, although the trained model was better than random."""
    rows = [
        ("tuned", "", model, None, None),
        ("initial", "", 0.30, None, None),
        ("random", "", 0.20, None, None),
        ("tuned", "initial", model - 0.30, -0.05, 0.45),
        ("tuned", "random", model - 0.20, low, high),
        ("initial", "random", 0.10, -0.05, 0.25),
    ]
    columns = ["model", "compared_with", "value", "low", "high"]
    scores = pd.DataFrame(rows, columns=columns)
    text = recommendations(scores.assign(dataset="a", title="Blood", metric="logistic"))
    assert text.startswith(f"Blood: {start}")
    assert "Not distinguishable: the initial model as it is 0.30" in text


def test_a_representation_that_may_be_random_is_not_preferred_to_a_lower_one() -> None:
    """Nothing was recommended, because the highest score may be that of a random embedding."""
    rows = [
        ("tuned", "", 0.45, None, None),
        ("initial", "", 0.50, None, None),
        ("random", "", 0.20, None, None),
        ("tuned", "initial", -0.05, -0.30, 0.20),
        ("tuned", "random", 0.25, 0.10, 0.40),
        ("initial", "random", 0.30, -0.10, 0.70),
    ]
    columns = ["model", "compared_with", "value", "low", "high"]
    scores = pd.DataFrame(rows, columns=columns)
    text = recommendations(scores.assign(dataset="a", title="Blood", metric="logistic"))
    assert text.startswith("Blood: use the trained model tuned (")
    assert "Not distinguishable: the initial model as it is 0.50" in text


def test_scores_that_are_worse_than_random() -> None:
    """They were called not distinguishable from a random embedding."""
    rows = [
        ("tuned", "", 0.2, None, None),
        ("random", "", 0.3, None, None),
        ("tuned", "random", -0.1, -0.15, -0.05),
    ]
    columns = ["model", "compared_with", "value", "low", "high"]
    scores = pd.DataFrame(rows, columns=columns)
    text = recommendations(scores.assign(dataset="a", title="Blood", metric="logistic"))
    assert "0.20) is worse than a random embedding 0.30 (difference -0.10 [-0.15, -0.05])" in text


LONG_TITLES = {
    "simulated_heart": "pbmc_10k_filtered_feature_bc_matrix_healthy_donor",
    "simulated_brain": "nsclc_blood_scgate",
    "pbmc68k": "A study with a long title, first author et al. 2024 (10x 3' v3)",
}


@pytest.mark.parametrize("name", ["loss", "scib", "scib_scatter"])
def test_long_titles_of_datasets_do_not_overlap(name: str, results: Results) -> None:
    """Titles in a legend were cut. Titles of few panels were broken inside of words."""
    datasets = {key: results.config.datasets[key] for key in LONG_TITLES}
    titled = with_other(results, {"datasets": datasets})
    titled = with_other(titled, {f"datasets.{key}.title": x for key, x in LONG_TITLES.items()})
    with style.styled():
        figure = draw(name, titled)
        FigureCanvasAgg(figure).draw()
    texts = [text for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.axes:
        texts.append(axes._left_title)
    if name == "scib":
        texts += figure.axes[0].get_yticklabels()
    words = " ".join(text.get_text().replace("\n", " ") for text in texts)
    assert LONG_TITLES["pbmc68k"] in words
    assert LONG_TITLES["simulated_brain"] in words
    boxes = [text.get_window_extent() for text in texts if text.get_text() and text.get_visible()]
    assert all(figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1 for box in boxes)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_many_datasets_have_panels_of_readable_size(results: Results, monkeypatch) -> None:
    """All panels were in two rows: with 24 datasets, their labels overlapped."""
    some = next(iter(results.config.datasets))
    many = {f"d{i}": results.config.datasets[some] for i in range(24)}
    for method in ("validation_loss", "measurement"):
        original = getattr(Results, method)
        monkeypatch.setattr(
            Results, method, lambda self, *names, original=original: original(
                self, *(some if name in many else name for name in names)
            )
        )  # fmt: skip
    with style.styled():
        figure = draw("loss", with_other(results, {"datasets": many}))
        FigureCanvasAgg(figure).draw()
    right = figure.subfigs[1]
    texts = [text for axes in right.axes for text in (axes._left_title, *axes.get_xticklabels())]
    boxes = [text.get_window_extent() for text in texts if text.get_text() and text.get_visible()]
    assert len(boxes) >= 24
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(box.x1 <= figure.bbox.x1 for box in boxes)


def test_long_labels_of_models_do_not_overlap(results: Results) -> None:
    """The label below a panel was over that of the next panel."""
    pair = results.config.evaluation.pair
    models = {
        f"models.{name}.training": {"learning_rate": 0.0004, "warmup_steps": 20} for name in pair
    }
    models |= {f"models.{name}_other": results.config.models[name] for name in pair}
    with style.styled():
        figure = draw("scib_scatter", with_other(results, models))
        FigureCanvasAgg(figure).draw()
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    boxes = [text.get_window_extent() for text in texts if "learning rate" in text.get_text()]
    assert len(boxes) >= 2
    assert all(figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1 for box in boxes)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


@pytest.mark.parametrize("name", ["loss", "scib_scatter"])
def test_long_titles_of_many_datasets(name: str, tmp_path: Path, config: Config) -> None:
    """Panels had no height, so titles overlapped. The label of the y axis was over the legend."""
    title = "Developing human outflow tract of the heart, all donors, release"
    heart = config.datasets["simulated_heart"]
    datasets = {f"d{i}": heart.model_copy(update={"title": f"{title} {i}"}) for i in range(9)}
    pair = config.evaluation.pair
    settings: dict[str, object] = {f"models.{model}_other": config.models[model] for model in pair}
    settings |= {f"models.{model}.training": {"learning_rate": 0.0004} for model in pair}
    many = with_settings(config, {"datasets": datasets, **settings})
    MadeUp(tmp_path, many).write_all()
    with style.styled():
        figure = draw(name, Results(tmp_path, many))
        FigureCanvasAgg(figure).draw()
    texts = [axes._left_title for axes in figure.axes]
    texts += [text for text in figure.findobj(Text) if "learning rate" in text.get_text()]
    shown = [text for text in texts if text.get_visible() and text.get_text()]
    labels = [text for legend in figure.legends for text in legend.get_texts()]
    boxes = [text.get_window_extent() for text in shown if text not in labels]
    boxes += [legend.get_window_extent() for legend in figure.legends]
    assert len(boxes) > 4
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_losses_that_are_not_finite_are_named(copied: Path, config: Config) -> None:
    """A model without a mark was not explained, and a journal of such losses was an error."""
    writer, missing = MadeUp(copied, config), Interval(math.nan)
    sentence = "Validation losses that are not finite are not drawn."
    assert sentence not in draw("loss", Results(copied, config)).get_label()
    losses = np.full(CELLS, math.nan)
    writer.write_model_losses("pbmc68k", "softmax_256", losses, *[missing] * 3)
    columns = {"step": np.arange(1, 4), "loss": np.full(3, math.nan)}
    write_journal(copied / "training/softmax_256/journal.csv", columns)
    _, _, caption = registry.write("figure", "loss", Results(copied, config), copied / "loss")
    assert sentence in caption.read_text()


def test_marks_of_many_models_are_at_their_dataset(results: Results) -> None:
    """With six models and controls, marks were at the next dataset."""
    pair = [name for name, model in results.config.models.items() if not model.stress]
    axes = draw("scib", with_other(results, {"evaluation.pair": pair})).axes[0]
    *ticks, _ = axes.get_yticks()  # the last is of the means
    rows = [line.get_ydata() for line in axes.lines if len(line.get_ydata()) == len(ticks)]
    assert len(rows) == 6
    for places in rows:
        assert np.abs(places[:, None] - ticks).argmin(axis=1).tolist() == [*range(len(ticks))]


def test_marks_of_equal_scores_of_one_dataset_are_both_visible(results: Results) -> None:
    """The mark of the last model hid the others."""
    dataset = {"simulated_heart": results.config.datasets["simulated_heart"]}
    with style.styled():
        figure = draw("scib", with_other(results, {"datasets": dataset}))
        FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    ticks = axes.get_yticks()
    places = np.array([line.get_ydata() for line in axes.lines])
    assert (np.abs(places[:, :, None] - ticks).argmin(axis=2) == np.arange(len(ticks))).all()
    pixels = axes.transData.transform([(0, place) for place in np.sort(places[:, 0])])[:, 1]
    points = np.abs(np.diff(pixels)) * 72 / figure.dpi
    assert points.min() > axes.lines[0].get_markersize() / 2


@pytest.mark.parametrize("steps", [[1], [1, 2, 3]])
def test_few_logged_steps(steps: list[int], results: Results, monkeypatch) -> None:
    """Steps had labels such as "1 1 2 2", and a single logged step was not visible."""
    rows = pd.DataFrame({"step": steps, "loss": 5.0}).to_records()
    monkeypatch.setattr(Results, "journal", lambda *_: rows)
    with style.styled():
        figure = draw("loss", results)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        axes = figure.axes[0]
        labels = [text.get_text() for text in axes.get_xticklabels()]
        x, y = axes.transData.transform((steps[0], 5.0)).astype(int)
    assert len(set(labels)) == len(labels)
    assert [*map(float, labels)] == pytest.approx([*axes.get_xticks()])
    pixels = np.asarray(canvas.buffer_rgba())[::-1, :, :3]  # the first row is at the bottom
    assert (pixels[y - 3 : y + 4, x - 3 : x + 4] < 250).any(axis=2).sum() > 8


def test_axes_of_validation_losses_have_labels(results: Results) -> None:
    right = draw("loss", results).subfigs[1]
    assert right.get_supxlabel()
    assert right.get_supylabel()


def test_colors_of_cell_types_are_different() -> None:
    """Two of them were light blues, and colors repeated from 21 types on."""
    rgb = np.array([to_rgb(color) for color in style.CELL_TYPE_COLORS])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = linear @ np.array(
        [[0.4339, 0.2127, 0.0178], [0.3762, 0.7152, 0.1095], [0.1899, 0.0722, 0.8729]]
    )  # relative to the white D65
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    lab = np.c_[116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])]
    distances = np.linalg.norm(lab[:, None] - lab, axis=-1)
    assert distances[~np.eye(len(lab), dtype=bool)].min() > 25
    assert len(lab) == 40


def test_datasets_without_the_compared_score_are_named() -> None:
    """The sentences left them out without a word."""
    rows = [
        ("a", "sigmoid", "", "logistic", 0.9, None, None),
        ("a", "pca_log_counts", "", "logistic", 0.8, None, None),
        ("a", "sigmoid", "pca_log_counts", "logistic", 0.1, 0.05, 0.15),
        ("b", "sigmoid", "", "leiden_nmi", 0.5, None, None),
        ("c", "sigmoid", "", "leiden_nmi", 0.5, None, None),
        ("d", "sigmoid", "", "logistic", 0.7, None, None),  # an earlier version: no differences
    ]
    columns = ["dataset", "model", "compared_with", "metric", "value", "low", "high"]
    scores = pd.DataFrame(rows, columns=columns)
    scores["title"] = "Blood " + scores["dataset"]
    note = "Without logistic accuracy (fewer than two types have 10 cells): Blood b, Blood c."
    assert recommendations(scores).endswith(f" {note}")
    assert "Without" not in recommendations(scores[:3])


def test_characters_that_the_font_of_figures_lacks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Boxes were drawn, and the log had three warnings for each character."""
    with style.styled():
        figure = style.new_figure(style.SINGLE, 2)
        axes = figure.subplots()
        axes.plot([0, 1], label=style.literal("T\u7ec6\u80de"))
        axes.set_title("\N{GREEK SMALL LETTER ALPHA}")
        style.add_legend(figure, axes, 1)
        style.save(figure, tmp_path / "umap_mine")
    [line] = capfd.readouterr().err.splitlines()
    assert "umap_mine" in line
    assert "'\u7ec6\u80de'" in line
