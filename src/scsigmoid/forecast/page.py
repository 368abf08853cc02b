"""The forecast as lines of text."""

from collections.abc import Iterator
from pathlib import Path

from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.forecast.effort import estimate_effort, lengths_of
from scsigmoid.forecast.volume import estimate_volume, vocabulary_size

TOKEN_BYTES = 2  # uint16, because vocabularies of CELLxGENE have fewer than 65,536 genes
CELL_BYTES = 100  # metadata of a cell in the token store: ids, type, donor, tissue, assay


def forecast(config: Config, results: Path) -> Iterator[str]:
    """Yield lines of the forecast. A manifest or vocabulary in ``results`` replaces estimates."""
    volume, vocabulary = estimate_volume(config, results), vocabulary_size(config, results)
    plan = Plan(config)
    models = [estimate_effort(plan, name, vocabulary) for name in config.models]
    runs = [estimate_effort(plan, name, vocabulary) for name in plan.study_runs]
    yield f"Preset {config.preset}, corpus {config.corpus.source}: {volume.basis}"
    yield line("raw files", number(volume.files), f"{number(volume.cells)} cells to train on")
    cell_bytes = lengths_of(config).mean() * TOKEN_BYTES + CELL_BYTES
    sizes = {
        "raw files": volume.bytes,
        "tokens": None if volume.cells is None else volume.cells * cell_bytes,
        "models": sum(model.bytes for model in [*models, *runs]),
    }
    parts = [f"{gigabytes(size)} of {name}" for name, size in sizes.items()]
    yield line("disk", gigabytes(sum(size or 0.0 for size in sizes.values())), ", ".join(parts))
    for model in models:
        hours = f"{duration(model.hours)} on {model.machine}"
        yield line(model.model, hours, f"{millions(model.parameters)} parameters")
    if runs:
        hours = f"{duration(sum(run.hours for run in runs))} on {runs[0].machine}"
        parameters = [run.parameters for run in runs]
        smallest, largest = millions(min(parameters)), millions(max(parameters))
        range_text = smallest if smallest == largest else f"{smallest} to {largest}"
        yield line("study", hours, f"{len(runs)} runs of {range_text} parameters")
    hours = duration(sum(model.hours for model in [*models, *runs]))
    yield line("training", hours, "on one device, all models together")
    for setting, choice in config.choices.items():
        yield f"{setting} = {choice}"


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
