"""Common parts of MQTT and Kafka: addresses, rows from messages, attempts to reach a lost broker."""

from __future__ import annotations

import re
import time as clock
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from momostream.feeds.contents import Messages
from momostream.feeds.formats import Rejected, Row
from momostream.feeds.source import FeedError

__all__ = [
    "Address",
    "Attempts",
    "AwayError",
    "BrokerFeed",
    "Outlet",
    "read_address",
    "retry",
    "send_in_slices",
]

PORTS = {"mqtt": 1883, "mqtts": 8883, "kafka": 9092}
# Seconds without a message after which a feed gives None.
PAUSE = 0.2
# Seconds between attempts to reach a broker: the first and the longest.
FIRST_DELAY, LONGEST_DELAY = 0.25, 30.0
# Messages that are sent to a broker before waiting for its answers.
_SLICE = 1000

Trouble = Callable[[str], object]
Answer = TypeVar("Answer")


class Outlet(Protocol):
    """A receiver of numbered texts."""

    name: str

    def send(self, lines: Iterable[tuple[int, str | int | None, str]]) -> int:
        """Publish numbered texts with their keys; return the last number up to which the broker has all, else 0."""

    def last_number(self) -> int | None:
        """The last number that has arrived, in this process or before; None where that cannot be known now."""

    def close(self) -> None:
        """Leave the broker."""


class Address(NamedTuple):
    """The parts of a broker's URL."""

    name: str  # without passwords
    hosts: str
    port: int
    user: str | None
    password: str | None
    topic: str
    settings: dict[str, str]

    @property
    def is_encrypted(self) -> bool:
        """Whether the address asks for TLS by its scheme."""
        return self.name.startswith("mqtts:")


def read_address(url: str, scheme: str) -> Address:
    """Read a URL.

    >>> read_address("mqtt://ann:secret@localhost/farm/+/rows?client_id=farm", "mqtt")  # doctest: +NORMALIZE_WHITESPACE
    Address(name='mqtt://localhost:1883/farm/+/rows', hosts='localhost', port=1883, user='ann', password='secret',
             topic='farm/+/rows', settings={'client_id': 'farm'})
    >>> read_address("kafka://one,two:9093/rows", "kafka").hosts
    'one:9092,two:9093'
    """
    # In topics # stands for all levels below; in URLs it begins a fragment.
    parts = urlsplit(url.replace("#", "%23"))
    topic = unquote(parts.path[1:])
    form = {"mqtt": "mqtt[s]://[user@]host[:1883]/topic", "kafka": "kafka://host[:9092][,host]/topic"}[scheme]
    found = parts.scheme.lower()
    # Nothing of the URL in the message: it may hold a password.
    if found not in {scheme, "mqtts" if scheme == "mqtt" else ""} or not parts.netloc or not topic:
        raise ValueError(f"the URL of a broker has the form {form}")
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    try:
        if scheme == "mqtt":
            user, password = (None if part is None else unquote(part) for part in (parts.username, parts.password))
            host, port = parts.hostname or "", parts.port or PORTS[found]
            return Address(f"{found}://{host}:{port}/{topic}", host, port, user, password, topic, settings)
        hosts = [host if re.search(r":\d+$", host) else f"{host}:{PORTS[scheme]}" for host in parts.netloc.split(",")]
        if "@" in parts.netloc:
            raise ValueError
    except ValueError:
        raise ValueError(f"the URL of a broker has the form {form}") from None
    together = ",".join(hosts)
    return Address(f"kafka://{together}/{topic}", together, PORTS[scheme], None, None, topic, settings)


class BrokerFeed:
    """The common part of feeds from brokers."""

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
        self.readings, self.time = tuple(columns), self._messages.time
        self.n_lost = 0
        self._number = 0
        self._on_trouble = on_trouble

    def unfinished(self, event: Row | Rejected) -> None:
        """Return None: messages come as a whole."""

    def close(self) -> None:
        """Leave the broker; `events` ends."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def _kept_times(self) -> dict[str, Any]:
        """The part of a position that says how times are read."""
        return {"epochs": True} if self._messages.reads_epochs else {}

    def _keep_times(self, position: Mapping[str, Any]) -> None:
        """Read times as the earlier reading did: earlier versions took all numbers as they are."""
        self._messages.reads_epochs &= "epochs" in position

    def _report(self, what: str) -> None:
        if self._on_trouble is not None:
            self._on_trouble(f"{self.name}: {what}")


class AwayError(Exception):
    """A temporary failure: waiting may help."""


def retry(ask: Callable[[], Answer], deadline: float, report: Trouble, name: str) -> Answer:
    """Ask, with longer and longer pauses, until there is an answer."""
    delay, has_reported = FIRST_DELAY, False
    while True:
        try:
            return ask()
        except AwayError as away:
            left = deadline - clock.monotonic()
            if left <= 0.0:
                raise FeedError(f"{name}: {away}") from None
            if not has_reported:
                report(f"{away}; trying again for {left:.0f} s")
                has_reported = True
            clock.sleep(min(delay, left))
            delay = min(2.0 * delay, LONGEST_DELAY)


class Attempts:
    """When to try again to reach a broker."""

    def __init__(self) -> None:
        self._delay, self._next = 0.0, 0.0

    def is_due(self) -> bool:
        """Whether it is time for the next attempt."""
        return clock.monotonic() >= self._next

    def note(self, succeeded: bool) -> bool:
        """Note how an attempt ended; return whether it is the first failure in a row."""
        is_first = not succeeded and not self._delay
        self._delay = 0.0 if succeeded else min(2.0 * self._delay or FIRST_DELAY, LONGEST_DELAY)
        self._next = clock.monotonic() + self._delay
        return is_first


def send_in_slices(
    lines: Iterable[tuple[int, str | int | None, str]],
    send_slice: Callable[[list[tuple[int, str | int | None, str]]], int],
) -> int:
    """Send slice by slice; return the last number before the first text that did not arrive."""
    waiting, safe = list(lines), 0
    for start in range(0, len(waiting), _SLICE):
        part = waiting[start : start + _SLICE]
        n_sent = send_slice(part)
        if n_sent:
            safe = part[n_sent - 1][0]
        if n_sent < len(part):
            break
    return safe
