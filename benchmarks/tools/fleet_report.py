"""The page of `benchmarks.fleet`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.harness import origin, table

__all__ = ["report"]

LEAST_SHARE, MOST_BYTES_PER_KEY, LEAST_SPARK_ROWS = 0.6, 250_000, 1000


def report(results: list[dict[str, Any]]) -> str:
    """All results as a page."""
    parts = ["# Fleets", origin("fleet", results)]
    runs = [result for result in results if result["kind"] == "embedded"]
    verdicts: list[str] = []
    if runs:
        header = ["keys", "rows", "processes", "predictions in", "rows/s", "rows/s of CPU", "of bare models", "peak MB"]
        header += ["bytes written per row", "of models", "store, kB per key", "models in memory at the end"]
        parts += ["## One machine", table(header, [embedded_line(run) for run in runs])]
        for run in runs:
            if "bare" in run:
                of = run["rows"] / run["cpu"] * run["bare"]
                same = run["rows"] / run["cpu"] * run["bare_intervals"]
                parts.append(
                    f"{run['keys']:,} keys: a bare row takes {1e6 * run['bare']:.0f} us of CPU for means only, "
                    f"{1e6 * run['bare_intervals']:.0f} us with the intervals that the runner gives; the runner's rows "
                    f"per second are {of:.0%} and {same:.0%} of that. "
                    f"All trials: {', '.join(f'{share:.0%}' for share in run['all_of_bare'])}."
                )
                if run["keys"] == 100:
                    verdicts.append(
                        verdict(of >= LEAST_SHARE, f"100 keys, share of the bare models' rows per second: {of:.2f}")
                    )
                    kilobytes = run["store_bytes"] / run["keys"] / 1000
                    passed = run["store_bytes"] / run["keys"] <= MOST_BYTES_PER_KEY
                    verdicts.append(
                        verdict(passed, f"kB per key after {run['rows'] // run['keys']:,} rows: {kilobytes:.0f}")
                    )
    spark = [result for result in results if result["kind"] == "spark"]
    if spark:
        names = list(dict.fromkeys(name for result in spark for name in result if name in SPARK_NAMES))
        lines = [[SPARK_NAMES[name](result.get(name)) for name in names] for result in spark]
        parts += ["## Spark", table([name.replace("_", " ") for name in names], lines)]
        for result in spark:
            passed = result["rows_per_second"] >= LEAST_SPARK_ROWS
            verdicts.append(
                verdict(passed, f"Spark {result['master']}, rows per second: {result['rows_per_second']:,.0f}")
            )
    for result in (result for result in results if result["kind"] == "dask"):
        lines = [
            ["serial", f"{result['alone_seconds']:.1f}", ""],
            *(
                [what, f"{result[f'{name}_seconds']:.1f}", f"{result[f'{name}_worker_cpu']:.1f}"]
                for name, what in (
                    ("plain", "two workers"),
                    ("allocator", "two workers, allocator that keeps its memory"),
                )
            ),
        ]
        parts += [
            f"## Dask: a fit of {result['rows']:,} rows",
            table(["", "seconds", "CPU seconds of the workers"], lines),
        ]
        verdicts.append(verdict(result["same"], "Dask, the same floats as the serial fit"))
    kills = [result for result in results if result["kind"] == "kills"]
    if kills:
        lines = [
            [
                kill_name(result),
                str(result["kills"]),
                f"{result['rows']:,}",
                ", ".join(result["different"]) or "nothing",
            ]
            for result in kills
        ]
        parts += [
            "## Killed by SIGKILL",
            table(["source", "kills", "rows", "what differs from an undisturbed run"], lines),
        ]
        for result in kills:
            passed = not result["different"] and result["kills"] >= result["asked"]
            verdicts.append(
                verdict(passed, f"{kill_name(result)}, kills without a trace: {result['kills']} of {result['asked']}")
            )
    disk = [line for result in results if result["kind"] == "disk" for line in result["trials"]]
    if disk:
        lines = [[line["what"], " ".join(line["message"].split()).replace("|", "/")] for line in disk]
        parts += ["## Full disks and damaged stores", table(["what happens", "message"], lines)]
    return "\n\n".join([*parts, "## Targets", "\n".join(verdicts) or "None in this run."])


def kill_name(result: dict[str, Any]) -> str:
    """Which trial it was."""
    names = {"file": "file", "mqtt": "MQTT, consumer and broker", "kafka": "Kafka, consumer"}
    names["values"] = "MQTT with one value per message, consumer and broker"
    names["postgres"] = "file into PostgreSQL, run and server"
    return names.get(result["source"], f"Spark, {'an executor' if result.get('executor') else 'the driver'}")


def verdict(passed: bool, what: str) -> str:
    """A line about a target."""
    return f"- {'PASS' if passed else 'MISS'}: {what}"


def _whole(value: Any) -> str:
    return f"{value:,.0f}"


SPARK_NAMES: dict[str, Callable[[Any], str]] = {
    "master": str,
    "keys": str,
    "rows_per_key_and_batch": str,
    "batches": str,
    "rows_per_second": _whole,
    "slowest_rows_per_second": _whole,
    "block_bytes_per_batch": _whole,
    "log_bytes_per_batch": _whole,
    "state_bytes": _whole,
}


def embedded_line(run: dict[str, Any]) -> list[str]:
    """A line of the table."""
    of = "" if "bare" not in run else f"{run['rows'] / run['cpu'] * run['bare']:.0%}"
    return [
        f"{run['keys']:,}", f"{run['rows']:,}", str(run["processes"]), run["output"],
        f"{run['rows'] / run['seconds']:,.0f}", f"{run['rows'] / run['cpu']:,.0f}", of, f"{run['peak_megabytes']:,.0f}",
        f"{run['disk_bytes'] / run['rows']:,.0f}", f"{run['model_bytes'] / run['rows']:,.0f}",
        f"{run['store_bytes'] / run['keys'] / 1000:,.0f}", f"{run['live']:,}",
    ]  # fmt: skip
