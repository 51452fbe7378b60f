"""A row in one compiled call to predict it and one to learn it, instead of some for each part of the model.

Only where each tree sends the row to one leaf, and no target is missing: all else goes part by part. Both ways give the
same bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from momostream.kernels.book import AddressBook
from momostream.kernels.row import learn_row, predict_row
from momostream.stream.circuits import Circuits
from momostream.stream.lags import Autoregression
from momostream.stream.moments import RunningMoments
from momostream.stream.stack import Stack
from momostream.stream.tokens import NO_TOKEN

__all__ = ["FusedRow"]

Array = NDArray[np.float64]


class FusedRow:
    """The parts of a row model, by the addresses of their arrays.

    Parameters
    ----------
    circuits, lags, stack, inputs
        The parts. None of them replaces an array that a row changes; a model whose columns change makes a new one.
    """

    def __init__(self, circuits: Circuits, lags: Autoregression, stack: Stack, inputs: RunningMoments) -> None:
        self._circuits, self._lags, self._stack = circuits, lags, stack
        numbers = np.array([lags.forgetting, lags.discount, *stack.row_numbers])
        self._book = AddressBook(inputs.moments, *stack.told_rows, *lags.row_arrays, *stack.row_arrays, numbers)
        self._starts = np.array([tree.start for tree in circuits.trees], dtype=np.int64)
        self._leaves = np.zeros((len(circuits.trees), 2), dtype=np.int64)
        # Token of the prediction that was made here last.
        self._token = NO_TOKEN

    def predict(self, token: int) -> bool:
        """Predict the circuits' point under a token; False if it goes to more than one leaf of a tree."""
        self._token = NO_TOKEN
        circuits, leaves = self._circuits, self._leaves
        found = circuits.open_leaves(token)
        if found is None:
            return False
        for k, leaf in enumerate(found):
            leaves[k, 0], leaves[k, 1] = leaf.book.address, leaf.n_rows
        lags = self._lags
        predict_row(circuits.point, self._starts, lags.short, lags.clip, leaves, self._book.table)
        self._stack.is_ready = True
        self._token = token
        return True

    def learn(self, token: int, x: Array, y: Array) -> bool:
        """Learn the row that was predicted under a token; False if it was not predicted here, or must go in parts.

        ``x`` are the inputs, NaN where missing; no target is missing.
        """
        circuits, lags, stack = self._circuits, self._lags, self._stack
        if token != self._token or lags.n_rows == 0 or circuits.has_gaps:
            return False
        circuits.use_token(token)
        at, done, ready = lags.n_waiting, stack.n_rows, int(stack.is_ready)
        spoilt = learn_row(
            x[None], circuits.point, y[None], lags.short, at, done, stack.every, ready, self._leaves, self._book.table
        )
        stack.note_rows(1)
        lags.note_rows(1)
        circuits.note_row(y, spoilt)
        return True
