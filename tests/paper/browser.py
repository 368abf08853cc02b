"""A headless Chromium, spoken to in its DevTools protocol over two pipes."""

import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60.0


def executable() -> str:
    """Chromium's path; empty where none is installed."""
    return next((path for path in map(shutil.which, NAMES) if path), "")


class Browser:
    """One page of a headless Chromium.

    Args:
        profile: an empty folder for the browser's own files.
    """

    def __init__(self, profile: Path) -> None:
        incoming, self._write = os.pipe()
        self._read, outgoing = os.pipe()
        # Chromium reads from 3 and writes to 4; far numbers, so that neither is taken already.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (incoming, outgoing)]
        flags = (
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={profile}"),
        )
        shell = f'exec "$0" "$@" 3<&{ends[0]} 4>&{ends[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, executable(), *flags, "about:blank"],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (*ends, incoming, outgoing):
            os.close(end)
        os.set_blocking(self._read, False)
        self._rest, self._number = b"", 0
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    _session = ""

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events on the way are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def open(self, path: Path, width: int, height: int) -> None:
        """Load a file into a window of a size, and wait until all of it is there."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2,
            mobile=width < 600,
        )
        self.events.clear()
        self.ask("Page.navigate", url=path.as_uri())
        while not self.happened("Page.loadEventFired"):
            self.events.append(self._next())

    def happened(self, method: str) -> list[dict[str, Any]]:
        """Parameters of the events of a kind since the page was opened."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def value(self, script: str) -> Any:
        """Value of a JavaScript expression on the page."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def _next(self) -> dict[str, Any]:
        """The next message."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            assert self._process.poll() is None, "Chromium ended"
            assert time.monotonic() < end, "Chromium does not answer"
            try:
                self._rest += os.read(self._read, 1 << 20)
            except BlockingIOError:
                time.sleep(0.01)
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))
