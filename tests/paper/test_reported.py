"""The paper's numbers, as printed."""

from scsigmoid.paper.reported import reported


def test_numbers_typed_from_the_paper() -> None:
    data = reported()
    assert data["validation_loss"]["heart_oft"]["sigmoid_2k"][0] == 3.019
    assert data["validation_loss"]["heart_oft"]["softmax_2k"][0] == 3.017
    assert data["validation_loss"]["lung_acr"]["sigmoid_4k"][0] == 2.362
    rows = data["mmd"]["heart_oft"]
    assert len(rows) == 28
    assert rows[0] == {
        "pair": "Mesenchymal vs Cardiac",
        "sigmoid": [0.467, 0.461, 0.472],
        "softmax": [0.379, 0.375, 0.385],
    }
    assert rows[-1]["softmax"] == [0.483, 0.474, 0.493]
    assert sum(row["cells"] for row in data["datasets"].values()) == 257_888
    assert all(low <= value <= high for row in rows for value, low, high in [row["sigmoid"]])
    assert data["tflops"]["triton_sigmoid"] == {"forward": 515.6, "backward": 373.5}
    assert [row["softmax"] for row in data["gpu_hours"][:2]] == [717, 934]
