"""The slow, obvious version of each fast function: dense matrices, `np.linalg`, no shortcuts."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from scipy import optimize, special, stats

MATERN12, MATERN32, MATERN52, RBF = 0, 1, 2, 3
KINDS = (MATERN12, MATERN32, MATERN52, RBF)


# Covariances of scaled coordinates


def correlation(kind: int, squared_distance: float) -> float:
    r = math.sqrt(squared_distance)
    if kind == MATERN12:
        return math.exp(-r)
    if kind == MATERN32:
        return (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r)
    if kind == MATERN52:
        return (1 + math.sqrt(5) * r + 5 * r**2 / 3) * math.exp(-math.sqrt(5) * r)
    if kind == RBF:
        return math.exp(-(r**2) / 2)
    raise ValueError(kind)


def slope(kind: int, squared_distance: float) -> float:
    """-2 d corr / d(d2), from d corr / d r by the chain rule; 0 where points coincide."""
    r = math.sqrt(squared_distance)
    if r == 0.0:
        return 0.0
    if kind == MATERN12:
        by_distance = -math.exp(-r)
    elif kind == MATERN32:
        by_distance = -3 * r * math.exp(-math.sqrt(3) * r)
    elif kind == MATERN52:
        by_distance = -5 / 3 * r * (1 + math.sqrt(5) * r) * math.exp(-math.sqrt(5) * r)
    else:
        by_distance = -r * math.exp(-(r**2) / 2)
    return -by_distance / r


def covariance(kind: int, linear: float, s: np.ndarray, t: np.ndarray) -> float:
    difference = s - t
    return correlation(kind, float(difference @ difference)) + linear * float(s @ t)


def cross_covariance(kind: int, linear: float, S: np.ndarray, T: np.ndarray) -> np.ndarray:
    out = np.zeros((len(S), len(T)))
    for i in range(len(S)):
        for j in range(len(T)):
            out[i, j] = covariance(kind, linear, S[i], T[j])
    return out


def gram(kind: int, linear: float, noise: float, S: np.ndarray) -> np.ndarray:
    return cross_covariance(kind, linear, S, S) + noise * np.eye(len(S))


def slopes(kind: int, S: np.ndarray) -> np.ndarray:
    """Slope of each pair of points; 0 on the diagonal and where points coincide."""
    out = np.zeros((len(S), len(S)))
    for i in range(len(S)):
        for j in range(len(S)):
            difference = S[i] - S[j]
            out[i, j] = slope(kind, float(difference @ difference))
    return out


def gradient_contraction(W: np.ndarray, G: np.ndarray, S: np.ndarray) -> np.ndarray:
    out = np.zeros(S.shape[1])
    for k in range(S.shape[1]):
        difference = S[:, k, None] - S[None, :, k]
        out[k] = 0.5 * np.sum(W * G * difference**2)
    return out


# Packed triangles


def pack(dense: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(0)] + [dense[i, : i + 1] for i in range(len(dense))])


def unpack(L: np.ndarray, n: int) -> np.ndarray:
    dense = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            dense[i, j] = L[i * (i + 1) // 2 + j]
    return dense


# Gaussian-process regression with zero mean and unit signal variance


def factor(kind: int, linear: float, noise: float, S: np.ndarray) -> np.ndarray:
    return np.linalg.cholesky(gram(kind, linear, noise, S))


def solved_targets(kind: int, linear: float, noise: float, S: np.ndarray, Y: np.ndarray) -> np.ndarray:
    return np.linalg.solve(factor(kind, linear, noise, S), Y)


def predict(
    kind: int, linear: float, noise: float, S: np.ndarray, Y: np.ndarray, s: np.ndarray
) -> tuple[np.ndarray, float]:
    """Mean of each output and latent variance at one point."""
    k = cross_covariance(kind, linear, S, s[None, :])[:, 0]
    K = gram(kind, linear, noise, S)
    mean = Y.T @ np.linalg.solve(K, k) if len(S) else np.zeros(Y.shape[1])
    variance = covariance(kind, linear, s, s) - (k @ np.linalg.solve(K, k) if len(S) else 0.0)
    return mean, float(variance)


def log_marginal_likelihood(
    kind: int, linear: float, noise: float, lengthscales: np.ndarray, X: np.ndarray, y: np.ndarray
) -> float:
    """Log density of one output `y` at unscaled inputs `X`."""
    K = gram(kind, linear, noise, X / lengthscales)
    sign, logdet = np.linalg.slogdet(K)
    assert sign > 0
    return float(-0.5 * y @ np.linalg.solve(K, y) - 0.5 * logdet - 0.5 * len(y) * math.log(2 * math.pi))


def finite_difference_gradient(
    function: Callable[[np.ndarray], float], theta: np.ndarray, step: float = 1e-5
) -> np.ndarray:
    """Central differences, one coordinate at a time."""
    gradient = np.zeros(len(theta))
    for k in range(len(theta)):
        up, down = theta.copy(), theta.copy()
        up[k] += step
        down[k] -= step
        gradient[k] = (function(up) - function(down)) / (2 * step)
    return gradient


# Regions: outputs share the covariance of the rows, their own covariance Sigma ~ InverseWishart(nu0 + P - 1, prior I)


def matrix_t_predict(
    kind: int,
    linear: float,
    noise: float,
    S: np.ndarray,
    R: np.ndarray,
    s: np.ndarray,
    *,
    nu0: float,
    prior: float,
    discount: float = 1.0,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Location, scale matrix and degrees of freedom of a new row at `s`."""
    n, P = R.shape
    mean, variance = predict(kind, linear, noise, S, R, s)
    Z = solved_targets(kind, linear, noise, S, R) if n else R
    scatter, mass = prior * np.eye(P), nu0
    for i in range(n):
        scatter = scatter + discount ** (n - 1 - i) * np.outer(Z[i], Z[i])
        mass += discount ** (n - 1 - i)
    return mean, (variance + noise) * scatter / mass, mass


def matrix_t_log_density(K: np.ndarray, R: np.ndarray, *, nu: float, prior: float) -> float:
    """Log density of `R` (n, P) with row covariance `K`; ``Sigma ~ InverseWishart(nu, prior I)`` integrated out."""
    n, P = R.shape
    scatter = prior * np.eye(P) + R.T @ np.linalg.inv(K) @ R
    log_gamma_ratio = sum(math.lgamma((nu + n - p) / 2) - math.lgamma((nu - p) / 2) for p in range(P))
    return float(
        log_gamma_ratio
        - n * P / 2 * math.log(math.pi)
        - P / 2 * np.linalg.slogdet(K)[1]
        + nu * P / 2 * math.log(prior)
        - (nu + n) / 2 * np.linalg.slogdet(scatter)[1]
    )


# The linear expert


def linear_fit(Phi: np.ndarray, r: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Weights, their covariance and the quadratic form of one output, by its covariance between rows."""
    inverse = np.linalg.inv(Phi.T @ Phi + np.diag(precision))
    K = np.eye(len(r)) + Phi @ np.diag(1 / precision) @ Phi.T
    return inverse @ Phi.T @ r, inverse, float(r @ np.linalg.solve(K, r))


# Leaves of a growing circuit


class StreamLeaf:
    """Rows with hyper-parameters; a missing target is filled by its mean given the rows before it, as it comes.

    Offset and scale of the outputs and the centre of the inputs are set from outside.
    """

    def __init__(self, kind: int, linear: float, noise: float, lengths: np.ndarray, discount: float, n_targets: int):
        self.kind, self.linear, self.noise, self.lengths, self.discount = kind, linear, noise, lengths, discount
        self.n_targets = n_targets
        self.centre = np.zeros(len(lengths))
        self.offset, self.scale = np.zeros(n_targets), np.ones(n_targets)
        self.X: list[np.ndarray] = []
        self.Y: list[np.ndarray] = []
        self.filled: list[np.ndarray] = []

    def _scaled(self, X: list[np.ndarray]) -> np.ndarray:
        return (np.array(X).reshape(len(X), len(self.lengths)) - self.centre) / self.lengths

    def learn(self, x: np.ndarray, y: np.ndarray) -> None:
        r = (y - self.offset) / self.scale
        if np.isnan(y).any():
            mean, _ = predict(self.kind, self.linear, self.noise, self._scaled(self.X), self._targets(), self._at(x))
            r = np.where(np.isnan(y), mean, r)
        self.X.append(x)
        self.Y.append(y)
        self.filled.append(r)

    def drop(self) -> None:
        del self.X[0], self.Y[0], self.filled[0]

    def refill(self) -> None:
        """As if the rows that are left came again."""
        X, Y = self.X, self.Y
        self.X, self.Y, self.filled = [], [], []
        for x, y in zip(X, Y, strict=True):
            self.learn(x, y)

    def _at(self, x: np.ndarray) -> np.ndarray:
        return self._scaled([x])[0]

    def _targets(self) -> np.ndarray:
        return np.array(self.filled).reshape(len(self.X), self.n_targets)

    def squares(self) -> tuple[np.ndarray, np.ndarray]:
        """Discounted squares of the observed residuals over their variance ratios, and their mass."""
        L = factor(self.kind, self.linear, self.noise, self._scaled(self.X))
        Z = np.linalg.solve(L, self._targets())
        squares, mass = np.full(self.n_targets, 2.0 * 0.3), np.full(self.n_targets, 2.0)
        for i in range(len(self.X)):
            for p in range(self.n_targets):
                if np.isnan(self.Y[i][p]):
                    continue
                variance = L[i, i] ** 2 + sum(L[i, j] ** 2 for j in range(i) if np.isnan(self.Y[j][p]))
                squares[p] = self.discount * squares[p] + (Z[i, p] * L[i, i]) ** 2 / variance
                mass[p] = self.discount * mass[p] + 1.0
        return squares, mass

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Location and spread of each output."""
        S, s = self._scaled(self.X), self._at(x)
        mean, latent = predict(self.kind, self.linear, self.noise, S, self._targets(), s)
        k = cross_covariance(self.kind, self.linear, S, s[None])[:, 0]
        v = np.linalg.solve(factor(self.kind, self.linear, self.noise, S), k)
        variance = np.array(
            [
                self.noise + max(latent, 0.0) + sum(v[i] ** 2 for i in range(len(v)) if np.isnan(self.Y[i][p]))
                for p in range(self.n_targets)
            ]
        )
        squares, mass = self.squares()
        return self.offset + self.scale * mean, self.scale * np.sqrt(variance * np.maximum(squares / mass, 1e-10))


# Linear regression on lags


def weighted_ridge(
    F: np.ndarray, T: np.ndarray, forgetting: float, precision: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Inverse of the discounted moments and the weights, when the prior is forgotten like any row."""
    n = len(F)
    weights = forgetting ** np.arange(n - 1, -1, -1.0)
    A = forgetting**n * np.diag(precision) + F.T @ np.diag(weights) @ F
    inverse = np.linalg.inv(A)
    return inverse, inverse @ F.T @ np.diag(weights) @ T


# Experts stacked per output


class StackedOutput:
    """Weights, tails and common scale of one output; nothing in logs, nothing in tables.

    With ``standing``, the last expert is exact: while it has a finite deviation, other weights and scales are in use.
    """

    def __init__(
        self, n_experts: int, dofs: tuple[float, ...], first_tail: int, rates: dict[str, float], standing: bool = False
    ):
        self.dofs, self.rates, self.standing = dofs, rates, standing
        equal = [1.0 / n_experts] * n_experts
        first = [(1.0 - rates["floor"]) / max(n_experts - 1, 1)] * (n_experts - 1) + [rates["floor"]]
        self.both_weights = [first if standing else equal, list(equal)]
        self.usual: list[float | None] = [None] * n_experts
        self.tail = [first_tail] * (n_experts - standing) + [len(dofs) - 1] * standing
        self.factors = [[1.0] * len(dofs) for _ in range(n_experts)]
        self.fits = [[0.0] * len(dofs) for _ in range(n_experts)]
        self.log_scales = [0.0, 0.0]
        self.seen: list[float] = []

    @property
    def weights(self) -> list[float]:
        return self.both_weights[0]

    @property
    def log_scale(self) -> float:
        return self.log_scales[0]

    def _stands(self, spread: np.ndarray) -> bool:
        return self.standing and bool(0.0 < spread[-1] < np.inf)

    def predict(self, location: np.ndarray, spread: np.ndarray) -> tuple[list[float], list[float], list[float], float]:
        """Scale, degrees of freedom and share of each expert, and the stacked mean."""
        least = 1e-5 * np.std(self.seen) + 1e-9 * abs(np.mean(self.seen)) if self.seen else 0.0
        stands = self._stands(spread)
        weights, log_scale = self.both_weights[stands], self.log_scales[stands]
        scales, shares, centres = [], [], []
        for k in range(len(weights)):
            if not (np.isfinite(spread[k]) and spread[k] > 0):
                scales.append(1.0)
                shares.append(0.0)
                centres.append(0.0)
                continue
            scale = max(spread[k] * math.sqrt(self.factors[k][self.tail[k]]) * math.exp(log_scale), least)
            scales.append(spread[k] if self.standing and k == len(weights) - 1 else scale)
            usual = self.usual[k]
            surer = 1.0 if usual is None else min(max(usual / scales[k], math.exp(-40)), math.exp(40))
            shares.append(weights[k] * surer ** self.rates["sharpness"])
            centres.append(location[k])
        shares = [share / sum(shares) if sum(shares) > 0 else 1.0 / len(shares) for share in shares]
        mean = sum(share * centre for share, centre in zip(shares, centres, strict=True))
        return scales, [self.dofs[g] for g in self.tail], shares, mean

    def learn(self, location: np.ndarray, spread: np.ndarray, y: float, tilted: np.ndarray | None = None) -> float:
        """Learn a target, where the mixture had the weights ``tilted``; returns its normal score."""
        rates = self.rates
        scales, dofs, shares, _ = self.predict(location, spread)
        tilted = np.array(shares) if tilted is None else tilted
        stands = self._stands(spread)
        weights = self.both_weights[stands]
        said = np.isfinite(spread) & (spread > 0)
        centres = np.where(said, location, 0.0)
        self.seen.append(y)
        young = 1.0 / (1.0 + len(self.seen))
        # Nobody spoke, or the distributions are still guesses.
        spoke = any(share > 0 for share, speaks in zip(shares, said, strict=True) if speaks)
        if len(self.seen) == 1 or not spoke:
            return math.nan
        settled = len(self.seen) > 4
        experts = [stats.t(dof, centre, scale) for dof, centre, scale in zip(dofs, centres, scales, strict=True)]
        # A reading has a resolution, of which the deviation of an expert that stands still is an eighth.
        half = [4.0 * spread[-1] if stands and 4.0 * spread[-1] > 0.05 * scale else 0.0 for scale in scales]
        below = sum(w * e.cdf([y - h, y + h]) for w, e, h in zip(tilted, experts, half, strict=True))
        above = sum(w * e.sf([y - h, y + h]) for w, e, h in zip(tilted, experts, half, strict=True))
        logs = np.array([expert.logpdf(y) for expert in experts])
        densities = np.exp(logs - max(log for log, share in zip(logs, tilted, strict=True) if share > 0))
        total = sum(share * density for share, density in zip(shares, densities, strict=True) if share > 0)
        tilted_total = float(tilted @ densities)
        pull = 0.0
        for k, share in enumerate(shares):
            if share > 0.0:
                z = (y - centres[k]) / scales[k]
                # Derivative of the log density by minus the log scale, plus the one of log scale itself.
                own = tilted[k] * densities[k] / tilted_total
                exact = self.standing and k == len(weights) - 1
                if not exact:
                    pull += own * ((dofs[k] + 1) * z**2 / (dofs[k] + z**2) - 1)
                if share > 1e-12:
                    gain = rates["eta"] * (min(densities[k], 1.0) / total - 1)
                    weights[k] *= max(1 + gain * (share / max(share, 0.05) if exact else 1.0), 0.5)
            weights[k] = max(weights[k], rates["floor"])
        self.both_weights[stands] = [weight / sum(weights) for weight in weights]
        if settled:
            step = rates["scale_step"] * pull
            for level, rate in ((0.5, rates.get("middle", 0.0)), (0.9, rates.get("outer", 0.0))):
                step += rate * (level - covered_part(level, *below))
            self.log_scales[stands] = min(max(self.log_scales[stands] + step, -3.0), 3.0)
        for k in np.flatnonzero(said):
            if self.standing and k == len(weights) - 1:
                continue
            usual = self.usual[k]
            if usual is None:
                self.usual[k] = scales[k]
            else:
                step = max(rates["usual_step"], young)
                self.usual[k] = math.exp((1 - step) * math.log(usual) + step * math.log(scales[k]))
            z = (y - location[k]) / spread[k]
            step = max(rates["tail_step"], young)
            for g, dof in enumerate(self.dofs):
                factor = self.factors[k][g]
                self.fits[k][g] *= rates["tail_discount"]
                self.fits[k][g] += stats.t.logpdf(z, dof, scale=math.sqrt(factor))
                robust = (dof + 1) / (dof + z**2 / factor) * z**2
                self.factors[k][g] = max((1 - step) * factor + step * robust, 1e-8)
            self.tail[k] = int(np.argmax(self.fits[k]))
        if not settled:
            return math.nan
        if np.mean(below) < 0.5:
            return float(stats.norm.ppf(max(np.mean(below), 1e-9)))
        return -float(stats.norm.ppf(max(np.mean(above), 1e-9)))


def covered_part(level: float, low: float, high: float) -> float:
    """Part of the probabilities from ``low`` to ``high`` that a central interval holds."""
    edge = 0.5 - 0.5 * level
    if high - low < 1e-12:
        return float(edge < low < 1.0 - edge)
    return max(min(high, 1.0 - edge) - max(low, edge), 0.0) / (high - low)


def tilted_weights(weights: np.ndarray, locations: np.ndarray, mean: float) -> np.ndarray:
    """Weights in proportion to ``weights * exp(theta * locations)`` that have this mean."""
    used = weights > 1e-6
    x = np.where(used, locations - mean, 0.0)
    x = x / np.abs(x).max()

    def tilted(theta: float) -> np.ndarray:
        found = np.where(used, weights, 0.0) * np.exp(theta * x - abs(theta))
        return found / found.sum()

    theta = optimize.brentq(lambda theta: tilted(theta) @ x, -200.0, 200.0, xtol=1e-13)
    return tilted(theta)


def blend_weights(errors: np.ndarray, memory: float, caution: float, first: int) -> np.ndarray:
    """Weights of a blend after rows of ``errors`` ``(n, n_points)``: one multiplicative step for each.

    The rows before number ``first`` (from one) teach nothing.
    """
    n_points = errors.shape[1]
    w = np.full(n_points, 1.0 / n_points)
    for n in range(first, len(errors) + 1):
        discounts = [min(1 - 1 / memory, 1 - 2 / later) for later in range(first, n + 1)]
        M = sum(np.prod(discounts[i + 1 :]) * np.outer(error, error) for i, error in enumerate(errors[first - 1 : n]))
        pull = M @ w + caution * min(np.diag(M)) * w
        w = np.maximum(w * np.exp(0.5 * np.clip(1.0 - pull / (w @ pull), -2.0, 2.0)), 1e-6)
        w /= w.sum()
    return w


class SeasonalErrors:
    """The pattern that errors repeat: all of them are kept, and everything is summed up again at each row."""

    def __init__(self, n_targets: int, longest: int, kept: int):
        self.longest, self.kept = longest, kept
        self.errors: list[np.ndarray] = []
        self.weights: list[np.ndarray] = []
        self.smooth: list[np.ndarray] = []
        self.pairs: list[list[tuple[float, float, float]]] = [[] for _ in range(n_targets)]
        self.season, self.found, self.agreed = 0, 0, 0

    def learn(self, change: np.ndarray, mean: np.ndarray, deviation: np.ndarray, is_known: np.ndarray) -> None:
        """Learn the error of a row, cut at four deviations; those of unknown deviation count as zero."""
        raw = change - mean
        cut = np.where(is_known & ~np.isnan(raw), np.clip(raw, -4 * deviation, 4 * deviation), 0.0)
        before = len(self.errors) - self.season
        self.smooth.append(cut)
        if self.season:
            old = self.smooth[before]
            self.smooth[-1] = old + 0.15 * (cut - old)
            for p in np.flatnonzero(~np.isnan(raw)):
                self.pairs[p].append((old[p], self.errors[before][p], raw[p]))
        self.errors.append(cut)
        with np.errstate(divide="ignore", invalid="ignore"):
            self.weights.append(np.where(cut != 0.0, cut / deviation**2 / len(cut), 0.0))
        if len(self.errors) % 16 == 0:
            self._look()

    @property
    def mass(self) -> float:
        return sum(0.999**age for age in range(len(self.errors)))

    def echo(self) -> np.ndarray:
        """Discounted sums of products of an error and the one so many rows before."""
        n = len(self.errors)
        found = np.zeros(self.longest + 1)
        for s in range(1, self.longest + 1):
            found[s] = sum(0.999 ** (n - 1 - t) * (self.weights[t] @ self.errors[t - s]) for t in range(s, n))
        return found

    def _look(self) -> None:
        echo, top = self.echo(), min(self.longest - 3, int(self.mass / 3))
        if top <= 4:
            return
        excess = {s: echo[s] - (echo[s - 3] + echo[s + 3]) / 2 for s in range(4, top + 1)}
        highest = max(0.0, *excess.values())
        if highest <= max(0.1 * self.mass, 5 * math.sqrt(self.mass)):
            return
        high = [s for s in excess if excess[s] > 0.6 * highest]
        if self.season in high:
            self.agreed = 0
            return
        found = high[0]
        while found + 1 in high and echo[found + 1] > echo[found]:
            found += 1
        self.agreed = self.agreed + 1 if found == self.found else 1
        self.found = found
        if self.agreed == 3:
            self.season, self.agreed = found, 0
            start = max(len(self.errors) - self.kept, 0)
            for t in range(start, len(self.errors)):
                self.smooth[t] = self.errors[t]
                if t - found >= start:
                    self.smooth[t] = self.smooth[t - found] + 0.15 * (self.errors[t] - self.smooth[t - found])

    def shift(self, p: int) -> float:
        """What is added to the next prediction: ridge regression of the errors on the pattern."""
        if not self.season or not self.pairs[p]:
            return 0.0
        rows = np.array(self.pairs[p])
        decayed = rows * 0.999 ** np.arange(len(rows) - 1, -1, -1)[:, None]
        moments = decayed.T @ rows
        penalty = 10.0 * moments[2, 2] / self.mass * np.eye(2)
        before = len(self.errors) - self.season
        pattern = np.array([self.smooth[before][p], self.errors[before][p]])
        return float(pattern @ np.linalg.solve(moments[:2, :2] + penalty, moments[:2, 2]))


def shrunk_correlation(scores: np.ndarray, discount: float, prior: float, floor: float) -> np.ndarray:
    """Correlation of discounted rows of normal scores with `prior` rows of independence; NaN teaches no pair."""
    P = scores.shape[1]
    R = np.eye(P)
    sizes = np.zeros(P)
    for i in range(P):
        for j in range(i + 1):
            moment = mass = 0.0
            for row in np.clip(scores, -4, 4):
                if not np.isnan(row[i] * row[j]):
                    moment, mass = discount * moment + row[i] * row[j], discount * mass + 1
            if i == j:
                sizes[i] = math.sqrt((moment + prior) / (mass + prior))
            else:
                R[i, j] = R[j, i] = (1 - floor) * moment / (mass + prior)
    return np.where(np.eye(P) == 1, 1.0, R / np.outer(sizes, sizes))


def t_copula_log_density(scores: np.ndarray, R: np.ndarray, dof: float) -> float:
    t = stats.t.ppf(stats.norm.cdf(scores), dof)
    joint = stats.multivariate_t.logpdf(t, shape=R, df=dof)
    return float(joint - stats.t.logpdf(t, dof).sum())


# Forecasts of several steps


def own_features(
    values: np.ndarray,
    slow: np.ndarray,
    origin: int,
    step: int,
    seasons: tuple[int, ...],
    moved: np.ndarray,
    alike: int = 0,
) -> np.ndarray:
    """What one series, with all its `values` so far, says at `origin` about `step` rows later; inputs have `moved`.

    A season of -1 rows is that of the last day of the same kind, `alike` rows before the step; 0 if there is none.
    """
    now = values[origin]
    newest = [values[max(origin - k, 0)] for k in range(4)]
    f = [1.0, now - slow[origin], newest[0] - newest[1], newest[1] - newest[2], newest[2] - newest[3]]
    f += [now - np.mean(values[max(origin - n + 1, 0) : origin + 1]) for n in (8, 32)]
    for season in seasons:
        season = alike if season == -1 else season
        back = season * math.ceil(step / season) if season else 0
        exists = season > 0 and origin >= back
        f.append(values[origin + step - back] - values[origin - back] if exists else 0.0)
        f.append(now - values[origin - back] if exists else 0.0)
    return np.concatenate([f, moved])


class OwnRegression:
    """One step of one series: all rows of features and changes, as they were learnt."""

    def __init__(self, width: int, forgetting: float, reach: float):
        self.forgetting, self.reach = forgetting, reach
        self.F, self.changes = np.zeros((0, width)), np.zeros(0)

    def _weights(self) -> np.ndarray:
        return self.forgetting ** np.arange(len(self.F) - 1, -1, -1.0)

    def cut(self, f: np.ndarray, least: float = 30.0) -> np.ndarray:
        """Features within so many times their root mean square of the rows in which they were not zero.

        Only if there were more than ``least`` such rows; below 30, so many times shrinks to once.
        """
        f = f.copy()
        for j in range(1, len(f)):
            w = self._weights()[self.F[:, j] != 0.0]
            column = self.F[self.F[:, j] != 0.0, j]
            if w.sum() > least:
                times = 1.0 + (self.reach - 1.0) * min(w.sum() / 30.0, 1.0)
                largest = times * math.sqrt(w @ column**2 / w.sum())
                f[j] = np.clip(f[j], -largest, largest)
        return f

    def learn(self, f: np.ndarray, change: float) -> None:
        w = self._weights()
        self.F = np.vstack([self.F, self.cut(f)])
        usual = math.sqrt(w @ self.changes**2 / w.sum()) if len(w) else 0.0
        if w.sum() > 30.0 and usual > 0.0:
            change = np.clip(change, -2 * self.reach * usual, 2 * self.reach * usual)
        self.changes = np.append(self.changes, change)

    def moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of the features, of features and change, and the mass of rows in which a feature was not zero."""
        W = np.diag(self._weights())
        return self.F.T @ W @ self.F, self.F.T @ W @ self.changes, (self.F != 0.0).T @ self._weights()

    def solve(self, penalty: float, least: np.ndarray | float = 0.0) -> np.ndarray:
        """Weights where a penalty counts as so many rows of each feature; none where too little is known."""
        A, c, counts = self.moments()
        weights = np.zeros(len(A))
        if A[0, 0] < 8.0:
            return weights
        varies = (np.diag(A) > 0.0) & (counts >= least)
        rows = np.where(np.arange(len(A)) > 0, penalty, 1e-3)
        A = A + np.diag(rows * np.diag(A) / np.maximum(counts, 1.0))
        weights[varies] = np.linalg.solve(A[np.ix_(varies, varies)], c[varies])
        return weights


def discounted_ridge(F: np.ndarray, T: np.ndarray, forgetting: float, precision: np.ndarray) -> np.ndarray:
    """Weights of discounted rows under a penalty that is not forgotten; features that were always zero have none."""
    weights = np.zeros((F.shape[1], T.shape[1]))
    varies = (F != 0.0).any(axis=0)
    G = F[:, varies]
    discounts = np.diag(forgetting ** np.arange(len(F) - 1, -1, -1.0))
    weights[varies] = np.linalg.solve(G.T @ discounts @ G + np.diag(precision[varies]), G.T @ discounts @ T)
    return weights


def blend_moments(errors: np.ndarray, forgetting: float, step: int) -> np.ndarray:
    """Discounted second moments (K, K) of errors (rows, K) of one step; the first half of its rows fades anyway."""
    M = np.zeros((errors.shape[1],) * 2)
    power = 2 + 2 / math.sqrt(step)
    for n, error in enumerate(errors, start=2 - step):
        if not np.isnan(error).any():
            usual = math.sqrt(M[0, 0] / min(1 / (1 - forgetting), n / (power + 1))) if n > 30 else 0.0
            # One jump counts as ten times the usual error of the first.
            cut = 10 * usual / abs(error[0]) if abs(error[0]) > 10 * usual > 0 else 1.0
            M = min(forgetting, 1 - power / max(n, power + 1)) * M + np.outer(cut * error, cut * error)
    return M


def best_mixture(M: np.ndarray) -> np.ndarray:
    """Positive weights of sum one with the least w' M w, from all sets of experts that may take part."""
    K = len(M)
    best, least = np.zeros(K), math.inf
    for chosen in range(1, 2**K):
        members = [k for k in range(K) if chosen >> k & 1]
        part = M[np.ix_(members, members)]
        # Stationary where all members pull alike.
        w = np.linalg.solve(part, np.ones(len(members)))
        w /= w.sum()
        if (w >= 0.0).all() and w @ part @ w < least:
            best, least = np.zeros(K), float(w @ part @ w)
            best[members] = w
    return best


def trusted(w: np.ndarray, M: np.ndarray, trials: float) -> np.ndarray:
    """Weights drawn towards the first expert, as far as the gain on it could be chance in so many trials."""
    gained = M[0, 0] - w @ M @ w
    trust = max(0.0, 1.0 - 1.0 / (trials * gained / (w @ M @ w))) if gained > 0.0 else 0.0
    return trust * w + (1.0 - trust) * np.eye(len(w))[0]


def pooled_moments(moments: np.ndarray) -> np.ndarray:
    """Moments (H, K, K) in units of the least square error of each step; near steps count more than far ones."""
    units = [max(np.diag(M).min(), 1e-4 * M[0, 0]) for M in moments]
    return np.array(
        [
            sum(
                min(g, h) / max(g, h) * moments[g - 1] / units[g - 1]
                for g in range(1, len(moments) + 1)
                if units[g - 1]
            )
            for h in range(1, len(moments) + 1)
        ]
    )


def iterated(values: np.ndarray, n_changes: int, terms: np.ndarray, centre, lowest, highest, largest, W) -> np.ndarray:
    """Values (H, P) of steps after those of all rows (rows, P), each from the steps before; W (d, P), terms (H, n)."""
    rows = list(values)
    for now in terms:
        lags = [rows[max(len(rows) - 1 - k, 0)] for k in range(n_changes + 1)]
        f = np.concatenate([[1.0], rows[-1] - centre, *(newer - older for newer, older in pairwise(lags)), now])
        rows.append(np.clip(rows[-1] + np.clip(f, -largest, largest) @ W, lowest, highest))
    return np.array(rows[len(values) :])


def component_moments(errors: np.ndarray, forgetting: float) -> tuple[float, float]:
    """Discounted square and mass of the errors of one component; NaN is not known."""
    square = mass = 0.0
    for error in errors[~np.isnan(errors)]:
        keep = min(forgetting, 1 - 0.5 / (mass + 1))
        square, mass = keep * square + error**2, keep * mass + 1
    return square, mass


def recall(
    now: int,
    every: int,
    y: np.ndarray,
    reach: tuple[np.ndarray, np.ndarray],
    X: np.ndarray,
    own: slice,
    stands_still: np.ndarray,
    rests: np.ndarray,
    made: list[dict[str, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Errors (K, H, P) and planes (5, M, H, P) of the forecasts of row `now`, given those `made` at each row before.

    Forecasts hold `located` (H, K, P), `sloped` (H, 2, P, D), `blend_slope` (H, P, D) and `distribution` (H, 5, M, P).
    Components that stand still move with the inputs unless the series `rests` (rows, P). What moves stays in `reach`.
    NaN where there was none; of those that were made, one in `every` counts, another one in each H rows.
    """
    H, K, P = made[0]["located"].shape
    errors, plane_rows = np.full((K, H, P), np.nan), np.full((5, len(stands_still), H, P), np.nan)
    for h in range(min(H, now)):
        row = now - h - 1
        if row % every != row // H % every:
            continue
        forecast = made[row]
        change = X[now] - X[row]
        location = forecast["located"][h].copy()
        # A third expert moves as the second.
        location[own] += (forecast["sloped"][h] @ change)[[0, 1, 1][: own.stop - own.start]]
        if len(change):
            location[own] = np.clip(location[own], *reach)
        errors[:, h] = y - location
        plane_rows[:, :, h] = forecast["law"][h]
        stays = stands_still[:, None] & (rests[row] > 0.0)
        if len(change):
            moved = np.clip(plane_rows[0, :, h] + forecast["blend_slope"][h] @ change, *reach)
            plane_rows[0, :, h] = np.where(stays, plane_rows[0, :, h], moved)
    return errors, plane_rows


def kept_rows(Y: np.ndarray) -> np.ndarray:
    """Values (rows, 4, P) with gaps filled, slow mean, means of the last 8 and 32; as known after the last row."""
    n, P = Y.shape
    out = np.zeros((n, 4, P))
    for p in range(P):
        seen = np.flatnonzero(~np.isnan(Y[:, p]))
        if not len(seen):
            continue
        slow = filled = Y[seen[0], p]
        for i in range(n):
            filled = filled if np.isnan(Y[i, p]) else Y[i, p]
            slow += max(0.002, 1 / (i + 1)) * (filled - slow)
            out[i, :2, p] = filled, slow
        for i in range(n):
            out[i, 2:, p] = [np.mean(out[max(i - m + 1, 0) : i + 1, 0, p]) for m in (8, 32)]
    return out


def cut_variance(marginals) -> np.ndarray:
    """Variance of marginals with heavy tails, after the least cut that leaves a kurtosis of 80, from many quantiles."""
    scores = np.linspace(-9.0, 9.0, 20_001)
    shape = (scores.size, marginals.n_rows, marginals.n_targets)
    upper = np.broadcast_to((scores > 0.0)[:, None, None], shape)
    found = np.full(shape[1:], np.nan)
    for cut in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2):
        p = stats.norm.cdf(-np.minimum(np.abs(scores), stats.norm.isf(cut)))
        y = marginals.tail_quantile(np.broadcast_to(p[:, None, None], shape), upper)
        weights = stats.norm.pdf(scores)
        away = y - np.average(y, axis=0, weights=weights)
        variance, fourth = (np.average(away**power, axis=0, weights=weights) for power in (2, 4))
        done = np.isnan(found) & ((fourth <= 80.0 * variance**2) | (cut == 1e-2))
        found[done] = variance[done]
    return found


def mixture_tails(Y, w, m, s, v):
    """Probabilities of at most and of more than `Y` (..., rows, P) under mixtures (rows, K, P) of Student-t's."""
    z = (Y[..., None, :] - m) / s
    return (w * special.stdtr(v, z)).sum(axis=-2), (w * special.stdtr(v, -z)).sum(axis=-2)


# ---------------------------------------------------------------------- gross errors


class NaiveReadings:
    """One column as lists of all readings, judged by the rules of `momostream.stream.readings`."""

    def __init__(self, codes):
        self.codes, self.taken, self.changes, self.high, self.low, self.runs = codes, [], [], [], [], []
        self.gap = self.aside = self.run = self.repeats = self.moves = self.n_levels = 0
        self.held, self.last_held, self.mean_change = [], 0.0, 0.0
        self.need, self.since, self.before, self.moved = 0.0, 1e9, None, 0.0

    def third(self, values, empty=0.0):
        return sorted(values, reverse=True)[2] if len(values) > 2 else empty

    def reach(self):
        return self.third(self.high, -np.inf) + self.third([-v for v in self.low], -np.inf)

    def outside(self, y):
        return max(y - self.third(self.high, -np.inf), -self.third([-v for v in self.low], -np.inf) - y, 0.0)

    def tail(self):
        """The power of their number by which the largest changes grow."""
        usual = self.third(self.changes)
        if usual <= self.mean_change or self.mean_change <= 0.0 or len(self.taken) <= 8:
            return 0.0
        return min(np.log(usual / self.mean_change) / np.log(len(self.taken) / 3.0), 1.0)

    def is_moving(self, y):
        """Whether the reading before was the end of a large change in the direction of this one."""
        return self.gap == 0 and self.moved * (y - self.taken[-1]) > 0.0

    def judge(self, y, alone=True, patience=1.0):
        """0, or 1 for a jump, 2 for a code, 3 for a stuck sensor."""
        if np.isnan(y):
            self.gap += 1
            return 0
        jump = abs(y - self.taken[-1]) if self.taken else 0.0
        same = bool(self.taken) and jump == 0.0
        verdict, size, outside, n = 0, 0.0, 0.0, len(self.taken)
        if n >= 8 and (self.moves >= 3 or n >= 200) and not same:
            usual, outside = self.third(self.changes), self.outside(y)
            heavy = np.sqrt(min(max(self.changes) / usual, 4.0)) if usual > 0.0 else 1.0
            size = usual * heavy * np.sqrt(1.0 + self.gap - self.aside)
            verdict = int(self.is_far(jump, outside, size, 5.0 if self.is_moving(y) else patience ** self.tail()))
            if y in self.codes and (verdict or (outside > 0.02 * self.reach() and jump > usual)):
                verdict = 2
            if verdict == 1 and self.since < 300 and self.is_back(y):
                self.changes, self.high, self.low = self.before
                self.since, verdict, jump, self.n_levels = 1e9, 0, 0.0, max(self.n_levels - 1, 0)
        self.since += 1
        if same:
            self.run += 1
            if alone and self.is_stuck(y):
                self.gap += 1
                return 3
        else:
            self.runs += [self.run] if self.run else []
            self.run = 0
        if verdict:
            if not self.hold(y, jump, outside, size, verdict):
                self.gap, self.aside = self.gap + 1, self.aside + 1
                return verdict
            jump = 0.0
        elif self.held and self.moves < 5:
            self.moves += 1
            self.changes.append(abs(self.held[-1] - self.taken[-1]))
        self.take(y, jump / np.sqrt(1.0 + self.gap), same)
        return 0

    def is_far(self, jump, outside, size, patience):
        """Whether a reading is out of range and out of reach; ``patience`` makes both wider."""
        has_rested = len(self.taken) >= 200 and jump > 2.0 * abs(self.taken[-1])
        if has_rested and self.moves < 5:
            return jump > patience * 4.0 * max(self.changes, default=0.0)
        if self.moves < (5 if has_rested else 30) or self.reach() <= 0.0 or size <= 0.0:
            return False
        young = 1.0 + 100.0 / self.moves
        least = patience * 0.5 * young * self.reach()
        if self.moves < 200 and self.repeats > 0.3 * len(self.taken):
            least = max(least, patience * 4.0 * self.reach())
        return (outside > least and jump > patience * 2.0 * young * size) or (outside > 2.0 * least and jump > size)

    def is_back(self, y):
        _, high, low = self.before
        high, low = self.third(high, -np.inf), -self.third([-v for v in low], -np.inf)
        return low - 0.5 * (high - low) <= y <= high + 0.5 * (high - low)

    def is_stuck(self, y):
        if self.moves < 30 or y == 0.0 or y >= max(self.high) or y <= min(self.low):
            return False
        share = np.log((self.repeats + 1.0) / (len(self.taken) + 2.0))
        return max(-40.0 / share, 8.0 + 2.0 * self.third(self.runs)) < self.run < 60

    def hold(self, y, jump, outside, size, verdict):
        """Whether so many readings agree that the level has changed."""
        usual, young = self.third(self.changes), 1.0 + 100.0 / max(self.moves, 1)
        within = outside <= 0.5 * young * self.reach()
        last = self.held[-1] if self.held else self.last_held
        step = abs(y - last)
        if self.held and step <= max(2.0 * usual, (1.5 if self.moves < 5 else 0.5) * abs(last - self.taken[-1])):
            self.held.append(y)
        else:
            self.held, self.need = [y], 24.0
            if within or len(self.taken) < 200 or self.moves < 5:
                self.need = 2.0
            elif size > 0.0:
                doublings = max(np.log2(jump / (2.0 * size)) - 3.0, 0.0)
                self.need = max(min(30.0 + 6.0 * doublings, 50.0) * 0.5**self.n_levels, 2.0)
        self.last_held = y
        if len(self.held) < self.needed(y, step, verdict):
            return False
        self.before, self.since = (list(self.changes), list(self.high), list(self.low)), 0
        self.n_levels += verdict == 1 and self.need > 2.0
        self.changes = self.changes + ([jump] if within else [step] * 3)
        return True

    def needed(self, y, step, verdict):
        """How many readings must agree."""
        if verdict == 2:
            return 200
        if step == 0.0 and self.repeats < 0.2 * len(self.taken) and y != 0.0:
            return max(self.need, 24.0)
        if len(self.held) >= 8 and self.need <= 30.0:
            mean = np.abs(np.diff(self.held)).mean()
            if self.mean_change / 1.5 < mean < self.mean_change * 1.5:
                return min(self.need, 8.0)
        return self.need

    def take(self, y, change, same):
        self.held = []
        if same:
            self.repeats += 1
            self.moved = 0.0
        elif self.taken:
            self.moves += 1
            self.moved = np.sign(y - self.taken[-1]) if change > self.third(self.changes) else 0.0
            self.changes.append(change)
        self.high, self.low, self.taken = [*self.high, y], [*self.low, y], [*self.taken, y]
        # The largest changes fade.
        self.changes = [value * (1.0 - 1.0 / 5000.0) for value in self.changes]
        self.mean_change += (change - self.mean_change) / min(len(self.taken), 200)
        self.gap = self.aside = 0


def have_company(row, columns):
    """Whether more columns move far in this row than would by chance."""
    judged = [(y, c) for y, c in zip(row, columns, strict=True) if c.third(c.changes) > 0.0 and not np.isnan(y)]
    moves = [abs(y - c.taken[-1]) / (c.third(c.changes) * np.sqrt(1.0 + c.gap)) for y, c in judged]
    return sum(1.0 < move <= 3.0 for move in moves) >= max(2.0, 4.0 * sum(3.0 / len(c.taken) for _, c in judged))


def screened(rows, codes):
    """Verdicts on all readings, by what a column has shown and whether others move; none is stuck while most rest."""
    columns = [NaiveReadings(codes) for _ in range(rows.shape[1])]
    verdicts = np.zeros(rows.shape)
    for i, row in enumerate(rows):
        same = [bool(column.taken) and column.taken[-1] == y for column, y in zip(columns, row, strict=True)]
        alone = sum(same) <= max(0.2 * len(row), 1)
        patience = 5.0 if have_company(row, columns) else 1.0
        verdicts[i] = [column.judge(y, alone, patience) for column, y in zip(columns, row, strict=True)]
        jumps = [c for c, verdict in zip(columns, verdicts[i], strict=True) if verdict == 1 and len(c.held) == 1]
        if len(jumps) >= max(0.2 * len(row), 2):
            for column in jumps:
                column.need = 2.0
    return verdicts


def reach_of(values, lowest, highest, margin):
    """Limits of forecasts: the range and a margin; where a series stands if it has no range."""
    more = margin * (highest - lowest)
    low, high = lowest - more, highest + more
    return np.where(np.isnan(low), values, low), np.where(np.isnan(high), values, high)


def iterated_moments(past, first, now, n_changes, terms, origin, y, n_rows, reach, W, squares, A, C):
    """Squares and moments after one more row of the regressions that are iterated."""
    rows = past[np.maximum(np.arange(now - 1, now - 2 - n_changes, -1), first), 0]
    f = np.concatenate([[1.0], past[now - 1, 0] - origin, (rows[:-1] - rows[1:]).ravel(), terms])
    change = past[now, 0] - past[now - 1, 0]
    if n_rows > 30.0:
        usual = np.sqrt(squares / n_rows)
        change = np.clip(change, -reach * usual, reach * usual)
        largest = np.where(np.diag(A) > 0.0, reach * np.sqrt(np.diag(A) / n_rows), np.inf)
        f = np.clip(f, -largest, largest)
    change = np.where(np.isnan(y), f @ W, change)
    return squares + change**2, A + np.outer(f, f), C + np.outer(f, change)


def wide_row(forgetting, reach, f, changes, squares, masses, W):
    """Squares, masses, the row as it is learnt, and its stand-in for missing changes, of the wide regression."""
    missing = np.isnan(changes)
    usual = np.sqrt(squares / np.maximum(masses, 1e-300))
    largest = np.where((masses > 30.0) & (usual > 0.0), 2.0 * reach * usual, np.inf)
    learnt = np.clip(changes, -largest, largest)
    moved = ~missing & (learnt != 0.0)
    targets = np.where(missing, np.clip(f @ W[0], -usual, usual), learnt)
    squares = np.where(moved, forgetting * squares + learnt**2, squares)
    return squares, np.where(moved, forgetting * masses + 1.0, masses), learnt, targets


def weights_at_last(weights, planes, rests, horizon, sharpness, farness):
    """Weights of the components of a forecast: those at the last value count for less where they err more."""
    ratio = planes[1, 1] / np.maximum(planes[1, 4], 1e-300)
    away = (planes[0, 0] - planes[0, 3]) / planes[1, 1] * np.tile(rests, horizon)
    found = weights.copy()
    found[3:] *= np.minimum(ratio, 1.0) ** sharpness * np.exp(-0.5 * farness * np.minimum(away * away, 100.0))
    return found


def level_log_factors(prior, least, most, sums):
    """Log factors of deviations by level."""
    total = sums.sum(axis=2)
    mean = ((total[0] + prior) / (total[1] + prior))[:, None]
    squares = (sums[0] + prior * mean) / (sums[1] + prior) / mean
    return 0.5 * np.log(np.clip(squares, least**2, most**2))


def score_moments(forgetting, clip, scores, moments, counts):
    """Moments of normal scores between the rows of ``scores``, and their counts."""
    seen = ~np.isnan(scores)
    z = np.where(seen, np.clip(scores, -clip, clip), 0.0)
    n = scores.shape[1]
    return forgetting * moments + z @ z.T / n, forgetting * counts + (1.0 * seen) @ seen.T / n


def search_direction(free, gradient, moves, turns, longest):
    """The direction of L-BFGS by its recursion, over the parameters that are free."""
    q = np.where(free, gradient, 0.0)
    shares = []
    for move, turn in zip(moves[::-1], turns[::-1], strict=True):
        shares.append((move @ q) / (move @ turn))
        q = q - shares[-1] * turn
    q = q * ((moves[-1] @ turns[-1]) / (turns[-1] @ turns[-1])) if len(moves) else q / max(1.0, np.linalg.norm(q))
    for move, turn, share in zip(moves, turns, reversed(shares), strict=True):
        q = q + move * (share - (turn @ q) / (move @ turn))
    direction = np.where(free, -q, 0.0)
    return direction * min(1.0, longest / np.abs(direction).max())


def lag_moments(forgetting, W, F, T, A, C):
    """Discounted moments of lags and changes; a missing change is as predicted, bad rows do not count."""
    T = np.where(np.isnan(T), F @ W, T)
    known = np.isfinite(np.hstack([F, T])).all(axis=1)
    decay = forgetting ** np.arange(len(F) - 1, -1, -1.0)
    faded = (F * decay[:, None])[known]
    return forgetting ** len(F) * A + faded.T @ F[known], forgetting ** len(F) * C + faded.T @ T[known]


def rebased_lags(A, C, units, least_std, least_unit):
    """Moments in features of mean zero and standard deviation one, and the units of these."""
    mass, mean = A[0, 0], A[0, 1:] / A[0, 0]
    size = np.sqrt(np.diag(A)[1:] / mass)
    std = size if mass < 1.5 else np.sqrt(np.maximum(size**2 - mean**2, 0.0))
    centre, unit = units[0] + units[1] * mean, units[1] * std
    varies = (std > least_std * size) & (unit > least_unit * np.abs(centre)) & (unit > 1e-150)
    std = np.where(varies, std, 1.0)
    move = np.eye(len(A))
    move[1:, 0], size = -mean, np.r_[1.0, std]
    return move @ A @ move.T / np.outer(size, size), move @ C / size[:, None], np.vstack([centre, units[1] * std])


def curved_columns(
    past: np.ndarray, shown: np.ndarray, now: int, seasons: np.ndarray, own: np.ndarray, wide: np.ndarray
) -> np.ndarray:
    """Columns (P, 10 + shown) of each series in the row `now` of a past (rows, 4, P), in the order of the kernel."""
    value = past[now, 0]
    seasonal = [past[now - s, 0] - value if now >= s else 0.0 * value for s in seasons] or [0.0 * value] * 2
    last = value - past[max(now - 1, 0), 0]
    columns = [value, *(value - past[now, 1:]), last, *seasonal, own, wide, 0.0 * value]
    return np.column_stack([*columns, np.tile(shown, (len(value), 1))])


def curved_features(rows: np.ndarray, Z: np.ndarray, frequencies: np.ndarray, phases: np.ndarray) -> np.ndarray:
    """1, columns `Z` (P, d) standardised by `rows` (n, P, d) and cut at 4, the tenth common to all, and their waves."""
    mean, std = rows.mean(axis=0), rows.std(axis=0)
    varies = std > 1e-9 * np.abs(mean)
    z = np.clip(np.where(varies, (Z - mean) / np.where(varies, std, 1.0), 0.0), -4.0, 4.0)
    z[:, 9] = z[:, 0].mean() if len(z) > 1 else 0.0
    return np.hstack([np.ones((len(z), 1)), z, np.cos(z @ frequencies + phases)])


def curved_moments(
    features: np.ndarray, targets: np.ndarray, W: np.ndarray, forgetting: float, reach: float
) -> tuple[np.ndarray, np.ndarray]:
    """Discounted moments (P, w, w) and (P, w, H) of `features` (n, P, w) and `targets` (n, H, P), NaN where missing."""
    n, P, w = features.shape
    A, C = np.zeros((P, w, w)), np.zeros((P, w, targets.shape[1]))
    for p in range(P):
        for h in range(targets.shape[1]):
            square = mass = 0.0
            for i in range(n):
                target = targets[i, h, p]
                if np.isnan(target):
                    target = features[i, p] @ W[p, :, h]
                else:
                    if mass > 30:
                        target = np.clip(target, -reach * np.sqrt(square / mass), reach * np.sqrt(square / mass))
                    square, mass = forgetting * square + target**2, forgetting * mass + 1
                C[p, :, h] += forgetting ** (n - 1 - i) * features[i, p] * target
        for i in range(n):
            A[p] += forgetting ** (n - 1 - i) * np.outer(features[i, p], features[i, p])
    return A, C


def common_moments(moments: np.ndarray) -> np.ndarray:
    """Mean over series of moments (H, P, K, K) in units of their trace; series without errors do not count."""
    common = np.zeros((len(moments), *moments.shape[2:]))
    for h, of_step in enumerate(moments):
        known = [M / np.trace(M) for M in of_step if np.trace(M) > 0.0]
        if known:
            common[h] = np.mean(known, axis=0)
    return common
