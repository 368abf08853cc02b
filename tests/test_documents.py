"""The documents: their links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "results/README.md"],
)
# A link or a picture, not in a block of code: the file and what stands behind #.
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


def text(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """What can stand behind #: headings in lower case, hyphens for spaces."""
    found = re.findall(r"^#+ (.+)$", text(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for file, anchor in LINK.findall(text(page)):
        if file.startswith("https://"):
            continue
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name}: {file}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {file}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_of_the_project_that_are_named_exist(page: Path) -> None:
    if page.name in ("CHANGELOG.md", "kernel-log.md"):  # they tell of the past
        return
    for path in re.findall(r"`((?:src|workflow|tests|envs|docs)/[\w./-]+)`", text(page)):
        assert any((folder / path).exists() for folder in (ROOT, ROOT / "tests")), path
