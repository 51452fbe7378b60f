"""The cost of a fleet: rows per second, memory and bytes for 1, 100 and 10,000 keys; and whether kills leave a trace.

    python -m benchmarks.fleet [embedded | spark | dask | kills | disk ...] [--keys 1 100 10000] [--quick]

Simulated turbines, 8 inputs and 6 targets each; every row is predicted with a mean and an interval of 90 % for each
target, then learnt. `embedded` runs them over a CSV file into a store, beside the same models without feed, fleet or
store in the same process; `spark` over files on a local machine and on a local cluster; `dask` fits a batch on workers
of Dask; `kills` ends runs by SIGKILL at random moments and compares what they leave with what an undisturbed run has
left; `disk` tries full disks and damaged stores. Goes to ``results/fleet.md``, which shows the newest of each trial.
A full run takes an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.harness import (
    RESULTS,
    about,
    from_kernel,
    in_own_process,
    keep_result,
    kept_results,
    options_unless_task,
    write_results,
)
from benchmarks.tools.fleet_kills import scratch
from benchmarks.tools.fleet_report import report
from momostream.datasets.wind import WindFarm
from momostream.feeds import Feed
from momostream.feeds.outputs import PredictionLines, Sink
from momostream.runs.fleet import Fleet
from momostream.runs.plan import Plan, make_model
from momostream.runs.run import Channel, Run
from momostream.storage.store import Store

INPUTS = (
    *("wind_speed", "rotor_speed", "pitch", "azimuth_sin", "azimuth_cos", "power"),
    *("tower_acceleration", "generator_temperature"),
)
TARGETS = ("flap_1", "flap_2", "flap_3", "edge_1", "edge_2", "edge_3")
PLAN = Plan(TARGETS, INPUTS, "time", key="turbine")
SETTINGS = {"seed": 0}
BUDGET = 1 << 30
PARTS = ("embedded", "spark", "dask", "kills", "disk")
# The others have short forms among the tests.
QUICK_PARTS = ("embedded",)
# Turbines that are simulated; more keys are later stretches of them.
N_TURBINES = 100
# Keys and rows; the largest is shared by two processes.
SIZES = {1: 10_000, 100: 100_000, 10_000: 1_000_000}
QUICK_SIZES = {1: 200, 10: 500}
# Of the runner beside the bare models.
REPEATS = 3
KILLS = {"file": 200, "mqtt": 20, "values": 20, "kafka": 20, "postgres": 20, "spark": 5}
QUICK_KILLS = {"file": 3}


# ---------------------------------------------------------------------- the feed


def write_farm(path: Path, n_keys: int, n_rows: int) -> None:
    """Rows of all keys as CSV, in the order of their times: as a farm sends them."""
    n_turbines, each = min(n_keys, N_TURBINES), n_rows // n_keys
    farm = WindFarm(n_turbines, seed=0)
    parts = n_keys // n_turbines
    frames = []
    for key in farm.keys:
        frame = farm[key].frame(each * parts)
        for part in range(parts):
            stretch = frame.iloc[part * each : (part + 1) * each].reset_index(drop=True)
            stretch.insert(0, "turbine", f"{key}-{part:03d}" if parts > 1 else key)
            stretch.insert(1, "time", frame.index[:each])
            frames.append(stretch)
    whole = pd.concat(frames).sort_values(["time", "turbine"], kind="stable")
    whole.to_csv(path, index=False, float_format="%.6g")


# ---------------------------------------------------------------------- the embedded runner


def bare_seconds(path: Path, with_intervals: bool) -> float:
    """CPU seconds of a row for models in a dict, fed from memory."""
    with Feed(path, PLAN.columns, "time", key="turbine") as feed:
        rows = [(row.key, *PLAN.split(row)) for row in feed]
    models: dict[Any, Any] = {}
    began = time.process_time()
    for key, x, y in rows:
        model = models.get(key)
        if model is None:
            model = models[key] = make_model(PLAN, SETTINGS)
        if with_intervals:
            distribution = model.predict_one(x, with_dist=True)
            if distribution:
                distribution.interval(PLAN.level)
        else:
            model.predict_one(x)
        model.learn_one(x, y)
    return (time.process_time() - began) / len(rows)


def run_embedded(path: Path, store: Path, share: tuple[int, int] | None, budget: int, in_store: bool) -> dict[str, Any]:
    """Run over a file; rows, seconds, bytes."""
    began, wall, before = time.process_time(), time.monotonic(), written_bytes()
    with Feed(path, PLAN.columns, "time", key="turbine") as feed, Store(store) as opened:
        with Fleet(make_model(PLAN, SETTINGS), store=opened, memory_budget=budget, warm_start=False) as fleet:
            run = Run(feed, fleet, PLAN, bad_rows="skip", share=share)
            run.lines = PredictionLines(PLAN.targets, False, "jsonl" if in_store else "csv", PLAN.key)
            sink = None if in_store else Sink(store.with_suffix(".csv"), run.lines.header)
            run.predictions = Channel("outputs", sink)
            of_models = []
            commit = fleet.commit

            def counted(*args: Any, **options: Any) -> None:
                commit(*args, **options)
                of_models.append(opened.bytes_written)

            fleet.commit = counted  # type: ignore[method-assign]
            run.run()
            if sink is not None:
                sink.close()
            found = {"rows": run.n_rows, "bad": run.n_bad, "keys": len(fleet), "live": fleet.n_live}
    cpu, seconds = time.process_time() - began, time.monotonic() - wall
    return found | {
        "cpu": cpu, "seconds": seconds, "commits": len(of_models), "model_bytes": sum(of_models),
        "disk_bytes": written_bytes() - before, "store_bytes": store.stat().st_size,
        "peak_megabytes": peak_kilobytes() / 1024,
    }  # fmt: skip


def written_bytes() -> int:
    """Bytes that this process has had written to disks."""
    return from_kernel("/proc/self/io", "write_bytes")


def peak_kilobytes() -> int:
    """The most memory that this process has had; `resource` also counts what its parent had when it was started."""
    return from_kernel("/proc/self/status", "VmHWM")


def measure_embedded(task: dict[str, Any]) -> dict[str, Any]:
    """One size: the bare models and the runner beside them, or one share of the runner alone."""
    path = Path(task["path"])
    share = None if task["share"] is None else tuple(task["share"])
    if not task["bare"]:
        return run_embedded(path, path.with_name(f"{task['name']}.db"), share, task["budget"], task["in_store"])
    # Everything is compiled and loaded before a clock runs.
    make_model(PLAN, SETTINGS).learn_one({"a": 1.0}, {"b": 1.0})
    # By turns, as a slow spell of the machine may hit either; the median of the trials counts.
    trials = []
    for n in range(task["repeats"]):
        bare = bare_seconds(path, False)
        found = run_embedded(path, path.with_name(f"{n}.db"), share, task["budget"], task["in_store"])
        trials.append(found | {"bare": bare, "of_bare": found["rows"] / found["cpu"] * bare})
    trials.sort(key=lambda trial: trial["of_bare"])
    return trials[len(trials) // 2] | {
        "bare_intervals": bare_seconds(path, True),
        "all_of_bare": [trial["of_bare"] for trial in trials],
    }


def embedded(n_keys: int, n_rows: int, repeats: int) -> list[dict[str, Any]]:
    """All runs of one size."""
    with scratch() as folder:
        path = folder / "farm.csv"
        write_farm(path, n_keys, n_rows)
        task = {
            "kind": "embedded",
            "path": str(path),
            "share": None,
            "budget": BUDGET,
            "bare": True,
            "repeats": repeats,
        }
        if n_keys <= N_TURBINES:
            return [
                in_own_process("benchmarks.fleet", task | {"name": "file", "in_store": False})
                | {"output": "a file", "processes": 1},
                in_own_process("benchmarks.fleet", task | {"name": "store", "in_store": True, "bare": False})
                | {"output": "the store", "processes": 1},
            ]
        tasks = [
            task | {"name": f"part-{part}", "share": (part, 2), "budget": BUDGET // 2, "bare": False, "in_store": False}
            for part in (1, 2)
        ]
        began = time.monotonic()
        command = [sys.executable, "-m", "benchmarks.fleet", "--task"]
        parts = [subprocess.Popen([*command, json.dumps(part)], stdout=subprocess.PIPE, text=True) for part in tasks]
        answers = [json.loads(part.communicate()[0].splitlines()[-1]) for part in parts]
        summed = {name: sum(answer[name] for answer in answers) for name in answers[0] if name != "seconds"}
        return [summed | {"seconds": time.monotonic() - began, "output": "a file", "processes": 2}]


# ---------------------------------------------------------------------- full disks and damaged stores


def try_disk() -> list[dict[str, Any]]:
    """Messages of the command line when a disk is full and when a store is damaged."""
    with scratch() as folder:
        path = folder / "farm.csv"
        write_farm(path, 20, 2000)
        command = [*("run", str(path), "--key", "turbine", "--quiet"), *(f"--target={name}" for name in TARGETS)]
        store = folder / "farm.db"
        good = [*command, "--store", str(store), "--limit", "1000"]
        call(good)
        kept = store.read_bytes()
        found = [{"what": "the disk fills up", "message": on_a_full_disk(folder, command)}]

        def cut() -> None:
            store.write_bytes(kept[: len(kept) // 2])

        def flip() -> None:
            data = bytearray(kept)
            for at in range(5000, len(data), len(data) // 50):
                data[at] ^= 0x55
            store.write_bytes(bytes(data))

        def empty() -> None:
            store.write_bytes(b"")

        trials = {
            "the store is cut off in the middle": cut,
            "bytes of the store are flipped": flip,
            "it is empty": empty,
        }
        for what, damage in trials.items():
            damage()
            found.append({"what": what, "message": call([*command, "--store", str(store)])})
        store.write_bytes(kept)
        found.append(
            {"what": "the undamaged store again", "message": call([*command, "--store", str(store)]) or "(resumes)"}
        )
        return [{**line, "message": line["message"].replace(f"{folder}/", "")} for line in found]


def call(arguments: list[str]) -> str:
    """Messages of a command on its standard error."""
    done = subprocess.run([sys.executable, "-m", "momostream", *arguments], capture_output=True, text=True, check=False)
    return f"{done.stderr.strip()} (exit {done.returncode})" if done.returncode else done.stderr.strip()


def on_a_full_disk(folder: Path, command: list[str]) -> str:
    """The same on a small disk of its own; needs the right to mount one."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if mounted.returncode:
        return "not tried: no right to mount a small disk"
    try:
        store = disk / "farm.db"
        first = call([*command, "--store", str(store), "--commit-every", "200"])
        with Store(store, read_only=True) as reader:
            last = reader.sources()[0].number if reader.sources() else 0
            models = sum(reader.load(key).n_rows for key in reader.keys())
        return f"{first}; the store can be read, stopped after row {last:,}, and its models have {models:,} rows"
    finally:
        subprocess.run(["umount", str(disk)], check=False)


# ---------------------------------------------------------------------- all of it


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own."""
    if task["kind"] == "embedded":
        return measure_embedded(task)
    if task["kind"] == "spark":
        from benchmarks.tools.fleet_spark import measure_spark

        found = measure_spark(task["master"], task["keys"])
        return {name.replace(" ", "_"): value for name, value in found.items()}
    if task["kind"] == "dask":
        from benchmarks.tools.fleet_dask import measure_dask

        return measure_dask(task["rows"])
    from benchmarks.tools import fleet_kills

    if task["source"] == "spark":
        from benchmarks.tools.fleet_spark import kill_spark

        found = kill_spark(task["kills"], executor=task["executor"])
        different = [
            name.removeprefix("same ") for name, same in found.items() if name.startswith("same ") and not same
        ]
        return {"kills": found["kills"], "rows": found["predicted"] + found["refused"], "different": different}
    trial: Callable[..., dict[str, Any]] = getattr(
        fleet_kills, f"kill_{'files' if task['source'] == 'file' else task['source']}"
    )
    return trial(task["kills"])


def spark_tasks() -> list[dict[str, Any]]:
    """Both masters."""
    return [{"kind": "spark", "master": master, "keys": 100} for master in ("local[2]", "local-cluster[2,1,1024]")]


def kill_tasks(kills: dict[str, int]) -> list[dict[str, Any]]:
    """One for each source; Spark's driver and executors are killed in turn."""
    tasks: list[dict[str, Any]] = []
    for source, n in kills.items():
        if source == "spark":
            driver = (n + 1) // 2
            tasks += [
                {"kind": "kills", "source": source, "kills": m, "executor": executor}
                for m, executor in ((driver, False), (n - driver, True))
            ]
        else:
            tasks.append({"kind": "kills", "source": source, "kills": n})
    return tasks


def main() -> None:
    """Run what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help=f"which parts: {', '.join(PARTS)}; all by default")
    parser.add_argument("--keys", nargs="+", type=int, choices=SIZES, help="of the part embedded: which sizes")
    parser.add_argument("--quick", action="store_true", help="few rows, keys and kills; nothing is kept")
    options = options_unless_task(parser, measure)
    # One BLAS thread also where runs are forked from this process.
    os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    asked = options.what or (QUICK_PARTS if options.quick else PARTS)
    if unknown := [part for part in asked if part not in PARTS]:
        parser.error(f"unknown part {unknown[0]!r}: use {', '.join(PARTS)}")
    where, results = about(), []

    def add(found: dict[str, Any]) -> None:
        results.append(found | where)
        if not options.quick:
            keep_result(RESULTS / "fleet.jsonl", results[-1])

    if "embedded" in asked:
        sizes = QUICK_SIZES if options.quick else SIZES
        for n_keys, n_rows in sizes.items():
            if n_keys not in (options.keys or sizes):
                continue
            announce(f"embedded, {n_keys:,} keys, {n_rows:,} rows")
            for run in embedded(n_keys, n_rows, 1 if options.quick else REPEATS):
                add({"kind": "embedded"} | run)
    tasks = spark_tasks() if "spark" in asked else []
    tasks += [{"kind": "dask", "rows": 30_000}] if "dask" in asked else []
    tasks += kill_tasks(QUICK_KILLS if options.quick else KILLS) if "kills" in asked else []
    for task in tasks:
        announce(", ".join(f"{name} {value}" for name, value in task.items()))
        found = in_own_process("benchmarks.fleet", task)
        add(
            {**found, **task, "kills": found["kills"], "asked": task["kills"]}
            if task["kind"] == "kills"
            else found | task
        )
    if "disk" in asked:
        announce("full disks and damaged stores")
        add({"kind": "disk", "trials": try_disk()})
    text = report(results if options.quick else latest(kept_results(RESULTS / "fleet.jsonl")))
    print(text)
    if not options.quick:
        write_results("fleet", text)


def latest(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each trial the newest result."""
    names = ("kind", "keys", "output", "master", "source", "executor")
    return list({tuple(str(result.get(name)) for name in names): result for result in results}.values())


def announce(what: str) -> None:
    """Say what is done now."""
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
