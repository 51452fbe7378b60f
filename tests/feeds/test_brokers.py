"""Feeds and outlets behind brokers, against a real mosquitto and librdkafka's mock cluster."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from itertools import islice
from types import SimpleNamespace

import pytest

from benchmarks.tools import brokers as peers
from benchmarks.tools.brokers import MockKafka, Mosquitto, free_port, publish_kafka, publish_mqtt
from momostream.feeds import kafka, messages
from momostream.feeds.brokers import KafkaFeed, KafkaOutlet, MqttFeed, MqttOutlet, is_broker, open_outlet
from momostream.feeds.files import FeedError
from momostream.feeds.rows import Refused, Row

needs_mqtt = pytest.mark.skipif(bool(peers.missing_mqtt()), reason=str(peers.missing_mqtt()))
needs_kafka = pytest.mark.skipif(bool(peers.missing_kafka()), reason=str(peers.missing_kafka()))

# Seconds: no test waits longer for anything.
LIMIT = 20.0


def rows(start, stop, topic="farm/a", **beside):
    return [(topic, {"seq": seq, "power": seq / 2, **beside}) for seq in range(start, stop)]


def take(feed, n, limit=LIMIT):
    """The next n events that are no pauses."""
    deadline = time.monotonic() + limit
    found = []
    for event in feed.events():
        if event is not None:
            found.append(event)
        if len(found) == n:
            return found
        assert time.monotonic() < deadline, f"{len(found)} of {n} events came"
    return found


def commit(feed):
    """What a run does: the position on its disk first, then the acknowledgement."""
    position = json.loads(json.dumps(feed.position))
    feed.acknowledge()
    return position


def leave(feed, broker):
    feed.close()
    broker.wait_until_left(feed.client_id)


def offsets(events):
    return [event.offset for event in events]


@pytest.fixture(scope="module")
def shared_mosquitto(tmp_path_factory):
    with Mosquitto(tmp_path_factory.mktemp("mosquitto")) as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster():
    with MockKafka() as mock:
        yield mock


@pytest.fixture
def mosquitto(tmp_path):
    """One that may be killed."""
    with Mosquitto(tmp_path / "mosquitto") as broker:
        yield broker


@pytest.fixture
def topic(request):
    """Of this test only: sessions and topics outlive the tests that made them."""
    return request.node.name.replace("[", "-").replace("]", "")


@pytest.fixture
def opened():
    """Closes what a test has opened."""
    things = []

    def keep(thing):
        things.append(thing)
        return thing

    yield keep
    for thing in things:
        thing.close()


# URLs


def test_which_places_are_brokers():
    assert is_broker("mqtt://localhost/rows") and is_broker("KAFKA://localhost/rows")
    assert not any(is_broker(place) for place in ["rows.csv", "-", "mqtt", "http://localhost/rows", "kafka:rows"])


@pytest.mark.parametrize(
    ("url", "scheme", "expected"),
    [
        ("mqtt://localhost/farm/#", "mqtt", ("mqtt://localhost:1883/farm/#", "localhost", 1883, None, None, "farm/#")),
        ("mqtt://u%40x:p%2Fw@h:99//a", "mqtt", ("mqtt://h:99//a", "h", 99, "u@x", "p/w", "/a")),
        ("kafka://h/rows", "kafka", ("kafka://h:9092/rows", "h:9092", 9092, None, None, "rows")),
    ],
)
def test_urls(url, scheme, expected):
    assert messages.read_address(url, scheme)[:-1] == expected


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        ("mqtt://localhost", "mqtt"),
        ("mqtt:///rows", "mqtt"),
        ("mqtt://ann:secret@localhost:port/rows", "mqtt"),
        ("kafka://localhost/rows", "mqtt"),
        ("kafka://ann:secret@localhost/rows", "kafka"),
    ],
)
def test_bad_urls_are_told_without_their_passwords(url, scheme):
    with pytest.raises(ValueError, match="has the form") as error:
        messages.read_address(url, scheme)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(("package", "extra"), [("paho", "mqtt"), ("confluent_kafka", "kafka")])
def test_missing_packages_are_named(monkeypatch, package, extra):
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    for kind in {"mqtt": [MqttFeed, MqttOutlet], "kafka": [KafkaFeed, KafkaOutlet]}[extra]:
        arguments = [["power"]] if kind.__name__.endswith("Feed") else []
        with pytest.raises(ValueError, match=rf"pip install 'momostream\[{extra}\]'"):
            kind(f"{extra}://localhost/rows", *arguments)


def test_import_loads_no_client():
    code = "import sys, momostream.feeds.brokers; print({'paho', 'confluent_kafka'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()", done.stderr


# MQTT


@needs_mqtt
def test_mqtt_rows_and_refused_rows(shared_mosquitto, topic, opened):
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
    first, *refused, last = take(feed, len(messages))
    assert isinstance(first, Row) and first[:2] == (1, 1)
    assert first.values == {"power": 4.5, "s.wind": 8.0} and first.key == "T1" and first.time.minute == 10
    assert [(r.number, r.offset, r.key, r.reason) for r in refused] == [
        (2, 2, "T1", "column 'power': 'much' is text, not a number"),
        (3, 3, None, "column 'turbine': the key is missing"),
        (4, 4, None, "column 'turbine': [1] is no key: use a text or a whole number"),
        (5, 5, None, "is not JSON: Expecting property name enclosed in double quotes at character 2"),
        (6, 6, None, "is not UTF-8: byte 1 is wrong"),
        (7, 7, "T1", "column 'seq': True is no whole number"),
    ]
    assert json.loads(refused[0].text)["power"] == "much"
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

    # One that goes on behind the position gets each row once, numbered on.
    knowing = opened(MqttFeed(url, ["power"], sequence="seq", until_idle=0.5))
    knowing.seek(position)
    events = take(knowing, 71)
    assert offsets(events) == list(range(31, 101)) and [e.number for e in events] == list(range(31, 101))
    commit(knowing)
    leave(knowing, shared_mosquitto)
    assert take(opened(MqttFeed(url, ["power"], sequence="seq", until_idle=0.5)), 1) == []


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
def test_mqtt_tells_when_a_publisher_counts_anew(shared_mosquitto, topic, opened):
    troubles = []
    url = shared_mosquitto.url(topic)
    feed = opened(MqttFeed(url, ["power"], sequence="seq", until_idle=0.5, on_trouble=troubles.append))
    publish_mqtt(shared_mosquitto.port, [*rows(500, 501, topic), *rows(1, 201, topic)])
    assert len(take(feed, 100)) == 1 and feed.n_repeated == 200
    assert len(troubles) == 1 and "count anew" in troubles[0]


@needs_mqtt
def test_mqtt_messages_without_a_number_are_known_again_by_their_packet(shared_mosquitto, topic, opened):
    url = shared_mosquitto.url(topic)
    # All messages are the same: only the packet tells which one it is.
    messages = [(topic, b"nothing")] * 10
    feed = opened(MqttFeed(url, ["power"], sequence="seq"))
    publish_mqtt(shared_mosquitto.port, messages, retain=False)
    assert all(isinstance(event, Refused) for event in take(feed, 4))
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
    assert 0.4 < time.monotonic() - start < 5.0
    feed.close()
    assert list(feed.events()) == []


@needs_mqtt
def test_mqtt_broker_killed_while_reading(mosquitto, opened):
    troubles = []
    feed = opened(MqttFeed(mosquitto.url("farm/#"), ["power"], sequence="seq", on_trouble=troubles.append))
    publisher = threading.Thread(
        target=publish_mqtt, args=(mosquitto.port, [*rows(1, 401), ("farm/a", {"seq": 401, "power": "bad"})])
    )
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
    assert troubles == [f"{feed.name}: the connection to the broker is lost; waiting for it"]
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
        assert "has no session" in troubles[2]


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
    assert (third.key, third.reason) == ("A", "column 'seq': '3' is no whole number")
    assert fourth.offset == 4 and feed.n_lost == 0 and troubles == []
    commit(feed)


@needs_mqtt
@pytest.mark.parametrize("sequence", [None, "n"])
def test_mqtt_tells_of_rows_that_may_get_lost(shared_mosquitto, topic, opened, sequence):
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
    assert len(troubles) == 1 and "refuses connections" in troubles[0]


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
    assert time.monotonic() - start < 5.0
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
        with pytest.raises(FeedError, match="does not let client 'me' in: Not authorized"):
            MqttFeed(mosquitto.url("rows", "ann:secret@"), ["power"], client_id="me")
        with pytest.raises(FeedError, match="does not let this client in: Not authorized"):
            MqttOutlet(mosquitto.url("rows")).send([(1, None, "text")])
        # Waiting does not help.
        assert time.monotonic() - start < 5.0


@needs_mqtt
def test_mqtt_topic_that_must_not_be_written(tmp_path, opened):
    rules = tmp_path / "rules"
    rules.write_text("topic read rows\n", encoding="utf-8")
    with Mosquitto(tmp_path / "ruled", [f"acl_file {rules}"]) as mosquitto:
        with pytest.raises(FeedError, match="does not take messages: Not authorized"):
            opened(MqttOutlet(mosquitto.url("rows"))).send([(1, None, "text")])


@needs_mqtt
def test_mqtt_options(shared_mosquitto):
    with pytest.raises(ValueError, match="no setting qos"):
        MqttFeed(shared_mosquitto.url("rows?qos=2"), ["power"])
    with pytest.raises(TypeError, match="sequence of names"):
        MqttFeed(shared_mosquitto.url("rows"), "power")
    with pytest.raises(ValueError, match="wildcards"):
        MqttOutlet(shared_mosquitto.url("rows/#"))
    with pytest.raises(ValueError, match="no settings"):
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

    def publish():
        time.sleep(0.5)
        opened(MqttOutlet(shared_mosquitto.url(topic))).send([(17, "T1", "text")])

    thread = threading.Thread(target=publish)
    thread.start()
    got = subscribe.simple(topic, qos=1, hostname="127.0.0.1", port=shared_mosquitto.port, protocol=5)
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
    # Between attempts it answers at once.
    assert time.monotonic() - start < 2.0
    assert len(troubles) == 1 and "broker" in troubles[0]
    mosquitto.start()
    deadline = time.monotonic() + LIMIT
    while (safe := outlet.send(lines[4:])) == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert safe == 10
    assert {row.values["power"] for row in take(feed, 10)} == set(range(1, 11))


# Kafka


@needs_kafka
def test_kafka_rows_and_refused_rows(cluster, topic, opened):
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
    first, *refused, last = take(feed, 100)
    assert isinstance(first, Row) and (first.number, first.offset, first.values, first.key) == (
        1,
        0,
        {"power": 4.5},
        "T1",
    )
    assert [(r.number, r.offset, r.key, r.reason) for r in refused] == [
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
def test_kafka_goes_on_behind_a_position(cluster, topic, opened):
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
    start = time.monotonic()
    assert list(islice(feed.events(), 3)) == [None] * 3
    assert time.monotonic() - start < 5.0
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
    with pytest.raises(FeedError, match="partition 0 ends at 1, and was read up to 9 before"):
        take(feed, 1)


@needs_kafka
def test_kafka_broker_away_at_the_start():
    troubles, port = [], free_port()
    start = time.monotonic()
    with pytest.raises(FeedError, match=f"^kafka://127.0.0.1:{port}/rows: the broker cannot be reached: "):
        KafkaFeed(f"kafka://127.0.0.1:{port}/rows", ["power"], patience=0.5, on_trouble=troubles.append)
    assert time.monotonic() - start < 5.0
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
        outlet = opened(KafkaOutlet(mock.url("out"), patience=1.0, on_trouble=troubles.append))
        assert outlet.send([(1, None, "{}")]) == 1
        mock.pause()
        assert outlet.send([(2, None, "{}"), (3, None, "{}")]) == 0
        start = time.monotonic()
        assert outlet.send([(2, None, "{}")]) == 0
        assert time.monotonic() - start < 0.5
        assert troubles == [f"{outlet.name}: the broker does not answer"]
        mock.go_on()
        deadline = time.monotonic() + LIMIT
        while (safe := outlet.send([(2, None, "{}"), (3, None, "{}")])) == 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert safe == 3


@needs_kafka
def test_kafka_outlet_that_is_refused(cluster, topic, opened):
    outlet = opened(KafkaOutlet(cluster.url(f"{topic}?message.max.bytes=2000")))
    with pytest.raises(FeedError, match="does not take"):
        outlet.send([(1, None, "x" * 5000)])
