"""The report: a self-contained HTML page with figures, tables and how they were made."""

import base64
import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scsigmoid.benchmarks.rows import cpu_name
from scsigmoid.config.check import as_yaml
from scsigmoid.config.plan import Plan
from scsigmoid.files import write_text
from scsigmoid.labels import model_label
from scsigmoid.paper.comparison import INCONCLUSIVE, NOT_REPRODUCED, REPRODUCED
from scsigmoid.paper.reported import reported
from scsigmoid.report import registry
from scsigmoid.report.figures.training import covered
from scsigmoid.report.tables.quality import donor_scores
from scsigmoid.report.tables.writing import DASH, Cell, Table
from scsigmoid.report.verdict import verdicts
from scsigmoid.results.folder import Results

#: Tables with more rows than this, or without rows, start folded.
LONG = 16
SUFFIXES = {"figure": ("pdf", "png"), "table": ("csv", "md", "tex")}
#: Snakemake's ``benchmark`` files, one per job: ``resources/<rule>[/<wildcards>].tsv``.
RECORDS = "resources"
#: Packages that the results depend on.
PACKAGES = (
    "snakemake", "torch", "triton", "numpy", "pyarrow", "scanpy", "anndata", "scib-metrics",
    "scikit-learn", "umap-learn", "matplotlib",
)  # fmt: skip
ONE_RUN = (
    "These scores are from a single run and have no interval. A study with several seeds gives the "
    "spread over seeds and the interval of the difference. Validation losses have intervals over "
    "donors, where three are known."
)
#: The first figures and tables for the user's own cells, in this order.
OWN = (
    *(("figure", "umap"), ("figure", "scib"), ("table", "scib"), ("figure", "loss")),
    *(("table", "validation_loss"), ("figure", "sequence_lengths"), ("table", "mmd")),
)


def make_report(results: Results, output: str | Path) -> None:
    """Write the report page.

    Reads the figures (PNG), makes the tables again from the result files, and reads from the
    training journals and the benchmarks what they were made with.  Its links to files are relative
    to the results folder.

    Raises:
        UserError: if one of them is missing.
    """
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = files("scsigmoid.report").joinpath("page.html").read_text(encoding="utf-8")
    write_text(output, environment.from_string(text).render(content(results)))


def content(results: Results) -> dict[str, Any]:
    """Return the values that the page's template shows."""
    return {
        "paper": reported()["source"],
        "own": is_own(results),
        "words": words(results),
        "overview": overview(results),
        "simulated": simulated(results),
        "compared": compared(results),
        "choices": choices(results),
        "sections": [*sections(results), *study_section(results)],
        "costs": job_costs(results),
        "records": RECORDS,
        "versions": versions(results),
        "configuration": as_yaml(results.config),
    }


def is_own(results: Results) -> bool:
    """Return True if the cells are the user's own."""
    return results.config.corpus.source == "local"


def words(results: Results) -> str:
    """Return what the scores of own cells mean."""
    if not is_own(results):
        return ""
    return " ".join(verdicts(pd.DataFrame(registry.make("table", "scib", results).records)))


def choices(results: Results) -> Table | None:
    """Return the settings that were chosen by the program, with the reasons."""
    rows = [[name, *text.split(": ", 1)] for name, text in results.config.choices.items()]
    if not rows:
        return None
    return Table(
        caption="These settings were auto. Write a value into your configuration to change one.",
        records=(),
        header=("Setting", "Value", "Reason"),
        rows=rows,
        align="lll",
    )


def counted_verdicts(results: Results) -> dict[str, int]:
    """Return how many of the paper's numbers have each verdict; empty if none has one."""
    if "comparison" not in registry.names("table", Plan(results.config)):
        return {}
    records = registry.make("table", "comparison", results).records
    counts = {
        verdict: sum(record["verdict"] == verdict for record in records)
        for verdict in (REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE)
    }
    return counts if any(counts.values()) else {}


def compared(results: Results) -> str:
    """Return in a sentence what the run says about the paper's numbers; empty for own cells."""
    if is_own(results):
        return ""
    if counts := counted_verdicts(results):
        return (
            "The paper's numbers: " + ", ".join(f"{n} {word}" for word, n in counts.items()) + "."
        )
    run = "A demo" if results.config.preset == "demo" else "This run"
    return f"{run} cannot be compared with the paper; the last table lists the differences."


def sections(results: Results) -> list[dict[str, Any]]:
    """Return the sections of figures and tables; results of the user's own cells come first."""
    plan = Plan(results.config)
    figures, tables = (
        [shown(results, kind, name) for name in registry.names(kind, plan)]
        for kind in ("figure", "table")
    )
    if not is_own(results):
        if counted_verdicts(results):  # the comparison has verdicts: it comes first
            tables = [tables[-1] | {"folded": False}, *tables[:-1]]
        return [
            {"id": "figures", "title": "Figures", "items": figures},
            {"id": "tables", "title": "Tables", "items": tables},
        ]
    items = [*figures, *tables]
    first = [item for place in OWN for item in items if (item["kind"], item["entry"]) == place]
    first = [item | {"folded": item["entry"] == "mmd"} for item in first]
    for place, item in enumerate(first):
        if (item["kind"], item["entry"]) == ("table", "scib"):
            item["table"] = replace(item["table"], notes=[*item["table"].notes, ONE_RUN])
            if donors := donor_scores(results):
                title = f"{item['title']}, by donor"
                by_donor = {"kind": "table", "name": "scib_donors", "title": title, "table": donors}
                first.insert(place + 1, by_donor)
                break
    cells = {"kind": "table", "name": "", "title": "Cells", "table": cells_table(results)}
    return [{"id": "cells", "title": "Your cells", "items": [cells, *first]}]


def study_section(results: Results) -> list[dict[str, Any]]:
    """Return the study's tables and figures."""
    if not results.config.study:
        return []
    names = {"claims": "What agrees with the paper", "loss": "Loss", "embeddings": "Embeddings"}
    names |= {"frontier": "Stability", "scale": "Size"}
    items: list[dict[str, Any]] = []
    for name, title in names.items():
        file = f"study/page/study_{name}"
        item = {"name": f"study_{name}", "title": title}
        if name == "claims":
            frame = pd.read_csv(results.path(f"{file}.csv"))
            table = Table(
                caption="What the paper says of its 160M models, and what these small models show.",
                records=(),
                header=("The paper", "Here", "At this scale"),
                rows=frame.to_numpy().tolist(),
                align="lll",
            )
            items.append(item | {"kind": "table", "files": [f"{file}.csv"], "table": table})
        elif (results.folder / f"{file}.png").is_file():  # as the study has runs for it
            picture = {"kind": "figure", "files": [f"{file}.png"], "caption": ""}
            items.append(item | picture | {"source": embedded(results, f"{file}.png")})
    title = "Study: small models, far below the paper's scale"
    return [{"id": "study", "title": title, "items": items}]


def embedded(results: Results, picture: str) -> str:
    """Return a PNG file as a data URL."""
    data = results.cached(picture, Path.read_bytes)
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def shown(results: Results, kind: str, name: str) -> dict[str, Any]:
    """Return a figure, with its picture as a data URL, or a table for the template."""
    plan = Plan(results.config)
    _, dataset = registry.find(kind, name, plan)
    item: dict[str, Any] = {
        "kind": kind,
        "name": name,
        "entry": name.removesuffix(f"_{dataset}") if dataset else name,
        "title": registry.title(kind, name, plan),
        "files": [f"{kind}s/{name}.{suffix}" for suffix in SUFFIXES[kind]],
    }
    for path in item["files"]:
        results.path(path)
    if kind == "table":
        table: Table = registry.make("table", name, results)
        return item | {"table": table, "folded": not 0 < len(table.rows) <= LONG}
    words = registry.caption(kind, name, plan)
    return item | {"caption": words, "source": embedded(results, f"figures/{name}.png")}


def cells_table(results: Results) -> Table:
    """Return a table of the cells that the models were trained and evaluated on."""
    config = results.config
    contexts = sorted({model.context for model in config.models.values()})
    training = [f"{share:.1%}" for share in cut_shares(results, contexts)]
    rows = [["Training", f"{results.training_cells:,}", *[DASH] * 4, *training]]
    for name, entry in config.datasets.items():
        metadata = results.metadata(name)
        model = config.evaluation.pair[0]
        types = DASH
        if name in Plan(config).compared("umap"):
            types = f"{len({*results.umap(name, model).cell_type.tolist()} - {''}):,}"
        rows.append(
            [
                entry.title,
                f"{int(metadata['cells']):,}",
                f"{int(metadata['genes']):,}",
                str(results.donors(name, model) or DASH),
                metadata["label"],
                types,
                *(f"{share:.1%}" for share in cut_shares(results, contexts, name)),
            ]
        )
    notes = ["Cut is the share of cells that express more genes than fit the context."]
    if results.excluded_cells:
        notes.append(
            f"{results.excluded_cells:,} cells were not trained on because held-out cells or other "
            "training cells have the same counts; corpus/manifest.json has their files."
        )
    return Table(
        caption="Cells that the models were trained on, and the held-out cells of each dataset.",
        records=(),
        header=(
            *("Cells of", "Cells", "Genes", "Donors", "Label", "Cell types"),
            *(f"Cut at {context:,} tokens" for context in contexts),
        ),
        rows=rows,
        align="lrrrlr" + "r" * len(contexts),
        notes=notes,
    )


def overview(results: Results) -> dict[str, str]:
    """Return the main facts about the run by name."""
    config = results.config
    size = config.size_of(config.evaluation.pair[0])
    journal = results.journal(config.evaluation.pair[0])
    return {
        "Preset": config.preset
        + ", for its settings" * (is_own(results) and config.preset != "own"),
        "Corpus": f"{results.training_cells:,} training cells, {results.training_data} "
        f"(source: {config.corpus.source})",
        "Evaluation": f"{len(config.datasets)} dataset{'s' * (len(config.datasets) > 1)}, "
        f"{sum(int(results.metadata(name)['cells']) for name in config.datasets):,} cells",
        "Models": f"{len(config.models)} model{'s' * (len(config.models) > 1)} of {size.layers} "
        f"layers, width {size.hidden}; scored: "
        + ", ".join(model_label(config, name) for name in config.evaluation.pair),
        "Cells with cut genes": cut(results),
        "Training": f"{int(journal['step'][-1]):,} steps of {config.training.global_batch:,} cells",
        "Device": journal.header.get("device", "unknown"),
        "Seed": str(config.seed),
    }


def cut_shares(results: Results, contexts: Sequence[int], dataset: str = "") -> list[float]:
    """Return the shares of training cells, or of a dataset's, with genes that are cut."""
    if dataset:
        lengths = results.cached(f"tokens/evaluation/{dataset}/genes.npy", np.load)
        cells = np.ones(len(lengths))
    else:
        lengths, cells = results.lengths
    return [1 - covered(lengths, cells, n - results.config.tokens.cls) for n in contexts]


def cut(results: Results) -> str:
    """Return how many training cells have more genes than fit the models' contexts."""
    contexts = sorted({model.context for model in results.config.models.values()})
    shares = zip(cut_shares(results, contexts), contexts, strict=True)
    return ", ".join(f"{share:.1%} at {context:,} tokens" for share, context in shares)


def simulated(results: Results) -> list[str]:
    """Return sentences on simulated cells, if there are any."""
    config = results.config
    sentences = []
    if results.training_data != "real":
        share = "The" if results.training_data == "simulated" else "Some of the"
        sentences.append(f"{share} training cells are simulated.")
    titles = [
        entry.title
        for name, entry in config.datasets.items()
        if results.metadata(name)["simulated"]
    ]
    if titles:
        several = f"{', '.join(titles[:-1])} and {titles[-1]} have" if titles[1:] else titles[0]
        verb = "" if titles[1:] else " has"
        sentences.append(
            f"{several}{verb} simulated cells under the names of real datasets. Their numbers show "
            "that the workflow runs, not anything about biology."
        )
    return sentences


def costs(results: Results) -> pd.DataFrame:
    """Return the time and memory of the jobs of each rule, in their last attempts.

    Returns:
        One row per rule, the most expensive first: ``jobs``, ``seconds`` (sum of wall-clock times),
        ``longest`` (seconds of the longest job) and ``memory`` (MB, resident memory of the largest
        job with its child processes; NaN if all jobs were too short to be sampled).

    Raises:
        UserError: if a record is damaged.
    """
    records = []
    for path in sorted((results.folder / RECORDS).rglob("*.tsv")):
        relative = path.relative_to(results.folder)
        seconds, memory = results.cached(relative.as_posix(), read_record)
        rule = relative.with_suffix("").parts[1]
        records.append({"rule": rule, "seconds": seconds, "memory": memory})
    table = pd.DataFrame(records, columns=["rule", "seconds", "memory"]).groupby("rule")
    columns = {
        "jobs": ("seconds", "size"),
        "seconds": ("seconds", "sum"),
        "longest": ("seconds", "max"),
        "memory": ("memory", "max"),
    }
    return table.agg(**columns).sort_values("seconds", ascending=False)


def read_record(path: Path) -> tuple[float, float]:
    """Read seconds and memory of one job; memory is NaN if it was not sampled."""
    (row,) = pd.read_csv(path, sep="\t", na_values="-").to_dict("records")
    return float(row["s"]), float(row["max_rss"])


def job_costs(results: Results) -> Table | None:
    """Return :func:`costs` as a table, their total first, or None without records."""
    table = costs(results)
    if table.empty:
        return None
    total = table.agg({"jobs": "sum", "seconds": "sum", "longest": "max", "memory": "max"})
    rows = [("All", total), *table.iterrows()]
    return Table(
        caption="Sum of the wall-clock times of each job's last attempt. Jobs run at the same "
        "time, so the run took less. A job that resumed from a checkpoint counts from there. "
        "Memory is the resident memory of the largest job, without GPU memory.",
        records=(),
        header=("Rule", "Jobs", "Time", "Longest job", "Most memory"),
        rows=[
            [
                Cell(text, bold=rule == "All")
                for text in (
                    str(rule).replace("_", " "),
                    f"{row['jobs']:,.0f}",
                    duration(row["seconds"]),
                    duration(row["longest"]),
                    DASH if pd.isna(row["memory"]) else f"{row['memory']:,.0f} MB",
                )
            ]
            for rule, row in rows
        ],
        align="lrrrr",
    )


def duration(seconds: float) -> str:
    """Return a time with its unit: ``0.8 s``, ``95 s``, ``12 min``, ``31 h``."""
    unit, words = (1, "s") if seconds < 120 else (60, "min") if seconds < 7200 else (3600, "h")
    value = seconds / unit
    return f"{value:,.1f} {words}" if value < 10 else f"{value:,.0f} {words}"


def versions(results: Results) -> dict[str, dict[str, str]]:
    """Return versions and hardware of training, of the benchmarks, and of this page."""
    journal = results.journal(results.config.evaluation.pair[0])
    named = ("scsigmoid", "python", "torch", "cuda", "numpy", "device", "backend")
    found = {"Training": {key: journal.header[key] for key in named if key in journal.header}}
    for benchmark in () if is_own(results) else ("kernel", "training"):
        machine = {key: str(value) for key, value in results.machine(benchmark).items() if value}
        found[f"{benchmark.capitalize()} benchmark"] = machine
    return found | {"This page": environment()}


def environment() -> dict[str, str]:
    """Return the machine and the package versions that made the page."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = {
        "system": platform.platform(),
        "cpu": cpu_name(),
        "cpu_cores": str(os.cpu_count() or ""),
        "memory": f"{memory:.1f} GiB",
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
