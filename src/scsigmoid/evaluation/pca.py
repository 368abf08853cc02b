"""The PCA that scIB metrics and UMAP start from."""

import numpy as np
from numpy.typing import NDArray

from scsigmoid.errors import UserError


def principal_components(
    values: NDArray[np.floating], variance: float, name: str = "embedding"
) -> NDArray[np.float32]:
    """Coordinates on the first principal components that together keep ``variance``.

    Args:
        values: cells x dimensions.
        variance: share of the variance, between 0 and 1 (the paper: 0.95).
        name: what the values are, for messages.

    Returns:
        cells x components, float32; computed in float64 by a full singular value decomposition,
        which, unlike the randomised one, draws nothing.

    Raises:
        UserError: if the values do not vary.
    """
    from sklearn.decomposition import PCA

    values = np.asarray(values, dtype=np.float64)
    if len(values) < 2 or not (values != values[0]).any():
        raise UserError(
            f"{name}: all {len(values)} cells have the same values, so there is nothing to "
            "compare; check the model's training"
        )
    return PCA(variance, svd_solver="full").fit_transform(values).astype(np.float32)
