"""The cap on raw files: who may bring which bytes, and when."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from loopback import uuid

from scsigmoid.corpus import downloads as module
from scsigmoid.corpus.downloads import Downloads, exceeds_cap, space
from scsigmoid.corpus.metadata import ManifestRow, write_manifest
from scsigmoid.errors import UserError

HOLD = """
import sys, time
from scsigmoid.corpus.downloads import Downloads, space
from scsigmoid.corpus.metadata import read_manifest
with space(Downloads(sys.argv[1], None), read_manifest(sys.argv[2]), "0", 100e-9):
    print("held", flush=True)
    time.sleep(60)
"""


def row(number: int, size: int | str, part: str, source: str = "cellxgene") -> ManifestRow:
    """A file of so many bytes; one without a part is evaluated."""
    return ManifestRow(
        file=str(number),
        role="training" if part else "evaluation",
        part=part,
        source=source,
        location="",
        bytes=str(size),
        dataset_version_id=uuid(number),
    )


ROWS = [row(1, 40, "0"), row(2, 40, "1"), row(3, 40, "2"), row(4, 20, "")]


@pytest.fixture
def downloads(web, tmp_path) -> Downloads:
    (tmp_path / "downloads").mkdir()
    return Downloads(tmp_path / "downloads", web)


def put(downloads: Downloads, number: int, size: int, suffix: str = ".h5ad") -> None:
    (downloads.folder / f"{uuid(number)}{suffix}").write_bytes(b"x" * size)


def there(downloads: Downloads) -> dict[int, int]:
    """Bytes by number of the file."""
    return {
        int(path.stem[-4:]): path.stat().st_size
        for path in sorted(downloads.folder.iterdir())
        if path.suffix in (".h5ad", ".partial")
    }


@pytest.mark.parametrize(
    ("cap", "expected"), [(None, False), (140e-9, False), (139e-9, True), (60e-9, True)]
)
def test_turns_are_taken_only_where_the_corpus_exceeds_the_cap(cap, expected):
    assert exceeds_cap(ROWS, cap) is expected


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS, r"part 0 has 4e-08 GB of raw files and the evaluation datasets 2e-08 GB, the cap"),
        ([row(1, 30, "0"), row(2, 25, "1"), row(3, 20, "1")], "part 1 has 4.5e-08 GB"),
        ([*ROWS, row(5, "", "1")], "the size of 5 is unknown"),
    ],
)
def test_a_cap_that_cannot_be_kept(rows, message):
    limit = 44e-9 if len(rows) == 3 else 59e-9
    with pytest.raises(UserError, match=f"disk_cap_gb: {message}") as caught:
        exceeds_cap(rows, limit)
    assert "\n" not in str(caught.value)


def test_other_sources_download_nothing():
    local = [row(1, 10**12, "0", source="local"), row(2, "", "1", source="embedded")]
    assert not exceeds_cap(local, 1e-9)


def test_jobs_wait_until_there_is_space(downloads, monkeypatch, capsys):
    """Two fit beside the evaluation dataset; the third waits for one of them."""
    rows = [row(number, 40, str(number)) for number in range(3)] + [ROWS[-1]]
    waiting, inside = threading.Event(), threading.Event()

    def sleep(seconds: float) -> None:
        waiting.set()
        time.sleep(0.01)

    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep))

    def third() -> None:
        with space(downloads, rows, "2", 100e-9):
            inside.set()

    one, other = (space(downloads, rows, part, 100e-9) for part in "01")
    thread = threading.Thread(target=third)
    with one:
        with other:
            thread.start()
            assert waiting.wait(20)
            time.sleep(0.1)
            assert not inside.is_set()
        assert inside.wait(20)
    thread.join()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "waiting for 4e-08 of the 1e-07 GB that corpus.download.disk_cap_gb grants raw files"
    )


def test_many_jobs_never_hold_more_than_the_cap(downloads, monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    rows = [row(10 + number, 10 * number, str(number)) for number in range(1, 8)] + [ROWS[-1]]
    alone, held, most = threading.Lock(), [20], [0]

    def work(one: ManifestRow) -> None:
        for _ in range(3):
            with space(downloads, rows, one.part, 100e-9):
                with alone:
                    held.append(int(one.bytes))
                    most.append(sum(held))
                time.sleep(0.005)
                with alone:
                    held.remove(int(one.bytes))

    with ThreadPoolExecutor(7) as pool:
        list(pool.map(work, rows[:7]))
    assert len(most) == 22
    assert max(most) <= 100


def test_a_killed_job_holds_nothing(downloads, monkeypatch, tmp_path):
    write_manifest(tmp_path / "m.csv", ROWS)
    command = [sys.executable, "-c", HOLD, str(downloads.folder), str(tmp_path / "m.csv")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        put(downloads, 1, 25, ".partial")
        with space(downloads, ROWS, "1", 100e-9):
            # what the other may bring counts, not what it has brought so far
            monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda _: holder.kill()))
            with space(downloads, ROWS, "2", 100e-9):
                assert there(downloads) == {}  # its half a file had to go
            assert holder.wait() == -9


def test_what_is_not_needed_goes_last_part_first(downloads):
    put(downloads, 1, 40)
    put(downloads, 2, 40)
    put(downloads, 3, 15, ".partial")
    with space(downloads, ROWS, "2", 115e-9):  # 40 of its own, 20 evaluated: 55 left
        assert there(downloads) == {1: 40, 3: 15}
    with space(downloads, ROWS, "1", 140e-9):
        assert there(downloads) == {1: 40, 3: 15}


def test_files_of_others_stay(downloads):
    """Another preset's file, and an evaluation dataset, which may be there or not."""
    put(downloads, 4, 20)
    put(downloads, 9, 30)
    put(downloads, 1, 40)
    with space(downloads, ROWS, "1", 90e-9):
        assert there(downloads) == {4: 20, 9: 30}
    put(downloads, 1, 40)
    with (
        pytest.raises(UserError, match=r"disk_cap_gb: files of other manifests in .* leave no"),
        space(downloads, ROWS, "1", 89e-9),
    ):
        pass
    assert there(downloads) == {1: 40, 4: 20, 9: 30}
