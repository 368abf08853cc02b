"""Figures of the speed of attention kernels and of training."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from scsigmoid.benchmarks.rows import KernelRow
from scsigmoid.kernels import OURS
from scsigmoid.labels import ATTENTIONS, PASSES, context_label, series_label
from scsigmoid.report.figures import style
from scsigmoid.report.figures.style import COLORS, DOUBLE, INK
from scsigmoid.report.tables.writing import millions
from scsigmoid.results import speed
from scsigmoid.results.folder import Results
from scsigmoid.results.speed import Cost, estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Cool colors for sigmoid attention, warm ones for softmax, distinct for color-blind readers.
SHADES = {
    "sigmoid": ("#0072B2", "#56B4E9", "#009E73", "#2A2F4C", "#4326FF", "#8C8CFF"),
    "softmax": ("#D55E00", "#E69F00", "#4C250B", "#BFBA69", "#FFB2D1", "#995426", "#735063"),
}
#: Color, marker and label of a series.
Look = dict[str, Any]


def drawn(results: Results) -> speed.Series:
    """Return the series that figures show. Tables show all series.

    Of this project's kernels, figures show the packed layout and one kernel with the exact sigmoid.
    """
    series = speed.series(results)
    exact = [name for name in (f"{name}_accurate" for name in OURS) if (name, "") in series]
    left_out = {*((name, "padded") for name in OURS), *((name, "") for name in exact[1:])}
    return {key: rows for key, rows in series.items() if key not in left_out}


def looks(attentions: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], Look]:
    """Return color, marker and label of each series by its attention."""
    used = {"sigmoid": 0, "softmax": 0}
    look: dict[tuple[str, str], Look] = {}
    for key, attention in attentions.items():
        shades = SHADES[attention]
        look[key] = {
            "color": shades[used[attention] % len(shades)],
            "marker": style.marker(len(look)),
            "label": series_label(key, attentions),
        }
        used[attention] += 1
    return look


def kernel_figure(results: Results, unit: str, marks: str, draw: Callable[..., None]) -> "Figure":
    """Draw a panel for each padding and head dimension (rows) and pass (columns).

    Args:
        results: the results.
        unit: label of the y axes.
        marks: name of the marks that show intervals, for the note below the figure.
        draw: function that draws a series. It takes axes, rows sorted by length, look, all lengths
            of the figure, position of the series and number of series.
    """
    by_series = drawn(results)
    # Our kernels first, then other sigmoid kernels, then softmax.
    keys = sorted(by_series, key=lambda key: (key[0] not in OURS, by_series[key][0].attention))
    look = looks({key: by_series[key][0].attention for key in keys})
    timings = [timing for rows in by_series.values() for timing in rows]
    lengths, paddings, dimensions = (
        sorted({getattr(timing, name) for timing in timings})
        for name in ("length", "padding", "head_dimension")
    )
    figure = style.new_figure(DOUBLE, 7.6)
    grid = figure.subplots(len(paddings) * len(dimensions), 2, squeeze=False, sharex=True)
    handles: dict[str, Any] = {}
    shown = product(paddings, dimensions, PASSES)
    for axes, (padding, dimension, direction) in zip(grid.flat, shown, strict=True):
        axes.set_title(
            f"{direction.capitalize()}, head dimension {dimension}, {padding * 100:g} % padding"
        )
        for place, key in enumerate(look):
            rows = [row for row in by_series[key] if speed.in_panel(row, padding, direction)]
            rows = [row for row in rows if row.head_dimension == dimension]
            rows.sort(key=lambda row: row.length)
            if rows:
                draw(axes, rows, look[key], lengths, place, len(look))
        handles |= {handle.get_label(): handle for handle in axes.get_legend_handles_labels()[0]}
    for axes in grid[:, 0]:
        axes.set_ylabel(unit)
    for axes in grid[-1]:
        axes.set_xlabel("Sequence length (tokens)")
    labels = [series["label"] for series in look.values() if series["label"] in handles]
    shown_handles = [handles[label] for label in labels]
    figure.legend(shown_handles, labels, loc="outside upper left", ncols=2)
    kernel, device = results.config.benchmarks.kernel, results.machine("kernel")
    packed = [
        look[key]["label"] for key in keys if {x.layout for x in by_series[key]} == {"packed"}
    ]
    style.remark(
        figure,
        f"{speed.device_name(device)}; {kernel.tokens:,} tokens per batch, hidden size "
        f"{kernel.hidden:,}.",
        *speed.notes(results.kernel, speed.kernel_label),
        f"Packed sequences: {'; '.join(packed)}." if packed else "",
        f"{marks} are {kernel.confidence * 100:g} % intervals of the median over rounds.",
    )
    return figure


def tflops(results: Results) -> "Figure":
    """Draw bars of TFLOPS with their intervals."""
    order = "Bars are in the order of the legend, read down its columns."
    return kernel_figure(results, "TFLOPS", f"{order} Error bars", draw_bars)


def draw_bars(
    axes: "Axes", rows: list[KernelRow], look: Look, lengths: list[int], place: int, count: int
) -> None:
    """Draw the bars of a series, next to the bars of other series of the same length."""
    width = 0.84 / count
    values, *ends = np.array([estimate(row, "tflops") for row in rows]).T
    places = np.array([lengths.index(row.length) for row in rows], dtype=float)
    axes.bar(
        places + (place - (count - 1) / 2) * width, values, width * 0.92,
        yerr=np.abs(np.array(ends) - values), color=look["color"], label=look["label"],
        error_kw={"elinewidth": 0.6, "ecolor": INK},
    )  # fmt: skip
    axes.set_xticks(range(len(lengths)), list(map(context_label, lengths)))


def latency(results: Results) -> "Figure":
    """Draw lines of milliseconds with shaded intervals."""
    return kernel_figure(results, "Milliseconds", "Shaded regions", draw_line)


def draw_line(axes: "Axes", rows: list[KernelRow], look: Look, lengths: list[int], *_: int) -> None:
    """Draw the line of a series with its shaded interval."""
    places = [row.length for row in rows]
    lows, highs = [row.milliseconds_low for row in rows], [row.milliseconds_high for row in rows]
    axes.fill_between(places, lows, highs, color=look["color"], alpha=0.25, linewidth=0)
    axes.plot(places, [row.milliseconds for row in rows], markersize=3.2, **look)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, list(map(context_label, lengths)))
    axes.xaxis.minorticks_off()
    style.set_log_scale(axes)


def gpu_hours(results: Results) -> "Figure":
    """Draw bars of hours and the ratio of each pair, one panel per context, one pair per size."""
    rows = speed.costs(results)
    contexts = list(dict.fromkeys(cost.context for cost in rows))
    figure = style.new_figure(DOUBLE, 2.7)
    grid = figure.subplots(1, max(len(contexts), 1), squeeze=False, sharey=True)[0]
    for axes, context in zip(grid, contexts, strict=False):
        draw_costs(axes, [cost for cost in rows if cost.context == context])
        axes.set_title(f"Context {context_label(context)}")
        axes.grid(False)  # lines would cross the numbers above the bars
    sizes = dict.fromkeys(cost.size for cost in rows)
    unit = "GPU-hours" if any(cost.sigmoid.device != "cpu" for cost in rows) else "Hours"
    cells = results.config.benchmarks.training.projected_cells / 1e6
    grid[0].set_ylabel(f"{unit} for {cells:,.1f}M cells")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    confidence = results.config.benchmarks.training.confidence * 100
    device = speed.device_name(results.machine("training"))
    style.remark(
        figure,
        f"{device}. Numbers above the bars are the hours of sigmoid divided by the hours of "
        f"softmax. Below 1, sigmoid is faster. Error bars are {confidence:g} % intervals.",
        "Models are labeled by their number of parameters. They replace the paper's sizes "
        f"{', '.join(sizes)}." * any(cost.has_other_size for cost in rows),
        *speed.cost_notes(results),
    )
    return figure


def draw_costs(axes: "Axes", rows: Sequence[Cost]) -> None:
    """Draw the pairs of bars of one context, and the ratio of each pair above them."""
    for offset, attention in ((-0.2, "sigmoid"), (0.2, "softmax")):
        values, lows, highs = np.array(
            [estimate(getattr(cost, attention), "gpu_hours") for cost in rows]
        ).T
        axes.bar(
            np.arange(len(rows)) + offset,
            values,
            0.38,
            yerr=np.abs(np.nan_to_num([values - lows, highs - values], posinf=0.0)),
            color=COLORS[attention],
            label=attention.capitalize(),
            error_kw={"elinewidth": 0.7, "capsize": 1.5, "ecolor": INK},
        )
    for place, cost in enumerate(rows):
        ends = [end for arm in ATTENTIONS for end in estimate(getattr(cost, arm), "gpu_hours")]
        top = max(end for end in ends if np.isfinite(end))
        axes.annotate(
            f"{cost.share.value:.2f}", (place, top), xytext=(0, 2), textcoords="offset points",
            ha="center", fontsize=7,
        )  # fmt: skip
    axes.margins(y=0.12)
    sizes = [cost.size for cost in rows]
    if any(cost.has_other_size for cost in rows):
        sizes = [millions(cost.sigmoid.parameters) for cost in rows]
    axes.set_xticks(range(len(rows)), sizes)
    axes.set_xlabel("Model size")
    axes.yaxis.set_major_formatter(style.thousands)
