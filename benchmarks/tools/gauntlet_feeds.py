"""Hostile feeds, long runs that must not grow, and threads that predict while one learns."""

from __future__ import annotations

import gzip
import json
import math
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.tools.fleet_kills import scratch, start_call
from benchmarks.tools.gauntlet_histories import checksum
from momostream import MOMoGPForecaster, MOMoGPRegressor
from momostream.cli.app import app

__all__ = ["FEEDS", "leak", "read_feed", "threads"]

# A run over a hostile feed may take so many seconds and so many bytes beyond those of the process.
MOST_SECONDS, MOST_BYTES = 120, 3 << 28
GOOD = [{"time": f"2024-01-01T00:{m:02d}:00", "wind": 8.0 + m % 5, "power": 60.0 + m % 7} for m in range(30)]


def lines(*more: str | bytes) -> bytes:
    """Good rows as JSON lines with further lines among them."""
    good = [json.dumps(row).encode() for row in GOOD]
    return b"\n".join([*good[:20], *(m if isinstance(m, bytes) else m.encode() for m in more), *good[20:], b""])


def row(**values: Any) -> str:
    """A row between the good ones."""
    return json.dumps({"time": "2024-01-01T00:19:30", "wind": 9.0, "power": 61.0, **values})


def csv(*more: str) -> bytes:
    """Good rows as CSV with further lines among them."""
    good = [f"{r['time']},{r['wind']},{r['power']}" for r in GOOD]
    return "\n".join(["time,wind,power", *good[:20], *more, *good[20:], ""]).encode()


#: By name, the file that is read, how it is called, and how many of its rows are good; None: refused as a whole.
FEEDS: dict[str, tuple[str, Callable[[], bytes], int | None]] = {
    "numbers of 1e999": ("a.jsonl", lambda: lines('{"time": "2024-01-01T00:19:30", "wind": 1e999, "power": 1}'), 30),
    "many digits": ("a.jsonl", lambda: lines('{"time": "2024-01-01T00:19:30", "wind": ' + "9" * 5000 + "}"), 30),
    "NaN and Infinity": (
        "a.jsonl",
        lambda: lines('{"time": "2024-01-01T00:19:30", "wind": -Infinity, "power": NaN}'),
        30,
    ),
    "deep nesting": ("a.jsonl", lambda: lines("[" * 100_000, '{"a":' * 100_000), 30),
    "values of other kinds": ("a.jsonl", lambda: lines(row(wind=[1.0]), row(wind={"a": 1}), row(wind="text")), 30),
    "NUL": ("a.jsonl", lambda: lines(b"\x00" * 1000, b'{"time": "\x00", "wind": 1}'), 30),
    "NUL in CSV": ("a.csv", lambda: csv("\x00,\x00,\x00"), 30),
    "another encoding": ("a.jsonl", lambda: lines(row(note="x").encode("utf-16"), b"\xff\xfe\xff"), 30),
    "years 1 and 9999": (
        "a.jsonl",
        lambda: lines(row(time="0001-01-01T00:00:00"), row(time="9999-12-31T23:59:59")),
        None,
    ),
    "years 1 and 9999 by key": ("keyed.jsonl", lambda: lines(row(time="0001-01-01T00:00:00", key="B")), 30),
    "times of other kinds": (
        "a.jsonl",
        lambda: lines(row(time=[]), row(time="noon"), row(time=1e300), row(time=None)),
        30,
    ),
    "an endless line": ("a.jsonl", lambda: lines(b"x" * (64 << 20)), 30),
    "an endless CSV line": ("a.csv", lambda: csv("2024-01-01T00:19:30," + "1" * (64 << 20)), 30),
    "too many columns": ("a.csv", lambda: csv("2024-01-01T00:19:30" + ",1" * 100_000), 30),
    "an open quote": ("a.csv", lambda: csv('"2024-01-01T00:19:30,1,2'), None),
    "a bomb": ("a.jsonl.gz", lambda: gzip.compress(lines(b" " * (1 << 29)), 6), 30),
    "a cut bomb": ("a.jsonl.gz", lambda: gzip.compress(lines(), 6)[:-20], None),
    "no rows": ("a.jsonl", lambda: b"", None),
    "noise": ("a.jsonl", lambda: Random(0).randbytes(100_000), None),
}


def read_feed(name: str) -> str:
    """Run over a hostile feed; what went wrong, nothing if all is as it should be."""
    file, make, n_good = FEEDS[name]
    with scratch() as folder:
        path, log = folder / file, folder / "log"
        path.write_bytes(make())
        options = ["-t", "power", "-i", "wind", "--bad-rows", "skip", "--quiet", "-o", str(folder / "out.csv")]
        options += ["--store", str(folder / "store.db")]
        began = time.monotonic()
        pid = start_call(lambda: _limited(["run", str(path), *options]), log)
        _, status = os.waitpid(pid, 0)
        code, said = os.waitstatus_to_exitcode(status), log.read_text(errors="replace")
        if code < 0:
            what = f"hung for {MOST_SECONDS} s" if code == -signal.SIGALRM else f"ended the process with {code}"
            return f"{what} after {time.monotonic() - began:.0f} s"
        if "Traceback" in said or "MemoryError" in said:
            return f"not in words: {said[-300:]}"
        out = folder / "out.csv"
        n_lines = len(out.read_text().splitlines()) - 1 if out.exists() else 0
        if n_good is not None and (code or n_lines < n_good - 2):
            return f"{n_lines} of {n_good} good rows were predicted, exit {code}: {said[-300:]}"
        return "" if code == 0 or said.strip() else "ended without a word"


def _limited(arguments: list[str]) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    app(arguments, prog_name="momostream")


# ---------------------------------------------------------------------- leaks


def held() -> tuple[int, int, int]:
    """Resident bytes, open descriptors and threads of this process."""
    status = Path("/proc/self/statm").read_text().split()
    return int(status[1]) * resource.getpagesize(), len(os.listdir("/proc/self/fd")), threading.active_count()


def leak(kind: str, n_rows: int) -> dict[str, Any]:
    """Learn rows with a window; growth of memory, descriptors and threads over the last three quarters."""
    random, began = Random(0), time.process_time()
    model: Any = (
        MOMoGPRegressor(window=200, max_points=64, seed=0)
        if kind == "regressor"
        else MOMoGPForecaster(horizon=3, window=200, max_points=64, seed=0)
    )
    before, wind = held(), 8.0
    for t in range(n_rows):
        wind = 0.9 * wind + random.gauss(0.8, 1.0)
        y = {"power": wind**2 + random.gauss(0.0, 1.0), "load": math.sin(t / 9.0)}
        if kind == "regressor":
            model.predict_one({"wind": wind})
            model.learn_one({"wind": wind}, y)
        else:
            model.learn_one(y, {"wind": wind})
        if t == n_rows // 4:
            before = held()
    after = held()
    growth = {name: b - a for name, a, b in zip(("bytes", "descriptors", "threads"), before, after, strict=True)}
    return {"rows": n_rows, **growth, "seconds": round(time.process_time() - began, 1)}


# ---------------------------------------------------------------------- threads


def threads(n_rows: int, n_readers: int = 4) -> dict[str, Any]:
    """Predict in several threads while one learns; errors, and whether the model is that of one thread."""
    settings = {"max_points": 24, "tuning_points": 16, "first_tuning": 8, "window": 100, "seed": 0}
    shared, alone = MOMoGPRegressor(**settings), MOMoGPRegressor(**settings)
    errors: list[str] = []
    is_over = threading.Event()
    counts = [0] * n_readers

    def read(number: int) -> None:
        random = Random(number)
        while not is_over.is_set():
            try:
                found = shared.predict_one({"wind": random.gauss(8.0, 2.0)}, with_dist=True)
                if found and not all(map(math.isfinite, found.mean.values())):
                    errors.append(f"mean of {found.mean}")
                shared.score_one({"wind": 8.0}, {"power": 60.0})
            except Exception as error:
                errors.append(repr(error))
            counts[number] += 1

    readers = [threading.Thread(target=read, args=(number,)) for number in range(n_readers)]
    for reader in readers:
        reader.start()
    random = Random(0)
    rows = [(random.gauss(8.0, 2.0), random.gauss(0.0, 1.0)) for _ in range(n_rows)]
    for wind, noise in rows:
        shared.learn_one({"wind": wind}, {"power": wind**2 + noise})
    is_over.set()
    for reader in readers:
        reader.join()
    for wind, noise in rows:
        alone.learn_one({"wind": wind}, {"power": wind**2 + noise})
    if checksum(shared) != checksum(alone):
        errors.append("the model that was asked meanwhile differs")
    return {"rows": n_rows, "predictions": sum(counts), "errors": errors[:10]}
