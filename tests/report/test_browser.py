"""The report page in a browser: complete, and readable on a phone."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scsigmoid.report import registry
from scsigmoid.report.page import make_report
from scsigmoid.results.folder import Results

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
# Shows the page in a frame as wide as a window. Records the width of the content and the smallest
# text, with closed and with open tables, then the pictures, the rows of each table, and the place
# and width of the first column in tables that are scrolled sideways.
FRAME = """<iframe src="report.html" style="border: 0; width: %dpx; height: 850px"></iframe>
<pre id="record"></pre>
<script>
function textSizes(page) {
    const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT), sizes = []
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement
        if (walker.currentNode.data.trim() && element.getClientRects().length)
            sizes.push(parseFloat(getComputedStyle(element).fontSize))
    }
    return sizes
}
onload = () => {
    const page = document.querySelector("iframe").contentDocument
    const measure = () => [page.documentElement.scrollWidth, Math.min(...textSizes(page))]
    const record = { folded: measure() }
    page.querySelectorAll("details").forEach(element => { element.open = true })
    record.unfolded = measure()
    record.pictures = [...page.images].map(image =>
        [image.complete && image.naturalWidth > 0, image.getBoundingClientRect().width])
    record.rows = Object.fromEntries([...page.querySelectorAll("[id^=table-]")].map(element =>
        [element.id.slice("table-".length), element.querySelectorAll("tbody tr").length]))
    record.first_columns = [...page.querySelectorAll(".scroll:has(.plain)")]
        .filter(frame => frame.scrollWidth > frame.clientWidth)
        .map(frame => {
            frame.scrollLeft = 1000
            const cell = frame.querySelector("tbody tr:not(.section) td").getBoundingClientRect()
            return [cell.left - frame.getBoundingClientRect().left, cell.width]
        })
    document.getElementById("record").textContent = JSON.stringify(record)
}
</script>"""


@pytest.fixture(scope="module")
def page(finished: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of made-up results."""
    folder = tmp_path_factory.mktemp("page")
    make_report(finished, folder / "report.html")
    return folder / "report.html"


def measure(page: Path, width: int) -> dict[str, Any]:
    """Return the record of the frame (:data:`FRAME`) for a width in pixels."""
    outer = page.with_name("frame.html")
    outer.write_text(FRAME % width)
    command = (
        *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-dev-shm-usage", f"--user-data-dir={page.parent / 'profile'}"),
        *("--allow-file-access-from-files", "--virtual-time-budget=20000", "--dump-dom"),
    )
    done = subprocess.run([*command, outer.as_uri()], capture_output=True, timeout=120, check=True)
    record = re.search('<pre id="record">(.+)</pre>', done.stdout.decode())
    assert record, done.stderr.decode()
    return dict(json.loads(html.unescape(record[1])))


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium (Debian: apt-get install chromium)")
@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "desk"])
def test_the_page_in_a_browser(page: Path, finished: Results, width: int) -> None:
    record = measure(page, width)
    # With closed and with open tables, the page is not wider than the window, and no text is small.
    for content_width, smallest_text in (record["folded"], record["unfolded"]):
        assert content_width <= width
        assert smallest_text >= 12
    # On a phone, wide pictures keep a width of 640 pixels and scroll in their frame.
    assert len(record["pictures"]) == len(registry.names("figure", finished.plan))
    for is_loaded, picture_width in record["pictures"]:
        assert is_loaded
        assert 200 < picture_width <= max(width, 640)
    # On a phone, tables scroll below their first column, which has the names of the rows.
    assert record["first_columns"] or width > 390
    for place, column_width in record["first_columns"]:
        assert place == 0
        assert column_width < width / 2
    for name in registry.names("table", finished.plan):
        lines = (finished.folder / f"tables/{name}.md").read_text().splitlines()
        assert record["rows"][name] == sum(line.startswith("|") for line in lines) - 2


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium (Debian: apt-get install chromium)")
def test_lines_between_rows_are_complete(page: Path) -> None:
    """The first column, which does not scroll, lacked the lines of many rows."""
    picture = page.with_name("page.png")
    command = (
        *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-dev-shm-usage", f"--user-data-dir={page.parent / 'profile'}"),
        *("--hide-scrollbars", f"--screenshot={picture}", "--window-size=390,15000"),
    )
    subprocess.run([*command, page.as_uri()], capture_output=True, timeout=120, check=True)
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("RGB"))
    first, second = (np.all(pixels[:, x] == (0xDF, 0xE3, 0xEA), axis=1) for x in (45, 190))
    assert second.sum() > 40
    np.testing.assert_array_equal(first[second], True)
