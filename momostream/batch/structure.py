"""Structure learning by the paper's Algorithm 1: alternate sums, covariate gates and output splits.

How each ambiguity of the printed algorithm is read is written down in ``docs/decisions.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from momostream.batch.nodes import Circuit
from momostream.gp.cuts import gate_cuts, split_outputs

__all__ = ["SplitRules", "learn_structure"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Adds a region for these rows and outputs and returns its number.
MakeRegion = Callable[[Rows, Rows], int]


@dataclass(frozen=True)
class SplitRules:
    """Parameters of Algorithm 1.

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
        Whether a cell gets one region per output (the paper) or one region for all of its outputs.
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
    plan: SplitRules,
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
        Called for each region with its rows and the columns of ``Y`` it owns; returns the number of the region.
    rng
        For random output splits and the random features of the independence test.
    circuit
        Add nodes to this circuit instead of a new one.
    outputs
        Ascending positions that the columns of ``Y`` have in the whole model; by default ``0, 1, ...``.
    """
    labels = np.arange(Y.shape[1]) if outputs is None else outputs
    builder = _Builder(X, Y, plan, relevance, make_region, rng, Circuit() if circuit is None else circuit, labels)
    builder.circuit.root = builder.build(np.arange(len(X)), np.arange(Y.shape[1]), 0)
    return builder.circuit


@dataclass
class _Builder:
    """The arguments of `learn_structure`, and the recursion over rows and outputs; methods return node numbers."""

    X: Array
    Y: Array
    plan: SplitRules
    relevance: Array
    make_region: MakeRegion
    rng: np.random.Generator
    circuit: Circuit
    labels: Rows

    def build(self, rows: Rows, outputs: Rows, level: int) -> int:
        """Return the node for these rows and outputs: a sum over gates, or regions when there is no more to split."""
        plan = self.plan
        n_children = plan.n_components if plan.mixes(level) else 1
        if plan.n_cells == 1:
            # Sums and output splits only: every child sees all rows. Below the first sum, one over outputs that cannot
            # be split any further would mix copies of the same, without end where all levels mix.
            copies = level > 0 and min(plan.n_groups, len(outputs)) < 2
            if n_children == 1 or copies:
                return self.regions(rows, outputs)
            return self.circuit.add_sum([self.cell(rows, outputs, level + 1) for _ in range(n_children)])
        if len(rows) <= plan.max_points:
            return self.regions(rows, outputs)
        ranked = self.rank(rows)
        if not len(ranked):
            return self.regions(_thinned(rows, plan.max_points), outputs)
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

    def regions(self, rows: Rows, outputs: Rows) -> int:
        if not self.plan.single_outputs or len(outputs) == 1:
            return self.region(rows, outputs)
        return self.circuit.add_outputs([self.region(rows, outputs[p : p + 1]) for p in range(len(outputs))])

    def region(self, rows: Rows, outputs: Rows) -> int:
        return self.circuit.add_region(self.make_region(rows, outputs), self.labels[outputs])


def _thinned(rows: Rows, n_rows: int) -> Rows:
    """Evenly spaced rows: the only way to respect M where more than M rows have the very same covariates."""
    return rows[np.linspace(0, len(rows) - 1, n_rows).round().astype(np.intp)]
