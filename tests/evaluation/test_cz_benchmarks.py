"""The example with cz-benchmarks in docs/evaluation.md runs. Skipped if it is not installed."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scsigmoid.evaluation.embedding_files import write_embedding

PAGE = Path(__file__).parents[2] / "docs/evaluation.md"


def test_the_example_scores_an_embedding(tmp_path: Path, monkeypatch, capsys) -> None:
    pytest.importorskip("czbenchmarks", reason="cz-benchmarks is not installed")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (example,) = (block for block in blocks if "czbenchmarks" in block)
    generator = np.random.default_rng(0)
    labels = np.array(["a", "b", ""] * 60)
    values = generator.normal(size=(180, 8)) + 6 * (labels == "a")[:, None]
    obs = pd.DataFrame({"donor_id": ["x", "y"] * 90}, [f"cell {row}" for row in range(180)])
    path = tmp_path / re.search(r"results/[\w/.]+h5ad", example)[0]
    metadata = {"model": path.stem}
    write_embedding(path, values.astype(np.float32), labels, np.arange(180), metadata, obs)
    monkeypatch.chdir(tmp_path)
    exec(example, {})  # noqa: S102
    scores = dict(re.findall(r"^.*?(\w+) \{.*\} (\S+)$", capsys.readouterr().out, re.M))
    assert float(scores["adjusted_rand_index"]) > 0.3
    assert float(scores["mean_fold_accuracy"]) > 0.95
    assert {"silhouette_score", "entropy_per_cell", "batch_silhouette"} < scores.keys()
