"""`momostream serve` is killed while rows are pushed; what it leaves is compared with an undisturbed run."""

from __future__ import annotations

import json
import math
import random
import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from benchmarks.tools.postgres import Postgres
from benchmarks.tools.serve_farm import Server, push_until_accepted, value_of
from momostream.storage.store import Store

__all__ = ["KILL_FARM", "contents", "kill_database_trial", "kill_trial", "turbine_row"]

# Of the tests as well.
KILL_FARM = """
[serve]
address = "127.0.0.1:PORT"
title = "Test farm"
history = 100
[feeds.north]
key = "turbine"
time = "time"
targets = ["power", "temperature"]
horizon = 6
sequence = "n"
commit_seconds = 0.3
"""
KEYS = ("T1", "T2")
# Rows of each machine between two kills, and the fault of the first machine in all of them.
ROWS_PER_KILL, FIRST_FAULT, FAULT_ROWS = 5, 40, 4


def turbine_row(n: int, key: str = "T1", power: float | None = None) -> dict[str, Any]:
    """Row ``n`` of a machine: waves, or another power."""
    value = 10.0 + 3.0 * math.sin(n / 5) + 0.1 * math.cos(7.7 * n) if power is None else power
    at = (datetime(2026, 11, 18) + timedelta(minutes=10 * n)).isoformat()
    return {"turbine": key, "n": n, "time": at, "power": value, "temperature": 40.0 + math.cos(n / 3)}


def _batch(n: int) -> list[dict[str, Any]]:
    """The rows of all machines at one time."""
    is_fault = FIRST_FAULT <= n < FIRST_FAULT + FAULT_ROWS
    return [turbine_row(n, key, 60.0 if is_fault and key == "T1" else None) for key in KEYS]


def contents(path: Path) -> tuple[Any, ...]:
    """Forecasts, alarms, rows by machine, and the number of rejected rows."""
    with Store(path, read_only=True) as store:
        outputs = [(number, *output) for number, output in store.outputs()]
        alarms = [(number, *alarm) for number, alarm in store.alarms()]
        return outputs, alarms, store.rows(), len(list(store.dead()))


def kill_trial(folder: Path, n_kills: int, seed: int = 0) -> dict[str, Any]:
    """Push rows to a server that is killed at random moments, and to one that is not."""
    n_rows = max(50, ROWS_PER_KILL * n_kills)
    began = time.monotonic()
    found = []
    for name, kills in (("quiet", 0), ("killed", n_kills)):
        _push_all(Server(folder / name, KILL_FARM), n_rows, kills, random.Random(seed))
        found.append(contents(folder / name / "north.db"))
    quiet, killed = found
    return {
        "kills": n_kills, "rows": n_rows * len(KEYS), "seconds": time.monotonic() - began,
        "forecasts": len(quiet[0]), "alarms": len(quiet[1]),
        "each_row_once": killed[2] == dict.fromkeys(KEYS, n_rows),
        "same_forecasts": quiet[0] == killed[0], "same_alarms": quiet[1] == killed[1], "same": quiet == killed,
    }  # fmt: skip


def kill_database_trial(folder: Path, n_kills: int, seed: int = 0) -> dict[str, Any]:
    """As `kill_trial`, with forecasts and alarms in PostgreSQL: the server, the database, or both are killed."""
    n_rows = max(50, ROWS_PER_KILL * n_kills)
    began = time.monotonic()
    found = []
    with Postgres() as database:
        for name, kills in (("quiet", 0), ("killed", n_kills)):
            tables = {"output": f"{name}_forecasts", "alarms": f"{name}_alarms"}
            more = [f"{key} = {json.dumps(database.url(table=table))}" for key, table in tables.items()]
            server = Server(folder / name, "\n".join([KILL_FARM, *more]))
            _push_all(server, n_rows, kills, random.Random(seed), database, tables)
            with Store(folder / name / "north.db", read_only=True) as store:
                learnt = store.rows()
            found.append((*(database.rows(query) for query in _queries(tables)), learnt))
    quiet, killed = found
    numbers = [(number, step, target) for number, step, target, *_ in killed[0]]
    return {
        "kills": n_kills, "rows": n_rows * len(KEYS), "seconds": time.monotonic() - began,
        "forecasts": len({number for number, *_ in quiet[0]}), "alarms": len(quiet[1]),
        "each_row_once": killed[2] == dict.fromkeys(KEYS, n_rows) and len(numbers) == len(set(numbers)),
        "same_forecasts": quiet[0] == killed[0], "same_alarms": quiet[1] == killed[1], "same": quiet == killed,
    }  # fmt: skip


def _queries(tables: dict[str, str]) -> tuple[str, str]:
    """What the tables of forecasts and alarms hold, in order."""
    values = "number, step, target, key, row, time, mean, lower, upper"
    return (
        f"SELECT {values} FROM {tables['output']} ORDER BY number, step, target",
        f"SELECT number, key, row, time, target, value, alarm::text FROM {tables['alarms']} ORDER BY number",
    )


def _push_all(
    server: Server,
    n_rows: int,
    n_kills: int,
    rng: random.Random,
    database: Postgres | None = None,
    tables: dict[str, str] | None = None,
) -> None:
    kill_after = set(rng.sample(range(2, n_rows), n_kills))
    server.start(wait=False)
    try:
        with httpx.Client(base_url=server.address, timeout=10.0) as client:
            for n in range(1, n_rows + 1):
                push_until_accepted(client, _batch(n))
                if n in kill_after:
                    time.sleep(rng.uniform(0.0, 0.5))
                    _kill(server, database, rng)
            _wait_until_learnt(server, n_rows * len(KEYS))
            if database is not None and tables is not None:
                _wait_until_sent(database, tables["output"], n_rows * len(KEYS))
        if code := server.stop():
            raise RuntimeError(f"ended with {code}: {server.log}")
    finally:
        assert server.process is not None
        server.process.kill()
        server.process.wait(10)


def _kill(server: Server, database: Postgres | None, rng: random.Random) -> None:
    """Kill the server; with a database, that one, the other, or both."""
    which = "server" if database is None else rng.choice(["server", "database", "both"])
    if which != "server":
        assert database is not None
        database.kill()
    if which != "database":
        server.kill()
        server.start(wait=False)
    if which != "server":
        assert database is not None
        time.sleep(rng.uniform(0.0, 1.0))
        database.start()


def _wait_until_sent(database: Postgres, table: str, n: int) -> None:
    until = time.monotonic() + 120.0
    while time.monotonic() < until:
        if database.rows(f"SELECT count(DISTINCT number) FROM {table}")[0][0] >= n:
            return
        time.sleep(0.2)
    raise RuntimeError(f"{n} forecasts did not get into {table} in time")


def _wait_until_learnt(server: Server, n: int) -> None:
    until = time.monotonic() + 300.0
    while time.monotonic() < until:
        with suppress(httpx.TransportError):
            if value_of(server.metrics(), 'momostream_rows_total{feed="north"}') >= n:
                return
        time.sleep(0.05)
    raise RuntimeError(f"{n} rows were not learnt in time: {server.log}")
