"""The style of all figures, and functions that lay out and save them."""

import math
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scsigmoid.config.schema import Config
from scsigmoid.files import atomic_path
from scsigmoid.progress import announce
from scsigmoid.report.tables.writing import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

#: Widths of figures in inches: one column of a printed page, and two columns.
SINGLE, DOUBLE = 3.35, 6.9
MAXIMUM_LABEL = 56  # characters in a line of a legend: two columns fit
DPI = 200  # resolution of the PNG files, in dots per inch
#: Colors of text, of secondary text and lines, and of grid lines.
INK, MUTED, RULE = "#222222", "#666666", "#d0d0d0"
#: Color of each attention.
COLORS = {"sigmoid": "#0072B2", "softmax": "#D55E00"}
#: Colors of cell types. The first line is for color-blind readers: Okabe and Ito's colors, with
#: Tol's wine instead of the pale yellow. All colors are at least 25 apart in CIELAB.
CELL_TYPE_COLORS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#882255", "#000000",
    "#332288", "#999933", "#AA4499", "#4E4E00", "#B1D84E", "#FF0062", "#9D76FF", "#626262",
    "#760000", "#C48962", "#008900", "#00E682", "#23E1E6", "#2D2855", "#B9AAFF", "#AFD79B",
    "#004B2D", "#FF7878", "#FF3CA5", "#FF78FA", "#46230A", "#008791", "#0087FF", "#D21E23",
    "#874B00", "#6E875A", "#FFB4B9", "#F5C36E", "#6E5AA5", "#E1CD19", "#9B91B4", "#915050",
)  # fmt: skip
MARKERS = "osD^vp<>*"
STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": 8,
    **dict.fromkeys(("font.size", "axes.labelsize"), 7.5),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7),
    **dict.fromkeys(("text.color", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor"), INK),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("xtick.minor.width", "ytick.minor.width"), 0.4),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "axes.titlelocation": "left",
    "lines.linewidth": 1.2,
    # Faint horizontal lines behind the data.
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    # Embed TrueType fonts (42): text in PDFs can be edited. The PDF backend reads both settings.
    **dict.fromkeys(("pdf.fonttype", "ps.fonttype"), 42),
}


@contextmanager
def styled() -> Iterator[None]:
    """Use the style of the project, and a backend that does not need a display."""
    import matplotlib as mpl

    mpl.use("Agg")
    settings = {**mpl.rcParamsDefault, "backend": "agg", **STYLE}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # `save` prints one line
        yield


def literal(text: str) -> str:
    """Return text that Matplotlib draws as ``text`` in one line, for names from the user's files.

    Matplotlib reads text between dollar signs as a formula, and leaves labels that begin with an
    underscore out of legends.
    """
    escaped = one_line(text).replace("$", r"\$")
    return f"\N{HAIR SPACE}{escaped}" if escaped.startswith("_") else escaped


def marker(index: int) -> str:
    """Return the marker of a series by its index. If there are more series, markers repeat."""
    return MARKERS[index % len(MARKERS)]


def new_figure(width: float, height: float) -> "Figure":
    """Return a figure with a constrained layout. Width and height are in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def panels(figure: Any, count: int, columns: int, **shared: bool) -> list["Axes"]:
    """Add ``count`` panels row by row, with tick labels below the lowest panel of each column.

    ``figure`` is a figure or subfigure. ``shared`` is ``sharex`` or ``sharey``.
    """
    rows = math.ceil(count / columns)
    grid = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for axes in grid[count:]:
        axes.set_visible(False)
    # A shared x axis has tick labels in the last row only, which may be incomplete.
    for axes in grid[max(count - columns, 0) : count]:
        axes.tick_params(labelbottom=True)
    return grid[:count]


def add_legend(figure: "Figure", axes: "Axes", columns: int, *, is_below: bool = False) -> "Legend":
    """Add the legend of a panel above or below all panels. The figure grows by its height.

    The legend has at most ``columns`` columns, and fewer if they are wider than the figure. Long
    labels have several lines.
    """
    handles, names = axes.get_legend_handles_labels()
    labels = [textwrap.fill(name, MAXIMUM_LABEL) for name in names]
    for count in range(columns, 0, -1):
        legend = figure.legend(
            handles, labels, ncols=count,
            loc="outside lower left" if is_below else "outside upper left",
        )  # fmt: skip
        box = legend.get_window_extent()
        if box.width < 0.98 * figure.bbox.width or count == 1:
            break
        legend.remove()
    figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
    return legend


def save(figure: "Figure", stem: str | Path, formats: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Write a figure in each format. Equal figures have equal bytes: files contain no dates.

    Warn if the font of the figure lacks characters.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)  # becomes figure.canvas
    figure.set_dpi(DPI)
    freeze_layout(figure)
    if missing := missing_characters(figure):
        announce(
            f"warning: {Path(stem).name}: the font of figures lacks {missing[:20]!r}, so boxes are "
            "drawn; use names in Latin, Greek or Cyrillic letters"
        )
    metadata = {
        "png": {"Software": None},
        "pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
    }
    paths = [Path(f"{stem}.{suffix}") for suffix in formats]
    for path, suffix in zip(paths, formats, strict=True):
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format=suffix, dpi=DPI, metadata=metadata[suffix])
    return paths


def missing_characters(figure: "Figure") -> str:
    """Return the characters in a figure that its font lacks, for example Chinese ones, sorted."""
    from matplotlib.font_manager import findfont, get_font
    from matplotlib.text import Text

    [family] = STYLE["font.sans-serif"]
    known = get_font(findfont(family)).get_charmap()
    texts: Any = figure.findobj(Text)
    characters = {character for text in texts for character in text.get_text()}
    return "".join(sorted(x for x in characters if x.isprintable() and ord(x) not in known))


def freeze_layout(figure: "Figure") -> None:
    """Fix the positions of the panels. They are rounded: their last digits vary between runs."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        x, y, width, height = (round(edge, 6) for edge in axes.get_position(original=True).bounds)
        axes.set_position((x, y, width, height))


def add_notes(figure: "Figure", *texts: str) -> None:
    """Add sentences to the caption of a figure, which is not drawn. Empty texts are left out.

    The figure keeps them as its label (:meth:`Figure.get_label`).
    """
    figure.set_label(" ".join(text for text in (str(figure.get_label()), *texts) if text))


def set_log_scale(axes: "Axes") -> None:
    """Make the y axis logarithmic, with at most nine labels. Draw the data first."""
    from matplotlib.ticker import FuncFormatter, LogFormatterMathtext, LogLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    multiples = (1, 2, 5) if high / low < 1e3 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=multiples, numticks=9))
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    is_plain = low >= 1e-3 and high < 1e5
    axes.yaxis.set_major_formatter(plain if is_plain else LogFormatterMathtext())
    axes.yaxis.minorticks_off()


def training_cells(config: Config) -> str:
    """Return a remark for axis labels on the training cells of the embedded corpus, or ""."""
    return " (simulated cells and PBMC 68k)" if config.corpus.source == "embedded" else ""


def thousands(value: float, _: float) -> str:
    """Format the value of a tick: ``5,000``, ``20K`` (from 10,000) or ``3M`` (from a million)."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}K" if abs(value) >= 1e4 else f"{value:,g}"
