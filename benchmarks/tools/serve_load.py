"""Load on a server: machines that send by HTTP and by MQTT, open pages, and probes that time single rows."""

from __future__ import annotations

import json
import queue
import random
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks.tools.brokers import Mosquitto
from benchmarks.tools.serve_farm import Server, json_lines, push_until_accepted, simulated_row, value_of

__all__ = ["LOAD_FARM", "Load", "growth"]

LOAD_FARM = """
[serve]
address = "127.0.0.1:PORT"
rate = 5000.0
history = 360
[feeds.north]
key = "machine"
time = "time"
targets = ["power", "temperature"]
horizon = 12
MODEL
[feeds.south]
source = "BROKER"
key = "machine"
time = "time"
targets = ["power", "temperature"]
horizon = 12
MODEL
"""
FEEDS = ("north", "south")
# Seconds between two rows of a machine.
ROW_SECONDS = 10.0
# Connections over which rows are pushed.
N_PUSHERS = 4
# A probe gives up here, and looks this often. All probes share one connection, and all rows a few: a client that is
# busy would measure itself.
LATE, PROBE_SECONDS = 30.0, 0.05


class _Probe(NamedTuple):
    """A row whose forecast is waited for: feed, machine, time of the row, and when it was sent."""

    feed: str
    key: str
    at: float
    sent: float


class Load:
    """Half of the machines push to the interface, half publish to a broker.

    Parameters
    ----------
    folder
        For stores and broker.
    n_machines, n_pages
        Machines in all, and streams of events that are open.
    window
        Rows that each model keeps; None keeps all.
    """

    def __init__(self, folder: Path, n_machines: int, n_pages: int, window: int | None = None) -> None:
        self.n_each, self.n_pages = n_machines // 2, n_pages
        self.broker = Mosquitto(folder / "broker")
        self.broker.start()
        farm = LOAD_FARM.replace("BROKER", self.broker.url("farm/+/rows"))
        model = "" if window is None else f"model = {{ window = {window} }}"
        self.server = Server(folder / "farm", farm.replace("MODEL", model))
        self.server.start()
        self.client = httpx.Client(base_url=self.server.address, timeout=60.0)
        self.publisher = _publisher(self.broker.port)
        self.n_sent = 0
        # Resident bytes, and those of models, row by row.
        self.memory: list[tuple[int, int]] = []
        self.latencies: dict[str, list[float]] = {feed: [] for feed in FEEDS}
        self._stop = threading.Event()
        self._event_bytes = 0

    def close(self) -> None:
        """End all."""
        self._stop.set()
        self.publisher.disconnect()
        self.publisher.loop_stop()
        self.client.close()
        self.server.stop()
        self.broker.kill()

    # ------------------------------------------------------------------ an hour of rows, as fast as they are learnt

    def simulate(self, n_rows: int, until: datetime) -> float:
        """Send so many rows of each machine, the last of them at a time; CPU seconds of the server."""
        before = self.server.cpu_seconds()
        for n in range(n_rows):
            at = until - timedelta(seconds=ROW_SECONDS * (n_rows - n))
            push_until_accepted(self.client, [simulated_row(m, at, n) for m in range(self.n_each)])
            for m in range(self.n_each, 2 * self.n_each):
                self._publish(simulated_row(m, at, n))
            self.n_sent = n + 1
            # The server decides how fast time goes.
            for feed in FEEDS:
                self.server.wait_for_rows(feed, (n - 1) * self.n_each)
            self._look()
        for feed in FEEDS:
            self.server.wait_for_rows(feed, n_rows * self.n_each)
        self._look()
        return self.server.cpu_seconds() - before

    def _publish(self, row: dict[str, Any]) -> None:
        self.publisher.publish(f"farm/{row['machine']}/rows", json.dumps(row), qos=1)

    def _look(self) -> None:
        metrics = self.server.metrics()
        models = sum(value_of(metrics, f'momostream_model_bytes{{feed="{feed}"}}') for feed in FEEDS)
        self.memory.append((self.server.resident(), int(models)))

    # ------------------------------------------------------------------ real time

    def in_real_time(self, seconds: float, n_probes: int) -> dict[str, Any]:
        """One row of each machine per ten seconds, with open pages; how long rows took to be forecast."""
        rows: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        probes: queue.SimpleQueue[_Probe | None] = queue.SimpleQueue()
        pages = [threading.Thread(target=self._watch, args=(k,), daemon=True) for k in range(self.n_pages)]
        workers = [threading.Thread(target=self._push_all, args=(rows,), daemon=True) for _ in range(N_PUSHERS)]
        workers.append(threading.Thread(target=self._probe_all, args=(probes,), daemon=True))
        for worker in (*pages, *workers):
            worker.start()
        first, rng = time.monotonic(), random.Random(0)
        cpu, before, own_cpu = self.server.cpu_seconds(), self.server.metrics(), time.process_time()
        n_machines = 2 * self.n_each
        n_slots = int(seconds / ROW_SECONDS * n_machines)
        probed = set(rng.sample(range(n_slots), min(n_probes, n_slots)))
        late_by = 0.0
        for slot in range(n_slots):
            due = first + slot * ROW_SECONDS / n_machines
            time.sleep(max(0.0, due - time.monotonic()))
            late_by = max(late_by, time.monotonic() - due)
            # The machines of both feeds in turn.
            m = slot // 2 % self.n_each + (slot % 2) * self.n_each
            at = datetime.now(UTC)
            row = simulated_row(m, at, self.n_sent + slot // n_machines)
            if slot in probed:
                probes.put(_Probe(FEEDS[slot % 2], row["machine"], at.timestamp(), time.monotonic()))
            if slot % 2:
                self._publish(row)
            else:
                rows.put(row)
            if slot % (n_machines // 2) == 0:
                self._look()
        for _ in range(N_PUSHERS):
            rows.put(None)
        probes.put(None)
        for worker in workers:
            worker.join(LATE + 10.0)
        return {
            "seconds": time.monotonic() - first, "rows": n_slots, "late_by": late_by,
            "cpu": self.server.cpu_seconds() - cpu, "client_cpu": time.process_time() - own_cpu,
            "event_bytes": self._event_bytes, "within": _within(before, self.server.metrics()),
            "probes": {feed: sorted(found) for feed, found in self.latencies.items()},
        }  # fmt: skip

    def _push_all(self, rows: queue.SimpleQueue[dict[str, Any] | None]) -> None:
        """Push rows one by one over one connection, until there is None."""
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=60.0)
        while (row := rows.get()) is not None:
            connection.request("POST", "/feeds/north/rows", json_lines([row]))
            answer = connection.getresponse()
            said = answer.read()
            if answer.status != 202:
                raise RuntimeError(said.decode())
        connection.close()

    def _probe_all(self, probes: queue.SimpleQueue[_Probe | None]) -> None:
        """Ask for the forecasts of some rows until they are there."""
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=60.0)
        waiting: list[_Probe] = []
        is_ended = False
        while waiting or not is_ended:
            began = time.monotonic()
            while not probes.empty():
                probe = probes.get()
                is_ended |= probe is None
                waiting += [] if probe is None else [probe]
            for probe in tuple(waiting):
                connection.request("GET", f"/feeds/{probe.feed}/forecasts?key={probe.key}")
                found = json.loads(connection.getresponse().read())
                took = time.monotonic() - probe.sent
                if took > LATE or found and found[0]["made"] >= probe.at - 1e-3:
                    self.latencies[probe.feed].append(took)
                    waiting.remove(probe)
            time.sleep(max(0.0, PROBE_SECONDS - (time.monotonic() - began)))
        connection.close()

    def _watch(self, k: int) -> None:
        """An open page."""
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=60.0)
        try:
            connection.request("GET", f"/events?feed={FEEDS[k % 2]}&from=0&to=60")
            answer = connection.getresponse()
            while not self._stop.is_set() and (data := answer.read1(1 << 16)):
                self._event_bytes += len(data)
        except (OSError, HTTPException):
            if not self._stop.is_set():
                raise


def _within(before: str, after: str) -> dict[str, float]:
    """Share of the pushed rows that were forecast within some seconds, by the server's own count."""
    name = "momostream_row_latency_seconds"
    total = value_of(after, f'{name}_count{{feed="north"}}') - value_of(before, f'{name}_count{{feed="north"}}')
    shares = {}
    for end in ("0.25", "0.5", "1.0", "2.5", "5.0"):
        key = f'{name}_bucket{{feed="north",le="{end}"}}'
        shares[end] = (value_of(after, key) - value_of(before, key)) / max(total, 1.0)
    return shares


def _publisher(port: int) -> Any:
    from paho.mqtt import client as mqtt

    publisher = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    publisher.max_inflight_messages_set(1000)
    publisher.connect("127.0.0.1", port)
    publisher.loop_start()
    return publisher


def growth(sizes: Sequence[int]) -> float:
    """Largest of the last quarter over that of the third."""
    n = len(sizes)
    return max(sizes[3 * n // 4 :]) / max(sizes[n // 2 : 3 * n // 4])
