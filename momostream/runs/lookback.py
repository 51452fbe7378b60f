"""`Lookback`: the parts of a run that people look back at: newest values beside their forecasts, worst days, alarms."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momostream.distributions.scores import error_ratio, means

__all__ = ["DAY", "ComparedRow", "Lookback", "ScoredDay"]

Array = NDArray[np.float64]

# Rows that are drawn beside their forecasts, days in the list of the worst, alarms in the list of the newest.
N_ROWS, N_DAYS, N_ALARMS = 240, 5, 20
# Microseconds.
DAY = 86_400e6


class ComparedRow(NamedTuple):
    """A row with the last step of a forecast that reached it: number, time, and values by target."""

    row: int
    time: float
    actual: Array
    mean: Array
    lower: Array
    upper: Array


class ScoredDay(NamedTuple):
    """Sums of squared errors over a day, of the model and of the last value, and how many they are, by target."""

    day: int
    squares: Array
    naive: Array
    counts: Array

    @property
    def rmse(self) -> Array:
        """Root mean square error of each target; NaN without a value."""
        return np.sqrt(means(self.squares, self.counts))

    @property
    def naive_rmse(self) -> Array:
        """The same of the last value."""
        return np.sqrt(means(self.naive, self.counts))


class Lookback:
    """The newest rows beside their forecasts, the worst days and the newest alarms, in bounded memory.

    A day is bad by how many times its error is the usual one, as the geometric mean over the targets; the usual error
    is that of all days before it. The first day has nothing to be compared with.

    Attributes
    ----------
    rows : deque of ComparedRow
        The newest rows.
    alarms : deque of dict
        The newest alarms.
    n_alarms : int
        Alarms so far.
    """

    def __init__(self, n_targets: int) -> None:
        self.rows: deque[ComparedRow] = deque(maxlen=N_ROWS)
        self.alarms: deque[dict[str, Any]] = deque(maxlen=N_ALARMS)
        self.n_alarms = 0
        self._worst: list[tuple[float, ScoredDay]] = []
        self._open: ScoredDay | None = None
        self._before = ScoredDay(0, *np.zeros((3, n_targets)))

    def compare(self, row: ComparedRow) -> None:
        """Keep a row beside its forecast."""
        self.rows.append(row)

    def score(self, time: float | None, squares: Array, naive: Array, counts: Array) -> None:
        """Add squared errors, by target, to the day of a time in microseconds."""
        if time is None:
            return
        day = int(time // DAY)
        if self._open is not None and self._open.day != day:
            self._close()
        if self._open is None:
            self._open = ScoredDay(day, *np.zeros((3, len(counts))))
        self._open.squares[:] += squares
        self._open.naive[:] += naive
        self._open.counts[:] += counts

    def note_alarms(self, texts: Sequence[str]) -> None:
        """Keep alarms, which are JSON objects; the end of an event takes the place of its begin."""
        for text in texts:
            alarm = json.loads(text)
            begun = next((at for at, known in enumerate(self.alarms) if _is_same_event(known, alarm)), None)
            if begun is not None:
                self.alarms[begun] = alarm
                continue
            self.n_alarms += 1
            self.alarms.append(alarm)

    def _close(self) -> None:
        """Compare the day that is over with the days before it."""
        assert self._open is not None
        day, before, self._open = self._open, self._before, None
        if before.counts.any():
            self._worst = self._ranked(day, before)
        self._before = ScoredDay(day.day, *(a + b for a, b in zip(before[1:], day[1:], strict=True)))

    def _ranked(self, day: ScoredDay, before: ScoredDay) -> list[tuple[float, ScoredDay]]:
        """The worst days with this one among them, worst first."""
        days = [*self._worst, (float(np.nan_to_num(error_ratio(day.rmse, before.rmse))), day)]
        return sorted(days, key=lambda each: (-each[0], each[1].day))[:N_DAYS]

    @property
    def worst_days(self) -> list[tuple[float, ScoredDay]]:
        """The worst days, worst first, with how many times the usual error each had; the newest day counts, too."""
        if self._open is None or not self._before.counts.any():
            return list(self._worst)
        return self._ranked(self._open, self._before)

    # ------------------------------------------------------------------ as plain data

    def state(self) -> dict[str, Any]:
        """Everything, as plain data."""
        rows = list(self.rows)
        return {
            "numbers": np.array([[each.row, each.time] for each in rows]).reshape(len(rows), 2),
            "values": np.array([each[2:] for each in rows]).reshape(len(rows), 4, len(self._before.counts)),
            "alarms": list(self.alarms),
            "n_alarms": self.n_alarms,
            "worst": [[times, *day] for times, day in self._worst],
            "open": None if self._open is None else list(self._open),
            "before": list(self._before),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Lookback:
        """The lookback with this state."""
        before = _day(state["before"])
        found = cls(len(before.counts))
        for (number, time), values in zip(state["numbers"], state["values"], strict=True):
            found.rows.append(ComparedRow(int(number), float(time), *values))
        found.alarms.extend(state["alarms"])
        found.n_alarms, found._before = state["n_alarms"], before
        found._worst = [(times, _day(parts)) for times, *parts in state["worst"]]
        found._open = None if state["open"] is None else _day(state["open"])
        return found


def _is_same_event(known: Mapping[str, Any], alarm: Mapping[str, Any]) -> bool:
    return "event" in alarm and all(known.get(name) == alarm.get(name) for name in ("event", "alarm"))


def _day(parts: Sequence[Any]) -> ScoredDay:
    number, *arrays = parts
    return ScoredDay(int(number), *(np.array(each) for each in arrays))
