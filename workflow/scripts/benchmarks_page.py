"""Make docs/benchmarks.md, the tables of docs/reproduction.md and figures from docs/measurements.

    python workflow/scripts/benchmarks_page.py docs

docs/measuring.md says how the numbers were measured.
"""

import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scsigmoid.benchmarks.rows import (
    KernelRow,
    TrainingRow,
    median_interval,
    read_rows,
)
from scsigmoid.config.check import read_yaml
from scsigmoid.config.schema import Config
from scsigmoid.config.validate import typed
from scsigmoid.files import atomic_path
from scsigmoid.labels import METRICS, PASSES, context_label
from scsigmoid.report.figures.benchmarks import looks
from scsigmoid.report.figures.style import (
    DOUBLE,
    MUTED,
    PALETTE,
    new_figure,
    settle,
    styled,
)
from scsigmoid.report.tables.writing import DASH, Table, as_markdown
from scsigmoid.results.folder import Results
from scsigmoid.results.speed import Cost, costs, paired
from scsigmoid.study.figures import loss, scale, stability
from scsigmoid.study.runs import Study
from scsigmoid.study.tables import tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The kernels and layouts that are shown, ours first, then the strongest first; an empty layout is
# any.
SIGMOID = (("hopper", "packed"), ("hopper_accurate", "packed"), ("triton", "packed"))
SOFTMAX = (
    *(("fa4", "packed"), ("cudnn", "padded"), ("sdpa", "packed")),
    *(("flash_attention_2", ""), ("flex", "packed"), ("flex", "padded")),
)
OTHERS = (("flash_sigmoid", "padded"), ("triton_sigmoid", "padded"))
KERNELS = looks(
    {key: "softmax" if key in SOFTMAX else "sigmoid" for key in (*SIGMOID, *SOFTMAX, *OTHERS)}
)
DATASETS = {"pbmc_facs": "Blood cells", "lung_cell_lines": "Lung cancer cell lines"}
METRIC_NAMES = METRICS | {"mmd": "MMD, mean of the pairs"}
GRAPHS = ("plain", "graphs")  # how kernels of a small step were launched
Kernels = dict[tuple[str, str], dict[tuple[object, ...], KernelRow]]
PAGE = """\
# Benchmarks

How the speeds were measured: [measuring.md](measuring.md); the files: [measurements](measurements/README.md). The same
kernel differs between machines: compare within a table only. The first two tables: forward/backward.

## Attention kernels beside FlashAttention-4
Median TFLOPS on one H200 by sequence length: 16,384 tokens without padding, hidden size 2,048, bfloat16, head dimension
(D) 64 or 128. "Exact": `accurate=True`, our default beyond 8,192 keys; else the approximate tanh. "Cells": 8 sequences
of cells' lengths, up to 4,960 tokens; for cuDNN they are padded ([kernel_fa4.csv](measurements/h200/benchmarks/kernel_fa4.csv)).

{kernels}
![TFLOPS by sequence length](images/benchmark_kernels.png)

## Attention kernels with padding
As above, lengths from three quarters to the whole of the longest (the paper's "25 % padding"). Padding counts as no
work. FlashAttention-4 was not measured here ([kernel.csv](measurements/h200/benchmarks/kernel.csv)).

{padding}
![TFLOPS with padding](images/benchmark_padding.png)

## Training
Cells/s of a 160M model on one H200, 16 cells a step with the lengths of the paper's Fig. 1. In brackets: speed-up of our
Hopper kernel, the median over interleaved rounds. Two runs on two machines; 8K of the first on a third
([training_fa4.csv](measurements/h200/benchmarks/training_fa4.csv), [training.csv](measurements/h200/benchmarks/training.csv)).

{training}
![Cells per second](images/benchmark_training.png)

## Several GPUs
The training loop at 2K, global batch 256, one host ([scaling.csv](measurements/h200/benchmarks/scaling.csv)).

{scaling}
![Cells per second by GPUs, and the speed-up by model size](images/benchmark_scaling.png)

## Model sizes
Cells/s, 2 cells a step, without CUDA graphs: sigmoid (ours) / softmax by `varlen_attn`; FlashAttention-4: 160M alone, below.
\\* One waits for the host: no comparison of kernels ([training.csv](measurements/h200/benchmarks/training.csv)).

{sizes}
## Small steps
160M, 2 cells: ms a step, kernels one by one / as a CUDA graph ([small_steps.csv](measurements/h200/benchmarks/small_steps.csv)).

{small}
With CUDA graphs, cells/s of sigmoid (ours) / FlashAttention-4, and the median ratio over readings of the same cells
([training_fa4.csv](measurements/h200/benchmarks/training_fa4.csv)): {small_fa4}.

## From h5ad files to tokens
Rates per second of CPU time, one core ([tokens.csv](measurements/cpu/tokens.csv)).

{tokens}
## Data loader
At 2,048 tokens on two CPU cores, cells/s (for each busy core): {loading}.
An H200 trains {need} cells/s ([loading.csv](measurements/cpu/loading.csv)).

## Evaluation
Simulated embeddings of the paper's size ([evaluation.csv](measurements/cpu/evaluation.csv)).

{evaluation}"""  # noqa: E501
QUALITY = {
    "seeds": "Loss over the steps",
    "power": "Power",
    "scale": "Sizes",
    "variants": "Variants of sigmoid attention",
    "rates": "Learning rates",
    "largest_rates": "Stability",
    "frontier": "Stability by learning rate",
    "limits": "Collapsed runs by limit",
    "clipping": "Gradient clipping",
}
EMBEDDINGS = """\
## Embeddings after 3,000 steps, three seeds
Batches of 32; mean ± standard deviation; difference with Student's 95 % interval
([real_cells_seeds.csv](measurements/h200/real_cells_seeds.csv), which has further metrics). All other tables:
[runs.csv](measurements/h200/arms/runs.csv), [curves.csv](measurements/h200/arms/curves.csv),
[layers.csv](measurements/h200/arms/layers.csv).

"""  # noqa: E501
MARK = "<!-- The tables below are made by workflow/scripts/benchmarks_page.py. -->\n"


def read(folder: Path, name: str) -> pd.DataFrame:
    """A file of measurements; an empty field of text is an empty string."""
    table = pd.read_csv(folder / name)
    text = table.select_dtypes(exclude="number").columns
    return table.fillna(dict.fromkeys(text, ""))


def read_kernels(path: Path, *, padded: bool = False) -> Kernels:
    """The timings of a kernel benchmark, by (kernel, layout), then by (head dimension, batch,
    length, pass); those with padding, or those without.
    """
    found: Kernels = {key: {} for key in KERNELS}
    for row in read_rows(path, KernelRow):
        place = (row.head_dimension, row.batch, row.length, row.direction)
        for key in ((row.provider, row.layout), (row.provider, "")):
            if key in found and row.milliseconds > 0 and (row.padding > 0) == padded:
                found[key].setdefault(place, row)
    return {key: rows for key, rows in found.items() if rows}


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose columns are centred, but for the first."""
    lines = [header, ["---", *[":-:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def number(value: float, digits: int | None = 0) -> str:
    """A number, with as many decimals as the file has where None; a dash where there is none."""
    form = ",g" if digits is None else f",.{digits}f"
    return DASH if np.isnan(value) else f"{value:{form}}".replace("-", "\N{MINUS SIGN}")


def span(row: pd.Series, column: str, digits: int | None = 0) -> str:
    """A value with its range, from the columns ``<column>``, ``_low`` and ``_high``."""
    ends = [row.get(f"{column}{end}", np.nan) for end in ("_low", "_high")]
    middle = number(row.get(column, np.nan), digits)
    if np.isnan(ends).any():
        return middle
    both = " to ".join(dict.fromkeys(number(end, digits) for end in ends))
    return both if middle == DASH else f"{middle} [{both}]"


def listed(rows: pd.DataFrame, columns: dict[str, tuple[str, int | None]]) -> str:
    """A table of all rows.

    Args:
        rows: a file of measurements.
        columns: column and decimals by heading; a column of text is copied.
    """
    lines = [
        [row[name] if isinstance(row[name], str) else span(row, name, digits)
         for name, digits in columns.values()]
        for _, row in rows.astype(object).iterrows()
    ]  # fmt: skip
    return markdown(list(columns), lines)


def kernel_table(rows: Kernels, *rivalries: tuple[tuple[str, str], tuple[str, str]]) -> str:
    """TFLOPS forward / backward by kernel and shape, and ours over rivals."""
    places = {place[:3] for found in rows.values() for place in found}
    shapes = [("paper", length) for length in (512, 2048, 8192, 16384)]
    shapes += sorted({(batch, length) for _, batch, length in places if batch == "jagged"})
    columns = [(dimension, *shape) for dimension in (64, 128) for shape in shapes]
    lines = []
    for key, found in rows.items():
        at = [[found.get((*column, way)) for way in PASSES] for column in columns]
        cells = ([np.nan if row is None else row.tflops for row in both] for both in at)
        lines.append([KERNELS[key]["label"], *(slashed(both, 0) for both in cells)])
    for ours, theirs in rivalries:
        label, rival = (KERNELS[key]["label"] for key in (ours, theirs))
        ratios = [
            slashed([kernel_ratio(rows[ours], rows[theirs], (*column, way)) for way in PASSES], 2)
            for column in columns
        ]
        lines.append([f"**{label} over {rival}**", *(f"**{ratio}**" for ratio in ratios)])
    words = [
        f"D {dimension}: " * (shape == shapes[0])
        + ("cells" if shape[0] == "jagged" else f"{shape[1]:,}")
        for dimension in (64, 128)
        for shape in shapes
    ]
    return markdown(["kernel", *words], lines)


def slashed(both: Sequence[float], digits: int) -> str:
    """Forward / backward; a single dash where neither was timed."""
    return DASH if np.isnan(both).all() else "/".join(number(value, digits) for value in both)


def kernel_ratio(
    ours: dict[tuple[object, ...], KernelRow],
    theirs: dict[tuple[object, ...], KernelRow],
    place: tuple[object, ...],
) -> float:
    """TFLOPS of one kernel over another's, the median over the rounds that timed both."""
    if place not in ours or place not in theirs:
        return np.nan
    return float(np.median(paired(ours[place], theirs[place])))


def kernel_figure(rows: Kernels) -> "Figure":
    """TFLOPS over sequence length, one panel a pass and head dimension."""
    figure = new_figure(DOUBLE, 4.6)
    grid = figure.subplots(2, 2, sharex=True)
    every = [row for found in rows.values() for row in found.values() if row.batch == "paper"]
    lengths = sorted({row.length for row in every})
    for line, dimension in zip(grid, (64, 128), strict=True):
        for axes, way in zip(line, PASSES, strict=True):
            for key, found in rows.items():
                drawn = [
                    found[place]
                    for length in lengths
                    if (place := (dimension, "paper", length, way)) in found
                ]
                axes.plot(
                    [row.length for row in drawn],
                    [row.tflops for row in drawn],
                    markersize=3,
                    linewidth=2.0 if key[0] == "hopper" else 1.2,
                    **KERNELS[key],
                )
            axes.set_xscale("log", base=2)
            axes.set_xticks(lengths, [context_label(length) for length in lengths])
            axes.set_title(f"{way.capitalize()}, head dimension {dimension}")
            axes.set_ylim(bottom=0)
    for axes in grid[:, 0]:
        axes.set_ylabel("TFLOPS")
    for axes in grid[-1]:
        axes.set_xlabel("Sequence length (tokens)")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure


Runs = Sequence[list[TrainingRow]]


def training_rows(rows: list[TrainingRow], key: tuple[str, str]) -> dict[int, TrainingRow]:
    """A kernel's rows of the training benchmark that have a time, by context."""
    return {row.context: row for row in rows if (row.kernel, row.layout) == key and row.rounds}


def contexts_of(rows: list[TrainingRow]) -> list[int]:
    """The contexts of a run, ascending."""
    return sorted({row.context for row in rows})


def training_table(runs: Runs) -> str:
    """Cells/s by kernel, run and context, and the speed-up of our fastest kernel."""
    lines = []
    for key, look in KERNELS.items():
        cells = []
        for rows in runs:
            found, ours = training_rows(rows, key), training_rows(rows, SIGMOID[0])
            for context in contexts_of(rows):
                if context not in found:
                    cells.append(DASH)
                    continue
                row = found[context]
                ratio = f" ({np.median(ours[context].over(row)):.2f} x)"
                cells.append(number(row.cells_per_second) + (ratio if key != SIGMOID[0] else ""))
        if set(cells) != {DASH}:
            lines.append([look["label"], *cells])
    words = [
        f"{title}: " * (context == contexts_of(rows)[0]) + context_label(context)
        for rows, title in zip(runs, ("first run", "second run"), strict=True)
        for context in contexts_of(rows)
    ]
    return markdown(["kernel", *words], lines)


def training_figure(runs: Runs) -> "Figure":
    """Bars of cells/s with their intervals, one panel a run."""
    figure = new_figure(DOUBLE, 2.9)
    grid = figure.subplots(1, 2, sharey=True, width_ratios=[len(contexts_of(run)) for run in runs])
    labels = {}
    titles = ("With FlashAttention-4", "With the paper's padded stack")
    for axes, rows, title in zip(grid, runs, titles, strict=True):
        contexts = contexts_of(rows)
        keys = [key for key in KERNELS if training_rows(rows, key)]
        for place, key in enumerate(keys):
            found = list(training_rows(rows, key).values())
            middle = np.array([row.cells_per_second for row in found])
            low = np.array([row.cells_per_second_low for row in found])
            high = np.array([row.cells_per_second_high for row in found])
            labels[KERNELS[key]["label"]] = axes.bar(
                [
                    contexts.index(row.context) + (place + 0.5) / (len(keys) + 1) - 0.5
                    for row in found
                ],
                middle,
                0.9 / (len(keys) + 1),
                yerr=[middle - low, high - middle],
                color=KERNELS[key]["color"],
                error_kw={"elinewidth": 0.6},
            )
        axes.set_xticks(range(len(contexts)), [context_label(context) for context in contexts])
        axes.set_title(title)
        axes.set_xlabel("Context")
    grid[0].set_ylabel("Cells per second")
    figure.legend(labels.values(), labels.keys(), loc="outside upper center", ncols=3)
    return figure


def scaling_figure(rows: pd.DataFrame, found: list[Cost]) -> "Figure":
    """Cells/s over GPUs beside a linear gain, and sigmoid's rate over softmax's by size, where
    neither waits for the host.
    """
    figure = new_figure(DOUBLE, 2.3)
    left, right = figure.subplots(1, 2)
    ideal = rows["processes"] * rows["cells_per_second"].iloc[0]
    left.plot(rows["processes"], ideal, color=MUTED, linestyle=":", label="linear")
    left.plot(rows["processes"], rows["cells_per_second"], marker="o", color=PALETTE[0])
    left.set_xticks(rows["processes"])
    left.set_title("Sigmoid 2K, 160M: cells per second")
    left.set_xlabel("H200s")
    left.set_ylim(bottom=0)
    left.legend()
    sizes = list(dict.fromkeys(cost.size for cost in found))
    for place, context in enumerate(sorted({cost.context for cost in found})):
        own = [cost for cost in found if cost.context == context and not cost.host_bound]
        right.bar(
            [sizes.index(cost.size) + (place - 1) * 0.27 for cost in own],
            [1 / cost.share.value for cost in own],
            0.25,
            color=PALETTE[place],
            label=context_label(context),
        )
    right.axhline(1, color=MUTED, linewidth=0.7)
    right.set_xticks(range(len(sizes)), sizes)
    right.set_title("Sigmoid over softmax (FlashAttention-2), cells/s")
    right.set_ylim(0, 1.5)
    right.legend(ncols=3, loc="upper left")
    return figure


def sizes_table(found: list[Cost]) -> str:
    """Rates of both arms and their ratio by size and context."""
    sizes = list(dict.fromkeys(cost.size for cost in found))
    lines = []
    for context in sorted({cost.context for cost in found}):
        cells = [context_label(context)]
        for cost in (cost for cost in found if cost.context == context):
            arms = (cost.sigmoid, cost.softmax)
            rates = " / ".join(number(arm.cells_per_second, 1) for arm in arms)
            ratio = f"**{1 / cost.share.value:.2f} x**"
            cells.append(f"{rates} \\*" if cost.host_bound else f"{rates}, {ratio}")
        lines.append(cells)
    return markdown(["context", *sizes], lines)


def small_table(rows: pd.DataFrame) -> str:
    """Milliseconds of a small step, plain and as a CUDA graph, and softmax's over sigmoid's."""
    lines = []
    for (context, tokens), found in rows.groupby(["context", "tokens"]):
        times = found.pivot(index="round", columns=["arm", "way"], values="milliseconds")
        cells = [context_label(context), number(tokens)]
        for arm in ("sigmoid", "sdpa"):
            cells.append(" / ".join(number(times[arm, way].median(), 1) for way in GRAPHS))
        for way in GRAPHS:
            ratio = median_interval(list(times["sdpa", way] / times["sigmoid", way]), 0.95)
            cells.append(f"{ratio.value:.2f} x [{ratio.low:.2f} to {ratio.high:.2f}]")
        lines.append(cells)
    words = ["sigmoid (ours)", "softmax, varlen", "softmax over sigmoid: one by one", "CUDA graph"]
    return markdown(["context", "tokens a step", *words], lines)


def small_rivals(rows: Sequence[TrainingRow]) -> str:
    """Cells/s of both arms, and ours over the other, reading by reading."""
    found = []
    for ours, theirs in zip(rows[::2], rows[1::2], strict=True):
        ratio = median_interval(ours.over(theirs), 0.95)
        both = " / ".join(number(row.cells_per_second, 1) for row in (ours, theirs))
        interval = f"**{ratio.value:.3f} x** [{ratio.low:.3f} to {ratio.high:.3f}]"
        found.append(f"{context_label(ours.context)} {both}, {interval}")
    return f"{found[0]};\n" + "; ".join(found[1:])


def seeds_table(rows: pd.DataFrame) -> str:
    """Both arms and controls, and their difference, by dataset and metric."""

    def spread(row: pd.Series, name: str) -> str:
        value = number(row[name], 3)
        return value if value == DASH else f"{value} ± {number(row[f'{name}_deviation'], 3)}"

    return markdown(
        ["", "cells", "sigmoid", "softmax", "random", "PCA", "sigmoid less softmax"],
        ([METRIC_NAMES[row["metric"]], DATASETS[row["dataset"]],
          *(spread(row, name) for name in ("sigmoid_2k", "softmax_2k", "random", "pca_log_counts")),
          span(row, "difference", 3)]
         for _, row in rows.iterrows()
         if row["metric"] in ("leiden_nmi", "bio_conservation", "mmd")),
    )  # fmt: skip


def tokens_table(rows: pd.DataFrame) -> str:
    """Rates of both passes by file."""
    lines = []
    for name, found in rows.groupby("file", sort=False):
        cells = []
        for step in ("statistics", "tokens"):
            row = found[found["step"] == step]
            rates = [("cells_per_second", 0), ("million_counts_per_second", 1)]
            cells += [span(row.iloc[0], *rate) if len(row) else DASH for rate in rates]
        lines.append([f"{name}", *cells, number(found["memory_gb"].max(), 1)])
    header = ["statistics: cells/s", "million counts/s", "tokens: cells/s", "million counts/s"]
    return markdown(["file", *header, "GB"], lines)


class Measured:
    """The files of docs/measurements that both a table and a figure read."""

    def __init__(self, folder: Path) -> None:
        self.h200, self.cpu = folder / "h200", folder / "cpu"
        self.benchmarks = self.h200 / "benchmarks"
        config = typed(read_yaml(self.h200 / "config.yaml"), Config)
        self.costs = costs(Results(self.h200, config))
        self.study = Study(self.h200 / "arms")
        self.kernels = read_kernels(self.benchmarks / "kernel_fa4.csv")
        self.padded = read_kernels(self.benchmarks / "kernel.csv", padded=True)
        self.scaling = read(self.benchmarks, "scaling.csv")
        both = [
            read_rows(self.benchmarks / name, TrainingRow)
            for name in ("training_fa4.csv", "training.csv")
        ]
        self.training = [[row for row in rows if row.cells_per_step == 16] for rows in both]
        self.small_fa4 = [row for row in both[0] if row.cells_per_step == 2]


def page(of: Measured) -> str:
    """The text of docs/benchmarks.md."""
    evaluation = read(of.cpu, "evaluation.csv")
    ours = training_rows(of.training[1], SIGMOID[0])[2048]
    return PAGE.format(
        kernels=kernel_table(of.kernels, *((key, SOFTMAX[0]) for key in SIGMOID[:2])),
        padding=kernel_table(of.padded),
        training=training_table(of.training),
        scaling=listed(
            of.scaling,
            {"H200s": ("processes", 0), "cells/s": ("cells_per_second", 0),
             "efficiency": ("efficiency", 3), "MFU": ("mfu", 3),
             "share of time waiting for data": ("data_wait", 4), "GB a GPU": ("peak_memory_gb", 1)},
        ),
        sizes=sizes_table(of.costs),
        small=small_table(read(of.benchmarks, "small_steps.csv")),
        small_fa4=small_rivals(of.small_fa4),
        tokens=tokens_table(read(of.cpu, "tokens.csv")),
        need=number(ours.cells_per_second),
        loading=";\n".join(
            f"`workers` {row['workers']:.0f}: {span(row, 'cells_per_second')} "
            f"({span(row, 'cells_per_core_second')})"
            for _, row in read(of.cpu, "loading.csv").iterrows()
        ),
        evaluation=listed(
            evaluation[~evaluation["what"].str.startswith("its ")],  # parts of the row above them
            {"": ("what", 0), "machine": ("machine", 0), "runs": ("runs", 0),
             "seconds": ("seconds", None), "CPU seconds": ("cpu_seconds", 0)},
        ),
    )  # fmt: skip


def captioned(table: Table) -> str:
    """A table whose caption has lines of the page's width."""
    caption, rest = as_markdown(table).split("\n", 1)
    return f"{textwrap.fill(caption, 128)}\n{rest}"


def quality(of: Measured) -> str:
    """Return the tables of docs/reproduction.md."""
    made = tables(of.study)
    parts = [f"## {title}\n{captioned(made[name])}\n" for name, title in QUALITY.items()]
    return "".join(parts) + EMBEDDINGS + seeds_table(read(of.h200, "real_cells_seeds.csv"))


def figures(of: Measured) -> dict[str, "Figure"]:
    """The figures of both pages by file name."""
    return {
        "benchmark_kernels": kernel_figure(of.kernels),
        "benchmark_padding": kernel_figure(of.padded),
        "benchmark_training": training_figure(of.training),
        "benchmark_scaling": scaling_figure(of.scaling, of.costs),
        **{
            f"study_{name}": draw(of.study)
            for name, draw in {"loss": loss, "frontier": stability, "scale": scale}.items()
        },
    }


def main(docs: Path) -> None:
    """Write docs/benchmarks.md, the tables of docs/reproduction.md, and their figures."""
    of = Measured(docs / "measurements")
    with styled():
        for name, figure in figures(of).items():
            settle(figure)
            with atomic_path(docs / "images" / f"{name}.png") as temporary:
                figure.savefig(temporary, dpi=150, metadata={"Software": None})
    reproduction = docs / "reproduction.md"
    told, _, _ = reproduction.read_text(encoding="utf-8").partition(MARK)
    for path, text in (
        (docs / "benchmarks.md", page(of)),
        (reproduction, told + MARK + quality(of)),
    ):
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
