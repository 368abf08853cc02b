"""The cap on raw files: how many bytes of them may lie on the disk, and who may bring more.

Where a corpus exceeds ``corpus.download.disk_cap_gb`` its parts take turns.  A job asks for the
space of its whole part at once, so that no two jobs wait for each other, and holds it by a locked
file in the folder of downloads.  The system ends the lock with the job, however that ends; jobs of
other machines see it where the file system's locks reach them.  What earlier jobs left stays until
its space is needed.
"""

import fcntl
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

from scsigmoid.corpus.download import forget, length_of
from scsigmoid.corpus.downloads import Downloads
from scsigmoid.corpus.lock import REMOTE
from scsigmoid.corpus.rows import ManifestRow
from scsigmoid.errors import UserError
from scsigmoid.progress import log

SETTING = "corpus.download.disk_cap_gb"
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # seconds between two looks at the space


def exceeds_cap(rows: Iterable[ManifestRow], cap: float | None) -> bool:
    """Whether the raw files of a manifest exceed the cap, so that its parts must take turns.

    Args:
        rows: the manifest.
        cap: in gigabytes (1e9 bytes), or ``None``.

    Raises:
        UserError: if the cap cannot be kept: a part and the evaluation datasets, which stay, exceed
            it, or the size of a file is unknown.
    """
    if cap is None:
        return False
    load = Counter({"": 0})
    for row in rows:
        if row.source not in REMOTE:
            continue
        if not row.bytes:
            raise UserError(
                f"{SETTING}: the size of {row.file} is unknown, so the cap cannot be kept; name it "
                "in corpus.leave_out, or set no cap"
            )
        load[row.part] += int(row.bytes)
    if load.total() <= in_bytes(cap):
        return False
    evaluated = load.pop("")
    part, largest = max(load.items(), key=lambda item: item[1], default=("", 0))
    if evaluated + largest > in_bytes(cap):
        raise UserError(
            f"{SETTING}: part {part} has {largest / 1e9:,.4g} GB of raw files and the evaluation "
            f"datasets {evaluated / 1e9:,.4g} GB, the cap is {cap:,.4g}; raise it, or make smaller "
            "parts (more of them: corpus.parts; of smaller files: corpus.maximum_file_gb)"
        )
    return True


def in_bytes(gigabytes: float) -> int:
    """A setting in bytes, whatever rounding left of it."""
    return round(gigabytes * 1e9)


class Quota:
    """The space for raw files in one folder of downloads."""

    def __init__(self, downloads: Downloads, rows: Iterable[ManifestRow], cap: float) -> None:
        """Note what may be there.

        Args:
            downloads: the folder.
            rows: the manifest; its evaluation files have their space whether they are there or not.
            cap: in gigabytes (1e9 bytes).
        """
        remote = [row for row in rows if row.source in REMOTE]
        self.downloads = downloads
        self.limit = in_bytes(cap)
        self.training = {self.name(row) for row in remote if row.role == "training"}
        self.reserved = self.sizes(row for row in remote if row.role == "evaluation")
        self.leases = downloads.folder / ".leases"

    def name(self, row: ManifestRow) -> str:
        """The name of a row's file, without suffix."""
        return self.downloads.path(row).stem

    def sizes(self, rows: Iterable[ManifestRow]) -> dict[str, int]:
        """Bytes by name."""
        return {self.name(row): int(row.bytes) for row in rows}

    @contextmanager
    def space(self, rows: Sequence[ManifestRow]) -> Iterator[None]:
        """Have the space for the files of rows meanwhile; wait for it if need be.

        Raises:
            UserError: if files that no job uses and that are not of this manifest leave too little.
        """
        need = self.sizes(rows)
        self.leases.mkdir(parents=True, exist_ok=True)
        pause = FIRST_PAUSE
        while (lease := self.taken(need)) is None:
            if pause == FIRST_PAUSE:
                log(
                    f"{self.downloads.folder}: waiting for {sum(need.values()) / 1e9:,.4g} of the "
                    f"{self.limit / 1e9:,.4g} GB that {SETTING} grants raw files"
                )
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        try:
            yield
        finally:
            with self.alone():
                lease.close()  # deletes the file

    def taken(self, need: Mapping[str, int]) -> IO[str] | None:
        """A lease on the space that files need, or ``None`` while other jobs hold too much."""
        with self.alone():
            held = self.held()
            present = self.present()
            spare = {
                name: size
                for name, size in present.items()
                if name in self.training and name not in held and name not in need
            }
            bound = Counter(need)
            for sizes in (held, self.reserved, present):
                bound |= Counter({name: size for name, size in sizes.items() if name not in spare})
            if bound.total() > self.limit:
                if held:
                    return None
                raise UserError(
                    f"{SETTING}: files of other manifests in {self.downloads.folder} leave no room "
                    f"for {sum(need.values()) / 1e9:,.4g} GB; raise it, delete them, or set "
                    "corpus.download.folder"
                )
            self.make_room(spare, self.limit - bound.total())
            return self.lease(need)

    def make_room(self, spare: Mapping[str, int], room: int) -> None:
        """Delete files that no job uses until the others fit; the newest first.

        Jobs read the parts in the same order each time, so the oldest are needed first.
        """
        total = sum(spare.values())
        for name in sorted(spare, key=self.age, reverse=True):
            if total <= room:
                return
            total -= spare[name]
            for path in self.files(name):
                forget(path)

    def files(self, name: str) -> tuple[Path, Path]:
        """Where a file may lie: whole, and unfinished."""
        whole = self.downloads.folder / f"{name}.h5ad"
        return whole, whole.with_suffix(".partial")

    def age(self, name: str) -> tuple[float, str]:
        """What files are sorted by: when they were last written."""
        times = [path.stat().st_mtime for path in self.files(name) if path.exists()]
        return max(times, default=0.0), name

    def present(self) -> dict[str, int]:
        """Bytes on the disk, by name."""
        found: Counter[str] = Counter()
        for suffix in (".h5ad", ".partial"):
            for path in self.downloads.folder.glob(f"*{suffix}"):
                found[path.stem] += length_of(path)
        return dict(found)

    def held(self) -> dict[str, int]:
        """Bytes that jobs have leased, by name; leases of jobs that have ended are deleted."""
        found: dict[str, int] = {}
        for path in self.leases.glob("*.json"):
            with path.open("r+", encoding="utf-8") as handle:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    found.update(json.load(handle))
                else:
                    path.unlink()
        return found

    def lease(self, need: Mapping[str, int]) -> IO[str]:
        """A locked file that says what its job may have on the disk."""
        handle = NamedTemporaryFile("w+", dir=self.leases, suffix=".json", encoding="utf-8")  # noqa: SIM115
        fcntl.flock(handle, fcntl.LOCK_EX)
        json.dump(dict(need), handle)
        handle.flush()
        return handle

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other jobs from the account meanwhile."""
        with (self.leases / "account.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
