"""Detection by the first lines of a file: format, delimiter, columns, and which of them hold numbers and times."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from momostream.feeds.formats import BadRow, Csv, Format, Json, is_missing, read_time, shown
from momostream.feeds.line_protocol import LineProtocol

__all__ = ["FORMATS", "ColumnChoice", "column_names", "detect_format", "extension_of", "letters_of", "without_gz"]

#: Formats of text lines by the extension of a file.
FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".lp": "influx", ".influx": "influx",
}  # fmt: skip
DELIMITERS = ",;\t|"

# Letters of the names that a column of times may have, best first.
TIME_NAMES = (
    *("timestamp", "datetime", "dateandtime", "time", "timestamputc", "datetimeutc", "timeutc"),
    *("ts", "at", "date"),
)
# "AT" is ambient temperature elsewhere: under other names a number is a time only if it may be seconds since 1970.
NUMERIC_TIME_NAMES, LEAST_EPOCH = {"timestamp", "time"}, 1e8


def without_gz(name: str) -> str:
    """The name of a file without the extension of gzip."""
    return name[:-3] if name.lower().endswith(".gz") else name


def extension_of(name: str) -> str:
    """The extension of a file, below that of gzip."""
    return os.path.splitext(without_gz(name))[1].lower()


def detect_format(line: bytes, extension: str, format: str | None, delimiter: str | None, decimal: str) -> Format:
    """The format that was asked for, else that of the extension, else the one that the first line looks like."""
    format = format or FORMATS.get(extension) or ("jsonl" if line.lstrip().startswith(b"{") else "csv")
    if format == "jsonl":
        return Json()
    if format == "influx":
        return LineProtocol()
    if delimiter is None:
        delimiter = "\t" if extension == ".tsv" else _find_delimiter(line, decimal)
    return Csv(delimiter, decimal)


def _find_delimiter(header: bytes, decimal: str) -> str:
    bare = re.sub(rb'"[^"]*("|$)', b"", header)
    return max(DELIMITERS.replace(decimal, ""), key=lambda delimiter: bare.count(delimiter.encode()))


def column_names(cells: list[str]) -> tuple[str, ...]:
    """Names of the columns, from the cells of a header."""
    names = tuple(cell.strip() for cell in cells)
    named = [name for name in names if name]
    # Not by a search for each: a header may have a hundred thousand names.
    twice = next((name for name, n in Counter(named).items() if n > 1), None)
    if twice is not None:
        raise BadRow("the name occurs twice", twice)
    if not named:
        raise BadRow("no column has a name")
    # Whole numbers are names that pandas gives to columns.
    if not all(map(str.isdecimal, named)) and all(map(_is_float, named)):
        raise BadRow(f"{shown(named[0])} is a number, not the name of a column: the feed has no header")
    return names


class ColumnChoice:
    """Which columns hold readings and which one holds times, found by a look at the first rows where necessary.

    Parameters
    ----------
    format
        Of the feed.
    columns, time, key, time_format
        As in `momostream.feeds.Feed`.

    Attributes
    ----------
    time : str or None
        Column of the times; with ``"auto"`` once it was found by `choose_time`.
    unread_time : str or None
        A column that is called like a time but could not be read as one, where none was found.

    Examples
    --------
    >>> choice = ColumnChoice(Json(), None, "auto", None, None)
    >>> choice.look_at({"at": "2024-03-01", "power": 4.5, "state": "on"})
    >>> choice.is_settled
    True
    >>> choice.choose_time(n_rows=1)
    >>> choice.time, choice.choose_readings(n_rows=1)
    ('at', ('power',))
    """

    def __init__(
        self,
        format: Format,
        columns: Sequence[str] | None,
        time: str | None,
        key: str | None,
        time_format: str | None,
    ) -> None:
        self._format, self._asked_columns, self._key, self._time_format = format, columns, key, time_format
        self._finds_time = time == "auto"
        self.time = None if self._finds_time else time
        self.unread_time: str | None = None
        self._asked = dict.fromkeys([*(columns or ()), *(name for name in (self.time, key) if name is not None)])
        # The first value of each column that is not missing; None before there is one.
        self._first: dict[str, Any] = dict.fromkeys(format.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns: those of the header, else those that were seen."""
        return self._format.columns or tuple(self._first)

    def look_at(self, fields: dict[str, Any]) -> None:
        """Note the values of a row."""
        for name, value in fields.items():
            if self._first.get(name) is None:
                self._first[name] = None if is_missing(value) else value

    @property
    def is_settled(self) -> bool:
        """Whether no further row is needed."""
        looks_at_all = self._asked_columns is None or (self._finds_time and self._time_format is not None)
        unsure = [name for name in self._first if name] if looks_at_all else self._named_like_times()
        return (
            bool(self._first)
            and self._asked.keys() <= self._first.keys()
            and all(self._first[name] is not None for name in unsure)
        )

    def check_asked(self) -> None:
        """Raise `BadRow` for a column that was asked for and does not exist."""
        for name in self._asked:
            if self._first and (not name or name not in self._first):
                raise BadRow(f"does not exist{_did_you_mean(name, self.columns)}", name)

    def leave_out_absent(self) -> None:
        """Do without readings that do not exist, which are missing in every row; not if there is nothing that does."""
        known = [name for name in self._asked_columns or () if name in self.columns]
        if self._asked_columns is not None and any(name in self.columns for name in self._asked):
            self._asked_columns = known
            self._asked = dict.fromkeys([*known, *(name for name in (self.time, self._key) if name is not None)])

    def choose_time(self, n_rows: int) -> None:
        """Find the column of the times, if it was not named; `n_rows` were looked at."""
        if not self._finds_time:
            return
        named, candidates = self._named_like_times(), self._named_like_times()
        if self._time_format is not None:
            # Someone who gives the form of the times has some, whatever their column is called.
            candidates += [name for name in self._first if name not in self._asked]
        self.time = next((name for name in candidates if self._is_time(name, self._first[name])), None)
        if self.time is not None:
            return
        if self._time_format is not None and n_rows:
            raise BadRow(f"no column holds times of the form {self._time_format!r}")
        self.unread_time = named[0] if named and self._first[named[0]] is not None else None

    def choose_readings(self, n_rows: int, n_bad: int = 0) -> tuple[str, ...]:
        """Columns to read: those that were asked for, else those of numbers in the `n_rows` that were looked at."""
        if self._asked_columns is not None:
            return tuple(dict.fromkeys(self._asked_columns))
        others = (name for name in self._first if name and name not in {self.time, self._key})
        readings = tuple(name for name in others if self._is_number(self._first[name]))
        if not readings and n_bad < n_rows:
            comma = [str(value) for value in self._first.values() if re.fullmatch(r"-?\d+,\d+", str(value).strip())]
            hint = f"; does {shown(comma[0])} have a decimal comma?" if comma else ""
            rows = f"the first {n_rows} rows" if n_rows > 1 else "the first row"
            raise BadRow(f"no column holds numbers in {rows}{hint}")
        return readings

    def _named_like_times(self) -> list[str]:
        """Columns that were not asked for and have the name of a time, best first."""
        if not self._finds_time:
            return []
        by_letters = {letters_of(name): name for name in self._first if name not in self._asked}
        return [by_letters[letters] for letters in TIME_NAMES if letters in by_letters]

    def _is_number(self, value: Any) -> bool:
        try:
            # A yes or no can be read as a number, but is not meant as one.
            return type(value) is not bool and self._format.number(value) is not None
        except BadRow:
            return False

    def _is_time(self, name: str, value: Any) -> bool:
        try:
            time = read_time(self._format, value, name, self._time_format)
        except BadRow:
            return False
        return isinstance(time, datetime) or letters_of(name) in NUMERIC_TIME_NAMES or time >= LEAST_EPOCH


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def letters_of(name: str) -> str:
    """Letters and digits of a name, in lower case, by which names of times are compared."""
    return re.sub(r"[\W_]", "", name.lower())


def _did_you_mean(name: str, columns: Iterable[str]) -> str:
    by_lower = {column.lower(): column for column in columns if column}
    close = [shown(by_lower[lower]) for lower in get_close_matches(name.lower(), by_lower)]
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; the columns are {shown(', '.join(by_lower.values()), 200)}"
