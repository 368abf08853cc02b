"""Lines of progress: done, rate and remaining time."""

import pytest

from scsigmoid import progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock whose time (the only element) tests change."""
    time = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: time[0])
    return time


def test_lines_have_rate_and_remaining_time(
    clock: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch takes 8 seconds: every second is in the log, the eighth also on the terminal."""
    announced: list[str] = []
    monkeypatch.setattr(progress, "announce", announced.append)
    batches = [slice(start, start + 100) for start in range(0, 1000, 100)]
    tracked = progress.track(
        batches,
        label="embedding",
        unit="cells",
        total=1000,
        size=lambda rows: rows.stop - rows.start,
    )
    for expected, rows in zip(batches, tracked, strict=True):
        assert rows == expected
        clock[0] += 8
    log = capsys.readouterr().err.splitlines()
    assert log == [
        "embedding: 200 of 1,000 cells, 12/s, 0:01:04 left",
        "embedding: 400 of 1,000 cells, 12/s, 0:00:48 left",
        "embedding: 600 of 1,000 cells, 12/s, 0:00:32 left",
        "embedding: 1,000 of 1,000 cells, 12/s, 0:00:00 left",
    ]
    assert announced == ["embedding: 800 of 1,000 cells, 12/s, 0:00:16 left"]


def test_lines_without_a_total(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    for _ in progress.track(iter("ab"), label="files", unit="files"):
        clock[0] += 20
    log = capsys.readouterr().err.splitlines()
    assert log == ["files: 1 files, 0.05/s", "files: 2 files, 0.05/s"]
