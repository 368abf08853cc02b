"""The command ``scsigmoid study``: every table and figure, on curves made by hand."""

from pathlib import Path

import pandas as pd
import pytest
from scipy import stats
from study.conftest import make_page, study_of

from scsigmoid.report.figures.style import styled
from scsigmoid.study.figures import embeddings_figure, stability_figure
from scsigmoid.study.runs import Study


def test_every_table_and_figure_is_made(study: Study):
    runs = study.runs[study.runs["family"] == "seeds"].to_dict("records")
    scores = []
    for metric in ("leiden_nmi", "mmd"):
        for step, leader in ((50, "softmax"), (100, "sigmoid")):
            for run in runs:
                lead = 0.1 + 0.05 * run["seed"] if run["attention"] == leader else 0
                scores.append((run["name"], step, metric, 0.3 + lead))
        scores.append(("random", None, metric, 0.1))
    frame = pd.DataFrame(scores, columns=["run", "step", "metric", "value"])
    frame.to_csv(study.folder / "scores.csv", index=False)
    with styled():
        figure = embeddings_figure(Study(study.folder))
    [legend] = figure.legends
    assert [text.get_text() for text in legend.texts] == ["sigmoid", "softmax", "Random embedding"]
    assert not any(axes.texts for axes in figure.axes)  # names crossed the curves
    page = make_page(study)
    texts = {path.stem.removeprefix("study_"): path.read_text() for path in page.glob("*.md")}
    assert set(texts) == {
        *("rates", "frontier", "largest_rates", "limits", "clipping", "seeds", "power"),
        *("variants", "scale", "scores"),
    }
    for name in ("loss", "embeddings", "frontier", "scale"):
        assert (page / f"study_{name}.png").stat().st_size > 10_000
    assert "from step 70 on" in texts["seeds"]
    assert "| 2 | 0.001 to 0.004 | 0.004 | 0.001 |" in texts["largest_rates"]
    # At the rate 0.002, one of two seeds collapsed. The other has a loss of 7.35.
    row = "| softmax, no clipping | 0 of 2; 7.38; 1 | 1 of 2; 7.35; 1 | 2 of 2;"
    assert row in texts["frontier"]
    assert "| 0.002 | **7.400 (6.90, 7.90)** | 7.500 (7.50, 7.50) |" in texts["rates"]
    assert texts["scores"].count("\n| mmd | 0.500 ± 0.050 | 0.300 ± 0.000 | 0.100 |") == 1
    assert texts["scores"].count("\n| mmd |") == 1
    variants = pd.read_csv(page / "study_variants.csv").iloc[0]
    interval = stats.t.interval(0.95, 2, -0.2, 0.1 / 3**0.5)
    assert variants[["difference", "low", "high"]].tolist() == pytest.approx([-0.2, *interval])
    assert variants[["loss", "seeds", "lower"]].tolist() == pytest.approx([7.1, 3, 3])
    mmds = pd.read_csv(page / "study_scores.csv").query("metric == 'mmd'")
    low, high = stats.t.interval(0.95, 2, 0.2, 0.05 / 3**0.5)
    columns = ["step", "sigmoid", "softmax", "random", "difference", "low", "high"]
    assert mmds[columns].to_numpy().tolist() == [
        pytest.approx([50, 0.3, 0.5, 0.1, -0.2, -high, -low]),
        pytest.approx([100, 0.5, 0.3, 0.1, 0.2, low, high]),
    ]
    sizes = pd.read_csv(page / "study_scale.csv")
    sizes_at_step = sizes.groupby("step")["size"].agg(list).to_dict()
    assert sizes_at_step == {
        50: ["tiny", "tiny_32", "tiny_96", "tiny_128"],
        100: ["tiny", "tiny_32", "tiny_96"],
    }
    large = sizes[sizes["size"] == "tiny_128"].iloc[0]
    values = large[["sigmoid", "difference", "seed_1", "seed_2"]].tolist()
    assert values == pytest.approx([7.8, -0.075, -0.05, -0.1])


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("rates", {"rates", "clipping"}),
        ("seeds", {"seeds", "power", "clipping", "loss"}),
        ("variants", {"clipping"}),
        ("scale", {"scale", "clipping"}),
    ],
)
def test_a_study_of_one_family_has_its_tables_and_figures(tmp_path, family, names):
    page = make_page(study_of(tmp_path, family))
    assert {path.stem for path in page.glob("*")} == {f"study_{name}" for name in names}


def test_a_stability_figure_has_a_panel_for_each_setting(tmp_path: Path):
    study = study_of(tmp_path, "frontier_qk_norm")
    with styled():
        titles = [axes.get_title("left") for axes in stability_figure(study).axes]
    assert len(titles) == 5
    assert titles[0] == "No clipping"
