"""What the terminal says when a run has ended: the numbers looked up first, where things lie."""

from pathlib import Path

import pandas as pd

from scsigmoid.paper.claims import read_claims, tally


def summary(results: str | Path) -> str:
    """A few lines about a results folder; a table that is not there has no line."""
    folder = Path(results)
    lines = [
        ("Validation loss, nats", losses(folder)),
        ("Bio conservation (scIB)", conservation(folder)),
        ("Training speed, cells/s", speed(folder)),
        ("Claims of the paper", verdicts(folder)),
        ("Report", str(folder / "report.html")),
        ("Tables, figures", f"{folder / 'tables'}, {folder / 'figures'}"),
        ("Models, for ss.load", str(folder / "training/<model>/model.safetensors")),
    ]
    return "\n".join(f"{name + ':':<25} {text}" for name, text in lines if text)


def losses(folder: Path) -> str:
    """The loss of each model, the mean over the datasets."""
    table = read(folder, "validation_loss")
    models = table[~table["model"].str.contains(" - ")] if len(table) else table
    return means(models, "mean")


def conservation(folder: Path) -> str:
    """scIB's mean of each embedding and control, the mean over the datasets."""
    table = read(folder, "scib")
    return means(table[table["metric"] == "bio_conservation"] if len(table) else table, "value")


def means(table: pd.DataFrame, column: str) -> str:
    """The mean over the datasets of each model, and what they are of."""
    if table.empty:
        return ""
    found = table.groupby("model", sort=False)[column].mean()
    datasets = table.drop_duplicates("dataset")
    simulated = int(datasets["simulated"].sum())
    of = "1 dataset" if len(datasets) == 1 else f"mean of {len(datasets)} datasets"
    of += f", {simulated} simulated" if simulated else ""
    return ", ".join(f"{model} {value:.3f}" for model, value in found.items()) + f" ({of})"


def speed(folder: Path) -> str:
    """Packed training of both arms at the longest context that was timed."""
    table = read(folder, "training_speed")
    if len(table):
        table = table[(table["layout"] == "packed") & table["cells_per_second"].notna()]
    if table.empty:
        return ""
    longest = table[table["context"] == table["context"].max()]
    rates = [
        f"{row.attention} ({row.kernel}) {row.cells_per_second:,.0f}"
        for row in longest.itertuples()
    ]
    return (
        f"{', '.join(rates)} (context {longest['context'].iloc[0]:,}, {longest['device'].iloc[0]})"
    )


def verdicts(folder: Path) -> str:
    path = folder / "claims.csv"
    return tally(read_claims(path)) if path.is_file() else ""


def read(folder: Path, name: str) -> pd.DataFrame:
    """A table of the results; empty where it was not made."""
    path = folder / "tables" / f"{name}.csv"
    return pd.read_csv(path) if path.is_file() else pd.DataFrame()
