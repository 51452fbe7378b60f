"""`MOMoGPMonitor`: watches all columns of a feed for faults, those that last above all, and reports them as events."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream._checks import Constraint, check_settings, field_name, optional, whole
from momostream.estimators._base import StreamingEstimator
from momostream.estimators._river_detector import AnomalyDetector
from momostream.horizon.calendar import MOST_GAP, NAIVE, NUMBER, Clock, as_time
from momostream.monitor.events import Departure, Span
from momostream.monitor.model import MonitorModel
from momostream.monitor.rates import Rate
from momostream.monitor.watch import Watch

__all__ = ["Departure", "FaultEvent", "MOMoGPMonitor"]

Array = NDArray[np.float64]

CONSTRAINTS: dict[str, Constraint] = {
    "time": optional(field_name()),
    "warm_up": whole(20),
    "window": whole(50),
    "quiet_rows": whole(1),
    "release_after": optional(whole(1)),
}


@dataclass(frozen=True)
class FaultEvent:
    """A fault: rows that belong together, how severe it is, which columns depart, and what was expected of them.

    Parameters
    ----------
    begin, end
        Numbers of the first and the last row in alarm, counted from 0. As long as the event lasts, ``end`` is the
        newest row in alarm.
    begin_time, end_time
        Their times; None without a time.
    severity
        Largest score: minus the decimal logarithm of the share of normal rows that are stranger.
    columns
        Columns that depart, the strongest first: their mean over the rows in alarm, the mean that was expected given
        the rows before the event and the other columns, and how many deviations they depart by at the peak.
    is_open
        Whether the event lasts.
    released
        Whether its rows were taken as normal.
    """

    begin: int
    end: int
    begin_time: Any
    end_time: Any
    severity: float
    columns: dict[Hashable, Departure]
    is_open: bool
    released: bool

    def __str__(self) -> str:
        began, ended = (
            f"row {row}" if time is None else str(time)
            for row, time in ((self.begin, self.begin_time), (self.end, self.end_time))
        )
        reasons = "; ".join(
            f"{name} {part.observed:.4g}, expected {part.expected:.4g} ({part.deviations:+.1f} deviations)"
            for name, part in list(self.columns.items())[:3]
        )
        until = "so far" if self.is_open else f"to {ended}"
        return f"{began} {until}, severity {self.severity:.1f}: {reasons}"


class MOMoGPMonitor(StreamingEstimator, AnomalyDetector):
    """Watches all columns of a feed and reports faults as events.

    Each row is judged by three kinds of evidence: the error of each column given the past (a regression on lags), the
    error of each column given the past and the other columns (their joint distribution), and the size of all errors
    together. Means of each over about 1, 3, 10 and 30 rows show faults that are small in every row but last. The
    strongest evidence is compared with that of normal rows, out of sample; the score of a row is minus the decimal
    logarithm of the share of normal rows that are stranger. The threshold follows from the rate of false alarms.

    Rows of an event teach nothing unless they are released.

    Parameters
    ----------
    false_alarms
        Accepted rate: a share of rows, or a text such as ``"1 per week"``, ``"2 per day"`` or ``"1 per 5000 rows"``.
        Rates per time need ``time``. Rates far beyond what was seen are extrapolated.
    time
        Field of the timestamp: a datetime, or a number of seconds. After a gap, the first two rows are not judged.
    warm_up
        Rows to learn before any is judged.
    window
        Normal rows that are remembered, the newest ones.
    quiet_rows
        Rows without alarm that end an event.
    release_after
        Rows after which an event that lasts is taken as normal. None: as many as normal behaviour was learnt from, so
        that a monitor that started at an unusual moment recovers.

    Attributes
    ----------
    n_rows : int
        Rows learnt.
    n_seen : int
        Rows watched.
    n_events : int
        Events so far.

    Notes
    -----
    `score_one` changes nothing. Missing values are no evidence; other columns are then judged given those that are
    known. New columns may join, and are judged after 20 known values. An error leaves the monitor as it was. Frozen, it
    watches and reports, but learns nothing.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> monitor = MOMoGPMonitor(false_alarms=0.001)
    >>> for row in range(600):
    ...     wind = 8 + np.sin(row / 20) + 0.2 * rng.normal()
    ...     power = 100 * wind + 10 * rng.normal() - (60 if 500 <= row < 540 else 0)
    ...     monitor.learn_one({"wind": wind, "power": power})
    >>> for event in monitor.events:
    ...     print(event.begin, event.end, {name: round(part.deviations) for name, part in event.columns.items()})
    500 549 {'power': -4}
    """

    # This estimator has neither; both belong to the common part.
    bounds = None
    transforms = None
    _SCRATCH = ("_y",)
    _model: Watch | None

    def __init__(
        self,
        false_alarms: float | str = 0.001,
        time: str | None = None,
        warm_up: int = 100,
        window: int = 2000,
        quiet_rows: int = 10,
        release_after: int | None = None,
    ) -> None:
        self.false_alarms, self.time, self.warm_up, self.window = false_alarms, time, warm_up, window
        self.quiet_rows, self.release_after = quiet_rows, release_after
        self._rate = Rate.read(false_alarms)
        check_settings(self, CONSTRAINTS)
        if window < warm_up:
            raise ValueError(f"window={window} is not accepted: use at least warm_up={warm_up}")
        if self._rate.per_second is not None and time is None:
            raise ValueError(f"false_alarms={false_alarms!r} is a rate per time: name the field of the time with time=")
        self._start()

    def _start(self) -> None:
        super()._start()
        self._clock = Clock()

    def _columns_changed(self) -> None:
        super()._columns_changed()
        # Each row is read into this.
        self._y = np.empty(len(self._targets))

    # ------------------------------------------------------------------ rows

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Watch one row, and learn it unless it belongs to an event.

        Parameters
        ----------
        x
            Values by name; absent, None or NaN is missing.
        """
        with self._lock:
            row, time = self._read(x)
            new = self._targets.encode(row, self._y)
            if new:
                self._widen(new)
                self._targets.encode(row, self._y)
            if self._model is None:
                return
            if time is not None:
                if self._is_gap(time[0]):
                    self._model.model.reset()
                self._clock.advance(*time)
            at = math.nan if time is None else time[0]
            self._model.take(self._y, self.threshold, not self._frozen, at)

    def score_one(self, x: Mapping[Any, Any]) -> float:
        """How strange a row is: minus the decimal logarithm of the share of normal rows that are stranger.

        2 is one row in a hundred, 4 one in ten thousand. 0 before the warm-up has ended.
        """
        with self._lock:
            row, time = self._read(x)
            self._targets.encode(row, self._y)
            if self._model is None or (time is not None and self._is_gap(time[0])):
                return 0.0
            return self._model.model.evidence(self._y).score

    def explain_one(self, x: Mapping[Any, Any]) -> dict[Hashable, Departure]:
        """Each known column of a row, the strongest evidence first: observed, expected given the past, deviations.

        Empty before the warm-up has ended.
        """
        with self._lock:
            row, _ = self._read(x)
            self._targets.encode(row, self._y)
            if self._model is None or self._model.model.normal is None:
                return {}
            evidence = self._model.model.evidence(self._y)
            deviations = self._model.model.deviations(evidence.means)
            parts = zip(self._targets.keys, self._y, evidence.expected, deviations, strict=True)
            found = {name: Departure(*map(float, values)) for name, *values in parts if not math.isnan(values[0])}
            return dict(sorted(found.items(), key=lambda item: -abs(item[1].deviations)))

    def _read(self, x: Mapping[Any, Any]) -> tuple[Mapping[Any, Any], tuple[float, str] | None]:
        """A row without its time, and the time, which must be after that of the row before."""
        if self.time is None:
            return x, None
        if not isinstance(x, Mapping):
            raise TypeError(f"expected a dict, got {type(x).__name__}")
        time = as_time(self.time, x.get(self.time))
        if time is not None:
            self._clock.check(*time)
        return {key: value for key, value in x.items() if key != self.time}, time

    def _is_gap(self, time: float) -> bool:
        step, gap = self._clock.step, time - self._clock.last
        return step is not None and (self._clock.n_missing(gap) > 0 or gap > MOST_GAP * step)

    def is_late(self, time: Any) -> bool:
        """Whether a timestamp is not after that of the last row; False without ``time``."""
        found = None if self.time is None else as_time(self.time, time)
        return found is not None and self._clock.kind is not None and found[0] <= self._clock.last

    def _widen(self, new: tuple[Hashable, ...]) -> None:
        n_before = len(self._targets)
        self._add_columns((), new)
        if self._model is None:
            self._model = self._fresh_watch()
        else:
            self._model.widen(len(self._targets) - n_before)

    def _fresh_watch(self) -> Watch:
        model = MonitorModel(len(self._targets), self.warm_up, self.window)
        return Watch(model, self.quiet_rows, self.release_after)

    # ------------------------------------------------------------------ alarms

    @property
    def threshold(self) -> float:
        """Score from which a row is an alarm; infinite as long as a rate per time cannot be converted into rows."""
        step = self._clock.step
        if step is not None and self._clock.kind != NUMBER:
            step /= 1e6
        return self._rate.threshold(step)

    def set_false_alarms(self, false_alarms: float | str) -> None:
        """Accept another rate from here on."""
        if false_alarms != self.false_alarms:
            self._rate, self.false_alarms = Rate.read(false_alarms), false_alarms

    @property
    def event(self) -> FaultEvent | None:
        """The event that lasts, None if there is none."""
        with self._lock:
            return None if self._model is None or self._model.open is None else self._event(self._model.open)

    @property
    def events(self) -> list[FaultEvent]:
        """Events in order, the one that lasts last; of those that have ended, the newest 100."""
        with self._lock:
            if self._model is None:
                return []
            spans = [*self._model.closed, *([] if self._model.open is None else [self._model.open])]
            return [self._event(span) for span in spans]

    def _event(self, span: Span) -> FaultEvent:
        names = self._targets.keys
        return FaultEvent(
            span.begin, span.end, self._as_given(span.begin_time), self._as_given(span.end_time), span.severity,
            {names[j]: part for j, part in span.departures().items()},
            self._model is not None and span is self._model.open, span.released,
        )  # fmt: skip

    def _as_given(self, time: float) -> Any:
        """A time as the feed has it: a number or a datetime."""
        if math.isnan(time) or self._clock.kind is None:
            return None
        if self._clock.kind == NUMBER:
            return time
        since = datetime(1970, 1, 1) + timedelta(microseconds=round(time))
        return since if self._clock.kind == NAIVE else since.replace(tzinfo=UTC)

    def release(self) -> None:
        """Take the event that lasts as normal: its rows are learnt, and it ends. Nothing happens without one."""
        with self._lock:
            if self._model is not None:
                self._model.release()

    def reset(self) -> None:
        """Forget the newest rows, as after a gap: those that come next do not follow them. Normal behaviour stays."""
        with self._lock:
            if self._model is not None:
                self._model.model.reset()

    def freeze(self) -> None:
        """Stop learning: rows are watched and events reported, but normal behaviour stays as it is."""
        super().freeze()

    # ------------------------------------------------------------------ size, text, files

    @property
    def columns(self) -> tuple[Hashable, ...]:
        """Names of the columns seen so far."""
        return self._targets.keys

    @property
    def n_rows(self) -> int:
        """Rows learnt."""
        return 0 if self._model is None else self._model.model.n_learnt

    @property
    def n_seen(self) -> int:
        """Rows watched."""
        return 0 if self._model is None else self._model.n_seen

    @property
    def n_events(self) -> int:
        """Events so far."""
        return 0 if self._model is None else self._model.n_events

    def describe(self) -> str:
        """The monitor in a few lines: columns, rows, threshold, events."""
        with self._lock:
            head = f"{type(self).__name__}: {len(self.columns)} columns, {self.n_seen} rows seen, {self.n_rows} learnt"
            lines = [f"{head}, threshold {self.threshold:.1f}, {self.n_events} events", *map(str, self.events[-5:])]
            return "\n  ".join(lines)

    def _learnt_state(self) -> dict[str, Any]:
        return {"inputs": self._inputs.state(), "targets": self._targets.state(), "clock": self._clock.state()}

    def _restore_learnt(self, state: Mapping[str, Any]) -> None:
        self._clock = Clock.from_state(state["clock"])

    def _restored_model(self, state: Any) -> Watch:
        return self._fresh_watch().restore(state)
