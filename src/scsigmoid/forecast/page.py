"""The forecast as lines of text."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.forecast.choices import gpu_memory
from scsigmoid.forecast.effort import (
    CHECKPOINT_BYTES,
    Effort,
    count_gpus,
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
    if config.corpus.source == "cellxgene":
        hours = duration(volume.bytes / (download_rate * 1e6) / 3600)
        yield line("download", hours, f"at {download_rate:g} MB/s (--download-rate)")
    if volume.cells is not None:
        yield preparation_line(config, volume.cells)
    yield disk_line(config, volume, [*models, *runs])
    yield from training_lines(config, models)
    if config.device != "cpu":
        yield from memory_warning([*models, *runs])
    evaluation = None
    if volume.evaluation_cells:
        evaluated = [model for model in models if model.model in plan.evaluated_models]
        evaluation = evaluation_hours(config, volume.evaluation_cells, evaluated)
        note = f"{number(volume.evaluation_cells)} cells, {len(evaluated)} models"
        yield line("evaluation", hours_text(evaluation), f"{note}: without scIB and MMD")
    if runs:
        parameters = [run.parameters for run in runs]
        smallest, largest = millions(min(parameters)), millions(max(parameters))
        range_text = smallest if smallest == largest else f"{smallest} to {largest}"
        study = sum_hours([run.hours for run in runs])
        yield line("study", hours_text(study), f"{len(runs)} runs of {range_text}")
    if config.device != "cpu":
        yield from total_lines(config, models, evaluation, price)
    elif price is not None:
        note = "for GPU-hours and a price, add `--config device=cuda`"
        yield line("price", "the device is the CPU", note)
    for setting, choice in config.choices.items():
        yield f"{setting} = {choice}"


def preparation_line(config: Config, cells: int) -> str:
    """Return the time of gene statistics and tokens, which are jobs of one core per part."""
    counts = cells * lengths_of(config).mean() / 1e6
    passes = rates()["million_counts_per_second"].values()
    hours = sum(counts / rate for rate in passes) / 3600
    parts = config.corpus.parts
    each = f"{parts} parts of {duration(hours / parts)} on one core" if parts > 1 else "1 part"
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


def training_lines(config: Config, models: Sequence[Effort]) -> Iterator[str]:
    """Yield a table of the models: hours on one device and on all GPUs, steps, sizes, memory."""
    gpus = count_gpus(config)
    hours = [model.hours for model in models]
    wall_hours = [model.wall_hours for model in models]
    total, wall = sum_hours(hours), sum_hours(wall_hours)
    columns = {
        "training": [*(model.model for model in models), "all models"],
        f"device hours: {', '.join(total)}": [*map(hours_text, [*hours, total])],
        f"on {gpus} GPUs": [*map(hours_text, [*wall_hours, wall])],
        "parameters": [millions(model.parameters) for model in models],
        "steps": [number(model.steps) for model in models],
        "checkpoint": [gigabytes(CHECKPOINT_BYTES * model.parameters) for model in models],
        "GPU memory": [gigabytes(model.memory_bytes) for model in models],
    }
    if gpus == 1:
        del columns["on 1 GPUs"]
    if config.device == "cpu":
        del columns["GPU memory"]
    widths = [max(map(len, [name, *texts])) for name, texts in columns.items()]
    for row in [[*columns], *zip_longest(*columns.values(), fillvalue="")]:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        yield ("  " + "  ".join(cells)).rstrip()
    if gpus > 1:
        measured = rates()["several_gpus"]["measured"]
        source = f"measured on up to {measured} GPUs of one host"
        if config.nodes > 1:
            source = f"a best case, without the network between nodes: {source}"
        elif gpus > measured:
            source = f"a best case: {source}"
        efficiency = ", ".join(f"{total[machine] / gpus / wall[machine]:.2f}" for machine in total)
        yield f"  {gpus} GPUs: efficiency {efficiency}, {source}"


def memory_warning(models: Sequence[Effort]) -> Iterator[str]:
    """Yield a line if the model that needs most memory does not fit on a GPU."""
    model = max(models, key=lambda model: model.memory_bytes)
    sizes = {entry["machine"]: entry.get("memory", 0) for entry in rates()["training"]}
    sizes["the GPU of this machine"] = gpu_memory()
    small = [
        f"{name} {gigabytes(size)}" for name, size in sizes.items() if 0 < size < model.memory_bytes
    ]
    if small:
        yield (
            f"  warning: {model.model} needs {gigabytes(model.memory_bytes)} of GPU memory, too "
            f"much for: {', '.join(small)}. Lower training.execution.micro_batch_tokens, or choose "
            "a smaller size"
        )


def total_lines(
    config: Config,
    models: Sequence[Effort],
    evaluation: Mapping[str, float] | None,
    price: float | None,
) -> Iterator[str]:
    """Yield the time of training on the configured GPUs, GPU-hours and price, for each machine."""
    gpus = count_gpus(config)
    if evaluation is None:
        note = "without evaluation"
    else:
        note = "with evaluation" + (" (on one GPU)" if gpus > 1 else "")
    if config.study:
        note += ", without the study"
    for machine, wall in sum_hours([model.wall_hours for model in models]).items():
        gpu_hours = wall * gpus + (evaluation[machine] if evaluation else 0.0)
        text = f"{amount(gpu_hours)} GPU-hours {note}"
        if price is not None:
            text += f", price {amount(gpu_hours * price)} at {price:g} per GPU-hour"
        devices = f"{gpus} {machine}" + ("s" if gpus > 1 else "")
        yield line("total", f"{duration(wall)} on {devices}", f"to train, {text}")


def evaluation_hours(config: Config, cells: int, models: Sequence[Effort]) -> dict[str, float]:
    """Return the time of validation losses and of the pair's embeddings.

    ``models`` are the evaluated models. A trial of a loss and an embedding are a forward pass each.
    The hours are on one device, by machine, because each job of the evaluation uses one.
    """
    trials, pair = config.evaluation.validation_loss.trials, config.evaluation.pair
    return sum_hours(
        [
            {
                machine: cells * (trials + (model.model in pair)) / rate / 3600
                for machine, rate in model.embedding_rate.items()
            }
            for model in models
        ]
    )


def sum_hours(hours: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum for each machine, from at least one mapping."""
    return {machine: sum(item[machine] for item in hours) for machine in hours[0]}


def hours_text(hours: Mapping[str, float]) -> str:
    """Return hours on each machine."""
    return ", ".join(map(duration, hours.values()))


def line(name: str, value: str, note: str) -> str:
    """Return a line of the forecast in three aligned columns."""
    return f"  {name:<13} {value:<26} {note}"


def number(value: int | None) -> str:
    """Return a number with thousands separators, or ``unknown``."""
    return "unknown" if value is None else f"{value:,}"


def millions(value: int) -> str:
    return f"{value / 1e6:,.0f}M" if value >= 1e9 else f"{value / 1e6:.4g}M"


def gigabytes(size: float | None) -> str:
    """Return a size in GB or TB (powers of ten)."""
    if size is None:
        return "unknown size"
    return f"{size / 1e12:.2f} TB" if size >= 999.5e9 else f"{size / 1e9:.3g} GB"


def amount(value: float) -> str:
    """Return a number of hours or a price, with thousands separators and without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def duration(hours: float) -> str:
    if hours >= 1:
        return f"{hours:,.0f} h" if hours >= 100 else f"{hours:.3g} h"
    return f"{hours * 60:.3g} min" if hours * 60 >= 1 else "under 1 min"
