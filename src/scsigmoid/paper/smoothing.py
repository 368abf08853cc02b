"""Smoothing of training journals, for curves and for verdicts on them."""

import numpy as np

#: Share of the rows that a window spans.
WINDOW = 0.05
#: That of a trailing window: short, so that an explosion at the very end of a run shows.
RECENT = 0.01


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


def trailing_median(values: np.ndarray, share: float = RECENT) -> np.ndarray:
    """Median over the window that ends at each row; what is not finite counts as infinitely large.

    Args:
        values: one value a logging step.
        share: share of all rows that the window spans; at least three rows.
    """
    rows = max(3, int(len(values) * share))
    whole = np.where(np.isfinite(values), values, np.inf)
    return np.array(
        [np.median(whole[max(0, end - rows) : end]) for end in range(1, len(values) + 1)]
    )
