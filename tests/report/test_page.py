"""The report page: complete, self-contained, escaped, reproducible."""

import base64
from html.parser import HTMLParser

import pytest
from made_up_results import with_other, write_all_parts

from scsigmoid.errors import UserError
from scsigmoid.paper.reported import reported
from scsigmoid.report import registry
from scsigmoid.report.page import breakable, content, make_report
from scsigmoid.results.folder import Results

VOID = {"meta", "img", "br", "wbr", "link", "input", "hr"}


class Page(HTMLParser):
    """A parsed page: tags, addresses of loaded files, links, ids, texts, and unclosed tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
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
                self.ids.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page(whole: Results) -> None:
    path = whole.folder / "report.html"
    make_report(whole, path)
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert not page.open
    # Only pictures in the page itself are loaded.
    plan = whole.plan
    figures = registry.names("figure", plan)
    assert len(page.loads) == len(figures)
    for source, name in zip(page.loads, figures, strict=True):
        head, data = source.split(",", 1)
        assert head == "data:image/png;base64"
        assert base64.b64decode(data) == (whole.folder / f"figures/{name}.png").read_bytes()
    assert "@import" not in text
    assert "url(" not in text
    assert "script" not in page.tags
    assert "&lt;script&gt;" in text
    # The only external links are the paper and its code. All other links resolve.
    external = {link for link in page.links if "://" in link}
    paper = reported()["source"]
    assert external == {paper["url"], paper["code"]}
    for link in set(page.links) - external:
        if link.startswith("#"):
            assert link[1:] in page.ids
        else:
            assert (whole.folder / link).exists(), link
    words = " ".join(page.words)
    for expected in (
        *("are simulated", "Preset", "Configuration"),
        *("corpus.source: embedded (paper: cellxgene)", "models.sigmoid_2k: missing"),
    ):
        assert expected in words
    assert words.count("cannot be compared with the paper") == 1
    assert all(f"table-{name}" in page.ids for name in registry.names("table", plan))
    assert all(f"figure-{name}" in page.ids for name in figures)
    make_report(Results(whole.folder, whole.config), path)
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("file", ["figures/loss.png", "tables/scib.md"])
def test_missing_parts_are_named(whole: Results, file: str) -> None:
    (whole.folder / file).unlink()
    with pytest.raises(UserError, match=f"{file}: no such result file"):
        make_report(whole, whole.folder / "report.html")
    assert not (whole.folder / "report.html").exists()


@pytest.mark.parametrize("name", ["scib", "comparison"])
def test_edited_tables_are_refused(whole: Results, name: str) -> None:
    """They ended in a traceback."""
    path = whole.folder / f"tables/{name}.csv"
    header, _, rows = path.read_text().partition("\n")
    for text in ("", header[:3], f"{header.upper()}\n{rows}", "a,b\n1,2\n"):
        path.write_text(text)
        with pytest.raises(UserError, match=f"{name}.csv: damaged") as error:
            make_report(Results(whole.folder, whole.config), whole.folder / "report.html")
        assert "\n" not in str(error.value)


def test_a_comparable_run_shows_the_comparison_first(paper_results: Results) -> None:
    write_all_parts(paper_results)
    values = content(paper_results)
    assert values["compared"].endswith(" reproduced, 0 not reproduced, 0 inconclusive.")
    first = values["sections"][1]["items"][0]
    assert (first["name"], first["is_collapsed"]) == ("comparison", False)


def test_own_cells_come_first(whole: Results) -> None:
    own = with_other(whole, {"corpus.source": "local"})
    make_report(own, own.folder / "report.html")
    page = Page((own.folder / "report.html").read_text(encoding="utf-8"))
    assert not page.open
    assert "Sigmoid attention for single-cell models: own cells" in page.words
    order = ["run", "cells", "figure-umap_simulated_heart", "figure-scib", "table-scib"]
    order += ["figure-loss", "made"]
    assert [name for name in page.ids if name in order] == order
    (section,) = content(own)["sections"]
    cells_item, *items = section["items"]
    planned = [*registry.names("figure", own.plan), *registry.names("table", own.plan)]
    assert sorted(item["name"] for item in items) == sorted(planned)
    scib = next(item for item in items if item["name"] == "scib" and "table" in item)
    assert "single run" in scib["table"].notes[-1]
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in cells_item["table"].cells}
    assert rows["Training"] == ["3,000", *["\N{EN DASH}"] * 4]
    assert rows["Simulated heart"] == ["160", "1,200", "4", "cell_type", "8"]


def test_training_from_scratch_instead_of_from_a_model_is_stated(whole: Results) -> None:
    reason = "none, training from scratch: a.h5ad: genes of another organism"
    changed = with_other(whole, {"choices": {"training.initial": reason}})
    assert content(changed)["conclusion"].endswith(f"training.initial: {reason}.")
    assert "from scratch" not in content(whole)["conclusion"]


def test_long_names_break_at_dots_and_underscores() -> None:
    """Numbers do not break, and markup of users is text."""
    expected = "tokens.<wbr>minimum_<wbr>genes: 0.25 &lt;b&gt;"
    assert breakable("tokens.minimum_genes: 0.25 <b>") == expected
