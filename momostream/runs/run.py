"""Runs over a feed: predict, then learn, with commits that a run goes on from exactly.

A run takes what its feed has, groups it by key, and hands the rows of each key to its model; predictions go out in the
order of the rows. A commit is one transaction of the fleet's store: all models that have changed, the place in the
feed, the predictions, alarms and refused rows since the last one, and how far files have been written. Whatever ends a
run, the next one begins at the last commit, cuts files back to it, and continues as if nothing had happened.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from momostream.distributions.values import PredictedValues
from momostream.feeds import Event, FeedError, Rejected, Row, Source, rejection
from momostream.feeds.brokers import Outlet
from momostream.feeds.outputs import PredictionLines, Sink, Written, alarm_texts
from momostream.runs.fleet import Fleet
from momostream.runs.plan import Plan, Step, shares, take_rows
from momostream.runs.scores import Track
from momostream.storage.container import FileFormatError
from momostream.storage.store import DeadLetter, Output, Position, Store

if TYPE_CHECKING:
    import pandas as pd

    from momostream.distributions.forecast import Forecast

__all__ = ["ONLY", "Channel", "Run", "in_share", "letter_text", "source_name"]

#: Key of the model of a feed without keys.
ONLY = "model"
# Rows that are kept to be drawn in front of the last forecast.
N_RECENT = 240
# Others may look at a file that is being written.
FLUSH_SECONDS = 2.0
# Rows from one commit to the next: so many for each key, which pays for writing its model, within these bounds.
ROWS_PER_KEY, COMMIT_ROWS = 200, (5000, 100_000)
# Of a live feed: seconds that a row waits for others at most, and after which a commit is made when nothing comes.
MOST_WAIT, IDLE_SECONDS = 0.5, 1.0
# From one attempt to send to a broker to the next.
DELIVER_SECONDS = 1.0
# Lines that are sent to a broker at once.
N_SENT = 5000
# Rows of a block that are still taken when a run is to stop; with more, it goes on from the last commit.
STOP_ROWS = 2000
# Distributions whose intervals are found together.
N_TOGETHER = 128


class Channel:
    """Texts on their way out: predictions, alarms or refused rows.

    Parameters
    ----------
    table
        Of the store: one of `momostream.storage.store.LINES`.
    place
        A `Sink` is written to at once and cut back when a run goes on; an outlet of `momostream.feeds.brokers` gets
        what has been committed, until it says that it has it; None: the store keeps them.
    """

    def __init__(self, table: str, place: Sink | Outlet | None = None) -> None:
        self.table = table
        self.sink = place if isinstance(place, Sink) else None
        self.outlet = None if isinstance(place, Sink) else place
        self.waiting: list[Output] = []

    def add(self, key: Any, offset: int, text: str) -> None:
        """Take in a text."""
        if self.sink is not None:
            self.sink.write(text)
        else:
            self.waiting.append(Output(key, offset, text))

    def deliver(self, store: Store) -> bool:
        """Send what has been committed; whether something has arrived, which the next commit forgets."""
        arrived = False
        while self.outlet is not None:
            lines = list(islice(self._lines(store), N_SENT))
            last = self.outlet.send(lines) if lines else 0
            if not last:
                break
            store.forget(self.table, last)
            arrived = True
            if last < lines[-1][0]:
                break
        return arrived

    def _lines(self, store: Store) -> Iterator[tuple[int, Any, str]]:
        if self.table == "dead":
            return ((number, letter.key, letter_text(letter)) for number, letter in store.dead())
        found = store.outputs() if self.table == "outputs" else store.alarms()
        return ((number, output.key, output.text) for number, output in found)


def letter_text(letter: DeadLetter) -> str:
    """A refused row of a store as a JSON object."""
    return json.dumps(letter._asdict(), ensure_ascii=False)


def source_name(feed: Source) -> str:
    """Under which name the place of a feed is kept: files and brokers may move, so folder and host are no part of it.

    Examples
    --------
    >>> from types import SimpleNamespace as Named
    >>> source_name(Named(name="data/farm.csv")), source_name(Named(name="mqtt://localhost:1883/farm/+/rows"))
    ('farm.csv', 'mqtt:farm/+/rows')
    """
    scheme, mark, rest = feed.name.partition("://")
    return f"{scheme}:{rest.partition('/')[2]}" if mark else Path(feed.name).name


def in_share(key: Any, share: tuple[int, int]) -> bool:
    """Whether a key falls to this part of so many: the same everywhere and at all times.

    Examples
    --------
    >>> [sum(in_share(f"T{n}", (part, 3)) for n in range(300)) for part in (1, 2, 3)]
    [98, 104, 98]
    """
    part, parts = share
    return zlib.crc32(repr(key).encode()) % parts == part - 1


class Run:
    """Predict, then learn, over the rows of a feed.

    Parameters
    ----------
    feed
        Where rows come from. If the fleet's store knows its place, it is moved there.
    fleet
        Models by key: `momostream.MOMoGPForecaster` if the plan has a horizon, else `momostream.MOMoGPRegressor`. A
        feed without keys has one model, under the key `ONLY`. With a store, everything is committed to it.
    plan
        What is predicted from what.
    alarm_level
        Probability of the interval that a value must leave to be an alarm.
    commit_every
        Rows from one commit to the next. None: 200 for each key, at least 5,000 and at most 100,000.
    commit_seconds
        Seconds after which a commit is made, at the end of the block in hand.
    bad_rows
        ``"stop"`` at a row that cannot be read or learnt, or ``"skip"`` it.
    on_bad
        Called with the message of every row that is skipped.
    learn_only
        Do not predict.
    share
        ``(part, parts)``: only take the keys that fall to this part of so many, each of which has a store of its own.
    only
        Only take these keys.

    Attributes
    ----------
    predictions, alarms, dead : Channel or None
        Where they go; to be set before `run`. Without, they are not made; refused rows are in the store in any case.
    n_rows, n_bad : int
        Rows learnt, rows refused.
    track : Track or None
        Scores so far; None where there are keys.
    outlook : PredictedValues or None
        The newest prediction.
    """

    def __init__(
        self,
        feed: Source,
        fleet: Fleet,
        plan: Plan,
        *,
        alarm_level: float = 0.999,
        commit_every: int | None = None,
        commit_seconds: float = 10.0,
        bad_rows: str = "stop",
        on_bad: Callable[[str], object] | None = None,
        learn_only: bool = False,
        share: tuple[int, int] | None = None,
        only: Collection[Any] | None = None,
    ) -> None:
        if not 0.0 < alarm_level < 1.0:
            raise ValueError(f"alarm_level={alarm_level} is not accepted: use a number between 0 and 1")
        self.feed, self.fleet, self.plan = feed, fleet, plan
        self.alarm_level, self.commit_every, self.commit_seconds = alarm_level, commit_every, commit_seconds
        self.bad_rows, self.on_bad, self.learn_only, self.share, self.only = bad_rows, on_bad, learn_only, share, only
        self.name = source_name(feed)
        self.predictions: Channel | None = None
        self.alarms: Channel | None = None
        self.dead: Channel | None = None
        # Formats predictions, if they are asked for as text.
        self.lines: PredictionLines | None = None
        self.n_rows = self.n_bad = 0
        self.last: Row | Rejected | None = None
        # Whether the last block was not taken to its end, because the run was to stop.
        self.is_abandoned = False
        # Whether the feed has given an event that was not taken in yet.
        self._is_ahead = False
        # A row that is not in the last commit, because its line may go on.
        self.cut_off: Row | Rejected | None = None
        self.outlook: PredictedValues | None = None
        self.track = None if plan.key is not None else Track(plan.targets, plan.horizon or 1, plan.level)
        self.recent: deque[Row] = deque(maxlen=N_RECENT)
        self._block: list[Row | Rejected] = []
        self._block_since = 0.0
        self._letters: list[DeadLetter] = []
        self._files: dict[str, Written | None] = {}
        # The last row that was taken, and where the feed stood behind it, for those who stop at a bad row.
        self._behind: tuple[Row | Rejected | None, dict[str, Any]] = None, {}
        # Scores are kept row by row, and who stops at a bad row must not have learnt those behind it.
        self._row_by_row = self.track is not None or bad_rows == "stop"
        self._is_live = getattr(feed, "is_live", True)
        self._stopping = False
        self._n_taken = self._n_committed = 0
        self._began, self._n_before = time.monotonic(), 0
        self._committed_at = self._flushed_at = self._delivered_at = time.monotonic()
        self.place = None if fleet.store is None else fleet.store.source(self.name)
        if self.place is not None:
            self._go_on(self.place)

    def _go_on(self, place: Position) -> None:
        try:
            state = place.more
            self.feed.seek(state["feed"])
            self.n_rows, self.n_bad = state["n_rows"], place.n_bad
            self._files = {name: None if file is None else Written(*file) for name, file in state["files"].items()}
            if self.track is not None:
                model = self.fleet.peek(ONLY)
                bounds = None if model is None or model._map.is_plain else model._map
                self.track = Track.from_state(state["track"], bounds)
        except (KeyError, TypeError) as error:
            raise FileFormatError(f"the run in this store does not fit this version ({error})") from error

    def written(self, table: str) -> Written | None:
        """How far the file of a channel had been written when the store was committed last; None for no file."""
        return self._files.get(table)

    # ------------------------------------------------------------------ rows

    def run(self, limit: int | None = None, on_row: Callable[[Run], None] | None = None) -> None:
        """Take the rows of the feed until it ends, ``limit`` rows have been taken, or `stop` is called.

        Ends with a commit, also where a bad row ends it. A last line without its newline may still be in the making:
        its row is predicted and learnt, but is not part of the commit. ``on_row`` is called now and then, at every row
        where there are no keys.
        """
        self._began, self._n_before = time.monotonic(), self.n_rows
        # More threads wait for each other: on a busy machine a row took ten times as long.
        with threadpool_limits(1, "blas"):
            self._run(limit, on_row or _nothing)

    def _run(self, limit: int | None, on_row: Callable[[Run], None]) -> None:
        self._begin()
        try:
            for event in self._events(limit):
                if event is None:
                    self._take_block(on_row)
                    self._commit_if_due(IDLE_SECONDS)
                    continue
                self._is_ahead = True
                before = None if self.fleet.store is None else self.feed.unfinished(event)
                if before is not None:
                    self._take_block(on_row)
                    self.commit(before)
                    self.cut_off = event
                self._add(event)
                self._is_ahead = False
                if self._is_full:
                    self._take_block(on_row)
                    if self.cut_off is None:
                        self._commit_if_due(self.commit_seconds)
            self._take_block(on_row)
        except FeedError:
            # Not where the feed is ahead of what was taken: rows since the last commit come again.
            if not self._is_ahead and self.cut_off is None:
                self._take_block(on_row)
                self.commit()
            raise
        if self.cut_off is None:
            self.commit()
        self._flush()

    def _begin(self) -> None:
        """Say where the feed stands before the first row, and which files are written from there on."""
        self._behind = None, self.feed.position
        if self.fleet.store is not None:
            self.commit(self._behind[1])

    def _events(self, limit: int | None) -> Iterator[Event]:
        events, left = self.feed.events(), limit
        while not self._stopping and (left is None or left > 0):
            event = next(events, _END)
            if event is _END:
                return
            if left is not None and isinstance(event, Row) and self._is_ours(event.key):
                left -= 1
            yield event

    def _is_ours(self, key: Any) -> bool:
        if self.only is not None and key not in self.only:
            return False
        return self.share is None or (key is not None and in_share(key, self.share))

    def _add(self, event: Row | Rejected) -> None:
        # A row whose key cannot be told falls to the first part.
        if self._is_ours(event.key) or (event.key is None and self.share is not None and self.share[0] == 1):
            if not self._block:
                self._block_since = time.monotonic()
            self._block.append(event)
        self.last = event
        self._n_taken += 1

    @property
    def _is_full(self) -> bool:
        if self._row_by_row or self.cut_off is not None:
            return True
        if self._n_taken - self._n_committed >= self._commit_rows:
            return True
        most = MOST_WAIT if self._is_live else self.commit_seconds
        return bool(self._block) and time.monotonic() - self._block_since > most

    @property
    def _commit_rows(self) -> int:
        if self.commit_every is not None:
            return self.commit_every
        least, most = COMMIT_ROWS
        return max(least, min(ROWS_PER_KEY * len(self.fleet), most))

    def stop(self) -> None:
        """End the run after the rows in hand; may be called by a signal handler."""
        self._stopping = True

    @property
    def rows_per_second(self) -> float:
        """Rows learnt since `run` was called, over the time since then."""
        return (self.n_rows - self._n_before) / max(time.monotonic() - self._began, 1e-9)

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    # ------------------------------------------------------------------ a block of rows

    def _take_block(self, on_row: Callable[[Run], None]) -> None:
        """Hand rows to their models, key by key, and send out what becomes of them, in the order of the rows."""
        block, self._block = self._block, []
        refused = [event for event in block if isinstance(event, Rejected)]
        groups: dict[Any, list[Row]] = {}
        for event in block:
            if isinstance(event, Row):
                groups.setdefault(event.key, []).append(event)
        out: list[tuple[int, Channel, Any, int, str]] = []
        steps: list[Step] = []
        watch = self.alarms is not None
        n_left = len(block)
        for key, rows in groups.items():
            if self._stopping and n_left > STOP_ROWS and self.fleet.store is not None and self.feed.is_replayable:
                self.is_abandoned = True
                return
            n_left -= len(rows)
            for step in take_rows(self.fleet, self.plan, _member(key), rows, self.learn_only, watch):
                if step.reason is not None:
                    refused.append(Rejected(step.row.number, step.row.offset, key, step.reason, step.row.text()))
                    continue
                steps.append(step)
                self.n_rows += 1
            if len(steps) >= N_TOGETHER:
                out += self._texts(steps)
                steps = []
            if not self._row_by_row:
                on_row(self)
        out += self._texts(steps)
        out.sort(key=lambda line: line[0])
        for _, channel, key, offset, text in out:
            channel.add(key, offset, text)
        for row in sorted(refused):
            self._refuse(row)
        if self._row_by_row and block:
            self._behind = self.last, self.feed.position
            on_row(self)

    def _texts(self, steps: list[Step]) -> list[tuple[int, Channel, Any, int, str]]:
        """What goes out of these steps; scores are kept along the way."""
        out: list[tuple[int, Channel, Any, int, str]] = []
        targets = self.plan.targets
        outlooks = iter(
            PredictedValues.many([s.prediction for s in steps if s.prediction is not None], targets, self.plan.level)
        )
        if self.alarms is not None:
            watched = [step for step in steps if step.expected is not None]
            predictions = [step.expected for step in watched if step.expected is not None]
            for step, expected in zip(
                watched, PredictedValues.many(predictions, targets, self.alarm_level), strict=True
            ):
                for text in alarm_texts(step.row, expected, targets, self.alarm_level):
                    out.append((step.row.number, self.alarms, _member(step.row.key), step.row.offset, text))
        for step in steps:
            outlook = None if step.prediction is None else next(outlooks)
            if self.track is not None and not self.learn_only:
                self._score(step.row, outlook)
            if outlook is not None:
                self.outlook = outlook
                if self.predictions is not None and self.lines is not None:
                    text = self.lines.text(step.row, outlook)
                    out.append((step.row.number, self.predictions, _member(step.row.key), step.row.offset, text))
            self.recent.append(step.row)
        return out

    def _score(self, row: Row, outlook: PredictedValues | None) -> None:
        assert self.track is not None
        _, y = self.plan.split(row)
        # The distribution of a row is about that row, a forecast about those that follow.
        if outlook is not None and self.plan.horizon is None:
            self.track.expect(outlook)
        if self.track.observe(row.number, y, row.time):
            self.track.note(shares(self.model))
        if outlook is not None and self.plan.horizon is not None:
            self.track.expect(outlook)

    def _refuse(self, refused: Rejected) -> None:
        message = rejection(self.feed.name, refused)
        if self.bad_rows == "stop":
            raise FeedError(message)
        self.n_bad += 1
        letter = DeadLetter(self.name, refused.offset, refused.key, refused.reason, refused.text)
        if self.fleet.store is not None:
            self._letters.append(letter)
        if self.dead is not None and self.dead.sink is not None:
            self.dead.sink.write(letter_text(letter))
        if self.on_bad is not None:
            self.on_bad(message)

    # ------------------------------------------------------------------ commits

    @property
    def _channels(self) -> list[Channel]:
        return [channel for channel in (self.predictions, self.alarms, self.dead) if channel is not None]

    def _commit_if_due(self, seconds: float) -> None:
        now, rows = time.monotonic(), self._n_taken - self._n_committed
        if rows >= self._commit_rows or (rows and now - self._committed_at > seconds):
            self.commit()
        elif not rows and now - self._delivered_at > DELIVER_SECONDS:
            # What a broker did not take is tried again, also when no row comes. Not with rows in hand: models that have
            # left memory since the last commit must not get into the store without the place of the feed.
            self._deliver()
        elif now - self._flushed_at > FLUSH_SECONDS:
            self._flush()

    def _flush(self) -> None:
        for channel in self._channels:
            if channel.sink is not None:
                channel.sink.flush()
        self._flushed_at = time.monotonic()

    def commit(self, before: dict[str, Any] | None = None) -> None:
        """Bring what was written to the disk, then commit models, place, predictions, alarms and refused rows.

        ``before`` is the place of the feed, if that is ahead of the rows that were taken. Nothing is committed once a
        block has not been taken to its end: the place is behind rows that nobody has learnt.
        """
        if self.is_abandoned:
            return
        # Files that are not written any more are not continued later, as if nothing had come in between.
        sinks = {channel.table: channel.sink for channel in self._channels if channel.sink is not None}
        self._files = {table: sink.commit() for table, sink in sinks.items()}
        place = self._position(before)
        if self.fleet.store is not None:
            lines = {channel.table: channel.waiting for channel in self._channels}
            self.fleet.commit(place, lines.get("outputs", ()), self._letters, lines.get("alarms", ()))
            for channel in self._channels:
                channel.waiting.clear()
            self._letters.clear()
        self.feed.acknowledge()
        self._deliver()
        self._n_committed, self._committed_at = self._n_taken, time.monotonic()
        self._flushed_at = self._committed_at

    def _deliver(self) -> None:
        """Send what waits for brokers, and forget what has arrived."""
        store = self.fleet.store
        if store is not None and any([channel.deliver(store) for channel in self._channels]):
            store.commit()
        self._delivered_at = time.monotonic()

    def _position(self, before: dict[str, Any] | None) -> Position:
        last, place = self._behind if self._row_by_row else (self.last, before or self.feed.position)
        more = {
            "feed": place, "n_rows": self.n_rows,
            "files": {name: None if file is None else list(file) for name, file in self._files.items()},
            "track": None if self.track is None else self.track.state(),
            "format": None if self.lines is None else self.lines.format,
        }  # fmt: skip
        if last is None:
            # No row has come yet in this run.
            offset, number = (0, 0) if self.place is None else (self.place.offset, self.place.number)
        else:
            offset, number = last.offset, last.number
        return Position(self.name, offset, number, self.n_bad, more)

    # ------------------------------------------------------------------ what has become of it

    @property
    def model(self) -> Any:
        """The model of a feed without keys."""
        found = self.fleet.peek(ONLY)
        return self.fleet.template if found is None else found

    def forecast(self) -> Forecast | None:
        """The forecast behind the newest row of a feed without keys; None without a horizon, or before it has rows."""
        if self.plan.horizon is None:
            return None
        return self.fleet.forecast(ONLY, self.plan.horizon, with_dist=True) or None

    @property
    def history(self) -> pd.DataFrame:
        """Targets of the newest rows, by time where rows have one."""
        import pandas as pd

        rows = list(self.recent)
        frame = pd.DataFrame([row.values for row in rows], columns=list(self.plan.targets), dtype=float)
        timed = self.plan.time is not None
        return frame.set_axis(pd.Index([row.time if timed else row.number for row in rows]))


_END: Any = object()


def _member(key: Any) -> Any:
    return ONLY if key is None else key


def _nothing(run: Run) -> None:
    """Where nobody watches."""
