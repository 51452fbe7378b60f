"""Many rows of the stream, predicted by the leaves that they go to: a tile of rows for each pass of a factor.

A tile has a line for each row of the leaf and a column for each row that is predicted.
"""

from __future__ import annotations

import math

from numba import types

from momostream.kernels._compile import both, f8, i8, kernel, ro, rw, void, whole
from momostream.kernels.book import lines, matrix, singles, vector
from momostream.kernels.covariance import _correlate
from momostream.kernels.leaf import LEAST_SQUARE
from momostream.kernels.row import (
    KIND,
    LEAF_FACTS,
    LEAF_GAPS,
    LEAF_INPUTS,
    LEAF_L,
    LEAF_OUTPUTS,
    LEAF_S,
    LEAF_Z,
    LINEAR,
    N_LEAF,
    NOISE,
    SINGLE,
    predict_leaf_at,
)
from momostream.kernels.scalar import TINY, TINY_SINGLE

__all__ = ["FEW", "TILE", "predict_leaves", "project_tile", "solve_tile"]

# Columns of a tile: a constant, so that loops over them have no remainder. Fewer rows than `FEW` go one by one.
TILE, FEW = 32, 16


@kernel(both(lambda f: void(ro(1, f), i8, rw(2, f))))
def solve_tile(L, n, V):
    """Overwrite the first `n` lines of `V` (rows, TILE) by ``L^-1 V``.  O(n^2)."""
    tiny = TINY if L.itemsize == 8 else TINY_SINGLE
    zero = L.dtype.type(0.0)
    i = 0
    while i < n:
        # Two lines at a time share what they read; the last of an odd number of lines is on its own.
        paired = i + 1 < n
        start = i * (i + 1) // 2
        row = L[start : start + i]
        below = L[start + i + 1 : start + 2 * i + 1] if paired else row
        v = V[i]
        w = V[i + 1] if paired else v
        j = 0
        # An even number of lines lies above.
        while j < i:
            x = V[j]
            y = V[j + 1]
            a = row[j]
            b = row[j + 1]
            for c in range(TILE):
                v[c] -= a * x[c] + b * y[c]
            if paired:
                a = below[j]
                b = below[j + 1]
                for c in range(TILE):
                    w[c] -= a * x[c] + b * y[c]
            j += 2
        pivot = L[start + i]
        for c in range(TILE):
            u = v[c] / pivot
            # Written so that NaN stays.
            v[c] = zero if abs(u) < tiny else u
        if paired:
            left = L[start + 2 * i + 1]
            pivot = L[start + 2 * i + 2]
            for c in range(TILE):
                u = (w[c] - left * v[c]) / pivot
                w[c] = zero if abs(u) < tiny else u
        i += 2


@kernel(both(lambda f: void(i8, f8, i8, ro(2), ro(2), ro(1, f), ro(2), ro(2), rw(2, f), rw(1), rw(2), rw(2))))
def project_tile(kind, linear, n, T, S, L, Z, gaps, V, explained, mean, given):
    """Condition the columns of `T` (D, TILE), scaled points, on the first `n` rows of a leaf.

    Sets ``V[:n] = L^-1 k(S[:n], T)``, the variance `explained` (TILE), ``mean = Z[:n]' V`` (P, TILE), and what missing
    targets, the `gaps`, only seemed to explain and is `given` back (P, TILE). O(n^2 + n D + n P) for a column.
    """
    for i in range(n):
        line = explained
        for c in range(TILE):
            line[c] = 0.0
        for k in range(T.shape[0]):
            s = S[i, k]
            t = T[k]
            for c in range(TILE):
                line[c] += (s - t[c]) * (s - t[c])
        _correlate(kind, line)
        if linear > 0.0:
            for k in range(T.shape[0]):
                s = linear * S[i, k]
                t = T[k]
                for c in range(TILE):
                    line[c] += s * t[c]
        v = V[i]
        for c in range(TILE):
            v[c] = line[c]
    solve_tile(L, n, V)
    for c in range(TILE):
        explained[c] = 0.0
    for p in range(mean.shape[0]):
        for c in range(TILE):
            mean[p, c] = 0.0
            given[p, c] = 0.0
    for i in range(n):
        v = V[i]
        for c in range(TILE):
            explained[c] += float(v[c]) * float(v[c])
        for p in range(mean.shape[0]):
            z = Z[i, p]
            m = mean[p]
            for c in range(TILE):
                m[c] += z * v[c]
            if i < gaps.shape[0] and gaps[i, p] > 0.0:
                g = given[p]
                for c in range(TILE):
                    g[c] += float(v[c]) * float(v[c])


@kernel(void(i8, i8, ro(2), whole, rw(2), rw(2), rw(2, types.float32), rw(2), rw(2)))
def _predict_tile(address, n, X, rows, scratch, V, W, location, std):
    """Predict some rows, at most TILE, by the leaf whose book lies at an address."""
    leaf = lines(address, N_LEAF)
    facts = vector(leaf, LEAF_FACTS)
    inputs = matrix(leaf, LEAF_INPUTS)
    outputs = matrix(leaf, LEAF_OUTPUTS)
    S = matrix(leaf, LEAF_S)
    Z = matrix(leaf, LEAF_Z)
    gaps = matrix(leaf, LEAF_GAPS)
    D = inputs.shape[1]
    P = outputs.shape[1]
    T = scratch[:D]
    mean = scratch[D : D + P]
    given = scratch[D + P : D + 2 * P]
    explained = scratch[D + 2 * P]
    last = rows.shape[0] - 1
    for k in range(D):
        for c in range(TILE):
            # Columns to spare repeat the last row.
            T[k, c] = (X[rows[min(c, last)], k] - inputs[0, k]) * inputs[1, k]
    kind = int(facts[KIND])
    linear = facts[LINEAR]
    noise = facts[NOISE]
    if facts[SINGLE] > 0.0:
        project_tile(kind, linear, n, T, S, singles(leaf, LEAF_L), Z, gaps, W, explained, mean, given)
    else:
        project_tile(kind, linear, n, T, S, vector(leaf, LEAF_L), Z, gaps, V, explained, mean, given)
    for c in range(rows.shape[0]):
        i = rows[c]
        prior = 1.0
        for k in range(D):
            prior += linear * T[k, c] * T[k, c]
        rest = noise + (prior - explained[c])
        # As one by one: NaN stays, and what is too large for a number is not known.
        if rest == -math.inf:
            rest = math.inf
        elif rest < noise:
            rest = noise
        for p in range(P):
            square = max(outputs[2, p] / outputs[3, p], LEAST_SQUARE)
            location[i, p] = outputs[0, p] + outputs[1, p] * mean[p, c]
            std[i, p] = outputs[1, p] * math.sqrt((rest + given[p, c]) * square)


@kernel(void(ro(2), whole, whole, ro(2, i8), rw(2), rw(2), rw(2, types.float32), rw(2), rw(2)))
def predict_leaves(X, rows, ends, leaves, scratch, V, W, location, std):
    """Predict rows of `X` by leaves, each with its own; sets their lines of `location` and `std` (rows, P).

    Leaf `k` has the address of its book and its number of rows in ``leaves[k]``, and predicts those that `rows` lists
    from the end of the leaf before to ``ends[k]``. `scratch` has ``D + 2 P + 1`` lines, `V` and `W` (of single
    precision) one for each row of the largest leaf, all of TILE numbers.
    """
    at = 0
    for k in range(leaves.shape[0]):
        while ends[k] - at >= FEW:
            stop = min(at + TILE, ends[k])
            _predict_tile(leaves[k, 0], leaves[k, 1], X, rows[at:stop], scratch, V, W, location, std)
            at = stop
        while at < ends[k]:
            i = rows[at]
            predict_leaf_at(leaves[k, 0], leaves[k, 1], X[i], location[i], std[i])
            at += 1
