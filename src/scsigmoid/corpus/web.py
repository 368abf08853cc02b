"""Requests to web servers: allowed hosts only, bounded answers, retries."""

import json
import socket
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
ADVANCE = 1 << 20  # new bytes after which a try counts as the first again
SLOWEST_ADVANCE = 60.0  # seconds for so many bytes of a file
LARGEST_ANSWER = 1 << 26  # bytes of a JSON document
SLOWEST_ANSWER = 600.0  # seconds for a JSON document
GONE = {404: "not found", 410: "withdrawn"}
BUSY = (403, 408, 425, 429)  # firewalls answer 403 to clients that they suspect
HEADERS = {"Accept-Encoding": "identity", "User-Agent": f"scsigmoid/{__version__}"}


class Transient(Exception):
    """Worth another attempt.

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
            f"{one_line(url)}: {self.reason}; name its id in corpus.leave_out to go on without "
            "it, or make the manifest again"
        )


class AllowedHosts(HTTPAdapter):
    """Connects to allowed hosts only, however an address was parsed before."""

    def __init__(self, hosts: Collection[str]) -> None:
        super().__init__()
        self.hosts = hosts

    def get_connection_with_tls_context(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(request, *args, **kwargs)
        check_host(pool.host.strip("[]"), self.hosts, request.url)
        pool.ConnectionCls = with_header_limit(pool.ConnectionCls)
        return pool

    def ask(self, method: str, url: str, headers: dict[str, str], timeout: float) -> Any:
        """Send one request; the body of the response is not read yet.

        A session would follow redirects, read their bodies and send passwords of ``.netrc``.
        Proxies and certificates of the environment are used, except for loopback.
        """
        request = requests.Request(method, url, headers=headers).prepare()
        session = requests.Session()
        session.trust_env = url.startswith("https:")
        environment = session.merge_environment_settings(url, {}, True, None, None)
        return self.send(request, timeout=timeout, **environment)


def with_header_limit(connection_class: Any) -> Any:
    """Return a connection class that waits for all headers of a response, not for each byte.

    The time-out of a socket starts again with every byte.
    """

    class Connection(connection_class):  # type: ignore[misc]
        def getresponse(self) -> Any:
            expired = threading.Event()
            connected = self.sock

            def end() -> None:
                expired.set()
                with suppress(OSError):
                    connected.shutdown(socket.SHUT_RDWR)  # the read returns

            timer = threading.Timer(self.timeout, end)
            timer.start()
            try:
                response = super().getresponse()
            finally:
                timer.cancel()
            if expired.is_set():  # the headers are cut
                raise TimeoutError
            return response

    return Connection


@dataclass(frozen=True)
class Web:
    """Makes requests."""

    hosts: Sequence[str]  # that are allowed, redirects included
    settings: Download  # attempts, time-outs and number of connections
    stopping: threading.Event = field(default_factory=threading.Event)  # set after a failure

    @classmethod
    def of(cls, corpus: Corpus) -> "Web":
        """As the configuration says."""
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
        """Bytes of the file at an address (or :class:`Absent`); ``None`` where it does not tell."""

        def ask() -> int | None:
            with self.opened("HEAD", url) as response:
                if response.status_code in (405, 501):
                    return None
                check_status(url, response)
                return stated_length(response)

        return self.retry(url, ask)

    @contextmanager
    def opened(
        self,
        method: str,
        url: str,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> Iterator[requests.Response]:
        """Open an address, following redirects to allowed hosts only; bodies are not read yet."""
        asked, headers = url, {**HEADERS, **(headers or {})}
        timeout = self.settings.timeout if timeout is None else timeout
        for _ in range(REDIRECTS):
            url = checked_address(url, self.hosts)
            try:
                with (
                    closing(AllowedHosts(self.hosts)) as adapter,
                    adapter.ask(method, url, headers, timeout) as response,
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
        """The body as it is sent, while every ``size`` bytes of it come within so many seconds."""
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
        """Do something until it works, with pauses that double.

        ``action`` raises :class:`Transient` where another try is worth it.  ``progress`` gives the
        bytes had so far; a try that brings more than ever starts the count of tries anew.
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
        """End this thread's work if all work is given up."""
        if self.stopping.is_set():
            raise UserError("interrupted")

    def each(self, action: Callable[[A], T], items: Iterable[A], *, label: str) -> list[T]:
        """Do something for every item, as many at a time as the settings allow, in their order.

        The first failure ends the others.
        """
        items = list(items)
        with ThreadPoolExecutor(self.settings.connections) as pool:
            try:
                return list(track(pool.map(action, items), label=label, total=len(items)))
            except BaseException:
                self.stopping.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def checked_address(url: str, hosts: Collection[str]) -> str:
    """An address as it will be asked, read by the parser of the client itself."""
    parsed = Url()
    if len(url) <= LONGEST_ADDRESS and url.isprintable() and "\\" not in url:
        with suppress(LocationParseError):
            parsed = parse_url(url)
    if not parsed.host or parsed.auth is not None:
        raise UserError(f"{one_line(url)!r}: not a web address; correct it")
    host = parsed.host.strip("[]")
    check_host(host, hosts, url)
    if parsed.scheme != "https" and not (parsed.scheme == "http" and host in LOOPBACK):
        raise UserError(f"{one_line(url)}: expected an https address")
    return parsed.url


def check_host(host: str, hosts: Collection[str], url: str) -> None:
    if host not in hosts:
        raise UserError(
            f"{one_line(url)}: host {one_line(host)!r} is not allowed; add it to corpus.hosts "
            "if you trust it"
        )


def check_status(url: str, response: requests.Response) -> None:
    """Sort a response into good, worth another attempt, and hopeless."""
    status = response.status_code
    if status in (200, 206):
        return
    if status in BUSY or status >= 500:
        raise Transient(f"HTTP {status}", retry_after(response.headers.get("Retry-After", "")))
    if status in GONE:
        raise Absent(url, status)
    raise UserError(f"{one_line(url)}: HTTP {status}; correct the address")


def stated_length(response: requests.Response) -> int | None:
    """Bytes of the body, where the server says so."""
    return parse_count(response.headers.get("Content-Length", ""))


def retry_after(text: str) -> float | None:
    """Seconds of a ``Retry-After`` header, which holds seconds or a date."""
    try:
        return Retry().parse_retry_after(text)
    except (InvalidHeader, ValueError, TypeError, OverflowError):
        return None
