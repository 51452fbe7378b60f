"""From many forecasts to one distribution: a blend of least square error, its variance, tails and correlations.

`Blend` finds, for each step and series, the weights of the experts that would have had the least square error.
`BlendMixture` turns the blend into a distribution: a mixture of Student-t's around the blend and around the last value,
whose variances have a short, a long or a very long memory; weights, tails and scales are learnt from forecasts as they
were made. `StepSeriesCorrelation` holds the correlation between steps and between series, and `JointForecast` is the
distribution of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from momostream.distributions.planes import LOCATION, SCALE
from momostream.horizon.levels import LevelScale
from momostream.kernels.blend import blend_common, blend_learn, blend_solve, blend_trials
from momostream.kernels.forecasts import blend_mean, correlation_learn, deviations, mixture_learn, mixture_planes
from momostream.kernels.horizon import exchange
from momostream.kernels.mixture import mix_rows
from momostream.kernels.scalar import UNKNOWN
from momostream.kernels.stack import EXACT, SCORE_CLIP
from momostream.stream.stack import TAIL_DISCOUNT, TAILS, USUAL_STEP, cdf_tables, tail_candidates

__all__ = ["Blend", "BlendMixture", "JointForecast", "StepSeriesCorrelation"]

Array = NDArray[np.float64]

# Memory of the errors of the experts, in rows, and how much longer it is for each step: errors of forecasts that
# overlap are much the same. Steps towards the optimum each time.
MEMORY, MEMORY_PER_STEP, N_STEPS = 3000.0, 30.0, 12
# Caution against trusting one expert is worth so many trials, and at most this part of its square error.
CAUTION, MOST_CAUTION = 10.0, 0.3
# Experts count if they have gained more on the last value than so many times what chance gains; the demand fades as the
# square of the trials, and is half of that after so many.
PROOF, SETTLED_TRIALS = 2.0, 15.0
# The errors of all series together count as this many rows of each.
COMMON_ROWS = 500.0
# After this many rows, weights move little: those of each series are found at every fourth row only.
SETTLED_ROWS, TURNS = 256, 4

# Components of the mixture: how fast their variances forget, whether they lie at the last value, their first weights.
SPEEDS = (0.97, 0.995, 0.9998, 0.97, 0.995)
# One of them is narrower than its errors are: tails alone cannot say how much more often small errors come.
NARROW, NARROWNESS = 3, 0.3
# At rest it is a lump at the last value: this part of the least change that the series has made is its deviation.
LUMP, LUMP_WIDTH = 3, 0.125
LEAST_SPEED = 0.9
AT_LAST, FIRST_AT_LAST = np.array([0.0, 0.0, 0.0, 1.0, 1.0]), 3
FIRST_WEIGHTS = (0.3, 0.3, 0.3, 0.05, 0.05)
# Components at the last value count for less where they err more than those at the blend; these two, of the same speed,
# are compared.
SHARPNESS, COMPARED_BLEND, COMPARED_LAST = 4.0, 1, 4
FARNESS = 1.0
# The component with the longest memory.
LONGEST = 2
# While a series is constant, the learnt factors of the variances and the log factor of the common scale shrink; not
# below these, for the variances are those of its own errors.
LEAST_FACTOR, LEAST_LOG_SCALE = 0.1, -0.5
# Steps: of the weights and their floor, of the variance factors, of the common scale.
ETA, LEAST_WEIGHT, TAIL_STEP, SCALE_STEP = 0.02, 0.005, 0.003, 0.001
FIRST_TAIL = 2
# Rows at rest after which a series has two distributions: one at rest, and one while it moves.
ENOUGH_RESTS = 30.0

# Memory of the correlations, rows that the prior is worth, and the least eigenvalue of a correlation matrix.
CORRELATION_FORGETTING, PRIOR_ROWS, CORRELATION_FLOOR = 0.998, 2.0, 1e-4


class Blend:
    """Weights of ``n_experts`` forecasts for each step and series, none negative and with sum one.

    The first expert is the last value, and the others count as far as they have proven better. Forecasts of step h
    overlap over h rows, which are fewer independent trials then. Errors of a step come every ``every`` rows.

    Attributes
    ----------
    moments, common
        Discounted second moments of the errors of all experts, and their mean over the series.
    found
        Weights of least square error, shape ``(horizon, n_series, n_experts)``.
    weights
        The same, drawn towards the last value by what chance would gain in so few trials.

    Examples
    --------
    >>> blend = Blend(n_experts=2, horizon=1, n_series=1)
    >>> for error in (1.0, -1.0, 0.5, -0.5, 1.0, -1.0):
    ...     blend.learn(np.array([error, 3.0]).reshape(2, 1, 1))
    >>> bool(blend.weights[0, 0, 0] > 0.8)
    True
    """

    def __init__(self, n_experts: int, horizon: int, n_series: int, every: int = 1) -> None:
        self.moments = np.zeros((horizon, n_series, n_experts, n_experts))
        self.found = np.full((horizon, n_series, n_experts), 0.1 / max(n_experts - 1, 1))
        self.found[:, :, 0] = 0.9
        self.weights = np.zeros_like(self.found)
        self.weights[:, :, 0] = 1.0
        self._forgetting = (1.0 - 1.0 / (MEMORY + MEMORY_PER_STEP * horizon)) ** every
        # Errors of all series together, found from time to time.
        self.common = np.zeros((horizon, n_experts, n_experts))
        self._trials, self._caution, self._error = np.empty(horizon), np.empty(horizon), np.empty(n_experts)
        pooled, nearer = np.empty((2, horizon, n_experts, n_experts))
        self._scratch = pooled, nearer, np.empty((n_experts, n_experts, horizon)), np.empty((3, n_experts + 3, horizon))
        self.n_rows = 0

    def learn(self, errors: Array) -> None:
        """Learn from errors ``(n_experts, horizon, n_series)`` that have become known; NaN where not."""
        self.n_rows += 1
        blend_learn(self.n_rows, self._forgetting, errors, self._error, self.moments)
        blend_trials(
            self.n_rows, self._forgetting, SETTLED_TRIALS, PROOF, CAUTION, MOST_CAUTION, self._trials, self._caution
        )  # fmt: skip
        P, turn = self.moments.shape[1], self.n_rows % TURNS
        start, stop = (0, P) if self.n_rows < SETTLED_ROWS else (turn * P // TURNS, (turn + 1) * P // TURNS)
        shrinkage = COMMON_ROWS / (COMMON_ROWS + self.n_rows) if P > 1 else 0.0
        if shrinkage and (self.n_rows < SETTLED_ROWS or turn == 0):
            blend_common(self.moments, self.common)
        blend_solve(
            start, stop, N_STEPS, self._caution, self._trials, shrinkage, self.common, self.moments, *self._scratch,
            self.found, self.weights,
        )  # fmt: skip

    def mean(self, locations: Array) -> Array:
        """Blended forecasts ``(horizon, n_series)`` from those of the experts ``(n_experts, horizon, n_series)``."""
        mean = np.empty(locations.shape[1:])
        blend_mean(locations, self.weights, mean)
        return mean

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return self.moments.nbytes + self.found.nbytes + self.weights.nbytes + self.common.nbytes

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        arrays = {"moments": self.moments, "found": self.found, "weights": self.weights, "common": self.common}
        return {**{name: array.copy() for name, array in arrays.items()}, "n_rows": self.n_rows}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`."""
        self.moments, self.found, self.weights = (state[name].copy() for name in ("moments", "found", "weights"))
        self.common, self.n_rows = state["common"].copy(), state["n_rows"]


class _LearntArrays:
    """State of a class that learns a few arrays."""

    _ARRAYS: ClassVar[tuple[str, ...]]

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return sum(getattr(self, name).nbytes for name in self._ARRAYS)

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {name: getattr(self, name).copy() for name in self._ARRAYS}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`."""
        for name in self._ARRAYS:
            setattr(self, name, state[name].copy())


class BlendMixture(_LearntArrays):
    """The distribution of each step and series: a mixture of Student-t's around a blend and the last value.

    Values of a step come every ``every`` rows. A distribution has the shape ``(5, n_components, horizon * n_series)``;
    `momostream.distributions.planes` names the first axis, as in `momostream.stream.stack.Stack`.

    A series that has just repeated its value is at rest, and stays there more often than one that moves: all that is
    learnt is learnt for series at rest and for series that move, once a series has been at rest often enough. At rest
    one component is a lump, so that its weight is the probability that the last value comes again.
    """

    _ARRAYS = ("squares", "masses", "mixing", "tails", "outputs", "n_rests")

    n_components = len(SPEEDS)
    #: 1 for components that lie at the last value, wherever the blend is, while a series is at rest.
    stands_still = AT_LAST

    def __init__(self, horizon: int, n_series: int, every: int = 1) -> None:
        self.horizon, self.n_series = horizon, n_series
        self._speeds = np.maximum(np.array(SPEEDS) ** every, LEAST_SPEED)
        M, Q = len(SPEEDS), horizon * n_series
        # The first axis: series that move, and series at rest.
        self.squares, self.masses = np.zeros((2, 2, M, horizon, n_series))
        self.mixing = np.empty((2, 3, M, Q))
        self.mixing[:, 0], self.mixing[:, 1] = np.array(FIRST_WEIGHTS)[:, None], UNKNOWN
        self.mixing[:, 2] = FIRST_TAIL
        self.mixing[1, 2, LUMP] = EXACT
        self.tails = np.zeros((2, 2, M, Q, len(TAILS)))
        self.tails[:, 0] = 1.0
        self.outputs = np.zeros((2, 4, Q))
        self.n_rests = np.zeros(n_series)
        self.levels = LevelScale(horizon, n_series, every)
        self._rates = np.array([ETA, LEAST_WEIGHT, TAIL_STEP, TAIL_DISCOUNT, SCALE_STEP, USUAL_STEP])
        self._likelihood, self._scores = np.empty(M), np.empty(Q)
        self._weights, self._work = np.empty((3, M, Q)), np.empty((mix_rows(M, len(TAILS)), Q))

    def rests(self, n_repeated: Array) -> Array:
        """Which series count as at rest, 1 or 0, given how often each has repeated its value."""
        # A product with itself is the cheapest way to find that all is zero.
        if not n_repeated.dot(n_repeated):
            return np.zeros_like(n_repeated)
        return ((n_repeated > 0.0) & (self.n_rests >= ENOUGH_RESTS)).astype(np.float64)

    def count_rests(self, n_repeated: Array) -> None:
        """Count the series that are at rest; what was learnt so far is the beginning for both."""
        if not n_repeated.dot(n_repeated):
            return
        resting = n_repeated > 0.0
        before, self.n_rests = self.n_rests, self.n_rests + resting
        new = (before < ENOUGH_RESTS) & (self.n_rests >= ENOUGH_RESTS)
        if new.any():
            where = np.tile(new, self.horizon)
            self.squares[1][..., new], self.masses[1][..., new] = self.squares[0][..., new], self.masses[0][..., new]
            self.mixing[1][..., where], self.outputs[1][..., where] = (
                self.mixing[0][..., where],
                self.outputs[0][..., where],
            )
            self.tails[1][:, :, where] = self.tails[0][:, :, where]
            self.mixing[1, 2, LUMP] = EXACT

    def _exchange(self, rests: Array) -> None:
        """Exchange what belongs to rest and to motion, where ``rests`` ``(horizon, n_series)`` is positive.

        The first entries of all arrays are then those in force; the same call again puts all back.
        """
        flat = rests.ravel()
        if flat.dot(flat):
            exchange(rests, self.squares, self.masses, self.mixing, self.tails, self.outputs)

    def planes(
        self, blend: Array, middle: Array, last: Array, n_missing: Array, rests: Array, least_change: Array
    ) -> Array:
        """The distribution around forecasts ``blend`` ``(horizon, n_series)`` and the last values.

        A series whose last value is ``n_missing`` rows old is as uncertain as if it were forecast from there.
        ``least_change`` is the least change that each series has made, 0 if it has made none.
        """
        H, P = self.horizon, self.n_series
        blend, middle = np.ascontiguousarray(blend), np.ascontiguousarray(middle)
        everywhere = np.empty((H, P))
        everywhere[:] = rests
        self._exchange(everywhere)
        squares, masses, tails, outputs = self.squares[0], self.masses[0], self.tails[0], self.outputs[0]
        planes = np.empty((5, len(SPEEDS), H * P))
        mixture_planes(
            FIRST_AT_LAST, COMPARED_BLEND, COMPARED_LAST, SHARPNESS, FARNESS, blend, middle, last, rests,
            LUMP_WIDTH * least_change, self._stds(squares, masses, outputs, last, n_missing),
            self.levels.factors(blend), tail_candidates(), self.mixing[0], tails, outputs, self._weights, planes,
            self._work[:3],
        )  # fmt: skip
        planes[SCALE, NARROW] *= NARROWNESS
        self._exchange(everywhere)
        return planes

    def _stds(self, squares: Array, masses: Array, outputs: Array, last: Array, n_missing: Array) -> Array:
        """Standard deviations of the components, shape ``(n_components, horizon, n_series)``."""
        H = self.horizon
        stds = np.empty_like(squares)
        if deviations(squares, masses, stds):
            stds = self._guessed(stds, masses[0] > 0.0, last)
        if n_missing.dot(n_missing):
            steps = np.arange(1, H + 1)[:, None] + n_missing.astype(np.int64)
            here = stds[:, np.minimum(steps, H) - 1, np.arange(self.n_series)]
            # Beyond the last step as for a random walk, but not beyond the deviation of the series itself.
            most = np.maximum(here, np.sqrt(outputs[3]).reshape(here.shape[1:]))
            stds = np.minimum(here * np.sqrt(np.maximum(steps / H, 1.0)), most)
        return np.ascontiguousarray(stds)

    def _guessed(self, stds: Array, known: NDArray[np.bool_], last: Array) -> Array:
        """Guess steps without an error yet from the nearest that has one; from the size of the value if none has."""
        steps = np.arange(self.horizon)[:, None]
        nearest = np.maximum.accumulate(np.where(known, steps, -1), axis=0)
        nearest = np.where(nearest < 0, known.argmax(axis=0), nearest)
        base = np.where(
            known.any(axis=0), stds[:, nearest, np.arange(self.n_series)], np.where(last == 0.0, 1.0, np.abs(last))
        )
        return np.asarray(base * np.sqrt((steps + 1.0) / (nearest + 1.0)))

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`, also from that of a version without lumps."""
        super().restore(state)
        self.mixing[1, 2, LUMP] = EXACT

    @property
    def learnt_tails(self) -> Array:
        """Numbers of the tails of all components that have one: a lump has none."""
        return np.concatenate([self.mixing[0, 2], np.delete(self.mixing[1, 2], LUMP, axis=0)])

    def learn(self, y: Array, planes: Array, rests: Array) -> Array:
        """Learn values ``(horizon, n_series)`` of the steps of one distribution each; returns their normal scores.

        ``rests`` ``(horizon, n_series)`` says which series were at rest when the distribution was made.
        """
        shape = (self.horizon, self.n_series)
        self._exchange(rests)
        blend = planes[LOCATION, 0].reshape(shape)
        error, usual = np.empty(shape), np.empty(shape)
        mixture_learn(
            self._speeds, self._rates, LONGEST, LEAST_FACTOR, LEAST_LOG_SCALE, y, self.levels.factors(blend),
            tail_candidates(), cdf_tables(), self.squares[0], self.masses[0], self.mixing[0], self.tails[0],
            self.outputs[0], planes, error, usual, self._likelihood, self._work, self._scores,
        )  # fmt: skip
        self.levels.learn(blend, error, usual)
        self._exchange(rests)
        return self._scores.reshape(shape)


class StepSeriesCorrelation(_LearntArrays):
    """Correlation of forecast errors between steps and between series; that of two values is the product.

    Learnt from the normal scores of whole forecasts. The product needs few of them: a free correlation of 24 steps and
    7 series would have 14,028 entries.
    """

    _ARRAYS = ("steps", "n_steps", "series", "n_series")

    def __init__(self, horizon: int, n_series: int) -> None:
        self.steps, self.n_steps = np.zeros((2, horizon, horizon))
        self.series, self.n_series = np.zeros((2, n_series, n_series))

    def learn(self, scores: Array) -> None:
        """Learn from normal scores ``(horizon, n_series)``; NaN is missing."""
        z, known = np.empty((2, *scores.shape))
        correlation_learn(
            CORRELATION_FORGETTING, SCORE_CLIP, scores, self.steps, self.n_steps, self.series, self.n_series, z, known
        )

    def copy(self) -> StepSeriesCorrelation:
        """A copy, which stays as it is while this one learns."""
        other = StepSeriesCorrelation.__new__(StepSeriesCorrelation)
        other.restore(self.__dict__)
        return other

    @property
    def between_steps(self) -> Array:
        """Correlation matrix of the steps; neighbours are correlated as long as nothing is known."""
        near = np.abs(np.subtract.outer(np.arange(len(self.steps)), np.arange(len(self.steps))))
        return _correlation(self.steps, self.n_steps, 0.8**near)

    @property
    def between_series(self) -> Array:
        """Correlation matrix of the series."""
        return _correlation(self.series, self.n_series, np.eye(len(self.series)))


@dataclass(frozen=True)
class JointForecast:
    """The distribution of all steps and series.

    Attributes
    ----------
    planes
        Location, standard deviation, scale, degrees of freedom and weight, shape ``(5, n_components, horizon,
        n_series)``.
    correlation
        Between the values.
    means
        Forecasts of least squared error, shape ``(horizon, n_series)``; None: the means of the mixtures.
    """

    planes: Array
    correlation: StepSeriesCorrelation
    means: Array | None = None

    @cached_property
    def between_steps(self) -> Array:
        """Correlation of the steps; that of two values is its entry times that of `between_series`."""
        return self.correlation.between_steps

    @cached_property
    def between_series(self) -> Array:
        """Correlation of the series."""
        return self.correlation.between_series


def _correlation(moments: Array, counts: Array, prior: Array) -> Array:
    """A correlation matrix that is positive definite also where pairs were seen together unequally often."""
    C = (moments + PRIOR_ROWS * prior) / (counts + PRIOR_ROWS)
    size = np.sqrt(np.diag(C))
    R = C / np.outer(size, size)
    values, vectors = np.linalg.eigh(R)
    if values[0] < CORRELATION_FLOOR:
        R = (vectors * np.maximum(values, CORRELATION_FLOOR)) @ vectors.T
        size = np.sqrt(np.diag(R))
        R = R / np.outer(size, size)
    return np.asarray(R)
