"""Spark under load and under fire: rows per second, bytes per batch, and what is left of a stream after SIGKILL.

Rows of a simulated farm lie in files, each of which makes a batch. A driver in a process of its own predicts and learns
them, and writes to files; where it was killed, another one resumes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pandas as pd

from benchmarks.harness import one_thread
from momostream.datasets.wind import WindFarm, WindTurbine
from momostream.runs.plan import Plan
from momostream.storage.blocks import Parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "BRIEF_JAVA",
    "LOCAL",
    "LOCAL_CLUSTER",
    "PLAN",
    "kill_spark",
    "measure_spark",
    "start_session",
    "stream_farm",
    "write_farm",
]

LOCAL, LOCAL_CLUSTER = "local[2]", "local-cluster[2,1,1024]"
SCHEMA = ", ".join(
    ["turbine string", "time timestamp", *(f"{name} double" for name in (*WindTurbine.INPUTS, *WindTurbine.TARGETS))]
)
PLAN = Plan(tuple(WindTurbine.TARGETS), tuple(WindTurbine.INPUTS), "time", key="turbine")
# Python workers start, import and load kernels in the first batch; Java compiles for some more.
WARM_UP = 4
# Of Java that is to end soon: its second compiler takes a third of the time of a minute.
BRIEF_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Lines by which a driver reports how far it is.
STARTED, ANSWER = "started", "answer "


def write_farm(folder: Path, n_keys: int, n_files: int, rows_per_file: int, seed: int = 0, bad: bool = False) -> None:
    """Write the rows of a farm, so many of each turbine per file; ``bad`` adds rows to every file that are rejected."""
    folder.mkdir(parents=True)
    rows = iter(WindFarm(n_keys, seed=seed))
    before: list[dict[str, Any]] = []
    for n in range(n_files):
        lines = [{"turbine": key, **x, **y} for key, x, y in islice(rows, n_keys * rows_per_file)]
        # One of the file before, one that has come twice, one without key, one that cannot be learnt.
        poor = [*before[:1], lines[0], {**lines[1], "turbine": None}, {**lines[2], PLAN.targets[0]: 1e99}]
        before = lines
        frame = pd.DataFrame([*lines, *(poor if bad else [])])
        # As instants: without a time zone they would be those of the session.
        frame["time"] = pd.to_datetime(frame["time"]).dt.tz_localize("UTC")
        path = folder / f"{n:04d}.parquet"
        frame.to_parquet(path, coerce_timestamps="us")
        # Spark takes files in the order of their times.
        os.utime(path, (1_700_000_000 + n,) * 2)


def measure_spark(
    master: str = LOCAL, n_keys: int = 100, n_batches: int = 10, rows_per_batch: int = 100, seed: int = 0
) -> dict[str, Any]:
    """Rows per second, and bytes that a batch writes to the state, once Spark and its workers have started.

    Every batch has ``rows_per_batch`` rows of each key; the first four are not counted.
    """
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_farm(folder / "rows", n_keys, n_batches, rows_per_batch, seed)
        answer = _drive(folder, master, brief=False)
        logs = sorted((folder / "checkpoint" / "state").rglob("*.changelog"))
        log_bytes = sum(path.stat().st_size for path in logs)
    batches = answer["batches"]
    warm = batches[WARM_UP:]
    seconds = sum(batch["seconds"] for batch in warm)
    return {
        "master": master, "keys": n_keys, "rows per key and batch": rows_per_batch, "batches": len(warm),
        "rows per second": round(sum(batch["rows"] for batch in warm) / seconds),
        "slowest rows per second": round(min(batch["rows"] / batch["seconds"] for batch in warm)),
        "seconds of the first batch": batches[0]["seconds"],
        "blocks per batch": round(sum(batch["blocks"] for batch in warm) / len(warm)),
        "block bytes per batch": round(sum(batch["bytes"] for batch in warm) / len(warm)),
        "log bytes per batch": round(log_bytes / len(batches)),
        "state bytes": answer["state_bytes"],
        "predicted": answer["predicted"], "refused": answer["refused"],
    }  # fmt: skip


def kill_spark(
    n_kills: int = 5,
    seed: int = 0,
    executor: bool = False,
    *,
    n_keys: int = 20,
    rows_per_batch: int = 10,
    n_batches: int | None = None,
    spark: SparkSession | None = None,
) -> dict[str, Any]:
    """SIGKILL a driver, or executors of a local cluster, at random moments; compare with a run that nobody disturbed.

    A driver dies with all of its processes, and the next one resumes. Executors are replaced by Spark. Where ``spark``
    is given, the undisturbed run, and what is left to do after the last kill of a driver, are done there.
    """
    rng = random.Random(seed)
    master = LOCAL_CLUSTER if executor else LOCAL
    n_batches = n_batches or 3 * n_kills + 3
    with TemporaryDirectory() as temporary:
        calm, killed = Path(temporary, "calm"), Path(temporary, "killed")
        for folder in (calm, killed):
            write_farm(folder / "rows", n_keys, n_batches, rows_per_batch, seed, bad=True)
        finish = partial(_drive, master=master) if spark is None else partial(stream_farm, spark)
        expected = finish(calm)
        first, *others = [batch["seconds"] for batch in expected["batches"]]
        usual = sum(others) / len(others)
        # Within the first, second or third batch after a start, or after the kill before.
        waits = [rng.randrange(3) for _ in range(n_kills)]
        moments = [_Moment(n, rng.uniform(0.0, usual if n else first)) for n in waits]
        if executor:
            done, found = _kill_executors(killed, moments, rng)
        else:
            done, found = _kill_drivers(killed, moments), finish(killed)
    compared = ("predicted", "refused", "lines", "keys", "states")
    return {
        "master": master, "kills": len(done), "batches done at each kill": done, "batches": n_batches,
        "predicted": found["predicted"], "refused": found["refused"],
        **{f"same {name}": found[name] == expected[name] for name in compared},
    }  # fmt: skip


class _Moment(NamedTuple):
    """When to kill: after so many more batches, and seconds."""

    batches: int
    seconds: float

    def wait(self, folder: Path, driver: _Driver) -> None:
        n_done = _n_done(folder)
        while _n_done(folder) < n_done + self.batches and driver.process.poll() is None:
            time.sleep(0.01)
        time.sleep(self.seconds)
        if driver.process.poll() is not None:
            raise RuntimeError("the driver has read all rows before the last kill: use more batches")


def _kill_drivers(folder: Path, moments: Iterable[_Moment]) -> list[int]:
    """Start a driver and kill it, again and again; the batches that were done each time."""
    done = []
    for moment in moments:
        with _Driver(folder, LOCAL) as driver:
            driver.wait_for(STARTED)
            moment.wait(folder, driver)
            driver.kill()
        done.append(_n_done(folder))
    return done


def _kill_executors(folder: Path, moments: Iterable[_Moment], rng: random.Random) -> tuple[list[int], dict[str, Any]]:
    """Start a driver and kill one executor after the other; the batches done each time, and what the driver found."""
    done = []
    with _Driver(folder, LOCAL_CLUSTER) as driver:
        driver.wait_for(STARTED)
        for moment in moments:
            moment.wait(folder, driver)
            while not (executors := driver.executors()):
                # One that was killed is being replaced.
                time.sleep(0.1)
            os.kill(rng.choice(executors), signal.SIGKILL)
            done.append(_n_done(folder))
        return done, driver.answer()


def _n_done(folder: Path) -> int:
    return sum(path.name.isdigit() for path in (folder / "checkpoint" / "commits").glob("*"))


# ---------------------------------------------------------------------- drivers


class _Driver:
    """A driver in a process, and a process group, of its own."""

    def __init__(self, folder: Path, master: str, brief: bool = True) -> None:
        command = [sys.executable, "-m", "benchmarks.tools.fleet_spark", str(folder), master]
        command += ["--brief"] if brief else []
        self._errors = (folder / "errors.txt").open("ab")
        self.process = subprocess.Popen(
            command, env=one_thread(), stdout=subprocess.PIPE, stderr=self._errors, text=True, start_new_session=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._errors.close()

    def wait_for(self, word: str) -> str:
        """Read up to the line that begins with this word; the rest of that line."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return line.removeprefix(word)
        errors = Path(self._errors.name).read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"the driver has ended: {errors[-4000:]}")

    def answer(self) -> dict[str, Any]:
        """What `stream_farm` has found."""
        answer: dict[str, Any] = json.loads(self.wait_for(ANSWER))
        self.process.wait()
        return answer

    def executors(self) -> list[int]:
        """Processes of the executors of a local cluster."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.getsid(int(path.name)) == self.process.pid:
                    if b"CoarseGrainedExecutorBackend" in (path / "cmdline").read_bytes():
                        found.append(int(path.name))
        return found

    def kill(self) -> None:
        """SIGKILL for Python, the Java that it has started, and executors."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _drive(folder: Path, master: str, brief: bool = True) -> dict[str, Any]:
    with _Driver(folder, master, brief) as driver:
        return driver.answer()


def start_session(master: str, brief: bool = False) -> SparkSession:
    """A quiet session with two partitions; a brief one is ready sooner, and slower later."""
    import pyspark
    from pyspark.sql import SparkSession

    from momostream.engines.spark import SETTINGS

    # A local cluster starts its executors from there.
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        **SETTINGS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
        # Java collects garbage by a thread for each core, which here are those that work.
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
        # Nobody else looks for them.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    if brief:
        settings["spark.driver.extraJavaOptions"] = BRIEF_JAVA
    return SparkSession.builder.master(master).config(map=settings).getOrCreate()


def stream_farm(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Go through the files of a folder, one per batch, from where its checkpoint stands; what has come out in all."""
    from momostream.engines.spark import METRICS, forecast_stream

    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "rows"))
    made = forecast_stream(rows, PLAN).writeStream.format("parquet").trigger(availableNow=True)
    query = made.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "made"))
    print(STARTED, flush=True)
    query.awaitTermination()
    batches = []
    for progress in query.recentProgress:
        state, counts = progress.stateOperators[0], progress.observedMetrics[METRICS]
        batches.append(
            {
                "rows": progress.numInputRows,
                "seconds": progress.durationMs["triggerExecution"] / 1e3,
                "blocks": state.numRowsUpdated,
                "bytes": state.customMetrics["rocksdbTotalBytesWritten"],
                "predicted": counts.predicted,
                "refused": counts.refused,
            }
        )
    return {"batches": batches, **_outcome(spark, folder)}


def _outcome(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """The output of a stream, and its state."""
    from momostream.engines.spark import dead_letters, forecasts, models

    # By Spark, which reads what was committed: files of batches that never ended lie there as well.
    made = spark.read.parquet(str(folder / "made"))
    lines = sorted(map(repr, made.collect()))
    parts = {key: Parts.of(model).chunks for key, model in models(spark, folder / "checkpoint").items()}
    return {
        "predicted": forecasts(made).count(),
        "refused": dead_letters(made).count(),
        "lines": _digest(lines),
        "keys": list(parts),
        "states": _digest(map(repr, parts.items())),
        "state_bytes": sum(len(chunk) for chunks in parts.values() for chunk in chunks),
    }


def _digest(lines: Iterable[str]) -> str:
    total = blake2b(digest_size=16)
    for line in lines:
        total.update(line.encode() + b"\n")
    return total.hexdigest()


def main() -> None:
    """Be a driver."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("master")
    parser.add_argument("--brief", action="store_true")
    options = parser.parse_args()
    spark = start_session(options.master, options.brief)
    answer = stream_farm(spark, options.folder)
    spark.stop()
    print(ANSWER + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
