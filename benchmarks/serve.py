"""What a served farm bears: load, kills, strange requests, and how soon its page is there.

    python -m benchmarks.serve [load | memory | throughput | kills | database | schema | demo ...] [--quick]

`load` runs 500 machines at one row each per ten seconds, half over HTTP and half over MQTT, with 20 open pages: first
some minutes (``--minutes``) of rows as fast as they are learnt, then some (``--seconds``) in real time, for the time
from a row to its forecast; then it times the page. `memory` runs an hour of rows of 100 machines as fast as they are
learnt, and then some hours of 20 machines whose models keep a window of rows. `throughput` compares pushes of 1,000
rows with ``momostream run`` over the same rows in a file. `kills` ends the server by SIGKILL while a client pushes and
retries, `database` also the PostgreSQL that its forecasts go to. `schema` lets schemathesis try the interface by its
OpenAPI document. `demo` times ``momostream demo`` up to the address of its page. All traffic is on 127.0.0.1. Goes to
``results/serve.md``, which shows the newest of each trial. A full run takes an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from benchmarks.data import ROOT
from benchmarks.harness import RESULTS, about, keep_result, kept_results, one_thread, write_results
from benchmarks.tools.postgres import missing_postgres
from benchmarks.tools.serve_farm import Server, push_until_accepted, simulated_row
from benchmarks.tools.serve_kills import kill_database_trial, kill_trial
from benchmarks.tools.serve_load import Load, growth
from benchmarks.tools.serve_report import report

PARTS = ("load", "memory", "throughput", "kills", "database", "schema", "demo")
# The short forms of the others are among the tests, or take a minute.
QUICK_PARTS = ("load",)
THROUGHPUT_FARM = """
[serve]
address = "127.0.0.1:PORT"
[feeds.north]
key = "machine"
time = "time"
targets = ["power", "temperature"]
horizon = 12
"""
BATCH_ROWS, THROUGHPUT_MACHINES = 1000, 20
SCHEMA_FARM = """
[serve]
address = "127.0.0.1:PORT"
rate = 100000.0
[feeds.north]
key = "machine"
time = "time"
targets = ["power", "temperature"]
horizon = 6
[feeds.south]
targets = ["power"]
inputs = ["wind"]
time = "none"
"""
# With ``bad_rows=skip``, what is not a row is accepted as a dead letter: that it is rejected cannot be asked there.
# Targets and keys that fit the schema need not exist.
SCHEMA_CHECKS = """
[checks]
positive_data_acceptance.enabled = false
[[operations]]
include-name = "POST /feeds/{feed}/rows"
checks.negative_data_rejection.enabled = false
"""


def load(folder: Path, quick: bool, minutes: float = 12.0, seconds: float = 240.0) -> dict[str, Any]:
    """500 machines, 20 pages; so many minutes as fast as they are learnt, then so many seconds in real time."""
    n_machines, n_pages, n_rows, n_probes = (20, 3, 12, 10) if quick else (500, 20, int(6 * minutes), int(5 * seconds))
    seconds = 10.0 if quick else seconds
    trial = Load(folder, n_machines, n_pages)
    try:
        cpu = trial.simulate(n_rows, datetime.now(UTC))
        found = {"machines": n_machines, "pages": n_pages, "simulated_rows": n_rows * n_machines, "simulated_cpu": cpu}
        found |= trial.in_real_time(seconds, n_probes)
        found["page_ms"] = page_times(trial.server.address, 2 if quick else 7)
        return found
    finally:
        trial.close()


def memory(folder: Path, quick: bool) -> dict[str, Any]:
    """An hour of rows of 100 machines, and several of a few whose models keep a window of rows: resident memory."""
    found = _resident(folder / "all", *((10, 12) if quick else (100, 360)))
    return found | {"window": _resident(folder / "window", *((4, 40, 20) if quick else (20, 1000, 300)))}


def _resident(folder: Path, n_machines: int, n_rows: int, window: int | None = None) -> dict[str, Any]:
    """Resident memory, and that of models, over this many rows of each machine."""
    trial = Load(folder, n_machines, 0, window)
    try:
        cpu = trial.simulate(n_rows, datetime.now(UTC))
        resident, models = (list(sizes) for sizes in zip(*trial.memory, strict=True))
        others = [size - of_models for size, of_models in trial.memory]
        shown = trial.memory[:: max(1, len(trial.memory) // 12)]
        return {
            "machines": n_machines, "rows": n_rows, "rows_kept": window, "cpu": cpu,
            "mb": [[round(each / 1e6, 1) for each in pair] for pair in shown],
            "growth": growth(resident), "model_growth": growth(models), "other_growth": growth(others),
        }  # fmt: skip
    finally:
        trial.close()


def page_times(address: str, times: int) -> list[float] | None:
    """Milliseconds from asking for the page to its first tile, in headless Chromium; None where there is none."""
    node, chromium = shutil.which("node"), shutil.which("chromium")
    folder = Path(os.environ.get("MOMOSTREAM_PLAYWRIGHT") or ROOT / ".venv" / "browser")
    library = folder / "node_modules" / "playwright-core" / "index.mjs"
    if node is None or chromium is None or not library.exists():
        return None
    script = ROOT / "benchmarks" / "tools" / "serve_page.mjs"
    command = [node, str(script), str(library), chromium, f"{address}/", str(times)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def throughput(folder: Path, quick: bool) -> dict[str, Any]:
    """Rows per CPU second of the server, and of a run over a file, in turn."""
    n_each = 50 if quick else 500
    start = datetime(2026, 3, 1, tzinfo=UTC)
    rows = [
        simulated_row(m, start + timedelta(seconds=10 * n), n)
        for n in range(n_each)
        for m in range(THROUGHPUT_MACHINES)
    ]
    trials: dict[str, list[float]] = {"serve": [], "run": [], "serve_wall": [], "run_wall": []}
    for number in range(1 if quick else 3):
        for name, trial in (("serve", _pushed), ("run", _read)):
            cpu, wall = trial(folder / f"{name}{number}", rows)
            trials[name].append(len(rows) / cpu)
            trials[f"{name}_wall"].append(len(rows) / wall)
    medians = {name: statistics.median(found) for name, found in trials.items()}
    return {"rows": len(rows), "batch": BATCH_ROWS, **medians, "share": medians["serve"] / medians["run"],
            "share_wall": medians["serve_wall"] / medians["run_wall"]}  # fmt: skip


def _pushed(folder: Path, rows: list[dict[str, Any]]) -> tuple[float, float]:
    server = Server(folder, THROUGHPUT_FARM)
    server.start()
    try:
        with httpx.Client(base_url=server.address, timeout=60.0) as client:
            # The first row loads code: of the run over a file, its start with one row is taken off.
            push_until_accepted(client, rows[:1])
            server.wait_for_rows("north", 1)
            cpu, began = server.cpu_seconds(), time.monotonic()
            for at in range(0, len(rows), BATCH_ROWS):
                push_until_accepted(client, rows[at : at + BATCH_ROWS])
            server.wait_for_rows("north", len(rows))
            return server.cpu_seconds() - cpu, time.monotonic() - began
    finally:
        server.stop()


def _read(folder: Path, rows: list[dict[str, Any]]) -> tuple[float, float]:
    """CPU and wall seconds of a run over a file, without its start: that of one row is taken off."""
    folder.mkdir(parents=True)
    path = folder / "farm.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    options = ["--key", "machine", "-t", "power", "-t", "temperature", "--horizon", "12", "--alarms", "store", "-q"]
    spent = []
    for name, more in (("one", ["--limit", "1"]), ("all", [])):
        command = [sys.executable, "-m", "momostream", "run", str(path), *options, *more]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run([*command, "--store", str(folder / f"{name}.db")], env=one_thread(), check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        spent.append((cpu, time.monotonic() - began))
    (start_cpu, start_wall), (cpu, wall) = spent
    return cpu - start_cpu, wall - start_wall


def kills(folder: Path, quick: bool) -> dict[str, Any]:
    """50 kills."""
    return kill_trial(folder, 2 if quick else 50)


def database(folder: Path, quick: bool) -> dict[str, Any]:
    """20 kills with PostgreSQL as output, which is killed too."""
    if (missing := missing_postgres()) is not None:
        raise SystemExit(missing)
    return kill_database_trial(folder, 2 if quick else 20)


def schema(folder: Path, quick: bool) -> dict[str, Any]:
    """Requests of schemathesis by the OpenAPI document of a server that has rows."""
    server = Server(folder, SCHEMA_FARM)
    server.start()
    try:
        start = datetime(2026, 3, 1, tzinfo=UTC)
        with httpx.Client(base_url=server.address, timeout=60.0) as client:
            for n in range(40):
                push_until_accepted(client, [simulated_row(m, start + timedelta(minutes=n), n) for m in range(3)])
        server.wait_for_rows("north", 120)
        program = Path(sys.executable).with_name("schemathesis")
        # Found there by its name. All checks are on but for those that it names: options would go before it.
        (folder / "schemathesis.toml").write_text(SCHEMA_CHECKS, encoding="utf-8")
        command = [str(program), "run", f"{server.address}/openapi.json", "--continue-on-failure", "--no-color"]
        command += ["--max-examples", str(5 if quick else 560), "--seed", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        cases = re.search(r"([\d,]+) generated(?:, ([\d,]+) passed)?", done.stdout)
        metrics = server.metrics()
        said = "" if done.returncode == 0 else done.stdout[-3000:].replace(str(folder), "")
        asked = int(cases[1].replace(",", "")) if cases else 0
        return {
            "requests": asked, "passed": done.returncode == 0, "server_errors": _server_errors(done.stdout),
            "is_alive": "momostream_rows_total" in metrics, "said": said,
        }  # fmt: skip
    finally:
        server.stop()


def _server_errors(said: str) -> int:
    return len(re.findall(r"Server error", said))


def demo(folder: Path, quick: bool) -> dict[str, Any]:
    """Seconds until ``momostream demo`` prints the address of its page, and until that answers."""
    command = [sys.executable, "-m", "momostream", "demo"]
    folder.mkdir(parents=True)
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, env=one_thread(), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                printed = time.monotonic() - began
                httpx.get(found[0], timeout=30.0).raise_for_status()
                return {"seconds_to_address": printed, "seconds_to_page": time.monotonic() - began}
        raise RuntimeError("the demo printed no address")
    finally:
        process.kill()
        process.wait(10)


TRIALS: dict[str, Callable[..., dict[str, Any]]] = {
    "load": load, "memory": memory, "throughput": throughput, "kills": kills, "database": database, "schema": schema,
    "demo": demo,
}  # fmt: skip


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; nothing is kept")
    parser.add_argument("--minutes", type=float, default=12.0, help="of the load that are simulated")
    parser.add_argument("--seconds", type=float, default=240.0, help="of the load in real time")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {sorted(unknown)[0]!r}")
    path, results = RESULTS / "serve.jsonl", []
    for part in options.parts or (QUICK_PARTS if options.quick else PARTS):
        print(f"{part} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            more = {"minutes": options.minutes, "seconds": options.seconds} if part == "load" else {}
            found = TRIALS[part](Path(folder) / part, options.quick, **more)
        results.append({"kind": part, **found, **about()})
        if not options.quick:
            keep_result(path, results[-1])
    text = report(results if options.quick else kept_results(path))
    print(text)
    if not options.quick:
        write_results("serve", text)


if __name__ == "__main__":
    main()
