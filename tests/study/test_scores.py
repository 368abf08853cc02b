"""Scores of embeddings, on clouds of points."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import write_embedding
from scsigmoid.files import sha256
from scsigmoid.study import scores as scoring
from scsigmoid.study.scores import metrics


def clouds(distance: float) -> tuple[np.ndarray, np.ndarray]:
    """Return normally distributed points of three types, ``distance`` from 0, and the types."""
    noise = np.random.default_rng(0).normal(size=(120, 5))
    return np.repeat(distance * np.eye(3, 5), 40, axis=0) + noise, np.repeat(["a", "b", "c"], 40)


def test_scores_are_high_only_if_types_are_apart():
    apart, together = (metrics(*clouds(distance), 1, "clouds") for distance in (12.0, 0.0))
    for metric in ("linear_probe", "knn"):
        assert apart[metric] == 1
        assert abs(together[metric] - 1 / 3) < 0.15
    assert apart["leiden_nmi"] > 0.9 > 0.2 > together["leiden_nmi"]
    assert apart["silhouette_label"] > 0.8 > 0.55 > together["silhouette_label"]
    assert apart["mmd"] > 0.8 > 0.2 > together["mmd"]


def test_scores_have_the_run_and_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scoring, "CONTROLS", ("random",))
    (tmp_path / "toy.h5ad").touch()
    common = {"attention": "sigmoid", "context": 128, "dataset": "toy"}
    common |= {"vocabulary": "v", "cells": sha256(tmp_path / "toy.h5ad")}
    paths = [tmp_path / f"{name}.h5ad" for name in ("seeds_1-step-00000050", "seeds_1", "old")]
    for path, step in zip(paths, ({"step": 50}, {"step": 2_000_000}, {}), strict=True):
        values, types = clouds(12.0 if path.stem == "seeds_1" else 0.0)
        obs = pd.DataFrame(index=[str(row) for row in range(len(types))])
        metadata = {**common, "model": path.stem.partition("-")[0], **step}
        write_embedding(path, values, types, np.arange(len(types)), metadata, obs)
    scoring.score(paths[:2], tmp_path / "toy.h5ad", 1, tmp_path / "scores.csv")
    table = pd.read_csv(tmp_path / "scores.csv", dtype={"step": "Int64"})
    probe = table[table["metric"] == "linear_probe"]
    assert probe["run"].tolist() == ["seeds_1", "seeds_1", "random"]
    assert probe["step"].tolist() == [50, 2_000_000, pd.NA]
    assert [value > 0.9 for value in probe["value"]] == [False, True, False]
    with pytest.raises(UserError, match=r"old\.h5ad: the training step is missing"):
        scoring.score(paths, tmp_path / "toy.h5ad", 1, tmp_path / "scores.csv")
    (tmp_path / "toy.h5ad").write_text("other cells")
    with pytest.raises(UserError, match=r"toy\.h5ad: has cells"):
        scoring.score(paths[:2], tmp_path / "toy.h5ad", 1, tmp_path / "scores.csv")
