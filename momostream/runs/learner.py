"""`Learner`: rows of some keys become predictions, learnt models and lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from momostream.distributions.predicted import PredictedValues
from momostream.estimators.monitor import MOMoGPMonitor
from momostream.feeds.formats import Rejected, Row
from momostream.runs.channels import ONLY, Channels, OutputLine, model_key
from momostream.runs.fleet import Fleet
from momostream.runs.lookout import Lookout
from momostream.runs.plan import Plan, Step, forecast_after, take_rows
from momostream.runs.results import Results

__all__ = ["Groups", "Learner", "Outcome", "Watcher"]

#: Rows by key.
Groups = Iterable[tuple[Any, list[Row]]]
# Distributions whose intervals are found together.
N_TOGETHER = 128


class Outcome(NamedTuple):
    """The outcome of some rows: how many there were, how many were learnt, the lines that they write, rejected ones."""

    n_rows: int
    n_learnt: int
    lines: list[OutputLine]
    rejected: list[Rejected]


class Watcher(Protocol):
    """What a run tells about its rows as they happen."""

    def steps(self, steps: Sequence[tuple[Step, PredictedValues | None]], alarms: Sequence[OutputLine]) -> None:
        """These rows were predicted and learnt, and gave these alarms; they are not committed yet."""

    def commit(self) -> None:
        """A commit of all rows so far begins."""


class Learner:
    """Predicts and learns rows key by key, scores them, and makes the lines that they write.

    Parameters
    ----------
    fleet, plan, channels
        Of the run.
    monitor
        Copies of it watch the rows of each key; None: nothing does.
    lookout
        Watches forecasts.
    learn_only
        Do not predict.
    on_alarm
        Called with the text of each event when it begins and when it has ended.

    Attributes
    ----------
    results : Results
        Scores, newest rows and newest prediction.
    not_forecast : dict
        The newest rows by key, as far as they have no forecast.
    watcher : Watcher or None
        Is told about rows as they happen.
    """

    def __init__(
        self,
        fleet: Fleet,
        plan: Plan,
        channels: Channels,
        monitor: MOMoGPMonitor | None,
        lookout: Lookout,
        learn_only: bool,
        on_alarm: Callable[[str], object] | None,
    ) -> None:
        self.fleet, self.plan, self.channels = fleet, plan, channels
        self.monitor, self.lookout = monitor, lookout
        self.learn_only, self.on_alarm = learn_only, on_alarm
        self.results = Results(plan)
        self.not_forecast: dict[Any, Row] = {}
        self.watcher: Watcher | None = None

    @property
    def model(self) -> Any:
        """The model of a feed without keys."""
        found = self.fleet.peek(ONLY)
        return self.fleet.template if found is None else found

    def take(self, groups: Groups) -> Iterator[Outcome]:
        """Predict and learn rows, key by key; lines come with the rows of a later key, or at the end."""
        steps: list[Step] = []
        for key, rows in groups:
            rejected: list[Rejected] = []
            learnt = self._learn(key, rows, rejected)
            steps += learnt
            lines: list[OutputLine] = []
            if len(steps) >= N_TOGETHER:
                lines, steps = self._finish(steps), []
            yield Outcome(len(rows), len(learnt), lines, rejected)
        yield Outcome(0, 0, self._finish(steps), [])

    def _learn(self, key: Any, rows: list[Row], rejected: list[Rejected]) -> list[Step]:
        """Predict, then learn, rows of one key; rows that cannot be learnt are added to ``rejected``."""
        learnt = []
        is_watched = self.channels.alarms is not None
        monitor, lookout = self.monitor if is_watched else None, self.lookout if self.lookout.rules else None
        watch = is_watched and monitor is None and lookout is None
        for step in take_rows(self.fleet, self.plan, model_key(key), rows, self.learn_only, watch, monitor, lookout):
            if step.reason is None:
                learnt.append(step)
                self._report_events(step)
            else:
                rejected.append(Rejected(step.row.number, step.row.offset, key, step.reason, step.row.text()))
        return learnt

    def _report_events(self, step: Step) -> None:
        if self.on_alarm is not None:
            name = "" if step.row.key is None else f" {step.row.key}"
            for event, begins in step.news():
                self.on_alarm(f"{'alarm' if begins else 'alarm ended'}{name}: {event}")

    def _finish(self, steps: list[Step]) -> list[OutputLine]:
        """Score these steps; the lines that they write."""
        predictions = [step.prediction for step in steps if step.prediction is not None]
        found = iter(PredictedValues.many(predictions, self.plan.targets, self.plan.level))
        alarms = self.channels.alarm_lines(steps)
        self.results.note_alarms([line.text for line in alarms])
        lines = list(alarms)
        watched: list[tuple[Step, PredictedValues | None]] = []
        for step in steps:
            predicted = None if step.prediction is None else next(found)
            if not self.learn_only and self.results.score(step.row, predicted):
                self.results.note(self.model)
            if predicted is not None:
                lines += self.channels.prediction_lines(step.row, predicted)
            self.results.keep(step.row, predicted)
            if predicted is not None:
                self.not_forecast.pop(step.row.key, None)
            elif self.plan.horizon is not None and not self.learn_only:
                self.not_forecast[step.row.key] = step.row
            watched.append((step, predicted))
        if self.watcher is not None:
            self.watcher.steps(watched, alarms)
        return lines

    def forecast(self, rows: Iterable[Row]) -> Iterator[Outcome]:
        """Forecast after rows, each the newest of its key."""
        for row in rows:
            forecast = forecast_after(self.fleet, self.plan, model_key(row.key))
            if forecast is not None:
                self.results.predicted = PredictedValues.of(forecast, self.plan.targets, self.plan.level)
                yield Outcome(0, 0, self.channels.prediction_lines(row, self.results.predicted), [])
