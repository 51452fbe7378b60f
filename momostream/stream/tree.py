"""A circuit that grows with its stream: sums, gates and output splits above leaves.

A row goes down to one leaf per induced tree and output. A leaf that has grown too large is cut in two by a gate; cuts
of the same covariate that follow each other become one gate with many cells, searched by bisection, because a stream
that drifts is cut along time again and again. Where the circuit mixes, a full leaf becomes a sum over gates on
different covariates; the distribution of a sum is matched by one location and standard deviation per output for the
experts at the root.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.distributions.mixtures import Mixture, Multivariate, Product, StudentT
from momostream.gp.covariance import Covariance, Prior, input_std
from momostream.gp.scaling import standardisation
from momostream.gp.tuning import ResumableTuner
from momostream.stream.growth import Growth
from momostream.stream.leaf import Leaf
from momostream.stream.nodes import TOO_FAR, Bundle, Gate, Node, Sum, n_targets_of, node_state
from momostream.stream.restoring import check_node, check_table
from momostream.stream.routes import Routes
from momostream.stream.rows import RowStore
from momostream.stream.splits import split
from momostream.stream.together import predict_together
from momostream.stream.tokens import NO_TOKEN, StaleTokenError, next_token

__all__ = ["GONE", "Bundle", "Gate", "Node", "Sum", "Tree"]

Array = NDArray[np.float64]
Positions = NDArray[np.intp]
Numbers = NDArray[np.int64]

# The kind of work that a leaf which has left its tree waits for.
GONE = "gone"
# Outputs that hyper-parameters are tuned for, at most: steps of a forecast resemble each other.
TUNED_OUTPUTS = 48
# A leaf is tuned on its rows without gaps if they are at least this share of all.
COMPLETE = 0.5
# Degrees of freedom of a leaf's distribution are at least these.
LEAST_DOF = 2.5


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
        Work that has to be done soon and costs more than a row: ``("split", node)`` and ``("tune", leaf)``.
    n_leaves
        Leaves in the tree.
    """

    def __init__(
        self, rows: RowStore, start: int, covariance: Covariance, growth: Growth, rng: np.random.Generator
    ) -> None:
        self.rows, self.start, self.covariance, self.growth, self.rng = rows, start, covariance, growth, rng
        theta = covariance.prior(np.ones(self.n_inputs)).centre
        self.due: deque[tuple[str, Any]] = deque()
        self.n_leaves = 0
        self.root: Node = self._region(np.arange(rows.n_targets), theta, np.empty(0, dtype=np.int64))
        self.touch = 0
        # The leaf that the row predicted last goes to; None where it goes to several, and the row itself then.
        self._leaf: Leaf | None = None
        self._x = np.empty(0)
        # Ways of many rows through the gates; None once a gate has changed.
        self._routes: Routes | None = None
        # Leaves with a factor of their own, the one used last at the end, and with a lent one; a set has no order.
        self._built: dict[Leaf, None] = {}
        self._lent: dict[Leaf, None] = {}

    # ------------------------------------------------------------------ parts

    def _region(self, targets: Positions, theta: Array | list[Array], numbers: Numbers) -> Leaf | Bundle:
        """A leaf for these rows and outputs, or one per output where outputs are not coupled."""
        thetas = theta if isinstance(theta, list) else [theta] * len(targets)
        if self.growth.coupling == "shared":
            return self.new_leaf(targets, thetas[0], numbers)
        leaves: list[Node] = [self.new_leaf(targets[p : p + 1], thetas[p], numbers) for p in range(len(targets))]
        return Bundle(leaves, [np.array([p]) for p in range(len(targets))], is_region=True)

    def new_leaf(self, targets: Positions, theta: Array, numbers: Numbers) -> Leaf:
        """A leaf of this tree for these rows and outputs."""
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
        """Build the factor of a leaf and remember that it is in memory."""
        leaf.give_back()
        leaf.build()
        self._own(leaf)

    def _own(self, leaf: Leaf) -> None:
        """Note that the factor of a leaf is its own, and newer than all others."""
        self._lent.pop(leaf, None)
        self._built.pop(leaf, None)
        self._built[leaf] = None

    def _lend(self, leaf: Leaf) -> None:
        """Give a leaf a factor for a prediction."""
        leaf.lend()
        self._lent[leaf] = None

    def built(self) -> list[Leaf]:
        """Leaves that have a factor of their own in memory."""
        self._built = {leaf: None for leaf in self._built if leaf.own_factor is not None}
        return list(self._built)

    def lent(self) -> list[Leaf]:
        """Leaves that have lent a factor to a prediction, those that did so first at the front."""
        self._lent = {leaf: None for leaf in self._lent if leaf.kept is not None}
        return list(self._lent)

    def leaves(self, node: Node | None = None) -> Iterator[Leaf]:
        """All leaves below a node, by default the root."""
        stack: list[Node] = [self.root if node is None else node]
        while stack:
            node = stack.pop()
            if isinstance(node, Leaf):
                yield node
            else:
                stack.extend(reversed(node.children))

    @property
    def n_inputs(self) -> int:
        """Number of columns of the points that the tree sees."""
        return len(self.rows.fill) - self.start

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

    def predict(self, x: Array, location: Array, std: Array, token: int) -> None:
        """Set location and standard deviation of each output at ``x``.

        ``token`` names the prediction; `learn` takes the row by it.
        """
        node = self.root
        while type(node) is Gate:
            node = node.children[bisect_left(node.cuts, x[node.column])]
        if type(node) is Leaf:
            self._leaf = node
            if node.factor is None:
                self._lend(node)
            node.predict(x, location, std, token)
        else:
            self._leaf, self._x = None, x.copy()
            self._predict(node, x, location, std, token)

    def _predict(self, node: Node, x: Array, location: Array, std: Array, token: int) -> None:
        if isinstance(node, Leaf):
            if not node.built:
                self._lend(node)
            node.predict(x, location, std, token)
        elif isinstance(node, Gate):
            self._predict(node.children[bisect_left(node.cuts, x[node.column])], x, location, std, token)
        elif isinstance(node, Bundle):
            for child, positions in zip(node.children, node.positions, strict=True):
                part = np.empty((2, len(positions)))
                self._predict(child, x, part[0], part[1], token)
                location[positions], std[positions] = part
        else:
            for k, child in enumerate(node.children):
                self._predict(child, x, node.location[k], node.std[k], token)
            node.match(location, std)

    def open_leaf(self, point: list[float], token: int) -> Leaf | None:
        """The leaf that a point, time included, goes to, ready for a prediction of this token; None if to several."""
        node = self.root
        while type(node) is Gate:
            node = node.children[bisect_left(node.cuts, point[node.column + self.start])]
        if type(node) is not Leaf:
            return None
        self._leaf = node
        if node.factor is None:
            self._lend(node)
        node.open(token)
        return node

    def holds(self, token: int) -> bool:
        """Whether the prediction of this token can still be learnt: it was the last one, and no leaf has changed."""
        if token == NO_TOKEN:
            return False
        if self._leaf is not None:
            return self._leaf.token == token
        return len(self._x) == self.n_inputs and all(leaf.token == token for leaf in self.reached(self._x))

    def learn(self, token: int, number: int, y: Array) -> None:
        """Learn the row that was predicted with this token; NaN is a missing target.

        Raises
        ------
        StaleTokenError
            The token is not that of the last prediction, or the tree has changed since; nothing is learnt then.
        """
        leaf = self._leaf
        if leaf is not None:
            leaf.learn(token, number, y)
            self._use(leaf)
        else:
            if not self.holds(token):
                raise StaleTokenError
            self.touch += 1
            self._learn(self.root, token, number, y)

    def note_row(self, number: int, is_finite: bool) -> None:
        """Note that compiled code has learnt the row of this number in the leaf of `open_leaf`."""
        assert self._leaf is not None
        self._leaf.note_row(number, is_finite)
        self._use(self._leaf)

    def _use(self, leaf: Leaf) -> None:
        """Note that a row went to one leaf, which has learnt it."""
        self.touch += 1
        leaf.touched = self.touch
        if leaf in self._lent or leaf not in self._built:
            self._own(leaf)
        n = leaf.n_rows
        if n > self.growth.max_points or leaf.n_seen >= leaf.next_tuning or n <= 16 or leaf.has_gaps:
            self._look_at(leaf)

    def _learn(self, node: Node, token: int, number: int, y: Array) -> None:
        if isinstance(node, Leaf):
            node.touched = self.touch
            if not np.isnan(y).all():
                node.learn(token, number, y)
                self._own(node)
                self._look_at(node)
        elif isinstance(node, Gate):
            self._learn(node.children[bisect_left(node.cuts, self._x[node.column])], token, number, y)
        elif isinstance(node, Bundle):
            for child, positions in zip(node.children, node.positions, strict=True):
                self._learn(child, token, number, np.ascontiguousarray(y[positions]))
            sizes = [child.n_rows for child in node.children if isinstance(child, Leaf)] if node.is_region else [0]
            if max(sizes) > self.growth.max_points and next(self.leaves(node)).busy != "split":
                self._schedule("split", node)
        else:
            if self.growth.weights != "uniform":
                node.weigh(y, self.growth.weights, self.growth.eta)
            for child in node.children:
                self._learn(child, token, number, y)

    # ------------------------------------------------------------------ many rows

    def learn_rows(self, numbers: Numbers, X: Array, Y: Array, location: Array, std: Array) -> None:
        """Predict and learn rows one after the other, those of a leaf at once where that is the same.

        Sets location and standard deviation ``(n, n_targets)`` of each row as it was predicted before it was learnt.
        """
        waiting = self._routed(X, np.arange(len(X)))
        while waiting:
            leaf, inside = waiting.pop()
            if leaf is None or leaf.n_rows < 2 * self.growth.first_tuning:
                for i in inside:
                    token = next_token()
                    self.predict(X[i], location[i], std[i], token)
                    self.learn(token, int(numbers[i]), Y[i])
                continue
            # One row more than a leaf may have splits it; the rest goes to its children.
            fits = max(self.growth.max_points + 1 - leaf.n_rows, 1)
            inside, rest = inside[:fits], inside[fits:]
            self.touch += 1
            leaf.touched = self.touch
            part = np.empty((2, len(inside), Y.shape[1]))
            leaf.learn_rows(numbers[inside], X[inside], Y[inside], part[0], part[1])
            self._own(leaf)
            location[inside], std[inside] = part
            self._look_at(leaf)
            if len(rest):
                self.split_now(leaf)
                waiting += self._routed(X, rest)

    def split_now(self, leaf: Leaf) -> None:
        """Split a full leaf at once instead of when it is its turn."""
        if leaf.busy == "split":
            self.due = deque(entry for entry in self.due if entry[1] is not leaf)
            self.split(leaf)

    def predict_rows(self, X: Array, location: Array, std: Array) -> None:
        """Set location and standard deviation ``(n, n_targets)`` of many rows."""
        leaves: list[Leaf] = []
        parts: list[Positions] = []
        for leaf, inside in self._routed(X, np.arange(len(X))):
            if leaf is None:
                for i in inside:
                    self.predict(X[i], location[i], std[i], next_token())
                continue
            if leaf.factor is None or leaf.factor.n_rows != leaf.n_rows:
                self._lend(leaf)
            leaves.append(leaf)
            parts.append(inside)
        if leaves:
            predict_together(leaves, parts, X, location, std)

    def _routed(self, X: Array, rows: Positions) -> list[tuple[Leaf | None, Positions]]:
        """Leaves with the rows that reach them; None for rows that reach more than one leaf."""
        if self._routes is None:
            self._routes = Routes(self.root)
        found = self._routes.find(X[rows])
        return [(node if isinstance(node, Leaf) else None, rows[inside]) for node, inside in found]

    def _look_at(self, leaf: Leaf) -> None:
        """See whether the leaf is due for new units, for a split or for tuning."""
        if leaf.is_young():
            leaf.take_units_again()
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

    def distribution(self, node: Node, x: Array, targets: int, token: int) -> Multivariate:
        """The exact distribution below a node of the row that was predicted with this token.

        A mixture of independent Student-t's.
        """
        if isinstance(node, Leaf):
            location, std = np.empty((2, targets))
            node.predict(x, location, std, token)
            # Not below `LEAST_DOF`: an output without values has hardly any, and a Student-t of 2 or fewer has no
            # variance.
            dof = math.inf if self.growth.coupling == "independent" else max(float(node.outputs[3].min()), LEAST_DOF)
            known = (std < TOO_FAR) & (np.abs(location) < TOO_FAR)
            location, std = np.where(known, location, 0.0), np.where(known, np.maximum(std, 1.0 / TOO_FAR), TOO_FAR)
            return StudentT(location[None], np.diag(std**2), dof)
        if isinstance(node, Gate):
            return self.distribution(node.children[bisect_left(node.cuts, x[node.column])], x, targets, token)
        if isinstance(node, Bundle):
            each = zip(node.children, node.positions, strict=True)
            parts = [self.distribution(child, x, len(positions), token) for child, positions in each]
            return Product(parts, node.positions)
        return Mixture(node.log_weights[:, 0], [self.distribution(child, x, targets, token) for child in node.children])

    # ------------------------------------------------------------------ growing

    def split(self, node: Leaf | Bundle) -> str:
        """Cut a full region; returns what was done, for the log."""
        for leaf in self.leaves(node):
            leaf.give_back()
        return split(self, node)

    def replace(self, parent: Node | None, old: Node, new: Node) -> None:
        """Put a node in the position of another one below ``parent``; None is above the root."""
        new.parent = parent
        if parent is None:
            self.root = new
        else:
            assert not isinstance(parent, Leaf)
            parent.children[next(k for k, child in enumerate(parent.children) if child is old)] = new

    def let_go(self, node: Node) -> None:
        """Drop the factors below a node that has left the tree, and mark its leaves as gone."""
        self._routes = None
        for leaf in self.leaves(node):
            leaf.evict()
            leaf.busy = GONE
            self.n_leaves -= 1
            self._built.pop(leaf, None)
            self._lent.pop(leaf, None)

    # ------------------------------------------------------------------ tuning

    def tuner(self, leaf: Leaf) -> ResumableTuner | None:
        """A search for better hyper-parameters of a leaf; None where it has too few targets."""
        growth = self.growth
        leaf.give_back()
        leaf.next_tuning = leaf.n_seen + max(int(leaf.n_rows * (growth.tuning_growth - 1.0)), 1)
        numbers = leaf.numbers
        if len(numbers) > growth.tuning_points:
            numbers = np.sort(self.rng.choice(numbers, growth.tuning_points, replace=False))
        X, Y = leaf.data(numbers)
        if Y.shape[1] > TUNED_OUTPUTS:
            Y = Y[:, np.linspace(0, Y.shape[1] - 1, TUNED_OUTPUTS).round().astype(np.intp)]
        gaps = np.isnan(Y)
        # A gap that counts as the mean is a hole in a smooth function, and looks like noise.
        seen = ~gaps.any(axis=1)
        if seen.sum() < COMPLETE * len(X):
            seen = ~gaps.all(axis=1)
        X, Y = X[seen], Y[seen]
        if len(X) < 4:
            return None
        prior = self.covariance.prior(input_std(leaf.data()[0]))
        theta = _heard(leaf.theta, prior)
        if leaf.prior_theta is not None:
            # A child resembles its parent; what it learns on fewer rows should not stray far.
            prior = prior.about(_heard(leaf.prior_theta, prior), growth.child_width)
        offset, scale = standardisation(Y)
        # In C order, as a search that is loaded has it: sums over another order differ in their last bits.
        R = np.ascontiguousarray((Y - offset) / scale)
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
                    self.prune(leaf)
                elif leaf.touched == self.touch and leaf.built:
                    # The next row probably comes here, too: a prediction would settle a copy.
                    leaf.settle()

    def restart(self, numbers: Numbers) -> None:
        """Begin again with these rows and the hyper-parameters of the leaves in use."""
        newest: dict[int, Leaf] = {}
        for leaf in sorted(self.leaves(), key=lambda leaf: leaf.touched):
            leaf.give_back()
            newest.update(dict.fromkeys(leaf.targets.tolist(), leaf))
        self.due.clear()
        self.let_go(self.root)
        targets = np.arange(self.rows.n_targets)
        self.root = self._region(targets, [newest[p].theta for p in targets.tolist()], numbers)

    def prune(self, node: Node) -> None:
        """Take an empty cell out of its gate; a gate with one child left is replaced by that child."""
        while node.parent is not None and not isinstance(node.parent, Gate):
            node = node.parent
        gate = node.parent
        if gate is None or any(leaf.n_rows or leaf.busy for leaf in self.leaves(node)):
            return
        cell = next(k for k, child in enumerate(gate.children) if child is node)
        del gate.children[cell]
        del gate.cuts[max(cell - 1, 0)]
        if len(gate.children) == 1:
            self.replace(gate.parent, gate, gate.children[0])
        self.let_go(node)

    # ------------------------------------------------------------------ columns that come later

    def widen(self) -> None:
        """Take new columns of the rows into account."""
        self._routes = None
        n_targets = self.rows.n_targets
        known = n_targets_of(self.root)
        if n_targets > known:
            fresh = np.arange(known, n_targets)
            if self.growth.coupling == "shared":
                self._widen_targets(self.root, fresh)
            else:
                theta = self.covariance.prior(np.ones(self.n_inputs)).centre
                region = self._region(fresh, theta, np.empty(0, dtype=np.int64))
                self.root = Bundle([self.root, region], [np.arange(known), fresh], is_region=False)
        for leaf in self.leaves():
            leaf.widen(None)

    def _widen_targets(self, node: Node, fresh: Positions) -> None:
        """Every leaf below learns the new outputs too."""
        if isinstance(node, Leaf):
            node.widen(np.concatenate([node.targets, fresh]))
        elif isinstance(node, Bundle):
            # The first child takes them; the others have outputs of their own.
            known = sum(map(len, node.positions))
            self._widen_targets(node.children[0], fresh)
            node.positions[0] = np.concatenate([node.positions[0], np.arange(known, known + len(fresh))])
        else:
            for child in node.children:
                self._widen_targets(child, fresh)
            if isinstance(node, Sum):
                node.add_targets(len(fresh), self.growth.weights == "posterior")

    # ------------------------------------------------------------------ as plain data

    def state(self, drops: bool = False) -> dict[str, Any]:
        """The tree as plain data; ``drops`` notes which factors are there, for a tree that rows are dropped from."""
        nodes = self.nodes()
        number = {node: k for k, node in enumerate(nodes)}
        due = [[kind, number[node]] for kind, node in self.due]
        # Rows dropped from a factor leave another one, in its last bits, than rows dropped before it is built.
        built = [number[leaf] for leaf in self.built() if drops]
        # A flat list: trees can be deeper than nested data may be.
        table = [node_state(node, number) for node in nodes]
        return {"nodes": table, "touch": self.touch, "due": due, "built": built}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the tree from `state`."""
        check_table(state)
        nodes: dict[int, Node] = {}
        # Children come after their parents.
        for k in reversed(range(len(state["nodes"]))):
            nodes[k] = self._node_from_state(state["nodes"][k], nodes)
        self.root, self._leaf, self._routes = nodes[0], None, None
        self.touch = state["touch"]
        self.n_leaves = sum(1 for _ in self.leaves())
        self._built, self._lent = {}, {}
        for k in state["built"]:
            leaf = nodes[k]
            if isinstance(leaf, Leaf):
                if not leaf.built:
                    leaf.build()
                self._own(leaf)
        # Files of earlier versions do not list leaves whose factors they hold.
        self._built |= {leaf: None for leaf in self.leaves() if leaf.built and leaf not in self._built}
        self.due = deque((kind, nodes[k]) for kind, k in state["due"])
        for kind, node in self.due:
            self.set_busy(node, kind)

    def _node_from_state(self, state: dict[str, Any], nodes: dict[int, Node]) -> Node:
        kind = state["kind"]
        if kind == "leaf":
            return Leaf.from_state(state["leaf"], self.rows, self.start, self.covariance, self.growth.discount)
        children = [nodes[k] for k in state["children"]]
        check_node(state, list(map(n_targets_of, children)), len(self.rows.fill) - self.start)
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


def _is_bundled(leaf: Leaf) -> bool:
    return isinstance(leaf.parent, Bundle) and leaf.parent.is_region
