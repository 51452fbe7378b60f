"""Upward passes over a circuit: components of the marginals, distributions, evidence and covariance between rows.

Each pass routes its rows down the gates, asks the regions, and joins their answers on the way up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from momostream.batch.nodes import GATE, OUTPUTS, REGION, SUM, Circuit
from momostream.batch.region import Posterior
from momostream.batch.weights import posterior_log_weights
from momostream.distributions.marginals import Marginals, mixed, padding
from momostream.distributions.mixtures import Mixture, Multivariate, Product, Routed, StudentT

__all__ = [
    "Components",
    "assign_rows",
    "components",
    "covariance_between_rows",
    "distribution",
    "log_evidence",
    "means",
]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass
class Components:
    """A mixture of Student-t's per row and output, and the correlation of the outputs per row.

    Unlike `momostream.distributions.marginals.Marginals`, its arrays may be written to, and means may be NaN.

    Attributes
    ----------
    weights, means, scales, dofs
        Shape ``(n_rows, n_components, n_outputs)``; a row that has fewer components is padded with weight 0.
    correlation
        Shape ``(n_rows, n_outputs, n_outputs)``.
    """

    weights: Array
    means: Array
    scales: Array
    dofs: Array
    correlation: Array

    @classmethod
    def single(cls, mean: Array, scale: Array, dof: float, correlation: Array) -> Components:
        """One component: ``mean`` and ``scale`` of shape ``(n_rows, n_outputs)``, one correlation for all rows."""
        n, P = mean.shape
        weights = np.ones((n, 1, P))
        dofs = np.full((n, 1, P), dof)
        return cls(weights, mean[:, None], scale[:, None], dofs, np.broadcast_to(correlation, (n, P, P)))

    @classmethod
    def padding(cls, n_rows: int, n_components: int, n_outputs: int) -> Components:
        """Components of weight 0, to be written over; the outputs are uncorrelated."""
        correlation = np.zeros((n_rows, n_outputs, n_outputs))
        correlation[:, range(n_outputs), range(n_outputs)] = 1.0
        return cls(*padding(n_rows, n_components, n_outputs), correlation)

    @classmethod
    def mix(cls, log_weights: Array, children: list[Components]) -> Components:
        """Mix children over the same rows and outputs; ``log_weights`` is (n_children,) or (n_children, n_outputs)."""
        weights = np.exp(log_weights)
        scalar = weights if weights.ndim == 1 else weights.mean(axis=1)
        parts = [(child.weights, child.means, child.scales, child.dofs) for child in children]
        correlation = sum(w * child.correlation for w, child in zip(scalar, children, strict=True))
        return cls(*mixed(weights, parts), np.asarray(correlation))

    def write(self, rows: Rows, outputs: Rows, part: Components) -> None:
        """Set the components of some rows and outputs."""
        at = np.ix_(rows, np.arange(part.weights.shape[1]), outputs)
        self.weights[at], self.means[at] = part.weights, part.means
        self.scales[at], self.dofs[at] = part.scales, part.dofs
        self.correlation[np.ix_(rows, outputs, outputs)] = part.correlation

    def marginals(self) -> Marginals:
        """The marginal distribution of each value."""
        return Marginals(self.weights, self.means, self.scales, self.dofs)


# The answer of a region for some rows, given its number and the rows (positions in X).
RegionAnswer = Callable[[int, Rows], Components]
# Weights of a sum given its number, its children's answers and the rows.
Weigh = Callable[[int, list[Components], Rows], Array]


def components(circuit: Circuit, X: Array, of_region: RegionAnswer, weigh: Weigh | None = None) -> Components:
    """Components of all rows ``X``, shape ``(n_rows, n_inputs)``.

    ``of_region`` returns the components of a region. ``weigh`` may set the weights of each sum on the way up; by
    default they stay.
    """

    def up(number: int, rows: Rows) -> Components:
        node = circuit[number]
        if node.kind == REGION:
            return of_region(node.region, rows)
        if node.kind == SUM:
            children = [up(child, rows) for child in node.children]
            log_weights = node.log_weights if weigh is None else weigh(number, children, rows)
            assert log_weights is not None
            return Components.mix(log_weights, children)
        parts: list[tuple[Rows, Rows, Components]] = []
        if node.kind == GATE:
            owner = circuit.route(number, X[rows])
            everything = np.arange(len(node.outputs))
            for k, child in enumerate(node.children):
                inside = np.flatnonzero(owner == k)
                if len(inside):
                    parts.append((inside, everything, up(child, rows[inside])))
        else:
            for child in node.children:
                own = np.searchsorted(node.outputs, circuit[child].outputs)
                parts.append((np.arange(len(rows)), own, up(child, rows)))
        most = max((part.weights.shape[1] for _, _, part in parts), default=1)
        whole = Components.padding(len(rows), most, len(node.outputs))
        for inside, own, part in parts:
            whole.write(inside, own, part)
        return whole

    return up(circuit.root, np.arange(len(X)))


def means(circuit: Circuit, X: Array, of_region: Callable[[int, Rows], Array]) -> Array:
    """Means of all rows ``X``, shape ``(n_rows, n_outputs)``; ``of_region`` returns those of a region."""

    def up(number: int, rows: Rows) -> Array:
        node = circuit[number]
        if node.kind == REGION:
            return of_region(node.region, rows)
        if node.kind == SUM:
            assert node.log_weights is not None
            return mix_means(node.log_weights, [up(child, rows) for child in node.children])
        mean = np.zeros((len(rows), len(node.outputs)))
        if node.kind == GATE:
            owner = circuit.route(number, X[rows])
            for k, child in enumerate(node.children):
                inside = np.flatnonzero(owner == k)
                if len(inside):
                    mean[inside] = up(child, rows[inside])
        else:
            for child in node.children:
                mean[:, np.searchsorted(node.outputs, circuit[child].outputs)] = up(child, rows)
        return mean

    return up(circuit.root, np.arange(len(X)))


def mix_means(log_weights: Array, children: list[Array]) -> Array:
    """Means of a mixture; ``log_weights`` is (n_children,) or (n_children, n_outputs)."""
    return np.asarray(sum(w * mean for w, mean in zip(np.exp(log_weights), children, strict=True)))


def distribution(circuit: Circuit, X: Array, of_region: Callable[[int, Rows], Posterior]) -> Multivariate:
    """The exact predictive mixture of rows ``X`` under the weights of the sums."""

    def up(number: int, rows: Rows) -> Multivariate:
        node = circuit[number]
        if node.kind == REGION:
            return student(of_region(node.region, rows))
        if node.kind == GATE:
            owner = circuit.route(number, X[rows])
            return Routed(owner, [up(child, rows[owner == k]) for k, child in enumerate(node.children)])
        children = [up(child, rows) for child in node.children]
        if node.kind == OUTPUTS:
            own = [np.searchsorted(node.outputs, circuit[child].outputs) for child in node.children]
            return Product(children, own)
        assert node.log_weights is not None
        return Mixture(node.log_weights, children)

    return up(circuit.root, np.arange(len(X)))


def student(posterior: Posterior) -> StudentT:
    """The distribution of a region's or linear expert's answer."""
    dof = np.full(len(posterior.mean), posterior.dof)
    if posterior.extra is None:
        return StudentT(posterior.mean, posterior.S, dof, posterior.variance)
    size = np.sqrt(posterior.variance[:, None] + posterior.extra)
    return StudentT(posterior.mean, size[:, :, None] * size[:, None, :] * posterior.S, dof)


def log_evidence(circuit: Circuit, evidence: Callable[[int], float], set_weights: bool = False) -> float:
    """Log evidence of the circuit; with ``set_weights`` every sum gets its exact posterior weights.

    ``evidence`` returns that of a region, given its number. A sum's posterior weights are its children's evidence under
    a uniform prior, renormalised.
    """

    def up(number: int) -> float:
        node = circuit[number]
        if node.kind == REGION:
            return evidence(node.region)
        below = np.array([up(child) for child in node.children])
        if node.kind != SUM:
            return float(below.sum())
        if set_weights:
            node.log_weights = posterior_log_weights(below)
        return float(logsumexp(below) - np.log(len(below)))

    return up(circuit.root)


def assign_rows(circuit: Circuit, X: Array) -> dict[int, Rows]:
    """Rows of ``X`` that each region node (by node number) owns."""
    owned: dict[int, Rows] = {}

    def down(number: int, rows: Rows) -> None:
        node = circuit[number]
        if node.kind == REGION:
            owned[number] = rows
        elif node.kind == GATE:
            owner = circuit.route(number, X[rows])
            for k, child in enumerate(node.children):
                down(child, rows[owner == k])
        else:
            for child in node.children:
                down(child, rows)

    down(circuit.root, np.arange(len(X)))
    return owned


def covariance_between_rows(
    circuit: Circuit, X: Array, of_region: Callable[[int, Rows], tuple[Array, Array]]
) -> tuple[Array, Array]:
    """Mean ``(n, n_outputs)`` and covariance between rows ``(n, n, n_outputs)`` of the circuit's function values.

    ``of_region`` answers with the mean ``(m, p)`` and covariance ``(m, m, p)`` of a region. Rows on different sides of
    a gate are independent given the circuit; a sum is one draw for all rows.
    """

    def up(number: int, rows: Rows) -> tuple[Array, Array]:
        node = circuit[number]
        if node.kind == REGION:
            return of_region(node.region, rows)
        mean = np.zeros((len(rows), len(node.outputs)))
        covariance = np.zeros((len(rows), len(rows), len(node.outputs)))
        if node.kind == GATE:
            owner = circuit.route(number, X[rows])
            for k, child in enumerate(node.children):
                inside = np.flatnonzero(owner == k)
                if len(inside):
                    mean[inside], covariance[np.ix_(inside, inside)] = up(child, rows[inside])
            return mean, covariance
        if node.kind == OUTPUTS:
            for child in node.children:
                own = np.searchsorted(node.outputs, circuit[child].outputs)
                mean[:, own], covariance[:, :, own] = up(child, rows)
            return mean, covariance
        assert node.log_weights is not None
        return mix_between_rows(node.log_weights, [up(child, rows) for child in node.children])

    return up(circuit.root, np.arange(len(X)))


def mix_between_rows(log_weights: Array, children: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """First and second moments of a mixture (the paper's equations for a sum), over rows for each output."""
    weights = np.exp(log_weights)
    if weights.ndim == 1:
        weights = np.repeat(weights[:, None], children[0][0].shape[1], axis=1)
    mean = sum(w * m for w, (m, _) in zip(weights, children, strict=True))
    second = sum(w * (C + (m - mean)[:, None] * (m - mean)[None]) for w, (m, C) in zip(weights, children, strict=True))
    return np.asarray(mean), np.asarray(second)
