"""Labels of models and runs are unique, and figures draw every model differently."""

import itertools
from pathlib import Path

import pytest
from made_up_results import CELLS, MadeUp, draw
from matplotlib.axes import Axes

from scsigmoid.config.check import load
from scsigmoid.config.schema import Config
from scsigmoid.records.measurements import Interval
from scsigmoid.report import registry
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import model_label, pairs, short_label
from scsigmoid.study.stability import short_settings

DATASETS = dict.fromkeys(
    ("simulated_blood_2", "simulated_lung", "simulated_colon", "simulated_brain")
)
#: Changes of the second model of an attention and context.
SLOW = {"training": {"learning_rate": 1e-5}}
CHANGES = {
    "rate": SLOW,
    "size": {"size": "tiny_96"},
    "size and rate": {"size": "tiny_96", **SLOW},
    "backend": {"backend": "reference"},
    "nothing": {},
}


def configuration(**models: object) -> Config:
    """Return the demo's configuration with further models."""
    return load(overrides={"preset": "demo", "datasets": DATASETS, "models": models})


def second_models(changes: dict[str, object]) -> Config:
    """Return a configuration in which every model of the demo has a copy with changes."""
    demo = configuration()
    copies = {}
    for name, model in demo.models.items():
        shared = {"attention": model.attention, "context": model.context, "stress": model.stress}
        copies[f"other_{name}"] = shared | changes
    return configuration(**copies)


def made_up(folder: Path, config: Config) -> Results:
    """Write the files of validation losses and journals of all models."""
    writer = MadeUp(folder, config)
    writer.write_corpus()
    for model in config.models:
        writer.write_run(model)
    for dataset in config.datasets:
        for index, model in enumerate(Results(folder, config).plan.evaluated_models):
            losses = 4 + 0.1 * index + writer.random.normal(0, 0.1, CELLS)
            mean = Interval(losses.mean(), losses.mean() - 0.02, losses.mean() + 0.02)
            writer.write_model_losses(dataset, model, losses, Interval(mean.value), mean, mean)
    return Results(folder, config)


@pytest.mark.parametrize("change", CHANGES)
def test_labels_of_equal_attention_and_context_differ(change: str) -> None:
    config = second_models(CHANGES[change])
    for label in (model_label, short_label):
        labels = {name: label(config, name) for name in config.models}
        assert len(set(labels.values())) == len(labels) == 12
    words = {"rate": "1e-05", "size": "tiny_96", "nothing": "other_sigmoid_256"}
    assert words.get(change, "") in model_label(config, "other_sigmoid_256")


def test_labels_of_different_models_do_not_change() -> None:
    config = configuration()
    assert short_label(config, "sigmoid_256") == "Sigmoid 256"
    assert model_label(config, "softmax_128") == "Softmax 128"


@pytest.mark.parametrize("change", ["rate", "nothing"])
def test_tables_of_equal_attention_and_context(tmp_path: Path, change: str) -> None:
    results = made_up(tmp_path, second_models(CHANGES[change]))
    for name in ("validation_loss", "hyperparameters"):
        table = registry.make("table", name, results)
        assert len(set(table.header)) == len(table.header)
    labels = [row[0] for row in registry.make("table", "hyperparameters", results).rows]
    assert len(set(labels)) == 12
    losses = registry.make("table", "validation_loss", results)
    # Every sigmoid model is compared with the softmax model that has the same settings.
    assert len(losses.header) == 1 + 8 + 4


def test_models_that_differ_only_in_attention_are_paired() -> None:
    models = {
        name: {"attention": name[:7], "context": 512, "training": {"learning_rate": rate}}
        for name, rate in (
            ("sigmoid_a", 1e-3), ("softmax_b", 1e-4), ("sigmoid_b", 1e-4), ("softmax_a", 1e-3),
        )
    }  # fmt: skip
    config = configuration(**models, sigmoid_c={"attention": "sigmoid", "context": 512})
    paired = [pair for pair in pairs(config) if pair[0][-2:] in ("_a", "_b", "_c")]
    assert paired == [("sigmoid_a", "softmax_a"), ("sigmoid_b", "softmax_b")]
    # A model that lacks such a partner is still compared with one of its context and size.
    config = configuration(**{name: models[name] for name in ("sigmoid_a", "softmax_b")})
    assert ("sigmoid_a", "softmax_b") in pairs(config)


def looks(axes: Axes) -> list[tuple[object, ...]]:
    """Return color, line and marker of every curve with a label."""
    labels = axes.get_legend_handles_labels()[1]
    assert len(set(labels)) == len(labels)
    curves = [line for line in axes.get_lines() if line.get_label() in labels]
    return [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in curves]


def test_figures_of_equal_attention_and_context(tmp_path: Path) -> None:
    results = made_up(tmp_path, second_models(SLOW))
    for name, count in (("loss", 8), ("stability", 4)):
        curves = looks(draw(name, results).axes[0])
        assert len(curves) == len(set(curves)) == count, name
    axes = draw("loss", results).axes[-1]  # of the last dataset
    # Markers have one point, error bars two points with the same x.
    marks = [line.get_xydata() for line in axes.get_lines()]
    places = [points[0][0] for points in marks if len(points) == 1]
    assert len(places) == len(set(places)) == 8
    ticks = [text.get_text() for text in axes.get_xticklabels()]
    assert len(set(ticks)) == len(ticks) == 2


@pytest.mark.parametrize("names", [("a_2k", "b_2k"), ("a_2k", "b_4k"), ("a", "b_2k")])
def test_labels_of_contexts_differ(tmp_path: Path, names: tuple[str, str]) -> None:
    """The names of the models do not decide between contexts of different lengths."""
    demo = configuration()
    models = {
        name: demo.models["sigmoid_128"].model_copy(update={"context": context})
        for name, context in zip(names, (128, 256), strict=True)
    }
    same = demo.model_copy(update={"models": models | {"c_4k": models[names[0]]}})
    results = made_up(tmp_path, same)
    axes = draw("loss", results).axes[-1]  # of the last dataset
    assert [text.get_text() for text in axes.get_xticklabels()] == ["128", "256"]


def test_labels_of_study_settings_show_what_differs() -> None:
    clipping, warmup, context = ("no clipping", "clipping at 1"), (20, 500), ("2,048", "8,192")
    settings = [
        f"{first}, {steps:,} steps of warm-up, {tokens} tokens"
        for first, steps, tokens in itertools.product(clipping, warmup, context)
    ]
    for chosen in (settings, settings[::2], settings[:2], settings[:1]):
        labels = short_settings(chosen)
        assert len(set(labels.values())) == len(chosen)
    assert short_settings(settings[:1]) == {settings[0]: "no clipping"}
    assert tuple(short_settings(settings[::4]).values()) == clipping
