"""Real brokers for tests and benchmarks: mosquitto with its own port and folder, Kafka as librdkafka's mock cluster.

Both run in processes of their own and can be killed at any moment. Publishers put rows into them.
"""

from __future__ import annotations

import getpass
import importlib.util
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

# Debian puts it where only root's PATH looks.
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
# Settings of mosquitto for a consumer that must not lose anything. Its defaults keep 1000 messages for a client that is
# away, drop all others without a word, and write nothing to the disk.
SAFE = (
    "persistence true",
    "autosave_interval 1",
    "autosave_on_changes true",
    "max_queued_messages 0",
)
PATIENCE = 20.0
# Acknowledged rows that a mosquitto killed by SIGKILL may not have written yet: see `publish_mqtt`.
RESENT = 20

_MOCK = """
import sys
from confluent_kafka import Producer
cluster = Producer({"bootstrap.servers": "127.0.0.1", "test.mock.num.brokers": int(sys.argv[1]), "log_level": 2})
brokers = cluster.list_topics(timeout=20).brokers.values()
print(",".join(f"{broker.host}:{broker.port}" for broker in brokers), flush=True)
# Until the parent is gone.
sys.stdin.read()
"""


def missing_mqtt() -> str | None:
    """Why tests with MQTT cannot run here; None if they can."""
    if importlib.util.find_spec("paho") is None:
        return "needs paho-mqtt: pip install 'momostream[mqtt]'"
    return None if MOSQUITTO else "needs the mosquitto broker: apt install mosquitto"


def missing_kafka() -> str | None:
    """Why tests with Kafka cannot run here; None if they can."""
    found = importlib.util.find_spec("confluent_kafka")
    return None if found else "needs confluent-kafka: pip install 'momostream[kafka]'"


def free_port() -> int:
    """A port on the loopback below those that the system gives to clients.

    A client that knocks again and again at a closed port of that range is one day given this port for itself, connects
    to itself, and the broker cannot come back.
    """
    for port in random.SystemRandom().sample(range(10000, 32000), 100):
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port on the loopback")


class Mosquitto:
    """A mosquitto on a port of the loopback, which keeps its port and its persistence file over restarts.

    Parameters
    ----------
    folder
        For its configuration, its log and its persistence file.
    settings
        Lines of the configuration beside the port and the folder.
    """

    def __init__(self, folder: Path, settings: Sequence[str] = SAFE) -> None:
        self.folder, self.port = folder, free_port()
        folder.mkdir(parents=True, exist_ok=True)
        own = [
            f"listener {self.port} 127.0.0.1",
            f"persistence_location {folder}/",
            # Started by root it would become another user, who cannot write here.
            f"user {getpass.getuser()}",
        ]
        access = [] if any(line.startswith("allow_anonymous") for line in settings) else ["allow_anonymous true"]
        (folder / "mosquitto.conf").write_text("\n".join([*own, *access, *settings, ""]), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def url(self, topic: str, user: str = "") -> str:
        """Of a topic."""
        return f"mqtt://{user}127.0.0.1:{self.port}/{topic}"

    @property
    def log(self) -> str:
        """Its output so far."""
        return (self.folder / "mosquitto.log").read_text(encoding="utf-8", errors="replace")

    def wait_until_left(self, client_id: str) -> None:
        """Until it has read all that a client had sent: it drops what is under way when the client is back sooner."""
        deadline = time.monotonic() + PATIENCE
        ends = [f"Client {client_id} {how}" for how in ("disconnected", "closed its connection")]
        while (log := self.log).rfind(f"as {client_id} (") > max(map(log.rfind, ends)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"client {client_id} has not left: {log[-2000:]}")
            time.sleep(0.02)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        assert MOSQUITTO is not None and self._process is None
        with (self.folder / "mosquitto.log").open("ab") as log:
            command = [MOSQUITTO, "-c", str(self.folder / "mosquitto.conf")]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0):
                return
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(f"mosquitto did not start: {self.log[-500:]}")

    def stop(self) -> None:
        """End it as the system does: it saves everything first."""
        self._end(kill=False)

    def kill(self) -> None:
        """SIGKILL: what it has not written is gone."""
        self._end(kill=True)

    def restart(self) -> None:
        """Kill it, and start it again with what it had written."""
        self.kill()
        self.start()

    def _end(self, kill: bool) -> None:
        if self._process is not None:
            (self._process.kill if kill else self._process.terminate)()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(PATIENCE)
            self._process = None


class MockKafka:
    """Librdkafka's mock cluster in a process of its own. Topics arise when they are first named, with 4 partitions.

    It keeps everything in memory: when it is killed, all is gone. Each partition keeps about 5 MB.
    """

    def __init__(self, n_brokers: int = 1) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.n_brokers, self.address = n_brokers, ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def url(self, topic: str) -> str:
        """Of a topic."""
        return f"kafka://{self.address}/{topic}"

    def start(self) -> None:
        """Start it, and wait until it prints its address."""
        command = [sys.executable, "-c", _MOCK, str(self.n_brokers)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        # A mock that hangs must not hang its reader.
        guard = threading.Timer(PATIENCE, self._process.kill)
        guard.start()
        self.address = self._process.stdout.readline().strip()
        guard.cancel()
        if not self.address:
            self.kill()
            raise RuntimeError("the mock cluster did not start")

    def pause(self) -> None:
        """SIGSTOP: connections stay, nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        """Let it answer again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: all it had is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None


def payload(row: dict[str, Any] | bytes) -> bytes:
    """A row as a message; bytes go as they are."""
    return row if isinstance(row, bytes) else json.dumps(row).encode()


class _Publication:
    """Rows on their way through one connection to an MQTT broker."""

    def __init__(self, port: int, window: int, retain: bool) -> None:
        import paho.mqtt.client as mqtt

        self.n_acknowledged = 0
        self._changed = threading.Condition()
        self._window, self._retain, self._n_sent = window, retain, 0
        self._is_connected = self._is_lost = False
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5, reconnect_on_failure=False)
        self._client.max_inflight_messages_set(window)
        self._client.on_connect = lambda *_: self._note(connected=True)
        self._client.on_disconnect = lambda *_: self._note(lost=True)
        self._client.on_publish = lambda *_: self._note(acknowledged=1)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def _note(self, acknowledged: int = 0, connected: bool = False, lost: bool = False) -> None:
        with self._changed:
            self.n_acknowledged += acknowledged
            self._is_connected |= connected
            self._is_lost |= lost
            self._changed.notify_all()

    def publish(self, topic: str, message: bytes) -> bool:
        """Send it as soon as the window has room; False when the connection is gone."""
        if not self.wait(lambda: self._is_connected and self._n_sent - self.n_acknowledged < self._window):
            return False
        self._n_sent += 1
        self._client.publish(topic, message, qos=1, retain=self._retain)
        return True

    def wait_for_all(self) -> None:
        self.wait(lambda: self.n_acknowledged == self._n_sent)

    def wait(self, condition: Any) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_lost or condition(), PATIENCE)
            return not self._is_lost and bool(condition())

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def publish_mqtt(
    port: int,
    rows: Iterable[tuple[str, dict[str, Any] | bytes]],
    *,
    resent: int = RESENT,
    window: int = 20,
    retain: bool = True,
    rate: float | None = None,
    patience: float = 120.0,
) -> int:
    """Publish rows with QoS 1 and in order, whatever happens to the broker.

    Mosquitto acknowledges a row first and writes it to its file a moment later: what it has acknowledged in between is
    lost when it is killed. After every loss of the connection the last `resent` rows are therefore sent again, before
    any new one; the receiver drops by their sequence those that it has.

    It only writes when something has changed that it counts as a change. A row that goes straight to a client is none,
    and all that this client has not acknowledged is lost, unless rows are published with the flag `retain`.

    Parameters
    ----------
    port
        Of the broker on the loopback.
    rows
        Topic and row.
    resent
        Acknowledged rows that are sent again after a loss of the connection.
    window
        Rows that may be under way without an acknowledgement.
    retain
        Whether the broker writes each row to its file, within one row.
    rate
        Rows per second; None: as fast as the broker takes them.
    patience
        Seconds until it gives up.

    Returns
    -------
    int
        How often rows were sent, those that were sent again included.
    """
    waiting = [(topic, payload(row)) for topic, row in rows]
    n_safe = n_sent = 0
    deadline = time.monotonic() + patience
    while n_safe < len(waiting):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the broker took {n_safe} of {len(waiting)} rows in {patience:g} s")
        try:
            publication = _Publication(port, window, retain)
        except OSError:
            time.sleep(0.05)
            continue
        start = max(0, n_safe - resent)
        for topic, message in waiting[start:]:
            if not publication.publish(topic, message):
                break
            n_sent += 1
            if rate is not None:
                time.sleep(1.0 / rate)
        else:
            publication.wait_for_all()
        publication.close()
        n_safe = max(n_safe, start + publication.n_acknowledged)
    return n_sent


def publish_kafka(
    address: str,
    topic: str,
    rows: Iterable[tuple[str | None, dict[str, Any] | bytes | None]],
    *,
    partition: int | None = None,
) -> None:
    """Put rows into a topic, given their keys, and wait until the cluster has them; None: by key into partitions."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 2})
    place = {} if partition is None else {"partition": partition}
    for key, row in rows:
        message = None if row is None else payload(row)
        while True:
            try:
                producer.produce(topic, message, key, **place)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if n_left := producer.flush(PATIENCE):
        raise TimeoutError(f"the cluster did not take {n_left} rows")
