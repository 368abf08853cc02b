"""What must hold before a claim can be tested.

A requirement asks the configuration, and the result files where there are any; each gives the
reasons why it does not hold.  ``scsigmoid plan`` asks the configuration alone.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
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


def unmet(
    config: Config, claim: Claim, results: Results | None = None, cells: int | None = None
) -> list[str]:
    """The reasons why a claim cannot be tested, each once.

    Args:
        config: the configuration of the run.
        claim: the claim.
        results: its result files; without them the configuration alone is asked.
        cells: training cells of its manifest, where there are no results yet.
    """
    reasons: list[str] = []
    for name in claim.requires:
        configured, measured = REQUIREMENTS[name]
        reasons += configured(config, claim)
        if results is not None:
            reasons += measured(results, claim)
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


def nothing(_: Any, __: Claim) -> Collection[str]:
    """A requirement that has nothing more to ask."""
    return ()


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
    if any(getattr(ours, name) != paper[name] for name in ("layers", "hidden", "heads")) or (
        ours.feed_forward != paper["feed_forward"]
    ):
        yield (
            f"the models have {ours.layers} layers of width {ours.hidden}, the paper's "
            f"{paper['layers']} of {paper['hidden']}"
        )


def training(config: Config, claim: Claim) -> Reasons:
    """Corpus, size, contexts, steps and hyperparameters are the paper's."""
    yield from corpus_source(config, claim)
    yield from size(config, claim)
    paper = reported()["model_architecture"]
    yield from differing(config.architecture, {k: v for k, v in paper.items() if k != "size"})
    if config.architecture.variants:
        yield f"variants is {', '.join(config.architecture.variants)}, the paper's none"
    if config.device == "cpu":
        yield "training on a CPU is in float32, the paper's in bfloat16"
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
        if own.steps < model["steps"]:
            yield trained(own.steps, model["steps"])
        yield from differing(own, paper | {"clipping": model["clipping"]})


def trained(ours: int, paper: int) -> str:
    """That a model was trained for too few steps."""
    return f"trained for {ours:,} steps, not {paper:,}"


def trained_models(results: Results, claim: Claim) -> Reasons:
    """The corpus is complete and the models were trained to the end, as the journals say."""
    yield from corpus_size(results, claim)
    for name in claim.models:
        if name not in results.config.models:
            continue
        journal = results.journal(name)
        ours, paper = int(journal["step"][-1]), reported()["models"][name]["steps"]
        if ours < paper:
            yield trained(ours, paper)
        if journal.header.get("device") == "cpu":
            yield "training on a CPU is in float32, the paper's in bfloat16"


def evaluated(config: Config, claim: Claim) -> Reasons:
    """The evaluation datasets are among the configured ones, and come from CELLxGENE."""
    if config.corpus.source in ("embedded", "local"):
        yield f"the evaluation datasets are {config.corpus.source}, not CELLxGENE's"
    titles = [reported()["datasets"][name]["title"] for name in claim.datasets]
    missing = [
        title
        for name, title in zip(claim.datasets, titles, strict=True)
        if name not in config.datasets
    ]
    yield from told("not evaluated", missing, claim)


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


def validation_loss(config: Config, _: Claim) -> Reasons:
    """The validation loss is computed as the paper's."""
    paper = reported()["evaluation"]["validation_loss"]
    yield from differing(config.evaluation.validation_loss, paper, "evaluation.validation_loss.")


def scib(config: Config, claim: Claim) -> Reasons:
    """The scIB scores are computed as the paper's."""
    ours = config.evaluation.scib
    yield from differing(ours, reported()["evaluation"]["scib"], "evaluation.scib.")
    metric = claim.of["metric"]
    paper = [name for name in METRICS if METRICS[name].in_paper]
    for name in paper if metric == MEAN else (metric,):
        if name not in ours.metrics:
            yield f"{name} is not among evaluation.scib.metrics"


def mmd(config: Config, claim: Claim) -> Reasons:
    """The MMD is computed as the paper's."""
    yield from differing(config.evaluation.mmd, reported()["evaluation"]["mmd"], "evaluation.mmd.")
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


def hopper(results: Results, benchmark: str) -> Reasons:
    """The benchmark ran on a GPU of the paper's generation."""
    machine = results.machine(benchmark)
    capability = str(machine.get("capability") or "").strip("[(")
    if results.config.device != "cpu" and not capability.startswith("9"):
        yield f"measured on {device_words(machine)}, not on a Hopper GPU"


def kernel_shapes(config: Config, claim: Claim) -> Reasons:
    """The kernel benchmark has the paper's shapes and the kernels that the claim names."""
    yield from on_gpu(config, claim)
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


def sizes(config: Config, claim: Claim) -> Reasons:
    """The throughput benchmark has the claim's sizes, and the paper's contexts."""
    yield from on_gpu(config, claim)
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
    yield from hopper(results, "throughput")
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


Configured = Callable[[Config, Claim], Collection[str] | Reasons]
Measured = Callable[[Results, Claim], Collection[str] | Reasons]
#: What each asks of the configuration, and of the result files.
REQUIREMENTS: dict[str, tuple[Configured, Measured]] = {
    "corpus_source": (corpus_source, nothing),
    "corpus": (corpus_source, corpus_size),
    "size": (size, nothing),
    "training": (training, trained_models),
    "data": (evaluated, real),
    "validation_loss": (validation_loss, nothing),
    "scib": (scib, nothing),
    "mmd": (mmd, nothing),
    "types": (nothing, types),
    "hopper_kernel": (kernel_shapes, lambda results, _: hopper(results, "kernel")),
    "sizes": (sizes, measured_sizes),
}
