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
        cells x components, float32; computed in float64 from the eigenvectors of the covariance,
        exactly and without drawing anything.

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
    # centred first, because the covariance is computed from the products' sums
    pca = PCA(variance, svd_solver="covariance_eigh", copy=False)
    return pca.fit_transform(values - values.mean(axis=0)).astype(np.float32)
