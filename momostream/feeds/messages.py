"""What feeds and outlets behind brokers share: addresses, rows made of messages, patience with those that are away."""

from __future__ import annotations

import re
import time as clock
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from momostream.feeds.files import FeedError
from momostream.feeds.rows import BadRow, Json, Refused, Row, RowReader, shown

__all__ = [
    "Address",
    "Attempts",
    "AwayError",
    "BrokerFeed",
    "Messages",
    "Outlet",
    "read_address",
    "retry",
    "send_in_slices",
]

PORTS = {"mqtt": 1883, "kafka": 9092}
# Seconds without a message after which a feed says so.
PAUSE = 0.2
# Seconds between attempts to reach a broker: the first and the longest.
FIRST_DELAY, LONGEST_DELAY = 0.25, 30.0
# Messages that are given to a broker before waiting for it.
_SLICE = 1000
# Of a row that is refused, so much is kept.
_LONGEST_TEXT = 4096

Trouble = Callable[[str], object]
Answer = TypeVar("Answer")


class Outlet(Protocol):
    """Where numbered texts go."""

    name: str

    def send(self, lines: Iterable[tuple[int, str | int | None, str]]) -> int:
        """Publish numbered texts with their keys; the last number up to which the broker has all, else 0."""

    def close(self) -> None:
        """Let go of the broker."""


class Address(NamedTuple):
    """What the URL of a broker says."""

    name: str  # without passwords
    hosts: str
    port: int
    user: str | None
    password: str | None
    topic: str
    settings: dict[str, str]


def read_address(url: str, scheme: str) -> Address:
    """Read a URL.

    >>> read_address("mqtt://ann:secret@localhost/farm/+/rows?client_id=farm", "mqtt")  # doctest: +NORMALIZE_WHITESPACE
    Address(name='mqtt://localhost:1883/farm/+/rows', hosts='localhost', port=1883, user='ann', password='secret',
             topic='farm/+/rows', settings={'client_id': 'farm'})
    >>> read_address("kafka://one,two:9093/rows", "kafka").hosts
    'one:9092,two:9093'
    """
    # In topics # stands for all levels below; in URLs for a place inside a page.
    parts = urlsplit(url.replace("#", "%23"))
    topic = unquote(parts.path[1:])
    form = {"mqtt": "mqtt://[user:password@]host[:1883]/topic", "kafka": "kafka://host[:9092][,host]/topic"}[scheme]
    # Nothing of the URL in the message: it may hold a password.
    if parts.scheme.lower() != scheme or not parts.netloc or not topic:
        raise ValueError(f"the URL of a broker has the form {form}")
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    try:
        if scheme == "mqtt":
            user, password = (None if part is None else unquote(part) for part in (parts.username, parts.password))
            host, port = parts.hostname or "", parts.port or PORTS[scheme]
            return Address(f"mqtt://{host}:{port}/{topic}", host, port, user, password, topic, settings)
        hosts = [host if re.search(r":\d+$", host) else f"{host}:{PORTS[scheme]}" for host in parts.netloc.split(",")]
        if "@" in parts.netloc:
            raise ValueError
    except ValueError:
        raise ValueError(f"the URL of a broker has the form {form}") from None
    together = ",".join(hosts)
    return Address(f"kafka://{together}/{topic}", together, PORTS[scheme], None, None, topic, settings)


class Messages:
    """Makes rows of messages."""

    def __init__(self, columns: Sequence[str], time: str | None, key: str | None, time_format: str | None) -> None:
        if isinstance(columns, str):
            raise TypeError(f"columns must be a sequence of names, not the text {columns!r}")
        self._reader = RowReader(Json(), list(columns), time, key, time_format)

    def cells(self, payload: bytes, beside: Mapping[str, str]) -> dict[str, Any]:
        """Fields of a message, and those beside it that it has not."""
        try:
            text = payload.decode()
        except UnicodeDecodeError as error:
            raise BadRow(f"is not UTF-8: byte {error.start + 1} is wrong") from None
        return {**beside, **self._reader.format.parse(text, lambda: iter(()))}

    def event(
        self, number: int, offset: int, cells: dict[str, Any] | BadRow, payload: bytes, wrong: BadRow | None = None
    ) -> Row | Refused:
        """The row of these cells, or why there is none; ``wrong`` is what else is wrong with it."""
        try:
            if isinstance(cells, BadRow):
                raise cells
            if wrong is not None:
                raise wrong
            return self._reader.row(number, offset, cells)
        except BadRow as bad:
            column = "" if bad.column is None else f"column {shown(bad.column)}: "
            key = None if isinstance(cells, BadRow) else self._reader.key_of(cells)
            text = payload[:_LONGEST_TEXT].decode(errors="replace")
            return Refused(number, offset, key, f"{column}{bad}", text)


class BrokerFeed:
    """What feeds behind a broker have in common."""

    is_replayable = True

    def __init__(
        self,
        address: Address,
        columns: Sequence[str],
        time: str | None,
        key: str | None,
        time_format: str | None,
        on_trouble: Trouble | None,
    ) -> None:
        self._messages = Messages(columns, time, key, time_format)
        self.name, self.topic = address.name, address.topic
        self.readings, self.time = tuple(columns), time
        self.n_lost = 0
        self._number = 0
        self._on_trouble = on_trouble

    def unfinished(self, event: Row | Refused) -> None:
        """No event is: messages come as a whole."""

    def close(self) -> None:
        """Leave the broker; `events` ends."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _tell(self, what: str) -> None:
        if self._on_trouble is not None:
            self._on_trouble(f"{self.name}: {what}")


class AwayError(Exception):
    """What is missing, where waiting may help."""


def retry(ask: Callable[[], Answer], deadline: float, tell: Trouble, name: str) -> Answer:
    """The answer as soon as there is one, asked for with longer and longer pauses."""
    delay, has_told = FIRST_DELAY, False
    while True:
        try:
            return ask()
        except AwayError as away:
            left = deadline - clock.monotonic()
            if left <= 0.0:
                raise FeedError(f"{name}: {away}") from None
            if not has_told:
                tell(f"{away}; trying again for {left:.0f} s")
                has_told = True
            clock.sleep(min(delay, left))
            delay = min(2.0 * delay, LONGEST_DELAY)


class Attempts:
    """When to try again, after a broker was away."""

    def __init__(self) -> None:
        self._delay, self._next = 0.0, 0.0

    def is_due(self) -> bool:
        """Whether it is time."""
        return clock.monotonic() >= self._next

    def note(self, succeeded: bool) -> bool:
        """Whether this is the first failure in a row."""
        is_first = not succeeded and not self._delay
        self._delay = 0.0 if succeeded else min(2.0 * self._delay or FIRST_DELAY, LONGEST_DELAY)
        self._next = clock.monotonic() + self._delay
        return is_first


def send_in_slices(
    lines: Iterable[tuple[int, str | int | None, str]],
    send_slice: Callable[[list[tuple[int, str | int | None, str]]], int],
) -> int:
    """Slice by slice; the last number before the first text that did not arrive."""
    waiting, safe = list(lines), 0
    for start in range(0, len(waiting), _SLICE):
        part = waiting[start : start + _SLICE]
        n_sent = send_slice(part)
        if n_sent:
            safe = part[n_sent - 1][0]
        if n_sent < len(part):
            break
    return safe
