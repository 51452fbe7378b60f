"""Mixtures of few components for many outputs: the stack with outputs innermost, so that loops vectorise.

Each loop reads and writes few rows: the compiler vectorises only what it can check for overlaps.
"""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, kernel, ro, rw, void
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

# Rows of scratch for each output, beside two for each component and two for each tail.
N_ROWS = 9
# What is done about an output: its target is learnt, it has nothing to learn from, or it is left to `stack_learn`.
LEARNS, WAITS, LEFT = 1.0, 0.0, -1.0


def mix_rows(n_components: int, n_tails: int) -> int:
    """Rows of the scratch of `mix_learn`."""
    return N_ROWS + 2 * n_components + 2 * n_tails


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


@kernel(void(ro(1), ro(3), ro(3), rw(2), rw(1), rw(1)))
def _begin(y, mixing, planes, outputs, state, young):
    """Set the `state` (Q) of each output, and note the targets of those that are not left."""
    M = planes.shape[1]
    for q in range(y.shape[0]):
        state[q] = WAITS
        for k in range(M):
            if mixing[2, k, q] == EXACT:
                state[q] = LEFT
        if state[q] == LEFT or math.isnan(y[q]):
            continue
        outputs[1, q] += 1.0
        seen = outputs[1, q]
        young[q] = 1.0 / (1.0 + seen)
        away = y[q] - outputs[2, q]
        outputs[2, q] += away / seen
        outputs[3, q] += (away * (y[q] - outputs[2, q]) - outputs[3, q]) / seen
        # No component can have known the units of an output before its first target.
        if seen > 1.0:
            for k in range(M):
                if 0.0 < planes[STD, k, q] < math.inf and planes[WEIGHT, k, q] > 0.0:
                    state[q] = LEARNS


@kernel(void(ro(1), ro(2), ro(2), ro(3), ro(3), rw(2), rw(1), rw(1), rw(1), rw(1), rw(2), rw(2)))
def _densities(y, candidates, cdf, mixing, planes, outputs, largest, density, below, size, likelihood, squares):
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


@kernel(void(ro(2), ro(1), ro(1), rw(1)))
def _score(outputs, state, below, scores):
    """Set the normal scores of probabilities, to about 4e-4, as `stack_learn` does."""
    for q in range(state.shape[0]):
        u = min(max(below[q], 1e-9), 1.0 - 1e-9)
        t = math.sqrt(-2.0 * log(min(u, 1.0 - u)))
        away = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (
            1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))
        )  # fmt: skip
        if state[q] != LEFT:
            settled = state[q] == LEARNS and outputs[1, q] > SETTLED
            scores[q] = (-away if u < 0.5 else away) if settled else math.nan


@kernel(void(f8, f8, f8, ro(1), ro(2), ro(2), ro(1), rw(1), rw(1), rw(3), rw(2), ro(3)))
def _weigh(eta, floor, scale_step, state, likelihood, squares, density, pull, total, mixing, outputs, planes):
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
            learnt[q] = max(learnt[q] * grown, floor) if state[q] == LEARNS else learnt[q]
        for q in range(Q):
            total[q] += learnt[q]
    for k in range(M):
        learnt = mixing[0, k]
        for q in range(Q):
            learnt[q] = learnt[q] / total[q] if state[q] == LEARNS else learnt[q]
    for q in range(Q):
        if state[q] == LEARNS and outputs[1, q] > SETTLED:
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


@kernel(void(ro(1), ro(1), ro(2), ro(2), rw(3), rw(4), rw(2), rw(3), rw(1), rw(2), rw(1)))
def mix_learn(rates, y, candidates, cdf, mixing, tails, outputs, planes, likelihood, work, scores):
    """Learn the targets `y` (Q) of the mixtures that `mix` has made; all is that of `stack_learn`.

    Outputs with a component that has no tail to learn are left to it. `work` (`mix_rows`, Q) is scratch, and so is
    `likelihood` (M).
    """
    eta, floor, tail_step, tail_discount, scale_step, usual_step = (
        rates[0], rates[1], rates[2], rates[3], rates[4], rates[5],
    )  # fmt: skip
    M = planes.shape[1]
    Q = planes.shape[2]
    G = candidates.shape[1]
    state = work[0]
    young = work[1]
    pull = work[2]
    density = work[3]
    below = work[4]
    size = work[5]
    step = work[6]
    best = work[7]
    fit = work[8]
    densities = work[N_ROWS : N_ROWS + M]
    squares = work[N_ROWS + M : N_ROWS + 2 * M]
    factors = work[N_ROWS + 2 * M : N_ROWS + 2 * M + G]
    fits = work[N_ROWS + 2 * M + G : N_ROWS + 2 * M + 2 * G]
    _begin(y, mixing, planes, outputs, state, young)
    left = 0
    for q in range(Q):
        size[q] = y[q] if state[q] == LEFT else math.nan
        left += 1 if state[q] == LEFT else 0
    if left:
        stack_learn(rates, size, candidates, cdf, mixing, tails, outputs, planes, likelihood, scores)
    _densities(y, candidates, cdf, mixing, planes, outputs, pull, density, below, size, densities, squares)
    _score(outputs, state, below, scores)
    _weigh(eta, floor, scale_step, state, densities, squares, density, pull, size, mixing, outputs, planes)
    for k in range(M):
        location = planes[LOCATION, k]
        std = planes[STD, k]
        scale = planes[SCALE, k]
        usual = mixing[1, k]
        learns = below
        square = squares[k]
        for q in range(Q):
            learns[q] = 1.0 if state[q] == LEARNS and 0.0 < std[q] < math.inf else 0.0
        for q in range(Q):
            new = log(scale[q])
            new = new if usual[q] == UNKNOWN else usual[q] + max(usual_step, young[q]) * (new - usual[q])
            usual[q] = new if learns[q] > 0.0 else usual[q]
        for q in range(Q):
            z = min(max((y[q] - location[q]) / std[q], -1e15), 1e15)
            square[q] = z * z
        for q in range(Q):
            for g in range(G):
                factors[g, q] = tails[0, k, q, g]
                fits[g, q] = tails[1, k, q, g]
        _fit_tails(tail_step, tail_discount, candidates, young, square, step, best, fit, factors, fits)
        for q in range(Q):
            if learns[q] > 0.0:
                mixing[2, k, q] = best[q]
                for g in range(G):
                    tails[0, k, q, g] = factors[g, q]
                    tails[1, k, q, g] = fits[g, q]
