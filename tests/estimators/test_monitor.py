"""`MOMoGPMonitor`: rows as dicts, times, events, files, fleets."""

from __future__ import annotations

import copy
import pickle
import threading
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from momostream import MOMoGPMonitor, load
from momostream.fleet import Fleet
from momostream.store import Store
from tests.monitor.feeds import as_dict, normal_rows

START = datetime(2024, 3, 1)


def rows_of(X, times=None):
    for number, values in enumerate(X):
        yield as_dict(values) | ({} if times is None else {"at": times[number]})


def taught(rows, **settings):
    monitor = MOMoGPMonitor(**settings)
    for row in rows:
        monitor.learn_one(row)
    return monitor


@pytest.fixture
def faulty():
    X = normal_rows(600)
    X[400:460, 1] += 14.0
    return X


def test_events_name_columns_and_what_was_expected(faulty):
    monitor = taught(rows_of(faulty))
    (event,) = [event for event in monitor.events if event.begin >= 400]
    assert 400 <= event.begin <= 402
    assert event.end < 490
    assert event.severity > monitor.threshold == 3.0
    assert next(iter(event.columns)) == "c1"
    departure = event.columns["c1"]
    assert departure.observed > departure.expected + 5.0
    assert "c1" in str(event)
    assert "expected" in str(event)
    assert (event.begin_time, event.is_open, event.released) == (None, False, False)
    assert "threshold 3.0" in monitor.describe()


def test_scores_are_pure(faulty):
    monitor = taught(rows_of(faulty[:420]))
    other = copy.deepcopy(monitor)
    row = as_dict(faulty[420])
    scores = [other.score_one(row) for _ in range(3)]
    assert scores[0] == scores[1] == scores[2] > 0.0
    other.explain_one(row)
    for monitored in (monitor, other):
        monitored.learn_one(row)
    assert pickle.dumps(monitor._state()) == pickle.dumps(other._state())


def test_before_the_warm_up_nothing_is_strange():
    monitor = MOMoGPMonitor()
    assert monitor.score_one({"a": 1.0}) == 0.0
    assert (monitor.events, monitor.event, monitor.n_rows, monitor.n_seen, monitor.columns) == ([], None, 0, 0, ())
    assert monitor.explain_one({"a": 1.0}) == {}
    monitor.learn_one({})
    monitor.release()
    monitor.reset()
    assert monitor.n_seen == 0
    monitor.learn_one({"a": 1.0})
    assert monitor.score_one({"a": 1e9}) == 0.0


def test_rates_per_time_need_the_time():
    with pytest.raises(ValueError, match="is a rate per time: name the field of the time with time="):
        MOMoGPMonitor(false_alarms="1 per week")
    times = [START + timedelta(minutes=10 * n) for n in range(300)]
    monitor = taught(rows_of(normal_rows(300), times), false_alarms="1 per week", time="at")
    assert monitor.threshold == pytest.approx(np.log10(7 * 144))
    assert MOMoGPMonitor(false_alarms="1 per week", time="at").threshold == np.inf
    seconds = taught(rows_of(normal_rows(10), [60 * n for n in range(10)]), false_alarms="1 per week", time="at")
    assert seconds.threshold == pytest.approx(np.log10(7 * 1440))


@pytest.mark.parametrize("zone", [None, UTC])
def test_events_have_times(faulty, zone):
    times = [START.replace(tzinfo=zone) + timedelta(minutes=n) for n in range(600)]
    monitor = taught(rows_of(faulty, times), time="at")
    event = monitor.events[-1]
    assert event.begin_time == times[event.begin]
    assert event.end_time == times[event.end]
    assert str(event).startswith(str(event.begin_time))


def test_the_first_rows_after_a_gap_are_not_judged():
    X = normal_rows(400)
    times = [START + timedelta(minutes=n + (500 if n >= 300 else 0)) for n in range(400)]
    X[300:] += 5.0
    X[300, 0] += 100.0
    rows = list(rows_of(X, times))
    monitor = taught(rows[:300], time="at")
    assert monitor.score_one(rows[300]) == 0.0
    assert monitor.score_one(rows[300] | {"at": START + timedelta(minutes=300)}) > 3.0


def test_times_must_increase():
    times = [START + timedelta(minutes=n) for n in range(20)]
    rows = list(rows_of(normal_rows(20), times))
    monitor = taught(rows, time="at")
    before = pickle.dumps(monitor._state())
    assert monitor.is_late(times[3])
    assert not monitor.is_late(times[-1] + timedelta(minutes=1))
    with pytest.raises(ValueError, match="time must increase"):
        monitor.learn_one(rows[3])
    with pytest.raises(TypeError, match="the time 'at' is text"):
        monitor.learn_one({"at": "today", "c0": 1.0})
    assert pickle.dumps(monitor._state()) == before


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"c0": "warm"}, "the value of 'c0' is a str"),
        ({"c0": float("inf")}, "the value of 'c0' is infinite"),
        ([1.0], "expected a dict, got list"),
    ],
)
def test_bad_rows_leave_everything_as_it_was(row, error):
    monitor = taught(rows_of(normal_rows(150)))
    before = pickle.dumps(monitor._state())
    for call in (monitor.learn_one, monitor.score_one):
        with pytest.raises((TypeError, ValueError), match=error):
            call(row)
    assert pickle.dumps(monitor._state()) == before


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"warm_up": 5}, "warm_up=5 is not accepted: use a whole number of at least 20"),
        ({"window": 60}, "window=60 is not accepted: use at least warm_up=100"),
        ({"quiet_rows": 0}, "quiet_rows=0"),
        ({"release_after": 0}, "release_after=0"),
        ({"false_alarms": "never"}, "false_alarms='never'"),
    ],
)
def test_wrong_settings(settings, error):
    with pytest.raises(ValueError, match=error):
        MOMoGPMonitor(**settings)


def test_missing_values(faulty):
    rng = np.random.default_rng(1)
    faulty[rng.random(faulty.shape) < 0.2] = np.nan
    faulty[100:150, 2] = np.nan
    faulty[200] = np.nan
    monitor = taught(rows_of(faulty))
    assert any(400 <= event.begin <= 410 and "c1" in event.columns for event in monitor.events)
    assert monitor.n_seen == 600
    assert all(np.isfinite(event.severity) for event in monitor.events)


def test_frozen_it_watches_and_learns_nothing(faulty):
    monitor = taught(rows_of(faulty[:390]))
    monitor.freeze()
    n_rows = monitor.n_rows
    for row in rows_of(faulty[390:450]):
        monitor.learn_one(row)
    assert monitor.n_rows == n_rows
    assert monitor.event is not None
    assert monitor.event.is_open
    monitor.unfreeze()


def test_released_rows_are_normal(faulty):
    monitor = taught(rows_of(faulty[:440]))
    assert monitor.event is not None
    monitor.release()
    assert monitor.event is None
    assert monitor.events[-1].released


@pytest.mark.parametrize("cut", [10, 300, 430, 600])
def test_saved_monitors_continue(faulty, tmp_path, cut):
    times = [START + timedelta(minutes=n) for n in range(600)]
    rows = list(rows_of(faulty, times))
    monitor = taught(rows[:cut], false_alarms="5 per day", time="at")
    monitor.save(tmp_path / "monitor.momo")
    again = load(tmp_path / "monitor.momo")
    assert type(again) is MOMoGPMonitor
    for row in rows[cut:]:
        assert monitor.score_one(row) == again.score_one(row)
        monitor.learn_one(row)
        again.learn_one(row)
    assert monitor.events == again.events
    assert again._get_params() == monitor._get_params()


def test_fleet_of_monitors(tmp_path, faulty):
    rows = list(rows_of(faulty))
    alone = taught(rows)
    with Fleet(MOMoGPMonitor(), store=Store(tmp_path / "fleet.db"), memory_budget=0) as fleet:
        for row in rows[:420]:
            for key in ("A", "B"):
                fleet.learn_one(key, row)
        assert fleet.score_one("A", rows[420]) == fleet.score_one("B", rows[420]) > 0.0
        assert fleet.score_one("C", rows[420]) == 0.0
        fleet.commit()
    with Fleet(MOMoGPMonitor(), store=Store(tmp_path / "fleet.db"), memory_budget=0) as fleet:
        for row in rows[420:]:
            fleet.learn_one("A", row)
        assert fleet.model("A").events == alone.events
        with pytest.raises(TypeError, match="watches rows: use score_one"):
            fleet.forecast("A", 3)
        with pytest.raises(TypeError, match="the model of 'A'"):
            fleet.predict_one("A", rows[0])


def test_threads_may_share_a_monitor():
    rows = list(rows_of(normal_rows(400)))
    monitor = taught(rows[:200])
    threads = [threading.Thread(target=lambda: [monitor.learn_one(row) for row in rows[200:]]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert monitor.n_seen == 800


def test_columns_that_move_together_to_new_values_are_less_strange(monkeypatch):
    """Beyond the winds that were seen, the line between wind and power need not hold; a column alone is at fault."""
    rng = np.random.default_rng(0)
    wind = 8 + np.sin(np.arange(400) / 15) + 0.3 * rng.normal(size=400)
    rows = [{"wind": w, "power": w**3 + 5 * e} for w, e in zip(wind.tolist(), rng.normal(size=400), strict=True)]
    gust, fault = {"wind": 13.0, "power": 13.0**3}, {**rows[-1], "power": 1.5 * rows[-1]["power"]}
    monitor = taught(rows)
    scores = [monitor.score_one(row) for row in (gust, fault, rows[-1])]
    monkeypatch.setattr("momostream.monitor.model.DOUBT", 0.0)
    without = [monitor.score_one(row) for row in (gust, fault, rows[-1])]
    assert scores[0] < without[0] - 0.5
    assert scores[1:] == without[1:]


def test_monitors_of_earlier_files_know_no_reach():
    monitor = taught(rows_of(normal_rows(200)))
    state = monitor._model.state()
    del state["model"]["normal"]["reach"]
    older = monitor._fresh_watch().restore(state).model
    y = normal_rows(201)[-1]
    assert older.normal.reach is None and np.isfinite(older.evidence(y).score)
