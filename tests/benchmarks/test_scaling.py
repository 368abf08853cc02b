"""The scaling benchmark: the real loop in one and two processes of the CPU, and its arithmetic."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from scsigmoid.benchmarks import scaling
from scsigmoid.benchmarks.rows import ScalingRow, read_rows
from scsigmoid.benchmarks.scaling import efficiencies
from scsigmoid.cli import main
from scsigmoid.config.check import as_yaml, load

ROOT = Path(__file__).parents[2]


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """The demo's, with a tiny encoder."""
    overrides = {
        "preset": "demo",
        "sizes": {"demo": {"layers": 1, "hidden": 16, "heads": 1, "feed_forward": 16}},
    }
    path = tmp_path / "config.yaml"
    path.write_text(as_yaml(load(ROOT / "config.yaml", ROOT / "workflow/presets", overrides)))
    return path


def run(configuration: Path, output: Path, *arguments: str) -> int:
    return main(
        [
            *("benchmark-scaling", "--model", "sigmoid_2k", "--configuration", str(configuration)),
            *("--device", "cpu", "--output", str(output / "s.csv")),
            *("--machine", str(output / "s.json"), *arguments),
        ]
    )


def test_one_and_two_processes_train(configuration: Path, tmp_path: Path) -> None:
    assert run(configuration, tmp_path, "--processes", "1,2", "--steps", "20") == 0
    one, two = read_rows(tmp_path / "s.csv", ScalingRow)
    assert (one.processes, two.processes) == (1, 2)
    assert one.efficiency == 1
    assert two.efficiency == pytest.approx(two.cells_per_second / one.cells_per_second / 2, rel=0.5)
    for row in (one, two):
        assert row.readings == 2  # steps 15 and 20
        assert (row.model, row.context, row.global_batch, row.steps) == ("sigmoid_2k", 128, 16, 20)
        assert row.device == "cpu"
        assert row.backend == "reference"
        assert 0 <= row.data_wait <= 1
    assert json.loads((tmp_path / "s.json").read_text())["device"] == "cpu"


def test_efficiency_is_of_the_same_steps() -> None:
    alone = {"step": np.array([15, 20, 25]), "cells_per_second": np.array([10.0, 20.0, 5.0])}
    four = {"step": np.array([20, 25, 30]), "cells_per_second": np.array([60.0, 10.0, 1.0])}
    assert efficiencies(4, four, alone) == [60 / 80, 10 / 20]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--processes", "1", "--steps", "19"), "--steps: expected at least 20, found 19"),
        (("--processes", "1;2"), "--processes 1;2: expected numbers with commas, as in 1,2"),
        (("--processes", "0"), "--processes: expected numbers of at least 1, as in 1,2"),
        (
            ("--processes", "1", "--model", "none"),
            "--model none: not among models of",
        ),
    ],
)
def test_a_mistake_is_one_line(
    arguments: tuple[str, ...],
    said: str,
    configuration: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(configuration, tmp_path, *arguments) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]
    assert not (tmp_path / "s.csv").exists()


def test_what_ended_a_run_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = yaml.safe_load("{attention: sigmoid, context: 128}")
    monkeypatch.setattr(scaling.sys, "executable", "false")
    with pytest.raises(scaling.UserError, match="on 2 processes ended with 1: it said nothing"):
        scaling.train("sigmoid_2k", settings, 2, tmp_path)
