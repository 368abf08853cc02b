"""Sigmoid, softmax and Jacobians in float64, for the checks of the theory."""

from collections.abc import Callable

import numpy as np

Array = np.ndarray


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), 1 - 1 / (1 + np.exp(-np.abs(x))))


def softmax(x: Array) -> Array:
    """Softmax of the last axis."""
    exponential = np.exp(x - x.max(-1, keepdims=True))
    return exponential / exponential.sum(-1, keepdims=True)


def softmax_jacobian(scores: Array) -> Array:
    """diag(p) - p p' of one row of scores."""
    p = softmax(scores)
    return np.diag(p) - np.outer(p, p)


def jacobian(function: Callable[[Array], Array], x: Array) -> Array:
    """Central differences: (outputs, inputs) of a function of an array."""
    step = 1e-5
    columns = []
    for index in range(x.size):
        shift = np.zeros(x.size)
        shift[index] = step
        change = shift.reshape(x.shape)
        columns.append((function(x + change) - function(x - change)).ravel() / (2 * step))
    return np.stack(columns, axis=1)


def norm(matrix: Array) -> float:
    """Spectral norm."""
    return float(np.linalg.norm(matrix, 2))
