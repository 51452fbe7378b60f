"""Stacked experts: weights, tails, scales, and the copula that joins the targets."""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void
from momostream.kernels.scalar import UNKNOWN, decay, dot, log

__all__ = [
    "CDF_PER_UNIT",
    "CDF_REACH",
    "DOF",
    "LEAST_FACTOR",
    "LEAST_OF_DEVIATION",
    "LEAST_OF_SIZE",
    "LOCATION",
    "SCALE",
    "SCORE_CLIP",
    "SCORE_PER_UNIT",
    "SCORE_REACH",
    "SETTLED",
    "EXACT",
    "STD",
    "TOO_FAR",
    "WEIGHT",
    "interpolate",
    "learn_copula",
    "learn_points",
    "refresh_copula",
    "stack_learn",
    "stack_learn_rows",
    "stack_predict",
    "stack_predict_rows",
    "tilt_to_blend",
]

# The planes of a distribution, as in `momostream.distributions.planes`; kernels import nothing but numpy and numba.
LOCATION, STD, SCALE, DOF, WEIGHT = range(5)
# Targets after which the distributions of an output are taken seriously.
SETTLED = 4.0
# A scale is never smaller than these parts of the deviation and of the size of an output: a stuck sensor may move.
LEAST_OF_DEVIATION, LEAST_OF_SIZE = 1e-5, 1e-9
# A tail's variance factor never falls below this.
LEAST_FACTOR = 1e-8
# Tables: distribution functions over asinh(z), and Student-t quantiles over normal scores.
CDF_REACH, CDF_PER_UNIT = 16.0, 64.0
SCORE_REACH, SCORE_PER_UNIT = 7.0, 32.0
# An expert with such a tail may take all blame for a target, also where its share is nearly nothing: the step of its
# weight is as if it had had this share at least.
LEAST_SHARE_OF_EXACT = 0.05
# Tail of an expert whose deviation is taken as it is: no factor is learnt, and no floor holds.
EXACT = -1
# Rows of the arrays `mixing` and `outputs` that hold what is learnt while a target stands still.
STANDING_WEIGHTS, STANDING_SCALE = 3, 4
# Parts of a reading's resolution: half of it, in deviations of the expert that stands still.
HALF_READING = 4.0
# A mean is moved by tilting by at most this part of the width of a mixture, and never to an edge of its locations.
# It is moved to within this part of the way.
MOST_SHIFT, LEAST_SHIFT, NEAREST_EDGE, NEAR = 0.5, 1e-3, 0.95, 0.02
# Shares below this are left out of a tilted mixture; a variance that steps of the tilt are divided by is at least this.
LEAST_SHARE, LEAST_VARIANCE = 1e-6, 1e-3
# One over a smaller number is none.
LEAST_RANGE = 1e-300
# Least weight of a blend.
LEAST_BLEND = 1e-6
# An expert whose location or deviation lies beyond this has no say.
TOO_FAR = 1e120
# Normal scores are cut here before they teach a correlation: one wild row must not.
SCORE_CLIP = 4.0


@kernel(i8(ro(3), ro(3), i8))
def _stands(mixing, planes, p):
    """Whether target `p` stands still: the last expert is exact, and has a deviation only then."""
    last = planes.shape[1] - 1
    return mixing.shape[0] > STANDING_WEIGHTS and mixing[2, last, p] == EXACT and 0.0 < planes[STD, last, p] < TOO_FAR


@kernel(void(f8, ro(2), ro(3), ro(4), ro(2), rw(3), rw(1)))
def stack_predict(sharpness, candidates, mixing, tails, outputs, planes, mean):
    """Fill scale, degrees of freedom and weight of each expert from its location and deviation; set the stacked `mean`.

    An expert that is less sure than usual counts for less: its weight is multiplied by
    ``(usual scale / scale)^sharpness``. An expert without a finite standard deviation has no say: its location is set
    to zero, its deviation to infinity. Where `mixing` has weights for targets that stand still, these are used for such
    targets, and so is their scale.
    """
    K = planes.shape[1]
    for p in range(planes.shape[2]):
        stands = _stands(mixing, planes, p)
        learnt = STANDING_WEIGHTS if stands else 0
        factor = math.exp(outputs[STANDING_SCALE if stands else 0, p])
        least = LEAST_OF_DEVIATION * math.sqrt(outputs[3, p]) + LEAST_OF_SIZE * abs(outputs[2, p])
        total = 0.0
        for k in range(K):
            g = int(mixing[2, k, p])
            std = planes[STD, k, p]
            planes[DOF, k, p] = candidates[0, g]
            # Squares of what lies farther out are no numbers.
            if 0.0 < std < TOO_FAR and abs(planes[LOCATION, k, p]) < TOO_FAR:
                scale = max(std * math.sqrt(tails[0, k, p, g]) * factor, least)
                if g == EXACT:
                    scale = std
                away = mixing[1, k, p] - log(scale)
                if mixing[1, k, p] == UNKNOWN:
                    away = 0.0
                planes[SCALE, k, p] = scale
                planes[WEIGHT, k, p] = mixing[learnt, k, p] * math.exp(sharpness * min(max(away, -40.0), 40.0))
            else:
                planes[LOCATION, k, p] = 0.0
                planes[STD, k, p] = math.inf
                planes[SCALE, k, p] = 1.0
                planes[WEIGHT, k, p] = 0.0
            total += planes[WEIGHT, k, p]
        mean[p] = 0.0
        for k in range(K):
            planes[WEIGHT, k, p] = planes[WEIGHT, k, p] / total if total > 0.0 else 1.0 / K
            mean[p] += planes[WEIGHT, k, p] * planes[LOCATION, k, p]


@kernel(f8(f8, f8))
def _t_log_shape(dof, square):
    """Log density of a Student-t relative to that at its centre."""
    return -0.5 * (dof + 1.0) * log(1.0 + square / dof)


@kernel(f8(ro(1), f8, f8, f8))
def interpolate(table, x, lowest, per_unit):
    """Value of a table at `x`, linear between its entries, which start at `lowest` and come `per_unit` to one."""
    position = (x - lowest) * per_unit
    last = table.shape[0] - 2
    # Not below 0: what NaN becomes as a whole number is not defined.
    i = max(int(min(max(position, 0.0), float(last))), 0)
    part = min(max(position - i, 0.0), 1.0)
    return table[i] + part * (table[i + 1] - table[i])


@kernel(f8(f8))
def _normal_quantile(u):
    """Quantile of the standard normal for u in (0, 1), to about 4e-4: enough to learn a correlation from."""
    tail = min(u, 1.0 - u)
    t = math.sqrt(-2.0 * log(tail))
    q = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
    return -q if u < 0.5 else q


@kernel(f8(ro(1), f8, f8, f8))
def _below(table, y, location, scale):
    """Probability that a tail gives to values below `y`."""
    z = min(max((y - location) / scale, -1e100), 1e100)
    size = log(abs(z) + math.sqrt(1.0 + z * z))
    return interpolate(table, size if z > 0.0 else -size, -CDF_REACH, CDF_PER_UNIT)


@kernel(f8(f8, f8, f8))
def _missed(level, low, high):
    """Level of a central interval minus the part of a reading, from probability `low` to `high`, that lies inside."""
    edge = 0.5 - 0.5 * level
    if high - low < 1e-12:
        return level - (1.0 if edge < low < 1.0 - edge else 0.0)
    return level - max(min(high, 1.0 - edge) - max(low, edge), 0.0) / (high - low)


@kernel(void(ro(1), ro(1), ro(2), ro(2), ro(2), rw(3), rw(4), rw(2), rw(3), rw(1), rw(1)))
def learn_mixture(rates, y, candidates, cdf, shares, mixing, tails, outputs, planes, likelihood, scores):
    """As `stack_learn`, where weights were tilted: `shares` (K, P) are those before, which the weights learn from.

    Scores and scales learn from the mixture as it was predicted. With more than six `rates`, the common scale also
    follows how often the central intervals of 50 and 90 % hold the target.
    """
    eta, floor, tail_step, tail_discount, scale_step, usual_step = (
        rates[0], rates[1], rates[2], rates[3], rates[4], rates[5],
    )  # fmt: skip
    K = planes.shape[1]
    G = candidates.shape[1]
    for p in range(y.shape[0]):
        if math.isnan(y[p]):
            scores[p] = math.nan
            continue
        outputs[1, p] += 1.0
        young = 1.0 / (1.0 + outputs[1, p])
        away = y[p] - outputs[2, p]
        outputs[2, p] += away / outputs[1, p]
        outputs[3, p] += (away * (y[p] - outputs[2, p]) - outputs[3, p]) / outputs[1, p]
        # No expert can have known the units of an output before its first target, and without an expert that has a
        # finite deviation there is nothing to learn from either.
        voices = 0.0 if outputs[1, p] > 1.0 else -math.inf
        for k in range(K):
            if math.isfinite(planes[STD, k, p]) and planes[STD, k, p] > 0.0:
                voices += planes[WEIGHT, k, p]
        if voices <= 0.0:
            scores[p] = math.nan
            continue
        # Densities of the experts, relative to the largest.
        largest = -math.inf
        for k in range(K):
            z = min(max((y[p] - planes[LOCATION, k, p]) / planes[SCALE, k, p], -1e100), 1e100)
            g = int(mixing[2, k, p])
            likelihood[k] = candidates[1, g] - log(planes[SCALE, k, p]) + _t_log_shape(planes[DOF, k, p], z * z)
            if planes[WEIGHT, k, p] > 0.0:
                largest = max(largest, likelihood[k])
        density = 0.0
        tilted = 0.0
        low = 0.0
        high = 0.0
        stands = _stands(mixing, planes, p)
        half = HALF_READING * planes[STD, K - 1, p] if stands else 0.0
        for k in range(K):
            likelihood[k] = decay(max(largest - likelihood[k], 0.0))
            weight = planes[WEIGHT, k, p]
            density += shares[k, p] * likelihood[k]
            if weight > 0.0:
                tilted += weight * likelihood[k]
                table = cdf[int(mixing[2, k, p])]
                scale = planes[SCALE, k, p]
                # A reading that is fine beside the scale is a point.
                if half > 0.05 * scale:
                    low += weight * _below(table, y[p] - half, planes[LOCATION, k, p], scale)
                    high += weight * _below(table, y[p] + half, planes[LOCATION, k, p], scale)
                else:
                    here = weight * _below(table, y[p], planes[LOCATION, k, p], scale)
                    low += here
                    high += here
        below = 0.5 * (low + high)
        # The very first distributions are guesses: their scores say nothing about how outputs go together.
        settled = outputs[1, p] > SETTLED
        scores[p] = _normal_quantile(min(max(below, 1e-9), 1.0 - 1e-9)) if settled else math.nan
        # Weights: a step of expectation-maximisation, in the share that each had in this row.
        learnt = STANDING_WEIGHTS if stands else 0
        pull = 0.0
        total = 0.0
        for k in range(K):
            share = shares[k, p]
            if share > 0.0:
                blame = share * likelihood[k] / density
                z = min(max((y[p] - planes[LOCATION, k, p]) / planes[SCALE, k, p], -1e100), 1e100)
                dof = planes[DOF, k, p]
                own = planes[WEIGHT, k, p] * likelihood[k] / tilted
                if mixing[2, k, p] != EXACT:
                    # The common scale has no part in the others.
                    pull += own * ((dof + 1.0) * z * z / (dof + z * z) - 1.0)
                change = eta * (blame - share)
                if mixing[2, k, p] == EXACT:
                    share = max(share, LEAST_SHARE_OF_EXACT)
                # In proportion to the learnt weight, as the share is.
                mixing[learnt, k, p] *= max(1.0 + change / share, 0.5) if share > 1e-12 else 1.0
            mixing[learnt, k, p] = max(mixing[learnt, k, p], floor)
            total += mixing[learnt, k, p]
        for k in range(K):
            mixing[learnt, k, p] /= total
        if settled:
            step = scale_step * pull
            if rates.shape[0] > 6:
                step += rates[6] * _missed(0.5, low, high) + rates[7] * _missed(0.9, low, high)
            at = STANDING_SCALE if stands else 0
            outputs[at, p] = min(max(outputs[at, p] + step, -3.0), 3.0)
        # Tails of each expert on its own.
        for k in range(K):
            std = planes[STD, k, p]
            if mixing[2, k, p] == EXACT or not (math.isfinite(std) and std > 0.0):
                continue
            log_scale = log(planes[SCALE, k, p])
            if mixing[1, k, p] == UNKNOWN:
                mixing[1, k, p] = log_scale
            else:
                mixing[1, k, p] += max(usual_step, young) * (log_scale - mixing[1, k, p])
            z = min(max((y[p] - planes[LOCATION, k, p]) / std, -1e15), 1e15)
            square = z * z
            step = max(tail_step, young)
            factors = tails[0, k, p]
            fits = tails[1, k, p]
            for g in range(G):
                dof = candidates[0, g]
                factor = factors[g]
                # norm - log(factor) / 2 - (dof + 1) / 2 log(1 + square / factor / dof), with two logarithms.
                fits[g] = tail_discount * fits[g] + (
                    candidates[1, g] + 0.5 * dof * log(factor) - 0.5 * (dof + 1.0) * log(factor + square / dof)
                )
                robust = (dof + 1.0) / (dof + square / factor) * square
                factors[g] = max((1.0 - step) * factor + step * robust, LEAST_FACTOR)
            best = 0
            for g in range(1, G):
                if fits[g] > fits[best]:
                    best = g
            mixing[2, k, p] = best


@kernel(void(ro(1), ro(1), ro(2), ro(2), rw(3), rw(4), rw(2), rw(3), rw(1), rw(1)))
def stack_learn(rates, y, candidates, cdf, mixing, tails, outputs, planes, likelihood, scores):
    """Learn weights and tails from the targets `y` of the row that `stack_predict` was last called for.  O(K P G).

    `rates` holds the step of the weights, their floor, the least step of the tails, the discount of their scores, the
    step of the common scale and that of the usual scale. NaN in `y` leaves an output as it is.
    Sets ``scores[p]`` to the normal score of each target, NaN where it is missing. `likelihood` (K) is scratch.
    """
    learn_mixture(rates, y, candidates, cdf, planes[WEIGHT], mixing, tails, outputs, planes, likelihood, scores)


@kernel(void(ro(2), ro(3), ro(2), rw(3), rw(2), rw(1)))
def tilt_to_blend(weights, mixing, outputs, planes, told, mean):
    """Tilt the weights of each mixture so that its `mean` becomes the blend of least square error.  O(K P).

    ``weights`` (P, B) are those of the blend: of the first B - 1 experts and, last, of the mixture's own mean. `told`
    (K + B, P) gets the weights of the mixture before and what is blended: an expert that is less sure than usual is
    drawn towards the mixture's mean. The weights are multiplied by ``exp(theta * location)``, which gives the
    distribution of that mean that is nearest in relative entropy.
    """
    K = planes.shape[1]
    last = weights.shape[1] - 1
    for p in range(planes.shape[2]):
        centre = mean[p]
        shift = 0.0
        width = 0.0
        variance = 0.0
        lowest = math.inf
        highest = -math.inf
        for k in range(last):
            std = planes[STD, k, p]
            gate = 0.0
            if math.isfinite(std) and std > 0.0:
                gate = 1.0
                if mixing[1, k, p] != UNKNOWN:
                    gate = decay(max(log(planes[SCALE, k, p]) - mixing[1, k, p], 0.0))
            told[K + k, p] = gate * (planes[LOCATION, k, p] - centre)
        # No sums in a loop that writes: whether it vectorises, and so the order of its sums, would depend on how near
        # to each other the arrays lie in memory.
        for k in range(last):
            shift += weights[p, k] * told[K + k, p]
        for k in range(K):
            share = planes[WEIGHT, k, p]
            location = planes[LOCATION, k, p]
            away = location - centre
            width += share * (planes[SCALE, k, p] + abs(away))
            if share > LEAST_SHARE:
                variance += share * away * away
                lowest = min(lowest, location)
                highest = max(highest, location)
        for k in range(K):
            told[k, p] = planes[WEIGHT, k, p]
        for k in range(last):
            told[K + k, p] += centre
        told[K + last, p] = centre
        shift = min(max(shift, -MOST_SHIFT * width), MOST_SHIFT * width)
        half = 0.5 * highest - 0.5 * lowest
        if outputs[1, p] <= 2.0 * SETTLED or not half > LEAST_RANGE or abs(shift) < LEAST_SHIFT * width:
            continue
        # Locations in units of half of their range, from its middle: between -1 and 1.
        middle = lowest + half
        unit = 1.0 / half
        now = (centre - middle) * unit
        edge = max(NEAREST_EDGE, abs(now))
        target = min(max(now + shift * unit, -edge), edge)
        near = max(NEAR * abs(target - now), 1e-4)
        theta = min(max((target - now) / max(variance * unit * unit, LEAST_VARIANCE), -2.0), 2.0)
        total = 1.0
        for _ in range(20):
            total = 0.0
            first = 0.0
            second = 0.0
            for k in range(K):
                weight = 0.0
                if told[k, p] > LEAST_SHARE:
                    x = (planes[LOCATION, k, p] - middle) * unit
                    # Relative to the largest, which keeps it finite.
                    weight = told[k, p] * decay(max(abs(theta) - theta * x, 0.0))
                    total += weight
                    first += weight * x
                    second += weight * x * x
                planes[WEIGHT, k, p] = weight
            now = first / total
            if abs(target - now) < near:
                break
            theta += min(max((target - now) / max(second / total - now * now, LEAST_VARIANCE), -2.0), 2.0)
        mean[p] = 0.0
        for k in range(K):
            planes[WEIGHT, k, p] /= total
            mean[p] += planes[WEIGHT, k, p] * planes[LOCATION, k, p]


@kernel(void(f8, f8, ro(1), ro(2), ro(2), rw(2), rw(3), rw(2)))
def learn_points(memory, caution, y, outputs, points, scratch, moments, weights):
    """Move the weights (P, B) of a blend of `points` (B, P) towards the least discounted square error.  O(P B^2).

    Errors are discounted so that those of the first half of all rows fade, and at most `memory` rows count. One
    multiplicative step a row, as in `momostream.kernels.horizon.blend_solve`. `moments` (P, B, B) are those of the
    errors; `scratch` is (2, B).
    """
    B = points.shape[0]
    error = scratch[0]
    pull = scratch[1]
    for p in range(y.shape[0]):
        n = outputs[1, p]
        if math.isnan(y[p]) or n <= 2.0 * SETTLED:
            continue
        forgetting = min(1.0 - 1.0 / memory, 1.0 - 2.0 / n)
        M = moments[p]
        w = weights[p]
        least = math.inf
        for i in range(B):
            error[i] = y[p] - points[i, p]
        for i in range(B):
            for j in range(B):
                M[i, j] = forgetting * M[i, j] + error[i] * error[j]
            least = min(least, M[i, i])
        if not (least > 1e-200 and math.isfinite(least)):
            continue
        whole = 0.0
        for i in range(B):
            pull[i] = caution * least * w[i]
            for j in range(B):
                pull[i] += M[i, j] * w[j]
            whole += w[i] * pull[i]
        total = 0.0
        for i in range(B):
            # exp(c / 2) with c at most 2.
            w[i] = max(w[i] * math.e * decay(1.0 - 0.5 * min(max(1.0 - pull[i] / whole, -2.0), 2.0)), LEAST_BLEND)
            total += w[i]
        for i in range(B):
            w[i] /= total


@kernel(i8(f8, f8, ro(3), ro(3), rw(3), rw(3), rw(1)))
def refresh_copula(prior_mass, floor, moments, pairs, R, factors, log_dets):
    """Set the correlations `R` (C, P, P), their lower factors and half log determinants from discounted moments.

    The prior is worth `prior_mass` rows of independence. A matrix that pairs with different rows have made indefinite
    is drawn towards independence until it has a factor. Returns how often that was needed.
    """
    P = R.shape[1]
    repairs = 0
    for c in range(R.shape[0]):
        shrink = 1.0 - floor
        while True:
            for i in range(P):
                for j in range(i + 1):
                    R[c, i, j] = moments[c, i, j] / (pairs[c, i, j] + prior_mass)
            for i in range(P):
                own = prior_mass / (pairs[c, i, i] + prior_mass)
                factors[c, i, i] = math.sqrt(R[c, i, i] + own)
            for i in range(P):
                for j in range(i):
                    r = shrink * R[c, i, j] / (factors[c, i, i] * factors[c, j, j])
                    R[c, i, j] = r
                    R[c, j, i] = r
            for i in range(P):
                R[c, i, i] = 1.0
            fine = True
            log_det = 0.0
            for i in range(P):
                for j in range(i + 1):
                    a = R[c, i, j]
                    for k in range(j):
                        a -= factors[c, i, k] * factors[c, j, k]
                    if j < i:
                        factors[c, i, j] = a / factors[c, j, j]
                    else:
                        if not a > 0.1 * floor:
                            fine = False
                            a = 1.0
                        factors[c, i, i] = math.sqrt(a)
                        log_det += 0.5 * math.log(a)
            if fine:
                break
            repairs += 1
            shrink *= 0.9
        log_dets[c] = log_det
    return repairs


@kernel(void(ro(1), f8, ro(1), ro(1), ro(2), ro(2), ro(3), ro(1), rw(3), rw(3), rw(2), rw(2)))
def learn_copula(
    discounts, score_discount, scores, dofs, norms, quantiles, factors, log_dets, moments, pairs, fit, work
):
    """Learn the correlation of normal scores at several speeds, and how well each speed and tail did.  O(C V P^2).

    ``fit`` (C, V) are discounted log densities of the copula with the correlation of speed `c` and ``dofs[v]`` degrees
    of freedom; `norms` (2, V) the log norms of the joint and of the marginal Student-t; `quantiles` (V, n) tables that
    turn normal scores into those of the Student-t; `work` (2, P) scratch. NaN scores are outputs not seen: they teach
    only the pairs that were.
    """
    P = scores.shape[0]
    whole = True
    for p in range(P):
        if math.isnan(scores[p]):
            whole = False
    if whole:
        t = work[0]
        z = work[1]
        for v in range(dofs.shape[0]):
            dof = dofs[v]
            alone = 0.0
            for p in range(P):
                t[p] = interpolate(quantiles[v], scores[p], -SCORE_REACH, SCORE_PER_UNIT)
                alone += norms[1, v] + _t_log_shape(dof, t[p] * t[p])
            for c in range(factors.shape[0]):
                L = factors[c]
                square = 0.0
                for i in range(P):
                    z[i] = (t[i] - dot(L[i, :i], z[:i])) / L[i, i]
                    square += z[i] * z[i]
                joint = norms[0, v] - log_dets[c] - 0.5 * (dof + P) * log(1.0 + square / dof)
                fit[c, v] = score_discount * fit[c, v] + joint - alone
    for c in range(discounts.shape[0]):
        d = discounts[c]
        for i in range(P):
            if math.isnan(scores[i]):
                continue
            a = min(max(scores[i], -SCORE_CLIP), SCORE_CLIP)
            for j in range(i + 1):
                if math.isnan(scores[j]):
                    continue
                b = min(max(scores[j], -SCORE_CLIP), SCORE_CLIP)
                moments[c, i, j] = d * moments[c, i, j] + a * b
                pairs[c, i, j] = d * pairs[c, i, j] + 1.0


@kernel(void(f8, ro(2), ro(3), ro(4), ro(2), ro(2), rw(4), rw(2), rw(2)))
def stack_predict_rows(sharpness, candidates, mixing, tails, outputs, blend, plane_rows, told, means):
    """Predict many rows: `plane_rows` (rows, 5, K, P), `means` (rows, P).

    `blend` (P, B) are the weights of the blend that means are tilted to, `told` is that of `tilt_to_blend`; B = 0 is
    none.
    """
    for i in range(plane_rows.shape[0]):
        stack_predict(sharpness, candidates, mixing, tails, outputs, plane_rows[i], means[i])
        if blend.shape[1] > 0:
            tilt_to_blend(blend, mixing, outputs, plane_rows[i], told, means[i])


@kernel(
    i8(
        f8, ro(1), i8, i8, i8, ro(2), ro(2), ro(2), ro(1), f8, ro(1), ro(2), ro(2), f8, f8, f8, f8,
        rw(3), rw(4), rw(2), rw(2), rw(3), rw(4), rw(2), rw(2), rw(2), rw(1), rw(1), rw(3), rw(3), rw(1), rw(3),
        rw(3), rw(2), rw(2),
    )
)  # fmt: skip
def stack_learn_rows(
    sharpness, rates, done, every, ready, Y, candidates, cdf, discounts, score_discount, dofs, norms, quantiles, prior,
    floor, memory, caution, mixing, tails, outputs, blend, errors, plane_rows, told, scratch, means, likelihood,
    scores, R, factors, log_dets, moments, pairs, fit, work,
):  # fmt: skip
    """Predict and learn the rows `Y` one after the other; `plane_rows` (rows, 5, K, P) holds locations and deviations.

    The first `ready` rows, none or one, have been predicted already. `done` is the number of rows learnt before;
    correlations are refreshed every so many. `blend` (P, B) and `errors` (P, B, B) are weights and moments of the blend
    that means are tilted to; B = 0 is none. Returns how often correlations were refreshed.
    """
    refreshed = 0
    K = plane_rows.shape[2]
    for i in range(Y.shape[0]):
        rows = plane_rows[i : i + 1]
        if i >= ready:
            stack_predict_rows(sharpness, candidates, mixing, tails, outputs, blend, rows, told, means)
        if blend.shape[1] > 0:
            learn_mixture(
                rates, Y[i], candidates, cdf, told[:K], mixing, tails, outputs, plane_rows[i], likelihood, scores
            )
            learn_points(memory, caution, Y[i], outputs, told[K:], scratch, errors, blend)
        else:
            stack_learn(rates, Y[i], candidates, cdf, mixing, tails, outputs, plane_rows[i], likelihood, scores)
        done += 1
        if Y.shape[1] > 1:
            learn_copula(
                discounts, score_discount, scores, dofs, norms, quantiles, factors, log_dets, moments, pairs, fit, work
            )
            if done % every == 0:
                refresh_copula(prior, floor, moments, pairs, R, factors, log_dets)
                refreshed += 1
    return refreshed
