"""The report page in a browser: complete, and readable on a phone."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scsigmoid.report import registry
from scsigmoid.report.page import make_report
from scsigmoid.results.folder import Results

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
# Shows the page in a frame of the width of a window, and records its width, its smallest text and
# its pictures, with closed and with open tables.
FRAME = """<iframe src="report.html" style="border: 0; width: %dpx; height: 850px"></iframe>
<pre id="found"></pre>
<script>
function sizes(page) {
    const walk = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT), found = []
    while (walk.nextNode()) {
        const part = walk.currentNode.parentElement
        if (walk.currentNode.data.trim() && part.getClientRects().length)
            found.push(parseFloat(getComputedStyle(part).fontSize))
    }
    return found
}
onload = () => {
    const page = document.querySelector("iframe").contentDocument
    const look = () => [page.documentElement.scrollWidth, Math.min(...sizes(page))]
    const found = { folded: look() }
    page.querySelectorAll("details").forEach(part => { part.open = true })
    found.unfolded = look()
    found.pictures = [...page.images].map(image =>
        [image.complete && image.naturalWidth > 0, image.getBoundingClientRect().width])
    found.rows = Object.fromEntries([...page.querySelectorAll("[id^=table-]")].map(part =>
        [part.id.slice(6), part.querySelectorAll("tbody tr").length]))
    document.getElementById("found").textContent = JSON.stringify(found)
}
</script>"""


@pytest.fixture(scope="module")
def page(finished: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of made-up results."""
    folder = tmp_path_factory.mktemp("page")
    make_report(finished, folder / "report.html")
    return folder / "report.html"


def seen(page: Path, width: int) -> dict[str, Any]:
    """Return the records of the frame (:data:`FRAME`) for a width in pixels."""
    outer = page.with_name("frame.html")
    outer.write_text(FRAME % width)
    command = (
        *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-dev-shm-usage", f"--user-data-dir={page.parent / 'profile'}"),
        *("--allow-file-access-from-files", "--virtual-time-budget=20000", "--dump-dom"),
    )
    done = subprocess.run([*command, outer.as_uri()], capture_output=True, timeout=120, check=True)
    found = re.search('<pre id="found">(.+)</pre>', done.stdout.decode())
    assert found, done.stderr.decode()
    return dict(json.loads(html.unescape(found[1])))


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium (Debian: apt-get install chromium)")
@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "desk"])
def test_the_page_in_a_browser(page: Path, finished: Results, width: int) -> None:
    found = seen(page, width)
    # Folded or not, the page is no wider than the window, and no text is small.
    for across, smallest in (found["folded"], found["unfolded"]):
        assert across <= width
        assert smallest >= 12
    # On a phone pictures of two columns keep a legible size and scroll in their frame.
    assert len(found["pictures"]) == len(registry.names("figure", finished.plan))
    assert all(shown and 200 < wide <= max(width, 640) for shown, wide in found["pictures"])
    for name in registry.names("table", finished.plan):
        lines = (finished.folder / f"tables/{name}.md").read_text().splitlines()
        assert found["rows"][name] == sum(line.startswith("|") for line in lines) - 2
