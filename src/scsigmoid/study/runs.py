"""The runs of a study as a few small tables.

``runs.csv`` has a row for each run, ``curves.csv`` what its journal logged, ``layers.csv`` what its
attention did; ``run`` is the number of the row in ``runs.csv``.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from scsigmoid.config.schema import Config
from scsigmoid.config.study import study_runs
from scsigmoid.errors import UserError
from scsigmoid.files import write_text
from scsigmoid.progress import log
from scsigmoid.training.journal import JOURNAL, LAYERS, read_journal

#: Columns of a journal that are kept.
KEPT = ("step", "loss", "gradient_norm", "attention_score_max", "validation_loss")
VARIED = ("steps", "learning_rate", "clipping", "warmup_steps", "gradient")
FACTS = ("parameters", "device", "backend", "torch", "commit")


def collect(config: Config, results: Path, output: Path) -> None:
    """Write the tables of a study from its runs' folders.

    Args:
        config: the study's configuration.
        results: the results folder; runs that are missing there are named in the log.
        output: folder of the tables.

    Raises:
        UserError: if there is no run at all.
    """
    rows: list[dict[str, Any]] = []
    curves, layers, missing = [], [], []
    for name, run in study_runs(config).items():
        folder = results / "training" / name
        if not (folder / JOURNAL).is_file():
            missing.append(name)
            continue
        columns, facts = read_journal(folder / JOURNAL)
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
                "seed": run.seed,
                **{key: training[key] for key in VARIED},
                "last_step": int(columns["step"][-1]),
                "seconds": round(float(columns["seconds"][-1]), 1),
                **{key: facts.get(key, "") for key in FACTS},
            }
        )
        curves.append(pd.DataFrame({key: columns[key] for key in KEPT}).assign(run=number))
        if (folder / LAYERS).is_file():
            layers.append(pd.read_csv(folder / LAYERS).assign(run=number))
    if not rows:
        raise UserError(f"{results}: holds no run of the study; train it first")
    if missing:
        log(f"{len(missing)} of {len(missing) + len(rows)} runs are missing: {', '.join(missing)}")
    tables = {"runs": pd.DataFrame(rows), "curves": pd.concat(curves)}
    if layers:
        tables["layers"] = pd.concat(layers)
    for name, table in tables.items():
        first = table.pop("run")
        table.insert(0, "run", first)
        # Six digits: more than any conclusion rests on, and small files.
        write_text(output / f"{name}.csv", table.to_csv(index=False, float_format="%.6g"))


class Study:
    """The tables of a study, read.

    Attributes:
        runs: a row for each run that came to its end, by number.
        curves: rows of all journals, with the run's settings beside them.
        layers: likewise, of the attention's statistics.
        unfinished: names of the runs that did not come to their end.
    """

    def __init__(self, folder: Path) -> None:
        """Read the folder that :func:`collect` wrote.

        Raises:
            UserError: if a table is missing.
        """
        self.folder = folder
        runs = self.table("runs").set_index("run")
        runs["clipping"] = runs["clipping"].notna()
        ended = runs["last_step"] >= runs["steps"]
        self.unfinished = runs.loc[~ended, "name"].tolist()
        self.runs = runs[ended]
        settings = self.runs[["family", "attention", "size", "seed", "learning_rate", "clipping"]]
        self.curves = self.table("curves").join(settings, on="run", how="inner")
        self.layers = self.table("layers").join(settings, on="run", how="inner")

    def table(self, name: str) -> pd.DataFrame:
        """A table of the folder."""
        path = self.folder / f"{name}.csv"
        if not path.is_file():
            raise UserError(f"{path}: missing; scsigmoid study-runs writes it")
        return pd.read_csv(path)
