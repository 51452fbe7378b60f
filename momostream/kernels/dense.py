"""Small square matrices: Cholesky factor and inverse, where a call of LAPACK costs more than its work."""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void
from momostream.kernels.scalar import NOT_POSITIVE_DEFINITE, OK, dot

__all__ = ["factorise_dense", "invert_dense"]


@kernel(void(ro(2), i8, rw(1), f8, f8, f8, f8))
def _solve_four(L, k, x, a0, a1, a2, a3):
    """Set ``x[k : k + 4]`` to the solution of the four rows of `L` from `k` on there, for these right-hand sides."""
    x0 = a0 / L[k, k]
    x1 = (a1 - L[k + 1, k] * x0) / L[k + 1, k + 1]
    x2 = (a2 - L[k + 2, k] * x0 - L[k + 2, k + 1] * x1) / L[k + 2, k + 2]
    x3 = (a3 - L[k + 3, k] * x0 - L[k + 3, k + 1] * x1 - L[k + 3, k + 2] * x2) / L[k + 3, k + 3]
    x[k] = x0
    x[k + 1] = x1
    x[k + 2] = x2
    x[k + 3] = x3


@kernel(i8(rw(2)))
def factorise_dense(A):
    """Overwrite the lower triangle of `A` (n, n) by its Cholesky factor, and the upper one by zeros.  O(n^3).

    Returns `OK`, or `NOT_POSITIVE_DEFINITE` at the first pivot that is not a positive number.
    """
    n = A.shape[0]
    for i in range(0, n, 2):
        # Two rows and four columns at a time share what they load and hide the latency of each other's sums. The last
        # of an odd number of rows is its own second one, which is not written.
        row = A[i]
        is_pair = i + 1 < n
        low = A[i + 1] if is_pair else row
        j = 0
        while j + 4 <= i:
            h = row[:j]
            g = low[:j]
            r0 = A[j, :j]
            r1 = A[j + 1, :j]
            r2 = A[j + 2, :j]
            r3 = A[j + 3, :j]
            a0 = a1 = a2 = a3 = 0.0
            b0 = b1 = b2 = b3 = 0.0
            for k in range(j):
                a0 += r0[k] * h[k]
                a1 += r1[k] * h[k]
                a2 += r2[k] * h[k]
                a3 += r3[k] * h[k]
                b0 += r0[k] * g[k]
                b1 += r1[k] * g[k]
                b2 += r2[k] * g[k]
                b3 += r3[k] * g[k]
            _solve_four(A, j, row, row[j] - a0, row[j + 1] - a1, row[j + 2] - a2, row[j + 3] - a3)
            if is_pair:
                _solve_four(A, j, low, low[j] - b0, low[j + 1] - b1, low[j + 2] - b2, low[j + 3] - b3)
            j += 4
        while j < i:
            row[j] = (row[j] - dot(A[j, :j], row[:j])) / A[j, j]
            if is_pair:
                low[j] = (low[j] - dot(A[j, :j], low[:j])) / A[j, j]
            j += 1
        pivot = row[i] - dot(row[:i], row[:i])
        # Not by `math.isfinite`, which looks at pivot - pivot: sums may be regrouped, to zero.
        if not 0.0 < pivot < math.inf:
            return NOT_POSITIVE_DEFINITE
        row[i] = math.sqrt(pivot)
        row[i + 1 :] = 0.0
        if is_pair:
            low[i] = (low[i] - dot(row[:i], low[:i])) / row[i]
            pivot = low[i + 1] - dot(low[: i + 1], low[: i + 1])
            if not 0.0 < pivot < math.inf:
                return NOT_POSITIVE_DEFINITE
            low[i + 1] = math.sqrt(pivot)
            low[i + 2 :] = 0.0
    return OK


@kernel(void(rw(2), rw(1)))
def invert_dense(L, scratch):
    """Overwrite the lower triangle of a factor from `factorise_dense` by that of ``(L L')^-1``.  O(n^3).

    The upper triangle, and `scratch`, which is as long as a row, get ``L^-T``, the diagonal in `scratch`.
    """
    n = L.shape[0]
    for j in range(n):
        scratch[j] = 1.0 / L[j, j]
    # Rows of N = L^-T, two at a time, four numbers of each: sums along rows of N and of L.
    for j in range(0, n - 1, 2):
        x = L[j]
        y = L[j + 1]
        d = scratch[j]
        e = scratch[j + 1]
        c = -y[j] * d * e
        x[j + 1] = c
        k = j + 2
        while k + 4 <= n:
            h = x[j + 2 : k]
            g = y[j + 2 : k]
            r0 = L[k, j + 2 : k]
            r1 = L[k + 1, j + 2 : k]
            r2 = L[k + 2, j + 2 : k]
            r3 = L[k + 3, j + 2 : k]
            a0 = a1 = a2 = a3 = 0.0
            b0 = b1 = b2 = b3 = 0.0
            for m in range(k - j - 2):
                a0 -= r0[m] * h[m]
                a1 -= r1[m] * h[m]
                a2 -= r2[m] * h[m]
                a3 -= r3[m] * h[m]
                b0 -= r0[m] * g[m]
                b1 -= r1[m] * g[m]
                b2 -= r2[m] * g[m]
                b3 -= r3[m] * g[m]
            a0 -= L[k, j] * d + L[k, j + 1] * c
            a1 -= L[k + 1, j] * d + L[k + 1, j + 1] * c
            a2 -= L[k + 2, j] * d + L[k + 2, j + 1] * c
            a3 -= L[k + 3, j] * d + L[k + 3, j + 1] * c
            b0 -= L[k, j + 1] * e
            b1 -= L[k + 1, j + 1] * e
            b2 -= L[k + 2, j + 1] * e
            b3 -= L[k + 3, j + 1] * e
            _solve_four(L, k, x, a0, a1, a2, a3)
            _solve_four(L, k, y, b0, b1, b2, b3)
            k += 4
        while k < n:
            r = L[k]
            x[k] = -(dot(r[j + 2 : k], x[j + 2 : k]) + r[j] * d + r[j + 1] * c) * scratch[k]
            y[k] = -(dot(r[j + 2 : k], y[j + 2 : k]) + r[j + 1] * e) * scratch[k]
            k += 1
    # The inverse is N N': sums along rows of N, which start at their diagonals, again for two rows and four columns.
    for i in range(0, n - 1, 2):
        x = L[i]
        y = L[i + 1]
        d = scratch[i]
        e = scratch[i + 1]
        c = x[i + 1]
        h = x[i + 2 :]
        g = y[i + 2 :]
        j = 0
        while j + 4 <= i:
            r0 = L[j, i + 2 :]
            r1 = L[j + 1, i + 2 :]
            r2 = L[j + 2, i + 2 :]
            r3 = L[j + 3, i + 2 :]
            a0 = a1 = a2 = a3 = 0.0
            b0 = b1 = b2 = b3 = 0.0
            for m in range(n - i - 2):
                a0 += r0[m] * h[m]
                a1 += r1[m] * h[m]
                a2 += r2[m] * h[m]
                a3 += r3[m] * h[m]
                b0 += r0[m] * g[m]
                b1 += r1[m] * g[m]
                b2 += r2[m] * g[m]
                b3 += r3[m] * g[m]
            x[j] = a0 + d * L[j, i] + c * L[j, i + 1]
            x[j + 1] = a1 + d * L[j + 1, i] + c * L[j + 1, i + 1]
            x[j + 2] = a2 + d * L[j + 2, i] + c * L[j + 2, i + 1]
            x[j + 3] = a3 + d * L[j + 3, i] + c * L[j + 3, i + 1]
            y[j] = b0 + e * L[j, i + 1]
            y[j + 1] = b1 + e * L[j + 1, i + 1]
            y[j + 2] = b2 + e * L[j + 2, i + 1]
            y[j + 3] = b3 + e * L[j + 3, i + 1]
            j += 4
        while j < i:
            r = L[j, i + 2 :]
            x[j] = dot(r, h) + d * L[j, i] + c * L[j, i + 1]
            y[j] = dot(r, g) + e * L[j, i + 1]
            j += 1
        x[i] = dot(h, h) + d * d + c * c
        y[i] = dot(h, g) + e * c
        y[i + 1] = dot(g, g) + e * e
    if n % 2:
        x = L[n - 1]
        d = scratch[n - 1]
        for j in range(n - 1):
            x[j] = d * L[j, n - 1]
        x[n - 1] = d * d
