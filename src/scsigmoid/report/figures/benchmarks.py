"""Figures of speed: kernels (fig:tflops, fig:latency_supp) and training (fig:throughput)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scsigmoid.benchmarks.rows import KernelRow
from scsigmoid.kernels import OURS
from scsigmoid.labels import ATTENTIONS, PASSES, context_label, series_label
from scsigmoid.report.figures.style import (
    COLORS,
    DOUBLE,
    INK,
    MARKERS,
    logarithmic,
    new_figure,
    remark,
    thousands,
)
from scsigmoid.results.folder import Results
from scsigmoid.results.speed import (
    Cost,
    Series,
    cost_notes,
    costs,
    device_words,
    hours_of,
    in_panel,
    named_size,
    notes,
    rate,
    series,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Cool colors for sigmoid attention, warm ones for softmax, distinct for color-blind readers.
SHADES = {
    "sigmoid": ("#0072B2", "#56B4E9", "#009E73", "#2A2F4C", "#4326FF", "#8C8CFF"),
    "softmax": ("#D55E00", "#E69F00", "#4C250B", "#BFBA69", "#FFB2D1", "#995426", "#735063"),
}
Panels = dict[tuple[float, int, str], "Axes"]
Looks = dict[tuple[str, str], dict[str, Any]]


def drawn(results: Results) -> Series:
    """Return the series of the figures; the tables have all.

    Of this project's kernels, figures show the packed layout and one exact sigmoid.
    """
    every = series(results)
    exact = [path for path in (f"{path}_accurate" for path in OURS) if (path, "") in every]
    left_out = {*((path, "padded") for path in OURS), *((path, "") for path in exact[1:])}
    return {key: rows for key, rows in every.items() if key not in left_out}


def looks(attentions: Mapping[tuple[str, str], str]) -> Looks:
    """Return color, marker and label of each series by its attention."""
    used = {"sigmoid": 0, "softmax": 0}
    look: Looks = {}
    for one, attention in attentions.items():
        shades = SHADES[attention]
        look[one] = {
            "color": shades[used[attention] % len(shades)],
            "marker": MARKERS[len(look) % len(MARKERS)],
            "label": series_label(one, attentions),
        }
        used[attention] += 1
    return look


def ordered(found: Series) -> dict[tuple[str, str], str]:
    """Return the attention of each series: ours first, then other sigmoid kernels, then softmax."""
    keys = sorted(found, key=lambda key: (key[0] not in OURS, found[key][0].attention))
    return {key: found[key][0].attention for key in keys}


def panels(results: Results, figure: "Figure", label: str) -> Panels:
    """Add panels: a row for each padding and head dimension, a column for each pass."""
    timings = [timing for rows in drawn(results).values() for timing in rows]
    levels = sorted({timing.padding for timing in timings})
    dimensions = sorted({timing.head_dimension for timing in timings})
    rows = [(padding, dimension) for padding in levels for dimension in dimensions]
    grid = figure.subplots(len(rows), 2, squeeze=False, sharex=True)
    panel: Panels = {}
    for row, (padding, dimension) in enumerate(rows):
        for column, direction in enumerate(PASSES):
            axes = grid[row][column]
            axes.set_title(
                f"{direction.capitalize()}, head dimension {dimension}, {padding * 100:g} % padding"
            )
            panel[padding, dimension, direction] = axes
    for axes in grid[:, 0]:
        axes.set_ylabel(label)
    for axes in grid[-1]:
        axes.set_xlabel("Sequence length (tokens)")
    return panel


def each_series(
    grid: Panels, found: Series, look: Looks
) -> Iterator[tuple["Axes", int, dict[str, Any], list[KernelRow]]]:
    """Yield axes, place in the legend, look, and timings by length for every series and panel."""
    for (padding, dimension, direction), axes in grid.items():
        for place, (key, style) in enumerate(look.items()):
            timings = [
                row
                for row in found[key]
                if in_panel(row, padding, direction) and row.head_dimension == dimension
            ]
            if timings:
                yield axes, place, style, sorted(timings, key=lambda row: row.length)


def tflops(results: Results) -> "Figure":
    """Draw bars of TFLOPS with their intervals, one panel per head dimension, padding and pass."""
    found = drawn(results)
    look = looks(ordered(found))
    lengths = sorted({timing.length for rows in found.values() for timing in rows})
    figure = new_figure(DOUBLE, 7.6)
    width = 0.84 / max(len(look), 1)
    grid = panels(results, figure, "TFLOPS")
    for axes, place, style, rows in each_series(grid, found, look):
        values, *ends = np.array([rate(row) for row in rows]).T
        places = np.array([lengths.index(row.length) for row in rows], dtype=float)
        axes.bar(
            places + (place - (len(look) - 1) / 2) * width,
            values,
            width * 0.92,
            yerr=np.abs(np.array(ends) - values),
            color=style["color"],
            label=style["label"],
            error_kw={"elinewidth": 0.6, "ecolor": INK},
        )
    for axes in grid.values():
        axes.set_xticks(range(len(lengths)), [context_label(length) for length in lengths])
    legend(figure, grid, look)
    order = "Bars are in the order of the legend, read down its columns."
    about = benchmark_note(results), layout_note(found, look)
    remark(figure, *about, order, f"Error bars are {confidence(results)} % intervals.")
    return figure


def latency(results: Results) -> "Figure":
    """Draw lines of milliseconds with shaded intervals, in the panels of :func:`tflops`."""
    found = drawn(results)
    look = looks(ordered(found))
    lengths = sorted({timing.length for rows in found.values() for timing in rows})
    figure = new_figure(DOUBLE, 7.6)
    grid = panels(results, figure, "Milliseconds")
    for axes, _, style, rows in each_series(grid, found, look):
        places = [row.length for row in rows]
        axes.fill_between(
            places,
            [row.milliseconds_low for row in rows],
            [row.milliseconds_high for row in rows],
            color=style["color"],
            alpha=0.25,
            linewidth=0,
        )
        axes.plot(places, [row.milliseconds for row in rows], markersize=3.2, **style)
    for axes in grid.values():
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [context_label(length) for length in lengths])
        axes.xaxis.minorticks_off()
        logarithmic(axes)
    legend(figure, grid, look)
    about = benchmark_note(results), layout_note(found, look)
    remark(figure, *about, f"Shaded regions are {confidence(results)} % intervals.")
    return figure


def confidence(results: Results) -> str:
    """Return the percentage of the kernel benchmark's intervals."""
    return f"{results.config.benchmarks.kernel.confidence * 100:g}"


def legend(figure: "Figure", grid: Panels, look: Looks) -> None:
    """Add one legend above all panels, with the series that any of them shows."""
    shown = {
        label: handle
        for axes in grid.values()
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    labels = [style["label"] for style in look.values() if style["label"] in shown]
    handles = [shown[label] for label in labels]
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 4))


def layout_note(found: Series, look: Looks) -> str:
    """Return a sentence on the kernels that were timed on packed sequences, if there are any."""
    always: list[str] = []
    in_part: list[str] = []
    for key, style in look.items():
        layouts = {row.layout for row in found[key]}
        if "packed" in layouts:
            (always if len(layouts) == 1 else in_part).append(style["label"])
    words = [f"Packed sequences: {'; '.join(always)}."] if always else []
    words += [f"Packed if there is padding: {'; '.join(in_part)}."] if in_part else []
    return " ".join(words)


def benchmark_note(results: Results) -> str:
    """Return a sentence on the device, and the notes of the rows."""
    device = device_words(results.machine("kernel"))
    kernel = results.config.benchmarks.kernel
    lines = [f"{device}; {kernel.tokens:,} tokens per batch, hidden size {kernel.hidden:,}."]
    return " ".join([*lines, *notes(results.kernel)])


def gpu_hours(results: Results) -> "Figure":
    """Draw bars of hours with their ratios, one panel per context, one pair per size."""
    rows = costs(results)
    contexts = list(dict.fromkeys(cost.context for cost in rows))
    figure = new_figure(DOUBLE, 2.7)
    grid = figure.subplots(1, max(len(contexts), 1), squeeze=False, sharey=True)[0]
    for axes, context in zip(grid, contexts, strict=False):
        draw_costs(axes, [cost for cost in rows if cost.context == context], COLORS)
        axes.set_title(f"Context {context_label(context)}")
    sizes = dict.fromkeys(cost.size for cost in rows)
    unit = "GPU-hours" if any(cost.sigmoid.device != "cpu" for cost in rows) else "Hours"
    cells = results.config.benchmarks.training.projected_cells / 1e6
    grid[0].set_ylabel(f"{unit} for {cells:,.1f}M cells")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    device = device_words(results.machine("training"))
    confidence = results.config.benchmarks.training.confidence * 100
    remark(
        figure,
        f"{device}. Numbers above the bars are sigmoid's hours divided by softmax's: below 1 "
        f"sigmoid is faster. Error bars are {confidence:g} % intervals.",
        f"Models are labeled by their number of parameters; they replace the paper's "
        f"{', '.join(sizes)}."
        if is_shrunk(rows)
        else "",
        *cost_notes(results),
    )
    return figure


def is_shrunk(rows: Sequence[Cost]) -> bool:
    """Return whether the models have other sizes than the paper's models of the same names."""
    return any(abs(cost.sigmoid.parameters / named_size(cost.size) - 1) > 0.15 for cost in rows)


def draw_costs(axes: "Axes", rows: Sequence[Cost], color: dict[str, str]) -> None:
    """Draw the pairs of bars of one context."""
    for offset, attention in ((-0.2, "sigmoid"), (0.2, "softmax")):
        values, lows, highs = np.array([hours_of(getattr(cost, attention)) for cost in rows]).T
        axes.bar(
            np.arange(len(rows)) + offset,
            values,
            0.38,
            yerr=np.abs(np.nan_to_num([values - lows, highs - values], posinf=0.0)),
            color=color[attention],
            label=attention.capitalize(),
            error_kw={"elinewidth": 0.7, "capsize": 1.5, "ecolor": INK},
        )
    for place, cost in enumerate(rows):
        ends = [end for arm in ATTENTIONS for end in hours_of(getattr(cost, arm))]
        top = max(end for end in ends if np.isfinite(end))
        axes.annotate(
            f"{cost.share.value:.2f}",
            (place, top),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=7,
        )
    axes.margins(y=0.12)
    sizes = [f"{cost.sigmoid.parameters / 1e6:.2g}M" for cost in rows]
    axes.set_xticks(
        range(len(rows)),
        sizes if is_shrunk(rows) else [cost.size for cost in rows],
    )
    axes.set_xlabel("Model size")
    axes.yaxis.set_major_formatter(thousands)
