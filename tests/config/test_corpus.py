"""Settings of the corpus that have a type but cannot be met."""

import datetime

import pytest

from scsigmoid.config.check import load
from scsigmoid.config.plan import Plan
from scsigmoid.errors import UserError


def loaded(**corpus: object):
    return load(overrides={"corpus": corpus})


@pytest.mark.parametrize(
    ("corpus", "words"),
    [
        ({"snapshot": "11 June"}, "corpus.snapshot: should be a date such as 2024-06-11"),
        ({"manifest": "none.csv"}, "corpus.manifest: none.csv: no such file; correct the path"),
        (
            {"manifest": "config.yaml"},
            "corpus.manifest: a lock file needs",
        ),
        ({"local": [{"files": "x"}]}, "corpus.local: lists files, but corpus.source is 'embedded'"),
        ({"organisms": "Homo sapiens"}, "corpus.organisms: should be a valid list; found 'Homo"),
        ({"hosts": ["https://x.org"]}, "corpus.hosts.0: should be the name of a host without"),
        ({"embedded": {"training_files": 9999}}, "corpus.embedded.training_files: 9999 files of"),
        (
            {"embedded": {"donors": 10**9}},
            "corpus.embedded.donors: 1000000000 (per file) times 900",
        ),
        ({"embedded": {"training_cells": 10**9}}, "corpus.embedded.training_cells: 500000000 (per"),
        ({"source": "cellxgene", "api": "https://x.org"}, "corpus.api: 'https://x.org' is not at"),
        ({"source": "cellxgene", "leave_out": ["x"]}, "corpus.leave_out: 'x' is not a CELLxGENE"),
        ({"source": "cellxgene"}, "datasets.pbmc68k.id: missing; add the CELLxGENE id"),
    ],
)
def test_an_impossible_setting_is_named(corpus: dict[str, object], words: str) -> None:
    with pytest.raises(UserError) as caught:
        loaded(**corpus)
    assert str(caught.value).startswith(words)


def test_an_unquoted_date_is_a_date() -> None:
    """YAML gives it as one, while the setting is a text."""
    day = datetime.date(2024, 6, 11)
    assert loaded(snapshot=day).corpus.snapshot == "2024-06-11"


def test_download_settings_do_not_affect_the_manifest() -> None:
    """Else a longer time-out would make a new manifest, and everything after it."""
    quick = loaded(download={"timeout": 1, "folder": "elsewhere"}, hosts=["example.org"])
    rule = "manifest"
    assert Plan(quick).settings_of(rule) == Plan(loaded()).settings_of(rule)
    assert Plan(loaded(leave_out=["x"])).settings_of(rule) != Plan(quick).settings_of(rule)
