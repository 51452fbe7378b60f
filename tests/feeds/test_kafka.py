"""Feeds and outlets of Kafka, against librdkafka's mock cluster."""

from __future__ import annotations

import json
import time
from itertools import islice

import pytest

from benchmarks.tools.brokers import MockKafka, free_port, publish_kafka
from momostream.feeds import kafka
from momostream.feeds.brokers import KafkaFeed, KafkaOutlet, open_outlet
from momostream.feeds.formats import Row
from momostream.feeds.source import FeedError
from tests.feeds.messaging import LIMIT, commit, needs_kafka, take


@needs_kafka
def test_kafka_rows_and_rejected_rows(cluster, topic, opened):
    messages = [
        ("T1", {"power": 4.5, "at": "2024-03-01 00:10"}),
        ("T1", {"power": "much", "at": 1}),
        (None, {"power": 1.0, "at": 1}),
        ("T1", b"{"),
        ("T1", None),
        (b"\xff", {"power": 1.0, "at": 1}),
        ("T1", {"at": 7.5, "key": 12, "topic": "mine"}),
    ]
    publish_kafka(cluster.address, topic, messages, partition=2)
    feed = opened(KafkaFeed(cluster.url(topic), ["power"], "at", key="key", until_end=True))
    first, *rejected, last = take(feed, 100)
    assert isinstance(first, Row) and (first.number, first.offset, first.values, first.key) == (
        1,
        0,
        {"power": 4.5},
        "T1",
    )
    assert [(r.number, r.offset, r.key, r.reason) for r in rejected] == [
        (2, 1, "T1", "column 'power': 'much' is text, not a number"),
        (3, 2, None, "column 'key': the key is missing"),
        (4, 3, None, "is not JSON: Expecting property name enclosed in double quotes at character 2"),
        (5, 4, None, "is not JSON: Expecting value at character 1"),
        (6, 5, None, "column 'key': the key is missing"),
    ]
    assert (last.number, last.offset, last.time, last.values, last.key) == (7, 6, 7.5, {}, 12)
    assert feed.position == {"number": 7, "offsets": {"2": 7}, "n_lost": 0}
    assert feed.is_replayable and not feed.is_live and feed.unfinished(first) is None


@needs_kafka
def test_kafka_resumes_after_a_position(cluster, topic, opened):
    messages = [(f"T{n % 5}", {"power": n}) for n in range(200)]
    publish_kafka(cluster.address, topic, messages[:150])
    feed = opened(KafkaFeed(cluster.url(topic), ["power"], key="key"))
    got = take(feed, 60)
    position = commit(feed)
    got_later = take(feed, 10)
    feed.close()
    publish_kafka(cluster.address, topic, messages[150:])
    again = opened(KafkaFeed(cluster.url(topic), ["power"], key="key", until_end=True))
    again.seek(position)
    rest = take(again, 1000)
    assert {row.values["power"] for row in got_later} <= {row.values["power"] for row in rest}
    assert [row.number for row in got + rest] == list(range(1, 201))
    for key in range(5):
        # Each key in its order, nothing lost, nothing doubled.
        of_key = [row.values["power"] for row in got + rest if row.key == f"T{key}"]
        assert of_key == list(range(key, 200, 5))


@needs_kafka
def test_kafka_reads_to_the_end_that_was_there(cluster, topic, opened):
    publish_kafka(cluster.address, topic, [("a", {"power": 1})] * 20, partition=0)
    publish_kafka(cluster.address, topic, [("a", {"power": 1})] * 20, partition=1)
    feed = opened(KafkaFeed(cluster.url(topic), ["power"], until_end=True))
    events = feed.events()
    while next(events) is None:
        pass
    publish_kafka(cluster.address, topic, [("a", {"power": 2})] * 5, partition=0)
    rest = [event for event in events if event is not None]
    assert len(rest) == 39 and feed.position["offsets"] == {"0": 20, "1": 20}
    assert list(feed.events()) == []
    # Nothing new since: it ends at once.
    again = opened(KafkaFeed(cluster.url(topic), ["power"], until_end=True))
    again.seek({"number": 45, "offsets": {"0": 25, "1": 20, "2": 0, "3": 0}, "n_lost": 0})
    assert list(again.events()) == []


@needs_kafka
def test_kafka_says_that_nothing_came_and_waits_for_more(cluster, topic, opened):
    publish_kafka(cluster.address, topic, [(None, {"power": 1})])
    feed = opened(KafkaFeed(cluster.url(topic), ["power"]))
    take(feed, 1)
    assert feed.is_live
    assert list(islice(feed.events(), 3)) == [None] * 3
    publish_kafka(cluster.address, topic, [(None, {"power": 3})])
    assert take(feed, 1)[0].values == {"power": 3.0}
    feed.close()
    feed.close()
    assert list(feed.events()) == []


@needs_kafka
def test_kafka_finds_new_partitions(cluster, topic, opened, monkeypatch):
    monkeypatch.setattr(kafka, "_LOOK", 0.3)
    publish_kafka(cluster.address, topic, [(None, {"power": 1})], partition=0)
    publish_kafka(cluster.address, topic, [(None, {"power": 2})], partition=3)
    feed = opened(KafkaFeed(cluster.url(topic), ["power"]))
    # The mock cannot add partitions: as if only these had been there.
    feed._partitions = [0, 1]
    assert [row.values["power"] for row in take(feed, 2)] == [1, 2]
    assert feed._partitions == [0, 1, 2, 3]


@needs_kafka
def test_kafka_rows_removed_before_they_were_read(cluster, topic, opened):
    # The mock keeps 5 MB of a partition.
    big = [(None, {"power": n, "filling": "x" * 500_000}) for n in range(20)]
    publish_kafka(cluster.address, topic, big[:2], partition=0)
    feed = opened(KafkaFeed(cluster.url(topic), ["power"]))
    take(feed, 1)
    position = commit(feed)
    feed.close()
    publish_kafka(cluster.address, topic, big[2:], partition=0)
    troubles = []
    again = opened(KafkaFeed(cluster.url(topic), ["power"], until_end=True, on_trouble=troubles.append))
    again.seek(position)
    rest = take(again, 100)
    assert 0 < len(rest) < 19 and again.n_lost == 19 - len(rest)
    assert rest[-1].values == {"power": 19.0} and rest[0].offset == 1 + again.n_lost
    assert troubles == [f"{again.name}: {again.n_lost} rows of partition 0 were removed before they were read"]
    assert again.position["n_lost"] == again.n_lost


@needs_kafka
def test_kafka_rows_removed_while_reading(cluster, topic, opened):
    big = [(None, {"power": n, "filling": "x" * 500_000}) for n in range(20)]
    publish_kafka(cluster.address, topic, big[:3], partition=0)
    troubles = []
    # It fetches no more than the row at hand.
    settings = (
        "queued.min.messages=1&queued.max.messages.kbytes=1&fetch.message.max.bytes=1000&fetch.queue.backoff.ms=20"
    )
    feed = opened(KafkaFeed(cluster.url(f"{topic}?{settings}"), ["power"], on_trouble=troubles.append))
    got = take(feed, 1)
    publish_kafka(cluster.address, topic, big[3:], partition=0)
    while got[-1].values["power"] < 19:
        got += take(feed, 1)
    assert feed.n_lost == 20 - len(got) > 0
    assert "were removed before they were read" in troubles[0]


@needs_kafka
def test_kafka_topic_that_is_another_one(cluster, topic, opened):
    publish_kafka(cluster.address, topic, [(None, {"power": 1})], partition=0)
    feed = opened(KafkaFeed(cluster.url(topic), ["power"]))
    feed.seek({"number": 9, "offsets": {"0": 9}, "n_lost": 0})
    with pytest.raises(FeedError, match="partition 0 ends at 1, but was read up to 9 before"):
        take(feed, 1)


@needs_kafka
def test_kafka_broker_away_at_the_start():
    troubles, port = [], free_port()
    start = time.monotonic()
    with pytest.raises(FeedError, match=f"^kafka://127.0.0.1:{port}/rows: the broker cannot be reached: "):
        KafkaFeed(f"kafka://127.0.0.1:{port}/rows", ["power"], patience=0.5, on_trouble=troubles.append)
    # Its patience, not the 30 s that are usual.
    assert time.monotonic() - start < 25.0
    assert len(troubles) == 1 and "trying again" in troubles[0]


@needs_kafka
def test_kafka_topic_that_is_not_there(cluster, topic):
    with pytest.raises(FeedError, match="the broker has no such topic"):
        KafkaFeed(cluster.url(topic), ["power"], patience=0.5)


@needs_kafka
def test_kafka_broker_killed_while_reading(opened):
    troubles = []
    with MockKafka() as mock:
        publish_kafka(mock.address, "rows", [(None, {"power": 1})])
        feed = opened(KafkaFeed(mock.url("rows"), ["power"], on_trouble=troubles.append))
        outlet = opened(KafkaOutlet(mock.url("out"), patience=0.5))
        take(feed, 1)
        mock.kill()
        deadline = time.monotonic() + LIMIT
        for _ in feed.events():
            if troubles or time.monotonic() > deadline:
                break
        list(islice(feed.events(), 5))
        assert troubles == [f"{feed.name}: the connection to the broker is lost; waiting for it"]
        assert outlet.send([(1, None, "text")]) == 0


@needs_kafka
def test_kafka_settings(cluster):
    with pytest.raises(ValueError, match="no.such.setting"):
        KafkaFeed(cluster.url("rows?no.such.setting=1"), ["power"])
    with pytest.raises(ValueError, match="no.such.setting"):
        KafkaOutlet(cluster.url("rows?no.such.setting=1"))


@needs_kafka
def test_kafka_outlet_round_trip(cluster, topic, opened):
    outlet = opened(open_outlet(cluster.url(topic)))
    lines = [(n, f"T{n % 3}", json.dumps({"power": n})) for n in range(3, 1503)]
    assert outlet.send(lines) == 1502 and outlet.send([]) == 0
    assert outlet.send([(1503, None, "{}")]) == 1503
    feed = opened(KafkaFeed(cluster.url(topic), ["power"], key="key", until_end=True))
    got = [event for event in take(feed, 2000) if isinstance(event, Row)]
    for key in range(3):
        of_key = [row.values["power"] for row in got if row.key == f"T{key}"]
        assert of_key == [n for n in range(3, 1503) if n % 3 == key]


@needs_kafka
def test_kafka_outlet_numbers_its_messages(cluster, topic, opened):
    from confluent_kafka import Consumer, TopicPartition

    opened(KafkaOutlet(cluster.url(topic))).send([(17, 4, "text")])
    consumer = opened(Consumer({"bootstrap.servers": cluster.address, "group.id": "test"}))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
    message = consumer.poll(LIMIT)
    assert (message.key(), message.value(), message.headers()) == (b"4", b"text", [("number", b"17")])


@needs_kafka
def test_kafka_outlet_outlives_a_broker_that_does_not_answer(opened):
    troubles = []
    with MockKafka() as mock:
        outlet = opened(KafkaOutlet(mock.url("out"), patience=4.0, on_trouble=troubles.append))
        assert sent(outlet, [(1, None, "{}")]) == 1
        # A busy machine may have been slow to answer before.
        troubles.clear()
        mock.pause()
        assert outlet.send([(2, None, "{}"), (3, None, "{}")]) == 0
        start = time.monotonic()
        assert outlet.send([(2, None, "{}")]) == 0
        # At once, as the broker is known to be away; else it would take its patience.
        assert time.monotonic() - start < 4.0
        assert troubles == [f"{outlet.name}: the broker does not answer"]
        mock.go_on()
        assert sent(outlet, [(2, None, "{}"), (3, None, "{}")]) == 3


def sent(outlet, lines):
    """Send until the broker has all lines."""
    deadline = time.monotonic() + LIMIT
    while (safe := outlet.send(lines)) == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    return safe


@needs_kafka
def test_kafka_outlet_that_is_rejected(cluster, topic, opened):
    outlet = opened(KafkaOutlet(cluster.url(f"{topic}?message.max.bytes=2000")))
    with pytest.raises(FeedError, match="does not accept"):
        outlet.send([(1, None, "x" * 5000)])
