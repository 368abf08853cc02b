"""Questions to web servers: allowed hosts only, bounded answers, patience with broken networks."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urljoin, urlparse

from scsigmoid import __version__
from scsigmoid.config.schema import Corpus, Download
from scsigmoid.corpus.foreign import one_line
from scsigmoid.errors import UserError
from scsigmoid.progress import log, track

A = TypeVar("A")
T = TypeVar("T")

LOOPBACK = ("127.0.0.1", "::1", "localhost")
REDIRECTS = 5
BLOCK = 1 << 16  # what a broken connection loses at most
ADVANCE = 1 << 20  # new bytes after which a try counts as the first again
LARGEST_ANSWER = 1 << 28  # bytes of a JSON document
SLOWEST_ANSWER = 600.0  # seconds for a JSON document
LONGEST_ADDRESS = 2000
GONE = {403: "may not be read", 404: "not found", 410: "withdrawn"}
BUSY = (408, 425, 429)
HEADERS = {"Accept-Encoding": "identity", "User-Agent": f"scsigmoid/{__version__}"}


class Transient(Exception):
    """Worth another attempt.

    Attributes:
        pause: seconds that the server asks to wait, or ``None``.
    """

    def __init__(self, reason: str, pause: float | None = None) -> None:
        """Note the reason."""
        super().__init__(reason)
        self.pause = pause


class Absent(UserError):
    """The server does not have it: 403, 404 or 410.

    Attributes:
        reason: in words.
    """

    def __init__(self, url: str, status: int) -> None:
        """Note address and status."""
        self.reason = GONE[status]
        super().__init__(
            f"{one_line(url)}: {self.reason}; name its id in corpus.leave_out to go on without "
            "it, or make the manifest again"
        )


@dataclass(frozen=True)
class Web:
    """How servers are asked.

    Attributes:
        hosts: hosts that may be asked, redirects included.
        settings: attempts, time-outs, and how much is asked at a time.
        stopping: set when the work is given up, so that its threads end.
    """

    hosts: Sequence[str]
    settings: Download
    stopping: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of(cls, corpus: Corpus) -> "Web":
        """As the configuration says."""
        return cls(tuple(corpus.hosts), corpus.download)

    def json(self, url: str) -> Any:
        """The JSON document at an address.

        Raises:
            Absent: if the server does not have it.
            UserError: if the host is not allowed or the document could not be had.
        """

        def ask() -> Any:
            with self.opened("GET", url) as response:
                check_status(url, response)
                return self.parsed(url, response)

        return self.retried(url, ask)

    def parsed(self, url: str, response: Any) -> Any:
        """The JSON of an answer that may be of any size and take any time."""
        blocks, size, begun = [], 0, time.monotonic()
        for block in response.iter_content(BLOCK):
            blocks.append(block)
            size += len(block)
            if size > LARGEST_ANSWER:
                raise UserError(
                    f"{one_line(url)}: its answer is larger than {LARGEST_ANSWER >> 20} MiB; "
                    "check corpus.api"
                )
            if time.monotonic() - begun > SLOWEST_ANSWER:
                raise Transient(f"its answer took more than {SLOWEST_ANSWER:g} s")
            self.go_on()
        try:
            return json.loads(b"".join(blocks))
        except (ValueError, RecursionError):
            raise Transient("its answer is not JSON") from None

    def size(self, url: str) -> int | None:
        """Bytes of the file at an address, or ``None`` where the server does not tell.

        Raises:
            Absent: if the server does not have it.
            UserError: if the host is not allowed or the server does not answer.
        """

        def ask() -> int | None:
            with self.opened("HEAD", url) as response:
                if response.status_code in (405, 501):
                    return None
                check_status(url, response)
                length = response.headers.get("Content-Length", "")
                return int(length) if length.isdigit() else None

        return self.retried(url, ask)

    @contextmanager
    def opened(self, method: str, url: str, headers: dict[str, str] | None = None) -> Iterator[Any]:
        """Open an address, following redirects to allowed hosts only."""
        import requests

        asked = url
        try:
            for _ in range(REDIRECTS):
                self.check_address(url)
                with requests.request(
                    method,
                    url,
                    headers={**HEADERS, **(headers or {})},
                    stream=True,
                    timeout=self.settings.timeout,
                    allow_redirects=False,
                ) as response:
                    if not response.is_redirect:
                        yield response
                        return
                    url = urljoin(url, response.headers["Location"])
        except requests.RequestException as error:
            raise Transient(type(error).__name__) from error
        raise UserError(
            f"{one_line(asked)}: redirected more than {REDIRECTS} times; correct the address"
        )

    def check_address(self, url: str) -> None:
        """Refuse hosts outside the configuration's; plain http is for loopback alone."""
        try:
            parsed = urlparse(url)
            host = parsed.hostname or ""
        except ValueError:
            host = ""
        if len(url) > LONGEST_ADDRESS or not url.isprintable() or not host:
            raise UserError(f"{one_line(url)!r}: not a web address; correct it")
        if host not in self.hosts:
            raise UserError(
                f"{one_line(url)}: host {one_line(host)!r} is not allowed; add it to corpus.hosts "
                "if you trust it"
            )
        if parsed.scheme != "https" and not (parsed.scheme == "http" and host in LOOPBACK):
            raise UserError(f"{one_line(url)}: expected an https address")

    def retried(
        self, url: str, action: Callable[[], T], progress: Callable[[], int] = lambda: 0
    ) -> T:
        """Do something until it works, with pauses that double.

        Args:
            url: for messages.
            action: what to do; raises :class:`Transient` where another try is worth it.
            progress: bytes had so far; a try that brings more than ever starts the count anew.

        Raises:
            UserError: after as many tries without progress as the settings allow.
        """
        most, tries = progress(), 0
        while True:
            try:
                return action()
            except Transient as error:
                failed = error
            if progress() >= most + ADVANCE:
                most, tries = progress(), 0
            tries += 1
            if tries >= self.settings.attempts:
                raise UserError(
                    f"{one_line(url)}: {failed} ({tries} attempts); check the network and run again"
                ) from failed
            asked = failed.pause if failed.pause is not None else 2.0 ** (tries - 1)
            pause = min(asked, self.settings.longest_pause)
            log(f"{one_line(url)}: {failed}; again in {pause:g} s")
            self.stopping.wait(pause)
            self.go_on()

    def go_on(self) -> None:
        """End this thread's work if all work is given up."""
        if self.stopping.is_set():
            raise UserError("interrupted")

    def each(self, action: Callable[[A], T], items: Iterable[A], *, label: str) -> list[T]:
        """Do something for every item, as many at a time as the settings allow.

        Returns:
            The results in the order of the items.

        Raises:
            Exception: the first of them, after the others were told to end.
        """
        items = list(items)
        with ThreadPoolExecutor(self.settings.connections) as pool:
            try:
                return list(track(pool.map(action, items), label=label, total=len(items)))
            except BaseException:
                self.stopping.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def check_status(url: str, response: Any) -> None:
    """Sort an answer into good, worth another attempt, and hopeless."""
    status = response.status_code
    if status in (200, 206):
        return
    if status in BUSY or status >= 500:
        raise Transient(f"HTTP {status}", asked_pause(str(response.headers.get("Retry-After", ""))))
    if status in GONE:
        raise Absent(url, status)
    raise UserError(f"{one_line(url)}: HTTP {status}; correct the address")


def asked_pause(text: str) -> float | None:
    """Seconds of a ``Retry-After`` header, which holds seconds or a date."""
    if text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
