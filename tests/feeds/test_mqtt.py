"""Feeds and outlets of MQTT, against a real mosquitto."""

from __future__ import annotations

import json
import socket
import threading
import time
from itertools import islice
from types import SimpleNamespace

import pytest

from benchmarks.tools.brokers import Mosquitto, free_port, publish_mqtt
from momostream.feeds import mqtt
from momostream.feeds.brokers import MqttFeed, MqttOutlet, open_outlet
from momostream.feeds.formats import Rejected, Row
from momostream.feeds.source import FeedError
from tests.feeds.messaging import LIMIT, commit, leave, needs_mqtt, offsets, rows, take


@needs_mqtt
def test_mqtt_rows_and_rejected_rows(shared_mosquitto, topic, opened):
    feed = opened(
        MqttFeed(shared_mosquitto.url(f"{topic}/+"), ["power", "s.wind"], "at", key="turbine", sequence="seq")
    )
    good = {"seq": 1, "turbine": "T1", "at": "2024-03-01 00:10", "power": 4.5, "s": {"wind": 8}}
    messages = [
        good,
        good | {"seq": 2, "power": "much"},
        {"seq": 3, "at": 5, "power": 1.0},
        good | {"seq": 4, "turbine": [1]},
        b"{",
        b"\xff{}",
        good | {"seq": True},
        good | {"seq": 5, "power": None},
    ]
    publish_mqtt(shared_mosquitto.port, [(f"{topic}/a", message) for message in messages])
    first, *rejected, last = take(feed, len(messages))
    assert isinstance(first, Row) and first[:2] == (1, 1)
    assert first.values == {"power": 4.5, "s.wind": 8.0} and first.key == "T1" and first.time.minute == 10
    assert [(r.number, r.offset, r.key, r.reason) for r in rejected] == [
        (2, 2, "T1", "column 'power': 'much' is text, not a number"),
        (3, 3, None, "column 'turbine': the key is missing"),
        (4, 4, None, "column 'turbine': [1] is an invalid key: expected a string or an integer"),
        (5, 5, None, "is not JSON: Expecting property name enclosed in double quotes at character 2"),
        (6, 6, None, "is not UTF-8: byte 1 is invalid"),
        (7, 7, "T1", "column 'seq': True is not an integer"),
    ]
    assert json.loads(rejected[0].text)["power"] == "much"
    assert (last.number, last.offset, last.values) == (8, 5, {"s.wind": 8.0})
    assert feed.n_lost == 0 and feed.unfinished(first) is None and feed.is_replayable and feed.is_live


@needs_mqtt
def test_mqtt_topic_is_a_field_unless_the_message_has_one(shared_mosquitto, topic, opened):
    feed = opened(MqttFeed(shared_mosquitto.url(f"{topic}/#"), ["power"], key="topic"))
    publish_mqtt(shared_mosquitto.port, [(f"{topic}/a", {"power": 1}), (f"{topic}/b", {"power": 2, "topic": "mine"})])
    assert [row.key for row in take(feed, 2)] == [f"{topic}/a", "mine"]


@needs_mqtt
def test_mqtt_only_what_was_committed_is_acknowledged(shared_mosquitto, topic, opened):
    url = shared_mosquitto.url(f"{topic}/#")
    feed = opened(MqttFeed(url, ["power"], sequence="seq"))
    publish_mqtt(shared_mosquitto.port, rows(1, 41, f"{topic}/a"))
    take(feed, 30)
    position = json.loads(json.dumps(feed.position))
    # Taken after the position was asked for. All of them: with messages unread, the end of a connection would overtake
    # the acknowledgements.
    take(feed, 10)
    feed.acknowledge()
    leave(feed, shared_mosquitto)
    publish_mqtt(shared_mosquitto.port, rows(41, 101, f"{topic}/a"))

    # A reader that knows of no position gets all that was not acknowledged.
    ignorant = opened(MqttFeed(url, ["power"], sequence="seq"))
    assert offsets(take(ignorant, 70)) == list(range(31, 101))
    ignorant.close()

    # One that resumes after the position gets each row once, numbered on.
    knowing = opened(MqttFeed(url, ["power"], sequence="seq", until_idle=0.5))
    knowing.seek(position)
    events = take(knowing, 71)
    assert offsets(events) == list(range(31, 101)) and [e.number for e in events] == list(range(31, 101))
    commit(knowing)
    leave(knowing, shared_mosquitto)
    assert take(opened(MqttFeed(url, ["power"], sequence="seq", until_idle=0.5)), 1) == []


@needs_mqtt
def test_mqtt_says_at_once_when_nothing_more_is_at_hand(shared_mosquitto, topic, opened, monkeypatch):
    feed = opened(MqttFeed(shared_mosquitto.url(f"{topic}/#"), ["power"], sequence="seq"))
    monkeypatch.setattr(mqtt, "PAUSE", 60.0)
    publish_mqtt(shared_mosquitto.port, rows(1, 2, f"{topic}/a"))
    began, events = time.monotonic(), feed.events()
    assert next(events).offset == 1 and next(events) is None
    assert time.monotonic() - began < 30.0


@needs_mqtt
def test_mqtt_drops_repeated_rows_and_counts_missing_ones(shared_mosquitto, topic, opened):
    troubles = []
    feed = opened(
        MqttFeed(
            shared_mosquitto.url(f"{topic}/#"), ["power"], sequence="seq", until_idle=0.5, on_trouble=troubles.append
        )
    )
    a, b = f"{topic}/a", f"{topic}/b"
    sent = [*rows(1, 6, a), *rows(3, 8, a), *rows(4, 6, b), *rows(10, 12, a)]
    publish_mqtt(shared_mosquitto.port, sent)
    assert offsets(take(feed, 100)) == [1, 2, 3, 4, 5, 6, 7, 4, 5, 10, 11]
    assert (feed.n_repeated, feed.n_lost) == (3, 2)
    assert troubles == [f"{feed.name}: 2 rows of {a} are missing between 7 and 10"]
    position = commit(feed)
    assert position == {"number": 11, "sequences": {a: 11, b: 5}, "unreadable": {}, "unnumbered": [], "n_lost": 2}
    # Repeated rows are acknowledged too, at once where all others are.
    publish_mqtt(shared_mosquitto.port, rows(1, 5, a))
    assert take(feed, 100) == [] and feed.n_repeated == 7
    leave(feed, shared_mosquitto)
    again = opened(MqttFeed(shared_mosquitto.url(f"{topic}/#"), ["power"], until_idle=0.5))
    assert take(again, 100) == []


@needs_mqtt
def test_mqtt_reports_a_publisher_that_counts_again(shared_mosquitto, topic, opened):
    troubles = []
    url = shared_mosquitto.url(topic)
    feed = opened(MqttFeed(url, ["power"], sequence="seq", until_idle=0.5, on_trouble=troubles.append))
    publish_mqtt(shared_mosquitto.port, [*rows(500, 501, topic), *rows(1, 201, topic)])
    assert len(take(feed, 100)) == 1 and feed.n_repeated == 200
    assert len(troubles) == 1 and "restarted its numbering" in troubles[0]


@needs_mqtt
def test_mqtt_messages_without_a_number_are_known_again_by_their_packet(shared_mosquitto, topic, opened):
    url = shared_mosquitto.url(topic)
    # All messages are the same: only the packet tells which one it is.
    messages = [(topic, b"nothing")] * 10
    feed = opened(MqttFeed(url, ["power"], sequence="seq"))
    publish_mqtt(shared_mosquitto.port, messages, retain=False)
    assert all(isinstance(event, Rejected) for event in take(feed, 4))
    commit(feed)
    take(feed, 2)
    position = json.loads(json.dumps(feed.position))
    take(feed, 1)
    leave(feed, shared_mosquitto)
    # Killed between the commit and its acknowledgement.
    again = opened(MqttFeed(url, ["power"], sequence="seq", until_idle=0.5))
    again.seek(position)
    assert [event.number for event in take(again, 100)] == [7, 8, 9, 10] and again.n_repeated == 2
    position = commit(again)
    leave(again, shared_mosquitto)
    final = opened(MqttFeed(url, ["power"], sequence="seq", until_idle=0.5))
    final.seek(position)
    publish_mqtt(shared_mosquitto.port, messages[:1], retain=False)
    assert [event.number for event in take(final, 100)] == [11]


@needs_mqtt
def test_mqtt_has_more_under_way_than_the_broker_allows_by_itself(shared_mosquitto, topic, opened):
    feed = opened(MqttFeed(shared_mosquitto.url(topic), ["power"], sequence="seq"))
    publish_mqtt(shared_mosquitto.port, rows(1, 3001, topic), retain=False)
    # Mosquitto's own limit is 20.
    assert len(take(feed, 3000)) == 3000


@needs_mqtt
def test_mqtt_says_that_nothing_came(shared_mosquitto, topic, opened):
    feed = opened(MqttFeed(shared_mosquitto.url(topic), ["power"]))
    start = time.monotonic()
    assert list(islice(feed.events(), 3)) == [None] * 3
    assert time.monotonic() - start > 0.4
    feed.close()
    assert list(feed.events()) == []


@needs_mqtt
def test_mqtt_broker_killed_while_reading(mosquitto, opened):
    troubles = []
    feed = opened(MqttFeed(mosquitto.url("farm/#"), ["power"], sequence="seq", on_trouble=troubles.append))
    sent = [*rows(1, 401), ("farm/a", {"seq": 401, "power": "bad"})]
    # Slowly, so that the last rows come through the new connection.
    publisher = threading.Thread(target=publish_mqtt, args=(mosquitto.port, sent), kwargs={"rate": 200.0})
    publisher.start()
    events = take(feed, 100)
    commit(feed)
    events += take(feed, 50)
    # 50 rows were taken and not committed, others have come and were not taken.
    mosquitto.restart()
    events += take(feed, 251)
    publisher.join(LIMIT)
    assert not publisher.is_alive()
    assert offsets(events) == list(range(1, 402)) and feed.n_lost == 0
    assert [event.number for event in events] == list(range(1, 402))
    # Once or, while a busy machine starts the broker again, several times.
    assert set(troubles) == {f"{feed.name}: the connection to the broker is lost; waiting for it"}
    commit(feed)
    leave(feed, mosquitto)
    # The acknowledgements went to the packets of the new connection.
    feed = opened(MqttFeed(mosquitto.url("farm/#"), ["power"], until_idle=0.6))
    assert take(feed, 1) == []


@needs_mqtt
def test_mqtt_broker_stopped_while_nobody_reads(mosquitto, opened):
    feed = opened(MqttFeed(mosquitto.url("farm/#"), ["power"], sequence="seq"))
    publish_mqtt(mosquitto.port, rows(1, 11))
    take(feed, 5)
    position = commit(feed)
    feed.close()
    publish_mqtt(mosquitto.port, rows(11, 21))
    mosquitto.stop()
    mosquitto.start()
    feed = opened(MqttFeed(mosquitto.url("farm/#"), ["power"], sequence="seq"))
    feed.seek(position)
    assert offsets(take(feed, 15)) == list(range(6, 21))


@needs_mqtt
def test_mqtt_session_that_the_broker_has_forgotten(tmp_path, opened):
    troubles = []
    with Mosquitto(tmp_path / "forgetful", ["persistence false"]) as mosquitto:
        url = mosquitto.url("farm/#")
        feed = opened(MqttFeed(url, ["power"], on_trouble=troubles.append))
        publish_mqtt(mosquitto.port, rows(1, 6))
        take(feed, 5)
        mosquitto.restart()
        deadline = time.monotonic() + LIMIT
        for _ in feed.events():
            if len(troubles) == 2 or time.monotonic() > deadline:
                break
        assert "without the session" in troubles[1]
        position = commit(feed)
        assert position["unnumbered"] == []
        feed.close()
        mosquitto.restart()
        feed = opened(MqttFeed(url, ["power"], until_idle=0.1, on_trouble=troubles.append))
        feed.seek(position)
        assert take(feed, 1) == []
        assert "has lost the session" in troubles[2]


@needs_mqtt
def test_mqtt_messages_that_cannot_be_read_are_not_missing(shared_mosquitto, topic, opened):
    from paho.mqtt import publish

    url, troubles = shared_mosquitto.url(topic), []
    payloads = ['{"power": 1, "seq": 1}', "broken", '{"power": 1, "seq": "3", "id": "A"}', '{"power": 1, "seq": 4}']
    feed = opened(MqttFeed(url, ["power"], key="id", sequence="seq", on_trouble=troubles.append))
    publish.multiple([(topic, text, 1, False) for text in payloads[:2]], "127.0.0.1", shared_mosquitto.port)
    take(feed, 2)
    position = commit(feed)
    leave(feed, shared_mosquitto)
    feed = opened(MqttFeed(url, ["power"], key="id", sequence="seq", on_trouble=troubles.append))
    feed.seek(position)
    publish.multiple([(topic, text, 1, False) for text in payloads[2:]], "127.0.0.1", shared_mosquitto.port)
    third, fourth = take(feed, 2)
    # What is wrong is its number, not its key.
    assert (third.key, third.reason) == ("A", "column 'seq': '3' is not an integer")
    assert fourth.offset == 4 and feed.n_lost == 0 and troubles == []
    commit(feed)


@needs_mqtt
@pytest.mark.parametrize("sequence", [None, "n"])
def test_mqtt_reports_rows_that_may_get_lost(shared_mosquitto, topic, opened, sequence):
    from paho.mqtt import publish

    troubles = []
    feed = opened(MqttFeed(shared_mosquitto.url(topic), ["power"], sequence=sequence, on_trouble=troubles.append))
    for n in (1, 2):
        publish.single(topic, f'{{"power": 1, "n": {n}}}', qos=0, hostname="127.0.0.1", port=shared_mosquitto.port)
    assert len(take(feed, 2)) == 2
    assert len(troubles) == 1 and "QoS 0" in troubles[0]
    commit(feed)


@needs_mqtt
def test_mqtt_broker_that_is_busy(shared_mosquitto, topic, opened):
    troubles = []
    feed = opened(MqttFeed(shared_mosquitto.url(topic), ["power"], until_idle=0.1, on_trouble=troubles.append))
    for _ in range(2):
        feed._note_connect(None, None, None, SimpleNamespace(value=0x89, is_failure=True), None)
    assert take(feed, 1) == []
    assert len(troubles) == 1 and "rejects connections" in troubles[0]


@needs_mqtt
def test_mqtt_session_taken_over(shared_mosquitto, topic, opened):
    troubles = []
    url = shared_mosquitto.url(f"{topic}?client_id={topic}")
    feed = opened(MqttFeed(url, ["power"], on_trouble=troubles.append))
    opened(MqttFeed(url, ["power"]))
    deadline = time.monotonic() + LIMIT
    for _ in feed.events():
        if any("is there another client" in trouble for trouble in troubles):
            break
        assert time.monotonic() < deadline
    # Newer brokers say so.
    feed._note_disconnect(None, None, None, SimpleNamespace(value=0x8E), None)
    with pytest.raises(FeedError, match=f"another client with the name '{topic}'"):
        take(feed, 1)


@needs_mqtt
def test_mqtt_broker_away_at_the_start():
    troubles, port = [], free_port()
    start = time.monotonic()
    with pytest.raises(FeedError, match=f"^mqtt://127.0.0.1:{port}/rows: the broker cannot be reached: .*refused$"):
        MqttFeed(f"mqtt://ann:secret@127.0.0.1:{port}/rows", ["power"], patience=0.5, on_trouble=troubles.append)
    # Its patience, not the 30 s that are usual.
    assert time.monotonic() - start < 25.0
    assert len(troubles) == 1 and "trying again" in troubles[0] and "secret" not in troubles[0]


@needs_mqtt
def test_mqtt_broker_that_comes_late(tmp_path, opened):
    mosquitto = Mosquitto(tmp_path / "late")
    starter = threading.Timer(0.6, mosquitto.start)
    starter.start()
    try:
        opened(MqttFeed(mosquitto.url("rows"), ["power"]))
    finally:
        starter.join(LIMIT)
        mosquitto.kill()


@needs_mqtt
def test_mqtt_something_else_listens(opened):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"mqtt://127.0.0.1:{server.getsockname()[1]}/rows"
        with pytest.raises(FeedError, match="did not answer for 0.3 s"):
            MqttFeed(url, ["power"], patience=0.3)
        outlet = opened(MqttOutlet(url, patience=0.3))
        assert outlet.send([(1, None, "text")]) == 0


@needs_mqtt
def test_mqtt_broker_that_lets_nobody_in(tmp_path):
    with Mosquitto(tmp_path / "closed", ["allow_anonymous false"]) as mosquitto:
        start = time.monotonic()
        with pytest.raises(FeedError, match="rejects client 'me': Not authorized"):
            MqttFeed(mosquitto.url("rows", "ann:secret@"), ["power"], client_id="me")
        with pytest.raises(FeedError, match="rejects this client: Not authorized"):
            MqttOutlet(mosquitto.url("rows")).send([(1, None, "text")])
        # Waiting does not help: at once, and not after 30 s and 10 s.
        assert time.monotonic() - start < 25.0


@needs_mqtt
def test_mqtt_topic_that_must_not_be_written(tmp_path, opened):
    rules = tmp_path / "rules"
    rules.write_text("topic read rows\n", encoding="utf-8")
    with Mosquitto(tmp_path / "ruled", [f"acl_file {rules}"]) as mosquitto:
        with pytest.raises(FeedError, match="does not accept messages: Not authorized"):
            opened(MqttOutlet(mosquitto.url("rows"))).send([(1, None, "text")])


@needs_mqtt
def test_mqtt_options(shared_mosquitto):
    with pytest.raises(ValueError, match="unknown setting qos"):
        MqttFeed(shared_mosquitto.url("rows?qos=2"), ["power"])
    with pytest.raises(TypeError, match="sequence of names"):
        MqttFeed(shared_mosquitto.url("rows"), "power")
    with pytest.raises(ValueError, match="wildcards"):
        MqttOutlet(shared_mosquitto.url("rows/#"))
    with pytest.raises(ValueError, match="unknown setting a; there is user"):
        MqttOutlet(shared_mosquitto.url("rows?a=1"))


@needs_mqtt
def test_mqtt_outlet_round_trip(shared_mosquitto, topic, opened):
    feed = opened(MqttFeed(shared_mosquitto.url(f"{topic}/#"), ["power"], key="topic"))
    outlet = opened(open_outlet(shared_mosquitto.url(f"{topic}/{{key}}/out")))
    lines = [(n, f"T{n % 2}", json.dumps({"power": n})) for n in range(3, 1503)]
    assert outlet.send(lines) == 1502
    got = take(feed, 1500)
    assert [row.values["power"] for row in got] == list(range(3, 1503))
    assert got[0].key == f"{topic}/T1/out"
    assert outlet.send([]) == 0
    # What must not stand in a topic.
    assert outlet.send([(1503, "a+b/#", "{}"), (1504, None, "{}")]) == 1504
    assert [row.key for row in take(feed, 2)] == [f"{topic}/a%2Bb/%23/out", f"{topic}//out"]


@needs_mqtt
def test_mqtt_outlet_numbers_its_messages(shared_mosquitto, topic, opened):
    from paho.mqtt import subscribe

    has_come = threading.Event()

    def publish():
        outlet = opened(MqttOutlet(shared_mosquitto.url(topic)))
        # Until somebody listens.
        while not has_come.wait(0.1):
            outlet.send([(17, "T1", "text")])

    thread = threading.Thread(target=publish)
    thread.start()
    got = subscribe.simple(topic, qos=1, hostname="127.0.0.1", port=shared_mosquitto.port, protocol=5)
    has_come.set()
    thread.join(LIMIT)
    assert got.payload == b"text" and got.properties.UserProperty == [("number", "17")]


@needs_mqtt
def test_mqtt_outlet_outlives_the_broker(mosquitto, opened):
    troubles = []
    feed = opened(MqttFeed(mosquitto.url("out"), ["power"]))
    outlet = opened(MqttOutlet(mosquitto.url("out"), patience=1.0, on_trouble=troubles.append))
    lines = [(n, None, json.dumps({"power": n})) for n in range(1, 11)]
    assert outlet.send(lines[:4]) == 4
    mosquitto.kill()
    assert outlet.send(lines[4:]) == 0
    start = time.monotonic()
    assert [outlet.send(lines[4:]) for _ in range(20)] == [0] * 20
    # Between attempts it answers at once; else it would take its patience each time.
    assert time.monotonic() - start < 10.0
    assert len(troubles) == 1 and "broker" in troubles[0]
    mosquitto.start()
    deadline = time.monotonic() + LIMIT
    while (safe := outlet.send(lines[4:])) == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert safe == 10
    assert {row.values["power"] for row in take(feed, 10)} == set(range(1, 11))
