"""The root of a stream: experts stacked per output, joined by one t-copula, learnt from predictions as they were made.

Each expert gives a location and a standard deviation per output. On top, the stack learns, one row at a time:

* the *weights* of the experts, per output, by steps of expectation-maximisation; in a given row an expert that is less
  sure than usual counts for less;
* a *tail* per expert and output: degrees of freedom from a few candidates by discounted log score, each with a variance
  factor by a robust running mean; and one common scale factor per output, which undoes what mixing adds to the
  deviation;
* the *blend*: weights of the experts' locations that have the least square error; the weights of the mixture are
  tilted so that its mean is the blend;
* the *copula*: correlations of the normal scores of the targets, forgotten at several speeds, and degrees of freedom;
  the pair that has predicted best so far is used.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtr, stdtr, stdtrit

from momostream.distributions.student import t_log_norm
from momostream.kernels.scalar import UNKNOWN
from momostream.kernels.stack import (
    CDF_PER_UNIT,
    CDF_REACH,
    EXACT,
    LEAST_BLEND,
    SCORE_PER_UNIT,
    SCORE_REACH,
    STANDING_SCALE,
    refresh_copula,
    stack_learn_rows,
    stack_predict_rows,
)
from momostream.stream.restoring import check_stack

__all__ = ["Stack"]

Array = NDArray[np.float64]

# Degrees of freedom of the tails.
TAILS = (2.5, 4.0, 8.0, 100.0)
FIRST_TAIL = 2
# Steps: of the weights and their floor, of the variance factors, discount of the tails' scores, step of the common
# scale, of the usual scale.
ETA, LEAST_WEIGHT, TAIL_STEP, TAIL_DISCOUNT, SCALE_STEP, USUAL_STEP = 0.1, 1e-4, 0.01, 0.998, 0.005, 0.02
SHARPNESS = 2.5
# Where means are blended: step of the common scale by the density, and by how often the central intervals of 50 and
# 90 % hold the target; rows that the errors of the experts are remembered for, caution against trusting one expert.
BLENDED_SCALE_STEP, MIDDLE_STEP, OUTER_STEP, MEMORY, CAUTION = 0.001, 0.02, 0.016, 1000.0, 0.02

# Speeds of the copula's correlation, its degrees of freedom, discount of their scores.
SPEEDS = (0.97, 0.99, 0.998)
COPULA_TAILS = (4.0, 8.0, 20.0)
COPULA_DISCOUNT = 0.995
# The prior of the correlation is worth this many rows per output; what is left of a perfect correlation.
PRIOR_ROWS, CORRELATION_FLOOR = 0.05, 1e-5


class Stack:
    """Weights, tails and copula of ``n_experts`` experts over ``n_targets`` outputs.

    Parameters
    ----------
    n_experts, n_targets
        Sizes.
    eta
        Step of the weights.
    blended
        Whether the mean is a blend of least square error, and scales follow coverage.
    standing
        Whether the last expert is one that stands still: it has a deviation only while a target repeats itself, that
        deviation is taken as it is, and meanwhile the target has weights and a scale of its own.

    Attributes
    ----------
    planes
        Shape ``(5, n_experts, n_targets)``, as in `momostream.distributions.planes`: the experts write location and
        standard deviation, `predict` writes the rest.
    mean
        Stacked mean of each output.
    is_ready
        Whether `planes` are those of the row that will be learnt next.
    every
        Rows between two refreshes of the correlations.

    Examples
    --------
    >>> from momostream.distributions.planes import LOCATION, STD
    >>> stack = Stack(n_experts=2, n_targets=1)
    >>> for y in (1.0, 1.2, 0.8, 1.1, 0.9, 1.0, 1.2, 0.8):
    ...     stack.planes[LOCATION], stack.planes[STD] = [[1.0], [5.0]], 0.2
    ...     _ = stack.predict()
    ...     stack.learn(np.array([y]))
    >>> bool(stack.weights[0, 0] > 0.6)
    True
    """

    def __init__(
        self, n_experts: int, n_targets: int, eta: float = ETA, blended: bool = False, standing: bool = False
    ) -> None:
        self.eta, self.blended, self.standing = eta, blended, standing
        K, P, G = n_experts, n_targets, len(TAILS)
        self.mixing = np.empty((4 if standing else 3, K, P))
        self.mixing[0], self.mixing[1], self.mixing[2] = 1.0 / K, UNKNOWN, FIRST_TAIL
        if standing:
            self.mixing[0, :-1], self.mixing[0, -1] = (1.0 - LEAST_WEIGHT) / max(K - 1, 1), LEAST_WEIGHT
            self.mixing[2, -1], self.mixing[3] = EXACT, 1.0 / K
        self.tails = np.zeros((2, K, P, G))
        self.tails[0] = 1.0
        self.outputs = np.zeros((5 if standing else 4, P))
        B = K + 1 - standing if blended else 0
        self.blend, self.errors = np.full((P, B), 1.0 / max(B, 1)), np.zeros((P, B, B))
        C, V = len(SPEEDS), len(COPULA_TAILS)
        self.moments, self.pairs = np.zeros((2, C, P, P))
        self.fit = np.zeros((C, V))
        # While no row has had all its targets nothing is scored: the slowest correlation and the middle tail then.
        self.fit[-1, 1] = 1e-9
        self.n_rows = 0
        self._scratch()
        self._refresh_copula()

    def _scratch(self) -> None:
        K, P = self.mixing.shape[1:]
        C = len(SPEEDS)
        self.planes = np.full((5, K, P), np.inf)
        self._one_row = self.planes[None]
        self.mean = np.zeros(P)
        self._one_mean = self.mean[None]
        rates = [self.eta, LEAST_WEIGHT, TAIL_STEP, TAIL_DISCOUNT, SCALE_STEP, USUAL_STEP]
        if self.blended:
            rates[4:5] = [BLENDED_SCALE_STEP]
            rates += [MIDDLE_STEP, OUTER_STEP]
        self._rates = np.array(rates)
        B = self.blend.shape[1]
        self._told, self._pulls = np.empty((K + B, P)), np.empty((2, B))
        # Whether `planes` and what was told are those of the row that will be learnt next.
        self.is_ready = False
        self._likelihood, self._scores, self._work = np.empty(K), np.full(P, np.nan), np.empty((2, P))
        self._R, self._factors, self._log_dets = np.zeros((C, P, P)), np.zeros((C, P, P)), np.zeros(C)
        self._norms = _copula_norms(P)
        self._candidates, self._cdf, self._quantiles = tail_candidates(), cdf_tables(), _quantile_tables()
        # Copies of the correlations that were asked for since the last refresh, by speed.
        self._correlations: dict[int, Array] = {}
        # Correlations move slowly; many outputs make their factors expensive.
        self.every = max(4, P // 4)

    @property
    def weights(self) -> Array:
        """Learnt weight of each expert and output, shape ``(n_experts, n_targets)``."""
        return self.mixing[0]

    @property
    def copula(self) -> tuple[Array, float]:
        """Correlation between the outputs and degrees of freedom of the copula that has predicted best so far."""
        # Chosen at each call: a choice that is kept would depend on the row at which it was first asked for.
        speed, tail = divmod(int(self.fit.argmax()), len(COPULA_TAILS))
        if speed not in self._correlations:
            # A copy: distributions that were handed out keep the correlation of their time.
            self._correlations[speed] = self._R[speed].copy()
        return self._correlations[speed], COPULA_TAILS[tail]

    def predict(self) -> Array:
        """Fill in scales, degrees of freedom and weights of `planes` and return the stacked mean."""
        self._predict(self._one_row, self._one_mean)
        self.is_ready = True
        return self.mean

    def _predict(self, plane_rows: Array, means: Array) -> None:
        stack_predict_rows(
            SHARPNESS, self._candidates, self.mixing, self.tails, self.outputs, self.blend, plane_rows, self._told,
            means,
        )  # fmt: skip

    def learn(self, y: Array) -> None:
        """Learn from the targets of the row that `predict` was last called for; NaN is missing."""
        self._learn(y[None], self._one_row, int(self.is_ready))

    def learn_rows(self, Y: Array, plane_rows: Array) -> None:
        """Predict and learn rows in order; ``plane_rows`` ``(n, 5, n_experts, n_targets)`` as `planes` for each."""
        self._learn(Y, plane_rows, 0)

    def _learn(self, Y: Array, plane_rows: Array, ready: int) -> None:
        # One call also for one row: it costs less than several smaller ones.
        stack_learn_rows(
            SHARPNESS, self._rates, self.n_rows, self.every, ready, Y, self._candidates, self._cdf, _SPEEDS,
            COPULA_DISCOUNT, _COPULA_TAILS, self._norms, self._quantiles, PRIOR_ROWS * Y.shape[1],
            CORRELATION_FLOOR, MEMORY, CAUTION, self.mixing, self.tails, self.outputs, self.blend, self.errors,
            plane_rows, self._told, self._pulls, self._one_mean, self._likelihood, self._scores,
            self._R, self._factors, self._log_dets, self.moments, self.pairs, self.fit, self._work,
        )  # fmt: skip
        self.note_rows(len(Y))

    def note_rows(self, n_rows: int) -> None:
        """Note that compiled code has learnt rows."""
        before = self.n_rows // self.every
        self.n_rows += n_rows
        self.is_ready = False
        if self.n_rows // self.every > before:
            self.forget_copies()

    def forget_copies(self) -> None:
        """Forget copies of correlations, which have been refreshed."""
        self._correlations = {}

    @property
    def told_rows(self) -> tuple[Array, Array]:
        """Planes and mean, each with an axis for one row."""
        return self._one_row, self._one_mean

    @property
    def row_numbers(self) -> tuple[float, ...]:
        """Constants in the order of `momostream.kernels.row`."""
        prior = PRIOR_ROWS * self.mixing.shape[2]
        return SHARPNESS, COPULA_DISCOUNT, prior, CORRELATION_FLOOR, MEMORY, CAUTION

    @property
    def row_arrays(self) -> tuple[Array, ...]:
        """What rows read and change, in the order of `momostream.kernels.row`."""
        return (
            self._rates, self._candidates, self._cdf, _SPEEDS, _COPULA_TAILS, self._norms, self._quantiles, self.mixing,
            self.tails, self.outputs, self.blend, self.errors, self._told, self._pulls, self._likelihood, self._scores,
            self._R, self._factors, self._log_dets, self.moments, self.pairs, self.fit, self._work,
        )  # fmt: skip

    def predict_rows(self, plane_rows: Array) -> Array:
        """Fill in ``plane_rows`` ``(n, 5, n_experts, n_targets)`` as `predict` does for one row; returns the means."""
        means = np.empty((len(plane_rows), plane_rows.shape[3]))
        self._predict(plane_rows, means)
        self.is_ready = False
        return means

    @property
    def surprise(self) -> float:
        """Mean square of the normal scores of the targets learnt last: about 1 where predictions are calibrated."""
        seen = self._scores[~np.isnan(self._scores)]
        return float(np.mean(seen**2)) if len(seen) else math.nan

    def note(self, scores: Array) -> None:
        """Take the normal scores of a row from elsewhere, where nothing is stacked."""
        self._scores[:] = np.clip(scores, -SCORE_REACH, SCORE_REACH)

    def widen_scales(self, factor: float) -> None:
        """Multiply all scales; they are learnt back if that was needless."""
        self.outputs[[0, STANDING_SCALE] if self.standing else [0]] += math.log(factor)
        self.is_ready = False

    def _refresh_copula(self) -> None:
        P = self.mixing.shape[2]
        prior = PRIOR_ROWS * P
        refresh_copula(prior, CORRELATION_FLOOR, self.moments, self.pairs, self._R, self._factors, self._log_dets)
        self.forget_copies()

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return sum(getattr(self, name).nbytes for name in self._ARRAYS)

    # ------------------------------------------------------------------ columns that come later

    def widen(self, n_targets: int) -> None:
        """Make room for more outputs."""
        old = self.mixing.shape[2]
        fresh = Stack(self.mixing.shape[1], n_targets, self.eta, self.blended, self.standing)
        fresh.mixing[:, :, :old], fresh.tails[:, :, :old], fresh.outputs[:, :old] = (
            self.mixing,
            self.tails,
            self.outputs,
        )
        fresh.blend[:old], fresh.errors[:old] = self.blend, self.errors
        fresh.moments[:, :old, :old], fresh.pairs[:, :old, :old] = self.moments, self.pairs
        fresh.fit, fresh.n_rows = self.fit, self.n_rows
        fresh._refresh_copula()
        self.__dict__ = fresh.__dict__

    # ------------------------------------------------------------------ as plain data

    _ARRAYS = ("mixing", "tails", "outputs", "moments", "pairs", "fit", "blend", "errors")

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        arrays = {name: getattr(self, name).copy() for name in self._ARRAYS}
        copula = {"R": self._R.copy(), "factors": self._factors.copy(), "log_dets": self._log_dets.copy()}
        return {**arrays, **copula, "n_rows": self.n_rows}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`, also from that of a version that knew fewer experts and no blend."""
        check_stack(state, self.state(), len(TAILS))
        fresh = Stack(self.mixing.shape[1], state["mixing"].shape[2], self.eta, self.blended, self.standing)
        # Without errors of the experts, the blend starts at the mean of the mixture.
        fresh.blend[:, :-1], fresh.blend[:, -1:] = LEAST_BLEND, 1.0
        for name in self._ARRAYS:
            array = getattr(fresh, name)
            if name in state:
                # What is new comes last along each axis.
                array[tuple(slice(size) for size in state[name].shape)] = state[name]
            setattr(self, name, array)
        self.n_rows = state["n_rows"]
        self._scratch()
        self._R[:], self._factors[:], self._log_dets[:] = state["R"], state["factors"], state["log_dets"]


_SPEEDS, _COPULA_TAILS = np.array(SPEEDS), np.array(COPULA_TAILS)


@cache
def tail_candidates() -> Array:
    """Degrees of freedom of the tails and their log norms."""
    dofs = np.array(TAILS)
    return np.vstack([dofs, t_log_norm(dofs)])


@cache
def cdf_tables() -> Array:
    """Distribution functions of the tails over asinh(z)."""
    n = int(2 * CDF_REACH * CDF_PER_UNIT) + 1
    z = np.sinh(np.linspace(-CDF_REACH, CDF_REACH, n))
    return np.array([stdtr(dof, z) for dof in TAILS])


@cache
def _quantile_tables() -> Array:
    """Quantiles of the copula's Student-t's over normal scores."""
    n = int(2 * SCORE_REACH * SCORE_PER_UNIT) + 1
    scores = np.linspace(-SCORE_REACH, SCORE_REACH, n)
    lower = np.array([stdtrit(dof, ndtr(-np.abs(scores))) for dof in COPULA_TAILS])
    return np.where(scores < 0.0, lower, -lower)


def _copula_norms(n_targets: int) -> Array:
    dof = np.array(COPULA_TAILS)
    joint = gammaln(0.5 * (dof + n_targets)) - gammaln(0.5 * dof) - 0.5 * n_targets * np.log(dof * math.pi)
    return np.vstack([joint, t_log_norm(dof)])
