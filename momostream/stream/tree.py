"""A circuit that grows with its stream: sums, gates and output splits above leaves.

A row goes down to one leaf per induced tree and output. A leaf that has grown too large is cut in two by a gate; cuts
of the same covariate that follow each other become one gate with many cells, searched by bisection, because a stream
that drifts is cut along time again and again. Where the circuit mixes, a full leaf becomes a sum over gates on
different covariates; the distribution of a sum is matched by one location and spread per output for the experts at the
root.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.distributions.mixtures import Mixture, Multivariate, Product, StudentT
from momostream.distributions.student import t_log_pdf
from momostream.gp.covariance import Covariance, Prior, input_spread
from momostream.gp.cuts import gate_cuts, split_outputs
from momostream.gp.scaling import standardisation
from momostream.gp.tuning import ResumableTuner
from momostream.stream.leaf import Leaf
from momostream.stream.rows import RowStore

__all__ = ["GONE", "Bundle", "Gate", "Growth", "Sum", "Tree"]

Array = NDArray[np.float64]
Positions = NDArray[np.intp]
Numbers = NDArray[np.int64]

# Gates above a leaf from which on it is rather cut along the covariate of its gate.
DEEP = 10
# What a leaf that has left its tree waits for.
GONE = "gone"
# Weights of a sum never fall below this.
LEAST_WEIGHT = 1e-4
# Outputs that hyper-parameters are tuned for, at most: steps of a forecast resemble each other.
TUNED_OUTPUTS = 48
# Degrees of freedom of a leaf's distribution are at least these.
LEAST_DOF = 2.5


@dataclass(frozen=True)
class Growth:
    """How a tree grows; `momostream.MOMoGPRegressor` documents the parameters."""

    max_points: int
    n_components: int
    n_groups: int
    mixture_depth: int
    split_by: str
    group_by: str
    coupling: str
    weights: str
    eta: float
    discount: float
    tuning_points: int
    tuning_evaluations: int
    first_tuning: int
    tuning_growth: float
    child_width: float


class Gate:
    """Sends a row to the child that owns its value of one covariate: ``cuts[k-1] < x <= cuts[k]``."""

    __slots__ = ("children", "column", "cuts", "parent")

    def __init__(self, column: int, cuts: list[float], children: list[Node]) -> None:
        self.column, self.cuts, self.children = column, cuts, children
        self.parent: Node | None = None
        for child in children:
            child.parent = self


class Sum:
    """A mixture of children over the same outputs; ``log_weights`` is ``(n_children, n_outputs)``."""

    __slots__ = ("children", "location", "log_weights", "parent", "spread")

    def __init__(self, children: list[Node], n_targets: int) -> None:
        self.children = children
        self.log_weights = np.full((len(children), n_targets), -math.log(len(children)))
        self.location, self.spread = np.empty((2, len(children), n_targets))
        self.parent: Node | None = None
        for child in children:
            child.parent = self


class Bundle:
    """Children that own disjoint outputs; ``is_region`` where they have the same rows and are cut together.

    ``places`` holds the positions of each child's outputs among those of the bundle.
    """

    __slots__ = ("children", "is_region", "parent", "places")

    def __init__(self, children: list[Node], places: list[Positions], is_region: bool) -> None:
        self.children, self.places, self.is_region = children, places, is_region
        self.parent: Node | None = None
        for child in children:
            child.parent = self


Node = Leaf | Gate | Sum | Bundle


class Tree:
    """A growing circuit over some columns of the points and all targets.

    Parameters
    ----------
    rows
        The shared rows.
    start
        First column of the points that the tree sees: 0 with the clock, 1 without.
    covariance
        Covariance of all leaves.
    growth
        How the tree grows.
    rng
        Source of randomness.

    Attributes
    ----------
    due
        What has to be done soon and costs more than a row: ``("split", node)`` and ``("tune", leaf)``.
    n_leaves
        Leaves in the tree.
    """

    def __init__(
        self, rows: RowStore, start: int, covariance: Covariance, growth: Growth, rng: np.random.Generator
    ) -> None:
        self.rows, self.start, self.covariance, self.growth, self.rng = rows, start, covariance, growth, rng
        n_inputs = len(rows.fill) - start
        theta = covariance.prior(np.ones(n_inputs)).centre
        self.due: deque[tuple[str, Any]] = deque()
        self.n_leaves = 0
        self.root: Node = self._region(np.arange(rows.n_targets), theta, np.empty(0, dtype=np.int64))
        self.touch = 0
        self._leaf: Leaf | None = None
        # In order of building; a dict, as a set has no order.
        self._built: dict[Leaf, None] = {}
        # Bytes of the factors that were made, also of some that are gone since; `built` counts anew.
        self.bytes_built = 0

    # ------------------------------------------------------------------ parts

    def _region(self, targets: Positions, theta: Array | list[Array], numbers: Numbers) -> Leaf | Bundle:
        """A leaf for these rows and outputs, or one per output where outputs are not coupled."""
        thetas = theta if isinstance(theta, list) else [theta] * len(targets)
        if self.growth.coupling == "shared":
            return self._new_leaf(targets, thetas[0], numbers)
        leaves: list[Node] = [self._new_leaf(targets[p : p + 1], thetas[p], numbers) for p in range(len(targets))]
        return Bundle(leaves, [np.array([p]) for p in range(len(targets))], is_region=True)

    def _new_leaf(self, targets: Positions, theta: Array, numbers: Numbers) -> Leaf:
        leaf = Leaf(self.rows, self.start, targets, self.covariance, theta, self.growth.discount, numbers)
        self.n_leaves += 1
        n, first = len(numbers), self.growth.first_tuning
        leaf.next_tuning = first if n < first else int(n * self.growth.tuning_growth)
        if n:
            leaf.prior_theta = leaf.theta.copy()
        else:
            leaf.is_untuned = True
        return leaf

    def build(self, leaf: Leaf) -> None:
        """Make the factor of a leaf and remember that it is in memory."""
        leaf.build()
        self._built[leaf] = None
        self.bytes_built += leaf.nbytes

    def built(self) -> list[Leaf]:
        """Leaves whose factors are in memory."""
        self._built = {leaf: None for leaf in self._built if leaf.built}
        self.bytes_built = sum(leaf.nbytes for leaf in self._built)
        return list(self._built)

    def leaves(self, node: Node | None = None) -> Iterator[Leaf]:
        """All leaves below a node, by default the root."""
        stack: list[Node] = [self.root if node is None else node]
        while stack:
            node = stack.pop()
            if isinstance(node, Leaf):
                yield node
            else:
                stack.extend(reversed(node.children))

    def nodes(self) -> list[Node]:
        """All nodes, in an order that depends on nothing but the shape of the tree."""
        found: list[Node] = [self.root]
        for node in found:
            if not isinstance(node, Leaf):
                found.extend(node.children)
        return found

    def reached(self, x: Array) -> list[Leaf]:
        """The leaves that a row goes to."""
        found, stack = [], [self.root]
        while stack:
            node = stack.pop()
            if isinstance(node, Leaf):
                found.append(node)
            elif isinstance(node, Gate):
                stack.append(node.children[bisect_left(node.cuts, x[node.column])])
            else:
                stack.extend(node.children)
        return found

    @property
    def depth(self) -> int:
        """Nodes above the deepest leaf."""
        deepest, level = -1, [self.root]
        while level:
            deepest += 1
            level = [child for node in level if not isinstance(node, Leaf) for child in node.children]
        return deepest

    # ------------------------------------------------------------------ one row

    def predict(self, x: Array, location: Array, spread: Array) -> None:
        """Set location and spread of each output at ``x``."""
        self.touch += 1
        node = self.root
        while type(node) is Gate:
            node = node.children[bisect_left(node.cuts, x[node.column])]
        if type(node) is Leaf:
            self._leaf = node
            node.touched = self.touch
            if not node.built:
                self.build(node)
            node.predict(x, location, spread)
        else:
            self._leaf = None
            self._predict(node, x, location, spread)

    def _predict(self, node: Node, x: Array, location: Array, spread: Array) -> None:
        if isinstance(node, Leaf):
            node.touched = self.touch
            if not node.built:
                self.build(node)
            node.predict(x, location, spread)
        elif isinstance(node, Gate):
            self._predict(node.children[bisect_left(node.cuts, x[node.column])], x, location, spread)
        elif isinstance(node, Bundle):
            for child, places in zip(node.children, node.places, strict=True):
                part = np.empty((2, len(places)))
                self._predict(child, x, part[0], part[1])
                location[places], spread[places] = part
        else:
            for k, child in enumerate(node.children):
                self._predict(child, x, node.location[k], node.spread[k])
            weights = np.exp(node.log_weights)
            location[:] = (weights * node.location).sum(axis=0)
            spread[:] = np.sqrt((weights * (node.spread**2 + (node.location - location) ** 2)).sum(axis=0))

    def learn(self, number: int, y: Array, x: Array) -> None:
        """Learn the row that was predicted last; NaN is a missing target."""
        leaf = self._leaf
        if leaf is not None:
            leaf.learn(number, y)
            n = leaf.n_rows
            if n > self.growth.max_points or leaf.n_seen >= leaf.next_tuning or n <= 16 or len(leaf.gaps):
                self._look_at(leaf)
        else:
            self._learn(self.root, number, y, x)

    def _learn(self, node: Node, number: int, y: Array, x: Array) -> None:
        if isinstance(node, Leaf):
            if not np.isnan(y).all():
                node.learn(number, y)
                self._look_at(node)
        elif isinstance(node, Gate):
            self._learn(node.children[bisect_left(node.cuts, x[node.column])], number, y, x)
        elif isinstance(node, Bundle):
            for child, places in zip(node.children, node.places, strict=True):
                self._learn(child, number, np.ascontiguousarray(y[places]), x)
            sizes = [child.n_rows for child in node.children if isinstance(child, Leaf)] if node.is_region else [0]
            if max(sizes) > self.growth.max_points and next(self.leaves(node)).busy != "split":
                self._schedule("split", node)
        else:
            self._weigh(node, y)
            for child in node.children:
                self._learn(child, number, y, x)

    def learn_rows(self, numbers: Numbers, X: Array, Y: Array, location: Array, spread: Array) -> None:
        """Predict and learn rows one after the other, those of a leaf at once where that is the same.

        Sets location and spread ``(n, n_targets)`` of each row as it was predicted before it was learnt.
        """
        waiting = self._routed(self.root, X, np.arange(len(X)))
        while waiting:
            leaf, inside = waiting.pop()
            if leaf is None or leaf.n_rows < 2 * self.growth.first_tuning:
                for i in inside:
                    self.predict(X[i], location[i], spread[i])
                    self.learn(int(numbers[i]), Y[i], X[i])
                continue
            # One row more than a leaf may have splits it; the rest goes to its children.
            fits = max(self.growth.max_points + 1 - leaf.n_rows, 1)
            inside, rest = inside[:fits], inside[fits:]
            if not leaf.built:
                self.build(leaf)
            self.touch += 1
            leaf.touched = self.touch
            part = np.empty((2, len(inside), Y.shape[1]))
            leaf.learn_rows(numbers[inside], X[inside], Y[inside], part[0], part[1])
            location[inside], spread[inside] = part
            self._look_at(leaf)
            if len(rest):
                self.split_now(leaf)
                waiting += self._routed(self.root, X, rest)
        self._leaf = None

    def split_now(self, leaf: Leaf) -> None:
        """Split a full leaf at once instead of when it is its turn."""
        if leaf.busy == "split":
            self.due = deque(entry for entry in self.due if entry[1] is not leaf)
            self.split(leaf)

    def predict_rows(self, X: Array, location: Array, spread: Array) -> None:
        """Set location and spread ``(n, n_targets)`` of many rows."""
        for leaf, inside in self._routed(self.root, X, np.arange(len(X))):
            if leaf is None:
                for i in inside:
                    self.predict(X[i], location[i], spread[i])
                continue
            if not leaf.built:
                self.build(leaf)
            part = np.empty((2, len(inside), location.shape[1]))
            leaf.predict_rows(X[inside], part[0], part[1])
            location[inside], spread[inside] = part
        self._leaf = None

    def _routed(self, node: Node, X: Array, rows: Positions) -> list[tuple[Leaf | None, Positions]]:
        """Leaves below a node with the rows that reach them; None for rows that reach more than one leaf."""
        found: dict[Node, list[int]] = {}
        # Row by row: with few rows at each gate, grouping arrays costs several times as much.
        for i, x in zip(rows.tolist(), X[rows].tolist(), strict=True):
            reached = node
            while type(reached) is Gate:
                reached = reached.children[bisect_left(reached.cuts, x[reached.column])]
            found.setdefault(reached, []).append(i)
        return [(node if isinstance(node, Leaf) else None, np.array(inside)) for node, inside in found.items()]

    def _weigh(self, node: Sum, y: Array) -> None:
        """Move the weights of a sum by what its children said about ``y``."""
        if self.growth.weights == "uniform":
            return
        seen = ~np.isnan(y)
        z = (y - node.location) / node.spread
        log_pdf = np.where(seen, t_log_pdf(np.where(seen, z, 0.0), 10.0) - np.log(node.spread), 0.0)
        if self.growth.weights == "posterior":
            # The predictive densities of all rows so far multiply up to the evidence.
            node.log_weights = node.log_weights + log_pdf.sum(axis=1, keepdims=True)
        else:
            eta = self.growth.eta
            joint = node.log_weights + log_pdf
            share = np.exp(joint - np.logaddexp.reduce(joint, axis=0))
            node.log_weights = np.log(np.maximum((1.0 - eta) * np.exp(node.log_weights) + eta * share, LEAST_WEIGHT))
        node.log_weights -= np.logaddexp.reduce(node.log_weights, axis=0)

    def _look_at(self, leaf: Leaf) -> None:
        """See whether the leaf is due for new units, for a split or for tuning."""
        if leaf.is_young():
            leaf.look_again()
        if leaf.n_rows > self.growth.max_points and not _is_bundled(leaf):
            # Does not wait for a tuning that may take long to come.
            if leaf.busy != "split":
                self._schedule("split", leaf)
        elif leaf.n_seen >= leaf.next_tuning and self.growth.tuning_evaluations and not leaf.busy:
            self._schedule("tune", leaf)

    def _schedule(self, kind: str, node: Node) -> None:
        self.set_busy(node, kind)
        self.due.append((kind, node))

    def set_busy(self, node: Node, kind: str) -> None:
        """Mark the leaves below a node as waiting for this kind of work, or for none."""
        for leaf in self.leaves(node):
            leaf.busy = kind

    def distribution(self, node: Node, x: Array, targets: int) -> Multivariate:
        """The exact distribution of the row that was predicted last, as a mixture of independent Student-t's."""
        if isinstance(node, Leaf):
            location, spread = np.empty((2, targets))
            node.predict(x, location, spread)
            # Below, there is no variance, and next to none is known of an output that has not been seen.
            dof = math.inf if self.growth.coupling == "independent" else max(float(node.outputs[3].min()), LEAST_DOF)
            return StudentT(location[None], np.diag(spread**2), dof)
        if isinstance(node, Gate):
            return self.distribution(node.children[bisect_left(node.cuts, x[node.column])], x, targets)
        if isinstance(node, Bundle):
            parts = [self.distribution(c, x, len(p)) for c, p in zip(node.children, node.places, strict=True)]
            return Product(parts, node.places)
        return Mixture(node.log_weights[:, 0], [self.distribution(child, x, targets) for child in node.children])

    # ------------------------------------------------------------------ growing

    def split(self, node: Leaf | Bundle) -> str:
        """Cut a full region; returns what was done, for the log."""
        self.set_busy(node, "")
        # Outputs of a region may have been seen in different rows: the fullest leaf is the one to cut in half.
        X, _ = max(self.leaves(node), key=lambda leaf: leaf.n_rows).data()
        columns = self._cuttable(node, X)
        if not len(columns):
            # Rows that cannot be told apart: the newest stay.
            for leaf in self.leaves(node):
                leaf.numbers_ = leaf.numbers[-(self.growth.max_points // 2) :].copy()
                leaf.n_rows = len(leaf.numbers_)
                leaf.blocks = []
                leaf.evict()
            return "dropped the older half of rows that cannot be told apart"
        mixes = self.growth.n_components > 1 and self._n_above(node, Sum) < self.growth.mixture_depth
        gates = [self._gate(node, X, int(c)) for c in columns[: self.growth.n_components if mixes else 1]]
        parent = node.parent
        if len(gates) > 1:
            self._replace(parent, node, Sum(list(gates), _n_targets(node)))
        elif isinstance(parent, Gate) and parent.column == gates[0].column:
            place = next(k for k, child in enumerate(parent.children) if child is node)
            parent.children[place : place + 1] = gates[0].children
            parent.cuts[place:place] = gates[0].cuts
            for child in gates[0].children:
                child.parent = parent
        else:
            self._replace(parent, node, gates[0])
        self._let_go(node)
        return f"split {len(X)} rows along column {int(columns[0]) + self.start}"

    def _cuttable(self, node: Node, X: Array) -> Positions:
        """Columns that vary, the most relevant first."""
        spread = X.std(axis=0)
        rank = spread.copy()
        if self.growth.split_by == "relevance":
            rank = np.mean([spread * leaf.inputs[1] for leaf in self.leaves(node)], axis=0)
        varies = X.max(axis=0) > X.min(axis=0)
        gate = node.parent
        if isinstance(gate, Gate) and varies[gate.column] and self._n_above(node, Gate) >= DEEP:
            # Inputs that drift together would be cut in turns, one gate below the other without end.
            if rank[gate.column] > 0.25 * rank.max():
                rank[gate.column] = np.inf
        order = np.argsort(-rank, kind="stable")
        return order[varies[order]]

    def _gate(self, node: Leaf | Bundle, X: Array, column: int) -> Gate:
        cut = float(gate_cuts(X[:, column], 2)[0])
        low: list[tuple[Leaf, Numbers]] = []
        high: list[tuple[Leaf, Numbers]] = []
        for leaf in self.leaves(node):
            values = X[:, column] if leaf is node else leaf.data()[0][:, column]
            low.append((leaf, leaf.numbers[values <= cut]))
            high.append((leaf, leaf.numbers[values > cut]))
        return Gate(column, [cut], [self._child(node, low), self._child(node, high)])

    def _child(self, node: Leaf | Bundle, parts: list[tuple[Leaf, Numbers]]) -> Node:
        """A region for a part of the rows, its outputs in groups where the circuit splits them."""
        if isinstance(node, Leaf):
            groups = self._groups(node.targets, parts[0][1])
            if len(groups) == 1:
                return self._new_leaf(node.targets, node.theta, parts[0][1])
            leaves: list[Node] = [self._new_leaf(node.targets[g], node.theta, parts[0][1]) for g in groups]
            return Bundle(leaves, groups, is_region=False)
        numbers = np.unique(np.concatenate([own for _, own in parts]))
        groups = self._groups(np.concatenate([leaf.targets for leaf, _ in parts]), numbers)
        regions: list[Node] = []
        for group in groups:
            own: list[Node] = [self._new_leaf(parts[p][0].targets, parts[p][0].theta, parts[p][1]) for p in group]
            regions.append(Bundle(own, [np.array([k]) for k in range(len(own))], is_region=True))
        return regions[0] if len(regions) == 1 else Bundle(regions, groups, is_region=False)

    def _groups(self, targets: Positions, numbers: Numbers) -> list[Positions]:
        n_groups = min(self.growth.n_groups, len(targets))
        if n_groups == 1:
            return [np.arange(len(targets))]
        X, Y = self.rows.gather(numbers)
        return split_outputs(X[:, self.start :], Y[:, targets], n_groups, self.growth.group_by, self.rng)

    def _n_above(self, node: Node, kind: type[Node]) -> int:
        """Nodes of a kind above a node."""
        above, count = node.parent, 0
        while above is not None:
            count += isinstance(above, kind)
            above = above.parent
        return count

    def _replace(self, parent: Node | None, old: Node, new: Node) -> None:
        new.parent = parent
        if parent is None:
            self.root = new
        else:
            assert not isinstance(parent, Leaf)
            parent.children[next(k for k, child in enumerate(parent.children) if child is old)] = new

    # ------------------------------------------------------------------ tuning

    def tuner(self, leaf: Leaf) -> ResumableTuner | None:
        """A search for better hyper-parameters of a leaf; None where it has too few targets."""
        growth = self.growth
        leaf.next_tuning = leaf.n_seen + max(int(leaf.n_rows * (growth.tuning_growth - 1.0)), 1)
        numbers = leaf.numbers
        if len(numbers) > growth.tuning_points:
            numbers = np.sort(self.rng.choice(numbers, growth.tuning_points, replace=False))
        X, Y = leaf.data(numbers)
        seen = ~np.isnan(Y).all(axis=1)
        X, Y = X[seen], Y[seen]
        if len(X) < 4:
            return None
        prior = self.covariance.prior(input_spread(leaf.data()[0]))
        theta = _heard(leaf.theta, prior)
        if leaf.prior_theta is not None:
            # A child resembles its parent; what it learns on fewer rows should not stray far.
            prior = prior.about(_heard(leaf.prior_theta, prior), growth.child_width)
        if Y.shape[1] > TUNED_OUTPUTS:
            Y = Y[:, np.linspace(0, Y.shape[1] - 1, TUNED_OUTPUTS).round().astype(np.intp)]
        offset, scale = standardisation(Y)
        R = (Y - offset) / scale
        R[np.isnan(R)] = 0.0
        start = prior.centre if leaf.is_untuned else theta
        X = np.ascontiguousarray(X - X.mean(axis=0))
        return ResumableTuner(self.covariance, X, R, prior, start, growth.tuning_evaluations)

    # ------------------------------------------------------------------ forgetting

    def drop(self, number: int) -> None:
        """Forget a row, which is the oldest one of the leaves that have it; empty leaves go with their cell."""
        x = self.rows.point(number)[self.start :]
        for leaf in self.reached(x):
            if leaf.n_rows and leaf.numbers_[0] == number:
                leaf.drop_oldest()
                if leaf.n_rows == 0:
                    self._prune(leaf)

    def restart(self, numbers: Numbers) -> None:
        """Begin again with these rows and the hyper-parameters of the leaves in use."""
        newest: dict[int, Leaf] = {}
        for leaf in sorted(self.leaves(), key=lambda leaf: leaf.touched):
            newest.update(dict.fromkeys(leaf.targets.tolist(), leaf))
        self.due.clear()
        self._leaf = None
        self._built.clear()
        self.n_leaves = 0
        targets = np.arange(self.rows.n_targets)
        self.root = self._region(targets, [newest[p].theta for p in targets.tolist()], numbers)

    def _prune(self, node: Node) -> None:
        """Take an empty cell out of its gate; a gate with one child left gives way to it."""
        while node.parent is not None and not isinstance(node.parent, Gate):
            node = node.parent
        gate = node.parent
        if gate is None or any(leaf.n_rows or leaf.busy for leaf in self.leaves(node)):
            return
        place = next(k for k, child in enumerate(gate.children) if child is node)
        del gate.children[place]
        del gate.cuts[max(place - 1, 0)]
        if len(gate.children) == 1:
            self._replace(gate.parent, gate, gate.children[0])
        self._let_go(node)

    def _let_go(self, node: Node) -> None:
        """Drop the factors below a node that has left the tree, and mark its leaves as gone."""
        for leaf in self.leaves(node):
            leaf.evict()
            leaf.busy = GONE
            self.n_leaves -= 1
            self._built.pop(leaf, None)

    # ------------------------------------------------------------------ columns that come later

    def widen(self) -> None:
        """Take new columns of the rows into account."""
        n_targets = self.rows.n_targets
        known = _n_targets(self.root)
        if n_targets > known:
            fresh = np.arange(known, n_targets)
            if self.growth.coupling == "shared":
                self._widen_targets(self.root, fresh)
            else:
                theta = self.covariance.prior(np.ones(len(self.rows.fill) - self.start)).centre
                region = self._region(fresh, theta, np.empty(0, dtype=np.int64))
                self.root = Bundle([self.root, region], [np.arange(known), fresh], is_region=False)
        for leaf in self.leaves():
            leaf.widen(None)
        self._leaf = None

    def _widen_targets(self, node: Node, fresh: Positions) -> None:
        """Every leaf below learns the new outputs too."""
        if isinstance(node, Leaf):
            node.widen(np.concatenate([node.targets, fresh]))
        elif isinstance(node, Bundle):
            # The first child takes them; the others have outputs of their own.
            known = sum(map(len, node.places))
            places = np.arange(known, known + len(fresh))
            self._widen_targets(node.children[0], fresh)
            node.places[0] = np.concatenate([node.places[0], places])
        else:
            for child in node.children:
                self._widen_targets(child, fresh)
            if isinstance(node, Sum):
                # Posterior weights are about the rows, whatever the output.
                uniform = np.full((len(node.children), 1), -math.log(len(node.children)))
                new = node.log_weights[:, :1] if self.growth.weights == "posterior" else uniform
                node.log_weights = np.hstack([node.log_weights, np.repeat(new, len(fresh), axis=1)])
                node.location, node.spread = np.empty((2, *node.log_weights.shape))

    # ------------------------------------------------------------------ as plain data

    def state(self, drops: bool = False) -> dict[str, Any]:
        """The tree as plain data; ``drops`` notes which factors are there, for a tree that rows are dropped from."""
        nodes = self.nodes()
        places = {node: k for k, node in enumerate(nodes)}
        due = [[kind, places[node]] for kind, node in self.due]
        # Rows dropped from a factor leave another one, in its last bits, than rows dropped before it is made.
        built = [places[leaf] for leaf in self.leaves() if drops and leaf.built]
        # A flat list: trees can be deeper than nested data may be.
        table = [_node_state(node, places) for node in nodes]
        return {"nodes": table, "touch": self.touch, "due": due, "built": built}

    def restore(self, state: dict[str, Any]) -> None:
        """Become the tree that `state` was taken from."""
        nodes: dict[int, Node] = {}
        # Children come after their parents.
        for k in reversed(range(len(state["nodes"]))):
            nodes[k] = self._node_from_state(state["nodes"][k], nodes)
        self.root = nodes[0]
        self.touch = state["touch"]
        self.n_leaves = sum(1 for _ in self.leaves())
        self._built = {leaf: None for leaf in self.leaves() if leaf.built}
        self.built()
        for k in state["built"]:
            leaf = nodes[k]
            if isinstance(leaf, Leaf) and not leaf.built:
                self.build(leaf)
        self.due = deque((kind, nodes[k]) for kind, k in state["due"])
        for kind, node in self.due:
            self.set_busy(node, kind)

    def _node_from_state(self, state: dict[str, Any], nodes: dict[int, Node]) -> Node:
        kind = state["kind"]
        if kind == "leaf":
            return Leaf.from_state(state["leaf"], self.rows, self.start, self.covariance, self.growth.discount)
        children = [nodes[k] for k in state["children"]]
        if kind == "gate":
            return Gate(state["column"], state["cuts"].tolist(), children)
        if kind == "bundle":
            return Bundle(children, [p.astype(np.intp) for p in state["places"]], state["is_region"])
        node = Sum(children, state["log_weights"].shape[1])
        node.log_weights = state["log_weights"].copy()
        return node


def _heard(theta: Array, prior: Prior) -> Array:
    """Hyper-parameters with those that had no say so far at the centre of their prior."""
    return np.where(theta > prior.upper, prior.centre, theta)


def _node_state(node: Node, places: dict[Node, int]) -> dict[str, Any]:
    if isinstance(node, Leaf):
        return {"kind": "leaf", "leaf": node.state()}
    children = [places[child] for child in node.children]
    if isinstance(node, Gate):
        return {"kind": "gate", "column": node.column, "cuts": np.array(node.cuts), "children": children}
    if isinstance(node, Bundle):
        outputs = [p.astype(np.int64) for p in node.places]
        return {"kind": "bundle", "places": outputs, "is_region": node.is_region, "children": children}
    return {"kind": "sum", "log_weights": node.log_weights.copy(), "children": children}


def _is_bundled(leaf: Leaf) -> bool:
    return isinstance(leaf.parent, Bundle) and leaf.parent.is_region


def _n_targets(node: Node) -> int:
    while not isinstance(node, Leaf | Bundle):
        node = node.children[0]
    return len(node.targets) if isinstance(node, Leaf) else sum(map(len, node.places))
