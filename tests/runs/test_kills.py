"""Runs that are killed leave what an undisturbed run leaves; `benchmarks.fleet` has the long form."""

from __future__ import annotations

import pytest

from benchmarks.tools import brokers, fleet_kills, postgres


def test_killed_over_a_file():
    found = fleet_kills.kill_files(6, seed=1)
    assert (found["different"], found["kills"]) == ([], 6)


@pytest.mark.skipif(bool(brokers.missing_kafka()), reason=str(brokers.missing_kafka()))
def test_killed_over_kafka():
    found = fleet_kills.kill_kafka(2, seed=1)
    assert (found["different"], found["kills"]) == ([], 2)


@pytest.mark.skipif(bool(brokers.missing_mqtt()), reason=str(brokers.missing_mqtt()))
def test_killed_over_mqtt_with_its_broker():
    found = fleet_kills.kill_mqtt(2, seed=1)
    assert (found["different"], found["kills"]) == ([], 2)


@pytest.mark.skipif(bool(brokers.missing_mqtt()), reason=str(brokers.missing_mqtt()))
def test_killed_over_values_of_mqtt_with_its_broker():
    found = fleet_kills.kill_values(2, seed=2)
    assert (found["different"], found["kills"]) == ([], 2)


@pytest.mark.skipif(bool(postgres.missing_postgres()), reason=str(postgres.missing_postgres()))
def test_killed_while_writing_to_postgres_with_its_server():
    found = fleet_kills.kill_postgres(2, seed=1)
    assert found["different"] == [] and found["kills"] >= 2


def test_differences_are_found():
    """What compares must be able to tell."""
    same = {"models": {"a": ["1"]}, "lines": {"outputs a": ["x"]}, "refused": [], "counts": {"rows": 1}}
    assert fleet_kills.differences(same, same) == []
    assert fleet_kills.differences({**same, "counts": {"rows": 2}}, same) == ["counts"]
    assert fleet_kills.differences({**same, "models": {"a": ["2"]}}, same) == ["models"]
    assert fleet_kills.differences({**same, "lines": {}}, same) == ["outputs a"]
    assert fleet_kills.differences({**same, "lines": {"outputs a": ["x", "x"]}}, same) == ["outputs a"]
