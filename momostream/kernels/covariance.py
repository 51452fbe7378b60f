"""Covariances of rows: columns, matrices and the gradients of their likelihood."""

from __future__ import annotations

import math

from momostream.kernels._compile import both, f8, i8, kernel, ro, rw, void
from momostream.kernels.scalar import FARTHEST, decay, dot

__all__ = [
    "MATERN12",
    "MATERN32",
    "MATERN52",
    "RBF",
    "SQRT3",
    "SQRT5",
    "TILE",
    "add_linear_gradient",
    "covariance_column",
    "cross_covariance",
    "gram",
    "gram_and_slope",
    "likelihood_gradient",
    "mirror_lower",
]

MATERN12 = 0
MATERN32 = 1
MATERN52 = 2
RBF = 3
SQRT3 = math.sqrt(3.0)
SQRT5 = math.sqrt(5.0)
# 32 x 32 numbers of 8 bytes for each side of a transposition fit the first-level cache.
TILE = 32


@kernel(f8(ro(1), ro(1)))
def _squared_distance(s, t):
    """Return |s - t|^2."""
    total = 0.0
    for k in range(s.shape[0]):
        difference = s[k] - t[k]
        total += difference * difference
    return total


@kernel(both(lambda f: void(i8, rw(1, f))))
def _correlate(kind, values):
    """Overwrite squared distances by correlations."""
    if kind == MATERN12:
        for i in range(values.shape[0]):
            values[i] = decay(math.sqrt(values[i]))
    elif kind == MATERN32:
        for i in range(values.shape[0]):
            a = SQRT3 * math.sqrt(values[i])
            values[i] = (1.0 + min(a, FARTHEST)) * decay(a)
    elif kind == MATERN52:
        for i in range(values.shape[0]):
            a = SQRT5 * math.sqrt(values[i])
            b = min(a, FARTHEST)
            values[i] = (1.0 + b + b * b / 3.0) * decay(a)
    else:
        for i in range(values.shape[0]):
            values[i] = decay(0.5 * values[i])


@kernel(void(i8, rw(1), rw(1)))
def _correlate_and_slope(kind, values, slopes):
    """Overwrite squared distances d2 by correlations, and `slopes` by -2 d corr / d(d2)."""
    if kind == MATERN12:
        for i in range(values.shape[0]):
            a = math.sqrt(values[i])
            e = decay(a)
            values[i] = e
            # The slope is infinite where points coincide, but it only ever meets factors (s_ik - s_jk)^2 =
            # 0 there.
            slopes[i] = 0.0 if a == 0.0 else e / a
    elif kind == MATERN32:
        for i in range(values.shape[0]):
            a = SQRT3 * math.sqrt(values[i])
            e = decay(a)
            values[i] = (1.0 + min(a, FARTHEST)) * e
            slopes[i] = 3.0 * e
    elif kind == MATERN52:
        for i in range(values.shape[0]):
            a = SQRT5 * math.sqrt(values[i])
            e = decay(a)
            b = min(a, FARTHEST)
            values[i] = (1.0 + b + b * b / 3.0) * e
            slopes[i] = (5.0 / 3.0) * (1.0 + b) * e
    else:
        for i in range(values.shape[0]):
            e = decay(0.5 * values[i])
            values[i] = e
            slopes[i] = e


@kernel(both(lambda f: void(i8, f8, ro(2), i8, ro(1), rw(1, f))))
def covariance_column(kind, linear, S, n, s, out):
    """Set ``out[:n]`` to ``k(S[:n], s)``.  O(n D)."""
    column = out[:n]
    for i in range(n):
        column[i] = _squared_distance(S[i], s)
    _correlate(kind, column)
    if linear > 0.0:
        for i in range(n):
            column[i] += linear * dot(S[i], s)


@kernel(void(i8, f8, ro(2), ro(2), rw(2)))
def cross_covariance(kind, linear, S, T, out):
    """Set ``out[i, j]`` to ``k(S[i], T[j])``; `out` has shape ``(len(S), len(T))``."""
    for i in range(S.shape[0]):
        covariance_column(kind, linear, T, T.shape[0], S[i], out[i])


@kernel(void(rw(2)))
def mirror_lower(A):
    """Copy the lower triangle of a square matrix onto its upper triangle."""
    n = A.shape[0]
    # By tiles: whole columns of a large matrix would miss the cache at every number.
    for top in range(0, n, TILE):
        bottom = min(top + TILE, n)
        for left in range(0, bottom, TILE):
            for i in range(top, bottom):
                for j in range(left, min(left + TILE, i)):
                    A[j, i] = A[i, j]


@kernel(void(i8, f8, f8, ro(2), rw(2)))
def gram(kind, linear, noise, S, out):
    """Set `out` to ``k(S, S) + noise * I``, both triangles.  O(n^2 D)."""
    for i in range(S.shape[0]):
        covariance_column(kind, linear, S, i + 1, S[i], out[i])
        out[i, i] += noise
    mirror_lower(out)


@kernel(void(i8, f8, f8, ro(2), rw(2), rw(2)))
def gram_and_slope(kind, linear, noise, T, K, G):
    """Set the lower triangles of `K`, as `gram` does, and of `G`, slopes of the correlation.  O(n^2 D).

    `T` (D, n) are the scaled rows, one column each. ``G[i, j] = -2 d corr / d(d2)`` at ``d2 = |s_i - s_j|^2``, so that
    the derivative of the correlation by the logarithm of lengthscale ``k`` is ``G[i, j] * (T[k, i] - T[k, j])^2``. The
    diagonal of `G` is zero.
    """
    D = T.shape[0]
    for i in range(T.shape[1]):
        row = K[i, : i + 1]
        for j in range(i + 1):
            row[j] = 0.0
        # Along the rows, not along the few inputs of each: so the loops vectorise.
        for k in range(D):
            t = T[k, : i + 1]
            s = t[i]
            for j in range(i + 1):
                difference = t[j] - s
                row[j] += difference * difference
        _correlate_and_slope(kind, row, G[i, : i + 1])
        if linear > 0.0:
            for k in range(D):
                t = T[k, : i + 1]
                s = linear * t[i]
                for j in range(i + 1):
                    row[j] += s * t[j]
        row[i] += noise
        G[i, i] = 0.0


@kernel(void(ro(2), ro(2), f8, ro(2), ro(2), rw(1), rw(1)))
def likelihood_gradient(inverse, A, weight, G, T, scratch, out):
    """Set ``out[k]`` to ``0.5 sum_ij W_ij G_ij (T_ki - T_kj)^2`` and ``out[D]`` to ``0.5 trace(W)``.  O(n^2 (D + P)).

    ``W = weight * inverse - A' A`` with `A` (P, n); only the lower triangles of `inverse` and `G` are read. `T` (D, n)
    is as in `gram_and_slope`, `scratch` (n).
    """
    D = T.shape[0]
    for k in range(D + 1):
        out[k] = 0.0
    for i in range(T.shape[1]):
        w = scratch[: i + 1]
        row = inverse[i, : i + 1]
        g = G[i, : i + 1]
        for j in range(i + 1):
            w[j] = weight * row[j]
        for p in range(A.shape[0]):
            a = A[p, : i + 1]
            own = a[i]
            for j in range(i + 1):
                w[j] -= own * a[j]
        out[D] += 0.5 * w[i]
        for j in range(i + 1):
            w[j] *= g[j]
        for k in range(D):
            t = T[k, : i + 1]
            s = t[i]
            total = 0.0
            for j in range(i):
                difference = t[j] - s
                total += w[j] * difference * difference
            out[k] += total


@kernel(void(ro(2), ro(2), f8, f8, ro(2), rw(1), rw(1)))
def add_linear_gradient(inverse, A, weight, linear, T, scratch, out):
    """Add what a linear term changes to `out` of `likelihood_gradient`, and set ``out[D + 1]``.  O(n^2 (D + P))."""
    D = T.shape[0]
    out[D + 1] = 0.0
    for i in range(T.shape[1]):
        w = scratch[: i + 1]
        row = inverse[i, : i + 1]
        for j in range(i + 1):
            w[j] = weight * row[j]
        for p in range(A.shape[0]):
            a = A[p, : i + 1]
            own = a[i]
            for j in range(i + 1):
                w[j] -= own * a[j]
        # Each pair of rows counts twice, each row once.
        w[i] *= 0.5
        for k in range(D):
            t = T[k, : i + 1]
            total = 0.0
            for j in range(i + 1):
                total += w[j] * t[j]
            total *= 2.0 * linear * t[i]
            out[k] -= total
            out[D + 1] += 0.5 * total
