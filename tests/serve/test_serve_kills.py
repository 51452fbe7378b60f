"""`momostream serve` is killed while rows are pushed: each row is learnt once, and nothing differs from a quiet run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time as clock
from contextlib import suppress

import httpx

from momostream.storage.store import Store

from .farms import FARM, lines, push, row, running, wait_for

# More in a longer trial.
N_KILLS = int(os.environ.get("MOMOSTREAM_KILLS", "2"))
N_ROWS, KEYS = 50, ("T1", "T2")


def batch(n):
    return [row(n, key, power=60.0 if key == "T1" and 40 <= n < 44 else None) for key in KEYS]


def contents(path):
    with Store(path, read_only=True) as store:
        outputs = [(number, *output) for number, output in store.outputs()]
        alarms = [(number, *alarm) for number, alarm in store.alarms()]
        return outputs, alarms, store.rows(), len(list(store.dead()))


class Server:
    """The command in a process, started again after each kill."""

    def __init__(self, folder, port):
        self.folder, self.port, self.process = folder, port, None
        (folder / "farm.toml").write_text(FARM.replace("127.0.0.1:0", f"127.0.0.1:{port}"))

    def start(self):
        command = [sys.executable, "-m", "momostream", "serve", str(self.folder / "farm.toml")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)


def free_port():
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def push_until_accepted(client, rows, seconds=300.0):
    until = clock.monotonic() + seconds
    while clock.monotonic() < until:
        with suppress(httpx.TransportError):
            answer = client.post("/feeds/north/rows", content=lines(rows))
            if answer.status_code == 202:
                return
            assert answer.status_code == 503, answer.text
        clock.sleep(0.05)
    raise AssertionError("the rows were never accepted")


def test_kills_lose_and_double_nothing(tmp_path):
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    quiet.mkdir()
    killed.mkdir()
    with running(quiet) as (client, state):
        for n in range(1, N_ROWS + 1):
            push(client, batch(n), state)
    server, rng = Server(killed, free_port()), random.Random(0)
    server.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=10.0) as client:
            kill_after = sorted(rng.sample(range(2, N_ROWS), min(N_KILLS, N_ROWS - 2)))
            for n in range(1, N_ROWS + 1):
                push_until_accepted(client, batch(n))
                if n in kill_after:
                    clock.sleep(rng.uniform(0.0, 0.5))
                    server.kill()
                    server.start()
            wait_for(lambda: has_learnt(client, killed), 300.0)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 0, (killed / "log").read_text()
    finally:
        server.process.kill()
        server.process.wait(10)
    expected, found = contents(quiet / "north.db"), contents(killed / "north.db")
    assert len(expected[0]) == N_ROWS * len(KEYS) and expected[1], "a quiet run has forecasts and alarms"
    assert found == expected


def has_learnt(client, folder):
    with suppress(httpx.TransportError):
        metrics = client.get("/metrics").text
        return f'momostream_rows_total{{feed="north"}} {N_ROWS * len(KEYS)}' in metrics
    return False
