"""A leaf of a growing circuit: a region that learns one row at a time in O(n^2), and forgets as it goes.

It differs from `momostream.batch.region.Region` in what a stream needs: rows live in a shared `RowStore` and the leaf
only knows their numbers; the variance of each output is a discounted mean that costs O(1) per row; correlations between
outputs are learnt once at the root, not in every leaf; and a missing target costs nothing. The numbers and the
hyper-parameters are the truth; the factor is a cache that `build` rebuilds, bit for bit, by the operations that built
it first.

A prediction changes nothing. Where it needs a factor that is not there, the leaf *lends* it one and keeps all that was
there before (`Leaf.lend`): a row that is learnt from the prediction makes it the leaf's own, anything else that changes
the leaf gives it back first. Otherwise the floats after the next rows would depend on who has asked for predictions.

A row is learnt from what its prediction left in the leaf. A token (`momostream.stream.tokens`) names that prediction:
`Leaf.learn` accepts no other. Anything that changes the leaf in between makes it stale, as does another prediction.
"""

from __future__ import annotations

import logging
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momostream.gp.covariance import Covariance, input_std
from momostream.gp.factor import Factor, grown, packed, scaled
from momostream.gp.scaling import standardisation
from momostream.kernels.book import AddressBook
from momostream.kernels.covariance import covariance_column
from momostream.kernels.leaf import (
    learn_block,
    learn_leaf_rows,
    measure_leaf,
    rebuild_leaf,
)
from momostream.kernels.row import learn_leaf_at, predict_leaf_at
from momostream.kernels.scalar import NU0, OK, SCALE0
from momostream.stream.restoring import check_leaf
from momostream.stream.rows import RowStore
from momostream.stream.tokens import NO_TOKEN, StaleTokenError

__all__ = ["Leaf"]

Array = NDArray[np.float64]
log = logging.getLogger("momostream")
Numbers = NDArray[np.int64]

# Dropped rows after which the factor is rebuilt, which wipes the round-off of the updates.
MOST_UPDATES = 256
# Log-lengthscale of an input that has no say, and rows until a leaf with a new input is tuned.
SILENT, SOON = 60.0, 32
# Fewest rows that are worth a block.
LARGE = 24
# Above this noise ratio a factor of single precision is as good as any: its round-off, some 1e-7, is nothing beside the
# noise, and it takes half the memory, which a solve spends its time reading. Not with a linear term: it may be large.
SINGLE = 1e-3
# Room for rows to come.
ROOM = 32
# Rows at which a young leaf takes offset and scale of its outputs again.
YOUNG = (1, 2, 4, 8, 16)


class _Kept(NamedTuple):
    """What a leaf had before it lent a factor to a prediction."""

    theta: Array
    inputs: Array
    outputs: Array
    has_units: bool
    blocks: list[tuple[int, int]]
    factor: Factor | None


class Leaf:
    """Rows of one box for one group of outputs, with the factor that follows from them.

    ``inputs``, ``outputs`` and ``work`` are laid out as in `momostream.kernels.leaf`.

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

    Attributes
    ----------
    factor
        The factor, or None where it has not been built or was evicted. It may hold older rows than the leaf: those that
        were dropped since it was last used.
    token
        Token of the prediction that ``work`` and the factor's ``v`` are about; `NO_TOKEN` where there is none.
    kept
        All that a lent factor has replaced; None where nothing is lent.
    """

    __slots__ = (
        "blocks", "busy", "covariance", "discount", "factor", "has_units", "inputs", "is_untuned", "kept", "n_rows",
        "n_seen", "next_tuning", "numbers_", "outputs", "parent", "prior_theta", "rows", "start", "targets", "theta",
        "token", "touched", "work",
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
        # Centre of the prior of the hyper-parameters, for a leaf that was cut from a larger one.
        self.prior_theta: Array | None = None
        # Rows learnt so far, of which some may have been dropped, and that number at the next tuning.
        self.n_seen, self.next_tuning = self.n_rows, 0
        # Until it is tuned, a leaf that was not cut from another takes its lengthscales from the deviation of its rows.
        self.is_untuned: bool
        # The kind of work that the leaf waits for.
        self.busy = ""
        self.touched = 0
        self.inputs = np.zeros((2, len(rows.fill) - start))
        self.kept: _Kept | None = None
        self._open_outputs()
        self.condition(theta)

    def _open_outputs(self) -> None:
        """Arrays for the outputs, and the workspace."""
        n_targets = len(self.targets)
        self.outputs = np.ones((4, n_targets))
        self.outputs[0] = 0.0
        self.work = np.empty(1 + self.inputs.shape[1] + 2 * n_targets)

    # ------------------------------------------------------------------ the truth

    @property
    def numbers(self) -> Numbers:
        """Numbers of the rows, in order of arrival."""
        return self.numbers_[: self.n_rows]

    def data(self, numbers: Numbers | None = None) -> tuple[Array, Array]:
        """Inputs and targets of rows, by default of all, as the leaf sees them."""
        X, Y = self.rows.gather(self.numbers if numbers is None else numbers)
        return np.ascontiguousarray(X[:, self.start :]), np.ascontiguousarray(Y[:, self.targets])

    def condition(self, theta: Array) -> None:
        """Take new hyper-parameters and drop the factor; offset and scale of the outputs follow with the next one."""
        self.give_back()
        self.theta = np.array(theta, dtype=np.float64)
        self.is_untuned = False
        self.inputs[1] = self.covariance.inverse_lengths(self.theta)
        self.take_units_again()

    def take_units_again(self) -> None:
        """Drop the factor and take offset and scale of the outputs from the rows when it is next built."""
        self.give_back()
        self.has_units = False
        self.blocks: list[tuple[int, int]] = []
        self.evict()

    @property
    def noise(self) -> float:
        """Noise variance as a ratio to the signal variance."""
        return self.covariance.noise(self.theta)

    # ------------------------------------------------------------------ the cache

    def evict(self) -> None:
        """Drop the factor."""
        self.give_back()
        self.factor: Factor | None = None
        self.token = NO_TOKEN

    @property
    def built(self) -> bool:
        """Whether a factor is in memory, lent or not."""
        return self.factor is not None

    @property
    def own_factor(self) -> Factor | None:
        """The factor that the leaf has of its own, not for a prediction."""
        return self.factor if self.kept is None else self.kept.factor

    @property
    def own_theta(self) -> Array:
        """Hyper-parameters that do not depend on predictions: not those of a lent factor."""
        return self.theta if self.kept is None else self.kept.theta

    @property
    def nbytes(self) -> int:
        """Bytes of the factor, and of the one that a lent factor has replaced."""
        held = [self.factor, None if self.kept is None else self.kept.factor]
        return sum(factor.nbytes for factor in held if factor is not None)

    @property
    def budget_bytes(self) -> int:
        """Bytes of a factor with the usual room; they follow from the rows alone, however the factor came about."""
        n = self.n_rows + ROOM
        return 8 * (n * (self.inputs.shape[1] + len(self.targets) + 1) + packed(n))

    @property
    def is_exact(self) -> bool:
        """Whether the leaf's own factor, if evicted, is rebuilt bit for bit: not after rows were dropped from it."""
        factor = self.own_factor
        return factor is None or (factor.n_dropped == 0 and factor.n_rows == self.n_rows)

    def lend(self) -> Factor:
        """A factor for a prediction: up to date, and the leaf's own only once a row is learnt from it.

        O(n_rows^3) where there is none, O(n_rows^2) where rows have been dropped.
        """
        if self.factor is not None and self.factor.n_rows == self.n_rows:
            return self.factor
        kept = _Kept(self.theta, self.inputs, self.outputs, self.has_units, self.blocks, self.factor)
        self.inputs, self.outputs, self.blocks = self.inputs.copy(), self.outputs.copy(), list(self.blocks)
        if self.factor is not None:
            self.factor = self.factor.copy(self.inputs)
        try:
            factor = self.settle()
        except np.linalg.LinAlgError:
            self._take(kept)
            raise
        self.kept = kept
        return factor

    def give_back(self) -> None:
        """Give a lent factor back: all is as it was before the prediction."""
        if self.kept is not None:
            self._take(self.kept)
            self.kept = None
            self.token = NO_TOKEN

    def _take(self, kept: _Kept) -> None:
        self.theta, self.inputs, self.outputs, self.has_units, self.blocks, self.factor = kept

    def build(self, starts_over: bool = False) -> None:
        """Build the factor from the rows, if it starts over with parameters and units of these rows.  O(n_rows^3)."""
        n = self.n_rows
        X, Y = self.data()
        missing = np.isnan(Y)
        if not self.has_units:
            self._take_units(X, Y)
        self.factor = factor = self._new_factor(n)
        self.token = NO_TOKEN
        if missing.any():
            factor.open_gaps()
            factor.gaps[:n] = missing
        self.outputs[2], self.outputs[3] = NU0 * SCALE0, NU0
        try:
            self._absorb_all(factor, X, Y)
        except np.linalg.LinAlgError:
            self.evict()
            if self.blocks:
                # Round-off of a large linear term can exceed the noise. One by one, no variance falls below it.
                self.blocks = []
            elif starts_over:
                raise
            else:
                # Inputs of another order of magnitude than those that the hyper-parameters were tuned for.
                log.warning("a leaf of %d rows starts over: its inputs left the range it was tuned for", n)
                self._set_theta(self.covariance.prior(input_std(X)).centre)
                self.has_units, starts_over = False, True
            self.build(starts_over)

    def _new_factor(self, n: int) -> Factor:
        """A factor without rows and with room for more than ``n``."""
        single = self.noise > SINGLE and not self.covariance.linear_variance(self.theta)
        precision = np.float32 if single else np.float64
        return Factor(self.covariance, self.theta, self.inputs, len(self.targets), n + ROOM, precision)

    def _take_units(self, X: Array, Y: Array) -> None:
        """Offset and scale of the outputs, centre of the inputs and, before any tuning, lengthscales from the rows.

        The factor starts afresh, so its rows may as well be one block, at the speed of matrix products.
        """
        self.blocks = [(0, len(X))] if len(X) >= LARGE and not np.isnan(Y).any() else []
        if len(X):
            if self.is_untuned:
                self._set_theta(self.covariance.prior(input_std(X)).centre)
            self.inputs[0] = X.mean(axis=0)
            self.outputs[0], self.outputs[1] = standardisation(Y)
        # Also without rows: a factor that is rebuilt must find the units of those that came since.
        self.has_units = True

    def _set_theta(self, theta: Array) -> None:
        self.theta = theta
        self.inputs[1] = self.covariance.inverse_lengths(theta)

    def _absorb_all(self, factor: Factor, X: Array, Y: Array) -> None:
        """Learn the rows; those that came in blocks in the same blocks, as their last bits would differ otherwise."""
        at = 0
        for start, stop in self.blocks:
            self._absorb(factor, at, start, X, Y)
            self._append_block(factor, X[start:stop], Y[start:stop])
            at = stop
        self._absorb(factor, at, len(X), X, Y)

    def _absorb(self, factor: Factor, start: int, stop: int, X: Array, Y: Array) -> None:
        status = rebuild_leaf(
            factor.kind, factor.linear, factor.noise, self.discount, start, stop, X, Y, self.inputs, factor.gaps,
            self.outputs, factor.v, self.work, factor.S, factor.Z, factor.L,
        )  # fmt: skip
        if status != OK:
            raise np.linalg.LinAlgError("the covariance of the rows is not finite")
        factor.n_rows = stop

    def _append_block(self, factor: Factor, X: Array, Y: Array) -> tuple[Array, Array]:
        """Append rows to the factor at once; returns location and standard deviation that each was predicted."""
        pivots, solved = factor.append_block(X, (Y - self.outputs[0]) / self.outputs[1])
        location, std = np.array(Y, order="C"), np.empty(Y.shape)
        learn_block(self.discount, pivots, solved, self.outputs, location, std)
        return location, std

    # ------------------------------------------------------------------ predict and learn

    def predict(self, x: Array, location: Array, std: Array, token: int) -> None:
        """Set location and standard deviation of each output at ``x``.  O(n_rows^2).

        ``token`` names the prediction; `learn` takes the row by it.
        """
        self.open(token)
        predict_leaf_at(self.book.address, self.n_rows, x, location, std)

    def learn(self, token: int, number: int, y: Array) -> None:
        """Append the row that was predicted with this token; ``y`` holds the leaf's own targets, NaN where missing.

        Raises
        ------
        StaleTokenError
            The token is not that of the last prediction, or the leaf has changed since; nothing is learnt then.
        """
        factor, n = self.factor, self.n_rows
        if token != self.token or token == NO_TOKEN or factor is None:
            raise StaleTokenError
        is_finite = learn_leaf_at(self.book.address, n, y)
        if len(factor.gaps) or math.isnan(y.dot(y)):
            if len(factor.gaps) <= n:
                factor.open_gaps()
            factor.gaps[n] = np.isnan(y)
        self.note_row(number, bool(is_finite))

    def note_row(self, number: int, is_finite: bool) -> None:
        """Note that the row that was predicted last, of this number, has been appended to the factor."""
        n = self.n_rows
        self.token, self.kept = NO_TOKEN, None
        if n >= len(self.numbers_):
            self.numbers_ = grown(self.numbers_, 8 + 2 * n)
        self.numbers_[n] = number
        self.n_rows = self.factor.n_rows = n + 1  # type: ignore[union-attr]
        self.n_seen += 1
        if not is_finite:
            self._rebuild()

    def open(self, token: int) -> Factor:
        """Name the prediction that is about to be made from the factor, which gets room for the row."""
        factor, n = self.factor, self.n_rows
        if factor is None or factor.n_rows != n:
            factor = self.lend()
        if n >= len(factor.S):
            factor.grow(n + ROOM)
        self.token = token
        return factor

    @property
    def book(self) -> AddressBook:
        """Addresses of factor, inputs, outputs and workspace, in the order of `momostream.kernels.row`."""
        factor = self.factor
        assert factor is not None
        if factor.book is None:
            # Inputs, outputs and workspace are never replaced while the factor stays.
            single = factor.L.dtype == np.float32
            facts = np.array(
                [factor.kind, factor.linear, factor.noise, self.discount, single, self.start], dtype=np.float64
            )
            factor.book = AddressBook(
                self.inputs, self.outputs, factor.S, factor.L, factor.Z, factor.gaps, factor.v, self.work, facts
            )
        return factor.book

    def _rebuild(self) -> None:
        """Build the factor again after a row without a finite variance, as a leaf that is loaded would have to."""
        self.evict()
        self.build()

    def learn_rows(self, numbers: Numbers, X: Array, Y: Array, location: Array, std: Array) -> None:
        """Learn rows in order; sets location and standard deviation of each as predicted before it was learnt.

        Many rows without missing targets go in one block, at the speed of matrix products.
        """
        factor, self.kept = self.settle(), None
        self.token = NO_TOKEN
        n, more = self.n_rows, len(X)
        if n + more > factor.capacity:
            factor.grow(n + more + ROOM)
        if not self._learn_block(factor, X, Y, location, std):
            missing = np.isnan(Y)
            if len(factor.gaps) or missing.any():
                factor.open_gaps()
                factor.gaps[n : n + more] = missing
            learn_leaf_rows(
                factor.kind, factor.linear, factor.noise, self.discount, n, X, Y, self.inputs, factor.gaps,
                self.outputs, factor.v, self.work, factor.S, factor.Z, factor.L, location, std,
            )  # fmt: skip
            factor.n_rows = n + more
        if n + more > len(self.numbers_):
            self.numbers_ = grown(self.numbers_, 8 + 2 * (n + more))
        self.numbers_[n : n + more] = numbers
        self.n_rows = n + more
        self.n_seen += more
        if not np.isfinite(std).all():
            self._rebuild()

    def _learn_block(self, factor: Factor, X: Array, Y: Array, location: Array, std: Array) -> bool:
        """Learn rows in one block, if there are enough of them without gaps, and the block has a factor."""
        n, more = self.n_rows, len(X)
        if more < LARGE or len(factor.gaps) or np.isnan(Y).any():
            return False
        try:
            location[:], std[:] = self._append_block(factor, X, Y)
        except np.linalg.LinAlgError:
            # Round-off of a large linear term can exceed the noise. One by one, no variance falls below it.
            return False
        self.blocks.append((n, n + more))
        return True

    def similarity(self, X: Array, x: Array) -> Array:
        """Correlation of a point with each of the rows ``X``, between 0 and 1."""
        T, values = scaled(X, self.inputs), np.empty(len(X))
        covariance_column(self.covariance.code, 0.0, T, len(T), scaled(x, self.inputs), values)
        return values

    @property
    def has_gaps(self) -> bool:
        """Whether the factor knows of missing targets."""
        return self.factor is not None and len(self.factor.gaps) > 0

    def is_young(self) -> bool:
        """Whether offset and scale of some output rest on so few rows that they are due again."""
        n = self.n_rows
        if self.factor is None or not len(self.factor.gaps):
            return n in YOUNG
        gaps = self.factor.gaps
        seen = n - gaps[:n].sum(axis=0)
        newest = gaps[n - 1] == 0.0
        return bool((np.isin(seen, YOUNG) & newest).any())

    # ------------------------------------------------------------------ forgetting

    def drop_oldest(self) -> None:
        """Forget the oldest row; the factor follows when it is next needed."""
        self.give_back()
        n = self.n_rows
        self.numbers_[: n - 1] = self.numbers_[1:n]
        self.n_rows = n - 1
        self.token = NO_TOKEN
        self.blocks = []  # they began with the row that is gone

    def keep_newest(self, n_rows: int) -> None:
        """Forget all rows but the newest."""
        self.numbers_ = self.numbers[-n_rows:].copy()
        self.n_rows = len(self.numbers_)
        self.blocks = []
        self.evict()

    def settle(self) -> Factor:
        """Bring the factor up to date: build it, or take out the rows that were dropped since, which is stable.

        O(n_rows^2) for each dropped row; a factor that has lost many is rebuilt.
        """
        if self.factor is None:
            self.build()
        factor = self.factor
        assert factor is not None
        n_pending = factor.n_rows - self.n_rows
        if not n_pending:
            return factor
        self.blocks = []
        self.token = NO_TOKEN
        if factor.n_dropped + n_pending > MOST_UPDATES or 4 * n_pending > self.n_rows:
            self.evict()
            return self.settle()
        if not factor.drop_oldest(n_pending):
            self.evict()
            return self.settle()
        measure_leaf(self.n_rows, self.discount, factor.own_residuals(), factor.gaps, self.outputs)
        return factor

    # ------------------------------------------------------------------ columns that come later

    def widen(self, targets: NDArray[np.intp] | None) -> None:
        """Take new columns into account: input columns of the store, and ``targets`` if they have changed."""
        self.give_back()
        n_inputs, before = len(self.rows.fill) - self.start, self.inputs.shape[1]
        if n_inputs > before:
            # A new input has not varied yet: until the next tuning, which comes soon, it has no say.
            silent = np.full(n_inputs - before, SILENT)
            self.theta = np.insert(self.theta, before, silent)
            if self.prior_theta is not None:
                self.prior_theta = np.insert(self.prior_theta, before, silent)
            self.next_tuning = min(self.next_tuning, self.n_seen + SOON)
            self.inputs = np.zeros((2, n_inputs))
            self.work = np.empty(1 + n_inputs + 2 * len(self.targets))
        if targets is not None:
            self.targets = targets
            self._open_outputs()
        self._set_theta(self.theta)
        self.take_units_again()

    # ------------------------------------------------------------------ as plain data

    def state(self) -> dict[str, Any]:
        """The truth; and the factor as well if rows have been dropped from it, as its last bits depend on how."""
        if self.kept is not None:
            lent = _Kept(self.theta, self.inputs, self.outputs, self.has_units, self.blocks, self.factor)
            kept, self.kept = self.kept, None
            self._take(kept)
            try:
                return self.state()
            finally:
                self._take(lent)
                self.kept = kept
        state: dict[str, Any] = {
            "numbers": self.numbers.copy(), "theta": self.theta, "units": self.outputs[:2].copy(),
            "centre": self.inputs[0].copy(), "prior_theta": self.prior_theta, "next_tuning": self.next_tuning,
            "targets": self.targets.astype(np.int64), "touched": self.touched, "has_units": self.has_units,
            "blocks": list(self.blocks), "n_seen": self.n_seen, "is_untuned": self.is_untuned,
        }  # fmt: skip
        factor = self.factor
        if factor is not None and not self.is_exact:
            n = factor.n_rows
            state["factor"] = {
                "S": factor.S[:n].copy(), "Z": factor.Z[:n].copy(), "L": factor.L[: packed(n)].copy(),
                "gaps": factor.gaps[:n].copy(), "squares": self.outputs[2:].copy(), "n_updates": factor.n_dropped,
                "n_pending": n - self.n_rows,
            }  # fmt: skip
        return state

    @classmethod
    def from_state(
        cls, state: dict[str, Any], rows: RowStore, start: int, covariance: Covariance, discount: float
    ) -> Leaf:
        """Restore a leaf from `state`; its factor is built when it is next needed."""
        n_inputs = len(rows.fill) - start
        check_leaf(state, rows.first, rows.stop, rows.n_targets, n_inputs, covariance.n_parameters(n_inputs))
        targets, none = state["targets"].astype(np.intp), np.empty(0, np.int64)
        leaf = cls(rows, start, targets, covariance, state["theta"], discount, none)
        leaf.numbers_ = state["numbers"].copy()
        leaf.n_rows = len(leaf.numbers_)
        leaf.outputs[:2], leaf.inputs[0] = state["units"], state["centre"]
        # Earlier versions may have blocks that rows were dropped from.
        leaf.blocks = list(state["blocks"]) if max(state["blocks"], default=(0, 0))[1] <= leaf.n_rows else []
        for name in ("prior_theta", "next_tuning", "touched", "has_units", "n_seen", "is_untuned"):
            setattr(leaf, name, state[name])
        saved = state.get("factor")
        if saved is not None:
            n = leaf.n_rows + saved["n_pending"]
            leaf.factor = factor = leaf._new_factor(n)
            factor.n_rows, factor.n_dropped = n, saved["n_updates"]
            factor.S[:n], factor.Z[:n], factor.L[: packed(n)] = saved["S"], saved["Z"], saved["L"]
            if len(saved["gaps"]):
                factor.open_gaps()
                factor.gaps[:n] = saved["gaps"]
            leaf.outputs[2:] = saved["squares"]
        return leaf
