"""Formats: numbers, times and keys from the cells of a row, in CSV or JSON; or what is wrong with them."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple, Protocol

__all__ = [
    "EPOCH",
    "BadRow",
    "Csv",
    "Format",
    "Json",
    "Rejected",
    "Row",
    "RowReader",
    "Time",
    "is_missing",
    "read_epoch",
    "read_time",
    "shown",
]

MISSING = {"", "na", "nan", "null", "none", "n/a", "-"}
# Forms like ISO 8601 that `fromisoformat` rejects. The year comes first, so that month and day cannot be confused.
_LIKE_ISO = re.compile(
    r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})"
    r"(?:[T ]\s*(\d{1,2})(:\d\d(?::\d\d(?:[.,]\d+)?)?)\s*(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII | re.IGNORECASE,
)

# Bytes of a rejected row that are kept.
_LONGEST_TEXT = 4096

Time = datetime | float

#: The `time_format` of numbers that count from 1970: seconds, milliseconds, microseconds or nanoseconds, by their size.
EPOCH = "epoch"
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
# Least number of each unit but seconds, and its units in a microsecond.
_EPOCH_UNITS = ((1e17, 1e3), (1e14, 1.0), (1e11, 1e-3))


class Row(NamedTuple):
    """One row of a feed."""

    number: int  # of the data row, from 1; bad rows that were skipped count, blank lines do not
    offset: int  # byte after this row in the uncompressed feed, where reading resumes; brokers have their own numbers
    time: Time | None
    values: dict[str, float]  # missing readings are left out
    key: str | int | None = None  # which model it is for; None where the feed has one only

    def text(self) -> str:
        """The row as JSON."""
        time = self.time.isoformat() if isinstance(self.time, datetime) else self.time
        named = {"key": self.key, "time": time}
        return json.dumps({k: v for k, v in named.items() if v is not None} | self.values)


class Rejected(NamedTuple):
    """A row that cannot be used: its position, its key if that is known, the reason, and the row as text."""

    number: int
    offset: int
    key: str | int | None
    reason: str
    text: str


class BadRow(Exception):  # noqa: N818 - it is raised, but often only counted
    """A row cannot be used; `column` says where, if that is known."""

    def __init__(self, what: str, column: str | None = None) -> None:
        super().__init__(what)
        self.column = column


class RowReader:
    """Makes rows of cells.

    Parameters
    ----------
    format
        Of the cells.
    readings
        Columns of numbers.
    time, key
        Columns of the time and of the key; None where there are none.
    time_format
        As in `datetime.datetime.strptime`; ``"epoch"``: numbers that count from 1970; None: ISO 8601 and similar forms
        with the year first, or numbers of any unit.

    Examples
    --------
    >>> reader = RowReader(Json(), ["power"], "at", "turbine")
    >>> reader.row(1, 60, {"at": "2024-03-01 00:10", "turbine": "T01", "power": 4.5})
    Row(number=1, offset=60, time=datetime.datetime(2024, 3, 1, 0, 10), values={'power': 4.5}, key='T01')
    """

    def __init__(
        self,
        format: Format,
        readings: Sequence[str],
        time: str | None = None,
        key: str | None = None,
        time_format: str | None = None,
    ) -> None:
        self.format, self.time, self.key, self.time_format = format, time, key, time_format
        format.choose(readings, time, key)

    def row(self, number: int, offset: int, cells: Any) -> Row:
        """The row of these cells.

        Raises
        ------
        BadRow
            The reason, and the column.
        """
        time = (
            None if self.time is None else read_time(self.format, self.format.time(cells), self.time, self.time_format)
        )
        key = None if self.key is None else self._read_key(self.format.key(cells))
        return Row(number, offset, time, self.format.values(cells), key)

    def event(
        self,
        number: int,
        offset: int,
        cells: Any,
        raw: bytes,
        encoding: str = "utf-8",
        wrong: BadRow | None = None,
    ) -> Row | Rejected:
        """The row of these cells, or its rejection.

        Parameters
        ----------
        number, offset
            Of the row.
        cells
            Its cells, or the `BadRow` for which there are none.
        raw, encoding
            Its bytes, which a rejection keeps as text.
        wrong
            Something else that is wrong with it.
        """
        try:
            if isinstance(cells, BadRow):
                raise cells
            if wrong is not None:
                raise wrong
            return self.row(number, offset, cells)
        except BadRow as bad:
            column = "" if bad.column is None else f"column {shown(bad.column)}: "
            key = None if isinstance(cells, BadRow) else self._key_of(cells)
            text = raw[:_LONGEST_TEXT].decode(encoding, errors="replace")
            return Rejected(number, offset, key, f"{column}{bad}", text)

    def _key_of(self, cells: Any) -> str | int | None:
        """The key of cells that may be bad elsewhere; None where it cannot be read."""
        try:
            return None if self.key is None else self._read_key(self.format.key(cells))
        except BadRow:
            return None

    def _read_key(self, value: Any) -> str | int:
        if type(value) is str and value.strip():
            # Half of a surrogate pair, as JSON can have it, cannot be written anywhere.
            if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
                raise BadRow("the key is not valid text", self.key)
            return value.strip()
        if type(value) is int:
            return value
        if value is None or value == "":
            raise BadRow("the key is missing", self.key)
        raise BadRow(f"{shown(value)} is an invalid key: expected a string or an integer", self.key)


def read_time(format: Format, value: Any, column: str | None, time_format: str | None) -> Time:
    """The time in a cell."""
    text = str(value)
    if time_format is None and text[4:5] == "-":
        # The common form of most feeds first.
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass
    if is_missing(value):
        raise BadRow("the time is missing", column)
    if time_format == EPOCH:
        with suppress(BadRow):
            return read_epoch(format.number(value) or 0.0)
        raise BadRow(f"{shown(value)} is not a time since 1970", column)
    if time_format is not None:
        with suppress(ValueError):
            return datetime.strptime(text.strip(), time_format)
        raise BadRow(f"{shown(value)} is not a time of the form {time_format!r}", column)
    # Numbers before other forms: to `fromisoformat`, 20180101.05 is five o'clock.
    with suppress(BadRow):
        number = format.number(value)
        if number is not None:
            return number
    with suppress(ValueError):
        return _parse_date(text.strip())
    raise BadRow(f"{shown(value)} is not a time (other forms than ISO 8601 need a time_format)", column)


def read_epoch(number: float) -> datetime:
    """The date of a number that counts from 1970, in UTC.

    Examples
    --------
    >>> [read_epoch(1.7e9 * unit).isoformat() for unit in (1, 1e3, 1e6)]
    ['2023-11-14T22:13:20+00:00', '2023-11-14T22:13:20+00:00', '2023-11-14T22:13:20+00:00']
    """
    per_microsecond = next((units for least, units in _EPOCH_UNITS if abs(number) >= least), 1e-6)
    try:
        return _1970 + timedelta(microseconds=round(number / per_microsecond))
    except (OverflowError, ValueError):
        # Integers may be too large for a float, and floats may be NaN.
        raise BadRow(f"{shown(number)} is not a time since 1970") from None


class Format(Protocol):
    """The format of a feed. Cells are what `parse` returns."""

    columns: tuple[str, ...]  # empty where they are not known before the first row
    comment: bytes  # begins lines that are not rows; empty where there are none

    def parse(self, text: str, following: Callable[[], Iterator[str]]) -> Any:
        """Cells of a row, given its first line and where more lines come from."""

    def column_at(self, text: str) -> str | None:
        """Column in which this part of a row ends; None where that is not known."""

    def choose(self, readings: Sequence[str], time: str | None, key: str | None) -> None:
        """Settle which columns are read."""

    def fields(self, cells: Any) -> dict[str, Any]:
        """Cells by column."""

    def number(self, value: Any) -> float | None:
        """The number in a cell; None where it is missing."""

    def time(self, cells: Any) -> Any:
        """Cell of the time."""

    def key(self, cells: Any) -> Any:
        """Cell of the key."""

    def values(self, cells: Any) -> dict[str, float]:
        """Numbers by column, without missing ones."""


class Csv:
    """Rows of cells under a header."""

    comment = b""

    def __init__(self, delimiter: str, decimal: str) -> None:
        self.columns: tuple[str, ...] = ()
        self._delimiter = delimiter
        self._decimal = decimal

    def parse(self, text: str, following: Callable[[], Iterator[str]]) -> list[str]:
        """Cells of a row, given its first line and where more lines come from."""
        if '"' in text:
            try:
                cells = next(csv.reader(chain([text], following()), delimiter=self._delimiter, strict=True))
            except csv.Error as error:
                at_end = "end of data" in str(error)
                raise BadRow("a quoted cell is not closed" if at_end else f"is not CSV: {error}") from None
        else:
            text = text.rstrip("\r\n")
            if "\r" in text:
                raise BadRow("there is a carriage return inside the row")
            cells = text.split(self._delimiter)
        if self.columns and len(cells) != len(self.columns):
            found = f"{len(cells)} cells instead of {len(self.columns)}"
            if len(cells) > len(self.columns):
                raise BadRow(found)
            raise BadRow(f"there are {found}", self.columns[len(cells)])
        return cells

    def column_at(self, text: str) -> str | None:
        """Column in which this part of a row ends; None where that is not known."""
        n = text.count(self._delimiter)
        return self.columns[n] if '"' not in text and n < len(self.columns) else None

    def choose(self, readings: Sequence[str], time: str | None, key: str | None) -> None:
        """Settle which columns are read."""
        # Not by a search for each: there may be many columns. Only unnamed ones share a name.
        at = {name: index for index, name in reversed(list(enumerate(self.columns)))}
        self._readings = [(name, at[name]) for name in readings]
        self._time_index = 0 if time is None else at[time]
        self._key_index = 0 if key is None else at[key]

    def fields(self, cells: list[str]) -> dict[str, Any]:
        """Cells by column."""
        return dict(zip(self.columns, cells, strict=True))

    def number(self, value: str) -> float | None:
        """The number in a cell; None where it is missing."""
        if is_missing(value):
            return None
        # Python reads 1_000, and 1.000 with a decimal comma is a thousand elsewhere: both are mistakes here.
        if "_" not in value and (self._decimal == "." or "." not in value):
            try:
                return _finite(float(value.replace(self._decimal, ".")), value)
            except ValueError:
                pass
        raise BadRow(f"{shown(value)} is not a number")

    def time(self, cells: list[str]) -> str:
        """Cell of the time."""
        return cells[self._time_index]

    def key(self, cells: list[str]) -> str:
        """Cell of the key."""
        return cells[self._key_index]

    def values(self, cells: list[str]) -> dict[str, float]:
        """Numbers by column, without missing ones."""
        # Most rows hold plain numbers only: one pass reads those, and leaves all others to the slower way below.
        if self._decimal == "." and "_" not in "".join(cells):
            try:
                values = {name: float(cells[index]) for name, index in self._readings}
            except ValueError:
                pass
            else:
                if math.isfinite(sum(values.values())):
                    return values
        return _numbers(((name, cells[index]) for name, index in self._readings), self.number)


class Json:
    """One object per line."""

    columns: tuple[str, ...] = ()
    comment = b""

    def parse(self, text: str, following: Callable[[], Iterator[str]]) -> dict[str, Any]:
        """Cells of a row, given its first line and where more lines come from."""
        try:
            cells = json.loads(text)
            if isinstance(cells, dict) and any(type(value) is dict for value in cells.values()):
                cells = _flat(cells)
        except json.JSONDecodeError as error:
            reason = error.msg.removesuffix(" at")
            raise BadRow(f"is not JSON: {reason} at character {error.pos + 1}") from None
        except RecursionError:
            raise BadRow("is nested too deeply") from None
        except ValueError as error:
            raise BadRow(f"is not JSON: {error}") from None
        if not isinstance(cells, dict):
            raise BadRow(f"{shown(cells)} is not an object")
        return cells

    def column_at(self, text: str) -> str | None:
        """Column in which this part of a row ends; None where that is not known."""
        return None

    def choose(self, readings: Sequence[str], time: str | None, key: str | None) -> None:
        """Settle which columns are read."""
        self._readings = readings
        self._time_name, self._key_name = time or "", key or ""

    def fields(self, cells: dict[str, Any]) -> dict[str, Any]:
        """Cells by column."""
        return cells

    def number(self, value: Any) -> float | None:
        """The number in a cell; None where it is missing."""
        if is_missing(value):
            return None
        if isinstance(value, str):
            raise BadRow(f"{shown(value)} is text, not a number")
        if not isinstance(value, int | float):
            raise BadRow(f"{shown(value)} is not a number")
        try:
            return _finite(float(value), value)
        except OverflowError:
            return _finite(math.inf, value)

    def time(self, cells: dict[str, Any]) -> Any:
        """Cell of the time."""
        return cells.get(self._time_name)

    def key(self, cells: dict[str, Any]) -> Any:
        """Cell of the key."""
        return cells.get(self._key_name)

    def values(self, cells: dict[str, Any]) -> dict[str, float]:
        """Numbers by column, without missing ones."""
        return _numbers(((name, cells.get(name)) for name in self._readings), self.number)


def _flat(cells: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Objects inside an object as columns of their own.

    >>> _flat({"at": 1, "sensor": {"wind": 8.1, "pitch": {"left": 2}}})
    {'at': 1, 'sensor.wind': 8.1, 'sensor.pitch.left': 2}
    """
    flat: dict[str, Any] = {}
    for name, value in cells.items():
        flat |= _flat(value, f"{prefix}{name}.") if type(value) is dict else {f"{prefix}{name}": value}
    return flat


def _numbers(fields: Iterable[tuple[str, Any]], number_of: Callable[[Any], float | None]) -> dict[str, float]:
    numbers = {}
    for name, value in fields:
        try:
            number = number_of(value)
        except BadRow as bad:
            bad.column = name
            raise
        if number is not None:
            numbers[name] = number
    return numbers


def _finite(number: float, value: Any) -> float | None:
    """The number, None for NaN of any sign."""
    if math.isinf(number):
        raise BadRow(f"{shown(value)} is not finite")
    return None if math.isnan(number) else number


def is_missing(value: Any) -> bool:
    """Whether a cell stands for a missing value."""
    if isinstance(value, str):
        return value.strip().lower() in MISSING
    return value is None or (isinstance(value, float) and math.isnan(value))


def _parse_date(text: str) -> datetime:
    if parts := _LIKE_ISO.fullmatch(text):
        year, month, day, hour, rest, zone = parts.groups(default="")
        text = f"{year}-{month:0>2}-{day:0>2}T{hour:0>2}{rest or ':00'}{'Z' if zone.isalpha() else zone}"
    return datetime.fromisoformat(text)


def shown(value: Any, width: int = 40) -> str:
    """A value in a message: on one line, and short."""
    text = value if isinstance(value, str) else repr(value)
    if len(text) > width:
        text = text[: width - 3] + "..."
    return repr(text) if isinstance(value, str) else text
