"""The runs of a study as a few small tables, and what their curves say.

``runs.csv`` has a row for each run, ``curves.csv`` what its journal logged, ``layers.csv`` what its
attention did; ``run`` is the number of the row in ``runs.csv``.  ``scores.csv``, of embeddings, has
the run's name.  The rules by which curves are judged were stated before the runs
(workflow/studies/arms.yaml).
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from scsigmoid.config.schema import Config
from scsigmoid.config.study import study_runs
from scsigmoid.errors import UserError
from scsigmoid.files import write_text
from scsigmoid.measurements import mean_interval
from scsigmoid.paper.labels import ATTENTIONS
from scsigmoid.progress import log
from scsigmoid.training.journal import JOURNAL, LAYERS, read_journal

#: Columns of a journal that are kept.
KEPT = ("step", "loss", "gradient_norm", "attention_score_max", "validation_loss")
VARIED = ("steps", "learning_rate", "clipping", "warmup_steps", "gradient")
#: What the runs that test stability differ in, apart from the learning rate and the seed.
SETTINGS = ("clipping", "warmup_steps", "variants", "context")
FACTS = ("parameters", "device", "backend", "torch", "commit")
#: The families of runs that tables and figures are made of; ``frontier_…`` and ``scale_…``, too.
FAMILIES = ("rates", "seeds", "variants", "frontier", "scale")
CONFIDENCE = 0.95
#: A collapsed run is not so many nats better than gene frequencies, or so many worse than it was.
#: A model that knows a gene's rank and nothing else is about 0.1 nats better.
BETTER, WORSE = 0.3, 0.3


def collect(config: Config, results: Path, output: Path) -> None:
    """Write the tables of a study from its runs' folders.

    Args:
        results: the results folder; runs that are missing there are named in the log.
        output: folder of the tables.

    Raises:
        UserError: if there is no run at all, or none has validation losses.
    """
    rows: list[dict[str, Any]] = []
    curves, layers, missing = [], [], []
    for name, run in study_runs(config).items():
        folder = results / "training" / name
        there = (folder / JOURNAL).is_file()
        columns, facts = read_journal(folder / JOURNAL) if there else ({}, {})
        if not len(columns.get("step", ())):
            missing.append(name)
            continue
        number = len(rows)
        training = asdict(run.training)
        rows.append(
            {
                "run": number,
                "name": name,
                "family": run.family,
                "attention": run.model.attention,
                "context": run.model.context,
                "size": run.size,
                "variants": " ".join(run.variants),
                "seed": run.seed,
                **{key: training[key] for key in VARIED},
                "last_step": int(columns["step"][-1]),
                "seconds": round(float(columns["seconds"][-1]), 1),
                **{key: facts.get(key, "") for key in FACTS},
            }
        )
        curves.append(pd.DataFrame({"run": number, **{key: columns[key] for key in KEPT}}))
        if (folder / LAYERS).is_file():
            layers.append(pd.read_csv(folder / LAYERS))
            layers[-1].insert(0, "run", number)
    if not rows:
        raise UserError(f"{results}: holds no run of the study; train it first")
    if not layers:
        raise UserError("training.validate_every: 0; a study compares validation losses")
    if missing:
        log(f"{len(missing)} of {len(missing) + len(rows)} runs are missing: {shortened(missing)}")
    tables = {
        "runs": pd.DataFrame(rows),
        "curves": pd.concat(curves),
        "layers": pd.concat(layers),
    }
    for name, table in tables.items():
        # Six digits: more than any conclusion rests on, and small files.
        write_text(output / f"{name}.csv", table.to_csv(index=False, float_format="%.6g"))


def shortened(names: Sequence[str]) -> str:
    """Names in a line, the first six of them where there are more."""
    more = len(names) - 6
    return ", ".join(names[:6]) + (f" and {more} more" if more > 0 else "")


class Study:
    """The tables of a study, read.

    Attributes:
        runs: a row for each run that came to its end, by number.
        started: rows of all journals, with the run's settings beside them.
        curves: those of the runs that came to their end.
        layers: likewise, of the attention's statistics.
        scores: likewise, of embeddings by runs of the family ``seeds``; empty if none were scored.
        controls: scores (metrics, controls) without a model.
        unfinished: names of the runs that did not come to their end.
    """

    def __init__(self, folder: Path) -> None:
        """Read the folder that :func:`collect` wrote.

        Raises:
            UserError: if a table is missing.
        """
        self.folder = folder
        runs = self.table("runs").set_index("run")
        runs["variants"] = runs["variants"].fillna("")
        runs["setting"] = [setting(run) for run in runs[list(SETTINGS)].to_dict("records")]
        if runs[runs["family"].str.startswith("frontier")]["size"].nunique() > 1:
            runs["setting"] += ", " + runs["size"]
        ended = runs["last_step"] >= runs["steps"]
        self.unfinished = runs.loc[~ended, "name"].tolist()
        self.runs = runs[ended]
        named = ["family", "attention", "size", "seed", "learning_rate", "variants", "setting"]
        settings = self.runs[named]
        self.started = self.table("curves").join(runs[named], on="run")
        self.curves = self.started[self.started["run"].isin(self.runs.index)]
        self.layers = self.table("layers").join(settings, on="run", how="inner")
        scores = pd.DataFrame(columns=["run", "step", "metric", "value"])
        if (folder / "scores.csv").is_file():
            scores = self.table("scores")
        by_name = settings.set_index(self.runs["name"])
        of_seeds = by_name[by_name["family"] == "seeds"]
        self.scores = scores.join(of_seeds, on="run", how="inner").astype({"step": int})
        controls = scores[scores["step"].isna()]
        self.controls = controls.pivot(index="metric", columns="run", values="value")

    def table(self, name: str) -> pd.DataFrame:
        path = self.folder / f"{name}.csv"
        if not path.is_file():
            raise UserError(f"{path}: missing; scsigmoid study-runs writes it")
        return pd.read_csv(path)


def setting(run: Mapping[Hashable, Any]) -> str:
    """A run's clipping, warm-up, context and variants, in words; its learning rate is left out.

    Where stability is tested at several sizes, :class:`Study` adds the size.
    """
    words = [
        "no clipping" if math.isnan(run["clipping"]) else f"clipping at {run['clipping']:g}",
        f"{run['warmup_steps']:,} steps of warm-up",
        f"{run['context']:,} tokens",
        *run["variants"].split(),
    ]
    return ", ".join(words)


def ending(curve: pd.DataFrame) -> float:
    """The median of a run's last three validation losses; infinite if a loss is not finite."""
    # A validation loss that is not a number is an empty cell, and so is one not measured.
    last = curve["validation_loss"].dropna()[-3:]
    finite = np.isfinite(curve["loss"]).all() and np.isfinite(last).all()
    return float(np.median(last)) if finite else math.inf


def frontier(study: Study, frequencies: float) -> pd.DataFrame:
    """One row a run of the families ``frontier…``: where it ended and whether it collapsed.

    Args:
        study: the runs.
        frequencies: loss of gene frequencies on the validation cells, in nats.

    Returns:
        Columns ``setting`` (:func:`setting`), ``attention``, ``learning_rate``, ``seed``, ``loss``
        (at the end, nats), ``collapsed``, ``gradient_norm`` and ``score`` (the largest).
    """
    rows = []
    chosen = study.curves[study.curves["family"].str.startswith("frontier")]
    keys = ["setting", "attention", "learning_rate", "seed"]
    for key, curve in chosen.groupby(keys):
        end, lowest = ending(curve), curve["validation_loss"].min()
        rows.append(
            {
                **dict(zip(keys, cast(tuple[object, ...], key), strict=True)),
                "loss": end,
                "collapsed": end > frequencies - BETTER or end > lowest + WORSE,
                "gradient_norm": curve["gradient_norm"].fillna(math.inf).max(),
                "score": curve["attention_score_max"].fillna(math.inf).max(),
            }
        )
    return pd.DataFrame(rows)


def survived(runs: pd.DataFrame) -> pd.DataFrame:
    """The largest learning rate up to which no seed collapsed; 0 if one did at the smallest.

    Returns:
        One row a setting, one column an arm, NaN where it has no run.
    """

    def largest(arm: pd.DataFrame) -> float:
        rates = arm.groupby("learning_rate")["collapsed"].any()
        held = rates[~rates.cummax()]
        return float(held.index[-1]) if len(held) else 0.0

    keys = ["setting", "attention"]
    return runs.groupby(keys)[["learning_rate", "collapsed"]].apply(largest).unstack()


def best_rates(study: Study) -> tuple[pd.DataFrame, pd.Series, int]:
    """Validation losses by learning rate (family ``rates``), and each arm's best rate.

    Returns:
        Validation losses (rates, (arm, seed)) at the last measurement that every run of the family
        has reached, each arm's best rate, that of the lowest mean over the seeds, and that step.
    """
    chosen = study.started[study.started["family"] == "rates"]
    chosen = chosen[chosen["step"] <= chosen.groupby("run")["step"].max().min()]
    ends = endings(chosen, ["learning_rate", "attention", "seed"]).unstack("attention")
    ends = cast(pd.DataFrame, ends.unstack("seed"))  # NaN for a seed that an arm lacks
    last = int(chosen.dropna(subset=["validation_loss"])["step"].max())
    return ends, ends.T.groupby(level=0).mean().T.idxmin(), last


def endings(curves: pd.DataFrame, keys: list[str]) -> pd.Series:
    """:func:`ending` of each run, by its settings."""
    return curves.groupby(keys)[["loss", "validation_loss"]].apply(ending)


def paired(study: Study, family: str, size: str | None = None) -> pd.DataFrame:
    """:func:`differences` of the validation losses of a family, or of one size in it."""
    chosen = study.curves[study.curves["family"] == family].dropna(subset=["validation_loss"])
    if size is not None:
        chosen = chosen[chosen["size"] == size]
    return differences(chosen, "validation_loss")


def by_size(study: Study) -> pd.DataFrame:
    """:func:`paired` of each size, the smallest first, at the steps after which they are compared.

    These are the last steps of the sizes that another size has too; of a single size its own.

    Returns:
        :func:`differences`, with ``size`` and ``parameters``; empty without a family ``scale…``.
    """
    scales = [name for name in study.runs["family"].unique() if name.startswith("scale")]
    families = ["seeds", *scales] if scales else []
    found = {}
    for size, parameters in study.runs.groupby("size")["parameters"].first().sort_values().items():
        for family in families:
            if len(means := paired(study, family, str(size))):
                found[size, parameters] = means  # a family of sizes goes before `seeds`
    if not found:
        return pd.DataFrame()
    facts = ["size", "parameters"]
    rows = pd.concat(found, names=facts).reset_index(facts)
    last = rows["step"].isin(rows.groupby("size")["step"].max())
    shared = rows.groupby("step")["size"].transform("size") >= min(len(found), 2)
    return rows[last & shared].sort_values("step", kind="stable")


def scored(study: Study) -> pd.DataFrame:
    """:func:`differences` of the scores of each ``metric``; empty if nothing is scored."""
    by_metric = study.scores.groupby("metric", sort=False)
    found = {metric: differences(group, "value") for metric, group in by_metric}
    return pd.concat(found, names=["metric"]).reset_index("metric") if found else pd.DataFrame()


def differences(curves: pd.DataFrame, column: str) -> pd.DataFrame:
    """Both arms' values over steps, seed by seed.

    Returns:
        One row a step that all seeds of both arms have: ``sigmoid`` and ``softmax``, means over
        the seeds, and ``difference``, sigmoid minus softmax, with Student's interval (``low``,
        ``high``), ``seeds`` and the difference of each (``seed_1``, …).  Empty without seeds of
        both arms.
    """
    table = curves.pivot_table(column, ["step", "seed"], "attention")
    pairs = table.reindex(columns=ATTENTIONS).dropna()
    both = (pairs["sigmoid"] - pairs["softmax"]).unstack("seed").dropna()
    means = {arm: pairs[arm].unstack("seed").loc[both.index].mean(axis=1) for arm in ATTENTIONS}
    values = [mean_interval(row, CONFIDENCE) for row in both.to_numpy(dtype=float)]
    intervals = pd.DataFrame(values, both.index, ["difference", "low", "high"])
    found = pd.DataFrame(means).join(intervals).assign(seeds=both.shape[1])
    return found.join(both.add_prefix("seed_")).reset_index()


def last_change(differences: pd.DataFrame) -> int | None:
    """The first step from which the mean difference keeps its sign; None if it always had it."""
    signs = np.sign(differences["difference"].to_numpy())
    other = np.flatnonzero(signs != signs[-1])
    return None if not len(other) else int(differences["step"].iloc[other[-1] + 1])


def flattening(curve: pd.DataFrame) -> float:
    """By how much the last tenth of the steps lies below the tenth before it, in nats."""
    losses = curve.dropna(subset=["validation_loss"])
    last = losses["step"].max()
    before = losses[losses["step"].between(0.8 * last, 0.9 * last, "right")]
    recent = losses[losses["step"] > 0.9 * last]
    return float(before["validation_loss"].mean() - recent["validation_loss"].mean())
