"""Normal behaviour, learnt from rows: a regression on lags, the joint distribution of its errors, and rates of scores.

Each row has three kinds of evidence, all on the scale of standard deviations of normal rows: the error of each column
given the past, the error of each column given the past and the other columns, and the size of all errors together.
Means of them at several speeds (exponentially weighted) show faults that are small in every row but last. Everything is
measured out of sample: rows are cut into contiguous blocks, and the errors of a block come from a fit to the others.

Letters: P columns, L lags, d = 1 + L P features, S speeds, E = 2 P + 1 pieces of evidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import log_ndtr

__all__ = [
    "CLIP",
    "GAINS",
    "LAGS",
    "SPEEDS",
    "Normal",
    "NormalRows",
    "as_normal",
    "conditional_errors",
    "features",
    "raw_score",
]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Weight of the newest row in each mean: a row alone, then about 3, 10 and 30 rows.
SPEEDS = np.array([1.0, 0.3, 0.1, 0.03])
LAGS = 2
# A mean of n such rows has a standard deviation of one after multiplication by this.
GAINS = np.sqrt((2.0 - SPEEDS) / SPEEDS)[:, np.newaxis]
# Penalty of the regression, in rows; share of the covariance that is moved to its diagonal; blocks of rows.
PENALTY, SHRINKAGE, N_BLOCKS = 50.0, 0.05, 3
# Evidence of one row beyond this many deviations counts as this many in means: a spike is not a fault that lasts.
CLIP = 4.0
# Share of values within the quantile by which tails are measured, and that quantile of normal values.
TAIL, NORMAL_TAIL = 0.995, 2.807
# A mean at speed s over n rows has this share of n s independent values.
DOF_SHARE, LEAST_DOF = 0.25, 2.0
# Values further than this from the mean, in deviations, do not move mean and deviation; passes of that rule.
OUTLIER, N_PASSES = 6.0, 4
# Deviation of a column that never moved, relative to its value; known values that a column needs to be judged.
LEAST_SCALE, LEAST_KNOWN = 1e-3, 20
# Rates of scores are counted up to one row in ten, and extrapolated beyond. Excesses come in clusters of about five
# rows; those of independent normal values, one decade of probability per unit, count as ten clusters.
LEVELS = np.linspace(0.0, 1.0, 11)
CLUSTER, PRIOR = 5.0, 10.0
# Largest shape of the tail: variances stay finite.
MOST_SHAPE = 0.5
DECADE = np.log(10.0)


class NormalRows(NamedTuple):
    """Rows to learn from: lags ``(n, L, P)``, values ``(n, P)`` with gaps filled, and whether a value was known."""

    lags: Array
    values: Array
    known: Flags


@dataclass(frozen=True)
class Normal:
    """Normal behaviour of P columns.

    Parameters
    ----------
    ready
        Whether a column had enough known values to be judged, shape (P,).
    centre, scale
        Mean and standard deviation, shape (P,).
    weights
        Regression on lags of standardised columns, shape (d, P).
    std
        Standard deviation of its errors, shape (P,).
    precision
        Inverse of the correlation of the errors, shape (P, P).
    given_std
        Standard deviation of the normalised errors given the other columns, shape (P,).
    size_centre, size_std
        Mean and standard deviation of the logarithm of the size of all errors together.
    norms
        Standard deviation of each mean of evidence, at least one, shape (S, E).
    dof
        Degrees of freedom of these standard deviations, shape (S,).
    knots
        Raw scores that one row in 10 ** LEVELS exceeds.
    tail_scale, tail_shape
        Of the excesses over the last of them.
    reach
        Smallest and largest value of each column, shape (2, P); None in files of earlier versions.
    """

    ready: Flags
    centre: Array
    scale: Array
    weights: Array
    std: Array
    precision: Array
    given_std: Array
    size_centre: float
    size_std: float
    norms: Array
    dof: Array
    knots: Array
    tail_scale: float
    tail_shape: float
    reach: Array | None = None

    @classmethod
    def fit(cls, rows: NormalRows, alarms: Array | None = None) -> Normal:
        """Learn from rows in order of time. Cost: O(n d^2 + d^3).

        ``alarms`` are raw scores of rows in between that were not learnt: without them the strangest rows would be
        missing, and rates too low.
        """
        known = rows.known
        ready = known.sum(axis=0) >= min(LEAST_KNOWN, len(known))
        centre, scale = _moments(rows.values, known)
        Z, F = (rows.values - centre) / scale, features((rows.lags - centre) / scale)
        # A spike that was learnt must not rule the regression.
        Z, F = np.clip(Z, -OUTLIER, OUTLIER), np.clip(F, -OUTLIER, OUTLIER)
        weights, errors = _regression(F, Z)
        errors[~known] = 0.0
        counts = np.maximum(known.sum(axis=0), 1)
        std = np.maximum(np.sqrt((errors**2).sum(axis=0) / counts), LEAST_SCALE)
        U = errors / std
        precision = _precision(U, known)
        complete = known.all(axis=1)
        for row in np.flatnonzero(~complete):
            conditional_errors(U[row], known[row], precision)
        given, sizes = _by_block(U, known)
        given[~known] = 0.0
        given_std = np.sqrt((given**2).sum(axis=0) / counts)
        given_std = np.where(given_std > 0.0, given_std, 1.0)
        log_sizes = np.log(np.maximum(sizes, 1e-12))
        size_centre, size_std = float(log_sizes.mean()), float(max(log_sizes.std(), 1e-3))
        evidence = np.column_stack([np.where(known, U, 0.0), given / given_std, (log_sizes - size_centre) / size_std])
        means = _means(evidence) * GAINS[:, np.newaxis]
        norms = _norms(means)
        dof = np.maximum(len(Z) * SPEEDS * DOF_SHARE, LEAST_DOF)
        raw = raw_score(means / norms[:, np.newaxis], dof[:, np.newaxis, np.newaxis])
        knots, tail_scale, tail_shape = _rates(raw if alarms is None else np.append(raw, alarms))
        return cls(
            ready,
            centre,
            scale,
            weights,
            std,
            precision,
            given_std,
            size_centre,
            size_std,
            norms,
            dof,
            knots,
            tail_scale,
            tail_shape,
            _reach(rows.values, known),
        )

    def score(self, raw: float) -> float:
        """Minus the decimal logarithm of the share of normal rows that have a larger raw score."""
        last = self.knots[-1]
        if raw > last:
            excess, shape = (raw - last) / self.tail_scale, self.tail_shape
            # At the shape 0 the limit, an exponential distribution.
            log_share = excess if shape < 1e-6 else math.log1p(shape * excess) / shape
            return float(LEVELS[-1] + log_share / DECADE)
        return float(np.interp(raw, self.knots, LEVELS))

    def raw(self, score: float) -> float:
        """The raw score with this score."""
        decades = max(score - LEVELS[-1], 0.0) * DECADE
        shape = self.tail_shape
        return float(
            self.knots[-1] + self.tail_scale * (decades if shape < 1e-6 else math.expm1(shape * decades) / shape)
        )

    def state(self) -> dict[str, Any]:
        """All arrays and numbers by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def features(lags: Array) -> Array:
    """A one and all lags of each row, the newest first: ``(n, L, P)`` to ``(n, d)``; unknown lags count as the mean."""
    n = len(lags)
    return np.nan_to_num(np.concatenate([np.ones((n, 1)), lags.reshape(n, -1)], axis=1))


def raw_score(means: Array, dof: Array) -> Array:
    """The strongest evidence, as minus the decimal logarithm of its probability among all columns, at least 0.

    Parameters
    ----------
    means
        Means of evidence in their standard deviations, shape ``(S, ..., E)``.
    dof
        Degrees of freedom of each speed, of a shape that broadcasts.
    """
    Z = as_normal(means, dof)
    n_columns = (means.shape[-1] - 1) // 2
    columns = np.abs(Z[..., :-1]).max(axis=(0, -1)) if n_columns else np.zeros(Z.shape[1:-1])
    together = Z[..., -1].max(axis=0)
    tails = np.maximum(
        -(log_ndtr(-columns) + np.log(max(2.0 * n_columns, 1.0))) / DECADE, -log_ndtr(-together) / DECADE
    )
    found: Array = np.maximum(tails, 0.0)
    return found


def as_normal(t: Array, dof: Array) -> Array:
    """The normal deviate with about the same tail as a Student-t deviate."""
    found: Array = np.sign(t) * np.sqrt(dof * np.log1p(t * t / dof))
    return found


def conditional_errors(u: Array, known: Flags, precision: Array) -> None:
    """Fill in unknown errors, in place, with their expectation given the known ones."""
    unknown = ~known
    block = precision[np.ix_(unknown, unknown)]
    u[unknown] = -np.linalg.solve(block, precision[np.ix_(unknown, known)] @ u[known])


# ---------------------------------------------------------------------- parts of the fit


def _reach(values: Array, known: Flags) -> Array:
    """Smallest and largest value of each column, shape (2, P); infinite for one without any."""
    lowest = np.where(known, values, np.inf).min(axis=0)
    highest = np.where(known, values, -np.inf).max(axis=0)
    some = known.any(axis=0)
    return np.stack([np.where(some, lowest, -np.inf), np.where(some, highest, np.inf)])


def _moments(values: Array, known: Flags) -> tuple[Array, Array]:
    """Mean and standard deviation of the known values; a few that are far out do not count."""
    X = np.where(known, values, np.nan)
    some = known.any(axis=0)
    X[:, ~some] = 0.0
    # First by quantiles: a reading of a million would take many passes. Columns that hardly ever move have none.
    low, high = np.nanquantile(X, (0.01, 0.99), axis=0)
    room = np.where(high > low, OUTLIER * (high - low), np.inf)
    X = np.clip(X, low - room, high + room)
    centre, scale = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    for _ in range(N_PASSES):
        X = np.clip(X, centre - OUTLIER * scale, centre + OUTLIER * scale)
        centre, scale = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    least = np.maximum(LEAST_SCALE * np.abs(centre), 1e-9)
    # Not by the deviation alone: that of a constant is not exactly zero.
    moved = np.nanmax(X, axis=0) > np.nanmin(X, axis=0)
    return centre, np.where(moved & (scale > 1e-9 * np.abs(centre)), scale, least)


def _blocks(n: int) -> list[slice]:
    edges = np.linspace(0, n, min(N_BLOCKS, n) + 1).astype(int)
    return [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]


def _regression(F: Array, Z: Array) -> tuple[Array, Array]:
    """Weights of all rows, and errors of each block by the weights of the others."""
    penalty = np.full(F.shape[1], PENALTY)
    penalty[0] = 1e-3
    G, b = F.T @ F + np.diag(penalty), F.T @ Z
    errors = np.empty_like(Z)
    for block in _blocks(len(Z)):
        f, z = F[block], Z[block]
        errors[block] = z - f @ np.linalg.solve(G - f.T @ f, b - f.T @ z)
    weights: Array = np.ascontiguousarray(np.linalg.solve(G, b), dtype=np.float64)
    return weights, errors


def _precision(U: Array, known: Flags) -> Array:
    """Inverse of the correlation of errors, shrunk towards independence as far as it has to be."""
    counts = np.maximum(known.T.astype(float) @ known, 1.0)
    C = (U.T @ U) / counts
    diagonal = np.where(np.diag(C) > 0.0, np.diag(C), 1.0)
    np.fill_diagonal(C, diagonal)
    share = SHRINKAGE
    while True:
        try:
            factor = cho_factor((1.0 - share) * C + share * np.diag(diagonal), lower=True)
            break
        except LinAlgError:
            # Gaps: pairs of columns were seen in different rows. At one, the matrix is diagonal.
            share = min(2.0 * share, 1.0)
    # In this order also after a file was read: the same floats, bit for bit.
    inverse: Array = np.ascontiguousarray(cho_solve(factor, np.eye(len(C))))
    return inverse


def _by_block(U: Array, known: Flags) -> tuple[Array, Array]:
    """Normalised errors given the other columns, and mean squares of all errors, by the correlation of other blocks."""
    given, sizes = np.empty_like(U), np.empty(len(U))
    for block in _blocks(len(U)):
        others = np.ones(len(U), dtype=bool)
        others[block] = len(U) <= 1
        precision = _precision(U[others], known[others])
        V = U[block] @ precision
        given[block] = V / np.sqrt(np.diag(precision))
        sizes[block] = (V * U[block]).sum(axis=1) / np.maximum(known[block].sum(axis=1), 1)
    return given, sizes


def _means(evidence: Array) -> Array:
    """Exponentially weighted means along the rows, from zero, at all speeds: ``(n, E)`` to ``(S, n, E)``."""
    found = np.empty((len(SPEEDS), *evidence.shape))
    mean, speeds = np.zeros((len(SPEEDS), evidence.shape[1])), SPEEDS[:, np.newaxis]
    # Not by scipy.signal, whose import takes as long as all others.
    for row, clipped in enumerate(np.clip(evidence, -CLIP, CLIP)):
        mean += speeds * (clipped - mean)
        found[:, row] = mean
    # A row alone counts in full.
    found[0] = evidence
    return found


def _norms(means: Array) -> Array:
    """Standard deviation of each mean, larger if its tails are heavier than normal ones, at least one."""
    tails = np.quantile(np.abs(means), TAIL, axis=1) / NORMAL_TAIL
    found: Array = np.maximum(np.maximum(np.sqrt((means**2).mean(axis=1)), tails), 1.0)
    return found


def _rates(raw: Array) -> tuple[Array, float, float]:
    """Raw scores at `LEVELS`, and scale and shape of the excesses over the last: a generalised Pareto distribution.

    By probability-weighted moments [1]_, mixed with those of independent normal values, whose excesses are exponential.

    References
    ----------
    .. [1] Hosking and Wallis, "Parameter and Quantile Estimation for the Generalized Pareto Distribution",
       Technometrics 1987.
    """
    knots = np.quantile(raw, 1.0 - 10.0**-LEVELS)
    excess = np.sort(raw[raw > knots[-1]] - knots[-1])
    n = len(excess)
    first = excess.sum()
    second = (excess * (n - 0.65 - np.arange(n)) / max(n, 1)).sum()
    # Of an exponential distribution with the mean 1 / DECADE: that and a quarter of that.
    prior = CLUSTER * PRIOR
    a = (first + prior / DECADE) / (n + prior)
    b = (second + prior / (4.0 * DECADE)) / (n + prior)
    shape = min(max(2.0 - a / max(a - 2.0 * b, 1e-9), 0.0), MOST_SHAPE)
    scale = max(a * (1.0 - shape), 1e-3)
    # The distribution of the next excess given so few: that of an exponential one is of this shape.
    return knots, float(scale), float(shape + 1.0 / (PRIOR + n / CLUSTER))
