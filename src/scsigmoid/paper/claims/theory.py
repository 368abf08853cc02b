"""The paper's theory, checked numerically in float64.

A bound over all inputs cannot be proved by trying some; these checks can refute one, and they try
the inputs that are hardest for it.  All random draws are seeded.
"""

import itertools
import math

import numpy as np

from scsigmoid.paper.claims.estimate import Measure
from scsigmoid.paper.claims.jacobians import (
    Array,
    jacobian,
    norm,
    sigmoid,
    softmax,
    softmax_jacobian,
)
from scsigmoid.paper.claims.numeric import numeric

SEED = 20240611


GRID = np.linspace(-40, 40, 800_001)
ON_GRID = "grid of 800,001 points from -40 to 40"


def slopes() -> Array:
    """Derivative of the sigmoid on the grid, which holds 0."""
    return sigmoid(GRID) * (1 - sigmoid(GRID))


@numeric
def largest_derivative() -> tuple[float, str]:
    """Largest derivative of the sigmoid."""
    return float(slopes().max()), ON_GRID


@numeric
def steepest_point() -> tuple[float, str]:
    """Where the sigmoid's derivative is largest."""
    return float(GRID[int(np.argmax(slopes()))]), ON_GRID


@numeric
def derivative_spread() -> tuple[float, str]:
    """Largest less smallest derivative of the sigmoid."""
    return float(np.ptp(slopes())), f"{ON_GRID}; its bound is independent of the input, it is not"


@numeric
def tanh_form() -> tuple[float, str]:
    """Largest difference of (tanh(x/2) + 1)/2 from the sigmoid."""
    error = np.abs((np.tanh(GRID / 2) + 1) / 2 - sigmoid(GRID)).max()
    return float(error), "an identity; only the GPU's tanh is approximate"


@numeric
def sigmoid_off_diagonal() -> tuple[float, str]:
    """Largest entry off the diagonal of the sigmoid's Jacobian, by central differences."""
    scores = np.random.default_rng(SEED).normal(0, 3, 64)
    found = jacobian(sigmoid, scores)
    return float(np.abs(found - np.diag(np.diag(found))).max()), "64 scores, central differences"


@numeric
def sigmoid_norm_error() -> tuple[float, str]:
    """Spectral norm of the sigmoid's Jacobian minus its largest diagonal entry."""
    scores = np.random.default_rng(SEED).normal(0, 3, 64)
    found = jacobian(sigmoid, scores)
    return abs(norm(found) - float(np.diag(found).max())), "64 scores, central differences"


@numeric
def bias_row_sum() -> tuple[float, str]:
    """Sum of a row of sigmoid attention with b = -log n where all scores are 0."""
    tokens = 4096
    random = np.random.default_rng(SEED).normal(0, 1, tokens)
    even, drawn = (float(sigmoid(x - math.log(tokens)).sum()) for x in (np.zeros(tokens), random))
    return even, (
        f"{tokens:,} tokens; softmax's rows sum to 1; for standard normal scores the sum is "
        f"{drawn:.2f}: near 1 at the start of training, not bound to it later"
    )


@numeric
def softmax_density() -> tuple[float, str]:
    """Share of entries of the softmax's Jacobian that are not 0."""
    scores = np.random.default_rng(SEED).normal(0, 3, 64)
    return float((softmax_jacobian(scores) != 0).mean()), "64 scores"


@numeric
def softmax_competition() -> tuple[float, str]:
    """Share of the entries off the diagonal of the softmax's Jacobian that are below 0."""
    found = softmax_jacobian(np.random.default_rng(SEED).normal(0, 3, 64))
    return float((found[~np.eye(64, dtype=bool)] < 0).mean()), "64 scores"


@numeric
def softmax_jacobian_error() -> tuple[float, str]:
    """Largest difference of the stated derivative from central differences."""
    scores = np.random.default_rng(SEED).normal(0, 3, 16)
    error = np.abs(softmax_jacobian(scores) - jacobian(softmax, scores)).max()
    return float(error), "16 scores"


@numeric
def sigmoid_lipschitz() -> tuple[float, str]:
    """Largest ratio of changes, outputs over scores (Frobenius norms), of the sigmoid."""
    random = np.random.default_rng(SEED)
    largest = 0.0
    for scale in (0.0, 0.1, 1.0, 10.0, 100.0):
        for reach in (1e-4, 1e-2, 1.0, 100.0):
            scores = random.normal(0, 1, (200, 8, 8)) * scale
            change = random.normal(0, 1, (200, 8, 8)) * reach
            moved = np.linalg.norm(sigmoid(scores + change) - sigmoid(scores), axis=(1, 2))
            largest = max(largest, float((moved / np.linalg.norm(change, axis=(1, 2))).max()))
    note = "4,000 pairs of 8 x 8 scores; attention itself adds the norm of the values as a factor"
    return largest, note


@numeric
def minimum_entropy_norm() -> tuple[float, str]:
    """Norm of a softmax row that rests on one token."""
    scores = np.zeros(64)
    scores[7] = 1e3
    rows = np.tile(scores, (16, 1))
    whole = float(np.linalg.norm(softmax(rows)))
    return float(np.linalg.norm(softmax(scores))), f"for a matrix of 16 such rows it is {whole:g}"


@numeric
def score_amplification() -> tuple[float, str]:
    """Exponent with which the norm of the scores' derivative grows in the norms of Q and K."""
    random = np.random.default_rng(SEED)
    q, k = random.normal(0, 1, (2, 6, 4))

    def derivative(factor: float) -> float:
        both = np.stack([q, k]) * factor
        return norm(jacobian(lambda x: x[0] @ x[1].T / 2.0, both))

    slope = math.log(derivative(8.0) / derivative(1.0)) / math.log(8.0)
    return round(slope, 6), "6 tokens of 4 dimensions, norms times 8"


@numeric
def attention_derivative_bound() -> tuple[float, str]:
    """Largest left side over right side of the bound on the derivative of softmax attention.

    Attention as in its source, X softmax(S)' with the scores S of X and identity weights.  The
    mixed norm of the scores' derivative is exact: its largest value is that of the best choice of
    one score in each row, and all choices are tried.
    """
    random = np.random.default_rng(SEED)
    tokens, dimensions, largest = 4, 3, 0.0

    def scores(x: Array) -> Array:
        return x.T @ x / math.sqrt(dimensions)

    for scale in (0.1, 0.5, 1.0, 2.0, 4.0):
        for _ in range(4):
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
    return largest, "20 inputs of 4 tokens and 3 dimensions; operator norm on the left"


@numeric
def softmax_derivative_ratio() -> tuple[float, str]:
    """Largest norm of softmax's Jacobian over exp(||X||^2), the scores being those of X."""
    random = np.random.default_rng(SEED)
    largest = 0.0
    for scale in (0.0, 0.1, 0.5, 1.0, 3.0):
        x = random.normal(0, 1, (6, 4)) * scale
        for row in x @ x.T / 2.0:
            largest = max(largest, norm(softmax_jacobian(row)) / math.exp(norm(x) ** 2))
    return largest, "5 inputs of 6 tokens and 4 dimensions; the norm itself never exceeds 1/2"


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


@numeric
def softmax_lipschitz_constant() -> tuple[float, str]:
    """Smallest C that the bound C exp(max |S|) needs at the scores tried."""
    needed = [
        max(softmax_norms(scale)) / math.exp(scale) for scale in (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
    ]
    note = "holds because the norm itself never exceeds 1/2, whatever the scores"
    return max(needed), note


@numeric
def softmax_lipschitz_growth() -> tuple[float, str]:
    """Slope of the logarithm of the largest local Lipschitz constant in max |S|."""
    scales = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    largest = [max(softmax_norms(scale)) for scale in scales]
    slope = round(float(np.polyfit(scales, np.log(largest), 1)[0]), 9)
    return slope, (
        f"the largest norm is {largest[0]:.3f} at max |S| = 1 and {largest[-1]:.3f} at 16: it is "
        "1/2 for two equal scores of any size and never more; the bound stands, the growth does not"
    )


@numeric
def softmax_concentration() -> tuple[float, str]:
    """Norm of the softmax's Jacobian where one token has nearly all, over equal shares."""
    concentrated = np.zeros(8)
    concentrated[0] = 20.0
    even = norm(softmax_jacobian(np.zeros(8)))
    found = norm(softmax_jacobian(concentrated))
    return found / even, (
        f"{found:.2g} where one of 8 tokens has nearly all, {even:.3g} for equal shares: as "
        "probability concentrates on one token the norm tends to 0"
    )


def sigmoid_attention_norm(x: Array) -> float:
    """Spectral norm of the Jacobian of sigmoid attention with identity weights, b = -log n."""
    tokens, dimensions = x.shape

    def attention(y: Array) -> Array:
        weights = sigmoid(y @ y.T / math.sqrt(dimensions) - math.log(tokens))
        return weights @ y

    return norm(jacobian(attention, x))


@numeric
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
        f"identity weights, identical tokens, scores of 2 log n: C is {few:.3g} for 4 tokens and "
        f"{many:.3g} for 64; for 16 tokens of norm 0.0014 it is {small:.2g}, because the bound has "
        "no constant term"
    )


MEASURES: dict[str, Measure] = {
    function.__name__: function
    for function in (
        largest_derivative,
        steepest_point,
        derivative_spread,
        tanh_form,
        sigmoid_off_diagonal,
        sigmoid_norm_error,
        bias_row_sum,
        softmax_density,
        softmax_competition,
        softmax_jacobian_error,
        sigmoid_lipschitz,
        minimum_entropy_norm,
        score_amplification,
        attention_derivative_bound,
        softmax_derivative_ratio,
        softmax_lipschitz_constant,
        softmax_lipschitz_growth,
        softmax_concentration,
        sigmoid_theorem_growth,
    )
}
