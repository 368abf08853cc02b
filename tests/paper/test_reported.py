"""The paper's numbers: complete, and as printed."""

import re

import pytest

from scsigmoid.paper.claims.requirements import REQUIREMENTS
from scsigmoid.paper.claims.rules import MEASURES, allowed
from scsigmoid.paper.labels import PLACES, place_label
from scsigmoid.paper.reported import expand, reported


def test_every_claim_is_whole() -> None:
    claims = reported().claims
    assert len({claim.id for claim in claims}) == len(claims) > 150
    for claim in claims:
        assert claim.measure in MEASURES
        least, most, _ = allowed(claim)
        assert least < most
        assert set(claim.requires) <= set(REQUIREMENTS)
        assert claim.location
        assert not re.search(r"[{}]", claim.statement + claim.id + claim.unit + claim.rule)
        assert set(claim.models) <= set(reported()["models"])
        assert set(claim.datasets) <= set(reported()["datasets"])
        assert isinstance(claim.value, tuple) == (claim.rule == "between")


def test_no_measure_or_requirement_is_unused() -> None:
    claims = reported().claims
    assert {claim.measure for claim in claims} == set(MEASURES)
    assert {name for claim in claims for name in claim.requires} == set(REQUIREMENTS)


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
    assert [row["softmax"] for row in data["gpu_hours"] if row["wall_clock"]] == [717, 934]


def test_claims_of_tables_are_expanded() -> None:
    claims = {claim.id: claim for claim in reported().claims}
    loss = claims["validation_loss_aging_pbmc_softmax_4k"]
    assert loss.value == 2.985
    assert loss.of == {"dataset": "aging_pbmc", "model": "softmax_4k"}
    assert "Aging PBMC" in loss.statement
    assert claims["validation_difference_heart_oft_2k"].value == pytest.approx(0.002)
    assert claims["mmd_cardiac_vs_immune"].value == pytest.approx(0.443 / 0.355, abs=1e-4)
    assert claims["tflops_triton_sigmoid_forward"].rule == "at_least"
    assert claims["tflops_pytorch_forward"].rule == "within"


def test_ends_of_ranges_and_headlines() -> None:
    claims = {claim.id: claim for claim in reported().claims}
    lowest = claims["speed_up_lowest_triton_sigmoid_backward_25_padding"]
    assert (lowest.value, lowest.of["end"]) == (2.93, "lowest")
    highest = claims["speed_up_highest_triton_sigmoid_forward_0_padding"]
    assert (highest.value, highest.statement.count("9.50 times")) == (9.5, 1)
    assert sum(name.startswith("speed_up_lowest_") for name in claims) == 4
    assert claims["mean_tflops_backward_padded"].value == 286.6
    assert "abstract" in claims["tflops_triton_sigmoid_forward"].location
    assert "abstract" not in claims["tflops_triton_sigmoid_backward"].location


def test_places_are_those_that_a_reader_finds() -> None:
    parts = {part for claim in reported().claims for part in claim.location.split(", ")}
    assert parts == set(PLACES)
    assert place_label("abstract, fig:scib") == "Abstract, Figure\N{NO-BREAK SPACE}5"


def test_families_gather_the_claims_of_one_entry() -> None:
    families: dict[str, set[str]] = {}
    for claim in reported().claims:
        if claim.family:
            families.setdefault(claim.family, set()).add(claim.measure)
    assert len(families) > 8
    assert all(len(measures) == 1 for measures in families.values())


def test_a_plain_entry_makes_one_claim() -> None:
    entry = {
        "id": "x", "group": "data", "statement": "y", "location": "z", "value": "1.0e+3",
        "unit": "", "measure": "m", "rule": "equal", "datasets": "all",
    }  # fmt: skip
    (claim,) = expand(entry, reported().data)
    assert claim.value == 1000.0
    assert len(claim.datasets) == 6
