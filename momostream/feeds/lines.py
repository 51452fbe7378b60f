"""Lines of a binary stream, with exact offsets.

Lines stay bytes here and are decoded one by one: a wrong byte spoils only its own line.
"""

from __future__ import annotations

import gzip
import io
import os
import select
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

from momostream.feeds.formats import BadRow, shown
from momostream.feeds.source import FeedError

__all__ = ["BUFFER_SIZE", "MAX_LINE", "READ_ERRORS", "ByteStream", "LineReader", "buffered", "feed_error", "is_blank"]

# Bytes of a line.
MAX_LINE = 1 << 20
BUFFER_SIZE = 1 << 16
# Errors of reading: a disk fails, or compressed data are cut off or altered.
READ_ERRORS = (OSError, EOFError, zlib.error)


class ByteStream(io.RawIOBase):
    """Bytes of a stream as they come in, counted."""

    def __init__(self, stream: BinaryIO) -> None:
        self.position = 0
        self._stream = stream
        # `read` of a pipe would wait for more than the next row, and that of gzip fail without the rows before a fault.
        self._read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        self._base = stream.tell() if stream.seekable() else 0

    def readable(self) -> bool:
        """Whether there are bytes to read: always."""
        return True

    def seekable(self) -> bool:
        """Whether the stream can go back."""
        return self._stream.seekable()

    def readinto(self, buffer: Any) -> int:
        """Read some bytes, as many as there are."""
        chunk = self._read(len(buffer))
        # The first two bytes come together: they show whether this is gzip.
        while self.position == 0 and len(chunk) == 1 and (more := self._read(1)):
            chunk += more
        buffer[: len(chunk)] = chunk
        self.position += len(chunk)
        return len(chunk)

    def tell(self) -> int:
        """Bytes from the start of the feed."""
        return self.position

    def is_ready(self, seconds: float) -> bool:
        """Whether reading would return at once, after at most this many seconds of waiting."""
        if self._stream.seekable():
            return True
        try:
            return bool(select.select([self._stream], [], [], seconds)[0])
        except (OSError, ValueError):
            # The system knows only files of its own.
            return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to an offset from the start of the feed."""
        if whence != os.SEEK_SET:
            raise io.UnsupportedOperation("a feed is measured from its start")
        self.position = self._stream.seek(self._base + offset) - self._base
        return self.position


def buffered(stream: Any) -> io.BufferedReader[ByteStream]:
    """Bytes of a stream, counted below the buffer."""
    return io.BufferedReader(ByteStream(stream), BUFFER_SIZE)


class LineReader:
    """Lines of a binary stream, and the byte after the last line that was taken."""

    def __init__(self, stream: io.BufferedReader[ByteStream], follow: bool = False) -> None:
        self.offset = 0
        # Whether a line without a newline is still being written, and what has come of it.
        self._follow, self._begun = follow, b""
        # After the last line, if that has no newline.
        self.cut_at = -1
        self._stream = stream
        # Lines that were handed back, the next one last. The start of a line that is too long is the first of them,
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
        """Take the last line as complete, with or without a newline."""
        self._follow = False

    def is_dry(self, seconds: float = 0.0) -> bool:
        """Whether a pipe still has nothing to read after this many seconds."""
        source = self._stream.raw
        return not self._waiting and source.position == self.offset and not source.is_ready(seconds)

    def hand_back(self, lines: list[bytes]) -> None:
        """Undo the last calls of `take`."""
        self._waiting.extend(reversed(lines))
        self.offset -= sum(map(len, lines))

    def drop_rest_of(self, line: bytes) -> None:
        """Skip the rest of a line that was too long."""
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
        """Skip all bytes up to the end of a row."""
        last = b"\n"
        while self.offset < offset:
            chunk = self._waiting.pop() if self._waiting else self._stream.read(min(offset - self.offset, BUFFER_SIZE))
            if not chunk:
                raise BadRow(f"the feed ends before byte {offset}, where this row ended")
            self.offset += len(chunk)
            last = chunk[-1:]
        # The last row of a file may have had no newline when it was read.
        if self.offset > offset or (last != b"\n" and self._stream.peek(1)[:1] not in (b"", b"\r", b"\n")):
            raise BadRow(f"does not end at byte {offset}")


def is_blank(line: bytes) -> bool:
    """Whether a line is there and holds nothing."""
    # A line of tabs is a row of empty cells.
    return line != b"" and not line.strip(b" \r\n")


def feed_error(name: str, where: str | None, error: Exception) -> FeedError:
    """The error of a feed, in one line: the feed, where in it, the column, and what is wrong there."""
    column = getattr(error, "column", None)
    wheres = [where, None if column is None else f"column {shown(column)}"]
    return FeedError(": ".join(filter(None, [name, ", ".join(filter(None, wheres)), _reason(error)])))


def _reason(error: Exception) -> str:
    match error:
        case IsADirectoryError():
            return "is a folder"
        case FileNotFoundError():
            return "does not exist"
        case PermissionError():
            return "cannot be read: no permission"
        case EOFError():
            return "the compressed data are cut off"
        case zlib.error() | gzip.BadGzipFile():
            return "the compressed data are corrupted"
        case OSError():
            return f"cannot be read: {error.strerror or error}"
    return str(error)
