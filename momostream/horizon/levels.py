"""How much wider or narrower forecasts are at each level of a series: little wind is steadier than much.

Errors of sensors often depend on the level: counts vary with their size, power is steady at zero and at its rated
value. `LevelScale` learns a factor of the deviation at each of a few quantiles of a series, from the errors of
forecasts that lay there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.horizon.past import Past
from momostream.kernels.forecasts import level_log_factors
from momostream.kernels.horizon import level_factors, level_learn

__all__ = ["N_SAMPLE", "LevelScale"]

Array = NDArray[np.float64]

# Quantiles of a series at which a factor is learnt, and rows after which they are found again.
N_KNOTS, EVERY_ROWS = 9, 64
# Rows that quantiles are taken from, and the widest distance between two of them.
N_SAMPLE, MOST_APART = 64, 16
# Rows that errors are remembered for, rows that the prior (no difference) is worth, largest square that counts.
MEMORY, PRIOR_ROWS, LARGEST_SQUARE = 1500.0, 20.0, 25.0
# Factors stay within these.
LEAST, MOST = 0.05, 10.0


class LevelScale:
    """Factors of the deviations of forecasts, by the level that is forecast.

    Parameters
    ----------
    horizon, n_series
        Sizes.
    every
        Errors of a step come every this many rows.

    Attributes
    ----------
    knots
        Quantiles of each series, increasing, shape ``(n_series, n_knots)``; NaN until enough rows have come.
    sums
        Discounted squares of errors relative to the usual ones, and their number, shape ``(2, n_series, n_knots)``.
    sample
        Rows spread over the past, from which the quantiles are taken.
    """

    def __init__(self, horizon: int, n_series: int, every: int = 1) -> None:
        self.knots = np.full((n_series, N_KNOTS), np.nan)
        self.sums = np.zeros((2, n_series, N_KNOTS))
        self.log_factors = np.zeros((n_series, N_KNOTS))
        self.sample, self.apart = np.zeros((0, n_series)), 1
        self._forgetting = 1.0 - every / MEMORY
        self._factors = np.ones((horizon, n_series))

    def factors(self, location: Array) -> Array:
        """Factors ``(horizon, n_series)`` of forecasts at ``location``; written over at the next call."""
        if self._is_ready:
            level_factors(location, self.knots, self.log_factors, self._factors)
        return self._factors

    def learn(self, location: Array, errors: Array, usual: Array) -> None:
        """Learn from errors of forecasts at ``location``, whose squares at a factor of 1 are ``usual``."""
        if not self._is_ready:
            return
        level_learn(self._forgetting, LARGEST_SQUARE, location, errors, usual, self.knots, self.sums)
        level_log_factors(PRIOR_ROWS, LEAST, MOST, self.sums, self.log_factors)

    @property
    def _is_ready(self) -> bool:
        return bool(self.knots.size and self.knots[0, 0] == self.knots[0, 0])

    def look(self, past: Past) -> None:
        """Take the newest row into the sample, if it is its turn, and find the quantiles from time to time."""
        if past.n_rows % self.apart == 0:
            if len(self.sample) == N_SAMPLE:
                # The further back the sample reaches, the farther its rows are apart.
                thinned = 2 if self.apart < MOST_APART else 1
                self.sample, self.apart = self.sample[1::thinned], self.apart * thinned
            self.sample = np.concatenate([self.sample, past.values[None]])
        if past.n_rows % EVERY_ROWS:
            return
        knots = np.quantile(self.sample, np.linspace(0.0, 1.0, N_KNOTS), axis=0).T
        # Values that come often are several quantiles.
        size = np.maximum(knots[:, -1:] - knots[:, :1], 1e-9 * np.abs(knots[:, :1]) + 1e-100)
        self.knots = np.ascontiguousarray(knots + 1e-3 * size * np.arange(N_KNOTS))

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return self.knots.nbytes + self.sums.nbytes + self.log_factors.nbytes + self.sample.nbytes

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "knots": self.knots.copy(), "sums": self.sums.copy(), "log_factors": self.log_factors.copy(),
            "sample": self.sample.copy(), "apart": self.apart,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`."""
        self.knots, self.sums = state["knots"].copy(), state["sums"].copy()
        self.log_factors = state["log_factors"].copy()
        self.sample, self.apart = state["sample"].copy(), state["apart"]
