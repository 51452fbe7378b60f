"""Growing a circuit: the cut of a full region, and the new nodes for its rows and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from momostream.gp.cuts import gate_cuts, split_outputs
from momostream.stream.leaf import Leaf
from momostream.stream.nodes import Bundle, Gate, Node, Sum, n_targets_of

if TYPE_CHECKING:
    from momostream.stream.tree import Tree

__all__ = ["split"]

Array = NDArray[np.float64]
Positions = NDArray[np.intp]
Numbers = NDArray[np.int64]

# Gates above a leaf from which on it is rather cut along the covariate of its gate.
DEEP = 10


def split(tree: Tree, node: Leaf | Bundle) -> str:
    """Cut a full region of a tree; returns what was done, for the log."""
    tree.set_busy(node, "")
    # Outputs of a region may have been seen in different rows: the fullest leaf is the one to cut in half.
    X, _ = max(tree.leaves(node), key=lambda leaf: leaf.n_rows).data()
    if not len(X):
        # Rows may have left the window while the split was waiting for its turn.
        tree.prune(node)
        return "found no rows left to split"
    columns = _cuttable(tree, node, X)
    if not len(columns):
        # Rows that cannot be distinguished: the newest stay.
        for leaf in tree.leaves(node):
            leaf.keep_newest(tree.growth.max_points // 2)
        return "dropped the older half of rows that cannot be distinguished"
    mixes = tree.growth.n_components > 1 and _n_above(node, Sum) < tree.growth.mixture_depth
    gates = [_gate(tree, node, X, int(c)) for c in columns[: tree.growth.n_components if mixes else 1]]
    parent = node.parent
    if len(gates) > 1:
        tree.replace(parent, node, Sum(list(gates), n_targets_of(node)))
    elif isinstance(parent, Gate) and parent.column == gates[0].column:
        k = next(k for k, child in enumerate(parent.children) if child is node)
        parent.children[k : k + 1] = gates[0].children
        parent.cuts[k:k] = gates[0].cuts
        for child in gates[0].children:
            child.parent = parent
    else:
        tree.replace(parent, node, gates[0])
    tree.let_go(node)
    return f"split {len(X)} rows along column {int(columns[0]) + tree.start}"


def _cuttable(tree: Tree, node: Node, X: Array) -> Positions:
    """Columns that vary, the most relevant first."""
    std = X.std(axis=0)
    rank = std.copy()
    if tree.growth.split_by == "relevance":
        rank = np.mean([std * leaf.inputs[1] for leaf in tree.leaves(node)], axis=0)
    varies = X.max(axis=0) > X.min(axis=0)
    gate = node.parent
    if isinstance(gate, Gate) and varies[gate.column] and _n_above(node, Gate) >= DEEP:
        # Inputs that drift together would be cut in turns, one gate below the other without end.
        if rank[gate.column] > 0.25 * rank.max():
            rank[gate.column] = np.inf
    order = np.argsort(-rank, kind="stable")
    return order[varies[order]]


def _gate(tree: Tree, node: Leaf | Bundle, X: Array, column: int) -> Gate:
    cut = float(gate_cuts(X[:, column], 2)[0])
    low: list[tuple[Leaf, Numbers]] = []
    high: list[tuple[Leaf, Numbers]] = []
    for leaf in tree.leaves(node):
        values = X[:, column] if leaf is node else leaf.data()[0][:, column]
        low.append((leaf, leaf.numbers[values <= cut]))
        high.append((leaf, leaf.numbers[values > cut]))
    return Gate(column, [cut], [_child(tree, node, low), _child(tree, node, high)])


def _child(tree: Tree, node: Leaf | Bundle, parts: list[tuple[Leaf, Numbers]]) -> Node:
    """A region for a part of the rows, its outputs in groups where the circuit splits them."""
    if isinstance(node, Leaf):
        groups = _groups(tree, node.targets, parts[0][1])
        if len(groups) == 1:
            return tree.new_leaf(node.targets, node.theta, parts[0][1])
        leaves: list[Node] = [tree.new_leaf(node.targets[g], node.theta, parts[0][1]) for g in groups]
        return Bundle(leaves, groups, is_region=False)
    numbers = np.unique(np.concatenate([own for _, own in parts]))
    groups = _groups(tree, np.concatenate([leaf.targets for leaf, _ in parts]), numbers)
    regions: list[Node] = []
    for group in groups:
        own: list[Node] = [tree.new_leaf(parts[p][0].targets, parts[p][0].theta, parts[p][1]) for p in group]
        regions.append(Bundle(own, [np.array([k]) for k in range(len(own))], is_region=True))
    return regions[0] if len(regions) == 1 else Bundle(regions, groups, is_region=False)


def _groups(tree: Tree, targets: Positions, numbers: Numbers) -> list[Positions]:
    n_groups = min(tree.growth.n_groups, len(targets))
    if n_groups == 1:
        return [np.arange(len(targets))]
    X, Y = tree.rows.gather(numbers)
    return split_outputs(X[:, tree.start :], Y[:, targets], n_groups, tree.growth.group_by, tree.rng)


def _n_above(node: Node, kind: type[Node]) -> int:
    """Nodes of a kind above a node."""
    above, count = node.parent, 0
    while above is not None:
        count += isinstance(above, kind)
        above = above.parent
    return count
