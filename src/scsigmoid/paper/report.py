"""The report: one self-contained HTML page with claims, figures, tables and how they were made."""

import base64
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

from scsigmoid.config.check import as_yaml
from scsigmoid.config.plan import Plan
from scsigmoid.files import write_text
from scsigmoid.paper.captions import caption
from scsigmoid.paper.claims import NOT_TESTABLE, VERDICTS, counted, read_claims
from scsigmoid.paper.claims.rules import number
from scsigmoid.paper.figures.lengths import covered
from scsigmoid.paper.labels import model_label, place_label
from scsigmoid.paper.provenance import FOLDER, cost_rows, versions
from scsigmoid.paper.reported import reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.tables.reading import read_markdown

GROUPS = {
    "quality": "Quality of the models",
    "stability": "Training stability",
    "kernel": "The attention kernel",
    "training cost": "Training cost",
    "data": "Data and models",
}
TITLES = {
    "sequence_lengths": "Sequence lengths",
    "tflops": "Speed of the attention kernels",
    "latency": "Latency of the attention kernels",
    "gpu_hours": "Cost of training",
    "loss": "Training and validation loss",
    "scib": "Biological conservation",
    "stability": "Training stability",
    "model_architecture": "Model architecture",
    "hyperparameters": "Hyperparameters",
    "evaluation_datasets": "Evaluation datasets",
    "validation_loss": "Validation loss",
    "kernel_speed": "Kernel speed",
    "kernel_ratios": "Our kernel against the others",
    "training_cost": "Training cost",
    "training_speed": "Training, kernel by kernel",
}
MARKS = ("yes", "no", "unsure", "open")
YES_NO = "yes (1) or no (0)"
#: Tables with more rows than this start folded.
LONG = 16


def make_report(results: Results, output: str | Path) -> None:
    """Write the report page.

    Reads ``claims.csv``, the tables (Markdown) and the figures (PNG), and says from the training
    journals and the benchmarks what they were made with.

    Args:
        results: the result files, tables, figures and claims among them.
        output: path of the HTML file, in the results folder: its links to files are relative.

    Raises:
        UserError: if one of them is missing.
    """
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = files("scsigmoid.paper").joinpath("report.html").read_text(encoding="utf-8")
    write_text(output, environment.from_string(text).render(content(results)))


def content(results: Results) -> dict[str, Any]:
    """All that the template shows."""
    plan = Plan(results.config)
    claims = read_claims(results.path("claims.csv"))
    return {
        "paper": reported()["source"],
        "facts": facts(results),
        "simulated": simulated(results),
        "verdicts": counted(claims),
        "marks": dict(zip(VERDICTS, MARKS, strict=True)),
        "main": main_claims(results, claims),
        "groups": [group(results, name, title, claims) for name, title in GROUPS.items()],
        "figures": [figure(results, name) for name in plan.figures],
        "tables": [table(results, name) for name in plan.tables],
        "costs": cost_rows(results),
        "records": FOLDER,
        "versions": versions(results),
        "configuration": as_yaml(results.config),
        "files": ["claims.csv", "config.yaml"],
    }


def facts(results: Results) -> dict[str, str]:
    """What was run, in a few words each."""
    config = results.config
    size = config.sizes[config.architecture.size]
    compared = [name for name in config.evaluation.pair if name in config.models]
    journal = results.journal(compared[0])
    return {
        "Preset": config.preset,
        "Corpus": f"{results.training_cells:,} training cells, {results.training_data} "
        f"(source: {config.corpus.source})",
        "Evaluation": f"{len(config.datasets)} datasets, "
        f"{sum(int(results.facts(name)['cells']) for name in config.datasets):,} cells",
        "Models": f"{len(config.models)} models of {size.layers} layers, width {size.hidden}; "
        f"compared: {' and '.join(model_label(config, name) for name in compared)}",
        "Cut": cut(results),
        "Training": f"{int(journal['step'][-1]):,} steps of {config.training.global_batch:,} cells",
        "Device": journal.header.get("device", "unknown"),
        "Seed": str(config.seed),
    }


def cut(results: Results) -> str:
    """How many training cells have more genes than the models' contexts hold."""
    lengths, cells = results.lengths
    contexts = sorted({model.context for model in results.config.models.values()})
    shares = [1 - covered(lengths, cells, n - results.config.tokens.cls) for n in contexts]
    named = (f"{share:.1%} at {n:,}" for n, share in zip(contexts, shares, strict=True))
    return f"training cells with more genes than fit the context: {', '.join(named)} tokens"


def simulated(results: Results) -> list[str]:
    """Sentences on what is simulated; none where nothing is."""
    config = results.config
    sentences = []
    if results.training_data != "real":
        share = "The" if results.training_data == "simulated" else "Some of the"
        sentences.append(f"{share} training cells are simulated.")
    titles = [
        entry.title for name, entry in config.datasets.items() if results.facts(name)["simulated"]
    ]
    if titles:
        several = f"{', '.join(titles[:-1])} and {titles[-1]} hold" if titles[1:] else titles[0]
        verb = "" if titles[1:] else " holds"
        sentences.append(
            f"{several}{verb} simulated cells under the names of real datasets: their numbers show "
            "that the workflow runs, and say nothing about biology."
        )
    return sentences


def group(results: Results, name: str, title: str, claims: list[dict[str, str]]) -> dict[str, Any]:
    """The claims of one group, those that were made of one entry together."""
    rows = [row for row in claims if row["group"] == name]
    common = hindrances(rows)
    of = {claim.id: claim.family for claim in reported().claims}
    families: dict[str, list[dict[str, str]]] = {"": []}
    for row in rows:
        families.setdefault(of.get(row["id"], ""), []).append(row)
    return {
        "title": title,
        "counts": counted(rows),
        "shared": common,
        "families": [
            {
                "title": family,
                "counts": counted(members),
                "rows": [shown(results, row, common) for row in members],
            }
            for family, members in families.items()
        ],
    }


def main_claims(results: Results, claims: list[dict[str, str]]) -> dict[str, Any]:
    """The results that the abstract states."""
    rows = [row for row in claims if "abstract" in row["location"].split(", ")]
    common = hindrances(rows)
    return {"shared": common, "rows": [shown(results, row, common) for row in rows]}


def hindrances(rows: list[dict[str, str]]) -> list[str]:
    """What keeps most of the untestable claims from a verdict, to be said once."""
    untested = [reasons(row) for row in rows if row["verdict"] == NOT_TESTABLE]
    named = Counter(part for parts in untested for part in parts)
    return [part for part, times in named.items() if times > max(1, len(untested) / 2)]


def reasons(row: dict[str, str]) -> list[str]:
    """The parts of a reason, without regard to their place in the sentence."""
    parts = row["reason"].rstrip(".").split("; ")
    return [part[:1].upper() + part[1:] for part in parts]


def shown(results: Results, row: dict[str, str], shared: list[str]) -> dict[str, Any]:
    """A claim as the page shows it."""
    rest = row["reason"]
    if row["verdict"] == NOT_TESTABLE and shared and set(shared) <= set(reasons(row)):
        own = [part for part in reasons(row) if part not in shared]
        rest = "; ".join(["As above", *own]) + "."
    low, high = (readable(row[end]) for end in ("low", "high"))
    yes_no = row["unit"] == YES_NO
    paper, ours = (row[side] for side in ("paper_value", "our_value"))
    return {
        **row,
        "place": place_label(row["location"]),
        "paper_value": answer(paper) if yes_no else readable(paper),
        "our_value": answer(ours) if yes_no else readable(ours),
        "unit": "" if yes_no else row["unit"],
        "interval": f"[{low}, {high}]"
        if low and high and (low, high) != (readable(ours),) * 2
        else "",
        "reason": rest,
        "mark": MARKS[VERDICTS.index(row["verdict"])],
        "links": [link(results, path) for path in row["evidence"].split("; ") if path],
        "sources": [path for path in row["sources"].split("; ") if path],
    }


def link(results: Results, path: str) -> tuple[str, str]:
    """Words for a table or a figure, and its place on the page."""
    name = Path(path).stem
    kind = "table" if path.startswith("tables/") else "figure"
    return f"{kind.capitalize()}: {title(results, name)}", f"#{kind}-{name}"


def answer(text: str) -> str:
    """Yes or no of 1 or 0."""
    return ("yes" if float(text) else "no") if text else ""


def readable(text: str) -> str:
    """A number, or both ends of a range, with four significant digits; other text as it stands."""
    try:
        return " to ".join(number(float(part)) for part in text.split(" to "))
    except ValueError:
        return text


def figure(results: Results, name: str) -> dict[str, str]:
    """A figure with its picture as a data address."""
    data = results.cached(f"figures/{name}.png", Path.read_bytes)
    return {
        "name": name,
        "title": title(results, name),
        "caption": caption("figures", name),
        "source": f"data:image/png;base64,{base64.b64encode(data).decode()}",
    }


def table(results: Results, name: str) -> dict[str, Any]:
    """A table, and whether it starts folded."""
    found = results.cached(f"tables/{name}.md", read_markdown)
    return {
        "name": name,
        "title": title(results, name),
        "table": found,
        "long": len(found.rows) > LONG,
    }


def title(results: Results, name: str) -> str:
    """Heading of a figure or table."""
    for prefix, words in (("mmd_", "MMD between cell types"), ("umap_", "UMAP")):
        dataset = name.removeprefix(prefix)
        if name.startswith(prefix) and dataset in results.config.datasets:
            return f"{words}: {results.config.datasets[dataset].title}"
    return TITLES.get(name, name)
