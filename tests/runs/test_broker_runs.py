"""Rows from a broker, forecasts and alarms back to it: the command line from end to end."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from benchmarks.tools import brokers
from benchmarks.tools.fleet_kills import OPTIONS, rows

# Of these, three cannot be read, and one is late: read, but not learnt.
N_ROWS, N_READ = 400, 397
QUIET = [option for option in OPTIONS if option != "--quiet"]


def momostream(*arguments):
    command = [sys.executable, "-m", "momostream", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done


def expected(folder):
    """Predictions of the same rows from a file, by key, without the numbers of rows."""
    path = folder / "farm.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(N_ROWS)))
    momostream("run", path, *QUIET, "-o", folder / "out.jsonl")
    return by_key((folder / "out.jsonl").read_text().splitlines())


def by_key(texts):
    found = {}
    for text in texts:
        record = json.loads(text)
        record.pop("row")
        found.setdefault(record["turbine"], []).append(record)
    return found


@pytest.mark.skipif(bool(brokers.missing_kafka()), reason=str(brokers.missing_kafka()))
def test_rows_from_kafka_and_forecasts_back(tmp_path):
    from confluent_kafka import Consumer, TopicPartition

    with brokers.MockKafka() as cluster:
        sent = [(f"T{number % 8:02d}", row) for number, row in enumerate(rows(N_ROWS))]
        brokers.publish_kafka(cluster.address, "farm", sent)
        command = ["run", cluster.url("farm"), *QUIET, "--store", tmp_path / "farm.db", "-o", cluster.url("forecasts")]
        for limit in (150, N_READ - 150):
            told = momostream(*command, "--limit", limit)
        assert "resuming after row" in told.stderr and "4 bad rows skipped" in told.stderr
        consumer = Consumer({"bootstrap.servers": cluster.address, "group.id": "reader", "enable.auto.commit": False})
        parts = consumer.list_topics("forecasts", timeout=10).topics["forecasts"].partitions
        consumer.assign([TopicPartition("forecasts", part, 0) for part in parts])
        wanted = expected(tmp_path)
        n_expected = sum(map(len, wanted.values()))
        found, deadline = {}, time.monotonic() + 120.0
        while len(found) < n_expected and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                number = int(dict(message.headers())["number"])
                assert message.key().decode() == json.loads(message.value())["turbine"]
                found[number] = message.value().decode()
        consumer.close()
    assert sorted(found) == list(range(1, n_expected + 1))
    assert by_key(found[number] for number in sorted(found)) == wanted
    assert momostream("read", tmp_path / "farm.db").stdout == ""


def wait_for(is_so, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.skipif(bool(brokers.missing_mqtt()), reason=str(brokers.missing_mqtt()))
def test_rows_from_mqtt_and_alarms_back(tmp_path):
    import paho.mqtt.client as mqtt

    with brokers.Mosquitto(tmp_path / "broker", ["log_type all"]) as broker:
        alarms, listener = [], mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        listener.on_message = lambda client, data, message: alarms.append((message.topic, json.loads(message.payload)))
        listener.connect("127.0.0.1", broker.port)
        listener.loop_start()
        listener.subscribe("alarms/#", qos=1)
        url = f"{broker.url('farm/+')}?client_id=farm"
        command = [
            *("run", url, *QUIET, "--sequence", "n", "--store", tmp_path / "farm.db"),
            *("--alarms", broker.url("alarms/{key}"), "--alarm-level", "0.99"),
        ]
        waiting = subprocess.Popen(
            [sys.executable, "-m", "momostream", *map(str, command), "--limit", str(N_READ)],
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(lambda: "Sending SUBACK to farm" in broker.log)
        sent = [(f"farm/{number % 8}", row) for number, row in enumerate(rows(N_ROWS))]
        brokers.publish_mqtt(broker.port, sent)
        told = waiting.communicate(timeout=120)[1]
        assert waiting.returncode == 0, told
        # After all alarms, which the broker had before the run ended.
        listener.publish("alarms/end", "{}", qos=1)
        wait_for(lambda: alarms and alarms[-1][0] == "alarms/end")
        alarms.pop()
        listener.loop_stop()
        listener.disconnect()
    outputs = momostream("read", tmp_path / "farm.db").stdout.splitlines()
    assert by_key(outputs) == expected(tmp_path)
    path = tmp_path / "alarms.jsonl"
    momostream(
        "run", tmp_path / "farm.jsonl", *QUIET, "-o", tmp_path / "x.csv", "--alarms", path, "--alarm-level", "0.99"
    )
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert kept and {topic for topic, _ in alarms} <= {f"alarms/T{key:02d}" for key in range(8)}

    def plain(found):
        return sorted(json.dumps({name: value for name, value in alarm.items() if name != "row"}) for alarm in found)

    assert plain(alarm for _, alarm in alarms) == plain(kept)
