"""The Python interface: load a trained model, tokenize, embed and annotate your own cells."""

from scsigmoid.cells.annotation import annotate
from scsigmoid.cells.embedding import embed, tokenize
from scsigmoid.cells.genes import gene_embeddings
from scsigmoid.cells.model import Model, load

__all__ = ["Model", "annotate", "embed", "gene_embeddings", "load", "tokenize"]
