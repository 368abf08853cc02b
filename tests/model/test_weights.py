"""Finished models: round trip and damage."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_training import TINY

from scsigmoid.errors import UserError
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.weights import load_encoder, load_vocabulary, read, save_encoder, shrink, write
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary

GENES = tuple(f"ENSG{gene:011d}" for gene in range(60))
VOCABULARY = Vocabulary(
    (*SPECIAL, *GENES),
    (*SPECIAL, *map(str.lower, GENES)),
    np.arange(64),
    np.linspace(0.1, 9, 64),
    {"ENSG90000000000": GENES[3], "ENSG90000000001": GENES[3]},
)


SETTINGS = replace(TINY, context=24, layers=1, vocabulary_size=64, dropout=0.1)
ORIGIN = {"model": "sigmoid_2k", "step": 20, "seed": 42, "training": {"learning_rate": 1e-2}}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_encoder(Encoder(SETTINGS).initialize(1), ORIGIN, VOCABULARY, path)
    return path


def test_round_trip(model):
    encoder, metadata = load_encoder(model)
    expected = Encoder(SETTINGS).initialize(1)
    assert encoder.settings == expected.settings
    assert not encoder.training
    torch.testing.assert_close(encoder.state_dict(), expected.state_dict(), rtol=0, atol=0)
    assert metadata["training"]["learning_rate"] == 1e-2
    # A reader of another version looks for these names.
    assert metadata.keys() == {
        *("attention", "cls_token", "context", "dropout", "initializer_range"),
        *("layer_norm_epsilon", "model", "seed", "sha256", "size", "step", "training"),
        *("variants", "version", "vocabulary", "vocabulary_size"),
    }
    assert (metadata["model"], metadata["attention"]) == ("sigmoid_2k", "sigmoid")
    assert (metadata["step"], metadata["seed"]) == (20, 42)
    assert metadata["vocabulary"] == VOCABULARY.fingerprint
    assert load_encoder(model, backend="reference")[0].settings.backend == "reference"


def test_half_precision_without_output_layer(model, tmp_path):
    small = tmp_path / "small.safetensors"
    shrink(model, small)
    (encoder, metadata), (original, _) = load_encoder(small), load_encoder(model)
    assert not hasattr(encoder, "output")
    weights = {k: v for k, v in original.state_dict().items() if not k.startswith("output.")}
    for name, weight in encoder.state_dict().items():
        expected = weights.pop(name).numpy().astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(weight.numpy(), expected)
    assert not weights
    assert load_vocabulary(small).fingerprint == metadata["vocabulary"]


def test_vocabulary(model):
    vocabulary = load_vocabulary(model)
    assert vocabulary.fingerprint == VOCABULARY.fingerprint
    assert (vocabulary.gene_ids, vocabulary.names) == (VOCABULARY.gene_ids, VOCABULARY.names)
    assert vocabulary.retired == VOCABULARY.retired
    metadata, weights, tensors = read(model)
    tensors["vocabulary/medians"][5] *= 2
    write(model, metadata, {**weights, **tensors})
    with pytest.raises(UserError, match=r"model\.safetensors: its vocabulary is damaged"):
        load_vocabulary(model)
    write(model, metadata, weights)
    load_encoder(model)
    with pytest.raises(UserError, match="does not contain a vocabulary"):
        load_vocabulary(model)


def test_file_has_the_default_mode(model, tmp_path):
    (tmp_path / "other").touch()
    assert model.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_folders_and_checkpoints_are_not_models(model):
    checkpoint = model.parent / "checkpoints" / "step-00000010.pt"
    checkpoint.parent.mkdir()
    torch.save({}, checkpoint)
    advice = rf"not a finished model; use {model}$"
    for path, kind in ((model.parent, "a folder"), (checkpoint, "a checkpoint for resuming")):
        with pytest.raises(UserError, match=rf"{path}: {kind}.*, {advice}"):
            load_encoder(path)
    model.unlink()
    with pytest.raises(UserError, match=r"not a finished model; use model\.safetensors$"):
        load_encoder(checkpoint)


def test_damaged_files(model, tmp_path):
    content = model.read_bytes()
    broken = tmp_path / "broken.safetensors"
    for damaged in (
        content[:-100],
        content[:-4000] + bytes([content[-4000] ^ 1]) + content[-3999:],
        b"",
        b"not a model" * 10,
        content.replace(b"scsigmoid", b"anything_"),
        # The checksum includes the header.
        content.replace(b'"heads\\": 2', b'"heads\\": 4'),
        content.replace(b'"sigmoid\\"', b'"softmax\\"'),
    ):
        assert damaged != content
        broken.write_bytes(damaged)
        with pytest.raises(UserError, match=r"broken\.safetensors: damaged, or not a model"):
            load_encoder(broken)
    with pytest.raises(UserError, match="train it first"):
        load_encoder(tmp_path / "none.safetensors")


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({"layers": 10**9}, "1000000000 layers in its header, 1 in its tensors"),
        ({"heads": 0}, "heads is 0 in its header, expected a whole number above 0"),
        ({"heads": 3}, "hidden 16 is not a multiple of heads 3"),
        ({"feed_forward": 64}, r"tensor blocks\.0\..* has shape .*32.*, expected .*64"),
        ({"hidden": 10**9}, "sizes="),
        ({"hidden": 1.5}, r"hidden is 1\.5 in its header"),
    ],
)
def test_header_that_differs_from_the_tensors(model, size, message):
    metadata, weights, _ = read(model)
    metadata["size"] |= size
    write(model, metadata, weights)  # with a valid checksum
    with pytest.raises(UserError, match=rf"model\.safetensors: damaged.*{message}"):
        load_encoder(model)


def test_other_versions_are_refused(model):
    metadata, weights, _ = read(model)
    write(model, metadata | {"version": 1}, weights)
    with pytest.raises(UserError, match=r"model\.safetensors: written by another version"):
        load_encoder(model)


def test_loading_does_not_initialize(tmp_path):
    """Initialization on the device meta would import TorchDynamo, for more than a second."""
    program = "import sys, scsigmoid as ss; ss.load('blood'); print('torch._dynamo' in sys.modules)"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stdout.split()[-1] == "False"
