"""A run stores its configuration in its results folder, and replaces no other file there."""

import os
from pathlib import Path

import pytest
import yaml
from workflow.conftest import TINY, Project

from scsigmoid.cli import main
from scsigmoid.cli.arguments import read_configuration
from scsigmoid.config import check
from scsigmoid.config.stored import changed_settings, checksum, store
from scsigmoid.errors import UserError


@pytest.fixture(scope="module")
def config():
    return check.load(overrides={"preset": "demo"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def test_a_stored_configuration_is_replaced(config, path):
    store(config, path, [])
    assert check.check(check.read_yaml(path)) == config
    before = path.stat().st_mtime_ns
    store(config, path, [])
    assert path.stat().st_mtime_ns == before
    store(config.model_copy(update={"seed": config.seed + 1}), path, [])
    assert check.read_yaml(path)["seed"] == config.seed + 1


BASE = (check.SHIPPED / "config.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text",
    [
        BASE,
        "",
        "preset: demo\n",
        "training: {steps: 400}  # mine\n",
        "a: [",
        yaml.safe_dump({"preset": "demo", "training": {"steps": 400}}, sort_keys=False),
        yaml.safe_dump(yaml.safe_load(BASE), sort_keys=False),  # without settings with a default
        yaml.safe_dump(yaml.safe_load(BASE) | {"study": {}, "choices": {}}),  # in another order
        BASE.encode("utf-16").decode("latin-1"),
    ],
)
def test_a_file_of_the_user_is_kept(text, config, path):
    path.write_text(text, encoding="latin-1" if text.startswith("ÿ") else "utf-8")
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"config\.yaml: .*set results to another folder"):
        store(config, path, [])
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["report.html", "figures/loss.png"])
def test_a_folder_with_figures_of_the_user_is_not_used(name, config, path):
    """Snakemake would replace files of the same names, and remove folders."""
    (path.parent / name).parent.mkdir(exist_ok=True)
    (path.parent / name).write_text("mine")
    with pytest.raises(UserError, match=r"exists.*set results to another folder"):
        store(config, path, [])
    assert not path.exists()


def test_changed_settings_are_found_but_not_those_of_another_version(config, path):
    store(config, path, [])
    text = path.read_text()
    path.write_text(text.replace("seed: 42", "seed: 43") + "removed: 1\n")
    assert changed_settings(config, path) == ["seed"]
    path.write_text("a: [")
    assert changed_settings(config, path) == []


@pytest.mark.parametrize("way", ["same", "symbolic link", "hard link"])
def test_a_given_file_is_kept_although_a_run_stored_it(way, config, path, tmp_path):
    """For example ``--configfile results/demo/config.yaml --config seed=2``."""
    store(config, path, [])
    given = path if way == "same" else tmp_path / "given.yaml"
    if way == "symbolic link":
        given.symlink_to(path)
    elif way == "hard link":
        given.hardlink_to(path)
    store(config, path, [given])  # nothing to write
    before = path.read_bytes()
    with pytest.raises(UserError, match="this run reads it"):
        store(config.model_copy(update={"seed": config.seed + 1}), path, [given])
    assert path.read_bytes() == before


def test_the_base_configuration_is_kept_although_a_run_stored_it(config, path, monkeypatch):
    store(config, path, [])
    monkeypatch.setattr("scsigmoid.config.stored.SHIPPED", path.parent)
    with pytest.raises(UserError, match="this run reads it"):
        store(config.model_copy(update={"seed": config.seed + 1}), path, [])


def test_links_and_pipes(config, path, tmp_path):
    (tmp_path / "mine.yaml").write_text("preset: demo\n")
    path.symlink_to(tmp_path / "mine.yaml")
    with pytest.raises(UserError, match="no run stored it"):
        store(config, path, [])
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="pipe"):
        store(config, path, [])
    assert path.is_fifo()


def test_a_run_does_not_replace_the_base_configuration(tmp_path):
    project = Project.new(tmp_path / "project", TINY | {"results": "."})
    file = project.folder / "config.yaml"
    before = file.read_bytes()
    assert "set results to another folder" in project.error("manifest")
    assert file.read_bytes() == before
    assert not (project.folder / "corpus").exists()


# Jobs read the stored configuration.


@pytest.mark.parametrize("preset", ["demo", "small", "paper"])
def test_a_job_reads_the_configuration_that_was_planned(preset, path):
    planned = check.load(overrides={"preset": preset, "seed": 7})
    store(planned, path, [])
    expected = checksum(planned.model_dump())
    assert read_configuration(path, expected).config == planned
    # The reasons of chosen values may differ on another machine.
    store(planned.model_copy(update={"choices": {"device": "cpu: no GPU"}}), path, [])
    assert read_configuration(path, expected).config.seed == 7


def test_a_setting_that_a_later_version_removed(config, path):
    """``evaluation.embeddings.pooling``: the message did not say where the setting came from."""
    store(config, path, [])
    text = path.read_text()
    path.write_text(text.replace("  embeddings:\n", "  embeddings:\n    pooling: mean\n"))
    with pytest.raises(
        UserError, match=r"config\.yaml: evaluation.*pooling.*earlier version.*delete"
    ):
        read_configuration(path)
    path.write_text(text)  # as the message says
    assert read_configuration(path).config == config


def test_a_job_does_not_read_the_configuration_of_another_run(path, tmp_path, capsys):
    """For example a job that waited on a cluster while its Snakemake was killed."""
    planned = check.load(overrides={"preset": "demo"})
    store(planned.model_copy(update={"seed": planned.seed + 1}), path, [])
    (tmp_path / "statistics").mkdir()
    command = ["vocabulary", "--statistics", str(tmp_path / "statistics")]
    command += ["--configuration", str(path), "--checksum", checksum(planned.model_dump())]
    assert main([*command, "--output", str(tmp_path / "vocabulary.parquet")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "config.yaml: another run has replaced the configuration" in line
    assert not (tmp_path / "vocabulary.parquet").exists()


@pytest.mark.parametrize("line", ["1: x", "device: [cpu]", "null: 2024-01-01", "[a]: b"])
def test_a_job_names_the_wrong_line_of_an_edited_configuration(
    line: str, config, path, capsys
) -> None:
    """Keys that cannot be sorted ended in a traceback."""
    store(config, path, [])
    text = "\n".join(row for row in path.read_text().splitlines() if not row.startswith("device"))
    path.write_text(f"{text}\n{line}\n")
    expected = checksum(config.model_dump())
    command = ["manifest", "--configuration", str(path), "--checksum", expected]
    outputs = [f"{path.parent}/manifest.{suffix}" for suffix in ("csv", "json")]
    assert main([*command, "--output", outputs[0], "--summary", outputs[1]]) == 1
    (message,) = capsys.readouterr().err.splitlines()
    assert f"error: {path}: " in message
    assert "another run" not in message
