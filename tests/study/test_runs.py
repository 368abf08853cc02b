"""The runs of a study, collected from their folders."""

from pathlib import Path

import pytest
from study.conftest import write_runs

from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.study.comparisons import loss_differences
from scsigmoid.study.runs import Study, collect


def test_runs_that_are_missing_or_unfinished_are_named(
    config: Config, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    write_runs(config, tmp_path / "results", skipped="seeds_softmax_seed_2")
    short = tmp_path / "results/training/seeds_sigmoid_seed_3/journal.csv"
    short.write_text("".join(short.read_text().splitlines(keepends=True)[:-1]))
    collect(config, tmp_path / "results", tmp_path / "tables")
    assert "1 of 55 runs are missing: seeds_softmax_seed_2" in capfd.readouterr().err
    study = Study(tmp_path / "tables")
    assert study.unfinished == ["seeds_sigmoid_seed_3"]
    assert loss_differences(study, "seeds")["seeds"].tolist() == [1] * 10
    with pytest.raises(UserError, match="contains no run of the study"):
        collect(config, tmp_path / "nothing", tmp_path / "tables")
