"""The summary at the end of a run, from tables written by hand."""

from pathlib import Path
from shlex import split
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from configurations import with_settings

from scsigmoid.cli import make_parser
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.report.summary import first_sentences, recommendations, summary, verdicts


def lines(folder: Path, config: Config) -> dict[str, str]:
    """Return the text of each line of the summary by its title."""
    parts = [line.split(":", 1) for line in summary(folder, 10, Plan(config)).splitlines()]
    return {title: text.strip() for title, text in parts}


def test_means_over_datasets_and_counts(tmp_path: Path, config: Config) -> None:
    losses = [
        {"dataset": dataset, "model": model, "compared_with": other, "mean": mean}
        for dataset, (one, two) in {"a": (1.0, 2.0), "b": (4.0, 6.0)}.items()
        for model, other, mean in (("one", "", one), ("two", "", two), ("one", "two", -1.0))
    ]
    (tmp_path / "tables").mkdir()
    pd.DataFrame(losses).to_csv(tmp_path / "tables/validation_loss.csv")
    texts = lines(tmp_path, config)
    assert texts["Validation loss, nats"] == "one 2.500, two 4.000 (mean of 2 datasets)"
    assert "Bio conservation (scIB)" not in texts
    assert not {"Report", "Next"} & texts.keys()


@pytest.mark.parametrize(
    ("source", "preset", "expected"),
    [
        ("embedded", "demo", "scsigmoid plan --config preset=small"),
        ("cellxgene", "paper", None),
        (
            "local",
            "own",
            "scsigmoid embed --checkpoint '{}/a folder/training/sigmoid_256' more.h5ad "
            "embedded.h5ad",
        ),
    ],
)
def test_the_next_command_after_a_whole_run(
    source: str, preset: str, expected: str | None, tmp_path: Path, config: Config
) -> None:
    changed = with_settings(config, {"corpus.source": source, "preset": preset})
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "report.html").touch()
    command = lines(folder, changed).get("Next")
    assert command == (expected and expected.format(tmp_path))
    if command:
        make_parser().parse_args(split(command)[1:])


def table(metric: str = "logistic", cells: int = 1000, **scores: float) -> pd.DataFrame:
    """Return a table of scores on one dataset, with ``scores`` by model."""
    rows = [("a", name, metric, value, cells) for name, value in scores.items()]
    return pd.DataFrame(rows, columns=["dataset", "model", "metric", "value", "cells"])


@pytest.mark.parametrize(
    ("value", "cells", "words"),
    [
        (0.12, 1000, "not better than a random embedding: train longer"),
        (0.30, 10, "not better than a random embedding"),  # twice the standard error is 0.29
        (0.50, 1000, "better than a random embedding, but worse than PCA"),
        (0.81, 1000, "as good as PCA"),
        (0.95, 1000, "better than PCA"),
    ],
)
def test_scores_are_compared_with_the_controls(value: float, cells: int, words: str) -> None:
    sentence = verdicts(table(model=value, random=0.1, pca_log_counts=0.8, cells=cells))
    assert sentence.startswith(f"The embedding of model is {words}")
    assert f"{value:.2f}, random embedding 0.10, PCA of log counts 0.80; {cells:,} " in sentence


def test_models_with_the_same_result_share_a_sentence() -> None:
    scores = {"one": 0.6, "two": 0.1, "three": 0.5, "random": 0.1}
    both = pd.concat([table(**scores), table(**scores | {"one": 0.8})])
    first, second = verdicts(both).split("). ")
    assert first == (
        "The embeddings of one and three are better than a random embedding (logistic accuracy "
        "0.70 and 0.50, random embedding 0.10; 2,000 held-out cells"
    )
    assert second.startswith("The embedding of two is not better than a random embedding: ")


def test_without_scores_there_are_no_sentences() -> None:
    assert "bio conservation 0.50" in verdicts(table("bio_conservation", one=0.5, random=0.1))
    assert verdicts(table("leiden_nmi", one=0.5)) == verdicts(table()) == ""


def test_which_representation_to_use() -> None:
    """Differences have the sign of the best one, whichever is named first in the table."""
    scores = table(model=0.90, initial=0.93, random=0.1, pca_log_counts=0.80).assign(title="Blood")
    rows = [
        ("model", "initial", -0.03, -0.07, 0.01),
        ("initial", "pca_log_counts", 0.13, 0.09, 0.17),
        ("model", "pca_log_counts", 0.1, 0.05, 0.15),
        ("initial", "random", 0.83, 0.8, 0.86),
    ]
    differences = pd.DataFrame(rows, columns=["model", "compared_with", "value", "low", "high"])
    shared = {"dataset": "a", "title": "Blood", "metric": "logistic"}
    both = pd.concat([scores, differences.assign(**shared)])
    assert recommendations(both) == (
        "Blood: use the initial model as it is (logistic accuracy 0.93). Lower: PCA of log counts "
        "by 0.13 [0.09, 0.17]. Not distinguishable: the trained model model 0.90 (difference 0.03 "
        "[-0.01, 0.07]). (Brackets: 95 % over 5 splits.)"
    )
    assert verdicts(both) == verdicts(scores)
    assert recommendations(scores) == recommendations(scores.assign(compared_with="")) == ""


@pytest.mark.parametrize(
    ("value", "initial", "choices", "is_advised"),
    [
        (0.5, None, {}, True),
        (0.5, "blood", {}, False),
        (0.5, None, {"training.initial": "none, genes of another organism"}, False),
        (0.9, None, {}, False),
    ],
)
def test_weak_models_of_own_cells_may_start_from_blood(
    value: float, initial: str | None, choices: dict[str, str], is_advised: bool
) -> None:
    config = SimpleNamespace(corpus=SimpleNamespace(source="local"), choices=choices)
    plan: Any = SimpleNamespace(is_own=True, initial=initial, config=config)
    scores = table(sigmoid=value, random=0.1, pca_log_counts=0.8)
    assert ("training.initial: blood" in first_sentences(scores, plan)) == is_advised
