"""HTTP requests to allowed hosts, with bounded answers and retries."""

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urljoin

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.exceptions import InvalidHeader, LocationParseError
from urllib3.util import Retry, Url, parse_url

from scsigmoid import __version__
from scsigmoid.config.schema import Corpus, Download
from scsigmoid.corpus.metadata import one_line, parse_count
from scsigmoid.errors import UserError
from scsigmoid.progress import log, track

A = TypeVar("A")
T = TypeVar("T")

LOOPBACK = ("127.0.0.1", "::1", "localhost")
LONGEST_ADDRESS = 2000
REDIRECTS = 5
BLOCK = 1 << 16  # bytes read at a time
ADVANCE = 1 << 20  # new bytes after which the count of attempts starts again
SLOWEST_ADVANCE = 60.0  # seconds in which this many bytes of a file must arrive
LARGEST_ANSWER = 1 << 26  # bytes of a JSON document
SLOWEST_ANSWER = 600.0  # seconds for a JSON document
GONE = {404: "not found", 410: "withdrawn"}
BUSY = (403, 408, 425, 429)  # firewalls answer 403 to clients that they suspect
HEADERS = {"Accept-Encoding": "identity", "User-Agent": f"scsigmoid/{__version__}"}


class Transient(Exception):
    """A failure that may not happen again: worth another attempt.

    Attributes:
        pause: seconds that the server asks to wait, or ``None``.
    """

    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


class Absent(UserError):
    """The server does not have the file: 404 or 410.

    Attributes:
        reason: in words.
    """

    def __init__(self, url: str, status: int) -> None:
        self.reason = GONE[status]
        super().__init__(
            f"{one_line(url)}: {self.reason}; name its id in corpus.leave_out to continue without "
            "it, or make the manifest again"
        )


@dataclass(frozen=True)
class Web:
    """A client with the settings of the configuration."""

    hosts: Sequence[str]  # allowed hosts, also for redirects
    settings: Download  # attempts, time-outs and number of connections
    stopping: threading.Event = field(default_factory=threading.Event)  # set after a failure

    @classmethod
    def of(cls, corpus: Corpus) -> "Web":
        """Make a client with the settings of a corpus."""
        return cls(tuple(corpus.hosts), corpus.download)

    def json(self, url: str, patience: float = 1.0) -> Any:
        """Return the JSON document at an address, or raise :class:`Absent`.

        The server has ``patience`` times ``corpus.download.timeout`` seconds to begin.
        """
        timeout = patience * self.settings.timeout

        def ask() -> Any:
            text = bytearray()
            with self.opened("GET", url, timeout=timeout) as response:
                check_status(url, response)
                for block in self.body(response, LARGEST_ANSWER, SLOWEST_ANSWER):
                    text += block
                    if len(text) > LARGEST_ANSWER:
                        raise UserError(
                            f"{one_line(url)}: its answer is larger than {LARGEST_ANSWER >> 20} "
                            "MiB; check corpus.api"
                        )
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                raise Transient("its answer is not JSON") from None

        return self.retry(url, ask)

    def size(self, url: str) -> int | None:
        """Return the size of a file in bytes, or ``None`` if the server does not state it.

        Raises:
            Absent: if the server does not have the file.
        """

        def ask() -> int | None:
            with self.opened("HEAD", url) as response:
                if response.status_code in (405, 501):
                    return None
                check_status(url, response)
                return content_length(response)

        return self.retry(url, ask)

    @contextmanager
    def opened(
        self,
        method: str,
        url: str,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> Iterator[requests.Response]:
        """Open an address without reading the body, following redirects to allowed hosts.

        Proxies and certificates of the environment are used, except for loopback.  The session
        does not send requests itself, because it would read the bodies of redirects.
        """
        asked, headers = url, {**HEADERS, **(headers or {})}
        timeout = self.settings.timeout if timeout is None else timeout
        session = requests.Session()
        for _ in range(REDIRECTS):
            url = check_address(url, self.hosts)
            request = requests.Request(method, url, headers=headers).prepare()
            session.trust_env = url.startswith("https:")
            environment = session.merge_environment_settings(url, {}, True, None, None)
            try:
                with (
                    closing(HTTPAdapter()) as adapter,
                    adapter.send(request, timeout=timeout, **environment) as response,
                ):
                    if not response.is_redirect:
                        yield response
                        return
                    try:
                        url = urljoin(url, response.headers["Location"])
                    except ValueError:
                        url = response.headers["Location"]  # which the check names
            except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                raise Transient(f"the connection broke ({type(error).__name__})") from error
        raise UserError(
            f"{one_line(asked)}: redirected more than {REDIRECTS} times; correct the address"
        )

    def body(self, response: requests.Response, size: int, seconds: float) -> Iterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            Transient: if ``size`` bytes, or the rest of the body, take more than ``seconds``.
        """
        began, missing = time.monotonic(), size
        # read1 returns what has come, after the time-out of the connection at the latest
        while block := response.raw.read1(BLOCK, decode_content=False):
            self.check_stopped()
            if time.monotonic() > began + seconds:
                raise Transient(f"neither its end nor {size >> 20} MiB came within {seconds:g} s")
            yield block
            missing -= len(block)
            if missing <= 0:
                began, missing = time.monotonic(), size

    def retry(
        self, url: str, action: Callable[[], T], progress: Callable[[], int] = lambda: 0
    ) -> T:
        """Call ``action`` until it succeeds, with pauses that double.

        Args:
            url: address, for messages.
            action: raises :class:`Transient` if another attempt is worth it.
            progress: returns the number of bytes received so far.  An attempt with at least
                ``ADVANCE`` new bytes starts the count of attempts again.
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
                    f"{one_line(url)}: {failed} ({tries} attempts); check the network, or raise "
                    "corpus.download.timeout or corpus.download.attempts, and run again"
                ) from failed
            asked = failed.pause if failed.pause is not None else 2.0 ** (tries - 1)
            pause = min(asked, self.settings.longest_pause)
            log(f"{one_line(url)}: {failed}; again in {pause:g} s")
            self.stopping.wait(pause)
            self.check_stopped()

    def check_stopped(self) -> None:
        """Raise an error if another thread has failed."""
        if self.stopping.is_set():
            raise UserError("interrupted")

    def each(self, action: Callable[[A], T], items: Iterable[A], *, label: str) -> list[T]:
        """Call ``action`` for all items, several at a time, and return the results in order.

        The first failure ends the other calls.
        """
        items = list(items)
        with ThreadPoolExecutor(self.settings.connections) as pool:
            try:
                return list(track(pool.map(action, items), label=label, total=len(items)))
            except BaseException:
                self.stopping.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def check_address(url: str, hosts: Collection[str]) -> str:
    """Return an address in the form that the client requests, or raise an error.

    It is parsed by the client's own parser, so that both agree on the host.
    """
    parsed = Url()
    if len(url) <= LONGEST_ADDRESS and url.isprintable() and "\\" not in url:
        with suppress(LocationParseError):
            parsed = parse_url(url)
    if not parsed.host or parsed.auth is not None:
        raise UserError(f"{one_line(url)!r}: not a web address; correct it")
    host = parsed.host.strip("[]")
    if host not in hosts:
        raise UserError(
            f"{one_line(url)}: host {one_line(host)!r} is not allowed; add it to corpus.hosts "
            "if you trust it"
        )
    if parsed.scheme != "https" and not (parsed.scheme == "http" and host in LOOPBACK):
        raise UserError(f"{one_line(url)}: expected an https address")
    return parsed.url


def check_status(url: str, response: requests.Response) -> None:
    """Raise an error unless a response has content.

    Raises:
        Transient: if another attempt is worth it.
        Absent: if the server does not have the file.
        UserError: for other statuses.
    """
    status = response.status_code
    if status in (200, 206):
        return
    if status in BUSY or status >= 500:
        raise Transient(f"HTTP {status}", retry_after(response.headers.get("Retry-After", "")))
    if status in GONE:
        raise Absent(url, status)
    raise UserError(f"{one_line(url)}: HTTP {status}; correct the address")


def content_length(response: requests.Response) -> int | None:
    """Return the size of the body in bytes, or ``None`` if the server does not state it."""
    return parse_count(response.headers.get("Content-Length", ""))


def retry_after(text: str) -> float | None:
    """Return the seconds of a ``Retry-After`` header, which states seconds or a date."""
    try:
        return Retry().parse_retry_after(text)
    except (InvalidHeader, ValueError, TypeError, OverflowError):
        return None
