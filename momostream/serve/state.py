"""`FeedState`: all that the page and the interface show of one feed, written by its run and read by requests."""

from __future__ import annotations

import json
import math
import threading
import time as clock
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

from momostream.distributions.predicted import PredictedValues
from momostream.runs.channels import OutputLine
from momostream.runs.plan import Plan, Step
from momostream.serve.alarms import MOST_RECORDS, AlarmFolder, AlarmRecord, Inbox, record_of, record_of_outlook
from momostream.serve.book import Book
from momostream.serve.config import FeedConfig
from momostream.serve.machines import SHARE_ROWS, Machine, machine_id, plain

__all__ = ["HEALTH", "FeedState", "Tile", "as_json"]

#: States of a machine, the most urgent first.
HEALTH = ("alarm", "watch", "silent", "learning", "ok")
# A machine is silent when it misses this many of its usual intervals, and this many seconds.
SILENT_GAPS, SILENT_SECONDS = 8.0, 45.0
# Rolling coverage that is lower than the level by this much is worth a look.
COVERAGE_MARGIN = 0.2
# Points of the small chart on a tile, and alarms that a page is sent.
TILE_POINTS, MOST_ALARMS = 40, 200
# Upper ends of the counts of latencies, in seconds.
LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Tile:
    """A tile of a machine in some state: plain data, and the same as JSON, which all pages share."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    @cached_property
    def text(self) -> str:
        """As JSON."""
        return as_json(self.data)


class FeedState:
    """The machines, alarms and counts of a feed.

    A run tells its state about rows (`steps`) before each commit (`commit`); requests read under the same lock.

    Parameters
    ----------
    config
        Of the feed.
    n_history
        Rows of each machine that are kept.
    """

    def __init__(self, config: FeedConfig, n_history: int = 600) -> None:
        self.config, self.name, self.n_history = config, config.name, n_history
        self.lock = threading.RLock()
        self.plan: Plan | None = None
        self.book: Book | None = None
        self.machines: dict[str, Machine] = {}
        self.alarms = Inbox()
        self.status, self.problem = "starting", ""
        self.version = self.alarm_version = 0
        self.n_rows = self.n_bad = self.n_repeated = self.n_commits = 0
        self.latency_counts = [0] * (len(LATENCIES) + 1)
        self.latency_sum = 0.0
        self.started = clock.time()
        self.journal: Any = None
        self.run: Any = None
        self._folder = AlarmFolder(config.name)
        self._newest: dict[str, AlarmRecord] = {}
        self._newest_of = -1
        self._rows: list[tuple[str, int, bytes]] = []
        self._touched: set[str] = set()
        self._changed_alarms: dict[str, AlarmRecord] = {}
        self._order: list[tuple[Machine, str]] = []
        self._order_until, self._order_alarms = 0.0, (0, 0)
        self._tiles: dict[str, tuple[int, str, Tile]] = {}
        # By alarm, the version at which it changed last; the newest alarms with these, as JSON.
        self._alarm_versions: dict[str, int] = {}
        self._alarm_page: tuple[int, list[tuple[str, int, str]]] = -1, []

    # ------------------------------------------------------------------ begin and end

    def begin(self, run: Any, book: Book, journal: Any = None) -> None:
        """Show this run, and what the book has of an earlier process."""
        with self.lock:
            self.run, self.plan, self.book, self.journal = run, run.plan, book, journal
            for key, about, rows in book.machines():
                machine = Machine(key, run.plan, self.n_history)
                machine.restore(rows[-self.n_history :], about)
                self.machines[machine.id] = machine
                self._touch(machine)
            records, seen = book.alarms(MOST_RECORDS), book.seen()
            for record in records:
                record.acknowledged, record.by = seen.get(record.id, (None, ""))
                self.alarms.put(record)
            self._folder.restore(records)
            self.n_rows, self.n_bad = run.n_rows, run.n_bad
            self.status = "running"
        run.watcher = self

    def end(self, problem: str = "") -> None:
        """Note that the run has ended, and why if that was an error."""
        with self.lock:
            self.status, self.problem = ("failed" if problem else "ended"), problem
            self.version += 1

    # ------------------------------------------------------------------ told by the run

    def steps(self, steps: Sequence[tuple[Step, PredictedValues | None]], alarms: Sequence[OutputLine]) -> None:
        """Note rows that were predicted and learnt, and the alarms that they gave."""
        by_row: dict[int, list[dict[str, Any]]] = {}
        for line in alarms:
            by_row.setdefault(line.number, []).append(json.loads(line.text))
        with self.lock:
            for step, predicted in steps:
                self._step(step, predicted, by_row.get(step.row.number, []))
            self.n_bad = self.run.n_bad

    def _step(self, step: Step, predicted: PredictedValues | None, alarms: list[dict[str, Any]]) -> None:
        row = step.row
        id = machine_id(row.key)
        machine = self.machines.get(id)
        if machine is None:
            assert self.plan is not None
            machine = self.machines[id] = Machine(row.key, self.plan, self.n_history)
            if row.key is None:
                machine.name = self.config.title or self.name
        is_known = row.number <= machine.last_number
        machine.add(row, predicted)
        if (event := step.event) is not None:
            # Rows that are learnt again after a crash give the same events, and records of the same id.
            begin, end = machine.seconds(event.begin_time, event.begin), machine.seconds(event.end_time, event.end)
            self._note_alarm(record_of(event, self.name, id, machine.name, begin, end))
        for alarm in step.ahead:
            begin, end = machine.seconds(alarm.begin_time, alarm.begin), machine.seconds(alarm.end_time, alarm.end)
            self._note_alarm(record_of_outlook(alarm, self.name, id, machine.name, begin, end))
        # Those of single values; events are in the inbox already.
        alarms = [alarm for alarm in alarms if "target" in alarm]
        if not is_known:
            self._rows.append((id, *machine.newest_row()))
            for record in self._folder.row(id, machine.name, row.number, machine.last_time, alarms):
                self._note_alarm(record)
            if machine.is_look_due:
                machine.look(self.run.fleet.peek("model" if row.key is None else row.key))
        self.n_rows += 1
        self._touch(machine)
        self._count_latency(row.number)

    def _touch(self, machine: Machine) -> None:
        self.version += 1
        machine.version = self.version
        self._touched.add(machine.id)

    def _note_alarm(self, record: AlarmRecord) -> None:
        self.alarms.put(record)
        self._changed_alarms[record.id] = record
        self._touch_alarm(record)

    def _touch_alarm(self, record: AlarmRecord) -> None:
        self.alarm_version += 1
        self._alarm_versions[record.id] = self.alarm_version

    def _count_latency(self, number: int) -> None:
        came = None if self.journal is None else self.journal.arrival_of(number)
        if came is not None:
            seconds = clock.monotonic() - came
            self.latency_counts[bisect_left(LATENCIES, seconds)] += 1
            self.latency_sum += seconds

    def commit(self) -> None:
        """Write to the book what has come since the last commit."""
        with self.lock:
            rows, alarms = self._rows, list(self._changed_alarms.values())
            touched = [self.machines[id] for id in sorted(self._touched)]
            machines = [(each.id, each.key, each.about(), _oldest(each)) for each in touched]
            self._rows, self._changed_alarms, self._touched = [], {}, set()
            self.n_commits += 1
        if self.book is not None:
            self.book.write(rows, machines, alarms)

    # ------------------------------------------------------------------ asked by requests

    def acknowledge(self, id: str, by: str) -> AlarmRecord | None:
        """Acknowledge an alarm, at once and for later processes; None if there is no such alarm."""
        at = clock.time()
        with self.lock:
            if id not in self.alarms.records:
                return None
            if self.book is not None:
                self.book.acknowledge(id, at, by)
            record = self.alarms.acknowledge(id, at, by)
            assert record is not None
            self._touch_alarm(record)
            if record.machine in self.machines:
                self._touch(self.machines[record.machine])
            return record

    def newest_alarms(self) -> tuple[int, list[tuple[str, int, str]]]:
        """The version of the alarms; id, version and JSON of the newest ones, open ones first: once for all pages."""
        if self._alarm_page[0] != self.alarm_version:
            with self.lock:
                known = {id: (at, text) for id, at, text in self._alarm_page[1]}
                found = []
                for record in islice(self.alarms.newest(), MOST_ALARMS):
                    at, text = known.get(record.id, (-1, ""))
                    if (now := self._alarm_versions.get(record.id, 0)) != at:
                        text = as_json(record.plain())
                    found.append((record.id, now, text))
                self._alarm_versions = {id: self._alarm_versions.get(id, 0) for id in self.alarms.records}
                self._alarm_page = self.alarm_version, found
        return self._alarm_page

    def find(self, id: str | None = None, key: str | None = None) -> Machine | None:
        """The machine of this id or key, integers by their text; without either, that of a feed without keys."""
        with self.lock:
            if id is not None:
                return self.machines.get(id)
            if key is None:
                return self.machines.get(machine_id(None))
            found = self.machines.get(machine_id(key))
            if found is None and key.lstrip("-").isdigit() and len(key) < 20:
                found = self.machines.get(machine_id(int(key)))
            return found

    def health(self, machine: Machine) -> str:
        """The state of a machine: one of `HEALTH`."""
        newest = self._newest_alarm.get(machine.id)
        if newest is not None and newest.is_open:
            return "alarm" if newest.acknowledged is None else "watch"
        silent_after = max(SILENT_SECONDS, SILENT_GAPS * machine.gap)
        if self.status == "running" and machine.arrived and clock.time() - machine.arrived > silent_after:
            return "silent"
        if machine.is_learning:
            return "learning"
        return "watch" if self._under_covers(machine) else "ok"

    def _under_covers(self, machine: Machine) -> bool:
        assert self.plan is not None
        return machine.n_rows > SHARE_ROWS and machine.least_coverage < self.plan.level - COVERAGE_MARGIN

    @property
    def _newest_alarm(self) -> dict[str, AlarmRecord]:
        """The newest alarm of each machine."""
        if self._newest_of != self.alarm_version:
            self._newest_of, self._newest = self.alarm_version, {}
            for record in self.alarms.records.values():
                known = self._newest.get(record.machine)
                if known is None or (record.is_open, record.begin) >= (known.is_open, known.begin):
                    self._newest[record.machine] = record
        return self._newest

    def ordered(self, search: str = "", health: str = "") -> list[tuple[Machine, str]]:
        """Machines and their states: the most urgent first, then by name."""
        wanted = search.casefold()
        return [
            (machine, state)
            for machine, state in self._in_order()
            if wanted in machine.name.casefold() and (not health or state == health)
        ]

    def _in_order(self) -> list[tuple[Machine, str]]:
        """All machines in order; looked up anew at most twice a second, or many open pages would ask all the time."""
        with self.lock:
            now, alarms = clock.monotonic(), (self.alarm_version, len(self.machines))
            if now < self._order_until and self._order_alarms == alarms:
                return self._order
            found = [(machine, self.health(machine)) for machine in self.machines.values()]
            self._order = sorted(found, key=lambda each: (HEALTH.index(each[1]), _natural(each[0].name)))
            self._order_until, self._order_alarms = now + 0.5, alarms
            return self._order

    def counts(self) -> dict[str, int]:
        """Machines by state."""
        found = [state for _, state in self._in_order()]
        return {state: found.count(state) for state in HEALTH}

    def tile(self, machine: Machine, state: str) -> Tile:
        """What a tile shows: name, state, newest values, and a small chart with its forecast."""
        assert self.plan is not None
        known = self._tiles.get(machine.id)
        if known is not None and known[:2] == (machine.version, state):
            return known[2]
        with self.lock:
            target = self.plan.targets[0]
            history = machine.history(TILE_POINTS)
            forecast = machine.forecast()
            newest = self._newest_alarm.get(machine.id)
            values = history["targets"]
            tile: dict[str, Any] = {
                "id": machine.id, "name": machine.name[:200], "health": state, "version": machine.version,
                "time": plain_time(machine.last_time), "row": machine.last_number,
                "n_rows": machine.n_rows + machine.n_known,
                "values": {name: (parts["value"] or [None])[-1] for name, parts in list(values.items())[:3]},
                "line": values[target]["value"],
                "alarm": None if newest is None or not newest.is_open else newest.why,
            }  # fmt: skip
        if forecast is not None and self.plan.horizon is not None:
            fan = forecast["targets"][target]
            every = max(1, len(fan["mean"]) // 20)
            # Steps that have come: forecasts need not be made at every row.
            begin = sum(at <= machine.last_time for at in forecast["time"]) + every - 1
            tile["fan"] = {side: fan[side][begin::every] for side in ("mean", "lower", "upper")}
            tile["every"] = every
        found = Tile(tile)
        self._tiles[machine.id] = tile["version"], state, found
        return found


def _oldest(machine: Machine) -> int:
    stamps = machine.stamps.rows()
    return int(stamps[0, 0]) if len(stamps) else 0


def plain_time(seconds: float) -> float | None:
    """A time for JSON; seven digits would not do."""
    return seconds if math.isfinite(seconds) else None


def as_json(data: Any) -> str:
    """Plain data as JSON, without spaces."""
    return json.dumps(data, separators=(",", ":"))


@lru_cache(10_000)
def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sort T2 before T10."""
    parts: list[tuple[int, int, str]] = []
    for letter in name[:64]:
        if letter in "0123456789":
            before = parts[-1][1] if parts and parts[-1][0] == 0 else None
            if before is None:
                parts.append((0, int(letter), ""))
            else:
                parts[-1] = (0, 10 * before + int(letter), "")
        else:
            parts.append((1, 0, letter.casefold()))
    return parts


__all__ += ["plain", "plain_time"]
