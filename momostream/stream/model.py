"""The row model: experts under one stack, fed one row at a time.

Arrays in column order; names, dicts and frames belong to the facades. NaN is a missing input or target.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream._checks import Shape, check_indices, check_state
from momostream.distributions.joint import Distribution, MixtureDistribution
from momostream.distributions.mixtures import Mixture, Multivariate, Routed, StudentT
from momostream.distributions.planes import LOCATION, SCALE, STD, WEIGHT
from momostream.distributions.stacked import StackedDistribution, Wrap, joint_distribution
from momostream.stream.circuits import Circuits
from momostream.stream.fused import ELSEWHERE, FusedRow
from momostream.stream.lags import Autoregression
from momostream.stream.moments import RunningMoments
from momostream.stream.nodes import TOO_FAR, log_normalised
from momostream.stream.rows import RowStore
from momostream.stream.settings import StreamSettings
from momostream.stream.stack import Stack
from momostream.stream.tokens import NO_TOKEN, next_token
from momostream.stream.tree import Tree

__all__ = ["StreamModel"]

Array = NDArray[np.float64]
log = logging.getLogger("momostream")

# Rows are learnt in blocks of this many, once the first ones have been learnt one by one.
BLOCK, SINGLY = 256, 64
# In blocks, one step of heavy work is done per this many rows.
ROWS_PER_STEP = 8
# Errors of experts that are not stacked count as this many deviations at most, whose square is a number.
LARGEST_ERROR = 1e150
# Errors in rows of which an input was set aside count in circuits as this many deviations at most.
SPOILED_CUT = 1.0


class StreamModel:
    """Experts on the rows of a stream, stacked.

    Parameters
    ----------
    settings
        Parameters.
    n_inputs, n_targets
        Columns to begin with; `widen` adds more.

    Attributes
    ----------
    circuits
        The experts that are circuits, with the rows that they share.
    lags
        The linear experts, or None.
    stack
        Weights, tails and copula that join the experts.
    inputs
        Moments of the inputs, for missing ones.
    log_evidence
        Of each expert, where they are not stacked.
    """

    def __init__(self, settings: StreamSettings, n_inputs: int, n_targets: int) -> None:
        self.settings = settings
        self.circuits = Circuits(settings, n_inputs, n_targets)
        self.inputs = RunningMoments(n_inputs)
        self.lags = Autoregression(n_inputs, n_targets, settings.forgetting) if settings.has_lags else None
        n_experts, is_stacked = len(settings.expert_names), settings.weights == "stacking"
        self.stack = Stack(n_experts, n_targets, settings.eta, is_stacked, is_stacked and settings.has_lags)
        self.log_evidence = np.zeros(len(settings.expert_names))
        self._is_stacked = is_stacked
        self._bind()

    def _bind(self) -> None:
        """Views of the circuits' point and of the stack's planes, in which the experts write."""
        n, planes = len(self.circuits.trees), self.stack.planes
        self._x = self.circuits.point[1:]
        self._tree_location, self._tree_std = list(planes[LOCATION, :n]), list(planes[STD, :n])
        self._lag_location, self._lag_std = planes[LOCATION, n:], planes[STD, n:]
        # Time and inputs that the planes are about, and the token of their prediction.
        self._predicted: tuple[float, bytes] | None = None
        self._token = NO_TOKEN
        self._fused = None
        if self.lags is not None and self._is_stacked:
            self._fused = FusedRow(self.circuits, self.lags, self.stack, self.inputs)

    @property
    def rows(self) -> RowStore:
        """The rows, as points: time and inputs."""
        return self.circuits.rows

    @property
    def trees(self) -> list[Tree]:
        """The circuits, one for each kernel among the experts."""
        return self.circuits.trees

    @property
    def n_learnt(self) -> int:
        """Rows learnt so far."""
        return self.circuits.n_learnt

    @property
    def n_inputs(self) -> int:
        """Number of input columns."""
        return self.circuits.n_inputs

    @property
    def n_targets(self) -> int:
        """Number of target columns."""
        return self.circuits.n_targets

    @property
    def jobs(self) -> list[str]:
        """Kinds of work that wait."""
        return self.circuits.jobs.waiting

    # ------------------------------------------------------------------ one row

    def predict(self, x: Array, time: float) -> Array:
        """Mean of each output at ``x``; NaN is a missing input. The array is overwritten by the next call."""
        circuits = self.circuits
        # Missing inputs are guessed from the rows learnt so far: as long as no other is learnt, the guess is the same.
        given = time, x.tobytes()
        if given != self._predicted or not circuits.holds(self._token):
            # A sum is the cheapest way to find a NaN.
            if math.isnan(sum(x.tolist())):
                x = np.where(np.isnan(x), self.inputs.guess, x)
            self._token = next_token()
            if self._fused is None or not self._fused.predict(time, x, self._token):
                circuits.point[0] = time
                self._x[:] = x
                self._predict_in_parts()
            self._predicted = given
        return self.stack.mean if self._is_stacked else self._shares() @ self.stack.planes[LOCATION]

    def _predict_in_parts(self) -> None:
        self._token = self.circuits.predict_trees(self.circuits.point, self._tree_location, self._tree_std)
        if self.lags is not None:
            self.lags.predict(self._x, self._lag_location, self._lag_std)
            if not self._is_stacked:
                # Densities of an expert that is as narrow as a reading are not those of the others.
                self._lag_std[-1] = np.inf
        self.stack.predict()

    def _shares(self) -> Array:
        """Weight of each expert where they are not stacked."""
        known = np.isfinite(self.stack.planes[STD]).all(axis=1)
        if not known.any():
            return np.full(len(known), 1.0 / len(known))
        return np.exp(log_normalised(np.where(known, self.log_evidence, -np.inf)))

    def distribution(self, wrap: Wrap | None = None) -> Callable[[], Distribution]:
        """The distribution of the row that was predicted last; what is returned does not need the model any more.

        ``wrap`` turns the marginals into those of the user's units.
        """
        if not self._is_stacked:
            mixture = MixtureDistribution(self._mixture())
            return lambda: mixture
        return StackedDistribution(self.stack.planes.copy(), *self.stack.copula, wrap)

    def _mixture(self) -> Multivariate:
        shares = self._shares()
        location, std = self.stack.planes[LOCATION], self.stack.planes[STD]
        parts: list[Multivariate] = []
        for tree, view in zip(self.trees, self.circuits.views, strict=True):
            parts.append(tree.distribution(tree.root, view, self.n_targets, self._token))
        for k in range(len(parts), len(shares)):
            scale = np.where(np.isfinite(std[k]) & (std[k] > 0.0), np.clip(std[k], 1.0 / TOO_FAR, TOO_FAR), 1.0)
            parts.append(StudentT(location[k][None].copy(), np.diag(scale**2), 10.0))
        used = [k for k in range(len(parts)) if shares[k] > 0.0]
        return Mixture(np.log(shares[used]), [parts[k] for k in used])

    def learn(self, x: Array, y: Array, time: float, is_spoiled: bool = False) -> None:
        """Learn one row; NaN is missing. A row without any target is not learnt.

        If it ``is_spoiled``, an input was set aside, and is guessed: circuits learn its targets as far as they are
        expected.
        """
        # A product with itself is the cheapest way to find a NaN.
        if math.isnan(y.dot(y)) and np.isnan(y).all():
            return
        self.predict(x, time)
        if is_spoiled or self._fused is None or self._fused.learn(self._token, x, y) < 0:
            self._learn_in_parts(x, y, is_spoiled)
        self._work()

    def learn_predicted(self, x: Array, y: Array, time: float, door: NDArray[np.int64]) -> int:
        """Screen and learn the row that was predicted last in one compiled call; below 0 if it has to be learnt else.

        See `momostream.stream.fused.FusedRow.learn`.
        """
        if self._fused is None or (time, x.tobytes()) != self._predicted:
            return ELSEWHERE
        found = self._fused.learn(self._token, x, y, door)
        if found >= 0:
            self._work()
        return found

    def _learn_in_parts(self, x: Array, y: Array, is_spoiled: bool) -> None:
        expected = self._as_expected(y) if is_spoiled and self._is_stacked else y
        if self._is_stacked:
            self.stack.learn(y)
        else:
            self._weigh(y)
        if self.lags is not None:
            self.lags.learn(self._x, y)
        self.inputs.learn(x)
        self.circuits.learn_trees(self._token, expected)

    def _as_expected(self, y: Array) -> Array:
        """Targets, moved to within `SPOILED_CUT` deviations of what the expert with the largest weight expects."""
        planes, columns = self.stack.planes, np.arange(self.n_targets)
        best = planes[WEIGHT].argmax(axis=0)
        location, reach = planes[LOCATION, best, columns], SPOILED_CUT * planes[SCALE, best, columns]
        with np.errstate(over="ignore", invalid="ignore"):
            moved = np.clip(y, location - reach, location + reach)
        return np.where(np.isfinite(moved), moved, y)

    def _work(self) -> None:
        """Do one step of what is due: the weights of the lags come before the work of the circuits."""
        if self.lags is not None and self.lags.is_due:
            self.lags.refresh()
            # The first refreshes are small, and one follows the other.
            if self.n_learnt > 64:
                self.circuits.jobs.collect()
                return
        self.circuits.work()

    # ------------------------------------------------------------------ many rows

    def learn_many(
        self,
        X: Array,
        Y: Array,
        times: Array | None,
        thorough: bool = False,
        is_spoiled: NDArray[np.bool_] | None = None,
    ) -> None:
        """Learn rows in order, in blocks.

        Parameters
        ----------
        X, Y
            Inputs and targets; NaN is missing.
        times
            Time of each row; by default the number of rows learnt before it.
        thorough
            Do all work that is due after each block, instead of a few steps of it.
        is_spoiled
            Rows of which an input was set aside, see `learn`; they are learnt one by one.
        """
        known = ~np.isnan(Y).all(axis=1)
        X, Y = X[known], Y[known]
        spoiled = np.zeros(len(X), dtype=np.bool_) if is_spoiled is None else is_spoiled[known]
        # First row from each on that is spoiled.
        ends = np.minimum.accumulate(np.where(spoiled, np.arange(len(X)), len(X))[::-1])[::-1]
        times = None if times is None else times[known]
        at = 0
        while at < len(X):
            small = self.n_learnt < SINGLY or not self._is_stacked
            size = 1 if small else min(BLOCK, ends[at] - at, self.lags.room if self.lags is not None else BLOCK)
            rows = slice(at, at + max(size, 1))
            now = self.n_learnt + np.arange(len(X[rows]), dtype=np.float64) if times is None else times[rows]
            if size <= 1:
                self.learn(np.ascontiguousarray(X[at]), np.ascontiguousarray(Y[at]), float(now[0]), bool(spoiled[at]))
            else:
                self._learn_block(X[rows], np.ascontiguousarray(Y[rows]), now)
                for _ in range(max(size // ROWS_PER_STEP, 1)):
                    self._work()
            if thorough:
                self.circuits.finish()
            at = rows.stop

    def _learn_block(self, X: Array, Y: Array, times: Array) -> None:
        points = np.column_stack([times, X])
        if np.isnan(points).any():
            # A missing input is guessed from the rows before it.
            for i, x in enumerate(X):
                points[i, 1:] = np.where(np.isnan(x), self.inputs.guess, x)
                self.inputs.learn(np.ascontiguousarray(x))
        else:
            self.inputs.learn_rows(np.ascontiguousarray(X))
        plane_rows, n = self._new_planes(len(X)), len(self.trees)
        self.circuits.learn_rows(points, Y, plane_rows[:, LOCATION, :n], plane_rows[:, STD, :n])
        if self.lags is not None:
            part = np.empty((len(X), 2, len(Autoregression.EXPERTS), self.n_targets))
            self.lags.learn_rows(np.ascontiguousarray(points[:, 1:]), Y, part)
            plane_rows[:, LOCATION, n:], plane_rows[:, STD, n:] = part.swapaxes(0, 1)
        self.stack.learn_rows(Y, plane_rows)
        self.circuits.forget()

    def _new_planes(self, n_rows: int) -> Array:
        """Planes ``(n_rows, 5, n_experts, n_targets)`` to write on."""
        return np.empty((n_rows, 5, len(self.settings.expert_names), self.n_targets))

    def predict_many(
        self, X: Array, times: Array, names: tuple[Hashable, ...] | None = None, wrap: Wrap | None = None
    ) -> Distribution:
        """The distribution of many rows, all given the rows learnt so far."""
        points = np.column_stack([times, np.where(np.isnan(X), self.inputs.guess, X)])
        if not self._is_stacked:
            return _many_mixtures(self, points, names)
        plane_rows, n = self._new_planes(len(X)), len(self.trees)
        self.circuits.predict_rows(points, plane_rows[:, LOCATION, :n], plane_rows[:, STD, :n])
        if self.lags is not None:
            part = np.empty((2, len(X), len(Autoregression.EXPERTS), self.n_targets))
            self.lags.predict_rows(np.ascontiguousarray(points[:, 1:]), part[0], part[1])
            # The lags learn from the features that they predicted last.
            self._token = NO_TOKEN
            plane_rows[:, LOCATION, n:], plane_rows[:, STD, n:] = part
        self.stack.predict_rows(plane_rows)
        return joint_distribution(plane_rows, *self.stack.copula, wrap, names)

    # ------------------------------------------------------------------ the root

    def root_weights(self) -> Array:
        """Weight of each expert and output, shape ``(n_experts, n_targets)``."""
        if self._is_stacked:
            return self.stack.weights
        return np.repeat(np.exp(log_normalised(self.log_evidence))[:, None], self.n_targets, axis=1)

    def explain(self, n_neighbours: int) -> tuple[Array, Array, list[tuple[int, float, Array, Array]]]:
        """Shares of the experts, relevance of each column and the nearest rows, for the row predicted last.

        Returns
        -------
        shares
            Shape ``(n_experts, n_targets)``.
        relevance
            Of the time and each input, sums to one.
        neighbours
            Number, similarity, point and targets of stored rows, nearest first.
        """
        shares = self.stack.planes[WEIGHT].copy()
        if not self._is_stacked:
            shares = np.repeat(self._shares()[:, None], self.n_targets, axis=1)
        relevance = np.zeros(1 + self.n_inputs)
        similarity: dict[int, float] = {}
        for k, (tree, view) in enumerate(zip(self.trees, self.circuits.views, strict=True)):
            for leaf in tree.reached(view):
                X, _ = leaf.data()
                weight = shares[k].mean() + 1e-12
                relevance[tree.start :] += weight * (X.std(axis=0) * leaf.inputs[1]) ** 2 if len(X) else 0.0
                for number, value in zip(leaf.numbers, leaf.similarity(X, view), strict=True):
                    similarity[int(number)] = max(similarity.get(int(number), 0.0), float(value))
        nearest = sorted(similarity, key=lambda number: -similarity[number])[:n_neighbours]
        points, Y = self.rows.gather(np.array(nearest, dtype=np.int64))
        total = relevance.sum()
        neighbours = [(n, similarity[n], p, y) for n, p, y in zip(nearest, points, Y, strict=True)]
        return shares, relevance / total if total > 0.0 else relevance, neighbours

    def react(self, action: str) -> None:
        """Answer drift: ``"retune"``, ``"widen"`` or ``"forget"``."""
        log.info("row %d: drift, %s", self.n_learnt, action)
        if action == "widen":
            self.stack.widen_scales(2.0)
            # The planes are about the scales of before.
            self._token = NO_TOKEN
        elif action == "forget":
            self.circuits.restart(min(len(self.rows), max(16, self.settings.max_points // 4)))
        else:
            self.retune()

    def retune(self) -> None:
        """Put the leaves used last up for tuning; done step by step as rows come."""
        self.circuits.retune()

    def set_hyperparameters(self, lengthscales: dict[int, float], noise: float | None) -> None:
        """Set lengthscales by column of the points (0 is the time) and the noise ratio in all leaves."""
        self.circuits.set_hyperparameters(lengthscales, noise)

    @property
    def nbytes(self) -> int:
        """Bytes held by rows, factors and the larger statistics."""
        return self.circuits.nbytes + self.stack.nbytes + (self.lags.nbytes if self.lags is not None else 0)

    def _weigh(self, y: Array) -> None:
        """Weigh experts that are not stacked, by the product of all their densities if that is asked for."""
        shares = self._shares()[:, None]
        location, std = self.stack.planes[LOCATION], self.stack.planes[STD]
        finite = np.where(np.isfinite(std), std, 0.0)
        mean = (shares * location).sum(axis=0)
        # What is too large for a number is cut where it is used: scores by `note`, errors below.
        with np.errstate(over="ignore"):
            squares = np.where(shares > 0.0, finite**2 + (location - mean) ** 2, 0.0)
            variance = (shares * squares).sum(axis=0)
            scores = (y - mean) / np.sqrt(np.maximum(variance, 1e-300))
        self.stack.note(np.where(variance > 0.0, scores, np.nan))
        if self.settings.weights == "posterior":
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                errors = np.clip((y - location) / std, -LARGEST_ERROR, LARGEST_ERROR)
                density = -0.5 * errors**2 - np.log(std)
            self.log_evidence += np.nansum(np.where(np.isfinite(density), density, 0.0), axis=1)
            self.log_evidence -= self.log_evidence.max()

    # ------------------------------------------------------------------ columns that come later

    def widen(self, inputs: Array, n_targets: int) -> None:
        """Add input columns, which older rows are taken to have had at these values, and target columns."""
        self.circuits.widen(inputs, n_targets)
        self.inputs.widen(inputs)
        if self.lags is not None:
            self.lags.widen(self.n_inputs, self.n_targets, self.rows.fill[1:])
        if n_targets:
            self.stack.widen(self.n_targets)
        self._bind()

    # ------------------------------------------------------------------ as plain data

    def state(self) -> dict[str, Any]:
        """Everything that cannot be computed again, as plain data."""
        return {
            **self.circuits.state(), "lags": None if self.lags is None else self.lags.state(),
            "stack": self.stack.state(), "inputs": self.inputs.moments.copy(),
            "log_evidence": self.log_evidence.copy(),
        }  # fmt: skip

    @classmethod
    def from_state(cls, settings: StreamSettings, state: dict[str, Any], n_inputs: int, n_targets: int) -> StreamModel:
        """Restore a model of these columns from `state`; from there on, floats are those of the original."""
        model = cls(settings, n_inputs, n_targets)
        model.circuits.restore(state)
        if model.lags is not None:
            model.lags.restore(state["lags"])
        model.stack.restore(state["stack"])
        check_state("model", state, {"log_evidence": Shape((None,))})
        check_indices("model / log_evidence", [len(state["log_evidence"])], 0, len(model.log_evidence) + 1)
        model.inputs = RunningMoments.from_state(state["inputs"], n_inputs)
        model.log_evidence[: len(state["log_evidence"])] = state["log_evidence"]
        model._bind()
        return model


def _many_mixtures(model: StreamModel, points: Array, names: tuple[Hashable, ...] | None) -> Distribution:
    """Exact mixtures of many rows, each on its own: components differ from row to row."""
    distributions = []
    for point in points:
        model.predict(point[1:], float(point[0]))
        distributions.append(model._mixture())
    return MixtureDistribution(Routed(np.arange(len(distributions)), distributions), names)
