"""How models, contexts and kernels are called in tables and figures."""

import math
import re
from collections.abc import Iterable

from scsigmoid.config import metrics
from scsigmoid.config.schema import Config
from scsigmoid.kernels import LABELS

ATTENTIONS = ("sigmoid", "softmax")
PASSES = ("forward", "backward")
METRICS = {name: metric.title for name, metric in metrics.METRICS.items()}
METRICS[metrics.MEAN] = metrics.MEAN_TITLE
CONTROLS = {"random": "Random embedding", "pca_log_counts": "PCA of log counts"}
# Numbers as LaTeX gives them to the paper's labels.
PLACES = {
    "abstract": "Abstract",
    "conclusion": "Conclusion",
    "sec:introduction": "Section 1",
    "sec:relatedwork": "Section 2",
    "sec:kernel": "Section 4",
    "sec:empirical": "Section 5",
    "sec:stability": "Section 5.3",
    "app:hyperparameters": "Appendix A.2",
    "app:mmd_table": "Appendix A.3",
    "fig:jaggedness": "Figure 1",
    "fig:tflops": "Figure 2",
    "fig:throughput": "Figure 3",
    "fig:training_validation_loss": "Figure 4",
    "fig:scib": "Figure 5",
    "fig:stability": "Figure 6",
    "fig:latency_supp": "Figure 8",
    "tab:mmd_heart_oft": "Table 1",
    "tab:model_arch": "Table 2",
    "tab:eval_datasets": "Table 4",
    "tab:validation_loss_detailed": "Table 5",
}


def nominal(name: str) -> str:
    """The context that a model's name states, e.g. ``"4K"`` of ``sigmoid_4k``; else empty."""
    found = re.search(r"_(\d+)k$", name)
    return f"{found[1]}K" if found else ""


def context_label(context: int) -> str:
    """A context length, e.g. ``"4K"`` for 4,096 and ``"128"`` for 128."""
    return f"{context // 1024}K" if context % 1024 == 0 else f"{context:,}"


def short_label(config: Config, name: str) -> str:
    """A model's short label, e.g. ``"Sigmoid 2K"``, whatever the context really is."""
    model = config.models[name]
    return f"{model.attention.capitalize()} {nominal(name) or context_label(model.context)}"


def model_label(config: Config, name: str) -> str:
    """A model's label; it names the tokens where a smaller scale shrank the context.

    For example ``"Sigmoid 2K"``, and ``"Sigmoid 2K (128 tokens)"`` at demo scale.
    """
    context = config.models[name].context
    shrunk = nominal(name) not in ("", context_label(context))
    return short_label(config, name) + (f" ({context:,} tokens)" if shrunk else "")


def representation_label(config: Config, name: str) -> str:
    if name in CONTROLS:
        return CONTROLS[name]
    return model_label(config, name) if name in config.models else name


def place_label(location: str) -> str:
    """Where a claim stands in the paper, for readers: ``"Section 5, Figure 4"``.

    A number stays on the line of its word.
    """
    parts = [PLACES.get(part, part) for part in location.split(", ")]
    return ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)


def provider_label(name: str) -> str:
    return LABELS.get(name, name)


def series_label(series: tuple[str, str], among: Iterable[tuple[str, str]]) -> str:
    """The label of a (kernel, layout), with the layout where the kernel was timed in several."""
    provider, layout = series
    several = sum(name == provider for name, _ in among) > 1
    return provider_label(provider) + (f", {layout}" if several else "")


def pairs(config: Config) -> list[tuple[str, str]]:
    """The (sigmoid, softmax) models of the same context that are no stress test, by context."""
    found: dict[int, dict[str, str]] = {}
    for name, model in config.models.items():
        if not model.stress:
            found.setdefault(model.context, {}).setdefault(model.attention, name)
    return [
        (arms["sigmoid"], arms["softmax"]) for _, arms in sorted(found.items()) if len(arms) == 2
    ]


def short_name(name: str) -> str:
    """Return the label of one of the paper's models, e.g. ``"Sigmoid 2K"`` for ``sigmoid_2k``."""
    return name.replace("_", " ").title()


def number(value: float) -> str:
    """Return a number with four significant digits."""
    if math.isfinite(value) and abs(value) < 1e9 and (value == int(value) or abs(value) >= 1e4):
        return f"{value:,.0f}"
    return f"{value:.4g}"
