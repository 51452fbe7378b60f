"""Numbered lines of a store: predictions, alarms and rejected rows, compressed by pages.

A page is a row of its table: the number of its last line, how many lines it has, their bytes, and a checksum.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from operator import index
from types import UnionType
from typing import Any, NamedTuple

from momostream.storage.container import FileFormatError
from momostream.storage.keys import Key, key_from_text, key_text

__all__ = [
    "LINES",
    "DeadLetter",
    "Output",
    "Page",
    "letter_from_line",
    "letter_line",
    "letter_text",
    "output_from_line",
    "output_line",
    "pages",
]

#: Tables of numbered lines.
LINES = ("outputs", "alarms", "dead")
# Lines of a page: predictions resemble each other, and take a fifth of the space when compressed together.
PAGE_LINES = 1000
# Bytes of a page that is read. A few bytes could unpack to a thousand times as many.
MOST_PAGE_BYTES = 1 << 28


class Output(NamedTuple):
    """A prediction or an alarm: of which model, at which offset of the source, and its text."""

    key: Key
    offset: int
    text: str


class DeadLetter(NamedTuple):
    """A rejected row: from which source and offset, for which model if that is known, why, and the row as text."""

    source: str
    offset: int
    key: Key | None
    reason: str
    row: str


def letter_text(letter: DeadLetter) -> str:
    """A rejected row of a store as a JSON object."""
    return json.dumps(letter._asdict(), ensure_ascii=False)


class Page(NamedTuple):
    """Some lines, as they are in a table."""

    last: int
    n: int
    packed: bytes
    crc: int

    @classmethod
    def of(cls, last: int, lines: list[list[Any]]) -> Page:
        """The page of these lines, of which the last has this number."""
        # Higher levels take three times as long for a tenth less.
        packed = zlib.compress(json.dumps(lines, ensure_ascii=False, separators=(",", ":")).encode(), 1)
        values = last, len(lines), packed
        return cls(*values, _crc(values))

    def is_next_after(self, number: int) -> bool:
        """Whether the page is as it was written, and no line is missing between this number and its first."""
        is_whole = type(self.last) is int and type(self.n) is int and isinstance(self.packed, bytes)
        return is_whole and self.crc == _crc(tuple(self[:3])) and 0 <= self.last - self.n <= number

    def lines(self) -> Iterator[tuple[int, Any]]:
        """Numbers and contents of the lines."""
        unpacker = zlib.decompressobj()
        try:
            text = unpacker.decompress(self.packed, MOST_PAGE_BYTES)
        except MemoryError as error:
            raise FileFormatError("a page of lines unpacks to more than there is memory for") from error
        if not unpacker.eof:
            raise FileFormatError("a page of lines is cut off, or unpacks to much more than it should")
        try:
            lines = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FileFormatError("a page of lines cannot be read") from error
        if not isinstance(lines, list) or len(lines) != self.n:
            raise FileFormatError(f"a page does not have its {self.n} lines")
        yield from enumerate(lines, self.last - self.n + 1)


def pages(last: int, lines: list[list[Any]]) -> Iterator[Page]:
    """Pages of new lines, numbered after the last one that is there."""
    for start in range(0, len(lines), PAGE_LINES):
        page = lines[start : start + PAGE_LINES]
        yield Page.of(last + start + len(page), page)


def _crc(values: tuple[Any, ...]) -> int:
    # By `repr`: in a corrupted file a text may have become a number.
    return zlib.crc32(repr(values).encode())


def output_line(output: Output) -> list[Any]:
    """The contents of a line."""
    return [key_text(output.key), int(index(output.offset)), _text(output.text, "output")]


def output_from_line(line: Any) -> Output:
    """The prediction or alarm of a line."""
    key, offset, text = _parts(line, (str, int, str))
    return Output(key_from_text(key), offset, text)


def _parts(line: Any, kinds: tuple[type | UnionType, ...]) -> list[Any]:
    """The parts of a line, which must be of these kinds."""
    fits = isinstance(line, list) and len(line) == len(kinds) and all(map(isinstance, line, kinds))
    if not fits:
        raise FileFormatError("a line has other parts than written")
    return list(line)


def letter_line(letter: DeadLetter) -> list[Any]:
    """The contents of a line."""
    key = None if letter.key is None else key_text(letter.key)
    texts = _text(letter.reason, "reason"), _text(letter.row, "row")
    return [_text(letter.source, "source"), int(index(letter.offset)), key, *texts]


def letter_from_line(line: Any) -> DeadLetter:
    """The rejected row of a line."""
    source, offset, key, reason, row = _parts(line, (str, int, str | None, str, str))
    return DeadLetter(source, offset, None if key is None else key_from_text(key), reason, row)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"the {what} must be a string, got a {type(value).__name__}")
    return value
