"""Processes that share the keys of a run: `Workers`.

The run reads the feed and writes lines and commits; a worker predicts and learns the rows of its keys
(`momostream.runs.learner`). Each key belongs to one worker. The store stays with the run: it sends a model along with
rows of its key where the worker does not have it, and gets it back, taken apart, for each commit and when it leaves the
memory of the worker. So all is written as by one process, and a run may resume with another number of workers.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from threadpoolctl import threadpool_limits

from momostream.feeds.formats import Rejected, Row
from momostream.runs.channels import Channel, Channels, OutputLine, model_key
from momostream.runs.fleet import Fleet
from momostream.runs.learner import Groups, Learner, Outcome
from momostream.runs.lookout import Lookout
from momostream.storage.blocks import Parts

if TYPE_CHECKING:
    from momostream.estimators.monitor import MOMoGPMonitor
    from momostream.feeds.outputs import PredictionLines
    from momostream.runs.plan import Plan
    from momostream.storage.keys import Key

__all__ = ["Workers"]

# Rows that are sent at once, at least, unless there are no more: sending must cost little beside learning.
ROWS_AT_ONCE = 400
# Seconds until a worker that was asked to end is ended.
END_SECONDS = 5.0

# The blocks of models by key, as `Fleet.lend` gives them.
_Lent = dict[Any, dict[int, bytes]]


class _Setting(NamedTuple):
    """What a worker needs to know of the run."""

    template: Any
    memory: int
    has_store: bool
    plan: Plan
    alarm_level: float
    has_predictions: bool
    has_alarms: bool
    lines: PredictionLines | None
    monitor: MOMoGPMonitor | None
    learn_only: bool


class _Task(NamedTuple):
    """Rows by key, each with the models that the worker does not have; to be learnt, or to be forecast after."""

    groups: list[tuple[Any, list[Row], _Lent]]
    is_forecast: bool


class _Reply(NamedTuple):
    """The outcome of a task."""

    n_rows: int
    n_learnt: int
    # Of each line the number, table, key, offset and text.
    lines: list[tuple[int, str, Any, int, str]]
    rejected: list[Rejected]
    events: list[str]
    # Of each key the newest row, if it has no forecast.
    not_forecast: dict[Any, Row | None]
    # Models that came into memory, that left it, and those of them that had changed.
    came: frozenset[Key]
    gone: frozenset[Key]
    left: dict[Key, Parts]


# ---------------------------------------------------------------------- in the process of the run


class _Worker:
    """A worker as the run sees it."""

    def __init__(self, setting: _Setting) -> None:
        # A fresh interpreter: a copy of this one would have its threads' locks.
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, setting), daemon=True)
        self.process.start()
        theirs.close()
        # Keys of its models, and tasks that wait.
        self.held: set[Key] = set()
        self.tasks: deque[list[tuple[Any, list[Row]]]] = deque()

    def receive(self) -> Any:
        """What it says next; its error is raised here."""
        try:
            said = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise RuntimeError(f"a worker has ended unexpectedly (exit {self.process.exitcode})") from None
        if isinstance(said, BaseException):
            raise said
        return said

    def end(self) -> None:
        """Let it end, or end it."""
        self.connection.close()
        self.process.join(END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class Workers:
    """Processes that do what `learner` would do.

    Parameters
    ----------
    learner
        Of the run; its channels are open.
    n_workers
        How many processes. They share the memory of the run's fleet.
    """

    def __init__(self, learner: Learner, n_workers: int) -> None:
        if isinstance(n_workers, bool) or not isinstance(n_workers, int) or n_workers < 1:
            raise ValueError(f"workers={n_workers!r} is not accepted: use a whole number of at least 1")
        if learner.watcher is not None or learner.lookout.rules or learner.fleet.warm_start:
            raise ValueError(
                "workers cannot be combined with a page, a report, alarms about rows to come or warm starts"
            )
        self._learner = learner
        fleet, channels = learner.fleet, learner.channels
        self._channels = {channel.table: channel for channel in channels}
        setting = _Setting(
            fleet.template, fleet.memory_budget // n_workers, fleet.store is not None, learner.plan,
            channels.alarm_level, channels.predictions is not None, channels.alarms is not None, channels.lines,
            learner.monitor, learner.learn_only,
        )  # fmt: skip
        self._workers = [_Worker(setting) for _ in range(n_workers)]
        self._owner: dict[Any, _Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()

    def take(self, groups: Groups) -> Iterator[Outcome]:
        """Predict and learn rows, as `Learner.take` does."""
        return self._share(groups, False)

    def forecast(self, rows: Iterable[Row]) -> Iterator[Outcome]:
        """Forecast after rows, as `Learner.forecast` does."""
        return self._share([(row.key, [row]) for row in rows], True)

    def give_back(self) -> None:
        """Take back all models that have changed, as part of the next commit."""
        if self._learner.fleet.store is None:
            return
        for worker in self._workers:
            worker.connection.send(None)
        for worker in self._workers:
            while (found := worker.receive()) is not None:
                self._learner.fleet.take_back(*found)

    def _share(self, groups: Groups, is_forecast: bool) -> Iterator[Outcome]:
        for key, rows in groups:
            self._add(self._owner_of(key).tasks, key, rows)
        busy: dict[Any, _Worker] = {}
        for worker in self._workers:
            self._send_next(worker, is_forecast, busy)
        while busy:
            for connection in wait(list(busy)):
                worker = busy.pop(connection)
                reply = worker.receive()
                # Before the next task, which may be about models that have left.
                self._note(worker, reply)
                self._send_next(worker, is_forecast, busy)
                yield self._outcome(reply)

    def _owner_of(self, key: Any) -> _Worker:
        owner = self._owner.get(key)
        if owner is None:
            owner = self._owner[key] = self._workers[len(self._owner) % len(self._workers)]
        return owner

    @staticmethod
    def _add(tasks: deque[list[tuple[Any, list[Row]]]], key: Any, rows: list[Row]) -> None:
        """Put rows of a key into the last task, unless it is large enough."""
        if not tasks or sum(len(others) for _, others in tasks[-1]) >= ROWS_AT_ONCE:
            tasks.append([])
        tasks[-1].append((key, rows))

    def _send_next(self, worker: _Worker, is_forecast: bool, busy: dict[Any, _Worker]) -> None:
        if worker.tasks:
            fleet = self._learner.fleet
            groups = []
            for key, rows in worker.tasks.popleft():
                name = model_key(key)
                groups.append((key, rows, {} if name in worker.held else fleet.lend(name)))
            worker.connection.send(_Task(groups, is_forecast))
            busy[worker.connection] = worker

    def _note(self, worker: _Worker, reply: _Reply) -> None:
        """Keep what a worker says about its models."""
        fleet = self._learner.fleet
        worker.held = (worker.held | reply.came) - reply.gone
        fleet.know(reply.came | reply.left.keys())
        for key, parts in reply.left.items():
            fleet.take_back(key, parts)

    def _outcome(self, reply: _Reply) -> Outcome:
        for key, row in reply.not_forecast.items():
            if row is None:
                self._learner.not_forecast.pop(key, None)
            else:
                self._learner.not_forecast[key] = row
        if self._learner.on_alarm is not None:
            for text in reply.events:
                self._learner.on_alarm(text)
        lines = [OutputLine(number, self._channels[table], *rest) for number, table, *rest in reply.lines]
        return Outcome(reply.n_rows, reply.n_learnt, lines, reply.rejected)


# ---------------------------------------------------------------------- in the process of a worker


class _Away:
    """Stands in for the store, which is with the run: models that were sent, and those that have left memory."""

    path = "the store of the run"
    notes: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.sent: _Lent = {}
        self.left: dict[Key, Parts] = {}

    def keys(self, side: bool = False) -> list[Key]:
        """None so far."""
        return []

    def load(self, key: Key) -> Any:
        """The model of a key, which was sent, or has left a moment ago."""
        return self.left.pop(key).model() if key in self.left else Parts.join(self.sent.pop(key))

    def put(self, key: Key, model: Any) -> None:
        """Let a model leave."""
        self.left[key] = Parts.of(model)

    def close(self) -> None:
        """Nothing is open."""


def _work(connection: Connection, setting: _Setting) -> None:
    """Do tasks until the run closes the connection."""
    # Ctrl-C is for the run, which takes the rows in hand to their end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    desk = _Desk(setting)
    # The connection ends when the run closes it, or has been killed.
    with threadpool_limits(1, "blas"), suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            task = connection.recv()
            try:
                for said in desk.changed() if task is None else [desk.do(task)]:
                    connection.send(said)
            except Exception as error:
                # It is raised in the run.
                connection.send(error)


class _Desk:
    """A learner with models of its own, for one task after the other."""

    def __init__(self, setting: _Setting) -> None:
        self._away = _Away() if setting.has_store else None
        store: Any = self._away
        self._fleet = Fleet(setting.template, store=store, memory_budget=setting.memory)
        channels = Channels(setting.plan, setting.alarm_level)
        channels.predictions = Channel("outputs") if setting.has_predictions else None
        channels.alarms = Channel("alarms") if setting.has_alarms else None
        channels.lines = setting.lines
        self._events: list[str] = []
        self._learner = Learner(
            self._fleet, setting.plan, channels, setting.monitor, Lookout((), setting.plan, 0.5), setting.learn_only,
            self._events.append,
        )  # fmt: skip

    def do(self, task: _Task) -> _Reply:
        """Learn rows, or forecast after them."""
        before = self._fleet.loaded
        groups = self._with_models(task.groups)
        if task.is_forecast:
            outcomes = list(self._learner.forecast(row for _, rows in groups for row in rows))
        else:
            outcomes = list(self._learner.take(groups))
        lines = [line._replace(channel=line.channel.table) for outcome in outcomes for line in outcome.lines]  # type: ignore[arg-type]
        events, self._events[:] = list(self._events), []
        after, waiting = self._fleet.loaded, self._learner.not_forecast
        return _Reply(
            sum(outcome.n_rows for outcome in outcomes), sum(outcome.n_learnt for outcome in outcomes),
            [tuple(line) for line in lines], [row for outcome in outcomes for row in outcome.rejected], events,
            {key: waiting.get(key) for key, _, _ in task.groups}, after - before, before - after, self._taken_left(),
        )  # fmt: skip

    def changed(self) -> Iterator[tuple[Key, Parts] | None]:
        """All models that have changed since this was called last, and None at the end."""
        yield from self._fleet.changed()
        yield None

    def _with_models(self, groups: Iterable[tuple[Any, list[Row], _Lent]]) -> Iterator[tuple[Any, list[Row]]]:
        for key, rows, models in groups:
            if self._away is not None:
                # One by one: all at once might need more memory than there is.
                self._away.sent = models
                self._fleet.know(models)
            yield key, rows

    def _taken_left(self) -> dict[Key, Parts]:
        if self._away is None:
            return {}
        left, self._away.left = self._away.left, {}
        return left
