"""Growing circuits over one store of rows, and the work beside the rows: tuning, splits, factors, window, budget.

What is too dear for one row is put off and done in steps, at most one per learnt row.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.gp.tuning import ResumableTuner
from momostream.stream.leaf import Leaf
from momostream.stream.rows import RowStore
from momostream.stream.settings import StreamSettings
from momostream.stream.tree import GONE, Tree

__all__ = ["Circuits"]

Array = NDArray[np.float64]
log = logging.getLogger("momostream")

# Gradients that the first rows may spend beyond what they have paid for.
FREE_GRADIENTS = 100
# Bytes of a leaf without its factor, of which the budget knows as well: numbers of its rows, hyper-parameters, objects.
LEAF_BYTES = 4000
# How often the factors in memory are counted against the budget, in learnt rows.
BUDGET_EVERY = 32


@dataclass(eq=False)
class _Job:
    """Work that is too dear for one row: done in steps, one per learnt row."""

    kind: str
    node: Any
    tree: Tree
    tuner: ResumableTuner | None = None
    stays: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the leaf has left its tree, or was split meanwhile."""
        busy = next(self.tree.leaves(self.node)).busy
        return busy == GONE or (self.kind == "split" and busy != "split")


class Circuits:
    """Trees of GP experts that share their rows.

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
        self.n_learnt = self.n_gradients = 0
        self._jobs: deque[_Job] = deque()
        self._next_count = 0

    @property
    def n_inputs(self) -> int:
        """Number of input columns."""
        return len(self.rows.fill) - 1

    @property
    def n_targets(self) -> int:
        """Number of target columns."""
        return self.rows.n_targets

    def predict_trees(self, point: Array, location: Array, spread: Array) -> None:
        """Set location and spread ``(n_trees, n_targets)`` at a point; infinite spread: nothing is known."""
        for k, tree in enumerate(self.trees):
            tree.predict(point[tree.start :], location[k], spread[k])

    def learn_trees(self, point: Array, y: Array) -> None:
        """Learn the row that was predicted last, forget what has to go, do a step of what is due; NaN is missing."""
        number = self.rows.append(point, y)
        for tree in self.trees:
            tree.learn(number, y, point[tree.start :])
        self.n_learnt += 1
        self._forget()
        self._work()

    @property
    def jobs(self) -> list[str]:
        """Kinds of work that wait."""
        return [job.kind for job in self._jobs if not job.is_over]

    def set_hyperparameters(self, lengthscales: dict[int, float], noise: float | None) -> None:
        """Set lengthscales by column of the points (0 is the time) and the noise ratio in all leaves."""
        # A search that is under way would end where it was going.
        for job in [job for job in self._jobs if job.kind == "tune"]:
            job.node.busy = ""
            self._jobs.remove(job)
        for tree in self.trees:
            for leaf in tree.leaves():
                theta = leaf.theta.copy()
                for column, value in lengthscales.items():
                    if column >= tree.start:
                        theta[column - tree.start] = math.log(value)
                if noise is not None:
                    theta[leaf.inputs.shape[1]] = math.log(noise)
                leaf.condition(theta)

    # ------------------------------------------------------------------ work beside the rows

    def _forget(self) -> None:
        """Drop the oldest rows beyond the window and cold factors beyond the budget."""
        settings = self.settings
        if settings.window is not None:
            while len(self.rows) > settings.window:
                self.drop_oldest()
        if settings.memory_budget is not None and self.n_learnt >= self._next_count:
            self._next_count = self.n_learnt + BUDGET_EVERY
            leaves = LEAF_BYTES * sum(tree.n_leaves for tree in self.trees)
            self._evict(max(settings.memory_budget - self.rows.nbytes - leaves, 0))

    def drop_oldest(self) -> None:
        """Forget the oldest row."""
        number = self.rows.first
        for tree in self.trees:
            tree.drop(number)
        self.rows.drop_before(number + 1)

    def _evict(self, budget: int) -> None:
        if sum(tree.bytes_built for tree in self.trees) <= budget:
            return
        built = [(tree.touch - leaf.touched, leaf) for tree in self.trees for leaf in tree.built()]
        excess = sum(leaf.nbytes for _, leaf in built) - budget
        if excess <= 0:
            return
        # More than is needed, so that not every new factor asks for this search.
        excess += budget // 8
        for age, leaf in sorted(built, key=lambda pair: -pair[0]):
            # A factor that rows were dropped from cannot be made again bit for bit; the leaf in use is needed.
            if excess <= 0 or age == 0:
                break
            if not (leaf.n_updates or leaf.n_pending):
                excess -= leaf.nbytes
                leaf.evict()
        for tree in self.trees:
            tree.built()

    def _work(self) -> None:
        """One step of what is due: a gradient, a split or a factor; never two."""
        self._collect()
        while self._jobs and self._jobs[0].is_over:
            self._jobs.popleft()
        if self._jobs and (self._jobs[0].kind != "tune" or self._jobs[0].tuner is not None or self._may_tune()):
            self._step(self._jobs[0])

    def _collect(self, stay: bool = False) -> None:
        """Take over what the trees have found to be due; jobs that ``stay`` give way to no newer one."""
        for tree in self.trees:
            while tree.due:
                self._enqueue(_Job(*tree.due.popleft(), tree, stays=stay))

    def _may_tune(self) -> bool:
        """Whether the gradients so far are within what the rows have paid for, so that another search may begin."""
        return self.n_gradients < FREE_GRADIENTS + self.n_learnt // self.settings.tuning_interval

    def _enqueue(self, job: _Job) -> None:
        """Splits go first and end the tuning of what they split; a leaf that waits gives way to a newer one."""
        gone = set(job.tree.leaves(job.node)) if job.kind == "split" else set()
        for old in [old for old in self._jobs if old.kind == "tune" and old.tree is job.tree]:
            if old.node in gone:
                if old.tuner is not None:
                    # The children go on from what was found so far.
                    old.node.condition(old.tuner.theta)
                self._jobs.remove(old)
            elif job.kind == "tune" and old.tuner is None and not (old.stays or job.stays):
                old.node.busy = ""
                self._jobs.remove(old)
        if job.kind == "tune":
            self._jobs.append(job)
        else:
            self._jobs.appendleft(job)

    def _step(self, job: _Job) -> None:
        """Do a bounded part of a job."""
        if job.kind == "split":
            what = job.tree.split(job.node)
            log.info("row %d: %s", self.n_learnt, what)
            self._jobs.popleft()
            return
        leaf: Leaf = job.node
        if job.kind == "build":
            self._jobs.popleft()
            if not leaf.built:
                job.tree.build(leaf)
            return
        if job.tuner is None:
            job.tuner = job.tree.tuner(leaf)
        if job.tuner is not None and job.tuner.n_left:
            job.tuner.advance()
            self.n_gradients += 1
        if job.tuner is None or not job.tuner.n_left:
            self._jobs.popleft()
            leaf.busy = ""
            if job.tuner is not None:
                leaf.condition(job.tuner.theta)
                self._jobs.appendleft(_Job("build", leaf, job.tree))
                log.info("row %d: tuned a leaf of %d rows", self.n_learnt, leaf.n_rows)

    def finish(self) -> None:
        """Do all work that is due, whatever the gradients cost."""
        while self._jobs or any(tree.due for tree in self.trees):
            self._collect(stay=True)
            if self._jobs[0].is_over:
                self._jobs.popleft()
            else:
                self._step(self._jobs[0])

    def retune(self) -> None:
        """Put the leaves used last, at most four of each tree, up for tuning; done step by step as rows come."""
        if not self.settings.tuning_evaluations:
            return
        for tree in self.trees:
            for leaf in sorted(tree.leaves(), key=lambda leaf: -leaf.touched)[:4]:
                if not leaf.busy and leaf.n_rows >= 4:
                    tree.set_busy(leaf, "tune")
                    self._jobs.append(_Job("tune", leaf, tree, stays=True))

    # ------------------------------------------------------------------ as plain data

    def state(self) -> dict[str, Any]:
        """Everything that cannot be made again, as plain data."""
        jobs = []
        for job in self._jobs:
            if job.is_over:
                continue
            jobs.append({
                "kind": job.kind, "tree": self.trees.index(job.tree), "node": job.tree.nodes().index(job.node),
                "tuner": None if job.tuner is None else job.tuner.state(), "stays": job.stays,
            })  # fmt: skip
        return {
            "rows": self.rows.state(), "trees": [tree.state(self.settings.window is not None) for tree in self.trees],
            "n_learnt": self.n_learnt, "n_gradients": self.n_gradients, "rng": self.rng.bit_generator.state,
            "jobs": jobs,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `state` was taken from; goes on as that would have."""
        self.rows = RowStore.from_state(state["rows"])
        self.rng.bit_generator.state = state["rng"]
        for tree, tree_state in zip(self.trees, state["trees"], strict=True):
            tree.rows = self.rows
            tree.restore(tree_state)
        self.n_learnt, self.n_gradients = state["n_learnt"], state["n_gradients"]
        for job in state["jobs"]:
            tree = self.trees[job["tree"]]
            node = tree.nodes()[job["node"]]
            tuner = None if job["tuner"] is None else ResumableTuner.from_state(job["tuner"], tree.covariance)
            self._jobs.append(_Job(job["kind"], node, tree, tuner, job["stays"]))
            if job["kind"] != "build":
                tree.set_busy(node, job["kind"])

    @property
    def nbytes(self) -> int:
        """Bytes held by rows and factors."""
        leaves = [leaf for tree in self.trees for leaf in tree.leaves()]
        return self.rows.nbytes + sum(leaf.nbytes + leaf.numbers_.nbytes for leaf in leaves)
