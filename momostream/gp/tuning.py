"""Hyper-parameters by maximum a posteriori.

The objective with its analytic gradient, L-BFGS for `fit`, and an L-BFGS that stops after every gradient for streams.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from threadpoolctl import ThreadpoolController

from momostream._checks import check_array
from momostream.gp.covariance import LEAST_NOISE, Covariance, Prior, input_std
from momostream.gp.scaling import standardisation
from momostream.kernels.covariance import add_linear_gradient, gram_and_slope, likelihood_gradient
from momostream.kernels.likelihood import negative_posterior, profiled_likelihood, search_direction
from momostream.kernels.scalar import NU0, SCALE0

__all__ = ["ResumableTuner", "TuningJob", "log_likelihood", "tune"]

Array = NDArray[np.float64]

# Objective of hyper-parameters whose covariance cannot be factorised: the line search steps back from it.
HOPELESS = 1e10
# Rows up to which a gradient is one call of compiled code; on more LAPACK is as fast, and soon faster.
FEW = 192


def log_likelihood(
    covariance: Covariance, theta: Array, X: Array, R: Array, signal: Array | None = None
) -> tuple[float, Array]:
    """Log marginal likelihood of independent outputs that share a covariance, and its gradient.

    Parameters
    ----------
    covariance, theta
        The covariance function and its packed log-parameters.
    X, R
        Rows ``(n, n_inputs)`` and zero-mean targets ``(n, n_targets)``, no missing values.
    signal
        Signal variance of each output, shape ``(n_targets,)``. By default the variances are profiled out one by
        one under their prior: the full matrix evidence is ruled by near-null combinations of outputs.

    Returns
    -------
    value
        The log marginal likelihood; up to a constant when the signal is profiled out.
    gradient
        With respect to ``theta``, and then to the log of each signal variance if these are given.

    Raises
    ------
    numpy.linalg.LinAlgError
        The covariance is not positive definite.

    Notes
    -----
    Costs O(n^3) once and O(n^2 (n_inputs + n_targets)).
    """
    n, P = R.shape
    D = X.shape[1]
    noise, linear = covariance.noise(theta), covariance.linear_variance(theta)
    T = np.ascontiguousarray((X * covariance.inverse_lengths(theta)).T)
    K, G = np.empty((n, n)), np.empty((n, n))
    gradient = np.empty(covariance.n_parameters(D))
    if signal is None and n <= FEW:
        A, scratch = np.empty((P, n)), np.empty(n)
        targets = np.ascontiguousarray(R.T)
        value = profiled_likelihood(covariance.code, linear, noise, T, targets, K, G, A, scratch, gradient)
        if math.isnan(value):
            raise np.linalg.LinAlgError("the covariance is not positive definite")
        gradient[D] *= math.exp(theta[D])
        return value, gradient
    gram_and_slope(covariance.code, linear, noise, T, K, G)
    # C-order memory read as Fortran's transpose: the upper factor there is our lower one.
    U, failed = lapack.dpotrf(K.T, lower=0, overwrite_a=1, clean=0)
    # A NaN passes the test for positive pivots of some LAPACKs.
    if failed or not np.isfinite(np.diag(U)).all():
        raise np.linalg.LinAlgError("the covariance is not positive definite")
    log_det = 2.0 * float(np.log(np.diag(U)).sum())
    A, _ = lapack.dpotrs(U, R, lower=0)
    inverse, _ = lapack.dpotri(U, lower=0, overwrite_c=1)
    inverse = inverse.T  # lower triangle valid, C order
    quadratic = np.einsum("ij,ij->j", R, A)
    if signal is None:
        scales = (quadratic + NU0 * SCALE0) / (n + NU0)
        value = -0.5 * (n + NU0) * float(np.log(scales).sum()) - 0.5 * P * log_det
    else:
        scales = signal
        value = -0.5 * float((quadratic / scales + n * np.log(2.0 * np.pi * scales)).sum()) - 0.5 * P * log_det
    # d value / d K = -W / 2 with W = P K^-1 - sum_p a_p a_p' / scale_p.
    A, scratch = np.ascontiguousarray((A / np.sqrt(scales)).T), np.empty(n)
    likelihood_gradient(inverse, A, float(P), G, T, scratch, gradient)
    if covariance.linear:
        add_linear_gradient(inverse, A, float(P), linear, T, scratch, gradient)
    gradient[D] *= math.exp(theta[D])
    gradient *= -1.0
    if signal is not None:
        gradient = np.concatenate([gradient, 0.5 * (quadratic / scales - n)])
    return value, gradient


def _objective(covariance: Covariance, theta: Array, X: Array, R: Array, prior: Prior) -> tuple[float, Array]:
    """Negative log posterior of ``theta``, up to a constant, and its gradient."""
    away = (theta - prior.centre) / prior.width
    try:
        value, gradient = log_likelihood(covariance, theta, X, R)
    except np.linalg.LinAlgError:
        return HOPELESS, np.zeros_like(theta)
    return 0.5 * float(away @ away) - value, away / prior.width - gradient


def tune(
    covariance: Covariance,
    start: Array,
    X: Array,
    R: Array,
    prior: Prior,
    max_iterations: int,
) -> tuple[Array, float]:
    """Maximise log likelihood plus log prior by L-BFGS from ``start``.

    Returns
    -------
    theta
        The best hyper-parameters found.
    objective
        Their negative log posterior, up to a constant.
    """

    def objective(theta: Array) -> tuple[float, Array]:
        return _objective(covariance, theta, X, R, prior)

    start = np.clip(start, prior.lower, prior.upper)
    if max_iterations == 0:
        # L-BFGS looks at its limit only after the first iteration.
        return start, objective(start)[0]
    # Here: its import takes a tenth of the start, and a model on a stream does without.
    from scipy.optimize import minimize

    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(prior.lower, prior.upper, strict=True)),
        options={"maxiter": max_iterations},
    )
    return np.asarray(found.x, dtype=np.float64), float(found.fun)


class ResumableTuner:
    """L-BFGS within a box that does one gradient evaluation per call.

    Steps that do not go down far enough are shortened; a step that gains less than `ENOUGH` ends the search, because
    less than a tenth of a nat is not worth a gradient.

    Parameters
    ----------
    covariance
        The covariance function.
    X, R
        Rows ``(n, n_inputs)`` and standardised targets ``(n, n_targets)``, no missing values.
    prior
        Prior and bounds of the hyper-parameters.
    start
        Where to start.
    max_evaluations
        Gradients at most.

    Attributes
    ----------
    theta
        Best hyper-parameters so far.
    n_left
        Gradients left; 0 when the search is over.

    Examples
    --------
    >>> covariance = Covariance.parse("rbf")
    >>> X = np.linspace(-3.0, 3.0, 40)[:, None]
    >>> prior = covariance.prior(np.ones(1))
    >>> tuner = ResumableTuner(covariance, X, np.sin(X), prior, prior.centre, max_evaluations=30)
    >>> while tuner.n_left:
    ...     tuner.advance()
    >>> print(np.exp(tuner.theta[:1]).round(1))
    [1.8]
    """

    ENOUGH = 0.1
    MEMORY = 6
    LONGEST_STEP = 2.0

    def __init__(
        self, covariance: Covariance, X: Array, R: Array, prior: Prior, start: Array, max_evaluations: int
    ) -> None:
        self.covariance, self.R, self.prior = covariance, R, prior
        # For compiled code, which takes rows and targets in C order.
        self.X, self._targets = np.ascontiguousarray(X), np.ascontiguousarray(R.T)
        self.theta = np.clip(start, prior.lower, prior.upper)
        self.n_left = max_evaluations
        self._value = np.inf
        self._gradient = np.zeros_like(self.theta)
        self._direction = np.zeros_like(self.theta)
        self._step = 0.0
        # The last moves and turns of the gradient along them, shape ``(at most MEMORY, n_parameters)``.
        self._moves = self._turns = np.empty((0, len(self.theta)))

    def advance(self) -> None:
        """Evaluate one gradient and decide on the next point."""
        # As `np.clip`, in a third of the time.
        trial = np.minimum(np.maximum(self.theta + self._step * self._direction, self.prior.lower), self.prior.upper)
        value, gradient = self._evaluate(trial)
        self.n_left -= 1
        move = trial - self.theta
        if value <= self._value + 1e-4 * float(self._gradient @ move) or math.isinf(self._value):
            if math.isfinite(self._value):
                turn = gradient - self._gradient
                if move @ turn > 1e-8 * math.sqrt((move @ move) * (turn @ turn)):
                    self._moves = np.concatenate([self._moves, move[None]])[-self.MEMORY :]
                    self._turns = np.concatenate([self._turns, turn[None]])[-self.MEMORY :]
                if self._value - value < self.ENOUGH:
                    self.n_left = 0
            self.theta, self._value, self._gradient = trial, value, gradient
            self._turn()
        else:
            self._step *= 0.3
            if self._step < 0.01:
                if not len(self._moves):
                    self.n_left = 0
                self._forget()
                self._turn()
        if max(map(abs, (self._step * self._direction).tolist()), default=0.0) < 1e-3:
            self.n_left = 0

    def _evaluate(self, theta: Array) -> tuple[float, Array]:
        """`_objective`, in one compiled call where rows are few."""
        covariance, (n, D), prior = self.covariance, self.X.shape, self.prior
        if n > FEW:
            return _objective(covariance, theta, self.X, self.R, prior)
        gradient, P = np.empty_like(theta), len(self._targets)
        value: float = negative_posterior(
            covariance.code, covariance.linear, LEAST_NOISE, theta, self.X, self._targets, prior.centre, prior.width,
            np.empty((D, n)), np.empty((n, n)), np.empty((n, n)), np.empty((P, n)), np.empty(n), gradient,
        )  # fmt: skip
        return (HOPELESS, np.zeros_like(theta)) if math.isnan(value) else (value, gradient)

    def _turn(self) -> None:
        """The next direction: the two-loop recursion over the free parameters."""
        prior, self._direction = self.prior, np.empty_like(self.theta)
        if not search_direction(
            prior.lower, prior.upper, self.theta, self._gradient, self._moves, self._turns, self.LONGEST_STEP,
            np.empty(len(self._moves)), self._direction,
        ):  # fmt: skip
            self._forget()
        self._step = 1.0

    def _forget(self) -> None:
        self._moves = self._turns = self._moves[:0]

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        prior = self.prior
        return {
            "X": self.X, "R": self.R, "theta": self.theta, "n_left": self.n_left, "value": self._value,
            "gradient": self._gradient, "direction": self._direction, "step": self._step,
            "moves": list(self._moves), "turns": list(self._turns),
            "prior": [prior.centre, prior.width, prior.lower, prior.upper],
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: dict[str, Any], covariance: Covariance) -> ResumableTuner:
        """Restore a tuner from `state`."""
        # Compiled code checks no bounds.
        for part in (
            *state["prior"],
            *(state[name] for name in ("gradient", "direction")),
            *state["moves"],
            *state["turns"],
        ):
            check_array("tuner", part, state["theta"].shape)
        if len(state["moves"]) != len(state["turns"]):
            raise ValueError("tuner / moves has another length than tuner / turns")
        tuner = cls(covariance, state["X"], state["R"], Prior(*state["prior"]), state["theta"], state["n_left"])
        tuner.theta, tuner._value, tuner._gradient = state["theta"], state["value"], state["gradient"]
        tuner._direction, tuner._step = state["direction"], state["step"]
        tuner._moves, tuner._turns = (
            np.reshape(np.array(state[name], dtype=np.float64), (-1, len(tuner.theta))) for name in ("moves", "turns")
        )
        return tuner


@dataclass(frozen=True)
class TuningJob:
    """Everything one region's tuning needs, small enough to send to another process.

    Attributes
    ----------
    covariance
        The covariance function.
    X, Y
        Rows and targets; NaN is a missing target.
    prior
        Prior and bounds, from all rows of the region.
    start
        Where to start, for example the parent's hyper-parameters; None is the centre of the prior.
    max_iterations
        L-BFGS iterations per start.
    restarts
        Further starts drawn from the prior; the best end wins.
    seed
        For the restarts.
    """

    covariance: Covariance
    X: Array
    Y: Array
    prior: Prior
    start: Array | None
    max_iterations: int
    restarts: int
    seed: np.random.SeedSequence

    @classmethod
    def draw(
        cls,
        covariance: Covariance,
        X: Array,
        Y: Array,
        start: Array | None,
        *,
        max_rows: int,
        max_iterations: int,
        restarts: int,
        random_start: bool,
        seed: np.random.SeedSequence,
    ) -> TuningJob:
        """Choose at most ``max_rows`` rows without replacement."""
        prior = covariance.prior(input_std(X))
        rng = np.random.default_rng(seed)
        if random_start:
            start = rng.normal(prior.centre, 0.5 * prior.width)
        if len(X) > max_rows:
            chosen = np.sort(rng.choice(len(X), max_rows, replace=False))
            X, Y = X[chosen], Y[chosen]
        return cls(covariance, X, Y, prior, start, max_iterations, restarts, seed)

    def run(self) -> Array:
        """Return the tuned hyper-parameters. One BLAS thread, so that floats do not depend on who runs it."""
        prior = self.prior
        start = prior.centre if self.start is None else self.start
        informative = ~np.isnan(self.Y).all(axis=1)
        X, Y = self.X[informative], self.Y[informative]
        if len(X) < 2:
            return start
        offset, scale = standardisation(Y)
        R = (Y - offset) / scale
        R[np.isnan(R)] = 0.0
        # A copy: spawning changes the sequence, and a second run would draw other starts.
        rng = np.random.default_rng(deepcopy(self.seed).spawn(1)[0])
        starts = [start] + [rng.normal(prior.centre, prior.width) for _ in range(self.restarts)]
        X = np.ascontiguousarray(X - X.mean(axis=0))
        with _blas().limit(limits=1):
            ends = [tune(self.covariance, theta, X, R, prior, self.max_iterations) for theta in starts]
        return min(ends, key=lambda end: end[1])[0]


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries of this process; finding them takes milliseconds, so it is done once."""
    return ThreadpoolController()
