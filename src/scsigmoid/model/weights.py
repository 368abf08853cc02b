"""Finished models: a safetensors file with weights, vocabulary and, in its header, the settings.

Weights are float32, or float16 after :func:`shrink`. The vocabulary is stored as tensors.
``vocabulary/gene_ids`` and ``vocabulary/names`` are UTF-8 bytes with one line per token.
``vocabulary/cells`` and ``vocabulary/medians`` have one number per token. If there are retired ids,
``vocabulary/retired`` has a line for each: the id, a tab, the id that replaced it.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from scsigmoid.config.schema import FILE_NAME, Size
from scsigmoid.errors import UserError
from scsigmoid.files import METADATA_KEY, atomic_path
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.tokens.vocabulary import Vocabulary

MODEL = "model.safetensors"
PREFIX = "vocabulary/"  # prefix of the names of the vocabulary's tensors
OUTPUT = "output."  # prefix of the names of the output layer's weights
VERSION = 2  # of the file format
ALWAYS_WRITTEN = ("cls_token", "variants")  # also with their default, as earlier versions expect
BLOCK = re.compile(r"blocks\.(\d+)\.")  # names of the weights of a block


def save_encoder(
    encoder: Encoder, origin: Mapping[str, Any], vocabulary: Vocabulary, path: str | Path
) -> None:
    """Write float32 weights, vocabulary and metadata of an encoder.

    ``origin`` are the metadata that the encoder itself does not have: the name ``model``, and how
    it was trained (:meth:`scsigmoid.training.run.TrainingRun.origin`).
    """
    settings = asdict(encoder.settings)
    del settings["backend"]  # the reader chooses it
    for field in fields(EncoderSettings):
        # Settings at their default are left out, so that a new one does not change other files.
        if field.name not in ALWAYS_WRITTEN and settings.get(field.name) == field.default:
            del settings[field.name]
    size = {name: settings.pop(name) for name in Size.model_fields}
    metadata = {
        **origin,
        **settings,
        "version": VERSION,
        "size": size,
        "vocabulary": vocabulary.fingerprint,
    }
    weights = {
        name: tensor.detach().to("cpu", torch.float32).contiguous()
        for name, tensor in encoder.state_dict().items()
    }
    write(path, metadata, {**weights, **as_tensors(vocabulary)})


def write(path: str | Path, metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a model file. Its header contains a checksum, which safetensors does not provide."""
    header = json.dumps({**metadata, "sha256": checksum(metadata, tensors)}, sort_keys=True)
    with atomic_path(path) as temporary:
        # safetensors makes files readable by their owner only. Use the default mode instead.
        temporary.touch()
        mode = temporary.stat().st_mode
        save_file(dict(tensors), temporary, metadata={METADATA_KEY: header})
        temporary.chmod(mode)


def shrink(path: str | Path, output: str | Path) -> None:
    """Write a copy of a model for embeddings only: float16 weights without the output layer."""
    metadata, weights, vocabulary = read(path)
    halves = {name: w.half() for name, w in weights.items() if not name.startswith(OUTPUT)}
    write(output, metadata, {**halves, **vocabulary})


def as_tensors(vocabulary: Vocabulary) -> dict[str, Tensor]:
    """Return the tensors of a vocabulary by their names in the file."""
    lines = {"gene_ids": vocabulary.gene_ids, "names": vocabulary.names}
    if vocabulary.retired:
        lines["retired"] = tuple(map("\t".join, vocabulary.retired.items()))
    arrays = {"cells": vocabulary.cells, "medians": vocabulary.medians}
    for name, values in lines.items():
        arrays[name] = np.frombuffer("\n".join(values).encode(), np.uint8)
    return {f"{PREFIX}{name}": torch.tensor(array) for name, array in arrays.items()}


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]:
    """Return the metadata of a model file, its weights, and the tensors of its vocabulary.

    The tensors are memory-mapped, so only tensors that the caller uses are read from the disk.
    """
    with safe_open(path, framework="pt") as handle:
        metadata = json.loads((handle.metadata() or {})[METADATA_KEY])
        tensors = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
    vocabulary = {name: tensors.pop(name) for name in list(tensors) if name.startswith(PREFIX)}
    return metadata, tensors, vocabulary


def load_vocabulary(path: str | Path) -> Vocabulary:
    """Read the vocabulary of a finished model. Raise UserError if it is missing or damaged."""
    try:
        metadata, _, tensors = read(path)
        if not tensors:
            raise UserError(f"{path}: does not contain a vocabulary; train the model again")
        arrays = {name.removeprefix(PREFIX): tensor.numpy() for name, tensor in tensors.items()}

        def lines(name: str) -> tuple[str, ...]:
            return tuple(arrays[name].tobytes().decode().split("\n"))

        retired = lines("retired") if "retired" in arrays else ()
        vocabulary = Vocabulary(
            lines("gene_ids"),
            lines("names"),
            arrays["cells"],
            arrays["medians"],
            dict(line.split("\t") for line in retired),
        )
        if vocabulary.fingerprint != metadata["vocabulary"]:
            raise ValueError("its fingerprint differs")
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise UserError(
            f"{path}: its vocabulary is damaged ({error}); copy the model again"
        ) from error
    return vocabulary


def checksum(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the weights, and of the metadata without a checksum."""
    header = {name: value for name, value in metadata.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        if name.startswith(PREFIX):  # The metadata contain the fingerprint of the vocabulary.
            continue
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def settings_of(
    metadata: Mapping[str, Any], weights: Mapping[str, Tensor], backend: str
) -> EncoderSettings:
    """Return a model's settings with ``backend``. Raise ValueError unless they fit the weights."""
    if not {"model", "vocabulary"} <= metadata.keys():
        raise ValueError("its header does not name a model and a vocabulary")
    if not FILE_NAME.fullmatch(metadata["model"]):  # The name becomes part of keys and paths.
        raise ValueError(f"its header names the model {metadata['model']!r}")
    variants = tuple(metadata["variants"])
    values = {**metadata, **metadata["size"], "variants": variants, "backend": backend}
    names = [field.name for field in fields(EncoderSettings) if field.name in values]
    settings = EncoderSettings(**{name: values[name] for name in names})
    for name in ("context", "layers", "hidden", "heads", "feed_forward", "vocabulary_size"):
        if type(size := getattr(settings, name)) is not int or size < 1:
            raise ValueError(f"{name} is {size!r} in its header, expected a whole number above 0")
    if settings.hidden % settings.heads:
        raise ValueError(f"hidden {settings.hidden} is not a multiple of heads {settings.heads}")
    layers = {match[1] for name in weights if (match := BLOCK.match(name))}
    if settings.layers != len(layers):
        raise ValueError(f"{settings.layers} layers in its header, {len(layers)} in its tensors")
    # A damaged header may contain sizes that do not fit in memory.
    with torch.device("meta"), Uninitialized():
        encoder = encoder_for(settings, weights)
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    expected = {name: tuple(tensor.shape) for name, tensor in encoder.state_dict().items()}
    if shapes != expected:
        name, _ = min(shapes.items() ^ expected.items())  # the first tensor that differs
        raise ValueError(
            f"tensor {name} has shape {shapes.get(name)}, expected {expected.get(name)}"
        )
    return settings


class Uninitialized(TorchFunctionMode):
    """Skip the initialization of parameters. On the device meta it would import TorchDynamo."""

    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if getattr(function, "__module__", "") == "torch.nn.init":
            return None
        return function(*args, **(kwargs or {}))


def encoder_for(settings: EncoderSettings, weights: Mapping[str, Tensor]) -> Encoder:
    """Return an encoder, without the output layer if ``weights`` do not contain the layer."""
    encoder = Encoder(settings)
    if not any(name.startswith(OUTPUT) for name in weights):
        del encoder.output
    return encoder


def load_encoder(
    path: str | Path, device: str | torch.device = "cpu", backend: str = "auto"
) -> tuple[Encoder, dict[str, Any]]:
    """Load a trained encoder from ``model.safetensors`` in evaluation mode, and its metadata.

    The metadata are ``model``, ``attention``, ``context``, ``cls_token``, ``size``, ``vocabulary``
    (fingerprint), ``vocabulary_size``, ``step``, ``seed``, ``training`` and the encoder's other
    settings. An encoder from a file of :func:`shrink` does not have the layer ``output``.
    """
    path = Path(path)
    if path.is_dir() or path.suffix == ".pt":
        kind = "a folder" if path.is_dir() else "a checkpoint for resuming training"
        # A checkpoint is in a subfolder of its model's folder.
        models = [folder / MODEL for folder in (path, *path.parents[:2])]
        model = next((model for model in models if model.is_file()), MODEL)
        raise UserError(f"{path}: {kind}, not a finished model; use {model}")
    if not path.is_file():
        raise UserError(
            f"{path}: no such model; train it first, or use blood, the model in the package"
        )
    try:
        metadata, weights, _ = read(path)
        if metadata.get("version") != VERSION:
            raise UserError(
                f"{path}: written by another version of scsigmoid; train the model again"
            )
        settings = settings_of(metadata, weights, backend)
        if metadata["sha256"] != checksum(metadata, weights):
            raise ValueError("its checksum differs")
        with torch.device("meta"), Uninitialized():  # the weights replace all parameters
            encoder = encoder_for(settings, weights)
        encoder.load_state_dict({name: w.float() for name, w in weights.items()}, assign=True)
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise UserError(
            f"{path}: damaged, or not a model of this project ({reason}); give a {MODEL} that "
            "training wrote, or train it again"
        ) from error
    return encoder.to(device).eval(), metadata
