"""Quantiles of mixtures of Student-t's: solved one by one, or read from a table of many."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import ndtri

from momostream.distributions.student import (
    SMALLEST_TAIL,
    BoolArray,
    FloatArray,
    t_cdf,
    t_log_norm,
    t_log_pdf,
    t_log_shape,
    t_quantile,
)

__all__ = ["QuantileTable", "check_levels", "in_order", "interval_ends", "lower_quantile", "normal_scores"]

# Tail probabilities in which components of small weight count.
_FAR_TAIL = 1e-3

FourArrays = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


def check_levels(levels: FloatArray) -> None:
    """Raise ValueError unless all probabilities lie inside (0, 1)."""
    # Written so that NaN fails.
    bad = ~((levels > 0.0) & (levels < 1.0))
    if bad.any():
        raise ValueError(f"quantile levels must lie inside (0, 1), got {float(levels[bad][0])}")


def interval_ends(level: float) -> list[float]:
    """Quantile levels of both ends of the central interval that holds a value with probability `level`."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie inside (0, 1), got {level}")
    return [0.5 - 0.5 * level, 0.5 + 0.5 * level]


def in_order(ends: FloatArray, axis: int = 0) -> FloatArray:
    """Quantiles of ascending levels, such as both ends of intervals, along an axis.

    Each is found on its own, to its last digit: where an interval is narrower than that, its ends may have crossed.

    Examples
    --------
    >>> in_order(np.array([[1.0, 3.0], [2.0, 3.0 - 4e-16]])).tolist()
    [[1.0, 2.9999999999999996], [2.0, 3.0]]
    """
    return np.sort(ends, axis=axis)


def normal_scores(p: FloatArray, upper: BoolArray) -> FloatArray:
    """Return the standard normal quantiles of tail probabilities."""
    scores = ndtri(np.maximum(p, SMALLEST_TAIL))
    return np.asarray(np.where(upper, -scores, scores))


# -----------------------------------------------------------------------------------------------------------
# Tables


class Tabulated(Protocol):
    """The part of marginals that a table is made from."""

    def knots(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return ascending values with their lower and upper tail probabilities, (n_knots, n_rows, n_targets)."""

    def log_pdf(self, Y: FloatArray) -> FloatArray:
        """Log density of each value of `Y` (..., n_rows, n_targets)."""


class QuantileTable:
    """Values of each row and target at knots of normal scores, and interpolation between them.

    Parameters
    ----------
    marginals : Marginals or BoundedMarginals
        The distributions to tabulate.

    Attributes
    ----------
    values, scores : arrays of shape (n_knots, n_rows, n_targets)
        The knots; both ascend.
    """

    def __init__(self, marginals: Tabulated) -> None:
        self._marginals = marginals
        self.values, lower, upper = marginals.knots()
        # Rounding must not break the order.
        self.scores = np.maximum.accumulate(normal_scores(np.minimum(lower, upper), lower > upper), axis=0)

    def lines(self, scores: FloatArray) -> FloatArray:
        """Values at `scores` (n_rows, n_targets, ...), by straight lines between the knots."""
        found = np.empty(scores.shape)
        for i, j in np.ndindex(scores.shape[:2]):
            found[i, j] = np.interp(scores[i, j], self.scores[:, i, j], self.values[:, i, j])
        return found

    def cubics(self, scores: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Values at `scores` (..., n_rows, n_targets), by Hermite's cubics, after both ends of their cells.

        A value never leaves its cell; scores beyond the table get the outermost value. Off by less than a hundredth of
        a standard deviation.
        """
        # The slope of y over normal scores is the normal density over that of y.
        slopes = np.exp(np.minimum(t_log_pdf(self.scores, np.inf) - self._marginals.log_pdf(self.values), 300.0))
        low, high, found = np.empty((3, *scores.shape))
        for i, j in np.ndindex(scores.shape[-2:]):
            at, knots, values, slope = scores[..., i, j], self.scores[:, i, j], self.values[:, i, j], slopes[:, i, j]
            k = np.clip(np.searchsorted(knots, at, side="right"), 1, knots.size - 1)
            width = np.maximum(knots[k] - knots[k - 1], 1e-300)
            r = np.clip((at - knots[k - 1]) / width, 0.0, 1.0)
            rise = values[k] - values[k - 1]
            bend = (1.0 - r) * (width * slope[k - 1] - rise) - r * (width * slope[k] - rise)
            low[..., i, j], high[..., i, j] = values[k - 1], values[k]
            found[..., i, j] = values[k - 1] + np.clip(r * (rise + (1.0 - r) * bend), 0.0, rise)
        return low, high, found

    def tail_cells(self, p: FloatArray, upper: BoolArray) -> FloatArray:
        """Low, high and guess of the values with tail probabilities `p`: (3, p.size), NaN outside the table.

        They are those of the mirror image for upper tails.
        """
        scores = normal_scores(p, upper)
        low, high, guess = self.cubics(scores)
        inside = (scores >= self.scores[0]) & (scores < self.scores[-1])
        cells = np.where(upper, [-high, -low, -guess], [low, high, guess])
        return np.where(inside, cells, np.nan).reshape(3, -1)


# -----------------------------------------------------------------------------------------------------------
# Solving


def lower_quantile(
    p: FloatArray, w: FloatArray, m: FloatArray, s: FloatArray, v: FloatArray, cells: FloatArray | None
) -> FloatArray:
    """Solve F(x) = p for p <= 0.5, one mixture per line.

    Halley steps on log F, which is nearly straight in the tails, kept inside a bracket. If a step leaves
    it or does not halve the one before, a second guess is tried, then bisection.

    Parameters
    ----------
    p : array of shape (n_lines,)
        Probabilities.
    w, m, s, v : arrays of shape (n_lines, n_components)
        Weights, locations, scales and degrees of freedom.
    cells : array of shape (3, n_lines), optional
        Bounds and a guess where they are known already, NaN elsewhere.
    """
    used = w > 0.0
    low, high, x, other = _start(p, w, m, s, v, cells)
    log_w = np.where(used, np.log(np.where(used, w, 1.0)) - np.log(s) + t_log_norm(v), -np.inf)
    narrowest = np.where(used, s, np.inf).min(axis=1)
    leftmost = np.where(used, m, np.inf).min(axis=1)
    answer = x.copy()
    todo = np.arange(p.size)
    state = (p, w, m, s, v, log_w, narrowest, leftmost, low, high, x, other, high - low)
    for _ in range(200):
        if todo.size == 0:
            break
        p, w, m, s, v, log_w, narrowest, leftmost, low, high, x, other, last = state
        F, step = _halley(x, p, w, m, s, v, log_w)
        below = F < p
        low = np.where(below, x, low)
        high = np.where(below, high, x)
        new = x + step
        good = (new >= low) & (new <= high) & (np.abs(step) <= 0.5 * last)
        guess = np.where((other > low) & (other < high), other, _middle(low, high, leftmost))
        new = np.where(good, new, guess)
        last = np.where(good, np.abs(step), high - low)
        solved = np.abs(F - p) <= 1e-15 * p
        answer[todo] = np.where(solved, x, new)
        # A step of Halley's leaves an error of the order of its cube, in units of the narrowest component.
        enough = np.where(good, 1e-5, 1e-13) * narrowest + 4e-16 * np.abs(x)
        active = ~(solved | (last <= enough))
        todo = todo[active]
        state = (p, w, m, s, v, log_w, narrowest, leftmost, low, high, new, other, last)
        if todo.size < active.size:
            p, w, m, s, v, log_w, narrowest, leftmost, low, high, x, other, last = (a[active] for a in state)
            state = (p, w, m, s, v, log_w, narrowest, leftmost, low, high, x, other, last)
    return np.asarray(answer)


def _halley(
    x: FloatArray, p: FloatArray, w: FloatArray, m: FloatArray, s: FloatArray, v: FloatArray, log_w: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Distribution functions at `x`, and the steps towards log F = log p."""
    z = (x[:, np.newaxis] - m) / s
    F = (w * t_cdf(z, v)).sum(axis=1)
    each = np.exp(log_w + t_log_shape(z, v))
    f = each.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Derivative of each log density: -(v + 1) z / (v + z^2) / s.
        slope = -(each * z * (1.0 + 1.0 / v) / ((1.0 + z * z / v) * s)).sum(axis=1)
        gap = np.log(p / F)
        step = gap * F / f
        step /= np.clip(1.0 + 0.5 * gap * (slope * F / (f * f) - 1.0), 0.5, 2.0)
    return F, step


def _middle(low: FloatArray, high: FloatArray, leftmost: FloatArray) -> FloatArray:
    """Middle of the bracket; in logs of the distance to the components if all of them lie right of it."""
    far = np.sqrt(np.maximum(leftmost - low, 0.0) * np.maximum(leftmost - high, 0.0))
    return np.where(high < leftmost, leftmost - far, low + 0.5 * (high - low))


def _start(
    p: FloatArray, w: FloatArray, m: FloatArray, s: FloatArray, v: FloatArray, cells: FloatArray | None
) -> FourArrays:
    """Return bounds and two guesses, from `cells` where these are known."""
    if cells is None:
        return _brackets(p, w, m, s, v)
    low, high, x, other = cells[[0, 1, 2, 2]]
    unknown = np.flatnonzero(np.isnan(low))
    found = _brackets(p[unknown], w[unknown], m[unknown], s[unknown], v[unknown])
    low[unknown], high[unknown], x[unknown], other[unknown] = found
    # Across a hundred orders of magnitude the interpolation may round out of its cell.
    return low, high, np.clip(x, low, high), other


def _brackets(p: FloatArray, w: FloatArray, m: FloatArray, s: FloatArray, v: FloatArray) -> FourArrays:
    """Return bounds of the quantile and two guesses, each of shape (n_lines,)."""
    p = p[:, np.newaxis]
    used = w > 0.0
    each = m + s * _t_quantiles(p, v)
    # The quantile of a mixture lies between those of its components ...
    low = np.where(used, each, np.inf).min(axis=1)
    high = np.where(used, each, -np.inf).max(axis=1)
    # ... and F(x) >= w_c F_c(x), a bound that is close in the tails and costs as much as it is worth elsewhere.
    far = np.flatnonzero(p[:, 0] < _FAR_TAIL)
    if far.size:
        raised = p[far] / np.maximum(w[far], p[far])
        at = m[far] + s[far] * t_quantile(np.minimum(raised, 0.5), v[far])
        bound = np.where(raised <= 0.5, at, np.inf).min(axis=1)
        high[far] = np.maximum(low[far], np.minimum(high[far], bound))
    x = np.clip((w * each).sum(axis=1), low, high)
    # As if components did not overlap, which is true of far apart ones: find the one that holds the quantile.
    order = np.argsort(m, axis=1)
    edges = np.cumsum(np.take_along_axis(w, order, axis=1), axis=1)
    nth = np.minimum((edges < p).sum(axis=1, keepdims=True), w.shape[1] - 1)
    holder = np.take_along_axis(order, nth, axis=1)
    weight, location, scale, dof = (np.take_along_axis(a, holder, axis=1) for a in (w, m, s, v))
    inside = 1.0 - (np.take_along_axis(edges, nth, axis=1) - p) / np.maximum(weight, SMALLEST_TAIL)
    inside = np.clip(inside, 1e-15, 1.0 - 1e-15)
    t = t_quantile(np.minimum(inside, 1.0 - inside), dof)
    other = (location + scale * np.where(inside < 0.5, t, -t))[:, 0]
    return low, high, x, other


def _t_quantiles(p: FloatArray, v: FloatArray) -> FloatArray:
    """`t_quantile` of each pair once: both ends of an interval have the same, and degrees of freedom repeat."""
    pairs = np.empty(v.shape, dtype=np.complex128)
    pairs.real, pairs.imag = p, v
    unique, positions = np.unique(pairs, return_inverse=True)
    return np.asarray(t_quantile(unique.real, unique.imag)[positions.reshape(v.shape)])
