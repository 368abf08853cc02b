"""Figures: complete, legible, unclipped, the same bytes every time."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up_results import copy_inputs, draw, with_other
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.text import Text
from PIL import Image

from scsigmoid.report import registry
from scsigmoid.report.figures import style
from scsigmoid.report.figures.training_figures import covered_share, moving_mean
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import METRIC_TITLES, representation_label

NAMES = (
    "sequence_lengths", "tflops", "latency", "gpu_hours", "loss", "scib",
    "scib_scatter", "stability", "umap_simulated_heart",
)  # fmt: skip


def test_names_of_all_figures(results: Results) -> None:
    assert {*NAMES, "umap_pbmc68k"} == {*registry.names("figure", results.plan)}


@pytest.mark.parametrize("name", NAMES)
def test_figure_from_its_declared_inputs_only(name: str, results: Results, tmp_path: Path) -> None:
    written = []
    for _ in range(2):
        inputs_only = copy_inputs(results, "figure", name, tmp_path)
        png, pdf, caption = registry.write("figure", name, inputs_only, tmp_path / "a")
        written.append([path.read_bytes() for path in (png, pdf, caption)])
    assert written[0] == written[1]
    with Image.open(png) as image:
        width = image.size[0] / style.DPI
        pixels = np.asarray(image.convert("L"))
    assert width in (pytest.approx(style.SINGLE, abs=0.02), pytest.approx(style.DOUBLE, abs=0.02))
    assert (pixels < 250).mean() > 0.02
    content = written[0][1]
    assert content.startswith(b"%PDF")
    assert b"CreationDate" not in content
    assert b"/FontFile2" in content
    assert b"/Type3" not in content


@pytest.mark.parametrize("scale", ["demo", "paper"])
@pytest.mark.parametrize("name", NAMES)
def test_text_is_legible_and_does_not_overlap(
    name: str, scale: str, request: pytest.FixtureRequest
) -> None:
    results = request.getfixturevalue("results" if scale == "demo" else "paper_results")
    if scale == "paper":
        name = name.replace("simulated_heart", "heart_oft")
    with style.styled():
        figure = draw(name, results)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        boxes = []  # (text, box in pixels)
        for text in visible_texts(figure):
            assert text.get_fontsize() >= 7, text.get_text()
            boxes.append((text.get_text(), text.get_window_extent(canvas.get_renderer())))
    bounds = figure.bbox
    # Phones show the left half of a wide figure first.
    assert all(legend.get_window_extent().x0 < bounds.width / 20 for legend in figure.legends)
    for words, box in boxes:
        assert bounds.x0 - 1 <= box.x0 <= box.x1 <= bounds.x1 + 1, words
        assert bounds.y0 - 1 <= box.y0 <= box.y1 <= bounds.y1 + 1, words
    for (words, box), (other_words, other) in itertools.combinations(boxes, 2):
        # Boxes may overlap by 1.5 pixels, because they are wider than the letters.
        overlap_x = min(box.x1, other.x1) - max(box.x0, other.x0)
        overlap_y = min(box.y1, other.y1) - max(box.y0, other.y0)
        assert overlap_x < 1.5 or overlap_y < 1.5, f"{words!r} and {other_words!r} overlap"


def visible_texts(figure: Figure) -> list[Text]:
    """Return every visible text, without tick labels outside of their axis."""
    texts = list(figure.texts)
    for part in figure.findobj(SubFigure):
        texts += part.texts
    for legend in figure.legends:
        texts += legend.get_texts()
    for axes in figure.findobj(Axes):
        if not axes.get_visible():
            continue
        texts += [*axes.texts, axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_visible():
                for tick in axis._update_ticks():
                    texts += [tick.label1, tick.label2]
    return [text for text in texts if text.get_visible() and text.get_text().strip()]


@pytest.mark.parametrize("name", ["sequence_lengths", "stability", "loss", "umap_simulated_heart"])
def test_figures_state_that_cells_are_simulated(name: str, results: Results) -> None:
    """In the title or the label of an axis, because a slide does not show the caption."""
    words = " ".join(text.get_text() for text in draw(name, results).findobj(Text))
    assert "simulated" in words.lower()


def test_captions_have_the_notes_of_the_run(results: Results, tmp_path: Path) -> None:
    """Notes of a run, such as its number of cells, are in the caption file only."""
    *_, caption = registry.write("figure", "umap_simulated_heart", results, tmp_path / "umap")
    text = caption.read_text()
    assert text.startswith(registry.find("figure", "umap_simulated_heart", results.plan).caption)
    assert text.endswith(" 160 cells.\n")
    words = [text.get_text() for text in draw("umap_simulated_heart", results).findobj(Text)]
    assert not any("160" in word for word in words)


def test_scores_of_a_pair_are_compared_with_the_diagonal(results: Results) -> None:
    panels = draw("scib_scatter", results).axes
    for axes, metric in zip(panels, results.scores("simulated_heart"), strict=True):
        *marks, diagonal = axes.lines
        points = [tuple(line.get_xydata()[0]) for line in marks]
        by_dataset = [results.scores(name)[metric] for name in results.config.datasets]
        assert points == [
            (scores["softmax_256"].value, scores["sigmoid_256"].value) for scores in by_dataset
        ]
        np.testing.assert_array_equal(*diagonal.get_xydata().T)
        assert axes.get_xlim() == axes.get_ylim()


def test_scores_of_models_and_controls(results: Results) -> None:
    """Every score is a mark at its value, and the means are in the axis labels."""
    figure = draw("scib", results)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[2:] == ["Random embedding", "PCA of log counts"]
    panel = figure.axes[0]
    names = ("sigmoid_256", "softmax_256", "random", "pca_log_counts")
    mean_texts = [text.get_text() for text in panel.texts]
    lines = panel.lines[:-1]  # without the line above the means
    for line, name in zip(lines[::2], names, strict=True):
        scores = [
            results.scores(dataset)["leiden_nmi"][name].value for dataset in results.config.datasets
        ]
        assert list(line.get_xdata()) == scores
        low, high = panel.get_xlim()
        assert low < min(scores) <= max(scores) < high
        assert f"{np.mean(scores):.2f}" == mean_texts[names.index(name)]
    assert [line.get_xdata()[0] for line in lines[1::2]] == pytest.approx(
        [np.mean(line.get_xdata()) for line in lines[::2]]
    )


def test_marks_of_the_length_figure(results: Results) -> None:
    labels = [text.get_text() for text in draw("sequence_lengths", results).axes[1].texts]
    assert [label.split("\n")[0] for label in labels] == ["128", "256", "384", "768"]
    lengths, cells = np.array([1, 127, 128, 500]), np.array([1, 2, 3, 4])
    # 127 genes fit next to <cls>. 128 genes do not.
    assert covered_share(lengths, cells, 127) == pytest.approx(0.3)


def test_moving_mean_narrows_at_the_ends() -> None:
    squares = np.arange(40.0) ** 2  # the window has three values
    expected = [0.0, *(n**2 + 2 / 3 for n in range(1, 39)), 39.0**2]
    assert moving_mean(squares) == pytest.approx(expected)


@pytest.fixture
def single(results: Results) -> Results:
    """Return the results of one model on one dataset, as of a user's own cells."""
    dataset, model = "simulated_heart", "sigmoid_256"
    settings = {
        "datasets": {dataset: results.config.datasets[dataset]},
        "models": {model: results.config.models[model]},
        "evaluation.pair": [model],
    }
    return with_other(results, settings)


def test_scores_of_one_dataset_are_in_one_panel(single: Results) -> None:
    (axes,) = draw("scib", single).axes
    scores = single.scores("simulated_heart")
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        METRIC_TITLES[metric] for metric in scores
    ]
    drawn = {line.get_label(): line.get_xdata().tolist() for line in axes.lines}
    for name in ("sigmoid_256", "random", "pca_log_counts"):
        label = representation_label(single.config, name)
        assert drawn[label] == [by_model[name].value for by_model in scores.values()]


def test_loss_of_one_model_on_one_dataset_is_in_one_panel(single: Results) -> None:
    figure = draw("loss", single)
    (axes,) = figure.axes
    assert len(axes.lines[0].get_xdata()) == len(single.journal("sigmoid_256")["loss"])
    loss = single.validation_loss("simulated_heart", "sigmoid_256").value
    assert f"{loss:.3f}" in figure.get_label()


def test_umap_is_also_colored_by_batch(results: Results, monkeypatch) -> None:
    def with_batches(dataset: str, model: str) -> pd.DataFrame:
        cells = read(dataset, model)
        return cells.assign(batch=["x", "y", ""] * (len(cells) // 3) + [""] * (len(cells) % 3))

    read = results.umap
    monkeypatch.setattr(results, "umap", with_batches)
    figure = draw("umap_simulated_heart", results)
    assert len(figure.axes) == 4
    assert [bool(axes.get_ylabel()) for axes in figure.axes] == [True, False, True, False]
    types, batches = ([text.get_text() for text in each.get_texts()] for each in figure.legends)
    assert types == sorted({*read("simulated_heart", "sigmoid_256").cell_type})
    assert batches == ["no batch", "x", "y"]
    for axes, model in zip(figure.axes[2:], ("sigmoid_256", "softmax_256"), strict=True):
        cells = with_batches("simulated_heart", model)
        points = axes.collections[1].get_offsets()  # of batch x
        np.testing.assert_allclose(points, cells.loc[cells.batch == "x", ["x", "y"]])
