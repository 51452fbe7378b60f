"""Forecasts of many steps: the remembered past, the regressions of each series, and their blend."""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void, whole
from momostream.kernels.lags import LEVEL_PENALTY
from momostream.kernels.scalar import dot

__all__ = [
    "ENOUGH_TO_CUT",
    "ENOUGH_TO_SOLVE",
    "LEAST_BLEND",
    "LONG",
    "ROUND_OFF",
    "SHORT",
    "blend_learn",
    "blend_solve",
    "components_learn",
    "own_features",
    "own_learn",
    "own_predict",
    "own_solve",
    "past_append",
    "recall",
]

# Moments worth this many rows know how large a feature usually is, and are enough for a first regression: weights from
# two or three rows are wild, and stay until their turn comes again.
ENOUGH_TO_CUT, ENOUGH_TO_SOLVE = 30.0, 8.0
# Values in the short means of a series.
SHORT, LONG = 8, 32
# Differences below this part of the values are round-off.
ROUND_OFF = 1e-11
# No expert of a blend is forgotten altogether.
LEAST_BLEND = 1e-4


@kernel(void(i8, i8, ro(1), ro(1), f8, rw(1), rw(1), rw(1), rw(3), rw(3), rw(2)))
def past_append(first, now, y, x, slow_step, is_known, knows_input, n_missing, series, inputs, observed):
    """Put a row at the position `now`, after those from `first` on; NaN is missing.

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
def recall(
    now, every, last, y, inputs, own, stands_still, located, sloped, blend_slope, plane_ring, values, errors, planes
):
    """Compare the values `y` of the row `now` with all forecasts of them, those made one row ago first.

    Only every `every`-th forecast counts: those between overlap with it. Which ones count changes after H rows, so that
    all steps learn from a sensor that reports at every second row.

    The rings hold forecasts by the number of their row, modulo H, and step: `located` (H, H, K, P) those of the
    experts, of which the two from `own` on move by `sloped` (H, H, 2, P, D) with the change of the inputs since then;
    `plane_ring` (H, H, 5, M, P) the planes of the mixtures, whose components move by `blend_slope` (H, H, P, D) unless
    they stand still. The row is at the position `last` of `inputs` (rows, 2, D). Sets `values` (H, P), NaN where
    nothing was forecast or `y` is missing, `errors` (K, H, P) and `planes` (5, M, H P).
    """
    H, K, P = located.shape[1], located.shape[2], located.shape[3]
    D = inputs.shape[2]
    M = plane_ring.shape[3]
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
                    planes[i, m, h * P + p] = plane_ring[slot, h, i, m, p]
        if is_known:
            for d in range(D):
                # The forecast was made as if the inputs stayed.
                change = inputs[last, 0, d] - inputs[last - h - 1, 0, d]
                for p in range(P):
                    if own:
                        errors[own, h, p] -= sloped[slot, h, 0, p, d] * change
                        errors[own + 1, h, p] -= sloped[slot, h, 1, p, d] * change
                    for m in range(M):
                        if stands_still[m] == 0.0:
                            # The first plane holds the locations.
                            planes[0, m, h * P + p] += blend_slope[slot, h, p, d] * change


@kernel(f8(f8, f8))
def _difference(new, old):
    """Return new - old, and zero where that is only round-off: as a feature it would get a weight of any size."""
    difference = new - old
    return difference if abs(difference) > ROUND_OFF * (abs(new) + abs(old)) else 0.0


@kernel(void(ro(3), i8, i8, i8, i8, whole, rw(1)))
def own_features(past, first, origin, step, series, seasons, f):
    """Set `f` to the features of one series at `origin` for its change `step` rows later.

    `past` (rows, 4, P) holds the value, the slow mean and the means of the last 8 and 32 values of each series. Rows
    before `first` do not exist. In this order:
    1, distance from the slow mean, three changes, distances from the two means; for each season the change over the
    same steps in an earlier season and the distance from the same phase then; and (not set here) the change of each
    input until `origin + step`.
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
    """Add the row `now`, with the values `y` (NaN where missing), to the moments of all steps and series.

    `A` (H, P, d, d) are discounted moments of the features (lower triangles; the rest of the first row counts the rows
    in which a feature was not zero), `C` (H, P, d) those of features and change; `sizes` (D) holds the largest value of
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

    A penalty is worth so many rows of each feature. A feature that never varied has no weight, and an output with few
    rows keeps the weights it has. `L` (d, d) is scratch. O(d^3) per output and penalty.
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
                # The level has almost no penalty. A feature that follows from others, but for round-off, does not
                # count.
                own = moments[i, i] * (1.0 + (penalties[k] if i else LEVEL_PENALTY) / mass)
                for j in range(i):
                    total = moments[i, j] - dot(L[i, :j], L[j, :j])
                    L[i, j] = total / L[j, j] if L[j, j] > 0.0 else 0.0
                left = own - dot(L[i, :i], L[i, :i])
                L[i, i] = math.sqrt(left) if left > 1e-12 * own and own > 0.0 else 0.0
                w[i] = (cross[i] - dot(L[i, :i], w[:i])) / L[i, i] if L[i, i] > 0.0 else 0.0
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
            # From the first row on: a regression on two rows knows nothing of what lies far beyond both.
            _cut_features(reach, 0.0, A[h, p], f)
            for k in range(W.shape[0]):
                w = W[k, h, p]
                location[k, h, p] = past[now, 0, p] + dot(w, f)
                for j in range(D):
                    slope[k, h, p, j] = w[d - D + j]


@kernel(void(i8, f8, ro(3), rw(4)))
def blend_learn(n_rows, forgetting, errors, moments):
    """Add errors (K, H, P) to their discounted second moments (H, P, K, K); NaN is not known.  O(H P K^2).

    Errors of the first half of all rows are forgotten in any case: experts had learnt little then.
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

    Multiplicative steps: a weight grows if the errors of its expert, times those of the mixture, are smaller than the
    square error of the mixture.
    `caution` times the least square error of all experts is added to the square error of each. `pull` (K) is scratch.
    O(H P K^2).
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
                    pull[k] = dot(M[k], w) + caution * least * w[k]
                    whole_error += w[k] * pull[k]
                total = 0.0
                for k in range(K):
                    gain = min(max(1.0 - pull[k] / whole_error, -2.0), 2.0)
                    w[k] = max(w[k] * math.exp(0.5 * gain), LEAST_BLEND)
                    total += w[k]
                for k in range(K):
                    w[k] /= total


@kernel(void(ro(1), ro(3), rw(3), rw(3)))
def components_learn(forgetting, errors, squares, masses):
    """Add errors (M, H, P) to the discounted squares from which each component has its variance; NaN is not known."""
    for m in range(errors.shape[0]):
        for h in range(errors.shape[1]):
            for p in range(errors.shape[2]):
                error = errors[m, h, p]
                if not math.isnan(error):
                    # The mass grows by a half with each row until the memory is full: early errors are forgotten.
                    keep = min(forgetting[m], 1.0 - 0.5 / (masses[m, h, p] + 1.0))
                    squares[m, h, p] = keep * squares[m, h, p] + error * error
                    masses[m, h, p] = keep * masses[m, h, p] + 1.0
