"""Compare the GPU-hours of completed training runs (section 4) with the training journals."""

from collections.abc import Iterator
from typing import Any

from scsigmoid.config.check import model_training
from scsigmoid.paper.number import UNKNOWN, Number, exact
from scsigmoid.paper.reported import models_here, reported
from scsigmoid.records.measurements import Interval
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import ATTENTIONS, context_label

GROUP = "hours"


def numbers(results: Results) -> Iterator[Number]:
    common: dict[str, Any] = {"group": GROUP, "location": "Section 4"}
    here = models_here(results.config)
    for row in reported()["gpu_hours"]:
        if not row.get("models"):
            continue
        models = {name: here.get(model) for name, model in row["models"].items()}
        hours = {name: gpu_hours(results, model) for name, model in models.items()}
        steps = {name: last_step(results, model) for name, model in models.items()}
        label = f"{row['size']} at {context_label(row['context'])}"
        for attention in ATTENTIONS:
            yield Number(
                **common, title=f"{label}, {attention}: completed run", unit="GPU-hours",
                paper=Interval(row[attention]), here=hours[attention], n=steps[attention],
            )  # fmt: skip
        saved = 100 * (1 - hours["sigmoid"].value / hours["softmax"].value)
        yield Number(
            **common, title=f"{label}: GPU-hours that sigmoid saves, completed runs", unit="%",
            no_effect=0, paper=Interval(row["saved"]), n=min(steps.values()), here=exact(saved),
        )  # fmt: skip


def gpu_hours(results: Results, model: str | None) -> Interval:
    """Return the GPU-hours of a model's training, without interruptions.

    They are UNKNOWN without a model, if the model was not trained to its last step, or not on GPUs,
    or if its journal does not state the number of processes. Each process uses one GPU.
    """
    if model is None:
        return UNKNOWN
    gpus = count_gpus(results, model)
    if not gpus or last_step(results, model) < model_training(results.config, model).steps:
        return UNKNOWN
    return exact(float(results.journal(model)["seconds"][-1]) * gpus / 3600)


def count_gpus(results: Results, model: str) -> int:
    """Return the number of GPUs that trained a model, 0 if it is unknown or if there was none."""
    header = results.journal(model).header
    processes = header.get("processes", "")
    is_known = processes.isdecimal() and header.get("device", "cpu") != "cpu"
    return int(processes) if is_known else 0


def last_step(results: Results, model: str | None) -> int:
    """Return the last step of a model's journal, 0 without a model."""
    return int(results.journal(model)["step"][-1]) if model else 0
