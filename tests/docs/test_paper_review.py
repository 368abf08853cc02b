"""The review of the paper's theory and arithmetic: single numbers against independent ones."""

import math
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs/measurements/scripts/paper_review.py"))


def results(part: str) -> dict[str, tuple[float, bool]]:
    """Return results and verdicts of a part, by statement."""
    return {statement: (value, holds) for statement, _, value, holds, _ in SCRIPT[part]()}


def result(rows: dict[str, Any], words: str) -> tuple[float, bool]:
    """Return the result of the statement with some words."""
    (row,) = (row for statement, row in rows.items() if words in statement)
    return row


def test_the_page_is_what_the_script_makes() -> None:
    assert (ROOT / "docs/paper-review.md").read_text(encoding="utf-8") == SCRIPT["page"]()


def test_sigmoid_attention_jacobian_against_autograd() -> None:
    x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def attention(y: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(y @ y.T / math.sqrt(3) - math.log(5)) @ y

    whole = torch.autograd.functional.jacobian(attention, x).reshape(15, 15)
    expected = float(torch.linalg.matrix_norm(whole, 2))
    assert SCRIPT["sigmoid_attention_norm"](x.numpy()) == pytest.approx(expected, rel=1e-12)


def test_theory() -> None:
    rows = results("theory")
    assert result(rows, "is at most 1/4") == (0.25, True)
    # n scores of 0 with the bias -log n: n / (n + 1)
    assert result(rows, "bias -log n") == (pytest.approx(4096 / 4097), True)
    assert result(rows, "with a universal C") == (pytest.approx(0.5), True)
    for words in ("independent of the input", "grows exponentially", "probability concentrates"):
        assert not result(rows, words)[1]
    assert not result(rows, "on neither length nor scores")[1]


def test_arithmetic() -> None:
    rows = results("arithmetic")
    assert result(rows, "mean improvement") == (pytest.approx(24.979, abs=1e-3), True)
    assert result(rows, "from six datasets") == (1, False)
    assert result(rows, "loss of sigmoid is lower") == (11, False)
    assert result(rows, "than FlashSigmoid") == (pytest.approx(100 * (515.6 / 439.7 - 1)), True)
    assert result(rows, "(forward) is a decrease") == (
        pytest.approx(100 * (1 - 397.5 / 438.4)), True,
    )  # fmt: skip
    assert result(rows, "saves 645") == (645, True)
    assert result(rows, "515,000 steps") == (515_000 * 256, True)
    # 717 - 653 = 64 and 934 - 896 = 38; 93, 72, 169 at 4K; 53, 169, 645 for 1.4B
    assert result(rows, "saved grow with model size") == (4, False)
    assert result(rows, "end-to-end gains") == (pytest.approx(100 * (717 / 653 - 1) - 13), True)
    for words in ("are 515 TFLOPS", "60 to 85 %", "saving grows with the context", "2bhnd^2"):
        assert not result(rows, words)[1]
