"""Means and variances of mixtures of Student-t's between limits, and the cut of tails that no data can judge.

A second moment may be ruled by values that are rarer than a feed is long: those of a Student-t of fewer than three
degrees of freedom, which has no third moment, or of an expert that is a hundred times as wide as the others and has the
least weight that an expert keeps. The standard deviation then says nothing about the values that occur, and that of
samples does not settle. One rule for both: second moments and samples of a target are those of the distribution
*cut* at the first of `CUTS` after which its kurtosis is at most `MOST_KURTOSIS`. The probability of the cut, on either
side, is moved to the quantile where it begins. A target of at least three degrees of freedom whose kurtosis is no
larger is not cut. Quantiles, probabilities and densities are those of the whole distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import ndtri

from momostream.distributions.student import FloatArray, IntArray, t_log_norm, t_quantile

__all__ = [
    "CUT",
    "CUTS",
    "LEAST_INDEX",
    "MOST_KURTOSIS",
    "PLAIN",
    "QUADRATURE_VALUES",
    "Moments",
    "cut_moments",
    "cut_score",
    "cut_t_variance",
    "mixture_moments",
    "settled",
]

#: Probabilities that may be cut on either side of a distribution; the first is that of heavy tails.
CUTS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
CUT = CUTS[0]
#: Tails are heavy if moments exist only below this order.
LEAST_INDEX = 3.0
#: Fourth central moment over the square of the second, at most: values of one row in so many then have the second
#: moment to themselves, and the deviation of 200,000 samples has a standard error of 1 %.
MOST_KURTOSIS = 80.0

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(48)
#: Values that the quadrature holds at once for each row and component.
QUADRATURE_VALUES = 3 * _NODES.size
# Densities, times what grows in the moments, are followed until they have fallen by this much in logs.
_FALL = 40.0
_LARGEST_FALL_PER_DOF = 60.0
# Limits further from a component, in units of its scale, are taken for this far: squares stay finite.
_FARTHEST = 1e100
# Stands for infinite degrees of freedom.
_GAUSSIAN_DOF = 1e16
# By which power a density on the scale of the model must fall for second moments to be finite.
_GROWTH = {None: 2.0, "sqrt": 4.0, "log": 0.0, "logit": 0.0}

Components = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


class Moments(NamedTuple):
    """Moments of one target in each row, arrays of shape (n_rows,); the kurtosis of a constant is zero."""

    mean: FloatArray
    variance: FloatArray
    kurtosis: FloatArray


class Scale(Protocol):
    """The scale on which a target is modelled, as in `momostream.distributions.bounded.Target`."""

    @property
    def transform(self) -> str | None:
        """Name of the transform."""

    def to_user(self, z: FloatArray) -> FloatArray:
        """Values in the user's units."""


class _Plain:
    transform = None

    def to_user(self, z: FloatArray) -> FloatArray:
        return z


PLAIN = _Plain()


def mixture_moments(
    scale: Scale,
    components: Components,
    low: FloatArray,
    high: FloatArray,
    lumps: tuple[FloatArray, FloatArray] | None = None,
) -> Moments:
    """Moments of one target, given that it lies between limits, or with lumps of probability at these.

    Each component is integrated on its own, because scales may differ by orders of magnitude. With
    t = sqrt(v) sinh(x / sqrt(v)) the density of a Student-t is that of x proportional to cosh(x / sqrt(v))^-v, whose
    tails are exponential: Gauss-Legendre does well from the peak outwards.

    Parameters
    ----------
    scale : Scale
        From the scale of the model to the user's.
    components : four arrays of shape (n_rows, n_components)
        Weights, locations, scales and degrees of freedom, on the scale of the model.
    low, high : arrays that broadcast to (n_rows, 1)
        Limits on the scale of the model.
    lumps : two arrays of shape (n_rows,), optional
        Probabilities of the values at the limits themselves; what is left lies between them.

    Examples
    --------
    >>> one = tuple(np.full((1, 1), value) for value in (1.0, 0.0, 1.0, np.inf))
    >>> found = mixture_moments(PLAIN, one, np.array(0.0), np.array(np.inf))
    >>> found.mean.round(4), found.variance.round(4), found.kurtosis.round(2)
    (array([0.7979]), array([0.3634]), array([3.87]))
    >>> mixture_moments(PLAIN, one, np.array([[0.0]]), np.array([[np.inf]]), (np.array([0.5]), np.array([0.0]))).mean
    array([0.39894228])
    """
    w, m, s, v = components
    limits = low, high
    v = np.minimum(v, _GAUSSIAN_DOF)
    ends = low[..., np.newaxis], high[..., np.newaxis]
    # Infinite where a number would be too large, and then as far as is looked.
    with np.errstate(over="ignore"):
        low, high = np.clip([(low - m) / s, (high - m) / s], -_FARTHEST, _FARTHEST)
    peak = np.clip(0.0, low, high)
    fall = np.minimum(_FALL / np.maximum(v - _GROWTH[scale.transform], 1e-3), _LARGEST_FALL_PER_DOF)

    def far(t: FloatArray) -> FloatArray:
        """The point at which the density has fallen by `_FALL`, seen from `t`."""
        return np.asarray(np.sqrt(v * np.expm1(np.log1p(t * t / v) + 2.0 * fall)))

    stops = [np.maximum(low, -far(peak)), peak, np.minimum(high, far(peak))]
    if scale.transform == "log":
        # Second moments have their peak two scales further up, in units of s.
        stops[2] = np.minimum(high, far(np.maximum(peak, 2.0 * s)))
    elif scale.transform == "logit":
        # A step from bound to bound, seen from far out in heavy tails.
        stops.append(np.clip(-m / s, stops[0], stops[2]))
    root = np.sqrt(v)
    x = root * np.arcsinh(np.sort(stops, axis=0) / root)
    half = 0.5 * np.diff(x, axis=0)
    # (n_panels, n_rows, n_components, n_nodes)
    x = x[:-1, ..., np.newaxis] + half[..., np.newaxis] * (1.0 + _NODES)
    root, v = root[..., np.newaxis], v[..., np.newaxis]
    t = root * np.sinh(x / root)
    density = np.exp(t_log_norm(v) - 0.5 * v * np.log1p(t * t / v))
    mass = (w * half)[..., np.newaxis] * _NODE_WEIGHTS * density
    # Divided by its own sum: the mean is then within the bounds, whatever the error.
    total = mass.sum(axis=(0, 2, 3), keepdims=True)
    if not total.all():
        # Limits coincide in the last digit, or no component has any mass between them: all of it lies there.
        mass = np.where(total > 0.0, mass, w[..., np.newaxis] * _NODE_WEIGHTS)
        total = mass.sum(axis=(0, 2, 3), keepdims=True)
    mass /= total
    y = scale.to_user(np.clip(m[..., np.newaxis] + s[..., np.newaxis] * t, *ends))
    y, mass = (np.moveaxis(part, 1, 0).reshape(len(y[0]), -1) for part in (y, mass))
    if lumps is not None:
        at_ends, of_ends = scale.to_user(np.hstack(limits)), np.stack(lumps, axis=1)
        # Where there is no lump a limit may be infinite.
        y = np.hstack([y, np.where(of_ends > 0.0, at_ends, y[:, :1])])
        mass = np.hstack([mass * np.maximum(1.0 - of_ends.sum(axis=1, keepdims=True), 0.0), of_ends])
    mean = (mass * y).sum(axis=1)
    away = y - mean[:, np.newaxis]
    # In units of the largest distance: a square may be beyond the range of numbers, then the variance is infinite.
    largest = np.maximum(np.abs(away).max(axis=1), 1e-300)
    squares = (away / largest[:, np.newaxis]) ** 2
    second, fourth = (mass * squares).sum(axis=1), (mass * squares * squares).sum(axis=1)
    with np.errstate(over="ignore"):
        return Moments(mean, second * largest * largest, fourth / np.maximum(second * second, 1e-300))


def cut_moments(scale: Scale, components: Components, low: FloatArray, high: FloatArray, cut: float = CUT) -> Moments:
    """Moments of one target after the probability `cut` on either side was moved to the quantile there.

    As `mixture_moments`, with these quantiles, on the scale of the model, as limits of shape (n_rows,).

    Examples
    --------
    The variance of a Student-t of 2.5 degrees of freedom is 5; one of 1.5 has none.

    >>> cut_t_variance(np.array([2.5, 1.5])).round(2)
    array([ 4.03, 43.95])
    """
    lumps = np.full(low.shape, cut)
    return mixture_moments(scale, components, low[:, np.newaxis], high[:, np.newaxis], (lumps, lumps))


def settled(n_rows: int, moments_at: Callable[[IntArray, float], Moments]) -> tuple[FloatArray, FloatArray]:
    """Variances after the first of `CUTS` that leaves a kurtosis of `MOST_KURTOSIS` at most, and these cuts.

    ``moments_at(rows, cut)`` gives the moments of some of the rows after a cut. After the last of `CUTS` they are taken
    as they are.

    Examples
    --------
    A component of weight .001 that is a hundred times as wide as the other, alone, has a kurtosis of some 2,500.

    >>> parts = [np.array([part]) for part in ([0.999, 0.001], [0.0, 0.0], [1.0, 100.0], [np.inf, np.inf])]
    >>> far = {1e-4: 128.2, 3e-4: 52.4, 1e-3: 3.28}
    >>> def moments_at(rows, cut):
    ...     return cut_moments(PLAIN, parts, np.array([-far[cut]]), np.array([far[cut]]), cut)
    >>> variance, cut = settled(1, moments_at)
    >>> variance.round(2), cut
    (array([1.01]), array([0.001]))
    """
    variance, cuts = np.empty((2, n_rows))
    rows = np.arange(n_rows)
    for cut in CUTS:
        found = moments_at(rows, cut)
        variance[rows], cuts[rows] = found.variance, cut
        rows = rows[found.kurtosis > MOST_KURTOSIS]
        if not rows.size:
            break
    return variance, cuts


def cut_score(cut: FloatArray) -> FloatArray:
    """Normal scores at which tails are cut, infinite where `cut` is zero.

    Examples
    --------
    >>> cut_score(np.array([0.0, 1e-4, 1e-2])).round(3)
    array([  inf, 3.719, 2.326])
    """
    return np.asarray(-ndtri(cut))


def cut_t_variance(dof: FloatArray) -> FloatArray:
    """Variance of standard Student-t's, `dof` of shape (n,), after the cut of their tails."""
    one = np.ones((dof.size, 1))
    far = -t_quantile(CUT, dof)
    return cut_moments(PLAIN, (one, 0.0 * one, one, dof[:, np.newaxis]), -far, far).variance
