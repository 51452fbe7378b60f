"""The curved regression of each series: columns of a row, their random waves, and the moments of these."""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void, whole
from momostream.kernels.scalar import cosine

__all__ = ["COMMON", "N_OWN", "curved_columns", "curved_features", "curved_learn", "curved_note", "curved_predict"]

# Columns of each series before those of inputs and calendar; the last of them is common to all series.
N_OWN = 10
COMMON = N_OWN - 1
# Columns are cut at this many deviations.
FAR = 4.0
# Columns whose deviation is below this part of their mean do not vary.
STILL = 1e-9


@kernel(void(ro(3), ro(3), i8, i8, whole, i8, i8, i8, ro(1), ro(1), rw(2)))
def curved_columns(past, inputs, first, now, seasons, n_raw, n_bends, n_shown, own, wide, Z):
    """Set the columns `Z` (P, N_OWN + n_shown) of the row `now`, before they are standardised.

    Of each series: its value, distances from its three means, its last change, the changes to the values `seasons` rows
    ago (none, or two), the changes that the regressions `own` and `wide` (P) expect until the last step, and room for
    what is common to all series; then inputs and calendar, without the `n_bends` columns after the first `n_raw`.
    """
    for p in range(Z.shape[0]):
        value = past[now, 0, p]
        Z[p, 0] = value
        for k in range(3):
            Z[p, 1 + k] = value - past[now, 1 + k, p]
        Z[p, 4] = value - past[max(now - 1, first), 0, p]
        for j in range(2):
            Z[p, 5 + j] = 0.0
            if j < seasons.shape[0] and now - seasons[j] >= first:
                Z[p, 5 + j] = past[now - seasons[j], 0, p] - value
        Z[p, 7] = own[p]
        Z[p, 8] = wide[p]
        Z[p, COMMON] = 0.0
        for k in range(n_shown):
            Z[p, N_OWN + k] = inputs[now, 0, k if k < n_raw else k + n_bends]


@kernel(void(f8, ro(2), rw(2), rw(2)))
def curved_note(n_rows, Z, means, squares):
    """Add a row of columns (P, d) to their means and squared distances from these; `n_rows` counts this row."""
    for p in range(Z.shape[0]):
        for j in range(Z.shape[1]):
            away = Z[p, j] - means[p, j]
            means[p, j] += away / n_rows
            squares[p, j] += away * (Z[p, j] - means[p, j])


@kernel(void(f8, ro(2), ro(2), ro(2), ro(2), ro(1), rw(2)))
def curved_features(n_rows, Z, means, squares, frequencies, phases, F):
    """Set the features `F` (P, 1 + d + D) of each series: 1, its standardised columns, and D waves of these.

    The column that is common to all series is the mean of their standardised values. O(P d D).
    """
    P = Z.shape[0]
    d = Z.shape[1]
    common = 0.0
    for p in range(P):
        F[p, 0] = 1.0
        for j in range(d):
            std = math.sqrt(squares[p, j] / n_rows)
            away = Z[p, j] - means[p, j]
            z = away / std if std > STILL * abs(means[p, j]) and std > 0.0 else 0.0
            F[p, 1 + j] = min(max(z, -FAR), FAR)
        common += F[p, 1] / P
    for p in range(P):
        F[p, 1 + COMMON] = common if P > 1 else 0.0
        waves = F[p, 1 + d :]
        for k in range(waves.shape[0]):
            waves[k] = phases[k]
        for j in range(d):
            z = F[p, 1 + j]
            if z != 0.0:
                row = frequencies[j]
                for k in range(waves.shape[0]):
                    waves[k] += z * row[k]
        for k in range(waves.shape[0]):
            waves[k] = cosine(waves[k])


@kernel(void(f8, f8, ro(2), ro(2), ro(3), rw(1), rw(2), rw(2), rw(3), rw(3)))
def curved_learn(forgetting, reach, F, targets, W, target, squares, masses, A, C):
    """Add features `F` (P, w) and `targets` (H, P), NaN where missing, to the moments `A` (P, w, w) and `C` (P, w, H).

    Of `A` only the lower triangles. A target counts up to `reach` times its root mean square, from `squares` and
    `masses` (H, P); a missing one is taken to be as the weights `W` (P, w, H) predict. `target` (H) is scratch.
    O(P w (w + H)).
    """
    H = targets.shape[0]
    w = F.shape[1]
    for p in range(F.shape[0]):
        f = F[p]
        for h in range(H):
            target[h] = targets[h, p]
            if math.isnan(target[h]):
                target[h] = 0.0
                for i in range(w):
                    target[h] += f[i] * W[p, i, h]
                continue
            if masses[h, p] > 30.0:
                largest = reach * math.sqrt(squares[h, p] / masses[h, p])
                target[h] = min(max(target[h], -largest), largest)
            squares[h, p] = forgetting * squares[h, p] + target[h] * target[h]
            masses[h, p] = forgetting * masses[h, p] + 1.0
        for i in range(w):
            row = A[p, i]
            for j in range(i + 1):
                row[j] = forgetting * row[j] + f[i] * f[j]
            cross = C[p, i]
            for h in range(H):
                cross[h] = forgetting * cross[h] + f[i] * target[h]


@kernel(void(ro(2), ro(3), rw(2)))
def curved_predict(F, W, location):
    """Add to `location` (H, P) what features `F` (P, w) and weights `W` (P, w, H) predict."""
    for p in range(F.shape[0]):
        for i in range(F.shape[1]):
            f = F[p, i]
            weights = W[p, i]
            for h in range(location.shape[0]):
                location[h, p] += f * weights[h]
