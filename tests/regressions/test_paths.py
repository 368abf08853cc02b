"""Paths with characters of glob patterns, and hidden files."""

import subprocess
import sys

import numpy as np
import pytest
from permissions import without_privileges
from stages import write_cells

from scsigmoid.config.check import load
from scsigmoid.config.local_files import expand
from scsigmoid.config.schema import LocalFiles
from scsigmoid.errors import UserError

COUNTS = np.ones((3, 4), dtype=int)


@pytest.fixture
def found(tmp_path, monkeypatch):
    """Return a function: the names of the files that a path or pattern stands for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    def names(pattern):
        files = expand([LocalFiles(files=pattern)])
        return [str(file.path.relative_to(tmp_path.resolve())) for file in files]

    return names


def write(tmp_path, *names):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_cells(tmp_path / name, COUNTS)


def test_an_existing_path_is_not_a_pattern(tmp_path, found):
    """The pattern ``PBMC [v1].h5ad`` would match ``PBMC v.h5ad`` only."""
    write(tmp_path, "PBMC [v1].h5ad", "PBMC v.h5ad", "a*.h5ad", "ab.h5ad", "what?.h5ad")
    for name in ("PBMC [v1].h5ad", "a*.h5ad", "what?.h5ad"):
        assert found(name) == found(f"~/{name}") == found(f"{tmp_path}/{name}") == [name]


def test_patterns_in_a_folder_with_brackets(tmp_path, found):
    write(tmp_path, "run [1]/a.h5ad", "run [1]/b.h5ad", "run [1]/._a.h5ad", "run 1/c.h5ad")
    two = ["run [1]/a.h5ad", "run [1]/b.h5ad"]
    for pattern in ("run [1]/*.h5ad", "run [1]/[ab].h5ad", "./run [1]/*", "run [[]1]/*.h5ad"):
        assert found(pattern) == found(f"{tmp_path}/{pattern}") == two
    assert found("run [0-9]/*.h5ad") == ["run 1/c.h5ad"]
    assert found("**/*.h5ad") == sorted([*two, "run 1/c.h5ad"])
    with pytest.raises(UserError, match=r"run \[2\]/\*\.h5ad: no such file"):
        found("run [2]/*.h5ad")


def test_hidden_files_do_not_match(tmp_path, found):
    write(tmp_path, "cells/a.h5ad", "cells/._a.h5ad")
    (tmp_path / "cells/.DS_Store").touch()
    for pattern in ("cells/*", "c*/*", "cells/*.h5ad", "**/*.h5ad"):
        assert found(pattern) == ["cells/a.h5ad"]


def test_names_with_other_letters(tmp_path, monkeypatch):
    """The report did not name the file, and the error neither the file nor the valid letters."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "Zürich.h5ad", "данные.h5ad", "клетки.h5ad", "train.h5ad")
    entries = [{"files": "[dZд]*.h5ad", "held_out": True}, {"files": "train.h5ad"}]
    overrides = {"preset": "demo", "corpus": {"source": "local", "local": entries}}
    datasets = load(overrides=overrides).datasets
    names = {name: dataset.description for name, dataset in datasets.items()}
    assert names == {"z_rich": "Zürich.h5ad", "dataset": "данные.h5ad"}
    entries.append({"files": "клетки.h5ad", "held_out": True})
    with pytest.raises(UserError, match=r"клетки\.h5ad: .* 'dataset'.* a-z"):
        load(overrides=overrides)


def test_input_files_in_the_home_folder(tmp_path, monkeypatch):
    """These settings took "~" for the name of a folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "list").touch()
    corpus, tokens = {"manifest": "~/list"}, {"vocabulary": {"genes": "~/list"}}
    config = load(overrides={"preset": "small", "corpus": corpus, "tokens": tokens})
    paths = [config.corpus.manifest, config.tokens.vocabulary.genes]
    assert paths == [str(tmp_path / "list")] * 2


def test_a_missing_file_in_a_folder_that_may_not_be_listed(tmp_path):
    """The error was that the files of the folder may not be read."""
    folder = tmp_path / "cells"
    folder.mkdir()
    write(tmp_path, "cells/a.h5ad")
    messages = {0o300: "no such file", 0o600: "its files may not be read"}
    for mode, message in messages.items():
        folder.chmod(mode)
        for name, problem in (("b.h5ad", message), ("*.h5ad", messages[0o600])):
            entry = f"LocalFiles(files={str(folder / name)!r})"
            program = f"from scsigmoid.config.local_files import *; expand([{entry}])"
            command = without_privileges([sys.executable, "-c", program])
            run = subprocess.run(command, capture_output=True, text=True)
            assert problem in run.stderr, (mode, name)
    folder.chmod(0o700)
