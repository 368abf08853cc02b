"""The plan: own files are counted, and wrong files are named before any job."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from forecast.conftest import write_lengths
from scipy.sparse import csr_matrix
from small_models import write_model
from stages import write_cells
from tenx import tenx_file, tenx_folder

from scsigmoid.cli import main
from scsigmoid.config.check import as_yaml, load
from scsigmoid.config.plan import Plan
from scsigmoid.errors import UserError
from scsigmoid.forecast import choices, page
from scsigmoid.forecast.effort import Effort, estimate_effort
from scsigmoid.forecast.page import forecast
from scsigmoid.forecast.volume import Volume, estimate_volume, vocabulary_size
from scsigmoid.model import weights
from scsigmoid.tokens.vocabulary import SPECIAL


def write_file(path: Path, cells: int, genes: list[str]) -> None:
    """Write a file of equal cells with the labels ``a``, ``b``, ``a``, ..."""
    obs = {"kind": ["a", "b"] * cells}
    write_cells(path, np.full((cells, len(genes)), 2), genes=genes, obs=obs)


def test_own_files(tmp_path):
    """Cells of h5ad files are counted, except held-out cells. 10x files are not converted."""
    entries = []
    for name, cells, held_out in (("a", 40, 0.25), ("b", 7, False), ("c", 5, True)):
        path = tmp_path / f"{name}.h5ad"
        write_file(path, cells, [f"ENSG{index:011d}" for index in range(20)])
        entries.append({"files": str(path), "held_out": held_out})
    tenx = tenx_folder(tmp_path / "tenx", np.full((6, 20), 2), "", ["x"] * 20)
    entries.append({"files": str(tenx)})

    def volume_of(*indices: int) -> Volume:
        corpus = {"source": "local", "local": [entries[index] for index in indices]}
        return estimate_volume(load(overrides={"preset": "demo", "corpus": corpus}), tmp_path)

    size = (tmp_path / "a.h5ad").stat().st_size
    assert volume_of(0) == Volume(basis="the files", files=1, cells=30, bytes=size)
    assert (volume_of(0, 1, 2).files, volume_of(0, 1, 2).cells) == (3, 37)
    assert volume_of(0, 3).cells is None


def test_the_vocabulary_of_own_files_is_at_most_their_genes(tmp_path):
    """Only training files count, and each organism has at most its configured size."""
    for name, first, species in (("a", 0, "ENSG"), ("b", 15, "ENSG"), ("c", 0, "ENSMUSG")):
        genes = [f"{species}{index:011d}" for index in range(first, first + 20)]
        write_file(tmp_path / f"{name}.h5ad", 4, genes)
    local = [{"files": str(tmp_path / f"{name}.h5ad"), "held_out": 0.5} for name in "ab"]
    mouse = {"files": str(tmp_path / "c.h5ad"), "held_out": True}

    def size(*entries, **sizes: int) -> int:
        corpus = {"source": "local", "local": [*local, *entries]}
        limits = {name.replace("_", " "): count for name, count in sizes.items()}
        tokens = {"vocabulary": {"sizes": limits or None}}
        overrides = {"preset": "demo", "corpus": corpus, "tokens": tokens}
        return vocabulary_size(load(overrides=overrides), tmp_path)

    special = len(SPECIAL)
    assert size() == 35 + special
    assert size(mouse) == 35 + special
    assert size(mouse | {"held_out": 0.5}) == 35 + 20 + special
    assert size(mouse | {"held_out": 0.5}, Homo_sapiens=30, Mus_musculus=25) == 30 + 20 + special


def test_wrong_genes_or_labels_of_own_files_are_named(tmp_path, capsys):
    """``plan`` reports the errors that the first jobs would report."""
    for name, prefix in (("ids", "ENSG00000000"), ("symbols", "GENE")):
        genes = [f"{prefix}{index:03d}" for index in range(20)]
        write_file(tmp_path / f"{name}.h5ad", 40, genes)

    def error(files: str, label: str) -> str:
        entry = {"files": str(tmp_path / files), "label": label, "held_out": 0.5}
        corpus = json.dumps({"source": "local", "local": [entry]})
        code = main(["plan", "--config", f"results={tmp_path}", f"corpus={corpus}"])
        stderr = capsys.readouterr().err
        assert (code, stderr.count("scsigmoid: error:")) == (int(bool(stderr)), int(bool(stderr)))
        return stderr

    assert error("ids.h5ad", "kind") == ""
    assert f"{tmp_path}/ids.h5ad" in error("ids.h5ad", "type")
    assert f"{tmp_path}/symbols.h5ad" in error("*.h5ad", "kind")


def test_10x_files_that_the_first_jobs_refuse(tmp_path, capsys):
    """``plan`` accepted HDF5 files of other programs, and 10x files with held-out cells."""
    write_file(tmp_path / "a.h5ad", 40, [f"ENSG{index:011d}" for index in range(20)])
    labeled = {"files": str(tmp_path / "a.h5ad"), "label": "kind", "held_out": 0.5}
    other = tenx_file(tmp_path / "b.h5", np.full((6, 20), 2), ["Gene Expression"] * 20)
    corpus = {"source": "local", "local": [labeled, {"files": str(other)}]}

    def error(*settings: str) -> str:
        main(["plan", "--config", f"results={tmp_path}", f"corpus={json.dumps(corpus)}", *settings])
        return capsys.readouterr().err

    assert error() == ""
    corpus["local"][1]["held_out"] = 0.5
    assert f"error: {other}" in error()
    del corpus["local"][1]["held_out"]
    # The advice was only for files in corpus.local.
    of_dataset = json.dumps({"tenx": {"title": "10x", "file": str(corpus["local"].pop()["files"])}})
    assert "or the dataset" in error(f"datasets={of_dataset}")
    corpus["local"].append({"files": str(other)})
    with h5py.File(other, "w") as file:
        file["counts"] = np.ones((6, 20))
    assert f"error: {other}" in error()


def test_later_files_replace_earlier_ones(tmp_path, capsys):
    """Matches Snakemake's behavior with several ``--configfile``."""
    (tmp_path / "one.yaml").write_text("preset: small\ncorpus: {maximum_cells: 5, maximum_gb: 7}\n")
    (tmp_path / "two.yaml").write_text("corpus: {maximum_cells: 1234}\n")
    files = [str(tmp_path / name) for name in ("one.yaml", "two.yaml")]
    assert main(["plan", "--configfile", *files, "--config", f"results={tmp_path}"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("Preset small")
    assert " 1,234 cells" in page


def test_genes_named_by_symbol_are_limited(tmp_path: Path, own: Any, capfd: Any) -> None:
    """Exports of Seurat have symbols. Each organism has at most 3,000 genes on a CPU."""
    symbols = [f"SYM{gene}" for gene in range(3100)]
    ids = {"gene_ids": [f"ENSG{gene:011d}" for gene in range(3100)]}
    for columns in (None, ids):
        counts = csr_matrix(np.full((50, 3100), 2))
        write_cells(tmp_path / "a.h5ad", counts, genes=symbols, var=columns)
        config = own({"files": str(tmp_path / "a.h5ad"), "held_out": 0.2})
        assert vocabulary_size(config, tmp_path) == 3000 + len(SPECIAL)
    assert capfd.readouterr().err.count("genes by var['gene_ids']") == 1
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "matrix.mtx").touch()  # a 10x folder, which is not opened
    config = own({"files": f"{tmp_path}/a.h5ad", "held_out": True}, {"files": f"{tmp_path}/sample"})
    assert vocabulary_size(config, tmp_path) == 3000


def test_a_second_run_chooses_the_device_of_the_first(
    own: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    entry = write_lengths(tmp_path / "a.h5ad", [20] * 100)
    first = own(entry)
    (tmp_path / "results").mkdir()
    (tmp_path / "results/config.yaml").write_text(as_yaml(first))
    monkeypatch.setattr(choices, "gpu_memory", lambda: 1)
    again = own(entry)
    assert (again.device, again.training) == (first.device, first.training)
    assert own(entry, device="cuda").architecture.size == "small"


def test_a_damaged_file_is_named_before_any_job(own: Any, tmp_path: Path) -> None:
    (tmp_path / "a.h5ad").write_text("not HDF5")
    with pytest.raises(UserError, match=r"a\.h5ad"):
        own({"files": str(tmp_path / "a.h5ad"), "held_out": 0.5})


@pytest.mark.parametrize("has_initial", [False, True])
def test_choices_are_the_same_in_the_next_run(own: Any, tmp_path: Path, has_initial: bool) -> None:
    """The reason of the warm-up differed, so that ``report_page`` ran again."""
    entry = write_lengths(tmp_path / "a.h5ad", [20] * 100)
    initial = str(write_model(tmp_path, "sigmoid", cls_token=False)) if has_initial else None
    (tmp_path / "results").mkdir()

    def run(**training: int) -> Any:
        config = own(entry, training={"initial": initial, **training})
        (tmp_path / "results/config.yaml").write_text(as_yaml(config))
        return config

    def without_device(config: Any) -> dict[str, Any]:
        values = config.model_dump()
        del values["choices"]["device"]  # the only reason that may differ
        return values

    first = run()
    assert without_device(run()) == without_device(first)
    other = run(steps=2)
    assert other.training.warmup_steps == first.training.warmup_steps > 1
    assert without_device(run(steps=2)) == without_device(other)


@pytest.mark.parametrize(
    "changes",
    [
        {"context": None},
        {"attention": None},
        {"context": "16"},
        {"attention": "linear"},
        {"vocabulary_size": 41},
        {"size": {"layers": 2, "hidden": 32, "heads": 2, "feed_forward": 32}},
        {"size": {"layers": 3, "hidden": 16, "heads": 2, "feed_forward": 32}},
    ],
)
def test_a_damaged_header_of_an_initial_model(
    own: Any, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Missing and wrong values ended in a traceback, or were found by the first training job."""
    entry = write_lengths(tmp_path / "a.h5ad", [20] * 100)
    path = write_model(tmp_path, "sigmoid", cls_token=False)
    metadata, *tensors = weights.read(path)
    header = {name: value for name, value in {**metadata, **changes}.items() if value is not None}
    damaged = tmp_path / "damaged.safetensors"
    weights.write(damaged, header, tensors[0] | tensors[1])
    with pytest.raises(UserError, match=rf"training\.initial: {damaged}: damaged") as error:
        own(entry, training={"initial": str(damaged)})
    assert "\n" not in str(error.value)


def test_damaged_weights_of_an_initial_model(own: Any, tmp_path: Path) -> None:
    """They were found by the first training job."""
    entry = write_lengths(tmp_path / "a.h5ad", [20] * 100)
    path = write_model(tmp_path, "sigmoid", cls_token=False)
    content = bytearray(path.read_bytes())
    weight = content.index(np.ones(16, np.float32).tobytes())  # of a layer normalization
    content[weight] += 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"training\.initial: {path}: its checksum differs"):
        own(entry, training={"initial": str(path)})
    path.write_bytes(content[:-100])
    with pytest.raises(UserError, match=rf"{path}: .* damaged"):
        own(entry, training={"initial": str(path)})


def test_the_folder_of_an_initial_model(own: Any, tmp_path: Path) -> None:
    entry = write_lengths(tmp_path / "a.h5ad", [20] * 100)
    path = write_model(tmp_path, "sigmoid", cls_token=False)
    with pytest.raises(UserError, match=f"give {path}"):
        own(entry, training={"initial": str(path.parent)})


def test_a_size_called_initial_is_not_replaced(own: Any, tmp_path: Path) -> None:
    entry = write_lengths(tmp_path / "a.h5ad", [20] * 100)
    training = {"initial": str(write_model(tmp_path, "sigmoid", cls_token=False))}
    size = {"layers": 2, "hidden": 16, "heads": 2, "feed_forward": 32}
    own(entry, training=training, sizes={"initial": size})
    with pytest.raises(UserError, match=r"sizes\.initial: .*; choose another name"):
        own(entry, training=training, sizes={"initial": size | {"hidden": 32}})


@pytest.mark.parametrize("option", ["--price-per-gpu-hour", "--download-rate"])
@pytest.mark.parametrize("value", ["-3", "0", "nan", "inf"])
def test_a_price_or_rate_that_is_none(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--config", "preset=small", f"{option}={value}"]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert f"{option}: is {float(value):g}; name a finite number above 0" in error


def test_more_gpus_have_fewer_gains_and_steps_a_lower_bound() -> None:
    """The efficiency was 0.961 for any number of GPUs, and steps were shorter than measured."""

    def effort(preset: str, gpus: int, nodes: int = 1) -> Effort:
        overrides = {"preset": preset, "device": "cuda", "gpus": gpus, "nodes": nodes}
        return estimate_effort(Plan(load(overrides=overrides)), "sigmoid_2k", 43_808)

    shortest = effort("small", 8, 4)
    assert shortest.wall_hours["H100"] * 3600 / shortest.steps == pytest.approx(0.031)
    efforts = {
        gpus * nodes: effort("paper", gpus, nodes) for gpus, nodes in ((1, 1), (4, 1), (8, 4))
    }
    assert efforts[1].wall_hours == efforts[1].hours
    efficiency = {
        n: cost.hours["H100"] / n / cost.wall_hours["H100"] for n, cost in efforts.items()
    }
    assert efficiency[1] > efficiency[4] > efficiency[32] + 0.1


def test_the_loss_of_several_gpus_grows_with_the_model() -> None:
    """It was 9 ms per step for any size, but gradients and the optimizer grow with the model."""

    def loss(layers: int) -> tuple[float, int]:
        sizes = {"160M": {"layers": layers}}
        overrides = {"preset": "paper", "sizes": sizes, "device": "cuda", "gpus": 4}
        cost = estimate_effort(Plan(load(overrides=overrides)), "sigmoid_2k", 43_808)
        hours = cost.wall_hours["H100"] - cost.hours["H100"] / 4
        return hours * 3600 / cost.steps, cost.parameters

    (small, few), (large, many) = loss(12), loss(48)
    assert small == pytest.approx(0.009, rel=0.01)
    assert large / small == pytest.approx(many / few)


def test_a_price_without_a_gpu_names_the_setting(tmp_path: Path, capsys: Any) -> None:
    """Own cells on a machine without a GPU: the price was left out without a word."""
    entry = write_lengths(tmp_path / "a.h5ad", [20] * 100)
    corpus = json.dumps({"source": "local", "local": [entry]})
    settings = [f"results={tmp_path}", f"corpus={corpus}"]
    options = ["--price-per-gpu-hour", "3"]
    assert main(["plan", "--config", *settings, "device=cpu", *options]) == 0
    (price,) = (row for row in capsys.readouterr().out.splitlines() if "price" in row)
    assert "the device is the CPU" in price
    assert "--config device=cuda" in price
    assert main(["plan", "--config", *settings, "device=cuda", *options]) == 0
    assert "at 3 per GPU-hour" in capsys.readouterr().out


def test_the_reason_of_the_device_names_a_first_run_only_after_it(own: Any, tmp_path: Path) -> None:
    entry = write_lengths(tmp_path / "a.h5ad", [20] * 100)
    first = own(entry)
    assert "first run" not in first.choices["device"]
    (tmp_path / "results").mkdir()
    (tmp_path / "results/config.yaml").write_text(as_yaml(first))
    assert "first run" in own(entry).choices["device"]


@pytest.mark.parametrize(
    ("tokens", "local", "warned"),
    [(65_536, 0, ""), (300_000, 0, "H100"), (65_536, 16_000_000_000, "this machine")],
)
def test_too_little_gpu_memory_is_a_warning(
    tokens: int, local: int, warned: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(page, "gpu_memory", lambda: local)
    execution = {"micro_batch_tokens": tokens}
    training = {"global_batch": 512, "execution": execution}
    config = load(overrides={"preset": "paper", "training": training})
    warnings = [line for line in forecast(config, tmp_path) if "warning" in line]
    assert len(warnings) == bool(warned)
    assert all(warned in line and "micro_batch_tokens" in line for line in warnings)


@pytest.mark.parametrize(
    ("gibibytes", "too_small"), [(78, []), (82, ["H100"]), (138, ["H100"]), (142, ["H100", "H200"])]
)
def test_gpus_have_memory_in_powers_of_two(
    gibibytes: int, too_small: list[str], monkeypatch: Any
) -> None:
    """An H100 of 80 GB has 80 GiB, which are 85 GB. The warning began at 80 GB."""
    monkeypatch.setattr(page, "gpu_memory", lambda: 0)
    model = estimate_effort(Plan(load(overrides={"preset": "paper"})), "sigmoid_2k", 43_808)
    text = " ".join(page.memory_warning([replace(model, memory_bytes=gibibytes * 2**30)]))
    assert [name for name in ("H100", "H200") if name in text] == too_small


def test_a_micro_batch_is_at_most_a_step() -> None:
    """The memory of a limit that is never reached is not counted."""

    def memory(tokens: int) -> float:
        training = {"global_batch": 8, "execution": {"micro_batch_tokens": tokens}}
        config = load(overrides={"preset": "paper", "training": training})
        return estimate_effort(Plan(config), "sigmoid_2k", 43_808).memory_bytes

    assert memory(10**8) == memory(8 * 2048) > memory(4 * 2048)


def test_large_numbers_of_parameters_have_no_exponent() -> None:
    assert page.millions(7_088_000_000_000) == "7,088,000M"
    assert page.millions(154_257_000) == "154.3M"


def test_only_genes_of_the_initial_model_are_counted(own: Any, tmp_path: Path) -> None:
    """Training from blood was planned as several times as long, for genes that have no token."""
    entry = write_lengths(tmp_path / "a.h5ad", [200] * 100)  # genes ENSG00000000000, ...
    training = {"initial": str(write_model(tmp_path, "sigmoid", cls_token=False))}
    config = own(entry, training=training)
    vocabulary = weights.load_vocabulary(Path(training["initial"]))
    known = len({f"ENSG{gene:011d}" for gene in range(200)} & {*vocabulary.gene_ids})
    assert config.benchmarks.training.median_length == known < 200
    more = {"vocabulary": {"sizes": {"Homo sapiens": 100}}}  # adds genes
    assert own(entry, training=training, tokens=more).benchmarks.training.median_length == 200


def test_a_wider_model_on_a_cpu_is_scaled_from_a_measured_wide_model() -> None:
    """From the rate of the demo's model, training from blood was planned as four times as long."""
    sizes = {"160M": {"layers": 4, "hidden": 384, "heads": 6, "feed_forward": 1024}}
    benchmarks = {"training": {"median_length": 163, "sigma_length": 0.34}}
    model = {"attention": "sigmoid", "context": 512, "training": {}}
    overrides = {
        "preset": "paper", "device": "cpu", "sizes": sizes, "benchmarks": benchmarks,
        "models": {"sigmoid_2k": model},
    }  # fmt: skip
    effort = estimate_effort(Plan(load(overrides=overrides)), "sigmoid_2k", 3004)
    cells = effort.steps * 256 / effort.hours["CPU core"] / 3600
    assert cells == pytest.approx(12.8, rel=0.05)
