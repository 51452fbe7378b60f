"""Alarms about rows to come: one from the first to the last forecast that makes a condition likely, also resumed."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import numpy as np
import pytest

from momostream import MOMoGPForecaster
from momostream.feeds import Feed
from momostream.feeds.formats import Row
from momostream.runs.fleet import Fleet
from momostream.runs.lookout import END_SHARE, ForecastRule, Lookout
from momostream.runs.plan import Plan, make_model
from momostream.runs.run import Channel, Run
from momostream.serve.book import Book
from momostream.serve.config import FeedConfig
from momostream.serve.state import FeedState
from momostream.storage.store import Store

PLAN = Plan(("power",), (), "time", "2h", key="turbine")
RULE = "power < 250 within 1h"
SETTINGS = {"experts": ("last value", "own lags")}
# Rows of the second turbine: it slows down, and recovers.
CALM_UNTIL, LOW, UP = 150, 175, 200


def power_of(n):
    return np.interp(n, [CALM_UNTIL, LOW, UP - 10, UP + 15], [1000.0, 100.0, 100.0, 1000.0])


@pytest.fixture(scope="module")
def farm(tmp_path_factory):
    rng = np.random.default_rng(0)
    lines = ["time,turbine,power"]
    for n in range(260):
        at = datetime(2024, 3, 1) + n * timedelta(minutes=10)
        lines.append(f"{at.isoformat()},T1,{1000 + 20 * rng.normal():.3f}")
        lines.append(f"{at.isoformat()},T2,{power_of(n) + 20 * rng.normal():.3f}")
    path = tmp_path_factory.mktemp("farm") / "farm.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def take(path, store, limit=None, state=None, rules=(RULE,), level=0.5):
    with (
        Store(store) as opened,
        Fleet(make_model(PLAN, SETTINGS), store=opened) as fleet,
        Feed(str(path), ("power",), "time", key="turbine") as feed,
    ):
        said = []
        run = Run(
            feed, fleet, PLAN, alarm_rules=rules, alarm_probability=level, on_alarm=said.append, bad_rows="skip",
            commit_every=50,
        )  # fmt: skip
        run.alarms = Channel("alarms")
        if state is not None:
            state.begin(run, Book(None))
        run.run(limit)
        return said


def lines(store):
    with Store(store, read_only=True) as reader:
        return [json.loads(line.text) for _, line in reader.alarms()]


def test_a_slow_fall_is_one_alarm_ahead_of_time(farm, tmp_path):
    state = FeedState(FeedConfig("farm"))
    said = take(farm, tmp_path / "a.db", state=state)
    begin, end = lines(tmp_path / "a.db")
    assert (begin["key"], begin["alarm"], begin["open"], begin["end"]) == ("T2", RULE, True, None)
    assert (end["key"], end["event"], end["begin"], end["open"]) == ("T2", begin["event"], begin["begin"], False)
    assert 0.5 <= begin["probability"] <= end["probability"] <= 1.0
    start = datetime(2024, 3, 1)
    began, ended = ((datetime.fromisoformat(end[side]) - start) / timedelta(minutes=10) for side in ("begin", "end"))
    first_below = next(n for n in range(260) if power_of(n) < 250)
    assert CALM_UNTIL < began < first_below and UP - 10 <= ended < UP + 15
    assert [text.split(":")[0] for text in said] == ["alarm T2", "alarm ended T2"] and RULE in said[0]
    (record,) = state.alarms.records.values()
    assert (record.name, record.kind, record.severity, record.columns) == ("T2", "forecast", "warning", ["power"])
    assert not record.is_open and record.why.startswith(f"{RULE}: probability ")


def test_alarms_resume_exactly(farm, tmp_path):
    take(farm, tmp_path / "whole.db")
    # In the calm, just after the alarm has begun, while it lasts, to the end.
    for limit in (330, 15, 40, None):
        take(farm, tmp_path / "parts.db", limit)
    assert lines(tmp_path / "parts.db") == lines(tmp_path / "whole.db")


def test_a_rule_that_is_dropped_is_forgotten(farm, tmp_path):
    take(farm, tmp_path / "a.db", 350)
    take(farm, tmp_path / "a.db", rules=("power > 5000",))
    assert [line["open"] for line in lines(tmp_path / "a.db")] == [True]


def test_higher_levels_warn_later(farm, tmp_path):
    rows = []
    for level in (0.2, 0.9):
        take(farm, tmp_path / f"{level}.db", level=level)
        rows.append(min(line["row"] for line in lines(tmp_path / f"{level}.db")))
    assert rows[0] < rows[1]


class Says:
    """A forecast that says these probabilities, and counts how often paths are drawn."""

    times = None

    def __init__(self):
        self.value, self.n_drawn = 0.0, 0

    def __len__(self):
        return 4

    def __getitem__(self, names):
        return self

    def probability(self, condition, over="each", steps=None):
        self.n_drawn += over == "any"
        return self.value if over == "any" else np.full(steps, self.value / steps)


def test_a_probability_that_hovers_is_one_alarm():
    plan = Plan(("power",), horizon=4)
    lookout, forecast, found = Lookout(["power < 1"], plan, 0.5), Says(), []
    for number, forecast.value in enumerate((0.4, 0.55, 0.45, 0.6, 0.3, 0.26, 0.51, 0.2, 0.1, 0.6), 1):
        found += [
            (alarm.begin, number, alarm.is_open) for alarm in lookout.look("a", Row(number, 0, None, {}), forecast)
        ]
    assert END_SHARE == 0.5
    assert found == [*((2, n, True) for n in range(2, 8)), (2, 8, False), (10, 10, True)]
    # Neither in row 1 nor in row 9 could the level have been reached.
    assert forecast.n_drawn == 8


@pytest.mark.parametrize(
    ("text", "plan", "message"),
    [
        ("power < 1 within 6h", Plan(("power",), ("wind",), "time"), "is about rows to come: set a horizon"),
        ("power < 1 within 6h", Plan(("power",), time="time", horizon="3h"), "further ahead than the horizon of 3h"),
        ("power < 1 within 6h", Plan(("power",), horizon=3), "rows have no times: use 'within 12 rows'"),
        ("power < 1 within 4 rows", Plan(("power",), horizon=3), "further ahead than the horizon of 3"),
        ("power < 1 within soon", Plan(("power",), time="time", horizon="3h"), "'soon' is not a span of time"),
        ("wind < 1 within 3h", Plan(("power",), time="time", horizon="3h"), "unknown series 'wind'"),
        ("power", Plan(("power",), horizon=3), "is not a comparison"),
    ],
)
def test_rules_that_cannot_be_read_are_errors(text, plan, message):
    with pytest.raises(ValueError, match=message):
        ForecastRule.read(text, plan)
    with pytest.raises(ValueError, match="alarm_probability=1"):
        Lookout([], plan, 1.0)


def test_spans_count_steps():
    model = MOMoGPForecaster(horizon=3, time="at", **SETTINGS)
    for n in range(40):
        model.learn_one({"power": float(n % 5)}, {"at": datetime(2024, 3, 1) + n * timedelta(minutes=30)})
    forecast = model.forecast(3, with_dist=True)
    plan = Plan(("power",), time="at", horizon=3)
    assert [ForecastRule.read(f"power < 1{within}", plan).n_steps(forecast) for within in
            ("", " within 1h", " within 2 steps", " Within 1")] == [3, 2, 2, 1]  # fmt: skip
    with pytest.raises(ValueError, match="looks 4 steps ahead, forecasts have 3"):
        ForecastRule.read("power < 1 within 2h", plan).n_steps(forecast)
