"""Times of the rows of a feed: their order, the usual step, gaps, and features that the calendar gives in advance.

Times are numbers: microseconds since 1970 for dates, which floats hold exactly, and the user's own unit otherwise.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from datetime import UTC, date, datetime
from functools import lru_cache
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momostream._checks import check_state, instance_of, number, one_of
from momostream._numbers import as_number

__all__ = ["Ahead", "Calendar", "Clock", "as_time", "day_seasons", "waves_of"]

Array = NDArray[np.float64]

MINUTE = 60e6
HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE

# Steps after which the usual one counts as known, and how many are remembered.
FIRST_STEPS, N_STEPS = 3, 32
# A longer gap, in steps, is not filled: the feed continues after it as if there were none.
MOST_GAP = 1000
# Rows of the longest season taken from the calendar.
LONGEST_SEASON = 2016
# Rows for which the calendar is computed at once.
TABLE_ROWS = 255
# Steps that feeds usually have. A step this close to one of them counts as that one: jitter must not move the seasons.
USUAL_STEPS = (
    *(minutes * MINUTE for minutes in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)),
    *(hours * HOUR for hours in (1, 2, 3, 4, 6)),
)
NEAR = 0.04
# Waves below this are the round-off of zero: a product with one would be a feature with a weight of any size.
WAVE_ROUND_OFF = 1e-12

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


class Ahead(NamedTuple):
    """The calendar of a row and of the steps after it, that of the row itself first.

    Attributes
    ----------
    terms
        Columns that are known in advance, shape ``(1 + horizon, n_terms)``.
    alike
        Rows since the same time of the last day of the same kind, 0 if that is not known; shape ``(1 + horizon,)``.
    """

    terms: Array
    alike: NDArray[np.int64]


_NO_TABLE = Ahead(np.empty((0, 0)), np.empty(0, dtype=np.int64))


class Calendar:
    """Columns that the dates of a feed with this step give in advance.

    Below a step of six hours, two waves of the day, whether it is a weekend or a holiday, and the waves of such days;
    from there to a day one wave of the week and the weekend. Feeds with longer steps have none. Weekends begin at 0:00
    on Saturday.

    Parameters
    ----------
    step
        In microseconds.
    holidays
        Days, counted from 1970-01-01, that are like those of a weekend.

    Attributes
    ----------
    names
        Of the columns.
    kind
        Which of the columns says whether it is a weekend or a holiday; None if there is none.
    day
        Rows of a day; 0 if a day is no season of the feed.

    Examples
    --------
    >>> calendar = Calendar(10 * MINUTE)
    >>> calendar.terms(np.array([0.0, 6 * HOUR]))[:, :5].round(6) + 0.0  # a Thursday
    array([[ 0.,  1.,  0.,  1.,  0.],
           [ 1.,  0.,  0., -1.,  0.]])
    >>> calendar.terms(np.array([2 * DAY]))[:, 4]  # a Saturday
    array([1.])
    >>> calendar.alike(np.array([4 * DAY, 5 * DAY])) // 144  # a Monday is like the Friday before
    array([3, 1])
    >>> Calendar(30 * DAY).terms(np.zeros(1)).shape
    (1, 0)
    """

    def __init__(self, step: float, holidays: frozenset[int] = frozenset()) -> None:
        self.step, self.holidays = step, holidays
        self._periods = _periods(step)
        waves = [f"{wave} of the {period}" for period in self._periods for wave in ("sine", "cosine")]
        self.kind = len(waves) if waves else None
        self.names = [*waves, "weekend"] if waves else []
        if "day" in self._periods:
            self.names += [f"{wave} at weekends" for wave in waves]
        seasons = day_seasons(step)
        self.day = 0 if seasons is None or len(seasons) < 3 else seasons[0]
        # The calendar of the rows from a time on.
        self._table_start, self._table = math.nan, _NO_TABLE

    def terms(self, times: Array) -> Array:
        """The columns at these times, shape ``(n_times, n_terms)``."""
        if not self.names:
            return np.empty((len(times), 0))
        turns = [2.0 * np.pi * np.mod(times, period) / period for period in self._periods.values()]
        waves = [wave for turn in turns for wave in _sine_cosine(turn)]
        weekend = self._is_weekend(np.floor(times / DAY).astype(np.int64)).astype(np.float64)
        products = [weekend * wave for wave in waves] if "day" in self._periods else []
        return np.stack([*waves, weekend, *products], axis=1)

    def alike(self, times: Array) -> NDArray[np.int64]:
        """Rows since the same time of the last day of the same kind, at most a week; 0 if days are no seasons."""
        if not self.day:
            return np.zeros(len(times), dtype=np.int64)
        days = np.floor(times / DAY).astype(np.int64)
        # Neighbouring rows lie on few days.
        found, which = np.unique(days, return_inverse=True)
        earlier = self._is_weekend(found[:, None] - np.arange(8))
        same = earlier[:, 1:] == earlier[:, :1]
        back = np.where(same.any(axis=1), same.argmax(axis=1) + 1, 7)
        return np.asarray(self.day * back[which])

    def ahead(self, time: float, n_steps: int) -> Ahead:
        """The calendar of a row and of the steps after it."""
        n, start = 1 + n_steps, self._table_start
        k = round((time - start) / self.step) if start == start else 0
        # Rows that come in time find what they need in one table.
        if k < 0 or start + k * self.step != time or len(self._table.alike) < k + n:
            times, k = np.asarray(time + self.step * np.arange(n + TABLE_ROWS), dtype=np.float64), 0
            self._table_start, self._table = time, Ahead(self.terms(times), self.alike(times))
        return Ahead(self._table.terms[k : k + n], self._table.alike[k : k + n])

    def _is_weekend(self, days: NDArray[np.int64]) -> NDArray[np.bool_]:
        # 1970-01-01 was a Thursday.
        weekend = (days + 3) % 7 >= 5
        return weekend | np.isin(days, list(self.holidays)) if self.holidays else weekend


def waves_of(season: int, first: int, n: int) -> Array:
    """Two waves of a season at the rows ``first`` to ``first + n``, shape ``(n, 4)``, for feeds without dates.

    Examples
    --------
    >>> waves_of(4, 1, 1).round(6) + 0.0
    array([[ 1.,  0.,  0., -1.]])
    """
    found: Array = _season_waves(season)[np.arange(first, first + n) % season]
    return found


@lru_cache(maxsize=64)
def _season_waves(season: int) -> Array:
    """The waves of one season, row by row."""
    turns = 2.0 * np.pi * np.arange(season) / season
    return np.stack([*_sine_cosine(turns), *_sine_cosine(2.0 * turns)], axis=1)


def _sine_cosine(turns: Array) -> tuple[Array, Array]:
    """Sine and cosine, exactly zero where they are."""
    sine, cosine = (np.where(np.abs(wave) < WAVE_ROUND_OFF, 0.0, wave) for wave in (np.sin(turns), np.cos(turns)))
    return sine, cosine


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
    >>> day_seasons(2 * MINUTE)
    (720, 1440)
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
        table = {"kind": one_of(None, NUMBER, NAIVE, AWARE), "last": number(), "steps": instance_of(list, "a list")}
        check_state("clock", state, table)
        for step in state["steps"]:
            check_state("clock / steps", {"step": step}, {"step": number()})
        clock = cls()
        clock.kind, clock.last = state["kind"], state["last"]
        clock._steps.extend(state["steps"])
        return clock


def label(time: float, kind: str) -> str:
    """A time as text for messages; dates of a time zone are in UTC here, and say so."""
    if kind == NUMBER:
        return str(time)
    return f"{np.datetime64(round(time), 'us').item()}{' UTC' if kind == AWARE else ''}"
