"""From many forecasts to one distribution: a blend of least square error, its spread, tails and correlations.

`Blend` finds, for each step and series, the mixture of experts that would have had the least square error. `Outlook`
turns the blend into a distribution: a mixture of Student-t's around the blend and around the last value, each with
spreads that remember short, long or very long; weights, tails and scales are learnt from forecasts as they were made.
`Ties` holds the correlation between steps and between series.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.kernels.horizon import blend_learn, blend_solve, members_learn
from momostream.kernels.scalar import NU0, UNKNOWN
from momostream.kernels.stack import SCORE_CLIP, stack_learn, stack_predict
from momostream.stream.stack import TAIL_DISCOUNT, TAILS, USUAL_STEP, cdf_tables, tail_candidates

__all__ = ["Blend", "Outlook", "Ties"]

Array = NDArray[np.float64]

# Memory of the errors behind the blend, in rows, and how much longer it is for each step: errors of forecasts that
# overlap say the same thing again and again. Its caution; steps towards the optimum per row.
MEMORY, MEMORY_PER_STEP, CAUTION, STEPS_PER_ROW = 400.0, 30.0, 0.1, 2

# Members of the distribution: how fast their spreads forget, whether they stand at the last value, their first weights.
SPEEDS = (0.97, 0.995, 0.9998, 0.97, 0.995)
LEAST_SPEED = 0.9
AT_LAST = np.array([0.0, 0.0, 0.0, 1.0, 1.0])
FIRST_WEIGHTS = (0.3, 0.3, 0.3, 0.05, 0.05)
# Members at the last value count for less where they err more than the blend; compared at the middle speed.
SHARPNESS, BLEND_MEMBER, LAST_MEMBER = 4.0, 1, 4
# A series that stands still is no reason to distrust spreads that are its own errors: factors of the variances and log
# factors of the common scale are not believed to be smaller.
LEAST_FACTOR, LEAST_LOG_SCALE = 0.1, -0.5
# Steps: of the weights and their floor, of the variance factors, of the common scale.
ETA, LEAST_WEIGHT, TAIL_STEP, SCALE_STEP = 0.02, 0.005, 0.003, 0.001
FIRST_TAIL = 2

# Memory of the correlations, rows that the prior is worth, and what is left of a perfect correlation.
TIES_FORGETTING, PRIOR_ROWS, CORRELATION_FLOOR = 0.998, 2.0, 1e-4


class Blend:
    """Weights of ``n_experts`` forecasts for each step and series, positive and with sum one.

    Of each step, errors come at ``every`` so many rows.

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
        self.weights = np.full((horizon, n_series, n_experts), 1.0 / n_experts)
        self._forgetting = (1.0 - 1.0 / (MEMORY + MEMORY_PER_STEP * horizon)) ** every
        self._pull = np.empty(n_experts)
        self.n_rows = 0

    def learn(self, errors: Array) -> None:
        """Learn from errors ``(n_experts, horizon, n_series)`` that have become known; NaN where not."""
        self.n_rows += 1
        blend_learn(self.n_rows, self._forgetting, errors, self.moments)
        blend_solve(STEPS_PER_ROW, CAUTION, self.moments, self._pull, self.weights)

    def mean(self, locations: Array) -> Array:
        """Blended forecasts ``(horizon, n_series)`` from those of the experts ``(n_experts, horizon, n_series)``."""
        return np.einsum("khp,hpk->hp", locations, self.weights)

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return self.moments.nbytes + self.weights.nbytes

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {"moments": self.moments.copy(), "weights": self.weights.copy(), "n_rows": self.n_rows}

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `state` was taken from."""
        self.moments, self.weights, self.n_rows = state["moments"].copy(), state["weights"].copy(), state["n_rows"]


class _Arrays:
    """What is learnt is a few arrays."""

    _ARRAYS: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return sum(getattr(self, name).nbytes for name in self._ARRAYS)

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {name: getattr(self, name).copy() for name in self._ARRAYS}

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `state` was taken from."""
        for name in self._ARRAYS:
            setattr(self, name, state[name].copy())


class Outlook(_Arrays):
    """The distribution of each step and series around a blend and the last value.

    Of each step, values come at ``every`` so many rows.

    Distributions have the shape ``(5, 5, horizon * n_series)``: location, spread, scale, degrees of freedom and weight
    of each member and output, as in `momostream.stream.stack.Stack`.
    """

    _ARRAYS = ("squares", "masses", "mixing", "tails", "outputs")

    #: Members that stand at the last value, whatever the blend says.
    stands_still = AT_LAST

    def __init__(self, horizon: int, n_series: int, every: int = 1) -> None:
        self.horizon, self.n_series = horizon, n_series
        self._speeds = np.maximum(np.array(SPEEDS) ** every, LEAST_SPEED)
        M, Q = len(SPEEDS), horizon * n_series
        self.squares, self.masses = np.zeros((2, M, horizon, n_series))
        self.mixing = np.empty((3, M, Q))
        self.mixing[0], self.mixing[1] = np.array(FIRST_WEIGHTS)[:, None], UNKNOWN
        self.mixing[2] = FIRST_TAIL
        self.tails = np.zeros((2, M, Q, len(TAILS)))
        self.tails[0] = 1.0
        self.outputs = np.zeros((4, Q))
        self._scratch()

    def _scratch(self) -> None:
        M, Q = self.mixing.shape[1:]
        self._rates = np.array([ETA, LEAST_WEIGHT, TAIL_STEP, TAIL_DISCOUNT, SCALE_STEP, USUAL_STEP])
        self._likelihood, self._scores, self._mean = np.empty(M), np.empty(Q), np.empty(Q)

    def planes(self, blend: Array, last: Array, n_missing: Array) -> Array:
        """The distribution around forecasts ``blend`` ``(horizon, n_series)`` and the last values.

        A series whose last value is ``n_missing`` rows old is as uncertain as if it were forecast from there.
        """
        H, P = self.horizon, self.n_series
        planes = np.empty((5, len(SPEEDS), H * P))
        planes[0] = np.where(AT_LAST[:, None, None] > 0.0, last, blend).reshape(len(SPEEDS), -1)
        # Nobody is sure altogether, not even of a constant.
        spreads = np.maximum(self._spreads(last, n_missing), 1e-9 * np.abs(last) + 1e-100)
        planes[1] = spreads.reshape(len(SPEEDS), -1)
        mixing = self.mixing.copy()
        better = planes[1, BLEND_MEMBER] / np.maximum(planes[1, LAST_MEMBER], 1e-300)
        mixing[0, 3:] *= np.minimum(better, 1.0) ** SHARPNESS
        stack_predict(0.0, tail_candidates(), mixing, self.tails, self.outputs, planes, self._mean)
        return planes

    def _spreads(self, last: Array, n_missing: Array) -> Array:
        H = self.horizon
        with np.errstate(divide="ignore", invalid="ignore"):
            # Few residuals say little about the next: wider by as much as a Student-t of so few is.
            spreads = np.sqrt(self.squares / self.masses * (1.0 + NU0 / self.masses))
        if not self.masses[0].all():
            spreads = self._guessed(spreads, last)
        if n_missing.any():
            steps = np.arange(1, H + 1)[:, None] + n_missing.astype(np.int64)
            place = np.minimum(steps, H) - 1
            here = spreads[:, place, np.arange(self.n_series)]
            # Beyond the last step like a random walk, but no further than the series itself goes.
            most = np.maximum(here, np.sqrt(self.outputs[3]).reshape(here.shape[1:]))
            spreads = np.minimum(here * np.sqrt(np.maximum(steps / H, 1.0)), most)
        return np.asarray(spreads)

    def _guessed(self, spreads: Array, last: Array) -> Array:
        """Steps without an error yet are guessed from the nearest that has one; the size of a value if none has."""
        known = self.masses[0] > 0.0
        steps = np.arange(self.horizon)[:, None]
        nearest = np.maximum.accumulate(np.where(known, steps, -1), axis=0)
        nearest = np.where(nearest < 0, known.argmax(axis=0), nearest)
        base = np.where(known.any(axis=0), spreads[:, nearest, np.arange(self.n_series)], np.abs(last) + 1.0)
        return np.asarray(base * np.sqrt((steps + 1.0) / (nearest + 1.0)))

    def learn(self, y: Array, planes: Array) -> Array:
        """Learn values ``(horizon, n_series)`` of the steps of one distribution each; returns their normal scores."""
        shape = (-1, self.horizon, self.n_series)
        members_learn(self._speeds, y - planes[0].reshape(shape), self.squares, self.masses)
        stack_learn(
            self._rates, y.ravel(), tail_candidates(), cdf_tables(), self.mixing, self.tails, self.outputs, planes,
            self._likelihood, self._scores,
        )  # fmt: skip
        np.maximum(self.tails[0], LEAST_FACTOR, out=self.tails[0])
        np.maximum(self.outputs[0], LEAST_LOG_SCALE, out=self.outputs[0])
        return self._scores.reshape(shape[1:])


class Ties(_Arrays):
    """Correlation of forecast errors between steps and between series; that of two values is the product.

    Learnt from the normal scores of whole forecasts. With structure there is much to learn from each of them: a free
    correlation of 24 steps and 7 series would have 14,028 entries.
    """

    _ARRAYS = ("steps", "n_steps", "series", "n_series")

    def __init__(self, horizon: int, n_series: int) -> None:
        self.steps, self.n_steps = np.zeros((2, horizon, horizon))
        self.series, self.n_series = np.zeros((2, n_series, n_series))

    def learn(self, scores: Array) -> None:
        """Learn from normal scores ``(horizon, n_series)``; NaN is missing."""
        seen = ~np.isnan(scores)
        z = np.where(seen, np.clip(scores, -SCORE_CLIP, SCORE_CLIP), 0.0)
        known = seen.astype(np.float64)
        for moments, counts, a, b in (
            (self.steps, self.n_steps, z, known),
            (self.series, self.n_series, z.T, known.T),
        ):
            moments *= TIES_FORGETTING
            moments += a @ a.T / a.shape[1]
            counts *= TIES_FORGETTING
            counts += b @ b.T / a.shape[1]

    def copy(self) -> Ties:
        """Ties of their own, which learn no more."""
        ties = Ties.__new__(Ties)
        ties.restore(self.__dict__)
        return ties

    @property
    def between_steps(self) -> Array:
        """Correlation matrix of the steps; neighbours go together as long as nothing is known."""
        near = np.abs(np.subtract.outer(np.arange(len(self.steps)), np.arange(len(self.steps))))
        return _correlation(self.steps, self.n_steps, 0.8**near)

    @property
    def between_series(self) -> Array:
        """Correlation matrix of the series."""
        return _correlation(self.series, self.n_series, np.eye(len(self.series)))


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
