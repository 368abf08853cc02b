"""The summary at the end of a run: its main numbers and the files that it made."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from scsigmoid.report.verdict import verdicts

#: Largest number of paths in a line.
LISTED = 4


def summary(results: str | Path, since: float) -> str:
    """Return lines with the main numbers and the new files of a results folder.

    Args:
        results: the results folder.
        since: start of the run in seconds since 1970. Older files are left out.
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
    """Return the mean loss of each model over the datasets."""
    return means(table[~table["model"].str.contains(" - ")], "mean")


def conservation(_: str, table: pd.DataFrame) -> str:
    """Return the mean scIB score of each embedding and control over the datasets."""
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


#: Lines with numbers: title, pattern of the table's file name, and function that formats the table.
NUMBERS: tuple[tuple[str, str, Callable[[str, pd.DataFrame], str]], ...] = (
    ("Result", "scib", meaning),
    ("Validation loss, nats", "validation_loss", losses),
    ("Bio conservation (scIB)", "scib", conservation),
    ("MMD, sigmoid / softmax", "mmd_*", separation),
)
