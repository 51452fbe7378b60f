"""Faults as events: rows in alarm that belong together, the columns that depart, and what was expected of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from momostream.monitor.model import MOST_ROWS, MonitorModel

__all__ = ["Departure", "Span", "Suspects"]

Array = NDArray[np.float64]

# An error beyond this many deviations counts as this many in the mean over an event.
MOST_ERROR = 20.0


class Departure(NamedTuple):
    """A column in an event: means of observed and expected values over its rows, and deviations at its peak."""

    observed: float
    expected: float
    deviations: float


class Span:
    """The rows of an event, in column order.

    Parameters
    ----------
    begin
        Number of its first row.
    n_columns
        Number of columns.
    time
        Time of its first row; NaN without one.

    Attributes
    ----------
    end, end_time
        Number and time of the newest row in alarm.
    severity
        Largest score so far.
    deviations
        Of each column at that row, shape (P,).
    """

    def __init__(self, begin: int, n_columns: int, time: float = math.nan) -> None:
        self.begin = self.end = begin
        self.begin_time = self.end_time = time
        self.severity = 0.0
        self.released = False
        self.deviations = np.zeros(n_columns)
        self._observed, self._expected, self._counts = (np.zeros(n_columns) for _ in range(3))

    def add(self, row: int, score: float, deviations: Array, time: float = math.nan) -> None:
        """Take a row in alarm."""
        self.end, self.end_time = row, time
        if score > self.severity:
            self.severity, self.deviations = score, deviations

    def compare(self, y: Array, expected: Array) -> None:
        """Take the values of a row, and those that were expected; NaN is unknown."""
        both = ~np.isnan(y) & ~np.isnan(expected)
        self._observed[both] += y[both]
        self._expected[both] += expected[both]
        self._counts[both] += 1.0

    def departures(self) -> dict[int, Departure]:
        """Columns that take part, those that depart furthest first, at least one."""
        order = np.argsort(-np.abs(self.deviations), kind="stable")
        counts = np.where(self._counts > 0.0, self._counts, np.nan)
        observed, expected = self._observed / counts, self._expected / counts
        return {
            int(j): Departure(float(observed[j]), float(expected[j]), float(self.deviations[j]))
            for j in order
            if self.deviations[j] and self._counts[j]
        }

    def widen(self, n_new: int) -> None:
        """Add columns."""
        for name in ("deviations", "_observed", "_expected", "_counts"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(n_new)]))

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "begin": self.begin, "end": self.end, "severity": self.severity, "released": self.released,
            "times": [self.begin_time, self.end_time],
            "columns": np.stack([self.deviations, self._observed, self._expected, self._counts]),
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Restore from `state`."""
        columns = np.array(state["columns"])
        span = cls(state["begin"], columns.shape[1])
        span.begin_time, span.end_time = state["times"]
        span.end, span.severity, span.released = state["end"], state["severity"], state["released"]
        span.deviations, span._observed, span._expected, span._counts = columns
        return span


class Suspects:
    """The columns that explain an event, and what would have been expected of them.

    Lags of a suspect column are its expected values, not those observed: a fault that lasts must not become its own
    expectation, nor that of other columns.

    Parameters
    ----------
    past
        The newest rows before the event, shape (L, P).
    """

    def __init__(self, past: Array) -> None:
        self.past = past.copy()
        self.errors, self.n_rows = np.zeros(past.shape[1]), 0

    def expect(self, model: MonitorModel, y: Array) -> tuple[Array, Array]:
        """Take a row: its expected values, and how far the columns depart that explain the event so far."""
        self.n_rows = min(self.n_rows + 1, MOST_ROWS)
        errors = np.clip(model.errors(y, self.past), -MOST_ERROR, MOST_ERROR)
        self.errors = self.errors + (errors - self.errors) / self.n_rows
        deviations = model.isolate(self.errors, self.n_rows)
        suspects = deviations != 0.0
        values = model.expected(y, self.past, suspects)
        expected = np.where(suspects, values, model.expected(np.full_like(y, np.nan), self.past, suspects))
        self.past = np.concatenate([values[np.newaxis], self.past[:-1]])
        return expected, deviations

    def widen(self, n_new: int) -> None:
        """Add columns."""
        self.past = np.concatenate([self.past, np.full((len(self.past), n_new), np.nan)], axis=1)
        self.errors = np.append(self.errors, np.zeros(n_new))

    def state(self) -> list[Any]:
        """Everything as plain data."""
        return [self.past, self.errors, self.n_rows]

    @classmethod
    def from_state(cls, state: list[Any]) -> Self:
        """Restore from `state`."""
        suspects = cls(np.array(state[0]))
        suspects.errors, suspects.n_rows = np.array(state[1]), state[2]
        return suspects
