"""The report page in a real browser: whole, silent, offline, readable on a phone."""

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from paper.browser import Browser, executable

from scsigmoid.config.plan import Plan
from scsigmoid.paper import registry
from scsigmoid.paper.report import make_report
from scsigmoid.paper.results import Results

PHONE, DESK = (390, 844), (1280, 900)
UNFOLD = "document.querySelectorAll('details').forEach(part => { part.open = true })"
PICTURES = """[...document.images].map(image =>
    [image.complete && image.naturalWidth > 0, image.getBoundingClientRect().width])"""
LINKS = "[...document.links].map(link => link.href)"
ROWS = """Object.fromEntries([...document.querySelectorAll('[id^=table-]')].map(part =>
    [part.id.slice(6), part.querySelectorAll('tbody tr').length]))"""
# Sizes of all text that is shown, but for the drawing of the workflow, which scrolls.
SIZES = """(() => {
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = []
    while (walk.nextNode()) {
        const part = walk.currentNode.parentElement
        if (walk.currentNode.data.trim() && part.getClientRects().length)
            found.push(parseFloat(getComputedStyle(part).fontSize))
    }
    return found
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium."""
    if not executable():
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def page(finished: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of made-up results, with the files that it links to."""
    folder = tmp_path_factory.mktemp("page") / "results"
    shutil.copytree(finished.folder, folder)
    make_report(Results(folder, finished.config), folder / "report.html")
    return folder / "report.html"


@pytest.mark.parametrize("window", [PHONE, DESK], ids=["phone", "desk"])
def test_the_page_in_a_browser(
    browser: Browser, page: Path, finished: Results, window: tuple[int, int]
) -> None:
    browser.open(page, *window)
    assert browser.happened("Runtime.exceptionThrown") == []
    assert [entry["entry"]["text"] for entry in browser.happened("Log.entryAdded")] == []
    # One file is read and nothing else: pictures lie in the page.
    loaded = [event["request"]["url"] for event in browser.happened("Network.requestWillBeSent")]
    assert [url for url in loaded if not url.startswith("data:image/png")] == [page.as_uri()]
    assert browser.happened("Network.loadingFailed") == []

    # On a phone pictures of two columns keep a legible size and scroll in their frame.
    pictures = browser.value(PICTURES)
    assert len(pictures) == len(registry.names("figure", Plan(finished.config)))
    assert all(shown and 200 < width <= max(window[0], 640) for shown, width in pictures)

    # Folded or not, the page is no wider than the window.
    for _ in range(2):
        assert browser.value("document.documentElement.scrollWidth") <= window[0]
        assert min(browser.value(SIZES)) >= 12
        browser.value(UNFOLD)

    rows = browser.value(ROWS)
    for name in registry.names("table", Plan(finished.config)):
        lines = (finished.folder / f"tables/{name}.md").read_text().splitlines()
        assert rows[name] == sum(line.startswith("|") for line in lines) - 2
    with (finished.folder / "claims.csv").open(newline="") as handle:
        claims = len(list(csv.DictReader(handle)))
    every, main = ".claims:not(.main) tbody tr", ".claims.main tbody tr"
    assert browser.value(f"document.querySelectorAll('{every}').length") == claims
    assert 8 < browser.value(f"document.querySelectorAll('{main}').length") < 20

    own = page.as_uri()
    for address in set(browser.value(LINKS)):
        if address.startswith(f"{own}#"):
            assert browser.value(f"!!document.getElementById('{address.split('#')[1]}')"), address
        elif address.startswith("file:"):
            assert Path(unquote(urlparse(address).path)).exists(), address
        else:
            assert address.startswith("https://github.com/MSDLLCpapers/")
