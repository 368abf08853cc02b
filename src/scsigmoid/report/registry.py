"""The registry of all tables and figures, read by the workflow, the command line and the report.

To add a table or a figure, write its function and add an entry here.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scsigmoid.config.plan import Plan
from scsigmoid.config.validate import suggest
from scsigmoid.errors import UserError
from scsigmoid.files import write_text
from scsigmoid.results.labels import four_digits

KERNEL_FILES = ("benchmarks/kernel.csv", "benchmarks/kernel.json")
TRAINING_FILES = ("benchmarks/training.csv", "benchmarks/training.json")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A table or a figure.

    Attributes:
        module: module of :mod:`scsigmoid.report` with the function that makes the entry.
        function: name of this function (default: the name of the entry). Its arguments are the
            results, and the dataset if there is one.
        title: heading in the report (default: the name with spaces).
        caption: caption of a figure. The caption of a table is in its files.
        paper: corresponding figure, table or section of the paper, or "".
        inputs: input files, relative to the results folder.
        settings: settings that the function reads. If one changes, the entry is made again.
        dataset: the dataset shown, or "" for all datasets.
        is_default: True if a full run makes the entry. Otherwise only its own target makes it.
        own_place: place in the report on the user's own cells, 0 if it is not in this report. Then
            only its own target makes it.
    """

    module: str
    function: str = ""
    title: str = ""
    caption: str = ""
    paper: str = ""
    inputs: Sequence[str] = ()
    settings: Sequence[str]
    dataset: str = ""
    is_default: bool = True
    own_place: int = 0


def validation_losses(plan: Plan) -> list[str]:
    """Return the files of validation losses: summaries (CSV) and losses by cell (Parquet)."""
    return [
        f"metrics/validation_loss/{dataset}/{model}.{suffix}"
        for dataset in plan.datasets
        for model in plan.evaluated_models
        for suffix in ("csv", "parquet")
    ]


def scib_scores(plan: Plan) -> list[str]:
    return [
        f"metrics/{metric}/{dataset}.csv"
        for metric in plan.config.evaluation.scib.metrics
        for dataset in plan.datasets
    ]


def journals(models: Sequence[str]) -> list[str]:
    return [f"training/{model}/journal.csv" for model in models]


# fmt: off
def tables(plan: Plan) -> dict[str, Entry]:
    metadata = [f"corpus/evaluation/{dataset}.json" for dataset in plan.datasets]
    return {
        "model_architecture": Entry(
            module="tables.setup", paper="Table 2", inputs=["tokens/vocabulary.parquet"],
            settings=["models", "sizes", "architecture", "training", "seed"],
        ),
        "hyperparameters": Entry(
            module="tables.setup", paper="Table 3", settings=["models", "training"],
        ),
        "evaluation_datasets": Entry(
            module="tables.setup", paper="Table 4", inputs=metadata, settings=["datasets"],
        ),
        "validation_loss": Entry(
            module="tables.quality_tables", paper="Table 5", inputs=validation_losses(plan),
            own_place=5,
            settings=["datasets", "models", "training", "evaluation.validation_loss"],
        ),
        "scib": Entry(
            module="tables.quality_tables", title="Biological conservation", paper="Figure 5",
            inputs=scib_scores(plan), own_place=3,
            settings=["datasets", "models", "training", "evaluation.pair", "evaluation.scib"],
        ),
        **{
            f"mmd_{name}": Entry(
                module="tables.mmd_table", function="mmd", own_place=7,
                title=f"MMD between cell types: {dataset.title}",
                paper="Table 1" if name == "heart_oft" else "",
                inputs=[f"metrics/mmd/{name}.csv"],
                settings=[
                    "models", "training", "evaluation.pair", "evaluation.mmd", f"datasets.{name}",
                ],
                dataset=name, is_default=name in plan.datasets_of("mmd"),
            )
            for name, dataset in plan.config.datasets.items()
        },
        "kernel_speed": Entry(
            module="tables.benchmark_tables", paper="Figure 2", inputs=KERNEL_FILES,
            settings=["benchmarks.kernel"],
        ),
        "training_cost": Entry(
            module="tables.benchmark_tables", paper="Section 4", inputs=TRAINING_FILES,
            settings=["benchmarks.training"],
        ),
        "training_speed": Entry(
            module="tables.benchmark_tables", title="Training speed by attention kernel",
            inputs=TRAINING_FILES, settings=["benchmarks.training"],
        ),
        "comparison": Entry(
            module="tables.comparison", title="Comparison with the paper",
            inputs=[
                *validation_losses(plan),
                *scib_scores(plan),
                *(f"metrics/mmd/{dataset}.csv" for dataset in plan.datasets_of("mmd")),
                *journals([*plan.config.models]),
                *metadata,
                "tokens/lengths.parquet", "tokens/vocabulary.parquet",
                *KERNEL_FILES,
                *TRAINING_FILES,
            ],
            settings=[
                "models", "corpus", "sizes", "architecture", "training", "device",
                *(f"evaluation.{name}" for name in ("pair", "validation_loss", "scib", "mmd")),
                "benchmarks.kernel", "benchmarks.training",
            ],
        ),
    }


def figures(plan: Plan) -> dict[str, Entry]:
    kernel, training = plan.config.benchmarks.kernel, plan.config.benchmarks.training
    pair = plan.config.evaluation.pair
    is_single = len(plan.datasets) == len(plan.evaluated_models) == 1
    stability = Entry(
        module="figures.training_figures", title="Training stability", paper="Figure 6",
        caption="Stress test: training at the longest context without gradient clipping, one run "
        "per model. Training loss (nats per masked gene), L2 norm of the gradient, and largest "
        "absolute attention score of the first layer by step. Gradient norm and score are on "
        "logarithmic axes.",
        inputs=journals(plan.stress_models),
        settings=["models", "training", "corpus.source"],
    )
    scatter = Entry(
        module="figures.embedding_figures", title="Biological conservation", paper="Figure 5",
        caption="Scores of the embeddings of both models, one training run each. One panel for "
        "each metric, one mark for each dataset. Above the diagonal, the model on the vertical "
        "axis has the higher score. Scores have no unit. Higher is better.",
        inputs=scib_scores(plan), settings=["datasets", "models", "evaluation.pair"],
    )
    return {
        "sequence_lengths": Entry(
            module="figures.training_figures", paper="Figure 1",
            caption="Number of expressed genes per training cell. The gray histogram counts cells "
            "(left axis). The black line is the cumulative share of cells (right axis). Dashed "
            "lines are the context lengths of the models and twice the longest, with the share of "
            "cells that fit.",
            inputs=["tokens/lengths.parquet"], own_place=6,
            settings=["models", "tokens.cls", "corpus.source"],
        ),
        "tflops": Entry(
            module="figures.benchmark_figures", title="Speed of the attention kernels",
            paper="Figure 2",
            caption="Speed of the attention kernels in TFLOPS, counted on valid tokens, by "
            "sequence length. Bars are medians over timed rounds. Error bars are "
            f"{kernel.confidence * 100:g} % intervals of the median. One row of panels for each "
            "padding and head dimension, one column for each pass. With 25 % padding, lengths are "
            "uniform between 75 and 100 % of the length shown.",
            inputs=KERNEL_FILES, settings=[],
        ),
        "latency": Entry(
            module="figures.benchmark_figures", title="Latency of the attention kernels",
            paper="Figure 8",
            caption="Time of one pass of the attention kernels in milliseconds by sequence length, "
            "on logarithmic axes. Points are medians over timed rounds. Shaded regions are "
            f"{kernel.confidence * 100:g} % intervals of the median. One row of panels for each "
            "padding and head dimension, one column for each pass.",
            inputs=KERNEL_FILES, settings=[],
        ),
        "gpu_hours": Entry(
            module="figures.benchmark_figures", title="Cost of training", paper="Figure 3",
            caption="Hours that one device needs to train on "
            f"{four_digits(training.projected_cells / 1e6)} million cells, extrapolated from the "
            "median time of a training step over timed rounds. Error bars are "
            f"{training.confidence * 100:g} % intervals of the median. One panel for each context, "
            "one pair of bars for each model size. Numbers above the bars are the time of sigmoid "
            "divided by the time of softmax in the same round, median over rounds, not the ratio "
            "of the bars. Below 1, sigmoid is faster.",
            inputs=TRAINING_FILES, settings=[],
        ),
        "loss": Entry(
            module="figures.training_figures", title="Training and validation loss",
            paper="Figure 4",
            caption=("One training run. " if is_single else "One training run per model. Left: ")
            + "Training loss (nats per masked gene) by step, as logged (faint) and as a moving "
            "mean over 5 % of the logged steps (strong). The dotted line is the gene-frequency "
            "baseline: the loss if each gene is predicted by its share of the training data."
            + ("" if is_single else " Right: validation loss (nats per masked gene) by dataset."),
            inputs=[
                *validation_losses(plan), *journals(plan.evaluated_models),
                "tokens/vocabulary.parquet",
            ],
            settings=["datasets", "models", "corpus.source"], own_place=4,
        ),
        **({"scib_scatter": scatter} if len(pair) == 2 else {}),
        "scib": Entry(
            module="figures.embedding_figures", title="Biological conservation and controls",
            caption="Scores of the embeddings of one training run per model, and of controls "
            "without a model"
            + (", and of the initial model as it is. " if plan.initial else ". ")
            + (
                "One panel for each metric, one row for each dataset. "
                if len(plan.datasets) > 1
                else "One row for each metric. "
            )
            + "Scores have no unit. Higher is better. Intervals are in the table.",
            inputs=scib_scores(plan), own_place=2,
            settings=["datasets", "models", "evaluation.pair"],
        ),
        **({"stability": stability} if plan.stress_models else {}),
        **{
            f"umap_{name}": Entry(
                module="figures.embedding_figures", function="umap", own_place=1,
                title=f"UMAP: {dataset.title}",
                caption="UMAP coordinates (no unit) of the embeddings, one point per cell, one "
                "panel per model (one training run each). Colors are cell types."
                + (f" Further panels: colored by batch ({dataset.batch})." if dataset.batch else "")
                + (f" {dataset.title}: {dataset.description}" if dataset.description else ""),
                paper="Figure 7" if name == "heart_oft" else "",
                inputs=[f"metrics/umap/{name}/{model}.parquet" for model in pair],
                settings=["models", "evaluation.pair", f"datasets.{name}"],
                dataset=name, is_default=name in plan.datasets_of("umap"),
            )
            for name, dataset in plan.config.datasets.items()
        },
    }
# fmt: on


KINDS = {"table": tables, "figure": figures}  # functions that return the entries


def entries(kind: str, plan: Plan) -> Mapping[str, Entry]:
    """Return the tables or figures (``kind``) that can be made, by name."""
    return {
        name: replace(
            entry,
            title=entry.title or name.replace("_", " ").capitalize(),
            function=entry.function or name,
        )
        for name, entry in KINDS[kind](plan).items()
        if name != "comparison" or not plan.is_own  # own cells have no numbers in the paper
    }


def names(kind: str, plan: Plan) -> list[str]:
    """Return the names of the tables or figures (``kind``) that a full run makes."""
    return [
        name
        for name, entry in entries(kind, plan).items()
        if entry.is_default and (entry.own_place or not plan.is_own)
    ]


def find(kind: str, name: str, plan: Plan) -> Entry:
    """Return a table or figure (``kind``) by name, or raise a UserError with similar names."""
    known = entries(kind, plan)
    if name not in known:
        raise UserError(f"{kind} {name}: no such {kind}{suggest(name, known)}")
    return known[name]


def caption(kind: str, name: str, plan: Plan, notes: str = "") -> str:
    """Return a caption. It names the paper's figure or table, except for the user's own cells.

    ``notes`` are sentences to add to the caption of a figure.
    """
    entry = find(kind, name, plan)
    text = entry.caption or f"{entry.title}. The Markdown file of this table has its full caption."
    text = f"{text} {notes}".strip()
    return f"{text} (The paper's {entry.paper}.)" if entry.paper and not plan.is_own else text


def make(kind: str, name: str, results: Any) -> Any:
    """Return a :class:`Table` or a Matplotlib figure, made from the result files."""
    entry = find(kind, name, results.plan)
    module = importlib.import_module(f"scsigmoid.report.{entry.module}")
    function = getattr(module, entry.function)
    return function(results, entry.dataset) if entry.dataset else function(results)


def write(kind: str, name: str, results: Any, stem: str | Path) -> list[Path]:
    """Write a table (CSV, Markdown) or a figure (PNG, PDF, caption) and return the paths.

    ``stem`` is the path of the outputs without a suffix, e.g. ``results/demo/tables/scib``.
    """
    from scsigmoid.report.tables.writing import one_line, write_table

    if kind == "table":
        return write_table(make(kind, name, results), stem)
    from scsigmoid.report.figures.style import save, styled

    with styled():
        figure = make(kind, name, results)
        paths = save(figure, stem)
    # The picture has no caption, for slides. Notes are of this run, such as the device.
    text = caption(kind, name, results.plan, notes=str(figure.get_label()))
    path = Path(f"{stem}.txt")
    write_text(path, f"{one_line(text)}\n")
    return [*paths, path]
