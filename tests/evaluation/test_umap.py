"""UMAP: reproducible bytes, coordinates of umap-learn and invalid input."""

import os
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from configurations import write_configuration

from scsigmoid.config.schema import Umap
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import read_embeddings
from scsigmoid.evaluation.neighbors import principal_components
from scsigmoid.evaluation.umap import import_umap, umap_dataset
from scsigmoid.seeds import derive

SETTINGS = Umap(neighbors=15, minimum_distance=0.5, variance=0.95)


def test_two_processes_write_the_same_bytes(write_pair, tmp_path):
    paths = write_pair({"a": 30, "b": 30, "c": 30})
    folders = [{model: tmp_path / run / f"{model}.parquet" for model in paths} for run in "ab"]
    umap_dataset(paths, "toy", SETTINGS, 42, folders[0])
    configuration = write_configuration(tmp_path, evaluation={"umap": SETTINGS.model_dump()})
    command = [sys.executable, "-m", "scsigmoid", "umap", "--dataset", "toy"]
    command += ["--configuration", configuration]
    command += ["--embeddings", *paths.values(), "--output", *folders[1].values()]
    # Python's hash seed differs between processes.
    subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "1"}, check=True)
    for model in paths:
        first, second = (folder[model] for folder in folders)
        assert first.read_bytes() == second.read_bytes()
        table = pq.read_table(first)
        assert table.column_names == ["x", "y", "cell_type"]
        assert [str(kind) for kind in table.schema.types] == ["float", "float", "string"]


def test_settings_reach_the_library(write_pair, tmp_path):
    """The coordinates equal umap-learn's for the same components and seed."""
    paths = write_pair({"a": 30, "": 30}, hidden=8)
    outputs = {model: tmp_path / f"{model}.parquet" for model in paths}
    settings = Umap(neighbors=7, minimum_distance=0.25, variance=0.8)
    umap_dataset(paths, "toy", settings, 42, outputs)
    for model, embedding in read_embeddings(paths, "toy", labeled_only=False).items():
        components = principal_components(embedding.values, 0.8, "x")
        assert 1 < components.shape[1] < 8
        projection = import_umap().UMAP(
            n_neighbors=7, min_dist=0.25, random_state=derive(42, "umap") % 2**32, n_jobs=1
        )
        expected = projection.fit_transform(components)
        table = pq.read_table(outputs[model])
        points = np.column_stack([table["x"], table["y"]])
        np.testing.assert_array_equal(points, expected.astype(np.float32))
        assert table["cell_type"].to_pylist() == embedding.labels.tolist()


def test_batches_are_stored(write_pair, tmp_path):
    paths = write_pair({"a": 10, "b": 10})
    outputs = {model: tmp_path / f"{model}.parquet" for model in paths}
    umap_dataset(paths, "toy", SETTINGS, 42, outputs, "donor_id")
    donors = [f"donor {row % 3}" for row in range(20)]
    assert all(pq.read_table(path)["batch"].to_pylist() == donors for path in outputs.values())


def test_invalid_input(write_pair, tmp_path):
    paths = write_pair({"a": 8, "b": 7})
    outputs = {model: tmp_path / f"{model}.parquet" for model in paths}
    with pytest.raises(UserError, match=r"sigmoid_4k\.h5ad: 15 of 15 .* UMAP needs more than 15"):
        umap_dataset(paths, "toy", SETTINGS, 42, outputs)
    assert not list(tmp_path.glob("*.parquet"))
