"""The Python interface: load a trained model, tokenize and embed your own cells."""

from scsigmoid.cells.embedding import embed, tokenize
from scsigmoid.cells.model import Model, load

__all__ = ["Model", "embed", "load", "tokenize"]
