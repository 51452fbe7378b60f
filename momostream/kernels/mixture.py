"""Mixtures of few components for many outputs: the stack with outputs innermost, so that loops vectorise.

Each loop reads and writes few rows: the compiler vectorises only what it can check for overlaps.
"""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void
from momostream.kernels.scalar import UNKNOWN, decay, log
from momostream.kernels.stack import (
    CDF_PER_UNIT,
    CDF_REACH,
    DOF,
    EXACT,
    LEAST_FACTOR,
    LEAST_OF_DEVIATION,
    LEAST_OF_SIZE,
    LOCATION,
    SCALE,
    SETTLED,
    STD,
    TOO_FAR,
    WEIGHT,
    interpolate,
    stack_learn,
)

__all__ = ["mix", "mix_learn", "mix_rows"]

# Rows of scratch for each output, beside ten for each component and two for each tail.
N_ROWS = 14


def mix_rows(n_components: int, n_tails: int) -> int:
    """Rows of the scratch of `mix_learn`."""
    return N_ROWS + 10 * n_components + 2 * n_tails


@kernel(void(ro(2), ro(3), ro(4), ro(2), rw(3), rw(2)))
def mix(candidates, mixing, tails, outputs, planes, work):
    """Fill scale, degrees of freedom and weight of each component, as `stack_predict` with a sharpness of 0 does.

    `work` (3, Q) is scratch.
    """
    M = planes.shape[1]
    Q = planes.shape[2]
    factor = work[0]
    least = work[1]
    total = work[2]
    for q in range(Q):
        factor[q] = math.exp(outputs[0, q])
        least[q] = LEAST_OF_DEVIATION * math.sqrt(outputs[3, q]) + LEAST_OF_SIZE * abs(outputs[2, q])
        total[q] = 0.0
    for k in range(M):
        location = planes[LOCATION, k]
        std = planes[STD, k]
        scale = planes[SCALE, k]
        weight = planes[WEIGHT, k]
        for q in range(Q):
            g = int(mixing[2, k, q])
            planes[DOF, k, q] = candidates[0, g]
            scale[q] = tails[0, k, q, g]
            weight[q] = mixing[0, k, q]
            # Squares of what lies farther out are no numbers.
            if not (0.0 < std[q] < TOO_FAR and abs(location[q]) < TOO_FAR):
                location[q] = 0.0
                std[q] = math.inf
                weight[q] = 0.0
        for q in range(Q):
            learnt = max(std[q] * math.sqrt(scale[q]) * factor[q], least[q])
            scale[q] = 1.0 if std[q] == math.inf else learnt
        for q in range(Q):
            if mixing[2, k, q] == EXACT and std[q] < math.inf:
                scale[q] = std[q]
        for q in range(Q):
            total[q] += weight[q]
    for k in range(M):
        weight = planes[WEIGHT, k]
        for q in range(Q):
            weight[q] = weight[q] / total[q] if total[q] > 0.0 else 1.0 / M


@kernel(i8(ro(1), ro(3), ro(3), rw(2), rw(1), rw(1), rw(1)))
def _begin(y, mixing, planes, outputs, where, left, scores):
    """Note targets and return how many teach something; the first so many of `where` (Q) are their outputs.

    `left` (Q) gets the targets of outputs with a component that has no tail to learn, and NaN for all others.
    """
    M = planes.shape[1]
    n = 0
    for q in range(y.shape[0]):
        left[q] = math.nan
        scores[q] = math.nan
        if math.isnan(y[q]):
            continue
        is_exact = False
        knows = False
        for k in range(M):
            is_exact = is_exact or mixing[2, k, q] == EXACT
            knows = knows or (0.0 < planes[STD, k, q] < math.inf and planes[WEIGHT, k, q] > 0.0)
        if is_exact:
            left[q] = y[q]
            continue
        outputs[1, q] += 1.0
        away = y[q] - outputs[2, q]
        outputs[2, q] += away / outputs[1, q]
        outputs[3, q] += (away * (y[q] - outputs[2, q]) - outputs[3, q]) / outputs[1, q]
        # No component can have known the units of an output before its first target.
        if knows and outputs[1, q] > 1.0:
            where[n] = q
            n += 1
    return n


@kernel(void(ro(1), ro(1), ro(3), ro(2), ro(3), rw(1), rw(3), rw(2), rw(3)))
def _gather(where, y, mixing, outputs, planes, some_y, some_mixing, some_outputs, some_planes):
    """Copy targets and what is known of the outputs `where` (n)."""
    for i in range(where.shape[0]):
        some_y[i] = y[int(where[i])]
    for j in range(outputs.shape[0]):
        for i in range(where.shape[0]):
            some_outputs[j, i] = outputs[j, int(where[i])]
    for k in range(mixing.shape[1]):
        for j in range(3):
            for i in range(where.shape[0]):
                some_mixing[j, k, i] = mixing[j, k, int(where[i])]
        for j in range(planes.shape[0]):
            for i in range(where.shape[0]):
                some_planes[j, k, i] = planes[j, k, int(where[i])]


@kernel(void(ro(1), ro(2), ro(2), ro(3), ro(3), rw(1), rw(1), rw(1), rw(1), rw(2), rw(2)))
def _densities(y, candidates, cdf, mixing, planes, largest, density, below, size, likelihood, squares):
    """Set the densities of components relative to the largest, that of the mixture, and the probability below `y`."""
    M = planes.shape[1]
    Q = planes.shape[2]
    for q in range(Q):
        largest[q] = -math.inf
        density[q] = 0.0
        below[q] = 0.0
    for k in range(M):
        location = planes[LOCATION, k]
        scale = planes[SCALE, k]
        dof = planes[DOF, k]
        weight = planes[WEIGHT, k]
        square = squares[k]
        own = likelihood[k]
        for q in range(Q):
            own[q] = candidates[1, int(mixing[2, k, q])]
        for q in range(Q):
            z = min(max((y[q] - location[q]) / scale[q], -1e100), 1e100)
            square[q] = z * z
        for q in range(Q):
            own[q] = own[q] - log(scale[q]) - 0.5 * (dof[q] + 1.0) * log(1.0 + square[q] / dof[q])
        for q in range(Q):
            largest[q] = max(largest[q], own[q] if weight[q] > 0.0 else -math.inf)
    for k in range(M):
        location = planes[LOCATION, k]
        scale = planes[SCALE, k]
        weight = planes[WEIGHT, k]
        own = likelihood[k]
        for q in range(Q):
            own[q] = decay(max(largest[q] - own[q], 0.0))
        for q in range(Q):
            density[q] += weight[q] * own[q]
        for q in range(Q):
            z = min(max((y[q] - location[q]) / scale[q], -1e100), 1e100)
            away = log(abs(z) + math.sqrt(1.0 + z * z))
            size[q] = away if z > 0.0 else -away
        for q in range(Q):
            below[q] += weight[q] * interpolate(cdf[int(mixing[2, k, q])], size[q], -CDF_REACH, CDF_PER_UNIT)


@kernel(void(ro(1), rw(1)))
def _score(below, scores):
    """Set the normal scores of probabilities, to about 4e-4, as `stack_learn` does."""
    for q in range(below.shape[0]):
        u = min(max(below[q], 1e-9), 1.0 - 1e-9)
        t = math.sqrt(-2.0 * log(min(u, 1.0 - u)))
        away = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (
            1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))
        )  # fmt: skip
        scores[q] = -away if u < 0.5 else away


@kernel(void(f8, f8, f8, ro(2), ro(2), ro(1), rw(1), rw(1), rw(3), rw(2), ro(3)))
def _weigh(eta, floor, scale_step, likelihood, squares, density, pull, total, mixing, outputs, planes):
    """Move weights by a step of expectation-maximisation, and the common scale by what all components together say."""
    M = planes.shape[1]
    Q = planes.shape[2]
    for q in range(Q):
        pull[q] = 0.0
        total[q] = 0.0
    for k in range(M):
        weight = planes[WEIGHT, k]
        dof = planes[DOF, k]
        own = likelihood[k]
        square = squares[k]
        learnt = mixing[0, k]
        for q in range(Q):
            far = (dof[q] + 1.0) * square[q] / (dof[q] + square[q]) - 1.0
            pull[q] += weight[q] * own[q] / density[q] * far
        for q in range(Q):
            # In proportion to the learnt weight, as the share is.
            grown = max(1.0 + eta * (own[q] / density[q] - 1.0), 0.5) if weight[q] > 1e-12 else 1.0
            learnt[q] = max(learnt[q] * grown, floor)
        for q in range(Q):
            total[q] += learnt[q]
    for k in range(M):
        learnt = mixing[0, k]
        for q in range(Q):
            learnt[q] = learnt[q] / total[q]
    for q in range(Q):
        if outputs[1, q] > SETTLED:
            outputs[0, q] = min(max(outputs[0, q] + scale_step * pull[q], -3.0), 3.0)


@kernel(void(f8, f8, ro(2), ro(1), ro(1), rw(1), rw(1), rw(1), rw(2), rw(2)))
def _fit_tails(tail_step, tail_discount, candidates, young, square, step, best, fit, factors, fits):
    """Learn the `factors` (G, Q) of all tails of one component, how well each fits, and which fits `best` (Q)."""
    Q = square.shape[0]
    for q in range(Q):
        step[q] = max(tail_step, young[q])
    for g in range(candidates.shape[1]):
        dof = candidates[0, g]
        norm = candidates[1, g]
        factor = factors[g]
        own = fits[g]
        for q in range(Q):
            # norm - log(factor) / 2 - (dof + 1) / 2 log(1 + square / factor / dof), with two logarithms.
            own[q] = tail_discount * own[q] + (
                norm + 0.5 * dof * log(factor[q]) - 0.5 * (dof + 1.0) * log(factor[q] + square[q] / dof)
            )
        for q in range(Q):
            robust = (dof + 1.0) / (dof + square[q] / factor[q]) * square[q]
            factor[q] = max((1.0 - step[q]) * factor[q] + step[q] * robust, LEAST_FACTOR)
        for q in range(Q):
            best[q] = g if g == 0 or own[q] > fit[q] else best[q]
        for q in range(Q):
            fit[q] = own[q] if g == 0 else max(fit[q], own[q])


@kernel(void(ro(1), ro(2), ro(1), ro(1), ro(3), rw(3), rw(4), rw(2), rw(1), rw(2), rw(2), rw(1), rw(1), rw(1)))
def _learn_tails(
    rates, candidates, where, y, planes, mixing, tails, squares, young, factors, fits, step, best, fit
):  # fmt: skip
    """Learn usual scales and tails of the outputs `where` (n); `tails` are those of all outputs."""
    usual_step = rates[5]
    G = candidates.shape[1]
    for k in range(planes.shape[1]):
        location = planes[LOCATION, k]
        std = planes[STD, k]
        scale = planes[SCALE, k]
        usual = mixing[1, k]
        tail = mixing[2, k]
        square = squares[k]
        for i in range(y.shape[0]):
            new = log(scale[i])
            new = new if usual[i] == UNKNOWN else usual[i] + max(usual_step, young[i]) * (new - usual[i])
            usual[i] = new if 0.0 < std[i] < math.inf else usual[i]
        for i in range(y.shape[0]):
            z = min(max((y[i] - location[i]) / std[i], -1e15), 1e15)
            square[i] = z * z
        for i in range(y.shape[0]):
            q = int(where[i])
            for g in range(G):
                factors[g, i] = tails[0, k, q, g]
                fits[g, i] = tails[1, k, q, g]
        _fit_tails(rates[2], rates[3], candidates, young, square, step, best, fit, factors, fits)
        for i in range(y.shape[0]):
            if 0.0 < std[i] < math.inf:
                tail[i] = best[i]
                q = int(where[i])
                for g in range(G):
                    tails[0, k, q, g] = factors[g, i]
                    tails[1, k, q, g] = fits[g, i]


@kernel(void(ro(1), ro(1), ro(2), ro(2), rw(3), rw(4), rw(2), rw(3), rw(1), rw(2), rw(1)))
def mix_learn(rates, y, candidates, cdf, mixing, tails, outputs, planes, likelihood, work, scores):
    """Learn the targets `y` (Q) of the mixtures that `mix` has made; all is that of `stack_learn`.

    Outputs with a component that has no tail to learn are left to it. Of those whose target is missing nothing is
    computed. `work` (`mix_rows`, Q) is scratch, and so is `likelihood` (M).
    """
    M = planes.shape[1]
    G = candidates.shape[1]
    left = work[1]
    n = _begin(y, mixing, planes, outputs, work[0], left, scores)
    exact = False
    for q in range(y.shape[0]):
        exact = exact or not math.isnan(left[q])
    if exact:
        stack_learn(rates, left, candidates, cdf, mixing, tails, outputs, planes, likelihood, work[2])
        for q in range(y.shape[0]):
            if not math.isnan(left[q]):
                scores[q] = work[2, q]
    if n == 0:
        return
    where = work[0, :n]
    some_y = work[2, :n]
    young = work[3, :n]
    density = work[4, :n]
    below = work[5, :n]
    free = work[6, :n]
    more = work[7, :n]
    third = work[8, :n]
    flat = work.reshape(work.size)[9 * y.shape[0] :]
    some_outputs = flat[: 4 * n].reshape(4, n)
    flat = flat[4 * n :]
    some_mixing = flat[: 3 * M * n].reshape(3, M, n)
    flat = flat[3 * M * n :]
    some_planes = flat[: 5 * M * n].reshape(5, M, n)
    flat = flat[5 * M * n :]
    densities = flat[: M * n].reshape(M, n)
    flat = flat[M * n :]
    squares = flat[: M * n].reshape(M, n)
    flat = flat[M * n :]
    factors = flat[: G * n].reshape(G, n)
    fits = flat[G * n : 2 * G * n].reshape(G, n)
    _gather(where, y, mixing, outputs, planes, some_y, some_mixing, some_outputs, some_planes)
    for i in range(n):
        young[i] = 1.0 / (1.0 + some_outputs[1, i])
    _densities(some_y, candidates, cdf, some_mixing, some_planes, free, density, below, more, densities, squares)
    _score(below, third)
    for i in range(n):
        # The very first distributions are guesses: their scores say nothing about how outputs go together.
        if some_outputs[1, i] > SETTLED:
            scores[int(where[i])] = third[i]
    _weigh(
        rates[0], rates[1], rates[4], densities, squares, density, free, more, some_mixing, some_outputs, some_planes
    )
    _learn_tails(
        rates, candidates, where, some_y, some_planes, some_mixing, tails, squares, young, factors, fits, free, more,
        third,
    )  # fmt: skip
    for i in range(n):
        outputs[0, int(where[i])] = some_outputs[0, i]
    for j in range(3):
        for k in range(M):
            for i in range(n):
                mixing[j, k, int(where[i])] = some_mixing[j, k, i]
