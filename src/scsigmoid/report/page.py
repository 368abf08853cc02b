"""The report: a self-contained HTML page with figures, tables, settings and versions."""

import base64
import platform
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from scsigmoid.config.check import as_yaml, model_training
from scsigmoid.errors import UserError
from scsigmoid.files import parsing, write_text
from scsigmoid.kernels import version_of
from scsigmoid.paper.number import INCONCLUSIVE, NOT_REPRODUCED, REPRODUCED
from scsigmoid.paper.reported import reported
from scsigmoid.report import registry
from scsigmoid.report.figures.training_figures import covered_share
from scsigmoid.report.summary import first_sentences, read_records
from scsigmoid.report.tables.quality_tables import donor_scores
from scsigmoid.report.tables.writing import DASH, Table, read_markdown, visible
from scsigmoid.results.folder import EXPECTED_CONTENT, Results
from scsigmoid.results.labels import model_label

if TYPE_CHECKING:
    from markupsafe import Markup

#: Tables with more rows than this, or without rows, are collapsed when the page opens.
MAXIMUM_OPEN_ROWS = 16
#: Suffixes of the files of each figure and table. The page has links to these files.
SUFFIXES = {"figure": ("pdf", "png", "txt"), "table": ("csv", "md")}
#: Packages whose versions the page lists.
PACKAGES = (
    "snakemake", "torch", "triton", "numpy", "pyarrow", "scanpy", "anndata", "scib-metrics",
    "scikit-learn", "umap-learn", "matplotlib",
)  # fmt: skip
#: Note of the table of scIB scores in the report on the user's own cells.
ONE_RUN = (
    "Each score is from a single run of training. A study with several seeds gives the spread over "
    "seeds of training and the interval of the difference."
)


def make_report(results: Results, output: str | Path) -> None:
    """Write the report page. Its links are relative to the results folder."""
    from jinja2 import Environment

    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=finalize
    )
    environment.globals["breakable"] = breakable
    template = files("scsigmoid.report").joinpath("page.html").read_text(encoding="utf-8")
    write_text(output, environment.from_string(template).render(content(results)))


def finalize(value: Any) -> Any:
    """Remove invisible characters from a text that the template prints."""
    # The output of macros has __html__. Its texts were finalized inside the macro.
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def breakable(text: str) -> "Markup":
    """Return escaped text whose lines can break after a dot or underscore between letters."""
    from markupsafe import Markup, escape

    escaped = str(escape(visible(text)))
    return Markup(re.sub(r"(?<=[a-z\d][._])(?=[a-z])", "<wbr>", escaped, flags=re.IGNORECASE))


def content(results: Results) -> dict[str, Any]:
    """Return the variables of the template ``page.html``."""
    plan = results.plan
    tables = {name: table_file(results, name) for name in registry.names("table", plan)}
    sections = own_sections if plan.is_own else paper_sections
    return {
        "paper": reported()["source"],
        "own": plan.is_own,
        "conclusion": conclusion(results),
        "overview": overview(results),
        "simulated": simulated_data(results),
        "compared": "" if plan.is_own else comparison_sentence(results),
        "sections": sections(results, tables),
        "provenance": provenance(results),
        "configuration": as_yaml(results.config),
    }


def conclusion(results: Results) -> str:
    """Return the first sentences, and the reason if ``training.initial`` was rejected."""
    scores = table_rows(results, "scib")
    from_scratch = results.config.choices.get("training.initial")
    note = f"training.initial: {from_scratch}." if from_scratch else ""
    with parsing(results.path("tables/scib.csv"), EXPECTED_CONTENT):
        texts = first_sentences(scores, results.plan), note
    return " ".join(filter(None, texts))


def table_file(results: Results, name: str) -> Table:
    """Return a table as its job wrote it."""
    return results.cached(f"tables/{name}.md", lambda path: read_markdown(path.read_text("utf-8")))


def table_rows(results: Results, name: str) -> pd.DataFrame:
    """Return the rows of a table's CSV file."""

    def read(path: Path) -> pd.DataFrame:
        if not path.read_bytes().endswith(b"\n"):
            raise ValueError("its last line is incomplete")
        return read_records(path)

    return results.cached(f"tables/{name}.csv", read)


def count_verdicts(results: Results) -> dict[str, int]:
    """Return how many of the paper's numbers have each verdict, {} if the run has no verdicts."""
    rows = table_rows(results, "comparison")
    with parsing(results.path("tables/comparison.csv"), EXPECTED_CONTENT):
        all_verdicts = rows["verdict"].tolist()
    possible = (REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE)
    counts = {verdict: all_verdicts.count(verdict) for verdict in possible}
    return counts if any(counts.values()) else {}


def comparison_sentence(results: Results) -> str:
    """Return a sentence that counts the verdicts, or says that the run cannot be compared."""
    if counts := count_verdicts(results):
        texts = [f"{count} {verdict}" for verdict, count in counts.items()]
        return f"The paper's numbers: {', '.join(texts)}."
    run = "A demo" if results.config.preset == "demo" else "This run"
    return f"{run} cannot be compared with the paper. The last table lists the differences."


def paper_sections(results: Results, tables: Mapping[str, Table]) -> list[dict[str, Any]]:
    """Return the sections of a run that is not on the user's own cells: figures, then tables."""
    items = [table_item(results, name, table) for name, table in tables.items()]
    if count_verdicts(results):
        # A comparison with verdicts comes first, and is open in spite of its many rows.
        items.sort(key=lambda item: item["name"] != "comparison")
        items[0]["is_collapsed"] = False
    return [
        {"id": "figures", "title": "Figures", "items": figure_items(results)},
        {"id": "tables", "title": "Tables", "items": items},
    ]


def own_sections(results: Results, tables: Mapping[str, Table]) -> list[dict[str, Any]]:
    """Return the section of the user's own cells, with items in the order of ``own_place``."""
    # A table without the key "files" is only on this page.
    cells = {"kind": "table", "name": "", "title": "Cells", "table": cells_table(results)}
    items = [cells, *figure_items(results)]
    for name, table in tables.items():
        is_collapsed = registry.find("table", name, results.plan).function == "mmd"
        if name == "scib":
            table = replace(table, notes=[*table.notes, ONE_RUN])
        items.append(table_item(results, name, table) | {"is_collapsed": is_collapsed})
        if name == "scib" and (donor_table := donor_scores(results)):
            title = "Biological conservation, by donor"
            item = {"kind": "table", "name": "scib_donors", "title": title, "table": donor_table}
            items.append(item | {"place": items[-1]["place"]})
    items.sort(key=lambda item: item.get("place", 0))  # keeps the order of equal places
    return [{"id": "cells", "title": "Your cells", "items": items}]


def data_url(results: Results, picture: str) -> str:
    path = results.path(picture)
    data = path.read_bytes()
    if not data.endswith(b"IEND\xaeB`\x82"):  # the last chunk of PNG files
        raise UserError(f"{path}: damaged (its end is missing); delete it and run again")
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def figure_items(results: Results) -> list[dict[str, Any]]:
    """Return the items of all figures, with their captions. Pictures are data URLs."""
    return [
        base_item(results, "figure", name)
        | {"caption": results.cached(f"figures/{name}.txt", lambda path: path.read_text("utf-8"))}
        | {"source": data_url(results, f"figures/{name}.png")}
        for name in registry.names("figure", results.plan)
    ]


def table_item(results: Results, name: str, table: Table) -> dict[str, Any]:
    is_collapsed = not 0 < len(table.rows) <= MAXIMUM_OPEN_ROWS
    return base_item(results, "table", name) | {"table": table, "is_collapsed": is_collapsed}


def base_item(results: Results, kind: str, name: str) -> dict[str, Any]:
    """Return the values that the template needs for a figure and for a table."""
    paths = [f"{kind}s/{name}.{suffix}" for suffix in SUFFIXES[kind]]
    for path in paths:
        results.path(path)  # raises an error if the file is missing
    entry = registry.find(kind, name, results.plan)
    item = {"kind": kind, "name": name, "title": entry.title, "files": paths}
    return item | {"place": entry.own_place}


def cells_table(results: Results) -> Table:
    config = results.config
    model = config.evaluation.pair[0]  # all models are evaluated on the same cells
    rows = [["Training", f"{results.training_cells:,}", *[DASH] * 4]]
    for name, entry in config.datasets.items():
        metadata = results.metadata(name)
        type_count = DASH  # if there are no UMAP files, which contain the cell types
        if name in results.plan.datasets_of("umap"):
            types = {*results.umap(name, model).cell_type} - {""}
            type_count = f"{len(types):,}"
        counts = [f"{metadata[key]:,}" for key in ("cells", "genes")]
        donors = str(results.donor_count(name, model) or DASH)
        rows.append([entry.title, *counts, donors, metadata["label"], type_count])
    note = (
        f"{results.excluded_cells:,} cells were not trained on because held-out cells or other "
        "training cells have the same counts. corpus/manifest.json lists them by file."
    )
    return Table(
        caption="Number of training cells, and of the held-out cells, genes, donors and cell types "
        "of each dataset. Label is the column with the cell types.",
        header=("Dataset", "Cells", "Genes", "Donors", "Label", "Cell types"),
        rows=rows,
        align="lrrrlr",
        notes=[note] if results.excluded_cells else [],
    )


def overview(results: Results) -> dict[str, str]:
    config, models = results.config, reported_models(results)
    all_sizes = [config.size_of(name) for name in models]
    sizes = dict.fromkeys(f"{size.layers} layers, width {size.hidden}" for size in all_sizes)
    # With the user's own cells, presets except "own" give only settings.
    is_settings_only = results.plan.is_own and config.preset != "own"
    return {
        "Preset": config.preset + (" (settings only)" if is_settings_only else ""),
        "Corpus": f"{results.training_cells:,} training cells (source: {config.corpus.source})",
        "Evaluation": f"{len(config.datasets)} dataset{'s' * (len(config.datasets) > 1)}, "
        f"{sum(results.metadata(name)['cells'] for name in config.datasets):,} cells",
        "Models": f"{len(models)} model{'s' * (len(models) > 1)} of {' and '.join(sizes)}; scored: "
        + ", ".join(model_label(config, name) for name in config.evaluation.pair),
        "Cells longer than the context": longer_cells(results),
        "Training": training_lengths(results),
        "Device": of_headers(results).get("device", "unknown"),
        "Seed": str(config.seed),
    }


def reported_models(results: Results) -> list[str]:
    """Return the models of the report. On own cells, only a named target runs the stress test."""
    plan = results.plan
    return plan.evaluated_models if plan.is_own else [*results.config.models]


def of_headers(results: Results) -> dict[str, str]:
    """Return versions and hardware of training by name: all values, if models differ."""
    headers = [results.journal(name).header for name in reported_models(results)]
    keys = ("scsigmoid", "python", "torch", "cuda", "numpy", "device", "backend")
    values = {
        key: dict.fromkeys(header[key] for header in headers if key in header) for key in keys
    }
    return {key: ", ".join(different) for key, different in values.items() if different}


def training_lengths(results: Results) -> str:
    """Return the steps of the models and their cells per step, as text."""
    labels: dict[str, list[str]] = {}  # of models by text
    for model in reported_models(results):
        steps = int(results.journal(model)["step"][-1])
        text = f"{steps:,} steps of {model_training(results.config, model).global_batch:,} cells"
        labels.setdefault(text, []).append(model_label(results.config, model))
    if len(labels) == 1:
        return next(iter(labels))
    return ", ".join(f"{text} ({', '.join(models)})" for text, models in labels.items())


def longer_cells(results: Results) -> str:
    """Return the share of training cells with more genes than fit in each context, as text."""
    cls = results.config.tokens.cls  # <cls> takes one place
    return ", ".join(
        f"{100 - 100 * covered_share(*results.lengths, context - cls):.1f} % at {context:,} tokens"
        for context in sorted({results.config.models[x].context for x in reported_models(results)})
    )


def simulated_data(results: Results) -> str:
    """Return a sentence on simulated cells, or "" if there are none."""
    if results.config.corpus.source != "embedded":
        return ""
    return (
        "The datasets named simulated, and all training cells except those of PBMC 68k, are "
        "simulated: their numbers show that the workflow runs and say nothing about biology."
    )


def provenance(results: Results) -> dict[str, dict[str, str]]:
    """Return automatic settings, versions and hardware: for each title, values by name."""
    facts = {
        "Settings that were auto, with the reason": dict(results.config.choices),
        "Training": of_headers(results),
    }
    for benchmark in () if results.plan.is_own else ("kernel", "training"):
        machine = {key: str(value) for key, value in results.machine(benchmark).items() if value}
        facts[f"{benchmark.capitalize()} benchmark"] = machine
    packages = {name: version_of(name) for name in PACKAGES if version_of(name)}
    system = {"system": platform.platform(), "python": platform.python_version()}
    facts["This page"] = system | packages
    return {title: values for title, values in facts.items() if values}
