"""The packed Cholesky factor: solves with it, and what changes it as rows come and go."""

from __future__ import annotations

import math

from momostream.kernels._compile import both, f8, i8, kernel, ro, rw, void
from momostream.kernels.covariance import covariance_column
from momostream.kernels.scalar import NOT_POSITIVE_DEFINITE, OK, TINY, TINY_SINGLE, dot

__all__ = [
    "append_row",
    "append_rows",
    "drop_oldest",
    "pack_lower",
    "project",
    "rebuild",
    "solve_lower",
    "solve_upper",
    "unpack_lower",
    "unpack_rows",
]


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
    return 1.0 + linear * dot(s, s) - dot(head, head)


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


@kernel(both(lambda f: void(i8, ro(2), ro(2), ro(2), ro(2), rw(2), rw(2), rw(1, f))))
def append_rows(n, V, C, solved, T, S, Z, L):
    """Add a block of `b` rows after the first `n`; there must be room for them.  O(b (n + b)).

    `V` (b, n) are the new rows of the factor left of their own block and `C` (b, b) that block's lower factor;
    `solved` (b, P) are the rows of `Z`, `T` (b, D) the scaled points.
    """
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
        for p in range(solved.shape[1]):
            Z[n + i, p] = solved[i, p]


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


@kernel(both(lambda f: i8(i8, rw(2), rw(2), rw(1, f), rw(1))))
def drop_oldest(n, S, Z, L, work):
    """Delete row 0 of `n` rows (``n >= 1``).  O(n^2 + n D + n P).

    Without its first row and column the matrix is ``L22 L22' + l l'``, with ``l`` the first column of `L`:
    Givens rotations absorb ``l`` into the trailing factor, a rank-one *update*, which is stable. The same
    rotations carry `Z` along. Afterwards the first ``n - 1`` rows of `S`, `Z` and `L` are in use.

    `work` is scratch of length at least ``2 * n + P``. Returns `OK`, or `NOT_POSITIVE_DEFINITE` where a pivot is not
    finite: squares of numbers beyond 1e154 are none, and the factor must be built again.
    """
    status = OK
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
            if not math.isfinite(radius):
                status = NOT_POSITIVE_DEFINITE
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
    return status


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
