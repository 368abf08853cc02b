"""The cap on raw files: how many bytes of them may lie on the disk, and who may bring more.

Where a corpus exceeds ``corpus.download.disk_cap_gb`` its parts take turns.  A job asks for the
space of its whole part at once, so that no two jobs wait for each other, and holds it by a lock in
the folder of downloads.  The system frees the lock with the job, however that ends; jobs of other
machines see it where the file system's locks reach them.  What earlier jobs left stays until its
space is needed.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from scsigmoid.corpus.downloads import Downloads, remove_partial, size_of
from scsigmoid.corpus.metadata import REMOTE, ManifestRow
from scsigmoid.errors import UserError
from scsigmoid.progress import log

SETTING = "corpus.download.disk_cap_gb"
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # seconds between two looks at the space


def exceeds_cap(rows: Iterable[ManifestRow], cap: float | None) -> bool:
    """Whether the raw files of a manifest exceed the cap (in 1e9 bytes): its parts take turns.

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


@contextmanager
def space(
    downloads: Downloads, rows: Iterable[ManifestRow], part: str, cap: float
) -> Iterator[None]:
    """Have the space for the raw files of a part meanwhile; wait for it if need be.

    Evaluation files have their space whether they are there or not.

    Raises:
        UserError: if files that no job uses and that are not of this manifest leave too little.
    """
    files: dict[str, dict[Path, int]] = {"": {}}
    for row in rows:
        if row.source in REMOTE:
            files.setdefault(row.part, {})[downloads.path(row)] = int(row.bytes)
    own = lock_of(downloads, files[part])
    pause = FIRST_PAUSE
    while not taken(downloads, files, part, in_bytes(cap), own):
        if pause == FIRST_PAUSE:
            log(
                f"{downloads.folder}: waiting for {sum(files[part].values()) / 1e9:,.4g} of the "
                f"{cap:,.4g} GB that {SETTING} grants raw files"
            )
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    try:
        yield
    finally:
        own.release()


def taken(
    downloads: Downloads, files: dict[str, dict[Path, int]], part: str, limit: int, own: FileLock
) -> bool:
    """Take the space for a part, which its lock then holds; false while other jobs hold too much.

    What lies there of parts that no job reads goes where it must, the last part first: parts are
    read in the same order each time, so the first are needed again first.
    """
    known = {path for sizes in files.values() for path in sizes}
    left = limit - sum(files[""].values()) - sum(files[part].values())
    others = sorted(set(files) - {"", part}, key=int)
    idle = []
    with downloads.lock("turns"):
        for found in downloads.folder.glob("*"):
            if found.suffix in (".h5ad", ".partial") and found.with_suffix(".h5ad") not in known:
                left -= size_of(found)
        for other in others:
            try:
                with lock_of(downloads, files[other]).acquire(blocking=False):
                    idle.append(other)
            except Timeout:
                left -= sum(files[other].values())
        if left < 0 and idle == others:
            raise UserError(
                f"{SETTING}: files of other manifests in {downloads.folder} leave no room for "
                f"{sum(files[part].values()) / 1e9:,.4g} GB; raise it, delete them, or set "
                "corpus.download.folder"
            )
        if left < 0:
            return False
        try:
            own.acquire(blocking=False)
        except Timeout:
            return False
        for other in idle:
            size = sum(
                size_of(path) + size_of(path.with_suffix(".partial")) for path in files[other]
            )
            if size <= left:
                left -= size
                continue
            for path in files[other]:
                path.unlink(missing_ok=True)
                remove_partial(path.with_suffix(".partial"))
    return True


def lock_of(downloads: Downloads, files: Iterable[Path]) -> FileLock:
    """The lock of a part, named after one of its files: parts of other manifests have others."""
    return downloads.lock(f"part-of-{min(files).stem}")
