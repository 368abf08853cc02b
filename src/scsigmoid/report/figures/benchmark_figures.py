"""Figures of the speed of attention kernels and of training."""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, product
from typing import TYPE_CHECKING, Any

import numpy as np

from scsigmoid.benchmarks.rows import KernelRow
from scsigmoid.kernels import OURS
from scsigmoid.records.measurements import Interval
from scsigmoid.report.figures import style
from scsigmoid.report.figures.style import COLORS, DOUBLE, INK
from scsigmoid.report.tables.writing import millions
from scsigmoid.results import speed
from scsigmoid.results.folder import Results
from scsigmoid.results.labels import PASSES, context_label, four_digits, series_label
from scsigmoid.results.speed import Cost, estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Cool colors for sigmoid attention and warm colors for softmax, distinct for color-blind readers.
SHADES = {
    "sigmoid": ("#0072B2", "#56B4E9", "#009E73", "#2A2F4C", "#4326FF", "#8C8CFF"),
    "softmax": ("#D55E00", "#E69F00", "#4C250B", "#BFBA69", "#FFB2D1", "#995426", "#735063"),
}
#: Color, marker and label of a series, as arguments of ``Axes.plot``.
Look = dict[str, Any]


def series_to_draw(results: Results) -> speed.Series:
    """Return the timed series without those that only tables show.

    Figures leave out our kernels with padded layout. Of our kernels with the exact sigmoid, they
    show only the kernel of the fastest backend.
    """
    by_series = speed.series(results)
    padded = [(name, "padded") for name in OURS]
    exact = [(f"{name}_accurate", "") for name in OURS]  # fastest backend first
    timed_exact = [key for key in exact if key in by_series]
    only_in_tables = [*padded, *timed_exact[1:]]
    return {key: rows for key, rows in by_series.items() if key not in only_in_tables}


def looks(attentions: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], Look]:
    """Return the look of each series (provider and layout), given its attention."""
    colors = {attention: cycle(shades) for attention, shades in SHADES.items()}
    return {
        key: {
            "color": next(colors[attention]),
            "marker": style.marker(index),
            "label": series_label(key, attentions),
        }
        for index, (key, attention) in enumerate(attentions.items())
    }


def kernel_figure(
    results: Results, unit: str, draw: Callable[..., None], order: str = ""
) -> "Figure":
    """Draw a panel for each padding and head dimension (rows) and pass (columns).

    Args:
        unit: label of the vertical axes.
        draw: function that draws one series, :func:`draw_bars` or :func:`draw_line`.
        order: sentence of the caption on the order of the bars, or "".
    """
    by_series = series_to_draw(results)
    # Our kernels first, then other sigmoid kernels, then softmax (False is before True).
    keys = sorted(by_series, key=lambda key: (key[0] not in OURS, by_series[key][0].attention))
    look_by_series = looks({key: by_series[key][0].attention for key in keys})
    all_rows = [row for rows in by_series.values() for row in rows]
    lengths = sorted({row.length for row in all_rows})
    paddings = sorted({row.padding for row in all_rows})
    dimensions = sorted({row.head_dimension for row in all_rows})
    figure = style.new_figure(DOUBLE, 7.6)
    # Without a timed kernel, the figure has one row of empty panels.
    grid = figure.subplots(max(1, len(paddings) * len(dimensions)), 2, squeeze=False, sharex=True)
    handles: dict[str, Any] = {}
    panels = product(paddings, dimensions, PASSES)
    for axes, (padding, dimension, direction) in zip(grid.flat, panels, strict=False):
        axes.set_title(
            f"{direction.capitalize()}, head dimension {dimension}, {padding * 100:g} % padding"
        )
        for index, (key, look) in enumerate(look_by_series.items()):
            rows = [
                row
                for row in by_series[key]
                if row.head_dimension == dimension and speed.in_panel(row, padding, direction)
            ]
            rows.sort(key=lambda row: row.length)
            if rows:
                draw(axes, rows, look, lengths, index, len(look_by_series))
        handles |= {handle.get_label(): handle for handle in axes.get_legend_handles_labels()[0]}
    for axes in grid[:, 0]:
        axes.set_ylabel(unit)
    for axes in grid[-1]:
        axes.set_xlabel("Sequence length (tokens)")
    # The legend has the handles of all panels, because a panel may lack a series.
    labels = [look["label"] for look in look_by_series.values() if look["label"] in handles]
    ordered_handles = [handles[label] for label in labels]
    figure.legend(ordered_handles, labels, loc="outside upper left", ncols=2)
    kernel = results.config.benchmarks.kernel
    packed_labels = [
        look["label"]
        for key, look in look_by_series.items()
        if {row.layout for row in by_series[key]} == {"packed"}
    ]
    style.add_notes(
        figure,
        f"{speed.device_name(results, 'kernel')}; {kernel.tokens:,} tokens per batch, hidden size "
        f"{kernel.hidden:,}.",
        *speed.notes(results.kernel_rows, speed.kernel_label),
        f"Packed sequences: {'; '.join(packed_labels)}." if packed_labels else "",
        order,
    )
    return figure


def tflops(results: Results) -> "Figure":
    order = "Bars are in the order of the legend, read down its columns."
    return kernel_figure(results, "TFLOPS", draw_bars, order)


def draw_bars(
    axes: "Axes", rows: list[KernelRow], look: Look, lengths: list[int], index: int, count: int
) -> None:
    """Draw the bars of one series, which is number ``index`` of ``count``.

    ``lengths`` are the sequence lengths of all panels. Their indices are their places on the axis.
    """
    width = 0.84 / count  # adjacent lengths are 1 apart
    offset = (index - (count - 1) / 2) * width
    values, lows, highs = np.array([estimate(row, "tflops") for row in rows]).T
    centers = np.array([lengths.index(row.length) for row in rows], dtype=float)
    axes.bar(
        centers + offset, values, width * 0.92,
        yerr=np.abs([values - lows, highs - values]), color=look["color"], label=look["label"],
        error_kw={"elinewidth": 0.6, "ecolor": INK},
    )  # fmt: skip
    axes.set_xticks(range(len(lengths)), list(map(context_label, lengths)))


def latency(results: Results) -> "Figure":
    return kernel_figure(results, "Milliseconds", draw_line)


def draw_line(axes: "Axes", rows: list[KernelRow], look: Look, lengths: list[int], *_: int) -> None:
    """Draw the line of one series with its shaded interval. For arguments see :func:`draw_bars`.

    The line has a gap at lengths that were not measured.
    """
    by_length = {row.length: estimate(row, "milliseconds") for row in rows}
    values, lows, highs = np.array(
        [by_length.get(length, Interval(np.nan)) for length in lengths]
    ).T
    axes.fill_between(lengths, lows, highs, color=look["color"], alpha=0.25, linewidth=0)
    axes.plot(lengths, values, markersize=3.2, **look)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, list(map(context_label, lengths)))
    axes.xaxis.minorticks_off()
    style.set_log_scale(axes)


def gpu_hours(results: Results) -> "Figure":
    """Draw a panel for each context, with a pair of bars and its ratio for each model size."""
    costs = speed.costs(results)
    contexts = list(dict.fromkeys(cost.context for cost in costs))
    figure = style.new_figure(DOUBLE, 2.7)
    grid = figure.subplots(1, max(len(contexts), 1), squeeze=False, sharey=True)[0]
    for axes, context in zip(grid, contexts, strict=False):
        draw_costs(axes, [cost for cost in costs if cost.context == context])
        axes.set_title(f"Context {context_label(context)}")
        axes.grid(False)  # lines would cross the numbers above the bars
    unit = "GPU-hours" if any(cost.sigmoid.device != "cpu" for cost in costs) else "Hours"
    settings = results.config.benchmarks.training
    grid[0].set_ylabel(f"{unit} for {four_digits(settings.projected_cells / 1e6)}M cells")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    device = speed.device_name(results, "training")
    style.add_notes(figure, f"{device}.", *speed.cost_notes(results))
    return figure


def draw_costs(axes: "Axes", costs: Sequence[Cost]) -> None:
    """Draw the pairs of bars of one context, and the ratio of each pair above its bars."""
    for offset, attention in ((-0.2, "sigmoid"), (0.2, "softmax")):
        values, lows, highs = np.array(
            [estimate(getattr(cost, attention), "gpu_hours") for cost in costs]
        ).T
        # An end of an interval that is NaN or infinite gets an error bar of length 0.
        errors = np.abs(np.nan_to_num([values - lows, highs - values], posinf=0.0))
        axes.bar(
            np.arange(len(costs)) + offset, values, 0.38, yerr=errors, color=COLORS[attention],
            label=attention.capitalize(),
            error_kw={"elinewidth": 0.7, "capsize": 1.5, "ecolor": INK},
        )  # fmt: skip
    for index, cost in enumerate(costs):
        # Values and ends of intervals. An end may be NaN or infinite.
        heights = [*estimate(cost.sigmoid, "gpu_hours"), *estimate(cost.softmax, "gpu_hours")]
        top = max(height for height in heights if np.isfinite(height))
        axes.annotate(
            f"{cost.hours_ratio.value:.2f}", (index, top), xytext=(0, 2),
            textcoords="offset points", ha="center", fontsize=7,
        )  # fmt: skip
    axes.margins(y=0.12)
    axes.set_xticks(range(len(costs)), [millions(cost.sigmoid.parameters) for cost in costs])
    axes.set_xlabel("Parameters")
    axes.yaxis.set_major_formatter(style.thousands)
