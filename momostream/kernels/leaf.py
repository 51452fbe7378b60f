"""A leaf that learns one row at a time: predict, learn, rebuild, and the same for many rows.

``work`` is the workspace in which a prediction leaves what `learn_leaf` needs, beside ``v``:
``[c, s (D), mean (P), variance (P)]``, where ``c`` is the variance of a row in units of the signal, noise included,
``s`` the scaled point, and mean and variance are those of each output in units of the leaf. ``inputs`` (2, D) are the
centre of the rows and one over the lengthscales; ``outputs`` (4, P) offset and scale of each output, the discounted sum
of its squared residuals and the discounted number of its rows.
"""

from __future__ import annotations

import math

from momostream.kernels._compile import both, f8, i8, kernel, ro, rw, void
from momostream.kernels.cholesky import append_row, project
from momostream.kernels.scalar import NOT_POSITIVE_DEFINITE, NU0, OK, SCALE0

__all__ = [
    "LEAST_SQUARE",
    "condition_leaf",
    "learn_block",
    "learn_leaf",
    "learn_leaf_rows",
    "measure_leaf",
    "predict_leaf",
    "rebuild_leaf",
]

# Mean square of a leaf's residuals, in units of its signal, is not believed to be smaller.
LEAST_SQUARE = 1e-10


@kernel(both(lambda f: f8(i8, f8, f8, i8, ro(1), ro(2), ro(2), ro(1, f), ro(2), ro(2), rw(1, f), rw(1))))
def condition_leaf(kind, linear, noise, n, x, inputs, S, L, Z, gaps, v, work):
    """Condition `x` on the first `n` rows; sets `v` and `work`, and returns c.

    A missing target was filled by its mean, so that it moved no mean; what it seemed to explain is given back.
    """
    D = inputs.shape[1]
    P = Z.shape[1]
    s = work[1 : 1 + D]
    mean = work[1 + D : 1 + D + P]
    variance = work[1 + D + P : 1 + D + 2 * P]
    for k in range(D):
        s[k] = (x[k] - inputs[0, k]) * inputs[1, k]
    explained = project(kind, linear, S, L, Z, n, s, v, mean)
    c = noise + explained
    # Written so that NaN stays. Without an end below, what the rows explain was too large for a number.
    if c == -math.inf:
        c = math.inf
    elif c < noise:
        c = noise
    for p in range(P):
        variance[p] = c
    for i in range(min(n, gaps.shape[0])):
        square = v[i] * v[i]
        gap = gaps[i]
        for p in range(P):
            variance[p] += gap[p] * square
    work[0] = c
    return c


@kernel(
    both(
        lambda f: void(
            i8, f8, f8, i8, ro(1), ro(2), ro(2), ro(2), ro(1, f), ro(2), ro(2), rw(1, f), rw(1), rw(1), rw(1)
        )
    )
)  # fmt: skip
def predict_leaf(kind, linear, noise, n, x, inputs, outputs, S, L, Z, gaps, v, work, location, std):
    """Predict the outputs at `x` from the first `n` rows.  O(n^2 + n D + n P).

    Sets location and standard deviation of each output in the units of the targets, and leaves in `v` and `work` what
    `learn_leaf` needs.
    """
    condition_leaf(kind, linear, noise, n, x, inputs, S, L, Z, gaps, v, work)
    P = location.shape[0]
    mean = work[1 + inputs.shape[1] :]
    variance = mean[P:]
    for p in range(P):
        location[p] = outputs[0, p] + outputs[1, p] * mean[p]
        square = max(outputs[2, p] / outputs[3, p], LEAST_SQUARE)
        std[p] = outputs[1, p] * math.sqrt(variance[p] * square)


@kernel(both(lambda f: void(i8, f8, ro(1), ro(1, f), rw(1), rw(2), rw(2), rw(2), rw(1, f))))
def learn_leaf(n, discount, y, v, work, outputs, S, Z, L):
    """Append the row that `predict_leaf` was last called with, now that its targets `y` are known.  O(n + D + P).

    NaN in `y` is a missing target. The means in `work` are overwritten. There must be room for a row.
    """
    D = S.shape[1]
    P = y.shape[0]
    # The residual takes the room of the mean.
    residual = work[1 + D : 1 + D + P]
    variance = work[1 + D + P : 1 + D + 2 * P]
    offset = outputs[0]
    scale = outputs[1]
    for p in range(P):
        if math.isnan(y[p]):
            residual[p] = 0.0
        else:
            residual[p] = (y[p] - offset[p]) / scale[p] - residual[p]
            outputs[2, p] = discount * outputs[2, p] + residual[p] * residual[p] / variance[p]
            outputs[3, p] = discount * outputs[3, p] + 1.0
    append_row(n, work[1 : 1 + D], v, math.sqrt(work[0]), residual, S, Z, L)


@kernel(
    both(
        lambda f: i8(
            i8, f8, f8, f8, i8, i8, ro(2), ro(2), ro(2), ro(2), rw(2), rw(1, f), rw(1), rw(2), rw(2), rw(1, f)
        )
    )
)  # fmt: skip
def rebuild_leaf(kind, linear, noise, discount, start, stop, X, Y, inputs, gaps, outputs, v, work, S, Z, L):
    """Learn rows `start` to `stop - 1` of `X` and `Y` one after the other, as `learn_leaf` would.  O(stop^3).

    Returns `OK`, or `NOT_POSITIVE_DEFINITE` at the first row whose variance is not a positive number.
    """
    for i in range(start, stop):
        c = condition_leaf(kind, linear, noise, i, X[i], inputs, S, L, Z, gaps, v, work)
        if not (math.isfinite(c) and c > 0.0):
            return NOT_POSITIVE_DEFINITE
        learn_leaf(i, discount, Y[i], v, work, outputs, S, Z, L)
    return OK


@kernel(
    both(
        lambda f: void(
            i8, f8, f8, f8, i8, ro(2), ro(2), ro(2), ro(2),
            rw(2), rw(1, f), rw(1), rw(2), rw(2), rw(1, f), rw(2), rw(2),
        )
    )
)  # fmt: skip
def learn_leaf_rows(kind, linear, noise, discount, n, X, Y, inputs, gaps, outputs, v, work, S, Z, L, location, std):
    """Predict and learn rows one after the other, as `predict_leaf` and `learn_leaf` do; there must be room."""
    for i in range(X.shape[0]):
        predict_leaf(kind, linear, noise, n + i, X[i], inputs, outputs, S, L, Z, gaps, v, work, location[i], std[i])
        learn_leaf(n + i, discount, Y[i], v, work, outputs, S, Z, L)


@kernel(void(f8, ro(1), ro(2), rw(2), rw(2), rw(2)))
def learn_block(discount, pivots, solved, outputs, location, std):
    """Learn from a block of rows what each was predicted given those before it, and its squares.  O(b P).

    `pivots` (b) and `solved` (b, P) are the diagonal of the factor and the rows of `Z`. `location` (b, P) comes in as
    the targets.
    """
    for i in range(solved.shape[0]):
        pivot = pivots[i]
        for p in range(solved.shape[1]):
            z = solved[i, p]
            location[i, p] -= outputs[1, p] * z * pivot
            square = max(outputs[2, p] / outputs[3, p], LEAST_SQUARE)
            std[i, p] = outputs[1, p] * pivot * math.sqrt(square)
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
