"""Alarms about rows to come: conditions on forecasts, such as ``"power < 200 within 6h"``.

A `Lookout` asks each forecast for the probability that a condition is met in any of its next steps. Where that reaches
a level, an alarm begins; it ends when the probability has fallen to half of that level, so that one that hovers around
the level is one alarm and not many.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from momostream.distributions.events import read_condition
from momostream.estimators.vocabulary import Vocabulary
from momostream.feeds.formats import Row
from momostream.feeds.outputs import time_text
from momostream.horizon.durations import n_steps_of, parse_duration

if TYPE_CHECKING:
    from momostream.distributions.forecast import Forecast
    from momostream.runs.plan import Plan

__all__ = ["ForecastAlarm", "ForecastRule", "Lookout"]

# An alarm ends when the probability is at most this share of the level at which it begins.
END_SHARE = 0.5
_WITHIN = re.compile(r"(?P<condition>.+)\s+within\s+(?P<span>.+?)\s*", re.IGNORECASE)
_COUNT = re.compile(r"(\d+)(?:\s*(?:rows?|steps?))?", re.IGNORECASE)


class ForecastRule(NamedTuple):
    """A condition on the steps ahead, as `ForecastRule.read` finds it in a text.

    Attributes
    ----------
    text
        As it was given.
    condition
        As for `Forecast.probability`.
    columns
        Targets that take part.
    within
        Number of steps or a span of time; None for all steps of a forecast.
    """

    text: str
    condition: str
    columns: tuple[str, ...]
    within: int | str | None

    @classmethod
    def read(cls, text: str, plan: Plan) -> ForecastRule:
        """Read a text such as ``"power < 200 within 6h"``, ``"... within 12 rows"`` or one without a span.

        Examples
        --------
        >>> from momostream.runs.plan import Plan
        >>> ForecastRule.read("power < 200 within 6h", Plan(("power", "wind"), time="time", horizon="12h"))
        ForecastRule(text='power < 200 within 6h', condition='power < 200', columns=('power',), within='6h')
        """
        if plan.horizon is None:
            raise ValueError(f"the alarm {text!r} is about rows to come: set a horizon")
        found = _WITHIN.fullmatch(text.strip())
        condition = text.strip() if found is None else found["condition"]
        clauses = [clause for part in read_condition(condition, plan.targets) for clause in part]
        columns = tuple(dict.fromkeys(plan.targets[clause.column] for clause in clauses))
        within = None if found is None else _read_span(text, found["span"], plan)
        return cls(text, condition, columns, within)

    def n_steps(self, forecast: Forecast) -> int:
        """Steps of a forecast that the rule is about."""
        if self.within is None:
            return len(forecast)
        n = self.within if isinstance(self.within, int) else n_steps_of(self.within, _step(forecast))
        if n > len(forecast):
            raise ValueError(
                f"the alarm {self.text!r} looks {n} steps ahead, forecasts have {len(forecast)}: set a longer horizon"
            )
        return n

    def probability(self, forecast: Forecast, level: float, exactly: bool) -> float:
        """Probability that the condition is met in any of the steps; unless ``exactly``, 0 if it cannot reach a level.

        That of any step is at most the sum of those of single steps, which are cheaper: most forecasts need no paths.
        """
        n = self.n_steps(forecast)
        part = forecast[list(self.columns)]
        if not exactly and float(part.probability(self.condition, steps=n).sum()) < level:
            return 0.0
        return float(part.probability(self.condition, "any", steps=n))


def _read_span(text: str, span: str, plan: Plan) -> int | str:
    count = _COUNT.fullmatch(span)
    horizon = plan.horizon
    if count is not None:
        if int(count[1]) < 1 or (isinstance(horizon, int) and int(count[1]) > horizon):
            raise ValueError(f"the alarm {text!r} looks further ahead than the horizon of {horizon}, or not at all")
        return int(count[1])
    try:
        length = parse_duration(span)
    except ValueError as error:
        raise ValueError(f"the alarm {text!r} cannot be read: {error}") from None
    if plan.time is None:
        raise ValueError(f"the alarm {text!r} has a span of time, and rows have no times: use 'within 12 rows'")
    if isinstance(horizon, str) and length > parse_duration(horizon):
        raise ValueError(f"the alarm {text!r} looks further ahead than the horizon of {horizon}")
    return span


def _step(forecast: Forecast) -> float:
    """Microseconds from one step to the next."""
    times = forecast.times
    if times is None or times.dtype.kind != "M":
        raise ValueError("an alarm has a span of time, and times are not dates: use 'within 12 rows'")
    # One step is the span that it covers, however long.
    return float((times[1] - times[0]) / np.timedelta64(1, "us")) if len(times) > 1 else np.inf


@dataclass(frozen=True)
class ForecastAlarm:
    """A condition that is likely to be met soon, from the first forecast that says so to the last.

    Parameters
    ----------
    rule
        The text of the rule.
    columns
        Targets that take part.
    begin, end
        Numbers of the rows with the first and the newest forecast that gave the condition enough probability.
    begin_time, end_time
        Their times; None without one.
    probability
        The largest so far.
    is_open
        Whether it lasts.
    """

    rule: str
    columns: tuple[str, ...]
    begin: int
    end: int
    begin_time: Any
    end_time: Any
    probability: float
    is_open: bool = True

    def __str__(self) -> str:
        return f"{self.rule}: probability {self.probability:.0%}"

    def text(self, row: Row) -> str:
        """A JSON object, at the row with which the alarm begins or has ended.

        Examples
        --------
        >>> times = datetime(2024, 3, 1), datetime(2024, 3, 1, 5)
        >>> alarm = ForecastAlarm("power < 200 within 6h", ("power",), 812, 842, *times, 0.71828, False)
        >>> print(alarm.text(Row(843, 310, datetime(2024, 3, 1, 5, 10), {"power": 900.0}, "T01")))
        {"key": "T01", "row": 843, "time": "2024-03-01T05:10:00", "alarm": "power < 200 within 6h", "event": 812,
         "open": false, "begin": "2024-03-01T00:00:00", "end": "2024-03-01T05:00:00", "probability": 0.718}
        """
        said: dict[str, Any] = ({} if row.key is None else {"key": row.key}) | {
            "row": row.number, "time": time_text(row.time), "alarm": self.rule, "event": self.begin,
            "open": self.is_open, "begin": time_text(self.begin_time),
            "end": None if self.is_open else time_text(self.end_time), "probability": round(self.probability, 3),
        }  # fmt: skip
        return json.dumps(said, ensure_ascii=False)


class Lookout:
    """Watches the forecasts of all keys for some conditions.

    Parameters
    ----------
    rules
        Texts as in `ForecastRule.read`.
    plan
        Of the run.
    level
        Probability from which a condition is an alarm.
    """

    def __init__(self, rules: Sequence[str], plan: Plan, level: float) -> None:
        if not 0.0 < level < 1.0:
            raise ValueError(f"alarm_probability={level} is not accepted: use a number between 0 and 1")
        self.rules = [ForecastRule.read(text, plan) for text in rules]
        self.level = level
        self._open: dict[tuple[Hashable, str], ForecastAlarm] = {}

    def look(self, key: Hashable, row: Row, forecast: Forecast) -> tuple[ForecastAlarm, ...]:
        """Take the forecast that was made after a row: the alarms that last or end with it."""
        found = []
        for rule in self.rules:
            before = self._open.get((key, rule.text))
            probability = rule.probability(forecast, self.level, exactly=before is not None)
            if before is None:
                if probability < self.level:
                    continue
                alarm = ForecastAlarm(rule.text, rule.columns, row.number, row.number, row.time, row.time, probability)
            elif probability <= END_SHARE * self.level:
                alarm = replace(before, is_open=False)
            else:
                most = max(before.probability, probability)
                alarm = replace(before, end=row.number, end_time=row.time, probability=most)
            found.append(alarm)
            if alarm.is_open:
                self._open[key, rule.text] = alarm
            else:
                del self._open[key, rule.text]
        return tuple(found)

    def state(self) -> list[Any]:
        """Alarms that last, as plain data."""
        return [
            [Vocabulary([key]).state(), alarm.rule, alarm.begin, alarm.end,
             *map(time_text, (alarm.begin_time, alarm.end_time)), alarm.probability]
            for (key, _), alarm in self._open.items()
        ]  # fmt: skip

    def restore(self, state: Sequence[Any]) -> None:
        """Restore from `state`; alarms of rules that are no longer watched are forgotten."""
        columns: Mapping[str, tuple[str, ...]] = {rule.text: rule.columns for rule in self.rules}
        for names, rule, begin, end, begin_time, end_time, probability in state:
            if rule in columns:
                (key,) = Vocabulary.from_state(names).keys
                times = _given_time(begin_time), _given_time(end_time)
                self._open[key, rule] = ForecastAlarm(rule, columns[rule], begin, end, *times, probability)


def _given_time(time: Any) -> Any:
    return datetime.fromisoformat(time) if isinstance(time, str) else time
