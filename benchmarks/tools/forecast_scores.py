"""Scores of forecasts, recorded while they were made.

A forecast is a distribution for each of (H steps) x (P series). RMSE is the mean over steps and series of each one's
root mean square error; pooled, it is the mean over series of the root of the mean square over all steps, which weighs
the far steps more. MASE is the mean over series of each one's absolute error in units of that of its last value one
step ahead. All other scores are means over values. NLPD is that of single values, not joint. Coverage is that of
`benchmarks.tools.stream_scores`. Missing values are not scored.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from benchmarks.data import SCALED_BY, forward_filled
from benchmarks.tools.stream_scores import (
    coverage,
    latencies,
    randomised_pit,
    resolution,
    standard_crps,
    standard_log_pdf,
)

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

# Origins before UNSCORED are not scored. Slow rivals forecast at every STRIDE-th from there on, and all models have a
# second set of scores at these.
UNSCORED, STRIDE = 600, 5


class Multivariate(Protocol):
    """Predictive distributions of the values of one forecast, all arrays of shape (H, P)."""

    @property
    def mean(self) -> Array:
        """Mean of each value."""

    def log_pdf(self, y: Array) -> Array:
        """Log density of each value, not joint."""

    def cdf(self, y: Array) -> Array:
        """Distribution function of each value."""

    def crps(self, y: Array) -> Array:
        """Continuous ranked probability score of each value."""


class Students(NamedTuple):
    """A Student-t for each value of an array; ``width`` is the root of its scale, ``dof > 1``.

    Examples
    --------
    >>> distribution = Students(np.zeros(1), np.ones(1), np.full(1, 5.0))
    >>> [score(np.ones(1)).round(3).item() for score in (distribution.log_pdf, distribution.cdf, distribution.crps)]
    [-1.516, 0.818, 0.604]
    """

    mean: Array
    width: Array
    dof: Array

    def log_pdf(self, y: Array) -> Array:
        """Log density of each value."""
        return standard_log_pdf((y - self.mean) / self.width, self.dof) - np.log(self.width)

    def cdf(self, y: Array) -> Array:
        """Distribution function of each value."""
        return np.asarray(stdtr(self.dof, (y - self.mean) / self.width))

    def crps(self, y: Array) -> Array:
        """E|Y - y| - E|Y - Y'| / 2 in closed form."""
        return np.asarray(self.width * standard_crps((y - self.mean) / self.width, self.dof))


class Record:
    """Scores of a run: arrays (n_rows, H, P) by origin, NaN where nothing was predicted or known.

    Parameters
    ----------
    Y
        Series of shape (n_rows, P), NaN where a value is missing.
    seed
        Of the uniform draws in the probability integral transform. The same for all models of a feed.
    """

    def __init__(self, Y: Array, horizon: int, seed: int = 0) -> None:
        shape = (len(Y), horizon, Y.shape[1])
        self.Y, self.horizon = Y, horizon
        self.error, self.nlpd, self.crps, self.u = (np.full(shape, np.nan) for _ in range(4))
        self.ns = np.zeros(len(Y))
        self._half = np.array([resolution(y[~np.isnan(y)][:, None]).item() / 2.0 for y in Y.T])
        self._draws = np.random.default_rng(seed).random(shape)

    def origins(self, done: int, stride: int) -> Rows:
        """Origins that are scored when ``done`` rows were learnt.

        All that is forecast there is in the series, and something is known in the row of the origin.
        """
        origins = np.arange(UNSCORED, min(done, len(self.Y) - self.horizon), stride)
        return origins[~np.isnan(self.Y[origins]).all(axis=1)]

    def score(self, origin: int, distribution: Multivariate) -> None:
        """Keep the scores of one forecast.

        Raises
        ------
        ValueError
            If a score is NaN: left out of the means, it would hide the rows that a model fails on.
        """
        mean, truth = distribution.mean, self.Y[origin + 1 : origin + 1 + self.horizon]
        known = ~np.isnan(truth)
        y = np.where(known, truth, mean)
        u = randomised_pit(distribution, y, self._half, self._draws[origin])
        found = (y - mean, -distribution.log_pdf(y), distribution.crps(y), u)
        for kept, values in zip((self.error, self.nlpd, self.crps, self.u), found, strict=True):
            if np.isnan(values[known]).any():
                raise ValueError(f"origin {origin}: a score is NaN")
            kept[origin] = np.where(known, values, np.nan)

    def accuracy(self, origins: Rows) -> dict[str, Any]:
        """Scores over these origins.

        Examples
        --------
        >>> record = Record(np.array([[1.0], [2.0], [4.0], [4.0]]), horizon=2)
        >>> for origin in range(2):
        ...     record.score(origin, Students(np.full((2, 1), 2.0), np.ones((2, 1)), np.full((2, 1), 30.0)))
        >>> found = record.accuracy(np.arange(2))
        >>> {name: round(found[name], 2) for name in ("rmse", "rmse_pooled", "mae", "mase", "nlpd", "crps")}
        {'rmse': 1.71, 'rmse_pooled': 1.73, 'mae': 1.5, 'mase': 1.5, 'nlpd': 2.38, 'crps': 1.14}
        >>> found["coverage"], np.round(found["by_step"]["rmse"], 2).tolist()
        ([0.25, 1.0, 1.0], [1.41, 2.0])
        """
        error, u = self.error[origins], self.u[origins]
        rmse = np.sqrt(np.nanmean(error**2, axis=0))
        size = np.abs(error)
        return {
            "rmse": float(rmse.mean()),
            "rmse_pooled": float(np.sqrt(np.nanmean(error**2, axis=(0, 1))).mean()),
            "mae": float(np.nanmean(size)),
            "mase": float((np.nanmean(size, axis=(0, 1)) / naive_error(self.Y)).mean()),
            "nlpd": float(np.nanmean(self.nlpd[origins])),
            "crps": float(np.nanmean(self.crps[origins])),
            "coverage": coverage(u[~np.isnan(u)]),
            "by_step": {"rmse": rmse.mean(axis=1).tolist(), "mae": np.nanmean(size, axis=(0, 2)).tolist()},
        }

    def cost(self, done: int) -> dict[str, float]:
        """CPU microseconds of a row, learnt and forecast from: quantiles, and the mean with everything counted."""
        spent = self.ns[UNSCORED:done]
        return {**latencies(spent), "mean": float(spent.mean()) / 1e3}


def naive_error(Y: Array) -> Array:
    """Mean absolute error of each series' last known value one step ahead, over the rows that scaled it.

    Over all rows where that is zero: the sensor was stuck.

    Examples
    --------
    >>> naive_error(np.array([[0.0, 1.0], [1.0, np.nan], [3.0, 2.0]])).tolist()
    [1.5, 1.0]
    """
    change = np.abs(Y[1:] - forward_filled(Y)[:-1])
    head: Array = np.nanmean(change[: SCALED_BY - 1], axis=0)
    return np.where(head > 0.0, head, np.nanmean(change, axis=0))
