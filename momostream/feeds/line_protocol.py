"""InfluxDB's line protocol: rows of a measurement with tags, fields and a timestamp."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from momostream.feeds.formats import BadRow, Json, read_epoch

__all__ = ["MEASUREMENT", "TIME", "LineProtocol", "read_line_protocol"]

#: Columns of the measurement and of the timestamp.
MEASUREMENT, TIME = "measurement", "time"
# A part of a line ends at a separator that no backslash precedes.
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class LineProtocol(Json):
    """One line for each row; tags and fields are columns, beside `measurement` and `time`.

    Timestamps are dates in UTC, in nanoseconds or, by their size, another unit that InfluxDB knows.

    Examples
    --------
    >>> LineProtocol().parse("farm,turbine=T1 power=2.5 1700000000000000000", lambda: iter(()))
    {'measurement': 'farm', 'turbine': 'T1', 'power': 2.5, 'time': '2023-11-14T22:13:20+00:00'}
    """

    comment = b"#"

    def parse(self, text: str, following: Callable[[], Iterator[str]]) -> dict[str, Any]:
        """Cells of a row, given its line."""
        measurement, tags, fields, stamp = read_line_protocol(text)
        time = {} if stamp is None else {TIME: read_epoch(stamp).isoformat()}
        return {MEASUREMENT: measurement, **tags, **fields, **time}


def read_line_protocol(line: str) -> tuple[str, dict[str, str], dict[str, Any], int | None]:
    r"""Measurement, tags, fields and timestamp of a line.

    Examples
    --------
    >>> read_line_protocol(r'wind\ farm,turbine=T1,site=a\,b power=4.5,n=3i,ok=t,note="a, b" 1700')
    ('wind farm', {'turbine': 'T1', 'site': 'a,b'}, {'power': 4.5, 'n': 3, 'ok': True, 'note': 'a, b'}, 1700)
    """
    parts = _split(line.strip(), " ")
    if len(parts) not in {2, 3}:
        raise BadRow("is not line protocol: expected a measurement with tags, fields, and a timestamp")
    names = _split(parts[0], ",")
    if not names:
        raise BadRow("the measurement is missing")
    tags = dict(_pair(tag, "tag") for tag in names[1:])
    fields = {name: _field(name, text) for name, text in (_pair(each, "field") for each in _split(parts[1], ","))}
    try:
        stamp = int(parts[2]) if len(parts) == 3 else None
    except ValueError:
        raise BadRow(f"{parts[2][:40]!r} is not a timestamp") from None
    return _plain(names[0]), {name: _plain(text) for name, text in tags.items()}, fields, stamp


def _split(text: str, separator: str) -> list[str]:
    """Parts between separators that are neither escaped nor quoted."""
    parts, start, position, quoted = [], 0, 0, False
    while position < len(text):
        letter = text[position]
        if letter == "\\":
            position += 1
        elif letter == '"':
            quoted = not quoted
        elif letter == separator and not quoted:
            parts.append(text[start:position])
            start = position + 1
        position += 1
    if quoted:
        raise BadRow("a quoted text is not closed")
    return [part for part in (*parts, text[start:]) if part]


def _pair(text: str, what: str) -> tuple[str, str]:
    found = _split(text, "=")
    if len(found) < 2:
        raise BadRow(f"{text[:40]!r} is not a {what}: expected name=value")
    return _plain(found[0]), text[len(found[0]) + 1 :]


def _plain(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)


def _field(name: str, text: str) -> Any:
    if text[:1] == '"':
        return _plain(text[1:-1])
    if text.lower() in {"t", "true", "f", "false"}:
        return text.lower() in {"t", "true"}
    try:
        return int(text[:-1]) if text[-1:] in "iu" else float(text)
    except ValueError:
        raise BadRow(f"{text[:40]!r} is not a value", name) from None
