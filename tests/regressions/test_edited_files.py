"""Edited and impossible values in files and settings are refused in one line."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from configurations import numbers
from small_training import row
from stages import local_corpus, make_evaluation, make_manifest, make_part, write_cells

from scsigmoid.cli import main
from scsigmoid.config.check import check, load, parse_pairs, read_yaml
from scsigmoid.config.schema import Dataset, LocalFiles
from scsigmoid.corpus.held_out import FRACTION
from scsigmoid.corpus.metadata import ManifestRow, read_manifest, write_manifest
from scsigmoid.errors import UserError
from scsigmoid.records.csv_rows import read_frame, read_rows
from scsigmoid.training.journal import (
    LAYER_COLUMNS,
    Journal,
    Layer,
    append_rows,
    as_csv,
    begin_layers,
    read_journal,
)

ARABIC, FULL_WIDTH = "\u0661\u0662", "\uff11\uff12"  # both are 12 to int()


@contextmanager
def one_line_error(name: str) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Check that the block raises a UserError of one line that contains ``name``."""
    with pytest.raises(UserError) as error:
        yield error
    assert "\n" not in str(error.value)
    assert name in str(error.value)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal with rows at the steps 1, 5 and 10."""
    rows = as_csv([row(step, 3.0) for step in (1, 5, 10)])
    return Journal(tmp_path / "journal.csv", {"torch": "2.13"}, rows).path


@pytest.mark.parametrize(
    "step",
    ["1", "5", "0", "-6", "nan", "inf", "-inf", "1e30", "5.5", "", "1e19", "100000000", "1_0", " ",
     "x", "True", ARABIC, FULL_WIDTH],
)  # fmt: skip
def test_a_journal_with_an_impossible_step(journal: Path, step: str) -> None:
    text = journal.read_text()
    for edited in (text.replace("\n10,", f"\n{step},"), text + f"{step},{'1.0,' * 12}1.0\n"):
        journal.write_text(edited, encoding="utf-8")
        with one_line_error("journal.csv"):
            read_journal(journal)


def test_a_journal_with_other_damage(journal: Path) -> None:
    data = journal.read_bytes()
    rows = data.splitlines(keepends=True)
    for edited in (
        data.replace(b"3.0", b"\xff"),
        data.decode().encode("utf-16"),
        data.replace(b"3.0", f"{ARABIC}.0".encode()),
        data.replace(b"3.0", b"3_0"),
        data + rows[-1],
        b"".join([*rows[:-2], rows[-1], rows[-2]]),
        data.replace(b"step,", b"step,step,"),
    ):
        assert edited != data
        journal.write_bytes(edited)
        with one_line_error("journal.csv"):
            read_journal(journal)


def test_losses_that_are_not_finite_are_results(tmp_path: Path) -> None:
    rows = as_csv([row(1, float("inf")), row(2, float("nan"))])
    columns, _ = read_journal(Journal(tmp_path / "journal.csv", {}, rows).path)
    assert columns["step"].tolist() == [1, 2]


@pytest.mark.parametrize("step", [b"nan", b"1e30", b"x", b"", b"\xff", b"-1", ARABIC.encode()])
def test_damaged_statistics_of_layers(tmp_path: Path, step: bytes) -> None:
    path = tmp_path / "layers.csv"
    begin_layers(path, 0)
    append_rows(path, [Layer(**{**dict.fromkeys(LAYER_COLUMNS, 1), "step": 10})])
    edited = path.read_bytes().replace(b"\n10,", b"\n" + step + b",")
    path.write_bytes(edited)
    with one_line_error("layers.csv"):
        begin_layers(path, 20)
    assert path.read_bytes() == edited


@pytest.mark.parametrize("digits", [ARABIC, FULL_WIDTH, "1_2"])
@pytest.mark.parametrize("column", ["cells", "bytes", "part", "excluded"])
def test_a_manifest_with_digits_of_another_script(tmp_path: Path, column: str, digits: str) -> None:
    path = tmp_path / "manifest.csv"
    fields: dict[str, str] = {"role": "training", "source": "local", "location": "", column: digits}
    write_manifest(path, [ManifestRow(file="a", **fields)])
    with one_line_error(column):
        read_manifest(path)


@pytest.mark.parametrize("digits", [ARABIC, FULL_WIDTH, "1_2", f"{ARABIC}.5"])
def test_numbers_in_other_csv_files(tmp_path: Path, digits: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"count,value\n1,{digits}\n", encoding="utf-8")
    for kind in (int, float):
        row_type = dataclasses.make_dataclass("Row", [("value", kind)])
        with pytest.raises(ValueError, match="is not a number"):
            read_rows(path, row_type)


def test_a_table_that_excel_saved(tmp_path: Path) -> None:
    """Excel writes a byte order mark before UTF-8, and ends lines with CR LF."""
    one = ManifestRow(file="one", role="training", source="local", location="/Café.h5ad")
    path = tmp_path / "manifest.csv"
    write_manifest(path, [one])
    path.write_text(path.read_text("utf-8"), encoding="utf-8-sig", newline="\r\n")
    assert path.read_bytes().startswith(b"\xef\xbb\xbffile,")
    assert read_manifest(path) == [one]
    assert read_rows(path, ManifestRow) == [one]
    assert read_frame(path)["file"].tolist() == ["one"]


@pytest.mark.parametrize("share", ["2", "0", "1", "0.0", "1e-999", "1.5", "."])
def test_an_impossible_share_of_held_out_cells(share: str, tmp_path: Path) -> None:
    """The job that fetches cells reads the share from the manifest."""
    path = write_cells(tmp_path / "cells.h5ad", np.random.default_rng(0).poisson(2, (20, 30)))
    corpus = local_corpus(LocalFiles(files=str(path), held_out=0.5, name="mine"))
    make_manifest(corpus, {"mine": Dataset(title="Mine")}, tmp_path)
    manifest = tmp_path / "manifest.csv"
    text = manifest.read_text()
    manifest.write_text(text.replace("fraction=0.5 ", f"fraction={share} "))
    assert manifest.read_text() != text
    (tmp_path / "manifest.json").unlink()
    with one_line_error("fraction"):
        make_part(corpus, tmp_path)
    with one_line_error("fraction"):
        make_evaluation(corpus, "mine", Dataset(title="Mine"), tmp_path)


def test_a_share_with_digits_of_another_script() -> None:
    assert FRACTION.fullmatch("fraction=0.5 seed=1")
    assert not FRACTION.fullmatch(f"fraction=0.5 seed={ARABIC}")


def test_every_number_has_an_upper_limit() -> None:
    values = load(overrides={"preset": "paper"}).model_dump()
    for section, key, name in numbers(values):
        for number in (10**19, -(10**19), 2**63 if name == "seed" else 2**31, 10**400, 1e300):
            valid, section[key] = section[key], number
            with one_line_error(name):
                check(values)
            section[key] = valid
    with pytest.raises(UserError, match=r"^training\.steps: "):
        load(overrides={"training": {"steps": 10**8}})  # names of snapshots have eight digits
    values["seed"] = 2**63 - 1
    assert check(values).seed == 2**63 - 1


def aliases(first: str, repeat: str, levels: int) -> str:
    """Return YAML in which each level repeats the level above it ten times."""
    lines = [f"a0: &a0 {first}"]
    for level in range(1, levels):
        names = [f"*a{level - 1}"] * 10
        lines.append(f"a{level}: &a{level} " + repeat.format(*names))
    return "\n".join(lines)


LIST = "[" + ", ".join(["{}"] * 10) + "]"
MAPPING = "{{" + ", ".join(f"k{number}: {{}}" for number in range(10)) + "}}"


@pytest.mark.parametrize(
    "text",
    [
        aliases("x", LIST, 7),
        aliases("{x: 1}", MAPPING, 7),
        aliases("[]", LIST, 7),
        f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 1000)}]",
    ],
    ids=["lists", "mappings", "empty lists", "long text"],
)
def test_aliases_that_expand_without_bounds(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(text)
    with one_line_error("bomb.yaml") as error:
        read_yaml(path)
    assert "alias" in str(error.value)
    assert main(["plan", "--configfile", str(path)]) == 1
    assert "bomb.yaml" in capsys.readouterr().err


def test_aliases_in_values_of_the_command_line() -> None:
    """Snakemake passes a configuration that it parsed, with values that share their items."""
    value: Any = ["x"]
    for _ in range(7):
        value = [value] * 10
    with pytest.raises(UserError, match="alias"):
        load(overrides={"corpus": {"leave_out": value}})
    nested = "&a [x]"
    for level in range(6):
        nested = f"&b{level} [{nested}{f', *b{level - 1}' * 9 if level else ', *a' * 9}]"
    with pytest.raises(UserError, match="alias"):
        parse_pairs([f"corpus={nested}"])


def test_usual_aliases_and_many_keys(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("a: &a {x: 1, y: [2]}\nb: {<<: *a, x: 3}\nc: [*a, *a]\n")
    a = {"x": 1, "y": [2]}
    assert read_yaml(path) == {"a": a, "b": {"x": 3, "y": [2]}, "c": [a, a]}
    path.write_text("\n".join(f"k{number}: 1" for number in range(5000)))
    assert len(read_yaml(path)) == 5000
