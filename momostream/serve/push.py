"""Rows from the body of a request: JSON lines, or InfluxDB's line protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from momostream.feeds.formats import BadRow, Json, Rejected, Row, RowReader
from momostream.feeds.line_protocol import read_line_protocol
from momostream.runs.plan import Plan

__all__ = ["BadBody", "PushedRow", "RowParser"]

# Characters of a key: it is shown, and part of every line that is written about it.
MAX_KEY = 512
_UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
