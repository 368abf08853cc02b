"""Tables of models, hyperparameters and evaluation datasets."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from scsigmoid.config.check import model_training
from scsigmoid.model.sizes import EncoderSettings, count_parameters
from scsigmoid.paper.reported import models_in_paper, reported
from scsigmoid.report.tables.writing import DASH, Table, millions, pick
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import model_label, own_settings, pairs, setting_text


def model_architecture(results: Results) -> Table:
    config, paper = results.config, reported()["model_architecture"]
    size = config.sizes[config.architecture.size]
    context = max(model.context for model in config.models.values() if not model.stress)
    # The number of parameters does not depend on the attention.
    encoder = EncoderSettings.of(
        size, config.architecture, "sigmoid", context, results.vocabulary_size
    )
    ours = {
        **vars(size),
        **vars(config.architecture),
        **vars(config.training),
        "parameters": count_parameters(encoder),
        "vocabulary": f"{results.vocabulary_size:,} tokens",
        "head_dimension": size.hidden // size.heads,
        "activation": "GELU",
        "normalization": ", ".join(["LayerNorm (pre-norm)", *config.architecture.variants]),
        "precision": "BF16 (automatic mixed precision) on GPUs, FP32 on CPUs",
        "seed": config.seed,
    }
    in_paper = format_architecture(paper)
    records = [
        {"parameter": name, "value": value, "paper": in_paper[name]}
        for name, value in format_architecture(ours).items()
    ]
    return Table(
        caption="Model architecture and training settings, here and in the paper. Settings of "
        "single models are in the table of hyperparameters.",
        records=records,
        header=("Parameter", "Value", "Paper"),
        rows=[[*record.values()] for record in records],
        align="lll",
    )


def format_architecture(values: Mapping[str, Any]) -> dict[str, str]:
    """Return values as text by parameter, as in the paper's Table 2."""
    beta1, beta2 = values["betas"]
    warmup = values["warmup_steps"]
    return {
        "Model size": f"{millions(values['parameters'])} parameters",
        "Vocabulary": values.get("vocabulary", "not stated"),
        "Number of layers": str(values["layers"]),
        "Hidden dimension": str(values["hidden"]),
        "Number of attention heads": str(values["heads"]),
        "Head dimension": str(values["head_dimension"]),
        "FFN intermediate dimension": str(values["feed_forward"]),
        "Activation function": values["activation"],
        "Normalization": values["normalization"],
        "Dropout": compact(values["dropout"]),
        "Layer norm epsilon": compact(values["layer_norm_epsilon"]),
        "Initializer range": compact(values["initializer_range"]),
        "Global batch size": f"{values['global_batch']:,}",
        "Learning rate": compact(values["learning_rate"]),
        "Weight decay": compact(values["weight_decay"]),
        "Optimizer": f"AdamW (β1 = {beta1:g}, β2 = {beta2:g}, ε = {compact(values['epsilon'])})",
        "Learning rate schedule": f"Linear warm-up ({warmup:,} steps), then constant",
        "Precision": values["precision"],
        "Gene masking probability": compact(values["mask_fraction"]),
        "Random seed": str(values["seed"]),
    }


#: Settings of a model that have columns of their own, or do not change the trained model.
SHOWN = {"context", "backend", "clipping", "steps", "learning_rate", "execution"}


def hyperparameters(results: Results) -> Table:
    config = results.config
    records, rows = [], []
    in_paper = models_in_paper(config)
    for name, model in config.models.items():
        training = model_training(config, name)
        paper = reported()["models"].get(in_paper.get(name), {})  # empty if it is not in the paper
        paper_clipping = (paper["clipping"] or "none") if paper else None
        own = own_settings(config, name).items()
        others = [
            f"{key} {setting_text(value)}" for key, value in own if key not in SHOWN and value
        ]
        records.append(
            {"model": name, **pick(model, "attention context")}
            | {"clipping": training.clipping or "none"}
            | pick(training, "steps global_batch learning_rate warmup_steps")
            | {"stress": model.stress, "paper_context": paper.get("context")}
            | {"paper_clipping": paper_clipping, "paper_steps": paper.get("steps")}
        )
        rows.append(
            [
                model_label(config, name) + (", stress test" if model.stress else ""),
                f"{model.context:,} tokens",
                "none" if training.clipping is None else f"{compact(training.clipping)} (L2 norm)",
                f"{training.steps:,} steps",
                f"{training.global_batch * training.steps:,}",
                compact(training.learning_rate),
                "; ".join(others) or DASH,
                f"{paper['context']:,} tokens, clipping {paper_clipping}, {paper['steps']:,} steps"
                if paper
                else DASH,
            ]
        )
    differ_only_in_attention = all(
        own_settings(config, first) == own_settings(config, second)
        for first, second in pairs(config)
    )
    return Table(
        caption="Hyperparameters of each model"
        + (", here and in the paper. " if in_paper else ". ")
        + (
            "The two models of a pair differ only in attention. "
            if differ_only_in_attention
            else ""
        )
        + "Cells seen is the number of steps times the global batch size.",
        records=records,
        header=(
            *("Model", "Context length", "Gradient clipping", "Duration", "Cells seen"),
            *("Learning rate", "Other settings", "Paper"),
        ),
        rows=rows,
        align="lllrrlll",
    )


def evaluation_datasets(results: Results) -> Table:
    records, rows = [], []
    for name, dataset in results.config.datasets.items():
        metadata = results.metadata(name)
        paper_cells = reported()["datasets"].get(name, {}).get("cells")
        cells = metadata["cells"]
        records.append(
            {"dataset": name, "title": dataset.title, "cells": cells, "paper_cells": paper_cells}
            | {"genes": metadata["genes"], "label": metadata["label"]}
            | {"description": dataset.description}
        )
        in_paper = DASH if paper_cells is None else f"{paper_cells:,}"
        rows.append([dataset.title, f"{cells:,}", in_paper, dataset.description])
    return Table(
        caption="Evaluation datasets with their numbers of cells"
        + (", here and in the paper" if any(record["paper_cells"] for record in records) else "")
        + ". Models are not trained on these cells.",
        records=records,
        header=("Short name", "Cells", "Cells in the paper", "Description"),
        rows=rows,
        align="lrrl",
    )


def compact(value: float) -> str:
    """Return a setting in short notation: ``0.02``, ``1e-5``."""
    if value != 0 and abs(value) < 1e-2:
        return np.format_float_scientific(value, precision=3, trim="-", exp_digits=1)
    return f"{value:g}"
