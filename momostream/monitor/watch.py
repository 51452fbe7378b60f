"""`Watch`: takes rows one after the other, opens and closes events, and decides which rows are learnt."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from momostream._checks import check_state, count
from momostream.monitor.events import Span, Suspects
from momostream.monitor.model import Evidence, MonitorModel
from momostream.monitor.normal import NormalRows
from momostream.monitor.restoring import check_held, check_span, check_suspects

__all__ = ["N_EVENTS", "Watch"]

Array = NDArray[np.float64]

# Events that are remembered after their end.
N_EVENTS = 100


class Watch:
    """Rows in, events out.

    Parameters
    ----------
    model
        Judges and learns rows.
    quiet_rows
        Rows without alarm that end an event.
    release_after
        Rows after which an event is taken as normal. None: as many as normal behaviour was learnt from.

    Attributes
    ----------
    n_seen
        Rows taken.
    open
        The event that lasts, if one does.
    closed
        Events that have ended, the newest last.
    n_events
        Events so far.
    """

    def __init__(self, model: MonitorModel, quiet_rows: int, release_after: int | None) -> None:
        self.model, self.quiet_rows, self.release_after = model, quiet_rows, release_after
        self.n_seen = self.n_events = 0
        self.open: Span | None = None
        self.closed: deque[Span] = deque(maxlen=N_EVENTS)
        self._suspects: Suspects | None = None
        # Rows of the event that lasts, to be learnt if it is released: lags, values, known.
        self._held: list[tuple[Any, Any, Any]] = []

    def take(self, y: Array, threshold: float, learn: bool, time: float = math.nan) -> None:
        """Judge a row, NaN where a value is missing, and learn it unless it belongs to an event."""
        evidence = self.model.evidence(y)
        row, self.n_seen = self.n_seen, self.n_seen + 1
        is_alarm = evidence.score >= threshold
        if is_alarm and self.open is None:
            self.open = Span(row, self.model.n_columns, time)
            self._suspects = Suspects(self.model.past)
            self.model.note_alarm(evidence, threshold)
            self.n_events += 1
        if self.open is None:
            if learn:
                self.model.learn(y, evidence)
            else:
                self.model.watch(evidence)
            return
        self._continue(self.open, y, evidence, row if is_alarm else None, time)
        if learn:
            self._held.append((self.model.past, np.where(np.isnan(y), evidence.filled, y), ~np.isnan(y)))
        self.model.watch(evidence)
        if row - self.open.end >= self.quiet_rows:
            self._close()
        elif learn and len(self._held) >= self._most_held:
            self.release()

    def _continue(self, span: Span, y: Array, evidence: Evidence, alarm_row: int | None, time: float) -> None:
        assert self._suspects is not None
        expected, deviations = self._suspects.expect(self.model, y)
        if alarm_row is not None:
            span.add(alarm_row, evidence.score, deviations, time)
            span.compare(y, expected)

    @property
    def _most_held(self) -> int:
        if self.release_after is not None:
            return self.release_after
        # A fault seen for longer than anything else is what this feed looks like.
        return max(min(self.model.n_learnt, self.model.window), self.model.warm_up)

    def _close(self) -> None:
        assert self.open is not None
        self.closed.append(self.open)
        self.open, self._suspects = None, None
        self._held.clear()

    def release(self) -> None:
        """Take the event that lasts as normal: learn its rows, forget what has accumulated, and close it."""
        if self.open is None:
            return
        for held in self._held[-self.model.window :]:
            self.model.keep(*held, fit=False)
        self.model.fit()
        self.model.calm()
        self.open.released = True
        self._close()

    def widen(self, n_new: int) -> None:
        """Add columns that had no value so far."""
        self.model.widen(n_new)
        for span in (*self.closed, *([] if self.open is None else [self.open])):
            span.widen(n_new)
        if self._suspects is not None:
            self._suspects.widen(n_new)
        # Few: those of an event that is open while a column joins.
        self._held = [
            (_padded(lags, n_new, np.nan), _padded(values, n_new, 0.0), _padded(known, n_new, False))
            for lags, values, known in self._held
        ]

    @property
    def nbytes(self) -> int:
        """Bytes of rows and statistics."""
        return self.model.nbytes + sum(part.nbytes for held in self._held for part in held)

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        held = self._held
        return {
            "model": self.model.state(), "n_seen": self.n_seen, "n_events": self.n_events,
            "open": None if self.open is None else self.open.state(),
            "closed": [span.state() for span in self.closed],
            "suspects": None if self._suspects is None else self._suspects.state(),
            "held": [np.stack(parts) for parts in zip(*held, strict=True)] if held else None,
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Restore from `state`."""
        n_columns = self.model.n_columns
        self.model = MonitorModel.from_state(state["model"], n_columns, self.model.warm_up, self.model.window)
        check_state("watch", state, {"n_seen": count(), "n_events": count()})
        self.n_seen, self.n_events = state["n_seen"], state["n_events"]
        if (state["open"] is None) is not (state["suspects"] is None):
            raise ValueError("watch / open and suspects: one is missing")
        if state["open"] is not None and self.model.normal is None:
            raise ValueError("watch / open: there is no event before normal behaviour is known")
        for span in (*state["closed"], *([] if state["open"] is None else [state["open"]])):
            check_span("watch / events", span, n_columns)
        self.open = None if state["open"] is None else Span.from_state(state["open"])
        self.closed.extend(map(Span.from_state, state["closed"]))
        if state["suspects"] is not None:
            check_suspects(state["suspects"], n_columns)
            self._suspects = Suspects.from_state(state["suspects"])
        if state["held"] is not None:
            check_held("watch / held", state["held"], n_columns)
            self._held = list(zip(*NormalRows(*map(np.array, state["held"])), strict=True))
        return self


def _padded(array: NDArray[Any], n_new: int, value: Any) -> NDArray[Any]:
    return np.concatenate([array, np.full((*array.shape[:-1], n_new), value)], axis=-1)
