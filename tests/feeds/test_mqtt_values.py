"""One value per topic, against a real mosquitto."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from benchmarks.tools.brokers import publish_mqtt
from momostream.feeds.brokers import MqttFeed
from momostream.feeds.formats import Rejected, Row
from tests.feeds.messaging import commit, leave, needs_mqtt, take

COLUMNS = ["power", "wind"]


def message(topic, machine, column, second, value):
    return f"{topic}/{machine}/sensors/{column}", {"ts": 1_700_000_000_000 + 1000 * second, "value": value}


def feed_of(broker, topic, settings="", **options):
    url = broker.url(f"{topic}/{{turbine}}/sensors/{{column}}") + settings
    return MqttFeed(url, COLUMNS, "auto", key="turbine", **options)


@needs_mqtt
def test_values_become_rows(shared_mosquitto, topic, opened):
    feed = opened(feed_of(shared_mosquitto, topic))
    sent = [
        message(topic, machine, column, second, second + len(column))
        for second in range(3)
        for machine in ("T1", "T2")
        for column in (*COLUMNS, "pitch")
    ]
    publish_mqtt(shared_mosquitto.port, sent)
    found = take(feed, 6)
    assert [(row.number, row.key, row.values) for row in found] == [
        (2 * second + number + 1, machine, {"power": second + 5.0, "wind": second + 4.0})
        for second in range(3)
        for number, machine in enumerate(("T1", "T2"))
    ]
    assert found[-1].time == datetime(2023, 11, 14, 22, 13, 22, tzinfo=UTC)
    assert feed.time == "time" and feed.readings == ("power", "wind")


@needs_mqtt
def test_values_that_wait_are_committed_and_come_once(shared_mosquitto, topic, opened):
    feed = opened(feed_of(shared_mosquitto, topic, "?wait=1h"))
    first = [message(topic, "T1", "power", second, second) for second in range(5)]
    # The first row is complete, the others lack the wind.
    publish_mqtt(shared_mosquitto.port, [*first, message(topic, "T1", "wind", 0, 7)])
    assert take(feed, 1)[0].values == {"power": 0.0, "wind": 7.0}
    position = commit(feed)
    leave(feed, shared_mosquitto)

    resumed = opened(feed_of(shared_mosquitto, topic, "?wait=1h"))
    resumed.seek(position)
    # The publisher is not certain, and sends all again.
    publish_mqtt(shared_mosquitto.port, [*first, *(message(topic, "T1", "wind", second, 8) for second in range(5))])
    assert [(row.number, row.values["power"], row.values["wind"]) for row in take(resumed, 4)] == [
        (number, number - 1.0, 8.0) for number in range(2, 6)
    ]
    assert resumed.n_repeated == 6


@needs_mqtt
def test_a_silent_sensor_is_missing_and_its_late_value_rejected(shared_mosquitto, topic, opened):
    troubles = []
    feed = opened(feed_of(shared_mosquitto, topic, "?wait=0.5s", on_trouble=troubles.append))
    sent = [
        message(topic, "T1", "power", 0, 1),
        message(topic, "T1", "Wind", 0, 2),
        (f"{topic}/T1/sensors/power", b"x"),
    ]
    publish_mqtt(shared_mosquitto.port, sent)
    bad, row = take(feed, 2)
    assert isinstance(bad, Rejected) and bad.reason == "column 'time': the time is missing" and bad.key == "T1"
    assert isinstance(row, Row) and (row.number, row.values) == (2, {"power": 1.0})
    assert troubles == [
        f"{feed.name}: rows are written without 'wind', of which no value has come; the topics have 'Wind'"
    ]
    publish_mqtt(shared_mosquitto.port, [message(topic, "T1", "wind", 0, 2)])
    (late,) = take(feed, 1)
    assert isinstance(late, Rejected) and late.number == 3
    assert late.reason == "column 'wind': the value came too late: its row was written after 0.5 s"
    assert json.loads(late.text)["wind"] == 2.0


@needs_mqtt
def test_plain_numbers_in_ticks(shared_mosquitto, topic, opened):
    feed, found = opened(feed_of(shared_mosquitto, topic, "?tick=1s&wait=0.2s&hold=1min")), []
    for value in range(3):
        plain = [(f"{topic}/T1/sensors/power", str(value).encode())]
        publish_mqtt(shared_mosquitto.port, plain if value else [(f"{topic}/T1/sensors/wind", b"8.5"), *plain])
        # The row of a tick comes when it has ended; a tick may have ended between the first two values.
        found += take(feed, 1)
        if "power" not in found[0].values:
            found = take(feed, 1)
    assert [row.values for row in found] == [{"power": float(value), "wind": 8.5} for value in range(3)]
    times = [row.time for row in found]
    assert all(time.microsecond == 0 for time in times) and times == sorted(times)


def test_settings_of_values():
    for url, what in [
        ("mqtt://h/{a}/{column}?tick=soon", "not a span"),
        ("mqtt://h/rows?tick=5s", "unknown setting tick"),
        ("mqtt://h/x{column}", "whole level"),
    ]:
        with pytest.raises(ValueError, match=what):
            MqttFeed(url, ["power"], "auto")
    with pytest.raises(ValueError, match="gathered by their times"):
        MqttFeed("mqtt://h/{column}", ["power"], None)
