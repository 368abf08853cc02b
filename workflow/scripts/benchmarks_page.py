"""Make docs/benchmarks.md and its figures from the files in docs/measurements.

    python workflow/scripts/benchmarks_page.py docs

docs/measuring.md says how the numbers were measured.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scsigmoid.files import atomic_path
from scsigmoid.paper.figures.style import DOUBLE, MUTED, gridded, new_figure, settle, styled
from scsigmoid.paper.labels import METRICS, context_label
from scsigmoid.paper.tables.writing import DASH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PASSES = ("forward", "backward")
# Label and colour by (kernel, layout), ours first, then the strongest rival first.
KERNELS = {
    ("hopper", "packed"): ("sigmoid, Hopper (ours)", "#0072B2"),
    ("hopper_accurate", "packed"): ("sigmoid, Hopper, exact (ours)", "#56B4E9"),
    ("triton", "packed"): ("sigmoid, Triton (ours)", "#009E73"),
    ("fa4", "packed"): ("softmax, FlashAttention-4", "#D55E00"),
    ("cudnn", "padded"): ("softmax, cuDNN", "#E69F00"),
    ("varlen", "packed"): ("softmax, FlashAttention-2 (`varlen_attn`)", "#4C250B"),
    ("flash_attention_2", ""): ("softmax, FlashAttention-2", "#4C250B"),
    ("flex", "packed"): ("softmax, FlexAttention, packed", "#BFBA69"),
    ("flex", "padded"): ("softmax, FlexAttention, padded", "#735063"),
    ("flash_sigmoid", "padded"): ("sigmoid, FlashSigmoid", "#8C8CFF"),
    ("triton_sigmoid", "padded"): ("sigmoid, triton-sigmoid", "#2A2F4C"),
}
ARMS = {"sigmoid": "#0072B2", "softmax": "#D55E00"}
DATASETS = {"pbmc_facs": "Blood cells", "lung_cell_lines": "Lung cancer cell lines"}
METRIC_NAMES = {"validation_loss": "Validation loss", **METRICS, "mmd": "MMD, mean of the pairs"}
PAGE = """\
# Benchmarks

Speeds, made from [measurements](measurements/README.md) by `python workflow/scripts/benchmarks_page.py docs`. How they
were measured: [measuring.md](measuring.md). Quality: [reproduction.md](reproduction.md). The same kernel differs by up
to 30 % between machines: compare within a table, not between tables. Two numbers in a cell: forward / backward.

## Attention kernels beside FlashAttention-4
Median TFLOPS on one H200: 16,384 tokens without padding, hidden size 2,048, bfloat16, head dimension (D) 64 or 128.
Packed: FlashAttention-4 and ours. "Exact": `accurate=True`, our default beyond 8,192 keys; else the approximate tanh.
"Cells": 8 sequences of cells' lengths, up to 4,960 ([kernel_fa4.csv](measurements/h200/benchmarks/kernel_fa4.csv)).

{kernels}
![TFLOPS by sequence length](images/benchmark_kernels.png)

## Attention kernels with padding
As above, lengths from three quarters to the whole of the longest (the paper's "25 % padding"). Padding counts as no
work. FlashAttention-4 was not measured here ([kernel.csv](measurements/h200/benchmarks/kernel.csv)).

{padding}
![TFLOPS with padding](images/benchmark_padding.png)

## Training
Cells/s of a 160M model on one H200, 16 cells a step of lengths as in the paper's Fig. 1; in brackets the speed-up of
our Hopper kernel, the median over interleaved rounds. Two runs on two machines
([training_fa4.csv](measurements/h200/benchmarks/training_fa4.csv), [training.csv](measurements/h200/benchmarks/training.csv)).

{training}
![Cells per second](images/benchmark_training.png)

## Several GPUs
The training loop at 2K, global batch 256, one host ([scaling.csv](measurements/h200/benchmarks/scaling.csv)).

{scaling}
![Cells per second by GPUs, and the speed-up by model size](images/benchmark_scaling.png)

## Model sizes
Cells/s, 2 cells a step: sigmoid (ours) / softmax by `varlen_attn`; FlashAttention-4 was not measured here. \\* One waits
for the host: no comparison of kernels. Figure: above ([throughput.csv](measurements/h200/benchmarks/throughput.csv)).

{sizes}
## From h5ad files to tokens
Rates per second of CPU time, one core ([tokens.csv](measurements/cpu/tokens.csv)).

{tokens}
## Data loader
Alone, 2,048 tokens, two CPU cores; an H200 trains {need} cells/s ([loading.csv](measurements/cpu/loading.csv)).

{loading}
## Evaluation
Simulated embeddings of the paper's size ([evaluation.csv](measurements/cpu/evaluation.csv)).

{evaluation}
## The demo
Minutes ([demo.csv](measurements/cpu/demo.csv)).

{demo}"""  # noqa: E501
QUALITY = """\
## 3,000 steps, three seeds
Mean ± standard deviation; difference with Student's 95 % interval
([real_cells_seeds.csv](measurements/h200/real_cells_seeds.csv), which has further metrics).

{seeds}
## 9,000 steps, four seeds
Validation loss, sigmoid / softmax ([real_cells_steps.csv](measurements/h200/real_cells_steps.csv)).

{steps}
## Learning rates without clipping, 1,600 steps
Training loss of the last step, largest gradient norm
([stability_ladder.csv](measurements/h200/stability_ladder.csv)).

{ladder}
## 160M models on simulated cells, at most 150 steps
![Training loss](images/benchmark_loop.png)

The arms start alike; so few steps show no more ([journals](measurements/README.md)).
"""
MARK = "<!-- The tables below are made by workflow/scripts/benchmarks_page.py. -->\n"


def read(folder: Path, name: str) -> pd.DataFrame:
    """A file of measurements; an empty field of text is an empty string."""
    table = pd.read_csv(folder / name)
    text = table.select_dtypes(exclude="number").columns
    return table.fillna(dict.fromkeys(text, ""))


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose columns are centred, but for the first."""
    lines = [header, ["---", *[":-:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def number(value: float, digits: int = 0) -> str:
    """A number, or a dash where there is none."""
    return DASH if np.isnan(value) else f"{value:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def span(row: pd.Series, column: str, digits: int = 0) -> str:
    """A value with its range, from the columns ``<column>``, ``_low`` and ``_high``."""
    ends = [row.get(f"{column}{end}", np.nan) for end in ("_low", "_high")]
    middle = number(row.get(column, np.nan), digits)
    if np.isnan(ends).any():
        return middle
    both = " to ".join(dict.fromkeys(number(end, digits) for end in ends))
    return both if middle == DASH else f"{middle} [{both}]"


def listed(rows: pd.DataFrame, columns: dict[str, tuple[str, int]]) -> str:
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


def speed_up(ours: pd.Series, theirs: pd.Series, work: float = 1.0) -> float:
    """Their time over ours at equal work, the median over the rounds that timed both.

    Args:
        ours, theirs: rows with ``readings``, one time a round, NaN where it was not timed.
        work: our operations over theirs.
    """
    own, other = (np.array(row["readings"].split(), dtype=float) for row in (ours, theirs))
    both = min(len(own), len(other))
    return float(np.nanmedian(work * other[:both] / own[:both]))


def kernel(rows: pd.DataFrame, key: tuple[str, str], *shape: object) -> pd.Series | None:
    """The row of a kernel at (head dimension, batch, length, pass); None if it was not timed."""
    found = rows[(rows["provider"] == key[0]) & (rows["milliseconds"] > 0)]
    for column, value in zip(
        ("head_dimension", "batch", "length", "pass", "layout"), (*shape, key[1]), strict=True
    ):
        if value:
            found = found[found[column] == value]
    return found.iloc[0] if len(found) else None


def kernel_table(rows: pd.DataFrame, rival: tuple[str, str] | None = None) -> str:
    """TFLOPS forward / backward by kernel and shape, and ours over a rival."""
    shapes = [("paper", length) for length in (512, 2048, 8192, 16384)]
    shapes += [("jagged", length) for length in lengths(rows[rows["batch"] == "jagged"])]
    columns = [(dimension, *shape) for dimension in (64, 128) for shape in shapes]
    lines = []
    for key, (label, _) in KERNELS.items():
        found = [[kernel(rows, key, *column, way) for way in PASSES] for column in columns]
        cells = [[np.nan if row is None else row["tflops"] for row in both] for both in found]
        if not np.isnan(cells).all():
            lines.append([label, *(slashed(both, 0) for both in cells)])
    for ours in (("hopper", "packed"), ("hopper_accurate", "packed")) if rival else ():
        ratios = [
            slashed([kernel_ratio(rows, ours, rival, *column, way) for way in PASSES], 2)
            for column in columns
        ]
        name = KERNELS[ours][0].removeprefix("sigmoid, ").replace(" (ours)", "")
        lines.append(
            [
                f"**{name} over {KERNELS[rival][0].split(', ')[1]}**",
                *(f"**{ratio}**" for ratio in ratios),
            ]
        )
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
    rows: pd.DataFrame, first: tuple[str, str], second: tuple[str, str], *shape: object
) -> float:
    """TFLOPS of one kernel over another's at (head dimension, batch, length, pass), by round."""
    ours, theirs = (kernel(rows, key, *shape) for key in (first, second))
    if ours is None or theirs is None:
        return np.nan
    work = [row["tflops"] * row["milliseconds"] for row in (ours, theirs)]
    return speed_up(ours, theirs, work[0] / work[1])


def kernel_figure(rows: pd.DataFrame) -> "Figure":
    """TFLOPS over sequence length, one panel a pass and head dimension."""
    figure = new_figure(DOUBLE, 4.6)
    grid = figure.subplots(2, 2, sharex=True)
    shapes = rows[rows["batch"] == "paper"]
    for line, dimension in zip(grid, (64, 128), strict=True):
        for axes, way in zip(line, PASSES, strict=True):
            for key, (label, colour) in KERNELS.items():
                found = [kernel(shapes, key, dimension, "", n, way) for n in lengths(shapes)]
                drawn = [row for row in found if row is not None]
                axes.plot(
                    [row["length"] for row in drawn],
                    [row["tflops"] for row in drawn],
                    color=colour,
                    marker="o",
                    markersize=3,
                    linewidth=2.0 if key[0] == "hopper" else 1.2,
                    label=label.replace("`", "") if drawn else "_",
                )
            axes.set_xscale("log", base=2)
            axes.set_xticks(lengths(shapes), [context_label(n) for n in lengths(shapes)])
            axes.set_title(f"{way.capitalize()}, head dimension {dimension}")
            axes.set_ylim(bottom=0)
            gridded(axes)
    for axes in grid[:, 0]:
        axes.set_ylabel("TFLOPS")
    for axes in grid[-1]:
        axes.set_xlabel("Sequence length (tokens)")
    legend(figure, grid[0, 0])
    return figure


def lengths(rows: pd.DataFrame) -> list[int]:
    """The sequence lengths, ascending."""
    return sorted(set(rows["length"]))


def legend(figure: "Figure", axes: "Axes") -> None:
    """One legend above all panels."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)


def training_table(runs: Sequence[pd.DataFrame]) -> str:
    """Cells/s by kernel, run and context, and ours over it."""
    columns = [(rows, context) for rows in runs for context in contexts_of(rows)]
    lines = []
    for (name, layout), (label, _) in KERNELS.items():
        cells = []
        for rows, context in columns:
            found = rows[(rows["context"] == context)].set_index(["kernel", "layout"])
            if (name, layout) not in found.index:
                cells.append(DASH)
                continue
            row, ours = found.loc[(name, layout)], found.loc[("hopper", "packed")]
            ratio = "" if name == "hopper" else f" ({speed_up(ours, row):.2f} x)"
            cells.append(number(row["cells_per_second"]) + ratio)
        if set(cells) != {DASH}:
            lines.append([label, *cells])
    words = [
        f"{title}: " * (context == contexts_of(rows)[0]) + context_label(context)
        for rows, title in zip(runs, ("first run", "second run"), strict=True)
        for context in contexts_of(rows)
    ]
    return markdown(["kernel", *words], lines)


def contexts_of(rows: pd.DataFrame) -> list[int]:
    """The contexts of a run, ascending."""
    return sorted(set(rows["context"]))


def training_figure(runs: Sequence[pd.DataFrame]) -> "Figure":
    """Bars of cells/s with their intervals, one panel a run."""
    figure = new_figure(DOUBLE, 2.9)
    widths = [rows["context"].nunique() for rows in runs]
    grid = figure.subplots(1, 2, sharey=True, width_ratios=widths)
    labels = {}
    for axes, rows, title in zip(
        grid, runs, ("With FlashAttention-4", "With the paper's padded stack"), strict=True
    ):
        contexts = contexts_of(rows)
        keys = [k for k in KERNELS if ((rows["kernel"] == k[0]) & (rows["layout"] == k[1])).any()]
        for place, key in enumerate(keys):
            found = rows[(rows["kernel"] == key[0]) & (rows["layout"] == key[1])]
            middle = found["cells_per_second"]
            ends = [middle - found["cells_per_second_low"], found["cells_per_second_high"] - middle]
            bars = axes.bar(
                [
                    contexts.index(n) + (place + 0.5) / (len(keys) + 1) - 0.5
                    for n in found["context"]
                ],
                middle,
                0.9 / (len(keys) + 1),
                yerr=np.array(ends),
                color=KERNELS[key][1],
                error_kw={"elinewidth": 0.6},
            )
            labels[KERNELS[key][0].replace("`", "")] = bars
        axes.set_xticks(range(len(contexts)), [context_label(context) for context in contexts])
        axes.set_title(title)
        axes.set_xlabel("Context")
        gridded(axes)
    grid[0].set_ylabel("Cells per second")
    figure.legend(labels.values(), labels.keys(), loc="outside upper center", ncols=3)
    return figure


def scaling_figure(rows: pd.DataFrame, sizes: pd.DataFrame) -> "Figure":
    """Cells/s over GPUs beside a linear gain, and sigmoid's rate over softmax's by size."""
    figure = new_figure(DOUBLE, 2.3)
    left, right = figure.subplots(1, 2)
    ideal = rows["processes"] * rows["cells_per_second"].iloc[0]
    left.plot(rows["processes"], ideal, color=MUTED, linestyle=":", label="linear")
    left.plot(rows["processes"], rows["cells_per_second"], marker="o", color=ARMS["sigmoid"])
    left.set_xticks(rows["processes"])
    left.set_title("Sigmoid 2K, 160M: cells per second")
    left.set_xlabel("H200s")
    left.set_ylim(bottom=0)
    left.legend()
    gridded(left)
    draw_sizes(right, sizes)
    return figure


def sizes_pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Rates of both arms by size and context, and whether either waits for the host."""
    pairs = rows.pivot(index=["size", "context"], columns="attention", values="cells_per_second")
    bound = rows["note"].str.startswith("Bound by the host")
    pairs["bound"] = bound.groupby([rows["size"], rows["context"]]).any()
    return pairs.loc[list(dict.fromkeys(zip(rows["size"], rows["context"], strict=True)))]


def sizes_table(rows: pd.DataFrame) -> str:
    """Rates of both arms and their ratio by size and context."""
    pairs = sizes_pairs(rows)
    names = list(dict.fromkeys(rows["size"]))
    lines = []
    for context in sorted(set(rows["context"])):
        cells = []
        for name in names:
            pair = pairs.loc[(name, context)]
            rates = " / ".join(number(pair[arm], 1) for arm in ARMS)
            ratio = f"**{pair['sigmoid'] / pair['softmax']:.2f} x**"
            cells.append(f"{rates} \\*" if pair["bound"] else f"{rates}, {ratio}")
        lines.append([context_label(context), *cells])
    return markdown(["context", *names], lines)


def draw_sizes(axes: "Axes", rows: pd.DataFrame) -> None:
    """Sigmoid's rate over softmax's where neither waits for the host."""
    pairs = sizes_pairs(rows)
    pairs = pairs[~pairs["bound"]]
    names = list(dict.fromkeys(pairs.index.get_level_values("size")))
    contexts = contexts_of(rows)
    for place, (context, colour) in enumerate(
        zip(contexts, ("#56B4E9", "#0072B2", "#2A2F4C"), strict=True)
    ):
        found = pairs.xs(context, level="context")
        places = [names.index(name) + (place - 1) * 0.27 for name in found.index]
        values = found["sigmoid"] / found["softmax"]
        axes.bar(places, values, 0.25, color=colour, label=context_label(context))
    axes.axhline(1, color=MUTED, linewidth=0.7)
    axes.set_xticks(range(len(names)), names)
    axes.set_title("Sigmoid over softmax (FlashAttention-2), cells/s")
    axes.set_ylim(0, 1.5)
    axes.legend(ncols=3, loc="upper left")
    gridded(axes)


def loop_figure(journals: Path) -> "Figure":
    """Training loss of the 160M pairs over steps."""
    figure = new_figure(DOUBLE, 2.2)
    for axes, name in zip(figure.subplots(1, 3, sharey=True), ("2k", "4k", "8k"), strict=True):
        for arm, colour in ARMS.items():
            journal = pd.read_csv(journals / f"journal_{arm}_{name}.csv", comment="#")
            axes.plot(journal["step"], journal["loss"], color=colour, label=arm)
        axes.set_title(f"{name.upper()} tokens")
        axes.set_xlabel("Step")
        gridded(axes)
        if name == "2k":
            axes.set_ylabel("Training loss (nats)")
            axes.legend()
    return figure


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
         if row["metric"] in ("validation_loss", "leiden_nmi", "bio_conservation", "mmd")),
    )  # fmt: skip


def steps_table(rows: pd.DataFrame) -> str:
    """Validation loss of both arms by seed."""
    seeds = sorted(set(rows["seed"]))
    return markdown(
        ["cells", *(f"seed {seed}" for seed in seeds)],
        ([DATASETS[name], *(f"{row['sigmoid']:.3f} / {row['softmax']:.3f}"
                            for _, row in found.sort_values("seed").iterrows())]
         for name, found in rows.groupby("dataset", sort=False)),
    )  # fmt: skip


def ladder_table(rows: pd.DataFrame) -> str:
    """Loss and largest gradient norm of both arms by learning rate."""
    columns = list(dict.fromkeys(zip(rows["learning_rate"], rows["seed"], strict=True)))
    indexed = rows.set_index(["attention", "learning_rate", "seed"])
    lines = []
    for arm in ARMS:
        found = [indexed.loc[(arm, *column)] for column in columns]
        lines.append([arm, *(f"{row['loss']:.2f}, {row['gradient_norm_max']:,g}" for row in found)])
    return markdown(["rate, seed", *(f"{rate:g}, {seed}" for rate, seed in columns)], lines)


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


def page(folder: Path) -> str:
    """The text of docs/benchmarks.md, from the folder docs/measurements."""
    benchmarks, cpu = folder / "h200" / "benchmarks", folder / "cpu"
    padded, training = read(benchmarks, "kernel.csv"), read(benchmarks, "training.csv")
    evaluation = read(cpu, "evaluation.csv")
    ours = training[(training["kernel"] == "hopper") & (training["context"] == 2048)].iloc[0]
    return PAGE.format(
        kernels=kernel_table(read(benchmarks, "kernel_fa4.csv"), ("fa4", "packed")),
        padding=kernel_table(padded[padded["padding"] > 0]),
        training=training_table([read(benchmarks, "training_fa4.csv"), training]),
        scaling=listed(
            read(benchmarks, "scaling.csv"),
            {"H200s": ("processes", 0), "cells/s": ("cells_per_second", 0),
             "efficiency": ("efficiency", 3), "MFU": ("mfu", 3),
             "share of time waiting for data": ("data_wait", 4), "GB a GPU": ("peak_memory_gb", 1)},
        ),
        sizes=sizes_table(read(benchmarks, "throughput.csv")),
        tokens=tokens_table(read(cpu, "tokens.csv")),
        need=number(ours["cells_per_second"]),
        loading=listed(
            read(cpu, "loading.csv"),
            {"workers": ("workers", 0), "cells/s": ("cells_per_second", 0),
             "cells/s for each busy core": ("cells_per_core_second", 0)},
        ),
        evaluation=listed(
            evaluation[~evaluation["what"].str.startswith("its ")],  # parts of the row above them
            {"": ("what", 0), "machine": ("machine", 0), "runs": ("runs", 0),
             "seconds": ("seconds", 2), "CPU seconds": ("cpu_seconds", 0)},
        ),
        demo=listed(
            read(cpu, "demo.csv"),
            {"machine": ("machine", 0), "runs": ("runs", 0), "`make demo`": ("demo_minutes", 1),
             "the environment, once": ("environment_minutes", 1)},
        ),
    )  # fmt: skip


def quality(folder: Path) -> str:
    """The tables of docs/reproduction.md, from the folder docs/measurements."""
    h200 = folder / "h200"
    return QUALITY.format(
        seeds=seeds_table(read(h200, "real_cells_seeds.csv")),
        steps=steps_table(read(h200, "real_cells_steps.csv")),
        ladder=ladder_table(read(h200, "stability_ladder.csv")),
    )


def figures(folder: Path) -> dict[str, "Figure"]:
    """The figures of both pages by file name, from the folder docs/measurements."""
    benchmarks = folder / "h200" / "benchmarks"
    padded = read(benchmarks, "kernel.csv")
    runs = [read(benchmarks, name) for name in ("training_fa4.csv", "training.csv")]
    scaling, sizes = (read(benchmarks, name) for name in ("scaling.csv", "throughput.csv"))
    return {
        "benchmark_kernels": kernel_figure(read(benchmarks, "kernel_fa4.csv")),
        "benchmark_padding": kernel_figure(padded[padded["padding"] > 0]),
        "benchmark_training": training_figure(runs),
        "benchmark_scaling": scaling_figure(scaling, sizes),
        "benchmark_loop": loop_figure(folder / "h200" / "journals"),
    }


def main(docs: Path) -> None:
    """Write docs/benchmarks.md, the tables of docs/reproduction.md, and their figures."""
    measurements = docs / "measurements"
    with styled():
        for name, figure in figures(measurements).items():
            settle(figure)
            with atomic_path(docs / "images" / f"{name}.png") as temporary:
                figure.savefig(temporary, dpi=150, metadata={"Software": None})
    reproduction = docs / "reproduction.md"
    told, _, _ = reproduction.read_text(encoding="utf-8").partition(MARK)
    for path, text in (
        (docs / "benchmarks.md", page(measurements)),
        (reproduction, told + MARK + quality(measurements)),
    ):
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
