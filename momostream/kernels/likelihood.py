"""Log marginal likelihood and its gradient on few rows in one call, and the direction of the search for its maximum."""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw
from momostream.kernels.covariance import add_linear_gradient, gram_and_slope, likelihood_gradient
from momostream.kernels.dense import factorise_dense, invert_dense
from momostream.kernels.scalar import NU0, OK, SCALE0, dot

__all__ = ["negative_posterior", "profiled_likelihood", "search_direction"]


@kernel(f8(i8, f8, f8, ro(2), ro(2), rw(2), rw(2), rw(2), rw(1), rw(1)))
def profiled_likelihood(kind, linear, noise, T, R, K, G, A, scratch, gradient):
    """Log marginal likelihood of targets, their signal variances profiled out; NaN if there is no factor.  O(n^3).

    `T` (D, n) are scaled rows and `R` (P, n) targets, one column each. Sets `gradient` by the logarithms of the
    lengthscales, by the noise and, if it is long enough, by the logarithm of the variance of the linear term. `K`, `G`
    (n, n), `A` (P, n) and `scratch` (n) are overwritten.
    """
    D = T.shape[0]
    n = T.shape[1]
    P = R.shape[0]
    gram_and_slope(kind, linear, noise, T, K, G)
    if factorise_dense(K) != OK:
        return math.nan
    value = 0.0
    for i in range(n):
        value -= P * math.log(K[i, i])
    for p in range(P):
        r = R[p]
        a = A[p]
        for i in range(n):
            a[i] = (r[i] - dot(K[i, :i], a[:i])) / K[i, i]
        # From here on squares of a are those of the solved targets.
        signal = (NU0 * SCALE0 + dot(a, a)) / (n + NU0)
        value -= 0.5 * (n + NU0) * math.log(signal)
        size = 1.0 / math.sqrt(signal)
        for i in range(n - 1, -1, -1):
            a[i] /= K[i, i]
            row = K[i]
            for j in range(i):
                a[j] -= row[j] * a[i]
            a[i] *= size
    invert_dense(K, scratch)
    likelihood_gradient(K, A, float(P), G, T, scratch, gradient)
    if gradient.shape[0] > D + 1:
        add_linear_gradient(K, A, float(P), linear, T, scratch, gradient)
    for k in range(gradient.shape[0]):
        gradient[k] = -gradient[k]
    return value


@kernel(
    f8(i8, i8, f8, ro(1), ro(2), ro(2), ro(1), ro(1), rw(2), rw(2), rw(2), rw(2), rw(1), rw(1))
)  # fmt: skip
def negative_posterior(kind, is_linear, least_noise, theta, X, R, centre, width, T, K, G, A, scratch, gradient):
    """Negative log posterior of packed log-parameters, up to a constant, and its `gradient`; NaN if there is no factor.

    `X` (n, D) are rows, `R` (P, n) targets, `centre` and `width` those of the Gaussian prior. `T` (D, n) and the rest
    are scratch as in `profiled_likelihood`.
    """
    D = X.shape[1]
    for k in range(D):
        inverse = math.exp(-theta[k])
        t = T[k]
        for i in range(X.shape[0]):
            t[i] = X[i, k] * inverse
    above = math.exp(theta[D])
    linear = math.exp(theta[D + 1]) if is_linear > 0 else 0.0
    value = profiled_likelihood(kind, linear, above + least_noise, T, R, K, G, A, scratch, gradient)
    gradient[D] *= above
    total = 0.0
    for k in range(theta.shape[0]):
        away = (theta[k] - centre[k]) / width[k]
        total += away * away
        gradient[k] = away / width[k] - gradient[k]
    return 0.5 * total - value


@kernel(i8(f8, f8, f8, f8))
def _is_held(lower, upper, theta, slope):
    """Whether a parameter lies at an end of its range, and the way down leads out of it."""
    return (theta <= lower and slope > 0.0) or (theta >= upper and slope < 0.0)


@kernel(i8(ro(1), ro(1), ro(1), ro(1), ro(2), ro(2), f8, rw(1), rw(1)))
def search_direction(lower, upper, theta, gradient, moves, turns, longest, shares, direction):
    """Set the direction of L-BFGS within a box: the two-loop recursion over the parameters that are free.

    `moves` and `turns` (m, parameters) are the last steps and the changes of the gradient along them, `shares` (m) is
    scratch. No parameter moves by more than `longest`. Returns 0 if the direction would not go down: it is that of the
    gradient then, and what is remembered is of no use.
    """
    n = theta.shape[0]
    m = moves.shape[0]
    for i in range(n):
        direction[i] = 0.0 if _is_held(lower[i], upper[i], theta[i], gradient[i]) else gradient[i]
    # Not in the loop that writes: the order of its sums would depend on how near to each other the arrays lie.
    square = dot(direction, direction)
    for k in range(m - 1, -1, -1):
        shares[k] = dot(moves[k], direction) / dot(moves[k], turns[k])
        for i in range(n):
            direction[i] -= shares[k] * turns[k, i]
    size = 1.0 / max(1.0, math.sqrt(square))
    if m > 0:
        size = dot(moves[m - 1], turns[m - 1]) / dot(turns[m - 1], turns[m - 1])
    for i in range(n):
        direction[i] *= size
    for k in range(m):
        share = shares[k] - dot(turns[k], direction) / dot(moves[k], turns[k])
        for i in range(n):
            direction[i] += share * moves[k, i]
    for i in range(n):
        direction[i] = 0.0 if _is_held(lower[i], upper[i], theta[i], gradient[i]) else -direction[i]
    useful = 1
    if dot(direction, gradient) >= 0.0:
        useful = 0
        for i in range(n):
            direction[i] = 0.0 if _is_held(lower[i], upper[i], theta[i], gradient[i]) else -gradient[i]
    farthest = 0.0
    for i in range(n):
        farthest = max(farthest, abs(direction[i]))
    if farthest > longest:
        for i in range(n):
            direction[i] *= longest / farthest
    return useful
