"""Files that were replaced, emptied or left behind although they were not the program's own."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import anndata
import datasets
import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from forked import forked
from small_disk import small_disk
from small_models import GENES
from stages import fetch, make_manifest
from tokens.conftest import write_store

import scsigmoid as ss
from scsigmoid.cells.embed_file import embed_file
from scsigmoid.cli import main
from scsigmoid.config.check import load
from scsigmoid.config.local_files import expand
from scsigmoid.config.schema import LocalFiles
from scsigmoid.config.stale_lock import note_run
from scsigmoid.config.stored import find_other_files
from scsigmoid.errors import UserError
from scsigmoid.files import atomic_path, locked, write_text
from scsigmoid.model import devices
from scsigmoid.model.devices import claim_gpus
from scsigmoid.model.encoder import Encoder
from scsigmoid.tokens.store import write_shards


@pytest.fixture
def cells(tmp_path):
    counts = np.random.default_rng(0).poisson(1.5, (6, len(GENES))).astype(np.float32)
    counts[:, 0] += 1
    adata = anndata.AnnData(counts, var=pd.DataFrame(index=list(GENES)))
    adata.obs_names = [f"cell-{row}" for row in range(6)]
    adata.write_h5ad(tmp_path / "cells.h5ad")
    return tmp_path / "cells.h5ad"


@pytest.fixture
def model(make_model):
    return make_model("sigmoid")


@pytest.fixture
def victim(tmp_path):
    """A file that no command may change."""
    path = tmp_path / "victim.txt"
    path.write_text("precious")
    return path


def embed(cells, output, model, *options):
    command = ["embed", str(cells), str(output), "--checkpoint", str(model), "--device", "cpu"]
    return main([*command, *options])


def error_line(capfd):
    """Return the only line on standard error."""
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("scsigmoid: error: ")
    return line


def embed_during(cells, output, model, action, *, force=False):
    """Embed cells, and call ``action`` once while they are being embedded."""
    loaded = ss.load(model, device="cpu")
    pending = [action]

    def act_once(*arguments):
        if pending:
            pending.pop()()

    loaded.encoder.register_forward_hook(act_once)
    embed_file(cells, loaded, output, force=force)
    assert not pending


def is_clean(folder):
    return not [*folder.rglob(".*partial*")]


# Publishing


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("has_hard_links", [True, False])
def test_an_output_that_appears_during_the_run_is_kept(
    force, has_hard_links, cells, model, tmp_path, monkeypatch
):
    if not has_hard_links:

        def refuse(*names):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", refuse)
    output = tmp_path / "out.h5ad"
    with pytest.raises(UserError, match=r"out\.h5ad: appeared"):
        embed_during(cells, output, model, lambda: output.write_text("other"), force=force)
    assert output.read_text() == "other"
    assert is_clean(tmp_path)
    output.unlink()
    embed_during(cells, output, model, lambda: None, force=force)
    assert anndata.read_h5ad(output).n_obs == 6


def test_of_two_runs_with_one_output_the_later_fails(cells, model, tmp_path):
    output = tmp_path / "out.h5ad"
    with pytest.raises(UserError, match="appeared"):
        embed_during(cells, output, model, lambda: embed(cells, output, model, "--key", "first"))
    assert list(anndata.read_h5ad(output).obsm) == ["first"]


@pytest.mark.parametrize("kind", ["dangling", "file"])
def test_a_link_as_output_is_not_followed(kind, cells, model, victim, tmp_path, capfd):
    link = tmp_path / "link.h5ad"
    link.symlink_to(victim if kind == "file" else tmp_path / "absent")
    assert embed(cells, link, "absent-model") == 1
    assert embed(cells, link, model) == 1
    assert "exists" in capfd.readouterr().err.splitlines()[-1]
    assert embed(cells, link, model, "--force") == 0
    assert not link.is_symlink()
    assert victim.read_text() == "precious"
    assert not (tmp_path / "absent").exists()


# Inputs and the model


@pytest.mark.parametrize("way", ["same", "symbolic link", "hard link"])
@pytest.mark.parametrize("which", ["model", "input"])
def test_input_and_model_are_not_replaced(which, way, cells, model, tmp_path, capfd):
    model = model.rename(tmp_path / "model.h5ad")
    source = model if which == "model" else cells
    before = source.read_bytes()
    output = source if way == "same" else tmp_path / "link.h5ad"
    if way == "symbolic link":
        output.symlink_to(source)
    if way == "hard link":
        output.hardlink_to(source)
    assert embed(cells, output, model, "--force") == 1
    assert "itself" in error_line(capfd)
    assert source.read_bytes() == output.read_bytes() == before


@pytest.mark.parametrize("which", ["model", "input"])
def test_input_and_model_are_not_replaced_in_python(which, cells, model):
    source = {"model": model, "input": cells}[which]
    before = source.read_bytes()
    with pytest.raises(UserError, match="itself"):
        embed_file(cells, ss.load(model, device="cpu"), source, force=True)
    assert source.read_bytes() == before


@pytest.mark.parametrize("option", ["--output", "--log"])
def test_no_stage_replaces_its_input(option, victim, tmp_path, capfd):
    command = ["vocabulary", "--statistics", str(victim), "--configuration", "c"]
    outputs = {"--output": str(tmp_path / "o"), "--log": str(tmp_path / "l")}
    outputs[option] = str(victim)
    assert main([*command, *(word for pair in outputs.items() for word in pair)]) == 1
    assert "is the input itself" in error_line(capfd)
    assert victim.read_text() == "precious"


def test_a_log_is_not_appended_to_the_model(cells, model, tmp_path, capfd):
    before = model.read_bytes()
    assert embed(cells, tmp_path / "out.h5ad", model, "--log", str(model)) == 1
    assert "itself" in error_line(capfd)
    assert model.read_bytes() == before


def test_outputs_of_one_command_are_different_files(tmp_path, capfd):
    command = ["embeddings", "--checkpoint", "a", "b", "--tokens", "t", "--cells", "c"]
    output = str(tmp_path / "out.h5ad")
    assert main([*command, "--configuration", "c", "--output", output, output]) == 1
    assert "twice" in error_line(capfd)


# Pipes and devices


@pytest.mark.parametrize("options", [[], ["--force"]])
def test_a_pipe_is_not_an_output(options, cells, tmp_path, capfd):
    pipe = tmp_path / "pipe.h5ad"
    os.mkfifo(pipe)
    assert embed(cells, pipe, "absent-model", *options) == 1  # before the model is read
    assert "pipe" in error_line(capfd)
    assert pipe.is_fifo()


def test_a_device_is_not_an_output(tmp_path):
    device = tmp_path / "device"
    try:
        os.mknod(device, 0o020666, os.makedev(1, 3))  # as /dev/null
    except PermissionError:
        pytest.skip("only root can make a device")
    with pytest.raises(UserError, match="device"):
        write_text(device, "text")
    assert device.is_char_device()


# Planted links


def test_temporary_names_cannot_be_planted(victim, tmp_path):
    """A link at the name that earlier versions used is neither followed nor removed."""
    link = tmp_path / f".table.{os.getpid()}.partial.csv"
    link.symlink_to(victim)
    names = set()
    for _ in range(2):
        with atomic_path(tmp_path / "table.csv") as temporary:
            names.add(temporary.name)
            temporary.write_text("new")
    assert len(names) == 2
    assert victim.read_text() == "precious"
    assert link.is_symlink()


def plant(path, victim, way):
    if way == "pipe":
        os.mkfifo(path)
    elif way == "hard link":
        path.hardlink_to(victim)
    else:
        path.symlink_to(victim)


@pytest.mark.timeout(30)  # opening a pipe would wait for its reader
@pytest.mark.parametrize("way", ["symbolic link", "hard link", "pipe"])
def test_a_lock_that_is_not_a_lock_file_is_refused(way, victim, tmp_path):
    plant(tmp_path / "lock", victim, way)
    with pytest.raises(UserError, match="lock: a link"), locked(tmp_path / "lock", "training"):
        pytest.fail("the block must not begin")
    assert victim.read_text() == "precious"


def test_the_note_of_a_run_does_not_follow_a_link(victim, tmp_path):
    (tmp_path / ".snakemake").mkdir()
    (tmp_path / ".snakemake/scsigmoid-run.json").symlink_to(victim)
    note_run(tmp_path / ".snakemake", os.getpid())
    assert victim.read_text() == "precious"


@pytest.fixture
def three_gpus(tmp_path, monkeypatch):
    """Pretend that there are three GPUs. Return the folder of claims, which does not exist yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(devices, "_claims", [])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path / f"scsigmoid-gpus-{os.getuid()}"


@pytest.mark.parametrize("way", ["symbolic link", "hard link"])
def test_a_planted_claim_of_a_gpu_is_not_followed(way, three_gpus, victim):
    three_gpus.mkdir(mode=0o700)
    plant(three_gpus / "0-0", victim, way)
    with pytest.raises(UserError, match="0-0"):
        claim_gpus(1)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("way", ["link", "writable", "other owner", "file"])
def test_the_folder_of_claims_belongs_to_the_user(way, three_gpus, tmp_path):
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    if way == "link":
        three_gpus.symlink_to(target)
    elif way == "file":
        three_gpus.touch(mode=0o600)
    else:
        three_gpus.mkdir(mode=0o700)
        if way == "writable":
            three_gpus.chmod(0o777)
        elif os.geteuid() == 0:
            os.chown(three_gpus, 12345, -1)
        else:
            pytest.skip("only root can give a folder away")
    with pytest.raises(UserError, match="TMPDIR"):
        claim_gpus(1)
    assert not any(target.iterdir())


def test_old_names_of_partitioned_gpus_have_slashes(three_gpus, monkeypatch):
    names = ",".join(f"MIG-GPU-5/{index}/0" for index in range(3))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names)
    assert [claim_gpus(1), claim_gpus(1)] == [[0], [1]]


# Folders


def no_shards():
    pytest.fail("the work must not begin")
    yield


def test_a_link_to_a_folder_is_refused_before_the_work(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    with pytest.raises(UserError, match="a link"):
        write_shards(link, no_shards(), {})
    assert is_clean(tmp_path)


@pytest.mark.parametrize("content", ["folder", "file"])
def test_a_folder_with_other_files_is_not_replaced(content, victim):
    target = victim.parent if content == "folder" else victim
    with pytest.raises(UserError, match=r"other files|a file"):
        write_shards(target, no_shards(), {})
    assert victim.read_text() == "precious"


def test_a_folder_that_appears_meanwhile_is_kept(tmp_path):
    def shards():
        (tmp_path / "store").mkdir()
        (tmp_path / "store/mine.txt").touch()
        yield from ()

    with pytest.raises(UserError, match="other files"):
        write_shards(tmp_path / "store", shards(), {})
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["mine.txt"]
    assert is_clean(tmp_path)


@pytest.fixture
def output_folders(part, tmp_path):
    """A part of the corpus and a token store in the results folder ``tmp_path``."""
    cells, tokens = (tmp_path / name / "training/part-00000" for name in ("corpus", "tokens"))
    cells.parent.mkdir(parents=True)
    part.rename(cells)
    write_store(tokens)
    return cells, tokens


def test_only_files_of_others_are_found_in_output_folders(output_folders, tmp_path):
    """The workflow stops before Snakemake would delete them (test_workflow.py)."""
    for folder in output_folders:
        (folder / ".snakemake_timestamp").touch()
        assert find_other_files(folder, tmp_path) == []
        (folder / "mine.h5ad").touch()
        assert find_other_files(folder, tmp_path) == ["mine.h5ad"]


def test_cells_of_a_part_that_was_deleted_in_part_are_not_files_of_others(output_folders, tmp_path):
    """Snakemake was killed while it deleted the folder: the next run stopped."""
    part, _ = output_folders
    shutil.copy(part / "files.csv", tmp_path / "corpus/manifest.csv")
    (part / "files.csv").unlink()
    (part / "mine.h5ad").touch()
    assert find_other_files(part, tmp_path) == ["mine.h5ad"]


def test_caches_of_hugging_face_are_not_files_of_others(output_folders, tmp_path):
    _, tokens = output_folders
    datasets.load_from_disk(str(tokens)).map(lambda row: {"double": 2 * row["length"]})
    assert list(tokens.glob("cache-*"))
    assert find_other_files(tokens, tmp_path) == []


def test_a_linked_output_folder_has_no_files_of_others(output_folders, tmp_path):
    """Snakemake deletes only the link."""
    for folder in output_folders:
        (folder / "mine.h5ad").touch()
        folder.rename(tmp_path / folder.parts[-3] / "moved")
        folder.symlink_to(tmp_path / folder.parts[-3] / "moved")
        assert find_other_files(folder, tmp_path) == []


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("repeats", [1, 3])
def test_a_signal_removes_temporary_files(number, repeats, cells, model, tmp_path):
    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    temporary = tmp_path / "temporary"
    temporary.mkdir()

    def interrupt(*arguments):
        assert any(temporary.iterdir())
        assert not is_clean(tmp_path)
        for _ in range(repeats):
            os.kill(os.getpid(), number)

    def run():
        # The tests may run in a process that ignores signals, for example under nohup.
        signal.signal(number, default)
        tempfile.tempdir = str(temporary)
        Encoder.forward = interrupt
        return embed(cells, tmp_path / "out.h5ad", model)

    assert forked(run) == 128 + number
    assert is_clean(tmp_path)
    # PyTorch's compiler makes a folder of its own when it is first imported.
    assert not [path for path in temporary.iterdir() if "torchinductor" not in path.name]
    assert not (tmp_path / "out.h5ad").exists()


def test_an_ignored_signal_stays_ignored(cells, model, tmp_path):
    """As with ``nohup``."""

    def run():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        forward = Encoder.forward

        def hang_up(*arguments):
            os.kill(os.getpid(), signal.SIGHUP)
            return forward(*arguments)

        Encoder.forward = hang_up
        return embed(cells, tmp_path / "out.h5ad", model)

    assert forked(run) == 0
    assert (tmp_path / "out.h5ad").exists()


def test_a_full_disk_is_named_if_closing_the_file_fails(tmp_path):
    """While it closed a PDF file, matplotlib raised an error that hid the full disk."""

    def write():
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            raise AttributeError("'Stream' object has no attribute 'pos'")

    with pytest.raises(OSError, match="No space left"), atomic_path(tmp_path / "figure.pdf"):
        write()
    assert is_clean(tmp_path)


def test_a_full_disk_elsewhere_is_not_blamed_for_another_error(tmp_path):
    """A caller may choose another place while it handles the full disk."""
    try:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        with pytest.raises(ValueError, match="negative"), atomic_path(tmp_path / "elsewhere"):
            raise ValueError("negative") from None
    assert is_clean(tmp_path)


def test_a_full_disk_under_a_relative_path_is_named(tmp_path, monkeypatch):
    """Writers may name the temporary file by its absolute path. The message named this file."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match="No space left") as caught, atomic_path("out") as path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path.absolute()))
    assert caught.value.filename == "out"
    assert is_clean(tmp_path)


def test_a_full_disk_of_temporary_files_is_named(cells, model, tmp_path, monkeypatch, capfd):
    """Embedding writes tokens to ``/tmp``. The message named the output."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with small_disk(place):
        assert embed(cells, tmp_path / "new" / "out.h5ad", model) == 1
    last_line = capfd.readouterr().err.splitlines()[-1]
    assert last_line.startswith(f"scsigmoid: error: {place}/scsigmoid-")
    assert "No space left on device" in last_line
    assert is_clean(tmp_path)


def test_an_h5ad_file_on_a_full_disk_is_one_line(cells, model, tmp_path):
    """h5py printed tracebacks of all open objects, and HDF5 ended in a segmentation fault."""
    place = tmp_path / "disk"
    place.mkdir()
    files = [cells, place / "out.h5ad", "--checkpoint", model, "--device", "cpu"]
    with small_disk(place) as full:
        os.truncate(full, full.stat().st_size - 4096)  # HDF5 fails after its first blocks
        command = [sys.executable, "-m", "scsigmoid", "embed", *files]
        run = subprocess.run(command, capture_output=True, text=True)
        assert is_clean(place)
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    error = f"scsigmoid: error: {place}/out.h5ad: No space left on device"
    assert run.stderr.splitlines()[-1].startswith(error)


def test_an_error_leaves_no_temporary_folder_and_needs_no_standard_output(tmp_path):
    """As matplotlib's for its settings, which scanpy imports to read 10x files."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = 1
    (tmp_path / "temporary").mkdir()
    paths = {"MPLCONFIGDIR": "/dev/null/x", "TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-m", "scsigmoid", "embed", "a.h5", "out.h5ad", "--device", "cpu"]
    run = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command, "--checkpoint", "blood"],
        cwd=tmp_path,
        env={**os.environ, **paths},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("scsigmoid: error: a.h5: not a 10x file")
    assert not any((tmp_path / "temporary").iterdir())


# Names


@pytest.mark.parametrize("letter", ["a", "é", "🧬"])
def test_every_allowed_name_can_be_written(letter, cells, model, tmp_path):
    size = len(letter.encode())
    output = tmp_path / f"{letter * (250 // size)}.h5ad"
    assert embed(cells, output, model) == 0
    assert anndata.read_h5ad(output).n_obs == 6


@pytest.mark.parametrize("name", ["a" * 251 + ".h5ad", "b" * 256 + "/out.h5ad"])
def test_a_longer_name_is_refused_before_the_work(name, cells, tmp_path, capfd):
    assert embed(cells, tmp_path / "new" / name, "absent-model") == 1
    assert "shorter name" in error_line(capfd)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("results", ["-x", "--help", "a" * 256, f"deep/{'b' * 300}/results"])
def test_a_results_folder_that_commands_cannot_use_is_refused(results):
    with pytest.raises(UserError, match=r"^results: "):
        load(overrides={"results": results})


@pytest.mark.parametrize("file", ["results/demo", "results"])
@pytest.mark.parametrize("settings", [{}, {"results": "results/demo"}])
def test_a_file_in_the_place_of_the_results_is_named(file, settings, tmp_path, monkeypatch):
    """Also without the setting `results`: Snakemake printed a traceback."""
    monkeypatch.chdir(tmp_path)
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).touch()
    with pytest.raises(UserError, match=f"^results: {file}: a file"):
        load(overrides=settings)


@pytest.mark.parametrize("link", ["results/demo", "results"])
def test_a_link_to_a_missing_folder_in_the_place_of_the_results_is_named(
    link, tmp_path, monkeypatch
):
    """As to a disk that is not mounted. The message was "config.yaml: … (File exists)"."""
    monkeypatch.chdir(tmp_path)
    Path(link).parent.mkdir(exist_ok=True)
    Path(link).symlink_to(tmp_path / "absent")
    with pytest.raises(UserError, match=f"^results: {link}: a link to a missing folder"):
        load()


def test_files_of_a_dataset_with_a_long_name_can_be_written(tmp_path):
    path = tmp_path / f"{'a' * 250}.h5ad"
    path.touch()
    (file,) = expand([LocalFiles(files=str(path), held_out=True)])
    write_text(Path(tmp_path, f".{file.dataset}-umap.parquet"), "text")


def test_a_key_that_hdf5_reads_as_the_group_is_refused(cells, model, tmp_path, capfd):
    assert embed(cells, tmp_path / "out.h5ad", model, "--key", ".") == 1
    assert "key" in error_line(capfd)
    assert not (tmp_path / "out.h5ad").exists()
    assert embed(cells, tmp_path / "out.h5ad", model, "--key", "..") == 0
    assert list(anndata.read_h5ad(tmp_path / "out.h5ad").obsm) == [".."]


def test_other_files_are_not_overwritten(tmp_path, capfd):
    config = load()
    make_manifest(config.corpus, config.datasets, tmp_path)
    for name in ("folder", "cells"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious.h5ad").write_bytes(b"x")
    h5ad, metadata = tmp_path / "cells" / "precious.h5ad", tmp_path / "cells" / "precious.json"
    for message, *options in (
        ("contains other files", "--part", 0, "--output", tmp_path / "folder"),
        ("does not", "--dataset", "simulated_heart", "--output", h5ad, "--metadata", metadata),
        ("expected a number", "--part", 99, "--output", tmp_path / "part"),
        ("expected --part", "--part", "²", "--output", tmp_path / "part"),
        ("not one of", "--dataset", "kidney", "--output", h5ad, "--metadata", metadata),
    ):
        assert fetch(config, tmp_path, *options) == 1
        assert re.search(rf"scsigmoid: error: .*{message}", capfd.readouterr().err)
    assert [path.read_bytes() for path in tmp_path.rglob("*.h5ad")] == [b"x", b"x"]


def test_a_folder_in_the_place_of_a_file_is_named_before_any_work(tmp_path):
    with pytest.raises(IsADirectoryError) as caught, atomic_path(tmp_path):
        pytest.fail("the block must not begin")
    assert caught.value.filename == str(tmp_path)
