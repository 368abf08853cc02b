"""Values of settings that were misread or ignored without a word."""

import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from forecast.conftest import write_lengths

from scsigmoid.config.check import check, load, model_training, read_yaml
from scsigmoid.errors import UserError


def test_null_and_numbers_may_be_text() -> None:
    """Snakemake passes the values of ``--config 'training={clipping: null}'`` as text."""
    overrides = {
        "training": {"clipping": "null", "steps": "5", "betas": ["0.5", "9e-1"]},
        "datasets": {"simulated_lung": "null"},
        "models": {"sigmoid_128": {"training": {"clipping": "null"}}},
        "results": "null",
    }
    config = load(overrides=overrides)
    training = config.training
    assert (training.clipping, training.steps, training.betas) == (None, 5, [0.5, 0.9])
    assert config.results is None
    assert model_training(config, "sigmoid_128").clipping is None
    assert "simulated_lung" not in config.datasets


@pytest.mark.parametrize(
    "settings",
    [
        {"training": {"steps": 60, "validate_every": 0}},
        {"training": {"global_batch": 2}, "tokens": {"cls": False}},
        {"models": {"sigmoid": {"context": 9000}, "b": {"attention": "softmax", "stress": False}}},
    ],
)
def test_choices_follow_from_numbers_that_are_text(
    own: Any, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Numbers in ``--config 'training={steps: 60}'`` had no effect on the values of ``auto``."""
    entry = write_lengths(tmp_path / "a.h5ad", [64] * 100)
    # As Snakemake reads --config.
    as_text = yaml.load(yaml.safe_dump(settings), yaml.BaseLoader)  # noqa: S506
    assert own(entry, **as_text) == own(entry, **settings)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("training: {steps: 1}\nseed: 2\ntraining: {epsilon: 3}", " line 3: 'training' is given"),
        ("a: [1, 2\nb: }", " line 2: expected ',' or ']'"),
        ("a: !!bool 3", " not valid YAML"),
        ("seed:\n  1:30", " line 2: 1:30 is not a decimal number"),
        ("seed: -0100", " line 1: -0100 is not a decimal number"),
        ("seed: 1:30.5", " line 1: 1:30.5 is not a decimal number"),
        ("corpus: &a {x: *a}", " a value contains itself"),
        ("[" * 20_000, " a value contains itself, or is nested too deeply"),
        ("- a list", " expected settings as 'key: value'"),
        (None, " cannot be read"),
    ],
)
def test_a_file_that_is_not_a_yaml_mapping(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "broken.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_yaml(path)
    assert str(caught.value).startswith(f"{path}:{problem}")


def test_a_date_is_text(tmp_path: Path) -> None:
    """Snakemake passes the date of ``snapshot: 2024-06-11`` as a date, our loader as text."""
    path = tmp_path / "date.yaml"
    path.write_text("corpus: {snapshot: 2024-06-11}")
    for corpus in (read_yaml(path)["corpus"], {"snapshot": datetime.date(2024, 6, 11)}):
        assert load(overrides={"corpus": corpus}).corpus.snapshot == "2024-06-11"


@pytest.mark.parametrize("name", ["../evil", "a b", "$(id)", 'a"b', "a\nb", "", "x" * 10_000])
def test_names_that_become_paths_are_refused(name: str) -> None:
    model = {"attention": "sigmoid", "context": 128}
    for overrides in ({"datasets": {name: {"title": "t"}}}, {"models": {name: model}}):
        with pytest.raises(UserError) as error:
            load(overrides=overrides)
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 1000


@pytest.mark.parametrize("device", ["gpu", "GPU", "cuda:x"])
def test_an_unknown_device_is_refused_with_all_devices(device: str) -> None:
    with pytest.raises(UserError, match=rf"^device: .*'cpu'.*'cuda'; found '{device}'"):
        load(overrides={"device": device})


@pytest.mark.parametrize("folder", ["/", "//", "/.", "/usr/..", "link"])
def test_the_root_is_not_a_folder_for_results(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("/")
    download = {"corpus": {"download": {"folder": folder}}}
    for name, overrides in ("results", {"results": folder}), ("corpus.download.folder", download):
        with pytest.raises(UserError, match=rf"^{name}: .*root of the file system"):
            load(overrides=overrides)
    assert load(overrides={"results": "link/tmp"}).results == "link/tmp"


@pytest.mark.parametrize("name", ["initial", "random", "pca_log_counts", "variable_genes"])
def test_a_model_with_the_name_of_a_control(name: str) -> None:
    """Two rules wrote the embeddings of ``initial``, and scores were mixed up."""
    model = {"attention": "sigmoid", "context": 128}
    with pytest.raises(UserError, match=rf"models\.{name}: .* control .*; choose another"):
        load(overrides={"models": {name: model}})


def test_a_second_entry_for_held_out_cells(tmp_path: Path) -> None:
    """The entry in `datasets` was ignored."""
    (tmp_path / "a.h5ad").touch()
    entry = {"files": str(tmp_path / "a.h5ad"), "label": "louvain", "held_out": 0.1}
    overrides: dict[str, Any] = {"preset": "demo", "corpus": {"source": "local", "local": [entry]}}
    stored = load(overrides=overrides).model_dump()
    assert load(overrides=stored).datasets == load(overrides=overrides).datasets
    with pytest.raises(UserError, match=r"datasets\.a: .*corpus\.local"):
        load(overrides={**overrides, "datasets": {"a": {"title": "A", "types": ["B"]}}})


def test_a_file_with_the_name_of_a_dataset_of_the_preset(tmp_path: Path) -> None:
    """The entry of the preset was taken for an entry of the user."""
    (tmp_path / "pbmc68k.h5ad").touch()
    entry = {"files": str(tmp_path / "pbmc68k.h5ad"), "held_out": 0.1}
    corpus = {"source": "local", "local": [entry]}
    assert [*load(overrides={"preset": "demo", "corpus": corpus}).datasets] == ["pbmc68k"]


@pytest.mark.parametrize(
    ("setting", "preset"), [("corpus.manifest", "small"), ("tokens.vocabulary.genes", "demo")]
)
def test_a_missing_input_is_named(setting: str, preset: str, tmp_path: Path) -> None:
    """After a run with other settings, Snakemake kept its results and reported success."""
    file = tmp_path / "list.txt"
    value: object = str(file)
    for name in reversed(setting.split(".")):
        value = {name: value}
    overrides = {"preset": preset, **value}
    with pytest.raises(UserError, match=f"^{setting}: {file}: "):
        load(overrides=overrides)
    file.touch()
    config = load(overrides=overrides)
    file.unlink()  # reports of finished runs do not need it
    check(config.model_dump())


def test_the_path_of_an_input_is_too_long() -> None:
    """This was a traceback."""
    name = "a" * 300
    with pytest.raises(UserError, match=name):
        load(overrides={"preset": "demo", "tokens": {"vocabulary": {"genes": name}}})


@pytest.mark.parametrize("source", ["embedded", "local", "cellxgene"])
def test_many_more_parts_than_files(source: str, tmp_path: Path) -> None:
    """Snakemake planned the jobs of empty parts for minutes."""
    for name in ("a", "b", "c"):
        write_lengths(tmp_path / f"{name}.h5ad", [20, 30])
    held_out = {"files": str(tmp_path / "c.h5ad"), "held_out": True}
    files = [{"files": str(tmp_path / "[ab].h5ad")}, held_out] if source == "local" else []
    preset = "small" if source == "cellxgene" else "demo"

    def read(parts: int) -> int:
        corpus = {"source": source, "parts": parts, "local": files}
        return load(overrides={"preset": preset, "corpus": corpus}).corpus.parts

    assert read(1000) == 1000
    with pytest.raises(UserError, match=r"^corpus\.parts: .* 10000; found 100000"):
        read(100_000)
    if source == "cellxgene":
        assert read(2000) == 2000
    else:
        count = {"embedded": 3, "local": 2}[source]
        problem = rf"^corpus\.parts: 2000, but training files: {count}; set at most {count}$"
        with pytest.raises(UserError, match=problem):
            read(2000)
