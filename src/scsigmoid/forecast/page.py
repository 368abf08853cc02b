"""The forecast as lines of text. Each number says what it is based on."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from scsigmoid.config.schema import Config
from scsigmoid.corpus.metadata import REMOTE
from scsigmoid.forecast.effort import Effort, efforts, lengths_of, study_efforts
from scsigmoid.forecast.volume import Volume, vocabulary_size, volume

TOKEN_BYTES = 2  # uint16: vocabularies of CELLxGENE have fewer than 65,536 genes
CELL_BYTES = 100  # metadata of a cell in the token store: ids, type, donor, tissue, assay


def forecast(config: Config, results: Path) -> Iterator[str]:
    """Yield the lines of the forecast: files, disk, parameters and hours of training.

    Args:
        config: the configuration.
        results: the results folder. Its manifest and vocabulary replace estimates.
    """
    data, (vocabulary, vocabulary_basis) = volume(config, results), vocabulary_size(config, results)
    models, runs = efforts(config, vocabulary), study_efforts(config, vocabulary)
    yield f"Preset {config.preset}, corpus {config.corpus.source}: {data.basis}"
    files = {None: "number unknown", 1: "1 file"}.get(data.files, f"{number(data.files)} files")
    yield line("raw files", f"{files}, {gigabytes(data.bytes)}", data.bytes_basis)
    note = "the manifest counts those of 10x files" if data.cells is None else "to train on"
    yield line("cells", number(data.cells), note)
    yield from disk(config, data, sum(model.bytes for model in [*models, *runs]))
    yield line("vocabulary", f"{vocabulary:,} tokens", vocabulary_basis)
    for model in models:
        yield line(model.model, f"{duration(model.hours)} on {model.rate.device}", basis(model))
    if runs:
        yield study(runs)
    total = sum(model.hours for model in [*models, *runs])
    yield line("training", duration(total), "on one device, all models together")
    yield from evaluation(config, data, models)
    for setting, choice in config.choices.items():
        yield f"{setting} = {choice}"
    for machine in dict.fromkeys(f"{m.rate.machine}: {m.rate.measured}" for m in models):
        yield f"Training was measured on {machine}."


def evaluation(config: Config, data: Volume, models: Sequence[Effort]) -> Iterator[str]:
    """Yield the line about embeddings and validation losses."""
    evaluated = [model for model in models if not config.models[model.model].stress]
    if data.evaluation_cells is None or not evaluated:
        return
    trials = config.evaluation.validation_loss.trials
    hours = sum(model.evaluation_hours(data.evaluation_cells, trials) for model in evaluated)
    note = f"{data.evaluation_cells:,} cells, {trials + 1} passes of each, without scores"
    yield line("evaluation", duration(hours), note)


def disk(config: Config, data: Volume, models: float) -> Iterator[str]:
    """Yield the lines about disk space.

    Args:
        config: the configuration.
        data: the volume of its corpus.
        models: bytes of models and checkpoints.
    """
    parts = {"raw files": data.bytes, "tokens": stored_bytes(config, data), "models": models}
    sizes = [f"{gigabytes(size)} of {name}" for name, size in parts.items() if size is not None]
    if parts["tokens"] is None:
        sizes.append("size of the tokens unknown")
    total = sum(size or 0.0 for size in parts.values())
    yield line("disk", gigabytes(total), ", ".join(sizes))
    if config.corpus.source in REMOTE and not config.corpus.download.keep_files:
        yield line("", gigabytes(total - data.bytes), "after tokenization: raw files are deleted")


def stored_bytes(config: Config, data: Volume) -> float | None:
    """Return the estimated size of the token store, or None for the user's own files."""
    if data.cells is None or config.corpus.source == "local":
        return None
    return data.cells * (lengths_of(config).mean() * TOKEN_BYTES + CELL_BYTES)


def study(runs: Sequence[Effort]) -> str:
    """Return the line about all runs of a study together."""
    sizes = sorted({run.parameters for run in runs})
    ends = dict.fromkeys(f"{size / 1e6:.3g}M" for size in (sizes[0], sizes[-1]))
    return line(
        "study",
        f"{duration(sum(run.hours for run in runs))} on {runs[0].rate.device}",
        f"{len(runs)} runs of {' to '.join(ends)} parameters, "
        f"{sum(run.steps for run in runs):,} steps",
    )


def basis(effort: Effort) -> str:
    """Return the parameters of a model and the measured rate behind its hours."""
    rate = effort.rate
    speed = f"{rate.cells_per_second:g} cells a second at context {rate.context:,}"
    if effort.measured:
        speed += " measured"
    else:
        speed = f"{effort.scale:.2g} times the operations of the measured model ({speed})"
    return f"{effort.parameters / 1e6:,.4g}M parameters, {speed}"


def line(name: str, value: str, note: str) -> str:
    """Return one line of the table."""
    return f"  {name:<13} {value:<26} {note}".rstrip()


def number(value: int | None) -> str:
    """Return a number with separators."""
    return "unknown" if value is None else f"{value:,}"


def gigabytes(size: float) -> str:
    """Return a size in GB or TB (powers of ten)."""
    return f"{size / 1e12:.2f} TB" if size >= 1e12 else f"{size / 1e9:.3g} GB"


def duration(hours: float) -> str:
    """Return a time with its unit and three digits."""
    if hours >= 1:
        return f"{hours:,.3g} h" if hours < 1000 else f"{hours:,.0f} h"
    return f"{hours * 60:.3g} min" if hours * 60 >= 1 else "under 1 min"
