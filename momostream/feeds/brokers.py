"""Rows from brokers, and forecasts and alarms back to them, by URL: `momostream.feeds.mqtt`, `momostream.feeds.kafka`.

Every message is one JSON object in UTF-8. Both feeds can be read again from a committed position: Kafka keeps its rows,
and an MQTT broker sends again what was not acknowledged. Acknowledgements are sent only after the commit, so that a run
that dies at any moment finds all rows after its last commit, and none before it.
"""

from __future__ import annotations

from momostream.feeds.kafka import KafkaFeed, KafkaOutlet
from momostream.feeds.messages import PORTS, Outlet, Trouble
from momostream.feeds.mqtt import MqttFeed
from momostream.feeds.mqtt_outlet import MqttOutlet
from momostream.feeds.opcua import is_opcua

__all__ = ["KafkaFeed", "KafkaOutlet", "MqttFeed", "MqttOutlet", "Outlet", "is_broker", "is_remote", "open_outlet"]


def is_broker(target: str) -> bool:
    """Whether a path or URL is the URL of a broker.

    >>> is_broker("mqtt://localhost/farm/rows"), is_broker("rows.csv")
    (True, False)
    """
    scheme, mark, _ = target.partition("://")
    return bool(mark) and scheme.lower() in PORTS


def is_remote(target: str) -> bool:
    """Whether a path or URL is that of a feed on the network: a broker, or an OPC UA server.

    >>> is_remote("opc.tcp://plc/?nodes=Plant/{turbine}/{column}"), is_remote("rows.csv")
    (True, False)
    """
    return is_broker(target) or is_opcua(target)


def open_outlet(url: str, *, on_trouble: Trouble | None = None) -> Outlet:
    """The outlet of a URL: `MqttOutlet` or `KafkaOutlet`."""
    kind = KafkaOutlet if url.lower().startswith("kafka:") else MqttOutlet
    return kind(url, on_trouble=on_trouble)
