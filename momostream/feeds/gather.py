"""`Gather`: rows from values that come one by one, each with its machine, its column and its time.

Values of one machine with the same time are one row; with a tick, a row has the last value of each column up to its
time, at every full tick. A row is given out when no more of it can come: when each column has sent a value of that time
or a later one, because the values of a column come in order. A sensor that is silent must not hold up the others, so
that a row is also given out some seconds after its first value; a value that comes for it later is rejected.
"""

from __future__ import annotations

import math
import time as clock
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from momostream.feeds.formats import BadRow, Time
from momostream.horizon.calendar import AWARE, NUMBER, as_time
from momostream.horizon.durations import SECOND, parse_duration

__all__ = ["Gather", "Gathered"]

# Rows of one machine that wait for values: with more, the oldest one is given out.
MOST_OPEN = 1000


class Gathered(NamedTuple):
    """A row of values."""

    key: str | int | None
    time: Time
    values: dict[str, float]


class _Open(NamedTuple):
    """A row that waits; None stands for a value that is known to be missing, and ends what is held."""

    key: str | int | None
    time: Time
    values: dict[str, float | None]


class _Machine:
    """Rows of one machine that wait for values, and how far its columns have come."""

    def __init__(self) -> None:
        self.open: dict[float, _Open] = {}
        # By column, the time of its last value; and the newest values of rows that were given out, for `hold`.
        self.last: dict[str, float] = {}
        self.held: dict[str, tuple[float, float | None]] = {}
        self.closed = -math.inf


class Gather:
    """Rows from values.

    Parameters
    ----------
    columns
        Columns of a row.
    tick
        A span such as ``"10s"``: rows are made at full ticks. None: values with the same time are a row.
    wait
        A span: a row is given out this long after its first value (with a tick, after the tick), complete or not.
    hold
        A span for which a column without a new value keeps its last one, for sensors that only send changes. None: it
        is missing.

    Examples
    --------
    >>> gather = Gather(["power", "wind"])
    >>> for column, time, value in [("power", 10, 4.5), ("power", 20, 4.7), ("wind", 10, 8.1)]:
    ...     _ = gather.add("T01", column, time, value)
    >>> gather.pop(), gather.pop()
    (Gathered(key='T01', time=10, values={'power': 4.5, 'wind': 8.1}), None)
    """

    def __init__(
        self, columns: Sequence[str], tick: str | None = None, wait: str = "2s", hold: str | None = None
    ) -> None:
        self.columns = tuple(columns)
        self.tick = None if tick is None else parse_duration(tick)
        self.hold = None if hold is None else parse_duration(hold)
        self.wait_seconds = (parse_duration(wait) + (self.tick or 0.0)) / SECOND
        #: Columns of which no value has come.
        self.unseen = set(self.columns)
        #: Rows that were given out without all columns.
        self.n_partial = 0
        self._kind: str | None = None
        self._machines: dict[Any, _Machine] = {}
        self._ready: deque[tuple[float, Gathered]] = deque()
        # In the order in which they end: machine and time of each row that has begun, and when it has waited enough.
        self._ends: deque[tuple[float, Any, float]] = deque()

    def add(self, key: str | int | None, column: str, time: Time, value: float | None) -> bool:
        """Take a value, None where it is missing; return whether it is new.

        A value whose time is not after that of the last one of its column has come before, and is dropped.

        Raises
        ------
        BadRow
            Its row has been given out, or its time cannot be compared with the others.
        """
        number = self._number(time)
        machine = self._machines.setdefault(key, _Machine())
        if number <= machine.last.get(column, -math.inf):
            return False
        machine.last[column] = number
        self.unseen.discard(column)
        at = number if self.tick is None else math.ceil(number / self.tick) * self.tick
        if at <= machine.closed:
            raise BadRow(f"the value came too late: its row was written after {self.wait_seconds:g} s", column)
        if at not in machine.open:
            machine.open[at] = _Open(key, time if self.tick is None else self._time(at), {})
            self._ends.append((clock.monotonic() + self.wait_seconds, key, at))
        if value is not None or self.hold is not None:
            machine.open[at].values[column] = value
        self._close_complete(machine)
        return True

    def last_time(self, key: str | int | None, column: str) -> datetime | None:
        """The time of the last value of a column, where times are dates; None if there is none."""
        machine = self._machines.get(key)
        number = None if machine is None or self._kind == NUMBER else machine.last.get(column)
        return None if number is None else self._time(number)

    def seed(self, key: str | int | None, column: str, time: Time, value: float | None, now: Time) -> None:
        """Take the value that a column has had since a time, to be held from now on, without a row of its own."""
        number = self._number(time)
        machine = self._machines.setdefault(key, _Machine())
        if number > machine.last.get(column, -math.inf):
            machine.last[column] = number
            machine.held[column] = max(number, self._number(now)), value
            self.unseen.discard(column)

    def pop(self) -> Gathered | None:
        """The next row that is complete, or has waited long enough; None where there is none."""
        now = clock.monotonic()
        while not self._ready and self._ends and self._ends[0][0] <= now:
            _, key, at = self._ends.popleft()
            machine = self._machines[key]
            if at in machine.open:
                self._close(machine, at)
        if not self._ready:
            return None
        at, row = self._ready.popleft()
        self._machines[row.key].closed = at
        return row

    @property
    def state(self) -> dict[str, Any]:
        """Rows that were not given out, and how far each column has come, as plain data."""
        ready: dict[Any, list[tuple[float, Gathered]]] = {}
        for at, row in self._ready:
            ready.setdefault(row.key, []).append((at, row))
        machines = [
            [
                key,
                None if machine.closed == -math.inf else machine.closed,
                dict(machine.last),
                [[at, _plain(row.time), dict(row.values)] for at, row in (*ready.get(key, ()), *machine.open.items())],
                {column: list(held) for column, held in machine.held.items()},
            ]
            for key, machine in self._machines.items()
        ]
        return {"kind": self._kind, "machines": machines}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore from `state`."""
        self._kind = state["kind"]
        until = clock.monotonic() + self.wait_seconds
        for key, closed, last, rows, held in state["machines"]:
            machine = self._machines[key] = _Machine()
            machine.closed = -math.inf if closed is None else closed
            machine.last = dict(last)
            machine.held = {column: (at, value) for column, (at, value) in held.items()}
            self.unseen -= last.keys()
            for at, time, values in rows:
                machine.open[at] = _Open(key, _read_plain(time), dict(values))
                self._ends.append((until, key, at))
            self._close_complete(machine)

    def _number(self, time: Time) -> float:
        found = as_time("time", time)
        assert found is not None, "rows without a time are rejected"
        number, kind = found
        if self.tick is not None and kind == NUMBER:
            raise BadRow("the time is a number, and a tick needs dates: set --time-format epoch", "time")
        if self._kind is None:
            self._kind = kind
        elif kind != self._kind:
            raise BadRow(f"the time is a {kind}, and those before were each a {self._kind}", "time")
        return number

    def _time(self, number: float) -> datetime:
        date = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=number)
        return date if self._kind == AWARE else date.replace(tzinfo=None)

    def _close_complete(self, machine: _Machine) -> None:
        """Make rows ready of which no more can come, and the oldest where too many wait."""
        if len(machine.last) == len(self.columns):
            until = min(machine.last.values())
        else:
            until = -math.inf
        if len(machine.open) > MOST_OPEN:
            until = max(until, min(machine.open))
        if any(at <= until for at in machine.open):
            self._close(machine, until)

    def _close(self, machine: _Machine, until: float) -> None:
        """Make all rows of a machine up to a time ready, in order."""
        for at in sorted(at for at in machine.open if at <= until):
            row = machine.open.pop(at)
            if self.hold is not None:
                self._fill(machine, at, row.values)
            values = {column: value for column, value in row.values.items() if value is not None}
            self.n_partial += len(values) < len(self.columns)
            self._ready.append((at, Gathered(row.key, row.time, values)))

    def _fill(self, machine: _Machine, at: float, values: dict[str, float | None]) -> None:
        assert self.hold is not None
        machine.held |= {column: (at, value) for column, value in values.items()}
        for column, (since, value) in machine.held.items():
            if at - since <= self.hold:
                values.setdefault(column, value)


def _plain(time: Time) -> str | float:
    return time.isoformat() if isinstance(time, datetime) else time


def _read_plain(time: str | float) -> Time:
    return datetime.fromisoformat(time) if isinstance(time, str) else time
