"""Runs that are killed again and again: whether they leave what an uninterrupted run leaves.

A run is a process of its own, forked from one in which everything has been imported, so that it is at work within
milliseconds and a kill can hit it anywhere. `SIGKILL` comes after a random time; then the same command is given again,
until no kills are left and the run may come to its end. Its store is compared with that of an undisturbed run over the
same rows: every prediction, every count, every rejected row, and every model to the bit.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

# Not used here, but by the runs: what is imported before the fork need not be imported after it.
import momostream.feeds.brokers
import momostream.runs.run  # noqa: F401
from benchmarks.tools.brokers import MockKafka, Mosquitto, publish_kafka, publish_mqtt
from benchmarks.tools.postgres import Postgres
from momostream.cli.app import app
from momostream.datasets.wind import WindTurbine
from momostream.storage.blocks import Parts, digest
from momostream.storage.store import Store, StoreError

__all__ = ["kill_files", "kill_kafka", "kill_mqtt", "kill_postgres", "kill_values", "leftovers"]

TARGETS, INPUTS = ("power", "rotor_speed"), ("wind_speed", "pitch")
OPTIONS = [
    *("--key", "turbine", "--quiet", "--memory", "1", "--set", "max_points=32", "--set", "tuning_evaluations=4"),
    *("--set", "experts=('matern32', 'lags')", *(part for name in TARGETS for part in ("-t", name))),
    *(part for name in INPUTS for part in ("-i", name)),
]
N_KEYS = 8
# One row in so many is bad: a text, a missing key, a time that has been.
BAD_EVERY = 97
SECONDS_TO_END = 600.0


def rows(n_rows: int, bad_every: int = BAD_EVERY) -> list[dict[str, Any]]:
    """Rows of several turbines, taking turns, with bad ones among them."""
    turbines = [iter(WindTurbine(seed=n)) for n in range(N_KEYS)]
    found = []
    for number in range(n_rows):
        key = number % N_KEYS
        x, y = next(turbines[key])
        row = {"turbine": f"T{key:02d}", "time": x["time"].isoformat(), "n": number // N_KEYS + 1}
        row |= {name: round(value, 4) for name, value in {**x, **y}.items() if name in TARGETS + INPUTS}
        if number % bad_every == bad_every - 1:
            earlier = (datetime.fromisoformat(row["time"]) - timedelta(hours=1)).isoformat()
            row |= [{"power": "broken"}, {"turbine": None}, {"time": earlier}][number // bad_every % 3]
        found.append(row)
    return found


def leftovers(store: Path, by_key: bool = True) -> dict[str, Any]:
    """Contents of a store: digests of models, predictions and alarms by key without row numbers, rejected rows, counts.

    From a broker, the rows of different keys may come in another order, and be numbered otherwise.
    """
    with Store(store, read_only=True) as reader:
        models = {key: [digest(chunk).hex() for chunk in Parts.of(reader.load(key)).chunks] for key in reader.keys()}
        (place,) = reader.sources()
        lines: dict[str, list[str]] = {}
        for table, found in (("outputs", reader.outputs()), ("alarms", reader.alarms())):
            for _, output in found:
                record = json.loads(output.text)
                if by_key:
                    record.pop("row")
                lines.setdefault(f"{table} {output.key}" if by_key else table, []).append(json.dumps(record))
        dead = [[json.loads(letter.row), letter.key, letter.reason] for _, letter in reader.dead()]
        refused = sorted(([_known(row), key, reason] for row, key, reason in dead), key=repr)
        counts = {"rows": place.more["n_rows"], "bad": place.n_bad, "taken": place.number}
        return {"models": models, "lines": lines, "refused": refused, "counts": counts}


def _known(row: dict[str, Any]) -> list[Any]:
    return sorted((name, value) for name, value in row.items() if name in {*TARGETS, *INPUTS, "time"})


def differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Parts that are not the same."""
    different = [name for name in expected if name != "lines" and found[name] != expected[name]]
    keys = found["lines"].keys() | expected["lines"].keys()
    return different + [key for key in sorted(keys) if found["lines"].get(key) != expected["lines"].get(key)]


# ---------------------------------------------------------------------- processes


def start(arguments: list[str], log: Path) -> int:
    """Give a command to a process of its own; its number."""
    return start_call(lambda: app(arguments, prog_name="momostream"), log)


def start_call(work: Callable[[], object], log: Path) -> int:
    """Do something in a process of its own; its number."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(file, stream)
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        # Not further: this is a copy of the process that measures.
        os._exit(code)


def ended(pid: int) -> int | None:
    """Exit code of a process, None while it is alive; negative: the signal that ended it."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def end(pid: int, number: int, seconds: float = 30.0) -> int:
    """Send a signal and wait for the end."""
    os.kill(pid, number)
    return wait(pid, seconds)


def wait(pid: int, seconds: float = SECONDS_TO_END) -> int:
    """Wait for the end of a process."""
    deadline = time.monotonic() + seconds
    while (code := ended(pid)) is None:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise TimeoutError(f"a run did not end within {seconds:g} s")
        time.sleep(0.005)
    return code


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="momostream-kills-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_rows(path: Path, found: list[dict[str, Any]]) -> None:
    """Rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")


def undisturbed(folder: Path, found: list[dict[str, Any]], options: list[str]) -> tuple[float, Path]:
    """A run over a file that nobody disturbs; seconds, and its store."""
    write_rows(folder / "farm.jsonl", found)
    store, began = folder / "whole.db", time.monotonic()
    pid = start(["run", str(folder / "farm.jsonl"), *OPTIONS, "--store", str(store), *options], folder / "log")
    if wait(pid):
        raise RuntimeError((folder / "log").read_text()[-2000:])
    return time.monotonic() - began, store


def report(kind: str, n_kills: int, found: list[str], n_rows: int, began: float) -> dict[str, Any]:
    """The result of a trial."""
    seconds = round(time.monotonic() - began, 1)
    return {"kind": kind, "kills": n_kills, "rows": n_rows, "different": found, "seconds": seconds}


# ---------------------------------------------------------------------- trials


def kill_files(n_kills: int, seed: int = 0, rows_per_kill: int = 150) -> dict[str, Any]:
    """A run over a file, with predictions in a file and alarms in the store, killed at random moments."""
    rng, began, n_rows = random.Random(seed), time.monotonic(), rows_per_kill * n_kills
    with scratch() as folder:
        options = ["--commit-every", "100", "--alarms", "store"]
        whole = [*options, "-o", str(folder / "whole.csv")]
        seconds, expected = undisturbed(folder, rows(n_rows), whole)
        out, store = folder / "out.csv", folder / "parts.db"
        command = ["run", str(folder / "farm.jsonl"), *OPTIONS, "--store", str(store), *options, "-o", str(out)]
        n_done = 0
        while n_done < n_kills:
            pid = start(command, folder / "log")
            time.sleep(rng.uniform(0.0, 2.0 * seconds / n_kills))
            if (code := ended(pid)) is not None:
                if code:
                    raise RuntimeError((folder / "log").read_text()[-2000:])
                break
            end(pid, signal.SIGKILL)
            n_done += 1
        if wait(start(command, folder / "log")):
            raise RuntimeError((folder / "log").read_text()[-2000:])
        different = differences(leftovers(store, by_key=False), leftovers(expected, by_key=False))
        if out.read_bytes() != (folder / "whole.csv").read_bytes():
            different.append("output file")
        return report("file", n_done, different, n_rows, began)


def _reached(store: Path) -> int:
    """Rows that the store has taken."""
    try:
        with Store(store, read_only=True) as reader:
            return sum(place.number for place in reader.sources())
    except StoreError:
        return 0


def _let_end(command: list[str], store: Path, n_rows: int, log: Path) -> None:
    """Let a run continue until all rows are in the store, then end it as a system does."""
    pid, deadline = start(command, log), time.monotonic() + SECONDS_TO_END
    while _reached(store) < n_rows:
        if ended(pid) is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{_reached(store)} of {n_rows} rows came: {log.read_text()[-2000:]}")
        time.sleep(0.1)
    end(pid, signal.SIGTERM)


def kill_kafka(n_kills: int, seed: int = 0, rows_per_kill: int = 150) -> dict[str, Any]:
    """A run over a topic of Kafka, a mock cluster in a process of its own, killed at random moments."""
    rng, began, n_rows = random.Random(seed), time.monotonic(), rows_per_kill * n_kills
    with scratch() as folder, MockKafka() as cluster:
        seconds, expected = undisturbed(folder, rows(n_rows), ["--commit-every", "100"])
        keyed = [(f"T{number % N_KEYS:02d}", row) for number, row in enumerate(rows(n_rows))]
        wait(start_call(lambda: publish_kafka(cluster.address, "farm", keyed), folder / "log"))
        store = folder / "parts.db"
        command = ["run", cluster.url("farm"), *OPTIONS, "--store", str(store), "--commit-every", "100"]
        n_done = 0
        for _ in range(n_kills):
            pid = start(command, folder / "log")
            # A consumer takes a while to join: kills come before, while and after rows are taken.
            time.sleep(rng.uniform(0.0, 1.0 + 2.0 * seconds / n_kills))
            n_done += end(pid, signal.SIGKILL) == -signal.SIGKILL
        _let_end(command, store, n_rows, folder / "log")
        return report("Kafka", n_done, differences(leftovers(store), leftovers(expected)), n_rows, began)


def values_of(row: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The values of a row as messages of their own: topics and contents."""
    return [(f"farm/{row['turbine']}/{name}", {"ts": row["time"], "value": row[name]}) for name in TARGETS + INPUTS]


def kill_mqtt(n_kills: int, seed: int = 0, rows_per_kill: int = 400, by_value: bool = False) -> dict[str, Any]:
    """A run over topics of MQTT: the run is killed, then the broker is killed and started again, while rows come.

    With `by_value`, each value is a message of its own, without a sequence, and no row is bad.
    """
    rng, began, n_rows = random.Random(seed), time.monotonic(), rows_per_kill * n_kills
    with scratch() as folder, Mosquitto(folder / "broker") as broker:
        found = rows(n_rows, bad_every=n_rows + 1 if by_value else BAD_EVERY)
        _, expected = undisturbed(folder, found, ["--commit-every", "100"])
        store = folder / "parts.db"
        if by_value:
            source = [f"{broker.url('farm/{turbine}/{column}')}?client_id=farm&wait=1h"]
            sent = [message for row in found for message in values_of(row)]
        else:
            source = [f"{broker.url('farm/+')}?client_id=farm", "--sequence", "n"]
            sent = [(f"farm/{number % N_KEYS}", row) for number, row in enumerate(found)]
        command = [
            *("run", *source, *OPTIONS, "--store", str(store), "--commit-every", "100", "--commit-seconds", "1"),
        ]
        # Rows that come before anybody has asked for them are nobody's.
        pid = start(command, folder / "log")
        deadline = time.monotonic() + 30.0
        while "farm" not in broker.log and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(1.0)
        publisher = start_call(lambda: publish_mqtt(broker.port, sent, patience=SECONDS_TO_END), folder / "log")
        n_done = 0
        for _ in range(n_kills):
            time.sleep(rng.uniform(0.0, 1.5))
            n_done += end(pid, signal.SIGKILL) == -signal.SIGKILL
            time.sleep(rng.uniform(0.0, 0.3))
            broker.restart()
            time.sleep(rng.uniform(0.0, 0.3))
            pid = start(command, folder / "log")
        if wait(publisher):
            raise RuntimeError((folder / "log").read_text()[-2000:])
        end(pid, signal.SIGTERM)
        _let_end(command, store, n_rows, folder / "log")
        kind, different = "MQTT, values" if by_value else "MQTT", differences(leftovers(store), leftovers(expected))
        return report(kind, n_done, different, n_rows, began)


def kill_values(n_kills: int, seed: int = 0, rows_per_kill: int = 150) -> dict[str, Any]:
    """As `kill_mqtt`, each value in a message of its own."""
    return kill_mqtt(n_kills, seed, rows_per_kill, by_value=True)


def kill_postgres(n_kills: int, seed: int = 0, rows_per_kill: int = 150) -> dict[str, Any]:
    """A run over a file into PostgreSQL: the run is killed, and the server is killed and started again meanwhile."""
    rng, began, n_rows = random.Random(seed), time.monotonic(), rows_per_kill * n_kills
    with scratch() as folder, Postgres() as server:
        shared = ["--commit-every", "50", "--commit-seconds", "1", "--alarm-level", "0.9"]

        def outputs(name: str) -> list[str]:
            tables = [server.url(table=f"{kind}_{name}") for kind in ("forecasts", "alarms", "letters")]
            options = ("-o", "--alarms", "--dead-letters")
            return [part for pair in zip(options, tables, strict=True) for part in pair]

        seconds, _ = undisturbed(folder, rows(n_rows), [*shared, *outputs("whole")])
        store, n_done = folder / "parts.db", 0
        command = ["run", str(folder / "farm.jsonl"), *OPTIONS, "--store", str(store), *shared, *outputs("parts")]
        while n_done < n_kills:
            pid = start(command, folder / "log")
            # Most runs are killed while rows come, some of them while the server is away, or comes back.
            time.sleep(rng.uniform(0.0, 0.5 * seconds / n_kills))
            server.kill()
            time.sleep(rng.uniform(0.0, 0.5 * seconds / n_kills))
            n_done += end(pid, signal.SIGKILL) == -signal.SIGKILL
            pid = start(command, folder / "log")
            server.start()
            time.sleep(rng.uniform(0.0, 0.5 * seconds / n_kills))
            if ended(pid) is None:
                n_done += end(pid, signal.SIGKILL) == -signal.SIGKILL
        # What the server has not got by the end of a run, it gets from the next one.
        for _ in range(5):
            if wait(start(command, folder / "log")):
                raise RuntimeError((folder / "log").read_text()[-2000:])
            if not _has_lines(store):
                break
        different = [
            kind
            for kind, columns in (
                ("forecasts", "key, row, step, time, target, mean, lower, upper"),
                ("alarms", "key, row, time, target, value, lower, upper, alarm::text"),
                ("letters", "key, source, reason, letter::text"),
            )
            if _rows_of(server, f"{kind}_parts", columns) != _rows_of(server, f"{kind}_whole", columns)
        ]
        return report("PostgreSQL", n_done, different, n_rows, began)


def _has_lines(store: Path) -> bool:
    with Store(store, read_only=True) as reader:
        return any(next(lines, None) is not None for lines in (reader.outputs(), reader.alarms(), reader.dead()))


def _rows_of(server: Postgres, table: str, columns: str) -> list[tuple[Any, ...]]:
    found = sorted(server.rows(f"SELECT number, {columns} FROM {table}"), key=repr)
    if not found:
        raise RuntimeError(f"{table} is empty")
    return found
