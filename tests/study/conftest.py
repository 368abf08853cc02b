"""A study with curves made by hand."""

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from small_training import row

from scsigmoid.cli import main
from scsigmoid.config.check import load
from scsigmoid.config.schema import Config
from scsigmoid.config.study import StudyRun, study_runs
from scsigmoid.study.runs import Study, collect
from scsigmoid.training.journal import LAYER_COLUMNS, Journal, as_csv

STEPS = range(10, 101, 10)
BOTH = {"attention": ["sigmoid", "softmax"], "context": [128], "size": ["tiny"]}
SEEDS = {"purpose": "seeds", **BOTH, "seed": [1, 2, 3], "training": {"steps": 100}}
RATES = [1e-3, 2e-3, 4e-3]
VALIDATION = {"validate_every": 10, "validation_cells": 64}  # a study needs validation losses
STUDY = {
    "rates": SEEDS | {
        "purpose": "rates", "seed": [1, 2], "training": {"steps": 100, "learning_rate": RATES[:2]},
    },
    "frontier": SEEDS | {
        "purpose": "stability", "seed": [1, 2],
        "training": {"steps": 100, "clipping": [None, 1.0], "learning_rate": RATES},
    },
    "frontier_qk_norm": SEEDS | {
        "purpose": "stability", "seed": [1], "variants": [["qk_norm"]],
        "training": {"steps": 100, "clipping": None, "learning_rate": RATES[2:]},
    },
    "seeds": SEEDS,
    "variants": SEEDS | {
        "purpose": "variants", "attention": ["sigmoid"], "variants": [["centered_values"]],
    },
    "scale": SEEDS | {"purpose": "sizes", "size": ["tiny_32", "tiny_96"], "seed": [1, 2]},
    "scale_large": SEEDS | {
        "purpose": "sizes", "size": ["tiny_128"], "seed": [1, 2], "training": {"steps": 50},
    },
}  # fmt: skip


def load_study(study: Mapping[str, Any], **training: object) -> Config:
    """Return the configuration of the demo with a study and general settings of training."""
    return load(overrides={"study": study, "training": VALIDATION | training})


def losses(run: StudyRun) -> list[float]:
    """Return the validation losses of a run, one for each of :data:`STEPS`."""
    is_softmax = run.model.attention == "softmax"
    falling = [8 - 0.1 * index for index in range(10)]
    if run.family == "frontier" and is_softmax and run.training.clipping is None:
        if run.training.learning_rate == 4e-3:  # seed 1 does not learn, seed 2 becomes NaN
            return [8.8] * 10 if run.seed == 1 else [8.5] * 5 + [math.nan] * 5
        if run.training.learning_rate == 2e-3 and run.seed == 2:  # the loss rises again
            return [8.0, 7.0, 6.0, 6.2, 6.3, 6.31, 6.31, 6.31, 6.31, 6.31]
    if run.family == "variants":  # 0.1, 0.2 and 0.3 below the runs of the family `seeds`
        return [loss - 0.1 * run.seed for loss in falling]
    if run.family == "rates":  # 2e-3 is the best rate of sigmoid, 1e-3 the best rate of softmax
        is_best = (run.training.learning_rate == 2e-3) != is_softmax
        return [7.5 + (run.seed - 1.6) * is_best] * 10
    if run.family == "seeds":  # softmax is lower up to step 40, sigmoid from step 50 on
        signs = [-1] * 4 + [1] * 6
        return [
            loss + 0.1 * run.seed * sign * is_softmax
            for loss, sign in zip(falling, signs, strict=True)
        ]
    return [loss + 0.05 * is_softmax * run.seed for loss in falling]


def write_runs(config: Config, results: Path, skipped: str = "") -> None:
    for name, run in study_runs(config).items():
        if name == skipped:
            continue
        rows = [
            row(step, loss, attention_score_max=3.0, gradient_norm=2.0, validation_loss=loss)
            for step, loss in zip(STEPS, losses(run), strict=True)
            if step <= run.training.steps
        ]
        folder = results / "training" / name
        folder.mkdir(parents=True)
        millions = {"tiny": 1, "tiny_32": 2, "tiny_96": 3, "tiny_128": 4}[run.size]
        Journal(folder / "journal.csv", {"parameters": f"{millions}000000"}, as_csv(rows))
        with (folder / "layers.csv").open("w") as handle:
            layers = [[step, 0, *[1.0] * 7] for step in STEPS]
            csv.writer(handle).writerows([LAYER_COLUMNS, *layers])


@pytest.fixture
def config() -> Config:
    return load_study(STUDY)


@pytest.fixture
def study(config: Config, tmp_path: Path) -> Study:
    return make_study(config, tmp_path)


@pytest.fixture
def rivals(tmp_path: Path) -> Study:
    """A study of two variants of sigmoid, and of softmax with normalized queries and keys."""
    variants = STUDY["variants"] | {"variants": [["centered_values"], ["hybrid_norm"]]}
    rival = STUDY["variants"] | {"attention": ["softmax"], "variants": [["qk_norm"]]}
    families = {"seeds": SEEDS, "variants": variants, "rival": rival}
    return make_study(load_study(families), tmp_path)


def make_study(config: Config, folder: Path) -> Study:
    """Write the runs of a study and two baselines, and read them."""
    write_runs(config, folder / "results")
    collect(config, folder / "results", folder / "tables")
    (folder / "tables/baselines.csv").write_text(
        "dataset,baseline,loss\nvalidation,frequencies,9\nvalidation,rank and length,7.9\n"
    )
    return Study(folder / "tables")


def make_page(study: Study) -> Path:
    """Run ``scsigmoid study`` and return the folder with its tables and figures."""
    page = study.folder / "page"
    assert main(["study", "--runs", str(study.folder), "--output", str(page)]) == 0
    return page


def study_of(folder: Path, *families: str, **changes: object) -> Study:
    """Return a study of some families (default: all) with changed settings."""
    settings = {name: {**STUDY[name], **changes} for name in families or STUDY}
    return make_study(load_study(settings), folder)
