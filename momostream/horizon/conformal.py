"""Quantiles that cover as they should even if the distribution is wrong: adaptive conformal inference on normal scores.

A value has the normal score z under the distribution that was forecast for it, so that z is standard normal if the
distributions are right. If they are not, the quantile of probability tau lies at another score than that of the
normal distribution. `Conformal` tracks it: after each value the score goes up a little if the value was above it, and
down if it was below, in proportions that balance when a share tau of the values lies below [1]_. That holds for any
sequence of values.

A value is compared with the score *as it was when the value was forecast*. Errors of forecasts h steps ahead
are correlated over h rows; compared with the newest score, which has seen most of them, they would look too good.

References
----------
.. [1] Gibbs and Candès, "Adaptive Conformal Inference Under Distribution Shift", NeurIPS 2021.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

__all__ = ["Conformal", "Snapshot"]

Array = NDArray[np.float64]

# Tracked probabilities, symmetric, and their normal scores.
LEVELS = np.array([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995])
NORMAL = ndtri(LEVELS)

# How far a value moves the median one step ahead. Larger steps follow changes sooner and make rougher intervals.
GAMMA = 0.05
# Steps are larger in the tails, by this power of how much thinner the normal density is there: few values are seen.
TAIL_POWER = 0.75
# They are smaller for forecasts far ahead, by this power of the steps: neighbouring rows say much the same.
HORIZON_POWER = -0.5


class Snapshot(NamedTuple):
    """Scores of quantiles at one time, shape ``(horizon, n_levels, n_series)``, in order of the levels."""

    tracked: Array

    def scores(self, q: float) -> Array:
        """Normal score of the quantile of probability ``q``, shape ``(horizon, n_series)``.

        Linear between the tracked levels, and beyond them as far from the outermost as a normal score; it grows with
        ``q``.
        """
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"q={q!r} is not accepted: use a probability from 0 to 1")
        wanted = ndtri(q)
        nearest = np.clip(wanted, NORMAL[0], NORMAL[-1])
        above = int(np.clip(np.searchsorted(NORMAL, nearest), 1, len(NORMAL) - 1))
        share = (nearest - NORMAL[above - 1]) / (NORMAL[above] - NORMAL[above - 1])
        inside = (1.0 - share) * self.tracked[:, above - 1] + share * self.tracked[:, above]
        return np.asarray(inside + (wanted - nearest))


class Conformal:
    """Scores of quantiles for each step and series, learnt row by row.

    Parameters
    ----------
    horizon, n_series
        Shape of a forecast. Memory is in proportion to ``horizon**2 * n_series``: scores are kept until the last
        value of their row has come.

    Examples
    --------
    Distributions that are too narrow by half: the 5 % quantile moves outwards.

    >>> rng = np.random.default_rng(0)
    >>> conformal = Conformal(horizon=1, n_series=1)
    >>> conformal.scores(0.05).round(2)
    array([[-1.64]])
    >>> for _ in range(2000):
    ...     conformal.learn(2.0 * rng.normal(size=(1, 1)))
    >>> bool(-4.0 < conformal.scores(0.05)[0, 0] < -2.6)
    True
    """

    def __init__(self, horizon: int, n_series: int) -> None:
        # The scores after each of the newest rows, by number of the row: shape (row, step, level, series).
        self.tracked = np.empty((horizon, horizon, len(LEVELS), n_series))
        self.tracked[:] = NORMAL[:, None]
        self.n_rows = 0
        self._ahead = np.arange(1, horizon + 1)
        thinner = np.exp(0.5 * NORMAL**2)
        self._gamma = GAMMA * self._ahead[:, None, None] ** HORIZON_POWER * thinner[:, None] ** TAIL_POWER

    def learn(self, scores: Array) -> None:
        """Learn normal scores ``(horizon, n_series)`` of the newest row under its forecasts of 1, 2, ... rows ago.

        To be called once per row; NaN is not known.
        """
        horizon = len(self.tracked)
        newest = self.tracked[(self.n_rows - 1) % horizon]
        then = self.tracked[(self.n_rows - self._ahead) % horizon, self._ahead - 1]
        z = scores[:, None]
        push = self._gamma * (LEVELS[:, None] - (z <= then))
        self.tracked[self.n_rows % horizon] = newest + np.where(np.isnan(z), 0.0, push)
        self.n_rows += 1

    def scores(self, q: float) -> Array:
        """Normal score of the quantile of probability ``q`` of the next steps; see `Snapshot.scores`."""
        return self.snapshot().scores(q)

    def snapshot(self) -> Snapshot:
        """The scores of now, which stay as they are when more rows are learnt."""
        return Snapshot(np.sort(self.tracked[(self.n_rows - 1) % len(self.tracked)], axis=1))

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return self.tracked.nbytes

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {"tracked": self.tracked.copy(), "n_rows": self.n_rows}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`."""
        self.tracked, self.n_rows = state["tracked"].copy(), state["n_rows"]
