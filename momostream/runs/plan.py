"""What is done with the rows of a feed, one model at a time: predict, then learn.

`take_rows` is the one place where this happens. Runs on one machine and on a cluster both call it, so that the same
rows of a key give the same forecasts everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from momostream.estimators.regressor import MOMoGPRegressor
from momostream.feeds.rows import Row

if TYPE_CHECKING:
    from momostream.distributions.forecast import Forecast
    from momostream.distributions.prediction import Prediction
    from momostream.estimators.forecaster import MOMoGPForecaster

__all__ = ["Members", "Plan", "Step", "make_model", "shares", "take_rows"]

# A model that knows nothing yet is surprised by everything: rows before there is anything to watch.
WATCH_ROWS = 32


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
        Rows from one prediction to the next; rows without any target, which there is nothing to learn from, are
        always predicted from their inputs.
    key
        Column that tells which model a row is for; None where all rows are for one. Rows of one key must come in the
        order of their times: behind a broker or on a cluster, one that is not later than the last has come twice.
    """

    targets: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    time: str | None = None
    horizon: int | None = None
    level: float = 0.9
    every: int = 1
    key: str | None = None

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
        for name, what in ((self.time, "time"), (self.key, "key")):
            if name in {*self.targets, *self.inputs}:
                raise ValueError(f"column {name!r} is the {what}: it cannot be a target or an input as well")
        if self.key is not None and self.key == self.time:
            raise ValueError(f"column {self.key!r} is named as key and as time")
        for name, value in (("horizon", self.horizon), ("every", self.every)):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} is not accepted: use a whole number of at least 1")
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level={self.level} is not accepted: use a number between 0 and 1")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of numbers that are read."""
        return (*self.targets, *self.inputs)

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
            raise ValueError(f"{name} are given for {unknown[0]!r}, which is no target")
    try:
        if plan.horizon is None:
            return MOMoGPRegressor(**({"clock": plan.time or True} | given))
        # Here and not above: river.time_series takes 2 s to import.
        from momostream.estimators.forecaster import MOMoGPForecaster

        return MOMoGPForecaster(**({"horizon": plan.horizon, "time": plan.time} | given))
    except (AttributeError, TypeError) as error:
        raise ValueError(f"the model does not accept these settings: {error}") from error


def shares(model: MOMoGPRegressor | MOMoGPForecaster) -> dict[str, float]:
    """What counts in a model now: its inputs, or the experts of a forecaster."""
    found = model.relevance if isinstance(model, MOMoGPRegressor) else model.weights.mean(axis=1).to_dict()
    return {str(name): share for name, share in found.items()}


class Members(Protocol):
    """Models by key; `momostream.runs.fleet.Fleet` is one."""

    def learn_one(self, key: Any, x: Mapping[Any, Any] | None, y: Any) -> None:
        """Learn one row."""

    def predict_one(self, key: Any, x: Mapping[Any, Any], with_dist: bool = False) -> Any:
        """Predict the targets of one row."""

    def forecast(self, key: Any, horizon: int, xs: None = None, with_dist: bool = False) -> Any:
        """Forecast the next rows."""

    def peek(self, key: Any) -> Any:
        """The model of a key; None where there is none yet."""


class Step(NamedTuple):
    """What became of a row: a distribution, None where none was asked for, or the reason why the row was refused."""

    row: Row
    prediction: Prediction | Forecast | None
    reason: str | None = None
    # What was expected of this row before it was looked at, where that was asked for.
    expected: Prediction | Forecast | None = None


def take_rows(
    members: Members, plan: Plan, key: Any, rows: Iterable[Row], learn_only: bool = False, watch: bool = False
) -> list[Step]:
    """Predict, then learn, rows of one key in order; with a horizon learn, then forecast.

    With ``watch`` every step also has what was expected of its row. A row that cannot be learnt leaves its model as it
    was, and becomes a step with the reason.

    Examples
    --------
    >>> from datetime import datetime
    >>> from momostream.runs.fleet import Fleet
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
    steps = []
    for row in rows:
        x, y = plan.split(row)
        try:
            prediction, expected = _take(members, plan, key, row, x, y, learn_only, watch)
        except (TypeError, ValueError) as error:
            # The model counts rows too, from 0 and without bad ones.
            steps.append(Step(row, None, re.sub(r"^row \d+: ", "", str(error))))
        else:
            steps.append(Step(row, prediction or None, None, expected or None))
    return steps


def _take(
    members: Members,
    plan: Plan,
    key: Any,
    row: Row,
    x: dict[str, Any],
    y: dict[str, Any],
    learn_only: bool,
    watch: bool,
) -> tuple[Any, Any]:
    """The distribution that was asked for, and what was expected of the row."""
    model = members.peek(key)
    watch = watch and model is not None and model.n_rows >= WATCH_ROWS
    # A forecaster refuses such a row itself.
    if plan.key is not None and isinstance(model, MOMoGPRegressor) and model.is_late(row.time):
        raise ValueError(f"the time {row.time} is not after that of the row before")
    n_rows = 0 if model is None else model.n_rows
    asked = not learn_only and (n_rows % plan.every == 0 or (plan.horizon is None and not y))
    if plan.horizon is None:
        prediction = members.predict_one(key, x, with_dist=True) if asked or watch else None
        members.learn_one(key, x, y)
        return prediction if asked else None, prediction if watch else None
    # Behind a gap, a forecast of one step is about another row.
    expects = watch and model.is_next(row.time)
    expected = members.forecast(key, 1, with_dist=True) if expects else None
    members.learn_one(key, x, y)
    return members.forecast(key, plan.horizon, with_dist=True) if asked else None, expected
