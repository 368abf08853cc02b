"""The table of training side by side, its ratios by hand."""

import csv
from pathlib import Path

import pytest

from scsigmoid.paper.results import Results
from scsigmoid.paper.tables import make_table


@pytest.fixture
def table(results: Results, tmp_path: Path) -> tuple[list[dict[str, str]], str]:
    make_table("training_speed", results, tmp_path / "training_speed")
    with (tmp_path / "training_speed.csv").open(newline="") as handle:
        return list(csv.DictReader(handle)), (tmp_path / "training_speed.md").read_text()


def test_ratios_are_of_ours_at_the_same_context(table: tuple[list[dict[str, str]], str]) -> None:
    rows, markdown = table
    assert [row["kernel"] for row in rows] == ["reference", "sdpa", "flex"] * 3 + ["triton_sigmoid"]
    for row, right in zip(rows, [None, 1.2, 2.0] * 3, strict=False):
        assert row["ours"] == "reference"
        if right is None:
            assert row["ratio"] == ""
        else:
            # The made-up turns differ by the same factor all along.
            for column in ("ratio", "ratio_low", "ratio_high"):
                assert float(row[column]) == pytest.approx(right)
    # 4 cells in 128 / 64 milliseconds
    assert "| 128 | Sigmoid, reference | packed | 0 % | **2,000 [1,923, 2,083]** |" in markdown
    assert "| 128 | Softmax, FlexAttention | padded | 50 % | 1,000 [962, 1,042] |" in markdown
    assert "2.00 [2.00, 2.00]" in markdown


def test_what_was_not_timed_is_named_below(table: tuple[list[dict[str, str]], str]) -> None:
    rows, markdown = table
    assert rows[-1]["cells_per_second"] == ""
    assert (
        "Not timed: TritonSigmoid, padded, at 128 (triton\\_sigmoid is not installed)." in markdown
    )
    assert markdown.count("TritonSigmoid") == 1
