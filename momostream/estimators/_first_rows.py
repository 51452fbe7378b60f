"""The first rows of a forecaster, which take a hundredth of the room of what it has learnt from them.

A forecaster that has learnt few rows is saved as these rows, and learns them again when it is loaded: the same rows in
the same order give the same floats. With 40 rows of two series, 36 steps ahead, a model takes 3 kB in place of 1.5 MB.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from momostream._numbers import known_numbers
from momostream.estimators.vocabulary import row_from_state, row_state
from momostream.horizon.calendar import AWARE, NAIVE, NUMBER

__all__ = ["CheckedRow", "FirstRows", "row_as_state", "row_of_state"]

# Rows, and values of series in them, beyond which learning them again would take longer than reading what was learnt.
MOST_ROWS, MOST_VALUES = 64, 512


class CheckedRow(NamedTuple):
    """A row after all checks: its known values and inputs, and its time with the kind of time."""

    y: dict[Hashable, float]
    x: dict[Hashable, float]
    time: tuple[float, str] | None


class FirstRows:
    """All rows that a forecaster has learnt so far, until there are too many.

    Examples
    --------
    >>> rows = FirstRows()
    >>> rows.add(CheckedRow({"power": 1.0}, {}, None), single=False)
    >>> rows.is_complete, [(row.y, single) for row, single in rows.of_state(rows.state())]
    (True, [({'power': 1.0}, False)])
    >>> rows.end()
    >>> rows.is_complete
    False
    """

    def __init__(self, is_complete: bool = True) -> None:
        self._rows: list[tuple[CheckedRow, bool | None]] | None = [] if is_complete else None
        self._n_values = 0

    @property
    def is_complete(self) -> bool:
        """Whether these are all rows that were learnt."""
        return self._rows is not None

    def add(self, row: CheckedRow, single: bool | None) -> None:
        """Take the next row; ``single`` is whether it is a plain number, None if it does not show that."""
        if self._rows is None:
            return
        self._n_values += len(row.y)
        self._rows.append((row, single))
        if len(self._rows) > MOST_ROWS or self._n_values > MOST_VALUES:
            self.end()

    def end(self) -> None:
        """Drop all rows: the forecaster has learnt something else, too, or too much."""
        self._rows = None

    def state(self) -> list[Any]:
        """The rows as plain data."""
        return [[*row_as_state(row), single] for row, single in self._rows or ()]

    @staticmethod
    def of_state(state: Iterable[Any]) -> list[tuple[CheckedRow, bool | None]]:
        """The rows of `state`."""
        return [(row_of_state(row), single) for *row, single in state]


def row_as_state(row: CheckedRow) -> list[Any]:
    """A row as plain data."""
    return [row_state(row.y), row_state(row.x), None if row.time is None else list(row.time)]


def row_of_state(state: list[Any]) -> CheckedRow:
    """The row of `row_as_state`."""
    y, x, time = state
    if time is not None and not (time[1] in (NUMBER, NAIVE, AWARE) and math.isfinite(time[0])):
        raise ValueError(f"a time of a row is altered: {time!r}")
    # Checked again: a file may be altered.
    y, x = (known_numbers(row_from_state(*numbers)) for numbers in (y, x))
    return CheckedRow(y, x, None if time is None else tuple(time))
