"""Means and variances of mixtures of Student-t's between limits, and the cut of tails that no data can judge.

A Student-t of fewer than three degrees of freedom has no third moment: its standard deviation is decided by values that
are rarer than any feed is long, and that of samples does not settle. Second moments and samples of such a target are
those of the distribution *cut* at `CUT`: the outermost probability on either side is moved to the quantile where it
begins. Quantiles, probabilities and densities are those of the whole distribution.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import ndtri

from momostream.distributions.student import FloatArray, t_log_norm, t_quantile

__all__ = [
    "CUT",
    "CUT_SCORE",
    "LEAST_INDEX",
    "PLAIN",
    "QUADRATURE_VALUES",
    "cut_moments",
    "cut_t_variance",
    "mixture_moments",
]

#: Probability that is cut on either side of a distribution with heavy tails, and its normal score.
CUT = 1e-4
CUT_SCORE = float(-ndtri(CUT))
#: Tails are heavy if moments exist only below this order.
LEAST_INDEX = 3.0

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

TwoArrays = tuple[FloatArray, FloatArray]
Components = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


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


def mixture_moments(scale: Scale, components: Components, low: FloatArray, high: FloatArray) -> TwoArrays:
    """Mean and variance of one target, given that it lies between limits.

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

    Returns
    -------
    mean, variance : arrays of shape (n_rows,)

    Examples
    --------
    >>> one = tuple(np.full((1, 1), value) for value in (1.0, 0.0, 1.0, np.inf))
    >>> mean, variance = mixture_moments(PLAIN, one, np.array(0.0), np.array(np.inf))
    >>> mean.round(4), variance.round(4)
    (array([0.7979]), array([0.3634]))
    """
    w, m, s, v = components
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
    mean = (mass * y).sum(axis=(0, 2, 3))
    away = y - mean[:, np.newaxis, np.newaxis]
    # In units of the largest distance: a square may be beyond the range of numbers, then the variance is infinite.
    largest = np.maximum(np.abs(away).max(axis=(0, 2, 3)), 1e-300)
    shares = (mass * (away / largest[:, np.newaxis, np.newaxis]) ** 2).sum(axis=(0, 2, 3))
    with np.errstate(over="ignore"):
        return mean, shares * largest * largest


def cut_moments(scale: Scale, components: Components, low: FloatArray, high: FloatArray) -> TwoArrays:
    """Mean and variance of one target after the probability `CUT` on either side was moved to the quantile there.

    As `mixture_moments`, with these quantiles, on the scale of the model, as limits of shape (n_rows,).

    Examples
    --------
    The variance of a Student-t of 2.5 degrees of freedom is 5; one of 1.5 has none.

    >>> cut_t_variance(np.array([2.5, 1.5])).round(2)
    array([ 4.03, 43.95])
    """
    mean, variance = mixture_moments(scale, components, low[:, np.newaxis], high[:, np.newaxis])
    ends = scale.to_user(np.stack([low, high]))
    cut_mean = (1.0 - 2.0 * CUT) * mean + CUT * ends.sum(axis=0)
    with np.errstate(over="ignore"):
        inside = variance + (mean - cut_mean) ** 2
        return cut_mean, (1.0 - 2.0 * CUT) * inside + CUT * ((ends - cut_mean) ** 2).sum(axis=0)


def cut_t_variance(dof: FloatArray) -> FloatArray:
    """Variance of standard Student-t's, `dof` of shape (n,), after the cut of their tails."""
    one = np.ones((dof.size, 1))
    far = -t_quantile(CUT, dof)
    return cut_moments(PLAIN, (one, 0.0 * one, one, dof[:, np.newaxis]), -far, far)[1]
