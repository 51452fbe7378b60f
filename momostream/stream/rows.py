"""The rows that a stream has brought, stored once, by number of arrival.

A row is its time, its inputs and its targets. Rows lie in blocks, so that a new row never moves the old ones and the
oldest leave block by block. Columns may be added at any time; older blocks stay as narrow as they were and are widened
when they are read: missing inputs get a fill value per column, missing targets NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.stream.restoring import check_rows

__all__ = ["RowStore"]

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]

BLOCK = 8192
# Wide rows lie in shorter blocks: numbers in one block, at most.
BLOCK_NUMBERS = 2**18
# A block starts with room for this many rows and doubles.
FIRST = 64


class RowStore:
    """Rows by number of arrival.

    Parameters
    ----------
    n_inputs, n_targets
        Columns to begin with. Points are ``[time, inputs]``, of width ``1 + n_inputs``.

    Examples
    --------
    >>> rows = RowStore(n_inputs=1, n_targets=1)
    >>> rows.append(np.array([0.0, 5.0]), np.array([7.0]))
    0
    >>> X, Y = rows.gather(np.array([0]))
    >>> X.tolist(), Y.tolist()
    ([[0.0, 5.0]], [[7.0]])
    """

    def __init__(self, n_inputs: int, n_targets: int) -> None:
        self.fill = np.zeros(1 + n_inputs)
        self.n_targets = n_targets
        self.first = self.stop = 0
        self._X: dict[int, Array] = {}
        self._Y: dict[int, Array] = {}
        #: Points and targets of the newest block.
        self.newest = np.empty((0, 1 + n_inputs)), np.empty((0, n_targets))
        self._room = 0
        self._block = min(BLOCK, max(FIRST, BLOCK_NUMBERS // (1 + n_inputs + n_targets)))

    def __len__(self) -> int:
        return self.stop - self.first

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(block.nbytes for blocks in (self._X, self._Y) for block in blocks.values())

    @property
    def budget_bytes(self) -> int:
        """Bytes of the rows without room for more; they do not depend on how the rows came here."""
        return 8 * len(self) * (len(self.fill) + self.n_targets)

    def append(self, point: Array, y: Array) -> int:
        """Store a row; returns its number."""
        position = self.open_position()
        X, Y = self.newest
        X[position], Y[position] = point, y
        self.stop += 1
        return self.stop - 1

    def open_position(self) -> int:
        """Line of the arrays ``newest`` where the next row goes, for which there is room then."""
        position = self.stop % self._block
        if position == 0 or position >= self._room:
            self._open(self.stop // self._block, position + 1)
        return position

    def extend(self, points: Array, Y: Array) -> Numbers:
        """Store many rows; returns their numbers."""
        begin, at = self.stop, 0
        while at < len(points):
            number, position = divmod(self.stop, self._block)
            take = min(self._block - position, len(points) - at)
            if position + take > self._room or position == 0:
                self._open(number, position + take)
            X, targets = self.newest
            X[position : position + take], targets[position : position + take] = (
                points[at : at + take],
                Y[at : at + take],
            )
            self.stop += take
            at += take
        return np.arange(begin, self.stop)

    def _open(self, number: int, n_rows: int) -> None:
        """Give the newest block room for this many rows and all columns, and open it if it is new."""
        room = min(max(FIRST, 2 * n_rows), self._block)
        X, Y = np.empty((room, len(self.fill))), np.empty((room, self.n_targets))
        if number in self._X:
            n = min(len(self._X[number]), room)
            X[:n], Y[:n] = self._wide(self._X[number][:n], self._Y[number][:n])
        self._X[number], self._Y[number] = self.newest = X, Y
        self._room = room

    def _wide(self, X: Array, Y: Array) -> tuple[Array, Array]:
        if X.shape[-1] < len(self.fill):
            X = np.concatenate([X, np.tile(self.fill[X.shape[-1] :], (len(X), 1))], 1)
        if Y.shape[-1] < self.n_targets:
            Y = np.concatenate([Y, np.full((len(Y), self.n_targets - Y.shape[-1]), np.nan)], 1)
        return X, Y

    def add_inputs(self, fill: Sequence[float]) -> None:
        """Add input columns; older rows read the fill values there."""
        self.fill = np.concatenate([self.fill, fill])
        self._room = 0

    def add_targets(self, n_more: int) -> None:
        """Add target columns; older rows miss them."""
        self.n_targets += n_more
        self._room = 0

    def gather(self, numbers: Numbers) -> tuple[Array, Array]:
        """Points ``(n, 1 + n_inputs)`` and targets ``(n, n_targets)`` of these rows, as copies."""
        blocks, positions = np.divmod(numbers, self._block)
        if len(numbers) and blocks[0] == blocks[-1] and (blocks == blocks[0]).all():
            block = int(blocks[0])
            return self._wide(self._X[block][positions], self._Y[block][positions])
        X, Y = np.empty((len(numbers), len(self.fill))), np.empty((len(numbers), self.n_targets))
        # Runs of rows from one block, as numbers mostly ascend.
        edges = np.flatnonzero(np.diff(blocks, prepend=-1, append=-1))
        for begin, end in zip(edges[:-1], edges[1:], strict=True):
            block, inside = int(blocks[begin]), positions[begin:end]
            X[begin:end], Y[begin:end] = self._wide(self._X[block][inside], self._Y[block][inside])
        return X, Y

    def point(self, number: int) -> Array:
        """Time and inputs of one row."""
        block, position = divmod(number, self._block)
        return self._wide(self._X[block][position : position + 1], self._Y[block][:0])[0][0]

    def drop_before(self, number: int) -> None:
        """Forget all rows before this one; whole blocks are given back."""
        for block in range(self.first // self._block, number // self._block):
            self._X.pop(block, None)
            self._Y.pop(block, None)
        self.first = max(self.first, number)

    # ------------------------------------------------------------------ as plain data

    def state(self) -> dict[str, Any]:
        """All rows as plain data."""
        X, Y = self.gather(np.arange(self.first, self.stop))
        return {"first": self.first, "fill": self.fill, "X": X, "Y": Y}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> RowStore:
        """Restore a store from `state`."""
        check_rows(state)
        X, Y = state["X"], state["Y"]
        rows = cls(X.shape[1] - 1, Y.shape[1])
        rows.fill = state["fill"]
        rows.first = rows.stop = state["first"]
        if rows.stop % rows._block:
            rows._open(rows.stop // rows._block, rows.stop % rows._block)
        rows.extend(X, Y)
        return rows
