"""Counts for Prometheus, as text."""

from __future__ import annotations

import resource
import sys
import time as clock
from collections.abc import Iterable, Sequence

import numpy as np

from momostream import __version__
from momostream.distributions.scores import error_ratio
from momostream.serve.machines import Machine
from momostream.serve.state import LATENCIES, FeedState

__all__ = ["metrics_text"]


def metrics_text(states: Iterable[FeedState], n_events: int = 0, n_errors: int = 0) -> str:
    """All counts, in the text format of Prometheus.

    Parameters
    ----------
    states
        Of the feeds.
    n_events
        Pages that are open.
    n_errors
        Requests that ended in an error of the server.

    Examples
    --------
    >>> from momostream.serve.config import FeedConfig
    >>> text = metrics_text([FeedState(FeedConfig("north"))])
    >>> 'momostream_rows_total{feed="north"} 0' in text
    True
    """
    found = list(states)
    lines = [f'momostream_info{{version="{__version__}"}} 1']
    lines += _metric("rows_total", "counter", "Rows learnt.", [(state, state.n_rows) for state in found])
    lines += _metric("rejected_rows_total", "counter", "Rows rejected.", [(state, state.n_bad) for state in found])
    lines += _metric(
        "repeated_rows_total", "counter", "Rows that came again.", [(state, state.n_repeated) for state in found]
    )
    lines += _metric("commits_total", "counter", "Commits begun.", [(state, state.n_commits) for state in found])
    lines += _metric("machines", "gauge", "Machines.", [(state, len(state.machines)) for state in found])
    lines += _metric("up", "gauge", "Whether the feed runs.", [(state, state.status == "running") for state in found])
    lines += _metric("waiting_rows", "gauge", "Rows accepted and not read yet.", [(s, _waiting(s)) for s in found])
    lines += _metric("lag_seconds", "gauge", "Seconds since the last row.", [(state, _lag(state)) for state in found])
    lines += _metric("open_alarms", "gauge", "Alarms that have not ended.", [(state, _open(state)) for state in found])
    lines += _metric("model_bytes", "gauge", "Memory of the loaded models.", [(s, _model_bytes(s)) for s in found])
    lines += _scores(found)
    lines += _latency(found)
    lines += ["# TYPE momostream_memory_bytes gauge", f"momostream_memory_bytes {_memory()}"]
    lines += ["# TYPE momostream_pages gauge", f"momostream_pages {n_events}"]
    lines += ["# TYPE momostream_errors_total counter", f"momostream_errors_total {n_errors}"]
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, words: str, values: Sequence[tuple[FeedState, float]]) -> list[str]:
    head = [f"# HELP momostream_{name} {words}", f"# TYPE momostream_{name} {kind}"]
    return head + [f'momostream_{name}{{feed="{state.name}"}} {float(value):g}' for state, value in values]


def _waiting(state: FeedState) -> int:
    return 0 if state.journal is None else state.journal.n_waiting


def _model_bytes(state: FeedState) -> int:
    return 0 if state.run is None else state.run.fleet.nbytes


def _lag(state: FeedState) -> float:
    with state.lock:
        newest = max((machine.arrived for machine in state.machines.values()), default=0.0)
    return clock.time() - (newest or state.started)


def _open(state: FeedState) -> int:
    with state.lock:
        return sum(record.is_open for record in state.alarms.records.values())


def _scores(states: Iterable[FeedState]) -> list[str]:
    """Rolling scores of each feed: means over its machines."""
    lines = ["# TYPE momostream_coverage gauge", "# TYPE momostream_error_ratio gauge"]
    for state in states:
        with state.lock:
            machines: list[Machine] = list(state.machines.values())
            found = [each for machine in machines for each in machine.scores.values()]
        coverage = [each["coverage"] for each in found if each["coverage"] is not None]
        errors = np.array([[each["rmse"], each["naive"]] for each in found], dtype=np.float64).reshape(-1, 2)
        ratio = error_ratio(*errors.T)
        if coverage:
            lines.append(f'momostream_coverage{{feed="{state.name}"}} {sum(coverage) / len(coverage):.4f}')
        if not np.isnan(ratio):
            lines.append(f'momostream_error_ratio{{feed="{state.name}"}} {ratio:.4f}')
    return lines


def _latency(states: Iterable[FeedState]) -> list[str]:
    name = "momostream_row_latency_seconds"
    lines = [f"# HELP {name} From the acceptance of a row to its forecast.", f"# TYPE {name} histogram"]
    for state in states:
        total = 0
        for end, count in zip((*LATENCIES, "+Inf"), state.latency_counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{feed="{state.name}",le="{end}"}} {total}')
        lines.append(f'{name}_sum{{feed="{state.name}"}} {state.latency_sum:.6f}')
        lines.append(f'{name}_count{{feed="{state.name}"}} {total}')
    return lines


def _memory() -> int:
    """Resident memory of this process; where the system does not say, its largest so far."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
