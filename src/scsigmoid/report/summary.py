"""The lines at the end of a run: what it made, and the numbers that are looked up first."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from scsigmoid.report.verdict import verdicts

#: The most paths that a line lists.
LISTED = 4


def summary(results: str | Path, since: float) -> str:
    """Return a few lines about what was written to a results folder.

    Args:
        since: time of the start of the run, in seconds; older files are left out.
    """
    folder = Path(results)

    def made(pattern: str) -> list[Path]:
        paths = sorted(folder.glob(pattern))
        return [path for path in paths if path.stat().st_mtime >= since]

    lines = []
    for title, name, describe in NUMBERS:
        tables = {path.stem: pd.read_csv(path) for path in made(f"tables/{name}.csv")}
        texts = (describe(stem, table) for stem, table in tables.items() if len(table))
        lines += [(title, text) for text in texts if text]
    patterns = {
        "Report": "report.html",
        "Tables": "tables/*.csv",
        "Figures": "figures/*.png",
        "Embeddings": "embeddings/*/*.h5ad",
        "Models, for ss.load": "training/*/model.safetensors",
    }
    lines += [(title, listed(made(pattern))) for title, pattern in patterns.items()]
    return "\n".join(f"{title + ':':<25} {text}" for title, text in lines if text)


def listed(paths: list[Path]) -> str:
    """Return a few of the paths, and how many more there are."""
    more = f" and {len(paths) - LISTED} more" if len(paths) > LISTED else ""
    return ", ".join(map(str, paths[:LISTED])) + more


def meaning(_: str, table: pd.DataFrame) -> str:
    """Return what the scores mean, in words."""
    return " ".join(verdicts(table))


def losses(_: str, table: pd.DataFrame) -> str:
    """Return the loss of each model, the mean over the datasets."""
    return means(table[~table["model"].str.contains(" - ")], "mean")


def conservation(_: str, table: pd.DataFrame) -> str:
    """Return scIB's mean of each embedding and control, the mean over the datasets."""
    return means(table[table["metric"] == "bio_conservation"], "value")


def means(table: pd.DataFrame, column: str) -> str:
    """Return the mean over the datasets of each model."""
    values = table.groupby("model", sort=False)[column].mean()
    datasets = table.drop_duplicates("dataset")
    simulated = int(datasets["simulated"].sum())
    of = "1 dataset" if len(datasets) == 1 else f"mean of {len(datasets)} datasets"
    of += f", {simulated} simulated" if simulated else ""
    return ", ".join(f"{model} {value:z.3f}" for model, value in values.items()) + f" ({of})"


def separation(name: str, table: pd.DataFrame) -> str:
    """Return the mean ratio of both models' MMD on a dataset."""
    row = table[table["pair"] == "ratio_of_means"].iloc[0]
    pairs = table["pair"].str.contains(" vs ") & (table["estimator"] == row["estimator"])
    return f"{row['ratio']:.3f} ({name.removeprefix('mmd_')}, {pairs.sum()} pairs of cell types)"


#: The lines with numbers: title, pattern of the table, and what the line says of it.
NUMBERS: tuple[tuple[str, str, Callable[[str, pd.DataFrame], str]], ...] = (
    ("Result", "scib", meaning),
    ("Validation loss, nats", "validation_loss", losses),
    ("Bio conservation (scIB)", "scib", conservation),
    ("MMD, sigmoid / softmax", "mmd_*", separation),
)
