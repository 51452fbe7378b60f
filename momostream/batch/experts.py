"""Experts that the root sum mixes: GP circuits (plain, on warped covariates, on residuals) and linear regression."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from momostream.batch import passes
from momostream.batch.linear import LinearRegression
from momostream.batch.nodes import Circuit, Node
from momostream.batch.passes import Components
from momostream.batch.region import HeldOut, Posterior, Region
from momostream.batch.structure import SplitRules, learn_structure
from momostream.batch.warp import Warp
from momostream.batch.weights import Tail, stacking_weights
from momostream.distributions.mixtures import Multivariate
from momostream.distributions.student import correlation_of, t_variance
from momostream.gp.covariance import Covariance, input_std
from momostream.gp.scaling import standardisation
from momostream.gp.tuning import TuningJob

__all__ = ["CircuitExpert", "ExpertSpec", "FactorBudget", "LinearExpert", "TuningRules"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

logger = logging.getLogger(__name__)

_NO_ROWS = np.empty(0, dtype=np.intp)

# Least scale of a region's targets, and of its predictions, relative to the standard deviation of a target over all
# rows. A target that is constant or saturated in one cell moves again in the next.
LEAST_SCALE, LEAST_PREDICTED = 1e-3, 1e-4

# Rows appended before the next check whether a region must be split.
APPEND_BLOCK = 64


@dataclass(frozen=True)
class ExpertSpec:
    """An expert as named by users: ``"warped matern12"``, ``"residual matern32+linear"`` or ``"linear"``.

    Examples
    --------
    >>> ExpertSpec.parse("warped matern12").warped
    True
    """

    covariance: Covariance | None
    warped: bool = False
    residual: bool = False

    @classmethod
    def parse(cls, text: str) -> ExpertSpec:
        """Read ``"linear"`` or ``"[warped] [residual] KERNEL[+linear]"``."""
        if text == "linear":
            return cls(None)
        words = text.split()
        marks, kernel = words[:-1], words[-1] if words else ""
        if set(marks) - {"warped", "residual"} or len(set(marks)) < len(marks):
            raise ValueError(
                f"unknown expert {text!r}: accepted are 'linear' and kernels, optionally after 'warped' or 'residual'"
            )
        return cls(Covariance.parse(kernel), "warped" in marks, "residual" in marks)


@dataclass(frozen=True)
class TuningRules:
    """Settings of the search for hyper-parameters in batch."""

    max_rows: int = 1000
    max_iterations: int = 40
    restarts: int = 0
    random_start: bool = False
    tied: bool = False


class FactorBudget:
    """Keeps the factors of the regions used last within a number of bytes."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._held = 0
        # Bytes of each region when it was last counted, least recently used first.
        self._bytes: OrderedDict[Region, int] = OrderedDict()

    def touch(self, region: Region) -> Region:
        """Note that a region is about to be used; evict the coldest factors when there are too many bytes."""
        if self.limit is None:
            return region
        if self._bytes:
            # The region before this one may have built factors since it was touched.
            self._count(next(reversed(self._bytes)))
        self._count(region)
        self._bytes.move_to_end(region)
        while self._held > self.limit and len(self._bytes) > 1:
            cold = next(iter(self._bytes))
            cold.evict()
            self.forget(cold)
        return region

    def forget(self, region: Region) -> None:
        """Stop counting a region that is no longer used."""
        self._held -= self._bytes.pop(region, 0)

    def _count(self, region: Region) -> None:
        self._held += region.nbytes - self._bytes.get(region, 0)
        self._bytes[region] = region.nbytes


class CircuitExpert:
    """A circuit with its regions, its view of the covariates, and its tails.

    Attributes
    ----------
    circuit, regions
        The table of nodes, and the regions that its region nodes refer to by number.
    rows, outputs
        Of each region: positions of its rows among those given to `grow` (none after a later split), and of its
        outputs.
    warp
        View of the covariates, None for the identity. Gates cut in this view.
    tail
        Learnt tails for stacking, None where the distribution is exact.
    given
        Whether the structure was given by hand; its regions are then never split.
    base
        The linear regression whose residuals are the targets of this expert; None if it predicts the targets
        themselves.
    """

    def __init__(
        self,
        name: str,
        spec: ExpertSpec,
        plan: SplitRules,
        split_by: str,
        gaussian: bool,
        discount: float,
        budget: FactorBudget,
    ) -> None:
        assert spec.covariance is not None
        self.name, self.spec, self.plan, self.split_by = name, spec, plan, split_by
        self.covariance, self.gaussian, self.discount, self.budget = spec.covariance, gaussian, discount, budget
        self.circuit = Circuit()
        self.regions: list[Region] = []
        self.rows: list[Rows] = []
        self.outputs: list[Rows] = []
        self.warp: Warp | None = None
        self.tail: Tail | None = None
        self.base: LinearRegression | None = None
        self.given = False

    def view(self, X: Array) -> Array:
        """The covariates as this expert sees them."""
        return X if self.warp is None else self.warp(X)

    # ------------------------------------------------------------------ fitting, in the order of the calls

    def root_jobs(
        self, X: Array, Y: Array, rules: TuningRules, seed: np.random.SeedSequence, structure: Circuit | None
    ) -> list[TuningJob]:
        """Fix the view and return jobs that tune on a sample of all rows, one per group of tied targets.

        No jobs are needed where one region will hold all rows anyway.
        """
        if self.spec.warped:
            self.warp = Warp.fit(X)
        splits = structure is not None or (self.plan.n_cells > 1 and len(X) > self.plan.max_points)
        if not splits and not rules.tied:
            return []
        view = self.view(X)
        groups = np.split(np.arange(Y.shape[1]), Y.shape[1]) if self.plan.single_outputs else [np.arange(Y.shape[1])]
        return [
            self._job(view[kept], Y[np.ix_(kept, group)], None, rules, child)
            for group, child in zip(groups, seed.spawn(len(groups)), strict=True)
            for kept in [_with_targets(Y[:, group])]
        ]

    def grow(
        self,
        X: Array,
        Y: Array,
        root_thetas: list[Array],
        seed: np.random.SeedSequence,
        structure: Circuit | None,
        separate: bool,
    ) -> None:
        """Learn the structure (or use the one given) and put the rows into regions.

        ``root_thetas`` are the results of `root_jobs`; regions start from them.
        """
        view, P = self.view(X), Y.shape[1]
        centre = self.covariance.prior(input_std(view)).centre
        self._standard = standardisation(Y)
        varies = np.nanmax(Y, axis=0, initial=-np.inf) > np.nanmin(Y, axis=0, initial=np.inf)
        self._floor = np.where(varies, LEAST_PREDICTED, 1.0) * self._standard[1]
        self.given = structure is not None
        self._starts = (root_thetas if len(root_thetas) == P else root_thetas * P) or [centre] * P

        if structure is not None:
            self._take_structure(structure, view, Y)
            return
        rng = np.random.default_rng(seed)

        def grow_over(outputs: Rows) -> int:
            def make_region(rows: Rows, columns: Rows) -> int:
                return self._add_region(view, Y, rows, outputs[columns])

            circuit = learn_structure(
                view, Y[:, outputs], self.plan, self._relevance(root_thetas), make_region, rng, self.circuit, outputs
            )
            return circuit.root

        if separate and P > 1:
            roots = [grow_over(np.array([p], dtype=np.intp)) for p in range(P)]
            self.circuit.add_outputs(roots)
        else:
            grow_over(np.arange(P))

    def region_jobs(self, rules: TuningRules, seed: np.random.SeedSequence) -> list[TuningJob]:
        """Jobs that tune each region on its own rows, started from the root's hyper-parameters."""
        if rules.tied:
            return []
        single = len(self.regions) == 1
        return [
            self._job(region.X, region.Y, None if single else region.theta, rules, child)
            for region, child in zip(self.regions, seed.spawn(len(self.regions)), strict=True)
        ]

    def accept(self, thetas: list[Array]) -> None:
        """Use the results of `region_jobs`."""
        for region, outputs, theta in zip(self.regions, self.outputs, thetas, strict=True):
            region.condition(theta, *self._standard_of(region.Y, outputs))

    def _job(
        self, X: Array, Y: Array, start: Array | None, rules: TuningRules, seed: np.random.SeedSequence
    ) -> TuningJob:
        return TuningJob.draw(
            self.covariance,
            X,
            Y,
            start,
            max_rows=rules.max_rows,
            max_iterations=rules.max_iterations,
            restarts=rules.restarts,
            random_start=rules.random_start,
            seed=seed,
        )

    def _relevance(self, thetas: list[Array]) -> Array:
        """Factor on the variance of each covariate when they are ranked for a split."""
        n_inputs = self.covariance.n_inputs(self._starts[0])
        if self.split_by == "variance" or not thetas:
            return np.ones(n_inputs)
        return np.mean([self.covariance.inverse_lengths(theta) ** 2 for theta in thetas], axis=0)

    def _standard_of(self, Y: Array, outputs: Rows) -> tuple[Array, Array]:
        """Offset and scale of a region with targets ``Y``; a target that it never saw gets those of all rows."""
        unseen = np.isnan(Y).all(axis=0)
        offset, scale = standardisation(Y)
        least = LEAST_SCALE * self._standard[1][outputs]
        scale = np.where(unseen, self._standard[1][outputs], np.maximum(scale, least))
        return np.where(unseen, self._standard[0][outputs], offset), scale

    def _region(self, theta: Array, X: Array, Y: Array, outputs: Rows) -> Region:
        offset, scale = self._standard_of(Y, outputs)
        return Region(
            self.covariance,
            theta,
            X,
            Y,
            discount=self.discount,
            gaussian=self.gaussian,
            offset=offset,
            scale=scale,
            floor=self._floor[outputs],
        )

    def _add_region(self, view: Array, Y: Array, rows: Rows, outputs: Rows) -> int:
        """New region for these rows and outputs; rows without any of these outputs are left out."""
        rows = rows[_with_targets(Y[np.ix_(rows, outputs)])]
        self.regions.append(self._region(self._starts[outputs[0]], view[rows], Y[np.ix_(rows, outputs)], outputs))
        self.rows.append(rows)
        self.outputs.append(outputs)
        return len(self.regions) - 1

    def _take_structure(self, structure: Circuit, view: Array, Y: Array) -> None:
        """Copy a circuit given by hand; its cuts are in the units of the covariates."""
        for node in structure.nodes:
            cuts = node.cuts
            if self.warp is not None and len(cuts):
                inside = np.zeros((len(cuts), view.shape[1]))
                inside[:, node.column] = cuts
                cuts = self.warp(inside)[:, node.column]
            self.circuit.nodes.append(Node(node.kind, node.outputs, node.children, node.log_weights, node.column, cuts))
        self.circuit.root = structure.root
        for number, rows in sorted(passes.assign_rows(self.circuit, view).items()):
            node = self.circuit[number]
            node.region = self._add_region(view, Y, rows, node.outputs)

    # ------------------------------------------------------------------ held-out answers and weights

    def targets(self, X: Array, Y: Array, blocks: Rows | None) -> Array:
        """The targets that this expert is trained on: ``Y``, or the held-out residuals of the base."""
        return Y if self.base is None else Y - self.base.held_out(X, Y, blocks).mean

    def weigh_by_stacking(self, X: Array, Y: Array, blocks: Rows | None) -> Components:
        """Learn tails and the weights of all sums from held-out densities; returns the held-out components."""
        view, targets = self.view(X), self.targets(X, Y, blocks)
        answers = [
            self.budget.touch(region).held_out(None if blocks is None else blocks[rows], own_scatter=True)
            for region, rows in zip(self.regions, self.rows, strict=True)
        ]
        self.tail = self._fit_tail(Y.shape[1], answers)

        def of_region(number: int, rows: Rows) -> Components:
            region, answer = self.regions[number], answers[number]
            mean = np.full((len(rows), region.n_targets), np.nan)
            scale = np.ones_like(mean)
            known = np.searchsorted(rows, self.rows[number])
            mean[known], scale[known] = answer.mean, answer.scale
            return self._with_tail(number, mean, scale)

        def weigh(number: int, children: list[Components], rows: Rows) -> Array:
            node = self.circuit[number]
            wanted = targets[np.ix_(rows, node.outputs)]
            densities = np.stack([log_densities(child, wanted) for child in children])
            node.log_weights = np.log(stacking_weights(densities))
            return node.log_weights

        held_out = passes.components(self.circuit, view, of_region, weigh)
        held_out.means += (Y - targets)[:, None]
        return held_out

    def _fit_tail(self, n_targets: int, answers: list[HeldOut]) -> Tail:
        scores: list[list[Array]] = [[np.empty(0)] for _ in range(n_targets)]
        for region, outputs, answer in zip(self.regions, self.outputs, answers, strict=True):
            z = (region.Y - answer.mean) / answer.scale
            for column, p in enumerate(outputs):
                scores[p].append(z[:, column])
        return Tail.fit([np.concatenate(each) for each in scores])

    def _with_tail(self, number: int, mean: Array, scale: Array) -> Components:
        region, outputs = self.regions[number], self.outputs[number]
        S, dof = self.budget.touch(region).moments()
        return _with_tail(Components.single(mean, scale, dof, correlation_of(S)), self.tail, outputs)

    # ------------------------------------------------------------------ predicting

    def evidence(self, number: int) -> float:
        """Log evidence of a region."""
        return self.budget.touch(self.regions[number]).log_evidence()

    def components(self, X: Array) -> Components:
        """Marginal components and correlations of new rows."""
        predict = self._predictor(X)

        def of_region(number: int, rows: Rows) -> Components:
            answer = predict(number, rows)
            return self._with_tail(number, answer.mean, answer.scale)

        return passes.components(self.circuit, self.view(X), of_region)

    def means(self, X: Array) -> Array:
        """Means of new rows, without their variances."""
        view = self.view(X)
        found = passes.means(self.circuit, view, lambda n, rows: self.budget.touch(self.regions[n]).means(view[rows]))
        return found if self.base is None else found + self.base.means(X)

    def distribution(self, X: Array) -> Multivariate:
        """The exact mixture distribution of new rows."""
        return passes.distribution(self.circuit, self.view(X), self._predictor(X))

    def between_rows(self, X: Array) -> tuple[Array, Array]:
        """Mean ``(n, P)`` and covariance between rows ``(n, n, P)``."""
        view, predict = self.view(X), self._predictor(X)

        def of_region(number: int, rows: Rows) -> tuple[Array, Array]:
            answer = predict(number, rows)
            between = self.regions[number].posterior_covariance(view[rows])
            return answer.mean, _covariances(between, self._with_tail(number, answer.mean, answer.scale))

        return passes.covariance_between_rows(self.circuit, view, of_region)

    def _predictor(self, X: Array) -> Callable[[int, Rows], Posterior]:
        """A function that predicts some of the rows ``X`` by a region, given the region's number and the rows."""
        view = self.view(X)
        base = None if self.base is None else self.base.means(X)

        def predict(number: int, rows: Rows) -> Posterior:
            region = self.budget.touch(self.regions[number])
            answer = region.predict(view[rows])
            if not region.n_rows:
                # The prior alone has no variance: it counts as one row.
                answer = replace(answer, dof=answer.dof + 1.0)
            if base is None:
                return answer
            return replace(answer, mean=answer.mean + base[np.ix_(rows, self.outputs[number])])

        return predict

    # ------------------------------------------------------------------ learning more rows

    def learn(self, X: Array, Y: Array, rng: np.random.Generator) -> None:
        """Append rows to the regions they fall into; regions above M rows are split."""
        view = self.view(X)
        if self.base is not None:
            Y = Y - self.base.means(X)
        for start in range(0, len(X), APPEND_BLOCK):
            part = slice(start, start + APPEND_BLOCK)
            for number, rows in passes.assign_rows(self.circuit, view[part]).items():
                node = self.circuit[number]
                targets = Y[part][np.ix_(rows, node.outputs)]
                region = self.budget.touch(self.regions[node.region])
                for x, y in zip(view[part][rows], targets, strict=True):
                    if not np.isnan(y).all():
                        region.append(x, y)
                if not self.given and self.plan.n_cells > 1 and region.n_rows > self.plan.max_points:
                    self._split(number, rng)

    def _split(self, number: int, rng: np.random.Generator) -> None:
        """Replace a region by the circuit that Algorithm 1 grows over its rows, with its hyper-parameters."""
        circuit, node = self.circuit, self.circuit[number]
        old, root = self.regions[node.region], circuit.root
        depth = self.plan.mixture_depth if number == root or self.plan.mixture_depth is None else 0
        plan = replace(self.plan, mixture_depth=depth, single_outputs=False)
        reused = [node.region]

        def make_region(rows: Rows, columns: Rows) -> int:
            outputs = node.outputs[columns]
            child = self._region(old.theta, old.X[rows], old.Y[np.ix_(rows, columns)], outputs)
            if reused:
                first = reused.pop()
                self.regions[first], self.rows[first], self.outputs[first] = child, _NO_ROWS, outputs
                return first
            self.regions.append(child)
            self.rows.append(_NO_ROWS)
            self.outputs.append(outputs)
            return len(self.regions) - 1

        relevance = self._relevance([old.theta])
        grown = learn_structure(old.X, old.Y, plan, relevance, make_region, rng, circuit, node.outputs)
        circuit.nodes[number] = circuit[grown.root]
        circuit.root = root
        self.budget.forget(old)
        logger.info("%s: region %d with %d rows was split", self.name, node.region, old.n_rows)

    # ------------------------------------------------------------------ describing

    def described(self) -> Circuit:
        """The circuit with its cuts in the units of the covariates."""
        shown = Circuit()
        for node in self.circuit.nodes:
            cuts = node.cuts if self.warp is None or not len(node.cuts) else self.warp.unwarp(node.column, node.cuts)
            shown.nodes.append(
                Node(node.kind, node.outputs, node.children, node.log_weights, node.column, cuts, node.region)
            )
        shown.root = self.circuit.root
        return shown


class LinearExpert:
    """Linear regression as a child of the root sum."""

    def __init__(self, name: str, regression: LinearRegression) -> None:
        self.name, self.regression = name, regression
        self.tail: Tail | None = None

    def weigh_by_stacking(self, X: Array, Y: Array, blocks: Rows | None) -> Components:
        """Learn the tails from held-out residuals; returns the held-out components."""
        answer = self.regression.held_out(X, Y, blocks, own_scatter=True)
        self.tail = Tail.fit(list(((Y - answer.mean) / answer.scale).T))
        return self._with_tail(answer.mean, answer.scale, answer.dof)

    def _with_tail(self, mean: Array, scale: Array, dof: float) -> Components:
        return _with_tail(Components.single(mean, scale, dof, self.regression.correlation()), self.tail)

    def components(self, X: Array) -> Components:
        """Marginal components and correlations of new rows."""
        answer = self.regression.predict(X)
        return self._with_tail(answer.mean, answer.scale, answer.dof)

    def means(self, X: Array) -> Array:
        """Means of new rows, without their variances."""
        return self.regression.means(X)

    def distribution(self, X: Array) -> Multivariate:
        """The exact distribution of new rows."""
        return passes.student(self.regression.predict(X))

    def between_rows(self, X: Array) -> tuple[Array, Array]:
        """Mean ``(n, P)`` and covariance between rows ``(n, n, P)``."""
        answer = self.regression.predict(X)
        between = self.regression.posterior_covariance(X)
        return answer.mean, _covariances(between, self._with_tail(answer.mean, answer.scale, answer.dof))

    def learn(self, X: Array, Y: Array, rng: np.random.Generator) -> None:
        """Add rows."""
        self.regression.learn(X, Y)


def _with_tail(parts: Components, tail: Tail | None, outputs: Rows | slice = slice(None)) -> Components:
    """Components with the learnt tails of these outputs, if there are any."""
    if tail is not None:
        parts.scales = parts.scales * tail.factor[outputs]
        parts.dofs = np.broadcast_to(tail.dof[outputs], parts.dofs.shape)
    return parts


def log_densities(parts: Components, Y: Array) -> Array:
    """Log density of each target under the components, NaN where it is missing or was not predicted."""
    values = np.full(Y.shape, np.nan)
    answered = ~np.isnan(Y) & ~np.isnan(parts.means).any(axis=1)
    everything = parts.marginals().log_pdf(np.where(answered, Y, np.nan))
    values[answered] = everything[answered]
    return values


def _covariances(between: Array, parts: Components) -> Array:
    """Covariance between rows of each target, from that of a target of unit scale and one component per value."""
    std = np.sqrt(t_variance(parts.dofs[:, 0])) * parts.scales[:, 0]
    return correlation_of(between)[:, :, None] * std[:, None] * std


def _with_targets(Y: Array) -> Rows:
    return np.flatnonzero(~np.isnan(Y).all(axis=1))
