"""Runs over a feed: predict, then learn, row by row, with checkpoints that a run goes on from exactly."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from momostream import persistence
from momostream.container import FileFormatError
from momostream.feeds import FeedError, Row
from momostream.online import MOMoGPRegressor
from momostream.sinks import Sink, Written
from momostream.tracking import Outlook, Track

if TYPE_CHECKING:
    import pandas as pd

    from momostream.forecast import Forecast
    from momostream.forecasting import MOMoGPForecaster

__all__ = ["Checkpoint", "Plan", "Run", "Source", "Stopped", "make_model", "shares"]

# Rows that are kept to be drawn in front of the last forecast.
N_RECENT = 240
# Others may look at a file that is being written.
FLUSH_SECONDS = 2.0


@dataclass(frozen=True)
class Plan:
    """What a run does with each row.

    Parameters
    ----------
    targets
        Columns to predict.
    inputs
        Columns that are known when the targets are not.
    time
        Column of the timestamp; None where there is none.
    horizon
        Rows to forecast; None predicts the targets of a row from its own inputs.
    level
        Probability of the intervals.
    every
        Rows from one forecast to the next.
    """

    targets: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    time: str | None = None
    horizon: int | None = None
    level: float = 0.9
    every: int = 1

    def __post_init__(self) -> None:
        if not self.targets:
            raise ValueError("there is no target to predict")
        if self.horizon is None and not self.inputs:
            raise ValueError(
                "there is no input to predict the targets from: name other columns, or a horizon to forecast them"
            )
        for kind, names in (("target", self.targets), ("input", self.inputs)):
            twice = [name for name in names if names.count(name) > 1]
            if twice:
                raise ValueError(f"column {twice[0]!r} is named twice as {kind}")
        both = sorted({*self.targets} & {*self.inputs})
        if both:
            raise ValueError(f"column {both[0]!r} is named as target and as input")
        if self.time in {*self.targets, *self.inputs}:
            raise ValueError(f"column {self.time!r} is the time: it cannot be a target or an input as well")
        for name, value in (("horizon", self.horizon), ("every", self.every)):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} is not accepted: use a whole number of at least 1")
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level={self.level} is not accepted: use a number between 0 and 1")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of numbers that are read."""
        return (*self.targets, *self.inputs)


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stood when its model was saved.

    Parameters
    ----------
    plan
        What it did with each row.
    before
        Byte and number behind which the last row comes.
    last
        That row: number, byte behind it, time, values.
    n_rows, n_bad
        Rows learnt, and bad ones before the last.
    replayable
        Whether the feed can be read again.
    written, format
        How far the output was written, and its format; None where it was no file.
    track
        Scores.
    """

    plan: Plan
    before: tuple[int, int]
    last: tuple[int, int, str | float | None, dict[str, float]]
    n_rows: int
    n_bad: int
    replayable: bool
    written: Written | None
    format: str | None
    track: Mapping[str, Any]

    @property
    def number(self) -> int:
        """Of the last row."""
        return self.last[0]

    def to_plain(self) -> dict[str, Any]:
        """As data of a saved model."""
        written = None if self.written is None else tuple(self.written)
        return {**vars(self), "plan": asdict(self.plan), "written": written, "track": dict(self.track)}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Checkpoint:
        """From the data of a saved model."""
        try:
            written = None if data["written"] is None else Written(*data["written"])
            return cls(**{**data, "plan": Plan(**data["plan"]), "written": written})
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"the run in this file does not fit this version ({error})") from error


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """A run was asked to stop while it waited for a row."""


def make_model(plan: Plan, settings: Mapping[str, Any] | None = None) -> MOMoGPRegressor | MOMoGPForecaster:
    """A fresh model for a plan; ``settings`` are further parameters of `MOMoGPForecaster` or `MOMoGPRegressor`."""
    given = {"seed": 0, **(settings or {})}
    for name in ("horizon", "time", "clock"):
        if name in given:
            raise ValueError(f"{name} is part of the plan, and not a setting of the model")
    for name in ("bounds", "transforms"):
        limits = given.get(name)
        unknown = [key for key in limits if key not in plan.targets] if isinstance(limits, dict) else []
        if unknown:
            raise ValueError(f"{name} are given for {unknown[0]!r}, which is no target")
    try:
        if plan.horizon is None:
            return MOMoGPRegressor(**({"clock": plan.time or True} | given))
        # Here and not above: river.time_series takes 2 s to import.
        from momostream.forecasting import MOMoGPForecaster

        return MOMoGPForecaster(**({"horizon": plan.horizon, "time": plan.time} | given))
    except (AttributeError, TypeError) as error:
        raise ValueError(f"the model does not accept these settings: {error}") from error


def shares(model: MOMoGPRegressor | MOMoGPForecaster) -> dict[str, float]:
    """What counts in a model now: its inputs, or the experts of a forecaster."""
    found = model.relevance if isinstance(model, MOMoGPRegressor) else model.weights.mean(axis=1).to_dict()
    return {str(name): share for name, share in found.items()}


class Source(Protocol):
    """Where rows come from; `momostream.feeds.Feed` is one."""

    n_bad: int

    def __iter__(self) -> Iterator[Row]:
        """Rows in order."""

    def seek(self, offset: int, number: int) -> None:
        """Go on behind this row."""

    @property
    def is_replayable(self) -> bool:
        """Whether rows can be read again; if not, those that come are taken as the next ones."""

    def is_cut_off(self, row: Row) -> bool:
        """Whether someone may still be writing this row."""

    def count_from(self, number: int) -> None:
        """Number the rows that come behind this one."""

    def reject(self, number: int, reason: str) -> None:
        """Count a row that could not be learnt, or raise."""


class Run:
    """Predict, then learn, over the rows of a feed.

    Parameters
    ----------
    feed
        Where rows come from.
    model
        A `MOMoGPForecaster` if the plan has a horizon, else a `MOMoGPRegressor`.
    plan
        What is predicted from what.
    sink
        Where predictions go; None only learns and keeps scores.
    save
        File of the model and of where the run stands; None keeps nothing.
    commit_every
        Rows from one checkpoint to the next.
    commit_seconds
        Seconds after which a checkpoint is made in any case.
    learn_only
        Do not predict.
    checkpoint
        Go on from here: the feed is moved there.

    Attributes
    ----------
    n_rows : int
        Rows learnt.
    track : Track
        Scores so far.
    outlook : Outlook or None
        The newest prediction.
    """

    def __init__(
        self,
        feed: Source,
        model: MOMoGPRegressor | MOMoGPForecaster,
        plan: Plan,
        sink: Sink | None = None,
        *,
        save: str | Path | None = None,
        commit_every: int = 5000,
        commit_seconds: float = 60.0,
        learn_only: bool = False,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.feed, self.model, self.plan, self.sink, self.save = feed, model, plan, sink, save
        self.commit_every, self.commit_seconds, self.learn_only = commit_every, commit_seconds, learn_only
        self.n_rows, self.n_committed = 0, 0
        self.last: Row | None = None
        # A row that is not in the checkpoint, because its line may go on.
        self.cut_off: Row | None = None
        self._before, self._n_bad = (0, 0), 0
        self.outlook: Outlook | None = None
        self.track = Track(plan.targets, plan.horizon or 1, plan.level)
        self.recent: deque[Row] = deque(maxlen=N_RECENT)
        self._stopping = self._waiting = False
        self._began, self._n_before = time.monotonic(), 0
        self._committed_at = self._flushed_at = time.monotonic()
        if checkpoint is not None:
            self._go_on(checkpoint)

    def _go_on(self, checkpoint: Checkpoint) -> None:
        self.n_rows = self.n_committed = checkpoint.n_rows
        bounds = self.model._map
        self.track = Track.from_state(checkpoint.track, None if bounds.is_plain else bounds)
        self._before, self._n_bad = checkpoint.before, checkpoint.n_bad
        number, offset, _, values = checkpoint.last
        if self.feed.is_replayable:
            if not checkpoint.replayable:
                raise ValueError("the run so far read a pipe: its rows cannot be found again in a file")
            self.feed.seek(*checkpoint.before)
            row = next(iter(self.feed), None)
            if row is None or _plain_row(row) != checkpoint.last:
                raise ValueError(f"this is not the feed that was read before: row {number} is another one")
        else:
            self.feed.count_from(number)
            row = Row(number, offset, None, values)
        self.last, self.feed.n_bad = row, checkpoint.n_bad

    # ------------------------------------------------------------------ rows

    def run(self, limit: int | None = None, on_row: Callable[[Run], None] | None = None) -> None:
        """Take the rows of the feed until it ends, ``limit`` rows have been taken, or `stop` is called.

        Ends with a checkpoint, also where a bad row ends it. A last line without its newline may still be in the
        making: its row is predicted and learnt, but is not part of the checkpoint. ``on_row`` is called after each row.
        """
        self._began, self._n_before = time.monotonic(), self.n_rows
        try:
            for row in self._rows(limit):
                if self.save is not None and not self.learn_only and self.feed.is_cut_off(row):
                    self.commit()
                    self.cut_off = row
                self._take(row)
                if on_row is not None:
                    on_row(self)
                if self.cut_off is None:
                    self._commit_if_due()
        except FeedError:
            self.commit()
            raise
        if self.cut_off is None:
            self.commit()
        elif self.sink is not None:
            self.sink.flush()

    def _rows(self, limit: int | None) -> Iterator[Row]:
        rows, most = iter(self.feed), None if limit is None else self.n_rows + limit
        while not self._stopping and (most is None or self.n_rows < most):
            self._waiting = True
            try:
                row = next(rows, None)
            except Stopped:
                return
            finally:
                self._waiting = False
            if row is None:
                return
            yield row

    def stop(self) -> None:
        """End the run after the row in hand; may be called by a signal handler.

        Raises
        ------
        Stopped
            Into the wait for a row, if that is what the run does.
        """
        self._stopping = True
        if self._waiting:
            raise Stopped

    @property
    def rows_per_second(self) -> float:
        """Rows learnt since `run` was called, over the time since then."""
        return (self.n_rows - self._n_before) / max(time.monotonic() - self._began, 1e-9)

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    def _take(self, row: Row) -> None:
        x, y = self._split(row)
        try:
            law = self._learn(x, y)
        except (TypeError, ValueError) as error:
            # The model counts rows too, from 0 and without bad ones.
            self.feed.reject(row.number, re.sub(r"^row \d+: ", "", str(error)))
            return
        if self.plan.horizon is None and law:
            self._publish(row, law)
        if not self.learn_only and self.track.observe(row.number, y, row.time):
            self.track.note(shares(self.model))
        if self.plan.horizon is not None and self._is_asked:
            law = self.model.forecast(self.plan.horizon, with_dist=True)  # type: ignore[union-attr]
            if law:
                self._publish(row, law)
        if self.last is not None:
            self._before = self.last.offset, self.last.number
        self.n_rows += 1
        self.last, self._n_bad = row, self.feed.n_bad
        self.recent.append(row)

    @property
    def _is_asked(self) -> bool:
        return not (self.learn_only or self.n_rows % self.plan.every)

    def _learn(self, x: dict[str, Any], y: dict[str, Any]) -> Any:
        """Learn a row; what a regressor said about it before, if it was asked."""
        model: Any = self.model
        if self.plan.horizon is not None:
            model.learn_one(y, x)
            return None
        law = model.predict_one(x, with_dist=True) if self._is_asked else None
        model.learn_one(x, y)
        return law

    def _split(self, row: Row) -> tuple[dict[str, Any], dict[str, Any]]:
        values = row.values
        x: dict[str, Any] = {name: values[name] for name in self.plan.inputs if name in values}
        if self.plan.time is not None:
            x[self.plan.time] = row.time
        return x, {name: values[name] for name in self.plan.targets if name in values}

    def _publish(self, row: Row, law: Any) -> None:
        self.outlook = Outlook.of(law, self.plan.targets, self.plan.level)
        self.track.expect(self.outlook)
        if self.sink is not None:
            self.sink.write(row.number, row.time, self.outlook)

    # ------------------------------------------------------------------ checkpoints

    def _commit_if_due(self) -> None:
        now = time.monotonic()
        overdue = self.save is not None and now - self._committed_at > self.commit_seconds
        if overdue or self.n_rows - self.n_committed >= self.commit_every:
            self.commit()
        elif self.sink is not None and now - self._flushed_at > FLUSH_SECONDS:
            self.sink.flush()
            self._flushed_at = now

    def commit(self) -> None:
        """Bring what was written to the disk, then save the model with where the run stands."""
        written = None if self.sink is None else self.sink.commit()
        if self.save is not None and self.last is not None:
            format = None if self.sink is None or written is None else self.sink.format
            checkpoint = Checkpoint(
                self.plan, self._before, _plain_row(self.last), self.n_rows, self._n_bad, self.feed.is_replayable,
                written, format, self.track.state(),
            )  # fmt: skip
            persistence.save(self.model, self.save, checkpoint.to_plain())
        self.n_committed, self._committed_at = self.n_rows, time.monotonic()
        self._flushed_at = self._committed_at

    def forecast(self) -> Forecast | None:
        """The forecast behind the newest row; None without a horizon, or where nothing has been learnt."""
        if self.plan.horizon is None:
            return None
        return self.model.forecast(self.plan.horizon, with_dist=True) or None  # type: ignore[union-attr]

    @property
    def history(self) -> pd.DataFrame:
        """Targets of the newest rows, by time where rows have one."""
        import pandas as pd

        rows = list(self.recent)
        frame = pd.DataFrame([row.values for row in rows], columns=list(self.plan.targets), dtype=float)
        timed = self.plan.time is not None
        return frame.set_axis(pd.Index([row.time if timed else row.number for row in rows]))


def _plain_row(row: Row) -> tuple[int, int, str | float | None, dict[str, float]]:
    time = row.time.isoformat() if isinstance(row.time, datetime) else row.time
    return row.number, row.offset, time, dict(row.values)
