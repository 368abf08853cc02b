"""Questions to web servers: allowed hosts only, bounded answers, patience with broken networks."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urljoin

from scsigmoid import __version__
from scsigmoid.config.schema import Corpus, Download
from scsigmoid.corpus.sanitise import one_line, parse_count
from scsigmoid.errors import UserError
from scsigmoid.progress import log, track

A = TypeVar("A")
T = TypeVar("T")

REDIRECTS = 5
BLOCK = 1 << 16  # what a broken connection loses at most
ADVANCE = 1 << 20  # new bytes after which a try counts as the first again
SLOWEST_ADVANCE = 60.0  # seconds for so many bytes of a file
LARGEST_ANSWER = 1 << 26  # bytes of a JSON document
MOST_VALUES = 4_000_000  # in a JSON document; Python takes some 100 bytes for each
SLOWEST_ANSWER = 600.0  # seconds for a JSON document
GONE = {403: "may not be read", 404: "not found", 410: "withdrawn"}
BUSY = (408, 425, 429)
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
    """The server does not have it: 403, 404 or 410.

    Attributes:
        reason: in words.
    """

    def __init__(self, url: str, status: int) -> None:
        self.reason = GONE[status]
        super().__init__(
            f"{one_line(url)}: {self.reason}; name its id in corpus.leave_out to go on without "
            "it, or make the manifest again"
        )


@dataclass(frozen=True)
class Answer:
    """What a server answers.

    Attributes:
        status: of HTTP.
        headers: by name, without regard to case.
        blocks: ``blocks(size, seconds)`` reads the body, as it is sent, while every ``size`` bytes
            of it come within so many seconds.
    """

    status: int
    headers: Any
    blocks: Callable[[int, float], Iterator[bytes]]

    @property
    def length(self) -> int | None:
        """Bytes of the body, where the server says so."""
        return parse_count(self.headers.get("Content-Length", ""))


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
        """The JSON document at an address, or :class:`Absent`."""

        def ask() -> Any:
            text, values = bytearray(), 0
            with self.opened("GET", url) as answer:
                check_status(url, answer)
                for block in answer.blocks(LARGEST_ANSWER, SLOWEST_ANSWER):
                    self.check_stopped()
                    text += block
                    values += sum(map(block.count, (b",", b":", b"[", b"{")))  # one before each
                    if len(text) > LARGEST_ANSWER or values > MOST_VALUES:
                        raise UserError(
                            f"{one_line(url)}: its answer is larger than {LARGEST_ANSWER >> 20} "
                            f"MiB or {MOST_VALUES:,} values; check corpus.api"
                        )
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                raise Transient("its answer is not JSON") from None

        return self.retry(url, ask)

    def size(self, url: str) -> int | None:
        """Bytes of the file at an address (or :class:`Absent`); ``None`` where it does not tell."""

        def ask() -> int | None:
            with self.opened("HEAD", url) as answer:
                if answer.status in (405, 501):
                    return None
                check_status(url, answer)
                return answer.length

        return self.retry(url, ask)

    @contextmanager
    def opened(
        self, method: str, url: str, headers: dict[str, str] | None = None
    ) -> Iterator[Answer]:
        """Open an address, following redirects to allowed hosts only."""
        import requests
        import urllib3

        from scsigmoid.corpus.connection import Connection

        asked, headers = url, {**HEADERS, **(headers or {})}
        for _ in range(REDIRECTS):
            url = self.check_address(url)
            connection = Connection(self.hosts)
            seconds = 2 * self.settings.timeout
            connection.within(seconds, f"it sent no headers within {seconds:g} s")
            try:
                with connection.ask(method, url, headers, self.settings.timeout) as response:
                    if not response.is_redirect:
                        blocks = partial(connection.blocks, response, BLOCK)
                        yield Answer(response.status_code, response.headers, blocks)
                        return
                    try:
                        url = urljoin(url, response.headers["Location"])
                    except ValueError:
                        url = response.headers["Location"]  # which the check names
            except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                broken = f"the connection broke ({type(error).__name__})"
                raise Transient(connection.late or broken) from error
            finally:
                connection.close()
        raise UserError(
            f"{one_line(asked)}: redirected more than {REDIRECTS} times; correct the address"
        )

    def check_address(self, url: str) -> str:
        """An address as it will be asked (:func:`~.connection.checked_address`)."""
        from scsigmoid.corpus.connection import checked_address

        return checked_address(url, self.hosts)

    def retry(
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


def check_status(url: str, answer: Answer) -> None:
    """Sort an answer into good, worth another attempt, and hopeless."""
    status = answer.status
    if status in (200, 206):
        return
    if status in BUSY or status >= 500:
        raise Transient(f"HTTP {status}", retry_after(answer.headers.get("Retry-After", "")))
    if status in GONE:
        raise Absent(url, status)
    raise UserError(f"{one_line(url)}: HTTP {status}; correct the address")


def retry_after(text: str) -> float | None:
    """Seconds of a ``Retry-After`` header, which holds seconds or a date."""
    from urllib3.exceptions import InvalidHeader
    from urllib3.util import Retry

    try:
        return Retry().parse_retry_after(text)
    except (InvalidHeader, ValueError, TypeError, OverflowError):
        return None
