"""Scores of a stream run, from what was recorded while it ran.

RMSE is the mean over outputs of each output's root mean square error. NLPD is joint over the outputs of a row, in nats
per row. Coverage comes from the randomised probability integral transform: a sensor reads to a resolution ``r``, and a
reading ``y`` says that the value lies within ``r / 2`` of it, so its ``u`` is drawn uniformly between
``F(y - r / 2)`` and ``F(y + r / 2)``. A distribution that is wide beside ``r`` is scored as usual; a distribution that
stands on one repeated reading gets a uniform ``u``, as the true distribution would, instead of a half each time. The
interval of level ``l`` covers where ``|u - 1/2| < l / 2``. The resolution of a column is the least change that it has
made before the prediction: nobody can know a finer one then, and where a series stands still a closed interval between
two quantiles holds more than its level, whatever is predicted. The plain coverage is that of closed intervals.

Densities and CRPS of rivals are computed here in closed form, not by `momostream.distributions`, which integrates
numerically: the two check each other in the tests of the benchmarks.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import betaln, gammaln, stdtr

from benchmarks.data import forward_filled

Array = NDArray[np.float64]

# Rows before UNSCORED are left out of the scores; those from EARLY on have scores of their own.
UNSCORED, EARLY = 200, 30
# The slowest call is looked for from this row on.
SETTLED = 50
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
        width = np.sqrt(np.diag(self.scale))
        return np.asarray(width * standard_crps((y - self.mean) / width, self.dof))


def standard_log_pdf(z: Array, dof: Array | float) -> Array:
    """Log density of a Student-t of width 1 around 0."""
    return np.asarray(-betaln(0.5, dof / 2) - 0.5 * np.log(dof) - (dof + 1) / 2 * np.log1p(z**2 / dof))


def standard_crps(z: Array, dof: Array | float) -> Array:
    """CRPS of a Student-t of width 1 around 0: E|Z - z| - E|Z - Z'| / 2 in closed form, ``dof > 1``."""
    between = np.sqrt(dof) * np.exp(betaln(0.5, dof - 0.5) - 2.0 * betaln(0.5, dof / 2))
    tails = np.exp(standard_log_pdf(z, dof)) * (dof + z**2) - between
    return np.asarray(z * (2.0 * stdtr(dof, z) - 1.0) + 2.0 * tails / (dof - 1.0))


class WithCdf(Protocol):
    """A distribution that knows its distribution function."""

    def cdf(self, y: Array) -> Array:
        """Distribution function of each value."""


def reading_range(distribution: WithCdf, y: Array, half: Array) -> Array:
    """Probabilities below both ends of each reading, one after the other along the first axis."""
    return np.stack([distribution.cdf(y - half), distribution.cdf(y + half)])


def plain_coverage(ranges: Array) -> list[float]:
    """Share of readings that the closed interval of each of `LEVELS` touches, from their ranges ``(2, n)``.

    Examples
    --------
    A lump of probability .6 in the middle, hit each time:

    >>> plain_coverage(np.array([[0.2, 0.2], [0.8, 0.8]])), coverage(np.array([0.3, 0.7]))
    ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    """
    low, high = ranges
    return [float(((low <= 0.5 + level / 2) & (high >= 0.5 - level / 2)).mean()) for level in LEVELS]


def coverage(u: Array) -> list[float]:
    """Share of values inside the central interval of each of `LEVELS`."""
    distance = np.abs(u - 0.5)
    return [float((distance < level / 2).mean()) for level in LEVELS]


class Record:
    """Scores of a run: one row per observation, NaN where nothing was predicted.

    Parameters
    ----------
    Y
        Targets, shape (n_rows, P), complete: values that were hidden from the model are scored as well.
    seed
        Of the uniform draws in the probability integral transform. The same for all models of a feed.
    """

    def __init__(self, Y: Array, seed: int = 0) -> None:
        n_rows = len(Y)
        self.Y = Y
        self.error, self.crps, self.u = (np.full(Y.shape, np.nan) for _ in range(3))
        self.ranges = np.full((2, *Y.shape), np.nan)
        self.nlpd = np.full(n_rows, np.nan)
        self.predict_ns, self.learn_ns = np.zeros(n_rows), np.zeros(n_rows)
        self._half = shown_resolution(Y) / 2.0
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
        self.ranges[:, row] = low, high = reading_range(distribution, y, self._half[max(row - 1, 0)])
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
        >>> found = {name: np.round(value, 2).tolist() for name, value in record.accuracy(1, 3).items()}
        >>> list(found.values())
        [1.41, 1.0, 1.9, 0.84, [0.5, 1.0, 1.0], [0.5, 1.0, 1.0]]
        """
        rows = first + np.flatnonzero(~np.isnan(self.nlpd[first:stop]))
        error = self.error[rows]
        return {
            "rmse": float(np.sqrt((error**2).mean(axis=0)).mean()),
            "mae": float(np.abs(error).mean()),
            "nlpd": float(self.nlpd[rows].mean()),
            "crps": float(self.crps[rows].mean()),
            "coverage": coverage(self.u[rows]),
            "plain": plain_coverage(self.ranges[:, rows]),
        }

    def cost(self, first: int, stop: int) -> dict[str, Any]:
        """Rows per CPU second with everything counted, and quantiles of the CPU microseconds of each call.

        The slowest call of learn, and its row, are those of all rows from `SETTLED` on.
        """
        predict, learn = self.predict_ns[first:stop], self.learn_ns[first:stop]
        settled = min(SETTLED, stop - 1)
        slowest = settled + int(self.learn_ns[settled:stop].argmax())
        return {
            "rows_per_s": float((stop - first) / ((predict.sum() + learn.sum()) / 1e9)),
            "predict_us": latencies(predict),
            "learn_us": latencies(learn),
            "slowest_us": float(self.learn_ns[slowest]) / 1e3,
            "slowest_row": slowest,
        }


def shown_resolution(Y: Array) -> Array:
    """Least change from one known value to the next that each column has made up to each row; 0 before the first.

    Examples
    --------
    >>> shown_resolution(np.array([[0.0], [np.nan], [0.5], [0.5], [0.6], [2.0]])).ravel().round(2).tolist()
    [0.0, 0.0, 0.5, 0.5, 0.1, 0.1]
    """
    filled = forward_filled(Y)
    changes = np.abs(np.diff(filled, axis=0))
    # Gaps before the first value are filled by no reading.
    changes[np.isnan(Y).cumprod(axis=0)[:-1] > 0] = 0.0
    least = np.minimum.accumulate(np.where(changes > 0.0, changes, np.inf), axis=0)
    return np.concatenate([np.zeros((1, Y.shape[1])), np.where(np.isfinite(least), least, 0.0)])


def latencies(nanoseconds: Array) -> dict[str, float]:
    """Median and upper quantiles in microseconds.

    Examples
    --------
    >>> latencies(np.array([1e3, 2e3, 3e3]))["median"]
    2.0
    """
    return {name: float(np.percentile(nanoseconds, level)) / 1e3 for name, level in LATENCIES.items()}
