"""Alarms as people see them: one record from its first row to its last, with severity, reason and acknowledgement.

A run writes an alarm for each value outside its interval. `AlarmFolder` joins those of neighbouring rows of a machine
into one `AlarmRecord`, so that an hour of trouble is one line in the inbox. Events, and alarms about rows to come, have
a begin and an end, and are taken as they are (`record_of`, `record_of_outlook`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from momostream.estimators.monitor import FaultEvent
    from momostream.runs.lookout import ForecastAlarm

__all__ = ["CALM_ROWS", "AlarmFolder", "AlarmRecord", "Inbox", "record_of", "record_of_outlook"]

# Rows without an alarm after which an alarm has ended, and rows with one that make it critical.
CALM_ROWS, CRITICAL_ROWS = 6, 3
# Alarms of each feed that are kept.
MOST_RECORDS = 2000


@dataclass
class AlarmRecord:
    """An alarm from its begin to its end.

    Parameters
    ----------
    id
        The same for the same alarm, also after a restart.
    feed, machine, name
        Where: the feed, the machine's id, and its name.
    begin, end
        Seconds since 1970, or the feed's own unit; the end is None while the alarm is open.
    begin_row, last_row
        Numbers of its first and last row.
    severity
        ``"warning"`` or ``"critical"``.
    columns
        Columns that were unexpected, the first one first.
    why
        In words.
    n_rows
        Rows with an unexpected value.
    acknowledged, by
        When (seconds since 1970) and by whom; None if it is not.
    kind
        ``"event"`` of a monitor, ``"forecast"`` of rows to come, or ``"rows"`` that were joined.
    """

    id: str
    feed: str
    machine: str
    name: str
    begin: float
    end: float | None
    begin_row: int
    last_row: int
    severity: str
    columns: list[str]
    why: str
    n_rows: int = 1
    acknowledged: float | None = None
    by: str = ""
    kind: str = "rows"

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.end is None

    def plain(self) -> dict[str, Any]:
        """The record as plain data."""
        return asdict(self)


@dataclass
class _MachineAlarm:
    """The newest alarm of a machine, and how many calm rows have come since."""

    record: AlarmRecord
    last_time: float
    n_calm: int = 0


class AlarmFolder:
    """Joins alarms of single rows into records, machine by machine.

    Parameters
    ----------
    feed
        Its name.

    Examples
    --------
    >>> folder = AlarmFolder("north")
    >>> alarm = {"target": "power", "value": 48.0, "lower": 38.0, "upper": 42.0, "level": 0.999}
    >>> [record] = folder.row("m1", "T1", number=7, time=70.0, alarms=[alarm])
    >>> record.is_open, record.columns, record.why
    (True, ['power'], 'power was 48, expected 38 to 42')
    >>> for number in range(8, 8 + CALM_ROWS):
    ...     changed = folder.row("m1", "T1", number=number, time=10.0 * number, alarms=[])
    >>> changed[0] is record, record.end
    (True, 70.0)
    """

    def __init__(self, feed: str) -> None:
        self.feed = feed
        self._open: dict[str, _MachineAlarm] = {}

    def restore(self, records: Sequence[AlarmRecord]) -> None:
        """Continue open records of an earlier process."""
        for record in records:
            if record.is_open and record.kind == "rows":
                self._open[record.machine] = _MachineAlarm(record, record.begin)

    def row(
        self, machine: str, name: str, number: int, time: float, alarms: Sequence[Mapping[str, Any]]
    ) -> list[AlarmRecord]:
        """Note a row and its alarms; the records that are new or have changed."""
        current = self._open.get(machine)
        if not alarms:
            if current is None:
                return []
            current.n_calm += 1
            if current.n_calm < CALM_ROWS:
                return []
            current.record.end = current.last_time
            del self._open[machine]
            return [current.record]
        if current is None:
            record = self._begin(machine, name, number, time, alarms)
            self._open[machine] = _MachineAlarm(record, time)
            return [record]
        record, current.n_calm, current.last_time = current.record, 0, time
        record.last_row, record.n_rows = number, record.n_rows + 1
        record.columns += [column for column in _columns(alarms) if column not in record.columns]
        if record.n_rows >= CRITICAL_ROWS:
            record.severity = "critical"
        return [record]

    def _begin(
        self, machine: str, name: str, number: int, time: float, alarms: Sequence[Mapping[str, Any]]
    ) -> AlarmRecord:
        digest = _digest(self.feed, machine, number)
        why = "; ".join(map(_reason, alarms[:3]))
        return AlarmRecord(
            digest, self.feed, machine, name, time, None, number, number, "warning", _columns(alarms), why
        )  # fmt: skip


def record_of(event: FaultEvent, feed: str, machine: str, name: str, begin: float, end: float) -> AlarmRecord:
    """The record of an event; ``begin`` and ``end`` are the times of its first and its newest row in alarm."""
    n_rows = event.end - event.begin + 1
    why = "; ".join(
        "{} was {}, expected {}".format(column, *_told_apart(part.observed, part.expected))
        for column, part in list(event.columns.items())[:3]
    )
    return AlarmRecord(
        _digest(feed, machine, event.begin + 1), feed, machine, name, begin, None if event.is_open else end,
        event.begin + 1, event.end + 1, "critical" if n_rows >= CRITICAL_ROWS else "warning",
        list(map(str, event.columns)), why or "all columns together", n_rows, kind="event",
    )  # fmt: skip


def record_of_outlook(
    alarm: ForecastAlarm, feed: str, machine: str, name: str, begin: float, end: float
) -> AlarmRecord:
    """The record of an alarm about rows to come; ``begin`` and ``end`` are the times of its first and newest row."""
    return AlarmRecord(
        _digest(feed, machine, alarm.begin, alarm.rule), feed, machine, name, begin, None if alarm.is_open else end,
        alarm.begin, alarm.end, "warning", list(alarm.columns), str(alarm), alarm.end - alarm.begin + 1,
        kind="forecast",
    )  # fmt: skip


def _digest(feed: str, machine: str, *which: int | str) -> str:
    return hashlib.sha256(json.dumps([feed, machine, *which]).encode()).hexdigest()[:16]


def _columns(alarms: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(alarm["target"]) for alarm in alarms))


def _reason(alarm: Mapping[str, Any]) -> str:
    ends = {side: alarm[side] for side in ("lower", "upper") if alarm.get(side) is not None}
    value, *texts = _told_apart(alarm["value"], *ends.values())
    words = {(): "another value", ("lower",): "at least {}", ("upper",): "at most {}", ("lower", "upper"): "{} to {}"}
    return f"{alarm['target']} was {value}, expected {words[tuple(ends)].format(*texts)}"


def _told_apart(*values: float) -> list[str]:
    """Numbers with four digits, or as many as show that they differ.

    Examples
    --------
    >>> _told_apart(48.0, 38.12345), _told_apart(1575.31, 1411.2, 1575.12)
    (['48', '38.12'], ['1575.3', '1411.2', '1575.1'])
    """
    texts: list[str] = []
    for digits in range(4, 18):
        texts = [f"{value:.{digits}g}" for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts


@dataclass
class Inbox:
    """The alarms of a feed by id, the newest `MOST_RECORDS` of them.

    Examples
    --------
    >>> alarms = Inbox()
    >>> alarms.put(AlarmRecord("a", "north", "m1", "T1", 70.0, None, 7, 7, "warning", ["power"], "why"))
    >>> alarms.acknowledge("a", at=100.0, by="Ann").by, alarms.acknowledge("b", 100.0, "") is None
    ('Ann', True)
    """

    records: dict[str, AlarmRecord] = field(default_factory=dict)

    def put(self, record: AlarmRecord) -> None:
        """Add a record, or replace the one of its id; an acknowledgement stays."""
        known = self.records.get(record.id)
        if known is not None and known is not record:
            record.acknowledged, record.by = known.acknowledged, known.by
        self.records[record.id] = record
        while len(self.records) > MOST_RECORDS:
            oldest = next((each for each in self.records.values() if not each.is_open), record)
            del self.records[oldest.id]

    def acknowledge(self, id: str, at: float, by: str) -> AlarmRecord | None:
        """Note that someone has seen an alarm; the first one counts. None if there is no such alarm."""
        record = self.records.get(id)
        if record is not None and record.acknowledged is None:
            record.acknowledged, record.by = at, by
        return record

    def newest(self) -> Iterator[AlarmRecord]:
        """Records, open ones first, then the newest."""
        return iter(sorted(self.records.values(), key=lambda each: (not each.is_open, -each.begin, each.id)))
