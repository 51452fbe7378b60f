"""Scores of a stream run, from what was recorded while it ran.

RMSE is the mean over outputs of each output's root mean square error. NLPD is joint over the outputs of a row, in nats
per row. Coverage comes from the randomised probability integral transform: a sensor reads to a resolution ``r``, and a
reading ``y`` says that the value lies within ``r / 2`` of it, so its ``u`` is drawn uniformly between
``F(y - r / 2)`` and ``F(y + r / 2)``. A distribution that is wide beside ``r`` is scored as usual; a distribution that
stands on one repeated reading gets a uniform ``u``, as the true distribution would, instead of a half each time. The
interval of level ``l`` covers where ``|u - 1/2| < l / 2``.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import betaln, gammaln, stdtr

Array = NDArray[np.float64]

# Rows before UNSCORED are left out of the scores; those from EARLY on have scores of their own.
UNSCORED, EARLY = 200, 30
LEVELS = (0.5, 0.9, 0.99)
LATENCIES = {"median": 50.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}


class Multivariate(Protocol):
    """A predictive distribution of one row of P outputs."""

    @property
    def mean(self) -> Array:
        """Shape (P,)."""

    def log_pdf(self, y: Array) -> float:
        """Joint log density."""

    def cdf(self, y: Array) -> Array:
        """Distribution function of each output, shape (P,)."""

    def crps(self, y: Array) -> Array:
        """Continuous ranked probability score of each output, shape (P,)."""


class Student(NamedTuple):
    """Multivariate Student-t; ``scale`` is (P, P), ``dof > 1``.

    Examples
    --------
    >>> student = Student(np.zeros(1), np.eye(1), 5.0)
    >>> round(student.log_pdf(np.ones(1)), 3), student.cdf(np.ones(1)).round(3), student.crps(np.ones(1)).round(3)
    (-1.516, array([0.818]), array([0.604]))
    """

    mean: Array
    scale: Array
    dof: float

    def log_pdf(self, y: Array) -> float:
        """Joint log density."""
        nu, P = self.dof, len(y)
        L = np.linalg.cholesky(self.scale)
        z = solve_triangular(L, y - self.mean, lower=True, check_finite=False)
        log_norm = gammaln((nu + P) / 2) - gammaln(nu / 2) - P / 2 * np.log(nu * np.pi) - np.log(np.diag(L)).sum()
        return float(log_norm - (nu + P) / 2 * np.log1p(z @ z / nu))

    def cdf(self, y: Array) -> Array:
        """Distribution function of each output."""
        return np.asarray(stdtr(self.dof, (y - self.mean) / np.sqrt(np.diag(self.scale))))

    def crps(self, y: Array) -> Array:
        """Closed form: E|Y - y| - E|Y - Y'| / 2."""
        nu, width = self.dof, np.sqrt(np.diag(self.scale))
        z = (y - self.mean) / width
        pdf = np.exp(-betaln(0.5, nu / 2) - 0.5 * np.log(nu) - (nu + 1) / 2 * np.log1p(z**2 / nu))
        distance = z * (2.0 * stdtr(nu, z) - 1.0) + 2.0 * pdf * (nu + z**2) / (nu - 1.0)
        half_spread = 2.0 * np.sqrt(nu) / (nu - 1.0) * np.exp(betaln(0.5, nu - 0.5) - 2.0 * betaln(0.5, nu / 2))
        return np.asarray(width * (distance - half_spread))


class Record:
    """What a run leaves behind: one row per observation, NaN where nothing was predicted.

    Parameters
    ----------
    Y
        Targets, shape (n_rows, P), complete: what was hidden from the model is scored as well.
    seed
        Of the uniform draws in the probability integral transform. The same for all models of a feed.
    """

    def __init__(self, Y: Array, seed: int = 0) -> None:
        n_rows = len(Y)
        self.Y = Y
        self.error, self.crps, self.u = (np.full(Y.shape, np.nan) for _ in range(3))
        self.nlpd = np.full(n_rows, np.nan)
        self.predict_ns, self.learn_ns = np.zeros(n_rows), np.zeros(n_rows)
        self._half = resolution(Y) / 2.0
        self._draws = np.random.default_rng(seed).random(Y.shape)

    def score(self, row: int, distribution: Multivariate) -> None:
        """Keep the scores of one prediction.

        Raises
        ------
        ValueError
            If a score is NaN: left out of the means, it would hide the rows that a model fails on.
        """
        y = self.Y[row]
        self.error[row] = y - distribution.mean
        self.nlpd[row] = -distribution.log_pdf(y)
        self.crps[row] = distribution.crps(y)
        low, high = distribution.cdf(y - self._half), distribution.cdf(y + self._half)
        self.u[row] = low + self._draws[row] * (high - low)
        if any(np.isnan(kept[row]).any() for kept in (self.error, self.nlpd, self.crps, self.u)):
            raise ValueError(f"row {row}: a score is NaN")

    def accuracy(self, first: int, stop: int) -> dict[str, Any]:
        """Scores over the rows ``first`` to ``stop - 1`` that were predicted.

        Examples
        --------
        >>> record = Record(np.array([[1.0], [2.0], [4.0]]))
        >>> for row in range(3):
        ...     record.score(row, Student(np.full(1, 2.0), np.eye(1), 30.0))
        >>> {name: np.round(value, 2).tolist() for name, value in record.accuracy(1, 3).items()}
        {'rmse': 1.41, 'mae': 1.0, 'nlpd': 1.9, 'crps': 0.84, 'coverage': [0.5, 1.0, 1.0]}
        """
        rows = first + np.flatnonzero(~np.isnan(self.nlpd[first:stop]))
        error, distance = self.error[rows], np.abs(self.u[rows] - 0.5)
        return {
            "rmse": float(np.sqrt((error**2).mean(axis=0)).mean()),
            "mae": float(np.abs(error).mean()),
            "nlpd": float(self.nlpd[rows].mean()),
            "crps": float(self.crps[rows].mean()),
            "coverage": [float((distance < level / 2).mean()) for level in LEVELS],
        }

    def cost(self, first: int, stop: int) -> dict[str, Any]:
        """Rows per CPU second with everything counted, and quantiles of the CPU microseconds of each call."""
        predict, learn = self.predict_ns[first:stop], self.learn_ns[first:stop]
        return {
            "rows_per_s": float((stop - first) / ((predict.sum() + learn.sum()) / 1e9)),
            "predict_us": latencies(predict),
            "learn_us": latencies(learn),
        }


def resolution(Y: Array) -> Array:
    """Smallest positive difference between values of each column; 0 for a constant column.

    Examples
    --------
    >>> resolution(np.array([[0.0, 1.0], [0.5, 1.0], [2.0, 1.0]])).tolist()
    [0.5, 0.0]
    """
    return np.array([np.diff(np.unique(column)).min(initial=np.ptp(column)) for column in Y.T])


def latencies(nanoseconds: Array) -> dict[str, float]:
    """Median and upper quantiles in microseconds.

    Examples
    --------
    >>> latencies(np.array([1e3, 2e3, 3e3]))["median"]
    2.0
    """
    return {name: float(np.percentile(nanoseconds, level)) / 1e3 for name, level in LATENCIES.items()}
