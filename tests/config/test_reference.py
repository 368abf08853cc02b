"""The reference of all settings."""

import json
import re
import runpy
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs/configuration_page.py"))
json_schema, reference = SCRIPT["json_schema"], SCRIPT["reference"]
PAGE = ROOT / "docs" / "configuration.md"
SCHEMA = ROOT / "workflow" / "schemas" / "config.schema.json"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run: make configuration"


def test_every_setting_has_a_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \| .* ?\|$", reference(), re.MULTILINE)
    assert len(rows) > 100
    assert [name for name, meaning in rows if not meaning.strip()] == []


def test_the_schema_is_up_to_date() -> None:
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == json_schema(), "make configuration"


@pytest.mark.parametrize(
    "file",
    ["config.yaml", "config/config.yaml", ".test/config/config.yaml"]
    + [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("workflow/[ps]*/*.yaml"))],
)
def test_the_schema_describes_our_files(file: str) -> None:
    values = yaml.safe_load((ROOT / file).read_text(encoding="utf-8")) or {}
    assert [*Draft202012Validator(json_schema()).iter_errors(values)] == []


@pytest.mark.parametrize(
    "values", [{"training": {"stepz": 1}}, {"training": {"steps": -1}}, {"models": {"A B": {}}}]
)
def test_the_schema_refuses_what_the_check_refuses(values: dict[str, object]) -> None:
    assert [*Draft202012Validator(json_schema()).iter_errors(values)]
