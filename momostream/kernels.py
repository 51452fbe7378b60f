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

Arrays are C-contiguous float64. What a kernel only reads may be read-only memory. Lengths are not checked:
the callers in this package know them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba import njit, types

__all__ = [
    "MATERN12",
    "MATERN32",
    "MATERN52",
    "NOT_POSITIVE_DEFINITE",
    "OK",
    "RBF",
    "append_row",
    "covariance_column",
    "cross_covariance",
    "drop_oldest",
    "gradient_contraction",
    "gram",
    "gram_and_slope",
    "kernel",
    "mirror_lower",
    "pack_lower",
    "project",
    "rebuild",
    "ro",
    "rw",
    "solve_lower",
    "solve_upper",
    "unpack_lower",
    "unpack_rows",
]

MATERN12 = 0
MATERN32 = 1
MATERN52 = 2
RBF = 3

OK = 0
NOT_POSITIVE_DEFINITE = 1

SQRT3 = math.sqrt(3.0)
SQRT5 = math.sqrt(5.0)

# exp(-700) is still a normal number. Beyond it a correlation counts as zero: denormal numbers would slow
# every later product down, and (1 + a) * exp(-a) would be inf * 0 for coordinates that overflow.
FARTHEST = 700.0

# 32 x 32 numbers of 8 bytes for each side of a transposition fit the first-level cache.
TILE = 32

i8 = types.int64
f8 = types.float64
void = types.void


def ro(ndim: int) -> Any:
    """Type of an array that the kernel only reads; accepts read-only memory."""
    return types.Array(f8, ndim, "C", readonly=True)


def rw(ndim: int) -> Any:
    """Type of an array that the kernel writes."""
    return types.Array(f8, ndim, "C")


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for one signature, with the flags that all kernels share.

    Parameters
    ----------
    signature : numba signature
        Result type called with the argument types, arrays given by `ro` and `rw`.

    Returns
    -------
    callable
        The decorator. Machine code is cached on disk where a directory for it can be written.
    """
    # Not fastmath=True: it lets the compiler assume that there are no NaNs, and np.isnan then answers False.
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}

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


@kernel(f8(ro(1), ro(1)))
def _dot(s, t):
    """Return s . t."""
    total = 0.0
    for k in range(s.shape[0]):
        total += s[k] * t[k]
    return total


@kernel(void(i8, rw(1)))
def _correlate(kind, values):
    """Overwrite squared distances by correlations."""
    if kind == MATERN12:
        for i in range(values.shape[0]):
            a = math.sqrt(values[i])
            values[i] = 0.0 if a > FARTHEST else math.exp(-a)
    elif kind == MATERN32:
        for i in range(values.shape[0]):
            a = SQRT3 * math.sqrt(values[i])
            values[i] = 0.0 if a > FARTHEST else (1.0 + a) * math.exp(-a)
    elif kind == MATERN52:
        for i in range(values.shape[0]):
            a = SQRT5 * math.sqrt(values[i])
            values[i] = 0.0 if a > FARTHEST else (1.0 + a + a * a / 3.0) * math.exp(-a)
    else:
        for i in range(values.shape[0]):
            a = 0.5 * values[i]
            values[i] = 0.0 if a > FARTHEST else math.exp(-a)


@kernel(void(i8, rw(1), rw(1)))
def _correlate_and_slope(kind, values, slopes):
    """Overwrite squared distances d2 by correlations, and `slopes` by -2 d corr / d(d2)."""
    if kind == MATERN12:
        for i in range(values.shape[0]):
            a = math.sqrt(values[i])
            e = 0.0 if a > FARTHEST else math.exp(-a)
            values[i] = e
            # The slope is infinite where points coincide, but it only ever meets factors (s_ik - s_jk)^2 =
            # 0 there.
            slopes[i] = 0.0 if a == 0.0 else e / a
    elif kind == MATERN32:
        for i in range(values.shape[0]):
            a = SQRT3 * math.sqrt(values[i])
            e = 0.0 if a > FARTHEST else math.exp(-a)
            values[i] = 0.0 if a > FARTHEST else (1.0 + a) * e
            slopes[i] = 3.0 * e
    elif kind == MATERN52:
        for i in range(values.shape[0]):
            a = SQRT5 * math.sqrt(values[i])
            e = 0.0 if a > FARTHEST else math.exp(-a)
            values[i] = 0.0 if a > FARTHEST else (1.0 + a + a * a / 3.0) * e
            slopes[i] = 0.0 if a > FARTHEST else (5.0 / 3.0) * (1.0 + a) * e
    else:
        for i in range(values.shape[0]):
            a = 0.5 * values[i]
            e = 0.0 if a > FARTHEST else math.exp(-a)
            values[i] = e
            slopes[i] = e


@kernel(void(i8, f8, ro(2), i8, ro(1), rw(1)))
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


@kernel(void(ro(2), ro(2), ro(2), rw(1)))
def gradient_contraction(W, G, S, out):
    """Set ``out[k]`` to ``0.5 * sum_ij W[i, j] * G[i, j] * (S[i, k] - S[j, k])^2``.  O(n^2 D).

    `W` and `G` are symmetric; only their lower triangles are read.
    """
    D = S.shape[1]
    for k in range(D):
        out[k] = 0.0
    for i in range(S.shape[0]):
        s = S[i]
        w = W[i]
        g = G[i]
        for j in range(i):
            weight = w[j] * g[j]
            t = S[j]
            for k in range(D):
                difference = s[k] - t[k]
                out[k] += weight * difference * difference


# --- triangular solves ----------------------------------------------------------------------------


@kernel(void(ro(1), i8, rw(1)))
def solve_lower(L, n, b):
    """Overwrite ``b[:n]`` by ``L^-1 b[:n]``.  O(n^2)."""
    # Four rows at a time share the loads of b and hide the latency of each other's sums. Rows are sliced
    # before the inner loop: indexing L[start + j] there costs three times as much.
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
        a0 = 0.0
        a1 = 0.0
        a2 = 0.0
        a3 = 0.0
        for j in range(i):
            a0 += r0[j] * x[j]
            a1 += r1[j] * x[j]
            a2 += r2[j] * x[j]
            a3 += r3[j] * x[j]
        x0 = (b[i] - a0) / L[o0 + i]
        x1 = (b[i + 1] - a1 - L[o1 + i] * x0) / L[o1 + i + 1]
        x2 = (b[i + 2] - a2 - L[o2 + i] * x0 - L[o2 + i + 1] * x1) / L[o2 + i + 2]
        x3 = (b[i + 3] - a3 - L[o3 + i] * x0 - L[o3 + i + 1] * x1 - L[o3 + i + 2] * x2) / L[o3 + i + 3]
        b[i] = x0
        b[i + 1] = x1
        b[i + 2] = x2
        b[i + 3] = x3
        i += 4
    while i < n:
        o0 = i * (i + 1) // 2
        r0 = L[o0 : o0 + i]
        x = b[:i]
        a0 = 0.0
        for j in range(i):
            a0 += r0[j] * x[j]
        b[i] = (b[i] - a0) / L[o0 + i]
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


@kernel(f8(i8, f8, ro(2), ro(1), ro(2), i8, ro(1), rw(1), rw(1)))
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
    for i in range(n):
        z = Z[i]
        for p in range(P):
            mean[p] += z[p] * v[i]
    head = v[:n]
    # The product also where linear == 0: a NaN in s then shows even if there are no rows yet.
    return 1.0 + linear * _dot(s, s) - _dot(head, head)


@kernel(void(i8, ro(1), ro(1), f8, ro(1), rw(2), rw(2), rw(1)))
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


@kernel(void(i8, rw(2), rw(2), rw(1), rw(1)))
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


@kernel(void(ro(1), i8, rw(2)))
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


@kernel(void(ro(1), i8, i8, rw(2), rw(2)))
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
