"""Mixtures of Student-t's whose degrees of freedom are tabulated: what stacked experts predict, in compiled code.

Each function leaves NaN where a component has other degrees of freedom, and says so.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import hyp2f1, log_ndtr, ndtr, stdtr

from momostream.distributions.student import FloatArray, t_log_norm, t_log_pdf
from momostream.kernels.quantiles import (
    PER_UNIT,
    REACH,
    WORK,
    mixture_log_pdf,
    mixture_quantiles,
    mixture_tails,
    row_interval,
    row_intervals,
)

__all__ = ["TABULATED", "Tables", "interval", "intervals", "log_pdf", "quantiles", "tables", "tails"]

#: Degrees of freedom in the tables: those of the tails of a stack and of its copula, and the Gaussian.
TABULATED = (2.5, 4.0, 8.0, 20.0, 100.0, np.inf)

Components = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


class Tables(NamedTuple):
    """What the kernels read: degrees of freedom, log norms, inverses (3, n); coefficients (n, n_cells, 6)."""

    dofs: FloatArray
    coefficients: FloatArray


@cache
def tables() -> Tables:
    """The tables of all degrees of freedom in `TABULATED`.

    Examples
    --------
    The first coefficient of a cell is the log distribution function at its start:

    >>> float(np.exp(tables().coefficients[0, 0, 0]).round(12))
    0.5
    """
    dofs = np.array(TABULATED)
    return Tables(np.stack([dofs, t_log_norm(dofs), 1.0 / dofs]), np.stack([_coefficients(dof) for dof in TABULATED]))


def _coefficients(dof: float) -> FloatArray:
    """Polynomials of degree five that have, at both ends of their cells, the values and two derivatives of log F."""
    width = 1.0 / PER_UNIT
    u = np.linspace(0.0, REACH, int(REACH * PER_UNIT) + 1)
    z = np.sinh(u)
    log_F = _log_lower_tail(z, dof)
    # d log F(-sinh u) / du = -rate
    rate = np.exp(t_log_pdf(z, dof) - log_F) * np.cosh(u)
    fall = z if np.isinf(dof) else (dof + 1.0) * z / (dof + z * z)
    if np.isinf(dof):
        # Beyond, differences of huge logarithms have no digits; probabilities are zero in any case.
        rate = np.where(z > 1e4, z * np.cosh(u), rate)
    g0, g1, g2 = log_F, -rate * width, -rate * (np.tanh(u) - fall * np.cosh(u) + rate) * width**2
    a0, a1, a2, b0, b1, b2 = g0[:-1], g1[:-1], 0.5 * g2[:-1], g0[1:], g1[1:], 0.5 * g2[1:]
    rise = b0 - a0
    return np.stack(
        [
            a0,
            a1,
            a2,
            10.0 * rise - 6.0 * a1 - 4.0 * b1 - 3.0 * a2 + b2,
            -15.0 * rise + 8.0 * a1 + 7.0 * b1 + 3.0 * a2 - 2.0 * b2,
            6.0 * rise - 3.0 * a1 - 3.0 * b1 - a2 + b2,
        ],
        axis=1,
    )


def _log_lower_tail(z: FloatArray, dof: float) -> FloatArray:
    """Log of the probability below ``-z``."""
    if np.isinf(dof):
        return np.asarray(np.where(z < 5.0, np.log(ndtr(-np.minimum(z, 5.0))), log_ndtr(-z)))
    near = z * z < dof
    # Far out as an incomplete beta function with its power taken out of the logarithm: F itself may underflow.
    x = dof / (dof + z * z)
    series = hyp2f1(0.5 * dof + 0.5, 1.0, 0.5 * dof + 1.0, np.where(near, 0.5, x))
    far = t_log_pdf(z, dof) + np.log(np.maximum(z, 1e-300)) + np.log(series / dof)
    return np.asarray(np.where(near, np.log(stdtr(dof, -np.where(near, z, 0.0))), far))


def _shaped(values: FloatArray) -> FloatArray:
    """As (n_levels, n_rows, n_targets), contiguous."""
    return np.ascontiguousarray(values.reshape(math.prod(values.shape[:-2]), *values.shape[-2:]))


def _contiguous(components: Components) -> Components:
    w, m, s, v = components
    return np.ascontiguousarray(w), np.ascontiguousarray(m), np.ascontiguousarray(s), np.ascontiguousarray(v)


def _scratch(components: Components) -> FloatArray:
    return np.empty((WORK, max(components[0].shape[1], len(TABULATED))))


def quantiles(p: FloatArray, sign: FloatArray, components: Components) -> tuple[FloatArray, int]:
    """Values with tail probability `p` up to 0.5 below them, or above them where `sign` is -1.

    Parameters
    ----------
    p, sign : arrays of shape (..., n_rows, n_targets)
        Tail probabilities and sides.
    components : four arrays of shape (n_rows, n_components, n_targets)
        Weights, locations, scales and degrees of freedom. A scale of 0 is a lump of probability at the location.

    Returns
    -------
    values : array of the shape of `p`
        Off by at most 1e-9 of the scale there.
    n_missed : int
        Rows and targets that are NaN: a component has degrees of freedom that are not in `TABULATED`, or is not valid.

    Examples
    --------
    >>> half = np.full((1, 1), 0.5)
    >>> components = tuple(np.reshape(a, (1, 2, 1)) for a in ([0.5, 0.5], [0.0, 4.0], [1.0, 1.0], [4.0, 4.0]))
    >>> values, n_missed = quantiles(half, np.ones((1, 1)), components)
    >>> float(values[0, 0].round(6)), n_missed
    (2.0, 0)
    """
    dofs, coefficients = tables()
    levels = _shaped(p)
    found = np.empty(levels.shape)
    n_missed = mixture_quantiles(
        levels, _shaped(sign), dofs, coefficients, *_contiguous(components), _scratch(components), np.empty(3), found
    )
    return found.reshape(p.shape), n_missed


def interval(below: float, above: float, planes: FloatArray, limits: FloatArray, gives_way: float) -> FloatArray | None:
    """Ends (2, n_targets) of intervals of one row with these tail probabilities, up to 0.5, below and above them.

    Parameters
    ----------
    planes : array of shape (5, n_components, n_targets)
        See `momostream.distributions.planes`.
    limits, gives_way
        See `momostream.distributions.limited.limits_at`; limits of no target are none.

    Returns
    -------
    array, or None if a component has degrees of freedom that are not in `TABULATED`, or is not valid.
    """
    dofs, coefficients = tables()
    _, n_components, n_targets = planes.shape
    work, ends = np.empty((WORK, max(n_components, len(TABULATED)))), np.empty((2, n_targets))
    missed = row_interval(below, above, planes, limits, gives_way, dofs, coefficients, work, np.empty(3), ends)
    return None if missed else ends


def intervals(
    below: float, above: float, plane_rows: FloatArray, limits: FloatArray, gives_way: float
) -> FloatArray | None:
    """As `interval` for many rows: planes (n_rows, 5, ...), limits (n_rows, 4, n_targets), ends (n_rows, 2, ...)."""
    dofs, coefficients = tables()
    n_rows, _, n_components, n_targets = plane_rows.shape
    work, ends = np.empty((WORK, max(n_components, len(TABULATED)))), np.empty((n_rows, 2, n_targets))
    missed = row_intervals(below, above, plane_rows, limits, gives_way, dofs, coefficients, work, np.empty(3), ends)
    return None if missed else ends


def tails(Y: FloatArray, components: Components) -> tuple[FloatArray, FloatArray, int]:
    """Probabilities of at most and of more than `Y` (..., n_rows, n_targets), to 1e-10 of their size."""
    dofs, coefficients = tables()
    values = _shaped(Y)
    found = np.empty((2, *values.shape))
    n_missed = mixture_tails(
        values, dofs, coefficients, *_contiguous(components), _scratch(components), found[0], found[1]
    )
    return found[0].reshape(Y.shape), found[1].reshape(Y.shape), n_missed


def log_pdf(Y: FloatArray, components: Components) -> tuple[FloatArray, int]:
    """Log densities of `Y` (..., n_rows, n_targets), 0 where it is NaN; missed are lumps, too, see `quantiles`."""
    values = _shaped(Y)
    found = np.empty(values.shape)
    n_missed = mixture_log_pdf(values, tables().dofs, *_contiguous(components), _scratch(components), found)
    return found.reshape(Y.shape), n_missed
