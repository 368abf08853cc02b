"""Runs of a study: one for every combination of the values in a family."""

import itertools

import pytest

from scsigmoid.config.check import load
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.config.study import study_runs
from scsigmoid.errors import UserError

RATES = {"sigmoid": 1e-3, "softmax": 2e-3}
FAMILY = {
    "attention": ["sigmoid", "softmax"],
    "context": [128],
    "size": ["tiny", "tiny_32"],
    "seed": [1, 2],
    "training": {"steps": 7, "clipping": [None, 1.0], "learning_rate": RATES},
}


def configured(**changes: object) -> Config:
    study = {"frontier": {**FAMILY, **changes}}
    validation = {"validate_every": 5, "validation_cells": 16}
    return load(overrides={"study": study, "training": validation})


def test_a_family_has_every_combination_of_its_values():
    plan = Plan(configured())
    values = ((1, 2), ("none", "1"), ("tiny", "tiny_32"), ("sigmoid", "softmax"))
    names = [
        f"frontier_{arm}_size_{size}_clipping_{clipping}_seed_{seed}"
        for seed, clipping, size, arm in itertools.product(*values)
    ]
    assert list(plan.study_runs) == names
    name = "frontier_softmax_size_tiny_32_clipping_none_seed_2"
    config = plan.run_config(name)
    model = config.models[name]
    assert (model.attention, config.seed, model.context) == ("softmax", 2, 128)
    assert config.size_of(name).hidden == 32
    assert config.architecture.size == "tiny_32"
    expected = {"steps": 7, "clipping": None, "learning_rate": 2e-3, "global_batch": 16}
    assert expected.items() <= vars(config.training).items()  # the batch is from the preset


def test_values_may_be_lists_or_depend_on_attention():
    training = {"betas": [[0.9, 0.999], [0.9, 0.95]], "learning_rate": [RATES, 4e-3]}
    runs = study_runs(configured(size=["tiny"], seed=[1], training=training))
    assert list(runs) == [
        f"frontier_{arm}_learning_rate_{rate}_betas_{betas}_seed_1"
        for betas in ("0_9_0_999", "0_9_0_95")
        for rates in ({"sigmoid": "0_001", "softmax": "0_002"}, dict.fromkeys(RATES, "0_004"))
        for arm, rate in rates.items()
    ]
    run = runs["frontier_softmax_learning_rate_0_002_betas_0_9_0_95_seed_1"].training
    assert (run.learning_rate, run.betas) == (2e-3, [0.9, 0.95])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": ["tinys"]}, r"study.frontier.size: unknown size 'tinys'; did you mean"),
        ({"training": {"step": 7}}, r"study.frontier.training.step: unknown setting"),
        ({"training": {"clipping": {"sigmoid": None}}}, r"clipping: has no value for softmax"),
        ({"training": {"learning_rate": [1e-3, 1.0000001e-3]}}, r"frontier: two runs are called"),
        ({"training": {"learning_rate": []}}, r"learning_rate: expected at least one value"),
        ({"training": {"snapshots": [2, 5]}}, r"training.snapshots: Input should be a valid list"),
        ({"training": {"validation_cells": 0}}, r"validate_every and training.validation_cells"),
        ({"context": [9000]}, r"micro_batch_tokens"),
    ],
)
def test_a_wrong_family_is_named(changes: dict[str, object], message: str):
    with pytest.raises(UserError, match=message):
        configured(**changes)
