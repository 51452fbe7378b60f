"""A row in one compiled call to predict it and one to learn it, instead of some for each part of the model.

Only where each tree sends the row to one leaf, and no target is missing: all else goes part by part. Both ways give the
same bits.
"""

from __future__ import annotations

from struct import Struct

import numpy as np
from numpy.typing import NDArray

from momostream.kernels.book import AddressBook
from momostream.kernels.row import GAPS, NEWEST_X, NEWEST_Y, REFRESHED, SCREENED, SPOILT, learn_row, predict_row
from momostream.stream.circuits import Circuits
from momostream.stream.lags import Autoregression
from momostream.stream.moments import RunningMoments
from momostream.stream.stack import Stack
from momostream.stream.tokens import NO_TOKEN

__all__ = ["ELSEWHERE", "NO_DOOR", "SCREENED", "FusedRow"]

Array = NDArray[np.float64]

#: A row that must be learnt part by part; `SCREENED` is one that was screened before that was found.
ELSEWHERE = GAPS
#: Nothing is screened.
NO_DOOR = np.zeros((0, 5), dtype=np.int64)


class FusedRow:
    """The parts of a row model, by the addresses of their arrays.

    Parameters
    ----------
    circuits, lags, stack, inputs
        The parts. None of them replaces an array that a row changes, but for the newest rows of the store; a model
        whose columns change makes a new one.
    """

    def __init__(self, circuits: Circuits, lags: Autoregression, stack: Stack, inputs: RunningMoments) -> None:
        self._circuits, self._lags, self._stack = circuits, lags, stack
        numbers = np.array([lags.forgetting, lags.discount, *stack.row_numbers, stack.every])
        self._newest = circuits.rows.newest
        self._book = AddressBook(
            inputs.moments, *stack.told_rows, *lags.row_arrays, *stack.row_arrays, numbers, circuits.point,
            *self._newest,
        )  # fmt: skip
        n_trees = len(circuits.trees)
        self._leaves = np.zeros((n_trees, 2), dtype=np.int64)
        self._write_leaves = Struct(f"{2 * n_trees}q").pack_into
        # Token of the prediction that was made here last, if its row can be learnt here.
        self._token = NO_TOKEN

    def predict(self, time: float, x: Array, token: int) -> bool:
        """Predict the point of a time and inputs under a token; False if it goes to more than one leaf of a tree."""
        self._token = NO_TOKEN
        circuits, lags = self._circuits, self._lags
        leaves = circuits.open_leaves([time, *x.tolist()], token)
        if leaves is None:
            return False
        self._write_leaves(self._leaves.data, 0, *leaves)
        with_gaps = predict_row(time, x, lags.clip, self._leaves, self._book.table)
        self._stack.is_ready = True
        if not with_gaps and lags.n_rows:
            self._token = token
        return True

    def learn(self, token: int, x: Array, y: Array, door: NDArray[np.int64] = NO_DOOR) -> int:
        """Learn the row that was predicted under a token; `ELSEWHERE` if it was not predicted here, or has gaps.

        ``x`` are the inputs, NaN where missing. With the table of a ``door`` both are screened first: what is not good
        is set aside, and nothing is learnt then (`SCREENED`).
        """
        circuits, lags, stack = self._circuits, self._lags, self._stack
        if token != self._token or not circuits.holds(token):
            return ELSEWHERE
        rows = circuits.rows
        position = rows.open_position()
        if rows.newest is not self._newest:
            self._newest = rows.newest
            for line, array in zip((NEWEST_X, NEWEST_Y), self._newest, strict=True):
                self._book.replace(line, array)
        due: int = learn_row(
            x, y, lags.n_waiting, stack.n_rows, stack.is_ready, position, self._leaves, self._book.table, door
        )
        if due < 0:
            return due
        self._token = NO_TOKEN
        stack.n_rows += 1
        stack.is_ready = False
        lags.n_waiting += 1
        lags.n_rows += 1
        if due & REFRESHED:
            stack.forget_copies()
        circuits.note_row(due // SPOILT)
        return due
