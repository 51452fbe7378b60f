"""Rows of a file or a pipe: CSV or JSON lines, plain or gzip, row by row.

`Feed` holds a few rows in memory at a time, reports which row and column it could not read, and gives with every row
the byte where it ends, so that a later reading can resume there.
"""

from __future__ import annotations

import gzip
import os
import stat
import sys
import time as clock
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, BinaryIO, Literal, NamedTuple

from momostream.feeds.detection import ColumnChoice, column_names, detect_format, extension_of
from momostream.feeds.formats import BadRow, Csv, Rejected, Row, RowReader
from momostream.feeds.lines import READ_ERRORS, LineReader, buffered, feed_error, is_blank
from momostream.feeds.records import Record, RecordReader
from momostream.feeds.source import Event, FeedError, FileFeed, printable

__all__ = ["LOOK_AHEAD", "PAUSE", "Feed"]

# Rows that are looked at to find which columns hold numbers, and which one holds times.
LOOK_AHEAD = 100
# Seconds between looks at a file that may have grown.
PAUSE = 0.2

_BOM = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
PARQUET = b"PAR1"


class _RowEnd(NamedTuple):
    """The end of the last row: byte after it and its number; its first byte, and a checksum of its first line."""

    offset: int
    number: int
    start: int
    crc: int | None

    def after(self, record: Record) -> _RowEnd:
        return _RowEnd(record.offset, record.number, self.offset, zlib.crc32(record.first_line))


class Feed(FileFeed):
    r"""Rows of a CSV or JSON-lines feed, or of InfluxDB's line protocol.

    Iterating resumes where the last iteration stopped, as with files. Lines of more than a megabyte and quoted cells of
    more than a hundred lines are bad rows: no mistake in a feed takes more of it along.

    Parameters
    ----------
    source : path or binary file
        ``"-"`` is standard input. Gzip is recognised by its first bytes, whatever the file is called. A file that is
        handed over open is read from its current position, and left open.
    columns : sequence of str, optional
        Columns to read. None: those whose first value within the first 100 rows is a number. A live feed then starts
        when every column has had a value, so name its columns.
    time : str, optional
        Column of the times; ``"auto"``: a column called time, timestamp, date or the like that is not among `columns`,
        if its first value reads as a time; None: there is none.
    format : {"csv", "jsonl", "influx"}, optional
        None: by the extension of the file, else by the first character.
    bad_rows : {"stop", "skip"}
        Whether a row that cannot be read raises `FeedError`, or is counted and left out.
    on_bad : callable, optional
        Called with the message of every row that is skipped.
    encoding : str
        One that agrees with ASCII for its characters, as UTF-8 and Latin-1 do.
    delimiter : str, optional
        None: a comma, semicolon, tab or bar, as the header has it.
    decimal : {".", ","}
        Decimal mark of CSV. Numbers with marks between thousands are bad values.
    time_format : str, optional
        As in `datetime.datetime.strptime`; ``"epoch"``: numbers that count from 1970. None: ISO 8601 and similar forms
        with the year first, or numbers of any unit.
    key : str, optional
        Column that says which model a row is for; a row without it is a bad row.
    follow : bool
        Wait for more at the end of the file, as ``tail -f`` does.

    Attributes
    ----------
    name : str
        Of the feed in messages.
    columns : tuple of str
        All columns: the header of CSV, the keys of the first object of JSON lines (of the first few objects, where one
        is not enough to find which columns to read).
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
    >>> import io
    >>> text = b"time,power,state\n2024-03-01 00:00,4.5,on\n2024-03-01 00:10,,on\n2024-03-01 00:20,5.1x,off\n"
    >>> with Feed(io.BytesIO(text), bad_rows="skip", on_bad=print) as feed:
    ...     for row in feed:
    ...         print(row.number, row.offset, f"{row.time:%H:%M}", row.values)
    1 41 00:00 {'power': 4.5}
    2 62 00:10 {}
    feed: row 3, column 'power': '5.1x' is not a number
    >>> feed.columns, feed.readings, feed.time, feed.n_bad
    (('time', 'power', 'state'), ('power',), 'time', 1)

    Resume after a row of an earlier reading:

    >>> with Feed(io.BytesIO(b'{"power": 4.5}\n{"power": 4.7}\n')) as feed:
    ...     feed.resume_after(15, 1)
    ...     print(*feed)
    Row(number=2, offset=30, time=None, values={'power': 4.7}, key=None)
    """

    # Whether a header, or the rows of JSON, need not have every column that was asked for.
    _may_lack_columns = False

    def __init__(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        columns: Sequence[str] | None = None,
        time: str | None = "auto",
        *,
        format: Literal["csv", "jsonl", "influx"] | None = None,
        bad_rows: Literal["stop", "skip"] = "stop",
        on_bad: Callable[[str], object] | None = None,
        encoding: str = "utf-8",
        delimiter: str | None = None,
        decimal: Literal[".", ","] = ".",
        time_format: str | None = None,
        key: str | None = None,
        follow: bool = False,
    ) -> None:
        _check_options(columns, format, encoding, delimiter, decimal)
        super().__init__("feed", bad_rows, on_bad)
        self.key, self.follow = key, follow
        self._encoding = encoding
        self._time_format = time_format
        # Records that were looked at and not given out yet.
        self._ahead: deque[Record] = deque()
        self._owned: BinaryIO | None = None
        self._end = self._before = _RowEnd(0, 0, 0, None)
        try:
            self._open(source)
            self._read_start(format, delimiter, decimal)
            self._choose_columns(columns, time)
        except BaseException:
            self.close()
            raise

    def events(self) -> Iterator[Event]:
        """Rows, rows that cannot be read, and None where a pipe or a file that is followed has no more for now."""
        while True:
            if self._ahead:
                record = self._ahead.popleft()
            else:
                if self._lines.is_dry():
                    yield None
                    while self._lines.is_dry(PAUSE):
                        yield None
                following = next(self._records, None)
                if following is None:
                    if not self.follow:
                        return
                    yield None
                    self._wait_for_more()
                    continue
                record = following
            self._before, self._end = self._end, self._end.after(record)
            event = self._reader.event(*record, self._encoding)
            yield event._replace(text=event.text.rstrip()) if isinstance(event, Rejected) else event

    def _wait_for_more(self) -> None:
        """At the end of a file that is followed."""
        clock.sleep(PAUSE)
        size = _size(self._owned) if self._owned is not None else None
        if size is not None and size < self._stream.position:
            raise FeedError(f"{self.name}: was truncated while it was followed: follow the folder if files rotate")
        with suppress(OSError):
            if self._owned is not None and not os.path.samestat(os.stat(self.name), os.fstat(self._owned.fileno())):
                raise FeedError(f"{self.name}: was replaced while it was followed: follow the folder if files rotate")
        self._records = self._record_reader.records()

    @property
    def n_read(self) -> int:
        """Bytes read of the file on disk, compressed as they are: `size` when all is read."""
        return self._stream.position

    @property
    def position(self) -> dict[str, Any]:
        """Position after the last event; the last row is recognised by where it began and by its bytes."""
        return self._as_position(self._end)

    def seek(self, position: Mapping[str, Any]) -> None:
        """Resume after a `position` of an earlier reading of the same feed.

        Compressed feeds are decompressed up to there. A feed that cannot be read again, such as a pipe, resumes with
        the rows that come, and counts them from there.

        Raises
        ------
        FeedError
            When this is not the feed that was read before.
        """
        last = _RowEnd(*(position[name] for name in _RowEnd._fields))
        if not self.is_replayable:
            self._ahead = deque(record._replace(number=record.number + last.number) for record in self._ahead)
            self._record_reader.number += last.number
            self._end = self._end._replace(number=last.number)
            return
        if not position["replayable"]:
            raise FeedError(f"{self.name}: the last run read from a pipe, so it cannot be resumed from a file")
        if last.crc is None:
            self.resume_after(0, 0)
            return
        self.resume_after(last.start, last.number - 1)
        record = next(self._records, None)
        found = None if record is None else self._end.after(record)
        if found is None or found.crc != last.crc or found.offset < last.offset:
            raise FeedError(
                f"{self.name}: is not the feed that was read before: row {last.number} differs from the last run"
            )
        if found.offset > last.offset:
            # A quoted cell that was open at the end of the file, and rejected, has been closed since.
            self.resume_after(last.offset, last.number)
        self._end = last

    def resume_after(self, offset: int, number: int) -> None:
        """Resume after a row of an earlier reading of the same feed, given its offset and number.

        Both 0: the first row comes next. Compressed feeds are decompressed up to there, and feeds that cannot seek,
        such as a pipe, are read up to there.

        Raises
        ------
        FeedError
            When the row does not end there any more, or when a pipe would have to go back.
        """
        offset = max(offset, self._start)
        try:
            if self._stream.seekable():
                self._ahead.clear()
                self._lines.seek(offset, is_start=offset == self._start)
            elif offset < self._end.offset:
                raise BadRow(f"a pipe cannot go back from byte {self._end.offset} to byte {offset}")
            else:
                while self._ahead and self._ahead[0].offset <= offset:
                    self._end = self._end.after(self._ahead.popleft())
                if not self._ahead:
                    self._lines.drop_to(offset)
                elif self._end.offset != offset:
                    raise BadRow(f"does not end at byte {offset}")
        except (BadRow, *READ_ERRORS) as error:
            raise feed_error(self.name, f"row {number}", error) from error
        self._end = _RowEnd(offset, number, offset, None)
        if not self._ahead:
            self._record_reader.number = number
            self._records = self._record_reader.records()

    # The earlier name, for one version.
    go_behind = resume_after

    @property
    def is_replayable(self) -> bool:
        """Whether rows can be read again, as from files; those of a pipe cannot."""
        return self._stream.seekable()

    @property
    def is_live(self) -> bool:
        """Whether rows come as they happen: through a pipe, or into a file that is followed."""
        return self.follow or not self._stream.seekable()

    def unfinished(self, event: Row | Rejected) -> dict[str, Any] | None:
        """Position before the last event, if that has no newline: someone may still be writing it."""
        # Rows of a pipe come once: its end is the end of the line.
        if event.offset != self._lines.cut_at or self.follow or not self.is_replayable:
            return None
        return self._as_position(self._before)

    def _as_position(self, end: _RowEnd) -> dict[str, Any]:
        return end._asdict() | {"replayable": self.is_replayable}

    def finish(self) -> None:
        """Stop following the file: nothing more will be written to it."""
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
                self.name = printable(os.fspath(source))
                # Without a buffer: bytes are counted below it.
                self._owned = stream = open(source, "rb", buffering=0)
                self.size = _size(stream)
            else:
                # A file that was opened by a number has it as its name.
                name = getattr(source, "name", None)
                self.name = printable(name) if isinstance(name, str) else "feed"
            packed = buffered(stream)
            self._stream = packed.raw
            first = packed.peek(len(PARQUET))
            is_gzip = first.startswith(_GZIP_MAGIC)
        except READ_ERRORS as error:
            raise feed_error(self.name, None, error) from error
        if first.startswith(PARQUET):
            raise FeedError(f"{self.name}: is a Parquet file: let its name end in .parquet")
        if is_gzip and self.follow:
            raise FeedError(f"{self.name}: a compressed file cannot be followed")
        self._lines = LineReader(buffered(gzip.GzipFile(fileobj=packed)) if is_gzip else packed, self.follow)

    def _read_start(self, format: str | None, delimiter: str | None, decimal: str) -> None:
        """Find the format, and read the header of CSV."""
        try:
            line = self._lines.take().removeprefix(_BOM)
            while is_blank(line):
                line = self._lines.take()
            if not line:
                raise FeedError(f"{self.name}: is empty")
            self._lines.hand_back([line])
            self._format = detect_format(line, extension_of(self.name), format, delimiter, decimal)
            self._record_reader = RecordReader(self.name, self._lines, self._format, self._encoding)
            if isinstance(self._format, Csv):
                self._format.columns = column_names(self._record_reader.read_cells())
        except (BadRow, *READ_ERRORS) as error:
            raise feed_error(self.name, "header", error) from error
        self._records = self._record_reader.records()
        self._start = self._lines.offset
        self._end = self._before = _RowEnd(self._start, 0, self._start, None)

    def _choose_columns(self, columns: Sequence[str] | None, time: str | None) -> None:
        """Settle which columns hold readings and which one holds times."""
        choice = ColumnChoice(self._format, columns, time, self.key, self._time_format)
        if self._format.columns and self._may_lack_columns:
            choice.leave_out_absent()
        looks = self._look_ahead()
        while not choice.is_settled and (fields := next(looks, None)) is not None:
            choice.look_at(fields)
        self.columns = choice.columns
        bad = [record for record in self._ahead if isinstance(record.cells, BadRow)]
        try:
            if self._format.columns or not self._may_lack_columns:
                choice.check_asked()
            if len(bad) == LOOK_AHEAD:
                first, last = bad[0], bad[-1]
                what = f"{first.cells}; none of the rows up to {last.number} can be read"
                raise feed_error(self.name, f"row {first.number}", BadRow(what))
            choice.choose_time(len(self._ahead))
            self.readings = choice.choose_readings(len(self._ahead), len(bad))
        except BadRow as error:
            raise feed_error(self.name, None, error) from error
        self.time, self.unread_time = choice.time, choice.unread_time
        self._reader = RowReader(self._format, self.readings, self.time, self.key, self._time_format)

    def _look_ahead(self) -> Iterator[dict[str, Any]]:
        """Fields of the first rows, which stay in line to be read."""
        for record in islice(self._records, LOOK_AHEAD):
            self._ahead.append(record)
            if not isinstance(record.cells, BadRow):
                yield self._format.fields(record.cells)
            elif not self._skips:
                return


def _size(stream: BinaryIO) -> int | None:
    # Streams without a file descriptor have no size, nor do pipes.
    with suppress(OSError):
        status = os.fstat(stream.fileno())
        return status.st_size if stat.S_ISREG(status.st_mode) else None
    return None


def _check_options(
    columns: Sequence[str] | None,
    format: str | None,
    encoding: str,
    delimiter: str | None,
    decimal: str,
) -> None:
    if isinstance(columns, str):
        raise TypeError(f"columns must be a sequence of names, not the string {columns!r}")
    for name, value, allowed in [
        ("format", format, (None, "csv", "jsonl", "influx")),
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
        raise ValueError(f"encoding must be known and agree with ASCII for its characters, not {encoding!r}")
