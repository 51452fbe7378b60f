"""The blend of experts: moments of their errors, and the weights of least square error.

Weights are found for one series at a time and for all steps at once: steps are innermost, so that all loops vectorise.
"""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void
from momostream.kernels.horizon import ENOUGH_TO_CUT

__all__ = ["LEAST_BLEND", "NEAREST", "OLDEST", "blend_common", "blend_learn", "blend_solve", "blend_trials"]

# No expert of a blend is forgotten altogether.
LEAST_BLEND = 1e-4
# How fast a blend forgets what its experts did when they were young: at all steps, and in addition at the first.
OLDEST, NEAREST = 2.0, 2.0
# A larger error than this many root mean squares is cut.
MOST_ERROR = 10.0
# Square errors of experts, relative to that of the first, count down to this.
LEAST_ERROR = 1e-4


@kernel(void(f8, f8, f8, f8, f8, f8, rw(1), rw(1)))
def blend_trials(n_rows, forgetting, settled, proof, worth_trials, most, trials, caution):
    """Set `trials` (H), the independent trials of each step that moments hold, as many as it takes to believe them.

    Moments weigh the rows by a power of their number until the memory is full, which is worth (2 power + 1) /
    (power + 1)^2 of them, and two memories then. Errors of step h overlap over h rows; their squares are worth
    3 h / (2 h^2 + 1) of a trial each. Few trials count as less than they are, and more than `settled` as more; the
    believer asks for `proof` times what chance gains. `caution` (H), for `blend_solve`, is worth `worth_trials` of the
    trials, at `most` one of so much.
    """
    for h in range(trials.shape[0]):
        step = h + 1.0
        power = OLDEST + NEAREST / math.sqrt(step)
        worth = (2.0 * power + 1.0) / (power + 1.0) ** 2
        rows = min(worth * max(n_rows - step, 1.0), 2.0 / (1.0 - forgetting))
        found = rows * 3.0 * step / (2.0 * step * step + 1.0)
        part = found / settled
        trials[h] = found * (1.0 + part * part) / proof
        caution[h] = min(worth_trials / found, most)


@kernel(void(i8, f8, ro(3), rw(1), rw(4)))
def blend_learn(n_rows, forgetting, errors, error, moments):
    """Add errors (K, H, P) to their discounted second moments (H, P, K, K); NaN is not known.  O(H P K^2).

    Errors of the first half of all rows and more are forgotten in any case: experts had learnt little then. A row
    counts by its part of all rows to the power `OLDEST + NEAREST / sqrt(step)`: errors of near steps are less alike
    from row to row, so that fewer rows will do. A row in which the first expert errs by more than `MOST_ERROR` times
    its root mean square counts as if it erred by that, and all others in proportion: one jump is not a habit.
    `error` (K) is scratch.
    """
    K = errors.shape[0]
    longest = forgetting
    for h in range(errors.shape[1]):
        power = OLDEST + NEAREST / math.sqrt(h + 1.0)
        forgetting = min(longest, 1.0 - power / max(n_rows - h, power + 1.0))
        # So many rows are remembered.
        mass = min(1.0 / (1.0 - longest), (n_rows - h) / (power + 1.0))
        for p in range(errors.shape[2]):
            if math.isnan(errors[0, h, p]):
                continue
            M = moments[h, p]
            share, square = 1.0, errors[0, h, p] * errors[0, h, p]
            if n_rows - h > ENOUGH_TO_CUT and M[0, 0] > 0.0:
                share = min(MOST_ERROR * MOST_ERROR * M[0, 0] / mass / max(square, 1e-300), 1.0)
            for k in range(K):
                error[k] = errors[k, h, p]
            for i in range(K):
                row = M[i]
                own = share * error[i]
                for j in range(K):
                    row[j] = forgetting * row[j] + own * error[j]


@kernel(f8(ro(2)))
def _trace(M):
    """The sum of the diagonal."""
    total = 0.0
    for k in range(M.shape[0]):
        total += M[k, k]
    return total


@kernel(void(ro(4), rw(3)))
def blend_common(moments, common):
    """Set `common` (H, K, K): the mean over series of their moments (H, P, K, K), in units of their trace.

    A series without errors does not count. O(H P K^2).
    """
    K = common.shape[1]
    for h in range(common.shape[0]):
        mean = common[h].reshape(K * K)
        mean[:] = 0.0
        n_known = 0.0
        for p in range(moments.shape[1]):
            size = _trace(moments[h, p])
            if size > 0.0:
                n_known += 1.0
                own = moments[h, p].reshape(K * K)
                for i in range(K * K):
                    mean[i] += own[i] / size
        for i in range(K * K):
            mean[i] /= max(n_known, 1.0)


@kernel(void(f8, i8, ro(3), ro(4), rw(3), rw(3), rw(3)))
def _pool(shrinkage, p, common, moments, nearer, pooled, M):
    """Set `M` (K, K, H), the moments of the series `p` that `blend_solve` minimises; the rest is as there."""
    H = moments.shape[0]
    K = moments.shape[2]
    # The weight min(g, h) / max(g, h) is a product over the steps between, so that two passes add up all of them.
    for h in range(H):
        own = moments[h, p].reshape(K * K)
        all_series = common[h].reshape(K * K)
        near = nearer[h].reshape(K * K)
        size = shrinkage * _trace(moments[h, p])
        for i in range(K * K):
            near[i] = (1.0 - shrinkage) * own[i] + size * all_series[i]
        least = nearer[h, 0, 0]
        for k in range(1, K):
            least = min(least, nearer[h, k, k])
        least = max(least, LEAST_ERROR * nearer[h, 0, 0])
        share = 1.0 / least if least > 0.0 else 0.0
        now = pooled[h].reshape(K * K)
        if h == 0:
            for i in range(K * K):
                near[i] *= share
                now[i] = near[i]
        else:
            before = pooled[h - 1].reshape(K * K)
            fading = h / (h + 1.0)
            for i in range(K * K):
                near[i] *= share
                now[i] = near[i] + fading * before[i]
    for h in range(H - 1, -1, -1):
        now = pooled[h].reshape(K * K)
        if h < H - 1:
            # What has come from the steps beyond is kept in `nearer`, with that step's own moments.
            fading = (h + 1.0) / (h + 2.0)
            near = nearer[h].reshape(K * K)
            beyond = nearer[h + 1].reshape(K * K)
            for i in range(K * K):
                now[i] += fading * beyond[i]
                near[i] += fading * beyond[i]
        for i in range(K):
            for j in range(i + 1):
                M[i, j, h] = pooled[h, i, j]
    for i in range(K):
        for j in range(i):
            lower = M[i, j]
            upper = M[j, i]
            for h in range(H):
                upper[h] = lower[h]


@kernel(void(ro(3), ro(2), rw(2)))
def _multiply(M, w, product):
    """Add to `product` (K, H) that of the matrices `M` (K, K, H) and the vectors `w` (K, H) of all steps."""
    K = w.shape[0]
    H = w.shape[1]
    for i in range(K):
        out = product[i]
        j = 0
        # Four at a time: the sums are loaded and stored a quarter as often.
        while j + 4 <= K:
            m0 = M[i, j]
            m1 = M[i, j + 1]
            m2 = M[i, j + 2]
            m3 = M[i, j + 3]
            w0 = w[j]
            w1 = w[j + 1]
            w2 = w[j + 2]
            w3 = w[j + 3]
            for h in range(H):
                out[h] += m0[h] * w0[h] + m1[h] * w1[h] + m2[h] * w2[h] + m3[h] * w3[h]
            j += 4
        while j < K:
            m0 = M[i, j]
            w0 = w[j]
            for h in range(H):
                out[h] += m0[h] * w0[h]
            j += 1


@kernel(f8(f8))
def _small_exp(x):
    """Return exp(x) for x between -1 and 1: the eighth power of a Taylor polynomial of exp(x / 8)."""
    r = 0.125 * x
    p = 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    p *= p
    p *= p
    return p * p


@kernel(void(ro(1), ro(3), ro(1), rw(2), rw(2), rw(2)))
def _descend(caution, M, trials, w, pull, sums):
    """One multiplicative step of the weights `w` (K, H); the rest is as in `blend_solve`."""
    K = w.shape[0]
    H = w.shape[1]
    least = sums[0]
    whole = sums[1]
    total = sums[2]
    moved = sums[3]
    for h in range(H):
        moved[h] = least[h] * (1.0 - w[0, h]) / trials[h]
        whole[h] = 0.0
        total[h] = 0.0
    for k in range(K):
        own = w[k]
        out = pull[k]
        for h in range(H):
            out[h] = caution[h] * least[h] * own[h] + (moved[h] if k else 0.0)
    _multiply(M, w, pull)
    for k in range(K):
        own = w[k]
        out = pull[k]
        for h in range(H):
            whole[h] += own[h] * out[h]
    for h in range(H):
        # Zero where there are no errors yet; nothing is found there.
        whole[h] = 1.0 / whole[h] if whole[h] > 0.0 else 0.0
    for k in range(K):
        own = w[k]
        out = pull[k]
        for h in range(H):
            gain = min(max(1.0 - out[h] * whole[h], -2.0), 2.0)
            own[h] = max(own[h] * _small_exp(0.5 * gain), LEAST_BLEND)
            total[h] += own[h]
    for h in range(H):
        total[h] = 1.0 / total[h]
    for k in range(K):
        own = w[k]
        for h in range(H):
            own[h] *= total[h]


@kernel(void(ro(1), ro(3), ro(2), rw(2), rw(1), rw(1)))
def _trust(trials, M, w, product, mixed, trust):
    """Set `trust` (H): how far to go from the first expert to the mixture with weights `w` (K, H).

    1 - 1 / F, and 0 if F is below 1. F compares what the mixture has gained on the first expert with what chance gains
    in so many independent `trials` (H). `product` (K, H) and `mixed` (H) are scratch.
    """
    H = w.shape[1]
    product[:] = 0.0
    _multiply(M, w, product)
    mixed[:] = 0.0
    for k in range(w.shape[0]):
        own = w[k]
        out = product[k]
        for h in range(H):
            mixed[h] += own[h] * out[h]
    for h in range(H):
        gained = M[0, 0, h] - mixed[h]
        trust[h] = max(1.0 - mixed[h] / (trials[h] * gained), 0.0) if gained > 0.0 else 0.0


@kernel(void(i8, i8, i8, ro(1), ro(1), f8, ro(3), ro(4), rw(3), rw(3), rw(3), rw(3), rw(3), rw(3)))
def blend_solve(
    start, stop, n_steps, caution, trials, shrinkage, common, moments, pooled, nearer, M, scratch, found, weights
):  # fmt: skip
    """Move the weights `found` (H, P, K) of the series `start` to `stop` towards the mixture of least square error.

    They stay positive and sum to one. Moments are drawn towards `common` (H, K, K) by the part `shrinkage`, and then
    pooled over the steps, in units of the least square error of each: those of step g count for step h as min(g, h) /
    max(g, h). Then come multiplicative steps: a weight grows if the errors of its expert, times those of
    the mixture, are smaller than the square error of the mixture.
    `caution` (H) times the least square error of all experts is added to the square error of each, and that over the
    number of independent `trials` (H) for the square of what all but the first have together. `weights` (H, P, K) are
    those found, of which all but the first count as far as `_trust` goes. `pooled`, `nearer` (H, K, K), `M` (K, K, H)
    and `scratch` (3, K + 3, H) are scratch. O(H K^2) per series.
    """
    H = found.shape[0]
    K = found.shape[2]
    w = scratch[0, :K]
    pull = scratch[1, :K]
    sums = scratch[2]
    least = sums[0]
    for p in range(start, stop):
        _pool(shrinkage, p, common, moments, nearer, pooled, M)
        for h in range(H):
            least[h] = M[0, 0, h]
        for k in range(1, K):
            square = M[k, k]
            for h in range(H):
                least[h] = min(least[h], square[h])
        for h in range(H):
            least[h] = max(least[h], LEAST_ERROR * M[0, 0, h])
            for k in range(K):
                w[k, h] = found[h, p, k]
        for _ in range(n_steps):
            _descend(caution, M, trials, w, pull, sums)
        _trust(trials, M, w, pull, sums[1], sums[2])
        for h in range(H):
            # Without errors there is nothing to find.
            if least[h] > 0.0:
                trust = sums[2, h]
                for k in range(K):
                    found[h, p, k] = w[k, h]
                    weights[h, p, k] = trust * w[k, h] + (0.0 if k else 1.0 - trust)
