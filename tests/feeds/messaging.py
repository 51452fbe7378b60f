"""Rows for brokers, and events from them."""

from __future__ import annotations

import json
import time

import pytest

from benchmarks.tools import brokers as peers

needs_mqtt = pytest.mark.skipif(bool(peers.missing_mqtt()), reason=str(peers.missing_mqtt()))

needs_kafka = pytest.mark.skipif(bool(peers.missing_kafka()), reason=str(peers.missing_kafka()))

# Seconds: no test waits longer for anything.
LIMIT = 120.0


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
