"""Whole runs: reproducibility, resuming, stopping, and error messages."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forked import forked
from small_training import assert_same_run, changed

from scsigmoid.errors import UserError
from scsigmoid.files import locked
from scsigmoid.model.weights import load_encoder
from scsigmoid.tokens.vocabulary import Vocabulary
from scsigmoid.training import checkpoints, loop
from scsigmoid.training.journal import read_journal
from scsigmoid.training.loop import train
from scsigmoid.training.processes import STOPPED
from scsigmoid.training.run import TrainingRun


@contextmanager
def before_step(number: int, action: Callable[[], None]) -> Iterator[None]:
    """Call ``action`` before a step of the runs in the block."""
    step = loop.Trainer.step

    def patched(trainer: loop.Trainer, current: int, *arguments: Any) -> Any:
        if current == number:
            action()
        return step(trainer, current, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Trainer, "step", patched)
        yield


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole(run: TrainingRun, corpus: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the output of an uninterrupted run, which tests only read."""
    output = tmp_path_factory.mktemp("whole")
    train(run, *corpus, output)
    return output


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    """Return a copy of ``whole``, which a test may change."""
    return Path(shutil.copytree(whole, tmp_path / "copied"))


def test_files_of_a_run(whole, run):
    columns, header = read_journal(whole / "journal.csv")
    assert columns["step"].tolist() == [1, 3, 6, 9, 12, 15, 18, 20]
    assert columns["learning_rate"].tolist()[:3] == pytest.approx([2e-3, 6e-3, 1e-2])
    assert (header["device"], header["backend"], header["seed"]) == ("cpu", "reference", "42")
    # An untrained model guesses among 64 genes.
    assert columns["loss"][0] == pytest.approx(np.log(64), abs=0.1)
    assert (columns["data_wait"] >= 0).all()
    # 8 cells of 5 to 24 tokens in micro-batches of 64
    assert ((columns["packing_efficiency"] > 0.5) & (columns["packing_efficiency"] <= 1)).all()
    assert np.isnan(columns["mfu"]).all()
    assert json.loads(header["training"])["learning_rate"] == 0.01
    _, metadata = load_encoder(whole / "model.safetensors")
    assert metadata["step"] == 20
    names = ["step-00000016.pt", "step-00000020.pt"]
    assert sorted(path.name for path in whole.glob("checkpoints/*.pt")) == names


def test_killed_run_resumes_with_equal_bytes(whole, run, corpus, tmp_path):
    output = tmp_path / "killed"
    with before_step(11, lambda: os.kill(os.getpid(), signal.SIGKILL)):
        assert forked(lambda: train(run, *corpus, output)) == -signal.SIGKILL
    assert not (output / "model.safetensors").exists()
    # Snakemake removes the declared outputs of a failed job.
    (output / "journal.csv").unlink()
    train(run, *corpus, output)
    assert_same_run(whole, output)


def test_a_signal_stops_with_a_checkpoint_after_the_step(whole, run, corpus, tmp_path, capsys):
    output = tmp_path / "stopped"
    stop = before_step(6, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with stop, pytest.raises(SystemExit) as end:
        train(run, *corpus, output)
    assert end.value.code == STOPPED == 75
    assert "sigmoid_2k: stopped by SIGTERM after step 6; run again" in capsys.readouterr().err
    assert (output / "checkpoints/step-00000006.pt").is_file()
    train(run, *corpus, output)
    assert_same_run(whole, output)


def test_a_signal_stops_a_validation(run, corpus, tmp_path, monkeypatch):
    """On a CPU, a validation can take longer than batch systems wait."""
    validated = changed(run, validate_every=4, validation_cells=7, micro_batch_tokens=24)
    train(validated, *corpus, tmp_path / "whole")
    output = tmp_path / "stopped"
    seen = []

    def stop(function, encoder, batch):
        seen.append(batch)
        os.kill(os.getpid(), signal.SIGTERM)
        return torch.zeros(())

    # In the validation at step 8, after the checkpoint of step 4.
    with_signal = before_step(7, lambda: monkeypatch.setattr(loop, "compute_loss", stop))
    with with_signal, pytest.raises(SystemExit) as end:
        train(validated, *corpus, output)
    assert end.value.code == STOPPED
    assert len(seen) == 1
    assert (output / "checkpoints/step-00000007.pt").is_file()
    monkeypatch.undo()
    train(validated, *corpus, output)
    assert_same_run(tmp_path / "whole", output)
    layers = [(folder / "layers.csv").read_text() for folder in (tmp_path / "whole", output)]
    assert layers[0] == layers[1]


def test_two_runs_in_one_folder(run, corpus, tmp_path):
    message = f"process {os.getpid()} on .* is training this model; wait for it or stop it"
    other = locked(tmp_path / loop.LOCK, "training this model")
    with other, pytest.raises(UserError, match=message):
        train(run, *corpus, tmp_path)


def test_rows_after_the_checkpoint_are_measured_again(whole, copied, run, corpus):
    (copied / "checkpoints/step-00000020.pt").write_bytes(b"damaged")
    # Left behind by a killed process.
    partial = [copied / ".model.7.partial.safetensors", copied / "checkpoints/.step-9.7.partial.pt"]
    for path in partial:
        path.write_bytes(b"half")
    train(run, *corpus, copied)
    assert_same_run(whole, copied)
    assert not any(path.exists() for path in partial)


@pytest.fixture(scope="module")
def with_snapshots(run: TrainingRun, corpus: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the output of a run with snapshots that was interrupted and resumed."""
    output = tmp_path_factory.mktemp("with_snapshots")
    settings = changed(run, snapshots=[6, 10, 12, 20])
    with before_step(11, interrupt), pytest.raises(KeyboardInterrupt):
        train(settings, *corpus, output)
    first = (output / "model-step-00000006.safetensors").stat()
    train(settings, *corpus, output)
    assert (output / "model-step-00000006.safetensors").stat() == first
    return output


def weights(path: Path) -> tuple[int, dict[str, bytes]]:
    """Return the step of a model and the bytes of its weights."""
    encoder, metadata = load_encoder(path)
    return metadata["step"], {k: v.numpy().tobytes() for k, v in encoder.state_dict().items()}


def test_a_snapshot_equals_the_model_of_a_shorter_run(with_snapshots, whole, run, corpus, tmp_path):
    names = [f"model-step-{step:08d}.safetensors" for step in (6, 10, 12)]
    assert sorted(path.name for path in with_snapshots.glob("model-*")) == names
    for name, step in zip(names, (6, 10, 12), strict=True):
        train(changed(run, steps=step), *corpus, tmp_path / name)
        assert weights(with_snapshots / name) == weights(tmp_path / name / "model.safetensors")
    assert weights(with_snapshots / "model.safetensors") == weights(whole / "model.safetensors")


def test_a_resumed_run_needs_its_earlier_snapshots(copied, with_snapshots, run, corpus, tmp_path):
    """``copied`` has 20 steps and no snapshots."""
    with pytest.raises(
        UserError, match=r"00012\.safetensors: missing, but .* from step 20; delete"
    ):
        train(changed(run, snapshots=[12]), *corpus, copied)
    longer = changed(run, snapshots=[20, 22], steps=24)
    train(longer, *corpus, copied)
    assert weights(copied / "model-step-00000020.safetensors") == weights(
        with_snapshots / "model.safetensors"
    )
    # Snapshots and layers of other settings are deleted with their checkpoints.
    (copied / "layers.csv").write_text("step,layer\n1,0\n")
    other = changed(run, snapshots=[22], learning_rate=1e-3)
    train(other, *corpus, copied)
    assert not [*copied.glob("model-*"), *copied.glob("layers.csv")]


def test_unfinished_run_with_other_settings(copied, run, corpus):
    (copied / "checkpoints/step-00000020.pt").unlink()
    message = r"training\.learning_rate \(0\.01 there, 0\.02 now\); training\.mask_fraction \(0\.15"
    with pytest.raises(UserError, match=message):
        train(changed(run, learning_rate=2e-2, mask_fraction=0.3), *corpus, copied)
    # The division of work may change.
    train(changed(run, micro_batch_tokens=32, threads=1), *corpus, copied)


def test_training_continues_after_a_divergence(run, corpus, tmp_path):
    wild = changed(run, learning_rate=1e30, clipping=None, warmup_steps=0)
    train(wild, *corpus, tmp_path / "wild")
    columns, _ = read_journal(tmp_path / "wild/journal.csv")
    assert columns["step"][-1] == 20
    assert not np.isfinite(columns["loss"][-1])
    assert not np.isfinite(columns["gradient_norm"][-1])


def test_invalid_input(run, corpus, tmp_path):
    known = Vocabulary.read(corpus.vocabulary)
    medians = known.medians.copy()
    medians[-1] *= 1 + 1e-9
    other = Vocabulary(known.gene_ids, known.names, known.cells, medians)
    other.write(tmp_path / "other.parquet")
    with pytest.raises(UserError, match="has vocabulary"):
        train(run, corpus.stores, tmp_path / "other.parquet", tmp_path / "out")
    for change, message in (
        ({"context": 64}, "cut at 31 genes, too short for context 64"),
        ({"backend": "triton"}, "triton"),
        ({"device": "cuda"}, "cuda"),
    ):
        if torch.cuda.is_available() and "context" not in change:
            continue
        with pytest.raises(UserError, match=message):
            train(replace(run, **change), *corpus, tmp_path / "out")


def test_a_full_disk_deletes_no_checkpoint(whole, run, corpus, tmp_path, monkeypatch):
    """A failed write ends the run in one line. The run continues from the previous checkpoint."""
    written = checkpoints.write_values

    def full(path: Path, values: Mapping[str, Any]) -> None:
        if values["step"] == 12:
            # Not even the zip archive's first bytes fit.
            written(Path("/dev/full"), values)
        written(path, values)

    monkeypatch.setattr(checkpoints, "write_values", full)
    output = tmp_path / "full"
    with pytest.raises(UserError) as error:
        train(run, *corpus, output)
    message = str(error.value)
    assert "step-00000012.pt: the checkpoint could not be written (No space left" in message
    assert "make room and run again to continue from step-00000008.pt" in message
    assert sorted(path.name for path in (output / "checkpoints").iterdir()) == [
        f"step-0000000{step}.{kind}" for step in (4, 8) for kind in ("pt", "sha256")
    ]
    monkeypatch.undo()
    train(run, *corpus, output)
    assert_same_run(whole, output)
