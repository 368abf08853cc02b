"""Settings of training that starts from a model file, and the checks of the file."""

from pathlib import Path
from typing import Any

import pytest
from small_models import CONTEXT, write_model

from scsigmoid.config.check import load
from scsigmoid.config.initial import PACKAGED, initial_checksum
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config
from scsigmoid.errors import UserError
from scsigmoid.files import sha256

WIDE = {"layers": 2, "hidden": 32, "heads": 2, "feed_forward": 32}


@pytest.fixture
def initial(tmp_path: Path) -> Path:
    return write_model(tmp_path, "sigmoid")


def loaded(initial: Path | str, **overrides: Any) -> Config:
    """Return the configuration of one model that starts from a file of :func:`write_model`."""
    names = load(overrides={"preset": "demo"}).models
    model = {"attention": "sigmoid", "context": CONTEXT, "training": {}}
    settings: dict[str, Any] = {
        "preset": "demo",
        "models": {**dict.fromkeys(names), "a": model},
        "sizes": {"toy": {"layers": 2, "hidden": 16, "heads": 2, "feed_forward": 32}},
        "architecture": {"size": "toy"},
        "training": {"initial": str(initial)},
        "evaluation": {"pair": ["a"]},
    }
    for section in settings.keys() & overrides.keys():
        settings[section] |= overrides.pop(section)
    # MMD needs two models.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scsigmoid.config.combinations.find_mmd_problems", lambda config: [])
        return load(overrides={**settings, **overrides})


def test_checksum_of_the_content(initial: Path) -> None:
    plan = Plan(loaded(initial))
    assert plan.initial == str(initial)
    assert plan.initial_checksum("a") == sha256(initial)
    # A file that is replaced at the same path has another checksum.
    initial.write_bytes(PACKAGED["blood"].read_bytes())
    assert initial_checksum(str(initial)) == initial_checksum("blood")
    assert Plan(loaded(initial, training={"initial": None})).initial is None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"sizes": {"toy": WIDE}}, r"sizes\.toy: is .*'hidden': 32.* has .*'hidden': 16"),
        ({"models": {"a": {"attention": "softmax", "context": CONTEXT}}}, r"models\.a\.attention"),
        ({"models": {"a": {"attention": "sigmoid", "context": 24}}}, r"context: is 24.* has 16"),
        ({"tokens": {"cls": False}}, r"tokens\.cls"),
        ({"tokens": {"vocabulary": {"genes": "list.txt"}}}, r"tokens\.vocabulary\.genes"),
    ],
)
def test_settings_that_differ_from_the_initial_model(
    overrides: dict[str, Any], message: str, initial: Path
) -> None:
    with pytest.raises(UserError, match=message):
        loaded(initial, **overrides)


def test_an_initial_model_of_one_model(initial: Path) -> None:
    """Context, size and learning rate would not be those of training that starts from a model."""
    model = {"attention": "sigmoid", "context": CONTEXT, "training": {"initial": str(initial)}}
    with pytest.raises(UserError, match=r"models\.a\.training\.initial: .*; set training\.initial"):
        loaded(initial, models={"a": model}, training={"initial": None})
    model["training"] = {"initial": None}
    assert Plan(loaded(initial, models={"a": model})).initial is None


@pytest.mark.parametrize(
    "content", [None, b"", b"\x08\0\0\0\0\0\0\0{}     ", b"PK\3\4 another file"]
)
def test_missing_damaged_or_foreign_files(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=rf"training\.initial: {path}: .*; give a model") as error:
        loaded(path)
    assert "\n" not in str(error.value)
