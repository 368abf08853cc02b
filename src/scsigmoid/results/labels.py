"""Labels of models, contexts and kernels in tables and figures."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from scsigmoid.config import metrics
from scsigmoid.config.check import model_training
from scsigmoid.config.schema import Config
from scsigmoid.kernels import LABELS

ATTENTIONS = ("sigmoid", "softmax")
PASSES = ("forward", "backward")
METRIC_TITLES = {name: metric.title for name, metric in metrics.METRICS.items()}
METRIC_TITLES[metrics.MEAN] = metrics.MEAN_TITLE
# Embeddings that do not use a model, scored for comparison with the models.
CONTROLS = {
    "initial": "Initial model as it is",
    "random": "Random embedding",
    "pca_log_counts": "PCA of log counts",
    "variable_genes": "Log counts of variable genes",
}


def context_label(context: int) -> str:
    """Return a context length as text, e.g. ``"4K"`` for 4,096 and ``"128"`` for 128."""
    return f"{context // 1024}K" if context % 1024 == 0 else f"{context:,}"


def short_label(config: Config, name: str) -> str:
    """Return a model's attention and context, e.g. ``"Sigmoid 4K"``, or its label if not unique."""
    shared = Counter(attention_and_context(config, other) for other in config.models)
    label = attention_and_context(config, name)
    return label if shared[label] == 1 else model_label(config, name)


def attention_and_context(config: Config, name: str) -> str:
    model = config.models[name]
    return f"{model.attention.capitalize()} {context_label(model.context)}"


def model_label(config: Config, name: str) -> str:
    """Return the label of a model, which no other model of the configuration has.

    The label contains attention and context, and the size if ``models.<name>.size`` is set. If
    another model has the same label, the settings that differ are added: ``"Sigmoid 4K, learning
    rate 0.001"``. If none differs, the model's name is added.
    """
    labels = {}
    for each, model in config.models.items():
        labels[each] = attention_and_context(config, each)
        if model.size:
            labels[each] += f" {model.size}"
    add_to_equal(labels, lambda each, equal: different_settings(config, each, equal))
    add_to_equal(labels, lambda each, _: f" ({each})")
    return labels[name]


def add_to_equal(labels: dict[str, str], text_of: Callable[[str, list[str]], str]) -> None:
    """Add ``text_of(name, names)`` to each label that several models, ``names``, have."""
    names_by_label: dict[str, list[str]] = {}
    for name, label in labels.items():
        names_by_label.setdefault(label, []).append(name)
    for names in names_by_label.values():
        if len(names) > 1:
            for name in names:
                labels[name] += text_of(name, names)


def different_settings(config: Config, name: str, names: Iterable[str]) -> str:
    """Return the settings of a model that are not equal in all models ``names``, as text."""
    by_name = {other: own_settings(config, other) for other in names}
    return "".join(
        f", {key.replace('_', ' ')} {setting_text(value)}"
        for key, value in by_name[name].items()
        if any(key not in settings or settings[key] != value for settings in by_name.values())
    )


def own_settings(config: Config, name: str) -> dict[str, Any]:
    """Return the settings in ``models.<name>``, except the attention."""
    model = config.models[name]
    fields = {"context": model.context, "size": model.size, "backend": model.backend}
    return fields | model.training


def training_differences(config: Config, names: Sequence[str]) -> list[str]:
    """Return a sentence on training settings in which models differ, [] if there are none."""
    unimportant = {"execution", "snapshots"}  # they do not change a model
    training = {name: model_training(config, name) for name in names}
    settings = {name: each.model_dump(exclude=unimportant) for name, each in training.items()}
    different = [
        key
        for key, value in settings[names[0]].items()
        if any(values[key] != value for values in settings.values())
    ]
    texts = [
        f"{model_label(config, name)} with "
        + ", ".join(f"{key.replace('_', ' ')} {setting_text(values[key])}" for key in different)
        for name, values in settings.items()
    ]
    return [f"The models were trained differently: {'; '.join(texts)}."] if different else []


def setting_text(value: Any) -> str:
    """Return the value of a setting as text, e.g. ``"none"`` for None."""
    if isinstance(value, list | tuple):
        return ", ".join(map(setting_text, value)) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "none" if value is None else str(value)


def representation_label(config: Config, name: str) -> str:
    """Return the label of the model or control of an embedding."""
    if name in CONTROLS:
        return CONTROLS[name]
    return model_label(config, name) if name in config.models else name


def provider_label(name: str) -> str:
    return LABELS.get(name, name)  # "provider": a kernel, in settings and result files


def series_label(series: tuple[str, str], among: Iterable[tuple[str, str]]) -> str:
    """Return the label of a curve, which is a pair (kernel, layout).

    ``among`` are all curves. If several are of the same kernel, the label contains the layout.
    """
    kernel, layout = series
    has_several_layouts = sum(other == kernel for other, _ in among) > 1
    return provider_label(kernel) + (f", {layout}" if has_several_layouts else "")


def pairs(config: Config) -> list[tuple[str, str]]:
    """Return pairs of a sigmoid and a softmax model, without stress-test models.

    Models that differ only in attention are paired. A model without such a partner is paired with
    the first remaining model of the same context and size. Pairs are sorted by context and size.
    """
    settings = {
        name: own_settings(config, name)
        for name, model in config.models.items()
        if not model.stress
    }
    sizes = {name: (each["context"], each["size"] or "") for name, each in settings.items()}
    partners: dict[str, str] = {}  # of sigmoid models
    for compared in (settings, sizes):  # first all settings, then only context and size
        for name in settings:
            free = [
                other
                for other in settings
                if compared[other] == compared[name]
                and config.models[other].attention == "softmax"
                and other not in partners.values()
            ]
            if config.models[name].attention == "sigmoid" and name not in partners and free:
                partners[name] = free[0]
    return sorted(partners.items(), key=lambda pair: sizes[pair[0]])


def group_of(config: Config, name: str, names: Iterable[str]) -> tuple[int, int]:
    """Return the group in which figures draw a model: its context and a number from 0.

    The number distinguishes the models ``names`` of equal attention and context. Models of a
    group have the same markers and lines, in the color of their attention.
    """
    model = config.models[name]
    alike = [
        other
        for other in names
        if (config.models[other].attention, config.models[other].context)
        == (model.attention, model.context)
    ]
    return model.context, alike.index(name)


def paper_model_label(name: str) -> str:
    """Return the label of one of the paper's models, e.g. ``"Sigmoid 2K"`` for ``sigmoid_2k``."""
    return name.replace("_", " ").title()


def four_digits(value: float) -> str:
    """Return a number as an integer if whole or from 10,000 (but below 1e9), else four digits."""
    rounded = float(f"{value:.4g}")  # 9,999.9 has five digits
    if math.isfinite(value) and abs(value) < 1e9 and (value == int(value) or abs(rounded) >= 1e4):
        return f"{value + 0:,.0f}"  # without the sign of a negative zero
    return f"{value:.4g}"
