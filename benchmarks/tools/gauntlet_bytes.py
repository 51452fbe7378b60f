"""Bytes for the readers of feeds, messages, requests and files: rows, rejected rows, or an error in words.

What is read begins as something that is right, and is changed at random; `benchmarks.tools.fuzz` lets a fuzzer that is
guided by coverage look for more.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from random import Random
from typing import Any

from momostream.feeds.contents import Messages, ValueMessages
from momostream.feeds.files import Feed
from momostream.feeds.formats import BadRow, Rejected, Row
from momostream.feeds.source import FeedError
from momostream.runs.plan import Plan
from momostream.serve.push import BadBody, RowParser
from momostream.storage import container

__all__ = ["READERS", "STARTS", "changed", "read"]

# At most so many rows of a feed are read once more from the middle.
MOST_RESUMED = 20


def check(fine: bool, words: str) -> None:
    """Raise an error that describes what is wrong."""
    if not fine:
        raise AssertionError(words)


def _event(event: Any) -> None:
    """Rows have finite numbers; whatever a row holds can be written as text."""
    check(isinstance(event, Row | Rejected), f"{event!r} is neither a row nor a rejection")
    if isinstance(event, Row):
        check(all(type(v) is float and abs(v) < float("inf") for v in event.values.values()), f"{event} is not finite")
        json.dumps(event.text())
    else:
        check(bool(event.reason.strip()), f"{event} gives no reason")


def _feed(data: bytes, format: Any, **options: Any) -> None:
    """Read a feed, and once more from the middle: the rest must be the same."""
    try:
        with Feed(io.BytesIO(data), format=format, bad_rows="skip", **options) as feed:
            # As far as something that follows may read: None is a pause.
            found = [event for event in feed.events() if event is not None]
            columns = feed.readings
        for event in found:
            _event(event)
        if 1 < len(found) <= MOST_RESUMED:
            middle = found[len(found) // 2]
            with Feed(io.BytesIO(data), format=format, bad_rows="skip", **options) as feed:
                check(feed.readings == columns, "the columns differ when the feed is read again")
                feed.resume_after(middle.offset, middle.number)
                rest = list(feed.events())
            check(repr(rest) == repr(found[len(found) // 2 + 1 :]), "the rows differ after the feed was resumed")
    except FeedError as error:
        check(len(str(error)) > 10, f"{error!r} says little")


def _messages(data: bytes) -> None:
    messages = Messages(["power", "wind"], "auto", "turbine", None)
    try:
        cells: Any = messages.cells(data, {"topic": "farm/T01", "turbine": "T01"})
    except BadRow as bad:
        cells = bad
    _event(messages.event(1, 1, cells, data))


def _values(data: bytes) -> None:
    messages = ValueMessages(["power", "wind"], "auto", "turbine", None)
    try:
        cells: Any = messages.cells(data, {"topic": "farm/T01", "turbine": "T01", "column": "power"})
    except BadRow as bad:
        cells = bad
    event = messages.event(1, 1, cells, data)
    _event(event)
    check(isinstance(event, Rejected) or event.values.keys() <= {"power"}, f"{event} is of another column")


def _pushed(data: bytes) -> None:
    parser = RowParser(Plan(("power", "wind"), time="time", horizon=3, key="turbine"), sequence="n", max_rows=50)
    for read in (parser.json_lines, parser.line_protocol):
        try:
            for row in read(data):
                _event(row.event)
        except BadBody as error:
            check(len(str(error)) > 5, f"{error!r} says little")


def _container(data: bytes) -> None:
    """As a file, and as the header of one whose checksum fits."""
    for load in (lambda: container.loads(data), lambda: container.assemble(data, bytes(64))):
        try:
            kind, tree = load()
        except container.FileFormatError as error:
            check(len(str(error)) > 10, f"{error!r} says little")
        else:
            # What was read can be written, and is read again as the same.
            again = container.dumps(kind, tree)
            check(container.dumps(*container.loads(again)) == again, "what was written is not what was read")


READERS: dict[str, Callable[[bytes], None]] = {
    "csv": lambda data: _feed(data, "csv"),
    "jsonl": lambda data: _feed(data, "jsonl", key="turbine"),
    "influx": lambda data: _feed(data, "influx"),
    "messages": _messages,
    "values": _values,
    "pushed": _pushed,
    "container": _container,
}
_PROTOCOL = b'farm\\ a,turbine=T1,site=a\\,b power=2.5,n=3i,ok=t,note="a, b" 1700000000000000000\n'
_JSON = b'{"time": "2024-03-01T00:10:00Z", "turbine": "T1", "n": 1, "power": 4.5, "at": {"wind": 8, "x": null}}\n'
#: What changes begin with.
STARTS: dict[str, list[bytes]] = {
    "csv": [
        b'time,power,"wind"\n2024-03-01 00:00,4.5,8\n2024-03-01 00:10,,"8,1"\n\n1709251800,nan,-1e5\n',
        b"\xef\xbb\xbfat;a;b\r\n01.03.2024 00:10;4,5;on\r\n20240301T0010;1_0;0x1\r\n",
    ],
    "jsonl": [_JSON * 2 + b'{"turbine": 7, "ts": 1e9, "power": NaN}\n[]\n'],
    "influx": [_PROTOCOL * 2 + b"# comment\nm v=1u 1\nm,a=b v=t\n"],
    "messages": [_JSON, b'{"ts": 1700000000000, "power": "off"}', b"[1e999]"],
    "values": [b"4.5", b'{"v": 4.5, "ts": "2024-03-01", "column": "wind"}', b'"on"', b'{"value": 1, "time": 1e12}'],
    "pushed": [_JSON * 2, b"[" + _JSON.strip() + b", 3]", _PROTOCOL],
    "container": [
        container.dumps("note", {"rows": [1.5, None, "a", (1, b"x"), float("nan"), 1 << 70], "a": {"b": [True]}}),
        b'{"kind":"a","arrays":[{"dtype":"<f8","shape":[2,4],"offset":0,"size":64}],"tree":{"dict":{"x":{"array":0}}}}',
    ],
}
# Bytes that mean something to a reader.
_TOKENS = (
    b'"', b"\\", b",", b"=", b" ", b"\n", b"\r", b"\0", b"{", b"}", b"[", b"]", b":", b"#", b";", b"\t", b"-", b"e",
    b"i", b"1e999", b"NaN", b"Infinity", b"null", b"\xff", b"\xef\xbb\xbf", b"\\ud800", b"9" * 400, b"9" * 5000,
    b"{" * 300, b'{"a":' * 300, b"[" * 2000, b"0001-01-01", b"9999-12-31T23:59:59+23:59", b'"column"', b'"time"', 
    b"time", b"_",
)  # fmt: skip


def changed(start: bytes, random: Random) -> bytes:
    """The same bytes with a few changes: some flipped, cut out, repeated, or replaced by bytes that have a meaning."""
    data = bytearray(start)
    for _ in range(random.choice([1, 1, 2, 3, 6])):
        at = random.randrange(len(data) + 1)
        stop = min(at + random.choice([0, 0, 1, 1, 3, 20]), len(data))
        change = random.randrange(4)
        if change == 0:
            data[at:stop] = random.randbytes(stop - at)
        elif change == 1:
            data[at:stop] = data[at:stop] * random.choice([0, 2, 2, 30])
        else:
            data[at:stop] = random.choice(_TOKENS)
    return bytes(data)


def read(name: str, seed: int) -> None:
    """Read bytes that are drawn from a seed; an error says what is wrong."""
    random = Random(f"{name} {seed}")
    READERS[name](changed(random.choice(STARTS[name]), random))
