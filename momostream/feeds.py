"""Sensor feeds from files and standard input: CSV or JSON lines, plain or gzip, row by row.

A feed holds a few rows in memory at a time, says which row and column it could not read, and tells with every row the
byte where it ends, so that a later reading can go on from there.

Lines are read as bytes and decoded one by one: offsets are exact, and a wrong byte spoils no line but its own.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import re
import stat
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from difflib import get_close_matches
from itertools import chain, islice
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, Self

__all__ = ["Feed", "FeedError", "Row"]

# Bytes of a line, and lines of a row whose quoted cells hold newlines: what a quote that nobody closes may swallow.
MAX_LINE, MAX_ROW_LINES = 1 << 20, 100
# Rows that are looked at to tell which columns hold numbers, and which one holds times.
LOOK_AHEAD = 100

MISSING = {"", "na", "nan", "null", "none", "n/a", "-"}
# Letters of the names that a column of times may have, best first.
TIME_NAMES = (
    *("timestamp", "datetime", "dateandtime", "time", "timestamputc", "datetimeutc", "timeutc"),
    *("ts", "at", "date"),
)
# "AT" is ambient temperature elsewhere: under other names a number is a time only if it may be seconds since 1970.
NUMERIC_TIME_NAMES, LEAST_EPOCH = {"timestamp", "time"}, 1e8

FORMATS = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
DELIMITERS = ",;\t|"

_BOM = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
_BUFFER_SIZE = 1 << 16
# What reading raises when a disk fails, and when compressed data are cut off or altered.
_BROKEN = (OSError, EOFError, zlib.error)
# Kin of ISO 8601 that `fromisoformat` refuses. The year comes first, so that nobody takes a month for a day.
_KIN_OF_ISO = re.compile(
    r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})"
    r"(?:[T ]\s*(\d{1,2})(:\d\d(?::\d\d(?:[.,]\d+)?)?)\s*(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII | re.IGNORECASE,
)

Time = datetime | float


class FeedError(ValueError):
    """A feed cannot be read. The message is one line: the feed, the row, the column, and what is wrong there."""


class Row(NamedTuple):
    """One row of a feed."""

    number: int  # of the data row, from 1; bad rows that were skipped count, blank lines do not
    offset: int  # byte behind this row in the uncompressed feed, where reading goes on
    time: Time | None
    values: dict[str, float]  # missing readings are left out


class _BadRow(Exception):  # noqa: N818 - it is raised, but often only counted
    """What is wrong with a row, and in which column."""

    def __init__(self, what: str, column: str | None = None) -> None:
        super().__init__(what)
        self.column = column


# Number, offset, and the cells of a row (a list in CSV, a dict in JSON lines) or what is wrong with them.
_Record = tuple[int, int, Any]


class Feed:
    r"""Rows of a CSV or JSON-lines feed.

    Iterating goes on where the last iteration stopped, as with files. Lines of more than a megabyte and quoted cells of
    more than a hundred lines are bad rows: no mistake in a feed takes more of it along.

    Parameters
    ----------
    source : path or binary file
        ``"-"`` is standard input. Gzip is recognised by its first bytes, whatever the file is called. A file that is
        handed over open is read from where it stands, and left open.
    columns : sequence of str, optional
        Columns to read. None: those whose first value within the first 100 rows is a number. A live feed then starts
        when every column has had a value, so name its columns.
    time : str, optional
        Column of the times; ``"auto"``: a column called time, timestamp, date or the like that is not among `columns`,
        if its first value reads as a time; None: there is none.
    format : {"csv", "jsonl"}, optional
        None: by the extension of the file, else by the first character.
    bad_rows : {"stop", "skip"}
        Whether a row that cannot be read raises `FeedError`, or is counted and left out.
    on_bad : callable, optional
        Called with the message of every row that is skipped.
    encoding : str
        One that has ASCII's bytes for ASCII's characters, as UTF-8 and Latin-1 have.
    delimiter : str, optional
        None: a comma, semicolon, tab or bar, as the header has it.
    decimal : {".", ","}
        Decimal mark of CSV. Numbers with marks between thousands are bad values.
    time_format : str, optional
        As in `datetime.datetime.strptime`. None: ISO 8601 and its kin with the year first, or numbers of any unit.

    Attributes
    ----------
    name : str
        Of the feed in messages.
    columns : tuple of str
        All columns: the header of CSV, the keys of the first object of JSON lines (of the first few, where one does
        not tell which columns to read).
    readings : tuple of str
        Columns that are read.
    time : str or None
        Column of the times.
    unread_time : str or None
        A column that is called like a time but could not be read as one, where none was found.
    n_bad : int
        Rows skipped so far.
    size : int or None
        Bytes of the file on disk.

    Examples
    --------
    >>> text = b"time,power,state\n2024-03-01 00:00,4.5,on\n2024-03-01 00:10,,on\n2024-03-01 00:20,5.1x,off\n"
    >>> with Feed(io.BytesIO(text), bad_rows="skip", on_bad=print) as feed:
    ...     for row in feed:
    ...         print(row.number, row.offset, f"{row.time:%H:%M}", row.values)
    1 41 00:00 {'power': 4.5}
    2 62 00:10 {}
    feed: row 3, column 'power': '5.1x' is not a number
    >>> feed.columns, feed.readings, feed.time, feed.n_bad
    (('time', 'power', 'state'), ('power',), 'time', 1)

    Going on behind a row of an earlier reading:

    >>> with Feed(io.BytesIO(b'{"power": 4.5}\n{"power": 4.7}\n')) as feed:
    ...     feed.seek(15, 1)
    ...     print(*feed)
    Row(number=2, offset=30, time=None, values={'power': 4.7})
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        columns: Sequence[str] | None = None,
        time: str | None = "auto",
        *,
        format: Literal["csv", "jsonl"] | None = None,
        bad_rows: Literal["stop", "skip"] = "stop",
        on_bad: Callable[[str], object] | None = None,
        encoding: str = "utf-8",
        delimiter: str | None = None,
        decimal: Literal[".", ","] = ".",
        time_format: str | None = None,
    ) -> None:
        _check_options(columns, format, bad_rows, encoding, delimiter, decimal)
        self.n_bad = 0
        self._skips = bad_rows == "skip"
        self._on_bad = on_bad
        self._encoding = encoding
        self._time_format = time_format
        self._number = 0
        # Rows that were looked at and not given out yet.
        self._ahead: deque[_Record] = deque()
        # Lines of the row at hand behind its first one.
        self._continuation: list[bytes] = []
        self._records = self._read_records()
        self._owned: BinaryIO | None = None
        try:
            self._open(source)
            self._read_start(format, delimiter, decimal)
            self._choose(columns, time)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Row]:
        while True:
            record = self._ahead.popleft() if self._ahead else next(self._records, None)
            if record is None:
                return
            number, self._reached, cells = record
            try:
                if isinstance(cells, _BadRow):
                    raise cells
                time = None if self.time is None else self._read_time(self._format.time(cells))
                row = Row(number, self._reached, time, self._format.values(cells))
            except _BadRow as bad:
                self._reject(number, bad)
            else:
                yield row

    @property
    def position(self) -> int:
        """Bytes read of the file on disk, compressed as they are: `size` when all is read."""
        return self._source.position

    def seek(self, offset: int, number: int) -> None:
        """Go on behind a row of an earlier reading of the same feed.

        Compressed feeds are decompressed up to there, and what cannot seek, such as a pipe, is read up to there.

        Parameters
        ----------
        offset, number : int
            Those of that row. Both 0: the first row comes next.

        Raises
        ------
        FeedError
            When the row does not end there any more, or when a pipe would have to go back.
        """
        offset = max(offset, self._start)
        try:
            if self._source.seekable():
                self._ahead.clear()
                self._lines.seek(offset)
            elif offset < self._reached:
                raise _BadRow(f"cannot go back from byte {self._reached} to byte {offset}")
            else:
                while self._ahead and self._ahead[0][1] <= offset:
                    self._reached = self._ahead.popleft()[1]
                if not self._ahead:
                    self._lines.drop_to(offset)
                elif self._reached != offset:
                    raise _BadRow(f"does not end at byte {offset}")
        except (_BadRow, *_BROKEN) as error:
            raise self._error(f"row {number}", error) from error
        self._reached = offset
        if not self._ahead:
            self._number = number
            self._records = self._read_records()

    @property
    def is_replayable(self) -> bool:
        """Whether rows can be read again, as from files; what came through a pipe is gone."""
        return self._source.seekable()

    def is_cut_off(self, row: Row) -> bool:
        """Whether a row is the last one and has no newline: someone may still be writing it."""
        return row.offset == self._lines.cut_at

    def count_from(self, number: int) -> None:
        """Number the rows that come, none of which may have been read yet, behind this one."""
        self._ahead = deque((n + number, offset, cells) for n, offset, cells in self._ahead)
        self._number += number

    def reject(self, number: int, reason: str) -> None:
        """Treat a row that could be read, but not used, as a bad row."""
        self._reject(number, _BadRow(reason))

    def close(self) -> None:
        """Close the file, unless it was handed over open."""
        if self._owned is not None:
            self._owned.close()

    def _open(self, source: str | os.PathLike[str] | BinaryIO) -> None:
        self.size: int | None = None
        stream: Any = source
        try:
            if source == "-":
                self.name = "standard input"
                stream = sys.stdin.buffer
                self.size = _size(stream)
            elif isinstance(source, str | os.PathLike):
                self.name = _printable(os.fspath(source))
                # Without a buffer: that is above the count of bytes.
                self._owned = stream = open(source, "rb", buffering=0)
                self.size = _size(stream)
            else:
                # A file that was opened by a number has it as its name.
                name = getattr(source, "name", None)
                self.name = _printable(name) if isinstance(name, str) else "feed"
            packed = _buffered(stream)
            self._source = packed.raw
            is_gzip = packed.peek(2).startswith(_GZIP_MAGIC)
        except _BROKEN as error:
            raise self._error(None, error) from error
        self._lines = _Lines(_buffered(gzip.GzipFile(fileobj=packed)) if is_gzip else packed)

    def _read_start(self, format: str | None, delimiter: str | None, decimal: str) -> None:
        """Tell the format, and read the header of CSV."""
        extension = os.path.splitext(self.name.lower().removesuffix(".gz"))[1]
        try:
            line = self._lines.take().removeprefix(_BOM)
            while _is_blank(line):
                line = self._lines.take()
            if not line:
                raise FeedError(f"{self.name}: is empty")
            self._lines.hand_back([line])
            format = format or FORMATS.get(extension) or ("jsonl" if line.lstrip().startswith(b"{") else "csv")
            if format == "jsonl":
                self._format: _Format = _Json()
            else:
                if delimiter is None:
                    delimiter = "\t" if extension == ".tsv" else _find_delimiter(line, decimal)
                self._format = _Csv(delimiter, decimal)
                self._format.columns = _column_names(self._read_record())
        except (_BadRow, *_BROKEN) as error:
            raise self._error("header", error) from error
        self._start = self._reached = self._lines.offset

    def _choose(self, columns: Sequence[str] | None, time: str | None) -> None:
        """Settle which columns hold readings and which one times, by a look at the first rows where it takes one."""
        self.time = None if time == "auto" else time
        self.unread_time: str | None = None
        asked = dict.fromkeys([*(columns or ()), *([] if self.time is None else [self.time])])
        # The first value of each column that is not missing; None before there is one.
        first: dict[str, Any] = dict.fromkeys(self._format.columns)

        def candidates() -> list[str]:
            return _time_candidates(name for name in first if name not in asked) if time == "auto" else []

        def is_settled() -> bool:
            look_at_all = columns is None or (time == "auto" and self._time_format is not None)
            unsure = [name for name in first if name] if look_at_all else candidates()
            return bool(first) and asked.keys() <= first.keys() and all(first[name] is not None for name in unsure)

        looks = self._look_ahead()
        while not is_settled() and (fields := next(looks, None)) is not None:
            for name, value in fields.items():
                if first.get(name) is None:
                    first[name] = None if _is_missing(value) else value

        self.columns = self._format.columns or tuple(first)
        for name in asked if first else ():
            if not name or name not in first:
                raise self._error(None, _BadRow(f"does not exist{_did_you_mean(name, self.columns)}", name))
        bad = [record for record in self._ahead if isinstance(record[2], _BadRow)]
        if len(bad) == LOOK_AHEAD:
            raise self._error(f"row {bad[0][0]}", _BadRow(f"{bad[0][2]}, nor can any row up to {bad[-1][0]} be read"))
        if time == "auto":
            named = candidates()
            # Who says what times look like, says that there are some, whatever their column is called.
            looked_at = named if self._time_format is None else [*named, *(name for name in first if name not in asked)]
            self.time = next((name for name in looked_at if self._is_time(name, first[name])), None)
            if self.time is None and self._time_format is not None and self._ahead:
                raise self._error(None, _BadRow(f"no column holds times of the form {self._time_format!r}"))
            self.unread_time = named[0] if named and self.time is None and first[named[0]] is not None else None
        if columns is None:
            columns = [name for name, value in first.items() if name and name != self.time and self._is_number(value)]
            if not columns and len(bad) < len(self._ahead):
                comma = [str(value) for value in first.values() if re.fullmatch(r"-?\d+,\d+", str(value).strip())]
                hint = f"; has {_shown(comma[0])} a decimal comma?" if comma else ""
                rows = f"the first {len(self._ahead)} rows" if len(self._ahead) > 1 else "the first row"
                raise self._error(None, _BadRow(f"no column holds numbers in {rows}{hint}"))
        self.readings = tuple(dict.fromkeys(columns))
        self._format.choose(self.readings, self.time)

    def _look_ahead(self) -> Iterator[dict[str, Any]]:
        """Fields of the first rows, which stay in line to be read."""
        for record in islice(self._records, LOOK_AHEAD):
            self._ahead.append(record)
            if not isinstance(record[2], _BadRow):
                yield self._format.fields(record[2])
            elif not self._skips:
                return

    def _is_number(self, value: Any) -> bool:
        try:
            # A yes or no can be read as a number, but is not meant as one.
            return type(value) is not bool and self._format.number(value) is not None
        except _BadRow:
            return False

    def _is_time(self, name: str, value: Any) -> bool:
        try:
            time = self._read_time(value)
        except _BadRow:
            return False
        return isinstance(time, datetime) or _letters(name) in NUMERIC_TIME_NAMES or time >= LEAST_EPOCH

    def _read_time(self, value: Any) -> Time:
        text = str(value)
        if self._time_format is None and text[4:5] == "-":
            # The common form of most feeds first.
            try:
                return datetime.fromisoformat(text)
            except ValueError:
                pass
        if _is_missing(value):
            raise _BadRow("the time is missing", self.time)
        if self._time_format is not None:
            with suppress(ValueError):
                return datetime.strptime(text.strip(), self._time_format)
            raise _BadRow(f"{_shown(value)} is not a time of the form {self._time_format!r}", self.time)
        # Numbers before other forms: to `fromisoformat`, 20180101.05 is five o'clock.
        with suppress(_BadRow):
            number = self._format.number(value)
            if number is not None:
                return number
        with suppress(ValueError):
            return _parse_date(text.strip())
        raise _BadRow(f"{_shown(value)} is not a time (forms of its own need a time_format)", self.time)

    def _read_records(self) -> Iterator[_Record]:
        """All rows from here on, good or bad."""
        while True:
            try:
                cells: Any = self._read_record()
            except _BadRow as bad:
                cells = bad
            except _BROKEN as error:
                raise self._error(f"row {self._number + 1}", error) from error
            if cells is None:
                return
            self._number += 1
            yield self._number, self._lines.offset, cells

    def _read_record(self) -> Any:
        """Cells of the next row, None at the end."""
        line = self._lines.take()
        while line.isspace() and _is_blank(line):
            line = self._lines.take()
        if not line:
            return None
        self._continuation.clear()
        try:
            return self._format.parse(self._decode(line), self._following)
        except _BadRow:
            # A stray quote took rows that have nothing to do with it.
            self._lines.hand_back(self._continuation)
            raise

    def _following(self) -> Iterator[str]:
        """Lines behind the first one of a row, while a quoted cell is open."""
        room = MAX_LINE
        while line := self._lines.take():
            self._continuation.append(line)
            room -= len(line)
            if room < 0 or len(self._continuation) == MAX_ROW_LINES:
                raise _BadRow("a quoted cell is not closed")
            yield self._decode(line)

    def _decode(self, line: bytes) -> str:
        if len(line) > MAX_LINE:
            self._lines.drop_rest_of(line)
            raise _BadRow(f"the line is longer than {MAX_LINE} bytes")
        if b"\0" in line:
            raise _BadRow(f"byte {self._lines.offset - len(line) + line.index(0)} is NUL")
        try:
            return line.decode(self._encoding)
        except UnicodeDecodeError as error:
            place = self._lines.offset - len(line) + error.start
            column = self._format.column_at(line[: error.start].decode(self._encoding))
            raise _BadRow(f"byte {place}, {line[error.start]:#04x}, is not {self._encoding}", column) from None

    def _reject(self, number: int, bad: _BadRow) -> None:
        error = self._error(f"row {number}", bad)
        if not self._skips:
            raise error from None
        self.n_bad += 1
        if self._on_bad is not None:
            self._on_bad(str(error))

    def _error(self, place: str | None, error: Exception) -> FeedError:
        column = getattr(error, "column", None)
        places = [place, None if column is None else f"column {_shown(column)}"]
        return FeedError(": ".join(filter(None, [self.name, ", ".join(filter(None, places)), _reason(error)])))


class _Source(io.RawIOBase):
    """Bytes of a stream as they come in, counted."""

    def __init__(self, stream: BinaryIO) -> None:
        self.position = 0
        self._stream = stream
        # `read` of a pipe would wait for more than the next row, and that of gzip fail without the rows before a fault.
        self._read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        self._base = stream.tell() if stream.seekable() else 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._stream.seekable()

    def readinto(self, buffer: Any) -> int:
        chunk = self._read(len(buffer))
        # The first two bytes come together: they tell whether this is gzip.
        while self.position == 0 and len(chunk) == 1 and (more := self._read(1)):
            chunk += more
        buffer[: len(chunk)] = chunk
        self.position += len(chunk)
        return len(chunk)

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET:
            raise io.UnsupportedOperation("a feed is measured from its start")
        self.position = self._stream.seek(self._base + offset) - self._base
        return self.position


def _buffered(stream: Any) -> io.BufferedReader[_Source]:
    return io.BufferedReader(_Source(stream), _BUFFER_SIZE)


class _Lines:
    """Lines of a binary stream, and the byte behind the last one that was taken."""

    def __init__(self, stream: io.BufferedReader[_Source]) -> None:
        self.offset = 0
        # Behind the last line, if that has no newline.
        self.cut_at = -1
        self._stream = stream
        # Lines that were handed back, the next one last. The start of a line that is too long is behind all others,
        # so that its rest comes next from the stream.
        self._waiting: list[bytes] = []

    def take(self) -> bytes:
        """The next line with its newline, empty at the end. Of a line that is too long, MAX_LINE + 1 bytes."""
        line = self._waiting.pop() if self._waiting else self._stream.readline(MAX_LINE + 1)
        self.offset += len(line)
        if line and not line.endswith(b"\n"):
            self.cut_at = self.offset
        return line

    def hand_back(self, lines: list[bytes]) -> None:
        """Undo the last calls of `take`."""
        self._waiting.extend(reversed(lines))
        self.offset -= sum(map(len, lines))

    def drop_rest_of(self, line: bytes) -> None:
        """Pass over what is left of a line that was too long."""
        while line and not line.endswith(b"\n"):
            line = self.take()

    def seek(self, offset: int) -> None:
        """Go to the end of a row."""
        self._waiting.clear()
        # One byte before: it shows whether a row ends here.
        self.offset = self._stream.seek(max(offset - 1, 0))
        self.drop_to(offset)

    def drop_to(self, offset: int) -> None:
        """Pass over all bytes up to the end of a row."""
        last = b"\n"
        while self.offset < offset:
            chunk = self._waiting.pop() if self._waiting else self._stream.read(min(offset - self.offset, _BUFFER_SIZE))
            if not chunk:
                raise _BadRow(f"the feed ends before byte {offset}, where this row ended")
            self.offset += len(chunk)
            last = chunk[-1:]
        # The last row of a file may have had no newline when it was read.
        if self.offset > offset or (last != b"\n" and self._stream.peek(1)[:1] not in (b"", b"\r", b"\n")):
            raise _BadRow(f"does not end at byte {offset}")


class _Format(Protocol):
    """What a feed asks of its format. Cells are what `parse` returns."""

    columns: tuple[str, ...]  # empty where they are not known before the first row

    def parse(self, text: str, following: Callable[[], Iterator[str]]) -> Any: ...

    def column_at(self, text: str) -> str | None: ...  # behind so much of a row; None where that cannot be told

    def choose(self, readings: Sequence[str], time: str | None) -> None: ...

    def fields(self, cells: Any) -> dict[str, Any]: ...

    def number(self, value: Any) -> float | None: ...

    def time(self, cells: Any) -> Any: ...

    def values(self, cells: Any) -> dict[str, float]: ...


class _Csv:
    """Rows of cells under a header."""

    def __init__(self, delimiter: str, decimal: str) -> None:
        self.columns: tuple[str, ...] = ()
        self._delimiter = delimiter
        self._decimal = decimal

    def parse(self, text: str, following: Callable[[], Iterator[str]]) -> list[str]:
        if '"' in text:
            try:
                cells = next(csv.reader(chain([text], following()), delimiter=self._delimiter, strict=True))
            except csv.Error as error:
                at_end = "end of data" in str(error)
                raise _BadRow("a quoted cell is not closed" if at_end else f"is not CSV: {error}") from None
        else:
            text = text.rstrip("\r\n")
            if "\r" in text:
                raise _BadRow("a carriage return stands inside the row")
            cells = text.split(self._delimiter)
        if self.columns and len(cells) != len(self.columns):
            found = f"{len(cells)} cells instead of {len(self.columns)}"
            if len(cells) > len(self.columns):
                raise _BadRow(found)
            raise _BadRow(f"there are {found}", self.columns[len(cells)])
        return cells

    def column_at(self, text: str) -> str | None:
        n = text.count(self._delimiter)
        return self.columns[n] if '"' not in text and n < len(self.columns) else None

    def choose(self, readings: Sequence[str], time: str | None) -> None:
        self._readings = [(name, self.columns.index(name)) for name in readings]
        self._time_index = 0 if time is None else self.columns.index(time)

    def fields(self, cells: list[str]) -> dict[str, Any]:
        return dict(zip(self.columns, cells, strict=True))

    def number(self, value: str) -> float | None:
        if _is_missing(value):
            return None
        # Python reads 1_000, and 1.000 with a decimal comma is a thousand elsewhere: both are mistakes here.
        if "_" not in value and (self._decimal == "." or "." not in value):
            try:
                return _finite(float(value.replace(self._decimal, ".")), value)
            except ValueError:
                pass
        raise _BadRow(f"{_shown(value)} is not a number")

    def time(self, cells: list[str]) -> str:
        return cells[self._time_index]

    def values(self, cells: list[str]) -> dict[str, float]:
        # Most rows hold plain numbers only: one pass finds that out, and leaves all others to a closer look.
        if self._decimal == "." and "_" not in "".join(cells):
            try:
                values = {name: float(cells[index]) for name, index in self._readings}
            except ValueError:
                pass
            else:
                if math.isfinite(sum(values.values())):
                    return values
        return _numbers(((name, cells[index]) for name, index in self._readings), self.number)


class _Json:
    """One object per line."""

    columns: tuple[str, ...] = ()

    def parse(self, text: str, following: Callable[[], Iterator[str]]) -> dict[str, Any]:
        try:
            cells = json.loads(text)
        except json.JSONDecodeError as error:
            reason = error.msg.removesuffix(" at")
            raise _BadRow(f"is not JSON: {reason} at character {error.pos + 1}") from None
        except (ValueError, RecursionError) as error:
            raise _BadRow(f"is not JSON: {error}") from None
        if not isinstance(cells, dict):
            raise _BadRow(f"{_shown(cells)} is not an object")
        return _flat(cells) if any(type(value) is dict for value in cells.values()) else cells

    def column_at(self, text: str) -> str | None:
        return None

    def choose(self, readings: Sequence[str], time: str | None) -> None:
        self._readings = readings
        self._time_name = time or ""

    def fields(self, cells: dict[str, Any]) -> dict[str, Any]:
        return cells

    def number(self, value: Any) -> float | None:
        if _is_missing(value):
            return None
        if isinstance(value, str):
            raise _BadRow(f"{_shown(value)} is text, not a number")
        if not isinstance(value, int | float):
            raise _BadRow(f"{_shown(value)} is not a number")
        try:
            return _finite(float(value), value)
        except OverflowError:
            return _finite(math.inf, value)

    def time(self, cells: dict[str, Any]) -> Any:
        return cells.get(self._time_name)

    def values(self, cells: dict[str, Any]) -> dict[str, float]:
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
        except _BadRow as bad:
            bad.column = name
            raise
        if number is not None:
            numbers[name] = number
    return numbers


def _finite(number: float, value: Any) -> float | None:
    """The number, None for NaN of any sign."""
    if math.isinf(number):
        raise _BadRow(f"{_shown(value)} is not finite")
    return None if math.isnan(number) else number


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in MISSING
    return value is None or (isinstance(value, float) and math.isnan(value))


def _parse_date(text: str) -> datetime:
    if parts := _KIN_OF_ISO.fullmatch(text):
        year, month, day, hour, rest, zone = parts.groups(default="")
        text = f"{year}-{month:0>2}-{day:0>2}T{hour:0>2}{rest or ':00'}{'Z' if zone.isalpha() else zone}"
    return datetime.fromisoformat(text)


def _column_names(cells: list[str]) -> tuple[str, ...]:
    names = tuple(cell.strip() for cell in cells)
    named = [name for name in names if name]
    for name in named:
        if named.count(name) > 1:
            raise _BadRow("the name comes twice", name)
    if not named:
        raise _BadRow("no column has a name")
    # Whole numbers are names that pandas gives to columns.
    if not all(map(str.isdecimal, named)) and all(map(_is_float, named)):
        raise _BadRow(f"{_shown(named[0])} is a number, not the name of a column: the feed has no header")
    return names


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _find_delimiter(header: bytes, decimal: str) -> str:
    bare = re.sub(rb'"[^"]*("|$)', b"", header)
    return max(DELIMITERS.replace(decimal, ""), key=lambda delimiter: bare.count(delimiter.encode()))


def _time_candidates(names: Iterable[str]) -> list[str]:
    by_letters = {_letters(name): name for name in names}
    return [by_letters[letters] for letters in TIME_NAMES if letters in by_letters]


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _did_you_mean(name: str, columns: Sequence[str]) -> str:
    by_lower = {column.lower(): column for column in columns if column}
    close = [_shown(by_lower[lower]) for lower in get_close_matches(name.lower(), by_lower)]
    return (
        f"; did you mean {' or '.join(close)}?" if close else f"; there are {_shown(', '.join(by_lower.values()), 200)}"
    )


def _is_blank(line: bytes) -> bool:
    # A line of tabs is a row of empty cells.
    return line != b"" and not line.strip(b" \r\n")


def _size(stream: BinaryIO) -> int | None:
    # What has no number has no size, and neither has a pipe.
    with suppress(OSError):
        status = os.fstat(stream.fileno())
        return status.st_size if stat.S_ISREG(status.st_mode) else None
    return None


def _reason(error: Exception) -> str:
    match error:
        case IsADirectoryError():
            return "is a folder"
        case FileNotFoundError():
            return "does not exist"
        case PermissionError():
            return "must not be read: no permission"
        case EOFError():
            return "the compressed data are cut off"
        case zlib.error() | gzip.BadGzipFile():
            return "the compressed data are damaged"
        case OSError():
            return f"cannot be read: {error.strerror or error}"
    return str(error)


def _shown(value: Any, width: int = 40) -> str:
    """A value in a message: on one line, and short."""
    text = value if isinstance(value, str) else repr(value)
    if len(text) > width:
        text = text[: width - 3] + "..."
    return repr(text) if isinstance(value, str) else text


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)[1:-1]


def _check_options(
    columns: Sequence[str] | None,
    format: str | None,
    bad_rows: str,
    encoding: str,
    delimiter: str | None,
    decimal: str,
) -> None:
    if isinstance(columns, str):
        raise TypeError(f"columns must be a sequence of names, not the text {columns!r}")
    for name, value, allowed in [
        ("format", format, (None, "csv", "jsonl")),
        ("bad_rows", bad_rows, ("stop", "skip")),
        ("decimal", decimal, (".", ",")),
    ]:
        if value not in allowed:
            raise ValueError(f"{name} must be one of {allowed}, not {value!r}")
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ValueError(f"delimiter must be one character other than quotes and newlines, not {delimiter!r}")
    ascii_ = b'0,"\n'
    try:
        suits = ascii_.decode(encoding) == ascii_.decode()
    except (LookupError, UnicodeError):
        suits = False
    if not suits:
        raise ValueError(f"encoding must be known and have ASCII's bytes for ASCII's characters, not {encoding!r}")
