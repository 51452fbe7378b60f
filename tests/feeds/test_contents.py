"""Contents of messages: times under their usual names, and values."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from momostream.feeds.contents import Messages, ValueMessages
from momostream.feeds.formats import BadRow, Rejected
from momostream.feeds.topics import TopicPattern

AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
ARRIVED = datetime(2024, 3, 1, tzinfo=UTC)


def event(messages, fields, beside=()):
    payload = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return messages.event(1, 1, messages.cells(payload, dict(beside), ARRIVED), payload)


@pytest.mark.parametrize(
    "fields",
    [
        {"ts": 1_700_000_000},
        {"ts": 1_700_000_000.0},
        {"timestamp": 1_700_000_000_000},
        {"Time_Stamp": 1_700_000_000_000_000},
        {"time": 1_700_000_000_000_000_000},
        {"time": None, "at": "2023-11-14T22:13:20Z"},
        {"date": "2023-11-14T23:13:20+01:00"},
        {"header": 5, "time": "2023-11-14 22:13:20+00:00", "timestamp": "2020-01-01"},
    ],
)
def test_times_are_found_by_their_names(fields):
    assert event(Messages(["power"], "auto", None, None), {**fields, "power": 1.0}).time == AT


def test_numbers_that_are_not_dates_stay_numbers():
    messages = Messages(["power"], "auto", None, None)
    assert event(messages, {"time": 17, "power": 1.0}).time == 17.0
    # "AT" is a temperature.
    found = event(messages, {"AT": 17.5, "power": 1.0})
    assert isinstance(found, Rejected) and found.reason == "column 'time': the time is missing"
    # As named, as before.
    assert event(Messages(["power"], "ts", None, None), {"ts": 1_700_000_000, "power": 1.0}).time == 1.7e9
    assert event(Messages(["power"], "ts", None, "epoch"), {"ts": 1_700_000_000, "power": 1.0}).time == AT
    found = event(Messages(["power"], "ts", None, "epoch"), {"ts": "soon", "power": 1.0})
    assert found.reason == "column 'ts': 'soon' is not a time since 1970"


def test_a_column_is_not_a_time():
    messages = Messages(["ts"], "auto", "date", None)
    found = event(messages, {"ts": 1_700_000_000, "date": "2024-03-01"})
    assert isinstance(found, Rejected) and found.key == "2024-03-01"


VALUES = ValueMessages(["power", "wind"], "auto", "turbine", None)
BESIDE = {"turbine": "T1", "column": "power"}


@pytest.mark.parametrize(
    ("payload", "values"),
    [
        ({"value": 4.5, "ts": 1_700_000_000}, {"power": 4.5}),
        ({"v": None, "ts": 1_700_000_000}, {}),
        ({"val": 0, "time": AT.isoformat(), "unit": "kW"}, {"power": 0.0}),
    ],
)
def test_values_in_objects(payload, values):
    found = event(VALUES, payload, BESIDE.items())
    assert (found.key, found.time, found.values) == ("T1", AT, values)


def test_plain_values_get_the_time_of_their_arrival():
    stamped = ValueMessages(["power"], "auto", "turbine", None, stamps=True)
    for payload, values in [(b"4.5", {"power": 4.5}), (b" -3\n", {"power": -3.0}), (b"", {}), (b"NaN", {})]:
        found = event(stamped, payload, BESIDE.items())
        assert (found.values, found.time) == (values, ARRIVED)
    assert event(stamped, {"value": 1, "ts": 1_700_000_000}, BESIDE.items()).time == AT


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"4.5", "column 'time': the time is missing"),
        ({"value": "on", "ts": 1_700_000_000}, "column 'power': 'on' is text, not a number"),
        ({"value": 1e999, "ts": 1_700_000_000}, "column 'power': inf is not finite"),
    ],
)
def test_bad_values(payload, reason):
    found = event(VALUES, payload, BESIDE.items())
    assert isinstance(found, Rejected) and (found.reason, found.key) == (reason, "T1")


def test_values_that_cannot_be_read():
    for payload, what in [({"ts": 1}, "expected a field value or val or v"), (b"{", "is not JSON"), (b"\xff", "UTF-8")]:
        with pytest.raises(BadRow, match=what):
            event(VALUES, payload, BESIDE.items())
    stamped = ValueMessages(["power"], "auto", None, None, stamps=True)
    for payload in (b"on", b"[1]", b"true, 2"):
        assert "is text, not a number" in event(stamped, payload, BESIDE.items()).reason


@pytest.mark.parametrize("column", ["wind", "nowhere", ["power"], None])
def test_a_field_called_column_changes_no_column(column):
    """It once ended the run with a KeyError, or gave the value to another column."""
    found = event(VALUES, {"value": 4.5, "ts": 1_700_000_000, "column": column}, BESIDE.items())
    assert found.values == {"power": 4.5}


@pytest.mark.parametrize(
    ("pattern", "what"), [("a/{b}c", "whole level"), ("{a}/{a}", "occurs twice"), ("a/{}", "whole level")]
)
def test_bad_patterns(pattern, what):
    with pytest.raises(ValueError, match=what):
        TopicPattern(pattern)
