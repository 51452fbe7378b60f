"""Keyed runs that are killed at random moments, with models that rest in the store and without.

Feed, estimator, settings and moments of the kills are drawn from one seed. A run is a process forked from this one, in
which everything has been imported and compiled, so that a kill costs milliseconds. What the run has left in the end is
compared with what an undisturbed run over the same rows leaves: models to the bit, predictions, alarms, rejected rows,
counts and the file of predictions.
"""

from __future__ import annotations

import math
import signal
import time
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.tools.fleet_kills import differences, end, ended, leftovers, scratch, start, wait, write_rows

__all__ = ["Trial", "trial"]

KEYS = ("T01", "T02", "T03", "T04")
ROWS_PER_KILL = 100


class Trial:
    """A run with settings drawn from a seed.

    Parameters
    ----------
    seed
        Of rows, settings and kills.
    n_kills
        Kills during the run.
    pressure
        Whether memory is so small that only one or two models are loaded at a time.
    double
        Whether each kill is followed by one while the run is resuming.
    n_rows
        Rows of the feed.
    """

    def __init__(self, seed: int, n_kills: int, pressure: bool, double: bool, n_rows: int | None = None) -> None:
        self.random = Random(seed)
        self.n_kills, self.pressure, self.double = n_kills, pressure, double
        self.n_rows = n_rows or ROWS_PER_KILL * n_kills
        self.with_store_output = self.random.random() < 0.4
        self.options = self._options()

    def _options(self) -> list[str]:
        """Options of the run, apart from feed, store and output."""
        r = self.random
        options = [
            "--key",
            "turbine",
            "--quiet",
            "-t",
            "power",
            "-t",
            "speed",
            "--memory",
            "0" if self.pressure else "64",
        ]
        options += ["--commit-every", str(r.choice([40, 100, 150]))]
        settings = {"max_points": r.choice([16, 32, 64]), "window": r.choice([None, None, 40, 150])}
        is_forecast = r.random() < 0.4
        if is_forecast:
            options += ["--horizon", str(r.choice([1, 3])), "--every", str(r.choice([1, 4, 7]))]
            linear = ("last value", "season", "own lags", "wide lags")
            settings["experts"] = r.choice([linear, (*linear, "matern32"), (*linear, "residual matern32")])
            settings["seasons"] = r.choice([None, 24])
        else:
            settings["experts"] = r.choice(
                [("clock matern32", "matern32", "lags"), ("matern32", "lags"), ("rbf+linear",)]
            )
            settings |= {
                "tuning_evaluations": r.choice([0, 4, 10]),
                "memory_budget": r.choice([None, None, 0, 100_000]),
            }
            settings["n_components"] = r.choice([1, 1, 2])
            options += ["--warm-start"] if r.random() < 0.3 else []
        for name, value in settings.items():
            options += ["--set", f"{name}={value!r}"]
        if r.random() < 0.6:
            options += ["--alarms", "store"]
            options += ["--false-alarms", "1 per 200 rows"] if r.random() < 0.5 else []
        return options

    def rows(self) -> list[dict[str, Any]]:
        """Rows of the keys in random turns, with gaps, jumps and bad rows among them."""
        r, found = self.random, []
        times = {key: datetime(2024, 1, 1) for key in KEYS}
        wind = dict.fromkeys(KEYS, 8.0)
        for number in range(self.n_rows):
            # One falls silent before the end: what is owed to it must survive, too.
            key = r.choice(KEYS if number < 0.6 * self.n_rows else KEYS[1:])
            times[key] += timedelta(minutes=10) * r.choices([1, 3, 100], [60, 2, 1])[0]
            wind[key] = abs(0.95 * wind[key] + r.gauss(0.4, 0.7))
            power = min(wind[key], 13.0) ** 3 + r.gauss(0.0, 20.0)
            row: dict[str, Any] = {"turbine": key, "time": times[key].isoformat(), "wind": round(wind[key], 3)}
            row |= {"power": round(power, 2), "speed": round(math.sqrt(abs(power)), 3)}
            chance = r.random()
            if chance < 0.02:
                del row[r.choice(["wind", "power", "speed"])]
            elif chance < 0.03:
                row |= r.choice([{"power": "broken"}, {"turbine": None}, {"time": "2023-01-01T00:00:00"}])
            elif chance < 0.04:
                row |= {"power": r.choice([-1.0, 1.0]) * 10.0 ** r.uniform(3, 9)}
            found.append(row)
        return found

    def command(self, folder: Path, name: str) -> list[str]:
        """The command of a run whose store and file of predictions have this name."""
        command = ["run", str(folder / "farm.jsonl"), *self.options, "--store", str(folder / f"{name}.db")]
        return command if self.with_store_output else [*command, "-o", str(folder / f"{name}.csv")]

    def run(self) -> dict[str, Any]:
        """Run undisturbed, then with kills; the parts that differ, with counts and seconds."""
        began = time.monotonic()
        with scratch() as folder:
            write_rows(folder / "farm.jsonl", self.rows())
            self._to_end(folder, "whole")
            seconds = time.monotonic() - began
            n_done = self._killed(folder, seconds)
            self._to_end(folder, "parts")
            different = differences(leftovers(folder / "parts.db", False), leftovers(folder / "whole.db", False))
            whole, parts = folder / "whole.csv", folder / "parts.csv"
            if not self.with_store_output and whole.read_bytes() != parts.read_bytes():
                different.append("output file")
        return {"kills": n_done, "different": different, "seconds": round(time.monotonic() - began, 2)}

    def _killed(self, folder: Path, seconds: float) -> int:
        """Kill runs until all kills are done or the feed has ended; the number of kills."""
        n_done, step = 0, 2.0 * seconds / self.n_kills
        while n_done < self.n_kills:
            pid = start(self.command(folder, "parts"), folder / "log")
            # The second of a pair comes while the run opens its store, and cuts back its file.
            is_second = self.double and n_done % 2 == 1
            time.sleep(self.random.uniform(0.0, 0.05 if is_second else step))
            code = ended(pid)
            if code:
                raise RuntimeError((folder / "log").read_text()[-2000:])
            if code == 0:
                break
            end(pid, signal.SIGKILL)
            n_done += 1
        return n_done

    def _to_end(self, folder: Path, name: str) -> None:
        if wait(start(self.command(folder, name), folder / "log")):
            raise RuntimeError((folder / "log").read_text()[-2000:])


def trial(seed: int, n_kills: int, pressure: bool, double: bool, n_rows: int | None = None) -> dict[str, Any]:
    """Run one trial; see `Trial`."""
    return Trial(seed, n_kills, pressure, double, n_rows).run()
