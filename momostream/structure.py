"""Structure learning by the paper's Algorithm 1: alternate sums, covariate gates and output splits.

How each ambiguity of the printed algorithm is read is written down in ``docs/decisions.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc

from momostream.nodes import Circuit

__all__ = ["Plan", "dependence", "gate_cuts", "learn_structure", "split_outputs"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Relative size below which variation is taken for round-off.
ROUND_OFF = 1e-12

# New leaf for these rows and outputs: returns the number of the region.
MakeRegion = Callable[[Rows, Rows], int]


@dataclass(frozen=True)
class Plan:
    """What Algorithm 1 is told.

    Attributes
    ----------
    max_points
        M: a node with more rows is split.
    n_components
        K_S: children of a sum.
    n_cells
        K_Px: children of a gate; 1 means no gates.
    n_groups
        K_Py: children of an output split; 1 means no output splits.
    mixture_depth
        Levels at which sums mix; deeper levels are single gates. None mixes everywhere, as the paper does.
    group_by
        ``"random"`` or ``"independence"`` (randomised conditional correlation test).
    single_outputs
        Whether a leaf is one region per output (the paper) or one region for all outputs of the leaf.
    """

    max_points: int
    n_components: int = 2
    n_cells: int = 2
    n_groups: int = 1
    mixture_depth: int | None = 1
    group_by: str = "random"
    single_outputs: bool = False

    def mixes(self, level: int) -> bool:
        """Whether sums at this level have more than one child."""
        return self.n_components > 1 and (self.mixture_depth is None or level < self.mixture_depth)


def learn_structure(
    X: Array,
    Y: Array,
    plan: Plan,
    relevance: Array,
    make_region: MakeRegion,
    rng: np.random.Generator,
    circuit: Circuit | None = None,
    outputs: Rows | None = None,
) -> Circuit:
    """Build a circuit over rows ``X`` and targets ``Y``.

    Parameters
    ----------
    X, Y
        Shapes ``(n_rows, n_inputs)`` and ``(n_rows, n_outputs)``; ``Y`` is looked at only by the independence test
        and for missing values.
    plan
        The parameters of Algorithm 1.
    relevance
        Factor on the variance of each covariate before they are ranked, shape ``(n_inputs,)``: ones rank by
        variance as the paper does, squared inverse lengthscales by what a GP has learnt.
    make_region
        Called for each leaf with its rows and the columns of ``Y`` it owns; returns the number of the region.
    rng
        For random output splits and the random features of the independence test.
    circuit
        Grow this table instead of a new one.
    outputs
        Ascending positions that the columns of ``Y`` have in the whole model; by default ``0, 1, ...``.
    """
    labels = np.arange(Y.shape[1]) if outputs is None else outputs
    builder = _Builder(X, Y, plan, relevance, make_region, rng, Circuit() if circuit is None else circuit, labels)
    builder.circuit.root = builder.build(np.arange(len(X)), np.arange(Y.shape[1]), 0)
    return builder.circuit


class _Builder:
    def __init__(
        self,
        X: Array,
        Y: Array,
        plan: Plan,
        relevance: Array,
        make_region: MakeRegion,
        rng: np.random.Generator,
        circuit: Circuit,
        labels: Rows,
    ) -> None:
        self.X, self.Y, self.plan, self.relevance = X, Y, plan, relevance
        self.make_region, self.rng, self.circuit, self.labels = make_region, rng, circuit, labels

    def build(self, rows: Rows, outputs: Rows, level: int) -> int:
        """Return the node for these rows and outputs: a sum over gates, or a leaf when there is no more to split."""
        plan = self.plan
        n_children = plan.n_components if plan.mixes(level) else 1
        if plan.n_cells == 1:
            # Sums and output splits only: every child sees all rows. Below the first sum, one over outputs that cannot
            # be split any further would mix copies of the same, without end where all levels mix.
            copies = level > 0 and min(plan.n_groups, len(outputs)) < 2
            if n_children == 1 or copies:
                return self.leaf(rows, outputs)
            return self.circuit.add_sum([self.cell(rows, outputs, level + 1) for _ in range(n_children)])
        if len(rows) <= plan.max_points:
            return self.leaf(rows, outputs)
        ranked = self.rank(rows)
        if not len(ranked):
            return self.leaf(_thinned(rows, plan.max_points), outputs)
        # Child k cuts the covariate of k-th largest (relevant) variance. Where there are fewer covariates than
        # children, further rounds over them shift the cuts, so that no two children are the same.
        rounds = -(-n_children // len(ranked))
        children = [
            self.gate(rows, outputs, ranked[k % len(ranked)], (k // len(ranked)) / rounds, level)
            for k in range(n_children)
        ]
        return children[0] if n_children == 1 else self.circuit.add_sum(children)

    def rank(self, rows: Rows) -> Rows:
        """Covariates that can be cut, most relevant first; ties keep the order of the columns."""
        X = self.X[rows]
        order = np.argsort(-X.var(axis=0) * self.relevance, kind="stable")
        varies = X.max(axis=0, initial=-np.inf) > X.min(axis=0, initial=np.inf)
        return order[varies[order]]

    def gate(self, rows: Rows, outputs: Rows, column: int, shift: float, level: int) -> int:
        values = self.X[rows, column]
        cuts = gate_cuts(values, self.plan.n_cells, shift)
        owner = np.searchsorted(cuts, values, side="left")
        children = [self.cell(rows[owner == k], outputs, level + 1) for k in range(len(cuts) + 1)]
        return self.circuit.add_gate(column, cuts, children)

    def cell(self, rows: Rows, outputs: Rows, level: int) -> int:
        """The paper's P_y below a gate: split the outputs, unless one group or few rows are left."""
        n_groups = min(self.plan.n_groups, len(outputs))
        few = self.plan.n_cells > 1 and len(rows) <= self.plan.max_points
        if few or n_groups < 2:
            return self.build(rows, outputs, level)
        groups = split_outputs(self.X[rows], self.Y[np.ix_(rows, outputs)], n_groups, self.plan.group_by, self.rng)
        return self.circuit.add_outputs([self.build(rows, outputs[group], level) for group in groups])

    def leaf(self, rows: Rows, outputs: Rows) -> int:
        if not self.plan.single_outputs or len(outputs) == 1:
            return self.region(rows, outputs)
        return self.circuit.add_outputs([self.region(rows, outputs[p : p + 1]) for p in range(len(outputs))])

    def region(self, rows: Rows, outputs: Rows) -> int:
        return self.circuit.add_region(self.make_region(rows, outputs), self.labels[outputs])


def gate_cuts(values: Array, n_cells: int, shift: float = 0.0) -> Array:
    """Cuts at the quantiles of the rows, each halfway between two neighbouring distinct values.

    No cell is empty: ties move a cut to the nearest place where the rows can be told apart, and cuts that fall
    together are merged, so a covariate with two distinct values gives one cut.

    Parameters
    ----------
    values
        Covariate of the rows, at least two distinct values.
    n_cells
        Number of cells aimed at.
    shift
        In [0, 1): moves the quantiles by this share of a cell.

    Examples
    --------
    >>> gate_cuts(np.array([1.0, 2.0, 3.0, 4.0]), 2)
    array([2.5])
    >>> gate_cuts(np.array([1.0, 1.0, 1.0, 1.0, 7.0]), 2)
    array([4.])
    """
    distinct, counts = np.unique(values, return_counts=True)
    # Share of the rows at or below each place between two neighbours.
    share = np.cumsum(counts)[:-1] / len(values)
    aims = (np.arange(1, n_cells) - 0.5 * shift) / n_cells
    places = np.unique([int(np.argmin(np.abs(share - aim))) for aim in aims])
    low, high = distinct[places], distinct[places + 1]
    middle = 0.5 * low + 0.5 * high
    # Two neighbouring floats have no middle: the lower one keeps its side.
    return np.where((middle >= low) & (middle < high), middle, low)


def _thinned(rows: Rows, n_rows: int) -> Rows:
    """Evenly spaced rows: what is left to do where more than M rows have the very same covariates."""
    return rows[np.linspace(0, len(rows) - 1, n_rows).round().astype(np.intp)]


def split_outputs(X: Array, Y: Array, n_groups: int, by: str, rng: np.random.Generator) -> list[Rows]:
    """Split output positions ``0..n_outputs-1`` into groups.

    Parameters
    ----------
    X, Y
        Rows and targets of the node; NaN is missing.
    n_groups
        How many groups, at most the number of outputs.
    by
        ``"random"``: a random permutation in equal parts. ``"independence"``: outputs that depend most on each
        other given the covariates stay together (single linkage on the statistic of `dependence`).
    rng
        Source of randomness.
    """
    n_outputs = Y.shape[1]
    if by == "random":
        return [np.sort(part) for part in np.array_split(rng.permutation(n_outputs), n_groups)]
    strength, _ = dependence(X, Y, rng)
    groups = [[p] for p in rng.permutation(n_outputs)]
    while len(groups) > n_groups:
        pairs = [(i, j) for i in range(len(groups)) for j in range(i)]
        i, j = max(pairs, key=lambda pair: strength[np.ix_(groups[pair[0]], groups[pair[1]])].max())
        groups[j] += groups.pop(i)
    return [np.sort(np.array(group, dtype=np.intp)) for group in groups]


def dependence(
    X: Array,
    Y: Array,
    rng: np.random.Generator,
    n_features: int = 5,
    n_conditions: int = 60,
    max_rows: int = 2000,
) -> tuple[Array, Array]:
    """Randomised conditional correlation test of each pair of outputs given the covariates.

    Each output is mapped to a few random Fourier features, the part explained by random features of ``X`` is
    regressed out, and the squared cross-covariances of what is left are summed (Strobl et al., 2019). The null
    distribution is matched by a gamma law with the same first two moments.

    Returns
    -------
    statistic, p_value
        Both ``(n_outputs, n_outputs)``; the diagonal is meaningless. The statistic is per row, between 0 and about 1.
    """
    keep = ~np.isnan(Y).any(axis=1)
    X, Y = X[keep], Y[keep]
    if len(X) > max_rows:
        chosen = rng.choice(len(X), max_rows, replace=False)
        X, Y = X[chosen], Y[chosen]
    n, P = Y.shape
    if n < 4:
        return np.zeros((P, P)), np.ones((P, P))
    conditions = _fourier_features(X, n_conditions, rng)
    ridge = conditions.T @ conditions / n + 1e-6 * np.eye(conditions.shape[1])
    residuals = []
    for p in range(P):
        features = _fourier_features(Y[:, p : p + 1], n_features, rng)
        features = features - conditions @ np.linalg.solve(ridge, conditions.T @ features / n)
        features -= features.mean(axis=0)
        size = np.sqrt((features**2).mean(axis=0))
        # What is left of a constant output is round-off, which must not be blown up to size 1.
        residuals.append(np.where(size > ROUND_OFF, features / np.maximum(size, ROUND_OFF), 0.0))
    statistic, p_value = np.zeros((P, P)), np.ones((P, P))
    for i in range(P):
        for j in range(i):
            products = residuals[i][:, :, None] * residuals[j][:, None, :]
            products = products.reshape(n, -1)
            mean = products.mean(axis=0)
            covariance = np.cov(products, rowvar=False, bias=True)
            value = n * float(mean @ mean)
            # A sum of weighted chi-squares: mean tr(C), variance 2 tr(C C).
            first, second = float(np.trace(covariance)), 2.0 * float((covariance**2).sum())
            if second > 0:
                p_value[i, j] = p_value[j, i] = gammaincc(first**2 / second, value * first / second)
            statistic[i, j] = statistic[j, i] = value / n / len(mean)
    return statistic, p_value


def _fourier_features(A: Array, n_features: int, rng: np.random.Generator) -> Array:
    """Centred random cosines of standardised columns, with the median distance as bandwidth."""
    spread = A.std(axis=0)
    varies = spread > ROUND_OFF * np.abs(A).max(axis=0, initial=0.0)
    A = np.where(varies, (A - A.mean(axis=0)) / np.where(varies, spread, 1.0), 0.0)
    sample = A[rng.choice(len(A), min(len(A), 200), replace=False)]
    distances = np.sqrt(((sample[:, None] - sample) ** 2).sum(axis=2))
    width = float(np.median(distances[distances > 0])) if np.any(distances > 0) else 1.0
    frequencies = rng.normal(size=(A.shape[1], n_features)) / width
    features = np.cos(A @ frequencies + rng.uniform(0.0, 2.0 * np.pi, n_features))
    return features - features.mean(axis=0)
