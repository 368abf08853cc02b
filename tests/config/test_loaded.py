"""Settings that a person gives one stage: what is missing or misspelt is named."""

from pathlib import Path

import pytest

from scsigmoid.config.check import built, from_json, from_yaml
from scsigmoid.config.schema import Embeddings
from scsigmoid.errors import UserError


def test_settings_are_plain_values() -> None:
    given = from_json("--settings", '{"a": {"b": [1, {"c": null}]}, "d": "x"}')
    assert given == {"a": {"b": [1, {"c": None}]}, "d": "x"}
    assert built(Embeddings, {"pooling": "cls", "batch_tokens": 8}) == Embeddings(
        pooling="cls", batch_tokens=8
    )


def test_what_is_missing_is_named_at_any_depth(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--settings: the setting 'seed' is missing"):
        from_json("--settings", "{}")["seed"]
    path = tmp_path / "config.yaml"
    path.write_text("benchmarks: {kernel: {}}\n")
    with pytest.raises(UserError, match=r"config\.yaml: the setting 'throughput' is missing"):
        from_yaml(path)["benchmarks"]["throughput"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|expected a JSON object"):
        from_json("--settings", text)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pooling": "cls"}, "Embeddings: missing 1 required .* 'batch_tokens'; correct"),
        ({"poolin": "cls"}, "Embeddings: got an unexpected keyword argument 'poolin'"),
    ],
)
def test_other_settings_than_a_stage_takes_are_named(values: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        built(Embeddings, values)
