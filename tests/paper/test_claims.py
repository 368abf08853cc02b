"""Verdicts: requirements first, then rules; nothing is hard-coded."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper.conftest import write_journal_rows
from scipy import stats

from scsigmoid.errors import UserError
from scsigmoid.measurements import read_measurements, write_measurements
from scsigmoid.paper.claims import (
    COLUMNS,
    NOT_REPRODUCED,
    NOT_TESTABLE,
    REPRODUCED,
    Judged,
    judge,
    judge_all,
    make_claims,
    read_claims,
)
from scsigmoid.paper.claims.estimate import Estimate
from scsigmoid.paper.claims.rules import RULES
from scsigmoid.paper.claims.stability import divergence
from scsigmoid.paper.reported import Claim, reported
from scsigmoid.paper.results import Journal, Results
from scsigmoid.training.journal import read_journal

CLAIMS = {claim.id: claim for claim in reported().claims}


def verdict(results: Results, name: str) -> Judged:
    return judge(Results(results.folder, results.config), CLAIMS[name])


def test_demo_scale_tests_nothing_that_needs_scale(results: Results) -> None:
    for row in judge_all(results):
        if row.group in ("theory", "paper's arithmetic"):
            assert row.verdict != NOT_TESTABLE
        else:
            assert row.verdict == NOT_TESTABLE, row.id
            assert len(row.reason) > 10


def test_our_values_stand_beside_untestable_claims(results: Results) -> None:
    row = verdict(results, "validation_loss_heart_oft_sigmoid_4k")
    assert row.our_value == results.validation_loss("heart_oft", "sigmoid_4k").value
    assert row.paper_value == "2.615"
    for reason in (
        "simulated cells",
        "2 layers",
        "256 tokens",
        f"{results.config.training.steps} steps",
        "is simulated",
    ):
        assert reason in row.reason
    missing = verdict(results, "validation_loss_lung_acr_sigmoid_4k")
    assert math.isnan(missing.our_value)
    assert "Lung ACR is not evaluated" in missing.reason


def test_theory_is_computed() -> None:
    found = {
        name: judge(Results(".", None), claim)  # type: ignore[arg-type]
        for name, claim in CLAIMS.items()
        if claim.group == "theory"
    }
    refuted = {name for name, row in found.items() if row.verdict == NOT_REPRODUCED}
    assert refuted == {
        "derivative_independent", "softmax_lipschitz_growth", "softmax_concentration",
        "sigmoid_theorem",
    }  # fmt: skip
    assert found["derivative_bound"].our_value == 0.25
    assert found["softmax_lipschitz_bound"].our_value == pytest.approx(0.5)
    # One token with nearly all probability: p (1 - p) -> 0.
    assert found["softmax_concentration"].our_value < 1e-5
    # n scores of 0 with the bias -log n: n / (n + 1).
    assert found["bias_normalises"].our_value == pytest.approx(4096 / 4097)


def test_sigmoid_attention_jacobian_against_autograd() -> None:
    """The finite differences of the theorem's check, against torch in float64."""
    import torch

    from scsigmoid.paper.claims.theory import sigmoid_attention_norm

    x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def attention(y: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(y @ y.T / math.sqrt(3) - math.log(5)) @ y

    whole = torch.autograd.functional.jacobian(attention, x).reshape(15, 15)
    expected = float(torch.linalg.matrix_norm(whole, 2))
    assert sigmoid_attention_norm(x.numpy()) == pytest.approx(expected, rel=1e-7)


def test_the_papers_arithmetic() -> None:
    found = {
        name: judge(Results(".", None), claim)  # type: ignore[arg-type]
        for name, claim in CLAIMS.items()
        if claim.group == "paper's arithmetic"
    }
    assert found["own_mmd_improvement"].our_value == pytest.approx(24.979, abs=1e-3)
    assert "27.3 %" in found["own_mmd_improvement"].reason
    assert found["own_validation_wins"].our_value == 11
    assert "Heart OFT at 2K: 3.019 against 3.017" in found["own_validation_wins"].reason
    assert found["own_peak_gain_flash_sigmoid"].our_value == pytest.approx(17.26, abs=0.01)
    assert found["own_padding_overhead_forward"].our_value == pytest.approx(9.33, abs=0.01)
    assert found["own_hours_saved"].our_value == 645
    assert found["own_pass"].our_value == 515_000 * 256
    refuted = {name for name, row in found.items() if row.verdict == NOT_REPRODUCED}
    assert refuted == {
        "own_validation_wins", "own_headline_triton_sigmoid", "own_standard_slower",
        "own_gap_grows", "own_growing_savings", "own_flops_matmul",
    }  # fmt: skip


def test_met_requirements_give_verdicts(paper_results: Results) -> None:
    assert verdict(paper_results, "corpus_cells").verdict == REPRODUCED
    assert verdict(paper_results, "parameters_160m").verdict == REPRODUCED
    assert verdict(paper_results, "validation_loss_wins").verdict == REPRODUCED
    assert verdict(paper_results, "validation_difference_lung_acr_4k").verdict == REPRODUCED
    # The paper has softmax ahead here; the made-up losses have sigmoid.
    assert verdict(paper_results, "validation_difference_heart_oft_2k").verdict == NOT_REPRODUCED
    assert verdict(paper_results, "validation_loss_heart_oft_sigmoid_4k").verdict == NOT_REPRODUCED
    assert verdict(paper_results, "all_converge").verdict == REPRODUCED
    assert verdict(paper_results, "softmax_diverges").verdict == REPRODUCED
    assert verdict(paper_results, "sigmoid_stable").verdict == REPRODUCED
    assert verdict(paper_results, "tflops_triton_sigmoid_forward").verdict == NOT_REPRODUCED
    row = verdict(paper_results, "tflops_flash_sigmoid_forward")
    assert (row.verdict, "flash_sigmoid is not installed" in row.reason) == (NOT_TESTABLE, True)


def test_an_interval_across_zero_is_not_reproduced(paper_results: Results) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    common = random.normal(3, 0.5, 160)
    for model in ("sigmoid_4k", "softmax_4k"):
        losses = common + random.normal(0, 0.1, 160)
        path = paper_results.folder / f"metrics/validation_loss/lung_acr/{model}.parquet"
        pq.write_table(pa.table({"cell": np.arange(160), "loss": losses - losses.mean()}), path)
    row = verdict(paper_results, "validation_difference_lung_acr_4k")
    assert row.low < 0 < row.high
    assert row.verdict == NOT_REPRODUCED
    wins = verdict(paper_results, "validation_loss_wins")
    assert wins.low == 11
    assert wins.verdict == NOT_REPRODUCED


def test_mmd_wins_count_certain_pairs(paper_results: Results) -> None:
    path = paper_results.folder / "metrics/mmd/heart_oft.csv"
    rows = read_measurements(path)
    raised = [
        replace(row, value=1.3, low=1.2, high=1.4) if "ratio" in row.metric else row for row in rows
    ]
    write_measurements(path, raised)
    assert verdict(paper_results, "mmd_wins").low == 28
    assert verdict(paper_results, "mmd_wins").verdict == REPRODUCED
    improvement = verdict(paper_results, "mmd_improvement")
    assert improvement.our_value == pytest.approx(30)
    assert improvement.verdict == REPRODUCED


@pytest.mark.parametrize(
    ("change", "claim", "reason"),
    [
        (lambda f: machine(f, "8.0"), "tflops_pytorch_forward", "not on a Hopper GPU"),
        (lambda f: facts(f, cells=29_000), "mmd_wins", "Heart OFT is not the paper's cells"),
        (lambda f: facts(f, simulated=True), "mmd_wins", "Heart OFT is simulated"),
        (lambda f: shorten(f), "sigmoid_stable", "trained for 40,000 steps, not 80,000"),
        (lambda f: fewer_cells(f), "sigmoid_stable", "the corpus has 4 cells"),
    ],
)
def test_each_requirement_is_read_from_files(
    paper_results: Results, change: Callable[[Path], None], claim: str, reason: str
) -> None:
    before = verdict(paper_results, claim)
    assert reason.lower() not in before.reason.lower()
    change(paper_results.folder)
    after = verdict(paper_results, claim)
    assert after.verdict == NOT_TESTABLE
    assert reason.lower() in after.reason.lower()


def test_requirements_of_the_configuration(paper_results: Results) -> None:
    config = paper_results.config
    small = replace(config, architecture=replace(config.architecture, size="400M"))
    row = judge(Results(paper_results.folder, small), CLAIMS["mmd_wins"])
    assert "24 layers of width 1024" in row.reason
    corpus = replace(config, corpus=replace(config.corpus, maximum_cells=5))
    row = judge(Results(paper_results.folder, corpus), CLAIMS["mmd_wins"])
    assert "a part of the snapshot" in row.reason
    clipped = {**config.models, "softmax_8k": replace(config.models["softmax_8k"], training={})}
    row = judge(
        Results(paper_results.folder, replace(config, models=clipped)), CLAIMS["softmax_diverges"]
    )
    assert "Softmax 8K was trained with gradient clipping" in row.reason


def machine(folder: Path, capability: str) -> None:
    text = json.dumps({"device": "NVIDIA A100", "capability": capability})
    (folder / "benchmarks/kernel.json").write_text(text)


def facts(folder: Path, **values: object) -> None:
    path = folder / "corpus/evaluation/heart_oft.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def shorten(folder: Path) -> None:
    path = folder / "training/sigmoid_8k/journal.csv"
    lines = [line for line in path.read_text().splitlines() if not line[0].isdigit()]
    others = ["1.0"] * lines[-1].count(",")
    path.write_text("\n".join([*lines, ",".join(["40000", *others])]) + "\n")


def fewer_cells(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"length": [100, 200], "cells": [3, 1]})
    pq.write_table(table, folder / "tokens/lengths.parquet")


def journal(loss: list[float]) -> Journal:
    values = np.array(loss, dtype=float)
    return Journal({}, {"step": np.arange(len(values)), "loss": values})


def test_divergence() -> None:
    falling = [10 - 0.1 * step for step in range(60)]
    assert divergence(journal(falling)) is None
    assert divergence(journal([*falling, *[10.0] * 20])) == pytest.approx(60, abs=1)
    assert divergence(journal([*falling, *[math.nan] * 20])) == pytest.approx(60, abs=1)
    # A spike that is recovered from is no divergence.
    assert divergence(journal([*falling, *[10.0] * 10, *[4.0] * 20])) is None


def test_final_training_losses_are_compared_step_by_step(paper_results: Results) -> None:
    ours, theirs = (
        paper_results.journal(f"{name}_4k")["loss"][-6:] for name in ("sigmoid", "softmax")
    )
    found = verdict(paper_results, "similar_final_loss_4k")
    low, high = stats.norm.interval(0.95, (ours - theirs).mean(), stats.sem(ours - theirs))
    assert (found.our_value, found.low, found.high) == pytest.approx(
        ((ours - theirs).mean(), low, high)
    )
    assert "6 logged steps" in found.reason
    path = paper_results.folder / "training/softmax_4k/journal.csv"
    columns, _ = read_journal(path)
    write_journal_rows(path, columns | {"loss": columns["loss"] + 1})
    assert verdict(paper_results, "similar_final_loss_4k").verdict == NOT_REPRODUCED


def test_the_stress_tests_middle_and_window(paper_results: Results) -> None:
    """Softmax's made-up loss is 4.7 half way, and lost from two thirds of 80,000 steps."""
    half = verdict(paper_results, "softmax_half_way_loss")
    assert half.our_value == pytest.approx(4.5 + 2.5 * math.exp(-2.5) + 0.2, abs=0.06)
    assert "at step 39,322" in half.reason
    window = verdict(paper_results, "softmax_divergence_window")
    assert window.our_value == pytest.approx(0.66 * 80_000, rel=0.03)
    assert (window.paper_value, window.verdict) == ("40000 to 60000", REPRODUCED)


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_divergence_from_the_first_rows(lost: float) -> None:
    falling = [10 - 0.1 * step for step in range(60)]
    assert divergence(journal([lost] * 60)) == 0
    assert divergence(journal([lost])) == 0
    # Finite at last: recovered, or lost again.
    assert divergence(journal([*[lost] * 10, *falling])) is None
    assert divergence(journal([*[lost] * 10, *falling, *[lost] * 20])) == pytest.approx(70, abs=1)


@pytest.mark.filterwarnings("error")
def test_a_run_that_is_never_finite_gets_verdicts(paper_results: Results) -> None:
    for model in ("sigmoid_8k", "softmax_8k"):
        path = paper_results.folder / f"training/{model}/journal.csv"
        steps = np.arange(0, 80_001, 1000)
        nan = np.full(len(steps), math.nan)
        columns = {"step": steps, "loss": nan, "gradient_norm": nan, "attention_score_max": nan}
        write_journal_rows(path, columns)
    rows = {row.id: row for row in judge_all(paper_results) if row.group == "stability"}
    assert rows["softmax_diverges"].verdict == REPRODUCED
    assert rows["sigmoid_stable"].verdict == NOT_REPRODUCED
    assert rows["sigmoid_monotonic"].verdict == NOT_REPRODUCED
    assert rows["softmax_gradient_orders"].verdict == NOT_TESTABLE
    assert "from its first row" in rows["softmax_gradient_orders"].reason


def claim(rule: str, value: object, **more: object) -> Claim:
    return Claim(
        id="x", group="data", statement="", location="x", unit="", measure="x", rule=rule,
        value=value, **more,
    )  # type: ignore[arg-type]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "value", "more", "ours", "met"),
    [
        ("within", 100.0, {"tolerance": 0.1}, Estimate(value=109.0), True),
        ("within", 100.0, {"tolerance": 0.1}, Estimate(value=111.0), False),
        ("within", 100.0, {"tolerance": 0.1}, Estimate(value=115.0, low=109.0, high=121.0), True),
        ("points", 43.0, {"tolerance": 2.0}, Estimate(value=45.1), False),
        ("at_least", 100.0, {"tolerance": 0.2}, Estimate(value=80.0), True),
        ("at_least", 100.0, {}, Estimate(value=99.0), False),
        ("at_least", 10.0, {}, Estimate(value=12.0, low=-1.0, high=25.0), False),
        ("at_most", 10.0, {"tolerance": 0.1}, Estimate(value=11.0), True),
        ("at_most", 10.0, {}, Estimate(value=math.inf), False),
        ("count", 6.0, {}, Estimate(value=6, low=5, high=6), False),
        ("count", 4.0, {}, Estimate(value=6, low=5, high=6), True),
        ("below", 0.0, {}, Estimate(value=-1.0, low=-2.0, high=0.5), False),
        ("below", 0.0, {}, Estimate(value=-1.0, low=-2.0, high=-0.5), True),
        ("above", 0.5, {}, Estimate(value=0.7, low=0.4, high=0.7), False),
        ("above", 0.5, {}, Estimate(value=0.7, low=0.6, high=0.7), True),
        ("above_one", 1.2, {}, Estimate(value=1.1, low=1.01, high=1.2), True),
        ("above_one", 1.2, {}, Estimate(value=1.1, low=0.99, high=1.2), False),
        ("same_sign", -0.01, {}, Estimate(value=-1.0, low=-2.0, high=-0.1), True),
        ("same_sign", 0.002, {}, Estimate(value=-1.0, low=-2.0, high=-0.1), False),
        ("between", (1.0, 5.0), {}, Estimate(value=2.0, low=1.0, high=5.0), True),
        ("between", (1.0, 5.0), {}, Estimate(value=2.0, low=1.0, high=5.1), False),
        ("order", 1e6, {}, Estimate(value=2e6), True),
        ("order", 1e6, {}, Estimate(value=2e7), False),
        ("equal", 1.0, {}, Estimate(value=1.0 + 1e-12), True),
        ("equal", 0.0, {}, Estimate(value=1.0), False),
        ("rounds", 25.0, {"decimals": 1}, Estimate(value=24.979), True),
        ("rounds", 2e8, {"decimals": -8}, Estimate(value=2.3e8), True),
        ("rounds", 515.0, {"decimals": 0}, Estimate(value=515.6), False),
    ],
)
def test_rules(
    rule: str, value: object, more: dict[str, object], ours: Estimate, met: bool
) -> None:
    found, words = RULES[rule](claim(rule, value, **more), ours)
    assert found is met
    assert words


def test_file_round_trip(results: Results, tmp_path: Path) -> None:
    path = tmp_path / "claims.csv"
    make_claims(results, path)
    first = path.read_bytes()
    make_claims(Results(results.folder, results.config), path)
    assert path.read_bytes() == first
    rows = read_claims(path)
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == len(CLAIMS)
    of = {row["id"]: row for row in rows}
    difference = of["validation_difference_heart_oft_4k"]
    assert float(difference["low"]) < float(difference["our_value"]) < float(difference["high"])
    assert of["sigmoid_score_range"]["paper_value"] == "1 to 5"
    with pytest.raises(UserError, match=r"none\.csv: no such result file"):
        read_claims(tmp_path / "none.csv")
    path.write_text("a,b\n")
    with pytest.raises(UserError, match=r"claims\.csv: damaged"):
        read_claims(path)
    foreign = tmp_path / "foreign.csv"
    foreign.write_text("a,b\n")
    with pytest.raises(UserError, match="not a table of claims"):
        read_claims(foreign)


def test_claims_read_nothing_but_their_declared_inputs(results: Results, tmp_path: Path) -> None:
    import shutil

    from scsigmoid.config.plan import Plan

    for file in Plan(results.config).claim_inputs():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(results.folder / file, tmp_path / file)
    make_claims(Results(tmp_path, results.config), tmp_path / "claims.csv")
