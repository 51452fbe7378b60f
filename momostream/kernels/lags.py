"""Linear regression on lags, and running moments."""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void
from momostream.kernels.scalar import NU0, dot

__all__ = [
    "LEVEL_PENALTY",
    "lag_features",
    "learn_lags",
    "learn_lags_rows",
    "learn_linear",
    "learn_moments",
    "predict_lags",
    "predict_lags_rows",
    "predict_linear",
    "remember",
]

# The penalty on the level of a regression, in rows.
LEVEL_PENALTY = 1e-3


@kernel(void(ro(1), ro(2), ro(2), ro(2), f8, rw(1)))
def lag_features(x, past_x, past_y, units, clip, f):
    """Set `f` to 1 and the standardised features of a row.  O(D + P).

    In this order: `x`, its change, the last `y`, and then two older changes of `y` and one of `x`. `past_x` (2, D)
    and `past_y` (3, P) hold the newest row first; `units` (2, width - 1) centre and unit of each feature. Features are
    cut at `clip` units: one jump must not throw the prediction of the next row.
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
        # A target without a past has no lags yet: they count as their mean.
        f[j + 1] = 0.0 if math.isnan(u) else min(max(u, -clip), clip)


@kernel(f8(i8, ro(1), ro(2), ro(2), rw(1), rw(1)))
def predict_linear(width, f, P, B, gain, mean):
    """Set ``gain = P f`` and ``mean = B' f`` over the first `width` features; returns ``1 + f' P f``."""
    head = f[:width]
    total = 0.0
    for i in range(width):
        gain[i] = dot(P[i, :width], head)
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
def predict_lags(x, past_x, past_y, units, clip, short, P, B, residuals, f, gains, means, c, location, std):
    """Predict the change of `y` by a linear regression on all features, by one on the `short` first ones, and as zero.

    `P` (2, width, width) and `B` (2, width, targets) belong to the regressions, `residuals` (6, targets) holds the
    discounted squares of the errors of the three predictions and their mass. Sets `location` and `std` (3, targets),
    and what `learn_lags` needs: `f`, `gains` (2, width), `means` (2, targets), `c` (2). O(width^2).
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
            # Few residuals say little about the next one: wider by as much as a Student-t of so few is.
            square = residuals[k, p] / mass * (1.0 + NU0 / mass) if mass > 0.0 else math.inf
            std[k, p] = math.sqrt(square * c[k] if k < 2 else square)


@kernel(void(ro(1), ro(1), rw(2), rw(2)))
def remember(x, y, past_x, past_y):
    """Put a row in front of the last ones; a missing target keeps its last value.

    A target that is seen for the first time (its past is NaN) is taken to have had this value before.
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
def predict_lags_rows(X, past_x, past_y, units, clip, short, P, B, residuals, f, gains, means, c, location, std):
    """As `predict_lags` for many rows; `location` and `std` are (rows, 3, targets)."""
    for i in range(X.shape[0]):
        predict_lags(X[i], past_x, past_y, units, clip, short, P, B, residuals, f, gains, means, c, location[i], std[i])


@kernel(
    void(ro(1), ro(1), f8, f8, i8, ro(2), ro(2), ro(1), ro(1), rw(2), rw(2), rw(1), rw(3), rw(3), rw(2), rw(1), rw(1))
)
def learn_lags(
    x, y, forgetting, discount, short, gains, means, c, f, past_x, past_y, error, P, B, residuals, features, change
):
    """Learn the targets `y` of the row that `predict_lags` was last called for, NaN where missing.  O(width^2).

    Keeps the row as the newest of the past, and its `features` and the `change` of each target for later.
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
    P, B, residuals, features, changes, plane_rows,
):  # fmt: skip
    """Predict and learn rows one after the other.

    `plane_rows` (rows, 2, 3, targets) gets locations and standard deviations.

    `features` and `changes` get the rows that `Autoregression` adds up later.
    """
    for i in range(X.shape[0]):
        predict_lags(
            X[i], past_x, past_y, units, clip, short, P, B, residuals, f, gains, means, c,
            plane_rows[i, 0], plane_rows[i, 1],
        )  # fmt: skip
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
