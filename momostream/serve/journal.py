"""Rows that were pushed, on the disk before their sender gets an answer: the feed of a run that can be read again.

A `Journal` is a folder of files with one line for each accepted row. A row is accepted once: the sender numbers its
rows, or the time of a row must be after the last one of its key, and whatever comes again is counted and dropped. The
answer is sent when the line is on the disk. A run reads the journal as any other feed, and its commits hold the
position in it, so that a process that is killed at any moment learns each accepted row exactly once.
"""

from __future__ import annotations

import json
import os
import threading
import time as clock
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from momostream.feeds.formats import Rejected, Row
from momostream.feeds.source import Event, FeedError
from momostream.serve.push import PushedRow
from momostream.storage.container import sync_folder

__all__ = ["Accepted", "Journal", "JournalBusy", "JournalFull"]

# Bytes of a file, after which the next one begins; files whose rows are committed are removed.
FILE_BYTES = 32 << 20
# Bytes that are read at once, and seconds without a row after which a run hears that nothing comes.
READ_BYTES, PAUSE = 1 << 18, 0.25


class JournalBusy(Exception):  # noqa: N818 - a state that passes
    """Rows cannot be accepted now; they can be sent again later."""


class JournalFull(Exception):  # noqa: N818 - a state that passes
    """The disk has no room for more rows."""


class Accepted(NamedTuple):
    """What became of the rows of a request."""

    accepted: int
    repeated: int
    rejected: int
    last_number: int


Mark = int | float | datetime


class Journal:
    """A folder of accepted rows, and the feed that reads them.

    Parameters
    ----------
    folder
        Of the files; made if it does not exist.
    name
        Of the feed.
    columns, time
        Columns of numbers, and of the time.
    max_backlog
        Bytes that were accepted and not yet committed, beyond which `append` asks to wait.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder), "north", ["power"])
    ...     journal.open()
    ...     row = PushedRow(Row(1, 1, None, {"power": 4.5}, "T1"), sequence=1)
    ...     print(journal.append([row]).accepted, journal.append([row]).repeated)
    ...     print(next(journal.events()).values)
    ...     journal.close()
    1 1
    {'power': 4.5}
    """

    is_replayable = is_live = True
    unread_time = None

    def __init__(
        self, folder: Path, name: str, columns: Sequence[str], time: str | None = None, max_backlog: int = 256 << 20
    ) -> None:
        self.folder, self.name = folder, f"http://feeds/{name}/rows"
        self.readings, self.columns, self.time = tuple(columns), tuple(columns), time
        self.max_backlog = max_backlog
        # Rows are on the disk already: a commit need not hurry when nothing comes.
        self.idle_seconds: float | None = None
        self._changed = threading.Condition()
        self._is_closed = self._is_open = self._is_resumed = False
        # Of the reader: file, offset in it, number of the last row, newest mark of each key.
        self._file = 1
        self._offset = self._number = 0
        self._marks: dict[Any, Mark] = {}
        self._committed, self._asked = (1, 0), (1, 0, 0)
        # Of the writer.
        self._out: Any = None
        self._out_file, self._out_bytes, self._out_number = 1, 0, 0
        self._out_marks: dict[Any, Mark] = {}
        self._sizes: dict[int, int] = {}
        # Numbers of the last rows of requests, and when these came; under a lock of their own, as the other one is held
        # while rows get to the disk.
        self._arrivals_lock = threading.Lock()
        self._ends: list[int] = []
        self._arrivals: list[float] = []

    # ------------------------------------------------------------------ writing

    @property
    def is_open(self) -> bool:
        """Whether rows are accepted."""
        return self._is_open and not self._is_closed

    def open(self) -> None:
        """Find out what is there after the position of the reader, and begin to accept rows."""
        with self._changed:
            if self._is_open:
                return
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sizes = {int(path.stem): path.stat().st_size for path in self.folder.glob("*.jsonl")}
            self._check_files()
            self._out_file = max(self._sizes, default=self._file)
            self._out_number, self._out_marks = self._number, dict(self._marks)
            self._read_tail()
            self._open_file()
            self._is_open = True

    def _check_files(self) -> None:
        if not self._is_resumed and any(self._sizes.values()):
            raise FeedError(
                f"{self.folder}: holds rows that the store does not know: put the store back, or move the folder away"
            )
        if self._offset and self._sizes and self._sizes.get(self._file, 0) < self._offset:
            raise FeedError(
                f"{self.folder}: the rows after number {self._number} are missing: put back the folder of the last run"
            )
        if self._offset and not self._sizes:
            # A store from a backup: all rows up to its position are in its models.
            self._file, self._offset = self._number + 1, 0
            self._committed, self._asked = (self._file, 0), (self._file, 0, self._number)

    def _read_tail(self) -> None:
        """Read rows that were accepted and not committed; cut off a last line that was not written to its end."""
        for file in sorted(self._sizes):
            if file < self._file:
                continue
            path, start = self._path(file), self._offset if file == self._file else 0
            whole = start
            with path.open("r+b") as stream:
                stream.seek(start)
                for line in stream:
                    if not line.endswith(b"\n"):
                        break
                    whole += len(line)
                    self._out_number += 1
                    entry = json.loads(line)
                    if entry[0] == "row":
                        _, key, time, _, sequence = entry
                        if (mark := _mark(time, sequence)) is not None:
                            self._out_marks[key] = mark
                if whole < self._sizes[file]:
                    stream.truncate(whole)
            self._sizes[file] = whole

    def _path(self, file: int) -> Path:
        return self.folder / f"{file:012d}.jsonl"

    def _open_file(self) -> None:
        self._out = self._path(self._out_file).open("ab", buffering=0)
        self._out_bytes = self._sizes[self._out_file] = self._path(self._out_file).stat().st_size
        # Some file systems cannot synchronise folders.
        with suppress(OSError):
            sync_folder(os.fspath(self.folder))

    @property
    def backlog(self) -> int:
        """Bytes that were accepted and not committed."""
        file, offset = self._committed
        return sum(size for number, size in list(self._sizes.items()) if number >= file) - offset

    @property
    def n_waiting(self) -> int:
        """Rows that were accepted and not read."""
        return self._out_number - self._number

    def append(self, rows: Sequence[PushedRow]) -> Accepted:
        """Accept rows: all of them are on the disk when this returns, or none.

        Raises
        ------
        JournalBusy
            The feed is starting or stopping, or too many rows wait to be learnt.
        JournalFull
            The disk has no room.
        """
        came = clock.monotonic()
        with self._changed:
            if not self.is_open:
                raise JournalBusy("the feed is not running")
            if self.backlog > self.max_backlog:
                raise JournalBusy("too many rows wait to be learnt")
            marks: dict[Any, Mark] = {}
            lines = [line for row in rows if (line := self._line(row, marks)) is not None]
            if lines:
                self._write(b"".join(lines))
                self._out_marks |= marks
                self._out_number += len(lines)
                with self._arrivals_lock:
                    self._ends.append(self._out_number)
                    self._arrivals.append(came)
                self._changed.notify_all()
            n_bad = sum(isinstance(row.event, Rejected) for row in rows)
            return Accepted(len(lines) - n_bad, len(rows) - len(lines), n_bad, self._out_number)

    def _line(self, row: PushedRow, marks: dict[Any, Mark]) -> bytes | None:
        """The line of a row; None if the row has come before."""
        event = row.event
        if isinstance(event, Rejected):
            return _dump(["rejected", event.key, event.reason, event.text])
        mark = event.time if row.sequence is None else row.sequence
        if mark is not None:
            last = marks.get(event.key, self._out_marks.get(event.key))
            if last is not None and _is_not_after(mark, last):
                return None
            marks[event.key] = mark
        return _dump(["row", event.key, _plain_time(event.time), event.values, row.sequence])

    def _write(self, data: bytes) -> None:
        if self._out_bytes >= FILE_BYTES:
            self._out.close()
            self._out_file = self._out_number + 1
            self._open_file()
        try:
            written = 0
            while written < len(data):
                written += self._out.write(data[written:])
            os.fsync(self._out.fileno())
        except OSError as error:
            # Not one of these rows is accepted.
            with suppress(OSError):
                self._out.truncate(self._out_bytes)
            raise JournalFull(error.strerror or str(error)) from error
        self._out_bytes += len(data)
        self._sizes[self._out_file] = self._out_bytes

    # ------------------------------------------------------------------ reading

    def events(self) -> Iterator[Event]:
        """Rows in order, and None while there are none."""
        self.open()
        while not self._is_closed:
            data = self._read()
            if not data:
                yield None
                with self._changed:
                    if not self._has_more and not self._is_closed:
                        self._changed.wait(PAUSE)
                continue
            for line in data.splitlines(keepends=True):
                self._offset += len(line)
                self._number += 1
                yield self._event(line)

    @property
    def _has_more(self) -> bool:
        return self._out_number > self._number

    def _read(self) -> bytes:
        """Whole lines from here on; empty if all are read."""
        with self._changed:
            size = self._sizes.get(self._file, 0)
            if self._offset >= size and self._out_file > self._file:
                self._file, self._offset = min(file for file in self._sizes if file > self._file), 0
                size = self._sizes[self._file]
        left = min(size - self._offset, READ_BYTES)
        if left <= 0:
            return b""
        with self._path(self._file).open("rb") as stream:
            stream.seek(self._offset)
            data = stream.read(left)
            if not data.endswith(b"\n"):
                data += stream.readline()
        return data

    def _event(self, line: bytes) -> Row | Rejected:
        kind, key, *rest = json.loads(line)
        if kind == "rejected":
            return Rejected(self._number, self._number, key, *rest)
        text, values, sequence = rest
        time = _read_time(text)
        if (mark := time if sequence is None else sequence) is not None:
            self._marks[key] = mark
        return Row(self._number, self._number, time, values, key)

    def arrival_of(self, number: int) -> float | None:
        """When the row of this number came, by the monotonic clock; None if that was in an earlier process."""
        with self._arrivals_lock:
            index = bisect_left(self._ends, number)
            return self._arrivals[index] if index < len(self._ends) else None

    @property
    def position(self) -> dict[str, Any]:
        """Position after the last event, with the newest mark of each key."""
        marks = [[key, _plain_time(mark)] for key, mark in self._marks.items()]
        self._asked = self._file, self._offset, self._number
        return {"file": self._file, "offset": self._offset, "number": self._number, "marks": marks}

    def seek(self, position: Mapping[str, Any]) -> None:
        """Resume after a position of an earlier reading."""
        self._file, self._offset, self._number = position["file"], position["offset"], position["number"]
        self._marks = {key: _read_time(mark) for key, mark in position["marks"]}
        self._committed, self._is_resumed = (self._file, self._offset), True
        self._asked = self._file, self._offset, self._number

    def acknowledge(self) -> None:
        """Remove files whose rows are all committed: those before the last `position` that was asked for."""
        file, offset, number = self._asked
        with self._changed:
            self._committed = (file, offset)
            for old in [each for each in self._sizes if each < file]:
                self._path(old).unlink(missing_ok=True)
                del self._sizes[old]
        with self._arrivals_lock:
            done = bisect_left(self._ends, number)
            del self._ends[:done], self._arrivals[:done]

    def unfinished(self, event: Row | Rejected) -> None:
        """Return None: rows are accepted as a whole."""

    def close(self) -> None:
        """Accept nothing more; `events` ends."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            if self._out is not None:
                self._out.close()
                self._out = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _dump(entry: list[Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _plain_time(time: Any) -> Any:
    return time.isoformat() if isinstance(time, datetime) else time


def _read_time(value: Any) -> Any:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _mark(time: Any, sequence: int | None) -> Any:
    return _read_time(time) if sequence is None else sequence


def _is_not_after(mark: Any, last: Any) -> bool:
    """Whether a row has come before; times that cannot be compared are left to the model, which rejects them."""
    try:
        return bool(mark <= last)
    except TypeError:
        return False
