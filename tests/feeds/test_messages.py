"""URLs of brokers, and the packages that they need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from momostream.feeds import messages
from momostream.feeds.brokers import KafkaFeed, KafkaOutlet, MqttFeed, MqttOutlet, is_broker


def test_which_targets_are_brokers():
    assert is_broker("mqtt://localhost/rows") and is_broker("KAFKA://localhost/rows")
    assert not any(is_broker(target) for target in ["rows.csv", "-", "mqtt", "http://localhost/rows", "kafka:rows"])


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
def test_bad_urls_are_reported_without_their_passwords(url, scheme):
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "set()", done.stderr
