"""Reports of all machines of a feed: at the end of a run, and every morning."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from momostream.distributions.scores import error_ratio
from momostream.serve.machines import Machine
from momostream.serve.state import FeedState
from momostream.show.fleet_report import AlarmLine, MachineLine, write_fleet_report

__all__ = ["MorningReports", "report_state"]

# Points of a chart; reports of each feed that are kept.
N_POINTS, N_KEPT = 120, 60

_log = logging.getLogger("momostream.serve")


def report_state(state: FeedState, path: Path, title: str, facts: dict[str, str] | None = None) -> Path:
    """Write the report of all machines of a feed as they are now."""
    assert state.plan is not None
    with state.lock:
        found = state.ordered()
        counts: dict[str, int] = {}
        records = list(state.alarms.newest())
        for record in records:
            counts[record.machine] = counts.get(record.machine, 0) + 1
        kinds = {machine.id: machine.time_kind for machine, _ in found}
        lines = [_line(machine, health, counts.get(machine.id, 0)) for machine, health in found]
        alarms = [
            AlarmLine(
                record.name, _when(record.begin, kinds.get(record.machine)),
                "open" if record.end is None else _when(record.end, kinds.get(record.machine)),
                record.severity, record.why,
            )
            for record in records[:100]
        ]  # fmt: skip
    shown = {"Alarms": f"{len(records):,}", "Rejected rows": f"{state.n_bad:,}", **(facts or {})}
    return write_fleet_report(
        path, lines, alarms, title=title, target=state.plan.targets[0], level=state.plan.level, facts=shown
    )


def _line(machine: Machine, health: str, n_alarms: int) -> MachineLine:
    scores = machine.scores
    errors, naive = (np.array([_number(each[name]) for each in scores.values()]) for name in ("rmse", "naive"))
    coverage = [each["coverage"] for each in scores.values() if each["coverage"] is not None]
    target = machine.plan.targets[0]
    values = [_number(value) for value in machine.history(N_POINTS)["targets"][target]["value"]]
    forecast = machine.forecast() if machine.plan.horizon is not None else None
    fan = None
    if forecast is not None:
        parts = forecast["targets"][target]
        mean, lower, upper = ([_number(value) for value in parts[side]] for side in ("mean", "lower", "upper"))
        fan = mean, lower, upper
    return MachineLine(
        machine.name, health, machine.n_rows + machine.n_known, _when(machine.last_time, machine.time_kind),
        error_ratio(errors, naive), float(np.mean(coverage)) if coverage else float("nan"), n_alarms, values, fan,
    )  # fmt: skip


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _when(at: float | None, kind: Any) -> str:
    """A time of a feed as text."""
    if at is None or not np.isfinite(at):
        return "–"
    if kind in (None, "rows", "number"):
        return f"{at:g}"
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


class MorningReports:
    """Writes a report of each feed once a day.

    Parameters
    ----------
    states
        Of the feeds.
    folder
        Of the reports: ``FEED-DATE.html``; the newest of each feed are kept.
    at
        ``HH:MM`` of the local clock.
    """

    def __init__(self, states: Iterable[FeedState], folder: Path, at: str) -> None:
        self._states, self._folder, self._at = list(states), folder, at
        self._done: date | None = None

    def write_if_due(self, now: datetime | None = None) -> list[Path]:
        """Write today's reports, if it is time and they were not written; their paths."""
        now = now or datetime.now()
        if self._done == now.date() or f"{now:%H:%M}" < self._at:
            return []
        self._done = now.date()
        written = []
        for state in self._states:
            path = self._folder / f"{state.name}-{now:%Y-%m-%d}.html"
            if state.plan is None or path.exists():
                continue
            title = f"{state.config.title or state.name}, {now:%A %d %B %Y}"
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                written.append(report_state(state, path, title))
                for old in sorted(self._folder.glob(f"{state.name}-????-??-??.html"))[:-N_KEPT]:
                    old.unlink()
            except OSError as error:
                # A full disk must not end the feeds.
                _log.error("%s: no report: %s", state.name, error)
            else:
                _log.info("%s: report: %s", state.name, path)
        return written
