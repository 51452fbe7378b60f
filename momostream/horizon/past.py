"""The newest rows of a feed, with the running means that forecasts are made from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.kernels.forecasts import past_note, past_reach
from momostream.kernels.horizon import past_append

__all__ = ["Past", "least_changes"]

Array = NDArray[np.float64]

# Step of the slow mean.
SLOW_STEP = 0.002
# How far beyond the range of a series, in ranges, a forecast may lie, and how much further it may after one row.
MARGIN, EARLY_MARGIN = 0.1, 5.0


class Past:
    """Rows in order of arrival, gaps filled with the last value; the oldest are dropped when there is no more room.

    Parameters
    ----------
    n_series, n_inputs
        Columns.
    capacity
        Rows kept at least.

    Attributes
    ----------
    series
        Shape ``(room, 4, n_series)``: value, slow mean, means of the last 8 and 32 values.
    inputs
        Shape ``(room, 2, n_inputs)``: value and slow mean.
    observed
        Shape ``(room, n_series)``: values as they came, NaN where missing.
    first, last
        Positions of the oldest and the newest row in these arrays.
    n_rows
        Rows that have come.
    n_missing
        Rows since the last value of each series.
    input_sizes
        Largest absolute value of each input.
    n_repeated
        How often each series has repeated its last value.
    lowest, highest
        Least and largest value of each series that has come; NaN before the first.
    least_change
        Least change of each series from one value to the next, repetitions aside; 0 before the first.

    Examples
    --------
    >>> past = Past(n_series=1, n_inputs=0, capacity=4)
    >>> for y in (1.0, 2.0, np.nan, 4.0):
    ...     past.append(np.array([y]), np.empty(0))
    >>> past.series[past.first : past.last + 1, 0, 0]
    array([1., 2., 2., 4.])
    """

    def __init__(self, n_series: int, n_inputs: int, capacity: int) -> None:
        self.capacity = capacity
        self.series = np.zeros((2 * capacity, 4, n_series))
        self.inputs = np.zeros((2 * capacity, 2, n_inputs))
        self.observed = np.zeros((2 * capacity, n_series))
        self.first, self.last, self.n_rows = 0, -1, 0
        self.n_missing, self.is_known = np.zeros(n_series), np.zeros(n_series)
        self.knows_input = np.zeros(n_inputs)
        self.input_sizes = np.zeros(n_inputs)
        self.lowest, self.highest = np.full((2, n_series), np.nan)
        # What `reach` has found, and after how many rows.
        self._reach, self._reached = (self.lowest, self.highest), -1
        self.n_repeated, self.least_change = np.zeros((2, n_series))

    def append(self, y: Array, x: Array) -> None:
        """Add a row; NaN is missing. A column that was never seen is taken to have had its first value all along."""
        if self.last + 1 == len(self.series):
            keep = slice(self.last + 1 - self.capacity, self.last + 1)
            for rows in (self.series, self.inputs, self.observed):
                rows[: self.capacity] = rows[keep].copy()
            self.first, self.last = 0, self.capacity - 1
        before = self.values if self.n_rows else y
        self.last += 1
        self.n_rows += 1
        # A missing value neither repeats the last one nor ends its repetition.
        past_note(y, before, self.n_repeated, self.lowest, self.highest, self.least_change)
        past_append(
            self.first, self.last, y, x, max(SLOW_STEP, 1.0 / self.n_rows), self.is_known, self.knows_input,
            self.n_missing, self.series, self.inputs, self.observed,
        )  # fmt: skip
        if x.size:
            np.maximum(self.input_sizes, np.abs(self.inputs[self.last, 0]), out=self.input_sizes)

    def reach(self) -> tuple[Array, Array]:
        """Between which values forecasts of each series lie: its range so far, and a margin that narrows with rows."""
        if self._reached == self.n_rows:
            return self._reach
        self._reach, self._reached = (np.empty_like(self.lowest), np.empty_like(self.highest)), self.n_rows
        # A series without a value yet stays where it is.
        past_reach(MARGIN + EARLY_MARGIN / self.n_rows, self.values, self.lowest, self.highest, *self._reach)
        return self._reach

    @property
    def values(self) -> Array:
        """The newest row, gaps filled."""
        return self.series[self.last, 0]

    def earlier(self, back: NDArray[np.int64]) -> Array:
        """Values ``back`` rows ago, shape ``(len(back), n_series)``; the newest where there was no such row."""
        at = self.last - back
        return np.where((at >= self.first)[:, None], self.series[np.maximum(at, self.first), 0], self.values)

    def targets(self, horizon: int) -> Array:
        """Changes after the row ``horizon`` rows ago, shape ``(horizon, n_series)``; NaN where missing."""
        origin = self.last - horizon
        return self.observed[origin + 1 : self.last + 1] - self.series[origin, 0]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.series.nbytes + self.inputs.nbytes + self.observed.nbytes

    # ------------------------------------------------------------------ as plain data

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        rows = slice(self.first, self.last + 1)
        return {
            "capacity": self.capacity, "n_rows": self.n_rows, "n_missing": self.n_missing.copy(),
            "is_known": self.is_known.copy(), "knows_input": self.knows_input.copy(),
            "input_sizes": self.input_sizes.copy(),
            "lowest": self.lowest.copy(), "highest": self.highest.copy(), "n_repeated": self.n_repeated.copy(),
            "least_change": self.least_change.copy(),
            "series": self.series[rows].copy(), "inputs": self.inputs[rows].copy(),
            "observed": self.observed[rows].copy(), "first": self.first,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`."""
        self.first, self.n_rows = state["first"], state["n_rows"]
        rows = slice(self.first, self.first + len(state["series"]))
        self.last, self._reached = rows.stop - 1, -1
        self.series[rows], self.inputs[rows], self.observed[rows] = state["series"], state["inputs"], state["observed"]
        self.n_missing, self.is_known = state["n_missing"].copy(), state["is_known"].copy()
        self.knows_input, self.input_sizes = state["knows_input"].copy(), state["input_sizes"].copy()
        self.lowest, self.highest = state["lowest"].copy(), state["highest"].copy()
        self.n_repeated, self.least_change = state["n_repeated"].copy(), state["least_change"].copy()


def least_changes(observed: Array) -> Array:
    """Least change of each series between neighbouring rows ``(n_rows, n_series)``, repetitions aside; 0 without one.

    Examples
    --------
    >>> least_changes(np.array([[1.0, 5.0], [1.5, np.nan], [1.5, 5.0], [1.25, 5.0]]))
    array([0.25, 0.  ])
    """
    changes = np.abs(np.diff(observed, axis=0))
    least = np.where(changes > 0.0, changes, np.inf).min(axis=0, initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)
