"""Results of the PTX with which the Hopper kernels compute the exact sigmoid."""

import math
import re

import numpy as np
import pytest

from scsigmoid.attention import hopper_gluon

KEYS = 16_384
LOG2E = math.log2(math.e)


def bits_of(value):
    return int(np.float32(value).view(np.int32))


OPERATIONS = {
    "mov": lambda a: a,
    "max": lambda a, b: max(a, b, key=bits_of),
    "setp": lambda a, b: bits_of(a) >= bits_of(b),
    "fma": lambda a, b, c: np.float32(float(a) * float(b) + float(c)),
    "ex2": np.exp2,
    "tanh": np.tanh,
    "neg": np.negative,
    "cvt": lambda high, low: (low, high),
}


def execute(text, operands):
    """Execute a block of PTX for a warp of one thread. Return the values of all registers."""
    registers = {"0f3F000000": np.float32(0.5)} | operands
    lines = [x.strip() for x in re.split(r"[;{}]|(?<=:)\s", text) if x.strip()]
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        if line.startswith((".reg", "vote.sync")) or line.endswith(":"):
            continue
        if line.startswith("@p"):
            if not registers["p"]:
                continue
            line = line.removeprefix("@p ")
        name, target, *sources = re.split(r"[\s,]+", line)
        if name == "bra.uni":
            index = lines.index(f"{target}:")
        else:
            operation = OPERATIONS[name.partition(".")[0]]
            registers[target] = operation(*(registers[x] for x in sources))
    return registers


def weights_of(scores, rounded):
    """Compute the weights of 32 scores q . k with scale 1/8. Return them, and if tanh was used."""
    factor, summand = np.float32(-LOG2E / 8), np.float32(math.log2(KEYS))
    constants = [-math.log(2) / 2 * factor, -math.log(2) / 2 * summand, -factor, -summand]
    values = [*scores.astype(np.float32)]
    for constant in (*constants, (6 - summand) / factor):
        values += [np.float32(constant)] * 32
    results = 16 if rounded else 32
    text = hopper_gluon._vote(rounded)
    registers = execute(text, {f"${results + i}": value for i, value in enumerate(values)})
    weights = [registers[f"${i}"] for i in range(results)]
    return np.array(weights, dtype=np.float64).ravel(), bool(registers["p"])


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize(
    ("spread", "largest", "tanh"), [(1, 5.5, False), (1, 5.6, True), (4, 40, True), (50, -1, False)]
)
def test_weights_of_the_form_vote(rounded, spread, largest, tanh):
    # b = -log 16,384 = -9.70. The largest score with e <= 1/64 is 9.70 - 4.16 = 5.545.
    scores = np.random.default_rng(0).normal(0, spread, 32)
    scores = np.append(np.minimum(scores, largest)[1:], largest)
    weights, by_tanh = weights_of(scores * 8, rounded)
    exact = 1 / (1 + np.exp(math.log(KEYS) - scores))
    assert by_tanh == tanh
    # 0.5 + 0.5 tanh is rounded to half a unit in the last place of 1/2.
    np.testing.assert_allclose(weights, exact, rtol=2.5e-4, atol=1e-7 if tanh else 1e-30)


def test_each_score_votes():
    for place in range(32):
        scores = np.full(32, -40.0)
        scores[place] = 8 * 6
        assert weights_of(scores, rounded=True)[1]


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_nan_affects_its_weight_only(rounded, sign):
    scores = np.zeros(32, np.float32)
    scores[5] = np.copysign(np.float32(np.nan), sign)
    weights, _ = weights_of(scores, rounded)
    assert np.flatnonzero(np.isnan(weights)).tolist() == [5]
