"""Units of targets, and correlations that are proper."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from momostream._numbers import SMALLEST

__all__ = ["nearest_correlation", "standardisation"]

Array = NDArray[np.float64]

# A target that does not vary gets this fraction of its size as scale: it may move one day.
CONSTANT_SCALE = 1e-3


def standardisation(Y: Array) -> tuple[Array, Array]:
    """Offset and scale of each target from its observed rows; never zero, never NaN."""
    total, n = Y.sum(axis=0), len(Y)
    # A sum is the cheapest way to find a NaN; what follows has the bits of the other way.
    is_complete = n > 0 and not math.isnan(total.sum())
    if is_complete:
        offset = total / n
        scale = np.sqrt(((Y - offset) ** 2).sum(axis=0) / n)
    else:
        count = (~np.isnan(Y)).sum(axis=0)
        offset = np.where(count > 0, np.nansum(Y, axis=0) / np.maximum(count, 1), 0.0)
        scale = np.sqrt(np.nansum((Y - offset) ** 2, axis=0) / np.maximum(count, 1))
    size = np.abs(offset)
    # Round-off of a large constant is not variation.
    constant = scale <= 1e-13 * size
    if constant.any():
        # A constant of nothing, or so near to it that its share is not a number, has no size.
        scale[constant] = CONSTANT_SCALE * np.where(size > SMALLEST, size, 1.0)[constant]
    if not is_complete:
        scale[count == 0] = 1.0
    return offset, scale


def nearest_correlation(matrix: Array, least: float = 1e-6) -> Array:
    """Symmetric matrix with unit diagonal and eigenvalues of at least about ``least``."""
    matrix = 0.5 * (matrix + matrix.T)
    np.fill_diagonal(matrix, 1.0)
    values, vectors = np.linalg.eigh(matrix)
    if values[0] < least:
        matrix = (vectors * np.maximum(values, least)) @ vectors.T
        size = np.sqrt(np.diag(matrix))
        matrix /= np.outer(size, size)
    return matrix
