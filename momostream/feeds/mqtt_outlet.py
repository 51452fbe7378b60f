"""Texts to MQTT, through paho-mqtt, which is imported when an outlet is opened."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

from momostream.feeds.messages import Attempts, Trouble, read_address, send_in_slices
from momostream.feeds.mqtt_client import PASSING, check_settings, import_paho, make_client, reason_of
from momostream.feeds.source import FeedError

__all__ = ["MqttOutlet"]


class MqttOutlet:
    """Publishes numbered texts to an MQTT topic, with QoS 1.

    A text is sent again when it is not certain that it has arrived. Its number is the user property ``number``, by
    which receivers can drop repetitions.

    Parameters
    ----------
    url
        ``mqtt://[user@]host[:1883]/topic`` or ``mqtts://`` with settings of logins and certificates as in `MqttFeed`;
        ``{key}`` in the topic stands for the key of each text.
    patience
        Seconds to wait for an answer.
    on_trouble
        Called with one line, once for each loss of the broker.

    Attributes
    ----------
    name : str
        The URL without user and password.
    """

    def __init__(self, url: str, *, patience: float = 10.0, on_trouble: Trouble | None = None) -> None:
        self._address = read_address(url, "mqtt")
        check_settings(self._address)
        if re.search(r"[+#]", self._address.topic):
            raise ValueError(f"{self._address.name}: cannot publish to a topic with the wildcards + and #")
        import_paho()
        self.name, self.patience = self._address.name, patience
        self._on_trouble = on_trouble
        self._attempts = Attempts()
        self._client: Any = None
        # Written by paho's thread.
        self._changed = threading.Condition()
        self._answer: Any = None
        self._is_lost = False
        self._confirmed: dict[int, Any] = {}

    def send(self, lines: Iterable[tuple[int, str | int | None, str]]) -> int:
        """Publish texts and wait for the broker to have them.

        Parameters
        ----------
        lines
            Numbers that grow, keys, and texts.

        Returns
        -------
        int
            The last number up to which the broker has all texts; 0 where it has none. All others are to be sent again.

        Raises
        ------
        FeedError
            The broker is there and does not accept them: waiting does not help.
        """
        return send_in_slices(lines, self._send_slice)

    def last_number(self) -> None:
        """Return None: a broker does not say what it has got."""

    def close(self) -> None:
        """Leave the broker."""
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()
            self._client = None

    def _send_slice(self, lines: list[tuple[int, str | int | None, str]]) -> int:
        if self._client is None and not (self._attempts.is_due() and self._connect()):
            return 0
        mqtt = import_paho()
        self._confirmed.clear()
        packets = []
        for number, key, text in lines:
            properties = mqtt.properties.Properties(mqtt.packettypes.PacketTypes.PUBLISH)
            properties.UserProperty = ("number", str(number))
            topic = self._topic(key)
            packets.append(self._client.publish(topic, text.encode(), qos=1, properties=properties).mid)
        self._wait_for_all(len(packets))
        n_sent = 0
        for packet in packets:
            if packet not in self._confirmed:
                self._give_up("the connection to the broker is lost" if self._is_lost else "the broker does not answer")
                break
            if self._confirmed[packet].is_failure:
                self.close()
                raise FeedError(f"{self.name}: the broker does not accept messages: {self._confirmed[packet]}")
            n_sent += 1
        else:
            self._attempts.note(succeeded=True)
        return n_sent

    def _topic(self, key: str | int | None) -> str:
        # Characters that topics must not have are quoted as in URLs, so that no two keys share a topic.
        shown_key = "" if key is None else quote(str(key), safe="/ :;,=@&$!*()[]'")
        return self._address.topic.replace("{key}", shown_key)

    def _connect(self) -> bool:
        self._answer, self._is_lost = None, False
        # A new client for each connection: paho would send again by itself what the caller sends again too.
        self._client = make_client(self._address, reconnect_on_failure=False)
        self._client.connect_timeout = max(0.1, min(5.0, self.patience))
        self._client.on_connect = lambda _c, _u, _f, reason, _p: self._note(answer=reason)
        self._client.on_disconnect = lambda *_: self._note(lost=True)
        self._client.on_publish = lambda _c, _u, packet, reason, _p: self._note(confirmed=(packet, reason))
        try:
            self._client.connect(self._address.hosts, self._address.port)
        except OSError as error:
            self._give_up(reason_of(error, self.name))
            return False
        self._client.loop_start()
        self._wait_for(lambda: self._answer is not None or self._is_lost)
        if self._answer is None:
            self._give_up("the broker does not answer")
            return False
        if self._answer.is_failure:
            self._give_up(what := f"the broker rejects this client: {self._answer}")
            if self._answer.value not in PASSING:
                raise FeedError(f"{self.name}: {what}")
            return False
        return True

    def _give_up(self, what: str) -> None:
        """Stop until the next attempt."""
        self.close()
        if self._attempts.note(succeeded=False) and self._on_trouble is not None:
            self._on_trouble(f"{self.name}: {what}")

    def _note(self, answer: Any = None, confirmed: tuple[int, Any] | None = None, lost: bool = False) -> None:
        with self._changed:
            self._answer = answer or self._answer
            self._is_lost |= lost
            if confirmed is not None:
                self._confirmed[confirmed[0]] = confirmed[1]
            self._changed.notify_all()

    def _wait_for(self, condition: Callable[[], bool]) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, self.patience)

    def _wait_for_all(self, n_packets: int) -> None:
        n_before = -1
        # For as long as some are confirmed: a slow broker is not a lost one.
        while n_before < len(self._confirmed) < n_packets and not self._is_lost:
            n_before = len(self._confirmed)
            self._wait_for(lambda n=n_before: self._is_lost or len(self._confirmed) > n)  # type: ignore[misc]
