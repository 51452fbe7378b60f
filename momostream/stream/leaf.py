"""A leaf of a growing circuit: a region that learns one row at a time in O(n^2), and forgets as it goes.

It differs from `momostream.batch.region.Region` in what a stream needs: rows live in a shared `RowStore` and the leaf
only knows their numbers; the variance of each output is a discounted mean that costs O(1) per row; how outputs go
together is learnt once at the root, not in every leaf; and a missing target costs nothing. The numbers and the
hyper-parameters are the truth, the factor is a cache that `build` makes again, bit for bit, by the operations that made
it first.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.gp import linalg
from momostream.gp.covariance import Covariance, input_spread
from momostream.gp.scaling import grown, standardisation
from momostream.kernels.cholesky import drop_oldest, unpack_lower
from momostream.kernels.covariance import covariance_column, cross_covariance, gram
from momostream.kernels.leaf import (
    LEAST_SQUARE,
    append_block,
    learn_leaf,
    learn_leaf_rows,
    measure_leaf,
    predict_leaf,
    predict_leaf_rows,
    rebuild_leaf,
)
from momostream.kernels.scalar import NU0, OK, SCALE0
from momostream.stream.rows import RowStore

__all__ = ["Leaf"]

Array = NDArray[np.float64]
log = logging.getLogger("momostream")
Numbers = NDArray[np.int64]

# After so many dropped rows the factor is made anew, which wipes the round-off of the updates.
MOST_UPDATES = 256
# Log-lengthscale of an input that has no say, and rows until a leaf with a new input is tuned.
SILENT, SOON = 60.0, 32
# So many rows at once are worth a block.
LARGE = 24
# Above this noise ratio a factor of single precision is as good as any: its round-off, some 1e-7, is nothing beside the
# noise, and it takes half the memory, which a solve spends its time reading. Not with a linear term: it may be large.
SINGLE = 1e-3
# Room for rows to come.
ROOM = 32
# Rows at which a young leaf looks again at the offset and scale of its outputs.
YOUNG = (1, 2, 4, 8, 16)


class Leaf:
    """Rows of one box for one group of outputs, with the factor that follows from them.

    Parameters
    ----------
    rows
        The shared rows.
    start
        First column of the points that the leaf sees: 0 with the clock, 1 without.
    targets
        Positions of the outputs that the leaf predicts.
    covariance, theta
        Covariance function and packed log-parameters.
    discount
        Weight of a row's residual relative to the next newer one in the variance of an output.
    numbers
        Rows that belong to the leaf, in order of arrival.
    """

    __slots__ = (
        "L", "S", "Z", "blocks", "built", "busy", "c", "covariance", "discount", "gaps", "has_units", "inputs",
        "is_untuned",
        "linear", "mean", "next_tuning", "noise", "n_pending", "n_rows", "n_seen", "n_updates", "numbers_", "outputs",
        "parent",
        "prior_theta", "rows", "s", "start", "targets", "theta", "touched", "v", "variance",
    )  # fmt: skip

    def __init__(
        self,
        rows: RowStore,
        start: int,
        targets: NDArray[np.intp],
        covariance: Covariance,
        theta: Array,
        discount: float,
        numbers: Numbers,
    ) -> None:
        self.rows, self.start, self.targets = rows, start, targets
        self.covariance, self.discount = covariance, discount
        self.numbers_ = np.array(numbers, dtype=np.int64)
        self.n_rows = len(numbers)
        self.parent: Any = None
        # What the prior of the lengthscales is about, for a leaf that was cut from a larger one.
        self.prior_theta: Array | None = None
        # Rows learnt so far, of which some may have been dropped, and how many there shall be at the next tuning.
        self.n_seen, self.next_tuning = self.n_rows, 0
        # Until it is tuned, a leaf that was not cut from another takes its lengthscales from the spread of its rows.
        self.is_untuned: bool
        # The kind of work that the leaf waits for.
        self.busy = ""
        self.touched = 0
        self.n_updates = self.n_pending = 0
        n_inputs, n_targets = len(rows.fill) - start, len(targets)
        self.inputs = np.zeros((2, n_inputs))
        self.outputs = np.ones((4, n_targets))
        self.outputs[0] = 0.0
        self.s, self.mean, self.variance = np.empty(n_inputs), np.empty(n_targets), np.empty(n_targets)
        self.c = math.nan
        self.condition(theta)

    # ------------------------------------------------------------------ the truth

    @property
    def numbers(self) -> Numbers:
        """Numbers of the rows, in order of arrival."""
        return self.numbers_[: self.n_rows]

    def data(self, numbers: Numbers | None = None) -> tuple[Array, Array]:
        """Inputs and targets of the rows as the leaf sees them."""
        X, Y = self.rows.gather(self.numbers if numbers is None else numbers)
        return np.ascontiguousarray(X[:, self.start :]), np.ascontiguousarray(Y[:, self.targets])

    def condition(self, theta: Array) -> None:
        """Take new hyper-parameters and drop the factor; offset and scale of the outputs follow with the next one."""
        self.theta = np.array(theta, dtype=np.float64)
        self.is_untuned = False
        self._read_theta()
        self.look_again()

    def look_again(self) -> None:
        """Drop the factor and take offset and scale of the outputs from the rows when it is next made."""
        self.has_units = False
        self.blocks: list[tuple[int, int]] = []
        self.evict()

    def _read_theta(self) -> None:
        self.inputs[1] = self.covariance.inverse_lengths(self.theta)
        self.noise = self.covariance.noise(self.theta)
        self.linear = self.covariance.linear_variance(self.theta)

    # ------------------------------------------------------------------ the cache

    def evict(self) -> None:
        """Drop the factor."""
        self.built = False
        self.S = self.Z = self.gaps = np.empty((0, 0))
        self.L = self.v = np.empty(0)
        self.n_updates = self.n_pending = 0
        self.c = math.nan

    @property
    def nbytes(self) -> int:
        """Bytes of the factor."""
        return self.S.nbytes + self.Z.nbytes + self.L.nbytes + self.v.nbytes + self.gaps.nbytes

    def build(self) -> None:
        """Make the factor from the rows.  O(n_rows^3)."""
        n = self.n_rows
        X, Y = self.data()
        missing = np.isnan(Y)
        if not self.has_units:
            self._take_units(X, Y)
        self._allocate(n)
        if missing.any():
            self._open_gaps()
            self.gaps[:n] = missing
        self._reset_squares()
        try:
            self._absorb_all(X, Y)
        except np.linalg.LinAlgError:
            centre = self.covariance.prior(input_spread(X)).centre
            if self.blocks:
                # Round-off of a large linear term can exceed the noise. One by one, no variance falls below it.
                self.blocks = []
            elif not np.array_equal(self.theta, centre):
                # Inputs of another order of magnitude than those that the hyper-parameters were tuned for.
                log.warning("a leaf of %d rows starts over: its inputs left the range it was tuned for", n)
                self.theta = centre
                self._read_theta()
            else:
                raise
            self.build()

    def _absorb_all(self, X: Array, Y: Array) -> None:
        """Learn the rows; those that came in blocks in the same blocks, as their last bits would differ otherwise."""
        at = 0
        for start, stop in self.blocks:
            self._absorb(at, start, X, Y)
            self._append_block(start, X[start:stop], Y[start:stop])
            at = stop
        self._absorb(at, len(X), X, Y)

    def _take_units(self, X: Array, Y: Array) -> None:
        """Offset and scale of the outputs, centre of the inputs and, before any tuning, lengthscales from the rows.

        The factor starts afresh, so its rows may as well be one block, at the speed of matrix products.
        """
        self.blocks = [(0, len(X))] if len(X) >= LARGE and not np.isnan(Y).any() else []
        if len(X):
            if self.is_untuned:
                self.theta = self.covariance.prior(input_spread(X)).centre
                self._read_theta()
            self.inputs[0] = X.mean(axis=0)
            self.outputs[0], self.outputs[1] = standardisation(Y)
        # Also without rows: a factor that is made again must find the units of those that came since.
        self.has_units = True

    def _absorb(self, start: int, stop: int, X: Array, Y: Array) -> None:
        status = rebuild_leaf(
            self.covariance.code, self.linear, self.noise, self.discount, start, stop, X, Y,
            self.inputs, self.gaps, self.outputs, self.s, self.v, self.mean, self.variance, self.S, self.Z, self.L,
        )  # fmt: skip
        self.c = math.nan
        if status != OK:
            self.evict()
            raise np.linalg.LinAlgError("the covariance of the rows is not finite")

    def _reset_squares(self) -> None:
        self.outputs[2], self.outputs[3] = NU0 * SCALE0, NU0

    def _allocate(self, n: int) -> None:
        """Arrays with room for more than ``n`` rows."""
        capacity = n + ROOM
        n_inputs, n_targets = self.inputs.shape[1], len(self.targets)
        number = np.float32 if self.noise > SINGLE and not self.linear else np.float64
        self.S, self.Z = np.empty((capacity, n_inputs)), np.empty((capacity, n_targets))
        self.L, self.v = np.empty(capacity * (capacity + 1) // 2, number), np.empty(capacity, number)
        self.gaps = np.zeros((0, n_targets))
        self.built = True

    def _grow(self, n: int) -> None:
        """Make room for more than ``n`` rows."""
        capacity = n + ROOM
        self.S, self.Z = grown(self.S, capacity), grown(self.Z, capacity)
        self.L, self.v = grown(self.L, capacity * (capacity + 1) // 2), grown(self.v, capacity)
        if len(self.gaps):
            self._open_gaps()

    def _open_gaps(self) -> None:
        gaps = np.zeros((len(self.S), len(self.targets)))
        gaps[: len(self.gaps)] = self.gaps
        self.gaps = gaps

    # ------------------------------------------------------------------ predict and learn

    def predict(self, x: Array, location: Array, spread: Array) -> None:
        """Set location and spread of each output at ``x``.  O(n_rows^2)."""
        if self.n_pending or not self.built:
            self.settle()
        self.c = predict_leaf(
            self.covariance.code, self.linear, self.noise, self.n_rows, x, self.inputs, self.outputs,
            self.S, self.L, self.Z, self.gaps, self.s, self.v, self.mean, self.variance, location, spread,
        )  # fmt: skip

    def learn(self, number: int, y: Array) -> None:
        """Append the row that was predicted last; ``y`` holds the leaf's own targets, NaN where missing."""
        n = self.n_rows
        if n >= len(self.S):
            self._grow(n)
        learn_leaf(
            n, self.c, self.discount, y, self.s, self.v, self.mean, self.variance, self.outputs, self.S, self.Z, self.L
        )
        if len(self.gaps) or math.isnan(y.dot(y)):
            if len(self.gaps) <= n:
                self._open_gaps()
            self.gaps[n] = np.isnan(y)
        if n >= len(self.numbers_):
            self.numbers_ = grown(self.numbers_, 8 + 2 * n)
        self.numbers_[n] = number
        self.n_rows = n + 1
        self.n_seen += 1
        self.c = math.nan

    def learn_rows(self, numbers: Numbers, X: Array, Y: Array, location: Array, spread: Array) -> None:
        """Learn rows in order; sets what each was predicted before it was learnt.

        Many rows without missing targets go in one block, at the speed of matrix products.
        """
        self.settle()
        n, more = self.n_rows, len(X)
        if n + more > len(self.S):
            self._grow(n + more)
        missing = np.isnan(Y)
        if more < LARGE or len(self.gaps) or missing.any():
            if len(self.gaps) or missing.any():
                self._open_gaps()
                self.gaps[n : n + more] = missing
            learn_leaf_rows(
                self.covariance.code, self.linear, self.noise, self.discount, n, X, Y, self.inputs, self.gaps,
                self.outputs, self.s, self.v, self.mean, self.variance, self.S, self.Z, self.L, location, spread,
            )  # fmt: skip
        else:
            location[:], spread[:] = self._append_block(n, X, Y)
            self.blocks.append((n, n + more))
        if n + more > len(self.numbers_):
            self.numbers_ = grown(self.numbers_, 8 + 2 * (n + more))
        self.numbers_[n : n + more] = numbers
        self.n_rows = n + more
        self.n_seen += more
        self.c = math.nan

    def _append_block(self, n: int, X: Array, Y: Array) -> tuple[Array, Array]:
        """Append rows after the first ``n``; returns what each was predicted."""
        more = len(X)
        T, V, _ = self._project(n, X)
        C = np.empty((more, more))
        gram(self.covariance.code, self.linear, self.noise, T, C)
        R = (Y - self.outputs[0]) / self.outputs[1]
        if n:
            C -= V.T @ V
            R -= V.T @ self.Z[:n]
            # Round-off must not take a row's variance below its noise.
            C[np.diag_indices(more)] = np.maximum(C.diagonal(), self.noise)
        linalg.factorise_and_solve(C, R)
        location, spread = np.array(Y, order="C"), np.empty((more, len(self.targets)))
        append_block(
            n, self.discount, np.ascontiguousarray(V.T), C, R, T, self.outputs, self.S, self.Z, self.L, location, spread
        )
        return location, spread

    def predict_rows(self, X: Array, location: Array, spread: Array) -> None:
        """Set location and spread of many rows, each given the rows of the leaf."""
        self.settle()
        n = self.n_rows
        if len(X) < LARGE:
            predict_leaf_rows(
                self.covariance.code, self.linear, self.noise, n, X, self.inputs, self.outputs, self.S, self.L,
                self.Z, self.gaps, self.s, self.v, self.mean, self.variance, location, spread,
            )  # fmt: skip
            self.c = math.nan
            return
        _, V, prior = self._project(n, X)
        c = np.maximum(self.noise + prior - np.einsum("ij,ij->j", V, V), self.noise)
        variance = np.repeat(c[:, None], len(self.targets), axis=1)
        if len(self.gaps):
            variance += (V**2).T @ self.gaps[:n]
        location[:] = self.outputs[0] + self.outputs[1] * (V.T @ self.Z[:n])
        square = np.maximum(self.outputs[2] / self.outputs[3], LEAST_SQUARE)
        spread[:] = self.outputs[1] * np.sqrt(variance * square)

    def _project(self, n: int, X: Array) -> tuple[Array, Array, Array]:
        """Scaled points, ``L^-1 k(first n rows, X)`` and the prior variance of each point."""
        T = self._scaled(X)
        K = np.empty((n, len(X)))
        cross_covariance(self.covariance.code, self.linear, self.S[:n], T, K)
        prior = 1.0 + self.linear * np.einsum("ij,ij->i", T, T)
        return T, (linalg.solve_many(self.L, n, K) if n else K), prior

    def _scaled(self, X: Array) -> Array:
        """Points in lengthscales about the centre."""
        return np.ascontiguousarray((X - self.inputs[0]) * self.inputs[1])

    def similarity(self, X: Array, x: Array) -> Array:
        """Correlation of a point with each of the rows ``X``, between 0 and 1."""
        T, values = self._scaled(X), np.empty(len(X))
        covariance_column(self.covariance.code, 0.0, T, len(T), self._scaled(x), values)
        return values

    def is_young(self) -> bool:
        """Whether offset and scale of some output rest on so few rows that they are due again."""
        n = self.n_rows
        if not len(self.gaps):
            return n in YOUNG
        seen = n - self.gaps[:n].sum(axis=0)
        newest = self.gaps[n - 1] == 0.0
        return bool((np.isin(seen, YOUNG) & newest).any())

    def drop_oldest(self) -> None:
        """Forget the oldest row; the factor follows when it is next needed."""
        n = self.n_rows
        self.numbers_[: n - 1] = self.numbers_[1:n]
        self.n_rows = n - 1
        self.c = math.nan
        if self.built:
            self.n_pending += 1
        else:
            self.blocks = []

    def settle(self) -> None:
        """Bring the factor up to date: make it, or take out rows that were dropped since, which is stable.

        O(n_rows^2) for each dropped row; a factor that has lost many is made anew.
        """
        if not self.built:
            self.build()
        if not self.n_pending:
            return
        if self.n_updates + self.n_pending > MOST_UPDATES or 4 * self.n_pending > self.n_rows:
            self.evict()
            self.blocks = []
            self.build()
            return
        self.blocks = []
        n = self.n_rows + self.n_pending
        work = np.empty(2 * n + len(self.targets))
        for _ in range(self.n_pending):
            drop_oldest(n, self.S, self.Z, self.L, work)
            n -= 1
        if len(self.gaps):
            self.gaps[:n] = self.gaps[self.n_pending : n + self.n_pending]
            self.gaps[n:] = 0.0
        measure_leaf(n, self.discount, self._own_residuals(), self.gaps, self.outputs)
        self.n_updates += self.n_pending
        self.n_pending = 0

    def _own_residuals(self) -> Array:
        """Residual of each row over its deviation, which is larger for an output with gaps than `Z` takes it to be."""
        n = self.n_rows
        if not (len(self.gaps) and self.gaps[:n].any()):
            return self.Z
        L = np.empty((n, n))
        unpack_lower(self.L, n, L)
        pivots = L.diagonal()[:, None]
        variance = pivots**2 + np.tril(L, -1) ** 2 @ self.gaps[:n]
        return self.Z[:n] * (pivots / np.sqrt(variance))

    # ------------------------------------------------------------------ columns that come later

    def widen(self, targets: NDArray[np.intp] | None) -> None:
        """Take new columns into account: input columns of the store, and ``targets`` if they have changed."""
        n_inputs, before = len(self.rows.fill) - self.start, self.inputs.shape[1]
        if n_inputs > before:
            # A new input has not varied yet: until the next tuning, which comes soon, it has no say.
            silent = np.full(n_inputs - before, SILENT)
            self.theta = np.insert(self.theta, before, silent)
            if self.prior_theta is not None:
                self.prior_theta = np.insert(self.prior_theta, before, silent)
            self.next_tuning = min(self.next_tuning, self.n_seen + SOON)
            self.inputs = np.zeros((2, n_inputs))
            self.s = np.empty(n_inputs)
        if targets is not None:
            self.targets = targets
            self.outputs = np.ones((4, len(targets)))
            self.outputs[0] = 0.0
            self.mean, self.variance = np.empty(len(targets)), np.empty(len(targets))
        self._read_theta()
        self.look_again()

    # ------------------------------------------------------------------ as plain data

    def state(self) -> dict[str, Any]:
        """The truth; and the factor as well if rows have been dropped from it, as its last bits depend on how."""
        state: dict[str, Any] = {
            "numbers": self.numbers.copy(), "theta": self.theta, "units": self.outputs[:2].copy(),
            "centre": self.inputs[0].copy(), "prior_theta": self.prior_theta, "next_tuning": self.next_tuning,
            "targets": self.targets.astype(np.int64), "touched": self.touched, "has_units": self.has_units,
            "blocks": list(self.blocks), "n_seen": self.n_seen, "is_untuned": self.is_untuned,
        }  # fmt: skip
        if self.built and (self.n_updates or self.n_pending):
            n = self.n_rows + self.n_pending
            state["factor"] = {
                "S": self.S[:n].copy(), "Z": self.Z[:n].copy(), "L": self.L[: n * (n + 1) // 2].copy(),
                "gaps": self.gaps[:n].copy(), "squares": self.outputs[2:].copy(), "n_updates": self.n_updates,
                "n_pending": self.n_pending,
            }  # fmt: skip
        return state

    @classmethod
    def from_state(
        cls, state: dict[str, Any], rows: RowStore, start: int, covariance: Covariance, discount: float
    ) -> Leaf:
        """The leaf that `state` was taken from; its factor is built when it is next needed."""
        targets, none = state["targets"].astype(np.intp), np.empty(0, np.int64)
        leaf = cls(rows, start, targets, covariance, state["theta"], discount, none)
        leaf.numbers_ = state["numbers"].copy()
        leaf.n_rows = len(leaf.numbers_)
        leaf.outputs[:2], leaf.inputs[0] = state["units"], state["centre"]
        leaf.prior_theta, leaf.next_tuning = state["prior_theta"], state["next_tuning"]
        leaf.touched, leaf.has_units, leaf.blocks = state["touched"], state["has_units"], list(state["blocks"])
        leaf.n_seen, leaf.is_untuned = state["n_seen"], state["is_untuned"]
        factor = state.get("factor")
        if factor is not None:
            n = leaf.n_rows + factor["n_pending"]
            leaf._allocate(n)
            leaf.n_pending = factor["n_pending"]
            leaf.S[:n], leaf.Z[:n], leaf.L[: n * (n + 1) // 2] = factor["S"], factor["Z"], factor["L"]
            if len(factor["gaps"]):
                leaf._open_gaps()
                leaf.gaps[:n] = factor["gaps"]
            leaf.outputs[2:], leaf.n_updates = factor["squares"], factor["n_updates"]
        return leaf
