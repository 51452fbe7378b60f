"""Rows from Kafka and texts back to it, through confluent-kafka, which is imported when a feed or outlet is opened."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from momostream.feeds.formats import BadRow, Rejected, Row
from momostream.feeds.messages import (
    PAUSE,
    Address,
    Answer,
    Attempts,
    AwayError,
    BrokerFeed,
    Trouble,
    read_address,
    retry,
    send_in_slices,
)
from momostream.feeds.secrets import LOGIN, read_login
from momostream.feeds.source import FeedError

__all__ = ["KafkaFeed", "KafkaOutlet"]

# Settings under the names that other addresses have, and their names in librdkafka.
_NAMES = {
    "user": "sasl.username",
    "ca": "ssl.ca.location",
    "cert": "ssl.certificate.location",
    "key": "ssl.key.location",
}

# Seconds between looks for new partitions.
_LOOK = 60.0


def _confluent_kafka() -> Any:
    try:
        import confluent_kafka
    except ModuleNotFoundError:
        raise ValueError("Kafka needs confluent-kafka: pip install 'momostream[kafka]'") from None
    return confluent_kafka


def _settings(address: Address) -> dict[str, str]:
    """Settings of an address for librdkafka, with its login."""
    given = {_NAMES.get(name, name): value for name, value in address.settings.items()}
    try:
        login = read_login(given, given.get("sasl.username"), given.get("sasl.password"), "MOMOSTREAM_KAFKA_PASSWORD")
    except (ValueError, OSError) as error:
        raise ValueError(f"{address.name}: {error}") from None
    settings = {name: value for name, value in given.items() if name not in LOGIN}
    uses_tls = any(name.startswith("ssl.") for name in settings)
    if login.user is not None:
        settings["sasl.password"] = login.password or ""
        # Without TLS, the password could be read on its way.
        settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"} | settings
    elif uses_tls:
        settings = {"security.protocol": "SSL"} | settings
    return settings


class KafkaFeed(BrokerFeed):
    """Rows of a Kafka topic, each of them once.

    All partitions are read, from offsets that the feed keeps itself: nothing is committed to Kafka, and no group of
    consumers is joined. Rows come in the order of each partition, and in no order between partitions. So rows of one
    key belong into one partition, where producers put them when the key is the key of the message. Partitions that are
    added are found within a minute, and read from their start.

    Parameters
    ----------
    url
        ``kafka://host[:9092][,host2]/topic``, followed by settings of librdkafka where needed, as
        ``?sasl.mechanism=SCRAM-SHA-512&user=ann&password_file=kafka.secret&ca=plant.pem``. ``user``, ``ca``, ``cert``
        and ``key`` are short names; ``password_file`` or ``password_env`` says where the password is, else it is in
        ``MOMOSTREAM_KAFKA_PASSWORD``. With a user, the protocol is SASL_SSL and the mechanism PLAIN, unless others
        are named.
    columns
        Fields of numbers; those of objects inside the object are called ``"sensor.wind"``.
    time, key
        Fields of the time and of the key; None where there are none. ``"key"`` is the key of the message and
        ``"topic"`` its topic, unless it has fields of these names. A time ``"auto"`` is found by its name, as time,
        timestamp, ts or date.
    time_format
        As in `datetime.datetime.strptime`; None: ISO 8601 and similar forms, or numbers.
    until_end
        Stop at the end that the topic had at the start. False: wait for more.
    patience
        Seconds to wait for a broker that cannot be reached at the start. Later there is no limit.
    on_trouble
        Called with one line: the broker cannot be reached, rows are missing.

    Attributes
    ----------
    name : str
        The URL without settings.
    n_lost : int
        Rows after the position that Kafka had removed before they were read, because they were too old or too many.

    Raises
    ------
    FeedError
        The broker cannot be reached in time, the topic does not exist, or it ends before the position: it is another
        topic.
    """

    def __init__(
        self,
        url: str,
        columns: Sequence[str],
        time: str | None = None,
        *,
        key: str | None = None,
        time_format: str | None = None,
        until_end: bool = False,
        patience: float = 30.0,
        on_trouble: Trouble | None = None,
    ) -> None:
        address = read_address(url, "kafka")
        super().__init__(address, columns, time, key, time_format, on_trouble)
        self.until_end, self.patience = until_end, patience
        self._kafka = _confluent_kafka()
        self._offsets: dict[int, int] = {}
        # Ends that partitions had at the start, of those that have not been read up to there.
        self._ends: dict[int, int] = {}
        self._is_assigned = self._is_away = self._is_closed = False
        self._last_error = ""
        self._consumer = self._make_consumer(address)
        try:
            self._partitions = self._wait_for(self._find_partitions)
        except BaseException:
            self.close()
            raise

    def events(self) -> Iterator[Row | Rejected | None]:
        """Rows in order, messages that cannot be read, and None whenever there was neither for a while."""
        if not self._is_assigned:
            self._consumer.assign([self._start(partition) for partition in self._partitions])
            self._is_assigned = True
        next_look = clock.monotonic() + _LOOK
        while not self._is_closed and not (self.until_end and not self._ends):
            message = self._consumer.poll(PAUSE)
            if clock.monotonic() >= next_look and not self.until_end:
                self._add_partitions()
                next_look = clock.monotonic() + _LOOK
            if message is None:
                yield None
            elif message.error() is not None:
                self._handle_error(message)
            elif not self.until_end or message.partition() in self._ends:
                self._is_away = False
                yield self._event(message)
                self._note_end(message.partition(), message.offset() + 1)

    @property
    def is_live(self) -> bool:
        """Whether rows come as they happen, so that none should wait for the next."""
        return not self.until_end

    @property
    def position(self) -> dict[str, Any]:
        """Rows so far, and the offset that comes next in every partition that was read."""
        offsets = {str(partition): offset for partition, offset in sorted(self._offsets.items())}
        return {"number": self._number, "offsets": offsets, "n_lost": self.n_lost} | self._kept_times

    def seek(self, position: Mapping[str, Any]) -> None:
        """Resume after a `position` of an earlier reading; partitions not named there are read from their start."""
        self._number, self.n_lost = position["number"], position["n_lost"]
        self._keep_times(position)
        self._offsets = {int(partition): offset for partition, offset in position["offsets"].items()}

    def acknowledge(self) -> None:
        """Do nothing: Kafka keeps its rows for as long as it is configured to."""

    def close(self) -> None:
        """Leave the broker; `events` ends."""
        if not self._is_closed:
            self._is_closed = True
            self._consumer.close()

    def _event(self, message: Any) -> Row | Rejected:
        beside = {"topic": self.topic}
        if key := message.key():
            try:
                beside["key"] = key.decode()
            except UnicodeDecodeError:
                pass  # a row that needs it is rejected: its key is missing
        payload = message.value() or b""
        cells: dict[str, Any] | BadRow
        try:
            cells = self._messages.cells(payload, beside)
        except BadRow as bad:
            cells = bad
        self._number += 1
        self._offsets[message.partition()] = message.offset() + 1
        return self._messages.event(self._number, message.offset(), cells, payload)

    def _note_end(self, partition: int, offset: int) -> None:
        if offset >= self._ends.get(partition, offset + 1):
            del self._ends[partition]

    def _handle_error(self, message: Any) -> None:
        """Act on an error that came instead of a row."""
        errors, error = self._kafka.KafkaError, message.error()
        if error.code() == errors._PARTITION_EOF:
            self._is_away = False
            self._note_end(message.partition(), message.offset())
        elif error.code() == errors._AUTO_OFFSET_RESET:
            # Rows were removed faster than they were read. Reading of this partition has stopped, and cannot seek.
            start = self._start(message.partition())
            self._consumer.incremental_unassign([start])
            self._consumer.incremental_assign([start])
        elif error.fatal() or not (error.retriable() or error.code() in self._passing()):
            raise FeedError(f"{self.name}: {error.str()}")
        else:
            self._note_error(error)

    def _passing(self) -> set[int]:
        """Codes of temporary errors."""
        errors = self._kafka.KafkaError
        return {errors._ALL_BROKERS_DOWN, errors._TRANSPORT, errors._TIMED_OUT, errors._RESOLVE}

    def _note_error(self, error: Any) -> None:
        self._last_error = error.str()
        if self._is_assigned and not self._is_away and error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN:
            self._is_away = True
            self._report("the connection to the broker is lost; waiting for it")

    def _make_consumer(self, address: Address) -> Any:
        settings = {
            "bootstrap.servers": address.hosts,
            "group.id": "momostream",  # asked for, and never joined
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",  # rows that were removed are counted, not skipped
            "enable.partition.eof": True,
            "log_level": 2,  # else librdkafka writes to standard error
            "error_cb": self._note_error,
        }
        try:
            return self._kafka.Consumer(settings | _settings(address))
        except self._kafka.KafkaException as error:
            raise ValueError(f"{self.name}: {error.args[0].str()}") from None

    def _wait_for(self, ask: Callable[[], Answer]) -> Answer:
        """Ask until the broker answers."""

        def attempt() -> Answer:
            try:
                return ask()
            except self._kafka.KafkaException as error:
                if error.args[0].code() == self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise AwayError("the broker has no such topic") from None
                # Errors of connections say more than a missing answer. Later this would take a row.
                if not self._is_assigned:
                    self._consumer.poll(0)
                raise AwayError(f"the broker cannot be reached: {self._last_error or error.args[0].str()}") from None

        return retry(attempt, clock.monotonic() + self.patience, self._report, self.name)

    def _timeout(self) -> float:
        # Several attempts, however short the patience.
        return max(0.1, min(5.0, self.patience / 3.0))

    def _find_partitions(self) -> list[int]:
        found = self._consumer.list_topics(self.topic, timeout=self._timeout()).topics[self.topic]
        if found.error is not None:
            raise self._kafka.KafkaException(found.error)
        return sorted(found.partitions)

    def _add_partitions(self) -> None:
        try:
            found = self._find_partitions()
        except self._kafka.KafkaException:
            return  # the next look will find them
        new = [partition for partition in found if partition not in self._partitions]
        if new:
            self._consumer.incremental_assign([self._start(partition) for partition in new])
            self._partitions += new

    def _start(self, partition: int) -> Any:
        """Offset from which a partition is read."""
        start = self._kafka.TopicPartition(self.topic, partition)
        first, end = self._wait_for(lambda: self._consumer.get_watermark_offsets(start, timeout=self._timeout()))
        start.offset = self._offsets.get(partition, first)
        if start.offset > end:
            raise FeedError(
                f"{self.name}: partition {partition} ends at {end}, but was read up to {start.offset} before: "
                "it is another topic, or was recreated"
            )
        if start.offset < first:
            n_missing = first - start.offset
            self.n_lost += n_missing
            self._report(f"{n_missing} rows of partition {partition} were removed before they were read")
            start.offset = self._offsets[partition] = first
        if self.until_end and start.offset < end:
            self._ends[partition] = end
        return start


class KafkaOutlet:
    """Sends numbered texts to a Kafka topic.

    A text is sent again when it is not certain that it has arrived. Its number is the header ``number``, by which
    receivers can drop repetitions; its key is the key of the message, so that texts of one key keep their order.

    Parameters
    ----------
    url
        ``kafka://host[:9092][,host2]/topic``, followed by settings of librdkafka where needed.
    patience
        Seconds to wait for an answer.
    on_trouble
        Called with one line, once for each loss of the broker.

    Attributes
    ----------
    name : str
        The URL without settings.
    """

    def __init__(self, url: str, *, patience: float = 10.0, on_trouble: Trouble | None = None) -> None:
        self._address = read_address(url, "kafka")
        self._kafka = _confluent_kafka()
        self.name, self.patience = self._address.name, patience
        self._on_trouble = on_trouble
        self._attempts = Attempts()
        self._producer: Any = self._make_producer()

    def send(self, lines: Iterable[tuple[int, str | int | None, str]]) -> int:
        """Publish texts and wait for the broker to have them; as `MqttOutlet.send`."""
        return send_in_slices(lines, self._send_slice)

    def last_number(self) -> None:
        """Return None: a broker does not say what it has got."""

    def close(self) -> None:
        """Leave the broker."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(0)
            self._producer = None

    def _send_slice(self, lines: list[tuple[int, str | int | None, str]]) -> int:
        if not self._attempts.is_due():
            return 0
        if self._producer is None:
            self._producer = self._make_producer()
        reports: dict[int, Any] = {}
        for number, key, text in lines:
            try:
                self._producer.produce(
                    self._address.topic,
                    text.encode(),
                    None if key is None else str(key),
                    headers={"number": str(number)},
                    on_delivery=lambda error, _, number=number: reports.update({number: error}),
                )
            except self._kafka.KafkaException as failure:
                # Later texts must not overtake it.
                reports[number] = failure.args[0]
                break
        self._producer.flush(self.patience + 1.0)
        n_sent = 0
        for number, _, _ in lines:
            error = reports.get(number)
            if number not in reports or error is not None:
                self._give_up(error)
                break
            n_sent += 1
        else:
            self._attempts.note(succeeded=True)
        return n_sent

    def _give_up(self, error: Any) -> None:
        """Stop until the next attempt; raise where waiting does not help."""
        self.close()
        is_first = self._attempts.note(succeeded=False)
        errors = self._kafka.KafkaError
        passing = {errors._MSG_TIMED_OUT, errors._ALL_BROKERS_DOWN, errors._TRANSPORT, errors._TIMED_OUT}
        if error is not None and error.code() not in passing and not error.retriable():
            raise FeedError(f"{self.name}: the broker does not accept messages: {error.str()}")
        if is_first and self._on_trouble is not None:
            self._on_trouble(f"{self.name}: the broker does not answer")

    def _make_producer(self) -> Any:
        settings = {
            "bootstrap.servers": self._address.hosts,
            "enable.idempotence": True,
            "message.timeout.ms": int(1000 * self.patience),
            "log_level": 2,  # else librdkafka writes to standard error
        }
        try:
            return self._kafka.Producer(settings | _settings(self._address))
        except self._kafka.KafkaException as error:
            raise ValueError(f"{self.name}: {error.args[0].str()}") from None
