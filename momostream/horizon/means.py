"""The forecast of least squared error.

The blend is made for squared errors, the mixture around it for the whole distribution: part of the mixture follows a
second blend, of least absolute error, and lies at the last value while a series is at rest. The mean of the mixture is
thus an average of several forecasts, which often errs less than the best of them; but for a series that rests and is
bound to move, it stays too near to the last value. `Means` learns the weight of the blend beside that mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.kernels.forecasts import means_between, means_learn

__all__ = ["Means"]

Array = NDArray[np.float64]

# Memory in forecasts; the first guess of the weight of the blend, and how many forecasts it is worth.
MEMORY, GUESS, N_GUESSED = 1000.0, 0.5, 50.0


class Means:
    """Means between those of mixtures and the blend: one weight for all series that move, one for all at rest.

    Parameters
    ----------
    horizon, n_series
        Shape of a forecast.

    Attributes
    ----------
    moments
        Discounted squares of the distance from the mean of the mixture to the blend, its products with the errors of
        that mean, and numbers of forecasts, ``(2, 3)``; series that move come first.
    """

    def __init__(self, horizon: int, n_series: int) -> None:
        self._shape, self.moments = (horizon, n_series), np.zeros((2, 3))

    def learn(self, values: Array, planes: Array, rests: Array) -> None:
        """Learn values ``(horizon, n_series)``, NaN where not known, of forecasts with these planes and rests."""
        means_learn(1.0 - 1.0 / MEMORY, values, planes, rests, self.moments)

    def between(self, planes: Array, rests: Array) -> Array:
        """Means ``(horizon, n_series)`` of a forecast, whose series are at rest or not, ``(n_series,)``."""
        means = np.empty(self._shape)
        means_between(N_GUESSED, GUESS, planes, rests, self.moments, means)
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
