"""Collect the runs of a study into tables, and read the tables.

- ``runs.csv``: one row per run, with its number ``run`` and its ``name``.
- ``curves.csv``: the rows of all journals. ``run`` is the number of the run.
- ``layers.csv``: statistics of attention by layer. ``run`` is the number of the run.
- ``scores.csv`` (optional): scores of embeddings. ``run`` is the name of the run or control.
- ``baselines.csv``: losses of baselines without attention.
"""

import math
from collections.abc import Hashable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from scsigmoid.config.schema import Config
from scsigmoid.config.study import study_runs
from scsigmoid.errors import UserError, first_few
from scsigmoid.progress import log
from scsigmoid.records.csv_rows import read_frame, write_frame
from scsigmoid.records.identity import check_identity
from scsigmoid.training.journal import JOURNAL, LAYER_COLUMNS, LAYERS, read_journal

#: Columns of the journal that ``curves.csv`` contains.
CURVES = ("step", "loss", "gradient_norm", "attention_score_max", "validation_loss")
#: Settings of ``training`` that ``runs.csv`` contains.
TRAINING = ("steps", "learning_rate", "clipping", "warmup_steps", "gradient")
#: Columns of ``runs.csv`` that the label of a run states (:func:`setting_label`).
SETTINGS = ("clipping", "warmup_steps", "variants", "context")
#: Fields of the journal's header that ``runs.csv`` contains.
HEADER = ("parameters", "device", "backend", "torch", "commit")

#: Columns with text and columns with numbers that a study reads from each file.
COLUMNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "runs": (
        ("name", "family", "purpose", "attention", "size", "variants"),
        ("run", "context", "seed", "steps", "learning_rate", "clipping", "warmup_steps",
         "last_step", "parameters"),
    ),
    "curves": ((), ("run", *CURVES)),
    "layers": ((), ("run", *LAYER_COLUMNS)),
    "scores": (("run", "metric"), ("step", "value")),
    "baselines": (("dataset", "baseline"), ("loss",)),
}  # fmt: skip


def collect(config: Config, results: Path, output: Path) -> None:
    """Write ``runs.csv``, ``curves.csv`` and ``layers.csv`` from the folders of a study's runs."""
    rows: list[dict[str, Any]] = []
    curves, layers, missing = [], [], []
    for name, run in study_runs(config).items():
        folder = results / "training" / name
        journal = folder / JOURNAL
        columns, header = read_journal(journal) if journal.is_file() else ({}, {})
        if not len(columns.get("step", ())):  # without a journal, or with an empty journal
            missing.append(name)
            continue
        check_identity(journal, {"model": name} | header, model=name)
        number = len(rows)
        rows.append(
            {"run": number, "name": name}
            | {"family": run.family, "purpose": config.study[run.family].purpose}
            | {"attention": run.model.attention, "context": run.model.context, "size": run.size}
            | {"variants": " ".join(run.variants), "seed": run.seed}
            | {key: getattr(run.training, key) for key in TRAINING}
            | {"last_step": int(columns["step"][-1])}
            | {"seconds": round(float(columns["seconds"][-1]), 1)}
            | {key: header.get(key, "") for key in HEADER}
        )
        curves.append(pd.DataFrame({"run": number, **{key: columns[key] for key in CURVES}}))
        if (folder / LAYERS).is_file():
            layers.append(read_layers(folder / LAYERS, columns))
            layers[-1].insert(0, "run", number)
    if not rows:
        raise UserError(f"{results}: contains no run of the study; train the runs first")
    if not layers:  # training writes the statistics of layers at each validation
        raise UserError(
            f"{results}: the runs of the study have no validation losses; set "
            "training.validate_every and training.validation_cells, and train again"
        )
    if missing:
        log(f"{len(missing)} of {len(missing) + len(rows)} runs are missing: {first_few(missing)}")
    tables = {"runs": pd.DataFrame(rows), "curves": pd.concat(curves), "layers": pd.concat(layers)}
    for name, table in tables.items():
        write_frame(output / f"{name}.csv", table)


def read_layers(path: Path, journal: Mapping[str, NDArray[Any]]) -> pd.DataFrame:
    """Read ``layers.csv`` of a run. Raise a UserError if it lacks rows of a validated step.

    ``journal`` has the columns of the journal. A run that continued without its ``layers.csv``
    (:func:`~scsigmoid.training.journal.begin_layers`) may lack the first steps.
    """
    table = read_frame(path, usecols=list(LAYER_COLUMNS))
    validated = journal["step"][~np.isnan(journal["validation_loss"])]
    steps = validated[validated >= table["step"].min()]
    rows = table["step"].value_counts().reindex(steps, fill_value=0)
    if rows.nunique() > 1:
        raise UserError(
            f"{path}: damaged: step {rows.idxmin()} has {rows.min()} of {rows.max()} layers; train "
            "the run again, or delete the file to leave it out"
        )
    return table


class Study:
    """The tables of a study. A run is finished if it has trained for all steps of its settings.

    Attributes:
        runs: one row per finished run, with the column ``setting`` (:func:`setting_label`).
        unfinished: names of the unfinished runs.
        all_curves: rows of the journals of all runs, with settings of the run.
        curves: the rows of ``all_curves`` of finished runs.
        layers: attention statistics of the finished runs, with settings of the run.
        scores: scores of the finished runs with the purpose ``seeds`` or ``variants``, with
            settings of the run. Without ``scores.csv``, the table is empty.
        controls: scores of representations without a model (rows: metrics, columns: controls).
    """

    def __init__(self, folder: Path, has_scores: bool = True) -> None:
        """Read the folder that :func:`collect` wrote, and ``scores.csv`` if it ``has_scores``."""
        self.folder = folder
        runs = self.read("runs").set_index("run")
        runs["setting"] = [setting_label(run) for run in runs[[*SETTINGS]].to_dict("records")]
        if runs[runs["purpose"] == "stability"]["size"].nunique() > 1:
            # Runs of different sizes need different labels.
            runs["setting"] += ", " + runs["size"]
        is_finished = runs["last_step"] >= runs["steps"]
        self.unfinished = runs.loc[~is_finished, "name"].tolist()
        self.runs = runs[is_finished]
        columns = (
            "family purpose attention context size seed learning_rate variants clipping setting"
        )
        settings = runs[columns.split()]
        finished = settings[is_finished]
        self.all_curves = self.read("curves").join(settings, on="run")
        self.curves = self.all_curves[self.all_curves["run"].isin(finished.index)]
        self.layers = self.read("layers").join(finished, on="run", how="inner")
        has_scores = has_scores and (folder / "scores.csv").is_file()
        no_scores = pd.DataFrame(columns=["run", "step", "metric", "value"])
        scores = self.read("scores") if has_scores else no_scores
        by_name = finished.set_index(self.runs["name"])  # scores have the names of runs
        scored_runs = by_name[by_name["purpose"].isin(["seeds", "variants"])]
        self.scores = scores.join(scored_runs, on="run", how="inner").astype({"step": int})
        controls = scores[scores["step"].isna()]  # controls have no training step
        self.controls = controls.pivot(index="metric", columns="run", values="value")

    def read(self, name: str) -> pd.DataFrame:
        path = self.folder / f"{name}.csv"
        if not path.is_file():
            raise UserError(f"{path}: no such file; make it with scsigmoid study-runs")
        texts, numbers = COLUMNS[name]
        # Names such as "nan" and "001" are kept, and only empty numbers are missing.
        types, missing = dict.fromkeys(texts, str), dict.fromkeys(numbers, "")
        table = read_frame(path, dtype=types, keep_default_na=False, na_values=missing)
        for column in (*texts, *numbers):
            problem = "is missing" if column not in table else ""
            if not problem and column in numbers and len(table):
                problem = "" if is_numeric_dtype(table[column]) else "contains text"
            if problem:
                raise UserError(f"{path}: column {column!r} {problem}; make the file again")
        return table

    @cached_property
    def baselines(self) -> pd.DataFrame:
        return self.read("baselines")

    def baseline(self, name: str, context: int) -> float:
        """Return the loss of a baseline (``baselines.csv``) on the validation cells, in nats.

        Files of earlier versions have one baseline for all contexts.
        """
        table = self.baselines
        is_wanted = (table["dataset"] == "validation") & (table["baseline"] == name)
        if "context" in table:
            is_wanted &= table["context"] == context
        return float(table["loss"][is_wanted].iloc[0])


def setting_label(run: Mapping[Hashable, Any]) -> str:
    """Return the values of :data:`SETTINGS` in words, e.g. ``no clipping, 20 steps of …``."""
    words = [
        "no clipping" if math.isnan(run["clipping"]) else f"clipping at {run['clipping']:g}",
        f"{run['warmup_steps']:,} steps of warm-up",
        f"{run['context']:,} tokens",
        *run["variants"].split(),
    ]
    return ", ".join(words)
