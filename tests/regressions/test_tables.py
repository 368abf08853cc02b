"""Tables and the report page: text of users is neutral, and every value has its own interval."""

import csv
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up_results import CELLS, MadeUp, draw, with_other
from matplotlib.text import Text

from scsigmoid.config.check import load
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.paper.all_numbers import numbers
from scsigmoid.paper.differences import differences
from scsigmoid.paper.number import NO_VERDICT
from scsigmoid.paper.reported import timed_sizes
from scsigmoid.records.measurements import Interval, read_measurements, write_measurements
from scsigmoid.report import registry
from scsigmoid.report.page import make_report
from scsigmoid.report.tables.writing import (
    MINUS,
    Cell,
    Table,
    as_csv,
    as_markdown,
    without_empty_columns,
)
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import four_digits
from scsigmoid.results.speed import costs

JOURNALS = Path(__file__).parents[2] / "docs/measurements/h200/journals"
DATASETS = dict.fromkeys(
    ("simulated_blood_2", "simulated_lung", "simulated_colon", "simulated_brain", "simulated_blood")
)
MARKS = "\x00\x07\x9f\u200e\u200f\u202e\u2066\u2069\u061c\u2028\ufeff"


def table_of(*labels: str, caption: str = "A caption.") -> Table:
    """Return a table with labels in the records, header, rows and notes."""
    return Table(
        caption=caption,
        records=[{"label": label, "value": -0.5, "count": -3, "text": "-0.25"} for label in labels],
        header=("Label", *labels),
        rows=[[label, Cell(label, bold=True)] for label in labels],
        notes=labels,
    )


FORMULAS = (
    "=cmd|'/c calc'!A0", "+1+1", "-2+3+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1", "\x00=1",
    "\u202e=1", "'=1", "\N{FULLWIDTH EQUALS SIGN}1", '=HYPERLINK("http://a.example","b")', "-",
    "-a", "=1\n+2",
)  # fmt: skip


@pytest.mark.parametrize("label", FORMULAS)
def test_labels_are_not_formulas_in_csv(tmp_path: Path, label: str) -> None:
    (tmp_path / "a.csv").write_text(as_csv(table_of(label, "plain, =1")), newline="")
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["label", "value", "count", "text"]
    assert [row[1:] for row in rows] == [["-0.5", "-3", "-0.25"]] * 2
    assert rows[0][0].startswith("'")
    assert rows[1][0] == "plain, =1"
    table = pd.read_csv(tmp_path / "a.csv")
    assert table["value"].tolist() == table["value"].astype(float).tolist() == [-0.5] * 2


@pytest.mark.parametrize(
    "text", ["-0.5", "+0.012 [0.001, 0.02]", "-1.5 [-2.0, +1]", "-5 %", "-1e-05", "-inf", "3"]
)
def test_numbers_stay_numbers_in_csv(text: str) -> None:
    (_, row) = csv.reader(as_csv(table_of(text)).splitlines())
    assert row[0] == text


LINKS = (
    "[a](http://a.example)", "![a](http://a.example/b.png)", "[a][b]", "http://a.example",
    "HTTPS://a.example", "www.a.example", "WWW.a.example", "<http://a.example>", "a@b.example",
    "[a]: http://a.example", "<b>a</b>", "~~a~~", "**a**", "`a`", "&lt;b&gt;", "a | b", "[x] (y)",
)  # fmt: skip


class Page(HTMLParser):
    """The text and the tags of an HTML page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.tags = "", set[str]()
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)


@pytest.mark.parametrize("label", LINKS)
def test_labels_are_not_markup_in_markdown(label: str) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    finds_bare_links = find_spec("linkify_it") is not None
    parser = markdown_it.MarkdownIt("gfm-like" if finds_bare_links else "commonmark")
    page = Page(parser.enable("table").render(as_markdown(table_of(label))))
    assert page.tags <= {"p", "table", "thead", "tbody", "tr", "th", "td", "strong"}
    assert page.text.count(label) == 4


def test_links_without_brackets_are_interrupted_in_markdown() -> None:
    for label in LINKS:
        text = as_markdown(table_of(label))
        assert not re.search(r"\w://|www\.|(?<!\\)\][(\[:]|(?<!\\)@", text, re.IGNORECASE)
    assert "0.5 [0.4, 0.6] (0.5)" in as_markdown(table_of("0.5 [0.4, 0.6] (0.5)"))


def test_invisible_characters_are_left_out() -> None:
    table = table_of(f"a{MARKS}b", f"{MARKS}", caption=f"A{MARKS} caption. Rest{MARKS}.")
    for text in (as_csv(table), as_markdown(table)):
        assert not set(text) & set(MARKS)
        assert "ab" in text
        text.encode()
    as_markdown(table_of("\ud800")).encode()


# Files of a made-up run.


@pytest.fixture(scope="module")
def config() -> Config:
    """The demo's configuration with one dataset, whose title is markup with invisible marks."""
    demo = load(overrides={"preset": "demo", "datasets": DATASETS})
    title = f"=A{MARKS}<i>x</i> [a](http://a.example)"
    datasets = {
        name: entry.model_copy(update={"title": title}) for name, entry in demo.datasets.items()
    }
    return demo.model_copy(update={"datasets": datasets})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, config: Config) -> Path:
    folder = tmp_path_factory.mktemp("results")
    MadeUp(folder, config).write_all()
    return folder


@pytest.fixture
def results(folder: Path, config: Config) -> Results:
    return Results(folder, config)


def test_invisible_characters_are_left_out_of_the_page(results: Results, tmp_path: Path) -> None:
    copy = Results(shutil.copytree(results.folder, tmp_path / "results"), results.config)
    for name in registry.names("table", copy.plan):
        registry.write("table", name, copy, copy.folder / f"tables/{name}")
    (copy.folder / "figures").mkdir()
    for name in registry.names("figure", copy.plan):
        for suffix, end in (("png", b"IEND\xaeB`\x82"), ("pdf", b""), ("txt", b"")):
            (copy.folder / f"figures/{name}.{suffix}").write_bytes(end)
    make_report(copy, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert not set(page) & set(MARKS)
    assert "=A&lt;i&gt;x&lt;/i&gt;" in page
    assert "i" not in Page(page).tags


NUMBER = rf"([{MINUS}+]?\d+\.\d+)"


def values(text: str) -> list[float]:
    return [float(value.replace(MINUS, "-")) for value in re.findall(NUMBER, text)]


def with_donors(results: Results, mean: float, of_donors: Interval) -> Results:
    """Write losses whose mean over donors is far from the mean over cells."""
    writer = MadeUp(results.folder, results.config)
    masks = Interval(mean, mean - 0.001, mean + 0.001)
    for index, model in enumerate(results.plan.evaluated_models):
        losses = np.linspace(mean - 1, mean + 1, CELLS) + 0.01 * index * np.resize([1, -1], CELLS)
        writer.write_model_losses(
            "simulated_heart", model, losses, Interval(mean), of_donors, masks
        )
    return Results(results.folder, results.config)


@pytest.mark.parametrize("of_donors", [Interval(3.0, 2.8, 3.2), Interval(3.0)])
def test_an_interval_is_around_its_own_value(
    results: Results, tmp_path: Path, of_donors: Interval
) -> None:
    copy = Results(shutil.copytree(results.folder, tmp_path / "results"), results.config)
    changed = with_donors(copy, 2.5, of_donors)
    row = registry.make("table", "validation_loss", changed).rows[0]
    has_interval = not math.isnan(of_donors.low)
    expected = [2.5, 0.001, 3.0, 0.2] if has_interval else [2.5, 0.001]
    (loss, *_) = (cell for cell in row if isinstance(cell, Cell))
    assert values(loss.text) == expected
    paired = changed.paired_difference("simulated_heart", "sigmoid_256", "softmax_256")
    difference = values(str(row[-1]))
    assert len(difference) == 3
    assert difference[1:] == pytest.approx([paired.value, (paired.high - paired.low) / 2], abs=6e-4)
    # In the figure, the error bar is around its mark.
    axes = draw("loss", changed).axes[1 + list(changed.config.datasets).index("simulated_heart")]
    lines = [line.get_xydata() for line in axes.get_lines()]
    marks = {points[0][0]: points[0][1] for points in lines if len(points) == 1}
    assert set(marks.values()) == {3.0 if has_interval else 2.5}
    bars = {points[0][0]: points[:, 1].mean() for points in lines if len(points) == 2}
    if has_interval:
        assert bars == pytest.approx(marks)


def test_captions_name_the_paper_only_with_its_column(
    results: Results, paper_results: Results
) -> None:
    """The captions of the demo ended in "here and in the paper", which had no column."""
    for name in ("hyperparameters", "evaluation_datasets"):
        for of_run, is_in_paper in ((results, False), (paper_results, True)):
            table = without_empty_columns(registry.make("table", name, of_run))
            assert ("in the paper" in table.caption) == is_in_paper
            assert any("aper" in title for title in table.header) == is_in_paper


def test_numbers_above_the_bars_are_described(results: Results, tmp_path: Path) -> None:
    """The numbers are medians of ratios, which differ from ratios of medians."""
    texts = [text.get_text() for text in draw("gpu_hours", results).findobj(Text)]
    ratios = {f"{cost.hours_ratio.value:.2f}" for cost in costs(results)}
    assert ratios <= set(texts)
    *_, caption = registry.write("figure", "gpu_hours", results, tmp_path / "gpu_hours")
    assert "median over rounds, not the ratio of the bars" in caption.read_text()


# GPU-hours of completed runs.

RUNS = ("sigmoid_2k", "softmax_2k", "sigmoid_4k", "softmax_4k")
Change = Callable[[str], str]


def real_journals(folder: Path, change: Change = str) -> Results:
    """Return results with real journals of complete short runs, of which ``change`` is a copy."""
    steps = {}
    for model in RUNS:
        text = (JOURNALS / f"journal_{model}.csv").read_text()
        path = folder / f"training/{model}/journal.csv"
        path.parent.mkdir(parents=True)
        path.write_text(change(text))
        steps[model] = int(text.splitlines()[-1].split(",")[0])
    demo = load(overrides={"preset": "paper"})
    models = {
        name: demo.models[name].model_copy(
            update={"training": demo.models[name].training | {"steps": count}}
        )
        for name, count in steps.items()
    }
    writer = MadeUp(folder, demo)
    writer.write_corpus()
    return Results(folder, demo.model_copy(update={"models": models}))


def hours(results: Results) -> dict[str, tuple[float, str]]:
    """Return value and verdict of the GPU-hours of completed runs, by title."""
    from scsigmoid.paper import hours

    return {number.title: (number.here.value, number.verdict) for number in hours.numbers(results)}


@pytest.mark.parametrize("processes", [1, 16])
def test_gpu_hours_of_completed_runs(tmp_path: Path, processes: int) -> None:
    def on_gpus(text: str) -> str:
        return text.replace("# processes: 1\n", f"# processes: {processes}\n")

    measured = hours(real_journals(tmp_path, on_gpus))
    assert len(measured) == 6
    by_model = {}
    for model in RUNS:
        table = pd.read_csv(JOURNALS / f"journal_{model}.csv", comment="#")
        by_model[model] = table["seconds"].iloc[-1] * processes / 3600
    for context in ("2K", "4K"):
        sigmoid, softmax = (by_model[f"{arm}_{context.lower()}"] for arm in ("sigmoid", "softmax"))
        found = [value for title, (value, _) in measured.items() if f"at {context}" in title]
        assert found == pytest.approx([sigmoid, softmax, 100 * (1 - sigmoid / softmax)])
    assert NO_VERDICT not in {verdict for _, verdict in measured.values()}


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("# processes: 1\n", ""),
        lambda text: text.replace("# processes: 1\n", "# processes: some\n"),
        lambda text: text.replace("device: NVIDIA H200", "device: cpu"),
        lambda text: text[: text.rstrip().rindex("\n") + 1],  # without the last step
    ],
)
def test_runs_without_known_gpu_hours(tmp_path: Path, change: Change) -> None:
    measured = hours(real_journals(tmp_path, change))
    assert {verdict for _, verdict in measured.values()} == {NO_VERDICT}


def test_every_number_of_the_training_cost_can_get_a_verdict(tmp_path: Path) -> None:
    """The GPUs of the completed runs are read from journals, not from the benchmark."""
    results = real_journals(tmp_path)
    writer = MadeUp(tmp_path, results.config)
    for dataset in results.config.datasets:
        writer.write_losses(dataset)
        writer.write_scores(dataset)
        writer.write_mmd(dataset, {"Cardiac vs Neural": (0.5, 0.4)})
    writer.write_kernel()
    writer.write_training()
    of_hours = [row for row in differences(results.config, results) if row.group == "hours"]
    gpus = {row.name: row.here for row in of_hours if row.name.startswith("GPUs that train")}
    assert gpus == {f"GPUs that train {model}": "1" for model in RUNS}
    models = {row.name: row.here for row in of_hours if row.name.startswith("GPU of")}
    assert models == {f"GPU of {model}": "NVIDIA H200" for model in RUNS}
    cost = [row for row in differences(results.config, results) if row.group == "cost"]
    assert not any("GPUs" in row.name for row in cost)
    all_numbers = numbers(results)
    assert sum(number.group in ("cost", "hours") for number in all_numbers) == 24
    comparison = registry.make("table", "comparison", results)
    shown = [record for record in comparison.records if record["group"] == "hours"]
    assert [record["here"] > 0 for record in shown[:2]] == [True, True]


def test_means_of_mmd_have_a_number_of_pairs(results: Results, tmp_path: Path) -> None:
    csv_file, *_ = registry.write("table", "mmd_simulated_heart", results, tmp_path / "mmd")
    table = pd.read_csv(csv_file)
    pairs = table[table["pairs"].isna()]
    means = table[table["pairs"].notna()]
    assert means["cells"].isna().all()
    assert set(means["pairs"]) == {len(pairs) / 2}  # there is a row for each of two estimators


def test_settings_of_one_model_are_in_the_table(results: Results, tmp_path: Path) -> None:
    changed = with_other(results, {"models.sigmoid_256.training.weight_decay": 0.5})
    paths = registry.write("table", "hyperparameters", changed, tmp_path / "hyperparameters")
    (line,) = (line for line in paths[1].read_text().splitlines() if "Sigmoid 256 |" in line)
    assert "decay 0.5" in line


def test_pairs_without_a_difference_have_no_best_model(copied: Path, config: Config) -> None:
    """If the estimate of both models is 0, softmax was called the best."""
    pairs = {"a vs b": (0.0, 0.0), "a vs c": (0.3, 0.2), "b vs c": (0.1, 0.2)}
    measured = {name: values for name, values in pairs.items() if all(values)}
    MadeUp(copied, config).write_mmd("simulated_heart", measured)
    path = copied / "metrics/mmd/simulated_heart.csv"
    rows = read_measurements(path)
    tied = [replace(row, group="a vs b", value=0.25) for row in rows if row.group == "a vs c"]
    write_measurements(path, [*rows, *tied])
    table = registry.make("table", "mmd_simulated_heart", Results(copied, config))
    best = {record["pair"]: record.get("best") for record in table.records}
    sigmoid, softmax = config.evaluation.pair
    assert [best[name] for name in pairs] == ["", sigmoid, softmax]
    assert table.notes[0] == "Sigmoid has the higher MMD on 1 of 3 pairs, and 1 are equal."


def test_a_ratio_with_an_infinite_end_has_its_interval(copied: Path, config: Config) -> None:
    """It had no interval, as if it had been exact."""
    path = copied / "metrics/mmd/simulated_heart.csv"
    rows = [
        replace(row, high=math.inf) if row.metric == "mmd_unbiased_ratio" else row
        for row in read_measurements(path)
    ]
    write_measurements(path, rows)
    table = registry.make("table", "mmd_simulated_heart", Results(copied, config))
    assert all(re.fullmatch(r"[\d.]+ \[[\d.]+, ∞\]", row[3].text) for row in table.cells)


def test_models_that_were_trained_differently_are_named(results: Results) -> None:
    """Loss, scores and MMD were compared without a word about other steps or rates."""
    names = ("validation_loss", "scib", "mmd_simulated_heart")
    changed = with_other(
        results, {"models.softmax_256.training": {"learning_rate": 0.01, "betas": [0.9, 0.95]}}
    )
    for name in names:
        same, different = (registry.make("table", name, each).notes for each in (results, changed))
        (note,) = (note for note in different if note not in same)
        assert "Sigmoid 256 with learning rate 0.0005, betas 0.9, 0.999" in note
        assert "Softmax 256 with learning rate 0.01, betas 0.9, 0.95" in note
        assert ("Sigmoid 128" in note) == (name == "validation_loss")


def test_the_mean_of_fewer_scores_names_them(results: Results) -> None:
    """It was called the mean of silhouette, NMI and ARI, whichever scores there were."""
    fewer = with_other(results, {"evaluation.scib.metrics": ["silhouette_label", "leiden_nmi"]})
    for each, text in ((results, "Leiden ARI"), (fewer, "Leiden NMI, Silhouette label.")):
        assert text in registry.make("table", "scib", each).caption.partition("the mean of")[2][:60]
    scores = fewer.scores("simulated_heart")
    mean = (scores["silhouette_label"]["random"].value + scores["leiden_nmi"]["random"].value) / 2
    assert scores["bio_conservation"]["random"].value == pytest.approx(mean)


def test_a_model_that_diverged_is_in_the_table(copied: Path, config: Config) -> None:
    """Its column had only dashes, and was left out as if the model did not exist."""
    writer = MadeUp(copied, config)
    for dataset in config.datasets:
        losses, missing = np.full(CELLS, math.nan), Interval(math.nan)
        writer.write_model_losses(dataset, "softmax_256", losses, *[missing] * 3)
    paths = registry.write("table", "validation_loss", Results(copied, config), copied / "losses")
    header, *lines = (line for line in paths[1].read_text().splitlines() if line.startswith("| "))
    titles = header.split(" | ")
    for line in lines[1:]:
        values = dict(zip(titles, line.split(" | "), strict=True))
        assert values["Softmax 256"] == "not finite"
        assert values[f"Sigmoid 256 {MINUS} Softmax 256 |"] == "not finite |"


def test_no_loss_is_bold_if_means_over_cells_and_donors_disagree(
    copied: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The higher of the two printed losses was bold."""
    writer = MadeUp(copied, config)
    for model, loss in (("sigmoid_256", 3.0), ("softmax_256", 2.0)):
        intervals = [Interval(loss, loss - 0.1, loss + 0.1)] * 3
        writer.write_model_losses("simulated_heart", model, np.full(CELLS, loss), *intervals)
    for over_donors, is_bold in (
        (Interval(-1.0, -1.1, -0.9), False), (Interval(1.0, 0.9, 1.1), True),
    ):  # fmt: skip
        results = Results(copied, config)
        monkeypatch.setattr(results, "paired_difference", lambda *_, value=over_donors: value)
        place = [*config.datasets].index("simulated_heart")
        row = registry.make("table", "validation_loss", results).cells[place]
        assert [cell.bold for cell in row[3:5]] == [False, is_bold]


def test_no_cost_is_bold_if_rounds_and_medians_disagree(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Softmax's hours were bold next to "10 % fewer" of sigmoid, or the other way around."""
    cost = costs(results)[0]
    assert cost.sigmoid.gpu_hours < cost.softmax.gpu_hours
    for ratio, is_bold in ((0.9, True), (1.1, False)):
        changed = replace(cost, hours_ratio=Interval(ratio, ratio - 0.05, ratio + 0.05))
        monkeypatch.setattr("scsigmoid.results.speed.costs", lambda _, changed=changed: [changed])
        (row,) = registry.make("table", "training_cost", results).cells
        assert [cell.bold for cell in row[3:5]] == [is_bold, False]


def test_a_negative_zero_has_no_sign() -> None:
    assert [four_digits(value) for value in (-0.0, 0.0, -3.0, -0.5)] == ["0", "0", "-3", "-0.5"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((9999.9999, "10,000"), (-9999.6, "-10,000"), (9999.4, "9999"), (999.96, "1000")),
        *((999_999_999.5, "1,000,000,000"), (math.inf, "inf"), (math.nan, "nan")),
    ],
)
def test_four_digits_have_no_exponent(value: float, text: str) -> None:
    """9999.9999 was 1e+04."""
    assert four_digits(value) == text


def test_large_sizes_and_few_cells_are_readable() -> None:
    """They were 1.23e+03M parameters and 0.0 million cells."""
    large = {"layers": 48, "hidden": 2048, "heads": 16, "feed_forward": 8192}
    few = {"sizes": ["400M"], "projected_cells": 10_000}
    settings = {"preset": "small", "sizes": {"400M": large}, "benchmarks": {"training": few}}
    config = load(overrides=settings)
    (name,) = timed_sizes(config)
    assert re.fullmatch(r"400M with [\d.,]+M parameters", name)
    assert "on 0.01 million cells," in registry.caption("figure", "gpu_hours", Plan(config))
