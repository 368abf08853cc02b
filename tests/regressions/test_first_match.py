"""Several matches where one is expected: an error, not the first match."""

import numpy as np
import pytest
from loopback import uuid

from scsigmoid.corpus.discover import Service, list_versions
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import read_embeddings


def test_a_version_with_two_h5ad_files(server, web):
    for dataset in (1, 2):
        server.add(dataset, b"1", published="2024-05-01")
    entry = server.answers[f"/datasets/{uuid(1)}/versions"][0]
    entry["assets"] = entry["assets"] * 2
    versions, left_out = list_versions(Service(server.api, web), "2024-06-11")
    assert [version.row.dataset_id for version in versions] == [uuid(2)]
    assert "2 h5ad files" in left_out[uuid(1)]


def test_embeddings_of_other_cells(write_arm):
    """The rows in the dataset differ, but not the cell types."""
    values = np.arange(8.0).reshape(4, 2)
    rows = {"sigmoid_4k": [0, 1, 2, 3], "softmax_4k": [0, 1, 2, 4]}
    paths = {model: write_arm(model, values, [*"aabb"], rows[model]) for model in rows}
    with pytest.raises(UserError, match=r"softmax_4k\.h5ad: has other cells"):
        read_embeddings(paths, "toy")
