"""Runs over a feed: predict, then learn, with commits from which the next run resumes exactly.

A row takes this way through a run:

1. read: `Run._events` takes it from the feed, and `Run._add` puts it into the block in hand;
2. predict and learn: `Run._take_block` groups the block by key, and `momostream.runs.learner`, here or in other
   processes (`momostream.runs.workers`), hands the rows of each key to its model (`momostream.runs.plan.take_rows`);
3. score: the learner scores predictions (`momostream.runs.results`) and makes lines of text from them;
4. write: the lines go out in the order of the rows (`momostream.runs.channels`), rejected rows as dead letters;
5. commit: models, position and lines get into the store together (`momostream.runs.commits`).

However a run ends, the next one starts at the last commit, cuts files back to it, and continues as if nothing had
happened.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from threadpoolctl import threadpool_limits

from momostream.distributions.predicted import PredictedValues
from momostream.estimators.monitor import MOMoGPMonitor
from momostream.feeds import Event, FeedError, Source, rejection
from momostream.feeds.formats import Rejected, Row
from momostream.feeds.outputs import Written
from momostream.horizon.durations import parse_duration
from momostream.runs.channels import ONLY, Channel, Channels, OutputLine, letter_text
from momostream.runs.commits import Commits, source_name
from momostream.runs.fleet import Fleet
from momostream.runs.learner import Learner, Watcher
from momostream.runs.lookout import Lookout
from momostream.runs.plan import Plan, forecast_after
from momostream.runs.results import Results
from momostream.runs.scores import Track
from momostream.runs.workers import Workers
from momostream.storage.container import FileFormatError
from momostream.storage.models import MISFITS
from momostream.storage.store import DeadLetter, Position

if TYPE_CHECKING:
    import pandas as pd

    from momostream.distributions.forecast import Forecast

__all__ = ["ONLY", "Channel", "KeyFilter", "Run", "Watcher", "in_share", "letter_text", "source_name"]

# Of a live feed: seconds that a row waits for others at most, and after which a commit is made when nothing comes.
MOST_WAIT, IDLE_SECONDS = 0.5, 1.0
# Seconds of a commit of many models between two rows of a live feed.
PART_SECONDS = 0.1
# Rows of the first block of a run with a store. It shows how long a row takes: later blocks fit between two commits.
FIRST_BLOCK = 256
# Rows of a block that are still taken when a run is to stop; with more, the next run resumes from the last commit.
STOP_ROWS = 2000


def in_share(key: Any, share: tuple[int, int]) -> bool:
    """Whether a key belongs to part K of N of the keys: the same on every machine and in every run.

    Examples
    --------
    >>> [sum(in_share(f"T{n}", (part, 3)) for n in range(300)) for part in (1, 2, 3)]
    [98, 104, 98]
    """
    part, parts = share
    return zlib.crc32(repr(key).encode()) % parts == part - 1


class KeyFilter(NamedTuple):
    """The keys that a run takes: those of its share, and only these."""

    share: tuple[int, int] | None = None
    only: Collection[Any] | None = None

    def takes(self, key: Any) -> bool:
        """Whether rows of this key are taken."""
        if self.only is not None and key not in self.only:
            return False
        return self.share is None or (key is not None and in_share(key, self.share))

    def takes_event(self, event: Row | Rejected) -> bool:
        """Whether a row is taken; the first share also takes rows whose key could not be read."""
        return self.takes(event.key) or (event.key is None and self.share is not None and self.share[0] == 1)


def _of_channels(name: str) -> Any:
    """An attribute of `Run.channels` that can be read and set on the run."""
    return property(lambda run: getattr(run.channels, name), lambda run, value: setattr(run.channels, name, value))


class Run:
    """Predict, then learn, over the rows of a feed.

    Parameters
    ----------
    feed
        The source of the rows. If the fleet's store knows its position, the feed is moved there.
    fleet
        Models by key: `momostream.MOMoGPForecaster` if the plan has a horizon, else `momostream.MOMoGPRegressor`. A
        feed without keys has one model, under the key `ONLY`. With a store, everything is committed to it.
    plan
        Columns to predict, columns to predict from, and the time.
    alarm_level
        Probability of the interval that a value must leave to be an alarm.
    false_alarms
        Alarms are events, found by a `momostream.MOMoGPMonitor` of each key at this rate of false ones, instead of
        values outside their intervals. None: they are not.
    alarm_rules
        Alarms about rows to come: texts such as ``"power < 200 within 6h"``, see
        `momostream.runs.lookout.ForecastRule`. They need a plan with a horizon. Values outside their intervals are then
        not alarms.
    alarm_probability
        Probability from which such a condition is an alarm; it ends at half of that.
    on_alarm
        Called with the text of each event when it begins and when it has ended.
    commit_every
        Rows from one commit to the next. None: 200 for each key, at least 5,000 and at most 100,000.
    commit_seconds
        Seconds after which a commit is made, at the end of the block in hand.
    keep
        Span such as ``"30d"`` after which predictions, alarms and rejected rows are removed from the store; None keeps
        them.
    bad_rows
        ``"stop"`` at a row that cannot be read or learnt, or ``"skip"`` it.
    on_bad
        Called with the message of every row that is skipped.
    learn_only
        Do not predict.
    share
        ``(part, parts)``: only take the keys of this part, from 1 to ``parts``. Each part has a store of its own.
    only
        Only take these keys.
    workers
        Processes that share the keys of the run. None: this one does all. What a run writes does not depend on them.

    Attributes
    ----------
    predictions, alarms, dead : Channel or None
        Channels of predictions, alarms and dead letters; to be set before `run`. Without a channel, predictions and
        alarms are not written; the store has dead letters in any case.
    lines : PredictionLines or None
        Format of the predictions; to be set before `run`.
    n_rows, n_bad : int
        Rows learnt, rows rejected.
    last : Row, Rejected or None
        The newest event that was read.
    cut_off : Row, Rejected or None
        A last row that is not part of the last commit, because its line may not be complete yet.
    is_abandoned : bool
        Whether the last block was not taken to its end, because the run was to stop.
    """

    def __init__(
        self,
        feed: Source,
        fleet: Fleet,
        plan: Plan,
        *,
        alarm_level: float = 0.999,
        false_alarms: float | str | None = None,
        alarm_rules: Sequence[str] = (),
        alarm_probability: float = 0.5,
        on_alarm: Callable[[str], object] | None = None,
        commit_every: int | None = None,
        commit_seconds: float = 10.0,
        keep: str | None = None,
        bad_rows: str = "stop",
        on_bad: Callable[[str], object] | None = None,
        learn_only: bool = False,
        share: tuple[int, int] | None = None,
        only: Collection[Any] | None = None,
        workers: int | None = None,
    ) -> None:
        self.feed, self.fleet, self.plan = feed, fleet, plan
        self.bad_rows, self.on_bad = bad_rows, on_bad
        self.keys = KeyFilter(share, only)
        self.channels = Channels(plan, alarm_level)
        monitor = None if false_alarms is None else MOMoGPMonitor(false_alarms, time=plan.time)
        lookout = Lookout(alarm_rules, plan, alarm_probability)
        self.learner = Learner(fleet, plan, self.channels, monitor, lookout, learn_only, on_alarm)
        # What takes the rows: the learner here, or processes with one each.
        self._takers: Learner | Workers = self.learner
        self._n_workers = workers
        kept_seconds = None if keep is None else parse_duration(keep) * 1e-6
        self.commits = Commits(feed, fleet, self.channels, commit_every, commit_seconds, kept_seconds)
        self.n_rows = self.n_bad = 0
        self.last: Row | Rejected | None = None
        self.cut_off: Row | Rejected | None = None
        self.is_abandoned = False
        self._block: list[Row | Rejected] = []
        # When the first row of the block in hand, and the newest row, came.
        self._block_since = self._came = 0.0
        # A feed that keeps its rows itself need not be committed as soon as nothing comes.
        self._idle_seconds: float = getattr(feed, "idle_seconds", None) or IDLE_SECONDS
        # Rows of a live feed do not wait for a commit to its end.
        self._is_live: bool = getattr(feed, "is_live", True)
        self._most_wait = MOST_WAIT if self._is_live else commit_seconds
        # A file is read within moments, and a block of it may take much longer to learn than a commit may wait.
        self._most_rows = None if fleet.store is None else FIRST_BLOCK
        # Scores are kept row by row, and a run that stops at a bad row must not have learnt those after it.
        self._row_by_row = self.results.track is not None or bad_rows == "stop"
        if workers is not None and self._row_by_row:
            raise ValueError("workers share the keys of a feed whose bad rows are skipped: it needs both")
        self._stopping = False
        self._began, self._n_before = time.monotonic(), 0
        if self.commits.resumed is not None:
            self._resume(self.commits.resumed)

    def _resume(self, position: Position) -> None:
        """Continue from the last commit of an earlier run."""
        try:
            state = position.more
            self.feed.seek(state["feed"])
            self.n_rows, self.n_bad = state["n_rows"], position.n_bad
            # Earlier versions had none.
            self.learner.lookout.restore(state.get("lookout", ()))
            files = state["files"].items()
            self.commits.files = {name: None if file is None else Written(*file) for name, file in files}
            # Earlier versions wrote none.
            self.learner.not_forecast = {row.key: row for row in map(_row_from_state, state.get("not_forecast", []))}
            if self.results.track is not None:
                model = self.fleet.peek(ONLY)
                scales = None if model is None or model._scales.is_plain else model._scales
                track = Track.from_state(state["track"], scales)
                # With other targets, scores begin afresh.
                if track.targets == self.plan.targets:
                    self.results.track = track
        except FeedError:
            # Not the feed of that run.
            raise
        except MISFITS as error:
            raise FileFormatError(f"the run in this store does not fit this version ({error})") from error

    # ------------------------------------------------------------------ read

    def run(self, limit: int | None = None, on_row: Callable[[Run], None] | None = None) -> None:
        """Take the rows of the feed until it ends, ``limit`` rows have been taken, or `stop` is called.

        At the end of the feed, or at the limit, the newest row of each key is forecast, whatever ``every`` of the plan.
        Ends with a commit, also if a bad row ends it. Someone may still be writing a last line without newline: its row
        is predicted and learnt, but is not part of the commit. ``on_row`` is called now and then; without keys, at
        every row.
        """
        self._began, self._n_before = time.monotonic(), self.n_rows
        # More threads wait for each other: on a busy machine a row took ten times as long.
        with threadpool_limits(1, "blas"), ExitStack() as stack:
            if self._n_workers is not None:
                self._takers = stack.enter_context(Workers(self.learner, self._n_workers))
            self._run(limit, on_row or _ignore)

    def _run(self, limit: int | None, on_row: Callable[[Run], None]) -> None:
        self.commits.mark(self.last, self.feed.position)
        if self.fleet.store is not None:
            # Before the first row: the store then names the files that are written from here on.
            self.commit()
        # Whether the feed has given an event that is not in the block yet.
        is_ahead = False
        try:
            for event in self._events(limit):
                if event is None:
                    self._take_block(on_row)
                    has_paused = time.monotonic() - self._came >= self._idle_seconds
                    seconds = self.commits.seconds
                    self._commit_if_due(min(self._idle_seconds, seconds) if has_paused else seconds)
                    continue
                self._came = time.monotonic()
                is_ahead = True
                self._commit_before_unfinished(event, on_row)
                self._add(event)
                is_ahead = False
                if self._is_full:
                    self._take_block(on_row)
                    if self.cut_off is None:
                        self._commit_if_due(self.commits.seconds)
            self._take_block(on_row)
            if not self._stopping:
                self._forecast_newest()
        except FeedError:
            # Not if the feed is ahead of the rows that were taken: those since the last commit come again.
            if not is_ahead and self.cut_off is None:
                self._take_block(on_row)
                self.commit()
            raise
        if self.cut_off is None:
            self.commit()
        self.commits.flush()

    def _events(self, limit: int | None) -> Iterator[Event]:
        events, left = self.feed.events(), limit
        while not self._stopping and (left is None or left > 0):
            event = next(events, _END)
            if event is _END:
                return
            if left is not None and isinstance(event, Row) and self.keys.takes(event.key):
                left -= 1
            yield event

    def _commit_before_unfinished(self, event: Row | Rejected, on_row: Callable[[Run], None]) -> None:
        """Commit the events before one whose line may still be incomplete."""
        before = None if self.fleet.store is None else self.feed.unfinished(event)
        if before is not None:
            self._take_block(on_row)
            self.commit(before)
            self.cut_off = event

    def _add(self, event: Row | Rejected) -> None:
        if self.keys.takes_event(event):
            if not self._block:
                self._block_since = time.monotonic()
            self._block.append(event)
        self.last = event
        self.commits.count()

    @property
    def _is_full(self) -> bool:
        """Whether the block in hand is to be taken now."""
        if self._row_by_row or self.cut_off is not None or self.commits.has_enough_rows:
            return True
        if self._most_rows is not None and len(self._block) >= self._most_rows:
            return True
        return bool(self._block) and time.monotonic() - self._block_since > self._most_wait

    def stop(self) -> None:
        """End the run after the rows in hand; may be called by a signal handler."""
        self._stopping = True

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    # ------------------------------------------------------------------ predict, learn, score, write

    def _take_block(self, on_row: Callable[[Run], None]) -> None:
        """Predict and learn the rows in hand, key by key, and write the results, in the order of the rows."""
        block, self._block = self._block, []
        began = time.monotonic()
        rejected = [event for event in block if isinstance(event, Rejected)]
        lines: list[OutputLine] = []
        n_left = len(block)
        for outcome in self._takers.take(_by_key(block).items()):
            lines += outcome.lines
            rejected += outcome.rejected
            self.n_rows += outcome.n_learnt
            n_left -= outcome.n_rows
            if self._may_abandon(n_left):
                self.is_abandoned = True
                return
            if not self._row_by_row:
                on_row(self)
        self.channels.write(lines)
        for row in sorted(rejected):
            self._reject(row)
        if self._most_rows is not None and block:
            # Half of the time between two commits, so that none is late by more than that.
            seconds = (time.monotonic() - began) / len(block)
            self._most_rows = max(1, int(0.5 * self.commits.seconds / max(seconds, 1e-9)))
        if self._row_by_row and block:
            self.commits.mark(self.last, self.feed.position)
            on_row(self)

    def _may_abandon(self, n_left: int) -> bool:
        """Whether to leave a block where it is and stop: its rows come again from the last commit."""
        return self._stopping and n_left > STOP_ROWS and self.fleet.store is not None and self.feed.is_replayable

    def _forecast_newest(self) -> None:
        """Forecast after the newest rows that were not due; a run that resumes scores the same forecasts as without."""
        rows = sorted(self.learner.not_forecast.values(), key=lambda row: row.number)
        self.learner.not_forecast = {}
        self.channels.write([line for outcome in self._takers.forecast(rows) for line in outcome.lines])

    def _reject(self, row: Rejected) -> None:
        """Stop at a bad row, or count it and write a dead letter."""
        message = rejection(self.feed.name, row)
        if self.bad_rows == "stop":
            raise FeedError(message)
        self.n_bad += 1
        letter = DeadLetter(self.commits.name, row.offset, row.key, row.reason, row.text)
        self.channels.reject(letter, in_store=self.fleet.store is not None)
        if self.on_bad is not None:
            self.on_bad(message)

    # ------------------------------------------------------------------ commit

    def _commit_if_due(self, seconds: float) -> None:
        if self.commits.is_under_way:
            self.commits.advance(PART_SECONDS)
        elif not self.commits.is_due(seconds):
            self.commits.keep_up()
        elif not self._may_commit_in_parts:
            self.commit()
        elif not self.is_abandoned:
            self.commits.begin(*self._up_to_here())

    def commit(self, before: dict[str, Any] | None = None) -> None:
        """Bring what was written to the disk, then commit models, position, predictions, alarms and rejected rows.

        ``before`` is the position to commit if the feed is ahead of the rows that were taken. Nothing is committed once
        a block has not been taken to its end: the feed is then after rows that no model has learnt.
        """
        if not self.is_abandoned:
            if isinstance(self._takers, Workers):
                self._takers.give_back()
            self.commits.commit(*self._up_to_here(before))

    @property
    def _may_commit_in_parts(self) -> bool:
        """Whether a commit may be written between the next rows."""
        is_here = self._takers is self.learner and not self.fleet.is_short_of_memory
        return is_here and self._is_live and not self._row_by_row and self.fleet.store is not None

    def _up_to_here(self, before: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Mark the rows so far; the number of rejected ones and further state, for a commit."""
        if not self._row_by_row:
            self.commits.mark(self.last, before or self.feed.position)
        if self.watcher is not None:
            self.watcher.commit()
        track = None if self.track is None or self.fleet.store is None else self.track.state()
        more = {
            "n_rows": self.n_rows, "track": track, "lookout": self.learner.lookout.state(),
            "not_forecast": [_row_state(row) for row in self.learner.not_forecast.values()],
        }  # fmt: skip
        return self.n_bad, more

    def written(self, table: str) -> Written | None:
        """How far the file of a channel had been written at the last commit; None for no file."""
        return self.commits.files.get(table)

    # ------------------------------------------------------------------ results

    predictions = _of_channels("predictions")
    alarms = _of_channels("alarms")
    dead = _of_channels("dead")
    lines = _of_channels("lines")

    @property
    def results(self) -> Results:
        """Scores, newest rows and newest prediction."""
        return self.learner.results

    @property
    def watcher(self) -> Watcher | None:
        """Is told about rows and commits as they happen; to be set before `run`."""
        return self.learner.watcher

    @watcher.setter
    def watcher(self, watcher: Watcher | None) -> None:
        self.learner.watcher = watcher

    @property
    def position(self) -> Position | None:
        """The commit from which this run resumed; None for a first run."""
        return self.commits.resumed

    @property
    def track(self) -> Track | None:
        """Scores so far; None for a feed with keys."""
        return self.results.track

    @property
    def predicted(self) -> PredictedValues | None:
        """The newest prediction."""
        return self.results.predicted

    @property
    def recent(self) -> deque[Row]:
        """The newest rows."""
        return self.results.recent

    @property
    def history(self) -> pd.DataFrame:
        """Targets of the newest rows, by time if rows have one."""
        return self.results.history

    @property
    def rows_per_second(self) -> float:
        """Rows learnt since `run` was called, over the time since then."""
        return (self.n_rows - self._n_before) / max(time.monotonic() - self._began, 1e-9)

    @property
    def model(self) -> Any:
        """The model of a feed without keys."""
        return self.learner.model

    def forecast(self) -> Forecast | None:
        """The forecast after the newest row of a feed without keys; None without a horizon, or before it has rows."""
        return forecast_after(self.fleet, self.plan, ONLY)


_END: Any = object()


def _row_state(row: Row) -> list[Any]:
    """Position, time and key of a row as plain data."""
    time = row.time.isoformat() if isinstance(row.time, datetime) else row.time
    return [row.number, row.offset, time, row.key]


def _row_from_state(state: list[Any]) -> Row:
    number, offset, time, key = state
    return Row(number, offset, datetime.fromisoformat(time) if isinstance(time, str) else time, {}, key)


def _by_key(block: list[Row | Rejected]) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for event in block:
        if isinstance(event, Row):
            groups.setdefault(event.key, []).append(event)
    return groups


def _ignore(run: Run) -> None:
    """Do nothing: without a callback, no progress is shown."""
