"""Steps of a row of the forecaster: features, regressions on them, the mixture around the blend, and correlations.

Each of these would be dozens of operations on small arrays, which take longer than the arithmetic.
"""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void, whole
from momostream.kernels.horizon import ENOUGH_TO_CUT
from momostream.kernels.lags import learn_linear, predict_linear
from momostream.kernels.mixture import mix, mix_learn
from momostream.kernels.scalar import NU0, decay, dot, log

__all__ = [
    "FAR",
    "blend_mean",
    "correlation_learn",
    "deviations",
    "iterated_learn",
    "keep_forecast",
    "keep_scores",
    "largest_features",
    "level_log_factors",
    "means_between",
    "means_learn",
    "mixture_learn",
    "mixture_planes",
    "past_note",
    "past_reach",
    "row_features",
    "tempered_errors",
    "wide_learn",
]

# Errors, and distances of forecasts, count up to so many deviations when means are learnt.
FAR = 10.0


@kernel(void(ro(1), ro(1), rw(1), rw(1), rw(1), rw(1)))
def past_note(y, before, n_repeated, lowest, highest, least_change):
    """Count how often each series repeats its value, and note its range and the least of its changes.

    NaN in `y` is missing, in a range unknown; the least change is 0 before the first.
    """
    for p in range(y.shape[0]):
        if math.isnan(y[p]):
            continue
        n_repeated[p] = n_repeated[p] + 1.0 if y[p] == before[p] else 0.0
        change = abs(y[p] - before[p])
        if change > 0.0 and not 0.0 < least_change[p] <= change:
            least_change[p] = change
        if not y[p] >= lowest[p]:
            lowest[p] = y[p]
        if not y[p] <= highest[p]:
            highest[p] = y[p]


@kernel(void(f8, ro(1), ro(1), ro(1), rw(1), rw(1)))
def past_reach(margin, values, lowest, highest, low, high):
    """Set the limits `low` and `high` of forecasts, `margin` ranges beyond the range; `values` where that is NaN."""
    for p in range(values.shape[0]):
        more = margin * (highest[p] - lowest[p])
        low[p] = values[p] if math.isnan(lowest[p]) else lowest[p] - more
        high[p] = values[p] if math.isnan(highest[p]) else highest[p] + more


@kernel(void(f8, ro(3), ro(3), i8, i8, whole, i8, i8, i8, i8, i8, i8, i8, ro(1), rw(1), rw(1)))
def row_features(
    number, past, inputs, first, now, seasons, n_lags, n_raw, n_bends, n_waves, n_seasonal, n_shown, kind, terms, f,
    point,
):  # fmt: skip
    """Set features `f` and `point` of the row `now`; `momostream.horizon.features.FeatureMap` says which.

    `past` (rows, 4, P) and `inputs` (rows, 2, D) are those of a past, `seasons` the rows back to the seasonal values,
    `n_seasonal` the room for these in `f`; the `n_bends` inputs after the first `n_raw` are left out. `kind` is the one
    of the `terms` at the last step that is shown, or -1.
    """
    P = past.shape[2]
    at_seasonal = 1 + P + n_waves
    at_changes = at_seasonal + n_seasonal
    at_point = 1 + P + n_shown + (1 if kind >= 0 else 0)
    f[0] = 1.0
    point[0] = number
    for k in range(n_waves):
        at = k if k < n_raw else k + n_bends
        f[1 + P + k] = inputs[now, 0, at] - inputs[now, 1, at]
    for k in range(n_shown):
        point[1 + P + k] = inputs[now, 0, k if k < n_raw else k + n_bends]
    if kind >= 0:
        point[1 + P + n_shown] = terms[kind]
    for k in range(n_seasonal):
        f[at_seasonal + k] = 0.0
    for p in range(P):
        value = past[now, 0, p]
        f[1 + p] = value - past[now, 1, p]
        point[1 + p] = value
        for j in range(seasons.shape[0]):
            at = now - seasons[j]
            change = past[at, 0, p] - value if at >= first else 0.0
            f[at_seasonal + j * P + p] = change
            point[at_point + j * P + p] = change
        for j in range(n_lags):
            # Newest first; zero before the first row.
            change = 0.0
            if now - j - 1 >= first:
                change = past[now - j, 0, p] - past[now - j - 1, 0, p]
            f[at_changes + j * P + p] = change
        point[at_point + seasons.shape[0] * P + p] = f[at_changes + p]


@kernel(void(f8, i8, ro(2), rw(1)))
def largest_features(reach, n_rows, A, largest):
    """Set `largest` (d), up to which size features count: `reach` times their root mean square, if they have varied."""
    for i in range(largest.shape[0]):
        largest[i] = reach * math.sqrt(A[i, i] / max(n_rows, 1)) if A[i, i] > 0.0 else math.inf


@kernel(i8(ro(3), i8, i8, i8, ro(1), ro(1), ro(1), i8, f8, ro(2), rw(1), rw(1), rw(1), rw(2), rw(2)))
def iterated_learn(past, first, now, n_changes, terms, origin, y, n_rows, reach, W, f, change, squares, A, C):
    """Add the row `now`, with the values `y` (NaN where missing), to the moments of `momostream.horizon.iterated`.

    Features are those of the row before, cut at `reach` root mean squares once enough of the `n_rows` have come. A
    missing value is taken to be as expected under the weights `W` (d, P), and moves none. `f` (d) and `change` (P) are
    scratch. Returns whether there was anything to learn. O(d^2 + d P).
    """
    P = y.shape[0]
    d = f.shape[0]
    known = 0
    for p in range(P):
        if not math.isnan(y[p]):
            known = 1
    if known == 0 or now == first:
        return 0
    cuts = n_rows > ENOUGH_TO_CUT
    f[0] = 1.0
    for p in range(P):
        f[1 + p] = past[now - 1, 0, p] - origin[p]
        for j in range(n_changes):
            newer = past[max(now - 1 - j, first), 0, p]
            f[1 + P * (1 + j) + p] = newer - past[max(now - 2 - j, first), 0, p]
    for j in range(terms.shape[0]):
        f[d - terms.shape[0] + j] = terms[j]
    if cuts:
        for i in range(d):
            if A[i, i] > 0.0:
                largest = reach * math.sqrt(A[i, i] / max(n_rows, 1))
                f[i] = min(max(f[i], -largest), largest)
    for p in range(P):
        if math.isnan(y[p]):
            change[p] = 0.0
            for i in range(d):
                change[p] += f[i] * W[i, p]
        else:
            change[p] = past[now, 0, p] - past[now - 1, 0, p]
            if cuts:
                usual = reach * math.sqrt(squares[p] / n_rows)
                change[p] = min(max(change[p], -usual), usual)
        squares[p] += change[p] * change[p]
    for i in range(d):
        row = A[i]
        for j in range(d):
            row[j] += f[i] * f[j]
        for p in range(P):
            C[i, p] += f[i] * change[p]
    return 1


@kernel(
    void(f8, f8, ro(1), ro(1), rw(1), rw(1), rw(1), rw(1), rw(1), rw(1), rw(3), rw(3), rw(1), rw(1), rw(1))
)  # fmt: skip
def wide_learn(
    forgetting, reach, f, changes, n_varied, squares, masses, gain, mean, error, P, W, features, targets, learnt
):  # fmt: skip
    """Learn the `changes` (Q) that followed a row with features `f` (d), NaN where missing; O(d^2 + d Q).

    Counts the rows in which features were not zero (`n_varied`), adds up `squares` and `masses` of changes that were
    not, and moves the weights `W` (penalties, d, Q) and their `P`. Sets `features` and `targets`, the row as it waits
    for its moments to be added up, and the changes as they were `learnt`: cut at twice `reach` root mean squares.
    `gain` (d), `mean` and `error` (Q) are scratch.
    """
    Q = changes.shape[0]
    d = f.shape[0]
    for i in range(d):
        n_varied[i] = forgetting * n_varied[i] + (1.0 if f[i] != 0.0 else 0.0)
        features[i] = f[i]
    for q in range(Q):
        # Until it is known what was predicted, the room of a target holds the usual size.
        usual = math.sqrt(squares[q] / max(masses[q], 1e-300))
        targets[q] = usual
        change = changes[q]
        if not math.isnan(change):
            if masses[q] > ENOUGH_TO_CUT and usual > 0.0:
                # Neither one jump nor the stand-in for a missing value may be much larger than usual.
                change = min(max(change, -2.0 * reach * usual), 2.0 * reach * usual)
            # A constant series says nothing about the size of its changes.
            if change != 0.0:
                squares[q] = forgetting * squares[q] + change * change
                masses[q] = forgetting * masses[q] + 1.0
        learnt[q] = change
    for k in range(W.shape[0]):
        c = predict_linear(d, f, P[k], W[k], gain, mean)
        for q in range(Q):
            is_missing = math.isnan(learnt[q])
            error[q] = 0.0 if is_missing else learnt[q] - mean[q]
            if k == 0:
                targets[q] = min(max(mean[q], -targets[q]), targets[q]) if is_missing else learnt[q]
        learn_linear(d, forgetting, c, gain, error, P[k], W[k])


@kernel(void(ro(2), ro(3), ro(3), rw(3)))
def tempered_errors(values, errors, planes, tempered):
    """Set `tempered` (K, H, P): errors over the root of the distance of `values` (H, P) from the middle forecast.

    Their least squares are least absolute errors. `planes` (5, M, H P) are those of the mixture: the middle is the
    location of the fourth component, and a tenth of the deviation of the fifth is the least distance.
    """
    P = values.shape[1]
    for h in range(values.shape[0]):
        for p in range(P):
            q = h * P + p
            away = abs(values[h, p] - planes[0, 3, q])
            least = 0.1 * planes[1, 4, q]
            # Written so that NaN stays.
            tempered[0, h, p] = math.sqrt(least if away < least else away)
    for k in range(errors.shape[0] - 1, -1, -1):
        for h in range(values.shape[0]):
            for p in range(P):
                # The first, which holds the sizes until then, comes last.
                tempered[k, h, p] = errors[k, h, p] / tempered[0, h, p]


@kernel(void(ro(3), ro(3), rw(2)))
def blend_mean(locations, weights, mean):
    """Set `mean` (H, P) of forecasts (K, H, P) under the weights (H, P, K) of a blend."""
    for h in range(mean.shape[0]):
        for p in range(mean.shape[1]):
            total = 0.0
            for k in range(locations.shape[0]):
                total += locations[k, h, p] * weights[h, p, k]
            mean[h, p] = total


@kernel(void(ro(3), ro(4), ro(3), rw(3), rw(4), rw(4)))
def keep_forecast(located, slopes, planes, kept_located, kept_slopes, kept_planes):
    """Put a forecast into its slot of a ring, steps first: (H, K, P), (H, 2, P, D) and (H, 5, M, P)."""
    P = located.shape[2]
    for h in range(located.shape[1]):
        for k in range(located.shape[0]):
            for p in range(P):
                kept_located[h, k, p] = located[k, h, p]
        for k in range(slopes.shape[0]):
            for p in range(P):
                for d in range(slopes.shape[3]):
                    kept_slopes[h, k, p, d] = slopes[k, h, p, d]
        for i in range(planes.shape[0]):
            for m in range(planes.shape[1]):
                for p in range(P):
                    kept_planes[h, i, m, p] = planes[i, m, h * P + p]


@kernel(void(i8, ro(2), rw(3)))
def keep_scores(row, scores, ring):
    """Put the normal scores (H, P) of a `row` into a ring (H, H, P), where its forecasts of 1, 2... rows ago are."""
    H = scores.shape[0]
    for h in range(min(H, row)):
        for p in range(scores.shape[1]):
            ring[(row - h - 1) % H, h, p] = scores[h, p]


@kernel(i8(ro(3), ro(3), rw(3)))
def deviations(squares, masses, stds):
    """Set the standard deviations (M, H, P) of components from their discounted squares; returns if any has no mass.

    Few residuals say little about the next one: wider by as much as a Student-t of so few is.
    """
    unknown = 0
    for m in range(stds.shape[0]):
        for h in range(stds.shape[1]):
            for p in range(stds.shape[2]):
                mass = masses[m, h, p]
                if mass == 0.0:
                    unknown = 1
                    stds[m, h, p] = math.nan
                    continue
                stds[m, h, p] = math.sqrt(squares[m, h, p] / mass * (1.0 + NU0 / mass))
    return unknown


@kernel(
    void(
        i8, i8, i8, f8, f8, ro(2), ro(2), ro(1), ro(1), ro(1), ro(3), ro(2), ro(2), ro(3), ro(4), ro(2), rw(3), rw(3),
        rw(2),
    )
)  # fmt: skip
def mixture_planes(
    first_last, blend_like, last_like, sharpness, farness, blend, middle, last, rests, lumps, stds, factors, candidates,
    mixing, tails, outputs, weights, planes, work,
):  # fmt: skip
    """Set the `planes` (5, M, H P) of the mixture around the forecasts `blend` and `middle` (H, P).

    Components from `first_last` on lie at the middle, and at the `last` value of a series that `rests` (P). They count
    for less where the component `last_like` errs more than `blend_like` and, at rest, where the blend is far. The first
    of them is a lump then, whose deviation is that of `lumps` (P), unless it is 0. `stds` (M, H, P) are deviations
    before the `factors` (H, P) of their levels. `weights` (3, M, H P) and `work` (3, H P) are scratch; the rest is that
    of `mix`.
    """
    M = planes.shape[1]
    P = last.shape[0]
    for i in range(mixing.shape[0]):
        for m in range(M):
            for q in range(mixing.shape[2]):
                weights[i, m, q] = mixing[i, m, q]
    for h in range(blend.shape[0]):
        for p in range(P):
            q = h * P + p
            # No forecast is certain, not even of a constant.
            least = 1e-9 * abs(last[p]) + 1e-100
            for m in range(M):
                if m < first_last:
                    planes[0, m, q] = blend[h, p]
                else:
                    planes[0, m, q] = last[p] if rests[p] > 0.0 else middle[h, p]
                std = stds[m, h, p] * factors[h, p]
                if m == first_last and rests[p] > 0.0 and lumps[p] > 0.0:
                    std = lumps[p]
                planes[1, m, q] = least if std < least else std
            ratio = min(planes[1, blend_like, q] / max(planes[1, last_like, q], 1e-300), 1.0)
            share = decay(-sharpness * log(max(ratio, 1e-300)))
            if rests[p] > 0.0:
                # A series that stays is expected near its last value.
                away = (blend[h, p] - last[p]) / planes[1, blend_like, q]
                share *= math.exp(-0.5 * farness * min(away * away, 100.0))
            for m in range(first_last, M):
                weights[0, m, q] *= share
    mix(candidates, weights, tails, outputs, planes, work)


@kernel(f8(ro(3), i8))
def _mixture_mean(planes, q):
    """Return the mean of the mixture of the value `q`, from the planes (5, M, H P): locations first, weights last."""
    total = 0.0
    for m in range(planes.shape[1]):
        total += planes[4, m, q] * planes[0, m, q]
    return total


@kernel(void(f8, ro(2), ro(3), ro(2), rw(2)))
def means_learn(keep, values, planes, rests, moments):
    """Learn values (H, P), NaN where not known, of mixtures `planes` (5, M, H P): the best weight of the blend.

    `rests` (H, P) says which series were at rest. `moments` (2, 3), of series that move and of series at rest, are
    discounted by `keep` for each whole forecast: squares of the distance from the mean of the mixture to the blend, the
    location of the first component; products of that distance and the error of the mean; and the number of forecasts,
    of which each value is a part. Distances and errors are in units of the deviation of that component, and errors
    count up to `FAR` of them: one jump must not decide.
    """
    part = 1.0 / values.size
    for kind in range(2):
        square = product = number = 0.0
        for h in range(values.shape[0]):
            for p in range(values.shape[1]):
                q = h * values.shape[1] + p
                if math.isnan(values[h, p]) or (rests[h, p] > 0.0) != (kind == 1):
                    continue
                mean = _mixture_mean(planes, q)
                distance = (planes[0, 0, q] - mean) / planes[1, 0, q]
                error = min(max((values[h, p] - mean) / planes[1, 0, q], -FAR), FAR)
                # NaN and infinity teach nothing.
                if abs(distance) < FAR:
                    square += part * distance * distance
                    product += part * distance * error
                    number += part
        if number > 0.0:
            kept = keep**number
            moments[kind, 0] = kept * moments[kind, 0] + square
            moments[kind, 1] = kept * moments[kind, 1] + product
            moments[kind, 2] = kept * moments[kind, 2] + number


@kernel(void(f8, f8, ro(3), ro(1), ro(2), rw(2)))
def means_between(n_guessed, guess, planes, rests, moments, means):
    """Set `means` (H, P) between those of the mixtures and the blend, by the weight of least squared error so far.

    The weight is shrunk towards the `guess` as if that came from `n_guessed` forecasts; the rest is as in
    `means_learn`, and `rests` (P) of now.
    """
    for h in range(means.shape[0]):
        for p in range(means.shape[1]):
            q = h * means.shape[1] + p
            learnt = moments[1 if rests[p] > 0.0 else 0]
            weight = guess
            if learnt[0] > 0.0:
                weight = (learnt[2] * learnt[1] / learnt[0] + n_guessed * guess) / (learnt[2] + n_guessed)
            mean = _mixture_mean(planes, q)
            means[h, p] = mean + min(max(weight, 0.0), 1.0) * (planes[0, 0, q] - mean)


@kernel(
    void(
        ro(1), ro(1), i8, f8, f8, ro(2), ro(2), ro(2), ro(2),
        rw(3), rw(3), rw(3), rw(4), rw(2), rw(3), rw(2), rw(2), rw(1), rw(2), rw(1),
    )
)  # fmt: skip
def mixture_learn(
    speeds, rates, longest, least_factor, least_log_scale, y, factors, candidates, cdf,
    squares, masses, mixing, tails, outputs, planes, error, usual, likelihood, work, scores,
):  # fmt: skip
    """Learn values `y` (H, P), NaN where not known, of the `planes` (5, M, H P): variances, weights, tails, scales.

    Sets the `error` (H, P) of the first component and the `usual` square (H, P) of the component `longest` before this
    row. `factors` (H, P) are those of levels, without which squares are added up; `scores` (H P) and the rest are those
    of `mix_learn`.
    """
    P = y.shape[1]
    for h in range(y.shape[0]):
        for p in range(P):
            usual[h, p] = squares[longest, h, p] / max(masses[longest, h, p], 1e-300)
            error[h, p] = y[h, p] - planes[0, 0, h * P + p]
            if math.isnan(y[h, p]):
                continue
            for m in range(speeds.shape[0]):
                own = (y[h, p] - planes[0, m, h * P + p]) / factors[h, p]
                # As in `components_learn`.
                keep = min(speeds[m], 1.0 - 0.5 / (masses[m, h, p] + 1.0))
                squares[m, h, p] = keep * squares[m, h, p] + own * own
                masses[m, h, p] = keep * masses[m, h, p] + 1.0
    mix_learn(
        rates, y.reshape(y.shape[0] * P), candidates, cdf, mixing, tails, outputs, planes, likelihood, work, scores
    )  # fmt: skip
    factor = tails[0].reshape(tails[0].size)
    for i in range(factor.shape[0]):
        factor[i] = max(factor[i], least_factor)
    for q in range(outputs.shape[1]):
        outputs[0, q] = max(outputs[0, q], least_log_scale)


@kernel(void(f8, f8, f8, ro(3), rw(2)))
def level_log_factors(prior, least, most, sums, log_factors):
    """Set log factors (P, B) of deviations at the knots from `sums` (2, P, B) of relative squares and their number.

    `prior` rows say that there is no difference; factors stay between `least` and `most`.
    """
    B = log_factors.shape[1]
    for p in range(log_factors.shape[0]):
        square, mass = prior, prior
        for b in range(B):
            square += sums[0, p, b]
            mass += sums[1, p, b]
        mean = square / mass
        for b in range(B):
            own = (sums[0, p, b] + prior * mean) / (sums[1, p, b] + prior) / mean
            log_factors[p, b] = 0.5 * math.log(min(max(own, least * least), most * most))


@kernel(void(f8, f8, ro(2), rw(2), rw(2), rw(2), rw(2), rw(2), rw(2)))
def correlation_learn(forgetting, clip, scores, steps, n_steps, series, n_series, z, known):
    """Add normal scores (H, P), NaN where missing, to moments and counts of steps (H, H) and of series (P, P).

    `z` and `known` (H, P) are scratch. O(H P (H + P)).
    """
    H = scores.shape[0]
    P = scores.shape[1]
    for h in range(H):
        for p in range(P):
            seen = not math.isnan(scores[h, p])
            known[h, p] = 1.0 if seen else 0.0
            z[h, p] = min(max(scores[h, p], -clip), clip) if seen else 0.0
    for g in range(H):
        for h in range(g + 1):
            steps[g, h] = forgetting * steps[g, h] + dot(z[g], z[h]) / P
            n_steps[g, h] = forgetting * n_steps[g, h] + dot(known[g], known[h]) / P
            steps[h, g] = steps[g, h]
            n_steps[h, g] = n_steps[g, h]
    for p in range(P):
        for q in range(P):
            series[p, q] *= forgetting
            n_series[p, q] *= forgetting
    for h in range(H):
        for p in range(P):
            for q in range(P):
                series[p, q] += z[h, p] * z[h, q] / H
                n_series[p, q] += known[h, p] * known[h, q] / H
