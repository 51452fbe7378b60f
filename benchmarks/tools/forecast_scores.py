"""Scores of forecasts, recorded while they were made.

A forecast is a distribution for each of (H steps) x (P series). RMSE is that of the mean, MAE and MASE are those of the
median. RMSE is the mean over steps and series of each one's root mean square error; pooled, it is the mean over series
of the root of the mean square over all steps, which weighs the far steps more. MASE is the mean over series of each
one's absolute error in units of that of its last value one step ahead. All other scores are means over values. NLPD is
that of single values, not joint. Coverage is that of `benchmarks.tools.stream_scores`. Missing values are not scored.

Most distributions have a CRPS in closed form or as an integral. That of a rival with nothing but 99 quantiles is twice
the sum of their pinball losses times .01, which is below the exact one by .02 % for a Gaussian. Such
rivals have no NLPD.
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
    plain_coverage,
    reading_range,
    shown_resolution,
    standard_crps,
    standard_log_pdf,
)

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

# Origins before UNSCORED are not scored. Slow rivals forecast at every STRIDE-th from there on, and all models have a
# second set of scores at these.
UNSCORED, STRIDE = 600, 5
# Levels of the quantiles that rivals give.
QUANTILES = np.arange(1, 100) / 100.0
# Blocks of origins whose errors are compared with those of the last value while a model is young; intervals count from
# HONEST on, the time of a row from WARM on.
YOUNG = ((10, 30), (30, 100), (100, 300), (300, UNSCORED))
HONEST, WARM = 30, 50


class Multivariate(Protocol):
    """Predictive distributions of the values of one forecast, all arrays of shape (H, P)."""

    @property
    def mean(self) -> Array:
        """Mean of each value."""

    @property
    def median(self) -> Array:
        """Median of each value; for rivals, their point."""

    def log_pdf(self, y: Array) -> Array | None:
        """Log density of each value, not joint; None if there is none."""

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

    @property
    def median(self) -> Array:
        """The mean."""
        return self.mean

    def log_pdf(self, y: Array) -> Array:
        """Log density of each value."""
        return standard_log_pdf((y - self.mean) / self.width, self.dof) - np.log(self.width)

    def cdf(self, y: Array) -> Array:
        """Distribution function of each value."""
        return np.asarray(stdtr(self.dof, (y - self.mean) / self.width))

    def crps(self, y: Array) -> Array:
        """E|Y - y| - E|Y - Y'| / 2 in closed form."""
        return np.asarray(self.width * standard_crps((y - self.mean) / self.width, self.dof))


class Quantiles(NamedTuple):
    """Points, and quantiles of shape (99, ...) at `QUANTILES`, for each value of an array.

    The distribution function is linear between quantiles. Beyond the outermost ones it falls off exponentially, by what
    lies between the quantiles of .01 and .05 or of .95 and .99.

    Examples
    --------
    >>> distribution = Quantiles(np.zeros(1), np.arange(-49.0, 50.0)[:, None])
    >>> [distribution.cdf(np.array([y])).round(3).item() for y in (0.0, 10.5, -60.0, 49.0)]
    [0.5, 0.605, 0.0, 0.99]
    >>> distribution.crps(np.zeros(1)).round(2).item()
    8.33
    """

    mean: Array
    quantiles: Array

    @property
    def median(self) -> Array:
        """The point."""
        return self.mean

    def log_pdf(self, y: Array) -> None:
        """Quantiles have no density."""

    def cdf(self, y: Array) -> Array:
        """Distribution function of each value."""
        below = (self.quantiles <= y).sum(axis=0)
        left, right = np.maximum(below - 1, 0), np.minimum(below, len(self.quantiles) - 1)
        low, high = (np.take_along_axis(self.quantiles, at[None], axis=0)[0] for at in (left, right))
        apart = high > low
        share = np.where(apart, (y - low) / np.where(apart, high - low, 1.0), 0.0)
        between = QUANTILES[left] + share * (QUANTILES[right] - QUANTILES[left])
        outermost = len(self.quantiles) - 1
        lower = _tail(self.quantiles[0] - y, self.quantiles[4] - self.quantiles[0])
        upper = 1.0 - _tail(y - self.quantiles[-1], self.quantiles[-1] - self.quantiles[outermost - 4])
        return np.where(below == 0, lower, np.where(below > outermost, upper, between))

    def crps(self, y: Array) -> Array:
        """Twice the integral of the pinball loss over all levels."""
        level = QUANTILES.reshape(-1, *np.ones(np.ndim(y), dtype=int))
        error = y - self.quantiles
        return np.asarray(0.02 * np.maximum(level * error, (level - 1.0) * error).sum(axis=0))


def _tail(beyond: Array, width: Array) -> Array:
    """Probability further out than ``beyond`` the quantile of .01, where that of .05 lies ``width`` inside."""
    rate = np.log(5.0) / np.maximum(width, 1e-12)
    return 0.01 * np.exp(-rate * np.maximum(beyond, 0.0))


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
        self.error, self.absolute, self.nlpd, self.crps, self.u = (np.full(shape, np.nan) for _ in range(5))
        self.ns, self.learn_ns = np.zeros(len(Y)), np.zeros(len(Y))
        self.ranges = np.full((2, *shape), np.nan)
        self._half = shown_resolution(Y) / 2.0
        self._draws = np.random.default_rng(seed).random(shape)

    def origins(self, done: int, stride: int, first: int = UNSCORED) -> Rows:
        """Origins from ``first`` on that are scored when ``done`` rows were learnt.

        All that is forecast there is in the series, and something is known in the row of the origin.
        """
        origins = np.arange(first, min(done, len(self.Y) - self.horizon), stride)
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
        low, high = reading_range(distribution, y, self._half[origin])
        u = low + self._draws[origin] * (high - low)
        self.ranges[:, origin] = np.where(known, (low, high), np.nan)
        found = [(self.error, y - mean), (self.absolute, np.abs(y - distribution.median)), (self.u, u)]
        found.append((self.crps, distribution.crps(y)))
        log_pdf = distribution.log_pdf(y)
        if log_pdf is not None:
            found.append((self.nlpd, -log_pdf))
        for kept, values in found:
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
        ([0.25, 0.75, 1.0], [1.41, 2.0])
        """
        error, u = self.error[origins], self.u[origins]
        rmse = np.sqrt(np.nanmean(error**2, axis=0))
        size, nlpd = self.absolute[origins], self.nlpd[origins]
        return {
            "rmse": float(rmse.mean()),
            "rmse_pooled": float(np.sqrt(np.nanmean(error**2, axis=(0, 1))).mean()),
            "mae": float(np.nanmean(size)),
            "mase": float((np.nanmean(size, axis=(0, 1)) / naive_error(self.Y)).mean()),
            **({} if np.isnan(nlpd).all() else {"nlpd": float(np.nanmean(nlpd))}),
            "crps": float(np.nanmean(self.crps[origins])),
            "coverage": coverage(u[~np.isnan(u)]),
            "plain": self._plain(origins),
            "by_step": {"rmse": rmse.mean(axis=1).tolist(), "mae": np.nanmean(size, axis=(0, 2)).tolist()},
        }

    def _plain(self, origins: Rows) -> list[float]:
        ranges = self.ranges[:, origins]
        return plain_coverage(ranges[:, ~np.isnan(ranges[0])])

    def cost(self, done: int) -> dict[str, float]:
        """CPU microseconds of a row, learnt and forecast from: quantiles, and the mean with everything counted."""
        spent = self.ns[UNSCORED:done]
        return {**latencies(spent), "mean": float(spent.mean()) / 1e3}

    def slowest(self, done: int, number: int = 3) -> list[dict[str, float]]:
        """The rows from `WARM` on that took longest to learn: CPU milliseconds, row, rows without values before it.

        Examples
        --------
        >>> record = Record(np.array([[1.0]] * 60 + [[np.nan]] * 2 + [[3.0]]), horizon=1)
        >>> record.learn_ns[[0, 62]] = 9e6, 4e6
        >>> record.slowest(63, 1)
        [{'ms': 4.0, 'row': 62, 'gap': 2}]
        """
        rows = WARM + np.argsort(-self.learn_ns[WARM:done], kind="stable")[:number]
        came = ~np.isnan(self.Y).all(axis=1)
        return [
            {
                "ms": float(self.learn_ns[row]) / 1e6,
                "row": int(row),
                "gap": int(row - 1 - np.flatnonzero(came[:row]).max(initial=-1)),
            }
            for row in rows
        ]

    def young(self, done: int) -> dict[str, Any]:
        """While the model is young: RMSE in units of the last value's by block of origins, coverage from `HONEST` on.

        ``coverage`` is that from `HONEST` to `UNSCORED`, ``whole`` that from `HONEST` to the end, and ``plain`` the
        plain one there. A block without forecasts is None.
        """
        last = forward_filled(self.Y)
        ratios: list[float | None] = []
        for first, stop in YOUNG:
            origins = self.origins(min(done, stop), 1, first)
            error = self.error[origins]
            truth = np.stack([self.Y[origins + 1 + step] for step in range(self.horizon)], axis=1)
            naive = np.where(np.isnan(error), np.nan, truth - last[origins][:, None])
            ours, theirs = (_mean_root(errors) for errors in (error, naive))
            ratios.append(ours / theirs if theirs > 0.0 else None)
        shares = []
        for stop in (UNSCORED, done):
            u = self.u[self.origins(min(done, stop), 1, HONEST)]
            shares.append(coverage(u[~np.isnan(u)]))
        plain = self._plain(self.origins(done, 1, HONEST))
        return {"ratios": ratios, "coverage": shares[0], "whole": shares[1], "plain": plain}


def _mean_root(error: Array) -> float:
    """Mean over steps and series of the root mean square error, of those with any; 0 if there is none."""
    known = ~np.isnan(error)
    count = known.sum(axis=0)
    squares = np.where(known, error, 0.0) ** 2
    return float(np.sqrt(squares.sum(axis=0)[count > 0] / count[count > 0]).mean()) if count.any() else 0.0


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
