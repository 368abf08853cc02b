"""The report page: whole, self-contained, escaped, the same bytes every time."""

import base64
import shutil
from html.parser import HTMLParser
from pathlib import Path

import jinja2
import pytest

from scsigmoid.config.plan import Plan
from scsigmoid.errors import UserError
from scsigmoid.paper.captions import caption, captions
from scsigmoid.paper.report import TITLES, content, make_report
from scsigmoid.paper.results import Results
from scsigmoid.paper.tables import make_table
from scsigmoid.paper.tables.reading import read_markdown

ROOT = Path(__file__).parents[2]
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Page(HTMLParser):
    """What a page loads and links to, and whether its tags are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster", "background"):
                self.loads.append(value or "")
            elif name == "href":
                (self.links if tag == "a" else self.loads).append(value or "")
            elif name == "id":
                self.ids.add(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture
def whole(finished: Results, tmp_path: Path) -> Results:
    """A copy of the finished results that a test may change."""
    shutil.copytree(finished.folder, tmp_path / "whole")
    return Results(tmp_path / "whole", finished.config)


def test_the_page(whole: Results) -> None:
    path = whole.folder / "report.html"
    make_report(whole, path)
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert not page.open
    # Nothing is loaded but pictures in the page itself.
    plan = Plan(whole.config)
    assert len(page.loads) == len(plan.figures)
    for source, name in zip(page.loads, plan.figures, strict=True):
        head, data = source.split(",", 1)
        assert head == "data:image/png;base64"
        assert base64.b64decode(data) == (whole.folder / f"figures/{name}.png").read_bytes()
    assert "@import" not in text
    assert "url(" not in text
    assert "script" not in page.tags
    assert "&lt;script&gt;" in text
    # Plain links: outward ones to the paper's code alone; the others resolve.
    outward = {link for link in page.links if "://" in link}
    assert outward == {"https://github.com/MSDLLCpapers/triton-sigmoid"}
    for link in set(page.links) - outward:
        if link.startswith("#"):
            assert link[1:] in page.ids
        else:
            assert (whole.folder / link).exists(), link
    words = " ".join(page.words)
    for part in (
        *("Simulated data", "not testable", "Preset", "Configuration"),
        *("What the abstract states", "MMD of each pair of cell types", "28 not testable"),
    ):
        assert part in words
    assert all(f"table-{name}" in page.ids for name in plan.tables)
    assert all(f"figure-{name}" in page.ids for name in plan.figures)
    make_report(Results(whole.folder, whole.config), path)
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("file", ["figures/loss.png", "tables/scib.md", "claims.csv"])
def test_missing_parts_are_named(whole: Results, file: str) -> None:
    (whole.folder / file).unlink()
    with pytest.raises(UserError, match=f"{file}: no such result file"):
        make_report(whole, whole.folder / "report.html")
    assert not (whole.folder / "report.html").exists()


@pytest.mark.parametrize("file", ["figures/loss.png", "tables/scib.md"])
def test_damaged_parts_are_named(whole: Results, file: str) -> None:
    good = (whole.folder / file).read_bytes()
    for place in range(3, len(good), len(good) // 9):
        damaged = good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]
        (whole.folder / file).write_bytes(damaged)
        with pytest.raises(UserError, match=rf"{file}: damaged"):
            make_report(Results(whole.folder, whole.config), whole.folder / "report.html")
    assert not (whole.folder / "report.html").exists()


def test_the_share_of_cells_that_is_cut(whole: Results) -> None:
    lengths, cells = whole.lengths
    words = content(whole)["facts"]["Cut"]
    for context in sorted({model.context for model in whole.config.models.values()}):
        places = context - whole.config.tokens.cls
        cut = sum(count for n, count in zip(lengths, cells, strict=True) if n > places)
        assert f"{100 * cut / sum(cells):.1f}% at {context}" in words


def test_markdown_tables_come_back(results: Results, tmp_path: Path) -> None:
    _, path, _ = make_table("mmd_heart_oft", results, tmp_path / "mmd_heart_oft")
    found = read_markdown(path)
    assert found.header[0] == "Cell type pair"
    assert found.align[:2] == ["left", "middle"]
    assert len(found.rows) == 28
    assert sum(bold for row in found.rows for _, bold in row) == 2 * 28
    assert any("Mast (7)" in note for note in found.notes)
    _, path, _ = make_table("scib", results, tmp_path / "scib")
    sections = [row for row in read_markdown(path).rows if len(row) == 1]
    assert len(sections) == len(results.config.datasets)


def test_every_table_and_figure_has_caption_and_title(results: Results) -> None:
    plan = Plan(results.config)
    for kind, names in (("figures", plan.figures), ("tables", plan.tables)):
        for name in names:
            assert len(caption(kind, name)) > 30
            assert name in TITLES or name.endswith("heart_oft")


@pytest.mark.parametrize(("file", "kind"), [("figure", "figures"), ("table", "tables")])
def test_snakemakes_captions_are_the_same(file: str, kind: str) -> None:
    template = jinja2.Template((ROOT / f"workflow/report/{file}.rst").read_text())
    for name, words in captions()[kind].items():
        full = f"{name}_heart_oft" if name in ("mmd", "umap") else name
        wildcards = type("Wildcards", (), {"name": full})
        shown = template.render(snakemake=type("Snakemake", (), {"wildcards": wildcards}))
        assert " ".join(shown.split()) == words
