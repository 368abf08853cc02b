"""The forecast as lines of text."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.corpus.metadata import REMOTE
from scsigmoid.forecast.effort import (
    CHECKPOINT_BYTES,
    Effort,
    efficiency_of,
    estimate_effort,
    lengths_of,
    rates,
)
from scsigmoid.forecast.volume import Volume, estimate_volume, vocabulary_size

TOKEN_BYTES = 2  # uint16, because vocabularies of CELLxGENE have fewer than 65,536 genes
CELL_BYTES = 100  # metadata of a cell in the token store: ids, type, donor, tissue, assay
DOWNLOAD_RATE = 100.0  # default rate of downloads in MB/s


def forecast(
    config: Config, results: Path, download_rate: float = DOWNLOAD_RATE, price: float | None = None
) -> Iterator[str]:
    """Yield lines of the forecast. A manifest or vocabulary in ``results`` replaces estimates.

    ``download_rate`` is in MB/s. ``price`` is the price of a GPU for an hour, in any currency.
    """
    volume, vocabulary = estimate_volume(config, results), vocabulary_size(config, results)
    plan = Plan(config)
    models = [estimate_effort(plan, name, vocabulary) for name in config.models]
    runs = [estimate_effort(plan, name, vocabulary) for name in plan.study_runs]
    yield f"Preset {config.preset}, corpus {config.corpus.source}: {volume.basis}"
    yield line("raw files", number(volume.files), f"{number(volume.cells)} cells to train on")
    if config.corpus.source in REMOTE:
        hours = duration(volume.bytes / (download_rate * 1e6) / 3600)
        yield line("download", hours, f"at {download_rate:g} MB/s (--download-rate)")
    if volume.cells is not None:
        yield preparation_line(config, volume.cells)
    yield disk_line(config, volume, [*models, *runs])
    if models:
        yield from training_lines(config, models, price)
    if volume.evaluation_cells and models:
        yield evaluation_line(config, volume.evaluation_cells, models)
    if runs:
        parameters = [run.parameters for run in runs]
        smallest, largest = millions(min(parameters)), millions(max(parameters))
        range_text = smallest if smallest == largest else f"{smallest} to {largest}"
        yield line("study", hours_text(total_hours(runs)), f"{len(runs)} runs of {range_text}")
    for setting, choice in config.choices.items():
        yield f"{setting} = {choice}"


def preparation_line(config: Config, cells: int) -> str:
    """Return the time of gene statistics and tokens, which are jobs of one core per part."""
    counts = cells * lengths_of(config).mean() / 1e6
    passes = rates()["million_counts_per_second"].values()
    hours = sum(counts / rate for rate in passes) / 3600
    each = f"{config.corpus.parts} parts of {duration(hours / config.corpus.parts)} on one core"
    return line("tokens", f"{duration(hours)} on one core", each)


def disk_line(config: Config, volume: Volume, models: Sequence[Effort]) -> str:
    cell_bytes = lengths_of(config).mean() * TOKEN_BYTES + CELL_BYTES
    sizes = {
        "raw files": volume.bytes,
        "tokens": None if volume.cells is None else volume.cells * cell_bytes,
        "models": sum(model.disk_bytes for model in models),
    }
    parts = [f"{gigabytes(size)} of {name}" for name, size in sizes.items()]
    return line("disk", gigabytes(sum(size or 0.0 for size in sizes.values())), ", ".join(parts))


def training_lines(config: Config, models: Sequence[Effort], price: float | None) -> Iterator[str]:
    """Yield a table of the models: hours on one device and on all GPUs, steps, sizes, memory."""
    gpus = max(1, config.gpus) * config.nodes
    efficiency, is_measured = efficiency_of(gpus)
    is_gpu = config.device != "cpu"
    header = ["training", "device hours: " + ", ".join(models[0].hours)]
    if gpus > 1:
        header.append(f"on {gpus} GPUs")
    header += ["parameters", "steps", "checkpoint", *(["GPU memory"] if is_gpu else [])]
    rows = [header]
    total = total_hours(models)
    for model in models:
        row = [model.model, hours_text(model.hours)]
        if gpus > 1:
            row.append(hours_text(model.hours, gpus * efficiency))
        size = CHECKPOINT_BYTES * model.parameters
        row += [millions(model.parameters), number(model.steps), gigabytes(size)]
        rows.append(row + ([gigabytes(model.memory_bytes)] if is_gpu else []))
    rows.append(["all models", hours_text(total)])
    if gpus > 1:
        rows[-1].append(hours_text(total, gpus * efficiency))
    columns = range(len(header))
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in columns]
    for row in rows:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=False))
        yield ("  " + "  ".join(cells)).rstrip()
    if gpus > 1:
        source = (
            "measured on one host"
            if is_measured and config.nodes == 1
            else (f"an extrapolation: measured up to {max(rates()['efficiency'])} GPUs of one host")
        )
        yield f"  {gpus} GPUs: efficiency {efficiency:g}, {source}"
    if price is not None and is_gpu:
        costs = ", ".join(f"{hours / efficiency * price:,.3g}" for hours in total.values())
        yield line("price", costs, f"training at {price:g} per GPU-hour, on {', '.join(total)}")


def evaluation_line(config: Config, cells: int, models: Sequence[Effort]) -> str:
    """Return the time of embeddings and validation losses: one forward pass and one per trial."""
    passes = 1 + config.evaluation.validation_loss.trials
    hours = {
        machine: sum(cells * passes / model.embedding_rate[machine] for model in models) / 3600
        for machine in models[0].hours
    }
    note = f"{number(cells)} cells, {len(models)} models: without scIB and MMD"
    return line("evaluation", hours_text(hours), note)


def total_hours(models: Sequence[Effort]) -> dict[str, float]:
    return {name: sum(model.hours[name] for model in models) for name in models[0].hours}


def hours_text(hours: Mapping[str, float], devices: float = 1) -> str:
    """Return hours on each machine, divided by a number of devices."""
    return ", ".join(duration(value / devices) for value in hours.values())


def line(name: str, value: str, note: str) -> str:
    """Return a line of the forecast in three aligned columns."""
    return f"  {name:<13} {value:<26} {note}"


def number(value: int | None) -> str:
    """Return a number with thousands separators, or ``unknown``."""
    return "unknown" if value is None else f"{value:,}"


def millions(value: int) -> str:
    return f"{value / 1e6:.4g}M"


def gigabytes(size: float | None) -> str:
    """Return a size in GB or TB (powers of ten)."""
    if size is None:
        return "unknown size"
    return f"{size / 1e12:.2f} TB" if size >= 1e12 else f"{size / 1e9:.3g} GB"


def duration(hours: float) -> str:
    if hours >= 1:
        return f"{hours:,.3g} h" if hours < 1000 else f"{hours:,.0f} h"
    return f"{hours * 60:.3g} min" if hours * 60 >= 1 else "under 1 min"
