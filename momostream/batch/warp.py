"""Monotone warps of the covariates towards a normal distribution.

Sensors often have skewed readings: most rows sit in a corner of the range and a few far out, so one lengthscale cannot
serve both. A warped expert sees each covariate through its own quantiles and thereby does not change when a
covariate is replaced by any increasing function of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

__all__ = ["Warp"]

Array = NDArray[np.float64]

N_KNOTS = 129
# Normal scores beyond the knots, at most; values below which numbers count as zero.
FARTHEST, LEAST = 1e6, 1e-280


@dataclass(frozen=True)
class Warp:
    """Piecewise linear map from each covariate to normal scores.

    Parameters
    ----------
    knots, scores
        One pair of increasing arrays per covariate. Beyond the outermost knots the map is a straight line.

    Examples
    --------
    >>> x = np.exp(np.random.default_rng(0).normal(size=(500, 1)))
    >>> z = Warp.fit(x)(x)
    >>> print(round(float(z.mean()), 1), round(float(z.std()), 1))
    -0.0 1.0
    """

    knots: tuple[Array, ...]
    scores: tuple[Array, ...]

    @classmethod
    def fit(cls, X: Array) -> Warp:
        """Take the knots from the quantiles of the rows ``X``, shape ``(n_rows, n_inputs)``."""
        n_rows = len(X)
        # The outermost knots are the smallest and largest row; the rest are evenly spaced in normal scores.
        edge = -ndtri(0.5 / max(n_rows, 1)) if n_rows > 1 else 0.0
        grid = np.linspace(-edge, edge, N_KNOTS)
        level = ndtr(grid)
        knots, scores = [], []
        for column in X.T:
            # Slopes between numbers that are next to nothing would be infinite.
            ordered = np.sort(np.where(np.abs(column) < LEAST, 0.0, column))
            positions = np.clip(level * n_rows - 0.5, 0, n_rows - 1)
            values = np.interp(positions, np.arange(n_rows), ordered)
            # Ties: one knot per distinct value, at the mean of its scores.
            distinct, inverse = np.unique(values, return_inverse=True)
            mean_score = np.bincount(inverse, weights=grid) / np.bincount(inverse)
            knots.append(distinct)
            scores.append(mean_score)
        return cls(tuple(knots), tuple(scores))

    def __call__(self, X: Array) -> Array:
        """Warp the rows ``X``, shape ``(n_rows, n_inputs)``; NaN stays NaN."""
        out = np.empty_like(X)
        for j, (knots, scores) in enumerate(zip(self.knots, self.scores, strict=True)):
            out[:, j] = interpolate(X[:, j], knots, scores)
        return out

    def unwarp(self, column: int, scores: Array) -> Array:
        """Values of one covariate that have these normal scores (within the range of the knots)."""
        return np.interp(scores, self.scores[column], self.knots[column])


def interpolate(x: Array, knots: Array, scores: Array) -> Array:
    """Piecewise linear interpolation, continued beyond the ends with the mean slope of the outer tenth."""
    if len(knots) < 2:
        # A constant covariate has no scale; only a sign is left.
        return np.sign(x - knots[0])
    y = np.interp(x, knots, scores)
    reach = max(1, len(knots) // 10)
    for outside, end, inner in ((x < knots[0], 0, reach), (x > knots[-1], -1, -1 - reach)):
        slope = (scores[end] - scores[inner]) / (knots[end] - knots[inner])
        with np.errstate(over="ignore"):
            y[outside] = np.clip(scores[end] + slope * (x[outside] - knots[end]), -FARTHEST, FARTHEST)
    return y
