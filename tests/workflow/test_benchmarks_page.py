"""docs/benchmarks.md: that it is what its script makes, and single numbers against the files."""

import csv
import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "workflow/scripts/benchmarks_page.py"))
MEASUREMENTS = ROOT / "docs/measurements"


def test_the_pages_are_what_the_script_makes() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    assert page == SCRIPT["page"](MEASUREMENTS)
    assert len(page.splitlines()) < 120
    text = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    _, _, tables = text.partition(SCRIPT["MARK"])
    assert tables == SCRIPT["quality"](MEASUREMENTS)
    for name in SCRIPT["figures"](MEASUREMENTS):
        assert (ROOT / "docs/images" / f"{name}.png").is_file()


def test_a_speed_up_over_flash_attention_4_is_the_median_over_rounds() -> None:
    path = MEASUREMENTS / "h200/benchmarks/kernel_fa4.csv"
    times = {}
    with path.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            shape = [row[key] for key in ("batch", "head_dimension", "length", "pass", "layout")]
            if shape == ["paper", "128", "16384", "backward", "packed"]:
                times[row["provider"]] = [float(value) for value in row["readings"].split()]
    median = np.median(np.divide(times["fa4"], times["hopper"]))
    rows = SCRIPT["read"](path.parent, path.name)
    keys = ("hopper", "packed"), ("fa4", "packed")
    found = SCRIPT["kernel_ratio"](rows, *keys, 128, "paper", 16384, "backward")
    assert found == pytest.approx(median, rel=1e-3)


def test_a_speed_up_counts_the_rounds_that_timed_both() -> None:
    ours, theirs = {"readings": "2 1 nan 4"}, {"readings": "2 3 5 nan 9"}
    assert SCRIPT["speed_up"](ours, theirs) == 2.0  # of 1 and 3
    assert SCRIPT["speed_up"](ours, theirs, work=0.5) == 1.0
