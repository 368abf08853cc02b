"""Embeddings of genes: the rows of a model's token embedding."""

import numpy as np
import pandas as pd

from scsigmoid.cells.model import Model, check_model
from scsigmoid.tokens.vocabulary import SPECIAL


def gene_embeddings(model: Model) -> pd.DataFrame:
    """Return the embeddings of the genes that are tokens: the weights of the model's first layer.

    They do not depend on a cell. The embedding of a gene that few training cells express is close
    to its random initial value (``model.vocabulary.cells`` counts the cells).

    Args:
        model: from :func:`load`.

    Returns:
        Genes x hidden, float32. The index has the levels ``gene_id`` (Ensembl id, or the name of a
        gene without an id) and ``name``. Select a gene with ``frame.loc["ENSG00000167286"]`` or
        ``frame.xs("CD3D", level="name")``.

    Raises:
        UserError: if ``model`` is not a loaded model.
    """
    check_model(model)
    weights = model.encoder.token_embedding.weight.detach().cpu().numpy()
    vocabulary = model.vocabulary
    columns = [vocabulary.gene_ids[len(SPECIAL) :], vocabulary.names[len(SPECIAL) :]]
    genes = pd.MultiIndex.from_arrays([*map(list, columns)], names=["gene_id", "name"])
    return pd.DataFrame(np.array(weights[len(SPECIAL) :], np.float32), index=genes)
