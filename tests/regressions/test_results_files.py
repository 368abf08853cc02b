"""Result files that other jobs read: damaged rows, wrong names, and chosen settings."""

import copy
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_up_results import MadeUp, write_journal
from scipy import stats
from stages import write_cells

from scsigmoid.config.check import as_json, as_yaml, check, load, read_yaml
from scsigmoid.config.initial import PACKAGED
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config, Mmd
from scsigmoid.errors import UserError
from scsigmoid.evaluation.embedding_files import write_embedding
from scsigmoid.evaluation.mmd import mmd_dataset
from scsigmoid.forecast import choices
from scsigmoid.forecast.choices import choose
from scsigmoid.model.weights import load_vocabulary
from scsigmoid.paper.differences import differences
from scsigmoid.records.csv_rows import read_rows, write_rows
from scsigmoid.records.measurements import Measurement, read_measurements, write_measurements
from scsigmoid.report.summary import separation
from scsigmoid.results.folder import Results
from scsigmoid.study.comparisons import holm
from scsigmoid.study.runs import Study, collect
from scsigmoid.training.run import TrainingRun

DATASETS = dict.fromkeys(
    (
        "simulated_blood_2",
        "simulated_lung",
        "simulated_colon",
        "simulated_brain",
        "simulated_blood",
        "pbmc68k",
    )
)
Damage = Callable[[list[str]], list[str]]
#: Changes of the lines of a CSV file, of which the first is the header.
DAMAGES: dict[str, Damage] = {
    "duplicated row": lambda lines: [*lines, lines[-1]],
    "duplicated first row": lambda lines: [lines[0], lines[1], *lines[1:]],
    "lost row": lambda lines: [*lines[:2], *lines[3:]],
    "lost last row": lambda lines: lines[:-1],
    "lost and duplicated row": lambda lines: [*lines[:-1], lines[1]],
    "half of the rows": lambda lines: lines[: len(lines) // 2],
    "all rows": lambda lines: lines[:1],
    "cut last row": lambda lines: [*lines[:-1], lines[-1][:-1]],
    "cut in a field": lambda lines: [*lines[:-1], lines[-1][: len(lines[-1]) // 2]],
}
#: The family of a small study.
FAMILY = {
    "purpose": "seeds", "attention": ["sigmoid", "softmax"], "context": [128], "size": ["tiny"],
    "seed": [1], "training": {"steps": 10},
}  # fmt: skip
VALIDATION = {"validate_every": 5, "validation_cells": 16}
#: Damage that also shows if the file has a single row.
OF_ONE_ROW = ("duplicated row", "all rows", "cut last row", "cut in a field")


def change_lines(path: Path, change: Damage) -> None:
    lines = path.read_text().removesuffix("\n").split("\n")
    path.write_text("\n".join(change(lines)) + "\n")


@pytest.fixture(scope="module")
def config() -> Config:
    """The demo's configuration with one dataset."""
    return load(overrides={"preset": "demo", "datasets": DATASETS})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, config: Config) -> Path:
    """A folder with the measurements and benchmarks of a run."""
    folder = tmp_path_factory.mktemp("results")
    writer = MadeUp(folder, config)
    writer.write_corpus()
    writer.write_losses("simulated_heart")
    writer.write_scores("simulated_heart")
    pairs = {"Cardiac vs Neural": (0.5, 0.4), "Cardiac vs Immune": (0.6, 0.5)}
    writer.write_mmd("simulated_heart", pairs)
    writer.write_kernel()
    writer.write_training()
    return folder


@pytest.fixture
def results(written: Path, tmp_path: Path, config: Config) -> Results:
    """A copy of the results that a test may change."""
    return Results(shutil.copytree(written, tmp_path / "results"), config)


# Lost, duplicated and cut rows.


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_rows_are_refused(results: Results, damage: str) -> None:
    files = {
        "metrics/validation_loss/simulated_heart/sigmoid_256.csv": lambda: results.validation_loss(
            "simulated_heart", "sigmoid_256"
        ),
        "metrics/leiden_nmi/simulated_heart.csv": lambda: results.scores("simulated_heart"),
        "metrics/mmd/simulated_heart.csv": lambda: results.mmd("simulated_heart"),
        "benchmarks/kernel.csv": lambda: results.kernel_rows,
        "benchmarks/training.csv": lambda: results.training_rows,
    }
    for file, read in files.items():
        change_lines(results.folder / file, DAMAGES[damage])
        with pytest.raises(UserError, match=file.rpartition("/")[2]) as error:
            read()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("attention", "linear"),
        ("length", "1e300"),
        ("context", "-1"),
        ("tflops", "0"),
        ("gpu_hours", "inf"),
        ("readings", "fast"),
        ("readings", "5 5"),
        ("readings", "0 0 0 0 0 0 0 0 0 0"),
    ],
)
def test_impossible_values_of_a_benchmark(results: Results, column: str, text: str) -> None:
    """Values that no benchmark writes ended in a traceback, or were in tables and figures."""
    for file, read in {
        "benchmarks/kernel.csv": lambda: results.kernel_rows,
        "benchmarks/training.csv": lambda: results.training_rows,
    }.items():
        frame = pd.read_csv(results.folder / file, dtype=str)
        if column not in frame:
            continue
        frame.loc[1, column] = text
        frame.to_csv(results.folder / file, index=False)
        with pytest.raises(UserError, match=f"{file}: damaged") as error:
            read()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("corpus/evaluation/simulated_heart.json", "{}"),
        ("corpus/evaluation/simulated_heart.json", '{"label": "x", "cells": [1], "genes": 2}'),
        ("corpus/evaluation/simulated_heart.json", '{"label": "x", "cells": 1, "gen'),
        ("corpus/manifest.json", '{"excluded": 3}'),
        ("corpus/manifest.json", '{"excluded": {"a": {"held_out": "1", "repeated": 2}}}'),
        ("corpus/manifest.json", '{"excluded": {"a": {}}}'),
    ],
)
def test_edited_metadata_are_refused(results: Results, file: str, text: str) -> None:
    """Missing and wrong values ended in a traceback."""
    (results.folder / file).write_text(text)
    with pytest.raises(UserError, match=f"{file}: damaged") as error:
        print(results.metadata("simulated_heart")["cells"], results.excluded_cells)
    assert "\n" not in str(error.value)


def test_files_are_read_by_pandas_and_rewritten(results: Results) -> None:
    """pandas reads the files without arguments, and the result is not damaged."""
    path = results.folder / "metrics/mmd/simulated_heart.csv"
    rows = read_measurements(path)
    table = pd.read_csv(path, float_precision="round_trip")
    assert len(table) == len(rows)
    assert table["value"].tolist() == [row.value for row in rows]
    table.sample(frac=1, random_state=0).to_csv(path, index=False)
    assert sorted(map(repr, read_measurements(path))) == sorted(map(repr, rows))


def test_files_of_older_versions_are_read(results: Results) -> None:
    path = results.folder / "metrics/mmd/simulated_heart.csv"
    rows = read_measurements(path)
    pd.read_csv(path, float_precision="round_trip").iloc[:, :-1].to_csv(path, index=False)
    assert repr(read_measurements(path)) == repr(rows)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", ["runs", "curves", "layers", "baselines"])
def test_damaged_rows_of_a_study(study: Path, tmp_path: Path, file: str, damage: str) -> None:
    folder = shutil.copytree(study, tmp_path / "study")
    Study(folder).baseline("frequencies", 128)
    lines = (folder / f"{file}.csv").read_text().splitlines()
    if len(lines) == 2 and damage not in OF_ONE_ROW:
        return
    change_lines(folder / f"{file}.csv", DAMAGES[damage])
    with pytest.raises(UserError, match=rf"{file}\.csv") as error:
        Study(folder).baseline("frequencies", 128)
    assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small study."""
    from scsigmoid.records.csv_rows import write_frame

    config = load(overrides={"study": {"seeds": FAMILY}, "training": VALIDATION})
    results = tmp_path_factory.mktemp("results")
    for run in Plan(config).study_runs:
        folder = results / "training" / run
        columns = {"step": np.array([5, 10]), "loss": 8.0, "validation_loss": 7.0}
        write_journal(folder / "journal.csv", columns)
        header = "step,layer,score_max,weight_max,row_sum_low,row_sum,row_sum_high,keys,value_mean"
        rows = [f"{step},0,1,1,1,1,1,1,1" for step in (5, 10)]
        (folder / "layers.csv").write_text("\n".join([header, *rows]) + "\n")
    collect(config, results, results / "study")
    names = ["frequencies", "rank and length"]
    baselines = pd.DataFrame({"dataset": "validation", "baseline": names, "loss": [9.0, 8.9]})
    write_frame(results / "study/baselines.csv", baselines)
    return results / "study"


@dataclass(frozen=True)
class Pair:
    """A row of a test."""

    name: str
    value: float


@pytest.mark.parametrize("lines", [["name"], ["name", "a"], ["value"], []])
@pytest.mark.parametrize("exact", [True, False])
def test_a_missing_column_is_refused_also_without_rows(
    tmp_path: Path, lines: list[str], exact: bool
) -> None:
    (tmp_path / "a.csv").write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(KeyError):
        read_rows(tmp_path / "a.csv", Pair, exact=exact)


TEXTS = (
    "=1+1", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "'=1", "''=1", "\N{FULLWIDTH EQUALS SIGN}1",
    "-", "-0.5", "+3", "1", "", "'", "'a", "CD4+ T", "-1.5 [-2, 1]", "-inf",
)  # fmt: skip


def test_no_field_is_a_formula_and_text_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [Pair(text, -0.5) for text in TEXTS]
    write_rows(path, Pair, rows)
    assert read_rows(path, Pair, exact=True) == rows
    table = pd.read_csv(path, dtype={"name": str}, keep_default_na=False)
    harmless = {"-0.5", "+3", "-1.5 [-2, 1]", "-inf"}
    starts = ("=", "+", "-", "@", "\t", "\r", "\N{FULLWIDTH EQUALS SIGN}")
    assert {name for name in table["name"] if name.startswith(starts)} == harmless
    assert table["value"].tolist() == [-0.5] * len(rows)


# Names in result files.


@pytest.mark.parametrize(
    ("metric", "other"),
    [
        ("leiden_nmi", "leiden_nmi_2"),
        ("mmd", "mmd_unbiased_ratios"),
        ("mmd", "mmdx"),
        ("validation_loss/simulated_heart", "validation_loss_over_cells"),
    ],
)
def test_other_metrics_that_start_alike_are_refused(
    results: Results, metric: str, other: str
) -> None:
    folder, _, dataset = metric.partition("/")
    path = (
        results.folder / f"metrics/{metric}/{'sigmoid_256' if dataset else 'simulated_heart'}.csv"
    )
    rows = read_measurements(path)
    write_measurements(path, [*rows, replace(rows[0], metric=other)])
    with pytest.raises(UserError, match=other):
        results.measurements(folder, "simulated_heart", "sigmoid_256" if dataset else "")


def embeddings(folder: Path, labels: list[str], contexts: tuple[int, int]) -> dict[str, Path]:
    """Write the embeddings of cells with these types for two models."""
    paths = {}
    random, types = np.random.default_rng(0), sorted(set(labels))
    for name, context in zip(("sigmoid_256", "softmax_256"), contexts, strict=True):
        paths[name] = folder / f"embeddings/simulated_heart/{name}.h5ad"
        metadata = {
            "model": name, "attention": name[:7], "context": context,
            "checkpoint": "c" * 64, "vocabulary": "", "cells": "c" * 64,
            "dataset": "simulated_heart", "simulated": True,
        }  # fmt: skip
        values = random.normal(size=(len(labels), 4)) + [[types.index(label)] for label in labels]
        obs = pd.DataFrame(index=[f"cell {index}" for index in range(len(labels))])
        rows = np.arange(len(labels))
        write_embedding(
            paths[name], values.astype(np.float32), np.array(labels), rows, metadata, obs
        )
    return paths


def measure(
    folder: Path, labels: list[str], contexts: tuple[int, int] = (256, 256)
) -> list[Measurement]:
    """Measure the MMD of cells with these types, and return the rows of the file."""
    settings = Mmd(
        resamples=20, confidence=0.95, estimator="unbiased", minimum_cells=8,
        block_cells=64,
    )  # fmt: skip
    output = folder / "metrics/mmd/simulated_heart.csv"
    mmd_dataset(embeddings(folder, labels, contexts), "simulated_heart", settings, 42, output)
    return read_measurements(output)


@pytest.mark.parametrize(
    ("types", "count"),
    [
        (["a vs b", "c"], 10),
        (["a vs b", "c", "a", "b vs c"], 10),
        (["a vs", "b", "a", "vs b"], 10),
        (["Cardiac", "Neural", "left out vs kept"], 7),
    ],
)
def test_cell_types_with_vs_in_their_name(
    tmp_path: Path, config: Config, types: list[str], count: int
) -> None:
    """Every pair has its own rows. A type that was left out is not a pair."""
    labels = [label for label in types[:-1] for _ in range(10)] + [types[-1]] * count
    measure(tmp_path, labels)
    kept = len(types) - (count < 8)
    results = Results(tmp_path, config)
    context = {
        name: model.model_copy(update={"context": 256}) if name.endswith("_4k") else model
        for name, model in config.models.items()
    }
    results.config = config.model_copy(update={"models": context})
    pairs = results.mmd("simulated_heart")
    assert len(pairs) == kept * (kept - 1) / 2
    values = [measured["ratio"].value for measured in pairs.values()]
    assert len(set(values)) == len(pairs)


def test_the_summary_counts_pairs_by_their_values() -> None:
    """The name of a pair does not need to contain the word ``vs``."""
    rows = [("a to b", 0.2), ("c vs d", 0.3), ("ratio_of_means", math.nan)]
    table = pd.DataFrame(rows, columns=["pair", "sigmoid"]).assign(estimator="biased", ratio=1.5)
    assert "2 pairs" in separation("mmd_a", table)


@pytest.mark.parametrize(("contexts", "expected"), [((256, 256), 256), ((256, 128), 0)])
def test_a_ratio_of_two_contexts_has_no_context(
    tmp_path: Path, contexts: tuple[int, int], expected: int
) -> None:
    rows = measure(tmp_path, ["a"] * 10 + ["b"] * 10, contexts)
    of_both = {row.context for row in rows if row.compared_with}
    assert of_both == {expected}
    assert {row.context for row in rows if row.model == "softmax_256"} == {contexts[1]}


# Settings.


def test_check_does_not_change_its_argument(tmp_path: Path) -> None:
    write_cells(tmp_path / "a.h5ad", np.full((4, 3), 2))
    entry = {"file": str(tmp_path / "a.h5ad"), "label": "cell_type"}
    config = load(overrides={"preset": "demo", "datasets": {"my_cells": entry}})
    assert config.datasets["my_cells"].title == "my cells"
    values = read_yaml(write_configuration(tmp_path, config))
    del values["datasets"]["my_cells"]["title"]
    before = copy.deepcopy(values)
    assert check(values).datasets["my_cells"].title == "my cells"
    assert values == before


def write_configuration(folder: Path, config: Config) -> Path:
    path = folder / "config.yaml"
    path.write_text(as_yaml(config))
    return path


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Config]:
    """Return a function that starts a run on own cells, which stores its configuration."""
    monkeypatch.setattr(choices, "gpu_memory", lambda: 0)
    write_cells(tmp_path / "a.h5ad", np.full((100, 30), 2))
    (tmp_path / "results").mkdir()

    def start(*entries: dict[str, object], files: str = "a", **training: object) -> Config:
        entry = {"files": f"{tmp_path}/{files}.h5ad", "held_out": 0.5}
        corpus = {"source": "local", "local": [*entries] or [entry]}
        overrides = {"results": str(tmp_path / "results"), "corpus": corpus, "training": training}
        config = load(overrides=overrides, choose=choose)
        write_configuration(tmp_path / "results", config)
        return config

    return start


def identity(config: Config) -> dict[str, str]:
    """Return the settings that a checkpoint and the run that continues from it must share."""
    return TrainingRun.of(Plan(config).run_config("sigmoid"), "sigmoid").identity("", "")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"steps": 50}, {"steps": 5000}),
        ({"steps": 5000}, {"steps": 60}),
        ({}, {"steps": 60}),
        ({"steps": 60}, {}),
        (
            {"steps": 60, "patience": 0},
            {"steps": 90, "execution": {"log_every": 7, "micro_batch_tokens": 4096}},
        ),
    ],
)
def test_a_run_continues_with_another_number_of_steps(
    own: Callable[..., Config], first: dict[str, object], second: dict[str, object]
) -> None:
    """Chosen values that follow from changed settings stay those of the first run."""
    before = own(**first)
    after = own(**second)
    assert identity(after) == identity(before)
    assert after.training.warmup_steps == before.training.warmup_steps
    # A third run also has these values.
    assert identity(own(**second)) == identity(before)


def test_a_kept_warm_up_that_is_the_whole_training_is_stated(own: Callable[..., Config]) -> None:
    """After a run of more steps, the learning rate silently stayed below its setting."""
    own(steps=5000)
    choice = own(steps=60).choices["training.warmup_steps"]
    assert choice == "100: as in the first run; all steps are warm-up, so set training.warmup_steps"
    assert own(steps=200).choices["training.warmup_steps"] == "100: as in the first run"


def test_values_that_the_user_sets_are_compared(own: Callable[..., Config], tmp_path: Path) -> None:
    before = own(steps=50)
    assert own(steps=50, warmup_steps=7).training.warmup_steps == 7
    assert identity(own(steps=50, warmup_steps=7)) != identity(before)
    # A setting that the user no longer sets, or another corpus, is chosen anew.
    assert own(steps=100).training.warmup_steps == 20
    write_cells(tmp_path / "b.h5ad", np.full((300, 30), 2))
    assert own(files="b", steps=200).training.warmup_steps == 40


def test_a_run_continues_with_other_evaluated_cells(
    own: Callable[..., Config], tmp_path: Path
) -> None:
    """After more steps, a batch or a file that is only evaluated started training over."""
    before = own(steps=50)
    write_cells(tmp_path / "b.h5ad", np.full((300, 30), 2))
    entry = {"files": f"{tmp_path}/a.h5ad", "held_out": 0.5, "batch": "plate", "name": "cells"}
    evaluated = {"files": f"{tmp_path}/b.h5ad", "held_out": True}
    after = own(entry, evaluated, steps=5000)
    assert {*after.datasets} == {"cells", "b"}
    assert identity(after) == identity(before)


def test_training_from_a_model_has_its_own_warm_up(
    own: Callable[..., Config], tmp_path: Path
) -> None:
    """In the results folder of a model from scratch, all 28 steps were warm-up."""
    genes = load_vocabulary(PACKAGED["blood"]).gene_ids[4:34]
    write_cells(tmp_path / "a.h5ad", np.full((100, 30), 2), genes=genes)
    assert own().training.warmup_steps > 28
    training = own(initial="blood").training
    assert (training.steps, training.warmup_steps) == (28, 6)
    assert own(initial="blood", steps=90).training.warmup_steps == 6
    other = shutil.copy(PACKAGED["blood"], tmp_path / "other.safetensors")
    assert own(initial=str(other), steps=90).training.warmup_steps > 6
    assert own().training.warmup_steps > 28


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("device", [["cpu"], {"cpu": 1}, 3, "tpu"]),
        ("choices", [3, "x", ["training.warmup_steps"]]),
        ("training", [[], "x", {"warmup_steps": [20]}, {"warmup_steps": "x"}]),
    ],
)
def test_a_stored_configuration_with_wrong_values(
    own: Callable[..., Config], tmp_path: Path, setting: str, values: list[Any]
) -> None:
    """``device: [cpu]`` in it ended in a traceback."""
    path = tmp_path / "results/config.yaml"
    stored = own().model_dump()
    for value in values:
        path.write_text(as_json(stored | {setting: value}))
        with pytest.raises(UserError) as error:
            own()
        assert str(error.value).startswith(f"{path}: {setting}")
        assert "\n" not in str(error.value)


# Statistics and differences.


def test_holm_ignores_tests_that_were_not_possible() -> None:
    values = [0.04, math.nan, 0.01, 0.03, math.nan]
    tests = [0.04, 0.01, 0.03]
    expected = iter(holm(tests))
    corrected = [math.nan if math.isnan(value) else next(expected) for value in values]
    np.testing.assert_array_equal(holm(values), corrected)
    assert holm(values)[2] == pytest.approx(0.03)
    assert holm([]).shape == (0,)
    assert np.isnan(holm([math.nan])).all()
    one = stats.ttest_1samp([1.0, 1.2, 0.9], 0).pvalue
    assert holm([one, math.nan]).tolist()[0] == one


def test_models_of_another_size_than_their_name_are_named(paper_results: Results) -> None:
    """A size called 160M with 130M parameters is not the paper's, at any context."""
    parameters = {2048: 130, 4096: 133}
    paper_results._contents["benchmarks/training.csv"] = [
        replace(row, parameters=parameters[row.context] * 10**6)
        if row.size == "160M" and row.context in parameters
        else row
        for row in paper_results.training_rows
    ]
    (difference,) = differences(paper_results.config, paper_results)
    assert difference.group == "cost"
    assert difference.here == "without 160M at 2K, 160M at 4K"


@pytest.mark.parametrize("benchmark", ["kernel", "training"])
def test_rows_of_another_machine_are_refused(results: Results, benchmark: str) -> None:
    """Speeds of two GPUs were divided by each other, under the name of one."""
    path = results.folder / f"benchmarks/{benchmark}.csv"
    text = path.read_text()
    first, rest = text.replace(",cpu,", ",NVIDIA A100,", 1), text.replace(",cpu,", ",NVIDIA A100,")
    for edited in (first, rest):
        assert edited != text
        path.write_text(edited)
        opened = Results(results.folder, results.config)
        with pytest.raises(UserError, match=r"has device 'NVIDIA A100', expected 'cpu'; restore"):
            opened.kernel_rows if benchmark == "kernel" else opened.training_rows  # noqa: B018
