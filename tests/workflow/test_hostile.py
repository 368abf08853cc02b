"""Hostile text in the configuration, from the shell to the tables."""

from collections.abc import Callable
from typing import Any

RESULTS = 'results/it\'s $(touch pwned) `touch pwned` "x"; touch pwned #'
TITLE = "../<script>alert('x')</script>\n\"; touch pwned; $(touch pwned) " + "y" * 10_000


def test_text_of_the_configuration_is_not_run(
    make_project: Callable[..., Any], tiny: dict[str, Any]
) -> None:
    tiny["results"] = RESULTS
    tiny["datasets"] |= {"pbmc68k": None, "simulated_heart": {"title": TITLE}}
    project = make_project(tiny)
    project.run(f"{RESULTS}/tables/evaluation_datasets.csv")
    assert list(project.folder.rglob("pwned")) == []
    table = (project.folder / RESULTS / "tables" / "evaluation_datasets.csv").read_text()
    assert "<script>" in table
    assert TITLE[:20] in table
