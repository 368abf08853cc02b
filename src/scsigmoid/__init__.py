"""scsigmoid: sigmoid attention for single-cell foundation models, as a reproducible experiment.

The kernels need only PyTorch and Triton:

    from scsigmoid.attention import sigmoid_attention

With the packages of ``scsigmoid[cells]``:

    import scsigmoid as ss
    model = ss.load("results/demo/training/sigmoid_128")
    ss.embed(adata, model)  # adata.obsm["X_scsigmoid"]

docs/architecture.md describes the subpackages.
"""

from typing import TYPE_CHECKING, Any

from scsigmoid.version import __version__ as __version__

if TYPE_CHECKING:
    from scsigmoid.cells import Model, annotate, embed, gene_embeddings, load, tokenize

__all__ = ["Model", "annotate", "embed", "gene_embeddings", "load", "tokenize"]


def __getattr__(name: str) -> Any:
    """Import torch and anndata when first needed, so that the command line starts quickly.

    Raise ModuleNotFoundError, in one line, if only the kernels are installed.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from scsigmoid import cells
    except ModuleNotFoundError as error:
        problem = f"Python module {error.name} is missing; install scsigmoid[cells] to use {name}"
        raise ModuleNotFoundError(problem, name=error.name) from None
    return getattr(cells, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
