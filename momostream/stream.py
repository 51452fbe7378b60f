"""The model behind the streaming facades: experts under one stack, fed one row at a time.

Arrays in column order; names, dicts and frames belong to the facades. NaN is a missing input or target.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.autoregression import Autoregression
from momostream.covariance import KERNELS, Covariance
from momostream.distribution import CopulaDistribution, Distribution, MixtureDistribution
from momostream.laws import Law, Mixture, Routed, StudentT
from momostream.leaves import Leaf
from momostream.marginals import Marginals
from momostream.rows import RowStore
from momostream.stacking import ETA, Stack
from momostream.statistics import RunningMoments
from momostream.trees import GONE, Growth, Tree
from momostream.tuning import ResumableTuner

__all__ = ["StreamModel", "StreamSettings"]

Array = NDArray[np.float64]
log = logging.getLogger("momostream")

CHOICES = {
    "split_by": ("relevance", "variance"),
    "group_by": ("random", "independence"),
    "coupling": ("shared", "independent"),
    "weights": ("stacking", "posterior", "uniform"),
}
LEAST = {
    "max_points": 8, "n_components": 1, "n_groups": 1, "mixture_depth": 0, "tuning_points": 4,
    "tuning_evaluations": 0, "tuning_interval": 1, "window": 1, "memory_budget": 0,
}  # fmt: skip
OPTIONAL = ("mixture_depth", "window", "memory_budget")

# Rows are learnt in blocks of this many, once the first ones have been learnt one by one.
BLOCK, SINGLY = 256, 64
# Experts that do not see the time keep and are tuned on so many times more rows: all their rows matter, not the newest.
WITHOUT_CLOCK = 1.5
# Gradients that the first rows may spend beyond what they have paid for.
FREE_GRADIENTS = 100
# In blocks, one step of heavy work is done for so many rows.
ROWS_PER_STEP = 8

Wrap = Callable[[Marginals], Any]

# Bytes of a leaf without its factor, of which the budget knows as well: numbers of its rows, hyper-parameters, objects.
LEAF_BYTES = 4000
# How often the factors in memory are counted against the budget, in learnt rows.
BUDGET_EVERY = 32


@dataclass(frozen=True)
class StreamSettings:
    """Parameters of the model; `momostream.MOMoGPRegressor` documents them."""

    experts: tuple[str, ...] = ("clock matern32", "matern32", "lags")
    max_points: int = 256
    n_components: int = 1
    n_groups: int = 1
    mixture_depth: int | None = 1
    split_by: str = "relevance"
    group_by: str = "random"
    coupling: str = "shared"
    weights: str = "stacking"
    eta: float = ETA
    discount: float = 0.97
    forgetting: float = 0.998
    tuning_points: int = 128
    tuning_evaluations: int = 20
    tuning_interval: int = 32
    first_tuning: int = 16
    tuning_growth: float = 1.9
    child_width: float = 0.5
    window: int | None = None
    memory_budget: int | None = None
    seed: int | None = None
    circuits: tuple[tuple[int, Covariance], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check every parameter, so that a mistake is named before any row is lost to it."""
        for name, accepted in CHOICES.items():
            if getattr(self, name) not in accepted:
                allowed = ", ".join(map(repr, accepted))
                raise ValueError(f"{name}={getattr(self, name)!r} is not accepted: use one of {allowed}")
        for name, bound in LEAST.items():
            value = getattr(self, name)
            if value is None and name in OPTIONAL:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < bound:
                raise ValueError(f"{name}={value!r} is not accepted: use a whole number of at least {bound}")
        if self.seed is not None and (
            isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer) or self.seed < 0
        ):
            raise ValueError(f"seed={self.seed!r} is not accepted: use a whole number of at least 0, or None")
        for name in ("discount", "forgetting", "eta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, float | int) or not 0.0 < value <= 1.0:
                raise ValueError(f"{name}={value!r} is not accepted: use a number above 0 and at most 1")
        for name, least in {"first_tuning": 4.0, "tuning_growth": 1.01, "child_width": 1e-3}.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, float | int) or not least <= value < math.inf:
                raise ValueError(f"{name}={value!r} is not accepted: use a number of at least {least}")
        object.__setattr__(self, "circuits", self._read_experts())

    def _read_experts(self) -> tuple[tuple[int, Covariance], ...]:
        """First column and covariance of each circuit."""
        known = isinstance(self.experts, tuple) and all(isinstance(name, str) for name in self.experts)
        if not known or not self.experts or len(set(self.experts)) < len(self.experts):
            raise ValueError(f"experts={self.experts!r} is not accepted: use a tuple of different names")
        circuits = []
        for name in self.experts:
            if name == "lags":
                continue
            kernel = name.removeprefix("clock ")
            try:
                circuits.append((0 if name.startswith("clock ") else 1, Covariance.parse(kernel)))
            except ValueError:
                kernels = ", ".join(KERNELS)
                raise ValueError(
                    f"unknown expert {name!r}: use 'lags', a kernel ({kernels}, optionally followed by '+linear'), "
                    "or 'clock ' and a kernel"
                ) from None
        return tuple(circuits)

    @property
    def has_lags(self) -> bool:
        """Whether the linear experts on lags and the last value take part."""
        return "lags" in self.experts

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the experts as the stack counts them."""
        names: list[str] = [name for name in self.experts if name != "lags"]
        return tuple(names) + (Autoregression.EXPERTS if self.has_lags else ())

    def growth(self, start: int) -> Growth:
        """What a tree that sees the points from this column on needs to know."""
        depth = 10**9 if self.mixture_depth is None else self.mixture_depth
        more = WITHOUT_CLOCK if start else 1.0
        return Growth(
            int(more * self.max_points), self.n_components, self.n_groups, depth, self.split_by, self.group_by,
            self.coupling, self.weights, self.eta, self.discount, int(more * self.tuning_points),
            self.tuning_evaluations, self.first_tuning, self.tuning_growth, self.child_width,
        )  # fmt: skip


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
    n_learnt
        Rows learnt so far.
    """

    def __init__(self, settings: StreamSettings, n_inputs: int, n_targets: int) -> None:
        self.settings = settings
        self.rng = np.random.default_rng(settings.seed)
        self.rows = RowStore(n_inputs, n_targets)
        self.inputs = RunningMoments(n_inputs)
        self.trees = [
            Tree(self.rows, start, kernel, settings.growth(start), self.rng) for start, kernel in settings.circuits
        ]
        self.lags = Autoregression(n_inputs, n_targets, settings.forgetting) if settings.has_lags else None
        self.stack = Stack(len(settings.members), n_targets, settings.eta)
        self.log_evidence = np.zeros(len(settings.members))
        self.n_learnt = self.n_gradients = 0
        self._jobs: deque[_Job] = deque()
        self._scratch()

    def _scratch(self) -> None:
        """Buffers, and views of the stack's law in which the experts write."""
        self._point = np.zeros(len(self.rows.fill))
        self._views = [self._point[tree.start :] for tree in self.trees]
        self._x = self._point[1:]
        law, n = self.stack.law, len(self.trees)
        self._asked: list[tuple[Any, Array, Array, Array]] = [
            (tree.predict, view, law[0, k], law[1, k])
            for k, (tree, view) in enumerate(zip(self.trees, self._views, strict=True))
        ]
        if self.lags is not None:
            self._asked.append((self.lags.predict, self._x, law[0, n : n + 3], law[1, n : n + 3]))
        self._next_count = 0
        self._is_stacked = self.settings.weights == "stacking"
        self._predicted: bytes | None = None

    @property
    def n_inputs(self) -> int:
        """Number of input columns."""
        return len(self.rows.fill) - 1

    @property
    def n_targets(self) -> int:
        """Number of target columns."""
        return self.rows.n_targets

    # ------------------------------------------------------------------ one row

    def predict(self, x: Array, time: float) -> Array:
        """Mean of each output at ``x``; NaN is a missing input. The array is overwritten by the next call."""
        point = self._point
        point[0] = time
        self._x[:] = x
        # A product with itself is the cheapest way to find a NaN.
        if math.isnan(point.dot(point)):
            gaps = np.isnan(point)
            point[gaps] = np.concatenate([[0.0], self.inputs.mean])[gaps]
        key = point.tobytes()
        if key != self._predicted:
            for predict, view, location, spread in self._asked:
                predict(view, location, spread)
            self.stack.predict()
            self._predicted = key
        return self.stack.mean if self._is_stacked else self._shares() @ self.stack.law[0]

    def _shares(self) -> Array:
        """Weight of each expert where they are not stacked."""
        known = np.isfinite(self.stack.law[1]).all(axis=1)
        log_weights = np.where(known, self.log_evidence, -np.inf)
        if not known.any():
            return np.full(len(known), 1.0 / len(known))
        return np.exp(log_weights - np.logaddexp.reduce(log_weights))

    def law(self, wrap: Wrap | None = None) -> Callable[[], Distribution]:
        """The law of the row that was predicted last, as something that needs the model no more.

        ``wrap`` turns the marginals into those of the user's units.
        """
        if not self._is_stacked:
            mixture = MixtureDistribution(self._mixture())
            return lambda: mixture
        law = self.stack.law.copy()
        correlation, dof = self.stack.copula
        return lambda: _joint_law(law[None], correlation, dof, wrap, None)

    def _mixture(self) -> Law:
        shares = self._shares()
        location, spread = self.stack.law[0], self.stack.law[1]
        parts: list[Law] = []
        for tree, view in zip(self.trees, self._views, strict=True):
            parts.append(tree.law(tree.root, view, self.n_targets))
        for k in range(len(parts), len(shares)):
            scale = np.where(np.isfinite(spread[k]) & (spread[k] > 0.0), spread[k], 1.0)
            parts.append(StudentT(location[k][None].copy(), np.diag(scale**2), 10.0))
        used = [k for k in range(len(parts)) if shares[k] > 0.0]
        return Mixture(np.log(shares[used]), [parts[k] for k in used])

    def learn(self, x: Array, y: Array, time: float) -> None:
        """Learn one row; NaN is missing. A row without any target is not learnt."""
        if math.isnan(y.dot(y)) and np.isnan(y).all():
            return
        self.predict(x, time)
        if self._is_stacked:
            self.stack.learn(y)
        else:
            self._weigh(y)
        number = self.rows.append(self._point, y)
        for tree, view in zip(self.trees, self._views, strict=True):
            tree.learn(number, y, view)
        if self.lags is not None:
            self.lags.learn(self._x, y)
        self.inputs.learn(x)
        self.n_learnt += 1
        self._predicted = None
        self._forget()
        self._work()

    # ------------------------------------------------------------------ many rows

    def learn_many(self, X: Array, Y: Array, times: Array | None, thorough: bool = False) -> None:
        """Learn rows in order, in blocks.

        Parameters
        ----------
        X, Y
            Inputs and targets; NaN is missing.
        times
            Time of each row; by default the number of rows learnt before it.
        thorough
            Do all work that is due after each block, instead of a few steps of it.
        """
        known = ~np.isnan(Y).all(axis=1)
        X, Y = X[known], Y[known]
        times = None if times is None else times[known]
        at = 0
        while at < len(X):
            small = self.n_learnt < SINGLY or not self._is_stacked
            size = 1 if small else min(BLOCK, len(X) - at, self.lags.room if self.lags is not None else BLOCK)
            rows = slice(at, at + max(size, 1))
            now = self.n_learnt + np.arange(len(X[rows]), dtype=np.float64) if times is None else times[rows]
            if size <= 1:
                self.learn(np.ascontiguousarray(X[at]), np.ascontiguousarray(Y[at]), float(now[0]))
            else:
                self._learn_block(X[rows], np.ascontiguousarray(Y[rows]), now)
                for _ in range(max(size // ROWS_PER_STEP, 1)):
                    self._work()
            if thorough:
                self.finish()
            at = rows.stop

    def _learn_block(self, X: Array, Y: Array, times: Array) -> None:
        points = np.column_stack([times, X])
        if np.isnan(points).any():
            # A missing input takes the mean of the rows before it.
            for i, x in enumerate(X):
                points[i, 1:] = np.where(np.isnan(x), self.inputs.mean, x)
                self.inputs.learn(np.ascontiguousarray(x))
        else:
            self.inputs.learn_rows(np.ascontiguousarray(X))
        numbers = self.rows.extend(points, Y)
        laws = np.empty((len(X), 5, len(self.settings.members), self.n_targets))
        self._fill(laws, lambda k, P, a, b: self.trees[k].learn_rows(numbers, P, Y, a, b), points)
        if self.lags is not None:
            part = np.empty((len(X), 2, 3, self.n_targets))
            self.lags.learn_rows(np.ascontiguousarray(points[:, 1:]), Y, part)
            laws[:, :2, len(self.trees) :] = part
        self.stack.learn_rows(Y, laws)
        self.n_learnt += len(X)
        self._predicted = None
        self._forget()

    def _fill(self, laws: Array, ask: Callable[[int, Array, Array, Array], None], points: Array) -> None:
        """Let each tree write its locations and spreads."""
        for k, tree in enumerate(self.trees):
            part = np.empty((2, len(points), self.n_targets))
            ask(k, np.ascontiguousarray(points[:, tree.start :]), part[0], part[1])
            laws[:, 0, k], laws[:, 1, k] = part

    def predict_many(
        self, X: Array, times: Array, names: tuple[Hashable, ...] | None = None, wrap: Wrap | None = None
    ) -> Distribution:
        """The law of many rows, all given the rows learnt so far."""
        points = np.column_stack([times, np.where(np.isnan(X), self.inputs.mean, X)])
        if not self._is_stacked:
            return _many_mixtures(self, points, names)
        laws = np.empty((len(X), 5, len(self.settings.members), self.n_targets))
        self._fill(laws, lambda k, P, a, b: self.trees[k].predict_rows(P, a, b), points)
        if self.lags is not None:
            part = np.empty((2, len(X), 3, self.n_targets))
            self.lags.predict_rows(np.ascontiguousarray(points[:, 1:]), part[0], part[1])
            laws[:, 0, len(self.trees) :], laws[:, 1, len(self.trees) :] = part
        self.stack.predict_rows(laws)
        self._predicted = None
        return _joint_law(laws, *self.stack.copula, wrap, names)

    # ------------------------------------------------------------------ the root

    def root_weights(self) -> Array:
        """Weight of each expert and output, shape ``(n_experts, n_targets)``."""
        if self._is_stacked:
            return self.stack.weights
        weights = np.exp(self.log_evidence - np.logaddexp.reduce(self.log_evidence))
        return np.repeat(weights[:, None], self.n_targets, axis=1)

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
        shares = self.stack.law[4].copy()
        if not self._is_stacked:
            shares = np.repeat(self._shares()[:, None], self.n_targets, axis=1)
        relevance = np.zeros(1 + self.n_inputs)
        similarity: dict[int, float] = {}
        for k, (tree, view) in enumerate(zip(self.trees, self._views, strict=True)):
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
        self._predicted = None
        if action == "widen":
            self.stack.widen_scales(2.0)
        elif action == "forget":
            keep = min(len(self.rows), max(16, self.settings.max_points // 4))
            self._jobs.clear()
            for tree in self.trees:
                tree.restart(np.arange(self.rows.stop - keep, self.rows.stop))
            self.rows.drop_before(self.rows.stop - keep)
        else:
            self.retune()

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
        self._predicted = None

    @property
    def jobs(self) -> list[str]:
        """Kinds of work that wait."""
        return [job.kind for job in self._jobs if not job.is_over]

    @property
    def nbytes(self) -> int:
        """Bytes held by rows, factors and the larger statistics."""
        leaves = [leaf for tree in self.trees for leaf in tree.leaves()]
        total = self.rows.nbytes + sum(leaf.nbytes + leaf.numbers_.nbytes for leaf in leaves)
        return total + self.stack.nbytes + (self.lags.nbytes if self.lags is not None else 0)

    def _weigh(self, y: Array) -> None:
        """Where experts are not stacked: weigh them by the product of all their densities if that is asked for."""
        shares = self._shares()[:, None]
        location, spread = self.stack.law[0], np.where(np.isfinite(self.stack.law[1]), self.stack.law[1], 0.0)
        mean = (shares * location).sum(axis=0)
        variance = (shares * (spread**2 + (location - mean) ** 2)).sum(axis=0)
        self.stack.note(np.where(variance > 0.0, (y - mean) / np.sqrt(np.maximum(variance, 1e-300)), np.nan))
        if self.settings.weights == "posterior":
            law = self.stack.law
            with np.errstate(invalid="ignore", divide="ignore"):
                density = -0.5 * ((y - law[0]) / law[1]) ** 2 - np.log(law[1])
            self.log_evidence += np.nansum(np.where(np.isfinite(density), density, 0.0), axis=1)
            self.log_evidence -= self.log_evidence.max()

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
        """One step of what is due: a gradient, a split, a factor or the weights of the lags; never two."""
        self._collect()
        while self._jobs and self._jobs[0].is_over:
            self._jobs.popleft()
        if self.lags is not None and self.lags.is_due:
            self.lags.refresh()
            # The first refreshes are small, and one follows the other.
            if self.n_learnt > 64:
                return
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

    # ------------------------------------------------------------------ columns that come later

    def widen(self, inputs: Array, n_targets: int) -> None:
        """Add input columns, which older rows are taken to have had at these values, and target columns."""
        self.rows.add_inputs(list(inputs))
        self.rows.add_targets(n_targets)
        self.inputs.widen(inputs)
        for job in self._jobs:
            # Their rows have other columns now.
            if job.kind == "tune":
                job.tuner = None
        for tree in self.trees:
            tree.widen()
        if self.lags is not None:
            self.lags.widen(self.n_inputs, self.n_targets, self.rows.fill[1:])
        if n_targets:
            self.stack.widen(self.n_targets)
        self._scratch()

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
            "lags": None if self.lags is None else self.lags.state(), "stack": self.stack.state(),
            "inputs": self.inputs.moments.copy(), "log_evidence": self.log_evidence.copy(), "n_learnt": self.n_learnt,
            "n_gradients": self.n_gradients,
            "rng": self.rng.bit_generator.state, "jobs": jobs,
        }  # fmt: skip

    @classmethod
    def from_state(cls, settings: StreamSettings, state: dict[str, Any]) -> StreamModel:
        """The model that `state` was taken from; goes on as it would have."""
        rows = RowStore.from_state(state["rows"])
        model = cls(settings, len(rows.fill) - 1, rows.n_targets)
        model.rows = rows
        model.rng.bit_generator.state = state["rng"]
        for tree, tree_state in zip(model.trees, state["trees"], strict=True):
            tree.rows, tree.rng = rows, model.rng
            tree.restore(tree_state)
        if model.lags is not None:
            model.lags.restore(state["lags"])
        model.stack.restore(state["stack"])
        model.inputs.moments = state["inputs"].copy()
        model.log_evidence, model.n_learnt = state["log_evidence"].copy(), state["n_learnt"]
        model.n_gradients = state["n_gradients"]
        for job in state["jobs"]:
            tree = model.trees[job["tree"]]
            node = tree.nodes()[job["node"]]
            tuner = None if job["tuner"] is None else ResumableTuner.from_state(job["tuner"], tree.covariance)
            model._jobs.append(_Job(job["kind"], node, tree, tuner, job["stays"]))
            if job["kind"] != "build":
                tree.set_busy(node, job["kind"])
        model._scratch()
        return model


def _joint_law(
    laws: Array, correlation: Array, dof: float, wrap: Wrap | None, names: tuple[Hashable, ...] | None
) -> Distribution:
    """The law of rows from what the stack wrote down, ``(n, 5, n_experts, n_targets)``."""
    location, _, scale, dofs, weight = laws.swapaxes(0, 1)
    marginals = Marginals(weight, location, scale, dofs)
    return CopulaDistribution(marginals if wrap is None else wrap(marginals), correlation, dof, names)


def _many_mixtures(model: StreamModel, points: Array, names: tuple[Hashable, ...] | None) -> Distribution:
    """Exact mixtures of many rows, each on its own: components differ from row to row."""
    laws = []
    for point in points:
        model.predict(point[1:], float(point[0]))
        laws.append(model._mixture())
    return MixtureDistribution(Routed(np.arange(len(laws)), laws), names)
