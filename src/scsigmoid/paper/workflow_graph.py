"""The workflow's rules: which stage each belongs to, what each needs, and a drawing of them.

Snakemake draws its own graph with Graphviz, which few machines have; a test compares the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from scsigmoid.config.plan import Plan

METRICS = ("silhouette", "leiden", "kmeans", "clisi")
# The paper has figures and claims of these two.
REPORTED = ("benchmark_kernel", "benchmark_throughput")
BENCHMARKS = (*REPORTED, "benchmark_training")


@dataclass(frozen=True)
class Rule:
    """A rule of the workflow.

    Attributes:
        stage: file of ``workflow/rules`` that it stands in.
        needs: rules whose results it reads.
    """

    stage: str
    needs: tuple[str, ...] = ()


RULES = {
    "manifest": Rule("corpus"),
    "training_cells": Rule("corpus", ("manifest",)),
    "evaluation_cells": Rule("corpus", ("manifest",)),
    "gene_statistics": Rule("tokens", ("training_cells",)),
    "lock": Rule("corpus", ("manifest", "gene_statistics", "evaluation_cells")),
    "vocabulary": Rule("tokens", ("gene_statistics",)),
    "training_tokens": Rule("tokens", ("training_cells", "vocabulary")),
    "evaluation_tokens": Rule("tokens", ("evaluation_cells", "vocabulary")),
    "sequence_lengths": Rule("tokens", ("training_tokens",)),
    "train": Rule("training", ("training_tokens", "vocabulary")),
    "embeddings": Rule("evaluation", ("train", "evaluation_tokens")),
    "validation_loss_of_model": Rule("evaluation", ("train", "evaluation_tokens")),
    "neighbours": Rule("evaluation", ("embeddings", "evaluation_cells")),
    **{name: Rule("evaluation", ("neighbours",)) for name in METRICS},
    "mmd_of_dataset": Rule("evaluation", ("embeddings",)),
    "umap_of_dataset": Rule("evaluation", ("embeddings",)),
    **{name: Rule("benchmarks") for name in BENCHMARKS},
    "table": Rule(
        "paper",
        (
            "vocabulary",
            "evaluation_cells",
            "validation_loss_of_model",
            *METRICS,
            "mmd_of_dataset",
            *BENCHMARKS,
        ),
    ),
    "figure": Rule(
        "paper",
        (
            "manifest",
            "sequence_lengths",
            "train",
            "evaluation_cells",
            "validation_loss_of_model",
            *METRICS,
            "umap_of_dataset",
            *REPORTED,
        ),
    ),
    "claims": Rule(
        "paper",
        (
            "manifest",
            "sequence_lengths",
            "vocabulary",
            "train",
            "evaluation_cells",
            "validation_loss_of_model",
            *METRICS,
            "mmd_of_dataset",
            *REPORTED,
        ),
    ),
    "report_page": Rule("paper", ("table", "figure", "claims")),
}
COLOURS = {
    "corpus": "#e3eef6",
    "tokens": "#e2f3ec",
    "training": "#fbe7da",
    "evaluation": "#fdf3d8",
    "benchmarks": "#f3e6ef",
    "paper": "#ececec",
}
WIDTH, HEIGHT, GAP, RISE = 164, 36, 16, 30


def planned_jobs(plan: Plan) -> dict[str, int]:
    """Jobs of each rule that a full run has; rules without any are not among them."""
    config = plan.config
    datasets, models = len(plan.datasets), len(plan.evaluated_models)
    metrics = config.evaluation.scib.metrics
    chosen = {
        "silhouette": "silhouette_label" in metrics,
        "leiden": bool({"leiden_nmi", "leiden_ari"} & set(metrics)),
        "kmeans": bool({"kmeans_nmi", "kmeans_ari"} & set(metrics)),
        "clisi": "clisi" in metrics,
    }
    jobs = {
        "manifest": 1,
        "training_cells": len(plan.parts),
        "evaluation_cells": datasets,
        "gene_statistics": len(plan.parts),
        "lock": int(config.corpus.source in ("cellxgene", "census")),
        "vocabulary": 1,
        "training_tokens": len(plan.parts),
        "evaluation_tokens": datasets,
        "sequence_lengths": 1,
        "train": len(config.models),
        "embeddings": datasets * len(config.evaluation.pair),
        "validation_loss_of_model": datasets * models,
        "neighbours": datasets,
        **{name: datasets * is_chosen for name, is_chosen in chosen.items()},
        "mmd_of_dataset": len(plan.compared("mmd")),
        "umap_of_dataset": len(plan.compared("umap")),
        **dict.fromkeys(BENCHMARKS, 1),
        "table": len(plan.tables),
        "figure": len(plan.figures),
        "claims": 1,
        "report_page": 1,
    }
    return {rule: count for rule, count in jobs.items() if count}


def direct_needs(rules: Mapping[str, int]) -> dict[str, list[str]]:
    """What each of some rules needs, without what another of its needs brings along."""
    needs = {rule: [need for need in RULES[rule].needs if need in rules] for rule in rules}

    def behind(rule: str) -> set[str]:
        return {deep for need in needs[rule] for deep in ({need} | behind(need))}

    return {
        rule: [need for need in found if not any(need in behind(other) for other in found)]
        for rule, found in needs.items()
    }


def rows_of(needs: Mapping[str, list[str]]) -> list[list[str]]:
    """The rules from top to bottom: each below all that it needs, and near what needs it."""
    depth: dict[str, int] = {}
    for rule in needs:  # in the order of RULES, where needs come first
        depth[rule] = max((depth[need] + 1 for need in needs[rule]), default=0)
    for rule in reversed(list(needs)):
        users = [depth[user] for user, found in needs.items() if rule in found]
        if users and not needs[rule]:
            depth[rule] = min(users) - 1
    rows: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for rule in needs:
        rows[depth[rule]].append(rule)
    return rows


def draw(rules: Mapping[str, int]) -> str:
    """The graph as SVG, to be read from top to bottom.

    Args:
        rules: the rules to draw, of :data:`RULES`, and the number of their jobs.
    """
    needs = direct_needs(rules)
    rows = rows_of(needs)
    across = max(map(len, rows))
    width = across * (WIDTH + GAP) - GAP + 2
    height = len(rows) * (HEIGHT + RISE) - RISE + 2
    centre: dict[str, tuple[float, float]] = {}
    for level, row in enumerate(rows):
        indent = (across - len(row)) / 2
        # Near the middle of what they need, so that few lines cross.
        near = {rule: mean([centre[need][0] for need in needs[rule]], width / 2) for rule in row}
        for place, rule in enumerate(sorted(row, key=lambda rule: near[rule])):
            x = 1 + (indent + place) * (WIDTH + GAP) + WIDTH / 2
            centre[rule] = (x, 1 + level * (HEIGHT + RISE) + HEIGHT / 2)
    parts = [line(centre[need], centre[rule]) for rule in needs for need in needs[rule]]
    parts += [box(rule, rules[rule], *centre[rule]) for rule in rules]
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="The workflow\'s rules" '
        f'width="{width:g}" xmlns="http://www.w3.org/2000/svg">' + "".join(parts) + "</svg>"
    )


def mean(values: list[float], otherwise: float) -> float:
    """Mean of some numbers; another where there are none."""
    return sum(values) / len(values) if values else otherwise


def line(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A curve from the lower edge of a box to the upper edge of another."""
    (x0, y0), (x1, y1) = (start[0], start[1] + HEIGHT / 2), (end[0], end[1] - HEIGHT / 2)
    bend = min(RISE, (y1 - y0) / 2)
    return (
        f'<path d="M{x0:g} {y0:g}C{x0:g} {y0 + bend:g} {x1:g} {y1 - bend:g} {x1:g} {y1:g}" '
        'fill="none" stroke="#8a94a3"/>'
    )


def box(rule: str, jobs: int, x: float, y: float) -> str:
    """A rule's box, its name and the number of its jobs."""
    name, count = escape(rule.replace("_", " ")), f"{jobs:,} job{'' if jobs == 1 else 's'}"
    return (
        f'<rect x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}" '
        f'rx="5" fill="{COLOURS[RULES[rule].stage]}" stroke="#8a94a3"/>'
        f'<text x="{x:g}" y="{y - 2:g}" text-anchor="middle" font-size="12" fill="#1c2430">'
        f'{name}</text><text x="{x:g}" y="{y + 12:g}" text-anchor="middle" font-size="10" '
        f'fill="#5c6675">{count}</text>'
    )
