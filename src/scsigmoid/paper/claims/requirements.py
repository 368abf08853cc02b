"""What must hold before a claim can be tested: checked from the result files and the configuration.

Each requirement gives the reason why it does not hold, or nothing.
"""

from collections.abc import Callable

from scsigmoid.config.check import model_training
from scsigmoid.paper.labels import model_label
from scsigmoid.paper.reported import Claim, reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import costs, device_words, named_context, named_size

Requirement = Callable[[Results, Claim], str]
#: Share by which a count of cells may differ from the paper's.
CELLS = 0.01


def corpus_source(results: Results, _: Claim) -> str:
    """The training cells come from CELLxGENE's snapshot, all of it."""
    corpus, paper = results.config.corpus, reported()["corpus"]
    if corpus.source != "cellxgene":
        cells = f"{results.training_cells:,} {results.training_data} cells"
        return f"trained on {cells} ({corpus.source}), not on the CellxGene snapshot"
    if corpus.snapshot != paper["snapshot"]:
        return f"the snapshot is of {corpus.snapshot}, the paper's of {paper['snapshot']}"
    if (corpus.maximum_cells, corpus.maximum_file_gb, corpus.maximum_gb) != (None, None, None):
        return f"trained on a part of the snapshot ({results.training_cells:,} cells)"
    return ""


def corpus(results: Results, claim: Claim) -> str:
    """The corpus is the paper's, and complete."""
    reason = corpus_source(results, claim)
    cells, paper = results.training_cells, reported()["corpus"]["cells"]
    if not reason and abs(cells / paper - 1) > CELLS:
        return f"the corpus has {cells:,} cells, the paper's {paper:,.0f}"
    return reason


def size(results: Results, _: Claim) -> str:
    """The models have the paper's dimensions."""
    ours = results.config.sizes[results.config.architecture.size]
    paper = reported()["model_architecture"]
    for name in ("layers", "hidden", "heads", "feed_forward"):
        if getattr(ours, name) != paper[name]:
            return (
                f"the models have {ours.layers} layers of width {ours.hidden}, the paper's "
                f"{paper['layers']} of {paper['hidden']}"
            )
    return ""


def contexts(results: Results, claim: Claim) -> str:
    """The models exist and read as many tokens as the paper's."""
    config = results.config
    for name in claim.models:
        if name not in config.models:
            return f"there is no model {name}"
        context = reported()["models"][name]["context"]
        if config.models[name].context != context:
            return f"{model_label(config, name)} reads at most {config.models[name].context} tokens"
    return ""


def steps(results: Results, claim: Claim) -> str:
    """The models were trained as long as the paper's; as the journals say."""
    for name in claim.models:
        if name not in results.config.models:
            continue
        ours, paper = int(results.journal(name)["step"][-1]), reported()["models"][name]["steps"]
        if ours < paper:
            return f"trained for {ours:,} steps, not {paper:,}"
    return ""


def training(results: Results, claim: Claim) -> str:
    """Corpus, size, contexts and steps are the paper's."""
    found = [check(results, claim) for check in (corpus, size, contexts, steps)]
    return "; ".join(reason for reason in found if reason)


def unclipped(results: Results, claim: Claim) -> str:
    """The stress test's models were trained without clipping."""
    for name in claim.models:
        if name in results.config.models and model_training(results.config, name).clipping:
            return f"{model_label(results.config, name)} was trained with gradient clipping"
    return ""


def data(results: Results, claim: Claim) -> str:
    """The evaluation datasets are the paper's: present, real and complete."""
    config, paper = results.config, reported()["datasets"]
    reasons: dict[str, list[str]] = {}
    for name in claim.datasets:
        title = paper[name]["title"]
        if name not in config.datasets:
            reasons.setdefault("not evaluated", []).append(title)
            continue
        facts = results.facts(name)
        if facts["simulated"]:
            reasons.setdefault("simulated", []).append(title)
        elif abs(int(facts["cells"]) / paper[name]["cells"] - 1) > CELLS:
            reasons.setdefault("not the paper's cells", []).append(title)
    several = len(claim.datasets) > 1
    return "; ".join(
        f"{len(titles)} of {len(claim.datasets)} datasets are {reason}"
        if several
        else f"{titles[0]} is {reason}"
        for reason, titles in reasons.items()
    )


def types(results: Results, claim: Claim) -> str:
    """The cell types of the MMD are the paper's."""
    from scsigmoid.paper.tables.mmd import pair_rows, paper_pair

    for name in claim.datasets:
        if name not in results.config.datasets:
            continue
        found = pair_rows(results, name)
        matched = sum(bool(paper_pair(name, row.name)) for row in found)
        if matched < len(reported()["mmd"][name]):
            return f"{matched} of the paper's {len(reported()['mmd'][name])} pairs are measured"
    return ""


def hopper(results: Results, benchmark: str) -> str:
    """The benchmark ran on a GPU of the paper's generation."""
    machine = results.machine(benchmark)
    if not str(machine.get("capability") or "").strip("[(").startswith("9"):
        return f"measured on {device_words(machine)}, not on a Hopper GPU"
    return ""


def hopper_kernel(results: Results, _: Claim) -> str:
    """The kernel benchmark ran on a Hopper GPU, on the paper's shapes."""
    found = [hopper(results, "kernel")]
    kernel, paper = results.config.benchmarks.kernel, reported()["printed"]["kernel"]
    if kernel.hidden != paper["hidden"] or max(kernel.lengths) < max(paper["lengths"]):
        found.append(
            f"shapes of up to {max(kernel.lengths):,} tokens and hidden size {kernel.hidden:,}, "
            f"the paper's {max(paper['lengths']):,} and {paper['hidden']:,}"
        )
    return "; ".join(reason for reason in found if reason)


def hopper_throughput(results: Results, _: Claim) -> str:
    """The throughput benchmark ran on a Hopper GPU."""
    return hopper(results, "throughput")


def sizes(results: Results, claim: Claim) -> str:
    """The throughput benchmark's models are as large as their names, its contexts the paper's."""
    named = (
        [claim.of["size"]]
        if "size" in claim.of
        else list(dict.fromkeys(row["size"] for row in reported()["gpu_hours"]))
    )
    for cost in costs(results):
        if cost.size in named and abs(cost.sigmoid.parameters / named_size(cost.size) - 1) > 0.15:
            return f"the size {cost.size} has {cost.sigmoid.parameters:,} parameters here"
    for row in reported()["gpu_hours"]:
        context = named_context(results, row["context"])
        if context not in (row["context"], None):
            return f"contexts are {context:,} tokens and more, the paper's {row['context']:,}"
    return ""


REQUIREMENTS: dict[str, Requirement] = {
    "corpus_source": corpus_source,
    "corpus": corpus,
    "size": size,
    "training": training,
    "unclipped": unclipped,
    "data": data,
    "types": types,
    "hopper_kernel": hopper_kernel,
    "hopper_throughput": hopper_throughput,
    "sizes": sizes,
}
