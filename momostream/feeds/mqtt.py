"""Rows from MQTT, through paho-mqtt, which is imported when a feed is opened."""

from __future__ import annotations

import queue
import re
import threading
import time as clock
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from momostream.feeds.contents import ValueMessages
from momostream.feeds.formats import BadRow, Rejected, Row, shown
from momostream.feeds.gather import Gather
from momostream.feeds.messages import (
    LONGEST_DELAY,
    PAUSE,
    Address,
    AwayError,
    BrokerFeed,
    Trouble,
    read_address,
    retry,
)
from momostream.feeds.mqtt_client import PASSING, check_settings, import_paho, make_client, reason_of
from momostream.feeds.source import FeedError
from momostream.feeds.topics import COLUMN, TopicPattern

__all__ = ["MqttFeed"]

# The most that MQTT allows. Mosquitto's own limit is 20, and a commit of thousands of rows would wait forever.
_MAX_UNACKNOWLEDGED = 65535
_NEVER = 0xFFFFFFFF
_TAKEN_OVER = 0x8E
_SESSION_LOST = "the broker came back without the session of this client: rows may be missing"
# This many new messages of a topic with old numbers in a row: its publisher has restarted its numbering.
_RESTARTED = 100
# This many connections in a row, each shorter than this (s): two clients take one session from each other.
_N_SHORT, _SHORT = 3, 3.0
# Settings of an address whose messages are values, and columns of such messages that are named when one is missing.
_GATHER = ("tick", "wait", "hold", "value")
_N_NAMED = 10


class _Delivery(NamedTuple):
    """A message as it came from the broker."""

    connection: int  # which of the connections of this process; packet numbers mean nothing in another one
    packet: int
    qos: int
    is_repeated: bool  # the broker has sent it before
    topic: str
    payload: bytes
    came: datetime

    def check(self) -> int:
        return zlib.crc32(self.payload, zlib.crc32(self.topic.encode()))


class MqttFeed(BrokerFeed):
    """Rows of an MQTT topic, each of them once.

    The broker keeps a session for this client: rows that come while it does not read wait there, and rows that were not
    committed are sent again.

    Publishers number their rows by topic, 1, 2, 3 and so on, in the field `sequence`. Rows that come again, from the
    broker or from a publisher that was not certain, are then dropped, and missing ones are counted. Without a number, a
    repetition by the broker is recognised, but not one by the publisher or after a crash of the broker: without
    numbers, rows come *at least* once.

    With ``{column}`` in the topic, each message is one value, a number or an object with ``value``, and
    `momostream.feeds.gather.Gather` makes rows of them. Values that wait for their row are part of the position, so
    that they can be acknowledged. A value whose time is not after the last one of its column has come before: times do
    here what numbers do for rows.

    Parameters
    ----------
    url
        ``mqtt://[user@]host[:1883]/topic/filter/+/rows``, with the wildcards of MQTT, or ``mqtts://`` for TLS, port
        8883. A level ``{turbine}`` gives messages the field `turbine`. Settings follow, as
        ``?client_id=farm&ca=plant.pem``: ``client_id`` names the session; ``password_file`` or ``password_env`` says
        where the password is, else it is in ``MOMOSTREAM_MQTT_PASSWORD``; ``ca`` is a file with certificates of
        authorities, ``cert`` and ``key`` are those of this client. With ``{column}``: ``tick``, ``wait`` and ``hold``
        as in `momostream.feeds.gather.Gather`; ``value`` is the field of the value in objects. With a tick, a message
        without a time gets that of its arrival.
    columns
        Fields of numbers; those of objects inside the object are called ``"sensor.wind"``.
    time, key
        Fields of the time and of the key; None where there are none. ``"topic"`` is the topic of the message, unless it
        has a field of this name. A time ``"auto"`` is found by its name, as time, timestamp, ts or date.
    sequence
        Field of the row's number within its topic.
    time_format
        As in `datetime.datetime.strptime`; None: ISO 8601 and similar forms, or numbers.
    client_id
        Name of the session, one for every process and topic. None: made of the topic.
    until_idle
        End when nothing has come for this many seconds. None: never.
    patience
        Seconds to wait for a broker that cannot be reached at the start. Later there is no limit.
    on_trouble
        Called with one line: the broker cannot be reached, rows are missing.

    Attributes
    ----------
    name : str
        The URL without user and password.
    n_lost : int
        Rows missing in the sequences.
    n_repeated : int
        Messages that came again and were dropped, in this process.

    Raises
    ------
    FeedError
        The broker cannot be reached in time, or rejects this client. Also raised from `events`, when another client
        has taken over the session.

    Notes
    -----
    With its defaults, mosquitto keeps 1000 rows for a client that is offline, drops all others, and keeps sessions in
    memory only. It needs ``max_queued_messages 0``, ``persistence true``, ``autosave_on_changes true`` and a small
    ``autosave_interval``, which then is a number of changes. Changes are acknowledgements, rows that wait for a client
    that is offline, and rows published with the flag `retain`; other rows go straight to this client and are on no disk
    before the next change. Without that flag, rows after the last commit are thus lost when the broker is killed and
    this process ends, too; with it, only the last ``autosave_interval`` rows, which a publisher that sends them
    again after every loss of its connection makes up for.

    Every change of the interval costs the broker one writing of all rows that wait: hundreds of rows per second with 1,
    thousands with 100.
    """

    is_live = True

    def __init__(
        self,
        url: str,
        columns: Sequence[str],
        time: str | None = None,
        *,
        key: str | None = None,
        sequence: str | None = None,
        time_format: str | None = None,
        client_id: str | None = None,
        until_idle: float | None = None,
        patience: float = 30.0,
        on_trouble: Trouble | None = None,
    ) -> None:
        address = read_address(url, "mqtt")
        pattern = TopicPattern(address.topic)
        check_settings(address, "client_id", *(_GATHER if pattern.has_column else ()))
        # A wildcard in the name of a client defeats the access rules of some brokers.
        readable = re.sub(r"\W+", "-", address.topic).strip("-")
        made = f"momostream-{readable}-{zlib.crc32(address.topic.encode()):08x}"
        super().__init__(address, columns, time, key, time_format, on_trouble)
        self._pattern, self._gather = pattern, None
        # Columns of values that nobody has asked for.
        self._unused: dict[str, None] = {}
        if pattern.has_column:
            self._gather = self._make_gather(address, time, key, time_format)
        self.client_id = client_id or address.settings.get("client_id") or made
        self.sequence, self.until_idle = sequence, until_idle
        self.n_repeated = 0
        self._sequences: dict[str, int] = {}
        # By topic: messages without a readable number since the last one that had it, and new ones with old numbers.
        self._unreadable: dict[str, int] = {}
        self._n_old: dict[str, int] = {}
        # Messages that were taken and not acknowledged, and how many of them the last position covers.
        self._taken: deque[_Delivery] = deque()
        self._n_in_position = 0
        # Checksums by packet of messages without a number that the broker may send again: those that were not
        # acknowledged, and those of the last acknowledgements, which may not have reached it.
        self._unnumbered: dict[int, int] = {}
        self._unnumbered_before: dict[int, int] = {}
        # Written by paho's thread: messages, troubles to report, and an error to raise.
        self._arrived: queue.SimpleQueue[_Delivery | str | FeedError] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._is_ready, self._failure = threading.Event(), ""
        self._connection, self._is_connected, self._had_session = 0, False, False
        self._connected_at, self._n_short = 0.0, 0
        self._is_resumed = self._has_reported_away = self._has_reported_qos = self._is_closed = False
        self._client = self._make_client(address)
        try:
            self._connect(address, patience)
        except BaseException:
            self.close()
            raise

    def events(self) -> Iterator[Row | Rejected | None]:
        """Rows in order, messages that cannot be read, and None whenever there was neither for a while."""
        if self._is_resumed and not self._had_session:
            self._report("the broker has lost the session of this client: rows since the last run may be missing")
        self._is_resumed = False
        came = yielded = clock.monotonic()
        # Whether rows have been given since the last pause, however short.
        has_news = False
        while not self._is_closed:
            if has_news and self._arrived.empty():
                # All rows so far can be taken; the next one may be far away.
                has_news = False
                yield None
            try:
                item = self._arrived.get(timeout=PAUSE)
            except queue.Empty:
                yielded = clock.monotonic()
                yield from self._gathered()
                if not self._is_connected:
                    came = yielded
                elif self.until_idle is not None and yielded - came >= self.until_idle:
                    return
                yield None
                continue
            if isinstance(item, FeedError):
                raise item
            if isinstance(item, str):
                if item == _SESSION_LOST:
                    # Earlier messages are not sent again.
                    self._unnumbered.clear()
                self._report(item)
                continue
            came = clock.monotonic()
            event = self._take(item)
            if event is not None or came - yielded >= PAUSE:
                yielded, has_news = came, event is not None
                yield event
            for row in self._gathered():
                has_news = True
                yield row

    @property
    def position(self) -> dict[str, Any]:
        """Rows so far, the last number of every topic, and what is known of messages without one."""
        self._n_in_position = len(self._taken)
        gathered = {} if self._gather is None else {"gathered": self._gather.state}
        return {
            **gathered,
            **self._kept_times,
            "number": self._number,
            "sequences": dict(self._sequences),
            "unreadable": dict(self._unreadable),
            "unnumbered": [list(known) for known in {**self._unnumbered_before, **self._unnumbered}.items()],
            "n_lost": self.n_lost,
        }

    def seek(self, position: Mapping[str, Any]) -> None:
        """Resume after a `position` of an earlier reading."""
        self._is_resumed = True
        self._number, self.n_lost = position["number"], position["n_lost"]
        self._sequences, self._unreadable = dict(position["sequences"]), dict(position["unreadable"])
        self._unnumbered = {packet: check for packet, check in position["unnumbered"]}
        self._keep_times(position)
        if self._gather is not None:
            self._gather.restore(position["gathered"])

    def acknowledge(self) -> None:
        """The broker may forget all messages before the `position` last asked for."""
        released = {}
        for _ in range(self._n_in_position):
            packet = self._taken[0].packet
            if self._release(self._taken.popleft()) and packet in self._unnumbered:
                released[packet] = self._unnumbered.pop(packet)
        if self._n_in_position:
            self._unnumbered_before = released
        self._n_in_position = 0

    def close(self) -> None:
        """Leave the broker, which keeps the session; `events` ends."""
        self._is_closed = True
        self._client.disconnect()
        self._client.loop_stop()

    def _take(self, delivery: _Delivery) -> Row | Rejected | None:
        """The event of a message; None where it has come before."""
        if not delivery.qos and not self._has_reported_qos:
            self._has_reported_qos = True
            self._report(f"messages of {delivery.topic} are published with QoS 0: some may get lost")
        fields = self._pattern.fields(delivery.topic)
        if self._gather is not None and fields[COLUMN] not in self.readings:
            if len(self._unused) < _N_NAMED:
                self._unused[fields[COLUMN]] = None
            self._skip(delivery)
            return None
        number = self._number + 1
        offset, sequence, wrong = number, None, None
        cells: dict[str, Any] | BadRow
        try:
            cells = self._messages.cells(delivery.payload, {"topic": delivery.topic, **fields}, delivery.came)
        except BadRow as bad:
            cells = bad
        if self.sequence is not None and not isinstance(cells, BadRow):
            try:
                offset = sequence = _sequence(cells, self.sequence)
            except BadRow as bad:
                wrong = bad
        if sequence is not None:
            if not self._is_next(delivery, sequence):
                self._drop(delivery)
                return None
        elif delivery.qos:
            check = delivery.check()
            known = (self._unnumbered.get(delivery.packet), self._unnumbered_before.get(delivery.packet))
            # A message that is sent again keeps the number of its packet.
            if delivery.is_repeated and check in known:
                self._drop(delivery)
                return None
            self._unnumbered[delivery.packet] = check
        if self.sequence is not None and sequence is None:
            self._unreadable[delivery.topic] = self._unreadable.get(delivery.topic, 0) + 1
        self._taken.append(delivery)
        event: Row | Rejected | None = self._messages.event(number, offset, cells, delivery.payload, wrong)
        if self._gather is not None and isinstance(event, Row):
            event = self._add_value(event, fields[COLUMN], delivery.payload)
        if event is not None:
            self._number = number
        return event

    # ------------------------------------------------------------------ values

    def _make_gather(self, address: Address, time: str | None, key: str | None, time_format: str | None) -> Gather:
        settings = address.settings
        if time is None:
            raise ValueError(f"{address.name}: values are gathered by their times: name a field, or use 'auto'")
        self._messages = ValueMessages(
            self.readings, time, key, time_format, settings.get("value"), stamps="tick" in settings
        )
        try:
            return Gather(self.readings, settings.get("tick"), settings.get("wait", "2s"), settings.get("hold"))
        except ValueError as error:
            raise ValueError(f"{address.name}: {error}") from None

    def _add_value(self, event: Row, column: str, payload: bytes) -> Rejected | None:
        assert self._gather is not None and event.time is not None
        try:
            self.n_repeated += not self._gather.add(event.key, column, event.time, event.values.get(column))
        except BadRow as bad:
            return Rejected(event.number, event.offset, event.key, f"column {shown(column)}: {bad}", event.text())
        return None

    def _gathered(self) -> Iterator[Row]:
        """Rows that are complete, or have waited long enough."""
        while self._gather is not None and (row := self._gather.pop()) is not None:
            if self._gather.unseen and len(row.values) < len(self.readings):
                self._report_unseen(self._gather)
            self._number += 1
            yield Row(self._number, self._number, row.time, row.values, row.key)

    def _report_unseen(self, gather: Gather) -> None:
        names = ", ".join(shown(name) for name in sorted(gather.unseen))
        others = f"; the topics have {', '.join(map(shown, self._unused))}" if self._unused else ""
        self._report(f"rows are written without {names}, of which no value has come{others}")
        gather.unseen.clear()

    # ------------------------------------------------------------------ repetitions

    def _is_next(self, delivery: _Delivery, sequence: int) -> bool:
        topic = delivery.topic
        last = self._sequences.get(topic, sequence - 1)
        if sequence <= last:
            if not delivery.is_repeated:
                self._n_old[topic] = self._n_old.get(topic, 0) + 1
                if self._n_old[topic] == _RESTARTED:
                    self._report(
                        f"{_RESTARTED} messages of {topic} were dropped, because their numbers (about {sequence}) are "
                        f"not above the last one, {last}: has its publisher restarted its numbering?"
                    )
            return False
        # Messages that came without a readable number are not missing.
        n_missing = sequence - last - 1 - self._unreadable.pop(topic, 0)
        if n_missing > 0:
            self.n_lost += n_missing
            self._report(f"{n_missing} rows of {topic} are missing between {last} and {sequence}")
        self._sequences[topic] = sequence
        self._n_old.pop(topic, None)
        return True

    def _drop(self, delivery: _Delivery) -> None:
        self.n_repeated += 1
        self._skip(delivery)

    def _skip(self, delivery: _Delivery) -> None:
        if self._taken:
            # Acknowledgements leave in the order of the messages.
            self._taken.append(delivery)
        else:
            # All others are committed, and a caller with nothing new may not commit for long.
            self._release(delivery)

    def _release(self, delivery: _Delivery) -> bool:
        """Acknowledge it, unless it came through an earlier connection: the broker then sends it again."""
        # Under a lock: a connection that begins in between would take the packet for one of its own.
        with self._lock:
            is_current = self._is_connected and delivery.connection == self._connection
            if delivery.qos and is_current:
                self._client.ack(delivery.packet, delivery.qos)
            return is_current

    def _make_client(self, address: Address) -> Any:
        client = make_client(address, client_id=self.client_id, manual_ack=True)
        client.reconnect_delay_set(1, int(LONGEST_DELAY))
        client.on_connect, client.on_disconnect = self._note_connect, self._note_disconnect
        client.on_subscribe, client.on_message = self._note_subscribe, self._note_message
        return client

    def _connect(self, address: Address, patience: float) -> None:
        mqtt = import_paho()
        properties = mqtt.properties.Properties(mqtt.packettypes.PacketTypes.CONNECT)
        properties.SessionExpiryInterval = _NEVER
        properties.ReceiveMaximum = _MAX_UNACKNOWLEDGED
        deadline = clock.monotonic() + patience
        self._client.connect_timeout = max(0.1, min(5.0, patience))

        def connect() -> None:
            try:
                self._client.connect(address.hosts, address.port, clean_start=False, properties=properties)
            except OSError as error:
                raise AwayError(reason_of(error, self.name)) from None

        retry(connect, deadline, self._report, self.name)
        self._client.loop_start()
        self._is_ready.wait(max(1.0, deadline - clock.monotonic()))
        if self._failure or not self._is_ready.is_set():
            raise FeedError(f"{self.name}: {self._failure or f'the broker did not answer for {patience:g} s'}")

    # paho's thread calls the methods below.

    def _note_connect(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            if reason.value in PASSING:
                self._note_away(f"the broker rejects connections: {reason}")
            else:
                self._fail(f"the broker rejects client {shown(self.client_id)}: {reason}")
            return
        with self._lock:
            if self._connection and not flags.session_present:
                self._arrived.put(_SESSION_LOST)
            if not self._connection:
                self._had_session = flags.session_present
            self._connection += 1
            self._is_connected = True
            self._has_reported_away = False
            self._connected_at = clock.monotonic()
        # A retained message is an old row from before the session.
        options = import_paho().subscribeoptions.SubscribeOptions(qos=1, retainHandling=2)
        client.subscribe(self._pattern.filter, options=options)

    def _note_subscribe(self, client: Any, _: Any, packet: int, reasons: list[Any], properties: Any) -> None:
        if reasons[0].is_failure:
            self._fail(f"the broker does not allow client {shown(self.client_id)} to read this topic: {reasons[0]}")
        elif reasons[0].value < 1:
            self._fail("the broker offers only QoS 0, with which rows get lost")
        self._is_ready.set()

    def _note_disconnect(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        with self._lock:
            self._is_connected = False
        if self._is_closed:
            return
        if reason.value == _TAKEN_OVER:
            self._fail(f"another client with the name {shown(self.client_id)} has taken over the session")
            return
        self._note_away("the connection to the broker is lost; waiting for it")
        # Older brokers do not report that another client takes over.
        self._n_short = self._n_short + 1 if clock.monotonic() - self._connected_at < _SHORT else 0
        if self._n_short == _N_SHORT:
            name = shown(self.client_id)
            self._arrived.put(f"connections break off repeatedly: is there another client with the name {name}?")

    def _note_away(self, what: str) -> None:
        # One line for each loss of the broker, however many attempts follow.
        if not self._has_reported_away:
            self._has_reported_away = True
            self._arrived.put(what)

    def _note_message(self, client: Any, _: Any, message: Any) -> None:
        self._arrived.put(
            _Delivery(
                *(self._connection, message.mid, message.qos, message.dup),
                *(message.topic, message.payload, datetime.now(UTC)),
            )
        )

    def _fail(self, what: str) -> None:
        """Stop trying, because waiting does not help, and let `events` raise the reason."""
        self._failure = what
        self._arrived.put(FeedError(f"{self.name}: {what}"))
        self._client.disconnect()
        self._is_ready.set()


def _sequence(cells: Mapping[str, Any], field: str) -> int:
    value = cells.get(field)
    if type(value) is int:
        return value
    raise BadRow("the sequence is missing" if value is None else f"{shown(value)} is not an integer", field)
