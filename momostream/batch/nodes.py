"""The circuit as a flat table: sums, covariate gates, output splits, and regions at the bottom.

Nodes refer to each other by their line in the table; `Circuit.root` is the line to start from.
Circuits speak of outputs, as the paper does: columns of the targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["GATE", "KINDS", "OUTPUTS", "REGION", "SUM", "Circuit", "Node"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

SUM, GATE, OUTPUTS, REGION = range(4)
KINDS = ("sum", "gate", "outputs", "region")


@dataclass
class Node:
    """One line of the table; the kind decides which fields are used.

    Attributes
    ----------
    kind
        `SUM`, `GATE`, `OUTPUTS` or `REGION`.
    outputs
        Positions of the outputs that the node predicts, ascending.
    children
        Numbers of the child nodes.
    log_weights
        Of a sum: shape ``(n_children,)``, or ``(n_children, len(outputs))`` when each output has its own.
    column, cuts
        Of a gate: the covariate and the ascending cuts; child k owns ``cuts[k-1] < x <= cuts[k]``.
    region
        Of a region: its number in the list of regions.
    """

    kind: int
    outputs: Rows
    children: tuple[int, ...] = ()
    log_weights: Array | None = None
    column: int = -1
    cuts: Array = field(default_factory=lambda: np.empty(0))
    region: int = -1


class Circuit:
    """A table of nodes, built from the bottom up.

    Examples
    --------
    A gate on the second covariate above two regions for outputs 0 and 1:

    >>> circuit = Circuit()
    >>> low, high = circuit.add_region(0, [0, 1]), circuit.add_region(1, [0, 1])
    >>> root = circuit.add_gate(column=1, cuts=[0.5], children=[low, high])
    >>> print(circuit.describe(inputs=["wind", "pitch"]))
    gate pitch at 0.5
    ├─ pitch <= 0.5: region 0
    └─ pitch > 0.5: region 1
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.root = -1

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, number: int) -> Node:
        return self.nodes[number]

    # ------------------------------------------------------------------ building

    def add_region(self, region: int, outputs: Sequence[int] | Rows) -> int:
        """Add a region over ``outputs``; returns its node number, as all `add_*` do."""
        return self._add(Node(REGION, _positions(outputs), region=region))

    def add_sum(self, children: Sequence[int], weights: Sequence[float] | Array | None = None) -> int:
        """Add a mixture of children over the same outputs, uniform unless ``weights`` are given."""
        outputs = self._common_outputs(children, "a sum")
        given = np.full(len(children), 1.0) if weights is None else np.asarray(weights, dtype=float)
        fits = given.shape in {(len(children),), (len(children), len(outputs))}
        if not (fits and np.isfinite(given).all() and np.all(given > 0)):
            raise ValueError("a sum needs one positive weight per child, or one per child and output")
        log_weights = np.log(given / given.sum(axis=0))
        return self._add(Node(SUM, outputs, tuple(children), log_weights))

    def add_gate(self, column: int, cuts: Sequence[float] | Array, children: Sequence[int]) -> int:
        """Add a gate that sends a row to one child by where its covariate ``column`` lies between the cuts."""
        outputs, edges = self._common_outputs(children, "a gate"), np.asarray(cuts, dtype=float)
        # Written so that NaN fails the test.
        if len(children) != len(edges) + 1 or not (np.isfinite(edges).all() and np.all(np.diff(edges) > 0)):
            raise ValueError("a gate needs finite, ascending cuts and one child more than cuts")
        if column != int(column) or column < 0:
            raise ValueError(f"a gate needs the position of a covariate, not {column}")
        return self._add(Node(GATE, outputs, tuple(children), column=int(column), cuts=edges))

    def add_outputs(self, children: Sequence[int]) -> int:
        """Add a product of children that own disjoint outputs."""
        self._check_children(children, "an output split")
        parts = np.concatenate([self[child].outputs for child in children])
        if len(np.unique(parts)) != len(parts):
            raise ValueError("the children of an output split must own disjoint outputs")
        return self._add(Node(OUTPUTS, np.sort(parts), tuple(children)))

    def _check_children(self, children: Sequence[int], what: str) -> None:
        if not len(children) or any(not 0 <= child < len(self) for child in children):
            raise ValueError(f"{what} needs numbers of nodes that were added before as children, not {list(children)}")

    def _common_outputs(self, children: Sequence[int], what: str) -> Rows:
        self._check_children(children, what)
        first = self[children[0]].outputs
        if any(not np.array_equal(first, self[child].outputs) for child in children):
            raise ValueError(f"the children of {what} must own the same outputs")
        return first

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        self.root = len(self.nodes) - 1
        return self.root

    def check(self, n_inputs: int, n_outputs: int) -> None:
        """Raise ValueError where the circuit is not a tree over these covariates and outputs."""
        if not self.nodes:
            raise ValueError("structure has no nodes")
        if not np.array_equal(self[self.root].outputs, np.arange(n_outputs)):
            owned = ", ".join(map(str, self[self.root].outputs))
            raise ValueError(f"structure must own all {n_outputs} outputs at its root, but it owns {owned}")
        seen: set[int] = set()
        for number, node in self.walk():
            if number in seen:
                raise ValueError(f"structure must be a tree, but node {number} has more than one parent")
            seen.add(number)
            if node.kind == GATE and node.column >= n_inputs:
                raise ValueError(f"structure has a gate on column {node.column}, but there are {n_inputs} covariates")

    # ------------------------------------------------------------------ reading

    def route(self, number: int, X: Array) -> Rows:
        """Which child of a gate owns each row of ``X``."""
        node = self[number]
        return np.searchsorted(node.cuts, X[:, node.column], side="left")

    def depth(self) -> int:
        """Gates on the longest way from the root to a region."""
        deepest, stack = 0, [(self.root, 0)] if self.nodes else []
        while stack:
            number, gates = stack.pop()
            deepest = max(deepest, gates)
            node = self[number]
            stack.extend((child, gates + (node.kind == GATE)) for child in node.children)
        return deepest

    def count(self, kind: int) -> int:
        """Number of nodes of a kind that the root can reach."""
        return sum(node.kind == kind for _, node in self.walk())

    def walk(self) -> Iterator[tuple[int, Node]]:
        """All nodes below the root with their numbers, parents first."""
        stack = [self.root] if self.nodes else []
        while stack:
            number = stack.pop()
            yield number, self[number]
            stack.extend(reversed(self[number].children))

    def describe(
        self,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        rows: Sequence[int] | None = None,
    ) -> str:
        """Text dump: gates with names and cuts, weights, and rows per region if these are given."""
        return "\n".join(self._lines(self.root, inputs, outputs, rows))

    def _lines(
        self, number: int, inputs: Sequence[str] | None, outputs: Sequence[str] | None, rows: Sequence[int] | None
    ) -> list[str]:
        node = self[number]
        lines = [self.title(number, inputs, outputs, rows)]
        for k, child in enumerate(node.children):
            last = k == len(node.children) - 1
            below = self._lines(child, inputs, outputs, rows)
            label = self.edge_label(number, k, inputs, outputs)
            lines.append(("└─ " if last else "├─ ") + label + below[0])
            lines.extend(("   " if last else "│  ") + line for line in below[1:])
        return lines

    def title(
        self,
        number: int,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        rows: Sequence[int] | None = None,
    ) -> str:
        """One line about a node."""
        node = self[number]
        if node.kind == GATE:
            cuts = ", ".join(f"{cut:.4g}" for cut in node.cuts)
            return f"gate {_name(inputs, node.column, 'x')} at {cuts}"
        if node.kind == REGION:
            size = "" if rows is None else f" ({rows[node.region]} rows)"
            return f"region {node.region}{size}"
        return KINDS[node.kind]

    def edge_label(
        self, number: int, k: int, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None
    ) -> str:
        """Label of the edge from a node to its child k: a weight, an interval or output names."""
        node = self[number]
        if node.kind == SUM:
            assert node.log_weights is not None
            weight = float(np.exp(node.log_weights[k]).mean())
            return f"{weight:.3f}: "
        if node.kind == GATE:
            name = _name(inputs, node.column, "x")
            if k == 0:
                return f"{name} <= {node.cuts[0]:.4g}: "
            if k == len(node.cuts):
                return f"{name} > {node.cuts[-1]:.4g}: "
            return f"{node.cuts[k - 1]:.4g} < {name} <= {node.cuts[k]:.4g}: "
        names = ", ".join(_name(outputs, p, "y") for p in self[node.children[k]].outputs)
        return f"[{names}] "


def _positions(outputs: Sequence[int] | Rows) -> Rows:
    positions = np.unique(np.asarray(outputs, dtype=np.intp))
    if not len(positions) or len(positions) != len(outputs) or positions[0] < 0:
        raise ValueError(f"a region needs distinct positions of outputs, not {list(outputs)}")
    return positions


def _name(names: Sequence[str] | None, position: int, letter: str) -> str:
    return f"{letter}{position}" if names is None else str(names[position])
