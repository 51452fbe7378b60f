"""Forecasts of many steps: the remembered past, and the regressions of each series."""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void, whole
from momostream.kernels.lags import LEVEL_PENALTY
from momostream.kernels.scalar import dot

__all__ = [
    "ALIKE",
    "ENOUGH_TO_CUT",
    "ENOUGH_TO_SOLVE",
    "LONG",
    "N_BASIC",
    "ROUND_OFF",
    "SHORT",
    "components_learn",
    "exchange",
    "iterate",
    "level_factors",
    "level_learn",
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
# Stands for the last day of the same kind, weekday or weekend, in a list of seasons.
ALIKE = -1
# Features that a regression has from its first rows on; those of seasons and inputs come later.
N_BASIC = 7


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


@kernel(f8(f8, f8, f8))
def _held(value, lowest, highest):
    """Return the value, or the nearest one in reach; NaN stays."""
    if value < lowest:
        return lowest
    return highest if value > highest else value


@kernel(
    void(
        i8, i8, whole, ro(1), ro(1), ro(1), ro(3), i8, i8, ro(1), ro(2), ro(4), ro(5), ro(4), ro(5), rw(2), rw(3), rw(3)
    )
)  # fmt: skip
def recall(
    now,
    last,
    kept,
    y,
    lowest,
    highest,
    inputs,
    own,
    n_own,
    stands_still,
    rests,
    located,
    sloped,
    blend_slope,
    plane_ring,
    values,
    errors,
    planes,
):
    """Compare the values `y` of the row `now` with all forecasts of them, those made one row ago first.

    The rings hold forecasts by the number of their row, modulo H, and step; `kept` (H) has the rows whose forecasts are
    there: `located` (H, H, K, P) those of the experts, of which `n_own` from `own` on move by `sloped` (H, H, 2, P, D)
    with the change of the inputs since then, a third as the second; `plane_ring` (H, H, 5, M, P) the planes of the
    mixtures, whose components move by `blend_slope` (H, H, P, D) unless they stand still (M) in a series that `rests`
    (H, P). What moves stays between `lowest` and `highest` (P). The row is at the position `last` of `inputs` (rows, 2,
    D or more). Sets `values` (H, P), NaN where nothing was forecast or `y` is missing, `errors` (K, H, P) and, where
    something was forecast, `planes` (5, M, H P).
    """
    H, K, P = located.shape[1], located.shape[2], located.shape[3]
    D = sloped.shape[4]
    M = plane_ring.shape[3]
    for h in range(H):
        made = now - h - 1
        slot = made % H
        is_known = made >= 0 and kept[slot] == made
        value = values[h]
        for p in range(P):
            value[p] = y[p] if is_known else math.nan
        for k in range(K):
            made_by = located[slot, h, k]
            error = errors[k, h]
            for p in range(P):
                error[p] = value[p] - made_by[p]
        if is_known:
            for i in range(5):
                for m in range(M):
                    plane = plane_ring[slot, h, i, m]
                    now_here = planes[i, m, h * P : (h + 1) * P]
                    for p in range(P):
                        now_here[p] = plane[p]
            for d in range(D):
                # The forecast was made as if the inputs stayed.
                change = inputs[last, 0, d] - inputs[last - h - 1, 0, d]
                for p in range(P):
                    for k in range(n_own):
                        errors[own + k, h, p] -= sloped[slot, h, min(k, 1), p, d] * change
                    for m in range(M):
                        if stands_still[m] == 0.0 or rests[slot, p] == 0.0:
                            # The first plane holds the locations.
                            planes[0, m, h * P + p] += blend_slope[slot, h, p, d] * change
            for p in range(P if D else 0):
                for k in range(own, own + n_own):
                    errors[k, h, p] = _held(errors[k, h, p], value[p] - highest[p], value[p] - lowest[p])
                for m in range(M):
                    if stands_still[m] == 0.0 or rests[slot, p] == 0.0:
                        planes[0, m, h * P + p] = _held(planes[0, m, h * P + p], lowest[p], highest[p])


@kernel(f8(f8, f8))
def _difference(new, old):
    """Return new - old, and zero where that is only round-off: as a feature it would get a weight of any size."""
    difference = new - old
    return difference if abs(difference) > ROUND_OFF * (abs(new) + abs(old)) else 0.0


@kernel(void(ro(3), i8, i8, i8, i8, whole, i8, rw(1)))
def own_features(past, first, origin, step, series, seasons, alike, f):
    """Set `f` to the features of one series at `origin` for its change `step` rows later.

    `past` (rows, 4, P) holds the value, the slow mean and the means of the last 8 and 32 values of each series. Rows
    before `first` do not exist. In this order:
    1, distance from the slow mean, three changes, distances from the two means; for each season the change over the
    same steps in an earlier season and the distance from the same phase then; and (not set here) the levels of some
    inputs, and the change of each input until `origin + step`. A season of `ALIKE` rows is the last day of the kind of
    the target's day, `alike` rows before it; 0 if that is not known.
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
        length = seasons[j] if seasons[j] != ALIKE else alike
        back = length * ((step - 1) // length + 1) if length else 0
        f[at] = 0.0
        f[at + 1] = 0.0
        if back and origin - back >= first:
            then = past[origin - back, 0, series]
            f[at] = _difference(past[origin + step - back, 0, series], then)
            f[at + 1] = _difference(now, then)
        at += 2


@kernel(void(ro(3), i8, i8, i8, rw(1)))
def _input_levels(inputs, origin, start, stop, f):
    """Set `f` from `start` to `stop` to distances of the first `inputs` (rows, 2, D) from their slow means."""
    for k in range(stop - start):
        f[start + k] = _difference(inputs[origin, 0, k], inputs[origin, 1, k])


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


@kernel(void(ro(3), ro(3), ro(1), i8, i8, whole, i8, ro(1), f8, f8, rw(1), rw(4), rw(3), rw(2)))
def own_learn(past, inputs, sizes, first, now, seasons, alike, y, forgetting, reach, f, A, C, squares):
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
            own_features(past, first, origin, h + 1, p, seasons, alike, f)
            _input_levels(inputs, origin, N_BASIC + 2 * seasons.shape[0], d - D, f)
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


@kernel(void(i8, i8, ro(1), ro(1), ro(4), ro(3), rw(2), rw(4)))
def own_solve(start, stop, penalties, least, A, C, L, W):
    """Solve for the weights `W` (penalties, H, P, d) of the outputs `start` to `stop`, counted along steps and series.

    A penalty is worth this many of the rows in which a feature was there. A feature that never varied, or was there in
    fewer rows than `least` (d), has no weight, and an output with few rows keeps the weights it has. `L` (d, d) is
    scratch. O(d^3) per output and penalty.
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
                rows = moments[0, i] if i else mass
                own = 0.0
                if rows >= least[i]:
                    own = moments[i, i] * (1.0 + (penalties[k] if i else LEVEL_PENALTY) / max(rows, 1.0))
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


@kernel(void(ro(3), ro(3), i8, i8, whole, whole, ro(2), f8, ro(4), ro(4), rw(1), rw(3), rw(4)))
def own_predict(past, inputs, first, now, seasons, alike, ahead, reach, A, W, f, location, slope):
    """Set `location` (penalties, H, P), the forecasts at `now` if inputs stay as they are, and their `slope`.

    The last inputs are those of the calendar, whose values at the steps are `ahead` (H, n_terms); `slope` (penalties,
    H, P, D) says how much a forecast moves with the change of each of the others. `alike` (H) is that of each step in
    `own_features`. O(H P d).
    """
    D = slope.shape[3]
    n_terms = ahead.shape[1]
    d = f.shape[0]
    start = d - n_terms - D
    for h in range(W.shape[1]):
        for p in range(W.shape[2]):
            own_features(past, first, now, h + 1, p, seasons, alike[h], f)
            _input_levels(inputs, now, N_BASIC + 2 * seasons.shape[0], start, f)
            for k in range(D):
                f[start + k] = 0.0
            for k in range(n_terms):
                f[start + D + k] = ahead[h, k] - inputs[now, 0, D + k]
            # From the first row on: a regression on two rows knows nothing of what lies far beyond both.
            _cut_features(reach, 0.0, A[h, p], f)
            for k in range(W.shape[0]):
                w = W[k, h, p]
                location[k, h, p] = past[now, 0, p] + dot(w, f)
                for j in range(D):
                    slope[k, h, p, j] = w[start + j]


@kernel(void(ro(3), i8, i8, i8, ro(2), ro(1), ro(1), ro(1), ro(1), ro(3), rw(1), rw(2), rw(3)))
def iterate(past, first, now, n_changes, ahead, centre, lowest, highest, largest, W, f, turned, location):
    """Set `location` (regressions, H, P): each step predicted from the steps before it, as if these had come.

    `W` (regressions, d, P) gives the next change from 1, the distances of all series from `centre` (P), their
    `n_changes` newest changes, those of the newest row first, and the calendar of the next row, `ahead` (H, n_terms).
    Values stay between `lowest` and `highest` (P), so that no path runs away, and features count up to `largest` (d).
    `f` (d) and `turned` (P + 1, d) are scratch. O(H d P).
    """
    P = centre.shape[0]
    d = f.shape[0]
    start = d - ahead.shape[1]
    for k in range(W.shape[0]):
        for i in range(d):
            for p in range(P):
                turned[p, i] = W[k, i, p]
        f[0] = 1.0
        for p in range(P):
            f[1 + p] = past[now, 0, p] - centre[p]
            for j in range(n_changes):
                newer = past[max(now - j, first), 0, p]
                f[1 + P * (1 + j) + p] = newer - past[max(now - j - 1, first), 0, p]
        for h in range(location.shape[1]):
            for j in range(ahead.shape[1]):
                f[start + j] = ahead[h, j]
            cut = turned[P]
            for i in range(d):
                cut[i] = min(max(f[i], -largest[i]), largest[i])
            for p in range(P):
                location[k, h, p] = centre[p] + f[1 + p] + dot(cut, turned[p])
            for j in range(n_changes - 1, 0, -1):
                for p in range(P):
                    f[1 + P * (1 + j) + p] = f[1 + P * j + p]
            for p in range(P):
                value = min(max(location[k, h, p], lowest[p]), highest[p])
                location[k, h, p] = value
                if n_changes:
                    f[1 + P + p] = value - centre[p] - f[1 + p]
                f[1 + p] = value - centre[p]


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


@kernel(void(ro(2), rw(4), rw(4), rw(4), rw(5), rw(3)))
def exchange(rests, squares, masses, mixing, tails, outputs):
    """Exchange what belongs to motion and to rest, the first axis of all arrays, where `rests` (H, P) is positive.

    The others: `squares` and `masses` (M, H, P), `mixing` (3, M, H P), `tails` (2, M, H P, T), `outputs` (4, H P).
    """
    P = rests.shape[1]
    for h in range(rests.shape[0]):
        for p in range(P):
            if rests[h, p] <= 0.0:
                continue
            q = h * P + p
            for m in range(squares.shape[1]):
                squares[0, m, h, p], squares[1, m, h, p] = squares[1, m, h, p], squares[0, m, h, p]
                masses[0, m, h, p], masses[1, m, h, p] = masses[1, m, h, p], masses[0, m, h, p]
                for i in range(mixing.shape[1]):
                    mixing[0, i, m, q], mixing[1, i, m, q] = mixing[1, i, m, q], mixing[0, i, m, q]
                for i in range(tails.shape[1]):
                    for t in range(tails.shape[4]):
                        tails[0, i, m, q, t], tails[1, i, m, q, t] = tails[1, i, m, q, t], tails[0, i, m, q, t]
            for i in range(outputs.shape[1]):
                outputs[0, i, q], outputs[1, i, q] = outputs[1, i, q], outputs[0, i, q]


@kernel(f8(ro(1), f8))
def _position(knots, value):
    """Where `value` lies among increasing `knots`: 0 at the first, 1 at the second, linear in between."""
    last = knots.shape[0] - 1
    i = 0
    while i < last - 1 and value >= knots[i + 1]:
        i += 1
    return i + min(max((value - knots[i]) / (knots[i + 1] - knots[i]), 0.0), 1.0)


@kernel(void(ro(2), ro(2), ro(2), rw(2)))
def level_factors(location, knots, log_factors, factors):
    """Set `factors` (H, P) of deviations at `location` (H, P), between those at the `knots` (P, B)."""
    for h in range(location.shape[0]):
        for p in range(location.shape[1]):
            position = _position(knots[p], location[h, p])
            i = max(min(int(position), knots.shape[1] - 2), 0)
            part = position - i
            factors[h, p] = math.exp((1.0 - part) * log_factors[p, i] + part * log_factors[p, i + 1])


@kernel(void(f8, f8, ro(2), ro(2), ro(2), ro(2), rw(3)))
def level_learn(forgetting, most, location, errors, usual, knots, sums):
    """Add squares of `errors` (H, P) relative to `usual` ones, at most `most`, to `sums` (2, P, B) and count them.

    They belong to the knots around the `location` of the forecast. NaN is not known.
    """
    for p in range(location.shape[1]):
        known = 0.0
        for h in range(location.shape[0]):
            if not math.isnan(errors[h, p]) and usual[h, p] > 0.0:
                known += 1.0
        if known == 0.0:
            continue
        for b in range(sums.shape[2]):
            sums[0, p, b] *= forgetting
            sums[1, p, b] *= forgetting
        for h in range(location.shape[0]):
            if math.isnan(errors[h, p]) or usual[h, p] <= 0.0:
                continue
            square = min(errors[h, p] * errors[h, p] / usual[h, p], most)
            position = _position(knots[p], location[h, p])
            i = max(min(int(position), knots.shape[1] - 2), 0)
            part = position - i
            sums[0, p, i] += (1.0 - part) * square / known
            sums[1, p, i] += (1.0 - part) / known
            sums[0, p, i + 1] += part * square / known
            sums[1, p, i + 1] += part / known
