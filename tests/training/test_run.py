"""The commit in a journal's header."""

import subprocess

from scsigmoid.training import run as module


def test_commit_of_the_running_code(tmp_path, monkeypatch):
    source = tmp_path / "run.py"
    source.write_text("old")
    monkeypatch.setattr(module, "__file__", str(source))
    assert module.commit() == "unknown"

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e"]
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init")
    # Inside a checkout, but not of it.
    assert module.commit() == "unknown"
    git("add", "run.py")
    git("commit", "-m", "one")
    assert module.commit() == git("rev-parse", "HEAD")
    source.write_text("new")
    assert module.commit() == git("rev-parse", "HEAD") + "-dirty"
