"""A trained model and its vocabulary."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scsigmoid.config.initial import initial_path
from scsigmoid.errors import UserError
from scsigmoid.model.devices import check_backend, own_defaults, resolve_device
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.weights import MODEL, load_encoder, load_vocabulary
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary


@dataclass(frozen=True)
class Model:
    """A trained encoder and its vocabulary, returned by :func:`load`.

    Attributes:
        path: ``model.safetensors``.
        encoder: the :class:`torch.nn.Module`, in evaluation mode.
        vocabulary: gene ids, names and medians of the tokens.
        metadata: ``model``, ``attention``, ``context``, ``size``, ``training``, ``step``, ``seed``
            and the encoder's other settings.
    """

    path: Path
    encoder: Encoder
    vocabulary: Vocabulary
    metadata: dict[str, Any]

    @property
    def name(self) -> str:
        """The model's name, such as ``sigmoid_2k``."""
        return str(self.metadata["model"])

    def __repr__(self) -> str:
        weights = list(self.encoder.parameters())
        return (
            f"Model({self.name}: {self.metadata['attention']} attention, context "
            f"{self.metadata['context']:,}, {sum(w.numel() for w in weights) / 1e6:.1f}M "
            f"parameters, {self.vocabulary.size - len(SPECIAL):,} genes, {weights[0].device})"
        )


def check_model(model: object) -> None:
    """Raise a UserError if an argument is not a :class:`Model`."""
    if not isinstance(model, Model):
        raise UserError(
            f"model: expected the result of load(...), found {type(model).__name__}; load the model"
        )


def check_device(device: torch.device) -> None:
    """Raise a UserError if PyTorch cannot compute on a device. GPUs are already checked."""
    try:
        if device.type != "cuda":
            torch.zeros(1, device=device).item()  # a tensor on "meta" has no values
    except Exception:  # of many types
        raise UserError(
            f"device: {str(device)!r} is not available in PyTorch here; set it to auto, cpu or cuda"
        ) from None


@own_defaults()
def load(path: str | Path, *, device: str = "auto", backend: str = "auto") -> Model:
    """Load a trained model.

    Args:
        path: ``model.safetensors``, its folder, or ``"blood"`` for the packaged small model of
            human blood cells (docs/evaluation.md). If you have a folder of this name, use
            ``"./blood"``.
        device: ``auto`` (a GPU if there is one), ``cpu`` or ``cuda``.
        backend: attention backend. ``auto`` selects the fastest.

    Raises:
        UserError: if the file is missing or damaged, or if the device is missing or cannot run the
            backend.
    """
    if not isinstance(path, (str, Path)):
        raise UserError(
            f"path: expected a path or a name, found {type(path).__name__}; give the path of "
            f"{MODEL}"
        )
    path = initial_path(path) if isinstance(path, str) else path.expanduser()
    if (path / MODEL).is_file():
        path = path / MODEL
    torch_device = resolve_device(device)
    check_device(torch_device)
    encoder, metadata = load_encoder(path, torch_device, backend)
    if backend != "auto":
        # Raises an error now, not in the first forward pass, if the device cannot run the backend.
        check_backend(encoder.settings, next(encoder.parameters()).device)
    return Model(path, encoder, load_vocabulary(path), metadata)
