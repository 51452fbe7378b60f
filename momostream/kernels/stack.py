"""Stacked experts: weights, tails, scales, and the copula that joins the targets."""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void
from momostream.kernels.scalar import UNKNOWN, decay, dot, log

__all__ = [
    "CDF_PER_UNIT",
    "CDF_REACH",
    "LEAST_FACTOR",
    "LEAST_OF_DEVIATION",
    "LEAST_OF_SIZE",
    "SCORE_CLIP",
    "SCORE_PER_UNIT",
    "SCORE_REACH",
    "SETTLED",
    "learn_copula",
    "refresh_copula",
    "stack_learn",
    "stack_learn_rows",
    "stack_predict",
    "stack_predict_rows",
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
# Normal scores are cut here before they teach a correlation: one wild row must not.
SCORE_CLIP = 4.0


@kernel(void(f8, ro(2), ro(3), ro(4), ro(2), rw(3), rw(1)))
def stack_predict(sharpness, candidates, mixing, tails, outputs, planes, mean):
    """Fill scale, degrees of freedom and weight of each expert from its location and deviation; set the stacked `mean`.

    An expert that is less sure than usual counts for less: its weight is multiplied by
    ``(usual scale / scale)^sharpness``. An expert without a finite standard deviation has no say.
    """
    K = planes.shape[1]
    for p in range(planes.shape[2]):
        factor = math.exp(outputs[0, p])
        least = LEAST_OF_DEVIATION * math.sqrt(outputs[3, p]) + LEAST_OF_SIZE * abs(outputs[2, p])
        total = 0.0
        for k in range(K):
            g = int(mixing[2, k, p])
            std = planes[STD, k, p]
            planes[DOF, k, p] = candidates[0, g]
            if math.isfinite(std) and std > 0.0:
                scale = max(std * math.sqrt(tails[0, k, p, g]) * factor, least)
                away = mixing[1, k, p] - log(scale)
                if mixing[1, k, p] == UNKNOWN:
                    away = 0.0
                planes[SCALE, k, p] = scale
                planes[WEIGHT, k, p] = mixing[0, k, p] * math.exp(sharpness * min(max(away, -40.0), 40.0))
            else:
                planes[LOCATION, k, p] = 0.0
                planes[SCALE, k, p] = 1.0
                planes[WEIGHT, k, p] = 0.0
            total += planes[WEIGHT, k, p]
        mean[p] = 0.0
        for k in range(K):
            planes[WEIGHT, k, p] = planes[WEIGHT, k, p] / total if total > 0.0 else 1.0 / K
            mean[p] += planes[WEIGHT, k, p] * planes[LOCATION, k, p]


@kernel(void(f8, ro(2), ro(3), ro(4), ro(2), rw(4), rw(2)))
def stack_predict_rows(sharpness, candidates, mixing, tails, outputs, plane_rows, means):
    """As `stack_predict` for many rows: `plane_rows` (rows, 5, K, P), `means` (rows, P)."""
    for i in range(plane_rows.shape[0]):
        stack_predict(sharpness, candidates, mixing, tails, outputs, plane_rows[i], means[i])


@kernel(f8(f8, f8))
def _t_log_shape(dof, square):
    """Log density of a Student-t relative to that at its centre."""
    return -0.5 * (dof + 1.0) * log(1.0 + square / dof)


@kernel(f8(ro(1), f8, f8, f8))
def _interpolate(table, x, lowest, per_unit):
    """Value of a table at `x`, linear between its entries, which start at `lowest` and come `per_unit` to one."""
    position = (x - lowest) * per_unit
    last = table.shape[0] - 2
    i = int(min(max(position, 0.0), float(last)))
    part = min(max(position - i, 0.0), 1.0)
    return table[i] + part * (table[i + 1] - table[i])


@kernel(f8(f8))
def _normal_quantile(u):
    """Quantile of the standard normal for u in (0, 1), to about 4e-4: enough to learn a correlation from."""
    tail = min(u, 1.0 - u)
    t = math.sqrt(-2.0 * log(tail))
    q = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
    return -q if u < 0.5 else q


@kernel(void(ro(1), ro(1), ro(2), ro(2), rw(3), rw(4), rw(2), rw(3), rw(1), rw(1)))
def stack_learn(rates, y, candidates, cdf, mixing, tails, outputs, planes, likelihood, scores):
    """Learn weights and tails from the targets `y` of the row that `stack_predict` was last called for.  O(K P G).

    `rates` holds the step of the weights, their floor, the least step of the tails, the discount of their scores, the
    step of the common scale and that of the usual scale. NaN in `y` leaves an output as it is.
    Sets ``scores[p]`` to the normal score of each target, NaN where it is missing. `likelihood` (K) is scratch.
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
        below = 0.0
        for k in range(K):
            likelihood[k] = decay(max(largest - likelihood[k], 0.0))
            if planes[WEIGHT, k, p] > 0.0:
                density += planes[WEIGHT, k, p] * likelihood[k]
                z = min(max((y[p] - planes[LOCATION, k, p]) / planes[SCALE, k, p], -1e100), 1e100)
                size = log(abs(z) + math.sqrt(1.0 + z * z))
                g = int(mixing[2, k, p])
                below += planes[WEIGHT, k, p] * _interpolate(
                    cdf[g], size if z > 0.0 else -size, -CDF_REACH, CDF_PER_UNIT
                )
        # The very first distributions are guesses: their scores say nothing about how outputs go together.
        settled = outputs[1, p] > SETTLED
        scores[p] = _normal_quantile(min(max(below, 1e-9), 1.0 - 1e-9)) if settled else math.nan
        # Weights: a step of expectation-maximisation, in the share that each had in this row.
        pull = 0.0
        total = 0.0
        for k in range(K):
            share = planes[WEIGHT, k, p]
            if share > 0.0:
                blame = share * likelihood[k] / density
                z = min(max((y[p] - planes[LOCATION, k, p]) / planes[SCALE, k, p], -1e100), 1e100)
                dof = planes[DOF, k, p]
                pull += blame * ((dof + 1.0) * z * z / (dof + z * z) - 1.0)
                change = eta * (blame - share)
                # In proportion to the learnt weight, as the share is.
                mixing[0, k, p] *= max(1.0 + change / share, 0.5) if share > 1e-12 else 1.0
            mixing[0, k, p] = max(mixing[0, k, p], floor)
            total += mixing[0, k, p]
        for k in range(K):
            mixing[0, k, p] /= total
        if settled:
            outputs[0, p] = min(max(outputs[0, p] + scale_step * pull, -3.0), 3.0)
        # Tails of each expert on its own.
        for k in range(K):
            std = planes[STD, k, p]
            if not (math.isfinite(std) and std > 0.0):
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
                t[p] = _interpolate(quantiles[v], scores[p], -SCORE_REACH, SCORE_PER_UNIT)
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


@kernel(
    i8(
        f8, ro(1), i8, i8, ro(2), ro(2), ro(2), ro(1), f8, ro(1), ro(2), ro(2), f8, f8,
        rw(3), rw(4), rw(2), rw(4), rw(1), rw(1), rw(1), rw(3), rw(3), rw(1), rw(3), rw(3), rw(2), rw(2),
    )
)  # fmt: skip
def stack_learn_rows(
    sharpness, rates, done, every, Y, candidates, cdf, discounts, score_discount, dofs, norms, quantiles, prior, floor,
    mixing, tails, outputs, plane_rows, mean, likelihood, scores, R, factors, log_dets, moments, pairs, fit, work,
):  # fmt: skip
    """Predict and learn the rows `Y` one after the other; `plane_rows` (rows, 5, K, P) holds locations and deviations.

    `done` is the number of rows learnt before; correlations are refreshed every so many. Returns how often.
    """
    refreshed = 0
    for i in range(Y.shape[0]):
        stack_predict(sharpness, candidates, mixing, tails, outputs, plane_rows[i], mean)
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
