"""The main results in words: the end of a run's output, and the start of a report of own cells."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from scsigmoid.config.metrics import MEAN
from scsigmoid.labels import CONTROLS, METRICS

#: Maximum number of paths in a line.
LISTED = 4
#: Scores are equal if they differ by less than this, or by less than twice the standard error of an
#: accuracy measured on the cells.
EQUAL = 0.02
ADVICE = "train longer (training.steps), on more cells, or a larger model (architecture.size)"


def summary(results: str | Path, since: float) -> str:
    """Return the main numbers and the new files of a results folder as lines of text.

    Args:
        results: the results folder.
        since: start of the run (Unix time in seconds). Older files are left out.
    """
    folder = Path(results)

    def new_files(pattern: str) -> list[Path]:
        paths = sorted(folder.glob(pattern))
        return [path for path in paths if path.stat().st_mtime >= since]

    lines = []
    for title, name, describe in NUMBERS:
        tables = {path.stem: pd.read_csv(path) for path in new_files(f"tables/{name}.csv")}
        texts = (describe(stem, table) for stem, table in tables.items() if len(table))
        lines += [(title, text) for text in texts if text]
    patterns = {
        "Report": "report.html",
        "Tables": "tables/*.csv",
        "Figures": "figures/*.png",
        "Embeddings": "embeddings/*/*.h5ad",
        "Models, for ss.load": "training/*/model.safetensors",
    }
    lines += [(title, listed(new_files(pattern))) for title, pattern in patterns.items()]
    return "\n".join(f"{title + ':':<25} {text}" for title, text in lines if text)


def listed(paths: list[Path]) -> str:
    """Return the first paths, and the number of further paths."""
    more = f" and {len(paths) - LISTED} more" if len(paths) > LISTED else ""
    return ", ".join(map(str, paths[:LISTED])) + more


def losses(_: str, table: pd.DataFrame) -> str:
    """Return the mean loss of each model over the datasets."""
    return means(table[~table["model"].str.contains(" - ")], "mean")


def conservation(_: str, table: pd.DataFrame) -> str:
    """Return the mean scIB score of each embedding and control over the datasets."""
    return means(table[table["metric"] == MEAN], "value")


def means(table: pd.DataFrame, column: str) -> str:
    """Return the mean over the datasets of each model."""
    values = table.groupby("model", sort=False)[column].mean()
    datasets = table.drop_duplicates("dataset")
    simulated = int(datasets["simulated"].sum())
    of = "1 dataset" if len(datasets) == 1 else f"mean of {len(datasets)} datasets"
    of += f", {simulated} simulated" if simulated else ""
    return ", ".join(f"{model} {value:z.3f}" for model, value in values.items()) + f" ({of})"


def separation(name: str, table: pd.DataFrame) -> str:
    """Return the mean MMD of sigmoid divided by the mean MMD of softmax on a dataset."""
    row = table[table["pair"] == "ratio_of_means"].iloc[0]
    pairs = table["pair"].str.contains(" vs ") & (table["estimator"] == row["estimator"])
    return f"{row['ratio']:.3f} ({name.removeprefix('mmd_')}, {pairs.sum()} pairs of cell types)"


def verdicts(scores: pd.DataFrame) -> str:
    """Compare the models' mean scores over the datasets with the controls, in sentences.

    Models with the same result share a sentence. Without scores, the text is empty.

    Args:
        scores: records of the table ``scib``: ``dataset``, ``model``, ``metric``, ``value`` and
            ``cells``.
    """
    metrics = scores["metric"].unique()
    metric = next((name for name in ("logistic", MEAN) if name in metrics), "")
    rows = scores[scores["metric"] == metric]
    values = rows.groupby("model", sort=False)["value"].mean()
    cells = int(rows.groupby("model")["cells"].sum().min()) if len(rows) else 0
    controls = {name: values[name] for name in CONTROLS if name in values}
    models: dict[str, list[str]] = {}
    for name, value in values.drop([*controls]).items():
        models.setdefault(verdict(value, controls, cells), []).append(str(name))
    others = [f"{in_sentence(CONTROLS[name])} {score:z.2f}" for name, score in controls.items()]
    sentences = []
    for words, names in models.items():
        start = "The embeddings of {} are" if len(names) > 1 else "The embedding of {} is"
        own = " and ".join(f"{values[name]:z.2f}" for name in names)
        numbers = ", ".join([f"{in_sentence(METRICS[metric])} {own}", *others])
        sentences.append(
            f"{start.format(' and '.join(names))} {words} ({numbers}; {cells:,} held-out cells)."
        )
    return " ".join(sentences)


def verdict(value: float, controls: Mapping[str, float], cells: int) -> str:
    """Compare a score with the scores of a random embedding and of PCA, in words."""
    share = min(max(value, 0.0), 1.0)
    equal = max(EQUAL, 2 * math.sqrt(share * (1 - share) / max(cells, 1)))
    random, pca = (controls.get(name, math.nan) for name in CONTROLS)
    better = "" if math.isnan(random) else "better than a random embedding"
    if value < random + equal:
        return f"not better than a random embedding: {ADVICE}"
    if value < pca - equal:
        start = f"{better}, but " if better else ""
        return f"{start}worse than PCA, which is the better choice here: {ADVICE}"
    if math.isnan(pca):
        return better or "not compared"
    return "better than PCA" if value > pca + equal else "as good as PCA"


def in_sentence(title: str) -> str:
    """Return a title in lower case, unless it begins with an abbreviation."""
    return title if title[:2].isupper() else title[0].lower() + title[1:]


#: Lines with numbers: title, pattern of the table's name, and function of the name and the table.
NUMBERS: tuple[tuple[str, str, Callable[[str, pd.DataFrame], str]], ...] = (
    ("Result", "scib", lambda _, table: verdicts(table)),
    ("Validation loss, nats", "validation_loss", losses),
    ("Bio conservation (scIB)", "scib", conservation),
    ("MMD, sigmoid / softmax", "mmd_*", separation),
)
