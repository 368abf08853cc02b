"""Check the paper's theory numerically, and its arithmetic against its own tables.

    python docs/measurements/scripts/paper_review.py docs/paper-review.md

The script writes the page. The paper's numbers are in ``src/scsigmoid/paper/reported.yaml``.
"""

import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from scsigmoid.paper.reported import reported
from scsigmoid.results.labels import ATTENTIONS, PASSES, context_label, four_digits, provider_label

HEAD = """\
# The paper's theory and arithmetic

This page checks statements of the paper that do not need a training run. The column *result* is a number that decides whether the
statement holds. The note explains it.

- **Theory** is checked numerically in float64. Examples can refute a bound, but not prove it: *yes* means that no tested input refutes it.
- **Arithmetic** is checked against the paper's own tables (`src/scsigmoid/paper/reported.yaml`).

The report of each run compares the numbers that need a run ([comparison.md](comparison.md)).
`python docs/measurements/scripts/paper_review.py docs/paper-review.md` writes this page.
"""  # noqa: E501
#: Statement, part of the paper with the statement, result, True if the statement holds, note.
Row = tuple[str, str, float, bool, str]


def page() -> str:
    parts = [HEAD]
    for title, rows in (("Theory", [*theory()]), ("Arithmetic", [*arithmetic()])):
        held = sum(holds for _, _, _, holds, _ in rows)
        parts += [f"## {title}: {held} of {len(rows)} hold\n"]
        parts += ["| statement | where | result | holds | note |\n| --- | --- | --- | --- | --- |"]
        for statement, where, value, holds, note in rows:
            cells = (statement, where, four_digits(value), "yes" if holds else "**no**", note)
            parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(parts)


def softmax_norm(scores: np.ndarray) -> float:
    """Return the spectral norm of the Jacobian of softmax for one row of scores."""
    p = softmax(scores)
    return float(np.linalg.norm(np.diag(p) - np.outer(p, p), 2))


def sigmoid_attention_norm(x: np.ndarray) -> float:
    """Return the spectral norm of the Jacobian of sigmoid attention with identity projections.

    This is the derivative of O = W X with respect to X, for W = sigmoid(X X' / sqrt(d) - log n).
    """
    n, d = x.shape
    weights = expit(x @ x.T / math.sqrt(d) - math.log(n))
    slopes = weights * (1 - weights) / math.sqrt(d)
    # (output token, output dimension, input token, input dimension): sum of the derivatives with
    # respect to values, keys and queries.
    jacobian = np.einsum("ij,ab->iajb", weights, np.eye(d))
    jacobian += np.einsum("ij,ja,ib->iajb", slopes, x, x)
    jacobian += np.einsum("il,ij,ja,jb->ialb", np.eye(n), slopes, x, x)
    return float(np.linalg.norm(jacobian.reshape(n * d, n * d), 2))


# fmt: off
def theory() -> Iterator[Row]:
    """Yield the statements about derivatives (section 3 and appendix A.1)."""
    random, appendix = np.random.default_rng(20240611), "Appendix A.1"
    sigmoids = expit(np.linspace(-40, 40, 800_001))
    slopes = sigmoids * (1 - sigmoids)
    yield ("The derivative of the sigmoid is at most 1/4", f"Abstract, {appendix}", slopes.max(),
        slopes.max() == 0.25, "largest value at 800,001 points from -40 to 40")
    yield ("The local derivative of the sigmoid layer is independent of the input", appendix,
        np.ptp(slopes), np.ptp(slopes) == 0,
        "largest minus smallest derivative. Only its bound of 1/4 is independent of the input")
    tokens = 4096
    zeros, normal = np.zeros(tokens), random.normal(0, 1, (100, tokens))
    sum_for_zeros, sum_for_normal = (expit(scores - math.log(tokens)).sum(-1).mean()
        for scores in (zeros, normal))
    yield ("The bias -log n makes sigmoid attention approximate the normalization of softmax",
        "Section 3", sum_for_zeros, abs(sum_for_zeros - 1) < 0.01,
        f"sum of the weights of a query over {tokens:,} tokens with scores of 0, as at the start "
        f"of training. For standard normal scores, the mean sum is {sum_for_normal:.2f}")
    scales, rows = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0), random.normal(0, 1, (200, 8))
    rows /= np.abs(rows).max(axis=1, keepdims=True)  # the largest |score| of each row is 1
    # The largest norm for each scale, over the scaled rows and a row of two equal scores.
    norms = [max(softmax_norm(scores) for scores in ([scale, scale], *(scale * rows)))
        for scale in scales]
    needed = max(value / math.exp(scale) for scale, value in zip(scales, norms, strict=True))
    yield ("The local Lipschitz constant of softmax is at most C exp(max \\|S\\|), with a "
        "universal C", f"{appendix}, Proposition 1", needed, needed <= 0.5 * (1 + 1e-9),
        "smallest C for all tested scores. The constant itself never exceeds 1/2")
    slope = round(np.polyfit(scales[2:], np.log(norms[2:]), 1)[0], 9)  # from scale 1
    yield ("The local Lipschitz constant of softmax grows exponentially with the scores",
        f"Section 3, {appendix}", slope, slope >= 0.5,
        "slope of its logarithm over max \\|S\\|. The constant is 1/2 for two equal scores of any "
        "size, so the upper bound holds, but the growth does not")
    even, sharp = (softmax_norm(score * np.eye(8)[0]) for score in (0, 20))
    yield ("The spectral norm of the Jacobian of softmax grows as probability concentrates",
        appendix, sharp / even, sharp >= even, "norm if one of 8 tokens has nearly all probability "
        f"({sharp:.2g}) divided by the norm for equal probabilities ({even:.3g}). It tends to 0")
    # All tokens are identical: the smallest C is the norm divided by the squared norm of a token.
    squared_norms = {n: 2 * math.log(n) * math.sqrt(2) for n in (4, 64)}  # scores of 2 log n
    few, many = (sigmoid_attention_norm(np.full((n, 2), math.sqrt(square / 2))) / square
        for n, square in squared_norms.items())
    small_x = np.full((16, 2), 1e-3)  # 16 tokens
    small = sigmoid_attention_norm(small_x) / np.sum(small_x[0] ** 2)
    yield ("The Jacobian of sigmoid attention is at most C times the mean squared norm of the "
        "inputs, with a C that depends on neither length nor scores", f"{appendix}, Theorem 1",
        many / few, many <= 1.1 * few, f"smallest C for n = 64 ({many:.3g}) divided by the "
        f"smallest C for n = 4 ({few:.3g}), with n identical tokens and scores of 2 log n. For 16 "
        f"tokens of norm 0.0014, C is {small:.2g}, because the bound has no constant term")


def arithmetic() -> Iterator[Row]:
    """Yield the statements about the paper's own tables."""
    paper = reported()
    yield from quality(paper)
    yield from kernels(paper)
    yield from cost(paper["gpu_hours"], min(row["value"] for row in paper["padded_gains"]))
    gradient, run = paper["printed"]["gradient"], paper["printed"]["throughput"]
    orders = math.log10(gradient["peak"] / gradient["before"])
    yield ("From about 100 to 1.6 million is four orders of magnitude", "Section 5.3", orders,
        rounds_to(orders, 4), "logarithm of the ratio to base 10")
    model = paper["model_architecture"]
    cells = paper["models"]["sigmoid_4k"]["steps"] * model["global_batch"]
    yield ("515,000 steps of 256 cells are the 131.6 million cells of the corpus, once",
        "Appendix A.2, Figure 4", cells, abs(cells / paper["corpus"]["cells"] - 1) <= 0.01, "cells")
    readings, batch = run["steps"] / run["read_every"], run["gpus"] * run["cells_per_gpu"]
    yield "10,000 steps read every 200 give 50 readings", "Section 4", readings, readings == 50, ""
    yield "Two cells on each of 16 GPUs are a batch of 32", "Section 4", batch, batch == 32, ""
    width = model["heads"] * model["head_dimension"]
    yield ("12 heads of 64 are the hidden size, and the feed-forward width is 4 times it",
        "Table 2", width, width == model["hidden"] == model["feed_forward"] / 4, "")


def rounds_to(value: float, printed: float) -> bool:
    """Return True if ``value`` rounds to ``printed``: an integer, or a number with one decimal."""
    return math.isclose(round(value, 0 if isinstance(printed, int) else 1), printed, rel_tol=1e-9)


def quality(paper: dict[str, Any]) -> Iterator[Row]:
    """Yield the statements about MMD and validation loss."""
    rows, losses = paper["mmd"]["heart_oft"], paper["validation_loss"]
    # 28 pairs x (MMD, low end, high end)
    of_sigmoid, of_softmax = (np.array([row[arm] for row in rows]) for arm in ATTENTIONS)
    ratio_of_means = float(of_sigmoid[:, 0].sum() / of_softmax[:, 0].sum() - 1) * 100
    mean_of_ratios = float((of_sigmoid[:, 0] / of_softmax[:, 0]).mean() - 1) * 100
    yield ("The mean improvement of the MMD table is 25.0 %", "Table 1", ratio_of_means,
        rounds_to(ratio_of_means, 25.0),
        "ratio of the means of both columns. The mean of the 28 improvements is "
        f"{mean_of_ratios:.1f} %")
    measured, datasets = len(paper["mmd"]), len(paper["datasets"])
    yield ("The 25 % higher cell-type separation comes from six datasets",
        "Abstract, Section 1, Conclusion", measured, measured == datasets,
        f"of {datasets} datasets has an MMD in the paper: Heart OFT (Table 1)")
    won = (of_sigmoid[:, 0] > of_softmax[:, 0]).sum()
    apart = (of_sigmoid[:, 1] > of_softmax[:, 2]).sum()  # low end above softmax's high end
    yield ("The MMD of sigmoid is higher in all 28 rows", "Table 1", won, won == 28,
        f"rows. The intervals do not overlap in {apart} rows")
    types = {name for row in rows for name in row["pair"].split(" vs ")}
    pairs = math.comb(len(types), 2)
    yield "The cell types make 28 pairs", "Table 1", pairs, pairs == 28, f"{len(types)} types"
    titles = {name: dataset["title"] for name, dataset in paper["datasets"].items()}
    lost = [f"{titles[name]} at {context.upper()}: {own:.3f} against {rival:.3f}"
        for name, row in losses.items() for context in ("2k", "4k")
        if (own := row[f"sigmoid_{context}"][0]) >= (rival := row[f"softmax_{context}"][0])]
    yield ("The loss of sigmoid is lower on all six datasets, at both contexts",
        "Section 5, Table 5", 12 - len(lost), not lost, f"of 12. Not lower for {'; '.join(lost)}")
    longer = sum(row[f"{arm}_4k"][0] < row[f"{arm}_2k"][0]
        for row in losses.values() for arm in ATTENTIONS)
    yield "4K is better than 2K throughout", "Table 5", longer, longer == 12, "of 12"
    best = sum(min(row, key=lambda model: row[model][0]) == "sigmoid_4k" for row in losses.values())
    yield "Sigmoid 4K is the best of the four on every dataset", "Table 5", best, best == 6, "of 6"


def kernels(paper: dict[str, Any]) -> Iterator[Row]:
    """Yield the statements about the speed of kernels."""
    tflops, printed = paper["tflops"], paper["printed"]
    own = tflops["triton_sigmoid"]
    for gain in printed["peak_gains"]:
        other, value, unit = tflops[gain["provider"]], gain["value"], gain["unit"]
        forward, backward = (own[direction] / other[direction] for direction in PASSES)
        digits = 1
        if unit == "%":
            forward, backward, digits = (forward - 1) * 100, (backward - 1) * 100, 0
        yield (f"At the peak shape TritonSigmoid is faster than {provider_label(gain['provider'])}:"
            f" {value} {unit}", "Section 4", forward, rounds_to(forward, value),
            f"forward. Backward: {backward:.{digits}f} {unit}")
    for provider, value in printed["headlines"].items():
        measured = tflops[provider]["forward"]
        yield (f"{measured} TFLOPS of {provider_label(provider)} are {value} TFLOPS",
            "Abstract, Section 1", measured, rounds_to(measured, value),
            f"rounds to {measured:.0f}")
    means = {(row["provider"], row["pass"]): row["mean"]
        for row in paper["speed_ups"] if row["padding"] == 0}
    ahead = sum(means["triton_sigmoid", direction] > mean
        for (provider, direction), mean in means.items() if provider != "triton_sigmoid")
    yield ("TritonSigmoid has a higher mean speed-up than FlashAttention-2 and FlashSigmoid, "
        "forward and backward", "Section 4", ahead, ahead == 4, "of 4")
    for row in paper["padding_overhead"]:
        decrease = (1 - row["padded"] / row["unpadded"]) * 100
        yield (f"From {row['unpadded']} to {row['padded']} TFLOPS ({row['pass']}) is a decrease of "
            f"{row['decrease']} %", "Section 4", decrease, rounds_to(decrease, row["decrease"]), "")
    behind = [(1 - tflops["pytorch"][direction] / tflops[provider][direction]) * 100
        for provider in ("triton_sigmoid", "flash_sigmoid", "flash_attention_2")
        for direction in PASSES]
    yield ("Standard attention is 60 to 85 % behind the optimized kernels at the peak shape",
        "Section 4, Figure 8", min(behind), min(behind) >= 60 and max(behind) <= 85,
        f"smallest difference in %. The range is {min(behind):.0f} to {max(behind):.0f} %")
    n, d = 16384, 128
    products, forward = 2 * 2 * n * d**2, 4 * n**2 * d
    yield ("Twice the stated 2bhnd^2 of one product is the stated 4bhn^2d of the forward pass",
        "Appendix A.4", products / forward, products == forward,
        "ratio at 16,384 tokens and head dimension 128. The first formula exchanges n and d")
    shapes = printed["kernel"]
    computed = [shapes["hidden"] / dimension for dimension in shapes["head_dimensions"]]
    computed += [shapes["tokens"] / length for length in shapes["lengths"]]
    stated = shapes["heads"] + shapes["batches"]
    right = sum(x == y for x, y in zip(computed, stated, strict=True))
    yield ("Hidden size 2,048 gives 32 and 16 heads; 16,384 tokens give batches of 32 to 1",
        "Section 4", right, right == 4, "of 4")


def cost(rows: list[dict[str, Any]], kernel_gain: float) -> Iterator[Row]:
    """Yield the statements about GPU-hours. ``kernel_gain`` is the kernel's smallest gain in %."""
    # By size and context: saved GPU-hours, saved percentage, and gained throughput in percent.
    hours = {(row["size"], row["context"]): row["softmax"] - row["sigmoid"] for row in rows}
    names = {key: f"{key[0]} at {context_label(key[1])}" for key in hours}
    saved = {key: 100 * hours[key] / row["softmax"] for key, row in zip(hours, rows, strict=True)}
    gained = {key: 100 * hours[key] / row["sigmoid"] for key, row in zip(hours, rows, strict=True)}
    notes = {key: f"hours saved {saved[key]:.2f} %, throughput gained {gained[key]:.2f} %"
        for key in hours}
    for key, row in zip(hours, rows, strict=True):
        # The paper does not say which percentage it means: use the gain if only the gain agrees.
        printed = row["saved"]
        value = saved[key]
        if not rounds_to(saved[key], printed) and rounds_to(gained[key], printed):
            value = gained[key]
        yield (f"{names[key]}: {row['sigmoid']} against {row['softmax']} GPU-hours is "
            f"{printed} % faster", "Section 4", value, rounds_to(value, printed), notes[key])
    largest = hours["1.4B", 8192]
    yield "1.4B at 8K saves 645 GPU-hours", "Section 4", largest, largest == 645, ""
    top = max(gained, key=lambda key: gained[key])
    yield ("The largest speed-up is 10 %", "Abstract, Section 4", gained[top],
        rounds_to(gained[top], 10), notes[top])
    by_size = {size: [saved[key] for key in sorted(hours) if key[0] == size] for size, _ in hours}
    several = {size: values for size, values in by_size.items() if len(values) > 1}
    grows = sum(values == sorted(values) for values in several.values())
    yield ("The saving grows with the context", "Section 4, Figure 3", grows,
        grows == len(several), f"of {len(several)} sizes with several contexts. " + "; ".join(
            f"{size}: {', '.join(f'{value:.1f} %' for value in values)}"
            for size, values in several.items()))
    # Increases of the context within a size, and of the size within a context.
    sizes, contexts = (dict.fromkeys(values) for values in zip(*hours, strict=True))
    groups = [[key for key in hours if part in key] for part in (*sizes, *contexts)]
    increases = [pair for group in groups for pair in itertools.pairwise(group)]
    falls = [f"{hours[a]} ({names[a]}) to {hours[b]} ({names[b]})"
        for a, b in increases if hours[b] <= hours[a]]
    yield ("The GPU-hours saved grow with model size and with context", "Section 4",
        len(increases) - len(falls), not falls,
        f"of {len(increases)} increases. Not from {', nor from '.join(falls)}")
    yield ("The end-to-end gains are smaller than those of the kernel", "Section 4",
        gained[top] - kernel_gain, gained[top] < kernel_gain, "difference in percentage points: "
        f"training gains up to {gained[top]:.1f} %, the kernel at least {kernel_gain} %")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
