"""Update tables and figures of the pages benchmarks, reproduction, preregistration and evaluation.

    python docs/measurements/scripts/benchmarks_page.py docs

The tables are made from docs/measurements, and replace the text between ``<!-- table NAME -->`` and
``<!-- end -->``. docs/measuring.md describes the measurements.
"""

import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scsigmoid.benchmarks.rows import KernelRow, TrainingRow, median_interval, read_rows
from scsigmoid.config.check import check, read_yaml
from scsigmoid.files import atomic_path, write_text
from scsigmoid.paper.reported import reported
from scsigmoid.report.figures.benchmark_figures import looks
from scsigmoid.report.figures.style import DOUBLE, freeze_layout, new_figure, styled
from scsigmoid.report.tables.writing import DASH, as_markdown, fixed
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import PASSES, context_label, provider_label
from scsigmoid.results.speed import Cost, costs, paired_ratios
from scsigmoid.study import comparisons
from scsigmoid.study import figures as study_figures
from scsigmoid.study.runs import Study
from scsigmoid.study.tables import difference_text, tables

# Kernels with their layout: ours, all softmax kernels, other sigmoid kernels. "" means any layout.
OURS = (("hopper", "packed"), ("hopper_accurate", "packed"), ("triton", "packed"))
SOFTMAX = (("fa4", "packed"), ("cudnn", "padded"), ("sdpa", "packed"), ("flash_attention_2", ""))
SOFTMAX += (("flex", "packed"), ("flex", "padded"))
OTHER_SIGMOID = (("flash_sigmoid", "padded"), ("triton_sigmoid", "padded"))
#: Color, marker and label of each kernel, in the order of the tables.
LOOKS = looks(
    {key: "softmax" if key in SOFTMAX else "sigmoid" for key in (*OURS, *SOFTMAX, *OTHER_SIGMOID)}
)
DATASETS = {"pbmc_facs": "Blood cells", "lung_cell_lines": "Lung cancer cell lines"}
# Folders of studies in docs/measurements.
ARMS, VARIANTS, EMBEDDINGS = "h200/arms", "h100/variants", "h100/embeddings"
WAYS = ("plain", "graphs")  # column `way`: training steps without and with CUDA graphs
#: Rows of the kernel benchmark by shape: (head dimension, batch, length, pass).
RowsByShape = dict[tuple[object, ...], KernelRow]
#: Rows of the kernel benchmark by (kernel, layout).
RowsByKernel = dict[tuple[str, str], RowsByShape]


def read(folder: Path, name: str) -> pd.DataFrame:
    """Read a file of measurements. Empty text fields become empty strings."""
    table = pd.read_csv(folder / name)
    text_columns = table.select_dtypes(exclude="number").columns
    return table.fillna(dict.fromkeys(text_columns, ""))


def read_kernels(path: Path, *, padded: bool = False) -> RowsByKernel:
    """Read the timed rows of a kernel benchmark, either with padding (``padded``) or without.

    For a kernel with any layout, the first row of each shape is kept.
    """
    kernels: RowsByKernel = {key: {} for key in LOOKS}
    for row in read_rows(path, KernelRow):
        shape = (row.head_dimension, row.batch, row.length, row.direction)
        for key in ((row.provider, row.layout), (row.provider, "")):
            if key in kernels and row.milliseconds > 0 and (row.padding > 0) == padded:
                kernels[key].setdefault(shape, row)
    return {key: rows for key, rows in kernels.items() if rows}


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. All columns but the first are centered."""
    lines = [header, ["---", *[":-:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def number(value: float, digits: int | None = 0) -> str:
    """Return a number with ``digits`` decimals (None: at most six digits), or a dash for NaN."""
    return f"{value:,g}" if digits is None else fixed(value, digits)


def span(row: pd.Series, column: str, digits: int | None = 0) -> str:
    """Return ``1.5 [1.2 to 1.9]`` from ``<column>``, ``<column>_low`` and ``<column>_high``.

    Return only the range if the value is NaN, and only the value if an end is NaN or missing.
    """
    ends = [row.get(f"{column}{suffix}", np.nan) for suffix in ("_low", "_high")]
    value = number(row.get(column, np.nan), digits)
    if np.isnan(ends).any():
        return value
    # The dictionary removes the second end if both are the same text.
    range_text = " to ".join(dict.fromkeys(number(end, digits) for end in ends))
    return range_text if value == DASH else f"{value} [{range_text}]"


def rows_table(rows: pd.DataFrame, columns: dict[str, tuple[str, int | None]]) -> str:
    """Return a table of all rows of a file of measurements.

    ``columns`` contains, for each heading, the column of the file and the number of decimals (see
    :func:`number`). Text is copied.
    """
    lines = []
    for _, row in rows.astype(object).iterrows():
        line = []
        for name, digits in columns.values():
            is_text = isinstance(row.get(name), str)
            line.append(row[name] if is_text else span(row, name, digits))
        lines.append(line)
    return markdown(list(columns), lines)


def kernel_table(kernels: RowsByKernel, *pairs: tuple[tuple[str, str], tuple[str, str]]) -> str:
    """Return TFLOPS (forward/backward) by kernel and shape, and ratios for pairs of kernels.

    The ratio of a pair is the first kernel's TFLOPS divided by the second kernel's.
    """
    shapes = {shape for rows in kernels.values() for shape in rows}
    batches = [("paper", length) for length in (512, 2048, 8192, 16384)]
    batches += sorted({(batch, length) for _, batch, length, _ in shapes if batch == "jagged"})
    headings = [f"{length:,}" if batch == "paper" else "cells" for batch, length in batches]
    columns, titles = [], []  # a column is (head dimension, batch, length)
    for dimension in (64, 128):
        columns += [(dimension, *batch) for batch in batches]
        titles += [f"D {dimension}: {headings[0]}", *headings[1:]]
    lines = []
    for key, rows in kernels.items():
        line = [LOOKS[key]["label"]]
        for column in columns:
            timed = [rows.get((*column, direction)) for direction in PASSES]
            line.append(slashed([row.tflops if row else np.nan for row in timed], 0))
        lines.append(line)
    for first, second in pairs:
        line = [f"**{LOOKS[first]['label']} over {LOOKS[second]['label']}**"]
        ours, theirs = kernels[first], kernels[second]
        for column in columns:
            ratios = [kernel_ratio(ours, theirs, (*column, direction)) for direction in PASSES]
            line.append(f"**{slashed(ratios, 2)}**")
        lines.append(line)
    return markdown(["kernel", *titles], lines)


def slashed(pair: Sequence[float], digits: int) -> str:
    """Return ``forward/backward`` as text, or a dash if both values are NaN (not timed)."""
    return DASH if np.isnan(pair).all() else "/".join(number(value, digits) for value in pair)


def kernel_ratio(ours: RowsByShape, theirs: RowsByShape, shape: tuple[object, ...]) -> float:
    """Return our TFLOPS divided by theirs, as the median over the rounds that timed both kernels.

    Return NaN if a kernel was not timed at this shape.
    """
    if shape not in ours or shape not in theirs:
        return np.nan
    return float(np.median(paired_ratios(ours[shape], theirs[shape])))


def kernel_figure(kernels: RowsByKernel) -> Figure:
    """Draw TFLOPS by sequence length, in one panel for each head dimension (rows) and pass."""
    figure = new_figure(DOUBLE, 4.6)
    grid = figure.subplots(2, 2, sharex=True)
    all_rows = [row for rows in kernels.values() for row in rows.values()]
    lengths = sorted({row.length for row in all_rows if row.batch == "paper"})
    for panels, dimension in zip(grid, (64, 128), strict=True):
        for axes, direction in zip(panels, PASSES, strict=True):
            for key, rows in kernels.items():
                # Lines have a gap at lengths that were not measured. Single points are on top.
                tflops = [
                    getattr(rows.get((dimension, "paper", length, direction)), "tflops", np.nan)
                    for length in lengths
                ]
                width = 2.0 if key[0] == "hopper" else 1.2
                marks = {"ms": 5, "zorder": 3} if np.isnan(tflops).any() else {"ms": 3}
                axes.plot(lengths, tflops, lw=width, **marks, **LOOKS[key])
            axes.set_xscale("log", base=2)
            axes.set_xticks(lengths, [context_label(length) for length in lengths])
            axes.set_title(f"{direction.capitalize()}, head dimension {dimension}")
            axes.set_ylim(bottom=0)
    for axes in grid[:, 0]:
        axes.set_ylabel("TFLOPS")
    for axes in grid[-1]:
        axes.set_xlabel("Sequence length (tokens)")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure


def speed_ups_table(rows: pd.DataFrame) -> str:
    """Return the paper's mean ratios of TFLOPS over its twelve shapes, and the same ratios here.

    ``rows`` are the rows of a kernel benchmark. A ratio is the mean of the ratios of medians at the
    shapes that both kernels have.
    """
    rows = rows[(rows["batch"] == "paper") & (rows["milliseconds"] > 0)]
    shape = ["head_dimension", "length"]

    def tflops(provider: str, padding: float, direction: str) -> pd.Series:
        of_kernel = rows[rows["provider"] == provider].sort_values("layout")  # packed, then padded
        selected = of_kernel[(of_kernel["padding"] == padding) & (of_kernel["pass"] == direction)]
        first = "packed" if provider == OURS[0][0] else "padded"
        ordered = selected.sort_values("layout", key=lambda layout: layout != first, kind="stable")
        return ordered.groupby(shape)["tflops"].first()

    def ratios(provider: str, other: str, padding: float) -> list[pd.Series]:
        pairs = [(tflops(provider, padding, way), tflops(other, padding, way)) for way in PASSES]
        return [(own / others).dropna() for own, others in pairs]

    def text(values: Sequence[float], digits: int = 2) -> str:
        return f"{slashed(values, digits)} x"

    reported_numbers = reported()
    printed: dict[tuple[str, float], dict[str, float]] = {}
    for row in reported_numbers["speed_ups"]:
        printed.setdefault((row["provider"], row["padding"]), {})[row["pass"]] = row["mean"]
    ours, theirs = OURS[0][0], OTHER_SIGMOID[1][0]
    table = []
    for (provider, padding), means in printed.items():
        here = ratios(provider, "pytorch", padding)
        own = ratios(ours, "pytorch", padding) if provider == theirs else None
        table.append(
            [f"{provider_label(provider)} over standard PyTorch, {padding * 100:g} % padding",
             text([means[way] for way in PASSES]), text([ratio.mean() for ratio in here]),
             text([ratio.mean() for ratio in own]) if own else "", str(min(map(len, here)))]
        )  # fmt: skip
    gains = {row["pass"]: 1 + row["value"] / 100 for row in reported_numbers["padded_gains"]}
    here, own = (ratios(name, "flash_attention_2", 0.25) for name in (theirs, ours))
    table.append(
        [f"{provider_label(theirs)} over FlashAttention-2, 25 % padding",
         text([gains[way] for way in PASSES]), text([ratio.mean() for ratio in here]),
         text([ratio.mean() for ratio in own]), str(min(map(len, here)))]
    )  # fmt: skip
    left = {row["pass"]: 1 - row["decrease"] / 100 for row in reported_numbers["padding_overhead"]}

    def share(provider: str) -> list[float]:
        means = [[tflops(provider, padding, way).mean() for padding in (0.25, 0)] for way in PASSES]
        return [padded / unpadded for padded, unpadded in means]

    table.append(
        [f"{provider_label(theirs)}, TFLOPS with 25 % padding over without",
         text([left[way] for way in PASSES], 3), text(share(theirs), 3), text(share(ours), 3), "12"]
    )  # fmt: skip
    header = ["forward/backward", "paper", "here", "our Hopper kernel instead", "shapes"]
    return markdown(header, table)


def training_rows(rows: list[TrainingRow], key: tuple[str, str]) -> dict[str, TrainingRow]:
    """Return the timed training rows of a kernel, by size and context as text ("160M, 4K")."""
    timed = [row for row in rows if (row.kernel, row.layout) == key and row.rounds]
    timed.sort(key=lambda row: (row.parameters, row.context))
    return {f"{row.size}, {context_label(row.context)}": row for row in timed}


def training_table(runs: Mapping[str, list[TrainingRow]], digits: int = 0) -> str:
    """Return cells/s by kernel, run, size and context, and our cells/s divided by the kernel's.

    ``runs`` contains rows by the prefix of their heading. Rows bound by the host are marked *.
    """
    lines = []
    ours_by_run = {prefix: training_rows(rows, OURS[0]) for prefix, rows in runs.items()}
    for key, look in LOOKS.items():
        cells = []
        for prefix, rows in runs.items():
            timed = training_rows(rows, key)
            for column, ours in ours_by_run[prefix].items():
                text = DASH
                if row := timed.get(column):
                    text = number(row.cells_per_second, digits)
                    if row.host_bound:
                        text += " \\*"
                    if row is not ours:
                        text += f" ({np.median(ours.over(row)):.2f} x)"
                cells.append(text)
        if set(cells) != {DASH}:
            lines.append([look["label"], *cells])
    titles = [prefix + column for prefix, columns in ours_by_run.items() for column in columns]
    return markdown(["kernel", *titles], lines)


def sizes_table(costs: list[Cost]) -> str:
    """Return cells/s of both arms by size and context, and the speed-up, or * if host-bound."""
    sizes = list(dict.fromkeys(cost.size for cost in costs))
    lines = []
    for context in sorted({cost.context for cost in costs}):
        cells = [context_label(context)]
        for cost in (cost for cost in costs if cost.context == context):
            arms = (cost.sigmoid, cost.softmax)
            rates = " / ".join(number(arm.cells_per_second, 1) for arm in arms)
            speed_up = 1 / cost.hours_ratio.value
            is_host_bound = any(arm.host_bound for arm in arms)
            cells.append(f"{rates} \\*" if is_host_bound else f"{rates}, **{speed_up:.2f} x**")
        lines.append(cells)
    return markdown(["context", *sizes], lines)


def small_table(rows: pd.DataFrame) -> str:
    """Return milliseconds of a small step without and with CUDA graphs, and ratios of the times."""
    lines = []
    for (context, tokens), group in rows.groupby(["context", "tokens"]):
        # One row per round, columns by arm and way of launching the step (WAYS).
        times = group.pivot(index="round", columns=["arm", "way"], values="milliseconds")
        cells = [context_label(context), number(tokens)]
        for arm in ("sigmoid", "sdpa"):
            cells.append(" / ".join(number(times[arm, way].median(), 1) for way in WAYS))
        cells += [ratio_text(times["sdpa", way] / times["sigmoid", way], 2) for way in WAYS]
        lines.append(cells)
    titles = ["sigmoid (ours)", "softmax, SDPA", "softmax over sigmoid: kernels", "CUDA graph"]
    return markdown(["context", "tokens per step", *titles], lines)


def pairs_table(rows: list[TrainingRow]) -> str:
    """Return cells/s of our kernel and of FlashAttention-4, and their ratio, paired by round."""
    ours, theirs = (training_rows(rows, key) for key in (OURS[0], SOFTMAX[0]))
    lines = []
    for name in ours:
        rates = (number(row.cells_per_second, 1) for row in (ours[name], theirs[name]))
        lines.append([name, *rates, ratio_text(ours[name].over(theirs[name]), 3)])
    return markdown(["model, context", "sigmoid (ours)", "FlashAttention-4", "ratio"], lines)


def ratio_text(ratios: Iterable[float], digits: int) -> str:
    """Return the median of ratios with its 95 % interval as text."""
    value, low, high = (number(end, digits) for end in median_interval([*ratios], 0.95))
    return f"{value} x [{low} to {high}]"


def seeds_table(rows: pd.DataFrame) -> str:
    """Return scores of both arms and of the controls, and the difference of the arms."""

    def spread(row: pd.Series, name: str) -> str:
        value = number(row[name], 3)
        return value if value == DASH else f"{value} ± {number(row[f'{name}_deviation'], 3)}"

    lines = []
    for _, row in rows[rows["metric"].isin(["leiden_nmi", "bio_conservation", "mmd"])].iterrows():
        names = ("sigmoid_2k", "softmax_2k", "random", "pca_log_counts")
        scores = [spread(row, name) for name in names]
        labels = (study_figures.TITLES[row["metric"]], DATASETS[row["dataset"]])
        lines.append([*labels, *scores, span(row, "difference", 3)])
    header = ["", "cells", "sigmoid", "softmax", "random", "PCA", "sigmoid minus softmax"]
    return markdown(header, lines)


def host_table(rows: pd.DataFrame) -> str:
    """Return microseconds of eager calls, of our kernel before and after and of the others.

    The time of the host is the best of all rounds, of whole calls the median.
    """
    first, last = rows["commit"].unique()
    columns = {
        "ours before": ("scsigmoid", [first]),
        "ours": ("scsigmoid", [last]),
        "FlashAttention-4": ("fa4", [first, last]),
        "FlashAttention-2 (`varlen_attn`)": ("varlen_attn", [first, last]),
    }
    lines = []
    for (batch, kind), group in rows.groupby(["batch", "kind"], sort=False):
        line = [f"{batch}, {'host' if kind == 'host' else 'whole call'}"]
        for kernel, commits in columns.values():
            of_kernel = group[(group["kernel"] == kernel) & group["commit"].isin(commits)]
            times = of_kernel.groupby("part")["microseconds"]
            time = times.min() if kind == "host" else times.median()
            line.append(slashed([time["forward"], time["forward and backward"]], 0))
        lines.append(line)
    return markdown(["", *columns], lines)


def options_table(rows: pd.DataFrame) -> str:
    """Return median microseconds of calls of our kernels with other head dimensions and options."""
    times = rows.pivot(index="kernel", columns="part", values="microseconds")
    lines = [
        [case, *(number(times.loc[case, part]) for part in ("forward", "forward and backward"))]
        for case in rows["kernel"].unique()
    ]
    return markdown(["", "forward", "forward and backward"], lines)


def embedding_table(rows: pd.DataFrame) -> str:
    """Return cells per second on several GPUs. The rate of one GPU is the mean of its readings."""
    rate = rows[rows["how"] != "waits for each batch"].groupby("devices")["cells_per_second"].mean()
    lines = [
        [str(devices), number(cells), number(cells / rate[1] / devices, 2)]
        for devices, cells in rate.items()
    ]
    return markdown(["H200s", "cells/s", "efficiency"], lines)


def benchmark_tables(measurements: Path) -> dict[str, str]:
    """Return the tables of docs/benchmarks.md by name, made from the files in docs/measurements."""
    h100, h200, cpu = (measurements / name for name in ("h100", "h200/benchmarks", "cpu"))
    first_run, second_run = (
        read_rows(h200 / name, TrainingRow) for name in ("training_fa4.csv", "training.csv")
    )
    two_cells = read_rows(h100 / "training_2_cells.csv", TrainingRow)
    sizes = read_rows(h100 / "training_sizes.csv", TrainingRow)
    config = check(read_yaml(measurements / "h200/config.yaml"))
    evaluation = read(cpu, "evaluation.csv")
    is_part = evaluation["what"].str.startswith("its ")  # a part of the step in the row above
    pairs = [(key, SOFTMAX[0]) for key in OURS[:2]]  # our Hopper kernels, and FlashAttention-4

    def of_cells(rows: list[TrainingRow], cells: int) -> list[TrainingRow]:
        return [row for row in rows if row.cells_per_step == cells]

    return {
        "kernels_h100": kernel_table(read_kernels(h100 / "kernel.csv"), *pairs),
        "padding_h100": kernel_table(read_kernels(h100 / "kernel.csv", padded=True)),
        "speed_ups_h100": speed_ups_table(read(h100, "kernel.csv")),
        "training_h100": training_table({"": read_rows(h100 / "training.csv", TrainingRow)}),
        "two_cells_h100": training_table({"": two_cells}),
        "pairs_h100": pairs_table(two_cells + sizes),
        "kernels": kernel_table(read_kernels(h200 / "kernel_fa4.csv"), *pairs),
        "padding": kernel_table(read_kernels(h200 / "kernel.csv", padded=True)),
        "training": training_table(
            {"first run: ": of_cells(first_run, 16), "second run: ": of_cells(second_run, 16)}
        ),
        "scaling": rows_table(
            read(h200, "scaling.csv"),
            {"H200s": ("processes", 0), "cells/s": ("cells_per_second", 0),
             "efficiency": ("efficiency", 3), "MFU": ("mfu", 3),
             "share of time waiting for data": ("data_wait", 4),
             "GB per GPU": ("peak_memory_gb", 1)},
        ),
        "host_time": host_table(read(h100, "host_time.csv")),
        "options": options_table(read(h100, "options.csv")),
        "embedding_gpus": embedding_table(read(measurements, "h200/several_gpus/embedding.csv")),
        "sizes": sizes_table(costs(Results(measurements / "h200", config))),
        "small": small_table(read(h200, "small_steps.csv")),
        "small_fa4": pairs_table(of_cells(first_run, 2)),
        "tokens": rows_table(
            read(cpu, "tokens.csv"),
            {"file": ("file", 0), "pass": ("step", 0), "cells/s": ("cells_per_second", 0),
             "million counts/s": ("million_counts_per_second", 1), "GB": ("memory_gb", 1)},
        ),
        "loading": rows_table(
            read(cpu, "loading.csv"),
            {"workers": ("workers", 0), "cells/s": ("cells_per_second", 0),
             "cells/s per busy core": ("cells_per_core_second", 0)},
        ),
        "evaluation": rows_table(
            evaluation[~is_part],
            {"": ("what", 0), "machine": ("machine", 0), "runs": ("runs", 0),
             "seconds": ("seconds", None), "CPU seconds": ("cpu_seconds", 0)},
        ),
    }  # fmt: skip


def study_tables(measurements: Path) -> dict[str, str]:
    """Return the tables of docs/reproduction.md by name, with their captions."""
    texts = {}
    of_variants = tables(Study(measurements / VARIANTS))
    shown = {name: of_variants[name] for name in ("variants", "rivals", "scores")}
    shown["replication"] = tables(Study(measurements / EMBEDDINGS))["scores"]
    for name, table in (tables(Study(measurements / ARMS)) | shown).items():
        caption, body = as_markdown(table).split("\n", 1)
        texts[name] = f"{textwrap.fill(caption, 128)}\n{body}"
    return texts | {"real_cells": seeds_table(read(measurements / "h200", "real_cells_seeds.csv"))}


#: Representations without a model in the tables of models of blood cells.
REPRESENTATIONS = {
    "pca_50": "50 principal components of log counts",
    "pca_384": "384 principal components of log counts",
    "variable_genes": "log counts of 2,000 variable genes",
    "random": "random, 384 dimensions",
}
#: Studies in these tables, and metrics with their titles.
STUDIES = {"pbmc_3k": "PBMC 3k", "nsclc_blood_scgate": "NSCLC"}
TYPE_METRICS = {"logistic": "logistic", "knn": "neighbors", "leiden_nmi": "Leiden NMI"}
TRANSFER_METRICS = {"logistic_accuracy": "logistic", "neighbors_accuracy": "neighbors"}
MIXING_METRICS = {"ilisi": "iLISI", "graph_connectivity": "connectivity"}


#: Methods in the table of predicted types.
METHODS = {
    "logistic": "`blood`, logistic",
    "neighbors": "`blood`, neighbors",
    "pca_logistic": "50 components, logistic",
    "pca_neighbors": "50 components, neighbors",
    "celltypist": "CellTypist",
}


def blood_tables(scores: pd.DataFrame) -> dict[str, str]:
    """Return the tables of scores of models of blood cells, by name."""
    keys = ["representation", "study", "reference", "metric"]
    by_place = scores.groupby(keys)["value"]
    means, deviations = by_place.mean(), by_place.std()
    first, second = STUDIES
    within = [(study, "", metric) for study in STUDIES for metric in TYPE_METRICS]
    across = [(second, first, metric) for metric in TRANSFER_METRICS]
    across += [(first, second, metric) for metric in TRANSFER_METRICS]
    across += [(second, first, metric) for metric in MIXING_METRICS]
    ways = (f"to {STUDIES[second]}", f"to {STUDIES[first]}")
    headers = {
        "blood": [
            f"{title}: {text}" for title in STUDIES.values() for text in TYPE_METRICS.values()
        ],
        "blood_transfer": [
            *(f"{way}: {text}" for way in ways for text in TRANSFER_METRICS.values()),
            *MIXING_METRICS.values(),
        ],
    }
    models = [name for name in scores["representation"].unique() if name not in REPRESENTATIONS]
    titles = {name: f"`{name}`" for name in models} | {
        name: title
        for name, title in REPRESENTATIONS.items()
        if name in set(scores["representation"])
    }

    def cell(*place: str) -> str:
        if place not in means:
            return number(np.nan)
        return f"{number(means[place], 3)} ± {number(deviations[place], 3)}"

    return {
        table: markdown(
            ["", *headers[table]],
            [[title, *(cell(name, *at) for at in places)] for name, title in titles.items()],
        )
        for table, places in (("blood", within), ("blood_transfer", across))
    }


def evaluation_tables(measurements: Path) -> dict[str, str]:
    """Return the tables of docs/evaluation.md by name."""
    annotation = read(measurements, "cpu/annotation.csv")
    accuracy = annotation.pivot(
        index=["reference", "query", "cells"], columns="method", values="accuracy"
    )
    annotated = [
        [f"`{reference}`", f"`{query}`", str(cells), *(number(row[name], 2) for name in METHODS)]
        for (reference, query, cells), row in accuracy.iterrows()
    ]
    coverage = read(measurements, "cpu/donor_coverage.csv")
    shares = coverage.pivot(index=["donors", "deviation"], columns="interval", values="coverage")
    order = ("donors", "clusters")
    covered = [
        [str(donors), f"{deviation:g}", *(f"{row[name] * 100:.1f} %" for name in order)]
        for (donors, deviation), row in shares.iterrows()
    ]
    header = ["donors", "standard deviation between donors", "Student's t over donor means"]
    return {
        **blood_tables(read(measurements, "cpu/blood_scores.csv")),
        "annotation": markdown(["reference", "query", "cells", *METHODS.values()], annotated),
        "donor_coverage": markdown([*header, "over cells, donors as clusters (CR1)"], covered),
    }


#: The three losses of a run that docs/preregistration.md compares: heading and definition.
LOSSES: dict[str, comparisons.Summary] = {
    "last step": lambda losses: float(losses.iloc[-1]),
    "median of the last three": comparisons.median_of_last_three,
    "mean of the last five": comparisons.mean_of_last,
}


def definitions_table(measurements: Path) -> str:
    """Return the differences of the loss by each definition of the loss of a run."""
    variants = Study(measurements / VARIANTS)
    lines: dict[str, list[str]] = {}
    for summary in LOSSES.values():
        for row in comparisons.variant_differences(variants, summary)[0].to_dict("records"):
            label = f"{row['attention']}, {row['variant']} minus plain"
            lines.setdefault(label, [label]).append(difference_text(row))
        for row in comparisons.rival_differences(variants, summary)[0].to_dict("records"):
            label = f"sigmoid, {row['variant']} minus softmax, qk_norm"
            text = f"{difference_text(row)}, p = {number(row['p'], 3)}"
            lines.setdefault(label, [label]).append(text)
        for step, name, studies in (
            (4000, "16 seeds", [EMBEDDINGS]),
            (4000, "26 seeds, post hoc", [ARMS, VARIANTS, EMBEDDINGS]),
            (16000, "5 seeds", [ARMS]),
        ):
            label = f"sigmoid minus softmax, step {step:,}, {name}"
            losses = plain_losses(measurements, studies, step, summary)
            (row,) = arm_rows(losses)
            lines.setdefault(label, [label]).append(difference_text(row))
    rows = [[cell.replace("_", "\\_") for cell in line] for line in lines.values()]
    return markdown(["difference of the loss, nats", *LOSSES], rows)


def plain_losses(
    measurements: Path, studies: Sequence[str], step: int, summary: comparisons.Summary
) -> pd.DataFrame:
    """Return the losses of the runs with the purpose ``seeds`` up to a step: seeds x arms."""
    tables = []
    for study in (Study(measurements / name) for name in studies):
        curves = study.curves[study.curves["purpose"] == "seeds"]
        keys = ["seed", "attention"]
        curves = curves[curves["step"] <= step]
        tables.append(comparisons.final_losses(curves, keys, summary).unstack("attention"))
    return pd.concat(tables)


def arm_rows(losses: pd.DataFrame) -> list[dict[str, float]]:
    """Return ``difference``, ``low`` and ``high`` of sigmoid minus softmax (one row)."""
    differences = (losses["sigmoid"] - losses["softmax"]).to_frame().T
    return comparisons.student_intervals(differences).to_dict("records")


def figures(measurements: Path) -> dict[str, Figure]:
    """Return the figures of the pages by file name."""
    arms, variants = Study(measurements / ARMS), Study(measurements / VARIANTS)
    return {
        "benchmark_kernels": kernel_figure(read_kernels(measurements / "h100/kernel.csv")),
        "study_loss": study_figures.loss_figure(arms),
        "study_frontier": study_figures.stability_figure(arms),
        "study_scale": study_figures.scale_figure(arms),
        "study_embeddings": study_figures.embeddings_figure(variants),
    }


def captions(measurements: Path) -> dict[str, str]:
    """Return the captions of the figures of studies by the name of the figure."""
    texts = {}
    for name, figure in figures(measurements).items():
        if name.startswith("study_"):
            caption = study_figures.CAPTIONS[name.removeprefix("study_")]
            texts[name] = f"{caption} {figure.get_label()}".strip()
    return texts


def fill_tables(text: str, tables: Mapping[str, str]) -> str:
    """Replace the text between ``<!-- table NAME -->`` and ``<!-- end -->`` by the table NAME."""
    return re.sub(
        r"(<!-- table (\w+) -->\n).*?(<!-- end -->)",
        lambda match: f"{match[1]}{tables[match[2]].rstrip()}\n\n{match[3]}",
        text, flags=re.S,
    )  # fmt: skip


def pages(docs: Path) -> dict[Path, str]:
    """Return the new text of the pages."""
    tables = {
        "benchmarks.md": benchmark_tables(docs / "measurements"),
        "reproduction.md": study_tables(docs / "measurements") | captions(docs / "measurements"),
        "preregistration.md": {"definitions": definitions_table(docs / "measurements")},
        "evaluation.md": evaluation_tables(docs / "measurements"),
    }
    texts = {name: (docs / name).read_text("utf-8") for name in tables}
    return {docs / name: fill_tables(text, tables[name]) for name, text in texts.items()}


def main(docs: Path) -> None:
    for path, text in pages(docs).items():
        write_text(path, text)
    with styled():
        for name, figure in figures(docs / "measurements").items():
            freeze_layout(figure)
            with atomic_path(docs / "images" / f"{name}.png") as temporary:
                figure.savefig(temporary, dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
