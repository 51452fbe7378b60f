"""Streaming regressors to compare with, each a small class.

``predict(x)`` returns the mean ``(P,)`` and a scalar ``c``: the scale matrix of the predicted distribution is ``c``
times what `Residuals` learns, in the same way for all. Rivals that only know points say ``c = 1``. ``learn(x, y)``
takes a complete row. Inputs and targets are expected in units of about one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

Array = NDArray[np.float64]


class Rival(Protocol):
    """The methods that the benchmark needs of a rival."""

    def predict(self, x: Array) -> tuple[Array, float]:
        """Mean (P,) and the factor ``c`` of the scale matrix; changes nothing that a later call can see."""

    def learn(self, x: Array, y: Array) -> None:
        """Take in one complete row."""


# ---------------------------------------------------------------------- the distribution of what a rival leaves
# unexplained


class Residuals:
    """Scale matrix and degrees of freedom of a Student-t, from residuals discounted by age.

    momostream's distribution of a region without its Gaussian process: ``S = scatter / mass`` with ``mass`` degrees of
    freedom. Both start as those of ``NU0`` rows of variance ``SCALE0``. Here these fade like all rows: kept for good,
    they would bound the deviations at .13 from below, which costs the last value 131 nats a row on
    openfast_5mw_land_wturb.

    Examples
    --------
    >>> residuals = Residuals(1)
    >>> for z in (1.0, -2.0, 1.0):
    ...     residuals.learn(np.array([z]))
    >>> scale, dof = residuals.distribution(c=1.0)
    >>> round(scale.item(), 2), round(dof, 2)
    (1.34, 4.74)
    """

    DISCOUNT, NU0, SCALE0, FLOOR = 0.97, 2.0, 0.3, 1e-10

    def __init__(self, n_outputs: int) -> None:
        self.mass = self.NU0
        self.scatter = self.NU0 * self.SCALE0 * np.eye(n_outputs)

    def distribution(self, c: float) -> tuple[Array, float]:
        """Scale matrix (P, P) of a prediction with factor ``c``, and degrees of freedom."""
        scale = c / self.mass * self.scatter
        # Targets have variance one. Residuals far beyond that would leave collinear outputs singular.
        floor = self.FLOOR * max(1.0, scale.diagonal().max())
        return scale + floor * np.eye(len(scale)), self.mass

    def learn(self, z: Array) -> None:
        """Take in residuals divided by ``sqrt(c)``; NaN where the target is missing.

        What is missing enters by its mean and covariance given the rest: as zeros it would shrink the scale.
        """
        gaps = np.isnan(z)
        if gaps.all():
            return
        product = np.outer(z, z)
        if gaps.any():
            S, _ = self.distribution(1.0)
            slope = np.linalg.solve(S[np.ix_(~gaps, ~gaps)], S[np.ix_(~gaps, gaps)]).T
            expected = z.copy()
            expected[gaps] = slope @ z[~gaps]
            product = np.outer(expected, expected)
            product[np.ix_(gaps, gaps)] += S[np.ix_(gaps, gaps)] - slope @ S[np.ix_(~gaps, gaps)]
        self.scatter = self.DISCOUNT * self.scatter + product
        self.mass = self.DISCOUNT * self.mass + 1.0


# ---------------------------------------------------------------------- simple rules


class LastValue:
    """The last value learnt."""

    def __init__(self, n_outputs: int) -> None:
        self.y = np.zeros(n_outputs)

    def predict(self, x: Array) -> tuple[Array, float]:
        """The last row."""
        return self.y, 1.0

    def learn(self, x: Array, y: Array) -> None:
        """Keep the row."""
        self.y = y


class Ridge:
    """Linear regression with intercept; rows fade by ``forgetting``, the penalty does not.

    A fading penalty leaves directions without news undetermined, and 30,000 rows blow them up.
    """

    def __init__(self, n_inputs: int, n_outputs: int, forgetting: float = 0.998, penalty: float = 1.0) -> None:
        self.forgetting, self.penalty = forgetting, penalty
        self.A, self.B = np.zeros((n_inputs + 1, n_inputs + 1)), np.zeros((n_inputs + 1, n_outputs))

    def predict(self, x: Array) -> tuple[Array, float]:
        """Solve the normal equations."""
        return np.append(x, 1.0) @ np.linalg.solve(self.A + self.penalty * np.eye(len(self.A)), self.B), 1.0

    def learn(self, x: Array, y: Array) -> None:
        """Update the normal equations."""
        x = np.append(x, 1.0)
        self.A = self.forgetting * self.A + np.outer(x, x)
        self.B = self.forgetting * self.B + np.outer(x, y)


class WithLags:
    """Inputs of a row beside all columns of the last two rows; before the first row these are zero, the mean."""

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        self.past = np.zeros(2 * (n_inputs + n_outputs))

    def features(self, x: Array) -> Array:
        """Inputs, then the last row, then the one before it."""
        return np.concatenate([x, self.past])

    def remember(self, x: Array, y: Array) -> None:
        """Take a row as the last one."""
        self.past = np.concatenate([x, y, self.past[: len(self.past) // 2]])


class RidgeOnLags:
    """`Ridge` on inputs and two lags of all columns.

    Without forgetting, its weights are those of recursive least squares that start at zero with the same penalty.
    """

    def __init__(self, n_inputs: int, n_outputs: int, forgetting: float) -> None:
        self.lags = WithLags(n_inputs, n_outputs)
        self.ridge = Ridge(n_inputs + len(self.lags.past), n_outputs, forgetting)

    def predict(self, x: Array) -> tuple[Array, float]:
        """Solve the normal equations."""
        return self.ridge.predict(self.lags.features(x))

    def learn(self, x: Array, y: Array) -> None:
        """Update the normal equations, and keep the row."""
        self.ridge.learn(self.lags.features(x), y)
        self.lags.remember(x, y)


class Boosted:
    """LightGBM on inputs and two lags of all columns, one model per target, refitted on all rows so far.

    Refitted after 100 and 250 rows and then every 500; before that it is the last value. A target that wanders is
    predicted by its change, another by its value: each refit takes what has the smaller error on the last fifth of the
    rows.
    """

    FIRST, EVERY = (100, 250), 500

    def __init__(self, n_inputs: int, n_outputs: int, seed: int) -> None:
        self.lags, self.seed = WithLags(n_inputs, n_outputs), seed
        self.F: list[Array] = []
        self.Y: list[Array] = []
        self.last = np.zeros(n_outputs)
        self.models: list[Any] = []
        self.changes = np.ones(n_outputs)

    def _fitted(self, F: Array, y: Array) -> Any:
        from lightgbm import LGBMRegressor

        return LGBMRegressor(n_jobs=1, random_state=self.seed, deterministic=True, verbose=-1).fit(F, y)

    def predict(self, x: Array) -> tuple[Array, float]:
        """One prediction of each model."""
        if not self.models:
            return self.last, 1.0
        f = self.lags.features(x)[None]
        # The booster itself: the regressor's own checks take most of the time for one row.
        found = np.array([model.booster_.predict(f)[0] for model in self.models])
        return found + self.changes * self.last, 1.0

    def learn(self, x: Array, y: Array) -> None:
        """Keep the row, and refit now and then."""
        self.F.append(self.lags.features(x))
        self.Y.append(y)
        self.lags.remember(x, y)
        self.last = y
        if len(self.Y) in self.FIRST or len(self.Y) % self.EVERY == 0:
            self._refit(np.array(self.F), np.array(self.Y))

    def _refit(self, F: Array, Y: Array) -> None:
        before = np.vstack([np.zeros((1, Y.shape[1])), Y[:-1]])
        cut = len(Y) * 4 // 5
        self.models = []
        for p in range(Y.shape[1]):
            errors = []
            for change in (0.0, 1.0):
                y = Y[:, p] - change * before[:, p]
                guess = self._fitted(F[:cut], y[:cut]).booster_.predict(F[cut:])
                errors.append(float(((guess - y[cut:]) ** 2).mean()))
            self.changes[p] = float(errors[1] < errors[0])
            self.models.append(self._fitted(F, Y[:, p] - self.changes[p] * before[:, p]))


# ---------------------------------------------------------------------- river


def named(x: Array) -> dict[int, float]:
    """A row as river wants it."""
    return dict(enumerate(x.tolist()))


class OnePerTarget:
    """River regressors, one per target. The linear ones know no intercept: one input is constant."""

    def __init__(self, make: Callable[[], Any], n_outputs: int) -> None:
        self.models = [make() for _ in range(n_outputs)]

    def predict(self, x: Array) -> tuple[Array, float]:
        """One prediction each."""
        row = named(np.append(x, 1.0))
        return np.array([model.predict_one(row) for model in self.models]), 1.0

    def learn(self, x: Array, y: Array) -> None:
        """One value each."""
        row = named(np.append(x, 1.0))
        for model, value in zip(self.models, y.tolist(), strict=True):
            model.learn_one(row, value)


class ManyTargets:
    """A river regressor that predicts all targets at once."""

    def __init__(self, model: Any, n_outputs: int) -> None:
        self.model, self.n_outputs = model, n_outputs

    def predict(self, x: Array) -> tuple[Array, float]:
        """Zero for what it does not know yet."""
        found = self.model.predict_one(named(x))
        return np.array([found.get(output, 0.0) for output in range(self.n_outputs)]), 1.0

    def learn(self, x: Array, y: Array) -> None:
        """The row as two dicts."""
        self.model.learn_one(named(x), named(y))


class Nearest:
    """River's nearest neighbours with the whole row of targets as one value, so that they are searched once.

    Weighted means, because only these work for vectors.
    """

    def __init__(self, n_outputs: int) -> None:
        from river.neighbors import KNNRegressor, LazySearch

        self.zero = np.zeros(n_outputs)
        self.model: Any = KNNRegressor(engine=LazySearch(window_size=1000), aggregation_method="weighted_mean")

    def predict(self, x: Array) -> tuple[Array, float]:
        """Zero before the first row."""
        return self.zero + self.model.predict_one(named(x)), 1.0

    def learn(self, x: Array, y: Array) -> None:
        """Keep the row."""
        self.model.learn_one(named(x), y)


# ---------------------------------------------------------------------- Gaussian processes


class Kernel(NamedTuple):
    """Matern-3/2 of unit variance with a lengthscale per input, and the variance of the noise beside it."""

    lengths: Array
    noise: float

    @classmethod
    def default(cls, n_inputs: int) -> Kernel:
        """Before anything is known; also where the prior of the tuning has its centre."""
        return cls(np.full(n_inputs, np.sqrt(n_inputs)), 0.05)

    def __call__(self, X: Array, T: Array) -> Array:
        """Covariance of the function, without noise."""
        r = np.sqrt(3.0) * cdist(X / self.lengths, T / self.lengths)
        return (1.0 + r) * np.exp(-r)


def evidence(theta: Array, X: Array, Y: Array) -> tuple[float, Array]:
    """Negative log marginal likelihood of the log parameters ``theta = (lengths, noise)``, and its gradient.

    Every output has a variance of its own, integrated out under a weak prior of ``Residuals.NU0`` rows; the covariance
    of the rows is shared. Regularised by a Gaussian around `Kernel.default`. O(n^3 + n^2 D).
    """
    n, P = Y.shape
    prior, strength = Residuals.NU0 * Residuals.SCALE0, n + Residuals.NU0
    S, noise = X * np.exp(-theta[:-1]), np.exp(theta[-1])
    r = np.sqrt(3.0) * cdist(S, S)
    decay = np.exp(-r)
    L = np.linalg.cholesky((1.0 + r) * decay + noise * np.eye(n))
    inverse = cho_solve((L, True), np.eye(n), check_finite=False)
    A = inverse @ Y
    scatter = (Y * A).sum(axis=0) + prior
    value = P * np.log(np.diag(L)).sum() + 0.5 * strength * np.log(scatter).sum()
    W = P * inverse - (strength / scatter * A) @ A.T  # half of tr(W dK) is the change of the value
    E = 3.0 * W * decay
    # sum_ij E_ij (S_ik - S_jk)^2 for each input k
    by_length = 2.0 * (E.sum(axis=1) @ S**2 - (S * (E @ S)).sum(axis=0))
    gradient = 0.5 * np.append(by_length, np.trace(W) * noise)
    default = Kernel.default(X.shape[1])
    offset = theta - np.log(np.append(default.lengths, default.noise))
    width = np.append(np.full(X.shape[1], 1.5), 3.0)
    return float(value + 0.5 * ((offset / width) ** 2).sum()), gradient + offset / width**2


def tuned(kernel: Kernel, X: Array, Y: Array) -> Kernel:
    """Maximise the evidence from where the kernel is, 20 iterations of L-BFGS."""
    bounds = [(-4.0, 6.0)] * X.shape[1] + [(-14.0, 2.0)]
    start = np.log(np.append(kernel.lengths, kernel.noise))
    found = minimize(evidence, start, (X, Y), "L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": 20}).x
    return Kernel(np.exp(found[:-1]), float(np.exp(found[-1])))


class WindowGP:
    """Gaussian process on the last ``size`` rows, factorised again for each row.

    Tuned every ``size`` rows, and after a quarter and a half of the first ``size``.
    """

    def __init__(self, n_inputs: int, n_outputs: int, size: int = 100) -> None:
        self.kernel, self.size, self.seen = Kernel.default(n_inputs), size, 0
        self.X, self.Y, self.offset = np.empty((0, n_inputs)), np.empty((0, n_outputs)), np.zeros(n_outputs)
        self.L: Array = np.empty((0, 0))  # factor of the covariance of the window
        self.weights: Array = self.Y  # covariance^-1 (Y - offset)

    def predict(self, x: Array) -> tuple[Array, float]:
        """Posterior mean and relative variance of a new value, noise included.  O(size^2)."""
        if self.seen == 0:
            return self.offset, 1.0 + self.kernel.noise
        k = self.kernel(x[None], self.X)[0]
        v = solve_triangular(self.L, k, lower=True, check_finite=False)
        return self.offset + k @ self.weights, 1.0 + self.kernel.noise - v @ v

    def learn(self, x: Array, y: Array) -> None:
        """Move the window and factorise it.  O(size^3)."""
        self.X, self.Y = np.vstack([self.X, x])[-self.size :], np.vstack([self.Y, y])[-self.size :]
        self.seen += 1
        self.offset = self.Y.mean(axis=0)
        if self.seen % self.size == 0 or self.seen in (self.size // 4, self.size // 2):
            self.kernel = tuned(self.kernel, self.X, self.Y - self.offset)
        covariance = self.kernel(self.X, self.X) + self.kernel.noise * np.eye(len(self.X))
        self.L = cholesky(covariance, lower=True, check_finite=False)
        self.weights = cho_solve((self.L, True), self.Y - self.offset, check_finite=False)


class Tracker:
    """Kernel recursive least squares with a budget of basis rows and forgetting back to the prior [1]_.

    The state is the posterior of the function at the m basis rows: mean ``mu`` (m, P) and covariance ``Sigma`` (m, m),
    beside the prior covariance ``K`` of the same values and its inverse ``Q``. All outputs share the covariances.

    References
    ----------
    .. [1] Van Vaerenbergh, Lazaro-Gredilla, Santamaria, "Kernel recursive least-squares tracker for time-varying
       regression", IEEE Transactions on Neural Networks and Learning Systems 23(8), 2012.
    """

    # A row whose function value the basis explains up to this variance does not join it.
    NOVELTY = 1e-6

    def __init__(self, kernel: Kernel, n_outputs: int, budget: int, forgetting: float) -> None:
        self.kernel, self.budget, self.forgetting = kernel, budget, forgetting
        self.basis, self.mu = np.empty((0, len(kernel.lengths))), np.empty((0, n_outputs))
        self.Sigma, self.K, self.Q = (np.empty((0, 0)) for _ in range(3))

    def _project(self, x: Array) -> tuple[Array, Array, Array, float, float]:
        """For a new function value: covariances ``k``, coefficients ``q``, ``h = Sigma q``, novelty, variance."""
        k = self.kernel(x[None], self.basis)[0]
        q = self.Q @ k
        h = self.Sigma @ q
        novelty = max(1.0 - k @ q, 0.0)
        return k, q, h, novelty, novelty + q @ h

    def predict(self, x: Array) -> tuple[Array, float]:
        """Posterior mean and variance of a new value, noise included.  O(budget^2)."""
        _, q, _, _, variance = self._project(x)
        return q @ self.mu, variance + self.kernel.noise

    def learn(self, x: Array, y: Array) -> None:
        """Update, drop the basis row that matters least if there are too many, forget.  O(budget^2)."""
        k, q, h, novelty, variance = self._project(x)
        error = y - q @ self.mu
        if novelty > self.NOVELTY:
            self.mu = np.vstack([self.mu, q @ self.mu])
            self.Sigma = bordered(self.Sigma, h, variance)
            self.K = bordered(self.K, k, 1.0)
            coefficients = np.append(q, -1.0)
            self.Q = bordered(self.Q, np.zeros_like(q), 0.0) + np.outer(coefficients, coefficients) / novelty
            self.basis = np.vstack([self.basis, x])
            h = np.append(h, variance)
        total = variance + self.kernel.noise
        self.mu = self.mu + np.outer(h, error) / total
        self.Sigma = self.Sigma - np.outer(h, h) / total
        if len(self.basis) > self.budget:
            # Squared change of the mean at a row when it is left out and predicted by the others.
            change = (((self.Q @ self.mu) / np.diag(self.Q)[:, None]) ** 2).sum(axis=1)
            self._drop(int(np.argmin(change)))
        self.mu = np.sqrt(self.forgetting) * self.mu
        self.Sigma = self.forgetting * self.Sigma + (1.0 - self.forgetting) * self.K

    def _drop(self, row: int) -> None:
        rest = np.delete(np.arange(len(self.basis)), row)
        square = np.ix_(rest, rest)
        self.basis, self.mu, self.Sigma, self.K = self.basis[rest], self.mu[rest], self.Sigma[square], self.K[square]
        column = self.Q[rest, row]
        self.Q = self.Q[square] - np.outer(column, column) / self.Q[row, row]


def bordered(A: Array, b: Array, c: float) -> Array:
    """The symmetric matrix ``[[A, b], [b', c]]``.

    Examples
    --------
    >>> bordered(np.eye(1), np.array([2.0]), 3.0).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    m = len(b)
    whole = np.empty((m + 1, m + 1))
    whole[:m, :m], whole[m, :m], whole[:m, m], whole[m, m] = A, b, b, c
    return whole


class TunedTracker:
    """`Tracker` that finds its own kernel.

    Tuned on the last ``TUNING_ROWS`` rows when it has seen 25, 50, 100, 200 rows and then every 500. A new kernel has a
    new basis: the last ``KEPT`` rows, as long as the memory of the forgetting, are learnt again.
    """

    KEPT, TUNING_ROWS = 1000, 200

    def __init__(self, n_inputs: int, n_outputs: int, budget: int = 100, forgetting: float = 0.999) -> None:
        self.rows: deque[tuple[Array, Array]] = deque(maxlen=self.KEPT)
        self.seen, self.offset = 0, np.zeros(n_outputs)
        self.tracker = Tracker(Kernel.default(n_inputs), n_outputs, budget, forgetting)

    def predict(self, x: Array) -> tuple[Array, float]:
        """Posterior mean and variance."""
        mean, variance = self.tracker.predict(x)
        return self.offset + mean, variance

    def learn(self, x: Array, y: Array) -> None:
        """Update, now and then with a new kernel."""
        self.rows.append((x, y))
        self.seen += 1
        if self.seen in (25, 50, 100) or self.seen % 500 == 200:
            self._tune()
        else:
            self.tracker.learn(x, y - self.offset)

    def _tune(self) -> None:
        self.offset = np.mean([y for _, y in self.rows], axis=0)
        recent = list(islice(self.rows, max(len(self.rows) - self.TUNING_ROWS, 0), None))
        X, Y = np.array([x for x, _ in recent]), np.array([y for _, y in recent])
        old = self.tracker
        kernel = tuned(old.kernel, X, Y - self.offset)
        self.tracker = Tracker(kernel, len(self.offset), old.budget, old.forgetting)
        for x, y in self.rows:
            self.tracker.learn(x, y - self.offset)


# ---------------------------------------------------------------------- by name


def bayesian_linear(n_inputs: int, n_outputs: int, seed: int) -> Rival:
    """River's Bayesian linear regression with forgetting, one per target."""
    from river.linear_model import BayesianLinearRegression

    return OnePerTarget(lambda: BayesianLinearRegression(beta=500.0, smoothing=0.998), n_outputs)


def adaptive_tree(n_inputs: int, n_outputs: int, seed: int) -> Rival:
    """River's adaptive Hoeffding tree, one per target."""
    from river.tree import HoeffdingAdaptiveTreeRegressor

    return OnePerTarget(lambda: HoeffdingAdaptiveTreeRegressor(seed=seed), n_outputs)


def isoup_tree(n_inputs: int, n_outputs: int, seed: int) -> Rival:
    """River's tree for many targets."""
    from river.tree import ISOUPTreeRegressor

    return ManyTargets(ISOUPTreeRegressor(), n_outputs)


def adaptive_forest(n_inputs: int, n_outputs: int, seed: int) -> Rival:
    """River's adaptive random forest, one per target."""
    from river.forest import ARFRegressor

    return OnePerTarget(lambda: ARFRegressor(seed=seed), n_outputs)


RIVALS: dict[str, Callable[[int, int, int], Rival]] = {
    "last_value": lambda n_inputs, n_outputs, seed: LastValue(n_outputs),
    "ridge": lambda n_inputs, n_outputs, seed: Ridge(n_inputs, n_outputs),
    "rls_lags": lambda n_inputs, n_outputs, seed: RidgeOnLags(n_inputs, n_outputs, 1.0),
    "rls_lags_forgetting": lambda n_inputs, n_outputs, seed: RidgeOnLags(n_inputs, n_outputs, 0.998),
    "lightgbm": Boosted,
    "bayesian_linear": bayesian_linear,
    "adaptive_tree": adaptive_tree,
    "isoup_tree": isoup_tree,
    "adaptive_forest": adaptive_forest,
    "nearest": lambda n_inputs, n_outputs, seed: Nearest(n_outputs),
    "window_gp": lambda n_inputs, n_outputs, seed: WindowGP(n_inputs, n_outputs),
    "krls_t": lambda n_inputs, n_outputs, seed: TunedTracker(n_inputs, n_outputs),
    "krls_t_200": lambda n_inputs, n_outputs, seed: TunedTracker(n_inputs, n_outputs, budget=200),
}
