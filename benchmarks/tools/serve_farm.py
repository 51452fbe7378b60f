"""A server in a process of its own, rows for it, and brokers: for `benchmarks.serve` and the tests of kills."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness import one_thread

__all__ = ["Server", "free_port", "json_lines", "push_until_accepted", "simulated_row", "value_of"]

PATIENCE, LOOK_SECONDS = 300.0, 0.25


def free_port() -> int:
    """A port of this machine that nobody listens to."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def simulated_row(machine: int, at: datetime, n: int) -> dict[str, Any]:
    """A row of a machine: a wave of its own, a little noise, two targets."""
    phase = 0.37 * machine
    power = 1200.0 + 500.0 * math.sin(n / 40 + phase) + 40.0 * math.sin(7.1 * n + 1.3 * machine * n)
    temperature = 55.0 + 6.0 * math.sin(n / 90 + phase) + 0.4 * math.cos(5.3 * n + machine)
    return {
        "machine": f"M{machine:03d}", "time": at.isoformat(), "power": round(power, 2),
        "temperature": round(temperature, 3),
    }  # fmt: skip


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    """Rows as the interface takes them."""
    return "\n".join(map(json.dumps, rows)).encode()


class Server:
    """``momostream serve`` in a process, which may be killed and started again."""

    def __init__(self, folder: Path, farm: str, port: int | None = None) -> None:
        self.folder, self.port = folder, port or free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "farm.toml").write_text(farm.replace("PORT", str(self.port)), encoding="utf-8")

    def start(self, wait: bool = True) -> None:
        """Start the process, and wait until its feeds run."""
        command = [sys.executable, "-m", "momostream", "serve", str(self.folder / "farm.toml")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=one_thread())
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until all feeds run."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(self.log)
            with suppress(httpx.TransportError):
                if httpx.get(f"{self.address}/readyz", timeout=10.0).status_code == 200:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the server is not ready: {self.log}")

    @property
    def log(self) -> str:
        """What it has said so far."""
        return (self.folder / "log").read_text(encoding="utf-8")

    def kill(self) -> None:
        """End the process by SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> int:
        """End the process by SIGTERM; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def metrics(self) -> str:
        """Counts for Prometheus."""
        return httpx.get(f"{self.address}/metrics", timeout=60.0).text

    def resident(self) -> int:
        """Resident memory in bytes."""
        assert self.process is not None
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        """CPU time so far."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait_for_rows(self, feed: str, n: int, seconds: float = 3600.0) -> None:
        """Wait until a feed has learnt so many rows."""
        until = time.monotonic() + seconds
        while value_of(self.metrics(), f'momostream_rows_total{{feed="{feed}"}}') < n:
            if time.monotonic() > until:
                raise RuntimeError(f"{feed} has not learnt {n} rows in time")
            # The counts of all machines cost the server some milliseconds.
            time.sleep(LOOK_SECONDS)


def value_of(metrics: str, name: str) -> float:
    """The value of a name in a text for Prometheus; 0 if it is not there."""
    for line in metrics.splitlines():
        if line.startswith(f"{name} "):
            return float(line.rpartition(" ")[2])
    return 0.0


def push_until_accepted(client: httpx.Client, rows: list[dict[str, Any]], feed: str = "north") -> None:
    """Push rows until the server has them, whatever happens to it meanwhile."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with suppress(httpx.TransportError):
            answer = client.post(f"/feeds/{feed}/rows", content=json_lines(rows))
            if answer.status_code == 202:
                return
            if answer.status_code != 503:
                raise RuntimeError(answer.text)
        time.sleep(0.05)
    raise RuntimeError("the rows were never accepted")


def clock_times(start: datetime | None = None) -> Any:
    """Times of rows, ten seconds apart."""
    at = start or datetime(2026, 3, 1, tzinfo=UTC)
    while True:
        yield at
        at += timedelta(seconds=10)
