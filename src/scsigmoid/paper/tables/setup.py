"""What was trained and on what it was evaluated: tab:model_arch, tab:performance_hyperparams,
tab:eval_datasets."""

import math
from collections.abc import Mapping

from scsigmoid.config.check import model_training
from scsigmoid.config.schema import Training
from scsigmoid.paper.labels import model_label
from scsigmoid.paper.reported import reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.tables.writing import DASH, Cell, Table


def model_architecture(results: Results) -> Table:
    """tab:model_arch: the architecture that all models share, the paper's beside ours."""
    ours, paper = architecture_values(results), paper_architecture()
    return Table(
        caption="Model architecture. What all models share, as configured here and in the paper.",
        columns=("parameter", "value", "paper"),
        records=[(name, value, paper[name]) for name, value in ours.items()],
        header=("Parameter", "Value", "Paper"),
        rows=[[Cell(name), Cell(value), Cell(paper[name])] for name, value in ours.items()],
        align="lll",
        latex_columns=(0, 1),
    )


def architecture_values(results: Results) -> dict[str, str]:
    """Our side of tab:model_arch."""
    config = results.config
    size = config.sizes[config.architecture.size]
    training = config.training
    return {
        "Model size": f"{rounded_count(parameters(results))} parameters",
        "Vocabulary": f"{results.vocabulary_size:,} tokens",
        "Number of layers": str(size.layers),
        "Hidden dimension": str(size.hidden),
        "Number of attention heads": str(size.heads),
        "Head dimension": str(size.hidden // size.heads),
        "FFN intermediate dimension": str(size.feed_forward),
        "Activation function": "GELU",
        "Normalisation": "LayerNorm (pre-norm)",
        "Dropout": compact(config.architecture.dropout),
        "Layer norm epsilon": compact(config.architecture.layer_norm_epsilon),
        "Initializer range": compact(config.architecture.initializer_range),
        "Global batch size": f"{training.global_batch:,}",
        "Learning rate": compact(training.learning_rate),
        "Weight decay": compact(training.weight_decay),
        "Optimizer": optimiser(training.betas, training.epsilon),
        "Learning rate schedule": schedule(training.warmup_steps),
        "Precision": "BF16 (automatic mixed precision) on GPUs, FP32 on CPUs",
        "Gene masking probability": compact(training.mask_fraction),
        "Random seed": str(config.seed),
    }


def paper_architecture() -> dict[str, str]:
    """The paper's side of tab:model_arch."""
    paper = reported()["model_architecture"]
    return {
        "Model size": f"{rounded_count(paper['parameters'])} parameters",
        "Vocabulary": "not stated",
        "Number of layers": str(paper["layers"]),
        "Hidden dimension": str(paper["hidden"]),
        "Number of attention heads": str(paper["heads"]),
        "Head dimension": str(paper["head_dimension"]),
        "FFN intermediate dimension": str(paper["feed_forward"]),
        "Activation function": paper["activation"],
        "Normalisation": paper["normalisation"],
        "Dropout": compact(paper["dropout"]),
        "Layer norm epsilon": compact(paper["layer_norm_epsilon"]),
        "Initializer range": compact(paper["initializer_range"]),
        "Global batch size": f"{paper['global_batch']:,}",
        "Learning rate": compact(paper["learning_rate"]),
        "Weight decay": compact(paper["weight_decay"]),
        "Optimizer": optimiser(paper["betas"], paper["epsilon"]),
        "Learning rate schedule": schedule(paper["warmup_steps"]),
        "Precision": paper["precision"],
        "Gene masking probability": compact(paper["mask_fraction"]),
        "Random seed": str(paper["seed"]),
    }


def parameters(results: Results) -> int:
    """Parameters of the configured encoder with the vocabulary found, at the longest context."""
    from scsigmoid.model.sizes import EncoderSettings, count_parameters

    config = results.config
    settings = EncoderSettings.of(
        config.sizes[config.architecture.size],
        config.architecture,
        "sigmoid",
        max(model.context for model in config.models.values() if not model.stress),
        results.vocabulary_size,
    )
    return count_parameters(settings).total


def hyperparameters(results: Results) -> Table:
    """tab:performance_hyperparams: what differs between the models, stress test included."""
    config, paper = results.config, reported()["models"]
    columns = (
        "model",
        "attention",
        "context",
        "clipping",
        "steps",
        "global_batch",
        "learning_rate",
        "warmup_steps",
        "stress",
        "paper_context",
        "paper_clipping",
        "paper_steps",
    )
    records, rows = [], []
    for name, model in config.models.items():
        training, theirs = model_training(config, name), paper.get(name, {})
        records.append(
            (
                name,
                model.attention,
                model.context,
                training.clipping or "none",
                training.steps,
                training.global_batch,
                training.learning_rate,
                training.warmup_steps,
                model.stress,
                theirs.get("context"),
                clipping(theirs) if theirs else None,
                theirs.get("steps"),
            )
        )
        rows.append(
            [
                Cell(model_label(config, name) + (", stress test" if model.stress else "")),
                Cell(f"{model.context:,} tokens"),
                Cell(clipping_text(training)),
                Cell(f"{training.steps:,} steps"),
                Cell(f"{training.global_batch * training.steps:,}"),
                Cell(compact(training.learning_rate)),
                Cell(paper_text(theirs)),
            ]
        )
    return Table(
        caption="Hyperparameters of each model. "
        "The two arms of a pair differ in the attention alone.",
        columns=columns,
        records=records,
        header=(
            "Model",
            "Context length",
            "Gradient clipping",
            "Duration",
            "Cells seen",
            "Learning rate",
            "Paper",
        ),
        rows=rows,
        align="lllrrll",
        latex_columns=(0, 1, 2, 3, 4, 5),
    )


def clipping(theirs: Mapping[str, float | None]) -> object:
    """The paper's clipping; ``none`` without."""
    return theirs["clipping"] or "none"


def clipping_text(training: Training) -> str:
    """Our clipping in words."""
    return "none" if training.clipping is None else f"{compact(training.clipping)} (L2 norm)"


def paper_text(theirs: dict[str, float]) -> str:
    """The paper's context, clipping and duration in one cell."""
    if not theirs:
        return DASH
    return f"{theirs['context']:,} tokens, clipping {clipping(theirs)}, {theirs['steps']:,} steps"


def evaluation_datasets(results: Results) -> Table:
    """tab:eval_datasets, with the cells found beside the paper's."""
    config, paper = results.config, reported()["datasets"]
    columns = (
        "dataset",
        "title",
        "cells",
        "paper_cells",
        "genes",
        "simulated",
        "label",
        "description",
    )
    records, rows = [], []
    for name, dataset in config.datasets.items():
        facts, theirs = results.facts(name), paper.get(name, {}).get("cells")
        simulated = bool(facts["simulated"])
        records.append(
            (
                name,
                dataset.title,
                int(facts["cells"]),
                theirs,
                int(facts["genes"]),
                simulated,
                facts["label"],
                dataset.description,
            )
        )
        kind = " (simulated)" if simulated else ""
        rows.append(
            [
                Cell(dataset.title + kind),
                Cell(f"{int(facts['cells']):,}"),
                Cell(DASH if theirs is None else f"{theirs:,}"),
                Cell(dataset.description),
            ]
        )
    note = "Simulated cells bear the name and the description of a real dataset."
    return Table(
        caption="Evaluation datasets. Cells found here beside the paper's number; no model "
        "saw them in training.",
        notes=[note] if any(results.facts(name)["simulated"] for name in config.datasets) else (),
        columns=columns,
        records=records,
        header=("Short name", "Cells", "Cells in the paper", "Description"),
        rows=rows,
        align="lrrl",
    )


def compact(value: float) -> str:
    """A setting as people write it: ``0.02``, ``1e-5``."""
    if value != 0 and abs(value) < 1e-2:
        exponent = math.floor(math.log10(abs(value)))
        mantissa = value / 10**exponent
        return f"{mantissa:.4g}e{exponent}"
    return f"{value:g}"


def rounded_count(count: float) -> str:
    """Parameters in millions, e.g. ``160M``; two digits below ten million."""
    millions = count / 1e6
    return f"{millions:.0f}M" if millions >= 10 else f"{millions:.2g}M"


def optimiser(betas: list[float], epsilon: float) -> str:
    """AdamW's settings."""
    return f"AdamW (β1 = {betas[0]:g}, β2 = {betas[1]:g}, ε = {compact(epsilon)})"


def schedule(warmup: int) -> str:
    """The learning-rate schedule."""
    return f"Linear warm-up ({warmup:,} steps), then constant"
