"""Every table and figure: its title, caption, inputs, settings and the function that makes it.

The workflow's rules, the command line and the report read this.  To add a table, write its function
and its entry here; to add a figure, likewise.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scsigmoid.config.plan import KERNEL, LABELS, TRAINING, Plan
from scsigmoid.config.validate import nearest
from scsigmoid.errors import UserError

Files = Callable[[Plan], list[str]]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A table or a figure.

    Attributes:
        function: ``module:function`` below ``scsigmoid.report``.  It takes
            :class:`~scsigmoid.results.folder.Results` and, where there is one of each dataset, the
            dataset's name; it returns a table or a Matplotlib figure.
        title: heading in the report.
        caption: one or two sentences, in Snakemake's report and, of figures, in ours.
        inputs: files below the results folder that it is made from.  ``{dataset}`` stands for the
            dataset's name.
        settings: settings that it depends on, beyond those that labels are made of.
        per_dataset: metric whose datasets get one each, named ``<name>_<dataset>``; else empty.
        wanted: whether a full run makes it.
    """

    function: str
    title: str
    caption: str
    inputs: Files
    settings: tuple[str, ...] = ()
    per_dataset: str = ""
    wanted: Callable[[Plan], bool] = lambda plan: True


def fixed(*paths: str) -> Files:
    """Inputs that every configuration has."""
    return lambda plan: list(paths)


def journals(models: Callable[[Plan], list[str]]) -> Files:
    """The training journals of some models, and the manifest, which says whether cells are real."""
    return lambda plan: [
        *(f"training/{model}/journal.csv" for model in models(plan)),
        "corpus/manifest.csv",
    ]


TABLES: Mapping[str, Entry] = {
    "model_architecture": Entry(
        function="tables.setup:model_architecture",
        title="Model architecture",
        caption="What all models share, beside the paper's Table 2.",
        inputs=fixed("tokens/vocabulary.parquet"),
        settings=("sizes", "architecture", "training", "seed"),
    ),
    "hyperparameters": Entry(
        function="tables.setup:hyperparameters",
        title="Hyperparameters",
        caption="How each model is trained, beside the paper's Table 3.",
        inputs=fixed(),
        settings=("training",),
    ),
    "evaluation_datasets": Entry(
        function="tables.setup:evaluation_datasets",
        title="Evaluation datasets",
        caption="The evaluation datasets and their cells, beside the paper's Table 4.",
        inputs=Plan.dataset_metadata,
    ),
    "validation_loss": Entry(
        function="tables.quality:validation_loss",
        title="Validation loss",
        caption="Validation loss of every model on every dataset, with paired differences, beside "
        "the paper's Table 5. Means are over cells, not over masked genes.",
        inputs=Plan.validation_losses,
        settings=("evaluation.validation_loss",),
    ),
    "scib": Entry(
        function="tables.quality:scib",
        title="Biological conservation",
        caption="scIB scores of both models and of the controls; the numbers behind the paper's "
        "Figure 5.",
        inputs=Plan.scib_scores,
        settings=("evaluation.pair", "evaluation.scib"),
    ),
    "mmd": Entry(
        function="tables.mmd:mmd",
        title="MMD between cell types",
        caption="MMD between every two cell types in both models, beside the paper's Table 1, "
        "which prints means over resamples.",
        inputs=fixed("metrics/mmd/{dataset}.csv"),
        settings=("evaluation.pair", "evaluation.mmd"),
        per_dataset="mmd",
    ),
    "kernel_speed": Entry(
        function="tables.benchmarks:kernel_speed",
        title="Kernel speed",
        caption="TFLOPS of the attention kernels at every shape; the numbers behind the paper's "
        "Figure 2.",
        inputs=fixed(*KERNEL),
    ),
    "kernel_ratios": Entry(
        function="tables.benchmarks:kernel_ratios",
        title="Our kernel against the others",
        caption="Our attention kernel against the others: ratios of TFLOPS within one run.",
        inputs=fixed(*KERNEL),
    ),
    "training_cost": Entry(
        function="tables.benchmarks:training_cost",
        title="Training cost",
        caption="Hours of one device for every model size and context, beside those in the paper's "
        "section on training speed.",
        inputs=fixed(*TRAINING),
    ),
    "training_speed": Entry(
        function="tables.benchmarks:training_speed",
        title="Training, kernel by kernel",
        caption="One encoder trained with each attention kernel, over packed cells and over padded "
        "ones, side by side in one run.",
        inputs=fixed(*TRAINING),
    ),
    "comparison": Entry(
        function="tables.comparison:comparison",
        title="Comparison with the paper",
        caption="Every number that the paper prints next to this run's, with a verdict where the "
        "two are comparable (docs/comparison.md).",
        inputs=Plan.comparison_inputs,
        settings=(
            *("corpus", "sizes", "architecture", "training", "device"),
            *(f"evaluation.{name}" for name in ("pair", "validation_loss", "scib", "mmd")),
            *("benchmarks.kernel", "benchmarks.training"),
        ),
        wanted=lambda plan: plan.config.corpus.source != "local",
    ),
}

FIGURES: Mapping[str, Entry] = {
    "sequence_lengths": Entry(
        function="figures.training:sequence_lengths",
        title="Sequence lengths",
        caption="Sequence lengths of the training cells. Grey: histogram of the number of "
        "expressed genes (left axis). Black: cumulative share of cells (right axis). Dashed: "
        "contexts, each with the share of cells whose genes all fit. The paper's Figure 1.",
        inputs=fixed("tokens/lengths.parquet", "corpus/manifest.csv"),
        settings=("figures", "tokens.cls"),
    ),
    "tflops": Entry(
        function="figures.benchmarks:tflops",
        title="Speed of the attention kernels",
        caption="TFLOPS of the attention kernels. Rows: padding and head dimension; columns: "
        "forward and backward. Operations are counted on valid tokens; 25 % padding is lengths "
        "between 75 and 100 %, drawn uniformly. The paper's Figure 2.",
        inputs=fixed(*KERNEL),
        settings=("figures",),
    ),
    "latency": Entry(
        function="figures.benchmarks:latency",
        title="Latency of the attention kernels",
        caption="Time of the attention kernels in milliseconds, on logarithmic axes. Rows: padding "
        "and head dimension; columns: forward and backward. The paper's Figure 8.",
        inputs=fixed(*KERNEL),
        settings=("figures",),
    ),
    "gpu_hours": Entry(
        function="figures.benchmarks:gpu_hours",
        title="Cost of training",
        caption="Hours of one device to train on all cells, projected from the measured "
        "throughput. One panel a context; above each pair sigmoid's hours over softmax's. "
        "The paper's Figure 3.",
        inputs=fixed(*TRAINING),
        settings=("figures",),
    ),
    "loss": Entry(
        function="figures.training:loss",
        title="Training and validation loss",
        caption="Training and validation loss. Left: training loss, faint as logged and strong as "
        "a moving mean; dotted the loss of guessing each gene by its frequency. Right: validation "
        "loss of each dataset; blue is sigmoid, vermilion softmax, circles are the shorter "
        "context, squares the longer one. The paper's Figure 4.",
        inputs=lambda plan: [
            *plan.validation_losses(),
            *journals(lambda plan: plan.evaluated_models)(plan),
            "tokens/vocabulary.parquet",
        ],
        settings=("figures",),
    ),
    "scib": Entry(
        function="figures.embeddings:scib",
        title="Biological conservation",
        caption="scIB biological conservation, sigmoid (vertical) against softmax (horizontal), "
        "one mark a dataset. Above the diagonal sigmoid is better. Marks on the diagonal are the "
        "controls, a random embedding and PCA of log counts. The paper's Figure 5.",
        inputs=Plan.scib_scores,
        settings=("figures", "evaluation.pair"),
    ),
    "stability": Entry(
        function="figures.training:stability",
        title="Training stability",
        caption="The stress test: the longest context, no gradient clipping. Loss, gradient norm "
        "and the largest attention score of layer 0, the last two on logarithmic axes. The "
        "paper's Figure 6.",
        inputs=journals(lambda plan: plan.stress_models),
        settings=("figures", "training"),
        wanted=lambda plan: bool(plan.stress_models),
    ),
    "umap": Entry(
        function="figures.embeddings:umap",
        title="UMAP",
        caption="UMAP of the cells' embeddings, softmax left, sigmoid right; one colour a cell "
        "type, the same on both sides. The paper's Figure 7.",
        inputs=lambda plan: [
            *(f"metrics/umap/{{dataset}}/{model}.parquet" for model in plan.config.evaluation.pair),
            "corpus/evaluation/{dataset}.json",
        ],
        settings=("figures", "evaluation.pair"),
        per_dataset="umap",
    ),
}
KINDS: Mapping[str, Mapping[str, Entry]] = {"table": TABLES, "figure": FIGURES}


def names(kind: str, plan: Plan, *, every: bool = False) -> list[str]:
    """Names of the tables or figures (``kind``) of a configuration.

    ``every``: also those that can be asked for by name but are not made in a full run.
    """
    found = []
    for name, entry in KINDS[kind].items():
        if entry.per_dataset:
            datasets = plan.datasets if every else plan.compared(entry.per_dataset)
            found += [f"{name}_{dataset}" for dataset in datasets]
        elif entry.wanted(plan):
            found.append(name)
    return found


def find(kind: str, name: str, plan: Plan) -> tuple[Entry, str]:
    """The entry of a table or figure, and its dataset; empty where it is of all datasets.

    Raises:
        UserError: if there is none of this name.
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
    """Files below the results folder that a table or figure is made from."""
    entry, dataset = find(kind, name, plan)
    return [path.replace("{dataset}", dataset) for path in entry.inputs(plan)]


def settings(kind: str, name: str, plan: Plan) -> list[str]:
    """Settings that a table or figure depends on, beyond its inputs."""
    return [*LABELS, *find(kind, name, plan)[0].settings]


def title(kind: str, name: str, plan: Plan) -> str:
    entry, dataset = find(kind, name, plan)
    return f"{entry.title}: {plan.config.datasets[dataset].title}" if dataset else entry.title


def make(kind: str, name: str, results: Any) -> Any:
    """The table, or the Matplotlib figure, of this name, from the result files.

    Raises:
        UserError: for an unknown name, or a result file that is missing or damaged.
    """
    entry, dataset = find(kind, name, Plan(results.config))
    module, _, function = entry.function.partition(":")
    maker = getattr(importlib.import_module(f"scsigmoid.report.{module}"), function)
    return maker(results, dataset) if dataset else maker(results)


def write(kind: str, name: str, results: Any, stem: str | Path) -> list[Path]:
    """Make a table (CSV, Markdown, LaTeX) or a figure (PNG, PDF); returns the paths.

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
