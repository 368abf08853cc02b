"""The main results in words, at the end of a run's output and in the report on own cells."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote

import pandas as pd

from scsigmoid.config.metrics import MEAN, METRICS
from scsigmoid.config.plan import Plan
from scsigmoid.errors import first_few
from scsigmoid.report.tables.mmd_table import MEANS
from scsigmoid.results.labels import CONTROLS, METRIC_TITLES

#: Columns of tables with names, which may be numbers such as 001.
TEXT = dict.fromkeys(("dataset", "title", "model", "compared_with"), str)
#: Maximum number of paths of new files in a line of the summary.
MAXIMUM_PATHS = 4
#: Scores count as equal if they differ by less than this, or by less than twice the standard error
#: of an accuracy on the evaluated cells.
MINIMUM_TOLERANCE = 0.02
#: What to do if the embedding is not better than the controls.
ADVICE = (
    "train longer (training.steps, training.patience: 0), on more cells, or a larger model "
    "(architecture.size)"
)
START = "If the cells are human blood, start from the packaged model (training.initial: blood)."


def summary(results: str | Path, since: float, plan: Plan) -> str:
    """Return the main numbers, the new files and the next command as lines of text.

    Args:
        results: folder of the results.
        since: Unix time in seconds, the start of the run. Older files are left out.
        plan: the plan of the run.
    """
    folder = Path(results)

    def new_files(pattern: str) -> list[Path]:
        return [path for path in sorted(folder.glob(pattern)) if path.stat().st_mtime >= since]

    def new_tables(pattern: str) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yield the name and the rows of each new table with rows."""
        for path in new_files(f"tables/{pattern}.csv"):
            if path.read_text("utf-8").strip() and len(table := read_records(path)):
                yield path.stem, table

    lines = []  # (title, text)
    for _, scores in new_tables("scib"):
        lines.append(("Result", first_sentences(scores, plan)))
    for _, losses in new_tables("validation_loss"):
        is_difference = losses["compared_with"].notna()
        lines.append(("Validation loss, nats", means(losses[~is_difference], "mean")))
    for _, scores in new_tables("scib"):
        text = means(scores[scores["metric"] == MEAN], "value")
        lines.append(("Bio conservation (scIB)", text))
    for name, table in new_tables("mmd_*"):
        lines.append(("MMD, sigmoid / softmax", separation(name, table)))
    patterns = {
        "Report": "report.html",
        "Tables": "tables/*.csv",
        "Figures": "figures/*.png",
        "Embeddings": "embeddings/*/*.h5ad",
        "Models, for ss.load": "training/*/model.safetensors",
    }
    for title, pattern in patterns.items():
        paths = new_files(pattern)
        more = f" and {len(paths) - MAXIMUM_PATHS} more" if len(paths) > MAXIMUM_PATHS else ""
        lines.append((title, ", ".join(map(str, paths[:MAXIMUM_PATHS])) + more))
    if new_files("report.html"):
        lines.append(("Next", next_command(folder, plan)))
    return "\n".join(f"{title + ':':<25} {text}" for title, text in lines if text)


def read_records(path: Path) -> pd.DataFrame:
    """Return the rows of a table's CSV file. Only empty fields are NaN, not names like ``nan``."""
    return pd.read_csv(path, dtype=TEXT, keep_default_na=False, na_values=[""])


def next_command(results: Path, plan: Plan) -> str:
    """Return a command that continues after a whole run, or "" after the largest preset."""
    if plan.is_own:
        model = results / "training" / plan.config.evaluation.pair[0]
        return f"scsigmoid embed --checkpoint {quote(str(model))} more.h5ad embedded.h5ad"
    larger = {"demo": "preset=small", "small": "preset=paper gpus=8 nodes=4"}
    settings = larger.get(plan.config.preset)
    return f"scsigmoid plan --config {settings}" if settings else ""


def means(table: pd.DataFrame, column: str) -> str:
    """Return each model's mean of a column over the datasets, and their number, as text."""
    by_model = table.groupby("model", sort=False)[column]
    values = by_model.agg(lambda of_datasets: of_datasets.mean(skipna=False))
    datasets = table.drop_duplicates("dataset")
    count = "1 dataset" if len(datasets) == 1 else f"mean of {len(datasets)} datasets"
    return ", ".join(f"{model} {value:z.3f}" for model, value in values.items()) + f" ({count})"


def separation(name: str, table: pd.DataFrame) -> str:
    """Return the mean MMD of sigmoid divided by the mean MMD of softmax on a dataset, as text."""
    # The configured estimator comes first in the table.
    mean = table[table["pair"] == "ratio_of_means"].iloc[0]
    is_pair = ~table["pair"].isin(MEANS) & (table["estimator"] == mean["estimator"])
    dataset = name.removeprefix("mmd_")
    return f"{mean['ratio']:.3f} ({dataset}, {is_pair.sum()} pairs of cell types)"


def recommendations(scores: pd.DataFrame) -> str:
    """Return which representation to use on each dataset, and by how much it is better.

    ``scores`` are records of the table ``scib``. Datasets without differences over splits are left
    out. The representation with the highest score is named first, or the initial model as it is
    unless another one is distinguishably better, because it needs no training. If the interval of
    the difference to others includes 0, they are named as not distinguishable. Nothing is
    recommended that is not distinguishably better than the random embedding.
    """
    if "compared_with" not in scores:
        return ""
    is_difference = scores["compared_with"].notna() & (scores["compared_with"] != "")
    sentences = []
    for dataset, differences in scores[is_difference].groupby("dataset", sort=False):
        metric = differences["metric"].iloc[0]
        is_scored = (scores["dataset"] == dataset) & (scores["metric"] == metric) & ~is_difference
        values = scores[is_scored].set_index("model")["value"]
        random = values.get("random", math.nan)
        values = values.drop("random", errors="ignore")
        candidates = [
            name
            for name in values.index
            if not difference(differences, name, "random")[1] <= 0  # NaN without random
            and not any(difference(differences, name, other)[2] < 0 for other in values.index)
        ]
        highest = (values[candidates] if candidates else values).idxmax()
        best = "initial" if "initial" in candidates else highest
        better: list[str] = []
        equal: list[str] = []
        for name in values.drop(best).sort_values(ascending=False, kind="stable").index:
            mean, low, high = difference(differences, best, name)
            interval = f"{mean:z.2f} [{low:z.2f}, {high:z.2f}]"
            if low > 0:
                better.append(f"{control_label(name)} by {interval}")
            else:
                score = f"{control_label(name)} {values[name]:z.2f}"
                equal.append(f"{score} (difference {interval})")
        title = scores[is_scored]["title"].iloc[0]
        score = f"{in_sentence(METRIC_TITLES[metric])} {values[best]:z.2f}"
        reason = "" if best == highest else ", which needs no training"
        mean, low, high = difference(differences, best, "random")
        if low <= 0:
            verb = "worse than" if high < 0 else "not distinguishable from"
            sentences.append(
                f"{title}: no recommendation: {control_label(best)} ({score}) is {verb} "
                f"a random embedding {random:z.2f} "
                f"(difference {mean:z.2f} [{low:z.2f}, {high:z.2f}])."
            )
        else:
            sentences.append(f"{title}: use {control_label(best)} ({score}){reason}.")
        if better:
            sentences.append(f"Lower: {', '.join(better)}.")
        if equal:
            sentences.append(f"Not distinguishable: {', '.join(equal)}.")
    if not sentences:
        return ""
    sentences.append("(Brackets: 95 % over 5 splits.)")
    others = scores[~scores["dataset"].isin(scores[scores["metric"] == metric]["dataset"])]
    if titles := [*others["title"].unique()]:
        cells = f"fewer than two types have {METRICS[metric].minimum_cells} cells"
        metric_title = in_sentence(METRIC_TITLES[metric])
        sentences.append(f"Without {metric_title} ({cells}): {first_few(titles)}.")
    return " ".join(sentences)


def first_sentences(scores: pd.DataFrame, plan: Plan) -> str:
    """Return the first sentences of the report: what to use, or how the models compare."""
    if plan.config.corpus.source == "embedded" and len(scores):
        # Scores of simulated cells say nothing about biology.
        scores = scores[~scores["dataset"].str.startswith("simulated_")]
        verdict_text = verdicts(scores)
        return f"On the real cells: {verdict_text}" if verdict_text else ""
    verdict_text = verdicts(scores)
    text = recommendations(scores) if plan.is_own else ""
    # `choices` has the reason if the packaged model was set, but does not fit the cells.
    was_rejected = "training.initial" in plan.config.choices
    if plan.is_own and ADVICE in verdict_text and not (plan.initial or was_rejected):
        verdict_text += f" {START}"
    # The means of a verdict have no interval, so of both texts only its advice is added.
    return f"{text} {verdict_text}".strip() if not text or ADVICE in verdict_text else text


def difference(rows: pd.DataFrame, first: str, second: str) -> tuple[float, float, float]:
    """Return the mean of first - second and the ends of its interval, from rows of differences."""
    for one, other, sign in ((first, second, 1), (second, first, -1)):
        row = rows[(rows["model"] == one) & (rows["compared_with"] == other)]
        if len(row):
            mean, *ends = (sign * float(row[name].iloc[0]) for name in ("value", "low", "high"))
            return mean, min(ends), max(ends)
    return math.nan, math.nan, math.nan


def control_label(name: str) -> str:
    """Return the name of a representation in a sentence."""
    if name == "initial":
        return f"the {in_sentence(CONTROLS[name])}"
    return in_sentence(CONTROLS[name]) if name in CONTROLS else f"the trained model {name}"


def verdicts(scores: pd.DataFrame) -> str:
    """Return sentences that compare the models with the controls, by mean score over the datasets.

    ``scores`` are records of the table ``scib``. The first computed metric with ``in_verdict`` is
    compared, otherwise bio conservation. Models with the same verdict share a sentence.
    """
    if "compared_with" in scores:
        scores = scores[scores["compared_with"].isna() | (scores["compared_with"] == "")]
    metrics = scores["metric"].unique()
    preferred = [*(name for name, metric in METRICS.items() if metric.in_verdict), MEAN]
    metric = next((name for name in preferred if name in metrics), "")
    rows = scores[scores["metric"] == metric]
    mean_scores = rows.groupby("model", sort=False)["value"].mean()
    # A model or control may lack scores of a dataset: state the smallest number of cells.
    cells = int(rows.groupby("model")["cells"].sum().min()) if len(rows) else 0
    controls = {name: mean_scores[name] for name in CONTROLS if name in mean_scores}
    models_by_verdict: dict[str, list[str]] = {}
    for model, mean in mean_scores.drop([*controls]).items():
        models_by_verdict.setdefault(verdict(mean, controls, cells), []).append(str(model))
    control_scores = [
        f"{in_sentence(CONTROLS[name])} {mean:z.2f}" for name, mean in controls.items()
    ]
    sentences = []
    for text, models in models_by_verdict.items():
        names = " and ".join(models)
        plural = len(models) > 1
        start = f"The embeddings of {names} are" if plural else f"The embedding of {names} is"
        model_scores = " and ".join(f"{mean_scores[model]:z.2f}" for model in models)
        title = in_sentence(METRIC_TITLES[metric])
        numbers = ", ".join([f"{title} {model_scores}", *control_scores])
        sentences.append(f"{start} {text} ({numbers}; {cells:,} held-out cells).")
    return " ".join(sentences)


def verdict(value: float, controls: Mapping[str, float], cells: int) -> str:
    """Return text that compares a score with the scores of the controls, on ``cells`` cells."""
    accuracy = min(max(value, 0.0), 1.0)
    tolerance = max(MINIMUM_TOLERANCE, 2 * math.sqrt(accuracy * (1 - accuracy) / max(cells, 1)))
    # A control without a score is NaN: comparisons with NaN are False.
    random, pca = (controls.get(name, math.nan) for name in ("random", "pca_log_counts"))
    better_than_random = "" if math.isnan(random) else "better than a random embedding"
    if value < random + tolerance:
        return f"not better than a random embedding: {ADVICE}"
    if value < pca - tolerance:
        start = f"{better_than_random}, but " if better_than_random else ""
        return f"{start}worse than PCA: {ADVICE}"
    if math.isnan(pca):
        return better_than_random or "not compared"
    return "better than PCA" if value > pca + tolerance else "as good as PCA"


def in_sentence(title: str) -> str:
    """Return a title with a lower-case first letter, unless it begins with an abbreviation."""
    return title if title[:2].isupper() else title[0].lower() + title[1:]
