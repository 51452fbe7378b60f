"""The forecast of least squared error.

The blend is made for squared errors, the mixture around it for the whole distribution. Part of the mixture follows the
other blend, of absolute errors, and lies at the last value while a series is at rest. Its mean is the mean of two or
three forecasts, which often errs less than one, and errs more where a series that rests is bound to move. `Means`
learns how far to go from the one to the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.kernels.forecasts import means_between, means_learn

__all__ = ["Means"]

Array = NDArray[np.float64]

# Memory in forecasts; rows that the first guess is worth, and the guess: how far to go from mixture to blend.
MEMORY, GUESSED_ROWS, GUESS = 1000.0, 50.0, 0.5


class Means:
    """Means between those of mixtures and blend: as far for all steps and series that move, and for all at rest.

    Parameters
    ----------
    horizon, n_series
        Shape of a forecast.
    every
        Values of a step come every so many rows.

    Attributes
    ----------
    moments
        Discounted squares of the way from the mean of the mixture to the blend, its products with the errors of the
        mixture, and rows, ``(2, 3)``; series that move come first.
    """

    def __init__(self, horizon: int, n_series: int, every: int = 1) -> None:
        self.moments = np.zeros((2, 3))
        self._shape, self._keep = (horizon, n_series), 1.0 - every / (MEMORY + every)

    def learn(self, values: Array, planes: Array, rests: Array, variances: Array) -> None:
        """Learn values ``(horizon, n_series)``, NaN where not known, of forecasts with these planes and rests.

        ``variances`` are those of the values of each step and series so far, ``(horizon * n_series,)``.
        """
        means_learn(self._keep, values, planes, rests, variances, self.moments)

    def between(self, planes: Array, rests: Array) -> Array:
        """Means ``(horizon, n_series)`` of a forecast, whose series are at rest or not, ``(n_series,)``."""
        means = np.empty(self._shape)
        means_between(GUESSED_ROWS, GUESS, planes, rests, self.moments, means)
        return means

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return self.moments.nbytes

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {"moments": self.moments.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`."""
        self.moments = state["moments"].copy()
