"""Tables and figures: title, caption, inputs, settings and function of each.

The workflow's rules, the command line and the report read this. To add a table or a figure, write
its function, and its entry here.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scsigmoid.config.plan import KERNEL, TRAINING, Plan
from scsigmoid.config.validate import nearest
from scsigmoid.errors import UserError

Files = Callable[[Plan], list[str]]


def not_own(plan: Plan) -> bool:
    """Return True unless the cells are the user's own, which are not compared with the paper."""
    return not plan.is_own


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A table or a figure.

    Attributes:
        function: ``module:function`` below ``scsigmoid.report``. It takes
            :class:`~scsigmoid.results.folder.Results`, and the dataset's name if ``per_dataset``,
            and returns a table or a Matplotlib figure.
        title: heading in the report.
        caption: what a figure shows. A table has its caption in its files.
        paper: the paper's figure, table or section that it corresponds to; empty if there is none.
        inputs: files below the results folder that it is made from. ``{dataset}`` stands for the
            dataset's name.
        settings: settings that it depends on, including ``models`` and ``datasets`` for labels.
        per_dataset: metric whose datasets get one each, named ``<name>_<dataset>``; else empty.
        wanted: returns whether a full run makes it.
    """

    function: str
    title: str
    inputs: Files
    caption: str = ""
    paper: str = ""
    settings: tuple[str, ...] = ()
    per_dataset: str = ""
    wanted: Callable[[Plan], bool] = lambda plan: True


def fixed(*paths: str) -> Files:
    """Return inputs that every configuration has."""
    return lambda plan: list(paths)


def journals(models: Callable[[Plan], list[str]]) -> Files:
    """Return inputs: training journals, and the manifest, which says whether cells are real."""
    return lambda plan: [
        *(f"training/{model}/journal.csv" for model in models(plan)),
        "corpus/manifest.csv",
    ]


TABLES: Mapping[str, Entry] = {
    "model_architecture": Entry(
        function="tables.setup:model_architecture",
        title="Model architecture",
        paper="Table 2",
        inputs=fixed("tokens/vocabulary.parquet"),
        settings=("models", "sizes", "architecture", "training", "seed"),
        wanted=not_own,
    ),
    "hyperparameters": Entry(
        function="tables.setup:hyperparameters",
        title="Hyperparameters",
        paper="Table 3",
        inputs=fixed(),
        settings=("models", "training"),
        wanted=not_own,
    ),
    "evaluation_datasets": Entry(
        function="tables.setup:evaluation_datasets",
        title="Evaluation datasets",
        paper="Table 4",
        inputs=Plan.dataset_metadata,
        settings=("datasets",),
        wanted=not_own,
    ),
    "validation_loss": Entry(
        function="tables.quality:validation_loss",
        title="Validation loss",
        paper="Table 5",
        inputs=Plan.validation_losses,
        settings=("datasets", "models", "evaluation.validation_loss"),
    ),
    "scib": Entry(
        function="tables.quality:scib",
        title="Biological conservation",
        paper="Figure 5",
        inputs=Plan.scib_scores,
        settings=("datasets", "models", "evaluation.pair", "evaluation.scib"),
    ),
    "mmd": Entry(
        function="tables.mmd:mmd",
        title="MMD between cell types",
        paper="Table 1",
        inputs=fixed("metrics/mmd/{dataset}.csv"),
        settings=("models", "evaluation.pair", "evaluation.mmd"),
        per_dataset="mmd",
    ),
    "kernel_speed": Entry(
        function="tables.benchmarks:kernel_speed",
        title="Kernel speed",
        paper="Figure 2",
        inputs=fixed(*KERNEL),
        settings=("benchmarks.kernel",),
        wanted=not_own,
    ),
    "training_cost": Entry(
        function="tables.benchmarks:training_cost",
        title="Training cost",
        paper="Section 4",
        inputs=fixed(*TRAINING),
        settings=("benchmarks.training",),
        wanted=not_own,
    ),
    "training_speed": Entry(
        function="tables.benchmarks:training_speed",
        title="Training, kernel by kernel",
        inputs=fixed(*TRAINING),
        settings=("benchmarks.training",),
        wanted=not_own,
    ),
    "comparison": Entry(
        function="tables.comparison:comparison",
        title="Comparison with the paper",
        inputs=Plan.comparison_inputs,
        settings=(
            *("models", "corpus", "sizes", "architecture", "training", "device"),
            *(f"evaluation.{name}" for name in ("pair", "validation_loss", "scib", "mmd")),
            *("benchmarks.kernel", "benchmarks.training"),
        ),
        wanted=not_own,
    ),
}

FIGURES: Mapping[str, Entry] = {
    "sequence_lengths": Entry(
        function="figures.training:sequence_lengths",
        title="Sequence lengths",
        caption="Number of expressed genes of the training cells. The gray histogram counts cells "
        "(left axis), the black line is their cumulative share (right axis).",
        paper="Figure 1",
        inputs=fixed("tokens/lengths.parquet", "corpus/manifest.csv"),
        settings=("models", "figures", "tokens.cls"),
    ),
    "tflops": Entry(
        function="figures.benchmarks:tflops",
        title="Speed of the attention kernels",
        caption="TFLOPS of the attention kernels by sequence length, one row of panels for each "
        "padding and head dimension, one column for each pass. Operations are counted on "
        "valid tokens. With 25 % padding, lengths are between 75 and 100 % of the length "
        "shown.",
        paper="Figure 2",
        inputs=fixed(*KERNEL),
        settings=("figures",),
        wanted=not_own,
    ),
    "latency": Entry(
        function="figures.benchmarks:latency",
        title="Latency of the attention kernels",
        caption="Time of the attention kernels in milliseconds by sequence length, on logarithmic "
        "axes, one row of panels for each padding and head dimension, one column for each "
        "pass.",
        paper="Figure 8",
        inputs=fixed(*KERNEL),
        settings=("figures",),
        wanted=not_own,
    ),
    "gpu_hours": Entry(
        function="figures.benchmarks:gpu_hours",
        title="Cost of training",
        caption="Hours of one device to train on all cells, extrapolated from the measured "
        "training speed, one panel for each context.",
        paper="Figure 3",
        inputs=fixed(*TRAINING),
        settings=("figures",),
        wanted=not_own,
    ),
    "loss": Entry(
        function="figures.training:loss",
        title="Training and validation loss",
        caption="Left: training loss, as logged (faint) and as a moving mean (strong). Right: "
        "validation loss on each dataset.",
        paper="Figure 4",
        inputs=lambda plan: [
            *plan.validation_losses(),
            *journals(lambda plan: plan.evaluated_models)(plan),
            "tokens/vocabulary.parquet",
        ],
        settings=("datasets", "models", "figures"),
    ),
    "scib": Entry(
        function="figures.embeddings:scib",
        title="Biological conservation",
        caption="Scores of embeddings, one panel for each metric, one row for each dataset.",
        paper="Figure 5",
        inputs=Plan.scib_scores,
        settings=("datasets", "models", "figures", "evaluation.pair"),
    ),
    "stability": Entry(
        function="figures.training:stability",
        title="Training stability",
        caption="Stress test: training at the longest context without gradient clipping. Loss, "
        "gradient norm, and largest attention score of the first layer. Gradient norm and "
        "score are on logarithmic axes.",
        paper="Figure 6",
        inputs=journals(lambda plan: plan.stress_models),
        settings=("models", "figures", "training"),
        wanted=lambda plan: bool(plan.stress_models) and not plan.is_own,
    ),
    "umap": Entry(
        function="figures.embeddings:umap",
        title="UMAP",
        caption="UMAP of the cells' embeddings. Colors and labels are cell types.",
        paper="Figure 7",
        inputs=lambda plan: [
            *(f"metrics/umap/{{dataset}}/{model}.parquet" for model in plan.config.evaluation.pair),
            "corpus/evaluation/{dataset}.json",
        ],
        settings=("models", "figures", "evaluation.pair"),
        per_dataset="umap",
    ),
}
KINDS: Mapping[str, Mapping[str, Entry]] = {"table": TABLES, "figure": FIGURES}


def names(kind: str, plan: Plan, *, every: bool = False) -> list[str]:
    """Return the names of the tables or figures (``kind``) of a configuration.

    With ``every``, those that a full run does not make but that have a target are included.
    """
    selected = []
    for name, entry in KINDS[kind].items():
        if entry.per_dataset:
            datasets = plan.datasets if every else plan.compared(entry.per_dataset)
            selected += [f"{name}_{dataset}" for dataset in datasets]
        elif entry.wanted(plan):
            selected.append(name)
    return selected


def find(kind: str, name: str, plan: Plan) -> tuple[Entry, str]:
    """Return the entry of a table or figure, and its dataset (empty: all datasets).

    Raises:
        UserError: if ``name`` is unknown.
    """
    entries = KINDS[kind]
    if name in entries and not entries[name].per_dataset:
        return entries[name], ""
    stem, _, dataset = name.partition("_")
    if stem not in entries or not entries[stem].per_dataset:
        raise UserError(f"{kind} {name}: no such {kind}{nearest(name, entries)}")
    if dataset not in plan.datasets:
        known = nearest(dataset, plan.datasets)
        raise UserError(f"{kind} {name}: unknown dataset {dataset!r}{known}")
    return entries[stem], dataset


def inputs(kind: str, name: str, plan: Plan) -> list[str]:
    """Return the files below the results folder that a table or figure is made from."""
    entry, dataset = find(kind, name, plan)
    return [path.replace("{dataset}", dataset) for path in entry.inputs(plan)]


def settings(kind: str, name: str, plan: Plan) -> list[str]:
    """Return the settings that a table or figure depends on, besides its inputs."""
    entry, dataset = find(kind, name, plan)
    return [*entry.settings, *([f"datasets.{dataset}"] if dataset else [])]


def title(kind: str, name: str, plan: Plan) -> str:
    entry, dataset = find(kind, name, plan)
    return f"{entry.title}: {plan.config.datasets[dataset].title}" if dataset else entry.title


def caption(kind: str, name: str, plan: Plan) -> str:
    """Return the caption, with the description of the dataset and the paper's counterpart."""
    entry, dataset = find(kind, name, plan)
    text = entry.caption or f"{entry.title}."
    if dataset and (description := plan.config.datasets[dataset].description):
        text += f" {plan.config.datasets[dataset].title}: {description}"
    is_papers = not plan.is_own and dataset in ("", "heart_oft")
    return f"{text} (The paper's {entry.paper}.)" if entry.paper and is_papers else text


def make(kind: str, name: str, results: Any) -> Any:
    """Return a table, or a Matplotlib figure, made from the result files.

    Raises:
        UserError: if ``name`` is unknown, or a result file is missing or damaged.
    """
    entry, dataset = find(kind, name, Plan(results.config))
    module, _, function = entry.function.partition(":")
    maker = getattr(importlib.import_module(f"scsigmoid.report.{module}"), function)
    return maker(results, dataset) if dataset else maker(results)


def write(kind: str, name: str, results: Any, stem: str | Path) -> list[Path]:
    """Write a table (CSV, Markdown, LaTeX) or a figure (PNG, PDF) and return the paths.

    Args:
        kind: ``table`` or ``figure``.
        stem: path of the outputs without a suffix, e.g. ``results/demo/tables/scib``.

    Raises:
        UserError: as :func:`make`.
    """
    if kind == "table":
        from scsigmoid.report.tables.writing import write_table

        return write_table(make(kind, name, results), name, stem)
    from scsigmoid.report.figures.style import save, styled

    with styled():
        return save(make(kind, name, results), stem, results.config.figures.dpi)
