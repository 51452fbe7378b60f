"""Numbered lines of a store: predictions, alarms and rejected rows, compressed by pages.

A page is a row of its table: the number of its last line, how many lines it has, their bytes, and a checksum.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from operator import index
from typing import Any, NamedTuple

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
        return self.crc == _crc(tuple(self[:3])) and self.last - self.n <= number

    def lines(self) -> Iterator[tuple[Any, ...]]:
        """Numbers and contents of the lines."""
        for number, line in enumerate(json.loads(zlib.decompress(self.packed)), self.last - self.n + 1):
            yield number, *line


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


def output_from_line(line: list[Any]) -> Output:
    """The prediction or alarm of a line."""
    key, *rest = line
    return Output(key_from_text(key), *rest)


def letter_line(letter: DeadLetter) -> list[Any]:
    """The contents of a line."""
    key = None if letter.key is None else key_text(letter.key)
    texts = _text(letter.reason, "reason"), _text(letter.row, "row")
    return [_text(letter.source, "source"), int(index(letter.offset)), key, *texts]


def letter_from_line(line: list[Any]) -> DeadLetter:
    """The rejected row of a line."""
    source, offset, key, *rest = line
    return DeadLetter(source, offset, None if key is None else key_from_text(key), *rest)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"the {what} must be a string, got a {type(value).__name__}")
    return value
