"""Tables and numbers of the documents: current, and recomputed from docs/measurements."""

import csv
import re
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs/measurements/scripts/benchmarks_page.py"))
NUMBERS = runpy.run_path(str(ROOT / "docs/measurements/scripts/science_numbers.py"))
MEASUREMENTS = ROOT / "docs/measurements"


def test_the_pages_have_the_tables_that_the_script_makes() -> None:
    for path, text in SCRIPT["pages"](ROOT / "docs").items():
        assert path.read_text(encoding="utf-8") == text
    for name in SCRIPT["figures"](MEASUREMENTS):
        assert (ROOT / "docs/images" / f"{name}.png").is_file()


def test_the_pages_have_the_numbers_that_the_script_recomputes() -> None:
    assert not NUMBERS["missing"](ROOT)


def test_a_wrong_number_is_found(tmp_path: Path) -> None:
    """Restore the statements that were wrong until 2026-11-27."""
    wrong = {
        "README.md": ("0.003 to 0.035 nats", "0.002 to 0.035 nats"),
        "docs/reproduction.md": ("rate took 31 minutes", "rate took 18 minutes"),
        "docs/preregistration.md": ("12.5 %", "2 %"),
    }
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/measurements").symlink_to(MEASUREMENTS)
    (tmp_path / "docs/benchmarks.md").symlink_to(ROOT / "docs/benchmarks.md")
    for page, (right, replacement) in wrong.items():
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert right in text
        lines = (ROOT / page).read_text(encoding="utf-8").split("\n\n")
        changed = [re.sub(right.replace(" ", r"\s+"), replacement, line) for line in lines]
        (tmp_path / page).write_text("\n\n".join(changed), encoding="utf-8")
    pages = [page for page, _ in NUMBERS["missing"](tmp_path)]
    assert set(pages) == {*wrong}


def test_a_speed_up_over_flash_attention_4_is_the_median_over_rounds() -> None:
    path = MEASUREMENTS / "h200/benchmarks/kernel_fa4.csv"
    times = {}
    with path.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            shape = [row[key] for key in ("batch", "head_dimension", "length", "pass", "layout")]
            if shape == ["paper", "128", "16384", "backward", "packed"]:
                times[row["provider"]] = [float(value) for value in row["readings"].split()]
    median = np.median(np.divide(times["fa4"], times["hopper"]))
    rows = SCRIPT["read_kernels"](path)
    place = (128, "paper", 16384, "backward")
    found = SCRIPT["kernel_ratio"](rows["hopper", "packed"], rows["fa4", "packed"], place)
    assert found == pytest.approx(median, rel=1e-3)


def test_the_coverage_of_donor_intervals_is_measured_again(tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "docs/measurements/scripts/donor_coverage.py"))
    script["main"](["--output", str(tmp_path / "new.csv")])
    kept = pd.read_csv(MEASUREMENTS / "cpu/donor_coverage.csv")
    new = pd.read_csv(tmp_path / "new.csv")
    assert new["coverage"].tolist() == pytest.approx(kept["coverage"].tolist(), abs=0.015)
    # Donor means with equal variances: Student's interval has its nominal coverage.
    exact = new.query("interval == 'donors' and deviation == 1")["coverage"]
    assert exact.tolist() == pytest.approx([0.95, 0.95], abs=0.01)
