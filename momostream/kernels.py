"""Compiled loops: covariances, the packed Cholesky factor and what changes it.

Letters used throughout:

* ``S`` (rows, D): *scaled coordinates*, inputs divided by their lengthscales; ``s``, ``T`` likewise.
* ``L``: a lower triangle packed by rows; row ``i`` starts at ``i * (i + 1) // 2`` and has ``i + 1`` entries,
  so that appending a row is a contiguous write and a solve is a sequence of dots of contiguous rows.
* ``Y``, ``Z`` (rows, P): centred targets and the solved targets ``L^-1 Y``.
* ``v``: ``L^-1 k(S, s)`` for one point ``s``.
* ``n``: rows in use; arrays may have room for more.

The covariance is ``k(s, t) = corr(|s - t|^2) + linear * (s . t)`` where ``kind`` names ``corr`` and
``linear >= 0``.

Arrays are C-contiguous float64; `L` and `v` may, both, be float32. What a kernel only reads may be read-only memory.
Lengths are not checked: the callers in this package know them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types

__all__ = [
    "MATERN12",
    "MATERN32",
    "MATERN52",
    "NOT_POSITIVE_DEFINITE",
    "OK",
    "RBF",
    "append_block",
    "append_row",
    "blend_learn",
    "blend_solve",
    "both",
    "covariance_column",
    "cross_covariance",
    "drop_oldest",
    "lag_features",
    "learn_copula",
    "learn_lags",
    "learn_lags_rows",
    "learn_leaf",
    "learn_leaf_rows",
    "learn_linear",
    "learn_moments",
    "likelihood_gradient",
    "measure_leaf",
    "gram",
    "gram_and_slope",
    "kernel",
    "members_learn",
    "mirror_lower",
    "own_features",
    "own_learn",
    "own_predict",
    "own_solve",
    "pack_lower",
    "past_append",
    "predict_lags",
    "predict_lags_rows",
    "predict_leaf",
    "predict_leaf_rows",
    "predict_linear",
    "project",
    "rebuild",
    "rebuild_leaf",
    "recall",
    "refresh_copula",
    "remember",
    "ro",
    "rw",
    "solve_lower",
    "solve_upper",
    "stack_learn",
    "stack_learn_rows",
    "stack_predict",
    "stack_predict_rows",
    "unpack_lower",
    "unpack_rows",
]

MATERN12 = 0
MATERN32 = 1
MATERN52 = 2
RBF = 3

OK = 0
NOT_POSITIVE_DEFINITE = 1

# Inverse-gamma prior of an output's variance: how many rows it is worth, and the variance it expects.
NU0 = 2.0
SCALE0 = 0.3

SQRT3 = math.sqrt(3.0)
SQRT5 = math.sqrt(5.0)

# Beyond exp(-80) = 2e-35 a correlation counts as zero, and so does a number below 1e-100 in a solution, or 1e-18 in one
# of single precision: products of smaller ones would be denormal, which slows arithmetic down a hundredfold. Compared
# with the noise all are nothing.
FARTHEST = 80.0
TINY, TINY_SINGLE = 1e-100, 1e-18

# log 2 in two parts, the first with so few digits that its product with a whole number is exact; and the
# number that, added and taken away again, rounds to whole numbers.
SQRT2 = math.sqrt(2.0)
LOG2 = math.log(2.0)
LOG2E = 1.4426950408889634
LOG2_HIGH = 6.93145751953125e-1
LOG2_LOW = 1.42860682030941723212e-6
TO_INTEGER = 1.5 * 2.0**52

# Targets after which the laws of an output are taken seriously.
SETTLED = 4.0
# The usual log scale of an expert before it has one.
UNKNOWN = -1e300
# Mean square of a leaf's residuals, in units of its signal, is not believed to be smaller.
LEAST_SQUARE = 1e-10
# A scale is never smaller than these parts of the deviation and of the size of an output: a stuck sensor may move.
LEAST_OF_DEVIATION, LEAST_OF_SIZE = 1e-5, 1e-9
# A tail's variance factor never falls below this.
LEAST_FACTOR = 1e-8
# Tables: distribution functions over asinh(z), and Student-t quantiles over normal scores.
CDF_REACH, CDF_PER_UNIT = 16.0, 64.0
SCORE_REACH, SCORE_PER_UNIT = 7.0, 32.0
# Normal scores are cut here before they teach a correlation: one wild row must not.
SCORE_CLIP = 4.0

# Moments worth so many rows know how large a feature usually is, and are enough for a first regression; weights from
# two or three rows are wild, and stay until their turn comes again. The penalty on the level of a regression, in rows.
ENOUGH_TO_CUT, ENOUGH_TO_SOLVE, LEVEL_PENALTY = 30.0, 8.0, 1e-3
# Values in the short means of a series.
SHORT, LONG = 8, 32
# Differences below this part of the values are round-off.
ROUND_OFF = 1e-11
# No expert of a blend is forgotten altogether.
LEAST_BLEND = 1e-4

# 32 x 32 numbers of 8 bytes for each side of a transposition fit the first-level cache.
TILE = 32

i8 = types.int64
f8 = types.float64
void = types.void


# Whole numbers that a kernel only reads.
whole = types.Array(i8, 1, "C", readonly=True)


def ro(ndim: int, number: Any = f8) -> Any:
    """Type of an array that the kernel only reads; accepts read-only memory."""
    return types.Array(number, ndim, "C", readonly=True)


def rw(ndim: int, number: Any = f8) -> Any:
    """Type of an array that the kernel writes."""
    return types.Array(number, ndim, "C")


def both(signature: Callable[[Any], Any]) -> list[Any]:
    """Signatures for factors of double and of single precision, from a function of the type of their numbers."""
    return [signature(f8), signature(types.float32)]


def kernel(signature: Any, reassociate: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for one signature, with the flags that all kernels share.

    Parameters
    ----------
    signature : numba signature or list of them
        Result type called with the argument types, arrays given by `ro` and `rw`.
    reassociate : bool
        Whether sums may be regrouped; false where a result depends on the order of two roundings.

    Returns
    -------
    callable
        The decorator. Machine code is cached on disk where a directory for it can be written.
    """
    # Not fastmath=True: it lets the compiler assume that there are no NaNs, and np.isnan then answers False.
    fastmath = {"reassoc", "contract", "nsz"} if reassociate else {"contract"}
    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}

    def compile_function(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return njit(signature, cache=True, **options)(function)
        except (RuntimeError, OSError):
            # No cache directory can be written (a read-only installation, a full disk): compile in each
            # process.
            return njit(signature, **options)(function)

    return compile_function


# --- covariances ----------------------------------------------------------------------------------


@kernel(f8(ro(1), ro(1)))
def _squared_distance(s, t):
    """Return |s - t|^2."""
    total = 0.0
    for k in range(s.shape[0]):
        difference = s[k] - t[k]
        total += difference * difference
    return total


@kernel(both(lambda f: f8(ro(1, f), ro(1, f))))
def _dot(s, t):
    """Return s . t."""
    total = 0.0
    for k in range(s.shape[0]):
        total += s[k] * t[k]
    return total


@kernel(f8(f8), reassociate=False)
def _decay(a):
    """Return exp(-a) for a >= 0, and zero beyond `FARTHEST`; without a branch, so that loops of it vectorise.

    -a = k log 2 + r with an integer k: a Taylor polynomial of exp(r), times 2^k written into the exponent bits.
    Regrouping the sums would cancel the rounding to k.
    """
    x = -min(a, FARTHEST)
    shifted = x * LOG2E + TO_INTEGER
    k = shifted - TO_INTEGER
    r = (x - k * LOG2_HIGH) - k * LOG2_LOW
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    power = (np.float64(shifted).view(np.int64) + np.int64(1023)) << np.int64(52)
    result = p * np.int64(power).view(np.float64)
    # The comparison also lets a NaN through, which min would have hidden.
    return result if a <= FARTHEST else (0.0 if a > FARTHEST else a)


@kernel(f8(f8))
def _log(x):
    """Return log(x) of a positive, normal number to about 1e-15; without a branch, so that loops of it vectorise."""
    bits = np.float64(x).view(np.int64)
    exponent = (bits >> np.int64(52)) - np.int64(1023)
    mantissa = np.int64((bits & np.int64(0xFFFFFFFFFFFFF)) | (np.int64(1023) << np.int64(52))).view(np.float64)
    large = mantissa > SQRT2
    m = 0.5 * mantissa if large else mantissa
    e = float(exponent) + (1.0 if large else 0.0)
    f = (m - 1.0) / (m + 1.0)
    g = f * f
    p = 1.0 / 19.0
    p = p * g + 1.0 / 17.0
    p = p * g + 1.0 / 15.0
    p = p * g + 1.0 / 13.0
    p = p * g + 1.0 / 11.0
    p = p * g + 1.0 / 9.0
    p = p * g + 1.0 / 7.0
    p = p * g + 0.2
    p = p * g + 1.0 / 3.0
    p = p * g + 1.0
    return e * LOG2 + 2.0 * f * p


@kernel(both(lambda f: void(i8, rw(1, f))))
def _correlate(kind, values):
    """Overwrite squared distances by correlations."""
    if kind == MATERN12:
        for i in range(values.shape[0]):
            values[i] = _decay(math.sqrt(values[i]))
    elif kind == MATERN32:
        for i in range(values.shape[0]):
            a = SQRT3 * math.sqrt(values[i])
            values[i] = (1.0 + min(a, FARTHEST)) * _decay(a)
    elif kind == MATERN52:
        for i in range(values.shape[0]):
            a = SQRT5 * math.sqrt(values[i])
            b = min(a, FARTHEST)
            values[i] = (1.0 + b + b * b / 3.0) * _decay(a)
    else:
        for i in range(values.shape[0]):
            values[i] = _decay(0.5 * values[i])


@kernel(void(i8, rw(1), rw(1)))
def _correlate_and_slope(kind, values, slopes):
    """Overwrite squared distances d2 by correlations, and `slopes` by -2 d corr / d(d2)."""
    if kind == MATERN12:
        for i in range(values.shape[0]):
            a = math.sqrt(values[i])
            e = _decay(a)
            values[i] = e
            # The slope is infinite where points coincide, but it only ever meets factors (s_ik - s_jk)^2 =
            # 0 there.
            slopes[i] = 0.0 if a == 0.0 else e / a
    elif kind == MATERN32:
        for i in range(values.shape[0]):
            a = SQRT3 * math.sqrt(values[i])
            e = _decay(a)
            values[i] = (1.0 + min(a, FARTHEST)) * e
            slopes[i] = 3.0 * e
    elif kind == MATERN52:
        for i in range(values.shape[0]):
            a = SQRT5 * math.sqrt(values[i])
            e = _decay(a)
            b = min(a, FARTHEST)
            values[i] = (1.0 + b + b * b / 3.0) * e
            slopes[i] = (5.0 / 3.0) * (1.0 + b) * e
    else:
        for i in range(values.shape[0]):
            e = _decay(0.5 * values[i])
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
            column[i] += linear * _dot(S[i], s)


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
def gram_and_slope(kind, linear, noise, S, K, G):
    """Set `K` as `gram` does, and `G` to the slope of the correlation, both triangles.  O(n^2 D).

    ``G[i, j] = -2 d corr / d(d2)`` at ``d2 = |s_i - s_j|^2``, so that the derivative of the correlation by
    the logarithm of lengthscale ``k`` is ``G[i, j] * (S[i, k] - S[j, k])^2``. The diagonal of `G` is zero.
    """
    for i in range(S.shape[0]):
        row = K[i, : i + 1]
        for j in range(i + 1):
            row[j] = _squared_distance(S[j], S[i])
        _correlate_and_slope(kind, row, G[i, : i + 1])
        if linear > 0.0:
            for j in range(i + 1):
                row[j] += linear * _dot(S[j], S[i])
        row[i] += noise
        G[i, i] = 0.0
    mirror_lower(K)
    mirror_lower(G)


# --- triangular solves ----------------------------------------------------------------------------


@kernel(both(lambda f: void(ro(1, f), i8, rw(1, f))))
def solve_lower(L, n, b):
    """Overwrite ``b[:n]`` by ``L^-1 b[:n]``.  O(n^2)."""
    # Four rows at a time share the loads of b and hide the latency of each other's sums. Rows are sliced
    # before the inner loop: indexing L[start + j] there costs three times as much.
    zero = L.dtype.type(0.0)
    tiny = TINY if L.itemsize == 8 else TINY_SINGLE
    i = 0
    while i + 4 <= n:
        o0 = i * (i + 1) // 2
        o1 = o0 + i + 1
        o2 = o1 + i + 2
        o3 = o2 + i + 3
        r0 = L[o0 : o0 + i]
        r1 = L[o1 : o1 + i]
        r2 = L[o2 : o2 + i]
        r3 = L[o3 : o3 + i]
        x = b[:i]
        a0 = zero
        a1 = zero
        a2 = zero
        a3 = zero
        for j in range(i):
            a0 += r0[j] * x[j]
            a1 += r1[j] * x[j]
            a2 += r2[j] * x[j]
            a3 += r3[j] * x[j]
        x0 = (b[i] - a0) / L[o0 + i]
        x1 = (b[i + 1] - a1 - L[o1 + i] * x0) / L[o1 + i + 1]
        x2 = (b[i + 2] - a2 - L[o2 + i] * x0 - L[o2 + i + 1] * x1) / L[o2 + i + 2]
        x3 = (b[i + 3] - a3 - L[o3 + i] * x0 - L[o3 + i + 1] * x1 - L[o3 + i + 2] * x2) / L[o3 + i + 3]
        # Written so that NaN stays.
        b[i] = zero if abs(x0) < tiny else x0
        b[i + 1] = zero if abs(x1) < tiny else x1
        b[i + 2] = zero if abs(x2) < tiny else x2
        b[i + 3] = zero if abs(x3) < tiny else x3
        i += 4
    while i < n:
        o0 = i * (i + 1) // 2
        r0 = L[o0 : o0 + i]
        x = b[:i]
        a0 = zero
        for j in range(i):
            a0 += r0[j] * x[j]
        x0 = (b[i] - a0) / L[o0 + i]
        b[i] = zero if abs(x0) < tiny else x0
        i += 1


@kernel(void(ro(1), i8, rw(1)))
def solve_upper(L, n, b):
    """Overwrite ``b[:n]`` by ``L^-T b[:n]``.  O(n^2)."""
    # As updates of b by rows of L: going down the columns would touch one number per cache line.
    i = n
    while i >= 4:
        i -= 4
        o0 = i * (i + 1) // 2
        o1 = o0 + i + 1
        o2 = o1 + i + 2
        o3 = o2 + i + 3
        x3 = b[i + 3] / L[o3 + i + 3]
        x2 = (b[i + 2] - L[o3 + i + 2] * x3) / L[o2 + i + 2]
        x1 = (b[i + 1] - L[o3 + i + 1] * x3 - L[o2 + i + 1] * x2) / L[o1 + i + 1]
        x0 = (b[i] - L[o3 + i] * x3 - L[o2 + i] * x2 - L[o1 + i] * x1) / L[o0 + i]
        b[i] = x0
        b[i + 1] = x1
        b[i + 2] = x2
        b[i + 3] = x3
        r0 = L[o0 : o0 + i]
        r1 = L[o1 : o1 + i]
        r2 = L[o2 : o2 + i]
        r3 = L[o3 : o3 + i]
        x = b[:i]
        for j in range(i):
            x[j] -= r0[j] * x0 + r1[j] * x1 + r2[j] * x2 + r3[j] * x3
    while i > 0:
        i -= 1
        o0 = i * (i + 1) // 2
        x0 = b[i] / L[o0 + i]
        b[i] = x0
        r0 = L[o0 : o0 + i]
        x = b[:i]
        for j in range(i):
            x[j] -= r0[j] * x0


# --- the factor as rows come and go ---------------------------------------------------------------


@kernel(both(lambda f: f8(i8, f8, ro(2), ro(1, f), ro(2), i8, ro(1), rw(1, f), rw(1))))
def project(kind, linear, S, L, Z, n, s, v, mean):
    """Condition the point `s` on the first `n` rows.  O(n^2 + n D + n P).

    Sets ``v[:n] = L^-1 k(S[:n], s)`` and ``mean = Z[:n]' v``, and returns ``k(s, s) - v' v``, which is the
    variance of the latent function in units of the signal variance. Round-off may make it slightly
    negative: callers add the noise and take no less than the noise.
    """
    covariance_column(kind, linear, S, n, s, v)
    solve_lower(L, n, v)
    P = mean.shape[0]
    for p in range(P):
        mean[p] = 0.0
    # Four rows at a time: each addition to a mean waits for the one before.
    i = 0
    while i + 4 <= n:
        z0 = Z[i]
        z1 = Z[i + 1]
        z2 = Z[i + 2]
        z3 = Z[i + 3]
        for p in range(P):
            mean[p] += z0[p] * v[i] + z1[p] * v[i + 1] + z2[p] * v[i + 2] + z3[p] * v[i + 3]
        i += 4
    while i < n:
        z = Z[i]
        for p in range(P):
            mean[p] += z[p] * v[i]
        i += 1
    head = v[:n]
    # The product also where linear == 0: a NaN in s then shows even if there are no rows yet.
    return 1.0 + linear * _dot(s, s) - _dot(head, head)


@kernel(both(lambda f: void(i8, ro(1), ro(1, f), f8, ro(1), rw(2), rw(2), rw(1, f))))
def append_row(n, s, v, pivot, residual, S, Z, L):
    """Add a row after the first `n`; there must be room for it.  O(n + D + P).

    Sets ``S[n] = s``, row `n` of `L` to ``(v[:n], pivot)`` and ``Z[n] = residual / pivot``. `v` comes from
    `project` at `s`, `residual` is the target minus the mean found there, and `pivot` the square root of
    the variance plus noise.
    """
    for k in range(s.shape[0]):
        S[n, k] = s[k]
    start = n * (n + 1) // 2
    row = L[start : start + n]
    for j in range(n):
        row[j] = v[j]
    L[start + n] = pivot
    for p in range(residual.shape[0]):
        Z[n, p] = residual[p] / pivot


@kernel(i8(i8, f8, f8, i8, i8, ro(2), rw(1), rw(1), rw(2), rw(2), rw(1)))
def rebuild(kind, linear, noise, start, stop, Y, v, mean, S, Z, L):
    """Factorise rows `start` to `stop - 1` of `S`, given a valid factor of the rows before.  O(stop^3).

    Overwrites rows ``start:stop`` of `L` and `Z`, and the scratch `v` (at least ``stop - 1`` long) and
    `mean` (P); the content of `S` stays. The operations are those of `project` and `append_row` one row at
    a time, so that the result is the same bit for bit.

    Returns `OK`, or `NOT_POSITIVE_DEFINITE` at the first row whose variance is not a positive number; the
    rows before it are then valid.
    """
    for i in range(start, stop):
        variance = project(kind, linear, S, L, Z, i, S[i], v, mean)
        # The variance given the other rows is never below the noise; round-off must not make it so.
        c = noise + variance
        if c < noise:
            c = noise
        # An overflow in v gives a variance of minus infinity, which the noise would hide.
        if not math.isfinite(variance) or not math.isfinite(c) or c <= 0.0:
            return NOT_POSITIVE_DEFINITE
        for p in range(mean.shape[0]):
            mean[p] = Y[i, p] - mean[p]
        append_row(i, S[i], v, math.sqrt(c), mean, S, Z, L)
    return OK


@kernel(both(lambda f: void(i8, rw(2), rw(2), rw(1, f), rw(1))))
def drop_oldest(n, S, Z, L, work):
    """Delete row 0 of `n` rows (``n >= 1``).  O(n^2 + n D + n P).

    Without its first row and column the matrix is ``L22 L22' + l l'``, with ``l`` the first column of `L`:
    Givens rotations absorb ``l`` into the trailing factor, a rank-one *update*, which is stable. The same
    rotations carry `Z` along. Afterwards the first ``n - 1`` rows of `S`, `Z` and `L` are in use.

    `work` is scratch of length at least ``2 * n + P``.
    """
    m = n - 1
    D = S.shape[1]
    P = Z.shape[1]
    cosines = work[:m]
    sines = work[m : 2 * m]
    carried = work[2 * m : 2 * m + P]

    # Row i of the new factor comes from row i + 1 of the old one, whose first entry is l[i]. Each row takes
    # the rotations of the rows above it, then makes its own. The recurrence along a row is a chain of
    # dependent operations, so four rows go side by side. New rows end before the old entries that are still
    # to be read.
    i = 0
    while i < m:
        width = 4 if i + 4 <= m else 1
        q0 = i * (i + 1) // 2
        p0 = q0 + i + 1
        x0 = L[p0]
        if width == 4:
            p1 = p0 + i + 2
            p2 = p1 + i + 3
            p3 = p2 + i + 4
            x1 = L[p1]
            x2 = L[p2]
            x3 = L[p3]
            old0 = L[p0 + 1 : p0 + 1 + i]
            old1 = L[p1 + 1 : p1 + 1 + i]
            old2 = L[p2 + 1 : p2 + 1 + i]
            old3 = L[p3 + 1 : p3 + 1 + i]
            new0 = L[q0 : q0 + i]
            new1 = L[p0 : p0 + i]
            new2 = L[p1 : p1 + i]
            new3 = L[p2 : p2 + i]
            for k in range(i):
                c = cosines[k]
                s = sines[k]
                l0 = old0[k]
                l1 = old1[k]
                l2 = old2[k]
                l3 = old3[k]
                new0[k] = c * l0 + s * x0
                new1[k] = c * l1 + s * x1
                new2[k] = c * l2 + s * x2
                new3[k] = c * l3 + s * x3
                x0 = c * x0 - s * l0
                x1 = c * x1 - s * l1
                x2 = c * x2 - s * l2
                x3 = c * x3 - s * l3
            done = i
        else:
            x1 = 0.0
            x2 = 0.0
            x3 = 0.0
            done = 0
        for r in range(width):
            if r == 0:
                x = x0
            elif r == 1:
                x = x1
            elif r == 2:
                x = x2
            else:
                x = x3
            row = i + r
            new = row * (row + 1) // 2
            old = new + row + 2
            for k in range(done, row):
                c = cosines[k]
                s = sines[k]
                entry = L[old + k]
                L[new + k] = c * entry + s * x
                x = c * x - s * entry
            entry = L[old + row]
            radius = math.sqrt(entry * entry + x * x)
            L[new + row] = radius
            cosines[row] = entry / radius
            sines[row] = x / radius
        i += width

    for p in range(P):
        carried[p] = Z[0, p]
    for i in range(m):
        c = cosines[i]
        s = sines[i]
        for p in range(P):
            z = Z[i + 1, p]
            Z[i, p] = c * z + s * carried[p]
            carried[p] = c * carried[p] - s * z
    for i in range(m):
        for k in range(D):
            S[i, k] = S[i + 1, k]


# --- leaves: regions that learn one row at a time ------------------------------------------------
#
# A leaf keeps its small vectors in two arrays: ``inputs`` (2, D) holds centre and inverse lengthscale of each
# covariate, ``outputs`` (4, P) offset, scale, discounted squares and discounted mass of each output; these start from
# the prior, ``NU0 * SCALE0`` and ``NU0``, which fades like any row. ``gaps`` (rows, P) is 1 where a target is missing,
# or has no rows at all where none is.


@kernel(both(lambda f: f8(i8, f8, f8, ro(2), ro(1, f), ro(2), ro(2), i8, ro(1), rw(1, f), rw(1), rw(1))))
def _condition_leaf(kind, linear, noise, S, L, Z, gaps, n, s, v, mean, variance):
    """Condition `s` on the first `n` rows; sets `v`, `mean`, the `variance` of each output, and returns c.

    A missing target was filled by its mean, so that it moved no mean; what it seemed to explain is given back.
    """
    explained = project(kind, linear, S, L, Z, n, s, v, mean)
    c = noise + explained
    # Written so that NaN stays.
    if c < noise:
        c = noise
    P = variance.shape[0]
    for p in range(P):
        variance[p] = c
    for i in range(min(n, gaps.shape[0])):
        square = v[i] * v[i]
        gap = gaps[i]
        for p in range(P):
            variance[p] += gap[p] * square
    return c


@kernel(both(lambda f: void(i8, f8, f8, rw(1), ro(1), ro(1), ro(1, f), ro(1), rw(2), rw(2), rw(2), rw(1, f))))
def _append_leaf(n, c, discount, residual, y, s, v, variance, outputs, S, Z, L):
    """Append a row and update the discounted squares; `residual` comes in as the mean and is overwritten."""
    offset = outputs[0]
    scale = outputs[1]
    for p in range(y.shape[0]):
        if math.isnan(y[p]):
            residual[p] = 0.0
        else:
            residual[p] = (y[p] - offset[p]) / scale[p] - residual[p]
            outputs[2, p] = discount * outputs[2, p] + residual[p] * residual[p] / variance[p]
            outputs[3, p] = discount * outputs[3, p] + 1.0
    append_row(n, s, v, math.sqrt(c), residual, S, Z, L)


@kernel(void(ro(1), ro(2), rw(1)))
def _scale_point(x, inputs, s):
    """Set `s` to `x` in lengthscales about the centre."""
    for k in range(s.shape[0]):
        s[k] = (x[k] - inputs[0, k]) * inputs[1, k]


@kernel(
    both(
        lambda f: f8(
            i8, f8, f8, i8, ro(1), ro(2), ro(2), ro(2), ro(1, f), ro(2), ro(2),
            rw(1), rw(1, f), rw(1), rw(1), rw(1), rw(1),
        )
    )
)  # fmt: skip
def predict_leaf(kind, linear, noise, n, x, inputs, outputs, S, L, Z, gaps, s, v, mean, variance, location, spread):
    """Predict the outputs at `x` from the first `n` rows.  O(n^2 + n D + n P).

    Sets location and spread of each output in the units of the targets, leaves in `s`, `v`, `mean` and `variance`
    what `learn_leaf` needs, and returns the variance of a row in units of the signal, noise included.
    """
    _scale_point(x, inputs, s)
    c = _condition_leaf(kind, linear, noise, S, L, Z, gaps, n, s, v, mean, variance)
    for p in range(location.shape[0]):
        location[p] = outputs[0, p] + outputs[1, p] * mean[p]
        square = max(outputs[2, p] / outputs[3, p], LEAST_SQUARE)
        spread[p] = outputs[1, p] * math.sqrt(variance[p] * square)
    return c


@kernel(both(lambda f: void(i8, f8, f8, ro(1), ro(1), ro(1, f), rw(1), ro(1), rw(2), rw(2), rw(2), rw(1, f))))
def learn_leaf(n, c, discount, y, s, v, mean, variance, outputs, S, Z, L):
    """Append the row that `predict_leaf` was last called with, now that its targets `y` are known.  O(n + D + P).

    NaN in `y` is a missing target. `mean` is overwritten. There must be room for a row.
    """
    _append_leaf(n, c, discount, mean, y, s, v, variance, outputs, S, Z, L)


@kernel(
    both(
        lambda f: i8(
            i8, f8, f8, f8, i8, i8, ro(2), ro(2), ro(2), ro(2),
            rw(2), rw(1), rw(1, f), rw(1), rw(1), rw(2), rw(2), rw(1, f),
        )
    )
)  # fmt: skip
def rebuild_leaf(
    kind, linear, noise, discount, start, stop, X, Y, inputs, gaps, outputs, s, v, mean, variance, S, Z, L
):
    """Learn rows `start` to `stop - 1` of `X` and `Y` one after the other, as `learn_leaf` would.  O(stop^3).

    Returns `OK`, or `NOT_POSITIVE_DEFINITE` at the first row whose variance is not a positive number.
    """
    for i in range(start, stop):
        _scale_point(X[i], inputs, s)
        c = _condition_leaf(kind, linear, noise, S, L, Z, gaps, i, s, v, mean, variance)
        if not (math.isfinite(c) and c > 0.0):
            return NOT_POSITIVE_DEFINITE
        _append_leaf(i, c, discount, mean, Y[i], s, v, variance, outputs, S, Z, L)
    return OK


@kernel(
    both(
        lambda f: void(
            i8, f8, f8, i8, ro(2), ro(2), ro(2), ro(2), ro(1, f), ro(2), ro(2),
            rw(1), rw(1, f), rw(1), rw(1), rw(2), rw(2),
        )
    )
)  # fmt: skip
def predict_leaf_rows(
    kind, linear, noise, n, X, inputs, outputs, S, L, Z, gaps, s, v, mean, variance, location, spread
):
    """As `predict_leaf` for many rows; `location` and `spread` have one line each."""
    for i in range(X.shape[0]):
        predict_leaf(
            kind, linear, noise, n, X[i], inputs, outputs, S, L, Z, gaps, s, v, mean, variance, location[i], spread[i]
        )


@kernel(
    both(
        lambda f: void(
            i8, f8, f8, f8, i8, ro(2), ro(2), ro(2), ro(2),
            rw(2), rw(1), rw(1, f), rw(1), rw(1), rw(2), rw(2), rw(1, f), rw(2), rw(2),
        )
    )
)  # fmt: skip
def learn_leaf_rows(
    kind, linear, noise, discount, n, X, Y, inputs, gaps, outputs, s, v, mean, variance, S, Z, L, location, spread
):
    """Predict and learn rows one after the other, as `predict_leaf` and `learn_leaf` do; there must be room."""
    for i in range(X.shape[0]):
        c = predict_leaf(
            kind, linear, noise, n + i, X[i], inputs, outputs, S, L, Z, gaps, s, v, mean, variance,
            location[i], spread[i],
        )  # fmt: skip
        learn_leaf(n + i, c, discount, Y[i], s, v, mean, variance, outputs, S, Z, L)


@kernel(both(lambda f: void(i8, f8, ro(2), ro(2), ro(2), ro(2), rw(2), rw(2), rw(2), rw(1, f), rw(2), rw(2))))
def append_block(n, discount, V, C, solved, T, outputs, S, Z, L, location, spread):
    """Append a block of rows to a leaf at once, and say what each was predicted given those before it.  O(b (n + b)).

    `V` (b, n) are the new rows of the factor left of their own block and `C` (b, b) that block's lower factor;
    `solved` (b, P) are the rows of `Z`, `T` (b, D) the scaled points.
    """
    P = solved.shape[1]
    tiny = TINY if L.itemsize == 8 else TINY_SINGLE
    for i in range(V.shape[0]):
        start = (n + i) * (n + i + 1) // 2
        row = L[start : start + n]
        source = V[i]
        for j in range(n):
            row[j] = 0.0 if abs(source[j]) < tiny else source[j]
        tail = L[start + n : start + n + i + 1]
        for j in range(i + 1):
            tail[j] = 0.0 if abs(C[i, j]) < tiny else C[i, j]
        for k in range(T.shape[1]):
            S[n + i, k] = T[i, k]
        pivot = C[i, i]
        for p in range(P):
            z = solved[i, p]
            Z[n + i, p] = z
            # `location` comes in as the targets.
            location[i, p] -= outputs[1, p] * z * pivot
            square = max(outputs[2, p] / outputs[3, p], LEAST_SQUARE)
            spread[i, p] = outputs[1, p] * pivot * math.sqrt(square)
            outputs[2, p] = discount * outputs[2, p] + z * z
            outputs[3, p] = discount * outputs[3, p] + 1.0


@kernel(void(i8, f8, ro(2), ro(2), rw(2)))
def measure_leaf(n, discount, Z, gaps, outputs):
    """Recompute the discounted squares and mass of each output from `Z`, after rows have been dropped.  O(n P)."""
    for p in range(Z.shape[1]):
        outputs[2, p] = NU0 * SCALE0
        outputs[3, p] = NU0
    for i in range(n):
        for p in range(Z.shape[1]):
            if i >= gaps.shape[0] or gaps[i, p] == 0.0:
                outputs[2, p] = discount * outputs[2, p] + Z[i, p] * Z[i, p]
                outputs[3, p] = discount * outputs[3, p] + 1.0


@kernel(void(ro(2), ro(2), f8, ro(2), ro(2), rw(1)))
def likelihood_gradient(inverse, A, weight, G, S, out):
    """Set ``out[k]`` to ``0.5 sum_ij W_ij G_ij (S_ik - S_jk)^2`` and ``out[D]`` to ``0.5 trace(W)``.  O(n^2 (D + P)).

    ``W = weight * inverse - A A'``; only the lower triangles of `inverse` and `G` are read.
    """
    n = S.shape[0]
    D = S.shape[1]
    for k in range(D + 1):
        out[k] = 0.0
    for i in range(n):
        s = S[i]
        a = A[i]
        row = inverse[i]
        g = G[i]
        for j in range(i + 1):
            w = weight * row[j] - _dot(a, A[j])
            if j == i:
                out[D] += 0.5 * w
            else:
                t = S[j]
                w *= g[j]
                for k in range(D):
                    difference = s[k] - t[k]
                    out[k] += w * difference * difference


# --- linear regression on lags ---------------------------------------------------------------------


@kernel(void(ro(1), ro(2), ro(2), ro(2), f8, rw(1)))
def lag_features(x, past_x, past_y, units, clip, f):
    """Set `f` to 1 and the standardised features of a row.  O(D + P).

    In this order: `x`, its change, the last `y`, and then two older changes of `y` and one of `x`. `past_x` (2, D)
    and `past_y` (3, P) hold the newest row first; `units` (2, width - 1) centre and spread of each feature. Features
    are cut at `clip` spreads: one jump must not throw the prediction of the next row.
    """
    D = x.shape[0]
    P = past_y.shape[1]
    f[0] = 1.0
    at = 1
    for k in range(D):
        f[at + k] = x[k]
        f[at + D + k] = x[k] - past_x[0, k]
    at += 2 * D
    for p in range(P):
        f[at + p] = past_y[0, p]
        f[at + P + p] = past_y[0, p] - past_y[1, p]
        f[at + 2 * P + p] = past_y[1, p] - past_y[2, p]
    at += 3 * P
    for k in range(D):
        f[at + k] = past_x[0, k] - past_x[1, k]
    for j in range(units.shape[1]):
        u = (f[j + 1] - units[0, j]) / units[1, j]
        # An output without a past has no lags yet: they count as their mean.
        f[j + 1] = 0.0 if math.isnan(u) else min(max(u, -clip), clip)


@kernel(f8(i8, ro(1), ro(2), ro(2), rw(1), rw(1)))
def predict_linear(width, f, P, B, gain, mean):
    """Set ``gain = P f`` and ``mean = B' f`` over the first `width` features; returns ``1 + f' P f``."""
    head = f[:width]
    total = 0.0
    for i in range(width):
        gain[i] = _dot(P[i, :width], head)
        total += f[i] * gain[i]
    for p in range(mean.shape[0]):
        mean[p] = 0.0
    for i in range(width):
        for p in range(mean.shape[0]):
            mean[p] += B[i, p] * f[i]
    # Round-off must not make the variance of a row smaller than its noise.
    return 1.0 + max(total, 0.0)


@kernel(void(i8, f8, f8, ro(1), ro(1), rw(2), rw(2)))
def learn_linear(width, forgetting, c, gain, error, P, B):
    """Recursive least squares: move the weights `B` by the `error` of a row and update `P`.  O(width^2).

    `gain` and `c` come from `predict_linear`.
    """
    below = forgetting + c - 1.0
    for i in range(width):
        share = gain[i] / below
        for p in range(error.shape[0]):
            B[i, p] += share * error[p]
        row = P[i]
        for j in range(width):
            row[j] = (row[j] - share * gain[j]) / forgetting


@kernel(void(ro(1), ro(2), ro(2), ro(2), f8, i8, ro(3), ro(3), ro(2), rw(1), rw(2), rw(2), rw(1), rw(2), rw(2)))
def predict_lags(x, past_x, past_y, units, clip, short, P, B, residuals, f, gains, means, c, location, spread):
    """Predict the change of `y` by a linear regression on all features, by one on the `short` first ones, and as zero.

    `P` (2, width, width) and `B` (2, width, outputs) belong to the regressions, ``residuals`` (6, outputs) holds the
    discounted squares of the three predictions and their mass. Sets `location` and `spread` (3, outputs), and what
    `learn_lags` needs: `f`, `gains` (2, width), `means` (2, outputs), `c` (2). O(width^2).
    """
    lag_features(x, past_x, past_y, units, clip, f)
    width = f.shape[0]
    c[0] = predict_linear(width, f, P[0], B[0], gains[0], means[0])
    c[1] = predict_linear(short, f, P[1], B[1], gains[1], means[1])
    for p in range(location.shape[1]):
        last = past_y[0, p]
        for k in range(3):
            location[k, p] = last + means[k, p] if k < 2 else last
            mass = residuals[3 + k, p]
            # Few residuals say little about the next: wider by as much as a Student-t of so few is.
            square = residuals[k, p] / mass * (1.0 + NU0 / mass) if mass > 0.0 else math.inf
            spread[k, p] = math.sqrt(square * c[k] if k < 2 else square)


@kernel(void(ro(1), ro(1), rw(2), rw(2)))
def remember(x, y, past_x, past_y):
    """Put a row in front of the last ones; a missing target keeps its last value.

    An output that is seen for the first time (its past is NaN) is taken to have had this value before.
    """
    for k in range(x.shape[0]):
        past_x[1, k] = past_x[0, k]
        past_x[0, k] = x[k]
    for p in range(y.shape[0]):
        if math.isnan(past_y[0, p]):
            past_y[2, p] = past_y[1, p] = past_y[0, p] = y[p]
        else:
            past_y[2, p] = past_y[1, p]
            past_y[1, p] = past_y[0, p]
            if not math.isnan(y[p]):
                past_y[0, p] = y[p]


@kernel(void(ro(2), ro(2), ro(2), ro(2), f8, i8, ro(3), ro(3), ro(2), rw(1), rw(2), rw(2), rw(1), rw(3), rw(3)))
def predict_lags_rows(X, past_x, past_y, units, clip, short, P, B, residuals, f, gains, means, c, location, spread):
    """As `predict_lags` for many rows; `location` and `spread` are (rows, 3, outputs)."""
    for i in range(X.shape[0]):
        predict_lags(
            X[i], past_x, past_y, units, clip, short, P, B, residuals, f, gains, means, c, location[i], spread[i]
        )


@kernel(
    void(ro(1), ro(1), f8, f8, i8, ro(2), ro(2), ro(1), ro(1), rw(2), rw(2), rw(1), rw(3), rw(3), rw(2), rw(1), rw(1))
)
def learn_lags(
    x, y, forgetting, discount, short, gains, means, c, f, past_x, past_y, error, P, B, residuals, features, change
):
    """Learn the targets `y` of the row that `predict_lags` was last called for, NaN where missing.  O(width^2).

    Keeps the row as the newest of the past, and its `features` and the `change` of each output for later.
    """
    for j in range(f.shape[0]):
        features[j] = f[j]
    for p in range(y.shape[0]):
        change[p] = y[p] - past_y[0, p]
    remember(x, y, past_x, past_y)
    for k in range(3):
        for p in range(change.shape[0]):
            if math.isnan(change[p]):
                error[p] = 0.0
                continue
            error[p] = change[p] - means[k, p] if k < 2 else change[p]
            square = error[p] * error[p]
            residuals[k, p] = discount * residuals[k, p] + (square / c[k] if k < 2 else square)
            residuals[3 + k, p] = discount * residuals[3 + k, p] + 1.0
        if k < 2:
            width = short if k == 1 else P.shape[1]
            learn_linear(width, forgetting, c[k], gains[k], error, P[k], B[k])


@kernel(
    void(
        ro(2), ro(2), f8, f8, f8, i8, rw(2), rw(2), ro(2), rw(1), rw(2), rw(2), rw(1), rw(1),
        rw(3), rw(3), rw(2), rw(2), rw(2), rw(4),
    )
)  # fmt: skip
def learn_lags_rows(
    X, Y, clip, forgetting, discount, short, past_x, past_y, units, f, gains, means, c, error,
    P, B, residuals, features, changes, laws,
):  # fmt: skip
    """Predict and learn rows one after the other; `laws` (rows, 2, 3, outputs) gets locations and spreads.

    `features` and `changes` get what `Autoregression` adds up later.
    """
    for i in range(X.shape[0]):
        predict_lags(
            X[i], past_x, past_y, units, clip, short, P, B, residuals, f, gains, means, c, laws[i, 0], laws[i, 1]
        )
        learn_lags(
            X[i], Y[i], forgetting, discount, short, gains, means, c, f, past_x, past_y, error, P, B, residuals,
            features[i], changes[i],
        )  # fmt: skip


@kernel(void(ro(2), rw(2)))
def learn_moments(rows, moments):
    """Update count, mean and sum of squared deviations (3, columns) of each column; NaN is skipped."""
    for i in range(rows.shape[0]):
        row = rows[i]
        for k in range(row.shape[0]):
            if not math.isnan(row[k]):
                moments[0, k] += 1.0
                away = row[k] - moments[1, k]
                moments[1, k] += away / moments[0, k]
                moments[2, k] += away * (row[k] - moments[1, k])


# --- stacking -------------------------------------------------------------------------------------
#
# ``law`` (5, K, P) holds location, spread, scale, degrees of freedom and weight of each expert and output;
# ``mixing`` (3, K, P) the learnt weight, the usual log scale and the number of the tail in use; ``tails`` (2, K, P, G)
# the variance factor and the discounted log score of each candidate tail; ``outputs`` (4, P) the log of a common scale
# factor, the number of targets seen, their mean and variance. ``candidates`` (2, G) holds degrees of freedom and log
# norm of the tails.


@kernel(void(f8, ro(2), ro(3), ro(4), ro(2), rw(3), rw(1)))
def stack_predict(sharpness, candidates, mixing, tails, outputs, law, mean):
    """Fill scale, degrees of freedom and weight of each expert from its location and spread; set the stacked `mean`.

    An expert that is less sure than usual counts for less: its weight is multiplied by
    ``(usual scale / scale)^sharpness``. An expert without a finite spread has no say.
    """
    K = law.shape[1]
    for p in range(law.shape[2]):
        factor = math.exp(outputs[0, p])
        least = LEAST_OF_DEVIATION * math.sqrt(outputs[3, p]) + LEAST_OF_SIZE * abs(outputs[2, p])
        total = 0.0
        for k in range(K):
            g = int(mixing[2, k, p])
            spread = law[1, k, p]
            law[3, k, p] = candidates[0, g]
            if math.isfinite(spread) and spread > 0.0:
                scale = max(spread * math.sqrt(tails[0, k, p, g]) * factor, least)
                away = mixing[1, k, p] - _log(scale)
                if mixing[1, k, p] == UNKNOWN:
                    away = 0.0
                law[2, k, p] = scale
                law[4, k, p] = mixing[0, k, p] * math.exp(sharpness * min(max(away, -40.0), 40.0))
            else:
                law[0, k, p] = 0.0
                law[2, k, p] = 1.0
                law[4, k, p] = 0.0
            total += law[4, k, p]
        mean[p] = 0.0
        for k in range(K):
            law[4, k, p] = law[4, k, p] / total if total > 0.0 else 1.0 / K
            mean[p] += law[4, k, p] * law[0, k, p]


@kernel(void(f8, ro(2), ro(3), ro(4), ro(2), rw(4), rw(2)))
def stack_predict_rows(sharpness, candidates, mixing, tails, outputs, laws, means):
    """As `stack_predict` for many rows: `laws` (rows, 5, K, P), `means` (rows, P)."""
    for i in range(laws.shape[0]):
        stack_predict(sharpness, candidates, mixing, tails, outputs, laws[i], means[i])


@kernel(f8(f8, f8))
def _t_log_shape(dof, square):
    """Log density of a Student-t relative to that at its centre."""
    return -0.5 * (dof + 1.0) * _log(1.0 + square / dof)


@kernel(f8(ro(1), f8, f8, f8))
def _interpolate(table, x, lowest, per_unit):
    """Value of a table at `x`, linear between its entries, which start at `lowest` and come `per_unit` to one."""
    place = (x - lowest) * per_unit
    last = table.shape[0] - 2
    i = int(min(max(place, 0.0), float(last)))
    part = min(max(place - i, 0.0), 1.0)
    return table[i] + part * (table[i + 1] - table[i])


@kernel(f8(f8))
def _normal_quantile(u):
    """Quantile of the standard normal for u in (0, 1), to about 4e-4: enough to learn a correlation from."""
    tail = min(u, 1.0 - u)
    t = math.sqrt(-2.0 * _log(tail))
    q = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
    return -q if u < 0.5 else q


@kernel(void(ro(1), ro(1), ro(2), ro(2), rw(3), rw(4), rw(2), rw(3), rw(1), rw(1)))
def stack_learn(rates, y, candidates, cdf, mixing, tails, outputs, law, likelihood, scores):
    """Learn weights and tails from the targets `y` of the row that `stack_predict` was last called for.  O(K P G).

    `rates` holds the step of the weights, their floor, the least step of the tails, the discount of their scores, the
    step of the common scale and that of the usual scale. NaN in `y` leaves an output as it is.
    Sets ``scores[p]`` to the normal score of each target, NaN where it is missing. `likelihood` (K) is scratch.
    """
    eta, floor, tail_step, tail_discount, scale_step, usual_step = (
        rates[0], rates[1], rates[2], rates[3], rates[4], rates[5],
    )  # fmt: skip
    K = law.shape[1]
    G = candidates.shape[1]
    for p in range(y.shape[0]):
        if math.isnan(y[p]):
            scores[p] = math.nan
            continue
        outputs[1, p] += 1.0
        young = 1.0 / (1.0 + outputs[1, p])
        away = y[p] - outputs[2, p]
        outputs[2, p] += away / outputs[1, p]
        outputs[3, p] += (away * (y[p] - outputs[2, p]) - outputs[3, p]) / outputs[1, p]
        # Nobody can have known the units of an output before its first target, and without an expert that has a spread
        # there is nothing to learn from either.
        voices = 0.0 if outputs[1, p] > 1.0 else -math.inf
        for k in range(K):
            if math.isfinite(law[1, k, p]) and law[1, k, p] > 0.0:
                voices += law[4, k, p]
        if voices <= 0.0:
            scores[p] = math.nan
            continue
        # Densities of the experts, relative to the largest.
        largest = -math.inf
        for k in range(K):
            z = min(max((y[p] - law[0, k, p]) / law[2, k, p], -1e100), 1e100)
            g = int(mixing[2, k, p])
            likelihood[k] = candidates[1, g] - _log(law[2, k, p]) + _t_log_shape(law[3, k, p], z * z)
            if law[4, k, p] > 0.0:
                largest = max(largest, likelihood[k])
        density = 0.0
        below = 0.0
        for k in range(K):
            likelihood[k] = _decay(max(largest - likelihood[k], 0.0))
            if law[4, k, p] > 0.0:
                density += law[4, k, p] * likelihood[k]
                z = min(max((y[p] - law[0, k, p]) / law[2, k, p], -1e100), 1e100)
                size = _log(abs(z) + math.sqrt(1.0 + z * z))
                g = int(mixing[2, k, p])
                below += law[4, k, p] * _interpolate(cdf[g], size if z > 0.0 else -size, -CDF_REACH, CDF_PER_UNIT)
        # The very first laws are guesses: their scores say nothing about how outputs go together.
        settled = outputs[1, p] > SETTLED
        scores[p] = _normal_quantile(min(max(below, 1e-9), 1.0 - 1e-9)) if settled else math.nan
        # Weights: a step of expectation-maximisation, in the share that each had in this row.
        pull = 0.0
        total = 0.0
        for k in range(K):
            share = law[4, k, p]
            if share > 0.0:
                blame = share * likelihood[k] / density
                z = min(max((y[p] - law[0, k, p]) / law[2, k, p], -1e100), 1e100)
                dof = law[3, k, p]
                pull += blame * ((dof + 1.0) * z * z / (dof + z * z) - 1.0)
                change = eta * (blame - share)
                # In proportion to the learnt weight, as the share is.
                mixing[0, k, p] *= max(1.0 + change / share, 0.5) if share > 1e-12 else 1.0
            mixing[0, k, p] = max(mixing[0, k, p], floor)
            total += mixing[0, k, p]
        for k in range(K):
            mixing[0, k, p] /= total
        if settled:
            outputs[0, p] = min(max(outputs[0, p] + scale_step * pull, -3.0), 3.0)
        # Tails of each expert on its own.
        for k in range(K):
            spread = law[1, k, p]
            if not (math.isfinite(spread) and spread > 0.0):
                continue
            log_scale = _log(law[2, k, p])
            if mixing[1, k, p] == UNKNOWN:
                mixing[1, k, p] = log_scale
            else:
                mixing[1, k, p] += max(usual_step, young) * (log_scale - mixing[1, k, p])
            z = min(max((y[p] - law[0, k, p]) / spread, -1e15), 1e15)
            square = z * z
            step = max(tail_step, young)
            factors = tails[0, k, p]
            fits = tails[1, k, p]
            for g in range(G):
                dof = candidates[0, g]
                factor = factors[g]
                # norm - log(factor) / 2 - (dof + 1) / 2 log(1 + square / factor / dof), with two logarithms.
                fits[g] = tail_discount * fits[g] + (
                    candidates[1, g] + 0.5 * dof * _log(factor) - 0.5 * (dof + 1.0) * _log(factor + square / dof)
                )
                robust = (dof + 1.0) / (dof + square / factor) * square
                factors[g] = max((1.0 - step) * factor + step * robust, LEAST_FACTOR)
            best = 0
            for g in range(1, G):
                if fits[g] > fits[best]:
                    best = g
            mixing[2, k, p] = best


@kernel(i8(f8, f8, ro(3), ro(3), rw(3), rw(3), rw(1)))
def refresh_copula(prior_mass, floor, moments, pairs, R, factors, log_dets):
    """Set the correlations `R` (C, P, P), their lower factors and half log determinants from discounted moments.

    The prior is worth `prior_mass` rows of independence. A matrix that pairs with different rows have made indefinite
    is drawn towards independence until it has a factor. Returns how often that was needed.
    """
    P = R.shape[1]
    repairs = 0
    for c in range(R.shape[0]):
        shrink = 1.0 - floor
        while True:
            for i in range(P):
                for j in range(i + 1):
                    R[c, i, j] = moments[c, i, j] / (pairs[c, i, j] + prior_mass)
            for i in range(P):
                own = prior_mass / (pairs[c, i, i] + prior_mass)
                factors[c, i, i] = math.sqrt(R[c, i, i] + own)
            for i in range(P):
                for j in range(i):
                    r = shrink * R[c, i, j] / (factors[c, i, i] * factors[c, j, j])
                    R[c, i, j] = r
                    R[c, j, i] = r
            for i in range(P):
                R[c, i, i] = 1.0
            fine = True
            log_det = 0.0
            for i in range(P):
                for j in range(i + 1):
                    a = R[c, i, j]
                    for k in range(j):
                        a -= factors[c, i, k] * factors[c, j, k]
                    if j < i:
                        factors[c, i, j] = a / factors[c, j, j]
                    else:
                        if not a > 0.1 * floor:
                            fine = False
                            a = 1.0
                        factors[c, i, i] = math.sqrt(a)
                        log_det += 0.5 * math.log(a)
            if fine:
                break
            repairs += 1
            shrink *= 0.9
        log_dets[c] = log_det
    return repairs


@kernel(void(ro(1), f8, ro(1), ro(1), ro(2), ro(2), ro(3), ro(1), rw(3), rw(3), rw(2), rw(2)))
def learn_copula(
    discounts, score_discount, scores, dofs, norms, quantiles, factors, log_dets, moments, pairs, fit, work
):
    """Learn the correlation of normal scores at several speeds, and how well each speed and tail did.  O(C V P^2).

    ``fit`` (C, V) are discounted log densities of the copula with the correlation of speed `c` and ``dofs[v]`` degrees
    of freedom; `norms` (2, V) the log norms of the joint and of the marginal Student-t; `quantiles` (V, n) tables that
    turn normal scores into those of the Student-t; `work` (2, P) scratch. NaN scores are outputs not seen: they teach
    only the pairs that were.
    """
    P = scores.shape[0]
    whole = True
    for p in range(P):
        if math.isnan(scores[p]):
            whole = False
    if whole:
        t = work[0]
        z = work[1]
        for v in range(dofs.shape[0]):
            dof = dofs[v]
            alone = 0.0
            for p in range(P):
                t[p] = _interpolate(quantiles[v], scores[p], -SCORE_REACH, SCORE_PER_UNIT)
                alone += norms[1, v] + _t_log_shape(dof, t[p] * t[p])
            for c in range(factors.shape[0]):
                L = factors[c]
                square = 0.0
                for i in range(P):
                    z[i] = (t[i] - _dot(L[i, :i], z[:i])) / L[i, i]
                    square += z[i] * z[i]
                joint = norms[0, v] - log_dets[c] - 0.5 * (dof + P) * _log(1.0 + square / dof)
                fit[c, v] = score_discount * fit[c, v] + joint - alone
    for c in range(discounts.shape[0]):
        d = discounts[c]
        for i in range(P):
            if math.isnan(scores[i]):
                continue
            a = min(max(scores[i], -SCORE_CLIP), SCORE_CLIP)
            for j in range(i + 1):
                if math.isnan(scores[j]):
                    continue
                b = min(max(scores[j], -SCORE_CLIP), SCORE_CLIP)
                moments[c, i, j] = d * moments[c, i, j] + a * b
                pairs[c, i, j] = d * pairs[c, i, j] + 1.0


@kernel(
    i8(
        f8, ro(1), i8, i8, ro(2), ro(2), ro(2), ro(1), f8, ro(1), ro(2), ro(2), f8, f8,
        rw(3), rw(4), rw(2), rw(4), rw(1), rw(1), rw(1), rw(3), rw(3), rw(1), rw(3), rw(3), rw(2), rw(2),
    )
)  # fmt: skip
def stack_learn_rows(
    sharpness, rates, done, every, Y, candidates, cdf, discounts, score_discount, dofs, norms, quantiles, prior, floor,
    mixing, tails, outputs, laws, mean, likelihood, scores, R, factors, log_dets, moments, pairs, fit, work,
):  # fmt: skip
    """Predict and learn the rows `Y` one after the other; `laws` (rows, 5, K, P) holds locations and spreads.

    `done` is the number of rows learnt before; correlations are refreshed every so many. Returns how often.
    """
    refreshed = 0
    for i in range(Y.shape[0]):
        stack_predict(sharpness, candidates, mixing, tails, outputs, laws[i], mean)
        stack_learn(rates, Y[i], candidates, cdf, mixing, tails, outputs, laws[i], likelihood, scores)
        done += 1
        if Y.shape[1] > 1:
            learn_copula(
                discounts, score_discount, scores, dofs, norms, quantiles, factors, log_dets, moments, pairs, fit, work
            )
            if done % every == 0:
                refresh_copula(prior, floor, moments, pairs, R, factors, log_dets)
                refreshed += 1
    return refreshed


# --- forecasts -------------------------------------------------------------------------------------


@kernel(void(i8, i8, ro(1), ro(1), f8, rw(1), rw(1), rw(1), rw(3), rw(3), rw(2)))
def past_append(first, now, y, x, slow_step, is_known, knows_input, n_missing, series, inputs, observed):
    """Put a row at the place `now`, after those from `first` on; NaN is missing.

    `series` (rows, 4, P) gets the value, gaps filled with the last one, the slow mean and the means of the last `SHORT`
    and `LONG` values; `inputs` (rows, 2, D) value and slow mean. A column that was never seen (`is_known`,
    `knows_input` zero) is taken to have had its first value all along.
    """
    before = max(now - 1, first)
    for p in range(y.shape[0]):
        observed[now, p] = y[p]
        if math.isnan(y[p]):
            n_missing[p] += 1.0
            series[now, 0, p] = series[before, 0, p]
        else:
            n_missing[p] = 0.0
            if is_known[p] == 0.0:
                is_known[p] = 1.0
                for i in range(first, now + 1):
                    for k in range(4):
                        series[i, k, p] = y[p]
            series[now, 0, p] = y[p]
        slow = series[before, 1, p]
        series[now, 1, p] = slow + slow_step * (series[now, 0, p] - slow)
        for k in range(2):
            start = max(now + 1 - (LONG if k else SHORT), first)
            total = 0.0
            for i in range(start, now + 1):
                total += series[i, 0, p] - series[now, 0, p]
            series[now, 2 + k, p] = series[now, 0, p] + total / (now + 1 - start)
    for k in range(x.shape[0]):
        if math.isnan(x[k]):
            inputs[now, 0, k] = inputs[before, 0, k]
        else:
            if knows_input[k] == 0.0:
                knows_input[k] = 1.0
                for i in range(first, now + 1):
                    inputs[i, 0, k] = x[k]
                    inputs[i, 1, k] = x[k]
            inputs[now, 0, k] = x[k]
        slow = inputs[before, 1, k]
        inputs[now, 1, k] = slow + slow_step * (inputs[now, 0, k] - slow)


@kernel(void(i8, i8, i8, ro(1), ro(3), i8, ro(1), ro(4), ro(5), ro(4), ro(5), rw(2), rw(3), rw(3)))
def recall(now, every, last, y, inputs, own, stands_still, located, sloped, blend_slope, laws, values, errors, law):
    """Set what is known at the row `now` about the forecasts of its value, those made one row ago first.

    Only forecasts of `every` so many rows are looked at: those between overlap with them. Which ones changes after H
    rows, so that a sensor that speaks at every second row is heard at all steps.

    The rings hold forecasts by the number of their row, modulo H, and step: `located` (H, H, K, P) those of the
    experts, of which the two from `own` on move by `sloped` (H, H, 2, P, D) with the change of the inputs since then;
    `laws` (H, H, 5, M, P) the laws, whose members move by `blend_slope` (H, H, P, D) unless they stand still. The row
    is at the place `last` of `inputs` (rows, 2, D). Sets `values` (H, P), NaN where nothing was forecast or `y` is
    missing, `errors` (K, H, P) and `law` (5, M, H P).
    """
    H, K, P = located.shape[1], located.shape[2], located.shape[3]
    D = inputs.shape[2]
    M = laws.shape[3]
    for h in range(H):
        made = now - h - 1
        slot = made % H
        is_known = made >= 0 and made % every == made // H % every
        for p in range(P):
            values[h, p] = y[p] if is_known else math.nan
            for k in range(K):
                errors[k, h, p] = values[h, p] - located[slot, h, k, p]
            for i in range(5):
                for m in range(M):
                    law[i, m, h * P + p] = laws[slot, h, i, m, p]
        if is_known:
            for d in range(D):
                # What was not known of the inputs when the forecast was made.
                change = inputs[last, 0, d] - inputs[last - h - 1, 0, d]
                for p in range(P):
                    if own:
                        errors[own, h, p] -= sloped[slot, h, 0, p, d] * change
                        errors[own + 1, h, p] -= sloped[slot, h, 1, p, d] * change
                    for m in range(M):
                        if stands_still[m] == 0.0:
                            law[0, m, h * P + p] += blend_slope[slot, h, p, d] * change


@kernel(f8(f8, f8))
def _difference(new, old):
    """Return new - old, and zero where that is but round-off: a feature of it would get a weight of any size."""
    difference = new - old
    return difference if abs(difference) > ROUND_OFF * (abs(new) + abs(old)) else 0.0


@kernel(void(ro(3), i8, i8, i8, i8, whole, rw(1)))
def own_features(past, first, origin, step, series, seasons, f):
    """Set `f` to what one series says at `origin` about the change of that series `step` rows later.

    `past` (rows, 4, P) holds the value, the slow mean and the means of the last 8 and 32 values of each series. Rows
    before `first` do not exist. In this order:
    1, distance from the slow mean, three changes, distances from the two means; for each season the change over the
    same steps in an earlier season and the distance from the same phase then; and (left alone here) room for the change
    of each input until `origin + step`.
    """
    now = past[origin, 0, series]
    f[0] = 1.0
    f[1] = _difference(now, past[origin, 1, series])
    newer = now
    for k in range(3):
        older = past[max(origin - k - 1, first), 0, series]
        f[2 + k] = _difference(newer, older)
        newer = older
    f[5] = _difference(now, past[origin, 2, series])
    f[6] = _difference(now, past[origin, 3, series])
    at = 7
    for j in range(seasons.shape[0]):
        back = seasons[j] * ((step - 1) // seasons[j] + 1)
        f[at] = 0.0
        f[at + 1] = 0.0
        if origin - back >= first:
            then = past[origin - back, 0, series]
            f[at] = _difference(past[origin + step - back, 0, series], then)
            f[at + 1] = _difference(now, then)
        at += 2


@kernel(void(f8, f8, ro(2), rw(1)))
def _cut_features(reach, least, A, f):
    """Cut features at `reach` times their root mean squares, where these come from more than `least` rows.

    One jump is not a habit. Root mean squares of few rows are worth less: the fewer, the nearer the cut comes to them.
    """
    for j in range(1, f.shape[0]):
        if A[0, j] > least:
            times = 1.0 + (reach - 1.0) * min(A[0, j] / ENOUGH_TO_CUT, 1.0)
            largest = times * times * A[j, j] / A[0, j]
            if f[j] * f[j] > largest:
                f[j] = math.copysign(math.sqrt(largest), f[j])


@kernel(void(ro(3), ro(3), ro(1), i8, i8, whole, ro(1), f8, f8, rw(1), rw(4), rw(3), rw(2)))
def own_learn(past, inputs, sizes, first, now, seasons, y, forgetting, reach, f, A, C, squares):
    """Add what the row `now`, with the values `y` (NaN where missing), says to the moments of all steps and series.

    `A` (H, P, d, d) are discounted moments of the features (lower triangles; the rest of the first row counts the rows
    in which a feature was not zero), `C` (H, P, d) those of features and change; `sizes` (D) tells the largest value of
    each input, `squares` (H, P) are those of the changes, which are cut as features are; `f` (d) is scratch.
    O(H P d^2).
    """
    D = inputs.shape[2]
    d = f.shape[0]
    for h in range(A.shape[0]):
        origin = now - h - 1
        if origin < first:
            break
        for p in range(A.shape[1]):
            if math.isnan(y[p]):
                continue
            own_features(past, first, origin, h + 1, p, seasons, f)
            for k in range(D):
                moved = inputs[now, 0, k] - inputs[origin, 0, k]
                f[d - D + k] = moved if abs(moved) > ROUND_OFF * sizes[k] else 0.0
            moments = A[h, p]
            _cut_features(reach, ENOUGH_TO_CUT, moments, f)
            change = y[p] - past[origin, 0, p]
            if moments[0, 0] > ENOUGH_TO_CUT and squares[h, p] > 0.0:
                largest = 2.0 * reach * math.sqrt(squares[h, p] / moments[0, 0])
                change = min(max(change, -largest), largest)
            squares[h, p] = forgetting * squares[h, p] + change * change
            cross = C[h, p]
            for i in range(d):
                row = moments[i, : i + 1]
                for j in range(i + 1):
                    row[j] = forgetting * row[j] + f[i] * f[j]
                cross[i] = forgetting * cross[i] + f[i] * change
                if i:
                    moments[0, i] = forgetting * moments[0, i] + (1.0 if f[i] != 0.0 else 0.0)


@kernel(void(i8, i8, ro(1), ro(4), ro(3), rw(2), rw(4)))
def own_solve(start, stop, penalties, A, C, L, W):
    """Solve for the weights `W` (penalties, H, P, d) of the outputs `start` to `stop`, counted along steps and series.

    A penalty is worth so many rows of each feature; a feature that never varied has no weight, and an output with few
    rows keeps those it has. `L` (d, d) is scratch.
    O(d^3) per output and penalty.
    """
    d = L.shape[0]
    P = A.shape[1]
    for output in range(start, stop):
        moments = A[output // P, output % P]
        cross = C[output // P, output % P]
        mass = moments[0, 0]
        if mass < ENOUGH_TO_SOLVE:
            continue
        for k in range(penalties.shape[0]):
            w = W[k, output // P, output % P]
            for i in range(d):
                # The level is not held back; what follows from others, but for round-off, counts as no feature.
                own = moments[i, i] * (1.0 + (penalties[k] if i else LEVEL_PENALTY) / mass)
                for j in range(i):
                    total = moments[i, j] - _dot(L[i, :j], L[j, :j])
                    L[i, j] = total / L[j, j] if L[j, j] > 0.0 else 0.0
                left = own - _dot(L[i, :i], L[i, :i])
                L[i, i] = math.sqrt(left) if left > 1e-12 * own and own > 0.0 else 0.0
                w[i] = (cross[i] - _dot(L[i, :i], w[:i])) / L[i, i] if L[i, i] > 0.0 else 0.0
            for i in range(d - 1, -1, -1):
                if L[i, i] > 0.0:
                    w[i] /= L[i, i]
                    for j in range(i):
                        w[j] -= L[i, j] * w[i]
                else:
                    w[i] = 0.0


@kernel(void(ro(3), ro(3), i8, i8, whole, f8, ro(4), ro(4), rw(1), rw(3), rw(4)))
def own_predict(past, inputs, first, now, seasons, reach, A, W, f, location, slope):
    """Set `location` (penalties, H, P), the forecasts at `now` if inputs stay as they are, and their `slope`.

    `slope` (penalties, H, P, D) says how much a forecast moves with the change of each input. O(H P d).
    """
    D = inputs.shape[2]
    d = f.shape[0]
    for h in range(W.shape[1]):
        for p in range(W.shape[2]):
            own_features(past, first, now, h + 1, p, seasons, f)
            for k in range(D):
                f[d - D + k] = 0.0
            # However few rows: a regression on two of them knows nothing of what lies far beyond both.
            _cut_features(reach, 0.0, A[h, p], f)
            for k in range(W.shape[0]):
                w = W[k, h, p]
                location[k, h, p] = past[now, 0, p] + _dot(w, f)
                for j in range(D):
                    slope[k, h, p, j] = w[d - D + j]


@kernel(void(i8, f8, ro(3), rw(4)))
def blend_learn(n_rows, forgetting, errors, moments):
    """Add errors (K, H, P) to their discounted second moments (H, P, K, K); NaN is not known.  O(H P K^2).

    Errors of the first half of all rows are forgotten in any case: experts were young then.
    """
    K = errors.shape[0]
    longest = forgetting
    for h in range(errors.shape[1]):
        forgetting = min(longest, 1.0 - 2.0 / max(n_rows - h, 3.0))
        for p in range(errors.shape[2]):
            if math.isnan(errors[0, h, p]):
                continue
            M = moments[h, p]
            for i in range(K):
                for j in range(i + 1):
                    M[i, j] = forgetting * M[i, j] + errors[i, h, p] * errors[j, h, p]
                    M[j, i] = M[i, j]


@kernel(void(i8, f8, ro(4), rw(1), rw(3)))
def blend_solve(n_steps, caution, moments, pull, weights):
    """Move the weights (H, P, K) towards the mixture of least square error; they stay positive and sum to one.

    Multiplicative steps: a weight grows if its expert errs less along with the mixture than the mixture itself does.
    `caution` times the least square of all experts is added to each one's own. `pull` (K) is scratch. O(H P K^2).
    """
    K = weights.shape[2]
    for h in range(weights.shape[0]):
        for p in range(weights.shape[1]):
            M = moments[h, p]
            w = weights[h, p]
            least = M[0, 0]
            for k in range(1, K):
                least = min(least, M[k, k])
            if least <= 0.0:
                continue
            for _ in range(n_steps):
                whole_error = 0.0
                for k in range(K):
                    pull[k] = _dot(M[k], w) + caution * least * w[k]
                    whole_error += w[k] * pull[k]
                total = 0.0
                for k in range(K):
                    gain = min(max(1.0 - pull[k] / whole_error, -2.0), 2.0)
                    w[k] = max(w[k] * math.exp(0.5 * gain), LEAST_BLEND)
                    total += w[k]
                for k in range(K):
                    w[k] /= total


@kernel(void(ro(1), ro(3), rw(3), rw(3)))
def members_learn(forgetting, errors, squares, masses):
    """Add errors (M, H, P) to the discounted squares behind each member's spread; NaN is not known."""
    for m in range(errors.shape[0]):
        for h in range(errors.shape[1]):
            for p in range(errors.shape[2]):
                error = errors[m, h, p]
                if not math.isnan(error):
                    # The mass grows by a half with each row until the memory is full: early errors are forgotten.
                    keep = min(forgetting[m], 1.0 - 0.5 / (masses[m, h, p] + 1.0))
                    squares[m, h, p] = keep * squares[m, h, p] + error * error
                    masses[m, h, p] = keep * masses[m, h, p] + 1.0


# --- packed and square ----------------------------------------------------------------------------


@kernel(void(ro(2), i8, rw(1)))
def pack_lower(dense, n, L):
    """Copy the lower triangle of `dense` (n, n) into `L`."""
    for i in range(n):
        start = i * (i + 1) // 2
        source = dense[i, : i + 1]
        row = L[start : start + i + 1]
        for j in range(i + 1):
            row[j] = source[j]


@kernel(both(lambda f: void(ro(1, f), i8, rw(2))))
def unpack_lower(L, n, dense):
    """Copy `L` into the lower triangle of `dense` (n, n), and zeros into its upper triangle."""
    for i in range(n):
        start = i * (i + 1) // 2
        target = dense[i]
        row = L[start : start + i + 1]
        for j in range(i + 1):
            target[j] = row[j]
        for j in range(i + 1, n):
            target[j] = 0.0


@kernel(both(lambda f: void(ro(1, f), i8, i8, rw(2), rw(2))))
def unpack_rows(L, start, stop, left, diagonal):
    """Copy rows `start` to `stop - 1` of `L` into two blocks.

    `left`, of shape ``(stop - start, start)``, gets what lies left of the diagonal block; the lower
    triangle of `diagonal`, of shape ``(stop - start, stop - start)``, the rest. Its upper triangle is left
    as it is.
    """
    for i in range(start, stop):
        offset = i * (i + 1) // 2
        row = L[offset : offset + i + 1]
        before = left[i - start]
        for j in range(start):
            before[j] = row[j]
        within = diagonal[i - start]
        for j in range(start, i + 1):
            within[j - start] = row[j]
