"""The configuration: merging, types, and messages about what is wrong."""

import re
import runpy
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
import pytest
import yaml

from scsigmoid.benchmarks.conditions import STEP_SETTINGS
from scsigmoid.config.check import as_yaml, check, load, model_training
from scsigmoid.config.combinations import WIDEST_HEAD
from scsigmoid.config.compared import compared, sections_in, training_entries
from scsigmoid.config.plan import Plan
from scsigmoid.config.schema import Config, LocalFiles, Section, Training
from scsigmoid.config.validate import validate
from scsigmoid.errors import UserError

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "docs/configuration_page.py"))
read_by_rules, readers = SCRIPT["read_by_rules"], SCRIPT["readers"]
ID = "09971952-46c4-410c-8fb1-0afa7b0b225f"  # of a dataset
NO_GENES = {"Homo sapiens": 0, "Mus musculus": 0, "other": 0}


def loaded(**overrides: object) -> Config:
    return load(overrides=overrides)


def test_the_paper_preset_states_the_papers_hyperparameters() -> None:
    """The expected values are copied from tab:model_arch and tab:performance_hyperparams."""
    config = loaded(preset="paper")
    size = config.sizes[config.architecture.size]
    assert (size.layers, size.hidden, size.heads, size.feed_forward) == (12, 768, 12, 3072)
    architecture = config.architecture
    assert (architecture.dropout, architecture.layer_norm_epsilon) == (0.02, 1e-5)
    assert (architecture.initializer_range, config.seed) == (0.02, 42)
    training = model_training(config, "sigmoid_4k")
    assert (training.global_batch, training.learning_rate) == (256, 1e-4)
    assert (training.weight_decay, training.betas) == (0.1, [0.9, 0.999])
    assert (training.epsilon, training.warmup_steps) == (1e-8, 10_000)
    assert (training.clipping, training.steps, training.mask_fraction) == (1.0, 515_000, 0.15)
    stress = model_training(config, "softmax_8k")
    assert (stress.clipping, stress.steps) == (None, 80_000)
    assert {model.context for model in config.models.values()} == {2048, 4096, 8192}
    assert len(config.datasets) == 6


def test_models_of_a_pair_differ_only_in_attention() -> None:
    for preset in ("demo", "small", "paper"):
        plan = Plan(loaded(preset=preset))
        contexts = {model.context for model in plan.config.models.values()}
        assert len(contexts) == 3
        for context in contexts:
            named = {
                model.attention: name
                for name, model in plan.config.models.items()
                if model.context == context
            }
            names = [named["sigmoid"], named["softmax"]]
            runs = [plan.run_config(name) for name in names]
            models = [run.models[name] for run, name in zip(runs, names, strict=True)]
            assert models[0].model_copy(update={"attention": "softmax"}) == models[1]
            sigmoid, softmax = (run.model_copy(update={"models": {}}) for run in runs)
            assert sigmoid == softmax


def test_a_stored_configuration_round_trips() -> None:
    config = loaded(preset="small")
    assert check(yaml.safe_load(as_yaml(config))) == config


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"preset": "dmo"}, ["preset", "'dmo'", "'demo'"]),
        ({"training": {"stepz": 1}}, ["training.stepz", "'steps'"]),
        ({"tokens": {"vocabulary": {"sizes": NO_GENES}}}, ["tokens.vocabulary.sizes", "larger"]),
        ({"x" * 10_000: 1}, ["xxx … xxx", "unknown setting"]),
        ({"training": {"betas": [0.9]}}, ["training.betas", "at least 2"]),
        ({"models": {"softmax_128": {"backend": "triton"}}}, ["backend", "softmax", "flex"]),
        ({"evaluation": {"pair": ["sigmoid_256", "softmax_128"]}}, ["pair", "context"]),
        ({"evaluation": {"pair": ["softmax_256", "sigmoid_256"]}}, ["pair", "order"]),
        ({"evaluation": {"pair": ["sigmoid_384", "softmax_384"]}}, ["pair", "stress"]),
        ({"architecture": {"size": "tini"}}, ["architecture.size", "'tiny'"]),
        ({"sizes": {"tiny": {"heads": 3}}}, ["sizes.tiny", "multiple"]),
        ({"sizes": {"tiny": {"hidden": 1024}}}, ["sizes.tiny", "256", "4 heads"]),
        ({"evaluation": {"scib": {"metrics": ["logistic"]}}}, ["scib.metrics", "another metric"]),
        ({"results": "results/{dataset}"}, ["results: ", "braces"]),
        ({"results": __file__}, ["results: ", "a file"]),
        ({"corpus": {"download": {"folder": "~/h5ad"}}}, ["corpus.download.folder: ", "'~'"]),
        # Dates are compared as text. Without an error, this date would select files of 2024-12.
        ({"corpus": {"snapshot": "2024-13-45"}}, ["corpus.snapshot: ", "2024-06-11"]),
        ({"corpus": {"leave_out": ["x"]}}, ["corpus.leave_out.0: ", "CELLxGENE id"]),
        # Without an error, the files of the lock would not be used.
        ({"corpus": {"manifest": "lock.csv"}}, ["corpus.manifest: ", "corpus.source: cellxgene"]),
        # Without an error, the cells of the id would be trained on.
        (
            {"datasets": {"a": {"title": "A", "id": ID, "file": __file__}}},
            ["datasets.a: ", "an id"],
        ),
        ({"models": {"sigmoid_128": {"backend": "hopper"}}}, ["sigmoid_128.backend", "a GPU"]),
        ({"evaluation": {"pair": ["sigmoid_256"] * 2}}, ["evaluation.pair: ", "twice"]),
        ({"seed": True}, ["seed: ", "number"]),
        ({"datasets": 3}, ["datasets: ", "settings"]),
        (
            {"training.steps": 3},
            ["training.steps: unknown setting; write it as training={", "training: {key"],
        ),
        ({"corpus": {"local": [{"files": "x"}]}}, ["corpus.local: ", "corpus.source: local"]),
        ({"corpus": {"source": "cellxgene"}}, ["datasets.simulated_brain.id: missing; add"]),
        ({"datasets": {"pbmc68k": {"label": ["a", "*"]}}}, ["pbmc68k.label", "pbmc68k.types"]),
        ({"benchmarks": {"kernel": {"lengths": [100]}}}, ["lengths", "100"]),
        ({"corpus": {"source": "local"}}, ["corpus.local", "empty"]),
        # Without an error, files would have no cells.
        ({"corpus": {"embedded": {"training_cells": 1}}}, ["embedded.training_files", "1 cells"]),
        ({"datasets": {"mine": {"file": "absent.h5ad"}}}, ["datasets.mine.file", "no such file"]),
        ({"training": {"patience": 2}}, ["training.patience", "validate_every"]),
        (
            {"preset": "small", "corpus": {"source": "embedded"}},
            ["datasets.adolescent_brain: ", "adolescent_brain: null", "preset=demo"],
        ),
    ],
)
def test_an_error_is_one_line_with_a_setting(overrides: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        loaded(**{"preset": "demo", **overrides})
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 800
    assert [word for word in words if word not in message] == []


def test_the_kernels_support_the_largest_head_dimension() -> None:
    pytest.importorskip("triton")
    from scsigmoid.attention.triton_launch import WIDEST

    assert WIDEST_HEAD == WIDEST


def local(*entries: dict[str, object], **settings: object) -> Config:
    """Return the configuration of the user's own files."""
    return loaded(preset="demo", corpus={"source": "local", "local": [*entries]}, **settings)


class TestLocalFiles:
    """``corpus.source: local``."""

    def test_held_out_cells_make_datasets(self, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        for name in ("a one.h5ad", "b.h5ad", "c.h5ad"):
            (tmp_path / name).touch()
        config = local(
            {"files": str(tmp_path / "a*.h5ad"), "label": "kind", "held_out": 0.2},
            {"files": str(tmp_path / "b.h5ad"), "held_out": True, "name": "Mine"},
            {"files": "~/c.h5ad"},
        )
        assert list(config.datasets) == ["a_one", "mine"]
        assert config.datasets["a_one"].labels == ["kind"]
        assert Plan(config).datasets_of("mmd") == []  # computed only if a setting lists a dataset
        assert Plan(config).datasets_of("umap") == ["a_one", "mine"]

    def test_a_batch_adds_its_metrics(self, tmp_path: Path) -> None:
        for name in ("a", "b", "c"):
            (tmp_path / f"{name}.h5ad").touch()
        entry = {"files": str(tmp_path / "[ab].h5ad"), "held_out": 0.5, "batch": "plate"}
        other = {"files": str(tmp_path / "c.h5ad"), "held_out": 0.5}
        config = local(entry, other)
        batches = {name: dataset.batch for name, dataset in config.datasets.items()}
        assert batches == {"a": "plate", "b": "plate", "c": None}
        added = {"ilisi", "graph_connectivity"}
        assert added < {*config.evaluation.scib.metrics}
        assert not added & {*local(other).evaluation.scib.metrics}
        # The stored configuration is checked again.
        assert check(yaml.safe_load(as_yaml(config))).evaluation == config.evaluation
        with pytest.raises(UserError, match="ilisi needs a dataset with a batch"):
            loaded(evaluation={"scib": {"metrics": ["ilisi", "leiden_nmi"]}})

    def test_mmd_of_own_cells_needs_a_pair_of_models(self, tmp_path: Path) -> None:
        (tmp_path / "a.h5ad").touch()
        entry = {"files": str(tmp_path / "a.h5ad")}
        dataset = {"file": str(tmp_path / "a.h5ad"), "label": "kind", "compared": ["mmd"]}
        options = {"datasets": {"other": dataset}}
        assert Plan(local(entry, **options)).datasets_of("mmd") == ["other"]
        with pytest.raises(UserError, match=r"evaluation\.pair: MMD needs a sigmoid and a softmax"):
            local(entry, **options, evaluation={"pair": ["sigmoid_128"]})

    @pytest.mark.parametrize(
        ("text", "value"), [("0.25", 0.25), ("true", True), ("false", False), ("a=b", "a=b")]
    )
    def test_held_out_as_text(self, text: str, value: object) -> None:
        """Snakemake's ``--config`` passes numbers and booleans in lists as text."""
        entry = validate({"files": "a.h5ad", "held_out": text}, LocalFiles)
        assert (entry.held_out, type(entry.held_out)) == (value, type(value))

    def test_contradictions_are_refused(self, tmp_path: Path) -> None:
        for name in ("a.h5ad", "b.h5ad"):
            (tmp_path / name).touch()
        entry = {"files": str(tmp_path / "a.h5ad")}
        held_out = {**entry, "held_out": True}
        same_name = {"files": str(tmp_path / "b.h5ad"), "held_out": 0.5, "name": "a"}
        for entries, words in [
            ([held_out, entry], "listed twice"),
            ([entry], "no cells are held out"),
            ([held_out], "every cell is held out"),
            ([held_out, same_name], "two datasets are called 'a'"),
            ([{**same_name, "files": str(tmp_path / "*.h5ad")}], "one name for 2 files; remove it"),
            ([{**entry, "held_out": 1.5}], "corpus.local.0.held_out: .* fraction"),
            ([{**entry, "held_out": "split"}], "corpus.local.0.held_out: .* 'column=value'"),
            ([{"files": str(tmp_path / "*.h5")}], "no such file"),
            ([{"files": str(tmp_path / "a.h5ad" / "*.h5ad")}], "no such file"),
            ([{"files": str(tmp_path)}], "a folder without a 10x matrix; name its files"),
        ]:
            with pytest.raises(UserError, match=words):
                local(*entries)


#: Settings that no rule reads, so that a change of them reruns at most tables and figures: places,
#: resources, downloads, texts, and settings that choose the jobs of a run.
READ_BY_NO_RULE = r"""
    (preset|results|gpus|nodes|choices|corpus\.(download|local)\..*)
    | training\.execution\.(micro_batch_tokens|log_every|.*checkpoint.*|workers)
    | datasets\.<name>\.(title|description|compared)
    | models\.<name>\.stress
    | evaluation\.(scib\.metrics|mmd\.estimator)
"""


def settings_of(section: type[Section], path: str = "") -> Iterator[str]:
    """Yield the dotted name of each setting. ``<name>`` is the name of an entry of a mapping."""
    inner = sections_in(section)
    for name, field in section.model_fields.items():
        if name in inner:
            is_mapping = typing.get_origin(field.annotation) is dict
            yield from settings_of(inner[name], f"{path}{name}.{'<name>.' * is_mapping}")
        else:
            yield f"{path}{name}"


def test_each_setting_is_read_by_a_rule_or_needs_no_job() -> None:
    for setting in settings_of(Config):
        needs_no_job = re.fullmatch(READ_BY_NO_RULE, setting, re.VERBOSE) is not None
        assert needs_no_job == (not readers(setting)), setting


def changed_rules(before: Plan, after: Plan, dataset: str = "simulated_lung") -> set[str]:
    """Return the rules whose settings differ. ``dataset`` and a model replace their wildcards."""

    def read(plan: Plan, rule: str, names: set[str]) -> dict[str, Any]:
        entries = {"datasets": dataset, "models": "sigmoid_128"}
        used = {}
        for name in names:
            section = name.partition(".")[0]
            if section in entries:
                name = name.replace("<name>", entries[section])
            if "<name>" not in name:
                config = plan.run_config("sigmoid_128") if rule == "train" else plan.config
                used |= compared(config, name)
        return used

    rules = read_by_rules().items()
    return {rule for rule, names in rules if read(before, rule, names) != read(after, rule, names)}


def of_training(plan: Plan) -> list[dict[str, Any]]:
    return training_entries(plan.config.corpus)


class TestPlan:
    """The settings of each job, which decide whether it runs again."""

    def test_datasets_list_the_analyses_that_compare_them(self) -> None:
        plan = Plan(loaded(evaluation={"mmd": {"minimum_cells": 9}, "umap": {"neighbors": 7}}))
        assert plan.datasets_of("mmd") == ["simulated_heart"]
        assert plan.datasets_of("umap") == ["simulated_heart", "pbmc68k"]
        needed = {"simulated_heart": (9, 7), "pbmc68k": (0, 7), "simulated_lung": (0, 0)}
        for dataset, (mmd, umap) in needed.items():
            assert plan.needed_cells(dataset) == {"scib": 15, "mmd": mmd, "umap": umap}

    def test_a_label_does_not_affect_the_manifest(self, tmp_path: Path) -> None:
        before, after = (
            Plan(loaded(datasets={"simulated_lung": {"label": label}}))
            for label in ("author", ["author", "{age} {kind}"])
        )
        assert changed_rules(before, after) == {"evaluation_cells"}
        # Another dataset is not affected.
        assert changed_rules(before, after, "simulated_heart") == set()
        (tmp_path / "a.h5ad").touch()
        entry = {"files": str(tmp_path / "a.h5ad"), "held_out": 0.5}
        one, two = (Plan(local(entry | {"label": name})) for name in "ab")
        assert changed_rules(one, two, "a") == {"evaluation_cells"}
        assert of_training(one) == of_training(two)
        one, two = (Plan(local(entry | {"batch": name})) for name in "ab")
        assert changed_rules(one, two, "a") == {"scib_of_dataset", "umap_of_dataset"}
        assert of_training(one) == of_training(two)

    def test_files_without_training_cells_do_not_affect_the_manifest(self, tmp_path: Path) -> None:
        for name in "ab":
            (tmp_path / f"{name}.h5ad").touch()
        trained = {"files": str(tmp_path / "a.h5ad"), "held_out": 0.5}
        held_out = {"files": str(tmp_path / "b.h5ad"), "held_out": True}
        other = trained | {"layer": "counts"}
        one, two, three = (
            Plan(local(*entries)) for entries in ([trained], [trained, held_out], [other])
        )
        assert of_training(one) == of_training(two) != of_training(three)
        assert one.held_out_cells("a") == two.held_out_cells("a") != three.held_out_cells("a")
        assert two.held_out_cells("b")[:2] == [held_out["files"], True]

    def test_a_models_own_settings_replace_the_general_ones(self) -> None:
        own = {"models": {"sigmoid_128": {"training": {"steps": 7}}}}
        before, after = Plan(loaded(**own)), Plan(loaded(**own, training={"steps": 9}))
        assert changed_rules(before, after) == set()
        # The same values, once as those of the model.
        assert changed_rules(before, Plan(loaded(training={"steps": 7}))) == set()
        assert changed_rules(before, Plan(loaded())) == {"train"}
        assert changed_rules(before, Plan(loaded(**own, sizes={"new": SIZE}))) == set()


SIZE = {"layers": 1, "hidden": 16, "heads": 1, "feed_forward": 16}


def test_a_new_setting_at_its_default_changes_nothing_that_is_compared() -> None:
    config = loaded()
    later = pydantic.create_model("Later", __base__=Training, a_new_setting=(float, 0.0))
    training = later(**config.training.model_dump())
    assert training.model_dump() != config.training.model_dump()
    new = config.model_copy(update={"training": training})
    assert compared(new, "training") == compared(config, "training")
    assert compared(new, "training.a_new_setting") == {}
    other = training.model_copy(update={"a_new_setting": 0.1})
    new = config.model_copy(update={"training": other})
    assert compared(new, "training")["training"] == {
        **compared(config, "training")["training"],
        "a_new_setting": 0.1,
    }
    assert compared(new, "training.a_new_setting") == {"training.a_new_setting": 0.1}


def test_the_rule_of_the_training_benchmark_reads_what_a_step_depends_on() -> None:
    """The results of an interrupted benchmark are also compared in these settings only."""
    read = read_by_rules()["benchmark_training"]
    names = {f"training.{name}" for name in STEP_SETTINGS}
    assert {name for name in read if re.fullmatch(r"training\.\w+", name)} == names
