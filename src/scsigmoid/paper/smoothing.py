"""Smoothing of training journals, for curves and for verdicts on them."""

import numpy as np

#: Share of the rows that a window spans.
WINDOW = 0.05


def moving_mean(values: np.ndarray, share: float = WINDOW) -> np.ndarray:
    """Mean over a centred window that narrows at both ends.

    Args:
        values: one value a logging step.
        share: share of all rows that the window spans.

    Returns:
        As many values; not finite where the window holds a value that is not.
    """
    half = int(len(values) * share / 2)
    return np.array(
        [
            values[max(0, place - width) : place + width + 1].mean()
            for place in range(len(values))
            for width in [min(half, place, len(values) - 1 - place)]
        ]
    )


def moving_median(values: np.ndarray, share: float = WINDOW) -> np.ndarray:
    """Median over a centred window; values that are not finite count as infinitely large."""
    half = max(1, int(len(values) * share / 2))
    whole = np.where(np.isfinite(values), values, np.inf)
    return np.array(
        [np.median(whole[max(0, place - half) : place + half + 1]) for place in range(len(values))]
    )
