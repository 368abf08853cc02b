"""What must hold before a claim can be tested: the table :data:`REQUIREMENTS`.

A requirement is a list of checks of the configuration, and of the result files where there are any;
each yields the reasons why it does not hold.  ``scsigmoid plan`` checks the configuration alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from scsigmoid.config.check import model_training
from scsigmoid.config.metrics import MEAN, METRICS
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.kernels import OURS
from scsigmoid.paper.labels import model_label, provider_label
from scsigmoid.paper.reported import Claim, reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import costs, device_words, named_context, named_size

Reasons = Iterator[str]
#: Share by which a count of cells may differ from the paper's.
CELLS = 0.01
FLOAT32 = "training on a CPU is in float32, the paper's in bfloat16"


def unmet(
    config: Config, claim: Claim, results: Results | None = None, cells: int | None = None
) -> list[str]:
    """The reasons why a claim cannot be tested, each once.

    Without results the configuration alone is asked, and ``cells``, training cells of a manifest.
    """
    reasons: list[str] = []
    for name in claim.requires:
        configured, measured = REQUIREMENTS[name]
        for of_settings in configured:
            reasons += of_settings(config, claim)
        if results is not None:
            for of_files in measured:
                reasons += of_files(results, claim)
    if cells is not None and {"corpus", "training"} & set(claim.requires):
        reasons += [] if any(corpus_source(config, claim)) else other_size(cells)
    return list(dict.fromkeys(reasons))


def differing(ours: Any, paper: Mapping[str, Any], whose: str = "") -> Reasons:
    """Settings that are not the paper's, of those that both have."""
    for name, value in paper.items():
        own = getattr(ours, name, value)
        if own != value:
            yield f"{whose}{name} is {plain(own)}, the paper's {plain(value)}"


def plain(value: Any) -> str:
    """A setting in words."""
    if isinstance(value, int) or (isinstance(value, float) and value >= 1000):
        return f"{value:,.0f}"
    return "none" if value is None else str(value)


def corpus_source(config: Config, _: Claim) -> Reasons:
    """The training cells come from CELLxGENE's snapshot, all of it."""
    corpus, paper = config.corpus, reported()["corpus"]
    if corpus.source != "cellxgene":
        yield f"the corpus is {corpus.source}, not the CELLxGENE snapshot"
        return
    if corpus.snapshot != paper["snapshot"]:
        yield f"the snapshot is of {corpus.snapshot}, the paper's of {paper['snapshot']}"
    limits = ("maximum_cells", "maximum_file_gb", "maximum_gb")
    if given := [f"corpus.{name}" for name in limits if getattr(corpus, name) is not None]:
        yield f"a part of the snapshot is trained on ({', '.join(given)})"


def corpus_size(results: Results, _: Claim) -> Reasons:
    """The corpus has as many cells as the paper's."""
    yield from other_size(results.training_cells, f"{results.training_data} cells")


def other_size(cells: int, kind: str = "cells") -> Reasons:
    """A corpus of so many cells is not as large as the paper's."""
    paper = reported()["corpus"]["cells"]
    if abs(cells / paper - 1) > CELLS:
        yield f"the corpus has {cells:,} {kind}, the paper's {paper:,.0f}"


def size(config: Config, _: Claim) -> Reasons:
    """The models have the paper's dimensions."""
    ours, paper = config.sizes[config.architecture.size], reported()["model_architecture"]
    if any(differing(ours, paper)):
        yield (
            f"the models have {ours.layers} layers of width {ours.hidden}, the paper's "
            f"{paper['layers']} of {paper['hidden']}"
        )


def architecture(config: Config, _: Claim) -> Reasons:
    """The models are built as the paper's, and trained in its precision."""
    paper = {k: v for k, v in reported()["model_architecture"].items() if k != "size"}
    yield from differing(config.architecture, paper)
    if config.architecture.variants:
        yield f"variants is {', '.join(config.architecture.variants)}, the paper's none"
    if config.device == "cpu":
        yield FLOAT32


def models(config: Config, claim: Claim) -> Reasons:
    """The claim's models have the paper's attention, context, steps and hyperparameters."""
    for name in claim.models:
        if name not in config.models:
            yield f"there is no model {name}"
            continue
        model, own = reported()["models"][name], model_training(config, name)
        if config.models[name].attention != model["attention"]:
            yield f"{name} has {config.models[name].attention} attention"
        if config.models[name].context != model["context"]:
            label = model_label(config, name)
            yield f"{label} reads at most {config.models[name].context} tokens"
        yield from too_few(own.steps, model["steps"])
        paper = reported()["model_architecture"] | {"clipping": model["clipping"]}
        yield from differing(own, paper)


def too_few(ours: int, paper: int) -> Reasons:
    """A model was trained for fewer steps than the paper's."""
    if ours < paper:
        yield f"trained for {ours:,} steps, not {paper:,}"


def trained(results: Results, claim: Claim) -> Reasons:
    """The models were trained to the end, as the journals say."""
    for name in claim.models:
        if name in results.config.models:
            journal = results.journal(name)
            yield from too_few(int(journal["step"][-1]), reported()["models"][name]["steps"])
            if journal.header.get("device") == "cpu":
                yield FLOAT32


def evaluated(config: Config, claim: Claim) -> Reasons:
    """The evaluation datasets are among the configured ones, and come from CELLxGENE."""
    if config.corpus.source in ("embedded", "local"):
        yield f"the evaluation datasets are {config.corpus.source}, not CELLxGENE's"
    absent = [name for name in claim.datasets if name not in config.datasets]
    yield from told(
        "not evaluated", [reported()["datasets"][name]["title"] for name in absent], claim
    )


def real(results: Results, claim: Claim) -> Reasons:
    """The evaluation datasets are the paper's: real and complete."""
    found: dict[str, list[str]] = {"simulated": [], "not the paper's cells": []}
    for name in claim.datasets:
        if name not in results.config.datasets:
            continue
        metadata, paper = results.metadata(name), reported()["datasets"][name]
        if metadata["simulated"]:
            found["simulated"].append(paper["title"])
        elif abs(int(metadata["cells"]) / paper["cells"] - 1) > CELLS:
            found["not the paper's cells"].append(paper["title"])
    for reason, titles in found.items():
        yield from told(reason, titles, claim)


def told(reason: str, titles: list[str], claim: Claim) -> Reasons:
    """Which of a claim's datasets are not as they should be."""
    if titles:
        several = len(claim.datasets) > 1
        who = f"{len(titles)} of {len(claim.datasets)} datasets are" if several else titles[0]
        yield f"{who}{'' if several else ' is'} {reason}"


def settings(part: str) -> Callable[[Config, Claim], Reasons]:
    """Part of the evaluation is done as the paper's."""

    def asked(config: Config, _: Claim) -> Reasons:
        paper = reported()["evaluation"][part]
        yield from differing(getattr(config.evaluation, part), paper, f"evaluation.{part}.")

    return asked


def scores(config: Config, claim: Claim) -> Reasons:
    """The claim's scIB metrics are computed."""
    metric, paper = claim.of["metric"], [name for name in METRICS if METRICS[name].in_paper]
    for name in paper if metric == MEAN else (metric,):
        if name not in config.evaluation.scib.metrics:
            yield f"{name} is not among evaluation.scib.metrics"


def compared(config: Config, claim: Claim) -> Reasons:
    """The MMD of the claim's datasets is computed."""
    for name in claim.datasets:
        if name in config.datasets and name not in Plan(config).compared("mmd"):
            yield f"{name} is not among evaluation.mmd.datasets"


def types(results: Results, claim: Claim) -> Reasons:
    """The cell types of the MMD are the paper's."""
    from scsigmoid.paper.tables.mmd import pair_rows, paper_pair

    for name in claim.datasets:
        if name not in Plan(results.config).compared("mmd"):
            continue
        matched = sum(bool(paper_pair(name, row.name)) for row in pair_rows(results, name))
        wanted = len(reported()["mmd"][name])
        if matched < wanted:
            yield f"{matched} of the paper's {wanted} pairs are measured"


def on_gpu(config: Config, _: Claim) -> Reasons:
    """The benchmarks run on a GPU."""
    if config.device == "cpu":
        yield "measured on a CPU, not on a Hopper GPU"


def hopper(benchmark: str) -> Callable[[Results, Claim], Reasons]:
    """A benchmark ran on a GPU of the paper's generation."""

    def asked(results: Results, _: Claim) -> Reasons:
        machine = results.machine(benchmark)
        capability = str(machine.get("capability") or "").strip("[(")
        if results.config.device != "cpu" and not capability.startswith("9"):
            yield f"measured on {device_words(machine)}, not on a Hopper GPU"

    return asked


def kernel_shapes(config: Config, claim: Claim) -> Reasons:
    """The kernel benchmark has the paper's shapes and the kernels that the claim names."""
    kernel, paper = config.benchmarks.kernel, reported()["printed"]["kernel"]
    if kernel.hidden != paper["hidden"] or max(kernel.lengths) < max(paper["lengths"]):
        yield (
            f"shapes of up to {max(kernel.lengths):,} tokens and hidden size {kernel.hidden:,}, "
            f"the paper's {max(paper['lengths']):,} and {paper['hidden']:,}"
        )
    for name in ("lengths", "head_dimensions", "padding"):
        absent = set(paper[name]) - set(getattr(kernel, name)) - {max(paper["lengths"])}
        if absent:
            yield f"{', '.join(map(plain, sorted(absent)))} not among benchmarks.kernel.{name}"
    for name in (claim.of.get("provider"), *claim.of.get("against", ())):
        stand_ins = OURS if name == "triton_sigmoid" else (name,)
        if name and kernel.providers and not set(stand_ins) & set(kernel.providers):
            yield f"{provider_label(name)} is not among benchmarks.kernel.providers"


def throughput(config: Config, claim: Claim) -> Reasons:
    """The throughput benchmark has the claim's sizes, and the paper's contexts."""
    ours, paper = config.benchmarks.throughput, reported()
    wanted = {
        "cells_per_gpu": paper["printed"]["throughput"]["cells_per_gpu"],
        "projected_cells": paper["corpus"]["cells"],
    }
    yield from differing(ours, wanted, "benchmarks.throughput.")
    if missing := [size for size in named_sizes(claim) if size not in ours.sizes]:
        yield f"{', '.join(missing)} not among benchmarks.throughput.sizes"
    for context in sorted({row["context"] for row in reported()["gpu_hours"]}):
        if context not in ours.contexts:
            stand_in = named_context(config, context)
            yield (
                f"contexts are {stand_in:,} tokens and more, the paper's {context:,}"
                if stand_in
                else f"{context:,} not among benchmarks.throughput.contexts"
            )
            return


def measured_sizes(results: Results, claim: Claim) -> Reasons:
    """The throughput benchmark's models are as large as their names."""
    for cost in costs(results):
        near = abs(cost.sigmoid.parameters / named_size(cost.size) - 1) <= 0.15
        if cost.size in named_sizes(claim) and not near:
            yield f"the size {cost.size} has {cost.sigmoid.parameters:,} parameters here"
            return


def named_sizes(claim: Claim) -> list[str]:
    """The sizes that a claim is about; all of the paper's where it names none."""
    if "size" in claim.of:
        return [claim.of["size"]]
    return list(dict.fromkeys(row["size"] for row in reported()["gpu_hours"]))


Checks = tuple[
    Sequence[Callable[[Config, Claim], Reasons]], Sequence[Callable[[Results, Claim], Reasons]]
]
#: What each asks: of the configuration, then of the result files.
REQUIREMENTS: dict[str, Checks] = {
    "corpus_source": ((corpus_source,), ()),
    "corpus": ((corpus_source,), (corpus_size,)),
    "size": ((size,), ()),
    "training": ((corpus_source, size, architecture, models), (corpus_size, trained)),
    "data": ((evaluated,), (real,)),
    "validation_loss": ((settings("validation_loss"),), ()),
    "scib": ((settings("scib"), scores), ()),
    "mmd": ((settings("mmd"), compared), ()),
    "types": ((), (types,)),
    "hopper_kernel": ((on_gpu, kernel_shapes), (hopper("kernel"),)),
    "sizes": ((on_gpu, throughput), (hopper("throughput"), measured_sizes)),
}
