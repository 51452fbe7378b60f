"""`Plan` and `take_rows`: what is predicted from what, and how the rows of one model are predicted and learnt.

All rows go through `take_rows`. Runs on one machine and on a cluster both call it, so that the same rows of a key give
the same forecasts everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from momostream.estimators.regressor import MOMoGPRegressor
from momostream.feeds.formats import Row
from momostream.horizon.calendar import NUMBER, as_time
from momostream.horizon.durations import parse_duration
from momostream.runs.fleet import Fleet

if TYPE_CHECKING:
    from momostream.distributions.forecast import Forecast
    from momostream.distributions.prediction import Prediction
    from momostream.estimators.forecaster import MOMoGPForecaster
    from momostream.estimators.monitor import FaultEvent, MOMoGPMonitor
    from momostream.runs.lookout import ForecastAlarm, Lookout

__all__ = [
    "Plan", "Step", "forecast_after", "last_time", "make_model", "relevance_of", "shares", "take_rows", "weights_of",
]  # fmt: skip

# Every value is unexpected to a model that knows nothing yet: rows to learn before alarms.
WATCH_ROWS = 32


@dataclass(frozen=True)
class Plan:
    """The columns of a run, and how often and how far it predicts.

    Parameters
    ----------
    targets
        Columns to predict.
    inputs
        Columns that are known when the targets are not.
    time
        Column of the timestamp; None if there is none.
    horizon
        Rows to forecast, or a span such as ``"6h"``, which needs times that are dates; None predicts the targets of a
        row from its own inputs.
    level
        Probability of the intervals.
    every
        Rows from one prediction to the next, or a span: ``"1h"`` predicts at the first row of each hour. Rows without
        any target, from which there is nothing to learn, are always predicted from their inputs.
    key
        Column that names the model of a row; None if all rows are for one model. Rows of one key must come in the order
        of their times: from a broker or on a cluster, a row that is not later than the last one has come twice.
    """

    targets: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    time: str | None = None
    horizon: int | str | None = None
    level: float = 0.9
    every: int | str = 1
    key: str | None = None

    def __post_init__(self) -> None:
        if not self.targets:
            raise ValueError("there is no target to predict")
        if self.horizon is None and not self.inputs:
            raise ValueError(
                "there is no input to predict the targets from: name other columns, or a horizon to forecast them"
            )
        self._check_names()
        for name, value in (("horizon", self.horizon), ("every", self.every)):
            if isinstance(value, str):
                parse_duration(value)
                if self.time is None:
                    raise ValueError(
                        f"{name}={value!r} is a span of time, and rows have no times: use a number of rows"
                    )
            elif value is not None and value < 1:
                raise ValueError(f"{name}={value} is not accepted: use a whole number of at least 1")
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level={self.level} is not accepted: use a number between 0 and 1")

    def _check_names(self) -> None:
        """Each column has one role."""
        for kind, names in (("target", self.targets), ("input", self.inputs)):
            twice = [name for name in names if names.count(name) > 1]
            if twice:
                raise ValueError(f"column {twice[0]!r} is named twice as {kind}")
        both = sorted({*self.targets} & {*self.inputs})
        if both:
            raise ValueError(f"column {both[0]!r} is named as target and as input")
        for name, what in ((self.time, "time"), (self.key, "key")):
            if name in {*self.targets, *self.inputs}:
                raise ValueError(f"column {name!r} is the {what}: it cannot be a target or an input as well")
        if self.key is not None and self.key == self.time:
            raise ValueError(f"column {self.key!r} is named as key and as time")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of numbers that are read."""
        return (*self.targets, *self.inputs)

    def is_due(self, model: Any, row: Row) -> bool:
        """Whether a row gets a prediction; ``model`` has not learnt it yet, and is None if there is none."""
        n_rows = 0 if model is None else model.n_rows
        if not isinstance(self.every, str):
            return bool(n_rows % self.every == 0)
        found = as_time(self.time or "time", row.time)
        if found is None or not n_rows:
            return True
        if found[1] == NUMBER:
            raise ValueError(f"every={self.every!r} is a span of time, and times are numbers: use a number of rows")
        # Full hours of the clock, so that a run that resumes predicts at the same rows.
        span = parse_duration(self.every)
        return bool(found[0] // span != _last_time(model) // span)

    def split(self, row: Row) -> tuple[dict[str, Any], dict[str, Any]]:
        """Inputs with the time, and targets, of a row."""
        values = row.values
        x: dict[str, Any] = {name: values[name] for name in self.inputs if name in values}
        if self.time is not None:
            x[self.time] = row.time
        return x, {name: values[name] for name in self.targets if name in values}


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
            raise ValueError(f"{name} are given for {unknown[0]!r}, which is not a target")
    try:
        if plan.horizon is None:
            return MOMoGPRegressor(**({"clock": plan.time or True} | given))
        # Here and not above: river.time_series takes 2 s to import.
        from momostream.estimators.forecaster import MOMoGPForecaster

        return MOMoGPForecaster(**({"horizon": plan.horizon, "time": plan.time} | given))
    except (AttributeError, TypeError) as error:
        raise ValueError(f"the model does not accept these settings: {error}") from error


def last_time(model: Any) -> float | None:
    """Time of the last row that a model learnt, in microseconds; None if it has none, or its times are not dates."""
    if isinstance(model, MOMoGPRegressor):
        return 1e6 * model._time if isinstance(model.clock, str) else None
    return model._clock.last if model._clock.kind not in (None, NUMBER) else None


def _last_time(model: MOMoGPRegressor | MOMoGPForecaster) -> float:
    """Time of the last row that a model learnt, in microseconds."""
    return model._time * 1e6 if isinstance(model, MOMoGPRegressor) else model._clock.last


def shares(model: MOMoGPRegressor | MOMoGPForecaster) -> dict[str, float]:
    """Current shares in a model: the relevance of its inputs, or the weights of a forecaster's experts."""
    return relevance_of(model) if isinstance(model, MOMoGPRegressor) else weights_of(model)


def relevance_of(model: MOMoGPRegressor | MOMoGPForecaster) -> dict[str, float]:
    """Share of each input, or of each feature that a forecaster's circuits see, in distinguishing rows now."""
    return {str(name): share for name, share in model.relevance.items()}


def weights_of(model: MOMoGPRegressor | MOMoGPForecaster) -> dict[str, float]:
    """Weight of each expert now: the mean over targets, and over the steps of a forecaster."""
    if isinstance(model, MOMoGPRegressor):
        return {name: sum(each.values()) / len(each) for name, each in model.expert_weights.items() if each}
    core = model._model
    # Without a frame: a page asks for this every few rows of each machine.
    return {} if core is None else dict(zip(core.expert_names, core.weights.mean(axis=(1, 2)).tolist(), strict=True))


class Step(NamedTuple):
    """The outcome of a row: a distribution, None if none was asked for, or the reason why the row was rejected."""

    row: Row
    prediction: Prediction | Forecast | None
    reason: str | None = None
    # The distribution of the row before it was seen, for alarms.
    expected: Prediction | Forecast | None = None
    # The event that the row belongs to or ends, and whether it begins with this row.
    event: FaultEvent | None = None
    begins: bool = False
    # Alarms about rows to come that last or end with this row's forecast.
    ahead: tuple[ForecastAlarm, ...] = ()

    def news(self) -> Iterator[tuple[FaultEvent | ForecastAlarm, bool]]:
        """Events and alarms that begin or end with this row, and whether they begin."""
        if self.event is not None and (self.begins or not self.event.is_open):
            yield self.event, self.begins
        for alarm in self.ahead:
            begins = alarm.is_open and alarm.begin == self.row.number
            if begins or not alarm.is_open:
                yield alarm, begins


def take_rows(
    fleet: Fleet,
    plan: Plan,
    key: Any,
    rows: Iterable[Row],
    learn_only: bool = False,
    watch: bool = False,
    monitor: MOMoGPMonitor | None = None,
    lookout: Lookout | None = None,
) -> list[Step]:
    """Predict, then learn, rows of one key in order; with a horizon learn, then forecast.

    With ``watch``, a step also has the distribution of its row before the row was seen. With a ``monitor``, a copy of
    it watches the rows of this key, and a step has the event that its row belongs to or ends. With a ``lookout``, a
    step has the alarms about rows to come. A row that cannot be learnt leaves its model as it was, and its step has
    the reason.

    Examples
    --------
    >>> from datetime import datetime
    >>> plan = Plan(("power",), ("wind",), "time", key="turbine")
    >>> fleet = Fleet(make_model(plan))
    >>> rows = [Row(n, n, datetime(2024, 3, 1, n), {"wind": 5.0 + n, "power": 50.0 * n}, "T01") for n in (1, 2, 2, 3)]
    >>> for step in take_rows(fleet, plan, "T01", rows):
    ...     print(step.row.number, step.prediction and sorted(step.prediction.mean), step.reason)
    1 None None
    2 ['power'] None
    2 None the time 2024-03-01 02:00:00 is not after that of the row before
    3 ['power'] None
    """
    take = _predict_then_learn if plan.horizon is None else _learn_then_forecast
    steps = []
    for row in rows:
        try:
            prediction, expected = take(fleet, plan, key, row, learn_only, watch)
        except (TypeError, ValueError) as error:
            # The model counts rows too, from 0 and without bad ones.
            steps.append(Step(row, None, re.sub(r"^row \d+: ", "", str(error))))
        else:
            event, begins = (None, False) if monitor is None else _watch_row(fleet, plan, key, row, monitor)
            ahead = () if lookout is None or not prediction else _look_ahead(fleet, key, row, prediction, lookout)
            steps.append(Step(row, prediction or None, None, expected or None, event, begins, ahead))
    return steps


def _watch_row(fleet: Fleet, plan: Plan, key: Any, row: Row, template: MOMoGPMonitor) -> tuple[FaultEvent | None, bool]:
    """Let the monitor of a key see a row: the event that it belongs to or ends, and whether it begins it."""
    monitor = fleet.monitor(key, template)
    values: dict[str, Any] = {name: row.values[name] for name in plan.columns if name in row.values}
    if plan.time is not None:
        # Without keys, rows out of order are learnt as they come; they follow no row that a monitor knows.
        if monitor.is_late(row.time):
            return None, False
        values[plan.time] = row.time
    before, n_before = monitor.event, monitor.n_events
    monitor.learn_one(values)
    event = monitor.event
    if event is None and before is not None:
        event = monitor.events[-1]
    return event, monitor.n_events > n_before


def _look_ahead(fleet: Fleet, key: Any, row: Row, forecast: Forecast, lookout: Lookout) -> tuple[ForecastAlarm, ...]:
    """Alarms about the rows to come, once the model of a key has learnt enough rows."""
    return lookout.look(key, row, forecast) if fleet.model(key).n_rows > WATCH_ROWS else ()


def _predict_then_learn(fleet: Fleet, plan: Plan, key: Any, row: Row, learn_only: bool, watch: bool) -> tuple[Any, Any]:
    """Predict a row from its inputs, then learn it; the prediction if it was asked for, and for alarms."""
    x, y = plan.split(row)
    model = fleet.peek(key)
    # Without keys, rows out of order are learnt as they come.
    if plan.key is not None and isinstance(model, MOMoGPRegressor) and model.is_late(row.time):
        raise ValueError(f"the time {row.time} is not after that of the row before")
    n_rows = 0 if model is None else model.n_rows
    watch = watch and n_rows >= WATCH_ROWS
    asked = not learn_only and (plan.is_due(model, row) or not y)
    prediction = None
    if asked or watch:
        # The model that was just found, if there is one.
        known = isinstance(model, MOMoGPRegressor)
        prediction = model.predict_one(x, with_dist=True) if known else fleet.predict_one(key, x, with_dist=True)
    fleet.learn_one(key, x, y)
    return prediction if asked else None, prediction if watch else None


def _learn_then_forecast(
    fleet: Fleet, plan: Plan, key: Any, row: Row, learn_only: bool, watch: bool
) -> tuple[Any, Any]:
    """Learn a row, then forecast those after it; the forecast if it was asked for, and that of this row for alarms.

    A row whose time is not after the last one is rejected by the forecaster itself.
    """
    assert plan.horizon is not None
    x, y = plan.split(row)
    model = fleet.peek(key)
    n_rows = 0 if model is None else model.n_rows
    # After a gap, a forecast of one step is about another row.
    watch = watch and n_rows >= WATCH_ROWS and model.is_next(row.time)
    expected = fleet.forecast(key, 1, with_dist=True) if watch else None
    is_due = not learn_only and plan.is_due(model, row)
    fleet.learn_one(key, x, y)
    return forecast_after(fleet, plan, key) if is_due else None, expected


def forecast_after(fleet: Fleet, plan: Plan, key: Any) -> Forecast | None:
    """The forecast of the rows after the last one of a key; None if a span cannot be counted in steps yet."""
    model = fleet.peek(key)
    if plan.horizon is None or (isinstance(plan.horizon, str) and (model is None or model.n_steps is None)):
        return None
    return fleet.forecast(key, plan.horizon, with_dist=True) or None
