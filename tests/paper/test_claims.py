"""Verdicts: requirements first, then rules; nothing is hard-coded."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper.conftest import (
    CLAIMS,
    others_changed,
    verdict,
    write_journal_rows,
    write_parquet,
)
from scipy import stats

from scsigmoid.benchmarks.rows import KernelRow, write_rows
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.files import remove_checksum
from scsigmoid.measurements import Interval, read_measurements, write_measurements
from scsigmoid.paper.claims import (
    COLUMNS,
    INCONCLUSIVE,
    NOT_REPRODUCED,
    NOT_TESTABLE,
    REPRODUCED,
    Judged,
    judge_all,
    make_claims,
    read_claims,
)
from scsigmoid.paper.claims.requirements import unmet
from scsigmoid.paper.claims.rules import compare
from scsigmoid.paper.claims.stability import divergence
from scsigmoid.paper.labels import ATTENTIONS
from scsigmoid.paper.reported import Claim
from scsigmoid.paper.results import Journal, Results
from scsigmoid.training.journal import read_journal


def test_demo_scale_tests_nothing(results: Results) -> None:
    for row in judge_all(results):
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


def test_met_requirements_give_verdicts(paper_results: Results) -> None:
    assert verdict(paper_results, "corpus_cells").verdict == REPRODUCED
    assert verdict(paper_results, "parameters_160m").verdict == REPRODUCED
    assert verdict(paper_results, "validation_loss_wins").verdict == REPRODUCED
    assert verdict(paper_results, "validation_difference_lung_acr_4k").verdict == REPRODUCED
    # The paper has softmax ahead here; the made-up losses have sigmoid.
    assert verdict(paper_results, "validation_difference_heart_oft_2k").verdict == NOT_REPRODUCED
    assert verdict(paper_results, "validation_loss_heart_oft_sigmoid_4k").verdict == NOT_REPRODUCED
    assert verdict(paper_results, "softmax_diverges").verdict == REPRODUCED
    assert verdict(paper_results, "sigmoid_stable").verdict == REPRODUCED
    assert verdict(paper_results, "tflops_triton_sigmoid_forward").verdict == NOT_REPRODUCED
    row = verdict(paper_results, "tflops_flash_sigmoid_forward")
    assert (row.verdict, "flash_sigmoid is not installed" in row.reason) == (NOT_TESTABLE, True)


def test_at_the_papers_conditions_every_claim_is_tested(paper_results: Results) -> None:
    """Once FlashSigmoid is timed too; the made-up softmax diverges, as some claims need."""
    rows = [
        replace(flash_attention_2, provider="flash_sigmoid", attention="sigmoid")
        for flash_attention_2 in paper_results.kernel
        if flash_attention_2.provider == "flash_attention_2" and not flash_attention_2.padding
    ]
    kept = [row for row in paper_results.kernel if row.provider != "flash_sigmoid"]
    write_rows(paper_results.folder / "benchmarks/kernel.csv", KernelRow, [*kept, *rows])
    found = judge_all(Results(paper_results.folder, paper_results.config))
    assert {row.id: row.reason for row in found if row.verdict == NOT_TESTABLE} == {}


def test_models_of_other_contexts_change_no_verdict(paper_results: Results) -> None:
    """A pair of one's own with a shorter context, of which nothing was measured."""
    models = paper_results.config.models
    more = {f"{arm}_1k": replace(models[f"{arm}_2k"], context=1024) for arm in ATTENTIONS}
    config = replace(paper_results.config, models=more | models)
    for name in ("validation_loss_wins", "longer_context_wins"):
        found = verdict(Results(paper_results.folder, config), name)
        assert found == verdict(paper_results, name)
        assert (found.our_value, "of 12 comparisons" in found.reason) == (12, True)


def test_an_interval_across_zero_is_inconclusive(paper_results: Results) -> None:
    random = np.random.default_rng(0)
    common = random.normal(3, 0.5, 160)
    for model in ("sigmoid_4k", "softmax_4k"):
        losses = common + random.normal(0, 0.1, 160)
        write_losses(paper_results, model, losses - losses.mean())
    row = verdict(paper_results, "validation_difference_lung_acr_4k")
    assert row.low < 0 < row.high
    assert row.verdict == INCONCLUSIVE
    wins = verdict(paper_results, "validation_loss_wins")
    assert (wins.low, wins.high) == (11, 12)
    assert wins.verdict == INCONCLUSIVE


@pytest.mark.parametrize(("cls", "longer"), [(False, [2049]), (True, [2048, 2049])])
def test_cells_are_cut_where_the_context_has_no_place(
    cls: bool, longer: list[int], paper_results: Results
) -> None:
    """A cell of 2,048 genes fits 2,048 tokens, unless ``<cls>`` takes one of them."""
    cells = {2047: 10, 2048: 20, 2049: 50}
    columns = {"length": list(cells), "cells": list(cells.values())}
    write_parquet(paper_results.folder / "tokens/lengths.parquet", columns)
    config = paper_results.config
    changed = replace(config, tokens=replace(config.tokens, cls=cls))
    found = Results(paper_results.folder, changed)
    assert verdict(found, "shortest_cell").our_value == 2047
    assert verdict(found, "longest_cell").our_value == 2049
    row = verdict(found, "truncated_at_2048")
    assert row.our_value == pytest.approx(100 * sum(cells[n] for n in longer) / 80)
    assert "tokens.cls" in Plan(changed).claim_settings()


def test_mmd_wins_count_certain_pairs(paper_results: Results) -> None:
    path = paper_results.folder / "metrics/mmd/heart_oft.csv"
    rows = read_measurements(path)
    pair = "mmd_mesenchymal_vs_cardiac"
    before = verdict(paper_results, pair)
    (other,) = (
        row.value
        for row in rows
        if (row.group, row.metric) == ("Mesenchymal vs Cardiac", "mmd_unbiased_ratio")
    )
    assert before.our_value == other != 1.3
    assert verdict(paper_results, "mmd_pairs").our_value == 28
    arms = {
        row.group: [one.value for one in rows if (one.group, one.metric) == (row.group, row.metric)]
        for row in rows
        if row.metric == "mmd_unbiased"
    }
    wins = sum(ours > theirs for ours, theirs in arms.values())
    assert verdict(paper_results, "mmd_wins").our_value == wins < 28
    raised = [
        replace(row, value=1.3, low=1.25, high=1.4)
        if row.metric in ("mmd_unbiased_ratio", "mmd_unbiased_mean_ratio_of_means")
        else row
        for row in rows
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
        (lambda f: facts(f, by=0.985), "mmd_wins", "Heart OFT is not the paper's cells"),
        (lambda f: facts(f, by=1.015), "mmd_wins", "Heart OFT is not the paper's cells"),
        (lambda f: facts(f, simulated=True), "mmd_wins", "Heart OFT is simulated"),
        (
            lambda f: rewrite(
                f, "metrics/mmd/heart_oft.csv", "Cardiac vs Neural", "Cardiac vs Glia"
            ),
            "mmd_wins",
            "27 of the paper's 28 pairs",
        ),
        (
            lambda f: rewrite(f, "benchmarks/throughput.csv", "160000000", "135000000"),
            "gpu_hours_sigmoid_160M_2048",
            "the size 160M has 135,000,000 parameters",
        ),
        (
            lambda f: rewrite(f, "training/sigmoid_8k/journal.csv", "NVIDIA H100 80GB HBM3", "cpu"),
            "sigmoid_stable",
            "training on a CPU is in float32",
        ),
        (lambda f: shorten(f), "sigmoid_stable", "trained for 40,000 steps, not 80,000"),
        (lambda f: fewer_cells(f), "sigmoid_stable", "the corpus has 4 real cells"),
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


# A setting of training or evaluation that is not the paper's, a claim that it keeps from a verdict,
# and why.
SETTINGS = [
    *(
        (f"training.{name}", value, "all_converge", f"{name} is")
        for name, value in (
            ("learning_rate", 3e-4), ("global_batch", 128), ("warmup_steps", 500),
            ("weight_decay", 0.0), ("betas", [0.9, 0.95]), ("epsilon", 1e-6), ("clipping", 2.0),
            ("mask_fraction", 0.3), ("gradient", "mean"),
        )
    ),
    ("corpus.source", "census", "corpus_cells", "the corpus is census, not the CELLxGENE snap"),
    ("corpus.source", "local", "cells_heart_oft", "the evaluation datasets are local, not CELL"),
    ("corpus.snapshot", "2025-01-01", "corpus_cells", "of 2025-01-01, the paper's of 2024-06-11"),
    *(
        (f"corpus.{name}", 5, "corpus_cells", f"the snapshot is trained on (corpus.{name})")
        for name in ("maximum_cells", "maximum_file_gb", "maximum_gb")
    ),
    ("architecture.size", "400M", "all_converge", "24 layers of width 1024"),
    ("architecture.variants", ["qk_norm"], "all_converge", "variants is qk_norm, the paper's none"),
    ("training.steps", 400_000, "all_converge", "trained for 400,000 steps, not 515,000"),
    ("models.softmax_8k.training", {}, "softmax_diverges", "clipping is 1.0, the paper's none"),
    ("models.softmax_8k.context", 4096, "softmax_diverges", "reads at most 4096 tokens"),
    ("models.softmax_8k.attention", "sigmoid", "softmax_diverges", "has sigmoid attention"),
    ("architecture.dropout", 0.1, "all_converge", "dropout is 0.1, the paper's 0.02"),
    ("device", "cpu", "all_converge", "float32, the paper's in bfloat16"),
    ("device", "cpu", "tflops_pytorch_forward", "not on a Hopper GPU"),
    ("evaluation.validation_loss.trials", 3, "validation_loss_wins", "trials is 3, the paper's 15"),
    ("evaluation.scib.neighbours", 30, "silhouette_wins", "neighbours is 30, the paper's 15"),
    ("evaluation.scib.metrics", ["leiden_nmi"], "silhouette_wins", "silhouette_label is not among"),
    ("evaluation.mmd.resamples", 100, "mmd_pairs", "resamples is 100, the paper's 1,000"),
    ("evaluation.mmd.datasets", ["lung_acr"], "mmd_pairs", "not among evaluation.mmd.datasets"),
    ("benchmarks.throughput.sizes", ["160M"], "faster_up_to", "400M, 600M, 1.4B not among"),
    ("benchmarks.throughput.contexts", [2048], "faster_up_to", "4,096 not among"),
    ("benchmarks.kernel.providers", ["hopper"], "tflops_pytorch_forward", "not among benchmarks"),
    ("benchmarks.kernel.lengths", [512], "tflops_pytorch_forward", "shapes of up to 512 tokens"),
    ("benchmarks.kernel.hidden", 1024, "tflops_pytorch_forward", "16,384 tokens and hidden size 1"),
    ("benchmarks.kernel.lengths", [16384], "padded_gain_forward", "512 not among benchmarks.kerne"),
    ("benchmarks.kernel.padding", [0.0], "padding_overhead_forward", "0.25 not among benchmarks"),
    ("benchmarks.kernel.head_dimensions", [64], "tflops_pytorch_forward", "128 not among benchmar"),
    ("benchmarks.throughput.cells_per_gpu", 16, "faster_up_to", "cells_per_gpu is 16, the paper's"),
    ("benchmarks.throughput.projected_cells", 1000, "hours_saved", "projected_cells is 1,000, the"),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "value", "name", "reason"), SETTINGS)
def test_each_setting_that_is_not_the_papers_is_named(
    paper_config: Config, setting: str, value: object, name: str, reason: str
) -> None:
    assert not unmet(paper_config, CLAIMS[name])
    (found,) = unmet(changed(paper_config, setting.split("."), value), CLAIMS[name])
    assert reason in found


def test_a_manifest_of_other_cells_is_named(paper_config: Config) -> None:
    words = "the corpus has 130,000,000 cells, the paper's 131,600,000"
    asked = {"truncated_at_2048": [words], "all_converge": [words], "tflops_pytorch_forward": []}
    for name, reasons in asked.items():
        assert unmet(paper_config, CLAIMS[name], cells=130_000_000) == reasons
        assert unmet(paper_config, CLAIMS[name], cells=131_000_000) == []


def changed(whole: Any, path: list[str], value: object) -> Any:
    """A copy of a configuration with another value at one place."""
    if not path:
        return value
    head, *rest = path
    if isinstance(whole, dict):
        return {**whole, head: changed(whole[head], rest, value)}
    return replace(whole, **{head: changed(getattr(whole, head), rest, value)})


def test_claims_depend_on_the_settings_that_they_name(paper_results: Results) -> None:
    """All others changed, every verdict stays."""
    config = paper_results.config
    other = others_changed(config, Plan(config).claim_settings())
    judged = [judge_all(Results(paper_results.folder, one)) for one in (config, other)]
    assert list(map(repr, judged[0])) == list(map(repr, judged[1]))


def machine(folder: Path, capability: str) -> None:
    text = json.dumps({"device": "NVIDIA A100", "capability": capability})
    (folder / "benchmarks/kernel.json").write_text(text)


def rewrite(folder: Path, file: str, old: str, new: str) -> None:
    path = folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    remove_checksum(path)


def facts(folder: Path, by: float = 1.0, **values: object) -> None:
    path = folder / "corpus/evaluation/heart_oft.json"
    found = json.loads(path.read_text()) | values
    path.write_text(json.dumps(found | {"cells": round(found["cells"] * by)}))


def shorten(folder: Path) -> None:
    path = folder / "training/sigmoid_8k/journal.csv"
    lines = [line for line in path.read_text().splitlines() if not line[0].isdigit()]
    others = ["1.0"] * lines[-1].count(",")
    path.write_text("\n".join([*lines, ",".join(["40000", *others])]) + "\n")


def fewer_cells(folder: Path) -> None:
    write_parquet(folder / "tokens/lengths.parquet", {"length": [100, 200], "cells": [3, 1]})


def write_losses(results: Results, model: str, losses: np.ndarray) -> None:
    """A model's validation losses of Lung ACR's cells."""
    path = results.folder / f"metrics/validation_loss/lung_acr/{model}.parquet"
    count = len(losses)
    write_parquet(path, {"cell": np.arange(count), "donor": [""] * count, "loss": losses})


def journal(loss: list[float], norm: list[float] | None = None) -> Journal:
    values = np.array(loss, dtype=float)
    norms = np.ones(len(values)) if norm is None else np.array(norm)
    return Journal({}, {"step": np.arange(len(values)), "loss": values, "gradient_norm": norms})


def test_divergence() -> None:
    falling = [10 - 0.1 * step for step in range(60)]
    assert divergence(journal(falling)) is None
    assert divergence(journal([*falling, *[10.0] * 20])) == pytest.approx(60, abs=1)
    assert divergence(journal([*falling, *[math.nan] * 20])) == pytest.approx(60, abs=1)
    # A spike that is recovered from is no divergence, nor is a last row alone; if it is finite.
    assert divergence(journal([*falling, *[10.0] * 10, *[4.0] * 20])) is None
    assert divergence(journal([*falling, 10.0])) is None
    assert divergence(journal([*falling, math.nan])) == 60
    # From 10 to 4: half of the fall is lost at 7.
    assert divergence(journal([*falling, *[4.0] * 20, *[6.9] * 20])) is None
    assert divergence(journal([*falling, *[4.0] * 20, *[7.1] * 20])) == 80


def test_an_explosion_at_the_very_end_is_a_divergence() -> None:
    """Six of 800 rows, less than 1 %: of the loss, or of the gradient before the loss shows it."""
    falling = list(np.linspace(10, 3, 794))
    assert divergence(journal([*falling, *[9.0] * 6])) == 794
    usual, end = [2.0] * 794, [3.0] * 6
    assert divergence(journal([*falling, *end], [*usual, *[2.1e3] * 6])) == 794
    # 100 times the usual norm is where it begins, and a spike is none.
    assert divergence(journal([*falling, *end], [*usual, *[199.0] * 6])) is None
    assert divergence(journal([*falling, *end], [*usual, *[201.0] * 6])) == 794
    assert divergence(journal([*falling, *end], [*usual, 2.1e3, *[2.0] * 5])) is None
    # The usual norm is that until the lowest loss, however long the rest is.
    assert divergence(journal([*falling, *[3.0] * 2000], [*usual, *[300.0] * 2000])) == 794


def test_converging_is_a_level_loss(paper_results: Results) -> None:
    """The change over the last quarter by scipy, as a share of the whole fall."""
    steps = np.arange(0, 515_001, 1000)
    noise = np.random.default_rng(5).normal(0, 0.01, len(steps))
    ones = np.ones(len(steps))

    def with_loss(slope: float) -> Judged:
        # A fall from 11 to 3, then a line that falls by `slope` nats over the last quarter.
        loss = 3 + 8 * np.exp(-steps / 20_000) + noise
        loss -= slope * np.clip(steps / 515_000 - 0.75, 0, 1) * 4
        columns = {"step": steps, "loss": loss, "gradient_norm": ones, "attention_score_max": ones}
        for name in ("sigmoid_2k", "softmax_2k", "sigmoid_4k", "softmax_4k"):
            write_journal_rows(paper_results.folder / f"training/{name}/journal.csv", columns)
        return verdict(paper_results, "all_converge")

    # 1 % of the fall of 8 nats are 0.08.
    level = with_loss(0.02)
    assert (level.low, level.verdict) == (4, REPRODUCED)
    edge = with_loss(0.08)
    assert (edge.low, edge.high, edge.verdict) == (0, 4, INCONCLUSIVE)
    falls = with_loss(0.3)
    assert (falls.high, falls.verdict) == (0, NOT_REPRODUCED)
    assert "Sigmoid 2K -3.7 %" in falls.reason
    # A run that logged too little to tell has not diverged.
    columns = {"step": [1, 515_000], "loss": [9.0, 3.0], "gradient_norm": [1.0, 1.0]}
    path = paper_results.folder / "training/sigmoid_2k/journal.csv"
    write_journal_rows(path, columns)
    short = verdict(paper_results, "all_converge")
    assert short.verdict == NOT_TESTABLE
    assert short.reason.startswith("Fewer than three logged steps")


def test_the_best_model_is_compared_with_one_rival_at_a_time(paper_results: Results) -> None:
    """A rival that is certainly worse, and one that cannot be told apart, on one dataset."""
    noise = np.random.default_rng(3).normal(0, 1, 160)
    best = np.full(160, 3.0)
    write_losses(paper_results, "sigmoid_4k", best)
    write_losses(paper_results, "softmax_4k", best + 0.5)
    write_losses(paper_results, "sigmoid_2k", best + 0.3 + 5 * (noise - noise.mean()))
    write_losses(paper_results, "softmax_2k", best + 0.01)
    # The wide rival is neither certain nor lost; the near one is certain.
    found = verdict(paper_results, "sigmoid_4k_best")
    assert (found.our_value, found.low, found.high) == (6, 5, 6)
    assert found.verdict == INCONCLUSIVE
    write_losses(paper_results, "softmax_2k", best - 0.01)
    found = verdict(paper_results, "sigmoid_4k_best")
    assert (found.our_value, found.low, found.high) == (5, 5, 5)
    assert found.verdict == NOT_REPRODUCED


def test_final_training_losses_are_compared_step_by_step(paper_results: Results) -> None:
    ours, theirs = (
        paper_results.journal(f"{name}_4k")["loss"][-6:] for name in ("sigmoid", "softmax")
    )
    found = verdict(paper_results, "similar_final_loss_4k")
    difference = ours - theirs
    low, high = stats.t.interval(0.95, 5, difference.mean(), stats.sem(difference))
    assert (found.our_value, found.low, found.high) == pytest.approx((difference.mean(), low, high))
    assert "6 logged steps" in found.reason
    path = paper_results.folder / "training/softmax_4k/journal.csv"
    columns, _ = read_journal(path)
    write_journal_rows(path, columns | {"loss": columns["loss"] + 1})
    assert verdict(paper_results, "similar_final_loss_4k").verdict == NOT_REPRODUCED


def test_a_loss_that_is_lost_at_the_end_is_infinitely_large(paper_results: Results) -> None:
    for name in ("softmax_4k", "sigmoid_2k"):
        path = paper_results.folder / f"training/{name}/journal.csv"
        columns, _ = read_journal(path)
        write_journal_rows(path, columns | {"loss": np.where(columns["step"] > 1e5, np.nan, 3.0)})
    assert verdict(paper_results, "similar_final_loss_4k").verdict == NOT_REPRODUCED
    # The next best is a model that still has a loss.
    lowest = verdict(paper_results, "lowest_training_loss")
    assert "next best is softmax_2k" in lowest.reason
    assert lowest.verdict == REPRODUCED


def test_the_lowest_training_loss_is_compared_with_the_next(paper_results: Results) -> None:
    last = {
        name: paper_results.journal(name)["loss"][-6:].mean()
        for name in CLAIMS["lowest_training_loss"].models
    }
    own = last.pop("sigmoid_4k")
    found = verdict(paper_results, "lowest_training_loss")
    assert found.our_value == pytest.approx(own - min(last.values()))
    assert found.verdict == REPRODUCED
    assert verdict(paper_results, "longer_context_wins").our_value == 12


def test_equal_scores_are_no_win(paper_results: Results) -> None:
    for name, dataset in (("silhouette_label", "heart_oft"), ("leiden_nmi", "lung_acr")):
        path = paper_results.folder / f"metrics/{name}/{dataset}.csv"
        rows = read_measurements(path)
        write_measurements(path, [replace(row, value=0.5) for row in rows])
    for claim in ("silhouette_wins", "leiden_nmi_wins"):
        assert verdict(paper_results, claim).our_value == 5
    assert verdict(paper_results, "bio_conservation_wins").our_value == 6


def write_stress(results: Results, model: str, loss: list[float], norm: list[float]) -> None:
    """A journal of 21 rows, smoothed over three; the scores are a tenth of the norms."""
    columns = {"step": np.arange(0, 80_001, 4000), "loss": loss, "gradient_norm": norm}
    columns["attention_score_max"] = np.array(norm) / 10
    write_journal_rows(results.folder / f"training/{model}/journal.csv", columns)


def test_the_stress_test_of_a_run_that_is_lost(paper_results: Results) -> None:
    loss = [10, 9, 8, 7, 6, 5, 4, 3.4, 3.2, 2, 3.1, 3, 3, 20, 21, 22, 23, 24, 25, 26, math.nan]
    norm = [*range(1, 13), 50, 8e4, 9e4, 7e5, 7e4, 7e4, 7e4, 7e4, 7e4]
    write_stress(paper_results, "softmax_8k", loss, norm)
    expected = {
        "softmax_diverges": 1,
        "softmax_divergence_step": 52_000,
        "softmax_first_loss": 10,
        "softmax_lowest_loss": 3,  # the dip to 2 is one row
        "softmax_half_way_loss": 3.1,
        "softmax_loss_after": 23.5,  # of eight rows, the last infinite
        "softmax_gradient_before": 7,
        "softmax_gradient_peak": 7e5,
        "softmax_gradient_orders": 5,
        "softmax_score_before": 0.7,
        "softmax_score_peak": 7e4,
    }
    found = {name: verdict(paper_results, name).our_value for name in expected}
    assert found == pytest.approx(expected)
    assert "at step 40,000" in verdict(paper_results, "softmax_half_way_loss").reason
    window = verdict(paper_results, "softmax_divergence_window")
    assert (window.paper_value, window.verdict) == ("40000 to 60000", REPRODUCED)


def test_the_stress_test_of_a_run_that_is_stable(paper_results: Results) -> None:
    loss = [10, 9, 8, 7, 6, 5, 5, 5, 5.3, 5.3, 5.3, 4, 4, 4, 4, 4, 4, 3.5, 3.5, 3.5, 3.2]
    norm = [80, 90, 100, 110, 120, *[60.0] * 11, 9, 10, 10, 11, 12]
    write_stress(paper_results, "sigmoid_8k", loss, norm)
    expected = {
        "sigmoid_stable": 1,
        "sigmoid_first_loss": 10,
        "sigmoid_final_loss": 3.5,
        "sigmoid_monotonic": 0.3,
        "sigmoid_gradient_trend": -1,
    }
    found = {name: verdict(paper_results, name).our_value for name in expected}
    assert found == pytest.approx(expected)
    row = verdict(paper_results, "sigmoid_gradient_range")
    assert (row.our_value, row.low, row.high) == (60, 9, 120)
    # Lost at the end, or not finite at the beginning: no rise can be told.
    for lost in ([*loss[:17], *[9.0] * 4], [*[math.inf] * 3, *loss[3:]]):
        write_stress(paper_results, "sigmoid_8k", lost, norm)
        assert verdict(paper_results, "sigmoid_monotonic").our_value == math.inf


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


# Each rule with its least and its largest allowed value, worked out by hand.
INF = math.inf
EDGES = [
    ("within", 100.0, {"tolerance": 0.1}, 90.0, 110.0),
    ("within", -4.0, {"tolerance": 0.25}, -5.0, -3.0),
    ("points", 43.0, {"tolerance": 2.0}, 41.0, 45.0),
    ("points", 0.0, {"tolerance": 0.05}, -0.05, 0.05),
    ("at_least", 100.0, {"tolerance": 0.25}, 75.0, INF),
    ("at_most", 10.0, {"tolerance": 0.5}, -INF, 15.0),
    ("count", 6.0, {}, 6.0, INF),
    ("below", 2.0, {}, -INF, math.nextafter(2.0, -INF)),
    ("above", 0.5, {}, math.nextafter(0.5, INF), INF),
    ("above_one", 1.2, {}, math.nextafter(1.0, INF), INF),
    ("same_sign", 0.002, {}, math.nextafter(0.0, INF), INF),
    ("same_sign", -0.01, {}, -INF, math.nextafter(0.0, -INF)),
    ("between", (1.0, 5.0), {}, 1.0, 5.0),
    ("order", 1e6, {}, 1e6 / math.sqrt(10), 1e6 * math.sqrt(10)),
    ("equal", 8.0, {}, 8.0 - 8e-9, 8.0 + 8e-9),
    ("equal", 0.0, {}, -1e-9, 1e-9),
]


@pytest.mark.parametrize(("rule", "value", "more", "least", "most"), EDGES)
def test_rules_at_both_sides_of_every_edge(
    rule: str, value: object, more: dict[str, object], least: float, most: float
) -> None:
    def met(*ours: float) -> bool | None:
        estimate = Interval(sum(ours) / len(ours), *(ours if ours[1:] else ()))
        found, words = compare(claim(rule, value, **more), estimate)
        assert words
        return found

    straddles = False if rule == "between" else None
    inside = least if math.isfinite(least) else most
    for edge, way in ((least, -1), (most, 1)):
        if not math.isfinite(edge):
            assert met(inside, way * 1e300) is True
            continue
        out = math.nextafter(edge, way * INF)
        far = edge + way * max(1.0, abs(edge))
        # The edge itself, and an interval that ends there or lies wholly beyond.
        assert met(edge) is met(edge, edge) is met(*sorted((inside, edge))) is True
        assert met(out) is met(*sorted((out, far))) is False
        # It touches the edge from outside, or crosses it.
        assert met(*sorted((edge, far))) is met(*sorted((inside, out))) is straddles
    if math.isfinite(least) and math.isfinite(most):
        width = max(1.0, most - least)
        assert met(least - width, most + width) is straddles


def test_an_interval_that_only_touches_decides_nothing() -> None:
    """1.0 [-0.1, 2.1] is not within 0.05 of 0, nor certain not to be."""
    found, words = compare(claim("points", 0.0, tolerance=0.05), Interval(1.0, -0.1, 2.1))
    assert (found, words) == (None, "1 [-0.1, 2.1] lies only partly within 0.05 of 0")


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
