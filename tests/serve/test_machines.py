"""What is shown of a machine: rings, rolling scores and earlier forecasts, against slow and obvious versions."""

from __future__ import annotations

import json
import random
from collections import deque
from datetime import datetime, timedelta

import numpy as np
import pytest

from momostream import MOMoGPRegressor
from momostream.distributions.predicted import PredictedValues
from momostream.feeds.formats import Row
from momostream.runs.plan import Plan
from momostream.serve.alarms import CALM_ROWS, CRITICAL_ROWS, AlarmFolder
from momostream.serve.config import FeedConfig
from momostream.serve.machines import N_WAITING, SCORE_ROWS, Machine, RowRing
from momostream.serve.shares import Shares
from momostream.serve.state import FeedState


def test_a_ring_is_a_deque():
    for capacity in (1, 7, 40, 100):
        ring, naive = RowRing(capacity, 2), deque(maxlen=capacity)
        for n in range(150):
            ring.append((n, -n))
            naive.append((n, -n))
            if n % 13 == 0:
                assert ring.rows().tolist() == [list(row) for row in naive]
                assert ring.rows(3).tolist() == [list(row) for row in list(naive)[-3:]]


HORIZON = 5


def forecast_at(n):
    """Predicted values that depend on the row at which they were made."""
    steps = np.arange(1, HORIZON + 1, dtype=float)[:, np.newaxis]
    mean = n + 0.5 * steps
    times = np.array(
        [datetime(2026, 1, 1) + timedelta(minutes=n + step) for step in range(1, HORIZON + 1)], "datetime64[us]"
    )
    return PredictedValues(mean, mean - 1.0, mean + 1.0, times, None)


def test_rolling_scores_match_the_naive_ones():
    machine = Machine("T1", Plan(("power",), (), "time", HORIZON, key="k"), 200)
    rng, made, sums = random.Random(0), {}, np.zeros(4)
    for n in range(1, 120):
        value = n + rng.uniform(-2.0, 2.0)
        known = [(origin, n - origin) for origin in made if 1 <= n - origin <= HORIZON]
        if known:
            errors = [(value - made[o][0][s - 1]) ** 2 for o, s in known]
            naive = [(value - made[o][1]) ** 2 for o, _ in known]
            inside = [abs(value - made[o][0][s - 1]) <= 1.0 for o, s in known]
            sums = sums * (1.0 - 1.0 / SCORE_ROWS) + [np.mean(errors), np.mean(naive), np.mean(inside), 1.0]
        machine.add(Row(n, n, datetime(2026, 1, 1) + timedelta(minutes=n), {"power": value}, "T1"), forecast_at(n))
        made[n] = (forecast_at(n).mean[:, 0], value)
    found = machine.scores["power"]
    assert found["rmse"] == pytest.approx((sums[0] / sums[3]) ** 0.5, rel=1e-4)
    assert found["naive"] == pytest.approx((sums[1] / sums[3]) ** 0.5, rel=1e-4)
    assert found["coverage"] == pytest.approx(sums[2] / sums[3], rel=1e-4)
    earlier = machine.earlier()
    assert earlier["made"] == machine.last_time - 60 * HORIZON
    assert earlier["targets"]["power"]["mean"] == pytest.approx((119 - HORIZON + 0.5 * np.arange(1, 6)).tolist())


def test_long_horizons_keep_few_forecasts():
    machine = Machine("T1", Plan(("power",), (), None, 240, key="k"), 50)
    mean = np.zeros((240, 1))
    for n in range(1, 500):
        machine.add(Row(n, n, None, {"power": 0.0}, "T1"), PredictedValues(mean, mean - 1, mean + 1, None, None))
    assert len(machine._origins) == N_WAITING + 1
    assert machine.scores["power"]["coverage"] == 1.0


def test_rows_that_are_learnt_again_are_shown_once():
    plan = Plan(("power",), (), None, HORIZON, key="k")
    machine = Machine("T1", plan, 50)
    kept = []
    for n in range(1, 6):
        machine.add(Row(n, n, None, {"power": float(n)}, "T1"), None)
        kept.append(machine.newest_row()[1])
    again = Machine("T1", plan, 50)
    again.restore(kept, machine.about())
    for n in range(4, 8):
        again.add(Row(n, n, None, {"power": float(n)}, "T1"), None)
    assert again.history()["targets"]["power"]["value"] == [1, 2, 3, 4, 5, 6, 7]


def test_alarms_of_neighbouring_rows_are_one():
    folder = AlarmFolder("north")
    alarm = {"target": "power", "value": 9.0, "lower": None, "upper": 5.0}
    pattern = [1] * CRITICAL_ROWS + [0] * (CALM_ROWS - 1) + [1] + [0] * CALM_ROWS + [1]
    records = {}
    for n, has_alarm in enumerate(pattern):
        for record in folder.row("m", "T1", n, float(n), [alarm] if has_alarm else []):
            records[record.id] = record
    first, second = records.values()
    assert (first.begin, first.end, first.n_rows) == (0.0, CRITICAL_ROWS + CALM_ROWS - 1, CRITICAL_ROWS + 1)
    assert first.severity == "critical"
    assert (second.is_open, second.severity, second.why) == (True, "warning", "power was 9, expected at most 5")


def test_rows_of_an_earlier_process_with_other_sensors():
    before, after = (Plan(targets, (), "time", 3) for targets in (("power", "wind"), ("wind", "temperature")))
    machine = Machine("T1", before, 50)
    kept = []
    for n in range(1, 6):
        machine.add(Row(n, n, datetime(2024, 3, 1, n), {"power": 10.0 + n, "wind": 4.0 + n}, "T1"), None)
        kept.append(machine.newest_row()[1])
    again = Machine("T1", after, 50)
    again.restore(kept, machine.about())
    found = again.history()
    assert found["targets"]["wind"]["value"] == [5.0, 6.0, 7.0, 8.0, 9.0]
    assert found["targets"]["temperature"]["value"] == [None] * 5
    assert again.forecast() is None


def test_shares_take_bounded_memory_and_survive_a_restart():
    shares, naive = Shares(), {}
    for n in range(1, 1000):
        found = {"last value": 1.0 / n, "own lags": 1.0 - 1.0 / n} if n > 1 else {"last value": 1.0}
        shares.note(float(n), found)
        naive[float(n)] = found
    kept = shares.plain()
    assert len(kept["time"]) == len(shares) <= 120
    assert kept["time"][0] == 1.0 and kept["time"][-1] >= 998.0
    for at, *values in zip(kept["time"], *kept["values"], strict=True):
        assert values == pytest.approx([naive[at].get(name, 0.0) for name in kept["names"]], abs=1e-4)
    again = Shares.unpacked(json.loads(json.dumps(shares.packed())))
    assert again.plain() == kept
    again.note(1000.0, {"curved lags": 1.0})
    assert [column[-1] for column in again.plain()["values"]] == [0.0, 0.0, 1.0]
    assert again.plain()["values"][2][0] == 0.0


def test_experts_and_inputs_are_looked_at_less_and_less_often():
    machine, model = Machine("T1", Plan(("power",), ("wind",), None, None, key="k"), 50), MOMoGPRegressor(seed=0)
    looks = []
    for n in range(1, 5000):
        row = Row(n, n, None, {"power": float(n % 7), "wind": float(n % 5)}, "T1")
        machine.add(row, None)
        if n <= 40:
            model.learn_one({"wind": row.values["wind"]}, {"power": row.values["power"]})
        if machine.is_look_due:
            machine.look(model)
            looks.append(n)
    assert looks[:3] == [1, 17, 33]
    assert looks[-1] - looks[-2] == 64
    assert len(machine.weights) <= 120
    assert set(np.diff(machine.weights.plain()["time"])) == {64.0}
    weights = {name: each["power"] for name, each in model.expert_weights.items()}
    found = machine.weights.plain()
    assert {name: values[-1] for name, values in zip(found["names"], found["values"], strict=True)} == pytest.approx(
        weights, abs=1e-4
    )
    found = machine.relevance.plain()
    assert {name: values[-1] for name, values in zip(found["names"], found["values"], strict=True)} == pytest.approx(
        model.relevance, abs=1e-4
    )


def test_shares_of_earlier_versions_are_shown():
    old = {"n_rows": 33, "time_kind": "rows", "shares": [[1.0, {"own": 1.0}], [17.0, {"own": 0.5, "last": 0.5}]]}
    forecaster, regressor = (Machine("T1", Plan(("power",), ("wind",), None, horizon), 50) for horizon in (3, None))
    for machine in (forecaster, regressor):
        machine.restore([], old)
    expected = {"names": ["own", "last"], "time": [1.0, 17.0], "values": [[1.0, 0.5], [0.0, 0.5]]}
    assert forecaster.weights.plain() == regressor.relevance.plain() == expected
    assert len(forecaster.relevance) == len(regressor.weights) == 0


def test_the_newest_forecast_is_there_after_a_restart():
    plan, kept = Plan(("power",), (), "time", HORIZON, key="k"), []
    machine = Machine("T1", plan, 50)
    for n in range(1, 9):
        machine.add(Row(n, n, datetime(2026, 1, 1) + timedelta(minutes=n), {"power": n + 0.1}, "T1"), forecast_at(n))
        kept.append(machine.newest_row()[1])
    about = json.loads(json.dumps(machine.about()))
    again = Machine("T1", plan, 50)
    again.restore(kept, about)
    assert again.forecast() == machine.forecast()
    assert json.loads(json.dumps(again.about())) == about | {"forecast": again.forecast()}
    # As earlier versions kept it, and a second restart before any row.
    once_more = Machine("T1", plan, 50)
    once_more.restore(kept, again.about())
    assert once_more.forecast() == machine.forecast()


def test_values_that_are_missing_are_not_scored():
    plan = Plan(("power", "wind"), (), "time", HORIZON, key="k")
    machine = Machine("T1", plan, 50)
    for n in range(1, 30):
        mean = np.full((HORIZON, 2), 1.0)
        times = forecast_at(n).times
        values = {"power": 2.0} if n % 3 else {"power": float("nan"), "wind": 4.0}
        at = datetime(2026, 1, 1) + timedelta(minutes=n)
        machine.add(Row(n, n, at, values, "T1"), PredictedValues(mean, mean - 0.5, mean + 3.0, times, None))
    assert machine.scores == {
        "power": {"rmse": 1.0, "naive": 0.0, "coverage": 1.0},
        "wind": {"rmse": 3.0, "naive": 0.0, "coverage": 1.0},
    }


@pytest.mark.parametrize(("every", "horizon"), [(1, 5), (4, 24), (7, 24), (24, 24), (5, 48)])
def test_forecasts_that_are_made_now_and_then_are_scored(every, horizon):
    machine = Machine("T1", Plan(("power",), (), None, horizon, every=every, key="k"), 300)
    mean = np.ones((horizon, 1))
    for n in range(1, 200):
        predicted = PredictedValues(mean, mean - 0.5, mean + 0.5, None, None) if n % every == 1 % every else None
        machine.add(Row(n, n, None, {"power": 2.0}, "T1"), predicted)
    assert machine.scores["power"] == {"rmse": 1.0, "naive": 0.0, "coverage": 0.0}
    assert machine.earlier() is not None
    assert len(machine._origins) <= N_WAITING + 1


def test_the_fan_of_a_tile_begins_after_the_newest_row():
    state = FeedState(FeedConfig("north"), 50)
    state.plan = Plan(("power",), (), None, 12, every=4, key="k")
    machine, mean = Machine("T1", state.plan, 50), np.arange(1.0, 13.0)[:, np.newaxis]
    for n in range(1, 15):
        predicted = PredictedValues(mean, mean - 1.0, mean + 1.0, None, None) if n == 1 else None
        machine.add(Row(n, n, None, {"power": 0.0}, "T1"), predicted)
        machine.version = n
        assert state.tile(machine, "ok").data["fan"]["mean"] == list(range(n, 13))
