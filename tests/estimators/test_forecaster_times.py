"""Timestamps of `MOMoGPForecaster`: the calendar, gaps, jitter, and times that are rejected."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from random import Random

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from momostream import MOMoGPForecaster
from momostream.horizon.calendar import HOUR, Calendar, as_time
from momostream.horizon.model import HorizonModel
from momostream.horizon.settings import HorizonSettings
from tests.estimators.series import SMALL, START, checksum, timed


@pytest.mark.parametrize(
    "stamp",
    [
        lambda t: START + timedelta(hours=t),
        lambda t: pd.Timestamp(START) + pd.Timedelta(hours=t),
        lambda t: np.datetime64("2024-03-01T00", "h") + np.timedelta64(t, "h"),
        lambda t: START.replace(tzinfo=UTC) + timedelta(hours=t),
    ],
)
def test_dates_bring_times_and_the_calendar(stamp):
    model = timed(MOMoGPForecaster(**SMALL, time="at"), map(stamp, range(30)), lambda t: math.sin(t / 3))
    assert model._model.seasons == (24, 48, 168) and model.inputs == ()
    forecast = model.forecast(3, with_dist=True)
    first = pd.Timestamp(stamp(30))
    assert list(forecast.index) == [first + pd.Timedelta(hours=k) for k in range(3)]
    times = as_time("at", stamp(0))[0] + HOUR * np.arange(30)
    past = model._model.past
    assert_allclose(past.inputs[past.first : past.last + 1, 0], Calendar(HOUR).terms(times), atol=1e-9)


def test_the_calendar_of_the_steps_is_known_in_advance():
    model = MOMoGPForecaster(**SMALL, time="at")
    calendar = Calendar(HOUR)
    core = HorizonModel(
        HorizonSettings(**SMALL, seasons=(24, 48, 168)), 1, 1, len(calendar.names), calendar.kind
    )  # fmt: skip
    times = as_time("at", START)[0] + HOUR * np.arange(64)
    for t in range(60):
        value, load = math.sin(t / 24 * 2 * math.pi), float(t % 5)
        model.learn_one({"y": value}, {"at": START + timedelta(hours=t), "load": load})
        core.learn(np.array([value]), np.array([load]), calendar.ahead(times[t], 4))
    forecast = model.forecast(4, [{"load": 3.0}, {}, {}, {}], with_dist=True)
    assert_allclose(forecast.arrays.mean, core.joint(np.array([[3.0], [np.nan], [np.nan], [np.nan]])).means)


def test_a_late_name_leaves_the_calendar_as_it_is():
    model = MOMoGPForecaster(**SMALL, time="at")
    for t in [*range(10), 14]:
        model.learn_one({"y": 1.0} if t < 14 else {"late": 1.0}, {"at": START + timedelta(hours=t)})
    past = model._model.past
    expected = Calendar(HOUR).terms(as_time("at", START)[0] + HOUR * np.arange(15))
    assert_allclose(past.inputs[past.first : past.last + 1, 0], expected, atol=1e-9)


def test_days_and_numbers_have_no_time_of_day():
    model = timed(MOMoGPForecaster(**SMALL, time="at"), [date(2024, 1, 1) + timedelta(t) for t in range(9)])
    assert model._model.n_terms == 3 and model._settings.seasons is None
    assert model.forecast(1, with_dist=True).index[0] == pd.Timestamp("2024-01-10")
    model = timed(MOMoGPForecaster(**SMALL, time="at"), [0.5 * t for t in range(9)])
    assert model._calendar is None
    assert list(model.forecast(2, with_dist=True).index) == [4.5, 5.0]


def test_seasons_that_are_given_stay():
    times = [START + timedelta(hours=t) for t in range(9)]
    assert timed(MOMoGPForecaster(**SMALL, time="at", seasons=12), times)._model.seasons == (12, 24)
    assert timed(MOMoGPForecaster(**SMALL, time="at", seasons=(7, 5)), times)._model.seasons == (7, 5)
    assert timed(MOMoGPForecaster(**SMALL, time="at", seasons=()), times)._model.seasons == ()


@pytest.mark.parametrize("first", [2, 20])
def test_gaps_are_filled_with_missing_rows(first):
    # Also one that is there before the step is known.
    hours = [*range(first), *range(first + 3, 40)]
    model = timed(MOMoGPForecaster(**SMALL, time="at"), [START + timedelta(hours=t) for t in hours])
    rows = model._model.past
    observed = rows.observed[rows.first : rows.last + 1, 0]
    assert len(observed) == 40 and np.flatnonzero(np.isnan(observed)).tolist() == [first, first + 1, first + 2]
    assert model.n_rows == 37
    # As the rows that did not come, said out loud.
    spoken = MOMoGPForecaster(**SMALL, time="at")
    for t in range(40):
        spoken.learn_one({"y": hours.index(t)} if t in hours else {}, {"at": START + timedelta(hours=t)})
    assert spoken.forecast(4) == model.forecast(4)


def test_jitter_is_ignored():
    random = Random(0)
    times = [START + timedelta(minutes=10 * t + random.uniform(-2, 2)) for t in range(300)]
    model = timed(MOMoGPForecaster(**SMALL, time="at"), times, math.sin)
    assert model._model.n_rows == 300 and model._model.seasons == (144, 288, 1008)


def test_long_gaps_are_not_filled():
    model = timed(MOMoGPForecaster(**SMALL, time="at"), [0, 1, 2, 3, 4, 2000, 2001])
    assert model._model.n_rows == 7


def test_rows_without_a_timestamp_follow_at_the_usual_step():
    model = timed(MOMoGPForecaster(**SMALL, time="at"), range(6))
    model.learn_one({"y": 6.0})
    model.learn_one({"y": 7.0}, {"at": None})
    assert list(model.forecast(1, with_dist=True).index) == [8.0]
    early = timed(MOMoGPForecaster(**SMALL, time="at"), range(2))
    with pytest.raises(ValueError, match="row 2: there is no timestamp 'at'"):
        early.learn_one({"y": 2.0}, {"at": pd.NaT})


def test_forecasts_before_the_step_is_known():
    model = timed(MOMoGPForecaster(**SMALL, time="at"), [START, START + timedelta(hours=1)])
    assert model.forecast(2, with_dist=True).index.name == "step"
    assert len(model.forecast(2)) == 2


def test_rows_may_be_empty_while_the_step_is_found():
    model = MOMoGPForecaster(**SMALL, time="at")
    for t in range(12):
        model.learn_one({"y": float(t)} if t >= 6 else {}, {"at": START + timedelta(hours=t), "late": float(t)})
    assert model.series == ("y",) and model.inputs == ("late",) and model.n_rows == 12
    assert model.forecast(1, with_dist=True).index[0] == pd.Timestamp(START + timedelta(hours=12))


def test_another_step_brings_another_calendar():
    hourly = [START + timedelta(hours=t) for t in range(20)]
    faster = [hourly[-1] + timedelta(minutes=10 * t) for t in range(1, 60)]
    model = timed(MOMoGPForecaster(**SMALL, time="at"), hourly + faster)
    assert model._model.seasons == (144, 288, 1008)
    assert model.forecast(1, with_dist=True).index[0] == faster[-1] + timedelta(minutes=10)


def test_times_that_go_back_are_rejected():
    model = timed(MOMoGPForecaster(**SMALL, time="at"), [START + timedelta(hours=t) for t in range(6)])
    before = checksum(model)
    with pytest.raises(ValueError, match=r"row 6: .*2024-03-01 03:00:00 comes before 2024-03-01 05:00:00"):
        model.learn_one({"y": 1.0}, {"at": START + timedelta(hours=3)})
    with pytest.raises(ValueError, match="repeats 2024-03-01 05:00:00"):
        model.learn_one({"y": 1.0}, {"at": START + timedelta(hours=5)})
    with pytest.raises(ValueError, match="row 6: the timestamp is a number"):
        model.learn_one({"y": 1.0}, {"at": 1e18})
    with pytest.raises(ValueError, match="with a time zone"):
        model.learn_one({"y": 1.0}, {"at": datetime(2025, 1, 1, tzinfo=UTC)})
    with pytest.raises(TypeError, match="row 6: the time 'at' is text, '2024-03-02': parse it first"):
        model.learn_one({"y": 1.0}, {"at": "2024-03-02"})
    assert checksum(model) == before


def test_a_date_among_the_inputs_says_what_to_do():
    with pytest.raises(
        TypeError, match="row 0: the value of 'month' is a datetime: if it is the time, set time='month'"
    ):
        MOMoGPForecaster(**SMALL).learn_one(1.0, {"month": START})


def test_the_clock_of_a_message_is_named():
    frame = pd.DataFrame({"a": np.arange(6.0)}, pd.date_range("2024-06-01", periods=6, freq="h", tz="Europe/Berlin"))
    model = MOMoGPForecaster(**SMALL).fit(frame)
    with pytest.raises(ValueError, match="2024-06-01 01:00:00 UTC comes before 2024-06-01 03:00:00 UTC, the time of"):
        model.update(frame[3:])
    with pytest.raises(ValueError, match="2024-06-01 03:00:00 comes before 2024-06-01 05:00:00, the time of"):
        MOMoGPForecaster(**SMALL).fit(frame.tz_localize(None)).update(frame[3:].tz_localize(None))


def test_all_steps_by_default():
    frame = pd.DataFrame({"a": np.arange(40.0)}, pd.date_range("2024-06-01", periods=40, freq="10min"))
    model = MOMoGPForecaster(horizon="30min", experts=("last value", "own lags")).fit(frame)
    assert len(model.forecast()) == len(model.forecast(with_dist=True)) == len(model.predict()) == 3
    assert model.forecast() == model.forecast(3)


@pytest.mark.parametrize("horizon", ["1h", 3, None])
@pytest.mark.parametrize("with_dist", [False, True])
def test_forecasts_before_the_first_value_say_so(horizon, with_dist):
    with pytest.raises(ValueError, match="has learnt no value yet: call fit"):
        MOMoGPForecaster(horizon="1h").forecast(horizon, with_dist=with_dist)
