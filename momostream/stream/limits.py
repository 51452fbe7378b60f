"""Limits that a series has kept to, found in what it has shown: `ShownLimits`.

A reading that touches the lowest or highest of all again and again shows a floor or a ceiling: zero rain, rated power.
It is a limit after ten readings that are equal to it, and 2 % of all. A column that was never negative in ten readings
has zero as its limit; one that has kept between 0 and 1 or 0 and 100 has that ceiling. Besides, after a hundred
readings, values leave the range by 4.5 % of it at most (forecasts by more while it is young), unless the mean of a
prediction comes near. A reading
beyond a limit moves it: nothing is ever rejected.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from momostream._checks import check_array, check_whole
from momostream.kernels.limits import AT_HIGH, AT_LOW, HIGH, LOW, N_SHOWN, N, find_limits, hold_means, show_rows

__all__ = ["ShownLimits"]

Array = NDArray[np.float64]


class ShownLimits:
    """What each column has shown, and the limits that follow.

    Parameters
    ----------
    n_columns
        Number of columns; more may join, see `widen`.

    Examples
    --------
    >>> shown = ShownLimits(1)
    >>> rain = np.maximum(np.sin(np.arange(200.0)), 0.0)
    >>> shown.show(rain[:, None])
    >>> shown.limits()[:, 0]
    array([0., 1., 0., 0.])
    >>> shown.describe(["rain"])
    {'rain': 'rain: at least 0 (touched 100 times), at most 1'}
    """

    def __init__(self, n_columns: int) -> None:
        self._shown = np.zeros((n_columns, N_SHOWN))
        self._open()

    def _open(self) -> None:
        """Arrays for limits, and for means held by them."""
        self._limits, self._held = np.empty((4, self.n_columns)), np.empty(self.n_columns)

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self._shown)

    def show(self, rows: Array) -> None:
        """Take the next rows ``(n_rows, n_columns)``; NaN is missing."""
        show_rows(rows, self._shown)

    @property
    def row_arrays(self) -> tuple[Array]:
        """What `show` changes, for `momostream.kernels.door`."""
        return (self._shown,)

    def limits(self, range_rows: float = 0.0) -> Array:
        """Limits, see `momostream.distributions.limited`: shape ``(4, n_columns)``.

        A column with n readings, fewer than ``range_rows``, has ``range_rows / n`` times the room beyond its range: far
        steps reach what the first day of a feed has not shown.
        """
        limits = np.empty((4, self.n_columns))
        find_limits(range_rows, self._shown, limits)
        return limits

    def hold(self, mean: Array, range_rows: float = 0.0) -> Array:
        """Means of the columns within their firm limits; the array is overwritten by the next call."""
        hold_means(range_rows, self._shown, mean, self._limits, self._held)
        return self._held

    def widen(self, n_columns: int) -> None:
        """Make room for more columns."""
        self._shown = np.pad(self._shown, ((0, n_columns - self.n_columns), (0, 0)))
        self._open()

    def describe(self, names: Sequence[Hashable]) -> dict[Hashable, str]:
        """A line for each column that has firm limits."""
        lines = {}
        for name, shown, (low, high, low_room, high_room) in zip(names, self._shown, self.limits().T, strict=True):
            words = []
            for word, limit, room, extreme, touches in (
                ("at least", low, low_room, shown[LOW], shown[AT_LOW]),
                ("at most", high, high_room, shown[HIGH], shown[AT_HIGH]),
            ):
                if np.isfinite(limit) and not room:
                    touched = f" (touched {int(touches)} times)" if limit == extreme and touches > 1.0 else ""
                    words.append(f"{word} {limit:g}{touched}")
            if words:
                lines[name] = f"{name}: {', '.join(words)}"
        return lines

    def state(self) -> Array:
        """Everything as plain data."""
        return self._shown.copy()

    @classmethod
    def from_state(cls, state: Array, n_columns: int) -> ShownLimits:
        """Restore from `state`, that of ``n_columns``."""
        check_array("screening / shown", state, (n_columns, N_SHOWN))
        for counts in (N, AT_LOW, AT_HIGH):
            check_whole("screening / shown", state[:, counts], 0, 1 << 53)
        shown = cls(n_columns)
        shown._shown = state.copy()
        return shown
