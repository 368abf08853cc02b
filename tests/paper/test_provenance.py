"""Time, memory, graph, versions: from the records, complete, in order."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.paper.jobs import costs, duration
from scsigmoid.paper.provenance import cost_rows, environment
from scsigmoid.paper.results import Results
from scsigmoid.paper.workflow_graph import RULES, direct_needs, draw, planned_jobs, rows_of


def test_costs_by_hand(finished: Results) -> None:
    found = costs(finished)
    assert set(found) == {"manifest", "train", "embeddings"}
    train = found["train"]
    assert (train.jobs, train.seconds, train.longest, train.memory) == (2, 7800.0, 4000.0, 2100.5)
    assert math.isnan(found["manifest"].memory)
    rows = {row["name"]: row for row in cost_rows(finished)}
    assert rows["train"] == {
        "name": "train", "of": "rule", "jobs": "2 of 6", "time": "2.2 h", "longest": "67 min",
        "memory": "2,100 MB",
    }  # fmt: skip
    assert rows["Training"] == rows["train"] | {"name": "Training", "of": "stage"}
    assert (rows["Corpus"]["time"], rows["Corpus"]["memory"]) == ("0.5 s", "\N{EN DASH}")
    assert rows["leiden"]["time"] == "\N{EN DASH}"
    jobs = planned_jobs(Plan(finished.config))
    assert rows["All"]["jobs"] == f"4 of {sum(jobs.values()) - 1}"
    assert (rows["All"]["time"], rows["All"]["memory"]) == ("2.2 h", "2,100 MB")


def test_results_without_records(results: Results) -> None:
    assert cost_rows(results) == []


def test_a_damaged_record_is_named(copied: Callable[[], Path], config: Config) -> None:
    folder = copied()
    (folder / "resources").mkdir()
    (folder / "resources/manifest.tsv").write_text("s\tmax_rss\n")
    with pytest.raises(UserError, match=r"manifest\.tsv: damaged"):
        costs(Results(folder, config))


def test_durations() -> None:
    words = [duration(seconds) for seconds in (0.04, 9.96, 95.4, 600.0, 7200.0, 1e6)]
    assert words == ["0.0 s", "10.0 s", "95 s", "10 min", "2.0 h", "278 h"]


def test_the_graph_keeps_every_path_and_no_shortcut(results: Results) -> None:
    import networkx

    jobs = planned_jobs(Plan(results.config))
    whole = networkx.DiGraph(
        (need, rule) for rule in jobs for need in RULES[rule].needs if need in jobs
    )
    expected = networkx.transitive_reduction(whole)
    needs = direct_needs(jobs)
    assert {(need, rule) for rule in needs for need in needs[rule]} == set(expected.edges)
    level = {rule: at for at, row in enumerate(rows_of(needs)) for rule in row}
    assert level.keys() == jobs.keys()
    assert all(level[need] < level[rule] for rule in needs for need in needs[rule])


def test_optional_rules_are_drawn_where_they_run(results: Results) -> None:
    config = results.config
    scib = replace(config.evaluation.scib, metrics=["silhouette_label", "clisi"])
    other = replace(config, evaluation=replace(config.evaluation, scib=scib))
    assert {"clisi", "silhouette"} < planned_jobs(Plan(other)).keys()
    assert "leiden" not in planned_jobs(Plan(other))
    assert "clisi" not in planned_jobs(Plan(config))
    assert ">clisi<" in draw(planned_jobs(Plan(other)))


def test_the_environment_names_what_matters() -> None:
    found = environment()
    assert found["torch"].startswith("2.")
    assert float(found["memory"].split()[0]) > 0.5
