"""Nodes of a growing circuit above its leaves: gates, sums and output splits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.distributions.student import t_log_pdf
from momostream.stream.leaf import Leaf

__all__ = ["Bundle", "Gate", "Node", "Sum", "log_normalised", "n_targets_of", "node_state"]

Array = NDArray[np.float64]
Positions = NDArray[np.intp]

# Weights of a sum never fall below this.
LEAST_WEIGHT = 1e-4
# Deviations are taken to be between one over this and this, and standardised residuals below it.
TOO_FAR = 1e100


class Gate:
    """Sends a row to the child that owns its value of one covariate: ``cuts[k-1] < x <= cuts[k]``."""

    __slots__ = ("children", "column", "cuts", "parent")

    def __init__(self, column: int, cuts: list[float], children: list[Node]) -> None:
        self.column, self.cuts, self.children = column, cuts, children
        self.parent: Node | None = None
        for child in children:
            child.parent = self


class Sum:
    """A mixture of children over the same outputs.

    ``log_weights`` is ``(n_children, n_targets)``, as are ``location`` and ``std``, the scratch in which the children
    write what they predict.
    """

    __slots__ = ("children", "location", "log_weights", "parent", "std")

    def __init__(self, children: list[Node], n_targets: int) -> None:
        self.children = children
        self.log_weights = np.full((len(children), n_targets), -math.log(len(children)))
        self.location, self.std = np.empty((2, len(children), n_targets))
        self.parent: Node | None = None
        for child in children:
            child.parent = self

    def weigh(self, y: Array, rule: str, eta: float) -> None:
        """Move the weights by what the children said about ``y``: by ``"posterior"`` or by ``"stacking"``."""
        seen = ~np.isnan(y)
        std = np.where(self.std < TOO_FAR, np.maximum(self.std, 1.0 / TOO_FAR), TOO_FAR)
        z = np.clip(np.where(seen, y - self.location, 0.0) / std, -TOO_FAR, TOO_FAR)
        log_pdf = np.where(seen, t_log_pdf(z, 10.0) - np.log(std), 0.0)
        if rule == "posterior":
            # The predictive densities of all rows so far multiply up to the evidence.
            log_weights = self.log_weights + log_pdf.sum(axis=1, keepdims=True)
        else:
            share = np.exp(log_normalised(self.log_weights + log_pdf))
            log_weights = np.log(np.maximum((1.0 - eta) * np.exp(self.log_weights) + eta * share, LEAST_WEIGHT))
        self.log_weights = log_normalised(log_weights)

    def match(self, location: Array, std: Array) -> None:
        """Set location and standard deviation of the mixture; a child without finite ones has no say."""
        weights = np.exp(self.log_weights)
        known = (self.std < TOO_FAR) & (np.abs(self.location) < TOO_FAR)
        if not known.all():
            weights = np.where(known, weights, 0.0)
            total = weights.sum(axis=0)
            weights /= np.where(total > 0.0, total, 1.0)
            self.location[~known], self.std[~known] = 0.0, 0.0
        location[:] = (weights * self.location).sum(axis=0)
        std[:] = np.sqrt((weights * (self.std**2 + (self.location - location) ** 2)).sum(axis=0))
        std[~known.any(axis=0)] = math.inf

    def add_targets(self, n_more: int, is_posterior: bool) -> None:
        """Take more outputs in; posterior weights are about the rows, whatever the output."""
        uniform = np.full((len(self.children), 1), -math.log(len(self.children)))
        new = self.log_weights[:, :1] if is_posterior else uniform
        self.log_weights = np.hstack([self.log_weights, np.repeat(new, n_more, axis=1)])
        self.location, self.std = np.empty((2, *self.log_weights.shape))


class Bundle:
    """Children that own disjoint outputs; ``is_region`` where they have the same rows and are cut together.

    ``positions`` are those of each child's outputs among the outputs of the bundle.
    """

    __slots__ = ("children", "is_region", "parent", "positions")

    def __init__(self, children: list[Node], positions: list[Positions], is_region: bool) -> None:
        self.children, self.positions, self.is_region = children, positions, is_region
        self.parent: Node | None = None
        for child in children:
            child.parent = self


Node = Leaf | Gate | Sum | Bundle


def log_normalised(log_weights: Array) -> Array:
    """Logarithms of weights, shifted so that the weights of each column sum to one."""
    return np.asarray(log_weights - np.logaddexp.reduce(log_weights, axis=0))


def n_targets_of(node: Node) -> int:
    """Number of outputs of a node."""
    while not isinstance(node, Leaf | Bundle):
        node = node.children[0]
    return len(node.targets) if isinstance(node, Leaf) else sum(map(len, node.positions))


def node_state(node: Node, number: dict[Node, int]) -> dict[str, Any]:
    """A node as plain data; ``number`` counts all nodes of its tree."""
    if isinstance(node, Leaf):
        return {"kind": "leaf", "leaf": node.state()}
    children = [number[child] for child in node.children]
    if isinstance(node, Gate):
        return {"kind": "gate", "column": node.column, "cuts": np.array(node.cuts), "children": children}
    if isinstance(node, Bundle):
        positions = [p.astype(np.int64) for p in node.positions]
        return {"kind": "bundle", "places": positions, "is_region": node.is_region, "children": children}
    return {"kind": "sum", "log_weights": node.log_weights.copy(), "children": children}
