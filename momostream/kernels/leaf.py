"""A leaf that learns one row at a time: predict, learn, rebuild, and the same for many rows."""

from __future__ import annotations

import math

from momostream.kernels._compile import both, f8, i8, kernel, ro, rw, void
from momostream.kernels.cholesky import append_row, project
from momostream.kernels.scalar import NOT_POSITIVE_DEFINITE, NU0, OK, SCALE0, TINY, TINY_SINGLE

__all__ = [
    "LEAST_SQUARE",
    "append_block",
    "learn_leaf",
    "learn_leaf_rows",
    "measure_leaf",
    "predict_leaf",
    "predict_leaf_rows",
    "rebuild_leaf",
]

# Mean square of a leaf's residuals, in units of its signal, is not believed to be smaller.
LEAST_SQUARE = 1e-10


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
