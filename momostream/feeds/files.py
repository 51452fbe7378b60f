"""Sensor feeds from files, folders and standard input: CSV or JSON lines, plain or gzip, row by row.

`Source` is what a run asks of a feed: rows with a place to go on from. `Feed` is a file or a pipe, `Folder` all files
of a folder; those behind a broker are in `momostream.feeds.brokers`.

A feed holds a few rows in memory at a time, says which row and column it could not read, and tells with every row the
byte where it ends, so that a later reading can go on from there.

Lines are read as bytes and decoded one by one: offsets are exact, and a wrong byte spoils no line but its own.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import select
import stat
import sys
import time as clock
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, Self

from momostream.feeds.rows import (
    BadRow,
    Csv,
    Format,
    Json,
    Refused,
    Row,
    RowReader,
    is_missing,
    read_time,
    shown,
)

__all__ = ["Event", "Feed", "FeedError", "Folder", "Refused", "Row", "Source", "refusal"]

# Bytes of a line, and lines of a row whose quoted cells hold newlines: what a quote that nobody closes may swallow.
MAX_LINE, MAX_ROW_LINES = 1 << 20, 100
# Rows that are looked at to tell which columns hold numbers, and which one holds times.
LOOK_AHEAD = 100

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
# Bytes by which a feed is known again, and seconds between looks at a file that may have grown.
_TAIL, _PAUSE = 256, 0.2
# Of a row that is refused, so much is kept.
_LONGEST_TEXT = 4096

#: A row, a row that cannot be used, or None: nothing has come for a while.
Event = Row | Refused | None


class FeedError(ValueError):
    """A feed cannot be read. The message is one line: the feed, the row, the column, and what is wrong there."""


class Source(Protocol):
    """Where rows come from: what a run asks of a feed."""

    name: str

    @property
    def is_replayable(self) -> bool:
        """Whether rows can be had again; if not, those that come are taken as the next ones."""

    @property
    def is_live(self) -> bool:
        """Whether rows come as they happen, so that none should wait for the next."""

    def events(self) -> Iterator[Event]:
        """Rows in order, rows that cannot be used, and None while there are none."""

    @property
    def position(self) -> dict[str, Any]:
        """Where the feed stands behind the last event, as plain data."""

    def seek(self, position: Mapping[str, Any]) -> None:
        """Go on behind a position of an earlier reading."""

    def acknowledge(self) -> None:
        """All events up to the last `position` that was asked for are on the disk, and need not be sent again."""

    def unfinished(self, event: Row | Refused) -> dict[str, Any] | None:
        """Where the feed stood before the last event, if someone may still be writing it; else None."""

    def close(self) -> None:
        """Let go of everything."""


class _Place(NamedTuple):
    """Behind the last row: byte and number; where that row began, and a checksum of its first line."""

    offset: int
    number: int
    start: int
    crc: int | None

    def behind(self, record: _Record) -> _Place:
        return _Place(record[1], record[0], self.offset, zlib.crc32(record[3]))


# Number, offset, the cells of a row (a list in CSV, a dict in JSON lines) or what is wrong with them, and its bytes.
_Record = tuple[int, int, Any, bytes]


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
    key : str, optional
        Column that tells which model a row is for; a row without it is a bad row.
    follow : bool
        Wait for more at the end of the file, as ``tail -f`` does.

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
    ...     feed.go_behind(15, 1)
    ...     print(*feed)
    Row(number=2, offset=30, time=None, values={'power': 4.7}, key=None)
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
        key: str | None = None,
        follow: bool = False,
    ) -> None:
        _check_options(columns, format, bad_rows, encoding, delimiter, decimal)
        self.key, self.follow = key, follow
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
        self._place = self._before = _Place(0, 0, 0, None)
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
        for event in self.events():
            if isinstance(event, Refused):
                self._reject(event)
            elif event is not None:
                yield event

    def events(self) -> Iterator[Event]:
        """Rows, rows that cannot be read, and None where a pipe or a file that is followed has no more for now."""
        while True:
            if self._ahead:
                record = self._ahead.popleft()
            else:
                if self._lines.is_dry():
                    yield None
                    while self._lines.is_dry(_PAUSE):
                        yield None
                following = next(self._records, None)
                if following is None:
                    if not self.follow:
                        return
                    yield None
                    self._wait_for_more()
                    continue
                record = following
            self._before, self._place = self._place, self._place.behind(record)
            number, offset, cells, _ = record
            try:
                if isinstance(cells, BadRow):
                    raise cells
                event: Event = self._reader.row(number, offset, cells)
            except BadRow as bad:
                event = self._refused(record, bad)
            yield event

    def _refused(self, record: _Record, bad: BadRow) -> Refused:
        number, offset, cells, raw = record
        column = "" if bad.column is None else f"column {shown(bad.column)}: "
        key = None if isinstance(cells, BadRow) else self._reader.key_of(cells)
        text = raw[:_LONGEST_TEXT].decode(self._encoding, errors="replace").rstrip()
        return Refused(number, offset, key, f"{column}{bad}", text)

    def _wait_for_more(self) -> None:
        """At the end of a file that is followed."""
        clock.sleep(_PAUSE)
        size = _size(self._owned) if self._owned is not None else None
        if size is not None and size < self._source.position:
            raise FeedError(
                f"{self.name}: was cut or written anew while it was followed: files that rotate need a folder"
            )
        with suppress(OSError):
            if self._owned is not None and not os.path.samestat(os.stat(self.name), os.fstat(self._owned.fileno())):
                raise FeedError(f"{self.name}: was replaced while it was followed: files that rotate need a folder")
        self._records = self._read_records()

    @property
    def n_read(self) -> int:
        """Bytes read of the file on disk, compressed as they are: `size` when all is read."""
        return self._source.position

    @property
    def position(self) -> dict[str, Any]:
        """Where the feed stands behind the last event; the last row is known again by where it began and its bytes."""
        return self._as_position(self._place)

    def seek(self, position: Mapping[str, Any]) -> None:
        """Go on behind a `position` of an earlier reading of the same feed.

        Compressed feeds are decompressed up to there. What cannot be read again, such as a pipe, goes on with the rows
        that come, and counts them from there.

        Raises
        ------
        FeedError
            When this is not the feed that was read before.
        """
        place = _Place(*(position[name] for name in _Place._fields))
        if not self.is_replayable:
            self._ahead = deque((n + place.number, *rest) for n, *rest in self._ahead)
            self._number += place.number
            self._place = self._place._replace(number=place.number)
            return
        if not position["replayable"]:
            raise FeedError(f"{self.name}: the rows so far came through a pipe, and cannot be found again in a file")
        if place.crc is None:
            self.go_behind(0, 0)
            return
        self.go_behind(place.start, place.number - 1)
        record = next(self._records, None)
        found = None if record is None else self._place.behind(record)
        if found is None or found.crc != place.crc or found.offset < place.offset:
            raise FeedError(f"{self.name}: is not the feed that was read before: row {place.number} is another one")
        if found.offset > place.offset:
            # A quoted cell that was open at the end of the file, and refused, has been closed since.
            self.go_behind(place.offset, place.number)
        self._place = place

    def acknowledge(self) -> None:
        """Nothing to do: files stay as they are."""

    def go_behind(self, offset: int, number: int) -> None:
        """Go on behind a row of an earlier reading of the same feed, given its offset and number.

        Both 0: the first row comes next. Compressed feeds are decompressed up to there, and what cannot seek, such as a
        pipe, is read up to there.

        Raises
        ------
        FeedError
            When the row does not end there any more, or when a pipe would have to go back.
        """
        offset = max(offset, self._start)
        try:
            if self._source.seekable():
                self._ahead.clear()
                self._lines.seek(offset, is_start=offset == self._start)
            elif offset < self._place.offset:
                raise BadRow(f"cannot go back from byte {self._place.offset} to byte {offset}")
            else:
                while self._ahead and self._ahead[0][1] <= offset:
                    self._place = self._place.behind(self._ahead.popleft())
                if not self._ahead:
                    self._lines.drop_to(offset)
                elif self._place.offset != offset:
                    raise BadRow(f"does not end at byte {offset}")
        except (BadRow, *_BROKEN) as error:
            raise self._error(f"row {number}", error) from error
        self._place = _Place(offset, number, offset, None)
        if not self._ahead:
            self._number = number
            self._records = self._read_records()

    @property
    def is_replayable(self) -> bool:
        """Whether rows can be read again, as from files; what came through a pipe is gone."""
        return self._source.seekable()

    @property
    def is_live(self) -> bool:
        """Whether rows come as they happen: through a pipe, or into a file that is followed."""
        return self.follow or not self._source.seekable()

    def unfinished(self, event: Row | Refused) -> dict[str, Any] | None:
        """Where the feed stood before the last event, if that has no newline: someone may still be writing it."""
        # What comes through a pipe comes once: its end is the end of the line.
        if event.offset != self._lines.cut_at or self.follow or not self.is_replayable:
            return None
        return self._as_position(self._before)

    def _as_position(self, place: _Place) -> dict[str, Any]:
        return place._asdict() | {"replayable": self.is_replayable}

    def finish(self) -> None:
        """Follow the file no longer: nothing more will be written to it."""
        self.follow = False
        self._lines.finish()

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
        if is_gzip and self.follow:
            raise FeedError(f"{self.name}: a compressed file cannot be followed")
        self._lines = _Lines(_buffered(gzip.GzipFile(fileobj=packed)) if is_gzip else packed, self.follow)

    def _read_start(self, format: str | None, delimiter: str | None, decimal: str) -> None:
        """Tell the format, and read the header of CSV."""
        extension = _extension(self.name)
        try:
            line = self._lines.take().removeprefix(_BOM)
            while _is_blank(line):
                line = self._lines.take()
            if not line:
                raise FeedError(f"{self.name}: is empty")
            self._lines.hand_back([line])
            format = format or FORMATS.get(extension) or ("jsonl" if line.lstrip().startswith(b"{") else "csv")
            if format == "jsonl":
                self._format: Format = Json()
            else:
                if delimiter is None:
                    delimiter = "\t" if extension == ".tsv" else _find_delimiter(line, decimal)
                self._format = Csv(delimiter, decimal)
                self._format.columns = _column_names(self._read_record())
        except (BadRow, *_BROKEN) as error:
            raise self._error("header", error) from error
        self._start = self._lines.offset
        self._place = _Place(self._start, 0, self._start, None)

    def _choose(self, columns: Sequence[str] | None, time: str | None) -> None:
        """Settle which columns hold readings and which one times, by a look at the first rows where it takes one."""
        self.time = None if time == "auto" else time
        self.unread_time: str | None = None
        asked = dict.fromkeys([*(columns or ()), *(name for name in (self.time, self.key) if name is not None)])
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
                    first[name] = None if is_missing(value) else value

        self.columns = self._format.columns or tuple(first)
        if first:
            self._check_there(asked, first)
        bad = [record for record in self._ahead if isinstance(record[2], BadRow)]
        if len(bad) == LOOK_AHEAD:
            raise self._error(f"row {bad[0][0]}", BadRow(f"{bad[0][2]}, nor can any row up to {bad[-1][0]} be read"))
        if time == "auto":
            named = candidates()
            # Who says what times look like, says that there are some, whatever their column is called.
            looked_at = named if self._time_format is None else [*named, *(name for name in first if name not in asked)]
            self.time = next((name for name in looked_at if self._is_time(name, first[name])), None)
            if self.time is None and self._time_format is not None and self._ahead:
                raise self._error(None, BadRow(f"no column holds times of the form {self._time_format!r}"))
            self.unread_time = named[0] if named and self.time is None and first[named[0]] is not None else None
        if columns is None:
            others = (name for name in first if name and name not in {self.time, self.key})
            columns = [name for name in others if self._is_number(first[name])]
            if not columns and len(bad) < len(self._ahead):
                comma = [str(value) for value in first.values() if re.fullmatch(r"-?\d+,\d+", str(value).strip())]
                hint = f"; has {shown(comma[0])} a decimal comma?" if comma else ""
                rows = f"the first {len(self._ahead)} rows" if len(self._ahead) > 1 else "the first row"
                raise self._error(None, BadRow(f"no column holds numbers in {rows}{hint}"))
        self.readings = tuple(dict.fromkeys(columns))
        self._reader = RowReader(self._format, self.readings, self.time, self.key, self._time_format)

    def _check_there(self, asked: Iterable[str], found: Collection[str]) -> None:
        for name in asked:
            if not name or name not in found:
                raise self._error(None, BadRow(f"does not exist{_did_you_mean(name, self.columns)}", name))

    def _look_ahead(self) -> Iterator[dict[str, Any]]:
        """Fields of the first rows, which stay in line to be read."""
        for record in islice(self._records, LOOK_AHEAD):
            self._ahead.append(record)
            if not isinstance(record[2], BadRow):
                yield self._format.fields(record[2])
            elif not self._skips:
                return

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
        return isinstance(time, datetime) or _letters(name) in NUMERIC_TIME_NAMES or time >= LEAST_EPOCH

    def _read_records(self) -> Iterator[_Record]:
        """All rows from here on, good or bad."""
        while True:
            try:
                cells: Any = self._read_record()
            except BadRow as bad:
                cells = bad
            except _BROKEN as error:
                raise self._error(f"row {self._number + 1}", error) from error
            if cells is None:
                return
            self._number += 1
            yield self._number, self._lines.offset, cells, self._raw

    def _read_record(self) -> Any:
        """Cells of the next row, None at the end."""
        line = self._lines.take()
        while line.isspace() and _is_blank(line):
            line = self._lines.take()
        self._raw = line
        if not line:
            return None
        self._continuation.clear()
        try:
            return self._format.parse(self._decode(line), self._following)
        except BadRow:
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
                raise BadRow("a quoted cell is not closed")
            yield self._decode(line)

    def _decode(self, line: bytes) -> str:
        if len(line) > MAX_LINE:
            self._lines.drop_rest_of(line)
            raise BadRow(f"the line is longer than {MAX_LINE} bytes")
        if b"\0" in line:
            raise BadRow(f"byte {self._lines.offset - len(line) + line.index(0)} is NUL")
        try:
            return line.decode(self._encoding)
        except UnicodeDecodeError as error:
            place = self._lines.offset - len(line) + error.start
            column = self._format.column_at(line[: error.start].decode(self._encoding))
            raise BadRow(f"byte {place}, {line[error.start]:#04x}, is not {self._encoding}", column) from None

    def _reject(self, refused: Refused) -> None:
        message = refusal(self.name, refused)
        if not self._skips:
            raise FeedError(message)
        self.n_bad += 1
        if self._on_bad is not None:
            self._on_bad(message)

    def _error(self, place: str | None, error: Exception) -> FeedError:
        column = getattr(error, "column", None)
        places = [place, None if column is None else f"column {shown(column)}"]
        return FeedError(": ".join(filter(None, [self.name, ", ".join(filter(None, places)), _reason(error)])))


class _LaterFile(Feed):
    """One of a folder, whose columns are known: a JSON object need not have those whose readings are missing."""

    def _check_there(self, asked: Iterable[str], found: Collection[str]) -> None:
        if self._format.columns:
            super()._check_there(asked, found)


class Folder:
    r"""All files of a folder, in the order of their names, as one feed.

    Files are CSV or JSON lines by their extension, plain or gzip; others, and those whose name begins with a dot, are
    passed over. All of them have the columns that were found in the first.

    Parameters
    ----------
    path : path
        Of the folder.
    columns, time, key, follow, **options
        As in `Feed`. A folder that is followed may get new files; their names must come behind those that are there.
        When one comes, the file before it is taken to be complete.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for day, power in (("monday", 4.5), ("tuesday", 4.7)):
    ...         _ = Path(folder, f"{day}.csv").write_text(f"power\n{power}\n")
    ...     with Folder(folder) as feed:
    ...         print([(row.number, row.values) for row in feed.events()], feed.position["file"])
    [(1, {'power': 4.5}), (2, {'power': 4.7})] tuesday.csv
    """

    is_replayable = True

    @property
    def is_live(self) -> bool:
        """Whether new files are waited for."""
        return self.follow

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        time: str | None = "auto",
        *,
        key: str | None = None,
        follow: bool = False,
        **options: Any,
    ) -> None:
        self.path, self.name, self.follow = Path(path), _printable(os.fspath(path)), follow
        self.key, self._options = key, options
        first = self._next("")
        if first is None:
            raise FeedError(f"{self.name}: there is no CSV or JSON lines file in this folder")
        self._rows_before = self._bytes_before = 0
        self._feed, self._file = self._open(first, columns, time, Feed), first
        self.columns, self.readings, self.time = self._feed.columns, self._feed.readings, self._feed.time
        self.unread_time = self._feed.unread_time

    def _open(self, name: str, columns: Sequence[str] | None, time: str | None, kind: type[Feed] = _LaterFile) -> Feed:
        follow = self.follow and _unpacked(name) == name
        return kind(self.path / name, columns, time, key=self.key, follow=follow, **self._options)

    def _names(self) -> list[str]:
        """Of the files that have something in them, in order."""
        try:
            found = os.listdir(self.path)
        except OSError as error:
            raise FeedError(f"{self.name}: {_reason(error)}") from error
        named = [name for name in found if not name.startswith(".") and _extension(name) in FORMATS]
        return sorted((name for name in named if self._size_of(name)), key=lambda name: (_unpacked(name), name))

    def _size_of(self, name: str) -> int:
        """Bytes of a file; 0 where it is gone, or is none."""
        try:
            about = (self.path / name).stat()
        except FileNotFoundError:
            return 0
        return about.st_size if stat.S_ISREG(about.st_mode) else 0

    def _next(self, name: str) -> str | None:
        # The same file, compressed in the meantime, is not another one.
        found = next((other for other in self._names() if _unpacked(other) > _unpacked(name)), None)
        # A file that is followed is there when its first line is.
        return found if found is None or not self.follow or self._has_line(found) else None

    def _has_line(self, name: str) -> bool:
        try:
            with (self.path / name).open("rb") as file:
                return _unpacked(name) != name or b"\n" in file.read(_BUFFER_SIZE)
        except FileNotFoundError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def events(self) -> Iterator[Event]:
        """Rows of all files, rows that cannot be read, and None while nothing comes."""
        while True:
            for event in self._feed.events():
                if event is None:
                    if self._next(self._file) is not None:
                        self._feed.finish()
                    yield None
                elif self._rows_before:
                    yield event._replace(number=event.number + self._rows_before)
                else:
                    yield event
            following = self._next(self._file)
            while following is None:
                if not self.follow:
                    return
                yield None
                clock.sleep(_PAUSE)
                following = self._next(self._file)
            # All at once, and only if it can be opened: an error leaves the place where it was.
            feed, before = self._open(following, self.readings, self.time), self._feed
            self._rows_before += before.position["number"]
            self._bytes_before += before.size or 0
            self._feed, self._file = feed, following
            before.close()

    @property
    def size(self) -> int:
        """Bytes of all files on disk."""
        return sum(map(self._size_of, self._names()))

    @property
    def n_read(self) -> int:
        """Bytes read: `size` when all is read."""
        return self._bytes_before + self._feed.n_read

    @property
    def position(self) -> dict[str, Any]:
        """Where the feed stands behind the last event: file, place in it, and rows before it."""
        return self._in_file(self._feed.position)

    def _in_file(self, place: dict[str, Any]) -> dict[str, Any]:
        return place | {"file": self._file, "rows_before": self._rows_before}

    def seek(self, position: Mapping[str, Any]) -> None:
        """Go on behind a `position` of an earlier reading."""
        names = self._names()
        # It may have been compressed since.
        wanted = position.get("file", "")
        name = next((name for name in names if _unpacked(name) == _unpacked(wanted)), None)
        if name is None:
            raise FeedError(f"{self.name}: {wanted or 'the file'} is gone, where the rows so far end")
        self._feed.close()
        self._feed, self._file = self._open(name, self.readings, self.time), name
        if self._next(name) is not None:
            # Nothing more will be written to it, nor was when its last line was taken.
            self._feed.finish()
        self._feed.seek(position)
        self._rows_before = position["rows_before"]
        self._bytes_before = sum(self._size_of(other) for other in names if _unpacked(other) < _unpacked(name))

    def acknowledge(self) -> None:
        """Nothing to do: files stay as they are."""

    def unfinished(self, event: Row | Refused) -> dict[str, Any] | None:
        """Where the feed stood before the last event, if that has no newline: someone may still be writing it."""
        before = self._feed.unfinished(event)
        return None if before is None or self._next(self._file) is not None else self._in_file(before)

    def close(self) -> None:
        """Close the file at hand."""
        self._feed.close()


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

    def is_ready(self, seconds: float) -> bool:
        """Whether reading would not have to wait, after waiting so long."""
        if self._stream.seekable():
            return True
        try:
            return bool(select.select([self._stream], [], [], seconds)[0])
        except (OSError, ValueError):
            # What is no file of the system cannot be asked.
            return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET:
            raise io.UnsupportedOperation("a feed is measured from its start")
        self.position = self._stream.seek(self._base + offset) - self._base
        return self.position


def _buffered(stream: Any) -> io.BufferedReader[_Source]:
    return io.BufferedReader(_Source(stream), _BUFFER_SIZE)


class _Lines:
    """Lines of a binary stream, and the byte behind the last one that was taken."""

    def __init__(self, stream: io.BufferedReader[_Source], follow: bool = False) -> None:
        self.offset = 0
        # Whether a line without a newline is still being written, and what has come of it.
        self._follow, self._begun = follow, b""
        # Behind the last line, if that has no newline.
        self.cut_at = -1
        self._stream = stream
        # Lines that were handed back, the next one last. The start of a line that is too long is behind all others,
        # so that its rest comes next from the stream.
        self._waiting: list[bytes] = []

    def take(self) -> bytes:
        """The next line with its newline, empty at the end. Of a line that is too long, MAX_LINE + 1 bytes."""
        line = self._waiting.pop() if self._waiting else self._read_line()
        self.offset += len(line)
        if line and not line.endswith(b"\n"):
            self.cut_at = self.offset
        return line

    def _read_line(self) -> bytes:
        line = self._begun + self._stream.readline(MAX_LINE + 1 - len(self._begun))
        self._begun = b""
        if self._follow and len(line) <= MAX_LINE and not line.endswith(b"\n"):
            self._begun, line = line, b""
        return line

    def finish(self) -> None:
        """Take what is there of the last line for the whole of it."""
        self._follow = False

    def is_dry(self, seconds: float = 0.0) -> bool:
        """Whether a pipe has nothing to read, after waiting so long for it."""
        source = self._stream.raw
        return not self._waiting and source.position == self.offset and not source.is_ready(seconds)

    def hand_back(self, lines: list[bytes]) -> None:
        """Undo the last calls of `take`."""
        self._waiting.extend(reversed(lines))
        self.offset -= sum(map(len, lines))

    def drop_rest_of(self, line: bytes) -> None:
        """Pass over what is left of a line that was too long."""
        while line and not line.endswith(b"\n"):
            line = self.take()

    def seek(self, offset: int, is_start: bool) -> None:
        """Go to the start of all rows, or to the end of one."""
        self._waiting.clear()
        self._begun = b""
        # One byte before: it shows whether a row ends here.
        self.offset = self._stream.seek(offset if is_start else offset - 1)
        self.drop_to(offset)

    def drop_to(self, offset: int) -> None:
        """Pass over all bytes up to the end of a row."""
        last = b"\n"
        while self.offset < offset:
            chunk = self._waiting.pop() if self._waiting else self._stream.read(min(offset - self.offset, _BUFFER_SIZE))
            if not chunk:
                raise BadRow(f"the feed ends before byte {offset}, where this row ended")
            self.offset += len(chunk)
            last = chunk[-1:]
        # The last row of a file may have had no newline when it was read.
        if self.offset > offset or (last != b"\n" and self._stream.peek(1)[:1] not in (b"", b"\r", b"\n")):
            raise BadRow(f"does not end at byte {offset}")


def _column_names(cells: list[str]) -> tuple[str, ...]:
    names = tuple(cell.strip() for cell in cells)
    named = [name for name in names if name]
    for name in named:
        if named.count(name) > 1:
            raise BadRow("the name comes twice", name)
    if not named:
        raise BadRow("no column has a name")
    # Whole numbers are names that pandas gives to columns.
    if not all(map(str.isdecimal, named)) and all(map(_is_float, named)):
        raise BadRow(f"{shown(named[0])} is a number, not the name of a column: the feed has no header")
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
    close = [shown(by_lower[lower]) for lower in get_close_matches(name.lower(), by_lower)]
    return (
        f"; did you mean {' or '.join(close)}?" if close else f"; there are {shown(', '.join(by_lower.values()), 200)}"
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


def refusal(name: str, refused: Refused) -> str:
    """A row that was refused, as one line: the feed, the row, the column, and what is wrong there."""
    separator = ", " if refused.reason.startswith("column ") else ": "
    return f"{name}: row {refused.number}{separator}{refused.reason}"


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


def _unpacked(name: str) -> str:
    """The name of a file without the extension of gzip."""
    return name[:-3] if name.lower().endswith(".gz") else name


def _extension(name: str) -> str:
    return os.path.splitext(_unpacked(name))[1].lower()


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
