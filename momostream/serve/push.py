"""Rows from the body of a request: JSON lines, or InfluxDB's line protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from momostream.feeds.formats import BadRow, Json, Rejected, Row, RowReader
from momostream.runs.plan import Plan

__all__ = ["BadBody", "PushedRow", "RowParser", "read_line_protocol"]

# Characters of a key: it is shown, and part of every line that is written about it.
MAX_KEY = 512
_UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A part of a line ends at a separator that no backslash precedes.
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class BadBody(ValueError):  # noqa: N818 - as BadRow
    """The body of a request cannot be read at all."""


class PushedRow(NamedTuple):
    """A row of a request: its event, and its number in the sequence of its key, None if it has none."""

    event: Row | Rejected
    sequence: int | None


class RowParser:
    """Makes rows of the bodies of requests.

    Parameters
    ----------
    plan
        Columns to read.
    sequence
        Field of a row's number within its key; None if rows have none.
    time_format
        As in `momostream.feeds.formats.RowReader`.
    max_rows
        Rows of one request.

    Examples
    --------
    >>> parser = RowParser(Plan(("power",), time="time", horizon=3, key="turbine"))
    >>> [row.event.values for row in parser.json_lines(b'{"turbine": "T1", "time": 5, "power": 2.5}')]
    [{'power': 2.5}]
    >>> [row.event for row in parser.line_protocol(b"farm,turbine=T1 power=2.5 1700000000000000000")]
    [Row(number=1, offset=1, time=datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.timezone.utc),
     values={'power': 2.5}, key='T1')]
    """

    def __init__(
        self, plan: Plan, sequence: str | None = None, time_format: str | None = None, max_rows: int = 20_000
    ) -> None:
        self.plan, self.sequence, self.max_rows = plan, sequence, max_rows
        self._reader = RowReader(Json(), list(plan.columns), plan.time, plan.key, time_format)

    def json_lines(self, body: bytes) -> list[PushedRow]:
        """Rows of JSON lines; a JSON array of objects is accepted too."""
        if body.lstrip()[:1] == b"[":
            return [self._row(number, cells, _raw(cells)) for number, cells in enumerate(self._array(body), 1)]
        return [self._row(number, self._cells(line), line) for number, line in self._lines(body)]

    def line_protocol(self, body: bytes, precision: str = "ns") -> list[PushedRow]:
        """Rows of InfluxDB's line protocol; ``precision`` is the unit of their times: ns, us, ms or s."""
        if precision not in _UNITS:
            raise BadBody(f"precision {precision[:20]!r} is not accepted: use ns, us, ms or s")
        rows = []
        for number, line in self._lines(body):
            try:
                cells: Any = self._protocol_cells(line.decode(), _UNITS[precision])
            except UnicodeDecodeError as error:
                cells = BadRow(f"is not UTF-8: byte {error.start + 1} is invalid")
            except BadRow as bad:
                cells = bad
            rows.append(self._row(number, cells, line))
        return rows

    def _lines(self, body: bytes) -> Iterator[tuple[int, bytes]]:
        lines = [line for line in body.split(b"\n") if line.strip() and not line.startswith(b"#")]
        if len(lines) > self.max_rows:
            raise BadBody(f"{len(lines)} rows are more than {self.max_rows}: send fewer at once")
        return iter(enumerate(lines, 1))

    def _array(self, body: bytes) -> list[Any]:
        try:
            found = json.loads(body)
        except (ValueError, RecursionError) as error:
            what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise BadBody(f"is not JSON: {what}") from None
        if len(found) > self.max_rows:
            raise BadBody(f"{len(found)} rows are more than {self.max_rows}: send fewer at once")
        return [each if isinstance(each, dict) else BadRow("is not an object") for each in found]

    def _cells(self, line: bytes) -> Any:
        try:
            return self._reader.format.parse(line.decode(), lambda: iter(()))
        except UnicodeDecodeError as error:
            return BadRow(f"is not UTF-8: byte {error.start + 1} is invalid")
        except BadRow as bad:
            return bad

    def _protocol_cells(self, line: str, microseconds: float) -> dict[str, Any]:
        measurement, tags, values, stamp = read_line_protocol(line)
        cells: dict[str, Any] = {"measurement": measurement, **tags, **values}
        if self.plan.time is not None and stamp is not None:
            try:
                cells[self.plan.time] = (_EPOCH + timedelta(microseconds=stamp * microseconds)).isoformat()
            except OverflowError:
                raise BadRow(f"{stamp} is not a time", self.plan.time) from None
        return cells

    def _row(self, number: int, cells: Any, raw: bytes) -> PushedRow:
        wrong, sequence = None, None
        if not isinstance(cells, BadRow):
            try:
                sequence = self._sequence_of(cells)
                self._check_key(cells)
            except BadRow as bad:
                wrong = bad
        return PushedRow(self._reader.event(number, number, cells, raw, wrong=wrong), sequence)

    def _sequence_of(self, cells: dict[str, Any]) -> int | None:
        if self.sequence is None:
            return None
        value = cells.get(self.sequence)
        if type(value) is not int or not 0 <= value < 1 << 62:
            raise BadRow("is not the number of the row: expected a whole number", self.sequence)
        return value

    def _check_key(self, cells: dict[str, Any]) -> None:
        key = None if self.plan.key is None else cells.get(self.plan.key)
        if isinstance(key, str) and len(key) > MAX_KEY:
            raise BadRow(f"the key has {len(key)} characters: at most {MAX_KEY} are accepted", self.plan.key)
        if type(key) is int and not -(1 << 62) < key < 1 << 62:
            raise BadRow("the key is too large", self.plan.key)


def _raw(cells: Any) -> bytes:
    return b"" if isinstance(cells, BadRow) else json.dumps(cells, ensure_ascii=False).encode(errors="replace")


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
