"""Brokers for the tests of feeds: a real mosquitto, and the mock cluster of librdkafka."""

from __future__ import annotations

import pytest

from benchmarks.tools.brokers import MockKafka, Mosquitto


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
