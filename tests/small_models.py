"""Files of small untrained models, and their embeddings with one forward pass per cell."""

from pathlib import Path

import numpy as np
import torch
from small_training import TRAINING

from scsigmoid.config.schema import Architecture, Size
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.weights import load_encoder, save_encoder
from scsigmoid.tokens.vocabulary import SPECIAL, Vocabulary
from scsigmoid.training.run import TrainingRun

VOCABULARY_SIZE = 40
GENES = tuple(f"ENSG{gene:011d}" for gene in range(VOCABULARY_SIZE - len(SPECIAL)))
TOY = Vocabulary(
    (*SPECIAL, *GENES), (*SPECIAL, *GENES), np.ones(VOCABULARY_SIZE, int), np.ones(VOCABULARY_SIZE)
)
CONTEXT = 16


def one_by_one(checkpoint, cells):
    """Embed cells (lists of gene tokens) with one forward pass per cell."""
    encoder, metadata = load_encoder(checkpoint)
    cls = [2] if metadata["cls_token"] else []
    rows = []
    for genes in cells:
        tokens = torch.tensor([*cls, *genes[: metadata["context"] - len(cls)]], dtype=torch.int64)
        cu_seqlens = torch.tensor([0, len(tokens)], dtype=torch.int32)
        with torch.no_grad():
            hidden = encoder(tokens, torch.arange(len(tokens)), cu_seqlens, len(tokens)).double()
        rows.append(hidden[len(cls) :].mean(0))
    return torch.stack(rows).numpy()


def write_model(
    folder: Path, attention: str, vocabulary: Vocabulary = TOY, cls_token: bool = True
) -> Path:
    """Write an untrained model to a folder with its name in ``folder``. Return its path."""
    run = TrainingRun(
        model=f"{attention}_toy", attention=attention, context=CONTEXT, cls_token=cls_token,
        backend="reference" if attention == "sigmoid" else "auto",
        size=Size(layers=2, hidden=16, heads=2, feed_forward=32),
        architecture=Architecture(
            size="toy", dropout=0.1, layer_norm_epsilon=1e-5, initializer_range=0.5
        ),
        training=TRAINING, seed=1, device="cpu",
    )  # fmt: skip
    encoder = Encoder(run.encoder_settings(VOCABULARY_SIZE)).initialize(run.seed)
    path = folder / run.model / "model.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_encoder(encoder, run.origin(0), vocabulary, path)
    return path
