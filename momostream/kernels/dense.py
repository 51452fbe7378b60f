"""Small square matrices: Cholesky factor and inverse, where a call of LAPACK costs more than its work."""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void
from momostream.kernels.scalar import NOT_POSITIVE_DEFINITE, OK, dot

__all__ = ["factorise_dense", "invert_dense"]


@kernel(i8(rw(2)))
def factorise_dense(A):
    """Overwrite the lower triangle of `A` (n, n) by its Cholesky factor, and the upper one by zeros.  O(n^3).

    Returns `OK`, or `NOT_POSITIVE_DEFINITE` at the first pivot that is not a positive number.
    """
    n = A.shape[0]
    for i in range(n):
        row = A[i]
        # Four columns at a time share the loads of the row and hide the latency of each other's sums.
        j = 0
        while j + 4 <= i:
            head = row[:j]
            r0 = A[j, :j]
            r1 = A[j + 1, :j]
            r2 = A[j + 2, :j]
            r3 = A[j + 3, :j]
            a0 = 0.0
            a1 = 0.0
            a2 = 0.0
            a3 = 0.0
            for k in range(j):
                a0 += r0[k] * head[k]
                a1 += r1[k] * head[k]
                a2 += r2[k] * head[k]
                a3 += r3[k] * head[k]
            x0 = (row[j] - a0) / A[j, j]
            x1 = (row[j + 1] - a1 - A[j + 1, j] * x0) / A[j + 1, j + 1]
            x2 = (row[j + 2] - a2 - A[j + 2, j] * x0 - A[j + 2, j + 1] * x1) / A[j + 2, j + 2]
            x3 = row[j + 3] - a3 - A[j + 3, j] * x0 - A[j + 3, j + 1] * x1 - A[j + 3, j + 2] * x2
            row[j] = x0
            row[j + 1] = x1
            row[j + 2] = x2
            row[j + 3] = x3 / A[j + 3, j + 3]
            j += 4
        while j < i:
            row[j] = (row[j] - dot(A[j, :j], row[:j])) / A[j, j]
            j += 1
        pivot = row[i] - dot(row[:i], row[:i])
        # Not by `math.isfinite`, which looks at pivot - pivot: sums may be regrouped, to zero.
        if not 0.0 < pivot < math.inf:
            return NOT_POSITIVE_DEFINITE
        row[i] = math.sqrt(pivot)
        for j in range(i + 1, n):
            row[j] = 0.0
    return OK


@kernel(void(f8, f8, f8, f8, ro(2), i8, rw(1)))
def _add_four(a0, a1, a2, a3, rows, k, total):
    """Add multiples of the rows from `k` on to `total`."""
    r0 = rows[k]
    r1 = rows[k + 1]
    r2 = rows[k + 2]
    r3 = rows[k + 3]
    for j in range(total.shape[0]):
        total[j] += a0 * r0[j] + a1 * r1[j] + a2 * r2[j] + a3 * r3[j]


@kernel(void(rw(2), rw(1)))
def invert_dense(L, scratch):
    """Overwrite the lower triangle of a factor from `factorise_dense` by that of ``(L L')^-1``.  O(n^3).

    `scratch` is as long as a row.
    """
    n = L.shape[0]
    # Row i of L^-1 from the rows above it, four of them at a time; zeros above the diagonal let them be of one length.
    for i in range(n):
        row = L[i]
        pivot = 1.0 / row[i]
        total = scratch[:i]
        for j in range(i):
            total[j] = 0.0
        k = 0
        while k + 4 <= i:
            _add_four(row[k], row[k + 1], row[k + 2], row[k + 3], L, k, total[: k + 4])
            k += 4
        while k < i:
            above = L[k]
            a = row[k]
            for j in range(k + 1):
                total[j] += a * above[j]
            k += 1
        for j in range(i):
            row[j] = -pivot * total[j]
        row[i] = pivot
    # Row i of the product of the transpose of L^-1 with itself needs the rows from i on only.
    for i in range(n):
        total = scratch[: i + 1]
        for j in range(i + 1):
            total[j] = 0.0
        k = i
        while k + 4 <= n:
            _add_four(L[k, i], L[k + 1, i], L[k + 2, i], L[k + 3, i], L, k, total)
            k += 4
        while k < n:
            below = L[k]
            a = below[i]
            for j in range(i + 1):
                total[j] += a * below[j]
            k += 1
        row = L[i]
        for j in range(i + 1):
            row[j] = total[j]
