"""Growing circuits over one store of rows, within a window of rows and a budget of memory.

A row is predicted and learnt in two calls that a token ties together: `Circuits.predict_trees` returns it and
`Circuits.learn_trees` takes it. Learning with the token of another prediction, or after the circuits have changed,
raises `StaleTokenError`. Work beside the rows waits in `momostream.stream.jobs`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.kernels.row import learn_point_at
from momostream.stream.jobs import Jobs
from momostream.stream.leaf import Leaf
from momostream.stream.restoring import check_circuits
from momostream.stream.rows import RowStore
from momostream.stream.settings import StreamSettings
from momostream.stream.tokens import NO_TOKEN, StaleTokenError, next_token
from momostream.stream.tree import Tree

__all__ = ["Circuits"]

Array = NDArray[np.float64]

# Bytes of a leaf without its factor, of which the budget knows as well: numbers of its rows, hyper-parameters, objects.
LEAF_BYTES = 4000
# How often the factors in memory are counted against the budget, in learnt rows, and for how many leaves one row later.
BUDGET_EVERY, LEAVES_PER_ROW = 32, 64


class Circuits:
    """Trees of GP leaves that share their rows.

    Parameters
    ----------
    settings
        Parameters.
    n_inputs, n_targets
        Columns to begin with.

    Attributes
    ----------
    rows
        The rows, as points: time and inputs.
    trees
        One for each kernel among the experts.
    jobs
        Work that waits.
    point
        The point that was predicted last. The row model writes the next one here, which saves `predict_trees` a copy,
        and then predicts it: a point that is only written and not predicted would be learnt under the token of another.
    views
        The part of the point that each tree sees.
    n_learnt
        Rows learnt so far.
    """

    def __init__(self, settings: StreamSettings, n_inputs: int, n_targets: int) -> None:
        self.settings = settings
        self.rng = np.random.default_rng(settings.seed)
        self.rows = RowStore(n_inputs, n_targets)
        self.trees = [
            Tree(self.rows, start, kernel, settings.growth(start), self.rng) for start, kernel in settings.circuits
        ]
        self.jobs = Jobs(self.trees, settings.tuning_interval)
        self.n_learnt = 0
        self._next_count = 0
        self._open_point()

    def _open_point(self) -> None:
        self.point = np.zeros(len(self.rows.fill))
        self.views = [self.point[tree.start :] for tree in self.trees]
        self._token = NO_TOKEN

    @property
    def n_inputs(self) -> int:
        """Number of input columns."""
        return len(self.rows.fill) - 1

    @property
    def n_targets(self) -> int:
        """Number of target columns."""
        return self.rows.n_targets

    # ------------------------------------------------------------------ one row

    def predict_trees(self, point: Array, location: Sequence[Array] | Array, std: Sequence[Array] | Array) -> int:
        """Set location and standard deviation of each tree and target at a point; infinite: nothing is known.

        Parameters
        ----------
        point
            Time and inputs.
        location, std
            Of shape ``(n_trees, n_targets)``, or one array for each tree.

        Returns
        -------
        int
            The token by which `learn_trees` takes the row.
        """
        if point is not self.point:
            self.point[:] = point
        token = self._token = next_token()
        for k, tree in enumerate(self.trees):
            tree.predict(self.views[k], location[k], std[k], token)
        return token

    def holds(self, token: int) -> bool:
        """Whether the prediction of this token can still be learnt: it was the last one, and no tree has changed."""
        if token != self._token or token == NO_TOKEN:
            return False
        for tree in self.trees:
            if not tree.holds(token):
                return False
        return True

    def learn_trees(self, token: int, y: Array) -> None:
        """Learn the row that was predicted with this token and forget what has to go; NaN is missing.

        Raises
        ------
        StaleTokenError
            The token is not that of the last prediction, or the circuits have changed since; nothing is learnt then.
        """
        self.use_token(token)
        number = self.rows.append(self.point, y)
        for tree in self.trees:
            tree.learn(token, number, y)
        self.n_learnt += 1
        self.forget()

    def use_token(self, token: int) -> None:
        """Take a token, which can be used once; a `StaleTokenError` if it is not that of a prediction that holds."""
        if not self.holds(token):
            raise StaleTokenError
        self._token = NO_TOKEN

    def open_leaves(self, point: list[float], token: int) -> list[int] | None:
        """Address and rows of the leaf of each tree that a point goes to, one after the other; None if to several.

        The leaves are ready for a prediction of this token, and for the row.
        """
        leaves = self._opened(point, token)
        if leaves is None:
            return None
        self._token = token
        return [number for leaf in leaves for number in (leaf.book.address, leaf.n_rows)]

    def note_row(self, spoilt: int) -> None:
        """Note that compiled code has learnt the point, in the leaves of `open_leaves` too, and stored it.

        ``spoilt`` are the trees, as bits, in whose leaf it had no finite variance. Forgets what has to go.
        """
        self._token = NO_TOKEN
        rows = self.rows
        for tree in self.trees:
            tree.note_row(rows.stop, not spoilt & 1)
            spoilt >>= 1
        rows.stop += 1
        self.n_learnt += 1
        self.forget()

    def learn_row(self, point: Array, y: Array) -> None:
        """Predict a row and learn it; `work` then does what is due."""
        # A product with itself is the cheapest way to find a NaN.
        leaves = None if math.isnan(y.dot(y)) else self._opened(point.tolist(), next_token())
        if leaves is None or any(leaf.has_gaps for leaf in leaves):
            location, std = np.empty((2, len(self.trees), self.n_targets))
            self.learn_trees(self.predict_trees(point, location, std), y)
            return
        self._token = NO_TOKEN
        number = self.rows.append(point, y)
        for tree, leaf in zip(self.trees, leaves, strict=True):
            tree.note_row(number, learn_point_at(leaf.book.address, leaf.n_rows, point, y))
        self.n_learnt += 1
        self.forget()

    def _opened(self, point: list[float], token: int) -> list[Leaf] | None:
        """The leaf of each tree that a point goes to, ready for it; None if to several."""
        found = []
        for tree in self.trees:
            leaf = tree.open_leaf(point, token)
            if leaf is None:
                return None
            found.append(leaf)
        return found

    # ------------------------------------------------------------------ many rows

    def learn_rows(self, points: Array, Y: Array, location: Array, std: Array) -> None:
        """Learn rows in order; sets what each was predicted, shapes ``(n_rows, n_trees, n_targets)``."""
        self._token = NO_TOKEN
        numbers = self.rows.extend(points, Y)
        for k, tree in enumerate(self.trees):
            part = np.empty((2, len(points), self.n_targets))
            tree.learn_rows(numbers, np.ascontiguousarray(points[:, tree.start :]), Y, part[0], part[1])
            location[:, k], std[:, k] = part
        self.n_learnt += len(points)

    def predict_rows(self, points: Array, location: Array, std: Array) -> None:
        """Set what is predicted of many rows, all given the rows so far; shapes ``(n_rows, n_trees, n_targets)``."""
        for k, tree in enumerate(self.trees):
            part = np.empty((2, len(points), self.n_targets))
            tree.predict_rows(np.ascontiguousarray(points[:, tree.start :]), part[0], part[1])
            location[:, k], std[:, k] = part

    # ------------------------------------------------------------------ work beside the rows

    def work(self) -> bool:
        """Do one step of what is due; whether anything was."""
        return self.jobs.work(self.n_learnt)

    def finish(self) -> None:
        """Do all work that is due, whatever the gradients cost."""
        self.jobs.finish(self.n_learnt)

    def retune(self) -> None:
        """Put the leaves used last, at most four of each tree, up for tuning; done step by step as rows come."""
        if self.settings.tuning_evaluations:
            self.jobs.retune()

    def set_hyperparameters(self, lengthscales: dict[int, float], noise: float | None) -> None:
        """Set lengthscales by column of the points (0 is the time) and the noise ratio in all leaves."""
        self.jobs.drop_tuning()
        for tree in self.trees:
            for leaf in tree.leaves():
                theta = leaf.own_theta.copy()
                for column, value in lengthscales.items():
                    if column >= tree.start:
                        theta[column - tree.start] = math.log(value)
                if noise is not None:
                    theta[leaf.inputs.shape[1]] = math.log(noise)
                leaf.condition(theta)

    # ------------------------------------------------------------------ forgetting

    def forget(self) -> None:
        """Drop the oldest rows beyond the window and cold factors beyond the budget."""
        settings = self.settings
        if settings.window is not None:
            while len(self.rows) > settings.window:
                self.drop_oldest()
        if settings.memory_budget is not None and self.n_learnt >= self._next_count:
            n_leaves = sum(tree.n_leaves for tree in self.trees)
            # A look at thousands of leaves takes milliseconds, in which few rows bring few factors.
            self._next_count = self.n_learnt + max(BUDGET_EVERY, n_leaves // LEAVES_PER_ROW)
            self._evict(max(settings.memory_budget - self.rows.budget_bytes - LEAF_BYTES * n_leaves, 0))

    def drop_oldest(self) -> None:
        """Forget the oldest row."""
        number = self.rows.first
        for tree in self.trees:
            tree.drop(number)
        self.rows.drop_before(number + 1)

    def restart(self, n_rows: int) -> None:
        """Begin again with the newest rows and the hyper-parameters of the leaves in use."""
        first = self.rows.stop - n_rows
        self.jobs.clear()
        for tree in self.trees:
            tree.restart(np.arange(first, self.rows.stop))
        self.rows.drop_before(first)

    def _evict(self, budget: int) -> None:
        """Drop factors until those of the leaves fit a budget; lent ones count, but do not change which others go."""
        built = [(tree.touch - leaf.touched, leaf) for tree in self.trees for leaf in tree.built()]
        excess = sum(leaf.budget_bytes for _, leaf in built) - budget
        if excess > 0:
            # More than is needed, so that not every new factor asks for this search.
            excess += budget // 8
            for age, leaf in sorted(built, key=lambda pair: -pair[0]):
                # The leaf in use is needed, and a factor that is not exact cannot be rebuilt bit for bit.
                if excess <= 0 or age == 0:
                    break
                if leaf.is_exact:
                    excess -= leaf.budget_bytes
                    leaf.evict()
        for leaf in [leaf for tree in self.trees for leaf in tree.lent()]:
            if excess + leaf.budget_bytes <= 0:
                excess += leaf.budget_bytes
            else:
                leaf.give_back()

    # ------------------------------------------------------------------ columns that come later

    def widen(self, inputs: Array, n_targets: int) -> None:
        """Add input columns, which older rows are taken to have had at these values, and target columns."""
        self.rows.add_inputs(list(inputs))
        self.rows.add_targets(n_targets)
        self.jobs.restart_tuning()
        for tree in self.trees:
            tree.widen()
        self._open_point()

    # ------------------------------------------------------------------ as plain data

    def state(self) -> dict[str, Any]:
        """Everything that cannot be computed again, as plain data."""
        return {
            "rows": self.rows.state(), "trees": [tree.state(self.settings.window is not None) for tree in self.trees],
            "n_learnt": self.n_learnt, "n_gradients": self.jobs.n_gradients, "rng": self.rng.bit_generator.state,
            "jobs": self.jobs.state(), "next_count": self._next_count,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`; from there on, floats are those of the circuits that it was taken from."""
        check_circuits(state, 1 + self.n_inputs, self.n_targets)
        self.rows = RowStore.from_state(state["rows"])
        self.rng.bit_generator.state = state["rng"]
        for tree, tree_state in zip(self.trees, state["trees"], strict=True):
            tree.rows = self.rows
            tree.restore(tree_state)
        self.n_learnt, self.jobs.n_gradients = state["n_learnt"], state["n_gradients"]
        self.jobs.restore(state["jobs"])
        # Files of earlier versions have no such entry.
        self._next_count = state.get("next_count", 0)
        self._open_point()

    @property
    def nbytes(self) -> int:
        """Bytes held by rows and factors."""
        leaves = [leaf for tree in self.trees for leaf in tree.leaves()]
        return self.rows.nbytes + sum(leaf.nbytes + leaf.numbers_.nbytes for leaf in leaves)
