"""Settings of the corpus that have a type but cannot be met."""

from pathlib import Path

import pytest

from scsigmoid.config.check import load
from scsigmoid.config.plan import Plan
from scsigmoid.errors import UserError

ROOT = Path(__file__).parents[2]


def loaded(**corpus: object):
    return load(ROOT / "config.yaml", ROOT / "workflow/presets", {"corpus": corpus})


@pytest.mark.parametrize(
    ("corpus", "words"),
    [
        ({"parts": 0}, "corpus.parts: expected at least 1, found 0"),
        ({"snapshot": "11 June"}, "corpus.snapshot: expected a date as 2024-06-11"),
        ({"census_version": "../x"}, "corpus.census_version: expected the name of a release"),
        ({"manifest": "none.csv"}, "corpus.manifest: none.csv: no such file; correct the path"),
        ({"organisms": []}, "corpus.organisms: empty"),
        ({"assays": []}, "corpus.assays: empty"),
        ({"maximum_gb": 0}, "corpus.maximum_gb: expected a positive number, found 0"),
        ({"maximum_cells": -1}, "corpus.maximum_cells: expected a positive number"),
        ({"download": {"connections": 0}}, "corpus.download.connections: expected a positive"),
        ({"download": {"timeout": -1}}, "corpus.download.timeout: expected a positive"),
        ({"download": {"longest_pause": -1}}, "corpus.download.longest_pause: expected 0 or more"),
        ({"download": {"keep_file": True}}, "corpus.download.keep_file: unknown setting; did you"),
    ],
)
def test_one_line_names_the_setting(corpus: dict[str, object], words: str) -> None:
    with pytest.raises(UserError) as caught:
        loaded(**corpus)
    assert str(caught.value).startswith(words)


def test_how_files_are_downloaded_changes_no_choice() -> None:
    """Else a longer time-out would make a new manifest, and everything after it."""
    quick = loaded(download={"timeout": 1, "folder": "elsewhere"}, hosts=["example.org"])
    assert Plan(quick).settings("selection") == Plan(loaded()).settings("selection")
    assert Plan(loaded(leave_out=["x"])).settings("selection") != Plan(quick).settings("selection")
