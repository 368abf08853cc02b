"""Check the paper's theory numerically, and its statements against its own tables.

    python workflow/scripts/paper_review.py docs/paper-review.md

No results are needed.  The theory is checked in float64.  A bound over all inputs cannot be proved
by trying some; these checks can refute one, and they try the inputs that are hardest for it.
"""

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from scsigmoid.labels import context_label, number, place_label, provider_label
from scsigmoid.paper.reported import Reported, reported
from scsigmoid.report.tables.mmd import paper_improvements
from scsigmoid.results.speed import next_steps

Array = np.ndarray
sigmoid, softmax = special.expit, partial(special.softmax, axis=-1)
SEED = 20240611
APPENDIX = "Appendix A.1"
HEAD = """\
# The paper's theory and arithmetic

Statements of the paper that can be checked without any run: its theory, numerically in float64,
and its arithmetic, against its own tables (`src/scsigmoid/paper/reported.yaml`). What needs a run
is compared in each run's report ([comparison.md](comparison.md)). This page was made by
`python workflow/scripts/paper_review.py docs/paper-review.md`.
"""


class Check(NamedTuple):
    """A statement of the paper, and what came out.

    Attributes:
        places: where it stands, as labels of the paper's source or in words.
        statement: in our words.
        found: the number that came out.
        holds: whether the statement follows.
        note: what it was computed on, and what else a reader should know.
    """

    places: str
    statement: str
    found: float
    holds: bool
    note: str = ""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, checks in (("Theory", list(theory())), ("Arithmetic", list(arithmetic()))):
        held = sum(check.holds for check in checks)
        parts.append(f"## {title}: {held} of {len(checks)} hold\n")
        parts.append(
            "| statement | where | found | holds | note |\n| --- | --- | --- | --- | --- |"
        )
        parts += [
            f"| {c.statement} | {place_label(c.places)} | {shown(c.found)} | "
            f"{'yes' if c.holds else '**no**'} | {c.note} |"
            for c in checks
        ]
        parts[-1] += "\n"
    return "\n".join(parts)


def shown(value: float) -> str:
    """A number; what is 0 but for rounding as such, since its digits are the machine's."""
    return "below 1e-8" if 0 < abs(value) < 1e-8 else number(value)


# Theory.


def softmax_jacobian(scores: Array) -> Array:
    """diag(p) - p p' of one row of scores."""
    p = softmax(scores)
    return np.diag(p) - np.outer(p, p)


def jacobian(function: Callable[[Array], Array], x: Array) -> Array:
    """Central differences: (outputs, inputs) of a function of an array."""
    step = 1e-5
    columns = []
    for index in range(x.size):
        shift = np.zeros(x.size)
        shift[index] = step
        change = shift.reshape(x.shape)
        columns.append((function(x + change) - function(x - change)).ravel() / (2 * step))
    return np.stack(columns, axis=1)


def norm(matrix: Array) -> float:
    """Spectral norm."""
    return float(np.linalg.norm(matrix, 2))


def normal(scale: float, *shape: int) -> Array:
    """Normal numbers, the same for each call of a shape."""
    return np.random.default_rng(SEED).normal(0, scale, shape)


# fmt: off
def theory() -> Iterator[Check]:
    """Section 3 and the appendix."""
    yield from of_sigmoid()
    yield from of_softmax()
    growth, note = sigmoid_theorem_growth()
    yield Check(f"{APPENDIX}, Theorem 1",
        "The Jacobian of sigmoid attention is at most C times the mean squared norm of the inputs, "
        "with a C that depends on neither length nor scores.",
        growth,
        growth <= 1.1,
        note,
    )


def of_sigmoid() -> Iterator[Check]:
    """The sigmoid and its derivative."""
    grid = np.linspace(-40, 40, 800_001)
    slopes = sigmoid(grid) * (1 - sigmoid(grid))
    on_grid = "grid of 800,001 points from -40 to 40"
    steepest, spread = float(slopes.max()), float(np.ptp(slopes))
    yield Check(f"abstract, {APPENDIX}", "The derivative of the sigmoid is at most 1/4.",
        steepest, steepest == 0.25, on_grid)
    place = float(grid[int(np.argmax(slopes))])
    yield Check(APPENDIX,
        "The derivative of the sigmoid is largest at 0.", place, place == 0, on_grid)
    yield Check(APPENDIX, "The local derivative of the sigmoid layer is independent of the input.",
        spread, spread == 0,
        f"largest less smallest derivative, {on_grid}; its bound is independent, it is not")
    error = float(np.abs((np.tanh(grid / 2) + 1) / 2 - sigmoid(grid)).max())
    yield Check("sec:kernel",
        "The tanh form, (tanh(x/2) + 1)/2, equals the sigmoid.", error, error < 1e-12,
        "largest difference; only the GPU's tanh is approximate")
    found = jacobian(sigmoid, normal(3, 64))
    off = float(np.abs(found - np.diag(np.diag(found))).max())
    yield Check(f"abstract, {APPENDIX}",
        "The Jacobian of the sigmoid with respect to a row of scores is diagonal.",
        off, off < 1e-9, "largest entry off the diagonal; 64 scores, central differences")
    error = abs(norm(found) - float(np.diag(found).max()))
    yield Check(APPENDIX,
        "The spectral norm of the sigmoid's Jacobian is its largest diagonal entry.",
        error, error < 1e-8, "difference; 64 scores, central differences")
    tokens = 4096
    even, drawn = (
        float(sigmoid(x - math.log(tokens)).sum(-1).mean())
        for x in (np.zeros(tokens), normal(1, 100, tokens))
    )
    yield Check("Section 3",
        "The bias -log n makes sigmoid attention approximate softmax's normalisation.",
        even, abs(even - 1) < 0.01,
        f"sum of a row of {tokens:,} tokens. True for scores of 0 only, at the start of training: "
        f"{drawn:.2f} on average for standard normal ones, where softmax's rows always sum to 1")
    random, ratios = np.random.default_rng(SEED), []
    for scale, reach in itertools.product((0.0, 0.1, 1.0, 10.0, 100.0), (1e-4, 1e-2, 1.0, 100.0)):
        scores = random.normal(0, 1, (200, 8, 8)) * scale
        change = random.normal(0, 1, (200, 8, 8)) * reach
        moved = np.linalg.norm(sigmoid(scores + change) - sigmoid(scores), axis=(1, 2))
        ratios.append(float((moved / np.linalg.norm(change, axis=(1, 2))).max()))
    yield Check(APPENDIX, "The sigmoid operator is globally 1/4-Lipschitz in the scores.",
        max(ratios), max(ratios) <= 0.25 * (1 + 1e-9),
        "4,000 pairs of 8 x 8 scores; attention itself adds the norm of the values as a factor")


def of_softmax() -> Iterator[Check]:
    """The softmax, its derivative, and what is said to bound it."""
    found = softmax_jacobian(normal(3, 64))
    dense = float((found != 0).mean())
    yield Check(f"abstract, {APPENDIX}",
        "The Jacobian of the softmax with respect to a row of scores is dense.",
        dense, dense == 1, "share of entries that are not 0; 64 scores")
    below = float((found[~np.eye(64, dtype=bool)] < 0).mean())
    yield Check("Section 3",
        "In softmax attention more weight on one token takes weight from all others.",
        below, below == 1, "share of the entries off the diagonal that are below 0; 64 scores")
    scores = normal(3, 16)
    error = float(np.abs(softmax_jacobian(scores) - jacobian(softmax, scores)).max())
    yield Check(APPENDIX, "The softmax's derivative is p_j (delta_jk - p_k).", error, error < 1e-8,
        "largest difference from central differences; 16 scores")
    peaked = np.zeros(64)
    peaked[7] = 1e3
    length = float(np.linalg.norm(softmax(peaked)))
    whole = float(np.linalg.norm(softmax(np.tile(peaked, (16, 1)))))
    yield Check(APPENDIX, "Where attention rests on one token, the norm of the softmax's row is 1.",
        length, length == 1, f"for a matrix of 16 such rows it is {whole:g}")
    q, k = normal(1, 2, 6, 4)
    few, many = (
        norm(jacobian(lambda x: x[0] @ x[1].T / 2.0, np.stack([q, k]) * by)) for by in (1.0, 8.0)
    )
    exponent = round(math.log(many / few) / math.log(8.0), 6)
    yield Check(APPENDIX,
        "The derivative of the scores grows linearly with the norms of queries and keys.",
        exponent, exponent == 1, "exponent; 6 tokens of 4 dimensions, norms times 8")
    largest = attention_derivative_bound()
    yield Check(f"{APPENDIX}, Equation 3",
        "The derivative of softmax attention obeys the stated bound in the scores' derivative.",
        largest, largest <= 1,
        "largest left over right side; 20 inputs of 4 tokens and 3 dimensions, operator norm")
    random, ratios = np.random.default_rng(SEED), []
    for scale in (0.0, 0.1, 0.5, 1.0, 3.0):
        x = random.normal(0, 1, (6, 4)) * scale
        ratios += [norm(softmax_jacobian(row)) / math.exp(norm(x) ** 2) for row in x @ x.T / 2.0]
    yield Check(APPENDIX,
        "The derivative of the softmax is bounded by a constant times exp(\\|\\|X\\|\\|^2).",
        max(ratios), max(ratios) <= 1,
        "norm over exp(\\|\\|X\\|\\|^2); 5 inputs of 6 tokens; the norm itself never exceeds 1/2")
    needed = max(
        max(softmax_norms(scale)) / math.exp(scale) for scale in (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
    )
    yield Check(f"{APPENDIX}, Proposition 1",
        "Softmax's local Lipschitz constant is at most C exp(max \\|S\\|), with a universal C.",
        needed, needed <= 0.5 * (1 + 1e-9),
        "smallest C; holds because the norm itself never exceeds 1/2, whatever the scores")
    scales = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    norms = [max(softmax_norms(scale)) for scale in scales]
    slope = round(float(np.polyfit(scales, np.log(norms), 1)[0]), 9)
    yield Check(f"Section 3, {APPENDIX}",
        "Softmax's local Lipschitz constant grows exponentially with the scores.",
        slope, slope >= 0.5,
        f"slope of log Lip in max \\|S\\|: the largest norm is {norms[0]:.3f} at max \\|S\\| = 1, "
        f"{norms[-1]:.3f} at 16, 1/2 for two equal scores of any size; the bound stands, not the "
        "growth")
    concentrated = np.zeros(8)
    concentrated[0] = 20.0
    even, sharp = (norm(softmax_jacobian(scores)) for scores in (np.zeros(8), concentrated))
    yield Check(APPENDIX,
        "The spectral norm of softmax's Jacobian grows large as probability concentrates.",
        sharp / even, sharp >= even,
        f"{sharp:.2g} where one of 8 tokens has nearly all, over {even:.3g} for equal shares: it "
        "tends to 0")


# fmt: on
def attention_derivative_bound() -> float:
    """Largest left side over right side of the bound on the derivative of softmax attention.

    Attention as in its source, X softmax(S)' with the scores S of X and identity weights.  The
    mixed norm of the scores' derivative is exact: its largest value is that of the best choice of
    one score in each row, and all choices are tried.
    """
    random = np.random.default_rng(SEED)
    tokens, dimensions, largest = 4, 3, 0.0

    def scores(x: Array) -> Array:
        return x.T @ x / math.sqrt(dimensions)

    for scale in np.repeat((0.1, 0.5, 1.0, 2.0, 4.0), 4):
        x = random.normal(0, scale, (dimensions, tokens))
        left = norm(jacobian(lambda y: y @ softmax(scores(y)).T, x))
        of_scores = jacobian(scores, x).reshape(tokens, tokens, -1)
        mixed = max(
            norm(of_scores[np.arange(tokens), list(choice)])
            for choice in itertools.product(range(tokens), repeat=tokens)
        )
        longest = float(np.linalg.norm(x, axis=0).max())
        right = float(np.linalg.norm(softmax(scores(x)))) + math.sqrt(2) * longest * mixed
        largest = max(largest, left / right)
    return largest


def softmax_norms(scale: float, draws: int = 200) -> list[float]:
    """Spectral norms of the softmax's Jacobian at scores with max |S| = ``scale``.

    Random scores of 8 tokens, and two tokens with equal scores, where the norm is largest.
    """
    random = np.random.default_rng(SEED)
    found = [norm(softmax_jacobian(np.full(2, scale)))]
    for _ in range(draws):
        scores = random.normal(0, 1, 8)
        found.append(norm(softmax_jacobian(scores / np.abs(scores).max() * scale)))
    return found


def sigmoid_attention_norm(x: Array) -> float:
    """Spectral norm of the Jacobian of sigmoid attention with identity weights, b = -log n."""
    tokens, dimensions = x.shape

    def attention(y: Array) -> Array:
        return sigmoid(y @ y.T / math.sqrt(dimensions) - math.log(tokens)) @ y

    return norm(jacobian(attention, x))


def sigmoid_theorem_growth() -> tuple[float, str]:
    """How the C that the theorem needs grows with length and score, for identical tokens.

    Identical tokens, scores twice log n: no weight is far from 1, and the Jacobian grows with n.
    """

    def needed(tokens: int) -> float:
        squared = 2 * math.log(tokens) * math.sqrt(2)
        x = np.full((tokens, 2), math.sqrt(squared / 2))
        return sigmoid_attention_norm(x) / squared

    few, many = needed(4), needed(64)
    small = sigmoid_attention_norm(np.full((16, 2), 1e-3)) / 2e-6
    return many / few, (
        "growth of the smallest C; identity weights, identical tokens, scores of 2 log n: C is "
        f"{few:.3g} for 4 tokens and {many:.3g} for 64; for 16 tokens of norm 0.0014 it is "
        f"{small:.2g}, because the bound has no constant term"
    )


# Arithmetic.


def rounds(value: float, printed: float) -> bool:
    """Whether a number is as printed once it is rounded: to a whole one, or to one decimal."""
    return math.isclose(round(value, 0 if isinstance(printed, int) else 1), printed, rel_tol=1e-9)


def arithmetic() -> Iterator[Check]:
    """What the paper says of its own tables."""
    paper = reported()
    yield from of_quality(paper)
    yield from of_kernel(paper)
    yield from of_cost(paper)
    yield from of_runs(paper)


# fmt: off
def of_quality(paper: Reported) -> Iterator[Check]:
    """MMD and validation loss."""
    means = paper_improvements("heart_oft")
    yield Check("tab:mmd_heart_oft", "The mean improvement of the MMD table is 25.0 %.",
        means["ratio_of_means"], rounds(means["ratio_of_means"], 25.0),
        "as the ratio of the columns' means; the mean of the 28 improvements is "
        f"{means['mean_of_ratios']:.1f} %")
    rows = paper["mmd"]["heart_oft"]
    apart = sum(row["sigmoid"][1] > row["softmax"][2] for row in rows)
    won = sum(row["sigmoid"][0] > row["softmax"][0] for row in rows)
    yield Check("tab:mmd_heart_oft",
        "Sigmoid's MMD is higher in all 28 rows of the table.", won, won == 28,
        f"the intervals are disjoint in {apart} of them")
    types = {name for row in rows for name in row["pair"].split(" vs ")}
    pairs = math.comb(len(types), 2)
    yield Check("tab:mmd_heart_oft", "The table's cell types make 28 pairs.", pairs, pairs == 28,
        f"{len(types)} types")
    losses = paper["validation_loss"]
    lost = [
        f"{paper['datasets'][name]['title']} at {at.upper()}: {ours:.3f} against {theirs:.3f}"
        for name, row in losses.items()
        for at in ("2k", "4k")
        if (ours := row[f"sigmoid_{at}"][0]) >= (theirs := row[f"softmax_{at}"][0])
    ]
    yield Check("sec:empirical, tab:validation_loss_detailed",
        "In the table sigmoid's loss is lower on all six datasets, at both contexts.",
        12 - len(lost), not lost, f"of 12; not {'; '.join(lost)}")
    longer = sum(
        row[f"{arm}_4k"][0] < row[f"{arm}_2k"][0]
        for row in losses.values()
        for arm in ("sigmoid", "softmax")
    )
    yield Check("tab:validation_loss_detailed",
        "In the table 4K is better than 2K throughout.", longer,
        longer == 12, "of 12")
    best = sum(min(row, key=lambda model: row[model][0]) == "sigmoid_4k" for row in losses.values())
    yield Check("tab:validation_loss_detailed",
        "In the table Sigmoid 4K is the best of the four on every dataset.", best, best == 6,
        "of 6")


def of_kernel(paper: Reported) -> Iterator[Check]:
    """TFLOPS, speed-ups, shapes and counted operations."""
    tflops, printed = paper["tflops"], paper["printed"]
    own = tflops["triton_sigmoid"]
    for gain in printed["peak_gains"]:
        other, percent = tflops[gain["provider"]], gain["unit"] == "%"
        forward, backward = (
            (own[way] / other[way] - 1) * 100 if percent else own[way] / other[way]
            for way in ("forward", "backward")
        )
        unit = "% more" if percent else "times"
        yield Check("sec:kernel",
            f"Peak forward TFLOPS give {gain['value']} {unit} over "
            f"{provider_label(gain['provider'])}.",
            forward, rounds(forward, gain["value"]),
            f"{own['forward']} over {other['forward']}; backward, beside which it stands too, "
            f"{backward:.{0 if percent else 1}f} {gain['unit']}")
    for provider, value in printed["headlines"].items():
        measured = tflops[provider]["forward"]
        yield Check("abstract, sec:introduction",
            f"The measured {measured} TFLOPS of {provider_label(provider)} are {value} TFLOPS.",
            measured, rounds(measured, value))
    rows = [row for row in paper["speed_ups"] if row["padding"] == 0]
    ours = {row["pass"]: row["mean"] for row in rows if row["provider"] == "triton_sigmoid"}
    ahead = sum(
        ours[row["pass"]] > row["mean"] for row in rows if row["provider"] != "triton_sigmoid"
    )
    yield Check("sec:kernel",
        "The average speed-ups put TritonSigmoid before FlashAttention-2 and FlashSigmoid, forward "
        "and backward.", ahead, ahead == 4, "of 4")
    for row in paper["padding_overhead"]:
        lost = (1 - row["padded"] / row["unpadded"]) * 100
        yield Check("sec:kernel",
            f"From {row['unpadded']} to {row['padded']} TFLOPS ({row['pass']}) is a decrease of "
            f"{row['decrease']} %.", lost, rounds(lost, row["decrease"]))
    behind = [
        (1 - tflops["pytorch"][way] / tflops[provider][way]) * 100
        for provider in ("triton_sigmoid", "flash_sigmoid", "flash_attention_2")
        for way in ("forward", "backward")
    ]
    yield Check("fig:latency_supp, sec:kernel",
        "At the peak shape the TFLOPS put standard attention 60 to 85 % behind the optimised "
        "kernels.",
        min(behind), min(behind) >= 60 and max(behind) <= 85,
        f"it ranges from {min(behind):.0f} % to {max(behind):.0f} %")
    b, h, n, d = 1, 16, 16384, 128
    product, forward, backward = 2 * b * h * n * d**2, 4 * b * h * n**2 * d, 10 * b * h * n**2 * d
    yield Check("Appendix A.4",
        "Twice the stated 2bhnd^2 of one product is the stated 4bhn^2d of the forward pass.",
        2 * product / forward, 2 * product == forward,
        "ratio at 16,384 tokens and head dimension 128; one product takes 2bhn^2d, and n and d are "
        "exchanged in its formula")
    yield Check("Appendix A.4", "2.5 times 4bhn^2d is 10bhn^2d.", 2.5 * forward / backward,
        2.5 * forward == backward)
    shapes = printed["kernel"]
    heads = [shapes["hidden"] // dimension for dimension in shapes["head_dimensions"]]
    batches = [shapes["tokens"] // length for length in shapes["lengths"]]
    stated = [*shapes["heads"], *shapes["batches"]]
    met = sum(ours == theirs for ours, theirs in zip([*heads, *batches], stated, strict=True))
    yield Check("sec:kernel",
        "Hidden size 2,048 gives 32 and 16 heads; 16,384 tokens give batches of 32 to 1.", met,
        met == 4, "of 4")


def of_cost(paper: Reported) -> Iterator[Check]:
    """GPU-hours and what they save."""
    both, rows = "sec:kernel, fig:throughput", paper["gpu_hours"]
    for row in rows:
        found, words = nearest(row, row["saved"])
        yield Check("sec:kernel",
            f"{row['size']} at {context_label(row['context'])}: {row['sigmoid']} against "
            f"{row['softmax']} GPU-hours is {row['saved']} % faster.",
            found, rounds(found, row["saved"]), words)
    (last,) = (row["softmax"] - row["sigmoid"] for row in rows if row["context"] == 8192)
    yield Check("sec:kernel", "1.4B at 8K saves 645 GPU-hours.", last, last == 645)
    largest, words = nearest(max(rows, key=lambda row: row["softmax"] / row["sigmoid"]), 10)
    yield Check("abstract, sec:kernel", "The largest speed-up among the printed GPU-hours is 10 %.",
        largest, rounds(largest, 10), words)
    saved: dict[str, dict[int, float]] = {}
    for row in sorted(rows, key=lambda row: row["context"]):
        percent = (1 - row["sigmoid"] / row["softmax"]) * 100
        saved.setdefault(row["size"], {})[row["context"]] = percent
    several = {size: found for size, found in saved.items() if len(found) > 1}
    grows = sum(list(found.values()) == sorted(found.values()) for found in several.values())
    yield Check(both,
        "The saving grows with the context (sizes with more than one printed context).",
        grows, grows == len(several),
        f"of {len(several)} sizes; "
        + "; ".join(
            f"{size}: "
            + ", ".join(f"{value:.1f} % at {context_label(at)}" for at, value in found.items())
            for size, found in several.items()
        ))
    steps = next_steps(rows, lambda row: (row["size"], row["context"]))
    falls = []
    for step in steps:
        less, more = (row["softmax"] - row["sigmoid"] for row in step)
        names = [f"{row['size']} at {context_label(row['context'])}" for row in step]
        if more <= less:
            falls.append(f"{less} ({names[0]}) to {more} ({names[1]})")
    yield Check("sec:kernel", "The printed GPU-hours saved grow with model size and with context.",
        len(steps) - len(falls), not falls, f"of {len(steps)} steps; not from "
        + ", nor from ".join(falls))
    gain = max((row["softmax"] / row["sigmoid"] - 1) * 100 for row in rows)
    kernel = min(row["value"] for row in paper["padded_gains"])
    yield Check("sec:kernel",
        "The printed end-to-end gains are smaller than the kernel's.", gain - kernel,
        gain < kernel,
        f"in points; training gains up to {gain:.1f} %, the kernel at least {kernel} %")


def nearest(row: dict[str, Any], value: float) -> tuple[float, str]:
    """The saving by the definition that rounds to the printed one, hours saved first; and both."""
    found = {
        "hours saved": (1 - row["sigmoid"] / row["softmax"]) * 100,
        "throughput gained": (row["softmax"] / row["sigmoid"] - 1) * 100,
    }
    fits = [number for number in found.values() if rounds(number, value)]
    words = ", ".join(f"{name} {number:.2f} %" for name, number in found.items())
    return (fits or list(found.values()))[0], words


def of_runs(paper: Reported) -> Iterator[Check]:
    """The stress test, the benchmark's readings, and the models."""
    gradient, model = paper["printed"]["gradient"], paper["model_architecture"]
    orders = math.log10(gradient["peak"] / gradient["before"])
    yield Check("sec:stability",
        "From about 100 to 1.6 million is four orders of magnitude.", orders,
        rounds(orders, 4))
    peak = float(paper["printed"]["score_peak"])
    yield Check("sec:stability, fig:stability",
        "The 230 million of the text are the 2 x 10^8 of the figure.", peak, rounds(peak / 1e8, 2))
    run = paper["printed"]["throughput"]
    readings = run["steps"] / run["read_every"]
    yield Check("sec:kernel",
        "10,000 steps read every 200 give 50 readings.", readings, readings == 50)
    cells = run["gpus"] * run["cells_per_gpu"]
    yield Check("sec:kernel, fig:throughput",
        "Two cells on each of 16 GPUs are a batch of 32.", cells,
        cells == 32)
    steps, batch = paper["models"]["sigmoid_4k"]["steps"], model["global_batch"]
    yield Check("app:hyperparameters, fig:training_validation_loss",
        "515,000 steps of 256 cells are the 131.6 million cells of the corpus, once.",
        steps * batch, abs(steps * batch / paper["corpus"]["cells"] - 1) <= 0.01)
    heads, hidden = model["heads"] * model["head_dimension"], model["hidden"]
    met = (heads == hidden) + (model["feed_forward"] == 4 * hidden)
    yield Check("tab:model_arch",
        "12 heads of 64 make the hidden size, and the feed-forward width is 4 times it.", met,
        met == 2, f"of 2; {heads} and {model['feed_forward']}, hidden size {hidden}")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
