"""The documents: links resolve, files exist, and commands parse."""

import doctest
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from scsigmoid.cli import make_parser

ROOT = Path(__file__).parents[1]
OTHERS = ("results/README.md", "config/README.md", "workflow/profiles/README.md")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *map(ROOT.joinpath, OTHERS)])
# A link or a picture: its file, and its anchor.
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: its headings in lower case, with hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    for file, anchor in LINK.findall(prose(page)):
        if file.startswith("https://"):
            continue
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name}: {file}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {file}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    if page.name in ("CHANGELOG.md", "kernel-log.md"):  # about the past
        return
    for path in re.findall(r"`((?:src|workflow|tests|envs|docs)/[\w./-]+)`", prose(page)):
        assert any((folder / path).exists() for folder in (ROOT, ROOT / "tests")), path


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the arguments of every ``scsigmoid`` command in a page's blocks of code."""
    for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        lines = block.replace("\\\n", " ").splitlines()
        for number, line in enumerate(lines):
            match = re.match(r"\s*(?:\w+=\S+ )*(?:python -m )?scsigmoid (.*)", line)
            rest = lines[number + 1 :]
            command = match[1] if match else ""
            while command.count("'") % 2:  # a quoted argument over several lines
                command += rest.pop(0)
            if command:
                yield shlex.split(command, comments=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_parse(page: Path) -> None:
    for arguments in commands(page):
        make_parser().parse_args(arguments)


def test_the_examples_of_the_python_interface_run() -> None:
    results = doctest.testfile(str(ROOT / "docs/api.md"), module_relative=False)
    assert results.attempted > 0
    assert not results.failed
