"""The reference of all settings."""

import re
from pathlib import Path

from scsigmoid.config.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run: make configuration"


def test_every_setting_has_a_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \| .* ?\|$", reference(), re.MULTILINE)
    assert len(rows) > 100
    assert [name for name, meaning in rows if not meaning.strip()] == []
