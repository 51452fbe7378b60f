"""The table model: a root sum over experts, fitted in batch and updated with more rows; arrays in column order only."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from momostream.batch.experts import (
    CircuitExpert,
    FactorBudget,
    LinearExpert,
    log_densities,
)
from momostream.batch.linear import LinearRegression
from momostream.batch.passes import Components, log_evidence, mix_between_rows, mix_means
from momostream.batch.settings import Settings
from momostream.batch.weights import Copula, posterior_log_weights, stacking_weights, updated_log_weights
from momostream.distributions.copula import CopulaDistribution
from momostream.distributions.joint import Distribution, MixtureDistribution
from momostream.distributions.mixtures import Mixture, Multivariate
from momostream.gp.tuning import TuningJob

__all__ = ["Model"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
T = TypeVar("T")

# Parts of the rows among which correlations of residuals are cross-validated.
COPULA_FOLDS = 5


class Model:
    """A root sum over experts.

    Attributes
    ----------
    experts
        The experts, in the order of ``settings.experts``.
    log_weights
        Of the root sum: shape ``(n_experts, n_targets)`` when stacked, else ``(n_experts,)``.
    copula
        Joins the stacked marginals; None where the distribution is the exact mixture.
    input_means
        Running means of the covariates, by which missing ones are replaced, shape ``(n_inputs,)``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(80, 1))
    >>> Y = np.column_stack([np.sin(X[:, 0]), np.cos(X[:, 0])])
    >>> model = Model(Settings(seed=0)).fit(X, Y)
    >>> print(model.predict(np.array([[0.0]])).mean.round(2) + 0.0)
    [[0. 1.]]
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.experts: list[CircuitExpert | LinearExpert] = []
        self.log_weights = np.empty(0)
        self.copula: Copula | None = None
        self.input_means = np.empty(0)
        self.n_rows = 0
        self.n_targets = 0

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Array, Y: Array) -> Model:
        """Learn structure, hyper-parameters and weights from rows; forget everything learnt before.

        Parameters
        ----------
        X
            Shape ``(n_rows, n_inputs)``; NaN is a missing input.
        Y
            Shape ``(n_rows, n_targets)``; NaN is a missing target.
        """
        settings = self.settings
        if settings.structure is not None:
            settings.structure.check(X.shape[1], Y.shape[1])
        blocks = _row_blocks(len(X), settings.n_blocks) if settings.stacking == "blocks" else None
        kept = np.flatnonzero(~np.isnan(Y).all(axis=1))
        if not len(kept):
            raise ValueError("no row has a target: every value of Y is missing")
        self._check_gaps(Y[kept])
        X, Y, blocks = X[kept], Y[kept], None if blocks is None else blocks[kept]
        self.input_means, self._input_counts = np.zeros(X.shape[1]), np.zeros(X.shape[1])
        self._follow_inputs(X)
        X = self._complete(X)
        self.n_rows, self.n_targets = Y.shape
        self._rng = np.random.default_rng(np.random.SeedSequence(settings.seed).spawn(1)[0])
        self.experts = self._build_experts(X, Y, blocks)
        self._weigh(X, Y, blocks)
        return self

    def _check_gaps(self, Y: Array) -> None:
        """Raise ValueError where targets are missing and the evidence of coupled targets has no closed form."""
        settings = self.settings
        if settings.weights == "posterior" and settings.coupling == "shared" and np.isnan(Y).any():
            row = int(np.flatnonzero(np.isnan(Y).any(axis=1))[0])
            raise ValueError(
                "weights='posterior' with coupling='shared' needs complete targets, but one is missing in row "
                f"{row} of those that have any: use coupling='independent' or weights='stacking'"
            )

    def _build_experts(self, X: Array, Y: Array, blocks: Rows | None) -> list[CircuitExpert | LinearExpert]:
        """Fit all experts; the tuning of all their regions is one pool of jobs."""
        settings, rules, plan = self.settings, self.settings.rules(), self.settings.plan(len(X))
        budget = FactorBudget(settings.memory_budget)
        linear = LinearRegression.fit(X, Y, blocks)
        experts: list[CircuitExpert | LinearExpert] = []
        circuits: list[CircuitExpert] = []
        for name, spec in zip(settings.experts, settings.specs, strict=True):
            if spec.covariance is None:
                experts.append(LinearExpert(name, linear))
                continue
            gaussian = settings.coupling == "independent"
            expert = CircuitExpert(name, spec, plan, settings.split_by, gaussian, settings.discount, budget)
            expert.base = linear if spec.residual else None
            experts.append(expert)
            circuits.append(expert)
        seeds = np.random.SeedSequence(settings.seed).spawn(len(circuits) + 1)[1:]
        stages = [seed.spawn(3) for seed in seeds]
        targets = [expert.targets(X, Y, blocks) for expert in circuits]
        jobs = [
            expert.root_jobs(X, wanted, rules, stage[0], settings.structure)
            for expert, wanted, stage in zip(circuits, targets, stages, strict=True)
        ]
        thetas = self._run(jobs, "tuning on a sample")
        for expert, wanted, stage, found in zip(circuits, targets, stages, thetas, strict=True):
            separate = settings.outputs == "separate"
            expert.grow(X, wanted, found, stage[1], settings.structure, separate)
        jobs = [expert.region_jobs(rules, stage[2]) for expert, stage in zip(circuits, stages, strict=True)]
        for expert, found in zip(circuits, self._run(jobs, "tuning regions"), strict=True):
            if found:
                expert.accept(found)
        return experts

    def _run(self, jobs: list[list[TuningJob]], title: str) -> list[list[Array]]:
        """Run lists of jobs as one pool and return the results in the same lists."""
        flat = [job for each in jobs for job in each]
        results = iter(_run_jobs(flat, self.settings.n_jobs, self.settings.verbose, title))
        return [[next(results) for _ in each] for each in jobs]

    def _weigh(self, X: Array, Y: Array, blocks: Rows | None) -> None:
        """Set the weights of all sums, the root included."""
        settings, n_experts = self.settings, len(self.experts)
        self.copula = None
        self.log_weights = np.full(n_experts, -np.log(n_experts))
        if settings.weights == "posterior":
            circuits = [expert for expert in self.experts if isinstance(expert, CircuitExpert)]
            evidence = [log_evidence(expert.circuit, expert.evidence, set_weights=True) for expert in circuits]
            self.log_weights = posterior_log_weights(np.array(evidence))
        elif settings.weights == "stacking":
            progress = _progress(self.experts, settings.verbose, "held-out densities")
            answers = [expert.weigh_by_stacking(X, Y, blocks) for expert in progress]
            densities = np.stack([log_densities(answer, Y) for answer in answers])
            self.log_weights = np.log(stacking_weights(densities))
            stacked = Components.mix(self.log_weights, answers)
            answered = ~np.isnan(densities).any(axis=0)
            stacked.means[np.isnan(stacked.means)] = 0.0
            pit = stacked.marginals().cdf(np.where(answered, Y, 0.0))
            folds = _row_blocks(len(X), COPULA_FOLDS) if blocks is None else blocks
            self.copula = Copula.fit(np.where(answered, pit, np.nan), stacked.correlation, folds)

    def _follow_inputs(self, X: Array) -> None:
        """Take the rows into the running mean of each covariate."""
        present = ~np.isnan(X)
        total = self.input_means * self._input_counts + np.where(present, X, 0.0).sum(axis=0)
        self._input_counts = self._input_counts + present.sum(axis=0)
        self.input_means = total / np.maximum(self._input_counts, 1.0)

    def _complete(self, X: Array) -> Array:
        """Replace missing inputs by the running mean of their column."""
        missing = np.isnan(X)
        return np.where(missing, self.input_means, X) if missing.any() else X

    # ------------------------------------------------------------------ predicting

    def predict(self, X: Array, targets: Iterable[Hashable] | None = None) -> Distribution:
        """The predictive distribution of new rows ``X``, shape ``(n_rows, n_inputs)``; NaN is a missing input."""
        X, names = self._complete(X), None if targets is None else tuple(targets)
        if self.copula is None:
            return MixtureDistribution(self._distribution(X), names)
        stacked = Components.mix(self.log_weights, [expert.components(X) for expert in self.experts])
        return CopulaDistribution(
            stacked.marginals(), self.copula.correlation(stacked.correlation), self.copula.dof, names
        )

    def means(self, X: Array) -> Array:
        """Means of new rows ``X`` alone, at a fraction of the cost of `predict`, shape ``(n_rows, n_targets)``.

        They are those of `predict` up to rounding: products with weights that are solved for once, instead of a
        triangular solve for each row.
        """
        X = self._complete(X)
        return mix_means(self.log_weights, [expert.means(X) for expert in self.experts])

    def _distribution(self, X: Array) -> Multivariate:
        distributions = [expert.distribution(X) for expert in self.experts]
        return distributions[0] if len(distributions) == 1 else Mixture(self.log_weights, distributions)

    def covariance_between_rows(self, X: Array) -> tuple[Array, Array]:
        """Mean ``(n, P)`` and covariance between rows, noise included, ``(n, n, P)``."""
        X = self._complete(X)
        return mix_between_rows(self.log_weights, [expert.between_rows(X) for expert in self.experts])

    # ------------------------------------------------------------------ learning more rows

    def learn(self, X: Array, Y: Array) -> None:
        """Continue with more rows: factors grow by appended rows, regions above M rows are split.

        Hyper-parameters stay. Stacking weights move towards the experts that predicted the new rows better;
        posterior weights are those of all rows.
        """
        kept = np.flatnonzero(~np.isnan(Y).all(axis=1))
        X, Y = X[kept], Y[kept]
        if not len(X):
            return
        self._check_gaps(Y)
        self._follow_inputs(X)
        X = self._complete(X)
        if self.settings.weights == "stacking":
            self._reweigh(X, Y)
        # Residual circuits first: their targets are the residuals of the linear expert before it learns.
        for expert in sorted(self.experts, key=lambda expert: isinstance(expert, LinearExpert)):
            expert.learn(X, Y, self._rng)
        self._learn_base(X, Y)
        self.n_rows += len(X)
        if self.settings.weights == "posterior":
            self._weigh(X, Y, None)

    def _learn_base(self, X: Array, Y: Array) -> None:
        """Update the linear regression below residual circuits if no linear expert does so."""
        if any(isinstance(expert, LinearExpert) for expert in self.experts):
            return
        for expert in self.experts:
            if isinstance(expert, CircuitExpert) and expert.base is not None:
                expert.base.learn(X, Y)
                return

    def _reweigh(self, X: Array, Y: Array) -> None:
        """Move the stacking weights towards the experts that predict these rows better."""
        densities = np.stack([log_densities(expert.components(X), Y) for expert in self.experts])
        self.log_weights = updated_log_weights(self.log_weights, densities, self.n_rows)

    # ------------------------------------------------------------------ describing

    def describe(self, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None) -> str:
        """The circuits as text, below the root's weights."""
        lines = ["sum"]
        weights = np.exp(self.log_weights).reshape(len(self.experts), -1).mean(axis=1)
        for k, (expert, weight) in enumerate(zip(self.experts, weights, strict=True)):
            last = k == len(self.experts) - 1
            below = [expert.name]
            if isinstance(expert, CircuitExpert):
                rows = [region.n_rows for region in expert.regions]
                text = expert.described().describe(inputs, outputs, rows).split("\n")
                below = [f"{expert.name}: {text[0]}", *text[1:]]
            lines.append(("└─ " if last else "├─ ") + f"{weight:.3f}: {below[0]}")
            lines += [("   " if last else "│  ") + line for line in below[1:]]
        return "\n".join(lines)


def _row_blocks(n_rows: int, n_blocks: int) -> Rows:
    """Number of the block of each row: equal stretches in row order."""
    return np.arange(n_rows) * n_blocks // max(n_rows, 1)


def _run_jobs(jobs: list[TuningJob], n_jobs: int | None, verbose: int, title: str) -> list[Array]:
    """Tuned hyper-parameters of each job, in the order of the jobs."""
    # Imported here: a model that only predicts does not need it.
    from joblib import Parallel, delayed

    tasks = (delayed(TuningJob.run)(job) for job in _progress(jobs, verbose, title))
    return list(Parallel(n_jobs=n_jobs)(tasks))


def _progress(items: list[T], verbose: int, title: str) -> Iterable[T]:
    """A progress bar on a terminal when asked (1), or anywhere (2)."""
    if not verbose or not items:
        return items
    from tqdm import tqdm

    bar: Iterable[T] = tqdm(items, desc=title, disable=None if verbose == 1 else False, leave=False)
    return bar
