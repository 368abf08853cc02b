"""Time, memory and versions, from the records."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.paper.provenance import costs, duration, environment, job_costs
from scsigmoid.paper.results import Results


def test_costs_by_hand(finished: Results) -> None:
    found = costs(finished)
    assert found.index.tolist() == ["train", "embeddings", "manifest"]
    assert found.loc["train"].tolist() == [2, 7800.0, 4000.0, 2100.5]
    assert math.isnan(found.loc["manifest", "memory"])
    table = job_costs(finished)
    assert table
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.cells}
    assert rows["train"] == ["2", "2.2 h", "67 min", "2,100 MB"]
    assert rows["manifest"] == ["1", "0.5 s", "0.5 s", "\N{EN DASH}"]
    assert rows["All"] == ["4", *rows["train"][1:]]


def test_results_without_records(results: Results) -> None:
    assert job_costs(results) is None


def test_a_damaged_record_is_named(copied: Callable[[], Path], config: Config) -> None:
    folder = copied()
    (folder / "resources").mkdir()
    (folder / "resources/manifest.tsv").write_text("s\tmax_rss\n")
    with pytest.raises(UserError, match=r"manifest\.tsv: damaged"):
        costs(Results(folder, config))


def test_durations() -> None:
    words = [duration(seconds) for seconds in (0.04, 9.96, 95.4, 600.0, 7200.0, 1e6)]
    assert words == ["0.0 s", "10.0 s", "95 s", "10 min", "2.0 h", "278 h"]


def test_the_environment_names_what_matters() -> None:
    found = environment()
    assert found["torch"].startswith("2.")
    assert float(found["memory"].split()[0]) > 0.5
