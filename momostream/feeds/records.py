"""Records of a feed: the cells of one row after the other, from lines of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from momostream.feeds.formats import BadRow, Format
from momostream.feeds.lines import MAX_LINE, READ_ERRORS, LineReader, feed_error, is_blank

__all__ = ["MAX_ROW_LINES", "Record", "RecordReader"]

# Lines of a row whose quoted cells hold newlines: the most that a quote that is never closed may swallow.
MAX_ROW_LINES = 100


class Record(NamedTuple):
    """A row before its cells are read as numbers."""

    number: int
    offset: int  # byte after it
    cells: Any  # a list in CSV, a dict in JSON lines; a BadRow that says what is wrong with them
    first_line: bytes


class RecordReader:
    """Reads records from lines, and counts them.

    Parameters
    ----------
    name
        Of the feed in messages.
    lines
        The lines; reading begins at their current position.
    format
        Of the rows.
    encoding
        Of the text.
    """

    def __init__(self, name: str, lines: LineReader, format: Format, encoding: str) -> None:
        self.name, self.number = name, 0
        self._lines, self._format, self._encoding = lines, format, encoding
        self._first_line = b""
        # Lines of the current row after its first one.
        self._continuation: list[bytes] = []

    def records(self) -> Iterator[Record]:
        """All records from here on, good or bad."""
        while True:
            try:
                cells: Any = self.read_cells()
            except BadRow as bad:
                cells = bad
            except READ_ERRORS as error:
                raise feed_error(self.name, f"row {self.number + 1}", error) from error
            if cells is None:
                return
            self.number += 1
            yield Record(self.number, self._lines.offset, cells, self._first_line)

    def read_cells(self) -> Any:
        """Cells of the next row, None at the end."""
        line, comment = self._lines.take(), self._format.comment
        while (line.isspace() and is_blank(line)) or (comment and line.startswith(comment)):
            line = self._lines.take()
        self._first_line = line
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
        """Lines after the first one of a row, while a quoted cell is open."""
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
            offset = self._lines.offset - len(line) + error.start
            column = self._format.column_at(line[: error.start].decode(self._encoding))
            raise BadRow(f"byte {offset}, {line[error.start]:#04x}, is not {self._encoding}", column) from None
