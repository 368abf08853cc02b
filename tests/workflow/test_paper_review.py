"""The review of the paper's theory and arithmetic: its numbers, and that the page has them."""

import math
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "workflow/scripts/paper_review.py"))


def checks(part: str) -> dict[str, Any]:
    """The checks of a part, by statement."""
    return {check.statement: check for check in SCRIPT[part]()}


def one(found: dict[str, Any], words: str) -> Any:
    """The check whose statement holds some words."""
    (check,) = (check for statement, check in found.items() if words in statement)
    return check


def test_the_page_is_what_the_script_makes() -> None:
    assert (ROOT / "docs/paper-review.md").read_text(encoding="utf-8") == SCRIPT["page"]()


def test_theory() -> None:
    found = checks("theory")
    assert len(found) == 19
    refuted = {statement for statement, check in found.items() if not check.holds}
    for words in (
        "independent of the input", "constant grows exponentially", "as probability concentrates",
        "on neither length nor scores",
    ):  # fmt: skip
        refuted.remove(one(found, words).statement)
    assert not refuted
    assert one(found, "is at most 1/4").found == 0.25
    assert one(found, "with a universal C").found == pytest.approx(0.5)
    # One token with nearly all probability: p (1 - p) -> 0.
    assert one(found, "as probability concentrates").found < 1e-5
    # n scores of 0 with the bias -log n: n / (n + 1); of normal scores E exp(x) = sqrt(e).
    bias = one(found, "bias -log n")
    assert bias.found == pytest.approx(4096 / 4097)
    assert f"of 0 only, at the start of training: {math.sqrt(math.e):.2f} on average" in bias.note


def test_sigmoid_attention_jacobian_against_autograd() -> None:
    """The finite differences of the theorem's check, against torch in float64."""
    x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def attention(y: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(y @ y.T / math.sqrt(3) - math.log(5)) @ y

    whole = torch.autograd.functional.jacobian(attention, x).reshape(15, 15)
    expected = float(torch.linalg.matrix_norm(whole, 2))
    assert SCRIPT["sigmoid_attention_norm"](x.numpy()) == pytest.approx(expected, rel=1e-7)


def test_arithmetic() -> None:
    found = checks("arithmetic")
    assert len(found) == 37
    improvement = one(found, "mean improvement")
    assert improvement.found == pytest.approx(24.979, abs=1e-3)
    assert "27.3 %" in improvement.note
    losses = one(found, "sigmoid's loss is lower")
    assert losses.found == 11
    assert "Heart OFT at 2K: 3.019 against 3.017" in losses.note
    gain = one(found, "17 % more over FlashSigmoid")
    assert gain.found == pytest.approx(17.26, abs=0.01)
    assert "backward, beside which it stands too, 9 %" in gain.note
    assert one(found, "(forward) is a decrease").found == pytest.approx(9.33, abs=0.01)
    assert one(found, "saves 645").found == 645
    assert one(found, "515,000 steps").found == 515_000 * 256
    # 717 - 653 = 64 and 934 - 896 = 38; 93, 72, 169 at 4K; 53, 169, 645 for 1.4B.
    growing = one(found, "hours saved grow with model size")
    assert growing.found == 4
    for words in ("64 (160M at 2K) to 38 (160M at 4K)", "93 (400M at 4K) to 72 (600M at 4K)"):
        assert words in growing.note
    smaller = one(found, "end-to-end gains are smaller")
    assert smaller.found == pytest.approx(100 * (717 / 653 - 1) - 13)
    refuted = [check for check in found.values() if not check.holds]
    assert {losses, growing} < set(refuted)
    for words in ("are 515 TFLOPS", "60 to 85 %", "saving grows with the context", "2bhnd^2"):
        assert not one(found, words).holds
    assert len(refuted) == 6
