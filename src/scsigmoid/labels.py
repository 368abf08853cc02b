"""Labels of models, contexts and kernels in tables and figures."""

import math
import re
from collections.abc import Iterable

from scsigmoid.config import metrics
from scsigmoid.config.schema import Config
from scsigmoid.kernels import LABELS

ATTENTIONS = ("sigmoid", "softmax")
PASSES = ("forward", "backward")
METRIC_TITLES = {name: metric.title for name, metric in metrics.METRICS.items()}
METRIC_TITLES[metrics.MEAN] = metrics.MEAN_TITLE
# Embeddings that do not use a model, scored for comparison with the models.
CONTROLS = {"random": "Random embedding", "pca_log_counts": "PCA of log counts"}


def nominal_context(name: str) -> str:
    """Return the context in a model's name, e.g. ``"4K"`` for ``sigmoid_4k``, or ""."""
    match = re.search(r"_(\d+)k$", name)
    return f"{match[1]}K" if match else ""


def context_label(context: int) -> str:
    """Return a context length as text, e.g. ``"4K"`` for 4,096 and ``"128"`` for 128."""
    return f"{context // 1024}K" if context % 1024 == 0 else f"{context:,}"


def short_label(config: Config, name: str) -> str:
    """Return a model's attention and context, e.g. ``"Sigmoid 4K"``.

    The context is taken from the model's name, or from the configuration if the name has none.
    """
    model = config.models[name]
    return f"{model.attention.capitalize()} {nominal_context(name) or context_label(model.context)}"


def model_label(config: Config, name: str) -> str:
    """Return a model's short label, and its size if ``models.<name>.size`` is set.

    If the context in the name is not the model's, both appear: ``"Sigmoid 2K (128 tokens)"``.
    """
    model = config.models[name]
    label = short_label(config, name)
    if model.size:
        label += f" {model.size}"
    if nominal_context(name) not in ("", context_label(model.context)):
        label += f" ({model.context:,} tokens)"
    return label


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
    """Return the (sigmoid, softmax) models of each context and size, without stress-test models."""
    # Name of the first model of each attention, by context and size.
    groups: dict[tuple[int, str], dict[str, str]] = {}
    for name, model in config.models.items():
        if not model.stress:
            first_models = groups.setdefault((model.context, model.size or ""), {})
            first_models.setdefault(model.attention, name)
    with_both = [group for _, group in sorted(groups.items()) if len(group) == 2]
    return [(group["sigmoid"], group["softmax"]) for group in with_both]


def paper_model_label(name: str) -> str:
    """Return the label of one of the paper's models, e.g. ``"Sigmoid 2K"`` for ``sigmoid_2k``."""
    return name.replace("_", " ").title()


def four_digits(value: float) -> str:
    """Return a number as an integer if whole or from 10,000 (but below 1e9), else four digits."""
    if math.isfinite(value) and abs(value) < 1e9 and (value == int(value) or abs(value) >= 1e4):
        return f"{value:,.0f}"
    return f"{value:.4g}"
