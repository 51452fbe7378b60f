"""The gates of a circuit as a table, by which many rows find their way at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from momostream.kernels.routes import route_rows
from momostream.stream.nodes import Gate, Node

__all__ = ["Routes"]

Array = NDArray[np.float64]
Positions = NDArray[np.intp]


class Routes:
    """Ways from a node through gates to the first nodes that are not gates.

    Parameters
    ----------
    root
        Where rows start. Gates below it must not change as long as the routes are used.
    """

    def __init__(self, root: Node) -> None:
        self._ends: list[Node] = []
        gates: list[Gate] = [root] if isinstance(root, Gate) else []
        columns, below, children, starts = list[int](), list[int](), list[int](), [0]
        cuts: list[float] = []
        # Grows as gates are found below gates.
        for gate in gates:
            columns.append(gate.column)
            below.append(len(children))
            cuts += gate.cuts
            starts.append(len(cuts))
            for child in gate.children:
                if isinstance(child, Gate):
                    children.append(len(gates))
                    gates.append(child)
                else:
                    children.append(-1 - len(self._ends))
                    self._ends.append(child)
        self._root = root
        self._columns, self._starts, self._below, self._children = (
            np.array(part, dtype=np.int64) for part in (columns, starts, below, children)
        )
        self._cuts = np.array(cuts, dtype=np.float64)

    def find(self, X: Array) -> list[tuple[Node, Positions]]:
        """The nodes that rows end in, with the positions of their rows, in the order of their first rows."""
        if not len(X):
            return []
        if not len(self._columns):
            return [(self._root, np.arange(len(X)))]
        found = np.empty(len(X), dtype=np.int64)
        route_rows(X, self._columns, self._starts, self._below, self._cuts, self._children, found)
        order = np.argsort(found, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(found[order])) + 1)
        return [(self._ends[found[part[0]]], part) for part in sorted(parts, key=lambda part: int(part[0]))]
