"""The newest rows beside their forecasts, the worst days and the newest alarms of a run."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.distributions.predicted import PredictedValues
from momostream.runs.lookback import DAY, N_ALARMS, N_DAYS, N_ROWS, ComparedRow, Lookback
from momostream.runs.scores import Track
from momostream.storage.container import dumps, loads


def add_day(lookback, day, error, n=4):
    for hour in range(n):
        one = np.full(2, 1.0)
        lookback.score(day * DAY + hour * 3600e6, error**2 * one, 4.0 * one, one)


def same(a, b):
    """Whether two lookbacks hold the same."""
    return dumps("track", a.state()) == dumps("track", b.state())


def test_worst_days_are_compared_with_those_before():
    lookback = Lookback(2)
    errors = [1.0, 1.0, 3.0, 1.0, 0.5, 2.0, 1.0, 1.0, 1.0, 1.0, 9.0]
    for day, error in enumerate(errors):
        add_day(lookback, 100 + day, error)
    found = lookback.worst_days
    assert len(found) == N_DAYS
    assert [day.day - 100 for _, day in found][:2] == [10, 2]
    usual = np.sqrt(np.mean(np.square(errors[:10])))
    assert found[0][0] == pytest.approx(9.0 / usual)
    assert found[1][0] == pytest.approx(3.0)
    assert_allclose(found[1][1].rmse, 3.0)
    assert_allclose(found[1][1].naive_rmse, 2.0)


def test_first_day_is_not_judged_and_rows_without_time_have_no_day():
    lookback = Lookback(2)
    add_day(lookback, 5, 7.0)
    lookback.score(None, np.ones(2), np.ones(2), np.ones(2))
    assert lookback.worst_days == []


def test_targets_without_values_do_not_count():
    lookback = Lookback(2)
    seen = np.array([1.0, 0.0])
    for day, error in enumerate([1.0, 4.0]):
        lookback.score(day * DAY, error**2 * seen, seen, seen)
    ((times, day),) = lookback.worst_days
    assert times == pytest.approx(4.0)
    assert_array_equal(np.isnan(day.rmse), [False, True])


def test_memory_is_bounded_and_alarms_are_counted():
    lookback = Lookback(1)
    lookback.note_alarms([json.dumps({"row": n}) for n in range(3 * N_ALARMS)])
    lookback.note_alarms([json.dumps({"row": -1})])
    assert lookback.n_alarms == 3 * N_ALARMS + 1 and len(lookback.alarms) == N_ALARMS
    assert lookback.alarms[-1] == {"row": -1}
    for n in range(2 * N_ROWS):
        lookback.compare(ComparedRow(n, np.nan, *np.zeros((4, 1))))
    assert len(lookback.rows) == N_ROWS and lookback.rows[-1].row == 2 * N_ROWS - 1


def test_event_is_one_alarm():
    lookback = Lookback(1)
    begins = [{"row": 8, "event": 8, "open": True}, {"row": 8, "event": 8, "alarm": "power < 2", "open": True}]
    ends = [{"row": 9, "event": 8, "open": False}]
    lookback.note_alarms([json.dumps(alarm) for alarm in begins])
    lookback.note_alarms([json.dumps(alarm) for alarm in ends])
    assert lookback.n_alarms == 2 and list(lookback.alarms) == [ends[0], begins[1]]


def test_state_continues():
    lookback = Lookback(2)
    for day in range(9):
        add_day(lookback, day, 1.0 + day % 4)
    lookback.note_alarms(
        [json.dumps({"row": 3, "columns": {"power": {"observed": 1.0, "expected": None}}, "open": True})]
    )
    lookback.compare(ComparedRow(3, 5.0, *np.arange(8.0).reshape(4, 2)))
    again = Lookback.from_state(loads(dumps("track", lookback.state()))[1])
    assert same(lookback, again)
    for each in (lookback, again):
        add_day(each, 9, 6.0)
        add_day(each, 10, 1.0)
    assert same(lookback, again)
    assert again.worst_days[0][1].day == 9


def test_track_compares_the_last_step_of_each_forecast(monkeypatch):
    track = Track(["power"], n_steps=3)
    monkeypatch.setattr(PredictedValues, "judge", lambda self, Y, targets: (np.full(Y.shape, 0.5), np.zeros(Y.shape)))
    begin = datetime(2024, 3, 1)
    for row in range(1, 9):
        time = begin + timedelta(hours=row)
        track.observe(row, {"power": float(row)}, time)
        at = np.array([[row + 1.0], [row + 2.0], [row + 4.0]])
        track.expect(PredictedValues(at, at - 1.0, at + 1.0, None, None))
    rows = list(track.lookback.rows)
    assert [each.row for each in rows] == [4, 5, 6, 7, 8]
    # Each was forecast three rows before, as one more than it is.
    assert [each.actual[0] for each in rows] == [4.0, 5.0, 6.0, 7.0, 8.0]
    assert [each.mean[0] for each in rows] == [5.0, 6.0, 7.0, 8.0, 9.0]
    assert track.as_index(np.array([each.time for each in rows]))[0] == begin + timedelta(hours=4)


def test_one_error_figure_for_all_units():
    track = Track(["power", "wind", "silent"])
    # Half of the error of the last value, and twice.
    track._sums[0, 0], track._sums[4, 0] = [1.0, 16.0, 0.0], [4.0, 4.0, 0.0]
    track._counts[:, 0] = [1.0, 1.0, 0.0]
    assert track.error_ratio == pytest.approx(1.0)
    assert np.isnan(Track(["power"]).error_ratio)
