"""Contents of messages: rows, or values of one column, from JSON, with their time under one of its usual names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from momostream.feeds.detection import LEAST_EPOCH, NUMERIC_TIME_NAMES, TIME_NAMES, letters_of
from momostream.feeds.formats import BadRow, Json, Rejected, Row, RowReader, is_missing, read_epoch
from momostream.feeds.topics import COLUMN

__all__ = ["AUTO", "Messages", "ValueMessages"]

#: The time of a message is found by its name.
AUTO = "auto"
# The field under which it is then known.
TIME = "time"
# Fields that hold the value, where a message is an object that holds one.
VALUE_NAMES = ("value", "val", "v")


class Messages:
    """Reads rows from messages.

    Parameters
    ----------
    columns
        Fields of numbers.
    time, key
        Fields of the time and of the key; None where there are none. ``"auto"``: the time is in a field called time,
        timestamp, ts, date or the like, and numbers that may count from 1970 are dates in UTC.
    time_format
        As in `momostream.feeds.formats.RowReader`.

    Attributes
    ----------
    time : str or None
        Column of the times.
    reads_epochs : bool
        Whether numbers that may count from 1970 are dates.

    Examples
    --------
    >>> messages = Messages(["power"], "auto", "turbine", None)
    >>> cells = messages.cells(b'{"ts": 1700000000000, "power": 4.5}', {"turbine": "T01"})
    >>> messages.event(1, 1, cells, b"")  # doctest: +NORMALIZE_WHITESPACE
    Row(number=1, offset=1, time=datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.timezone.utc),
        values={'power': 4.5}, key='T01')
    """

    def __init__(self, columns: Sequence[str], time: str | None, key: str | None, time_format: str | None) -> None:
        if isinstance(columns, str):
            raise TypeError(f"columns must be a sequence of names, not the string {columns!r}")
        self._finds_time = time == AUTO
        self.time = TIME if self._finds_time else time
        self.reads_epochs = self._finds_time and time_format is None
        # Names that are known to be something else.
        self._others = {*columns, key} - {TIME}
        self._reader = RowReader(Json(), list(columns), self.time, key, time_format)

    def cells(self, payload: bytes, beside: Mapping[str, str], came: datetime | None = None) -> dict[str, Any]:
        """Fields of a message, and those beside it that the message lacks; ``came`` is when it arrived."""
        found = {**beside, **self._parse(_text(payload))}
        if self._finds_time:
            self._find_time(found)
        return found

    def _parse(self, text: str) -> dict[str, Any]:
        cells: dict[str, Any] = self._reader.format.parse(text, lambda: iter(()))
        return cells

    def event(
        self, number: int, offset: int, cells: dict[str, Any] | BadRow, payload: bytes, wrong: BadRow | None = None
    ) -> Row | Rejected:
        """The row of these cells, or its rejection; ``wrong`` is something else that is wrong with it."""
        return self._reader.event(number, offset, cells, payload, wrong=wrong)

    def _find_time(self, cells: dict[str, Any]) -> None:
        """Put the time under its name."""
        if is_missing(cells.get(TIME)):
            ranked = [(rank, name) for name in cells if name not in self._others and (rank := _rank(name)) is not None]
            for _, name in sorted(ranked):
                if _may_be_time(name, cells[name]):
                    cells[TIME] = cells[name]
                    break
        time: Any = cells.get(TIME)
        if self.reads_epochs and _is_number(time) and LEAST_EPOCH <= time <= 1e20:
            cells[TIME] = read_epoch(time)


class ValueMessages(Messages):
    """Reads values of single columns from messages: plain numbers, or objects with a value.

    Parameters
    ----------
    columns
        Columns whose values are read.
    time, key, time_format
        As in `Messages`.
    value
        Field of the value in objects; None: ``value``, ``val`` or ``v``.
    stamps
        Whether a message without a time gets that of its arrival.

    Examples
    --------
    >>> messages = ValueMessages(["power"], "auto", "turbine", None, stamps=False)
    >>> cells = messages.cells(b'{"v": 4.5, "ts": "2024-03-01"}', {"turbine": "T01", "column": "power"})
    >>> messages.event(1, 1, cells, b"").values
    {'power': 4.5}
    """

    def __init__(
        self,
        columns: Sequence[str],
        time: str | None,
        key: str | None,
        time_format: str | None,
        value: str | None = None,
        stamps: bool = False,
    ) -> None:
        super().__init__(columns, time, key, time_format)
        self._value_names = VALUE_NAMES if value is None else (value,)
        self._stamps = stamps
        self._readers = {name: RowReader(Json(), [name], self.time, key, time_format) for name in columns}

    def cells(self, payload: bytes, beside: Mapping[str, str], came: datetime | None = None) -> dict[str, Any]:
        """The value of the column that ``beside`` names, the time, and other fields."""
        text = _text(payload).strip()
        column = beside[COLUMN]
        if text.startswith("{"):
            found = super().cells(text.encode(), beside)
            name = next((name for name in self._value_names if name in found), None)
            if name is None:
                raise BadRow(f"the value is missing: expected a field {' or '.join(self._value_names)}", column)
            # The topic says which column this is, whatever a field of this name holds.
            found |= {column: found[name], COLUMN: column}
        else:
            found = {**beside, column: _scalar(text)}
        assert self.time is not None
        if self._stamps and is_missing(found.get(self.time)):
            found[self.time] = came
        return found

    def event(
        self, number: int, offset: int, cells: dict[str, Any] | BadRow, payload: bytes, wrong: BadRow | None = None
    ) -> Row | Rejected:
        """A row with one value, or its rejection."""
        reader = self._reader if isinstance(cells, BadRow) else self._readers[cells[COLUMN]]
        return reader.event(number, offset, cells, payload, wrong=wrong)


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise BadRow(f"is not UTF-8: byte {error.start + 1} is invalid") from None


def _scalar(text: str) -> Any:
    """A number, or the text, which is then rejected unless it stands for a missing value."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(found, list) else found


@lru_cache(4096)
def _rank(name: str) -> int | None:
    letters = letters_of(name)
    return TIME_NAMES.index(letters) if letters in TIME_NAMES else None


def _may_be_time(name: str, value: Any) -> bool:
    if _is_number(value):
        return letters_of(name) in NUMERIC_TIME_NAMES or value >= LEAST_EPOCH
    return isinstance(value, str) and not is_missing(value)


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}
