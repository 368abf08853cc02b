"""scsigmoid: sigmoid attention for single-cell foundation models, as a reproducible experiment.

The kernels need only PyTorch and Triton:

    from scsigmoid.attention import sigmoid_attention

With the packages of ``scsigmoid[cells]``:

    import scsigmoid as ss
    model = ss.load("results/demo/training/sigmoid_128")
    ss.embed(adata, model)  # adata.obsm["X_scsigmoid"]

docs/architecture.md describes the subpackages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scsigmoid.version import __version__ as __version__

if TYPE_CHECKING:
    from scsigmoid.cells.annotation import annotate
    from scsigmoid.cells.embedding import embed, tokenize
    from scsigmoid.cells.genes import gene_embeddings
    from scsigmoid.cells.model import Model, load

__all__ = ["Model", "annotate", "embed", "gene_embeddings", "load", "tokenize"]
#: Module of each name in :mod:`scsigmoid.cells`.
_MODULES = {
    "Model": "model",
    "annotate": "annotation",
    "embed": "embedding",
    "gene_embeddings": "genes",
    "load": "model",
    "tokenize": "embedding",
}


def __getattr__(name: str) -> Any:
    """Import the module of a name when it is first used, so that the command line starts quickly.

    Raise ModuleNotFoundError, in one line, if only the kernels are installed.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"scsigmoid.cells.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        problem = f"Python module {error.name} is missing; install scsigmoid[cells] to use {name}"
        raise ModuleNotFoundError(problem, name=error.name) from None
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
