"""The forecast as lines for people; every number says what it rests on."""

import itertools
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from scsigmoid.config.combinations import longest_cell
from scsigmoid.config.schema import Config
from scsigmoid.forecast.effort import Effort, efforts, lengths_of, rates, study_efforts
from scsigmoid.forecast.volume import Volume, selections, vocabulary_size, volume
from scsigmoid.paper.claims.requirements import unmet
from scsigmoid.paper.reported import reported

TOKEN_BYTES = 2  # uint16; vocabularies of CELLxGENE have fewer than 65,536 genes
CELL_BYTES = 100  # metadata of a cell in the token store: ids, type, donor, tissue, assay


def forecast(
    config: Config, *, devices: int, cores: int, gigabits: float, results: Path
) -> Iterator[str]:
    """The lines.

    Args:
        config: the configuration.
        devices: GPUs, or cores, that train at a time.
        cores: cores that read and tokenize.
        gigabits: a second, of the network; assumed, not measured.
        results: the results folder, whose manifest is used if there is one.
    """
    data, (vocabulary, rests_on) = volume(config, results), vocabulary_size(config, results)
    trained = efforts(config, vocabulary)
    yield f"Preset {config.preset}, corpus {config.corpus.source}: {data.basis}"
    files = {None: "number unknown", 1: "1 file"}.get(data.files, f"{number(data.files)} files")
    yield line("raw files", f"{files}, {gigabytes(data.bytes)}", data.bytes_basis)
    note = "the manifest counts those of 10x files" if data.cells is None else "to train on"
    yield line("cells", number(data.cells), note)
    for cells, note in selections(config, results):
        yield line("selection", cells, note)
    models = sum(effort.bytes for effort in trained)
    preparing = yield from prepared(config, data, models, cores, gigabits)
    yield line("vocabulary", f"{vocabulary:,} tokens", rests_on)
    total = 0.0
    for effort in trained:
        total += effort.hours
        yield line(effort.model, f"{duration(effort.hours)} of {device(effort)}", basis(effort))
    yield line(
        "training", f"{duration(total)}", f"of one device; {duration(total / devices)} on {devices}"
    )
    yield line(
        "wall time",
        duration(preparing + total / devices),
        "without evaluation and benchmarks; devices assumed to share the work evenly",
    )
    yield from studied(study_efforts(config, vocabulary))
    for measured in dict.fromkeys(f"{e.rate.machine}: {e.rate.measured}" for e in trained):
        yield f"Training was measured on {measured}."
    yield f"Reading and tokenizing were measured on {rates()['tokens']['measured']}."
    yield from tested(config, data.cells)


def prepared(
    config: Config, data: Volume, models: int, cores: int, gigabits: float
) -> Generator[str, None, float]:
    """The lines from download to tokens, ``models`` in bytes; returns the hours that these take."""
    if data.cells is None or config.corpus.source == "local":
        yield line(
            "disk", gigabytes(data.bytes + models), "raw files and models; tokens not yet known"
        )
        return 0.0
    lengths = lengths_of(config)
    longest = longest_cell(config)
    tokens = data.cells * lengths.mean(longest)
    stored = tokens * TOKEN_BYTES + data.cells * CELL_BYTES
    yield line(
        "tokens",
        f"{tokens / 1e9:,.3g} billion" if tokens >= 1e9 else f"{tokens / 1e6:,.3g} million",
        f"estimate: log-normal lengths, median {lengths.median:g}, cut at {longest:,}",
    )
    remote = config.corpus.source in ("cellxgene", "census")
    cap = config.corpus.download.disk_cap_gb
    in_turns = remote and cap is not None and data.bytes > cap * 1e9
    # every raw file is needed until the vocabulary is made; only then do tokens replace them
    raw = cap * 1e9 if in_turns and cap is not None else data.bytes
    yield line(
        "disk, most",
        gigabytes(raw + stored + models),
        f"{gigabytes(raw)} of raw files{' (corpus.download.disk_cap_gb)' if in_turns else ''}, "
        f"{gigabytes(stored)} of tokens, {gigabytes(models)} of models",
    )
    gone = remote and (in_turns or not config.corpus.download.keep_files)
    note = "when tokens are made" + (": the raw files go" if gone else "")
    if remote and not gone:
        note += "; with corpus.download.keep_files: false the raw files go"
    yield line("disk, then", gigabytes((0.0 if gone else data.bytes) + stored + models), note)
    hours = 0.0
    if remote:
        # within a cap, both passes over the cells download
        traffic = 2 * data.bytes if in_turns else data.bytes
        hours = traffic * 8 / (gigabits * 1e9) / 3600
        yield line(
            "download",
            duration(hours),
            f"{gigabytes(traffic)}{', every file twice' if in_turns else ''}, at {gigabits:g} "
            "Gbit/s (assumed)",
        )
    speeds = rates()["tokens"]
    nonzeros = data.cells * lengths.mean()
    for name, title in {"statistics": "gene medians", "tokenize": "tokenization"}.items():
        passing = nonzeros / float(speeds[name]) / cores / 3600
        hours += passing
        yield line(
            title,
            duration(passing),
            f"{cores} core{'s' * (cores > 1)}, {float(speeds[name]) / 1e6:.3g} million non-zero "
            "counts a second each",
        )
    return hours


def studied(runs: Sequence[Effort]) -> Iterator[str]:
    """What the runs of a study add, if there is one."""
    if runs:
        sizes = sorted({run.parameters for run in runs})
        ends = dict.fromkeys(f"{size / 1e6:.3g}M" for size in (sizes[0], sizes[-1]))
        yield line(
            "study",
            f"{duration(sum(run.hours for run in runs))} of {device(runs[0])}",
            f"{len(runs)} runs of {' to '.join(ends)} parameters, "
            f"{sum(run.steps for run in runs):,} steps, scaled likewise",
        )
        yield line("", gigabytes(sum(run.bytes for run in runs)), "of checkpoints and models")


def tested(config: Config, cells: int | None) -> Iterator[str]:
    """How many of the paper's claims this configuration tests, and why not the others."""
    reasons = [unmet(config, claim, cells=cells) for claim in reported().claims]
    yield line(
        "claims",
        f"{sum(not found for found in reasons)} of {len(reasons)} tested",
        "on a Hopper GPU, with the kernels that they name",
    )
    for reason, count in Counter(itertools.chain(*reasons)).most_common():
        yield line("", f"{count} not tested", reason)


def basis(effort: Effort) -> str:
    """What the hours of a model rest on."""
    rate, paper = effort.rate, reported()["model_architecture"]["parameters"]
    size = (
        f"{effort.parameters / 1e6:,.4g}M parameters ({effort.parameters / paper - 1:+.1%} against "
        f"the paper's {paper / 1e6:g}M)"
    )
    speed = f"{rate.cells_per_second:g} cells a second at context {rate.context:,}"
    if effort.measured:
        return f"{size}, {speed}, measured"
    return f"{size}, scaled by {effort.scale:.2g} times the work from {speed}"


def device(effort: Effort) -> str:
    """The device that a rate is of."""
    return "an H200" if "H200" in effort.rate.machine else "a core"


def line(name: str, value: str, note: str) -> str:
    """One line of the table."""
    return f"  {name:<13} {value:<26} {note}".rstrip()


def number(value: int | None) -> str:
    """A number with separators."""
    return "unknown" if value is None else f"{value:,}"


def gigabytes(size: float) -> str:
    """A size in GB or TB (powers of ten)."""
    return f"{size / 1e12:.2f} TB" if size >= 1e12 else f"{size / 1e9:.3g} GB"


def duration(hours: float) -> str:
    """A time with its unit, three digits of it."""
    if hours >= 1:
        return f"{hours:,.3g} h" if hours < 1000 else f"{hours:,.0f} h"
    return f"{hours * 60:.3g} min" if hours * 60 >= 1 else "under 1 min"
