"""Times of the rows of a feed: their order, the usual step, gaps, and features that the calendar gives in advance.

Times are numbers: microseconds since 1970 for dates, which floats hold exactly, and the user's own unit otherwise.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from datetime import UTC, date, datetime
from statistics import median_low
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream._numbers import as_number

__all__ = ["Clock", "as_time", "calendar_names", "calendar_terms", "day_seasons"]

Array = NDArray[np.float64]

MINUTE = 60e6
HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE

# Steps after which the usual one counts as known, and how many are remembered.
FIRST_STEPS, N_STEPS = 3, 32
# A longer gap, in steps, is not filled: the feed continues after it as if there were none.
MOST_GAP = 1000
# Rows of the longest season taken from the calendar.
LONGEST_SEASON = 1500
# Steps that feeds usually have. A step this close to one of them counts as that one: jitter must not move the seasons.
USUAL_STEPS = (
    *(minutes * MINUTE for minutes in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)),
    *(hours * HOUR for hours in (1, 2, 3, 4, 6)),
)
NEAR = 0.04

NUMBER, NAIVE, AWARE = "number", "date and time", "date and time with a time zone"


def as_time(name: Hashable, value: Any) -> tuple[float, str] | None:
    """A timestamp as a number and its kind; None where it is missing.

    Examples
    --------
    >>> as_time("at", datetime(1970, 1, 2))
    (86400000000.0, 'date and time')
    >>> as_time("at", 17), as_time("at", None)
    ((17.0, 'number'), None)
    """
    if isinstance(value, datetime):
        # pandas' NaT is a datetime that differs from itself.
        if value != value:
            return None
        since = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        whole, kind = since - datetime(1970, 1, 1, tzinfo=UTC), NAIVE if value.tzinfo is None else AWARE
        return 1e6 * (86400.0 * whole.days + whole.seconds) + whole.microseconds, kind
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else (float(value.astype("datetime64[us]").astype(np.int64)), NAIVE)
    if isinstance(value, date):
        return as_time(name, datetime(value.year, value.month, value.day))
    if isinstance(value, str):
        raise TypeError(f"the time {name!r} is text, {value!r}: parse it first, for example with pandas.to_datetime")
    number = as_number(name, value)
    return None if math.isnan(number) else (number, NUMBER)


def calendar_terms(times: Array, step: float) -> Array:
    """Time of day and day of the week as sines and cosines, shape ``(n_times, n_terms)``.

    Two waves of the day below a step of six hours, one of the week from there to a day. Feeds with shorter steps see
    few weeks, and have the same day of the last week among their seasons; those with longer ones have no time of day.
    `calendar_names` names the terms.

    Examples
    --------
    >>> calendar_terms(np.array([0.0, 6 * HOUR]), 10 * MINUTE).round(6) + 0.0
    array([[ 0.,  1.,  0.,  1.],
           [ 1.,  0.,  0., -1.]])
    >>> calendar_terms(np.zeros(1), 30 * DAY).shape
    (1, 0)
    """
    turns = [2.0 * np.pi * np.mod(times, period) / period for period in _periods(step).values()]
    waves = [wave(turn) for turn in turns for wave in (np.sin, np.cos)]
    return np.stack(waves, axis=1) if waves else np.empty((len(times), 0))


def calendar_names(step: float | None) -> list[str]:
    """Names of the columns of `calendar_terms`; none without a step.

    Examples
    --------
    >>> calendar_names(DAY)
    ['sine of the week', 'cosine of the week']
    """
    periods = {} if step is None else _periods(step)
    return [f"{wave} of the {period}" for period in periods for wave in ("sine", "cosine")]


def _periods(step: float) -> dict[str, float]:
    """Periods of the waves of the calendar."""
    if step < 6 * HOUR:
        return {"day": DAY, "half day": DAY / 2}
    return {"week": 7 * DAY} if step <= DAY else {}


def day_seasons(step: float) -> tuple[int, ...] | None:
    """Rows of a day, of two days and of a week; None if the day has too few or too many rows to be a season.

    Examples
    --------
    >>> day_seasons(HOUR), day_seasons(1.02 * 10 * MINUTE), day_seasons(DAY)
    ((24, 48, 168), (144, 288, 1008), None)
    >>> day_seasons(5 * MINUTE)
    (288, 576)
    """
    step = next((usual for usual in USUAL_STEPS if abs(step / usual - 1.0) < NEAR), step)
    day = round(DAY / step)
    if step > 6 * HOUR or day > LONGEST_SEASON:
        return None
    return (day, 2 * day, 7 * day) if 7 * day <= LONGEST_SEASON else (day, 2 * day)


class Clock:
    """The times of a feed as its rows come.

    Attributes
    ----------
    kind
        Kind of the timestamps; None before the first.
    last
        Time of the newest row.

    Examples
    --------
    >>> clock = Clock()
    >>> for time in (0.0, 1.0, 2.01, 3.0):
    ...     clock.advance(time, "number")
    >>> clock.step, clock.ahead(2)
    (1.0, array([4., 5.]))
    >>> clock.n_missing(7.0 - clock.last)
    3
    """

    def __init__(self) -> None:
        self.kind: str | None = None
        self.last = math.nan
        self._steps: deque[float] = deque(maxlen=N_STEPS)

    @property
    def step(self) -> float | None:
        """The usual step, the median of the newest ones; None as long as there are too few."""
        # The lower of two medians: a step that was seen, not one in between.
        return median_low(self._steps) if len(self._steps) >= FIRST_STEPS else None

    def check(self, time: float, kind: str) -> None:
        """Raise an error for a timestamp that cannot follow."""
        if self.kind is None:
            return
        if kind != self.kind:
            raise ValueError(f"the timestamp is a {kind}, those before were a {self.kind}")
        if time <= self.last:
            old, new = (label(value, kind) for value in (self.last, time))
            does = "repeats" if time == self.last else "comes before"
            raise ValueError(f"time must increase: {new} {does} {old}, the time of the row before")

    def n_missing(self, gap: float) -> int:
        """Number of rows missing between two rows with this gap."""
        step = self.step
        return round(gap / step) - 1 if step is not None and 1.5 <= gap / step <= MOST_GAP else 0

    def advance(self, time: float, kind: str) -> None:
        """Take the timestamp of the next row."""
        if self.kind is not None:
            self._steps.append(time - self.last)
        self.kind, self.last = kind, time

    def ahead(self, n: int) -> Array:
        """Times of the next rows; the step must be known."""
        assert self.step is not None
        return np.asarray(self.last + self.step * np.arange(1, n + 1))

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {"kind": self.kind, "last": self.last, "steps": list(self._steps)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Clock:
        """Restore a clock from `state`."""
        clock = cls()
        clock.kind, clock.last = state["kind"], state["last"]
        clock._steps.extend(state["steps"])
        return clock


def label(time: float, kind: str) -> str:
    """A time as text for messages."""
    return str(time) if kind == NUMBER else str(np.datetime64(round(time), "us").item())
