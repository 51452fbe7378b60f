"""The report of many machines: one HTML file with a line for each, the most urgent first, and the newest alarms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from momostream.show.outline import change_text
from momostream.show.report import PAGE, STYLE, _section, _table, _tiles
from momostream.storage.container import replace_file

__all__ = ["AlarmLine", "MachineLine", "write_fleet_report"]

# Machines and alarms that a page lists.
MOST_MACHINES, MOST_ALARMS = 1000, 100
# Width and height of the small charts.
WIDTH, HEIGHT = 180.0, 34.0
COLUMNS = (
    *("machine", "state", "newest values and forecast", "rows", "last row"),
    *("against last value", "coverage", "alarms"),
)
WORDS = {"alarm": "alarm", "watch": "watch", "silent": "silent", "learning": "learning", "ok": "ok"}

FLEET_STYLE = """
.fleet td, .fleet th { vertical-align: middle; }
.fleet td:nth-child(2) { text-align: left; }
.state { display: inline-block; border-radius: 999px; padding: .05rem .6rem; font-size: .82rem; border: 1px solid; }
.state.alarm { color: #b3261e; } .state.watch { color: #946200; } .state.silent, .state.learning { color: var(--soft); }
.state.ok { color: #1a7f4b; }
svg { display: block; } svg .value { fill: none; stroke: var(--text); stroke-width: 1.2; }
svg .mean { fill: none; stroke: var(--accent); stroke-width: 1.4; } svg .band { fill: var(--accent); opacity: .25; }
@media (prefers-color-scheme: dark) { .state.alarm { color: #ff8a80; } .state.watch { color: #ffcc66; }
  .state.ok { color: #6fd39c; } }
"""


class MachineLine(NamedTuple):
    """What a report says about a machine.

    Parameters
    ----------
    name, health, n_rows, last
        Who, in which state, rows learnt, and when the last row was, as text.
    ratio, coverage
        Error against that of the last value, and the share of values inside their intervals, over the last rows; NaN
        if not known.
    n_alarms
        Alarms in the inbox.
    values, fan
        Newest values of the first target, NaN where missing, and their forecast: mean, lower and upper end.
    """

    name: str
    health: str
    n_rows: int
    last: str
    ratio: float
    coverage: float
    n_alarms: int
    values: Sequence[float]
    fan: tuple[Sequence[float], Sequence[float], Sequence[float]] | None


class AlarmLine(NamedTuple):
    """What a report says about an alarm, as text."""

    name: str
    begin: str
    end: str
    severity: str
    why: str


def write_fleet_report(
    path: str | PathLike[str],
    machines: Sequence[MachineLine],
    alarms: Sequence[AlarmLine] = (),
    *,
    title: str = "Machines",
    target: str = "",
    level: float = 0.9,
    facts: Mapping[str, str] | None = None,
) -> Path:
    """Write the report of many machines, in the order in which they are given.

    Parameters
    ----------
    path
        HTML file to create or replace.
    machines, alarms
        Lines of the two tables.
    title, facts
        Heading, and further figures to show.
    target, level
        What the small charts show, and the probability of its intervals.
    """
    counts = {state: sum(machine.health == state for machine in machines) for state in WORDS}
    tiles = {"Machines": f"{len(machines):,}"}
    tiles |= {f"in state {state}": f"{n:,}" for state, n in counts.items() if n}
    tiles |= {"Rows learnt": f"{sum(machine.n_rows for machine in machines):,}", **(facts or {})}
    now = datetime.now(UTC)
    said = f"The most urgent first. Charts show the newest values of {target} and their {level:.0%} forecast."
    header = (
        f"<header><h1>{escape(title)}</h1><p>{escape(said)} "
        f'<time datetime="{now:%Y-%m-%dT%H:%MZ}">{now:%Y-%m-%d %H:%M} UTC</time></p></header>'
    )
    body = [
        header, _tiles(tiles), _section("Machines", [_machine_table(machines)]),
        _section("Newest alarms", [_alarm_table(alarms)] if alarms else ["<p>There was no alarm.</p>"]),
    ]  # fmt: skip
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    text = PAGE.format(title=escape(title), style=STYLE + FLEET_STYLE, policy=policy, body="\n".join(body))
    replace_file(path, [text.encode()])
    return Path(path)


def _machine_table(machines: Sequence[MachineLine]) -> str:
    names = (
        "machine",
        "state",
        "newest values and forecast",
        "rows",
        "last row",
        "against last value",
        "coverage",
        "alarms",
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    rows = []
    for each in machines[:MOST_MACHINES]:
        cells = [
            f'<span class="state {each.health}">{WORDS[each.health]}</span>', _chart(each), f"{each.n_rows:,}",
            escape(each.last), change_text(each.ratio), "–" if math.isnan(each.coverage) else f"{each.coverage:.0%}",
            f"{each.n_alarms:,}",
        ]  # fmt: skip
        inner = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f'<tr><th scope="row">{escape(each.name[:200])}</th>{inner}</tr>')
    more = len(machines) - MOST_MACHINES
    note = f"<p>{more:,} more machines are not listed.</p>" if more > 0 else ""
    table = f'<table class="fleet"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<div class="scroll">{table}</div>{note}'


def _alarm_table(alarms: Sequence[AlarmLine]) -> str:
    rows = [[each.begin, each.end, each.name[:200], each.severity, each.why] for each in alarms[:MOST_ALARMS]]
    return _table("", ["begin", "end", "machine", "severity", "why"], rows)


def _chart(machine: MachineLine) -> str:
    """Values and forecast as a small drawing."""
    mean, lower, upper = machine.fan or ((), (), ())
    known = [value for value in (*machine.values, *lower, *upper) if math.isfinite(value)]
    if not known:
        return "–"
    low, high = min(known), max(known)
    n = max(len(machine.values) + len(mean), 2)

    def points(values: Sequence[float], first: int) -> list[str]:
        height = (high - low) or 1.0
        return [
            f"{(first + i) * WIDTH / (n - 1):.1f},{HEIGHT - 2 - (value - low) / height * (HEIGHT - 4):.1f}"
            for i, value in enumerate(values)
            if math.isfinite(value)
        ]

    start = len(machine.values)
    band = " ".join([*points(upper, start), *reversed(points(lower, start))])
    lines = [
        f'<polygon class="band" points="{band}"/>' if band else "",
        f'<polyline class="value" points="{" ".join(points(machine.values, 0))}"/>',
        f'<polyline class="mean" points="{" ".join(points(mean, start))}"/>',
    ]
    newest = next((value for value in reversed(machine.values) if math.isfinite(value)), math.nan)
    label = f"newest value {newest:.4g}" + (f", forecast up to {mean[-1]:.4g}" if len(mean) else "")
    return (
        f'<svg width="{WIDTH:.0f}" height="{HEIGHT:.0f}" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" '
        f'aria-label="{label}">{"".join(lines)}</svg>'
    )
